package mailindex

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	bolt "go.etcd.io/bbolt"
)

// Marks are what the inbox indexes know of a message.
type Marks struct {
	Flags mailrow.Flags
	Bits  mailrow.Bits
}

// An InboxQuery selects messages of INBOX folders, or of some folders.
type InboxQuery struct {
	Account  uint32           // of the INBOX of all its mailboxes; not looked at where Folders are given
	Folders  []uint32         // the numbers of these folders only, if there are any: at most some hundred, each once
	Before   mailrow.InboxPos // only what is older than this place; zero: from the newest
	From, To time.Time        // received from From until before To; zero: open

	Seen, Attachments, Warmup, Flagged *bool // nil: either
}

// Inbox walks the messages that q selects, newest first: by Received, then UID, then the number of
// the folder. It reads the index alone. The position that it yields is the Before of the next
// page.
func (tx *Tx) Inbox(q InboxQuery) iter.Seq2[mailrow.InboxPos, Marks] {
	return func(yield func(mailrow.InboxPos, Marks) bool) {
		w := WalkInbox(tx, q)
		for w.Next() {
			writes := tx.Writes()
			if !yield(w.Pos, w.Marks) {
				return
			}
			if writes != tx.Writes() {
				at := w.Pos.Place()
				w.seek(at[:])
			}
		}
	}
}

// An InboxWalk merges the classes that a query selects, of the account or of each folder.
type InboxWalk struct {
	tx    *Tx
	from  []byte // the lowest place
	Heads []inboxHead
	Pos   mailrow.InboxPos
	Marks Marks
	end   [32]byte // a key that is being made
}

// An inboxHead is the newest message of a class that the walk has not had.
type inboxHead struct {
	num    uint32 // of the folder of all its messages; 0: keys tell
	prefix []byte
	c      *bolt.Cursor
	key    []byte
	place  []byte // the end of key; nil: there are no more
	value  []byte
}

func WalkInbox(tx *Tx, q InboxQuery) *InboxWalk {
	w := &InboxWalk{tx: tx, from: binary.BigEndian.AppendUint64(nil, mailrow.KeyCeil(q.From))}
	mask, want := q.class()
	w.Heads = make([]inboxHead, 0, mailrow.Classes*max(1, len(q.Folders)))
	add := func(bucket *engine.Bucket, owner, num uint32) {
		for c := range byte(mailrow.Classes) {
			if c&mask == want {
				prefix := append(binary.BigEndian.AppendUint32(make([]byte, 0, 5), owner), c)
				w.Heads = append(w.Heads, inboxHead{num: num, prefix: prefix, c: tx.Bucket(bucket).Cursor()})
			}
		}
	}
	for _, num := range q.Folders {
		add(mailrow.BucketInboxOf, num, num)
	}
	if len(q.Folders) == 0 {
		add(mailrow.BucketInbox, q.Account, 0)
	}
	w.seek(q.before())
	return w
}

// seek has the walk go on before the place `before`, see bound; nil: at the newest message.
func (w *InboxWalk) seek(before []byte) {
	for i := range w.Heads {
		h := &w.Heads[i]
		k, v := engine.SeekBefore(h.c, h.bound(w.end[:0], before))
		w.set(h, k, v)
	}
}

// Skip is seek for a place that is not newer than the walk is. It tells how many heads have moved.
func (w *InboxWalk) Skip(before []byte) (moved int) {
	for i := range w.Heads {
		h := &w.Heads[i]
		if h.place == nil {
			continue
		}
		end := h.bound(w.end[:0], before)
		if bytes.Compare(h.key, end) < 0 {
			continue
		}
		k, v := engine.SeekBefore(h.c, end)
		w.set(h, k, v)
		moved++
	}
	return moved
}

// bound appends the key that is behind all of the head's messages that are before a place. The
// place is a whole one, its beginning, or one with a byte more, which is behind the place itself;
// nil is behind all.
func (h *inboxHead) bound(end, before []byte) []byte {
	if before == nil {
		return engine.Behind(h.prefix)
	}
	end = append(end, h.prefix...)
	if h.num == 0 || len(before) < mailrow.PlaceSize {
		return append(end, before...)
	}
	end = append(end, before[:mailrow.PlaceOfSize]...)
	num := binary.BigEndian.Uint32(before[mailrow.PlaceOfSize:])
	if h.num < num || h.num == num && len(before) > mailrow.PlaceSize {
		end = append(end, 0) // the message there is before the place
	}
	return end
}

