package boltfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// FuzzNewestMeta: no file makes the reader of meta pages fail otherwise than by not finding one.
func FuzzNewestMeta(f *testing.F) {
	path := filepath.Join(f.TempDir(), "test.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err = errors.Join(err, db.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(string(whole[:2*os.Getpagesize()]))
	f.Add(string(whole[:100]))
	f.Add("")
	f.Fuzz(func(t *testing.T, file string) {
		m, found, err := NewestMeta(strings.NewReader(file))
		if err != nil && err != io.EOF || found && m.Size < 0 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}
