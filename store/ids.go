package store

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// idSource makes ids that rise even within one millisecond.
type idSource struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
	last    uint64
}

// NewID makes an id: prefix, "_", a lower-case ULID of 26 characters. Ids of one store rise.
func (s *Store) NewID(prefix string) string {
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	if s.ids.entropy == nil {
		s.ids.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	// A clock that steps back must not make ids fall.
	ms := max(ulid.Timestamp(s.now()), s.ids.last)
	id, err := ulid.New(ms, s.ids.entropy)
	if err != nil { // the entropy of this millisecond is used up
		ms++
		id = ulid.MustNew(ms, s.ids.entropy)
	}
	s.ids.last = ms
	return prefix + "_" + strings.ToLower(id.String())
}

// IsID tells whether text has the form of an id of the prefix.
func IsID(prefix, text string) bool {
	rest, ok := strings.CutPrefix(text, prefix+"_")
	if !ok || len(rest) != ulid.EncodedSize || rest != strings.ToLower(rest) {
		return false
	}
	_, err := ulid.ParseStrict(rest)
	return err == nil
}

// IDTime is when an id was made, in whole milliseconds; ok is false for what NewID cannot have
// made.
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

// TimeKey is a time in milliseconds as eight bytes that sort as the times do.
func TimeKey(t time.Time) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(max(t.UnixMilli(), 0))))
}

// KeyTime undoes TimeKey. It takes the first eight bytes.
func KeyTime(key string) time.Time {
	if len(key) < 8 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(key)))).UTC()
}
