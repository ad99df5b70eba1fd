package signin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/store"
)

// A resetCase is a service with a clock, and a team user who was invited without a password.
type resetCase struct {
	*service.Service
	owner core.Actor
	now   time.Time
	user  string
	token string
}

func newResetCase(t *testing.T) *resetCase {
	t.Helper()
	c := &resetCase{now: time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)}
	c.Service, c.owner = servicetest.NewClocked(t, func() time.Time { return c.now })
	invited, err := c.Accounts.InviteTeamUser(t.Context(), c.owner, accounts.InviteTeamUserIn{Email: "ann@team.test"})
	if err != nil {
		t.Fatal(err)
	}
	c.user = invited.ID
	_, c.token, _ = strings.Cut(invited.ResetLink, "token=")
	return c
}

// record reads the team user.
func (c *resetCase) record(t *testing.T) *store.User {
	t.Helper()
	var u *store.User
	err := c.Core.Store.View(func(tx *store.Tx) (err error) {
		u, err = store.Users.Get(tx, c.user)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func code(err error) string {
	if e, ours := core.AsError(err); ours {
		return e.Code
	}
	return ""
}

func TestResetSetsThePasswordOnce(t *testing.T) {
	c := newResetCase(t)
	before := c.record(t)
	if before.PasswordHash == "" || strings.Contains(before.ResetHash, c.token) {
		t.Errorf("the record is %+v", before)
	}
	session := c.session(t)
	if err := c.Signin.CompleteReset(t.Context(), signin.Visitor{}, c.token, "short", false); code(err) != "validation_error" {
		t.Errorf("a short password: %v", err)
	}
	c.now = c.now.Add(accounts.ResetLinkLife - time.Second)
	if err := c.Signin.CompleteReset(t.Context(), signin.Visitor{}, c.token, "correct horse", false); err != nil {
		t.Fatal(err)
	}
	u := c.record(t)
	if !c.Core.Logins.Check(u.PasswordHash, "correct horse") || u.Status != "active" || u.ResetHash != "" {
		t.Errorf("after it: %+v", u)
	}
	if err := c.Signin.CompleteReset(t.Context(), signin.Visitor{}, c.token, "another horse", false); code(err) != "not_found" {
		t.Errorf("a second time: %v", err)
	}
	if _, err := c.Signin.AuthenticateSession(t.Context(), session, ""); code(err) != "unauthorized" {
		t.Errorf("a session from before the reset: %v", err)
	}
}

// session writes a dashboard session of the team user to the store.
func (c *resetCase) session(t *testing.T) (token string) {
	t.Helper()
	token = core.NewToken()
	servicetest.Update(t, c.Service, func(tx *store.Tx) error {
		return store.Tokens.Put(tx, &store.Token{
			ID: tx.NewID("tok"), AccountID: c.owner.AccountID, UserID: c.user, Kind: core.SessionKind, Hash: core.TokenHash(token),
			CreatedAt: c.now, ExpiresAt: c.now.Add(accounts.SessionLife),
		})
	})
	return token
}

func TestResetEnds(t *testing.T) {
	for name, end := range map[string]func(c *resetCase) error{
		"after 72 hours": func(c *resetCase) error { c.now = c.now.Add(accounts.ResetLinkLife); return nil },
		"with a password": func(c *resetCase) error {
			password := "another"
			_, err := c.Accounts.UpdateTeamUser(t.Context(), c.owner, accounts.UpdateTeamUserIn{UserID: c.user, Password: &password})
			return err
		},
		"with the operator's password": func(c *resetCase) error {
			_, err := c.Accounts.ResetPassword(t.Context(), accounts.ResetPasswordIn{User: "ann@team.test"})
			return err
		},
		"with the user": func(c *resetCase) error {
			_, err := c.Accounts.DeleteTeamUser(t.Context(), c.owner, accounts.TeamUserIn{UserID: c.user})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newResetCase(t)
			if email, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: c.token}); err != nil || email.Email != "ann@team.test" {
				t.Fatalf("before: %q, %v", email.Email, err)
			}
			if err := end(c); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: c.token}); code(err) != "not_found" {
				t.Errorf("it is still there: %v", err)
			}
			if err := c.Signin.CompleteReset(t.Context(), signin.Visitor{}, c.token, "correct horse", false); code(err) != "not_found" {
				t.Errorf("it still works: %v", err)
			}
		})
	}
}