func (w *InboxWalk) set(h *inboxHead, k, v []byte) {
	h.place = nil
	w.tx.Step()
	if !bytes.HasPrefix(k, h.prefix) || bytes.Compare(k[len(h.prefix):], w.from) < 0 {
		return
	}
	size := mailrow.PlaceSize
	if h.num != 0 {
		size = mailrow.PlaceOfSize
	}
	if len(v) != 2 || len(k) != len(h.prefix)+size {
		w.tx.Fail(fmt.Errorf("inbox entry %x: %w", k, engine.ErrDamagedRow))
		return
	}
	h.key, h.place, h.value = k, k[len(h.prefix):], v
}

// Next sets pos and marks to the newest message that is left; false if there is none.
func (w *InboxWalk) Next() bool {
	var newest *inboxHead
	for i := range w.Heads {
		h := &w.Heads[i]
		if h.place == nil {
			continue
		}
		if newest == nil || cmp.Or(bytes.Compare(h.place, newest.place), cmp.Compare(h.num, newest.num)) > 0 {
			newest = h
		}
	}
	if newest == nil {
		return false
	}
	w.Pos, w.Marks = mailrow.ParsePlace(newest.place, newest.num), Marks{mailrow.Flags(newest.value[0]), mailrow.Bits(newest.value[1])}
	k, v := engine.Prev(newest.c, newest.key)
	w.set(newest, k, v)
	return true
}

// before is the place that the walk stays before: the lower one of q.Before and q.To; nil if both
// are open.
func (q *InboxQuery) before() []byte {
	var at, to []byte
	if q.Before != (mailrow.InboxPos{}) {
		place := q.Before.Place()
		at = place[:]
	}
	if !q.To.IsZero() {
		to = binary.BigEndian.AppendUint64(nil, mailrow.KeyCeil(q.To))
	}
	if at == nil || to != nil && bytes.Compare(to, at) < 0 {
		return to
	}
	return at
}

// Selects tells whether the query finds the message, which the text index gave, and which is in one
// of its folders or, without them, in an INBOX of its account.
func (q *InboxQuery) Selects(m *mailrow.Message) bool {
	mask, want := q.class()
	place := mailrow.InboxPos{Received: m.Received, UID: m.UID, Num: m.Num}.Place()
	before := q.before()
	return m.Class()&mask == want && bytes.Compare(place[:8], binary.BigEndian.AppendUint64(nil, mailrow.KeyCeil(q.From))) >= 0 &&
		(before == nil || bytes.Compare(place[:], before) < 0)
}

// Received walks messages that were received after a time, the oldest first: those of the INBOX of
// all mailboxes of an account, unless it is 0, and those of folders by their numbers. It reads the
// indexes alone, and of each only what is behind that time.
func (tx *Tx) Received(account uint32, folders []uint32, after time.Time) iter.Seq[mailrow.InboxPos] {
	return func(yield func(mailrow.InboxPos) bool) {
		first := binary.BigEndian.AppendUint64(nil, uint64(max(after.UnixMilli()+1, 0)))
		var heads []inboxHead
		set := func(h *inboxHead, k, v []byte) bool {
			tx.Step()
			if !bytes.HasPrefix(k, h.prefix) {
				return false
			}
			size := mailrow.PlaceSize
			if h.num != 0 {
				size = mailrow.PlaceOfSize
			}
			if len(v) != 2 || len(k) != len(h.prefix)+size {
				tx.Fail(fmt.Errorf("inbox entry %x: %w", k, engine.ErrDamagedRow))
				return false
			}
			h.key, h.place = k, k[len(h.prefix):]
			return true
		}
		begin := func(bucket *engine.Bucket, owner, num uint32) {
			c := tx.Bucket(bucket).Cursor()
			for class := range byte(mailrow.Classes) {
				h := inboxHead{num: num, prefix: append(binary.BigEndian.AppendUint32(make([]byte, 0, 5), owner), class), c: c}
				k, v := c.Seek(append(bytes.Clone(h.prefix), first...))
				if set(&h, k, v) {
					heads = append(heads, h)
					c = tx.Bucket(bucket).Cursor() // each head has its own
				}
			}
		}
		if account != 0 {
			begin(mailrow.BucketInbox, account, 0)
		}
		for _, num := range folders {
			begin(mailrow.BucketInboxOf, num, num)
		}
		for len(heads) > 0 {
			oldest := 0
			for i := range heads {
				if bytes.Compare(heads[i].place, heads[oldest].place) < 0 {
					oldest = i
				}
			}
			h := &heads[oldest]
			if !yield(mailrow.ParsePlace(h.place, h.num)) {
				return
			}
			if k, v := h.c.Next(); !set(h, k, v) {
				heads = append(heads[:oldest], heads[oldest+1:]...)
			}
		}
	}
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
	add(q.Seen, mailrow.ClassSeen)
	add(q.Attachments, mailrow.ClassAttachments)
	add(q.Warmup, mailrow.ClassWarmup)
	add(q.Flagged, mailrow.ClassFlagged)
	return mask, want
}
