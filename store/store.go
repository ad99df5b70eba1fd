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
	"github.com/mailstead/mailstead/store/recordid"
	"github.com/mailstead/mailstead/store/segment"
)

// db is an alias of engine.DB, so that the field in which Store embeds it is unexported.
type db = engine.DB

// A Store is one open data directory. It is safe for concurrent use.
type Store struct {
	*db
	dir    string
	seg    *segment.Store
	spools *segment.Spools
	clock  *clock.Clock
	log    *slog.Logger
	ids    recordid.Source

	closeOnce sync.Once
	closeErr  error
	appended  atomic.Bool // a message was appended to the segments since Open
	index     *mailindex.Index

	leases        *segment.Leases
	unfiled       *segment.Unfiled
	unfiledAtOpen []AcceptedMessage // messages that were accepted but not filed when the store was opened
	compact       compactor
}

// A compactor is the state of compaction.
type compactor struct {
	running chan struct{} // a lock with a context: full while a compaction or a check runs
	grace   time.Duration
	dead    map[uint32]time.Time // when each segment without live bytes was first seen as such

	removing  sync.Mutex // locked while a segment is removed and while a snapshot begins
	snapshots int        // number of open snapshots; if there are any, no segment is removed; guarded by removing
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

// Close waits for the running writes and reads and closes every file. It is safe to call twice.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		if err := s.recordFiledEnd(); err != nil {
			s.log.Warn("the end of the filed messages was not recorded", "error", err)
		}
		s.db.Stop()
		s.closeErr = errors.Join(s.seg.Close(), s.db.Close()) // closing the database releases the lock, so it is last
	})
	return s.closeErr
}

// Dir returns the data directory.
func (s *Store) Dir() string { return s.dir }

// Now returns the time of the store's clock in UTC, cut to whole milliseconds, as records and keys
// can hold it.
func (s *Store) Now() time.Time { return wholeMillis(s.clock.Now()) }

func wholeMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Clock returns the store's clock, for callers that wait for a time.
func (s *Store) Clock() *clock.Clock { return s.clock }

// NewID returns an id: prefix, "_" and a lower-case ULID of 26 characters. Each id of a store sorts
// after those before it.
func (s *Store) NewID(prefix string) string { return prefix + "_" + s.ids.Next(s.clock.Now()) }
