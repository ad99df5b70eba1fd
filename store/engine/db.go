// Package engine is the database layer of the store: a bbolt database with one committer, bounded
// transactions, tables with indexes, and a log of what each commit changed. It does not know any
// record type, what rows mean, or where the bytes of messages are.
//
//	db.go        Open, Start, Close
//	commit.go    Update and View; the committer, which puts many transactions into one commit
//	bounds.go    the limits of one transaction, and who exceeded them
//	tx.go        a transaction; iterating over a bucket while it changes
//	bucket.go    buckets of rows; store/rowform verifies the checksum of each row
//	table.go     tables of records with their indexes, and the cache of decoded records
//	reseal.go    re-encrypting the secrets in records
//	entries.go   entries: what each commit changed, for code that keeps a copy of the store
//	damage.go    detecting damaged pages
//	pacer.go     how background work yields to the rest of the process
package engine

import (
	"cmp"
	"context"
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
	// ErrFailed is returned by every write after the disk refused a sync. What the disk holds is
	// then unknown, so no write is acknowledged until the process restarts.
	ErrFailed = errors.New("the store accepts no more writes, because a write to the disk failed; restart when the disk is repaired")
	// ErrFull is returned when the disk has no room for a write. Nothing was changed, and later
	// writes may succeed.
	ErrFull = segment.ErrFull
	// ErrDamagedRow is returned for a row that differs from what was written.
	ErrDamagedRow = rowform.ErrDamaged
	// ErrNewer is returned for a row that a newer version of the program wrote.
	ErrNewer = rowform.ErrNewer
	// ErrTooMuch is returned for a transaction over the limits of Options if FailLarge is set.
	ErrTooMuch = errors.New("the transaction is too large")
)

// Options configure a database. Log, Now and Room are required.
type Options struct {
	Log         *slog.Logger             // gets repairs and failures
	Now         func() time.Time         // clock for records and entries
	LockTimeout time.Duration            // how long to wait while another process has the database open
	CheckPages  bool                     // makes Open verify all pages first
	NoSync      bool                     // do not sync: a power cut may lose commits
	Committed   func(took time.Duration) // gets the duration of each commit, with its sync; may be nil

	// Buckets are the names of all buckets, for WatchPages. Sequential has the names of the tables
	// and indexes in which each new key sorts after the others and rows keep their size.
	Buckets    []string
	Sequential map[string]bool

	// MaxBytes, MaxWrites and MaxSteps limit one transaction: the bytes of keys and values that it
	// writes, its writes, and its cursor steps. 0: the default.
	MaxBytes, MaxWrites, MaxSteps int
	FailLarge                     bool // a transaction over the limits fails; otherwise it is only logged
	RunTwice                      bool // for tests: run each function of Update twice and roll the first run back

	// Background, if not nil, is for a copy of a store that is checked beside a running server:
	// View rests while the process is busy, and fails when this context ends.
	Background context.Context

	MaxEntryBytes int64 // limit on the bytes of kept entries and their messages; 0: 1 GiB
	// Room returns the free and total bytes of the file system that dir is on.
	Room func(dir string) (free, total int64, err error)
}

// A DB is an open database. It is safe for concurrent use.
type DB struct {
	dir         string
	path        string
	bolt        *bolt.DB
	log         *slog.Logger
	now         func() time.Time
	onCommitted func(time.Duration) // see Options.Committed
	sync        func() error        // parameter of Start

	writes    chan *queuedWrite
	closing   chan struct{}
	stopOnce  sync.Once
	closeOnce sync.Once
	closeErr  error
	committed chan struct{} // closed when the committer has ended; nil before Start
	failure   failure
	damage    damageCount
	records   recordCache
	onCommit  atomic.Pointer[func([]Change)]
	reseal    atomic.Pointer[Reseal] // set by ResealWrites; nil before
	mmapTrim  boltfile.MmapTrim      // used by the committer only
	bounds    bounds
	report    txReport // used by the committer only
	room      diskroom.Monitor
	// background is nil unless Options.Background is set.
	background *background
	// forgetAllocations is used by the committer only; see boltfile.AllocationForgetter.
	forgetAllocations func(most int)

	freelistMissing bool // the file lacks the list of free pages; used by the committer, then by Close
	checkedPages    bool // Open has verified all pages
	runTwice        bool
	buckets         []string
	sequential      map[string]bool
	entries         entryKeeper
}

// Open opens the database file, or creates it. Only Setup can write until Start is called. Open
// returns ErrInUse while another process has the file open, and ErrDatabase if damage prevents
// reading it.
func Open(path string, o Options) (*DB, error) {
	b, lacksFreelist, err := openBolt(path, o)
	if err != nil {
		return nil, err
	}
	b.NoSync = o.NoSync
	forget, ok := boltfile.AllocationForgetter(b)
	if !ok {
		o.Log.Warn("bbolt keeps allocations where they cannot be forgotten, so that memory grows with what is written")
	}
	most := txCost{bytes: cmp.Or(o.MaxBytes, maxTxBytes), writes: cmp.Or(o.MaxWrites, maxTxWrites), steps: cmp.Or(o.MaxSteps, maxTxSteps)}
	db := &DB{
		dir: filepath.Dir(path), path: path, bolt: b, log: o.Log, now: o.Now, onCommitted: o.Committed,
		writes:          make(chan *queuedWrite),
		closing:         make(chan struct{}),
		records:         newRecordCache(),
		bounds:          bounds{most, o.FailLarge, map[string]bool{}},
		report:          newTxReport(),
		runTwice:        o.RunTwice,
		buckets:         o.Buckets,
		sequential:      o.Sequential,
		entries:         entryKeeper{maxBytes: cmp.Or(o.MaxEntryBytes, defaultMaxEntryBytes), added: make(chan struct{}, 1), storedChanged: make(chan struct{}), waitsEnded: make(chan struct{})},
		room:            diskroom.Monitor{Dir: filepath.Dir(path), Free: o.Room, Log: o.Log},
		freelistMissing: lacksFreelist,
		checkedPages:    o.CheckPages, forgetAllocations: forget,
	}
	if o.Background != nil {
		db.background = &background{ctx: o.Background}
	}
	return db, nil
}

