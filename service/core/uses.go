package core

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

const usesAtATime = 300 // that one transaction writes

// Uses remembers when tokens or credentials were last used, until the next flush: reading must not
// cost a write. The zero value is ready.
type Uses struct {
	mu   sync.Mutex
	seen map[string]Use
}

// A Use is when and where from something was last used.
type Use struct {
	At time.Time
	IP string
}

// Record notes a use.
func (u *Uses) Record(id string, at time.Time, ip string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil {
		u.seen = map[string]Use{}
	}
	u.seen[id] = Use{at, ip}
}

// Flush writes the uses that were noted.
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

// Expiry reads the two fields that say when a token or credential ends; zero: never.
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
