package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/textindex"
)

// damagePlaces is how many places of the database are damaged.
const damagePlaces = 200

// TestDamagedDatabase changes one bit at random places of a database. Nothing may panic. Either the
// check finds it, or no row has changed but a counter.
func TestDamagedDatabase(t *testing.T) {
	oneAtATime(t)
	dir := t.TempDir()
	o := Options{noSync: true, lenient: true, Log: slog.New(slog.DiscardHandler)}
	s := openDir(t, dir, o)
	for i := range uint32(6) {
		addMailbox(t, s, i+1)
		for range 40 {
			addTest(t, s, Message{Account: 1, Mailbox: i + 1, Folder: InboxID}, "hello")
		}
	}
	if err := errors.Join(s.Update(func(tx *Tx) error {
		for i := range 300 {
			a := &Arrival{ID: fmt.Sprintf("arr_%03d", i), Sender: strings.Repeat("x", i)}
			if err := Arrivals.Put(tx, a); err != nil {
				return err
			}
		}
		return nil
	}), s.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "mailstead.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	meta, _, err := boltfile.NewestMeta(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:meta.Size]
	if err := os.Truncate(path, meta.Size); err != nil {
		t.Fatal(err)
	}
	if err := CheckPages(dir); err != nil {
		t.Fatalf("before the damage: %v", err)
	}
	want := readRows(t, path)
	rnd := rand.New(rand.NewPCG(14, 8))
	found, harmless := 0, 0
	for n := range damagePlaces {
		at, bit := rnd.IntN(len(whole)), byte(1)<<rnd.IntN(8)
		copied := filepath.Join(t.TempDir(), "damaged")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		file := bytes.Clone(whole)
		file[at] ^= bit
		if err := os.WriteFile(filepath.Join(copied, "mailstead.db"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		err := checkAll(copied, o)
		if err != nil {
			found++
			continue
		}
		have := readRows(t, filepath.Join(copied, "mailstead.db"))
		differ, last := 0, ""
		for k, v := range want {
			if now, ok := have[k]; !ok || now != v {
				differ++
				last = k
			}
			if _, ok := have[k]; !ok {
				t.Errorf("place %d: bit %02x at %d: the row %q is gone, and the check does not say so", n, bit, at, k)
			}
		}
		switch {
		case differ == 0 && len(have) == len(want), differ == 1 && maxSequence(last) > textindex.ResettingSequence:
			harmless++ // numbers that count go on from a higher one, or are compared with the rows
		default:
			t.Errorf("place %d: bit %02x at %d: %d rows have changed, and the check does not say so: %q", n, bit, at, differ, last)
		}
	}
	t.Logf("%d found, %d harmless", found, harmless)
	if found < damagePlaces/5 {
		t.Errorf("only %d of %d were found", found, damagePlaces)
	}
}

// checkAll checks a store as the check command does.
func checkAll(dir string, o Options) error {
	if err := CheckPages(dir); err != nil {
		return err
	}
	s, err := Open(dir, o)
	if err != nil {
		return err
	}
	return errors.Join(s.Check(), s.Close())
}

// readRows returns all rows by bucket and key.
func readRows(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows := map[string]string{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			rows[string(name)] = fmt.Sprint(b.Sequence())
			return b.ForEach(func(k, v []byte) error {
				rows[string(name)+" "+string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestDamageWhileServing: pages of the database are damaged under a store in use. What stands on
// others is served; reads and writes of these end with an error that names the command.
func TestDamageWhileServing(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{noSync: true, lenient: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(tx *Tx) error {
		for i := range 100 {
			a := &Arrival{ID: fmt.Sprintf("arr_%03d", i), Sender: strings.Repeat("x", 300)}
			if err := Arrivals.Put(tx, a); err != nil {
				return err
			}
		}
		return Accounts.Put(tx, &Account{ID: "acct_1"})
	}); err != nil {
		t.Fatal(err)
	}
	var root int64
	if err := s.View(func(tx *Tx) error {
		root = int64(engine.NamedBucket(tx, Arrivals.Name()).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "mailstead.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, damage := range []struct {
		at    int64
		bytes string
	}{
		{root*int64(os.Getpagesize()) + 8, "\x77"}, // the kind of the page
		{root*int64(os.Getpagesize()) + 8, "\x02\x00\xff\xff"},
		{root*int64(os.Getpagesize()) + 24, "\xff\xff\xff\xff\x00\x00\x00\x00"},
	} {
		var before [16]byte
		if _, err := f.ReadAt(before[:], damage.at); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(damage.bytes), damage.at); err != nil {
			t.Fatal(err)
		}
		var all int
		err := s.View(func(tx *Tx) error {
			all = 0
			for range Arrivals.All(tx) {
				all++
			}
			return nil
		})
		if err == nil && all == 100 {
			t.Errorf("damage %x: nothing was noticed", damage.bytes)
		}
		if errors.Is(err, ErrDatabase) && !strings.Contains(err.Error(), "mailstead check --data "+dir) {
			t.Errorf("damage %x: %v", damage.bytes, err)
		}
		err = s.Update(func(tx *Tx) error { return Arrivals.Delete(tx, "arr_050") })
		if damage.bytes == "\x77" && !errors.Is(err, ErrDatabase) {
			t.Errorf("a write: %v", err)
		}
		if err := s.View(func(tx *Tx) error {
			_, err := Accounts.Get(tx, "acct_1")
			return err
		}); err != nil {
			t.Errorf("damage %x: the others are not served: %v", damage.bytes, err)
		}
		if _, err := f.WriteAt(before[:], damage.at); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if v := recover(); v != "a mistake" {
			t.Errorf("recovered %v", v)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	_ = s.View(func(*Tx) error { panic("a mistake") })
}

// TestCheckNamesDamagedMessages changes one bit at random places of a segment: the check names the
// record that has it, and whose it is; everything else is read as before.
func TestCheckNamesDamagedMessages(t *testing.T) {
	s := openDir(t, t.TempDir(), Options{noSync: true, Log: slog.New(slog.DiscardHandler)})
	addMailbox(t, s, 1)
	var all []*Message
	for i := range 10 {
		all = append(all, addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, strings.Repeat("text ", 10+i)))
	}
	f, err := os.OpenFile(segmentPath(s, 1), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rnd := rand.New(rand.NewPCG(8, 1))
	first, last := all[0].Blob, all[len(all)-1].Blob
	for range damagePlaces {
		at := int64(first.Offset) + rnd.Int64N(int64(last.Offset)+last.Size()-int64(first.Offset))
		flip := func() {
			var b [1]byte
			if _, err := f.ReadAt(b[:], at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x10
			if _, err := f.WriteAt(b[:], at); err != nil {
				t.Fatal(err)
			}
		}
		flip()
		err := s.Check()
		for _, m := range all {
			blob, openErr := s.OpenBlob(m.Blob)
			hit := at >= int64(m.Blob.Offset) && at < int64(m.Blob.Offset)+m.Blob.Size()
			if hit != errors.Is(openErr, ErrDamaged) {
				t.Errorf("the message at %d, damage at %d: %v", m.Blob.Offset, at, openErr)
			}
			name := fmt.Sprintf("message at %d in segment 00000001: ", m.Blob.Offset)
			if owner := fmt.Sprintf("it is message %d in folder %d of mailbox 1", m.UID, m.Folder); hit && (err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), owner)) {
				t.Errorf("damage at %d: check says %v, not %q", at, err, name+owner)
			}
			if openErr == nil {
				if _, err := io.Copy(io.Discard, io.NewSectionReader(blob, 0, blob.Size())); err != nil {
					t.Error(err)
				}
				blob.Close()
			}
		}
		flip()
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
