package store

import (
	"errors"
	"strings"
	"testing"
)

// TestReadSharesWhatIsStored follows a record through changes, a rollback and its end.
func TestReadSharesWhatIsStored(t *testing.T) {
	s := openTest(t, Options{})
	put := func(tx *Tx, name string) error {
		return Accounts.Put(tx, &Account{ID: "acc_1", Num: 1, Name: name, WarmupPhrases: []string{name}})
	}
	update(t, s, func(tx *Tx) error { return put(tx, "one") })
	read := func() (a *Account) {
		t.Helper()
		err := s.View(func(tx *Tx) (err error) {
			a, err = AccountByNum.FindShared(tx, NumKey(1))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := read()
	if again := read(); first != again || first.Name != "one" {
		t.Errorf("read %p %v, then %p %v", first, first, again, again)
	}
	refused := errors.New("refused")
	err := s.Update(func(tx *Tx) error {
		if err := put(tx, "two"); err != nil {
			return err
		}
		if a, err := Accounts.Read(tx, "acc_1"); err != nil || a.Name != "two" {
			t.Errorf("in its own transaction it reads %v, %v", a, err)
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if a := read(); a.Name != "one" {
		t.Errorf("after a rollback it reads %q", a.Name)
	}
	update(t, s, func(tx *Tx) error { return put(tx, "three") })
	if a := read(); a.Name != "three" || first.Name != "one" {
		t.Errorf("after a change it reads %q, and what was read before says %q", a.Name, first.Name)
	}
	update(t, s, func(tx *Tx) error { return Accounts.Delete(tx, "acc_1") })
	if a := read(); a != nil {
		t.Errorf("after its end it reads %v", a)
	}
}

// TestCheckFindsChangedSharedRecords lets a reader break its promise.
func TestCheckFindsChangedSharedRecords(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	update(t, s, func(tx *Tx) error {
		return Accounts.Put(tx, &Account{ID: "acc_1", Num: 1, WarmupPhrases: []string{"a"}})
	})
	err = s.View(func(tx *Tx) error {
		a, err := Accounts.Read(tx, "acc_1")
		if err == nil {
			a.WarmupPhrases[0] = "b"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "was changed in memory") {
		t.Errorf("check says %v", err)
	}
}

// BenchmarkRead compares what the decoded form saves.
func BenchmarkRead(b *testing.B) {
	s := openTest(b, Options{})
	update(b, s, func(tx *Tx) error {
		return Mailboxes.Put(tx, &Mailbox{ID: "eu_1", AccountID: "acc_1", Num: 1, Email: "ann@example.test", Status: "active", Ready: true})
	})
	for name, get := range map[string]func(*Tx, string) (*Mailbox, error){"get": MailboxByEmail.Get, "read": MailboxByEmail.Read} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			err := s.View(func(tx *Tx) error {
				for b.Loop() {
					if _, err := get(tx, "ann@example.test"); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
}
