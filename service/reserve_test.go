package service

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
)

// TestDeletionsBeginOnAFullDisk: where the disk has room for deletions only, people can begin them:
// by IMAP, of mailboxes and of domains. Nothing else is written.
func TestDeletionsBeginOnAFullDisk(t *testing.T) {
	i := install(t, Config{Sandbox: true, Outbound: "capture"})
	i.close()
	full := atomic.Bool{}
	i.room = func(string) (free, total int64, err error) {
		if full.Load() {
			return 1 << 20, 1 << 40, nil
		}
		return 1 << 39, 1 << 40, nil
	}
	i.open(i.svc.Config)
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob, eve := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil), i.addMailbox(d, "eve", nil)
	i.mustArrive("x@far.test", "ann@example.test", "From: x@far.test\r\nSubject: s\r\n\r\nt\r\n")
	ctx := context.Background()
	who := Actor{AccountID: i.account.AccountID, UserID: i.account.UserID, Role: "owner", Permissions: []string{"admin"}}
	u := MailboxUser{AccountID: ann.AccountID, AccountNum: ann.AccountNum, MailboxID: ann.ID, Mailbox: ann.Num, Email: ann.Email}
	full.Store(true)
	time.Sleep(50 * time.Millisecond) // longer than the store goes by an older look
	for _, c := range []struct {
		what string
		full bool
		do   func() error
	}{
		{"another flag", true, func() error {
			_, err := i.svc.ChangeFlags(ctx, u, store.InboxID, []uint32{1}, FlagChange{Op: AddFlags, Flags: store.FlagSeen})
			return err
		}},
		{"\\Deleted", false, func() error {
			_, err := i.svc.ChangeFlags(ctx, u, store.InboxID, []uint32{1}, FlagChange{Op: AddFlags, Flags: store.FlagDeleted})
			return err
		}},
		{"a mailbox", false, func() error {
			_, err := i.svc.DeleteEmailUser(ctx, who, EmailUserIn{UserID: bob.ID})
			return err
		}},
		{"mailboxes", false, func() error {
			_, err := i.svc.DeleteEmailUsersBulk(ctx, who, BulkDeleteIn{UserIDs: &[]string{eve.ID}})
			return err
		}},
		{"a domain", false, func() error {
			_, err := i.svc.DeleteDomain(ctx, who, DomainIn{DomainID: d.ID})
			return err
		}},
	} {
		if err := c.do(); errors.Is(err, store.ErrFull) != c.full || err != nil && !c.full {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