// OpenOffline opens a database file for offline work while no server uses it, for View and, unless
// readOnly, Setup. Setup does not sync its writes; call Sync. The errors are those of Open.
func OpenOffline(path string, readOnly bool, now func() time.Time, log *slog.Logger) (*DB, error) {
	b, err := openDatabase(path, &bolt.Options{ReadOnly: readOnly, Timeout: 5 * time.Second, NoSync: !readOnly})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &DB{dir: filepath.Dir(path), path: path, bolt: b, log: log, now: now, records: newRecordCache(), closing: make(chan struct{})}, nil
}

// Start reads the state of the kept entries and starts the committer, which accepts writes from
// then on. Each commit first calls sync, which must bring the message bytes to disk that rows of
// the commit refer to.
func (db *DB) Start(sync func() error) error {
	if err := db.loadEntryState(); err != nil {
		return err
	}
	db.sync = sync
	db.committed = make(chan struct{})
	go db.commitLoop()
	return nil
}

// WriteFreelist makes commits of Setup include the list of free pages.
func (db *DB) WriteFreelist() {
	db.freelistMissing = false
	db.bolt.NoFreelistSync = false
}

// Setup runs fn in a transaction without the committer and its limits. It is for preparing a
// database before Start, and for changing it offline. No entry records its writes.
func (db *DB) Setup(fn func(*Tx) error) error {
	return db.bolt.Update(func(b *bolt.Tx) error {
		tx := &Tx{b: b, db: db, writable: true}
		return errors.Join(fn(tx), tx.err)
	})
}

// Begin returns a snapshot as a read transaction. The caller must end it by rolling back the bbolt
// transaction, see Bolt.
func (db *DB) Begin() (*Tx, error) {
	b, err := db.bolt.Begin(false)
	if err != nil {
		return nil, err
	}
	return &Tx{b: b, db: db}, nil
}

// Sync writes to disk what Setup has changed.
func (db *DB) Sync() error { return db.bolt.Sync() }

// Stop ends the committer once the writes that it has accepted are on disk. From then on Update
// returns ErrClosed. The file stays open and locked until Close. It is safe to call twice.
func (db *DB) Stop() {
	db.stopOnce.Do(func() {
		close(db.closing)
		if db.committed != nil {
			<-db.committed
			db.writeFreelistAtClose()
		}
	})
}

// Close calls Stop, waits for views, closes the file and releases its lock. It is safe to call
// twice.
func (db *DB) Close() error {
	db.Stop()
	db.closeOnce.Do(func() { db.closeErr = db.bolt.Close() })
	return db.closeErr
}

// openBolt opens the database file. lacksFreelist reports whether the file lacks the list of free
// pages.
func openBolt(path string, o Options) (db *bolt.DB, lacksFreelist bool, err error) {
	lacksFreelist, err = prepareDatabase(path, o)
	if err != nil {
		return nil, false, err
	}
	b := &bolt.Options{Timeout: o.LockTimeout, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
	if runtime.GOOS != "windows" && ^uint(0)>>63 == 1 {
		// To enlarge the memory map, bbolt waits for all readers and blocks new ones. So the map is
		// made larger than the file will get before the next start.
		b.InitialMmapSize = 16 << 30
		if info, err := os.Stat(path); err == nil {
			b.InitialMmapSize = max(b.InitialMmapSize, int(4*info.Size()))
		}
	}
	db, err = openDatabase(path, b)
	if err != nil {
		return nil, false, fmt.Errorf("open %s: %w", path, err)
	}
	return db, lacksFreelist, nil
}

// prepareDatabase prepares a file for bbolt to open for writing. It verifies the pages if
// Options.CheckPages is set, and writes the list of free pages if the file lacks it. lacksFreelist
// reports whether the list is still missing.
func prepareDatabase(path string, o Options) (lacksFreelist bool, err error) {
	lacksFreelist, err = boltfile.LacksFreelist(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if info, err := os.Stat(path); !lacksFreelist && !o.CheckPages || err != nil || info.Size() == 0 {
		return lacksFreelist, nil
	}
	// This read lock keeps out processes that open the file for writing. Another process that
	// starts at the same time can hold it too; it then writes the same list to the same place.
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
	damage, err := boltfile.CheckAndWriteFreelist(f)
	if len(damage) > 0 {
		return false, DamagedStoreError(filepath.Dir(path), errors.Join(damage...))
	}
	if err != nil { // bbolt can open the file without the list
		o.Log.Warn("the list of free pages was not written; this start takes longer", "error", err)
	}
	return lacksFreelist && err != nil, nil
}
