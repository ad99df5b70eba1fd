package store

import (
	"encoding/binary"
	"time"
)

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
