// Package recordid makes and reads the ids of records: a prefix, "_" and a lower-case ULID. It does
// not know which records there are.
package recordid

import (
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// A Source makes ULIDs, each greater than the one before, also within one millisecond.
type Source struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
	last    uint64
}

// Next returns a new ULID for the time now, in lower case. It is greater than those before it
// even if the clock was set back.
func (s *Source) Next(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	ms := max(ulid.Timestamp(now), s.last)
	id, err := ulid.New(ms, s.entropy)
	if err != nil { // the random part cannot get any greater in this millisecond
		ms++
		id = ulid.MustNew(ms, s.entropy)
	}
	s.last = ms
	return strings.ToLower(id.String())
}

// StartAfter makes all further ids sort after every id that was made up to the time newest.
func (s *Source) StartAfter(newest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, ulid.Timestamp(newest)+1)
}

// Is reports whether text has the form of an id with this prefix.
func Is(prefix, text string) bool {
	rest, ok := strings.CutPrefix(text, prefix+"_")
	if !ok || len(rest) != ulid.EncodedSize || rest != strings.ToLower(rest) {
		return false
	}
	_, err := ulid.ParseStrict(rest)
	return err == nil
}

// First returns an id that sorts before every id with this prefix that is made at the time `at`,
// cut to whole milliseconds, or later. For a time outside of the years 1970 to 10888 it sorts
// before all ids.
func First(prefix string, at time.Time) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // SetTime leaves the id zero if it fails
	return prefix + "_" + strings.ToLower(id.String())
}

// Time returns the time at which an id was made, in whole milliseconds. ok is false if it
// is no such id.
func Time(id string) (at time.Time, ok bool) {
	_, text, found := strings.Cut(id, "_")
	if !found || len(text) != ulid.EncodedSize {
		return time.Time{}, false
	}
	u, err := ulid.ParseStrict(text)
	if err != nil {
		return time.Time{}, false
	}
	return ulid.Time(u.Time()).UTC(), true
}
