package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
)

// TestSuspendedAccountWaits: what an account was about to send and to tell waits, its mailboxes are
// closed, and all goes on after resume.
func TestSuspendedAccountWaits(t *testing.T) {
	i := install(t, Config{Sandbox: true, Outbound: "capture"})
	d := i.addDomain(i.account, "example.test", nil)
	ann := i.addMailbox(d, "ann", nil)
	other := i.addAccount("other@elsewhere.test")
	bob := i.addMailbox(i.addDomain(other, "other.test", nil), "bob", nil)
	ctx := context.Background()
	who := Actor{AccountID: i.account.AccountID, UserID: i.account.UserID, Role: "owner", Permissions: []string{"admin"}}
	if _, err := i.svc.CreateWebhook(ctx, who, CreateWebhookIn{URL: "https://127.0.0.1:1/x", Events: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	i.mustSend(ann, SendEmailIn{To: Texts{"far@far.test"}, Subject: "s", Text: "t"})
	i.mustSend(bob, SendEmailIn{To: Texts{"near@far.test"}, Subject: "s", Text: "t"})
	i.update(func(tx *store.Tx) error {
		_, err := i.svc.emit(tx, i.account.AccountID, EventEmailUserCreated, mailboxEvent{})
		return err
	})
	for range 2 { // the second time changes nothing
		out, err := i.svc.SetAccountStatus(ctx, AccountIn{Account: "owner@elsewhere.test", Status: "suspended"})
		if err != nil || *out != (AccountStatus{i.account.AccountID, "suspended"}) {
			t.Fatalf("suspend: %+v, %v", out, err)
		}
	}
	i.run()
	i.becomes("near@far.test", store.OutgoingCaptured)
	waiting := func() (n int) {
		err := i.st.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.AccountID == i.account.AccountID && j.State == store.JobQueued && j.Due.Sub(i.st.Now()) > 50*time.Minute && j.Attempt == 0 {
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
	if got := i.row("far@far.test").Status; got != store.OutgoingQueued {
		t.Errorf("its mail is %s", got)
	}
	code := func(err error) string {
		if e, ok := AsError(err); ok {
			return e.Code
		}
		return ""
	}
	if _, err := i.svc.Authenticate(ctx, i.account.Token, "127.0.0.1"); code(err) != "account_suspended" {
		t.Errorf("a token: %v", err)
	}
	if _, err := i.svc.Authenticate(ctx, other.Token, "127.0.0.1"); err != nil {
		t.Errorf("another account's token: %v", err)
	}
	if err := i.svc.MailboxOpen(ctx, MailboxUser{MailboxID: ann.ID}); code(err) != CodeMailboxClosed {
		t.Errorf("a session of its mailbox: %v", err)
	}
	if err := i.svc.MailboxOpen(ctx, MailboxUser{MailboxID: bob.ID}); err != nil {
		t.Errorf("a session of another's mailbox: %v", err)
	}
	smtp := new(SMTPError)
	if _, err := i.svc.Accepts(ctx, RecipientQuery{From: "x@far.test", To: "ann@example.test"}); !errors.As(err, &smtp) || smtp.Code != 550 || smtp.Enhanced != "5.2.1" {
		t.Errorf("mail to it: %v", err)
	}
	if _, err := i.send(ann, SendEmailIn{To: Texts{"late@far.test"}, Subject: "s", Text: "t"}); code(err) != "account_suspended" {
		t.Errorf("mail of it: %v", err)
	}
	if _, err := i.svc.SetAccountStatus(ctx, AccountIn{Account: i.account.AccountID, Status: "active"}); err != nil {
		t.Fatal(err)
	}
	i.becomes("far@far.test", store.OutgoingCaptured)
	for end := time.Now().Add(10 * time.Second); waiting() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d jobs wait after resume", waiting())
		}
	}
	if _, err := i.svc.Authenticate(ctx, i.account.Token, "127.0.0.1"); err != nil {
		t.Errorf("a token after resume: %v", err)
	}
	if _, err := i.svc.SetAccountStatus(ctx, AccountIn{Account: "acc_none", Status: "suspended"}); code(err) != "not_found" {
		t.Errorf("an account that is not there: %v", err)
	}
	if _, err := i.svc.SetAccountStatus(ctx, AccountIn{Status: "suspended"}); code(err) != "validation_error" {
		t.Errorf("no account named: %v", err)
	}
}
