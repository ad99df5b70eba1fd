package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/rowform"
)

// The records of these tests. Those of the first two types are kept as JSON, and those of the
// others as their fields.
type (
	Account struct {
		ID    string
		Num   uint32
		Name  string
		Words []string
	}
	Template struct {
		ID, AccountID string
		Words         []string
	}
	Job struct {
		ID, AccountID, Kind, Key, State string
		Due, EndedAt                    time.Time
	}
	Event struct {
		ID, AccountID string
		Data          []byte
	}
)

var (
	Accounts = NewTable("account", func(a *Account) string { return a.ID }).
			Watched(func(_ *Tx, a *Account) Change { return Change{Account: a.ID, ID: a.ID} })
	AccountByNum = Accounts.Unique("num", func(a *Account) string { return numKey(a.Num) })

	Templates          = NewTable("template", func(t *Template) string { return t.ID })
	TemplatesByAccount = Templates.Index("account", func(t *Template) string { return t.AccountID })

	Jobs          = NewTable("job", func(j *Job) string { return j.ID }).Binary((*Job).fields)
	JobsByAccount = Jobs.Index("account", func(j *Job) string { return j.AccountID })
	JobsDue       = Jobs.Index("due", func(j *Job) string {
		if j.State == "completed" {
			return ""
		}
		return timeKey(j.Due)
	})
	JobByKey = Jobs.Unique("key", func(j *Job) string {
		if j.Key == "" || j.State != "queued" {
			return ""
		}
		return j.Kind + "\x00" + j.Key
	})
	JobsEnded = Jobs.Index("ended", func(j *Job) string {
		if j.EndedAt.IsZero() {
			return ""
		}
		return timeKey(j.EndedAt)
	})

	Events          = NewTable("event", func(e *Event) string { return e.ID }).Binary((*Event).fields)
	EventsByAccount = Events.Index("account", func(e *Event) string { return e.AccountID })

	testRows    = NewBucket("rows")
	freeingRows = NewBucket("freeing").FreesSpace()
)

var (
	testTables = []*AnyTable{Accounts.Any(), Templates.Any(), Jobs.Any(), Events.Any()}
	testRising = map[string]bool{Events.Name(): true, EventsByAccount.Name(): true}
)

func (j *Job) fields(c *rowform.Coder) {
	c.Version(1)
	for _, text := range []*string{&j.ID, &j.AccountID, &j.Kind, &j.Key, &j.State} {
		c.String(text)
	}
	c.Time(&j.Due)
	c.Time(&j.EndedAt)
}

func (e *Event) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&e.ID)
	c.String(&e.AccountID)
	c.Bytes(&e.Data)
}

func numKey(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

func timeKey(t time.Time) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli())))
}

func keyTime(key string) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(key)))).UTC()
}

// second is a time of these tests.
func second(n int64) time.Time { return time.Unix(1_700_000_000+n, 0).UTC() }

var errTest = errors.New("the function's own error")

func putAccount(tx *Tx, num uint32) error {
	return Accounts.Put(tx, &Account{ID: fmt.Sprint("acc_", num), Num: num})
}

// putText writes a record of at least n bytes.
func putText(tx *Tx, id string, n int) error {
	return Templates.Put(tx, &Template{ID: id, AccountID: "acc_1", Words: []string{strings.Repeat("x", n)}})
}

func putEvents(tx *Tx, account string, nums ...int) error {
	for _, n := range nums {
		if err := Events.Put(tx, &Event{ID: fmt.Sprintf("evt_%06d", n), AccountID: account, Data: []byte("0")}); err != nil {
			return err
		}
	}
	return nil
}

// oneAtATime skips a test that does one thing at a time where the race detector makes it slow: it
// runs without -short too.
func oneAtATime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("one thing at a time: nothing for the race detector")
	}
}

// strict are options under which large transactions fail and functions run twice, but not in a
// benchmark.
func strict(o Options) Options {
	o.FailLarge, o.RunTwice = AreLimitsStrict(), AreLimitsStrict()
	return o
}

// openTest opens a strict database in a directory of its own; when the test ends the database is
// checked and closed.
func openTest(t testing.TB, o Options) *DB {
	t.Helper()
	return openDir(t, t.TempDir(), strict(o))
}

// openDir is openTest for a directory, with options as they are.
func openDir(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	db := openUnchecked(t, dir, o)
	t.Cleanup(func() { closeTest(t, db) })
	return db
}

// openUnchecked opens the database in a directory, and makes its buckets where they are missing.
func openUnchecked(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Now, o.Sequential = time.Now, testRising
	if o.Room == nil {
		o.Room = diskroom.Free
	}
	o.Buckets = []string{EntryBucket, testRows.Name(), freeingRows.Name()}
	for _, table := range testTables {
		o.Buckets = append(o.Buckets, table.Name())
		for _, x := range table.Indexes() {
			o.Buckets = append(o.Buckets, x.Name())
		}
	}
	db, err := Open(filepath.Join(dir, "test.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	ready := false
	view(t, db, func(tx *Tx) error {
		ready = tx.bucket(EntryBucket) != nil
		return nil
	})
	if !ready {
		db.WriteFreelist()
		err = db.Setup(func(tx *Tx) error {
			for _, name := range o.Buckets {
				if _, err := Bolt(tx).CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := errors.Join(err, db.Start(func() error { return nil })); err != nil {
		t.Fatal(err)
	}
	return db
}

// checkTest checks all that a database has.
func checkTest(db *DB) error {
	var faults []error
	report := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	err := db.View(func(tx *Tx) error {
		for _, table := range testTables {
			table.Check(tx, report)
		}
		tx.CheckEntries(report)
		return nil
	})
	db.CheckCachedRecords(report)
	return errors.Join(append(faults, err)...)
}

// closeTest checks and closes a database, unless that has been done.
func closeTest(t testing.TB, db *DB) {
	t.Helper()
	if db.Failed() == nil {
		if err := checkTest(db); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("check: %v", err)
		}
	}
	if err := db.Close(); err != nil && db.Failed() == nil {
		t.Errorf("close: %v", err)
	}
}

func update(t testing.TB, db *DB, fn func(*Tx) error) {
	t.Helper()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, db *DB, fn func(*Tx) error) {
	t.Helper()
	if err := db.View(fn); err != nil {
		t.Fatal(err)
	}
}

// copyTest copies a database into another directory, as kill -9 leaves it.
func copyTest(t *testing.T, db *DB) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	update(t, db, func(*Tx) error { // nothing is written meanwhile
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(db.dir)))
	})
	return dir
}

// hasList tells whether the file of the database in dir has the list of its free pages.
func hasList(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	meta, found, err := boltfile.NewestMeta(f)
	if err != nil || !found {
		t.Fatalf("no meta page: %v", err)
	}
	return meta.HasFreelist()
}
