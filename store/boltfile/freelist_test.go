package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestFreelistIsWritten: the list of free pages that CheckAndWriteFreelist writes is the one that
// bbolt makes by itself, but for the pages of the list, and bbolt goes on with it.
func TestFreelistIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	withoutList(t, path)
	if lacks, err := LacksFreelist(path); !lacks || err != nil {
		t.Fatalf("before: lacks its list: %v, %v", lacks, err)
	}
	want := freePagesOf(t, path)
	prepare(t, path)
	if lacks, err := LacksFreelist(path); lacks || err != nil {
		t.Errorf("after: lacks its list: %v, %v", lacks, err)
	}
	own := (pageHead+8*want)/os.Getpagesize() + 1
	if have := freePagesOf(t, path); have != want-own || have < 1000 {
		t.Errorf("%d pages are free, bbolt says %d, of which the list takes %d", have, want, own)
	}
	prepare(t, path) // which now has nothing to write
	goOn(t, path)
}

// TestFreelistIsLong: a list of so many pages that its count stands in it, and one of pages that do
// not follow each other, which is written behind all.
func TestFreelistIsLong(t *testing.T) {
	const pages = 140_000 // most of them a hole in the file
	for _, c := range []struct {
		name        string
		every       uint64 // so many pages are free
		free, grown int
	}{
		{"together", 1, 130_000, 0},
		{"apart", 2, 65_536, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			withoutList(t, path)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			meta, _, err := NewestMeta(f)
			if err != nil {
				t.Fatal(err)
			}
			sound := checkPages(f, meta.Size, meta)
			longer := newPageCheck(f, pages*meta.pageSize, meta.pageSize)
			copy(longer.used, sound.used)
			for id := uint64(0); id < pages; id += c.every {
				if c.every > 1 {
					longer.used.add(id)
				}
			}
			if err := errors.Join(f.Truncate(pages*meta.pageSize), longer.writeFreelist(f, meta)); err != nil {
				t.Fatal(err)
			}
			if have := freePagesOf(t, path); have < c.free {
				t.Errorf("%d pages are free, want at least %d", have, c.free)
			}
			now, _, err := NewestMeta(f)
			if grown := now.Size/meta.pageSize - pages; err != nil || grown > 0 != (c.grown > 0) {
				t.Errorf("the file has grown by %d pages, %v", grown, err)
			}
			if c.every == 1 { // else pages are neither free nor used
				prepare(t, path)
				goOn(t, path)
			}
		})
	}
}

