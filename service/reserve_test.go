package service_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestDeletionsBeginOnAFullDisk: if the disk has room only for deletions, people can start them: by
// IMAP, of mailboxes and of domains. Nothing else is written.
func TestDeletionsBeginOnAFullDisk(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Outbound: "capture"}})
	i.Close()
	full := atomic.Bool{}
	i.Room = func(string) (free, total int64, err error) {
		if full.Load() {
			return 1 << 20, 1 << 40, nil
		}
		return 1 << 39, 1 << 40, nil
	}
	i.Open(servicetest.ConfigOf(i.Svc.Core))
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob, eve := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil), i.AddMailbox(d, "eve", nil)
	i.MustArrive("x@far.test", "ann@example.test", "From: x@far.test\r\nSubject: s\r\n\r\nt\r\n")
	ctx := context.Background()
	who := core.Actor{AccountID: i.Account.AccountID, UserID: i.Account.UserID, Role: "owner", Permissions: []string{"admin"}}
	u := core.MailboxUser{AccountID: ann.AccountID, AccountNum: ann.AccountNum, MailboxID: ann.ID, Mailbox: ann.Num, Email: ann.Email}
	full.Store(true)
	time.Sleep(50 * time.Millisecond) // longer than the store caches the free space
	for _, c := range []struct {
		what string
		full bool
		do   func() error
	}{
		{"another flag", true, func() error {
			_, err := i.Svc.Inbox.ChangeFlags(ctx, u, store.InboxID, []uint32{1}, inbox.FlagChange{Op: inbox.AddFlags, Flags: store.FlagSeen})
			return err
		}},
		{"\\Deleted", false, func() error {
			_, err := i.Svc.Inbox.ChangeFlags(ctx, u, store.InboxID, []uint32{1}, inbox.FlagChange{Op: inbox.AddFlags, Flags: store.FlagDeleted})
			return err
		}},
		{"a mailbox", false, func() error {
			_, err := i.Svc.Mailboxes.DeleteEmailUser(ctx, who, mailboxes.DeleteEmailUserIn{UserID: bob.ID})
			return err
		}},
		{"mailboxes", false, func() error {
			_, err := i.Svc.Mailboxes.DeleteEmailUsersBulk(ctx, who, mailboxes.BulkDeleteIn{UserIDs: &[]string{eve.ID}})
			return err
		}},
		{"a domain", false, func() error {
			_, err := i.Svc.Domains.DeleteDomain(ctx, who, domains.DomainIn{DomainID: d.ID})
			return err
		}},
	} {
		if err := c.do(); errors.Is(err, store.ErrFull) != c.full || err != nil && !c.full {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
