package store

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// An idSource makes ULIDs, each greater than the one before, also within one millisecond.
type idSource struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
	last    uint64
}

// nextULID returns a new ULID for the time now, in lower case. It is greater than those before it
// even if the clock was set back.
func (s *idSource) nextULID(now time.Time) string {
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

// startAfter makes all further ids sort after every id that was made up to the time newest.
func (s *idSource) startAfter(newest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, ulid.Timestamp(newest)+1)
}

// IsID reports whether text has the form of an id with this prefix.
func IsID(prefix, text string) bool {
	rest, ok := strings.CutPrefix(text, prefix+"_")
	if !ok || len(rest) != ulid.EncodedSize || rest != strings.ToLower(rest) {
		return false
	}
	_, err := ulid.ParseStrict(rest)
	return err == nil
}

// FirstID returns an id that sorts before every id with this prefix that is made at the time `at`,
// cut to whole milliseconds, or later. For a time outside of the years 1970 to 10888 it sorts
// before all ids.
func FirstID(prefix string, at time.Time) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // SetTime leaves the id zero if it fails
	return prefix + "_" + strings.ToLower(id.String())
}

// IDTime returns the time at which an id was made, in whole milliseconds. ok is false if NewID
// cannot have made the id.
func IDTime(id string) (at time.Time, ok bool) {
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

// TimeKey returns a time in milliseconds as eight bytes that sort in the order of time.
func TimeKey(t time.Time) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(max(t.UnixMilli(), 0))))
}

// KeyTime returns the time in a key that begins with a TimeKey, or the zero time if the key has
// fewer than eight bytes.
func KeyTime(key string) time.Time {
	if len(key) < 8 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(key)))).UTC()
}

// NumKey returns the key of a short number in AccountByNum and MailboxByNum.
func NumKey(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
