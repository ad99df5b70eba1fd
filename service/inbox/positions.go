package inbox

import (
	"cmp"
	"encoding/binary"
	"sort"
	"time"

	"github.com/mailstead/mailstead/store"
)

// positionOf returns the position of a message in lists.
func positionOf(m *store.Message) store.InboxPos {
	return store.InboxPos{Received: m.Received, UID: m.UID, Num: m.Num}
}

// positionText encodes a position for use in a cursor.
func positionText(at store.InboxPos) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(at.Received.UnixMilli()))
	binary.BigEndian.PutUint32(b[8:], at.UID)
	binary.BigEndian.PutUint32(b[12:], at.Num)
	return string(b[:])
}

// parsePosition decodes a result of positionText. It does not validate the text, because cursors
// are authenticated.
func parsePosition(text string) store.InboxPos {
	b := []byte(text)
	if len(b) != 16 {
		return store.InboxPos{}
	}
	return store.InboxPos{
		Received: time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC(),
		UID:      binary.BigEndian.Uint32(b[8:]), Num: binary.BigEndian.Uint32(b[12:]),
	}
}

// comparePositions orders positions as lists do, from the oldest message to the newest.
func comparePositions(a, b store.InboxPos) int {
	return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Num, b.Num))
}

// sortNewestFirst sorts positions from the newest message to the oldest. It uses sort.Slice because
// slices.SortFunc would add another instance of its code to the program.
func sortNewestFirst(places []store.InboxPos) {
	sort.Slice(places, func(i, j int) bool { return comparePositions(places[j], places[i]) < 0 })
}
