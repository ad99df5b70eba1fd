package engine

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestFindGivesNilForWhatIsAbsent: absence is no error of Find, and damage is.
func TestFindGivesNilForWhatIsAbsent(t *testing.T) {
	db := openTest(t, Options{})
	update(t, db, func(tx *Tx) error { return Accounts.Put(tx, &Account{ID: "acc_1", Num: 1, Name: "one"}) })
	finders := map[string]func(tx *Tx, num uint32) (*Account, error){
		"table": func(tx *Tx, num uint32) (*Account, error) {
			return Accounts.Find(tx, fmt.Sprintf("acc_%d", num))
		},
		"table, shared": func(tx *Tx, num uint32) (*Account, error) {
			return Accounts.FindShared(tx, fmt.Sprintf("acc_%d", num))
		},
		"index": func(tx *Tx, num uint32) (*Account, error) { return AccountByNum.Find(tx, numKey(num)) },
		"index, shared": func(tx *Tx, num uint32) (*Account, error) {
			return AccountByNum.FindShared(tx, numKey(num))
		},
	}
	undone := errors.New("undone")
	for name, find := range finders {
		view(t, db, func(tx *Tx) error {
			if a, err := find(tx, 1); err != nil || a == nil || a.Name != "one" {
				t.Errorf("%s: what is there is %v, %v", name, a, err)
			}
			if a, err := find(tx, 2); a != nil || err != nil {
				t.Errorf("%s: what is absent is %v, %v", name, a, err)
			}
			return nil
		})
		err := db.Update(func(tx *Tx) error {
			if err := tx.put(Accounts.Name(), []byte("acc_1"), []byte("{")); err != nil {
				return err
			}
			if a, err := find(tx, 1); a != nil || err == nil {
				t.Errorf("%s: a damaged record is %v, %v", name, a, err)
			}
			if err := tx.delete(Accounts.Name(), []byte("acc_1")); err != nil {
				return err
			}
			a, err := find(tx, 1)
			if missing := strings.HasPrefix(name, "index"); a != nil || errors.Is(err, ErrNotFound) != missing {
				t.Errorf("%s: a record that is gone is %v, %v", name, a, err)
			}
			return undone
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
	}
}

func TestIndexFollowsItsRecord(t *testing.T) {
	db := openTest(t, Options{})
	j := &Job{ID: "job_1", AccountID: "acc_1", Kind: "k", Key: "x", State: "queued", Due: second(5)}
	due := func(tx *Tx) (times []string) {
		for k := range JobsDue.Keys(tx, "", "") {
			times = append(times, keyTime(k).Format("05"))
		}
		return times
	}
	step := func(change func(), wantDue []string, wantKey error) {
		t.Helper()
		change()
		update(t, db, func(tx *Tx) error { return Jobs.Put(tx, j) })
		view(t, db, func(tx *Tx) error {
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
	update(t, db, func(tx *Tx) error { return errors.Join(Jobs.Delete(tx, "job_1"), Jobs.Delete(tx, "job_1")) })
	view(t, db, func(tx *Tx) error {
		if _, err := Jobs.Get(tx, "job_1"); !errors.Is(err, ErrNotFound) || JobsByAccount.Has(tx, "acc_1") || JobsEnded.Count(tx, "", 0) != 0 {
			t.Errorf("the deleted job is still found: %v", err)
		}
		return nil
	})
}

func TestUniqueIndexRefusesASecondHolder(t *testing.T) {
	db := openTest(t, Options{})
	a := &Account{ID: "acc_1", Num: 1}
	update(t, db, func(tx *Tx) error { return Accounts.Put(tx, a) })
	err := db.Update(func(tx *Tx) error {
		err := Accounts.Put(tx, &Account{ID: "acc_2", Num: 1})
		if tx.Writes() != 0 {
			t.Errorf("%d writes before the refusal", tx.Writes())
		}
		return err
	})
	if !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want %v", err, ErrExists)
	}
	update(t, db, func(tx *Tx) error {
		a.Num = 2
		return errors.Join(Accounts.Put(tx, a), Accounts.Put(tx, a), Accounts.Put(tx, &Account{ID: "acc_2", Num: 1}))
	})
	view(t, db, func(tx *Tx) error {
		got, err := AccountByNum.Get(tx, numKey(1))
		if err != nil || got.ID != "acc_2" {
			t.Errorf("got %v, %v, want acc_2", got, err)
		}
		return nil
	})
}

// TestPagesMissNothingThatStays reads in pages while others insert and delete: what is there all
// the time is seen once.
func TestPagesMissNothingThatStays(t *testing.T) {
	db := openTest(t, Options{})
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, desc := range []bool{false, true} {
		account := fmt.Sprint("acc_", desc)
		stays := map[string]int{}
		update(t, db, func(tx *Tx) error {
			for n := range 1000 {
				if n%3 == 0 {
					stays[fmt.Sprintf("evt_%06d", n+offset(desc))] = 0
				}
				if err := putEvents(tx, account, n+offset(desc)); err != nil {
					return err
				}
			}
			return putEvents(tx, "acc_neighbour", 5000+offset(desc))
		})
		seen := maps.Clone(stays)
		at := ""
		for {
			n := 0
			view(t, db, func(tx *Tx) error {
				walk := EventsByAccount.Asc
				if desc {
					walk = EventsByAccount.Desc
				}
				for key, e := range walk(tx, account, at) {
					if e.AccountID != account {
						t.Fatalf("walk of %s gives an event of %s", account, e.AccountID)
					}
					if n == 17 {
						break
					}
					n++
					at = key
					if _, ok := seen[e.ID]; ok {
						seen[e.ID]++
					}
				}
				return nil
			})
			if n == 0 {
				break
			}
			update(t, db, func(tx *Tx) error {
				for range 20 {
					n := rnd.IntN(1000)
					if n%3 == 0 {
						continue
					}
					if err := errors.Join(Events.Delete(tx, fmt.Sprintf("evt_%06d", n+offset(desc))), putEvents(tx, account, n/3*3+1+offset(desc))); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("desc %v: %s was seen %d times", desc, id, n)
			}
		}
	}
}

func offset(desc bool) int {
	if desc {
		return 10_000
	}
	return 0
}

// TestWalkGoesOnBehindEmptiedPages deletes whole pages and walks in the same transaction.
func TestWalkGoesOnBehindEmptiedPages(t *testing.T) {
	db := openTest(t, Options{MaxWrites: 20_000})
	update(t, db, func(tx *Tx) error {
		for n := range 5000 {
			if err := putEvents(tx, "acc_1", n); err != nil {
				return err
			}
		}
		return nil
	})
	update(t, db, func(tx *Tx) error {
		for n := 500; n < 4500; n++ {
			if err := Events.Delete(tx, fmt.Sprintf("evt_%06d", n)); err != nil {
				return err
			}
		}
		var up, down, rest []string
		for _, e := range EventsByAccount.Asc(tx, "acc_1", "") {
			up = append(up, e.ID)
		}
		for _, e := range EventsByAccount.Desc(tx, "acc_1", "") {
			down = append(down, e.ID)
		}
		for _, e := range EventsByAccount.Desc(tx, "acc_1", "acc_1evt_002500") {
			rest = append(rest, e.ID)
		}
		slices.Reverse(down)
		if len(up) != 1000 || !slices.Equal(up, down) {
			t.Errorf("%d upwards, %d downwards, want 1000", len(up), len(down))
		}
		if len(rest) != 500 || rest[0] != "evt_000499" {
			t.Errorf("%d below an emptied page, want 500", len(rest))
		}
		return nil
	})
}

// TestWalkersMayWrite deletes and inserts what is being walked.
func TestWalkersMayWrite(t *testing.T) {
	db := openTest(t, Options{MaxWrites: 20_000})
	update(t, db, func(tx *Tx) error {
		for n := range 2000 {
			if err := putEvents(tx, "acc_1", n*2); err != nil {
				return err
			}
		}
		seen := 0
		for key, e := range EventsByAccount.Asc(tx, "acc_1", "") {
			seen++
			if err := Events.Delete(tx, e.ID); err != nil {
				return err
			}
			if err := putEvents(tx, "acc_0", seen); err != nil {
				return err
			}
			if seen > 3000 || !strings.HasSuffix(key, e.ID) {
				return fmt.Errorf("walk has lost its way at %s", key)
			}
		}
		if seen != 2000 {
			t.Errorf("saw %d, want 2000", seen)
		}
		for _, e := range EventsByAccount.Desc(tx, "acc_0", "") {
			seen--
			if err := Events.Delete(tx, e.ID); err != nil {
				return err
			}
		}
		if seen != 0 {
			t.Errorf("%d were not seen downwards", seen)
		}
		return nil
	})
}

// TestDescSomeIsDesc: DescSome iterates as Desc does, and decodes the wanted records, in any order
// of ids.
func TestDescSomeIsDesc(t *testing.T) {
	db := openTest(t, Options{MaxWrites: 20_000})
	rnd := rand.New(rand.NewPCG(3, 4))
	update(t, db, func(tx *Tx) error {
		for n := range 1000 {
			j := &Job{ID: fmt.Sprintf("job_%04d", n), AccountID: fmt.Sprint("acc_", rnd.IntN(2)*rnd.IntN(40)), Kind: "common", State: "queued", Due: second(rnd.Int64N(500))}
			if n%3 == 0 {
				j.Kind = "rare"
			}
			if err := Jobs.Put(tx, j); err != nil {
				return err
			}
		}
		return nil
	})
	wanted := func(row []byte) bool { return bytes.Contains(row, []byte("rare")) }
	for name, c := range map[string]struct {
		index          *Index[Job]
		prefix, before string
		want           int // at least
	}{
		"ids in another order": {JobsDue, "", "", 1000},
		"before a time":        {JobsDue, "", timeKey(second(250)), 400},
		"ids near each other":  {JobsByAccount, "acc_0", "acc_0job_0800", 300},
		"ids far apart":        {JobsByAccount, "acc_7", "", 5},
		"nothing":              {JobsByAccount, "acc_99", "", 0},
	} {
		view(t, db, func(tx *Tx) error {
			next, stop := iter.Pull2(DescSome(tx, c.index, c.prefix, c.before, wanted))
			defer stop()
			n := 0
			for key, want := range c.index.Desc(tx, c.prefix, c.before) {
				if want.Kind != "rare" {
					want = nil
				}
				if at, have, ok := next(); !ok || at != key || !reflect.DeepEqual(have, want) {
					t.Fatalf("%s: %q %+v, want %q %+v", name, at, have, key, want)
				}
				n++
			}
			if key, _, ok := next(); ok || n < c.want {
				t.Errorf("%s: %d records, want at least %d; one too many: %v %q", name, n, c.want, ok, key)
			}
			return nil
		})
	}
}

// TestDescSomeWhileWriting deletes what was seen and what is next, and inserts beside it.
func TestDescSomeWhileWriting(t *testing.T) {
	db := openTest(t, Options{MaxWrites: 20_000})
	update(t, db, func(tx *Tx) error {
		for n := range 2000 {
			if err := putEvents(tx, "acc_1", n*2); err != nil {
				return err
			}
		}
		n := 2000
		for key, e := range DescSome(tx, EventsByAccount, "acc_1", "", func([]byte) bool { return n%2 == 1 }) {
			n--
			if id := fmt.Sprintf("evt_%06d", n*2); key != "acc_1"+id || (e != nil) != (n%2 == 0) || e != nil && e.ID != id {
				return fmt.Errorf("%s, %+v, want %s", key, e, id)
			}
			if n%5 == 0 {
				if err := errors.Join(Events.Delete(tx, fmt.Sprintf("evt_%06d", n*2)), Events.Delete(tx, fmt.Sprintf("evt_%06d", n*2-2)), putEvents(tx, "acc_0", n*2+1, n*2-1)); err != nil {
					return err
				}
				n--
			}
		}
		if n > 0 {
			t.Errorf("%d were not seen", n)
		}
		return nil
	})
}

// TestDescSomeTellsOfDamage, also where nothing is decoded.
func TestDescSomeTellsOfDamage(t *testing.T) {
	db := openTest(t, Options{})
	update(t, db, func(tx *Tx) error { return putEvents(tx, "acc_1", 1, 2, 3) })
	for _, c := range []struct {
		id   string
		harm func(tx *Tx, id []byte) error
		want error
	}{
		{"evt_000001", func(tx *Tx, id []byte) error { return tx.delete(Events.Name(), id) }, ErrNotFound},
		{"evt_000002", func(tx *Tx, id []byte) error { return tx.delete(Events.Name(), id) }, ErrNotFound},
		{"evt_000002", func(tx *Tx, id []byte) error {
			row := bytes.Clone(Events.Row(tx, string(id)))
			row[len(row)/2] ^= 1
			return tx.put(Events.Name(), id, row)
		}, ErrDamagedRow},
	} {
		err := db.Update(func(tx *Tx) error {
			if err := c.harm(tx, []byte(c.id)); err != nil {
				return err
			}
			for range DescSome(tx, EventsByAccount, "acc_1", "", func([]byte) bool { return false }) {
				continue
			}
			return tx.Err()
		})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.id) {
			t.Errorf("got %v, want %v and %s", err, c.want, c.id)
		}
	}
}

func TestDamagedRecordEndsTheTransaction(t *testing.T) {
	db := openUnchecked(t, t.TempDir(), strict(Options{}))
	defer db.Close()
	update(t, db, func(tx *Tx) error { return putEvents(tx, "acc_1", 1, 2, 3) })
	update(t, db, func(tx *Tx) error { return tx.put(Events.Name(), []byte("evt_000002"), []byte("{")) })
	err := db.View(func(tx *Tx) error {
		for range EventsByAccount.Asc(tx, "acc_1", "") {
			continue
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "evt_000002") {
		t.Errorf("got %v, want the damaged record's id", err)
	}
	if err := checkTest(db); err == nil || !strings.Contains(err.Error(), "evt_000002") {
		t.Errorf("check: %v, want the damaged record's id", err)
	}
}

func TestAfterIsTheFirstKeyBehindAPrefix(t *testing.T) {
	for prefix, want := range map[string][]byte{
		"a": []byte("b"), "a\xff": []byte("b"), "\xff\xff": nil, "": nil, "a\x00": []byte("a\x01"),
	} {
		if got := PrefixEnd([]byte(prefix)); !bytes.Equal(got, want) {
			t.Errorf("after %q: %q, want %q", prefix, got, want)
		}
	}
}

// TestReadSharesWhatIsStored follows a record through changes, a rollback and its deletion.
func TestReadSharesWhatIsStored(t *testing.T) {
	db := openTest(t, Options{})
	put := func(tx *Tx, name string) error {
		return Accounts.Put(tx, &Account{ID: "acc_1", Num: 1, Name: name, Words: []string{name}})
	}
	update(t, db, func(tx *Tx) error { return put(tx, "one") })
	read := func() (a *Account) {
		t.Helper()
		err := db.View(func(tx *Tx) (err error) {
			a, err = AccountByNum.FindShared(tx, numKey(1))
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
	err := db.Update(func(tx *Tx) error {
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
	update(t, db, func(tx *Tx) error { return put(tx, "three") })
	if a := read(); a.Name != "three" || first.Name != "one" {
		t.Errorf("after a change it reads %q, and what was read before says %q", a.Name, first.Name)
	}
	update(t, db, func(tx *Tx) error { return Accounts.Delete(tx, "acc_1") })
	if a := read(); a != nil {
		t.Errorf("after its end it reads %v", a)
	}
}

// TestCheckFindsChangedSharedRecords changes a shared record, which readers must not do.
func TestCheckFindsChangedSharedRecords(t *testing.T) {
	db := openUnchecked(t, t.TempDir(), strict(Options{}))
	defer db.Close()
	update(t, db, func(tx *Tx) error {
		return Accounts.Put(tx, &Account{ID: "acc_1", Num: 1, Words: []string{"a"}})
	})
	err := db.View(func(tx *Tx) error {
		a, err := Accounts.Read(tx, "acc_1")
		if err == nil {
			a.Words[0] = "b"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTest(db); err == nil || !strings.Contains(err.Error(), "was changed in memory") {
		t.Errorf("check says %v", err)
	}
}
