// Package engine is what the records of a store are kept by: a bbolt database with one committer,
// transactions that are bounded, tables with indexes, and the list of what each commit changed. It
// does not know a single record, nor what rows mean, nor where the bytes of messages are.
//
//	db.go        Open, Start, Close
//	commit.go    Update and View; the committer, which carries many transactions in one commit
//	bounds.go    what one transaction may be, and who made a larger one
//	tx.go        a transaction; walks through a bucket while it changes
//	bucket.go    buckets of rows with a checksum
//	table.go     tables of records with their indexes, and the records that are kept decoded
//	reseal.go    secrets in records that are sealed anew
//	entries.go   what each commit changed, for who keeps a copy of the store
//	damage.go    a database that is not what was written, and how it is noticed
//	pacer.go     how work that may wait keeps out of the way
package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/rowform"
	"github.com/mailstead/mailstead/store/segment"
)

var (
	// ErrNotFound is returned when no record has the key.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned when another record already has the value of a unique index.
	ErrExists = errors.New("already exists")
	// ErrInUse is returned by Open while another process has the database open.
	ErrInUse = errors.New("the store is in use by another process")
	// ErrClosed is returned by Update once Close has begun.
	ErrClosed = errors.New("the store is closed")
	// ErrFailed is returned by every write after the disk has refused a sync: what it then holds is
	// not known, so nothing more is acknowledged until the process starts again.
	ErrFailed = errors.New("the store takes no writes since the disk refused one; restart after mending the disk")
	// ErrFull is returned when the disk has no room for a write. Nothing was changed; later writes
	// may succeed.
	ErrFull = segment.ErrFull
	// ErrDamagedRow is returned for a row of the database that is not what was written there.
	ErrDamagedRow = rowform.ErrDamaged
	// ErrNewer is returned for a row that a newer version has written.
	ErrNewer = rowform.ErrNewer
	// ErrTooMuch is returned for a transaction over Options.Most, where FailLarge is set.
	ErrTooMuch = errors.New("the transaction is too large")
)

// Options say how a database is opened and used. Log, Now and Room are given always.
type Options struct {
	Log         *slog.Logger             // told of repairs
	Now         func() time.Time         // the time of records and entries
	LockTimeout time.Duration            // how long to wait for another process to leave the database
	CheckPages  bool                     // verify the pages before anything reads them
	NoSync      bool                     // leave everything to the operating system's cache
	Committed   func(took time.Duration) // told of each commit, with its sync; nil: nobody is

	// Buckets are the names of all that the database has, for WatchPages. New keys of the rising
	// ones are behind the others, and their rows stay as they are.
	Buckets []string
	Rising  map[string]bool

	// What one transaction may be; MaxBytes and so on where 0.
	MaxBytes, MaxWrites, MaxSteps int
	FailLarge                     bool // one over that fails; else the log is told
	RunTwice                      bool // functions of Update run once more, before, and that is undone

	EntriesMost int64 // bytes of entries that are kept, with their messages; 1 GiB where 0
	// Room says how many bytes of the disk that dir is on are free, and how many it has.
	Room func(dir string) (free, total int64, err error)
}

// A DB is one open database. It is safe for concurrent use.
type DB struct {
	dir  string
	path string
	bolt *bolt.DB
	log  *slog.Logger
	now  func() time.Time
	told func(time.Duration) // see Options.Committed
	sync func() error        // see Start

	writes    chan *write
	closing   chan struct{}
	stopOnce  sync.Once
	closeOnce sync.Once
	closeErr  error
	committed chan struct{} // closed when the committer has ended; nil before Start
	failure   failure
	damage    damageMet
	records   records
	onCommit  atomic.Pointer[func([]Change)]
	reseal    atomic.Pointer[Reseal] // see ResealWrites
	mmapTrim  boltfile.MmapTrim      // the committer's
	bounds    bounds
	report    txReport // the committer's
	room      diskroom.Room
	// forgetAllocations is the committer's, see boltfile.Allocations.
	forgetAllocations func(most int)

	freelistMissing bool // the file is without the list of free pages; the committer's, then Close's
	checkedPages    bool // Open has verified the pages of the database
	runTwice        bool
	buckets         []string
	rising          map[string]bool
	entries         entryKeeper
}

// Open opens the database in a file, and makes it if there is none. It takes no writes but those of
// Setup until Start. It returns ErrInUse while another process has it open, and ErrDatabase where
// damage keeps it from being read.
func Open(path string, o Options) (*DB, error) {
	b, without, err := openBolt(path, o)
	if err != nil {
		return nil, err
	}
	b.NoSync = o.NoSync
	forget, ok := boltfile.Allocations(b)
	if !ok {
		o.Log.Warn("bbolt keeps allocations where they cannot be forgotten, so that memory grows with what is written")
	}
	most := txCost{bytes: cmp.Or(o.MaxBytes, maxTxBytes), writes: cmp.Or(o.MaxWrites, maxTxWrites), steps: cmp.Or(o.MaxSteps, maxTxSteps)}
	return &DB{
		dir: filepath.Dir(path), path: path, bolt: b, log: o.Log, now: o.Now, told: o.Committed,
		writes:          make(chan *write),
		closing:         make(chan struct{}),
		records:         newRecords(),
		bounds:          bounds{most, o.FailLarge, map[string]bool{}},
		report:          newTxReport(),
		runTwice:        o.RunTwice,
		buckets:         o.Buckets,
		rising:          o.Rising,
		entries:         entryKeeper{most: cmp.Or(o.EntriesMost, entriesMost), added: make(chan struct{}, 1), more: make(chan struct{}), ended: make(chan struct{})},
		room:            diskroom.Room{Dir: filepath.Dir(path), Free: o.Room, Log: o.Log},
		freelistMissing: without,
		checkedPages:    o.CheckPages, forgetAllocations: forget,
	}, nil
}

