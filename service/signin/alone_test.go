package signin_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/store"
)

// The package with only service/accounts, which also has no other room: sent messages and failed
// log-ins are recorded here, and there are no mailboxes.
type alone struct {
	*accounts.Service
	in      *signin.Service
	letters []alert.HostMail
	failed  []string // ids of users
}

func newAlone(t *testing.T) *alone {
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	q := jobs.NewQueue(st)
	c := core.New(st, q, keys, core.Config{Hostname: "mail.test", BaseURL: "https://mail.test", Settings: core.Settings{Limits: core.Limits{Plan: "startup"}}, Log: slog.New(slog.DiscardHandler)})
	a := &alone{Service: accounts.New(c, nil, nil, nil, nil, nil, nil)}
	a.in = signin.New(c, a, noMailboxes{}, a)
	for _, k := range a.in.Kinds() {
		q.Handle(k)
	}
	return a
}

func (a *alone) SendHostMail(l alert.HostMail, put func(*store.Tx) (bool, error)) (sent bool, err error) {
	err = a.Store.Update(func(tx *store.Tx) error {
		sent, err = put(tx)
		return err
	})
	if sent {
		a.letters = append(a.letters, l)
	}
	return sent, err
}

func (a *alone) RecordFailedLogin(at store.AuditActor, _, _, _ string) {
	a.failed = append(a.failed, at.ID)
}

// noMailboxes has password logins at which no password is right.
type noMailboxes struct{ signin.Mailboxes }

func (noMailboxes) FindPasswordLogin(email, _ string) (*mailboxes.PasswordLogin, error) {
	return &mailboxes.PasswordLogin{Identity: core.Identity{Name: "mailbox " + email}, Mailbox: &store.Mailbox{}}, nil
}

// TestSignInAlone: a wrong password is recorded for its user, the right one begins a session, and
// the use of a requested link ends that session.
func TestSignInAlone(t *testing.T) {
	a, ctx, v := newAlone(t), t.Context(), signin.Visitor{IP: "192.0.2.1"}
	owner, err := a.CreateAccount(ctx, accounts.NewAccount{OwnerEmail: "owner@example.test", OwnerPassword: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	for _, email := range []string{"owner@example.test", "nobody@example.test"} {
		if _, err := a.in.SignIn(ctx, v, signin.SignInIn{Email: email, Password: "battery staple"}); code(err) != "invalid_credentials" {
			t.Errorf("%s with a wrong password: %v", email, err)
		}
	}
	if !slices.Equal(a.failed, []string{owner.UserID, ""}) {
		t.Errorf("failed log-ins are noted at %q", a.failed)
	}

	session, err := a.in.SignIn(ctx, v, signin.SignInIn{Email: "owner@example.test", Password: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	who, err := a.in.AuthenticateSession(ctx, session.Cookie, v.IP)
	if err != nil || who.UserID != owner.UserID || who.Role != store.UserRoleOwner {
		t.Fatalf("the session is %+v's: %v", who, err)
	}

	if _, err := a.in.ForgotPassword(ctx, v, signin.ForgotIn{Email: "owner@example.test"}); err != nil {
		t.Fatal(err)
	}
	var job *store.Job
	if err := a.Store.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			job = j
		}
		return nil
	}); err != nil || job == nil {
		t.Fatalf("no job sends the link: %v", err)
	}
	if _, err := a.in.SendForgot(ctx, job); err != nil || len(a.letters) != 1 || a.letters[0].To != "owner@example.test" {
		t.Fatalf("letters %+v: %v", a.letters, err)
	}
	_, token, _ := strings.Cut(a.letters[0].Text, "token=")
	token, _, _ = strings.Cut(token, "\n")
	if _, err := a.in.CompleteWelcome(ctx, v, signin.WelcomeIn{Token: token, Password: "another horse"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.in.AuthenticateSession(ctx, session.Cookie, v.IP); code(err) != "unauthorized" {
		t.Errorf("the session of the forgotten password goes on: %v", err)
	}
}
