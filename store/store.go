package store

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
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/mailstead/mailstead/store/boltfile"
	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/segment"
)

// Options are what a store may be opened with. The zero value is right for production.
type Options struct {
	SegmentSize int64            // bytes after which a new message segment begins; 64 MiB if 0
	LockTimeout time.Duration    // how long to wait for another process to leave the store; 5 s if 0
	Grace       time.Duration    // how long a BlobRef may still be opened after its message has moved or gone; 1 min if 0
	Now         func() time.Time // the clock; time.Now if nil
	Log         *slog.Logger     // told of repairs; slog.Default if nil

	// What one transaction may be: bytes of keys and values written, writes, steps of cursors; 4
	// MiB, 5 000 and 20 000 where 0. The log is told of a larger one, or it fails with ErrTooMuch.
	MaxBytes, MaxWrites, MaxSteps int
	FailLarge                     bool // on in tests, whatever is given
	// RunTwice runs every function of Update once more, before: what that run has written is
	// undone, and what it gave to After is dropped. On in tests, whatever is given.
	RunTwice bool

	// Room says how many bytes of the disk that dir is on are free, and how many it has; nil asks
	// the operating system.
	Room func(dir string) (free, total int64, err error)

	lenient bool         // FailLarge and RunTwice are as given even in tests
	disk    segment.Disk // the operating system's if nil
	noSync  bool         // bbolt commits without syncing
}

// A Store is one open data directory. It is safe for concurrent use.
type Store struct {
	dir    string
	db     *bolt.DB
	seg    *segment.Store
	spools *segment.Spools
	now    func() time.Time
	log    *slog.Logger
	ids    idSource

	writes          chan *write
	closing         chan struct{}
	closeOnce       sync.Once
	closeErr        error
	committed       chan struct{} // closed when the committer has ended
	failure         failure
	records         records
	text            textIndex
	onCommit        atomic.Pointer[func([]Change)]
	mmapTrim        boltfile.MmapTrim // the committer's
	bounds          bounds
	report          txReport // the committer's
	room            diskroom.Room
	freelistMissing bool // the file is without the list of free pages; the committer's, then Close's
	runTwice        bool

	leases  *segment.Leases
	compact compactor
}

// Open opens the store in dir, and makes it if there is none. It returns ErrInUse while another
// process has it open.
func Open(dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	db, without, err := openBolt(filepath.Join(dir, "mailstead.db"), o.LockTimeout)
	if err != nil {
		return nil, err
	}
	db.NoSync = o.noSync
	s := &Store{
		dir: dir, db: db, now: o.Now, log: o.Log,
		writes:          make(chan *write),
		closing:         make(chan struct{}),
		committed:       make(chan struct{}),
		records:         newRecords(),
		text:            newTextIndex(),
		leases:          segment.NewLeases(),
		compact:         newCompactor(o.Grace),
		bounds:          newBounds(o),
		report:          newTxReport(),
		runTwice:        o.RunTwice,
		room:            diskroom.Room{Dir: dir, Free: o.Room, Log: o.Log},
		freelistMissing: without,
	}
	if err := s.openFiles(o); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.seg.Close(), db.Close())
	}
	go s.commitLoop()
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
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
	if o.Grace == 0 {
		o.Grace = time.Minute
	}
	o.MaxBytes, o.MaxWrites, o.MaxSteps = cmp.Or(o.MaxBytes, maxTxBytes), cmp.Or(o.MaxWrites, maxTxWrites), cmp.Or(o.MaxSteps, maxTxSteps)
	if !o.lenient && strict() {
		o.FailLarge, o.RunTwice = true, true
	}
	return o
}

// openFiles opens what is not in bbolt; the lock on the database keeps other processes away from
// it.
func (s *Store) openFiles(o Options) (err error) {
	if s.spools, err = segment.OpenSpools(s.dir); err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	s.seg, err = segment.Open(s.dir, segment.Options{Size: o.SegmentSize, Log: o.Log, Disk: o.disk, LastUsed: s.lastUsed})
	if err != nil {
		return fmt.Errorf("open segments: %w", err)
	}
	return nil
}

