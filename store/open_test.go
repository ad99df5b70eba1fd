package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment"
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
	err = s.setup(func(tx *Tx) error {
		b := engine.Bolt(tx)
		for _, name := range []string{DomainsByName.Name(), DomainOfAccount.Name(), DomainsOpen.Name(), MailboxByAddress.Name(), bucketMeta} {
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
		s, err = Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			for name, claim := range map[string]string{
				"done": ClaimProven, "wait": ClaimOpen, "sold": ClaimProven, "away": ClaimOpen, "read": ClaimProven,
			} {
				d, err := DomainOfAccount.Get(tx, AccountDomainKey("acc_1", name+".test"))
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

// TestStartsAtOnceAfterCrash: several that open a directory whose list of free pages is missing,
// and one that verifies it meanwhile, wait for each other, and the first of them writes the list.
func TestStartsAtOnceAfterCrash(t *testing.T) {
	dir := t.TempDir()
	o := Options{noSync: true, CheckPages: true}
	s := openDir(t, dir, o)
	addMailbox(t, s, 1)
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "hello")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, DatabaseFile)
	for range 5 {
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(func(*bolt.Tx) error { return nil }), db.Close()); err != nil {
			t.Fatal(err)
		}
		if lacks, err := boltfile.LacksFreelist(path); !lacks || err != nil {
			t.Fatalf("the list is missing: %v, %v", lacks, err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				s, err := Open(dir, o)
				if err != nil {
					t.Error(err)
					return
				}
				if lacks, err := boltfile.LacksFreelist(path); lacks || err != nil {
					t.Errorf("the list is missing: %v, %v", lacks, err)
				}
				if err := errors.Join(s.Check(), s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if err := CheckPages(dir); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	}
}

// TestOpenRefusesDamage: with CheckPages, and without where the list of free pages is missing, Open
// says that a page is damaged before anything reads it, and changes nothing.
func TestOpenRefusesDamage(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{noSync: true})
	addMailbox(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, DatabaseFile)
	for _, missing := range []bool{false, true} {
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: missing, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		var root int
		err = db.Update(func(tx *bolt.Tx) error {
			root = int(tx.Cursor().Bucket().Root())
			return nil
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(whole)
		damaged[root*os.Getpagesize()+16] ^= 4
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{noSync: true, CheckPages: !missing}); !errors.Is(err, ErrDatabase) {
			t.Errorf("the list is missing: %v: got %v, want %v", missing, err, ErrDatabase)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("the list is missing: %v: the database was changed, %v", missing, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A watchedDisk calls synced before each sync.
type watchedDisk struct {
	segment.Disk
	synced func()
}

func (d *watchedDisk) Datasync(f *os.File) error {
	d.synced()
	return d.Disk.Datasync(f)
}

// TestCloseKeepsTheLockToItsEnd: what Close writes to the segments must not meet what the next
// process has written there.
func TestCloseKeepsTheLockToItsEnd(t *testing.T) {
	dir := t.TempDir()
	disk := &watchedDisk{segment.UnsyncedDisk{}, func() {}}
	s := openDir(t, dir, Options{disk: disk})
	addMailbox(t, s, 1)
	addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "x")
	var during []error
	disk.synced = func() {
		other, err := Open(dir, Options{LockTimeout: 1})
		if err == nil {
			_ = other.Close()
		}
		during = append(during, err)
	}
	closeTest(t, s)
	if len(during) == 0 {
		t.Error("Close has not synced the segments")
	}
	for _, err := range during {
		if !errors.Is(err, ErrInUse) {
			t.Errorf("opened while Close writes: %v, want %v", err, ErrInUse)
		}
	}
}
