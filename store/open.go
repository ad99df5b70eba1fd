package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/recordid"
	"github.com/mailstead/mailstead/store/segment"
)

// Options configure a store. The zero value is right for production.
type Options struct {
	SegmentSize int64                    // bytes after which a new message segment begins; 64 MiB if 0
	LockTimeout time.Duration            // how long to wait for another process to close the store; 5 s if 0
	Grace       time.Duration            // how long a BlobRef can still be opened after its message was moved or deleted; 1 min if 0
	Clock       *clock.Clock             // the source of all times in records; if nil, a clock that shows Now
	Now         func() time.Time         // time.Now if nil
	Log         *slog.Logger             // for repairs and warnings; slog.Default if nil
	Program     string                   // the version of this program; it is stored so that an older program can name it in ErrNewer
	Committed   func(took time.Duration) // called after each commit, with the time it took including its sync; may be nil

	// MaxBytes, MaxWrites and MaxSteps limit one transaction: the bytes of keys and values that it
	// writes, its writes, and its cursor steps. If 0, the limits are 4 MiB, 5000 and 20000. A
	// larger transaction is logged, or fails with ErrTooMuch if FailLarge is set.
	MaxBytes, MaxWrites, MaxSteps int
	// MaxExpunged is how many UIDs of expunged messages are kept for a folder; 10000 if 0.
	MaxExpunged int
	// MaxEntryBytes is how many bytes of entries, with their messages, are kept; 1 GiB if 0.
	MaxEntryBytes int64

	FailLarge bool // always on in tests
	// RunTwice runs every function of Update twice. It undoes the writes of the first run and drops
	// its calls of After. It is always on in tests.
	RunTwice bool

	// Unsynced makes the store write without syncing. It is for a store that is being restored: the
	// restore syncs the files when they are complete.
	Unsynced bool

	// Unmigrated leaves a store of an older format as it is, so that entries of that format can be
	// applied to it. Nothing else may be done with the store until it is opened without Unmigrated.
	Unmigrated bool

	// MayMigrate, if not nil, is called with the format of an older store and the current format
	// before anything is changed. If it returns an error, Open returns that error and changes
	// nothing.
	MayMigrate func(from, to uint32) error

	// CheckPages makes Open first verify the pages of the database, as the function CheckPages
	// does, and return ErrDatabase if one is damaged. This is faster than calling the function
	// before Open: if the list of free pages is missing, Open verifies every page anyway.
	CheckPages bool

	// Room returns the number of free bytes on the disk of dir, and the size of the disk. If it is
	// nil, the operating system is asked.
	Room func(dir string) (free, total int64, err error)

	// Background, if not nil, is for a copy of a store that is checked beside a running server:
	// View rests while the process is busy, and fails when this context ends.
	Background context.Context

	lenient bool         // use FailLarge and RunTwice as given, even in tests
	disk    segment.Disk // if nil, the operating system's
	noSync  bool         // bbolt commits without syncing
}

// Open opens the store in dir, and creates it if there is none. It migrates a store of an older
// format. It returns ErrInUse while another process has the store open, and ErrNewer, without
// changing anything, if a newer version has written it.
func Open(dir string, o Options) (s *Store, err error) {
	o = o.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	b, err := engine.Open(filepath.Join(dir, DatabaseFile), engine.Options{
		Log: o.Log, Now: func() time.Time { return wholeMillis(o.Clock.Now()) },
		LockTimeout: o.LockTimeout, CheckPages: o.CheckPages, NoSync: o.noSync || o.Unsynced, Committed: o.Committed,
		Buckets: bucketNames(), Sequential: sequentialTables,
		MaxBytes: o.MaxBytes, MaxWrites: o.MaxWrites, MaxSteps: o.MaxSteps, FailLarge: o.FailLarge, RunTwice: o.RunTwice,
		MaxEntryBytes: o.MaxEntryBytes, Room: o.Room, Background: o.Background,
	})
	if err != nil {
		return nil, err
	}
	s = &Store{
		db: b, dir: dir, clock: o.Clock, log: o.Log,
		leases:  segment.NewLeases(),
		unfiled: segment.NewUnfiled(),
		compact: compactor{running: make(chan struct{}, 1), grace: o.Grace, dead: map[uint32]time.Time{}},
	}
	s.index = newIndex(b, s.leases, o.MaxExpunged)
	if err := s.openAndPrepare(o); err != nil {
		if s.seg != nil {
			err = errors.Join(err, s.seg.Close())
		}
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

// openAndPrepare opens and prepares the files for Open. They may be damaged: it turns a panic that
// damage causes into an error.
func (s *Store) openAndPrepare(o Options) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = engine.DamagedStoreError(s.dir, v)
		}
	}()
	if err := s.checkFormat(o.MayMigrate); err != nil {
		return err
	}
	if err := s.openFiles(o); err != nil {
		return err
	}
	if err := s.createAndMigrate(o); err != nil {
		return err
	}
	if err := s.db.View(s.readNewestID); err != nil {
		return err
	}
	if err := s.findUnfiled(); err != nil {
		return err
	}
	return s.Start(s.seg.Sync)
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.New(o.Now, 0)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = 5 * time.Second
	}
	if o.Room == nil {
		o.Room = diskroom.Free
	}
	if o.Unsynced && o.disk == nil {
		o.disk = segment.UnsyncedDisk{}
	}
	if o.Grace == 0 {
		o.Grace = time.Minute
	}
	o.MaxExpunged = cmp.Or(o.MaxExpunged, mailindex.DefaultMaxExpunged)
	if !o.lenient && engine.AreLimitsStrict() {
		o.FailLarge, o.RunTwice = true, true
	}
	return o
}

