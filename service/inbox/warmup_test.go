package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestWarmupPhrasesMarkStoredMail changes the phrases repeatedly; in the end the marks match the
// last ones.
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

// TestWarmupHeadersMarkMail: a header field marks mail that arrives while the account has it, and
// the mark goes and comes with the field.
func TestWarmupHeadersMarkMail(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	marked := func(what string, want int) {
		t.Helper()
		servicetest.Eventually(t, what, func() bool { return i.Marked(ann)["INBOX ann"] == want })
	}
	set := func(in accounts.UpdateAccountIn) {
		t.Helper()
		if _, err := i.Svc.Accounts.UpdateAccount(t.Context(), servicetest.Actor(i.Account), in); err != nil {
			t.Fatal(err)
		}
	}
	headers := []accounts.WarmupHeader{{Name: "X-Warm"}}
	set(accounts.UpdateAccountIn{WarmupHeaders: &headers})
	servicetest.Keep(i, ann, "INBOX", letterOf("one", "1@far", "x-warm: yes"))
	servicetest.Keep(i, ann, "INBOX", letterOf("two", "2@far", "X-Warmer: yes"))
	marked("the field marks", 1)
	phrases := []string{"two"}
	set(accounts.UpdateAccountIn{WarmupPhrases: &phrases})
	marked("a phrase marks the other one too", 2)
	set(accounts.UpdateAccountIn{WarmupHeaders: &[]accounts.WarmupHeader{}})
	marked("without the field its mark goes", 1)
	other := "no"
	set(accounts.UpdateAccountIn{WarmupHeaders: &[]accounts.WarmupHeader{{Name: "X-Warm", Value: &other}}, WarmupPhrases: &[]string{}})
	marked("another value does not count", 0)
	set(accounts.UpdateAccountIn{WarmupHeaders: &headers})
	marked("with the field its mark comes back", 1)
	if n := len(i.Events(events.EventEmailReceived)); n != 1 {
		t.Errorf("%d events, want that of the second message", n)
	}
}

// TestWarmupJobGoesOnWhereItWas interrupts the job.
func TestWarmupJobGoesOnWhereItWas(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	for n := range 5 {
		servicetest.Keep(i, ann, "INBOX", letterOf("bird", fmt.Sprintf("%d@far", n)))
	}
	i.ChangeAccount(i.Account.AccountID, func(a *servicetest.Account) { a.WarmupPhrases = []string{"bird"} })
	at := inbox.WarmupArgs{AccountID: i.Account.AccountID, MailboxID: ann.ID, Folder: store.InboxID, UID: 4}
	if done, err := i.Svc.Inbox.MarkSome(&at); !done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	if got := i.Marked(ann)["INBOX ann"]; got != 2 {
		t.Errorf("%d messages from the fourth on are marked, want 2", got)
	}
}
