// Package storetest opens stores for tests, and checks each store when its test ends. It does not
// know what a test keeps in them.
package storetest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// Open opens a store in a temporary directory, with at most one Options. When the test ends the
// store is checked and closed; a fault in any record, index, counter or message fails the test. A
// test may close the store itself.
func Open(t testing.TB, options ...store.Options) *store.Store {
	t.Helper()
	return open(t, t.TempDir(), options)
}

// Reopen checks and closes a store, and opens its directory again, as a restart does.
func Reopen(t testing.TB, s *store.Store, options ...store.Options) *store.Store {
	t.Helper()
	end(t, s)
	return open(t, s.Dir(), options)
}

func open(t testing.TB, dir string, options []store.Options) *store.Store {
	t.Helper()
	var o store.Options
	if len(options) > 0 {
		o = options[0]
	}
	s, err := store.Open(dir, o)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() { end(t, s) })
	return s
}

// CopyCrashed copies the directory of an open store, in the state that a crash would leave now, and
// returns the path of the copy. It blocks writes meanwhile: a file that is copied during a write
// may be in a state that no crash leaves.
func CopyCrashed(t testing.TB, s *store.Store) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	err := s.Update(func(*store.Tx) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(s.Dir())))
	})
	if err != nil {
		t.Fatalf("copy store: %v", err)
	}
	return dir
}

func end(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Check(); err != nil && !errors.Is(err, store.ErrClosed) {
		t.Errorf("check store: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close store: %v", err)
	}
}
