package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestRefreshOfManyExternalMailboxes looks at some of them in the request and at the others in a
// job, for all who ask.
func TestRefreshOfManyExternalMailboxes(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	const n = 230
	d := i.AddDomain(i.Account, "ext.test", func(d *store.Domain) { d.DNSProvider = "external" })
	for k := range n {
		i.AddMailbox(d, fmt.Sprintf("box%d", k), func(mb *store.Mailbox) {
			mb.Type, mb.External = "external", &store.External{IMAP: store.Server{Host: "imap.ext.test", Port: 993}}
		})
	}
	i.Update(func(tx *store.Tx) error {
		for mb := range store.Mailboxes.All(tx) {
			if err := store.RemoteBoxes.Put(tx, &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID, Done: true}); err != nil {
				return err
			}
		}
		a, err := store.Accounts.Get(tx, i.Account.AccountID)
		if err != nil {
			return err
		}
		a.UniversalInbox = true
		return store.Accounts.Put(tx, a)
	})
	count := func() (polls int, rest []*store.Job) {
		if err := i.St.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				switch j.Kind {
				case inbox.KindInboxPoll:
					polls++
				case inbox.KindExternals:
					rest = append(rest, j)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return polls, rest
	}
	for range 20 {
		out, err := i.Svc.RefreshInbox(context.Background(), servicetest.Actor(i.Account))
		if err != nil {
			t.Fatal(err)
		}
		if want := "New mail of 230 external mailboxes is being fetched; mail of hosted ones is here the moment it arrives."; out.Message != want {
			t.Fatalf("%q", out.Message)
		}
	}
	polls, rest := count()
	if polls != inbox.ExternalsAtATime || len(rest) != 1 {
		t.Fatalf("20 requests have %d mailboxes looked at, and add %d jobs for the others", polls, len(rest))
	}
	if _, err := i.Svc.PlanRemainingSyncs(context.Background(), rest[0]); err != nil {
		t.Fatal(err)
	}
	if polls, _ = count(); polls != n {
		t.Errorf("%d of %d mailboxes are looked at in the end", polls, n)
	}
}