// withoutList makes a database with free pages and without their list: 1000 rows, of which each
// 100th is left.
func withoutList(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(b *bolt.Bucket, n int) error{
		func(b *bolt.Bucket, n int) error { return b.Put(rowKey(n), bytes.Repeat([]byte{byte(n)}, 5000)) },
		func(b *bolt.Bucket, n int) error {
			if n%100 == 0 {
				return nil
			}
			return b.Delete(rowKey(n))
		},
		func(b *bolt.Bucket, _ int) error { return b.Put([]byte("last"), nil) },
	} {
		if err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("rows"))
			for n := range 1000 {
				err = errors.Join(err, step(b, n))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func rowKey(n int) []byte { return fmt.Appendf(nil, "key %06d", n) }

// goOn has bbolt verify the database that withoutList has made, and write to it.
func goOn(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 3 {
		if err := db.Update(func(tx *bolt.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}
			return tx.Bucket([]byte("rows")).Put([]byte("more"), make([]byte, 100_000))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkRows(t, path)
}

// checkRows has bbolt read the rows that withoutList has left.
func checkRows(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("rows"))
		for n := range 1000 {
			if v := b.Get(rowKey(n)); n%100 == 0 && !bytes.Equal(v, bytes.Repeat([]byte{byte(n)}, 5000)) || n%100 > 0 && v != nil {
				t.Errorf("row %d is %d bytes", n, len(v))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func prepare(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if damage, err := CheckAndWriteFreelist(f); len(damage) > 0 || err != nil {
		t.Fatal(damage, err)
	}
}

// freePagesOf is how many free pages bbolt finds.
func freePagesOf(t *testing.T, path string) int {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return db.Stats().FreePageN
}

// TestDamagedFileGetsNoFreelist: nothing is written to a damaged file, or to one that cannot be
// written to.
func TestDamagedFileGetsNoFreelist(t *testing.T) {
	whole, root := pagesToCheck(t)
	path := filepath.Join(t.TempDir(), "test.db")
	whole[root*os.Getpagesize()+8] ^= 0x40
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if damage, err := CheckAndWriteFreelist(f); len(damage) == 0 || err != nil {
		t.Errorf("damage %v, %v", damage, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the file was changed, %v", err)
	}

	without := filepath.Join(t.TempDir(), "without.db")
	withoutList(t, without)
	readOnly, err := os.Open(without)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if damage, err := CheckAndWriteFreelist(readOnly); len(damage) > 0 || err == nil {
		t.Errorf("a file that cannot be written to: damage %v, error %v", damage, err)
	}
}

// TestPowerCutWhileTheListIsWritten: wherever the writes of the list end, also in the middle of
// one, bbolt has the same rows. Nothing is written before all that went before is on disk: the
// newest commit, then the list, then the meta page.
func TestPowerCutWhileTheListIsWritten(t *testing.T) {
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind the end: %v", behind), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			withoutList(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			meta, _, err := NewestMeta(bytes.NewReader(before))
			if err != nil {
				t.Fatal(err)
			}
			c := checkPages(bytes.NewReader(before), int64(len(before)), meta)
			if behind { // no free pages follow each other; the others are lost to the list
				for id := range c.pages {
					if id%2 == 0 {
						c.used.add(id)
					}
				}
			}
			w := &recorded{Reader: bytes.NewReader(before)}
			if err := c.writeFreelist(w, meta); err != nil {
				t.Fatal(err)
			}
			if want := []string{"sync", "write", "sync", "write", "sync"}; !slices.Equal(w.calls, want) {
				t.Fatalf("the calls are %q, want %q", w.calls, want)
			}
			if at := w.writes[0].at; at >= meta.Size != behind {
				t.Errorf("the list is at %d of %d", at, meta.Size)
			}
			image := bytes.Clone(before)
			for _, write := range w.writes {
				for n := 0; n <= len(write.bytes); n++ {
					if n > 100 && n%512 != 0 && n != len(write.bytes) || n%8 > 1 {
						continue
					}
					after := make([]byte, max(int64(len(image)), write.at+int64(n)))
					copy(after, image)
					copy(after[write.at:], write.bytes[:n])
					if err := os.WriteFile(path, after, 0o600); err != nil {
						t.Fatal(err)
					}
					checkRows(t, path)
					if !behind {
						goOn(t, path)
					}
					if n == len(write.bytes) {
						image = after
					}
				}
			}
			now, _, err := NewestMeta(bytes.NewReader(image))
			if err != nil || now.txid != meta.txid+1 || now.page == meta.page {
				t.Errorf("the meta page is %+v, was %+v, %v", now, meta, err)
			}
			// The number, the place of the list, the pages in use, the transaction and the checksum
			// aside, it is that of before.
			old := before[int64(meta.page)*meta.pageSize:][pageHead:]
			new := image[int64(now.page)*meta.pageSize:][pageHead:]
			if !bytes.Equal(old[:32], new[:32]) || !behind && now.Size != meta.Size {
				t.Errorf("meta pages %x and %x", old[:metaSize], new[:metaSize])
			}
		})
	}
}

// recorded is a file that keeps what is written apart.
type recorded struct {
	*bytes.Reader
	calls  []string
	writes []struct {
		at    int64
		bytes []byte
	}
}

func (r *recorded) Sync() error {
	r.calls = append(r.calls, "sync")
	return nil
}

func (r *recorded) WriteAt(b []byte, at int64) (int, error) {
	r.calls = append(r.calls, "write")
	r.writes = append(r.writes, struct {
		at    int64
		bytes []byte
	}{at, bytes.Clone(b)})
	return len(b), nil
}

// TestPagesOfAnotherMachine: the newest meta page is found, whichever it is, and the list written,
// also where pages have another size than this machine's.
func TestPagesOfAnotherMachine(t *testing.T) {
	for _, size := range []int{1 << 10, 1 << 14, 1 << 16} {
		path := filepath.Join(t.TempDir(), "test.db")
		for n := range 4 {
			db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: size, NoFreelistSync: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("rows"))
				return errors.Join(err, b.Put(rowKey(n), make([]byte, 3*size)))
			}); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			prepare(t, path)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			meta, found, err := NewestMeta(bytes.NewReader(whole))
			if !found || err != nil || !meta.HasFreelist() || meta.txid != uint64(3+2*n) {
				t.Errorf("pages of %d: the newest meta page is %+v, %v, %v", size, meta, found, err)
			}
			whole[int(1-meta.page)*size+pageHead] ^= 1
			if other, found, err := NewestMeta(bytes.NewReader(whole)); !found || err != nil || other != meta {
				t.Errorf("pages of %d: with one meta page it is %+v, %v, %v", size, other, found, err)
			}
		}
	}
}
