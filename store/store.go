package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/segment"
)

// db is embedded under a name that is the store's own.
type db = engine.DB

// A Store is one open data directory. It is safe for concurrent use.
type Store struct {
	*db
	dir    string
	seg    *segment.Store
	spools *segment.Spools
	clock  *clock.Clock
	log    *slog.Logger
	ids    idSource

	closeOnce sync.Once
	closeErr  error
	appended  atomic.Bool // something was put into the segments since Open
	index     *mailindex.Index

	leases  *segment.Leases
	unfiled *segment.Unfiled
	left    []Accepted // that were not filed when the store was opened
	compact compactor
}

// compactor is what compaction remembers.
type compactor struct {
	running chan struct{} // held by the one compaction or check that runs
	grace   time.Duration
	dead    map[uint32]time.Time // segments without live bytes, and when that was seen

	removing  sync.Mutex // held while a segment is removed, and while a snapshot begins
	snapshots int        // open ones: no segment is removed; under removing
}

func (c *compactor) lock(ctx context.Context) error {
	select {
	case c.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *compactor) unlock() { <-c.running }

// Close waits for the writes that were taken, and closes every file. It is safe to call twice, and
// waits for views.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		if err := s.noteEnd(); err != nil {
			s.log.Warn("the end of the messages was not noted", "error", err)
		}
		s.db.Stop()
		s.closeErr = errors.Join(s.seg.Close(), s.db.Close()) // the lock on the database goes last
	})
	return s.closeErr
}

// Dir is the data directory.
func (s *Store) Dir() string { return s.dir }

// Now is the store's clock in UTC, cut to the millisecond that records and keys can hold.
func (s *Store) Now() time.Time { return wholeMillis(s.clock.Now()) }

func wholeMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Clock is the store's clock, for those who wait for a date.
func (s *Store) Clock() *clock.Clock { return s.clock }

// NewID makes an id: prefix, "_", a lower-case ULID of 26 characters. Ids of one store rise.
func (s *Store) NewID(prefix string) string { return prefix + "_" + s.ids.next(s.clock.Now()) }