// TestOwnPasswordKeepsTheAskingSession: a new password ends all other sessions, but revokes no API
// token.
func TestOwnPasswordKeepsTheAskingSession(t *testing.T) {
	c := newResetCase(t)
	if _, err := c.Accounts.ResetPassword(t.Context(), accounts.ResetPasswordIn{User: "ann@team.test", Password: "before that"}); err != nil {
		t.Fatal(err)
	}
	asking, other := c.session(t), c.session(t)
	key, err := c.Accounts.CreateTokenFor(t.Context(), accounts.CreateTokenForIn{User: "ann@team.test", Permissions: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	who, err := c.Signin.AuthenticateSession(t.Context(), asking, "")
	if err != nil {
		t.Fatal(err)
	}
	password := "correct horse"
	if _, err := c.Accounts.UpdateTeamUser(t.Context(), who, accounts.UpdateTeamUserIn{UserID: c.user, Password: &password, Current: "before that"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Accounts.Authenticate(t.Context(), key.Value, ""); err != nil {
		t.Errorf("the API token: %v", err)
	}
	for token, want := range map[string]string{asking: "", other: "unauthorized"} {
		if _, err := c.Signin.AuthenticateSession(t.Context(), token, ""); code(err) != want {
			t.Errorf("afterwards: %v, want %q", err, want)
		}
	}
}

// letters returns the queued messages by recipient.
func (c *sessionCase) letters(t *testing.T) map[string]string {
	t.Helper()
	out, subs := map[string]string{}, map[string]*store.Submission{}
	err := c.Core.Store.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			sub, err := store.Submissions.Get(tx, o.SubmissionID)
			if err != nil {
				return err
			}
			subs[o.Recipient] = sub
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for to, sub := range subs {
		blob, err := c.Core.Store.OpenBlob(sub.Blob)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
		if err != nil {
			t.Fatal(err)
		}
		blob.Close()
		out[to] = strings.ReplaceAll(strings.ReplaceAll(string(text), "=\r\n", ""), "=3D", "=")
	}
	return out
}

// forget requests a link from a network, and runs the job that sends it, if there is one.
func (c *sessionCase) forget(t *testing.T, ip, email string) (jobsAdded int) {
	t.Helper()
	said, err := c.Signin.ForgotPassword(t.Context(), signin.Visitor{IP: ip}, signin.ForgotIn{Email: email})
	if err != nil || said.Message == "" {
		t.Fatalf("%s: %v", email, err)
	}
	var waiting []*store.Job
	servicetest.Update(t, c.Service, func(tx *store.Tx) error {
		waiting = nil
		for j := range store.Jobs.All(tx) {
			if j.Kind == "password_mail" {
				waiting = append(waiting, j)
			}
		}
		for _, j := range waiting {
			if err := store.Jobs.Delete(tx, j.ID); err != nil {
				return err
			}
		}
		return nil
	})
	for _, j := range waiting {
		if _, err := c.Signin.SendForgot(context.Background(), j); err != nil {
			t.Fatal(err)
		}
	}
	return len(waiting)
}

func TestForgottenPassword(t *testing.T) {
	c := newSessionCase(t)
	c.Core.Config.BaseURL = "https://mail.example.com"
	in := c.here(t)
	invited, err := c.Accounts.InviteTeamUser(t.Context(), core.Actor{AccountID: in.Account.ID, UserID: in.User.ID, Role: "owner", Permissions: []string{"admin"}}, accounts.InviteTeamUserIn{Email: "ann@team.test"})
	if err != nil {
		t.Fatal(err)
	}
	if known, unknown := c.forget(t, "192.0.2.1", "Ann@team.test"), c.forget(t, "192.0.2.1", "nobody@team.test"); known != 1 || unknown != 1 {
		t.Errorf("%d and %d jobs: it shows who is known", known, unknown)
	}
	letters := c.letters(t)
	if len(letters) != 1 {
		t.Fatalf("letters to %v", letters)
	}
	letter := letters["ann@team.test"]
	_, rest, _ := strings.Cut(letter, "https://mail.example.com/reset?token=")
	token, _, _ := strings.Cut(rest, "\r\n")
	if len(token) != 43 || !strings.Contains(letter, "postmaster@mail.example.com") || !strings.Contains(letter, "192.0.2.1") {
		t.Fatalf("the letter is\n%s", letter)
	}
	_, invitation, _ := strings.Cut(invited.ResetLink, "token=")
	for _, link := range []string{token, invitation} {
		if w, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: link}); err != nil || w.Email != "ann@team.test" || w.MayChangeEmail {
			t.Errorf("a link: %+v, %v", w, err)
		}
	}
	if err := c.Signin.CompleteReset(t.Context(), signin.Visitor{}, token, "a new horse", false); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{token, invitation} {
		if _, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: link}); code(err) != "not_found" {
			t.Errorf("a link after it: %v", err)
		}
	}
}

