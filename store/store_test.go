package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var errTest = errors.New("the function's own error")

// oneAtATime skips a single-threaded test that would be slow under the race detector. Such a test
// also runs without -short.
func oneAtATime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("one thing at a time: nothing for the race detector")
	}
}

// openTest opens a store in a directory of its own; when the test ends the store is checked and
// closed.
func openTest(t testing.TB, o Options) *Store {
	t.Helper()
	return openDir(t, t.TempDir(), o)
}

func openDir(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, s) })
	return s
}

// closeTest checks and closes a store, unless that has been done.
func closeTest(t testing.TB, s *Store) {
	t.Helper()
	if s.Failed() == nil {
		if err := s.Check(); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("check: %v", err)
		}
	}
	if err := s.Close(); err != nil && s.Failed() == nil {
		t.Errorf("close: %v", err)
	}
}

func update(t testing.TB, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.Update(fn); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.View(fn); err != nil {
		t.Fatal(err)
	}
}

// appendTest appends a message.
func appendTest(t testing.TB, s *Store, body string) BlobRef {
	t.Helper()
	spool := s.NewSpool(int64(len(body)))
	defer spool.Close()
	if _, err := spool.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	ref, err := s.Append([]byte("env"), spool)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// addMailbox gives a mailbox its INBOX and a folder named Archive.
func addMailbox(t testing.TB, s *Store, mailboxes ...uint32) {
	t.Helper()
	update(t, s, func(tx *Tx) error {
		for _, mailbox := range mailboxes {
			for _, name := range []string{"INBOX", "Archive"} {
				if err := tx.CreateFolder(&Folder{Mailbox: mailbox, Name: name}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// addTest appends a message and adds it.
func addTest(t testing.TB, s *Store, m Message, body string) *Message {
	t.Helper()
	m.Blob = appendTest(t, s, body)
	update(t, s, func(tx *Tx) error { return tx.AddMessage(&m, &Meta{Preview: body}) })
	return &m
}

// readTest reads a message's bytes.
func readTest(t testing.TB, s *Store, ref BlobRef) string {
	t.Helper()
	blob, err := s.OpenBlob(ref)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	b := make([]byte, blob.Size())
	if _, err := blob.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// second returns the time this number of seconds after the start of the tests' clock.
func second(n int64) time.Time { return time.Unix(1_700_000_000+n, 0).UTC() }

func putAccount(tx *Tx, num uint32) error {
	return Accounts.Put(tx, &Account{ID: fmt.Sprint("acc_", num), Num: num})
}

// copyStore copies a store as kill -9 leaves it.
func copyStore(t *testing.T, s *Store) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	update(t, s, func(*Tx) error { // nothing is written meanwhile
		return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(s.dir)))
	})
	return to
}
