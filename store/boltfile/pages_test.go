package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// pagesToCheck is a database with a tree of several levels and free pages, and the page that its
// tree begins with.
func pagesToCheck(t testing.TB) (file []byte, root int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(*bolt.Bucket) error{
		func(b *bolt.Bucket) (err error) {
			for i := range 2000 {
				err = errors.Join(err, b.Put(fmt.Appendf(nil, "key %05d", i), bytes.Repeat([]byte("v"), i%50)))
			}
			return errors.Join(err, b.Put([]byte("long"), make([]byte, 20_000)))
		},
		func(b *bolt.Bucket) (err error) {
			for i := range 500 {
				err = errors.Join(err, b.Delete(fmt.Appendf(nil, "key %05d", i)))
			}
			return err
		},
		func(b *bolt.Bucket) error {
			root = int(b.Root())
			return nil
		},
	} {
		if err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("rows"))
			_, err2 := tx.CreateBucketIfNotExists([]byte("none"))
			return errors.Join(err, err2, step(b))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, root
}

func checkFile(file []byte) error {
	return errors.Join(CheckPages(bytes.NewReader(file), int64(len(file)))...)
}

// checkParts verifies the bucket of rows a few pages at a time, and gives how many parts that took.
func checkParts(t testing.TB, file []byte) (parts int, err error) {
	t.Helper()
	meta, _, err := NewestMeta(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for next := []byte{}; next != nil; parts++ {
		var wrong []error
		next, wrong = CheckBucket(bytes.NewReader(file), meta.root, "rows", int64(len(file)), meta.pageSize, next, 5)
		if len(wrong) > 0 {
			return parts, errors.Join(wrong...)
		}
	}
	return parts, nil
}

func TestCheckBucket(t *testing.T) {
	whole, root := pagesToCheck(t)
	parts, err := checkParts(t, whole)
	if parts < 3 || err != nil {
		t.Fatalf("a sound file, in %d parts: %v", parts, err)
	}
	// Each page below the first is in one of the parts.
	size, order := os.Getpagesize(), binary.NativeEndian
	page := whole[root*size:]
	for i := range int(order.Uint16(page[10:])) {
		file := bytes.Clone(whole)
		file[int(order.Uint64(page[16+16*i+8:]))*size+8] = 0x77
		if _, err := checkParts(t, file); err == nil {
			t.Errorf("the damaged page of row %d was not found", i)
		}
	}
	file := bytes.Clone(whole)
	order.PutUint64(file[root*size+24:], uint64(root))
	if _, err := checkParts(t, file); err == nil {
		t.Error("a circle was not found")
	}
}

func TestCheckPages(t *testing.T) {
	whole, root := pagesToCheck(t)
	if err := checkFile(whole); err != nil {
		t.Fatalf("a sound file: %v", err)
	}
	size, order := os.Getpagesize(), binary.NativeEndian
	if order.Uint16(whole[root*size+8:]) != branchPage {
		t.Fatal("the tree has one page")
	}
	for _, c := range []struct {
		name   string
		damage func(page []byte)
		want   string
	}{
		{"number", func(p []byte) { p[0] ^= 1 }, "its head is wrong"},
		{"kind", func(p []byte) { p[8] = 0x77 }, `of bucket "rows" is damaged: its head is wrong`},
		{"count", func(p []byte) { p[11] = 0xff }, "its head is wrong"},
		{"place", func(p []byte) { p[16] ^= 1 }, "row 0 is not where it should be"},
		{"length", func(p []byte) { order.PutUint32(p[20:], 1<<31) }, "row 0 is not where it should be"},
		{"circle", func(p []byte) { order.PutUint64(p[24:], uint64(root)) }, "is used twice"},
		{"two parents", func(p []byte) { copy(p[24:32], p[40:48]) }, "is"},
		{"another first key", func(p []byte) { p[16+order.Uint32(p[16:])+order.Uint32(p[20:])-1]-- }, "has another first key"},
		{"beyond the end", func(p []byte) { order.PutUint64(p[24:], 1<<50) }, "beyond the end"},
		{"pages of its own", func(p []byte) { order.PutUint32(p[12:], 1<<31) }, "its head is wrong"},
	} {
		file := bytes.Clone(whole)
		c.damage(file[root*size:])
		if err := checkFile(file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	file := bytes.Clone(whole)
	file[size+16] ^= 1
	if err := checkFile(file); err == nil || !strings.Contains(err.Error(), "meta page 1 is damaged") {
		t.Errorf("a meta page: %v", err)
	}
	file[16] ^= 1
	if err := checkFile(file); err == nil || !strings.Contains(err.Error(), "both meta pages") {
		t.Errorf("both meta pages: %v", err)
	}
	if err := checkFile(whole[:4*size]); err == nil || !strings.Contains(err.Error(), "the file has") {
		t.Errorf("half a file: %v", err)
	}
}

// FuzzCheckPages: no damage makes the check panic or not return.
func FuzzCheckPages(f *testing.F) {
	whole, _ := pagesToCheck(f)
	f.Add(uint32(8), []byte{1})
	f.Add(uint32(5*os.Getpagesize()+8), []byte{1, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, damage []byte) {
		file := bytes.Clone(whole)
		copy(file[int(at)%len(file):], damage)
		_ = checkFile(file)
		if _, found, err := NewestMeta(bytes.NewReader(file)); found && err == nil {
			_, _ = checkParts(t, file)
		}
	})
}
