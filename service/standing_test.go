package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
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

// TestSuspendedAccountFetchesNothing: neither a look that somebody asked for before nor one by the
// clock logs in to an external mailbox of a suspended account; both go on after resume.
func TestSuspendedAccountFetchesNothing(t *testing.T) {
	i := install(t, Config{Sandbox: true, Outbound: "capture"})
	remote := pulltest.Serve(t, nil)
	ctx := context.Background()
	who := Actor{AccountID: i.account.AccountID, UserID: i.account.UserID, Role: "owner", Permissions: []string{"admin"}}
	status := func(to string) {
		t.Helper()
		if _, err := i.svc.SetAccountStatus(ctx, AccountIn{Account: i.account.AccountID, Status: to}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := i.svc.ConnectDomains(ctx, who, ConnectDomainsIn{Domains: []string{"away.test"}, External: true}); err != nil {
		t.Fatal(err)
	}
	on := true
	if _, err := i.svc.SetUniversalInbox(ctx, who, UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	made, err := i.svc.CreateEmailUser(ctx, who, CreateEmailUserIn{
		Email: "me@away.test", Type: "external",
		IMAP: &MailServerLogin{Host: "127.0.0.1", Port: remote.Port, Security: "none", Username: "me", Password: "secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lastSync := func() (at time.Time) {
		i.update(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Get(tx, made.UserID)
			if err == nil {
				at = mb.LastSyncAt
			}
			return err
		})
		return at
	}
	jobsOf := func(kind string) (n int) {
		i.update(func(tx *store.Tx) error {
			n = 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == kind && !j.Ended() {
					n++
				}
			}
			return nil
		})
		return n
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	status("suspended")
	i.run()
	eventually("the look neither waits nor ends", func() bool {
		n := 0
		i.update(func(tx *store.Tx) error {
			n = 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == kindInboxSync && (j.Ended() || j.State == store.JobQueued && j.Due.Sub(tx.Now()) > 50*time.Minute) {
					n++
				}
			}
			return nil
		})
		return n == 1 || !lastSync().IsZero()
	})
	if !lastSync().IsZero() {
		t.Fatal("the mailbox of a suspended account was looked at")
	}
	status("active")
	eventually("nobody looks after resume", func() bool { return !lastSync().IsZero() })
	eventually("no look waits for its time", func() (waits bool) { // one at work would end by itself
		i.update(func(tx *store.Tx) error {
			j, err := store.JobByKey.Read(tx, store.JobKey(kindInboxPoll, made.UserID))
			waits = err == nil && j.State == store.JobQueued && j.Due.Sub(tx.Now()) > 10*time.Second
			return nil
		})
		return waits
	})
	status("suspended")
	eventually("no look waits", func() bool { // the next one by the clock, now
		err := i.st.Update(func(tx *store.Tx) error {
			j, err := store.JobByKey.Get(tx, store.JobKey(kindInboxPoll, made.UserID))
			if err != nil {
				return err
			}
			return i.svc.Queue.Wake(tx, j.ID, time.Time{})
		})
		return err == nil
	})
	eventually("the look by the clock goes on", func() bool { return jobsOf(kindInboxPoll) == 0 })
	status("active")
	eventually("no look is planned after resume", func() bool { return jobsOf(kindInboxPoll) == 1 })
}

// TestSuspendedAccountExportsNothing: a link from before does not give the passwords away.
func TestSuspendedAccountExportsNothing(t *testing.T) {
	i := install(t, Config{Sandbox: true, Outbound: "capture"})
	i.addDomain(i.account, "example.test", nil)
	ctx := context.Background()
	who := Actor{AccountID: i.account.AccountID, UserID: i.account.UserID, Role: "owner", Permissions: []string{"admin"}}
	if _, err := i.svc.CreateEmailUser(ctx, who, CreateEmailUserIn{Email: "ann@example.test"}); err != nil {
		t.Fatal(err)
	}
	out, err := i.svc.CreateExport(ctx, who, CreateExportIn{All: true})
	if err != nil {
		t.Fatal(err)
	}
	token := out.Link.DownloadURL[strings.LastIndexByte(out.Link.DownloadURL, '/')+1:]
	for _, c := range []struct{ status, code string }{{"suspended", "account_suspended"}, {"active", ""}} {
		if _, err := i.svc.SetAccountStatus(ctx, AccountIn{Account: i.account.AccountID, Status: c.status}); err != nil {
			t.Fatal(err)
		}
		_, err := i.svc.OpenExport(ctx, token)
		if e, _ := AsError(err); (e == nil) != (c.code == "") || e != nil && e.Code != c.code {
			t.Errorf("%s: %v", c.status, err)
		}
	}
}
