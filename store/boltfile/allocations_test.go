package boltfile

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestAllocations: what bbolt keeps of pages can be found, grows, and is forgotten, and the
// database goes on beside a reader that is open all the time.
func TestAllocations(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bolt.Options{InitialMmapSize: 64 << 20, NoSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	forget, ok := AllocationForgetter(db)
	if !ok {
		t.Fatal("this version of bbolt keeps allocations elsewhere")
	}
	known := func() int {
		return reflect.ValueOf(db).Elem().FieldByName("freelist").Elem().Elem().FieldByName("shared").Elem().FieldByName("allocs").Len()
	}
	write := func(round int) {
		t.Helper()
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			for n := range 300 {
				if err == nil {
					err = b.Put(fmt.Appendf(nil, "%d", n), fmt.Appendf(nil, "%04000d", round))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for round := range 10 {
		write(round)
	}
	if known() < 100 {
		t.Fatalf("%d allocations are known", known())
	}
	forget(known())
	if known() == 0 {
		t.Error("forgotten though there are not too many")
	}
	reader, err := db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	forget(0)
	if known() != 0 {
		t.Errorf("%d allocations are known still", known())
	}
	for round := range 20 {
		write(10 + round)
		forget(50)
	}
	if got := string(reader.Bucket([]byte("b")).Get([]byte("7"))); got != fmt.Sprintf("%04000d", 9) {
		t.Errorf("the reader sees %.20q…%q", got, got[len(got)-4:])
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	write(40)
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
