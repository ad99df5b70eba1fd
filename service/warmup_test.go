package service

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
)

// TestWarmupPhrasesMarkStoredMail changes the phrases again and again; in the end the marks are
// those of the last.
func TestWarmupPhrasesMarkStoredMail(t *testing.T) {
	i := install(t, Config{})
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	for n := range 250 {
		keep(i, ann, "INBOX", letterOf(fmt.Sprintf("letter %d BLUE  Bird", n), fmt.Sprintf("%d@far", n)))
	}
	keep(i, bob, "INBOX", letterOf("letter", "b1@far"))
	keep(i, bob, "Sent", letterOf("blue bird sent", "b2@far"))
	i.run()
	who := Actor{AccountID: i.account.AccountID, AccountNum: 1, Role: "owner", Permissions: []string{"admin"}}
	for _, phrases := range [][]string{{"nothing"}, {"hello"}, {}, {"Blue bird"}} {
		if _, err := i.svc.UpdateAccount(context.Background(), who, UpdateAccountIn{WarmupPhrases: &phrases}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"INBOX ann": 250, "INBOX bob": 0, "Sent bob": 1}
	end := time.Now().Add(20 * time.Second)
	for ; fmt.Sprint(i.marked(ann, bob)) != fmt.Sprint(want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("marked %v, want %v", i.marked(ann, bob), want)
		}
	}
	if shown, _ := listed(i, InboxFilter{ExcludeWarmup: true}); len(shown) != 1 {
		t.Errorf("without warm-up mail the inbox shows %v", shown)
	}
	before := len(i.events(EventEmailReceived))
	keep(i, ann, "INBOX", letterOf("a blue bird", "new@far"))
	if n := len(i.events(EventEmailReceived)); n != before {
		t.Errorf("warm-up mail made %d events", n-before)
	}
}

// marked counts the marked messages of folders.
func (i *installation) marked(boxes ...*store.Mailbox) map[string]int {
	i.t.Helper()
	out := map[string]int{}
	err := i.st.View(func(tx *store.Tx) error {
		for _, mb := range boxes {
			folders, err := tx.Folders(mb.Num)
			if err != nil {
				return err
			}
			for _, f := range folders {
				for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
					n := 0
					if m.Bits&store.BitWarmup != 0 {
						n = 1
					}
					out[f.Name+" "+mb.Email[:3]] += n
				}
			}
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// TestWarmupJobGoesOnWhereItWas ends the work of the job in the middle.
func TestWarmupJobGoesOnWhereItWas(t *testing.T) {
	i := install(t, Config{})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	for n := range 5 {
		keep(i, ann, "INBOX", letterOf("bird", fmt.Sprintf("%d@far", n)))
	}
	i.update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, i.account.AccountID)
		if err != nil {
			return err
		}
		a.WarmupPhrases = []string{"bird"}
		return store.Accounts.Put(tx, a)
	})
	at := warmupArgs{AccountID: i.account.AccountID, MailboxID: ann.ID, Folder: store.InboxID, UID: 4}
	if done, err := i.svc.markSome(&at); !done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	if got := i.marked(ann)["INBOX ann"]; got != 2 {
		t.Errorf("%d messages from the fourth on are marked, want 2", got)
	}
}
