package store

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/recordid"
)

func TestIDsRiseAndAreTold(t *testing.T) {
	now := second(0)
	s := openTest(t, Options{Now: func() time.Time { return now }})
	last := ""
	for i := range 1000 {
		if i == 500 {
			now = second(-100) // a clock that steps back
		}
		id := s.NewID("dom")
		if id <= last || !recordid.Is("dom", id) || len(id) != len("dom_")+26 {
			t.Fatalf("id %q after %q", id, last)
		}
		last = id
	}
	for _, text := range []string{"", "dom_", "doc" + last[3:], strings.ToUpper(last), last + "0", last[:len(last)-1] + "u"} {
		if recordid.Is("dom", text) {
			t.Errorf("%q is taken for an id", text)
		}
	}
	if got := KeyTime(TimeKey(second(3)) + "more"); !got.Equal(second(3)) {
		t.Errorf("time key: %v", got)
	}
}

// TestJobIsFoundByItsState: the indexes of a job follow it.
func TestJobIsFoundByItsState(t *testing.T) {
	s := openTest(t, Options{})
	j := &Job{ID: "job_1", AccountID: "acc_1", Kind: "k", Key: "x", State: "queued", Due: second(5), Visible: true}
	due := func(tx *Tx) (times []string) {
		for k := range JobsDue.Keys(tx, "", "") {
			times = append(times, KeyTime(k).Format("05"))
		}
		return times
	}
	step := func(change func(), wantDue []string, wantKey error) {
		t.Helper()
		change()
		update(t, s, func(tx *Tx) error { return Jobs.Put(tx, j) })
		view(t, s, func(tx *Tx) error {
			if got := due(tx); !slices.Equal(got, wantDue) {
				t.Errorf("due index has %v, want %v", got, wantDue)
			}
			if _, err := JobByKey.Get(tx, "k\x00x"); !errors.Is(err, wantKey) {
				t.Errorf("by key: %v, want %v", err, wantKey)
			}
			return nil
		})
	}
	step(func() {}, []string{second(5).Format("05")}, nil)
	step(func() { j.Due = second(7) }, []string{second(7).Format("05")}, nil)
	step(func() { j.State = "in_progress" }, []string{second(7).Format("05")}, ErrNotFound)
	step(func() { j.State, j.EndedAt = "completed", second(9) }, nil, ErrNotFound)
	update(t, s, func(tx *Tx) error { return errors.Join(Jobs.Delete(tx, "job_1"), Jobs.Delete(tx, "job_1")) })
	view(t, s, func(tx *Tx) error {
		if _, err := Jobs.Get(tx, "job_1"); !errors.Is(err, ErrNotFound) || JobsByAccount.Has(tx, "acc_1") || JobsEnded.Count(tx, "", 0) != 0 {
			t.Errorf("the deleted job is still found: %v", err)
		}
		return nil
	})
}

func TestNameOfADomainHasOneHolder(t *testing.T) {
	s := openTest(t, Options{})
	a := &Domain{ID: "dom_1", AccountID: "acc_1", Name: "a.example"}
	update(t, s, func(tx *Tx) error { return Domains.Put(tx, a) })
	err := s.Update(func(tx *Tx) error {
		err := Domains.Put(tx, &Domain{ID: "dom_2", AccountID: "acc_2", Name: "a.example"})
		if tx.Writes() != 0 {
			t.Errorf("%d writes before the refusal", tx.Writes())
		}
		return err
	})
	if !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want %v", err, ErrExists)
	}
	update(t, s, func(tx *Tx) error {
		a.Name = "b.example"
		return errors.Join(Domains.Put(tx, a), Domains.Put(tx, a), Domains.Put(tx, &Domain{ID: "dom_2", AccountID: "acc_2", Name: "a.example"}))
	})
	view(t, s, func(tx *Tx) error {
		got, err := DomainByName.Get(tx, "a.example")
		if err != nil || got.ID != "dom_2" {
			t.Errorf("got %v, %v, want dom_2", got, err)
		}
		return nil
	})
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

// TestAddressOfNobodyIsNoError: absence is no error of Find.
func TestAddressOfNobodyIsNoError(t *testing.T) {
	s := openTest(t, Options{})
	view(t, s, func(tx *Tx) error {
		if mb, err := MailboxByEmail.Find(tx, "a@nowhere.test"); mb != nil || err != nil {
			t.Errorf("an address of nobody: %v, %v", mb, err)
		}
		if mb, err := MailboxByEmail.FindShared(tx, "a@nowhere.test"); mb != nil || err != nil {
			t.Errorf("an address of nobody, shared: %v, %v", mb, err)
		}
		return nil
	})
}