// readNewestID finds the newest id in all tables, so that new ids sort after it even if the clock
// was set back.
func (s *Store) readNewestID(tx *engine.Tx) error {
	for _, t := range tables {
		id, _ := engine.Bolt(tx).Bucket([]byte(t.Name())).Cursor().Last()
		if at, ok := recordid.Time(string(id)); ok {
			s.ids.StartAfter(at)
		}
	}
	return nil
}

// openFiles opens the files other than the database; the lock on the database protects them from
// other processes.
func (s *Store) openFiles(o Options) (err error) {
	s.spools, err = segment.OpenSpools(s.dir)
	if err != nil {
		return fmt.Errorf("open spool directory: %w", err)
	}
	s.seg, err = segment.Open(s.dir, segment.Options{Size: o.SegmentSize, Log: o.Log, Disk: o.disk, LastUsed: s.lastUsedSegment})
	if err != nil {
		return fmt.Errorf("open segments: %w", err)
	}
	return nil
}

// lastUsedSegment finds the newest segment that a row refers to, among those with numbers up to
// upTo. It returns the number of the segment, and the offset at which the last record with a
// reference ends. Both are 0 if there is no such segment.
func (s *Store) lastUsedSegment(upTo uint32) (segment uint32, end int64, err error) {
	err = s.db.View(func(tx *engine.Tx) error {
		refs := engine.Bolt(tx).Bucket([]byte(mailrow.BucketRef.Name()))
		if refs == nil { // the database is new
			return nil
		}
		c := refs.Cursor()
		k, _ := c.Seek(binary.BigEndian.AppendUint64(nil, (uint64(upTo)+1)<<32))
		var row []byte
		if upTo == math.MaxUint32 || k == nil {
			k, row = c.Last()
		} else {
			k, row = c.Prev()
		}
		if k == nil {
			return nil
		}
		ref, _, err := mailrow.DecodeRef(k, row)
		segment, end = ref.Segment, int64(ref.Offset)+ref.Size()
		return err
	})
	return segment, end, err
}

// keepExistingSegments makes compaction keep the segments that exist when a database is new. No row
// refers to their messages, so compaction would otherwise remove them. It stores the number of the
// newest one.
func (s *Store) keepExistingSegments(tx *Tx) error {
	segments := s.seg.List()
	if len(segments) == 0 {
		return nil
	}
	last := segments[len(segments)-1].Number
	s.log.Warn("the database is new but there are message segments; they are kept, and their messages are not listed",
		"segments", len(segments), "last", last)
	return tx.SetSequence(mailrow.BucketLive, uint64(last))
}

// CheckPages verifies the pages of the database in dir, which no process may have open. Call it
// before Open and Check: on a damaged database, Open may fail or not return.
func CheckPages(dir string) error { return engine.CheckPages(filepath.Join(dir, DatabaseFile)) }

// ReadRows calls fn with a transaction that reads the rows of the store in dir as they are, also if
// the store is of an older format. It changes nothing and reads no segments. No process may write
// to the store.
func ReadRows(dir string, fn func(tx *Tx) error) error {
	db, err := engine.OpenOffline(filepath.Join(dir, DatabaseFile), true, time.Now, slog.Default())
	if err != nil {
		return err
	}
	s := &Store{dir: dir, db: db, clock: clock.New(nil, 0), index: newIndex(db, segment.NewLeases(), mailindex.DefaultMaxExpunged)}
	return errors.Join(s.View(fn), db.Close())
}

// WrittenBy returns the version of the program that brought the store in dir to its current format,
// or "" if that is not known. No process may have the store open.
func WrittenBy(dir string) (program string, err error) {
	err = ReadRows(dir, func(tx *Tx) error {
		_, text, err := readMetaRow(engine.Bolt(tx), formatKey)
		program = string(text)
		return err
	})
	return program, err
}
