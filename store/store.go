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

// db is an alias under which engine.DB is embedded, so that the field is unexported.
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
	appended  atomic.Bool // a message was appended to the segments since Open
	index     *mailindex.Index

	leases  *segment.Leases
	unfiled *segment.Unfiled
	left    []Accepted // messages that were not filed when the store was opened
	compact compactor
}

// compactor is the state of compaction.
type compactor struct {
	running chan struct{} // held by the one compaction or check that runs
	grace   time.Duration
	dead    map[uint32]time.Time // segments without live bytes, and when that was first seen

	removing  sync.Mutex // held while a segment is removed, and while a snapshot begins
	snapshots int        // open snapshots: while there are any, no segment is removed; guarded by removing
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

// Close waits for accepted writes and for views, and closes every file. It is safe to call twice.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		if err := s.recordFiledEnd(); err != nil {
			s.log.Warn("the end of the filed messages was not recorded", "error", err)
		}
		s.db.Stop()
		s.closeErr = errors.Join(s.seg.Close(), s.db.Close()) // the lock on the database goes last
	})
	return s.closeErr
}

// Dir returns the data directory.
func (s *Store) Dir() string { return s.dir }

// Now returns the time of the store's clock in UTC, cut to the milliseconds that records and keys
// can hold.
func (s *Store) Now() time.Time { return wholeMillis(s.clock.Now()) }

func wholeMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Clock returns the store's clock, for callers that wait for a time.
func (s *Store) Clock() *clock.Clock { return s.clock }

// NewID returns an id: prefix, "_", a lower-case ULID of 26 characters. The ids of one store rise.
func (s *Store) NewID(prefix string) string { return prefix + "_" + s.ids.next(s.clock.Now()) }
