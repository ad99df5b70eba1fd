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

// Marks are the flags and bits of a message, as BucketInbox and BucketInboxOf store them.
type Marks struct {
	Flags mailrow.Flags
	Bits  mailrow.Bits
}

// An InboxQuery selects messages in the INBOX folders of an account, or in given folders.
type InboxQuery struct {
	Account  uint32           // search the INBOX of all its mailboxes; ignored if Folders is not empty
	Folders  []uint32         // numbers of the folders to select instead: at most a few hundred, each once
	Before   mailrow.InboxPos // only messages before this position, that is older ones; zero: from the newest
	From, To time.Time        // received from From until before To; zero: no limit

	Seen, Attachments, Warmup, Flagged *bool // nil: no filter
}

// Inbox iterates over the messages that q selects, newest first, in the reverse order of
// ComparePos. It reads only BucketInbox and BucketInboxOf. The last position that it yields is the
// Before of the next page. The loop body may write.
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

// An InboxWalk iterates over the messages of a query. It merges the lists of all classes that the
// query selects, for the account or for each folder.
type InboxWalk struct {
	tx    *Tx
	from  []byte           // the lowest place that the query selects
	Heads []inboxHead      // one per list
	Pos   mailrow.InboxPos // of the message that Next has found
	Marks Marks            // of the same message
	end   [32]byte         // buffer for keys
}

// An inboxHead is the newest message of one list that the walk has not returned yet.
type inboxHead struct {
	num    uint32 // the list's folder; 0: a list of several INBOX folders, whose keys have the number
	prefix []byte // account or folder number, and class
	c      *bolt.Cursor
	key    []byte
	place  []byte // the place at the end of key; nil: the list has no more messages
	value  []byte
}

// WalkInbox returns a walk over the messages that q selects. Call Next for the first, the newest.
func WalkInbox(tx *Tx, q InboxQuery) *InboxWalk {
	w := &InboxWalk{tx: tx, from: binary.BigEndian.AppendUint64(nil, mailrow.MillisCeil(q.From))}
	mask, want := q.classFilter()
	w.Heads = make([]inboxHead, 0, mailrow.ClassCount*max(1, len(q.Folders)))
	add := func(bucket *engine.Bucket, owner, num uint32) {
		for c := range byte(mailrow.ClassCount) {
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
	w.seek(q.startPlace())
	return w
}

// seek moves the walk to the newest message before the place `before`, see appendBound; nil: to the
// newest message.
func (w *InboxWalk) seek(before []byte) {
	for i := range w.Heads {
		h := &w.Heads[i]
		k, v := engine.SeekBefore(h.c, h.appendBound(w.end[:0], before))
		w.setHead(h, k, v)
	}
}

// Skip moves the walk to the newest message before a place, which is at or before the walk's
// position. It returns how many heads have moved.
func (w *InboxWalk) Skip(before []byte) (moved int) {
	for i := range w.Heads {
		h := &w.Heads[i]
		if h.place == nil {
			continue
		}
		end := h.appendBound(w.end[:0], before)
		if bytes.Compare(h.key, end) < 0 {
			continue
		}
		k, v := engine.SeekBefore(h.c, end)
		w.setHead(h, k, v)
		moved++
	}
	return moved
}

// appendBound appends to buf the key that bounds the messages of the list before a place: they have
// smaller keys, all others do not. beforePlace is the place or its first bytes. If it has one byte
// more than a place, the message at the place counts as before it. If beforePlace is nil, all
// messages of the list have smaller keys.
func (h *inboxHead) appendBound(buf, beforePlace []byte) []byte {
	if beforePlace == nil {
		return engine.PrefixEnd(h.prefix)
	}
	buf = append(buf, h.prefix...)
	if h.num == 0 || len(beforePlace) < mailrow.PlaceSize {
		return append(buf, beforePlace...)
	}
	buf = append(buf, beforePlace[:mailrow.FolderPlaceSize]...)
	num := binary.BigEndian.Uint32(beforePlace[mailrow.FolderPlaceSize:])
	if h.num < num || h.num == num && len(beforePlace) > mailrow.PlaceSize {
		buf = append(buf, 0) // the message with this time and UID is before the place
	}
	return buf
}

// setHead makes the row k, v the head of its list, or ends the list if the row does not belong to
// it.
func (w *InboxWalk) setHead(h *inboxHead, k, v []byte) {
	h.place = nil
	w.tx.Step()
	if !bytes.HasPrefix(k, h.prefix) || bytes.Compare(k[len(h.prefix):], w.from) < 0 {
		return
	}
	size := mailrow.PlaceSize
	if h.num != 0 {
		size = mailrow.FolderPlaceSize
	}
	if len(v) != 2 || len(k) != len(h.prefix)+size {
		w.tx.Fail(fmt.Errorf("read inbox list entry %x: %w", k, engine.ErrDamagedRow))
		return
	}
	h.key, h.place, h.value = k, k[len(h.prefix):], v
}

// Next sets Pos and Marks to the newest message that is left. It returns false if there is none.
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
	w.setHead(newest, k, v)
	return true
}

// startPlace returns the place at which the walk begins, the lower one of q.Before and q.To: only
// messages before it are selected. It returns nil if both are zero.
func (q *InboxQuery) startPlace() []byte {
	var at, to []byte
	if q.Before != (mailrow.InboxPos{}) {
		place := q.Before.Place()
		at = place[:]
	}
	if !q.To.IsZero() {
		to = binary.BigEndian.AppendUint64(nil, mailrow.MillisCeil(q.To))
	}
	if at == nil || to != nil && bytes.Compare(to, at) < 0 {
		return to
	}
	return at
}

// Selects reports whether the query selects m, which the text index has found. The caller has
// checked the folder of m: it is one of the query's folders or, if the query names none, an INBOX
// of the account.
func (q *InboxQuery) Selects(m *mailrow.Message) bool {
	mask, want := q.classFilter()
	place := mailrow.InboxPos{Received: m.Received, UID: m.UID, Num: m.Num}.Place()
	before := q.startPlace()
	return m.Class()&mask == want && bytes.Compare(place[:8], binary.BigEndian.AppendUint64(nil, mailrow.MillisCeil(q.From))) >= 0 &&
		(before == nil || bytes.Compare(place[:], before) < 0)
}

// ReceivedAfter iterates over messages received after a time, oldest first: those in the INBOX of
// all mailboxes of an account, unless account is 0, and those in the folders with the numbers. It
// reads only the rows of BucketInbox and BucketInboxOf after that time.
func (tx *Tx) ReceivedAfter(account uint32, folders []uint32, after time.Time) iter.Seq[mailrow.InboxPos] {
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
				size = mailrow.FolderPlaceSize
			}
			if len(v) != 2 || len(k) != len(h.prefix)+size {
				tx.Fail(fmt.Errorf("read inbox list entry %x: %w", k, engine.ErrDamagedRow))
				return false
			}
			h.key, h.place = k, k[len(h.prefix):]
			return true
		}
		begin := func(bucket *engine.Bucket, owner, num uint32) {
			c := tx.Bucket(bucket).Cursor()
			for class := range byte(mailrow.ClassCount) {
				h := inboxHead{num: num, prefix: append(binary.BigEndian.AppendUint32(make([]byte, 0, 5), owner), class), c: c}
				k, v := c.Seek(append(bytes.Clone(h.prefix), first...))
				if set(&h, k, v) {
					heads = append(heads, h)
					c = tx.Bucket(bucket).Cursor() // each head has its own cursor
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

// classFilter returns the bits of the class that q filters by, and their wanted values.
func (q *InboxQuery) classFilter() (mask, want byte) {
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
