package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
)

// envInt is a number of the environment, or a default.
func envInt(t *testing.T, name string, or int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// rebuildOptions open a store that a test damages.
var rebuildOptions = Options{noSync: true, lenient: true, Log: slog.New(slog.DiscardHandler)}

// makeRebuildStore makes a store with mail in several mailboxes and folders, some of it deleted.
func makeRebuildStore(t *testing.T, dir string) {
	t.Helper()
	s := openDir(t, dir, rebuildOptions)
	for i := range uint32(6) {
		addMailbox(t, s, i+1)
		other := &Folder{Mailbox: i + 1, Name: fmt.Sprintf("Work %d", i)}
		update(t, s, func(tx *Tx) error {
			if err := Mailboxes.Put(tx, &Mailbox{ID: fmt.Sprintf("eu_%d", i+1), Num: i + 1, AccountNum: 1, Email: fmt.Sprintf("box%d@example.test", i+1)}); err != nil {
				return err
			}
			return tx.CreateFolder(other)
		})
		for n := range 40 {
			folder := uint32(InboxID)
			if n%4 == 0 {
				folder = other.ID
			}
			m := addTest(t, s, Message{Account: 1, Mailbox: i + 1, Folder: folder, Received: second(int64(n)), Flags: Flags(n % 3)}, fmt.Sprintf("hello %d %d", i, n))
			if n%10 == 5 {
				update(t, s, func(tx *Tx) error { return tx.DeleteMessage(m.Mailbox, m.Folder, m.UID) })
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Without free pages, each place may matter.
	path := filepath.Join(dir, DatabaseFile)
	from, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := bolt.Open(path+".compact", 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(bolt.Compact(to, from, 0), to.Close(), from.Close(), os.Rename(path+".compact", path)); err != nil {
		t.Fatal(err)
	}
}

// remake makes what RebuildDatabase has left, as the service does, but for what it reads of
// messages.
func remake(t *testing.T, s *Store) {
	t.Helper()
	for {
		rows, err := s.RowsToMake(100)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		update(t, s, func(tx *Tx) error {
			for _, row := range rows {
				if err := s.AdoptBlob(row.Blob); err != nil {
					return err
				}
				m := row.Message
				m.Account = 1
				var err error
				if row.MetaAlone {
					err = tx.PutMeta(&m, &Meta{})
				} else {
					err = tx.AddMessageAt(&m, &Meta{})
				}
				if err = errors.Join(err, tx.RemoveRowToMake(&row)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := s.EndRebuild(false); err != nil {
		t.Fatal(err)
	}
}

// bodiesOf gives the messages of a store by mailbox, folder and UID.
func bodiesOf(t *testing.T, s *Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	view(t, s, func(tx *Tx) error {
		for k, row := range tx.Ascend(mailrow.BucketMessage, nil) {
			var m Message
			if err := m.Decode(k, row); err != nil {
				return err
			}
			all[fmt.Sprintf("%d %d %d", m.Mailbox, m.Folder, m.UID)] = readTest(t, s, m.Blob)
		}
		return nil
	})
	return all
}

// TestRebuildBringsMessagesBack changes one byte at random places of a database. What is made anew
// of it is sound, has every message in its place, and none that was deleted.
func TestRebuildBringsMessagesBack(t *testing.T) {
	flips, seed := envInt(t, "MAILSTEAD_FLIPS", 12), uint64(envInt(t, "MAILSTEAD_SEED", 14))
	dir := t.TempDir()
	makeRebuildStore(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	meta, _, err := boltfile.NewestMeta(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	whole = whole[:meta.Size]
	s := openDir(t, dir, rebuildOptions)
	want := bodiesOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	made, harmless := 0, 0
	for n := range flips {
		at, bits := rnd.IntN(len(whole)), byte(1+rnd.IntN(255))
		place := fmt.Sprintf("flip %d: %02x at %d (page %d)", n, bits, at, at/os.Getpagesize())
		copied := filepath.Join(t.TempDir(), "damaged")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		file := bytes.Clone(whole)
		file[at] ^= bits
		if err := os.WriteFile(filepath.Join(copied, DatabaseFile), file, 0o600); err != nil {
			t.Fatal(err)
		}
		if checkAll(copied, rebuildOptions) == nil {
			harmless++
			continue
		}
		made++
		file, err = os.ReadFile(filepath.Join(copied, DatabaseFile))
		if err != nil { // the check may have written its list of free pages
			t.Fatal(err)
		}
		r, err := RebuildDatabase(copied, "", nil)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		if kept, err := os.ReadFile(r.Damaged); err != nil || !bytes.Equal(kept, file) {
			t.Errorf("%s: the damaged database is not kept: %v", place, err)
		}
		if err := CheckPages(copied); err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		s := openDir(t, copied, rebuildOptions)
		remake(t, s)
		if err := s.Check(); err != nil {
			t.Errorf("%s: of what was made: %v", place, err)
		}
		have := bodiesOf(t, s)
		for k, v := range want {
			if have[k] != v {
				t.Errorf("%s: message %s reads %q, it was %q", place, k, have[k], v)
			}
		}
		for k := range have {
			if _, ok := want[k]; !ok {
				t.Errorf("%s: message %s has come back", place, k)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("seed %d: of %d flips %d needed a new database, %d were harmless", seed, flips, made, harmless)
}

// TestRebuildOfLostRows: rows of messages are gone, with all or some of what their indexes say.
func TestRebuildOfLostRows(t *testing.T) {
	for name, buckets := range map[string][]string{
		"rows":            {"msg"},
		"rows and meta":   {"msg", "msg_meta"},
		"rows and inbox":  {"msg", "inbox_class", "inbox_mbx_class"},
		"folders":         {"folder", "mailbox_count"},
		"derived":         {"blob_ref", "blob_live", "inbox_class", "folder_name", "account_count"},
		"meta and shared": {"msg_meta", "blob_structure"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			makeRebuildStore(t, dir)
			s := openDir(t, dir, rebuildOptions)
			want := bodiesOf(t, s)
			if err := s.setup(func(tx *Tx) error {
				b := engine.Bolt(tx)
				for _, bucket := range buckets {
					if err := b.DeleteBucket([]byte(bucket)); err != nil {
						return err
					}
					if _, err := b.CreateBucket([]byte(bucket)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckRows(); err == nil {
				t.Error("the check finds nothing")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 { // as if the first attempt had been killed at its end
				if _, err := RebuildDatabase(dir, "", nil); err != nil {
					t.Fatal(err)
				}
			}
			s = openDir(t, dir, rebuildOptions)
			if err := s.Check(); err == nil && name != "derived" && name != "folders" || err != nil && !strings.Contains(err.Error(), "check --rebuild") {
				t.Errorf("before messages are made: %v", err)
			}
			remake(t, s)
			if err := errors.Join(s.Check(), s.Close()); err != nil {
				t.Error(err)
			}
			s = openDir(t, dir, rebuildOptions)
			defer s.Close()
			if have := bodiesOf(t, s); fmt.Sprint(have) != fmt.Sprint(want) {
				t.Errorf("there are %d messages, there were %d", len(have), len(want))
			}
		})
	}
}

// TestUnlisted: what came after an older copy of the database is told from what was deleted.
func TestUnlisted(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, rebuildOptions)
	addMailbox(t, s, 1)
	deleted := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "deleted")
	update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, deleted.UID) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, DatabaseFile)
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, rebuildOptions)
	later := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "later")
	if err := errors.Join(s.Close(), os.WriteFile(path, older, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, rebuildOptions)
	defer s.Close()
	newer := map[BlobRef]bool{}
	if err := s.EachUnlisted(func(u UnlistedMessage) error {
		newer[u.Blob] = u.Newer
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(newer) != 2 || newer[deleted.Blob] || !newer[later.Blob] {
		t.Errorf("not listed, and newer: %v", newer)
	}
}