// TestNoLinkToAddressesReadHere: programs and colleagues may read the mail of an address that is
// received on this server, or that the account has connected. So no password link goes there.
func TestNoLinkToAddressesReadHere(t *testing.T) {
	c := newSessionCase(t)
	in := c.here(t)
	owner := core.Actor{AccountID: in.Account.ID, UserID: in.User.ID, Role: "owner", Permissions: []string{"admin"}}
	users := []string{"ann@elsewhere.test", "ann@hosted.test", "ann@connected.test", "ann+team@connected.test", "bob@connected.test"}
	for _, email := range users {
		if _, err := c.Accounts.InviteTeamUser(t.Context(), owner, accounts.InviteTeamUserIn{Email: email, SendEmail: true}); err != nil {
			t.Fatal(err)
		}
	}
	c.addReadable(t, owner.AccountID)
	for _, email := range users {
		c.forget(t, "192.0.2.1", email)
		linked := email == "ann@elsewhere.test" || email == "bob@connected.test"
		letter := c.letters(t)[email]
		if letter == "" || strings.Contains(letter, "token=") != linked {
			t.Errorf("the letter to %s is\n%s", email, letter)
		}
		if !linked && (!strings.Contains(letter, "mailstead user reset-password --user "+email) || !strings.Contains(letter, "192.0.2.1")) {
			t.Errorf("the letter to %s does not say what to do:\n%s", email, letter)
		}
	}
	for email, want := range map[string]string{"carl@hosted.test": "validation_error", "carl@elsewhere.test": ""} {
		_, err := c.Accounts.InviteTeamUser(t.Context(), owner, accounts.InviteTeamUserIn{Email: email, SendEmail: true})
		if code(err) != want {
			t.Errorf("an invitation by mail to %s: %v", email, err)
		}
	}
	if _, err := c.Accounts.InviteTeamUser(t.Context(), owner, accounts.InviteTeamUserIn{Email: "carl@hosted.test"}); err != nil {
		t.Errorf("an invitation without mail: %v", err)
	}
}

// addReadable adds the domain hosted.test, and the domain connected.test with the mailbox
// ann@connected.test on another server. Another account has bob@connected.test there.
func (c *sessionCase) addReadable(t *testing.T, accountID string) {
	t.Helper()
	servicetest.Update(t, c.Service, func(tx *store.Tx) error {
		for _, d := range []*store.Domain{
			{ID: "dom_1", AccountID: accountID, Name: "hosted.test", Claim: store.ClaimProven, DNSProvider: "manual"},
			{ID: "dom_2", AccountID: accountID, Name: "connected.test", Claim: store.ClaimOpen, DNSProvider: store.DomainProviderExternal},
			{ID: "dom_3", AccountID: "acc_other", Name: "connected.test", Claim: store.ClaimOpen, DNSProvider: store.DomainProviderExternal},
		} {
			d.Status = store.DomainComplete
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
		}
		return errors.Join(
			store.Mailboxes.Put(tx, &store.Mailbox{ID: "eu_1", Num: 1, AccountID: accountID, DomainID: "dom_2", Email: "ann@connected.test"}),
			store.Mailboxes.Put(tx, &store.Mailbox{ID: "eu_2", Num: 2, AccountID: "acc_other", DomainID: "dom_3", Email: "bob@connected.test"}))
	})
}

