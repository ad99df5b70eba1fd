package core

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

const usesAtATime = 300 // uses written by one transaction

// Uses remembers in memory when tokens or credentials were last used, until the next Flush, so that
// a read request causes no write. The zero value is ready to use.
type Uses struct {
	mu   sync.Mutex
	seen map[string]Use
}

// A Use is when and from which address something was last used.
type Use struct {
	At time.Time
	IP string
}

// Record remembers a use. It replaces an earlier use with the same id.
func (u *Uses) Record(id string, at time.Time, ip string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = map[string]Use{}
	}
	u.seen[id] = Use{at, ip}
}

// Flush passes each remembered use to write, usesAtATime per transaction, and forgets them all.
func (u *Uses) Flush(st *store.Store, write func(tx *store.Tx, id string, use Use) error) error {
	u.mu.Lock()
	seen := u.seen
	u.seen = nil
	u.mu.Unlock()
	for some := range slices.Chunk(slices.Collect(maps.Keys(seen)), usesAtATime) {
		err := st.Update(func(tx *store.Tx) error {
			for _, id := range some {
				if err := write(tx, id, seen[id]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Expiry returns when a token or credential expires, by the two fields of a request that can set
// it; zero means never.
func (s *Core) Expiry(at Opt[time.Time], days Opt[int]) (time.Time, error) {
	byTime, byDays := at.Set && !at.Null, days.Set && !days.Null
	switch {
	case byTime && byDays:
		return time.Time{}, Invalid("expires_at", "not_allowed", "give expires_at or expires_in_days, not both")
	case byTime && !at.Value.After(s.Now()):
		return time.Time{}, Invalid("expires_at", "out_of_range", "must be in the future")
	case byTime:
		return at.Value.UTC().Truncate(time.Millisecond), nil
	case byDays:
		return s.Now().AddDate(0, 0, days.Value), nil
	}
	return time.Time{}, nil
}