// OpenApart opens the database in a file for who works over it while no process uses it: only View,
// or also Setup, which does not sync what it writes. It returns what Open does.
func OpenApart(path string, readOnly bool, now func() time.Time, log *slog.Logger) (*DB, error) {
	b, err := openDatabase(path, &bolt.Options{ReadOnly: readOnly, Timeout: 5 * time.Second, NoSync: !readOnly})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &DB{dir: filepath.Dir(path), path: path, bolt: b, log: log, now: now, records: newRecords(), closing: make(chan struct{})}, nil
}

// Start finds what entries are kept, and takes writes from then on. Before each commit it calls
// sync: what that brings to the disk, the rows of the commit may refer to.
func (db *DB) Start(sync func() error) error {
	if err := db.openEntries(); err != nil {
		return err
	}
	db.sync = sync
	db.committed = make(chan struct{})
	go db.commitLoop()
	return nil
}

// WriteFreelist has what Setup writes include the list of free pages.
func (db *DB) WriteFreelist() {
	db.freelistMissing = false
	db.bolt.NoFreelistSync = false
}

// Setup runs fn in a transaction of its own, past the committer and its bounds: it is for what is
// done to a database before it is used. What it writes is in no entry.
func (db *DB) Setup(fn func(*Tx) error) error {
	return db.bolt.Update(func(b *bolt.Tx) error {
		tx := &Tx{b: b, db: db, writable: true}
		return errors.Join(fn(tx), tx.err)
	})
}

// Begin begins a snapshot, which lasts until bbolt's transaction of it is rolled back.
func (db *DB) Begin() (*Tx, error) {
	b, err := db.bolt.Begin(false)
	if err != nil {
		return nil, err
	}
	return &Tx{b: b, db: db}, nil
}

// Sync brings what Setup has written to the disk.
func (db *DB) Sync() error { return db.bolt.Sync() }

// Stop ends the committer once the writes that it has taken are on disk. Update returns ErrClosed
// from then on; the file stays open and locked until Close. It is safe to call twice.
func (db *DB) Stop() {
	db.stopOnce.Do(func() {
		close(db.closing)
		if db.committed != nil {
			<-db.committed
			db.closeFreelist()
		}
	})
}

// Close stops the committer, closes the file and gives up its lock. It is safe to call twice, and
// waits for views.
func (db *DB) Close() error {
	db.Stop()
	db.closeOnce.Do(func() { db.closeErr = db.bolt.Close() })
	return db.closeErr
}

// openBolt opens the database, and says whether it was found without the list of its free pages.
func openBolt(path string, o Options) (db *bolt.DB, without bool, err error) {
	without, err = prepareDatabase(path, o)
	if err != nil {
		return nil, false, err
	}
	b := &bolt.Options{Timeout: o.LockTimeout, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
	if runtime.GOOS != "windows" && ^uint(0)>>63 == 1 {
		// Growing the map needs every reader to leave, and nobody may begin to read meanwhile. So
		// the map is larger than the file will be when the server is started the next time.
		b.InitialMmapSize = 16 << 30
		if info, err := os.Stat(path); err == nil {
			b.InitialMmapSize = max(b.InitialMmapSize, int(4*info.Size()))
		}
	}
	db, err = openDatabase(path, b)
	if err != nil {
		return nil, false, fmt.Errorf("open %s: %w", path, err)
	}
	return db, without, nil
}

// prepareDatabase does what comes before bbolt opens a database for writing: it verifies the pages
// if it is asked to, and writes the list of free pages where that is missing. without tells that it
// is missing still.
func prepareDatabase(path string, o Options) (without bool, err error) {
	without, err = boltfile.LacksFreelist(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if info, err := os.Stat(path); !without && !o.CheckPages || err != nil || info.Size() == 0 {
		return without, nil
	}
	// No process has it open for writing meanwhile: bbolt locks the file. Another start that has
	// this lock too writes the same list to the same place.
	lock, err := openDatabase(path, &bolt.Options{ReadOnly: true, Timeout: o.LockTimeout})
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	defer lock.Close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	damage, err := boltfile.Prepare(f)
	if len(damage) > 0 {
		return false, Damaged(filepath.Dir(path), errors.Join(damage...))
	}
	if err != nil { // bbolt can do without
		o.Log.Warn("the list of free pages was not written; this start takes longer", "error", err)
	}
	return without && err != nil, nil
}