// TestPasskeysAfterAReset: passkeys stay unless the user chooses to remove them.
func TestPasskeysAfterAReset(t *testing.T) {
	for drop, want := range map[bool]int{false: 2, true: 0} {
		c := newSessionCase(t)
		id := c.here(t).UserID
		change := func(how func(*store.User)) {
			t.Helper()
			err := c.Core.Store.Update(func(tx *store.Tx) error {
				u, err := store.Users.Get(tx, id)
				if err != nil {
					return err
				}
				how(u)
				return store.Users.Put(tx, u)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		change(func(u *store.User) {
			u.Passkeys = []store.Passkey{{ID: "pky_1", Name: "phone"}, {ID: "pky_2", Name: "key"}}
		})
		c.forget(t, "192.0.2.1", "owner@example.test")
		_, rest, _ := strings.Cut(c.letters(t)["owner@example.test"], "token=")
		token, _, _ := strings.Cut(rest, "\r\n")
		if w, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: token}); err != nil || w.Passkeys != 2 {
			t.Fatalf("the link: %+v, %v", w, err)
		}
		if err := c.Signin.CompleteReset(t.Context(), signin.Visitor{}, token, "a new horse", drop); err != nil {
			t.Fatal(err)
		}
		change(func(u *store.User) {
			if len(u.Passkeys) != want {
				t.Errorf("drop %v leaves %d passkeys, want %d", drop, len(u.Passkeys), want)
			}
		})
	}
}

func TestForgottenLinkExpires(t *testing.T) {
	c := newSessionCase(t)
	c.forget(t, "192.0.2.1", "owner@example.test")
	_, rest, _ := strings.Cut(c.letters(t)["owner@example.test"], "token=")
	token, _, _ := strings.Cut(rest, "\r\n")
	if _, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: token}); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(signin.ForgotFor)
	if _, err := c.Signin.CheckWelcome(t.Context(), core.Actor{}, signin.LinkIn{Token: token}); code(err) != "not_found" {
		t.Errorf("after its time: %v", err)
	}
}

func TestForgottenPasswordsAreThrottled(t *testing.T) {
	c := newSessionCase(t)
	sent := 0
	for range 2 * signin.ForgotAddress {
		sent += c.forget(t, "192.0.2.1", "owner@example.test")
	}
	if sent != signin.ForgotAddress {
		t.Errorf("%d letters to one address", sent)
	}
	sent = 0
	for i := range 2 * signin.ForgotNetwork {
		sent += c.forget(t, "192.0.2.2", fmt.Sprintf("user%d@example.test", i))
	}
	if sent != signin.ForgotNetwork {
		t.Errorf("%d questions from one network were looked at", sent)
	}
	if c.forget(t, "192.0.2.3", "victim@example.test") != 1 {
		t.Error("another network is held off")
	}
	for range 2 * signin.ForgotAddress {
		c.forget(t, "192.0.2.2", "ann@example.test")
	}
	if c.forget(t, "192.0.2.3", "ann@example.test") != 1 {
		t.Error("who may not ask any more keeps others from their letters")
	}
	c.now = c.now.Add(2 * signin.ForgotWindow)
	if c.forget(t, "192.0.2.1", "owner@example.test") != 1 {
		t.Error("it stays closed")
	}
}

// TestPasskeysAfterTheOperatorsPassword: passkeys stay, and the answer tells the operator how many
// there are, unless they are to be removed with the second factor.
func TestPasskeysAfterTheOperatorsPassword(t *testing.T) {
	for noFactor, want := range map[bool]int{false: 2, true: 0} {
		c := newResetCase(t)
		servicetest.Update(t, c.Service, func(tx *store.Tx) error {
			u, err := store.Users.Get(tx, c.user)
			if err != nil {
				return err
			}
			u.Passkeys = []store.Passkey{{ID: "pky_1", Name: "phone"}, {ID: "pky_2", Name: "key"}}
			return store.Users.Put(tx, u)
		})
		out, err := c.Accounts.ResetPassword(t.Context(), accounts.ResetPasswordIn{User: "ann@team.test", NoFactor: noFactor})
		if err != nil || out.Passkeys != want {
			t.Errorf("without a factor %v: %+v, %v", noFactor, out, err)
		}
		err = c.Core.Store.View(func(tx *store.Tx) error {
			u, err := store.Users.Get(tx, c.user)
			if err == nil && len(u.Passkeys) != want {
				t.Errorf("without a factor %v: %d passkeys", noFactor, len(u.Passkeys))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
