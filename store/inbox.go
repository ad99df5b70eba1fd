package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// An InboxPos is a place in the order of inboxes: Received, then UID, then Mailbox.
type InboxPos struct {
	Received time.Time
	UID      uint32
	Mailbox  uint32
}

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

	Seen, Attachments, Warmup *bool // nil: either
}

func inboxKey(m *Message) (key [20]byte) {
	binary.BigEndian.PutUint32(key[0:], m.Account)
	binary.BigEndian.PutUint64(key[4:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[12:], m.UID)
	binary.BigEndian.PutUint32(key[16:], m.Mailbox)
	return key
}

func inboxOfKey(m *Message) (key [16]byte) {
	binary.BigEndian.PutUint32(key[0:], m.Mailbox)
	binary.BigEndian.PutUint64(key[4:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[12:], m.UID)
	return key
}

// Inbox walks the messages of INBOX folders that q selects, newest first: by Received, then UID, then Mailbox. It reads
// the index alone. The position that it yields is the Before of the next page.
func (tx *Tx) Inbox(q InboxQuery) iter.Seq2[InboxPos, Marks] {
	bucket, owner := bktInbox, q.Account
	if q.Mailbox != 0 {
		bucket, owner = bktInboxOf, q.Mailbox
	}
	return func(yield func(InboxPos, Marks) bool) {
		prefix := binary.BigEndian.AppendUint32(nil, owner)
		from := binary.BigEndian.AppendUint64(bytes.Clone(prefix), keyCeil(q.From))
		mask, want := q.marks()
		for k, v := range tx.descend(tx.messageBucket(bucket), prefix, q.before(prefix)) {
			if bytes.Compare(k, from) < 0 {
				return
			}
			if len(v) != 2 || len(k) < 16 {
				tx.fail(fmt.Errorf("inbox entry %x: %w", k, errDamagedRow))
				return
			}
			if binary.BigEndian.Uint16(v)&mask != want {
				continue
			}
			if !yield(inboxPos(k, q.Mailbox), Marks{Flags(v[0]), Bits(v[1])}) {
				return
			}
		}
	}
}

func inboxPos(k []byte, mailbox uint32) InboxPos {
	if mailbox == 0 && len(k) == 20 {
		mailbox = binary.BigEndian.Uint32(k[16:])
	}
	return InboxPos{msTime(binary.BigEndian.Uint64(k[4:])), binary.BigEndian.Uint32(k[12:]), mailbox}
}

// before is the key that the walk stays before: the lower one of q.Before and q.To; nil if both are open.
func (q *InboxQuery) before(prefix []byte) []byte {
	var at, to []byte
	if q.Before != (InboxPos{}) {
		at = binary.BigEndian.AppendUint64(bytes.Clone(prefix), keyCeil(q.Before.Received))
		at = binary.BigEndian.AppendUint32(at, q.Before.UID)
		if q.Mailbox == 0 {
			at = binary.BigEndian.AppendUint32(at, q.Before.Mailbox)
		}
	}
	if !q.To.IsZero() {
		to = binary.BigEndian.AppendUint64(bytes.Clone(prefix), keyCeil(q.To))
	}
	if at == nil || to != nil && bytes.Compare(to, at) < 0 {
		return to
	}
	return at
}

// keyCeil is the first millisecond that is not before t, as keys have it; 0 for the zero time.
func keyCeil(t time.Time) uint64 {
	return uint64(max(t.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 0))
}

// marks gives which bits of an index value matter, and what they must be.
func (q *InboxQuery) marks() (mask, want uint16) {
	add := func(choice *bool, bit uint16) {
		if choice == nil {
			return
		}
		mask |= bit
		if *choice {
			want |= bit
		}
	}
	add(q.Seen, uint16(FlagSeen)<<8)
	add(q.Attachments, uint16(BitAttachments))
	add(q.Warmup, uint16(BitWarmup))
	return mask, want
}
