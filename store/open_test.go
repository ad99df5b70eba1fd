package store

import (
	"errors"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Domains of a store from before there were claims are proven where they were complete, and others
// begin their time.
func TestOldDomainsBecomeClaims(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := time.Now().UTC()
	update(t, s, func(tx *Tx) error {
		for _, d := range []*Domain{
			{ID: "dom_done", Name: "done.test", DNSProvider: "builtin", CompletedAt: done},
			{ID: "dom_wait", Name: "wait.test", DNSProvider: "builtin"},
			{ID: "dom_sold", Name: "sold.test", DNSProvider: "builtin", Source: "registered"},
			{ID: "dom_away", Name: "away.test", DNSProvider: "external", CompletedAt: done},
			{ID: "dom_read", Name: "read.test", DNSProvider: "external", CompletedAt: done},
		} {
			d.AccountID = "acc_1"
			if err := Domains.Put(tx, d); err != nil {
				return err
			}
		}
		return errors.Join(
			Mailboxes.Put(tx, &Mailbox{ID: "eu_1", Num: 1, AccountID: "acc_1", DomainID: "dom_read", Email: "a@read.test", LastSyncAt: done}),
			Mailboxes.Put(tx, &Mailbox{ID: "eu_2", Num: 2, AccountID: "acc_1", DomainID: "dom_done", Email: "b@done.test"}))
	})
	// As an older program left it: one index of names, one of addresses.
	err = s.db.Update(func(b *bolt.Tx) error {
		for _, name := range []string{DomainsByName.name, DomainOfAccount.name, DomainsOpen.name, MailboxByAddress.name, bucketMeta} {
			if err := b.DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		old, err := b.CreateBucket([]byte("mailbox.email"))
		if err != nil {
			return err
		}
		return errors.Join(old.Put([]byte("a@read.test"), []byte("eu_1")), old.Put([]byte("b@done.test"), []byte("eu_2")))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second opening finds nothing to do
		if s, err = Open(dir, Options{}); err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			for name, claim := range map[string]string{
				"done": ClaimProven, "wait": ClaimOpen, "sold": ClaimProven, "away": ClaimOpen, "read": ClaimProven,
			} {
				d, err := DomainOfAccount.Get(tx, OwnKey("acc_1", name+".test"))
				if err != nil || d.Claim != claim || (claim == ClaimOpen) == d.ClaimedAt.IsZero() {
					t.Errorf("%s: %+v, %v; want %q", name, d, err, claim)
				}
				if _, err := DomainByName.Get(tx, name+".test"); (err == nil) != (claim == ClaimProven) {
					t.Errorf("%s is found by its name: %v", name, err)
				}
			}
			if mb, err := MailboxByEmail.Get(tx, "b@done.test"); err != nil || mb.ID != "eu_2" {
				t.Errorf("%+v, %v", mb, err)
			}
			return nil
		})
		if err := errors.Join(s.Check(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
