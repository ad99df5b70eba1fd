package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestSuspendedAccountFetchesNothing: neither a look that somebody asked for before nor one by the
// clock logs in to an external mailbox of a suspended account; both go on after resume.
func TestSuspendedAccountFetchesNothing(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Outbound: "capture"})
	remote := pulltest.Serve(t, nil)
	ctx := context.Background()
	who := core.Actor{AccountID: i.Account.AccountID, UserID: i.Account.UserID, Role: "owner", Permissions: []string{"admin"}}
	status := func(to string) {
		t.Helper()
		if _, err := i.Svc.Accounts.SetAccountStatus(ctx, accounts.AccountIn{Account: i.Account.AccountID, Status: to}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := i.Svc.Domains.ConnectDomains(ctx, who, domains.ConnectDomainsIn{Domains: []string{"away.test"}, External: true}); err != nil {
		t.Fatal(err)
	}
	on := true
	if _, err := i.Svc.Inbox.SetUniversalInbox(ctx, who, inbox.UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	made, err := i.Svc.Mailboxes.CreateEmailUser(ctx, who, mailboxes.CreateEmailUserIn{
		Email: "me@away.test", Type: "external",
		IMAP: &mailboxes.MailServerLogin{Host: "127.0.0.1", Port: remote.Port, Security: "none", Username: "me", Password: "secret"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lastSync := func() (at time.Time) {
		i.Update(func(tx *store.Tx) error {
			mb, err := store.Mailboxes.Get(tx, made.UserID)
			if err == nil {
				at = mb.LastSyncAt
			}
			return err
		})
		return at
	}
	jobsOf := func(kind string) (n int) {
		i.Update(func(tx *store.Tx) error {
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
	i.Run()
	eventually("the look neither waits nor ends", func() bool {
		n := 0
		i.Update(func(tx *store.Tx) error {
			n = 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == inbox.KindInboxSync && (j.Ended() || j.State == store.JobQueued && j.Due.Sub(tx.Now()) > 50*time.Minute) {
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
		i.Update(func(tx *store.Tx) error {
			j, err := store.JobByKey.Read(tx, store.JobKey(inbox.KindInboxPoll, made.UserID))
			waits = err == nil && j.State == store.JobQueued && j.Due.Sub(tx.Now()) > 10*time.Second
			return nil
		})
		return waits
	})
	status("suspended")
	eventually("no look waits", func() bool { // the next one by the clock, now
		err := i.St.Update(func(tx *store.Tx) error {
			j, err := store.JobByKey.Get(tx, store.JobKey(inbox.KindInboxPoll, made.UserID))
			if err != nil {
				return err
			}
			return i.Svc.Core.Queue.Wake(tx, j.ID, time.Time{})
		})
		return err == nil
	})
	eventually("the look by the clock goes on", func() bool { return jobsOf(inbox.KindInboxPoll) == 0 })
	status("active")
	eventually("no look is planned after resume", func() bool { return jobsOf(inbox.KindInboxPoll) == 1 })
}

// TestWarmupPhrasesMarkStoredMail changes the phrases again and again; in the end the marks are
// those of the last.
func TestWarmupPhrasesMarkStoredMail(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	for n := range 250 {
		servicetest.Keep(i, ann, "INBOX", letterOf(fmt.Sprintf("letter %d BLUE  Bird", n), fmt.Sprintf("%d@far", n)))
	}
	servicetest.Keep(i, bob, "INBOX", letterOf("letter", "b1@far"))
	servicetest.Keep(i, bob, "Sent", letterOf("blue bird sent", "b2@far"))
	i.Run()
	who := core.Actor{AccountID: i.Account.AccountID, AccountNum: 1, Role: "owner", Permissions: []string{"admin"}}
	for _, phrases := range [][]string{{"nothing"}, {"hello"}, {}, {"Blue bird"}} {
		if _, err := i.Svc.Accounts.UpdateAccount(context.Background(), who, accounts.UpdateAccountIn{WarmupPhrases: &phrases}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"INBOX ann": 250, "INBOX bob": 0, "Sent bob": 1}
	end := time.Now().Add(20 * time.Second)
	for ; fmt.Sprint(i.Marked(ann, bob)) != fmt.Sprint(want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("marked %v, want %v", i.Marked(ann, bob), want)
		}
	}
	if shown, _ := listed(i, inbox.InboxFilter{ExcludeWarmup: true}); len(shown) != 1 {
		t.Errorf("without warm-up mail the inbox shows %v", shown)
	}
	before := len(i.Events(events.EventEmailReceived))
	servicetest.Keep(i, ann, "INBOX", letterOf("a blue bird", "new@far"))
	if n := len(i.Events(events.EventEmailReceived)); n != before {
		t.Errorf("warm-up mail made %d events", n-before)
	}
}

// TestWarmupJobGoesOnWhereItWas ends the work of the job in the middle.
func TestWarmupJobGoesOnWhereItWas(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	for n := range 5 {
		servicetest.Keep(i, ann, "INBOX", letterOf("bird", fmt.Sprintf("%d@far", n)))
	}
	i.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, i.Account.AccountID)
		if err != nil {
			return err
		}
		a.WarmupPhrases = []string{"bird"}
		return store.Accounts.Put(tx, a)
	})
	at := inbox.WarmupArgs{AccountID: i.Account.AccountID, MailboxID: ann.ID, Folder: store.InboxID, UID: 4}
	if done, err := i.Svc.Inbox.MarkSome(&at); !done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	if got := i.Marked(ann)["INBOX ann"]; got != 2 {
		t.Errorf("%d messages from the fourth on are marked, want 2", got)
	}
}
