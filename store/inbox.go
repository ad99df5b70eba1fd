package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Marks are what the inbox indexes know of a message.
type Marks struct {
	Flags Flags
	Bits  Bits
}

// An InboxQuery selects messages of INBOX folders.
type InboxQuery struct {
	Account  uint32    // of all its mailboxes; not looked at where Mailbox is given
	Mailbox  uint32    // of this one only, if not 0
	Before   InboxPos  // only what is older than this place; zero: from the newest
	From, To time.Time // received from From until before To; zero: open

	Seen, Attachments, Warmup, Flagged *bool // nil: either
}

// Inbox walks the messages of INBOX folders that q selects, newest first: by Received, then UID,
// then Mailbox. It reads the index alone. The position that it yields is the Before of the next
// page.
func (tx *Tx) Inbox(q InboxQuery) iter.Seq2[InboxPos, Marks] {
	return func(yield func(InboxPos, Marks) bool) {
		w := tx.walkInbox(q)
		for w.next() {
			writes := tx.writes
			if !yield(w.pos, w.marks) {
				return
			}
			if writes != tx.writes {
				at := w.pos.place()
				w.seek(at[:w.size])
			}
		}
	}
}

// An inboxWalk merges the classes that a query selects.
type inboxWalk struct {
	tx      *Tx
	mailbox uint32 // of all that it finds; 0: keys tell
	size    int    // of places
	from    []byte // the lowest place
	heads   []inboxHead
	pos     InboxPos
	marks   Marks
}

// An inboxHead is the newest message of a class that the walk has not had.
type inboxHead struct {
	prefix []byte
	c      *bolt.Cursor
	key    []byte
	place  []byte // the end of key; nil: there are no more
	value  []byte
}

func (tx *Tx) walkInbox(q InboxQuery) *inboxWalk {
	w := &inboxWalk{tx: tx, mailbox: q.Mailbox, size: placeSize, from: binary.BigEndian.AppendUint64(nil, keyCeil(q.From))}
	bucket, owner := bktInbox, q.Account
	if q.Mailbox != 0 {
		bucket, owner, w.size = bktInboxOf, q.Mailbox, placeOfSize
	}
	prefix := binary.BigEndian.AppendUint32(nil, owner)
	mask, want := q.class()
	w.heads = make([]inboxHead, 0, classes)
	for c := range byte(classes) {
		if c&mask == want {
			w.heads = append(w.heads, inboxHead{prefix: append(bytes.Clone(prefix), c), c: tx.messageBucket(bucket).Cursor()})
		}
	}
	w.seek(q.before(w.size))
	return w
}

// seek has the walk go on before the place `before`; nil: at the newest message.
func (w *inboxWalk) seek(before []byte) {
	for i := range w.heads {
		h := &w.heads[i]
		end := after(h.prefix)
		if before != nil {
			end = append(bytes.Clone(h.prefix), before...)
		}
		k, v := seekBefore(h.c, end)
		w.set(h, k, v)
	}
}

// skip is seek for a place that is not newer than the walk is.
func (w *inboxWalk) skip(before []byte) {
	for i := range w.heads {
		h := &w.heads[i]
		if h.place == nil || bytes.Compare(h.place, before) < 0 {
			continue
		}
		k, v := seekBefore(h.c, append(bytes.Clone(h.prefix), before...))
		w.set(h, k, v)
	}
}

func (w *inboxWalk) set(h *inboxHead, k, v []byte) {
	h.place = nil
	w.tx.steps++
	if !bytes.HasPrefix(k, h.prefix) || bytes.Compare(k[len(h.prefix):], w.from) < 0 {
		return
	}
	if len(v) != 2 || len(k) != len(h.prefix)+w.size {
		w.tx.fail(fmt.Errorf("inbox entry %x: %w", k, ErrDamagedRow))
		return
	}
	h.key, h.place, h.value = k, k[len(h.prefix):], v
}

// next sets pos and marks to the newest message that is left; false if there is none.
func (w *inboxWalk) next() bool {
	var newest *inboxHead
	for i := range w.heads {
		if h := &w.heads[i]; h.place != nil && (newest == nil || bytes.Compare(h.place, newest.place) > 0) {
			newest = h
		}
	}
	if newest == nil {
		return false
	}
	w.pos, w.marks = parsePlace(newest.place, w.mailbox), Marks{Flags(newest.value[0]), Bits(newest.value[1])}
	k, v := prev(newest.c, newest.key)
	w.set(newest, k, v)
	return true
}

// before is the place that the walk stays before: the lower one of q.Before and q.To; nil if both
// are open.
func (q *InboxQuery) before(size int) []byte {
	var at, to []byte
	if q.Before != (InboxPos{}) {
		place := q.Before.place()
		at = place[:size]
	}
	if !q.To.IsZero() {
		to = binary.BigEndian.AppendUint64(nil, keyCeil(q.To))
	}
	if at == nil || to != nil && bytes.Compare(to, at) < 0 {
		return to
	}
	return at
}

// Selects tells whether the query finds the message, which is in INBOX of its mailbox or, without
// one, of its account.
func (q *InboxQuery) Selects(m *Message) bool {
	mask, want := q.class()
	place := InboxPos{m.Received, m.UID, m.Mailbox}.place()
	before := q.before(placeSize)
	return m.class()&mask == want && bytes.Compare(place[:8], binary.BigEndian.AppendUint64(nil, keyCeil(q.From))) >= 0 &&
		(before == nil || bytes.Compare(place[:], before) < 0)
}

// class gives which marks matter, and what they must be.
func (q *InboxQuery) class() (mask, want byte) {
	add := func(choice *bool, bit byte) {
		if choice == nil {
			return
		}
		mask |= bit
		if *choice {
			want |= bit
		}
	}
	add(q.Seen, classSeen)
	add(q.Attachments, classAttachments)
	add(q.Warmup, classWarmup)
	add(q.Flagged, classFlagged)
	return mask, want
}
