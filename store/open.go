package store

import (
	"cmp"
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
	"github.com/mailstead/mailstead/store/segment"
)

// Options are what a store may be opened with. The zero value is right for production.
type Options struct {
	SegmentSize int64                    // bytes after which a new message segment begins; 64 MiB if 0
	LockTimeout time.Duration            // how long to wait for another process to leave the store; 5 s if 0
	Grace       time.Duration            // how long a BlobRef may still be opened after its message has moved or gone; 1 min if 0
	Clock       *clock.Clock             // whose time records have; one that shows Now if nil
	Now         func() time.Time         // time.Now if nil
	Log         *slog.Logger             // told of repairs; slog.Default if nil
	Program     string                   // the version of the program, for a later one that cannot read the store
	Committed   func(took time.Duration) // told of each commit, with its sync; nil: nobody is

	// What one transaction may be: bytes of keys and values written, writes, steps of cursors; 4
	// MiB, 5 000 and 20 000 where 0. The log is told of a larger one, or it fails with ErrTooMuch.
	MaxBytes, MaxWrites, MaxSteps int
	// Expunged is how many UIDs of removed messages are kept of a folder; 10 000 where 0.
	Expunged int
	// EntriesMost is how many bytes of entries are kept, with their messages; 1 GiB where 0.
	EntriesMost int64

	FailLarge bool // on in tests, whatever is given
	// RunTwice runs every function of Update once more, before: what that run has written is
	// undone, and what it gave to After is dropped. On in tests, whatever is given.
	RunTwice bool

	// Unsynced leaves everything to the operating system's cache. It is for a store that is being
	// restored: whoever does that syncs the files when it is whole.
	Unsynced bool

	// Unmigrated leaves a store of an older format as it is, so that the entries of that format
	// can be applied to it. Nothing else may be done with it before it is opened without.
	Unmigrated bool

	// MayMigrate is asked about a store of an older format, before anything of it is changed: its
	// format, and today's. Open returns its error. nil: every older store is migrated.
	MayMigrate func(from, to uint32) error

	// CheckPages has Open verify the pages of the database before anything reads them, as the
	// function CheckPages does, and return ErrDatabase where one is damaged. It is quicker than
	// both: where the list of free pages is missing, Open verifies every page anyway.
	CheckPages bool

	// Room says how many bytes of the disk that dir is on are free, and how many it has; nil asks
	// the operating system.
	Room func(dir string) (free, total int64, err error)

	lenient bool         // FailLarge and RunTwice are as given even in tests
	disk    segment.Disk // the operating system's if nil
	noSync  bool         // bbolt commits without syncing
}

// Open opens the store in dir, and makes it if there is none. One of an older format becomes one of
// today's. It returns ErrInUse while another process has it open, and ErrNewer, having changed
// nothing, where a newer version has written it.
func Open(dir string, o Options) (s *Store, err error) {
	o = o.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	b, err := engine.Open(filepath.Join(dir, DatabaseFile), engine.Options{
		Log: o.Log, Now: func() time.Time { return wholeMillis(o.Clock.Now()) },
		LockTimeout: o.LockTimeout, CheckPages: o.CheckPages, NoSync: o.noSync || o.Unsynced, Committed: o.Committed,
		Buckets: bucketNames(), Sequential: risingTables,
		MaxBytes: o.MaxBytes, MaxWrites: o.MaxWrites, MaxSteps: o.MaxSteps, FailLarge: o.FailLarge, RunTwice: o.RunTwice,
		EntriesMost: o.EntriesMost, Room: o.Room,
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
	s.index = newIndex(b, s.leases, o.Expunged)
	if err := s.read(o); err != nil {
		if s.seg != nil {
			err = errors.Join(err, s.seg.Close())
		}
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

// read is what Open needs of the files, which may be damaged.
func (s *Store) read(o Options) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = engine.Damaged(s.dir, v)
		}
	}()
	if err := s.checkFormat(o.MayMigrate); err != nil {
		return err
	}
	if err := s.openFiles(o); err != nil {
		return err
	}
	if err := s.prepare(o); err != nil {
		return err
	}
	if err := s.db.View(s.openIDs); err != nil {
		return err
	}
	if err := s.openAccepted(); err != nil {
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
	o.Expunged = cmp.Or(o.Expunged, mailindex.ExpungedMost)
	if !o.lenient && engine.Strict() {
		o.FailLarge, o.RunTwice = true, true
	}
	return o
}

// openIDs finds the newest id that a table has, so that ids rise where the clock was set back.
func (s *Store) openIDs(tx *engine.Tx) error {
	for _, t := range tables {
		id, _ := engine.Bolt(tx).Bucket([]byte(t.Name())).Cursor().Last()
		if at, ok := IDTime(string(id)); ok {
			s.ids.begin(at)
		}
	}
	return nil
}

// openFiles opens what is not in bbolt; the lock on the database keeps other processes away from
// it.
func (s *Store) openFiles(o Options) (err error) {
	s.spools, err = segment.OpenSpools(s.dir)
	if err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	s.seg, err = segment.Open(s.dir, segment.Options{Size: o.SegmentSize, Log: o.Log, Disk: o.disk, LastUsed: s.lastUsed})
	if err != nil {
		return fmt.Errorf("open segments: %w", err)
	}
	return nil
}

// lastUsed gives the newest segment up to `most` that anything refers to, and where the last record
// of it that is referred to ends; 0 if there is none.
func (s *Store) lastUsed(most uint32) (segment uint32, end int64, err error) {
	err = s.db.View(func(tx *engine.Tx) error {
		refs := engine.Bolt(tx).Bucket([]byte(mailrow.BucketRef.Name()))
		if refs == nil { // the database is new
			return nil
		}
		c := refs.Cursor()
		k, _ := c.Seek(binary.BigEndian.AppendUint64(nil, (uint64(most)+1)<<32))
		var row []byte
		if most == math.MaxUint32 || k == nil {
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

// keepFoundSegments notes, when a database begins beside segments that are there already, up to
// which number they go. Their messages are in no row; compaction would take them for dead.
func (s *Store) keepFoundSegments(tx *Tx) error {
	segments := s.seg.List()
	if len(segments) == 0 {
		return nil
	}
	last := segments[len(segments)-1].Number
	s.log.Warn("the database is new but there are message segments; they are kept, and their messages are not listed",
		"segments", len(segments), "last", last)
	return tx.SetSequence(mailrow.BucketLive, uint64(last))
}

// CheckPages verifies the pages of the database in dir, which no process may have open. Where it
// finds damage, Open may fail or not return, so it goes before Open and Check.
func CheckPages(dir string) error { return engine.CheckPages(filepath.Join(dir, DatabaseFile)) }
