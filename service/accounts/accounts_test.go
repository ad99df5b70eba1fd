package accounts_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestSuspendedAccountWaits: while an account is suspended, its mail and notifications stay queued
// and its mailboxes are closed; all of it continues after the account is resumed.
func TestSuspendedAccountWaits(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	other := i.AddAccount("other@elsewhere.test")
	bob := i.AddMailbox(i.AddDomain(other, "other.test", nil), "bob", nil)
	ctx := context.Background()
	who := core.Actor{AccountID: i.Account.AccountID, UserID: i.Account.UserID, Role: "owner", Permissions: []string{"admin"}}
	if _, err := i.Svc.Events.CreateWebhook(ctx, who, events.CreateWebhookIn{URL: "https://127.0.0.1:1/x", Events: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"far@far.test"}, Subject: "s", Text: "t"})
	i.MustSend(bob, submit.SendEmailIn{To: submit.Texts{"near@far.test"}, Subject: "s", Text: "t"})
	i.Update(func(tx *store.Tx) error {
		_, err := i.Svc.Events.Emit(tx, i.Account.AccountID, events.EventEmailUserCreated, events.About{}, mailboxes.MailboxEvent{})
		return err
	})
	for range 2 { // the second time changes nothing
		out, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: "owner@elsewhere.test", Status: "suspended"})
		if err != nil || *out != (accounts.AccountStatus{AccountID: i.Account.AccountID, Status: "suspended"}) {
			t.Fatalf("suspend: %+v, %v", out, err)
		}
	}
	i.Run()
	i.Becomes("near@far.test", store.OutgoingCaptured)
	waiting := func() (n int) {
		err := i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.AccountID == i.Account.AccountID && j.State == store.JobQueued && j.Due.Sub(i.St.Now()) > 50*time.Minute && j.Attempt == 0 {
					n++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(10 * time.Second); waiting() != 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d jobs wait, want 2", waiting())
		}
	}
	if got := i.Row("far@far.test").Status; got != store.OutgoingQueued {
		t.Errorf("its mail is %s", got)
	}
	code := func(err error) string {
		if e, ok := core.AsError(err); ok {
			return e.Code
		}
		return ""
	}
	if _, err := i.Svc.Accounts.Authenticate(ctx, i.Account.Token, "127.0.0.1"); code(err) != "account_suspended" {
		t.Errorf("a token: %v", err)
	}
	if _, err := i.Svc.Accounts.Authenticate(ctx, other.Token, "127.0.0.1"); err != nil {
		t.Errorf("another account's token: %v", err)
	}
	if err := i.Svc.Accounts.CheckMailboxOpen(ctx, core.MailboxUser{MailboxID: ann.ID}); code(err) != core.CodeMailboxClosed {
		t.Errorf("a session of its mailbox: %v", err)
	}
	if err := i.Svc.Accounts.CheckMailboxOpen(ctx, core.MailboxUser{MailboxID: bob.ID}); err != nil {
		t.Errorf("a session of another's mailbox: %v", err)
	}
	smtp := new(core.SMTPError)
	if _, err := i.Svc.Inbound.Accepts(ctx, inbound.RecipientQuery{From: "x@far.test", To: "ann@example.test"}); !errors.As(err, &smtp) || smtp.Code != 550 || smtp.Enhanced != "5.2.1" {
		t.Errorf("mail to it: %v", err)
	}
	if _, err := i.Send(ann, submit.SendEmailIn{To: submit.Texts{"late@far.test"}, Subject: "s", Text: "t"}); code(err) != "account_suspended" {
		t.Errorf("mail of it: %v", err)
	}
	if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: i.Account.AccountID, Status: "active"}); err != nil {
		t.Fatal(err)
	}
	i.Becomes("far@far.test", store.OutgoingCaptured)
	for end := time.Now().Add(10 * time.Second); waiting() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d jobs wait after resume", waiting())
		}
	}
	if _, err := i.Svc.Accounts.Authenticate(ctx, i.Account.Token, "127.0.0.1"); err != nil {
		t.Errorf("a token after resume: %v", err)
	}
	if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: "acc_none", Status: "suspended"}); code(err) != "not_found" {
		t.Errorf("an account that is not there: %v", err)
	}
	if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Status: "suspended"}); code(err) != "validation_error" {
		t.Errorf("no account named: %v", err)
	}
}

// TestSuspendedAccountExportsNothing: a link that was made before the suspension does not export
// the passwords.
func TestSuspendedAccountExportsNothing(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Outbound: "capture"}})
	i.AddDomain(i.Account, "example.test", nil)
	ctx := context.Background()
	who := core.Actor{AccountID: i.Account.AccountID, UserID: i.Account.UserID, Role: "owner", Permissions: []string{"admin"}}
	if _, err := i.Svc.Mailboxes.CreateEmailUser(ctx, who, mailboxes.CreateEmailUserIn{Email: "ann@example.test"}); err != nil {
		t.Fatal(err)
	}
	out, err := i.Svc.Mailboxes.CreateExport(ctx, who, mailboxes.CreateExportIn{All: true})
	if err != nil {
		t.Fatal(err)
	}
	token := out.Link.DownloadURL[strings.LastIndexByte(out.Link.DownloadURL, '/')+1:]
	for _, c := range []struct{ status, code string }{{"suspended", "account_suspended"}, {"active", ""}} {
		if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: i.Account.AccountID, Status: c.status}); err != nil {
			t.Fatal(err)
		}
		_, err := i.Svc.Mailboxes.OpenExport(ctx, token)
		if e, _ := core.AsError(err); (e == nil) != (c.code == "") || e != nil && e.Code != c.code {
			t.Errorf("%s: %v", c.status, err)
		}
	}
}

// manyTokens is more than one transaction may revoke.
const manyTokens = 6000

func TestTokensOfAUserAreRevokedWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	u := &store.User{ID: s.Core.Store.NewID("usr"), AccountID: who.AccountID, Email: "ann@example.test", Role: "member", Status: "active"}
	servicetest.Update(t, s, func(tx *store.Tx) error { return store.Users.Put(tx, u) })
	var values []string
	for range manyTokens {
		values = append(values, core.NewToken())
	}
	servicetest.PutMany(t, s, store.Tokens, manyTokens, func(i int) *store.Token {
		tok := &store.Token{
			ID: s.Core.Store.NewID("tok"), AccountID: who.AccountID, UserID: u.ID, Hash: core.TokenHash(values[i]), Kind: "api",
			Permissions: []string{"read"}, CreatedAt: s.Core.Now(),
		}
		if i%2 == 0 {
			tok.Kind, tok.ExpiresAt = core.SessionKind, s.Core.Now().Add(accounts.SessionLife)
		}
		return tok
	})
	stands := func() (n int) {
		for _, v := range []string{values[1], values[manyTokens/2+1], values[manyTokens-1]} {
			if _, err := s.Accounts.Authenticate(t.Context(), v, "192.0.2.1"); err == nil {
				n++
			}
		}
		return n
	}
	if stands() != 3 {
		t.Fatal("the tokens do not stand")
	}
	err := s.Core.Store.View(func(tx *store.Tx) error {
		for tok := range store.Tokens.All(tx) {
			s.Accounts.TokenUses().Record(tok.ID, s.Core.Now(), "192.0.2.1")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Accounts.FlushTokenUses(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accounts.DeleteTeamUser(t.Context(), who, accounts.TeamUserIn{UserID: u.ID}); err != nil {
		t.Fatal(err)
	}
	if n := stands(); n != 0 {
		t.Errorf("%d tokens of nobody stand", n)
	}
}