// openBolt opens the database, and says whether it was found without the list of its free pages.
func openBolt(path string, wait time.Duration) (db *bolt.DB, without bool, err error) {
	o := &bolt.Options{Timeout: wait, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
	if runtime.GOOS != "windows" && ^uint(0)>>63 == 1 {
		// Growing the map needs every reader to leave; a map larger than the file will be never has
		// to grow.
		o.InitialMmapSize = 16 << 30
	}
	if without, err = boltfile.LacksFreelist(path); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", path, err)
	}
	db, err = bolt.Open(path, 0o600, o)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, false, fmt.Errorf("open %s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, false, fmt.Errorf("open %s: %w", path, err)
	}
	return db, without, nil
}

// prepare makes the buckets that are not there yet.
func (s *Store) prepare() error {
	ready := false
	err := s.db.View(func(b *bolt.Tx) error {
		ready = b.Bucket([]byte(oldInbox)) == nil
		for _, name := range bucketNames() {
			ready = ready && b.Bucket([]byte(name)) != nil
		}
		ready = ready && b.Bucket([]byte(messageBuckets[bktInbox])).Sequence() == inboxForm
		return nil
	})
	if ready || err != nil {
		return err
	}
	s.freelistMissing = false // what is written here has the list
	s.db.NoFreelistSync = false
	return s.db.Update(func(b *bolt.Tx) error {
		fresh := b.Bucket([]byte(messageBuckets[bktLive])) == nil
		withoutClaims := b.Bucket([]byte(DomainsByName.name)) == nil
		withoutText := b.Bucket([]byte(messageBuckets[bktTextTodo])) == nil
		for _, name := range bucketNames() {
			if _, err := b.CreateBucketIfNotExists([]byte(name)); err != nil {
				return fmt.Errorf("make bucket %s: %w", name, err)
			}
		}
		if fresh {
			return errors.Join(b.Bucket([]byte(messageBuckets[bktInbox])).SetSequence(inboxForm), s.keepFoundSegments(b))
		}
		if withoutClaims {
			if err := s.claimDomains(b); err != nil {
				return err
			}
		}
		if err := s.sortInbox(b); err != nil {
			return err
		}
		if err := s.moveFlagged(b); err != nil {
			return err
		}
		if withoutText {
			tx := &Tx{b: b, s: s, writable: true}
			_, err := tx.markAllUnindexed(nil, 0)
			return err
		}
		return nil
	})
}

// oldInbox is a bucket that only old stores have.
const oldInbox = "inbox"

// sortInbox makes the inbox indexes of stores from before their entries were sorted by class.
func (s *Store) sortInbox(b *bolt.Tx) error {
	old := []byte(oldInbox)
	if b.Bucket(old) == nil {
		return nil
	}
	tx := &Tx{b: b, s: s, writable: true}
	for k, row := range tx.ascend(tx.messageBucket(bktMessage), nil) {
		var m Message
		if err := m.decode(k, row); err != nil {
			return fmt.Errorf("message %x: %w", k, err)
		}
		if m.Folder != InboxID {
			continue
		}
		if err := tx.putInbox(&m); err != nil {
			return err
		}
	}
	if err := b.DeleteBucket(old); err != nil {
		return fmt.Errorf("delete bucket %s: %w", old, err)
	}
	return b.DeleteBucket([]byte("inbox_mbx"))
}

// Close waits for the writes that were taken, and closes every file. It is safe to call twice, and
// waits for views.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		<-s.committed
		s.closeFreelist()
		s.closeErr = errors.Join(s.seg.Close(), s.db.Close())
	})
	return s.closeErr
}

// Dir is the data directory.
func (s *Store) Dir() string { return s.dir }

// Now is the store's clock in UTC, cut to the millisecond that records and keys can hold.
func (s *Store) Now() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// NewSpool returns a place for a message of at most limit bytes while it arrives. It must be
// closed.
func (s *Store) NewSpool(limit int64) *Spool { return s.spools.New(limit) }
