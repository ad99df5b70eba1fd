package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/postings"
)

// The text index finds messages by their words. It consists of runs, each of
// which has the words of some messages of one account and does not change any more: a run numbers
// its messages, newest first, and keeps for each word the numbers of those that have it, which
// takes one byte or less for most. Few messages make a small run; small ones are merged into larger
// ones, so that there are few. A search looks at the runs by time, newest first, and at each as a
// whole.
//
// What the words of a message are, the caller says, some time after the message came: text_todo
// knows per mailbox from which UID on none have been given, and which messages with lower UIDs came
// later (those of external mailboxes do), and changes in the message's own transaction. So nothing
// is ever missed, and a store that has no index yet is one in which everything is to do.
//
// A deleted message is found no more, since a search looks whether it is there. Its words stay
// until its run is made anew, because many of its messages are gone, or because one has been for a
// day (text_gone).

// ErrTextDamaged is returned for rows of the text index that cannot have been written; ResetText
// helps.
var ErrTextDamaged = postings.ErrDamaged

// A TextTodo says which messages of a folder are not in the text index: those from UID on, or, if
// it is Single, the one. Validity is the UIDVALIDITY of the UIDs, where TextWork gave
// it: what was read under another one, which an external mailbox may get meanwhile, is not done.
type TextTodo struct {
	Account, Num, UID uint32 // Num is the folder's
	Single            bool
	Validity          uint32
}

func (t TextTodo) key() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 12), t.Account)
	b = binary.BigEndian.AppendUint32(b, t.Num)
	if t.Single {
		b = binary.BigEndian.AppendUint32(b, t.UID)
	}
	return b
}

func (t TextTodo) row() []byte {
	if t.Single {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, t.UID)
}

// markUnindexed notes that the message, of the folder with a number, has to be indexed; rises says
// that its UID is higher than any before it.
func (tx *Tx) markUnindexed(m *Message, num uint32, rises bool) error {
	t := TextTodo{Account: m.Account, Num: num, UID: m.UID, Single: !rises}
	key := t.key()
	if rises {
		if row := tx.GetRow(mailrow.BucketTextTodo, key); len(row) == 4 && binary.BigEndian.Uint32(row) <= m.UID {
			return nil
		}
	}
	tx.After(func() {
		select {
		case tx.s.textWake <- struct{}{}:
		default:
		}
	})
	return tx.PutRow(mailrow.BucketTextTodo, key, t.row())
}

// isUnindexed tells whether a message is not in the text index.
func (tx *Tx) isUnindexed(account, num, uid uint32) bool {
	row := tx.GetRow(mailrow.BucketTextTodo, TextTodo{Account: account, Num: num}.key())
	return len(row) == 4 && uid >= binary.BigEndian.Uint32(row) ||
		tx.HasRow(mailrow.BucketTextTodo, TextTodo{Account: account, Num: num, UID: uid, Single: true}.key())
}

// dropTextTodos deletes up to limit rows of a folder, of which that of an external mailbox may have
// as many as messages.
func (tx *Tx) dropTextTodos(account, num uint32, limit int) (done bool, err error) {
	prefix := TextTodo{Account: account, Num: num}.key()
	for k := range tx.Ascend(mailrow.BucketTextTodo, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			return true, nil
		}
		if limit--; limit < 0 {
			return false, nil
		}
		if err := tx.DeleteRow(mailrow.BucketTextTodo, bytes.Clone(k)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// markTextGone notes that the message is deleted, for its run.
func (tx *Tx) markTextGone(m *Message, num uint32) error {
	place := InboxPos{m.Received, m.UID, num}.Place()
	key := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+mailrow.PlaceSize), m.Account), place[:]...)
	row := binary.BigEndian.AppendUint64([]byte{engine.RowVersion}, uint64(tx.Now().Unix()))
	return tx.PutRow(mailrow.BucketTextGone, key, mailrow.BucketTextGone.Seal(key, row))
}

// TextWake gives a value some time after mail has come that is to be indexed.
func (s *Store) TextWake() <-chan struct{} { return s.textWake }

// TextTodos walks what is to be indexed, of one account or, if that is 0, of all.
func (tx *Tx) TextTodos(account uint32) iter.Seq[TextTodo] {
	return func(yield func(TextTodo) bool) {
		var prefix []byte
		if account != 0 {
			prefix = binary.BigEndian.AppendUint32(nil, account)
		}
		for k, v := range tx.Ascend(mailrow.BucketTextTodo, prefix) {
			if !bytes.HasPrefix(k, prefix) {
				return
			}
			t := TextTodo{Account: binary.BigEndian.Uint32(k), Num: binary.BigEndian.Uint32(k[4:]), Single: len(k) == 12}
			switch {
			case len(k) == 12 && len(v) == 0:
				t.UID = binary.BigEndian.Uint32(k[8:])
			case len(k) == 8 && len(v) == 4:
				t.UID = binary.BigEndian.Uint32(v)
			default:
				tx.Fail(fmt.Errorf("what is to be indexed %x: %w", k, ErrDamagedRow))
				return
			}
			if !yield(t) {
				return
			}
		}
	}
}

// TextWaiting walks the messages that are not in the text index, of the INBOX of all mailboxes of
// an account or, if there are any, of the folders with these numbers.
func (tx *Tx) TextWaiting(account uint32, folders []uint32) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		var from TextTodo
		for t := range tx.TextTodos(account) {
			if len(folders) == 0 && t.Num >= mailrow.FirstFolderNum || len(folders) > 0 && !slices.Contains(folders, t.Num) {
				continue
			}
			if !t.Single {
				from = t
			} else if from.Num == t.Num && t.UID >= from.UID {
				continue // it was among those from `from` on
			}
			if !tx.textWaiting(t, yield) {
				return
			}
		}
	}
}

func (tx *Tx) textWaiting(t TextTodo, yield func(Message) bool) bool {
	last := uint32(math.MaxUint32)
	if t.Single {
		last = t.UID
	}
	mailbox, folder := tx.FolderOfNum(t.Num)
	for m := range tx.Messages(mailbox, folder, t.UID, last) {
		m.Num = t.Num
		if !yield(m) {
			return false
		}
	}
	return true
}

// A TextWork is some messages that are to be indexed together, newest first, and what that leaves
// to do.
type TextWork struct {
	Messages []Message
	Done     []TextTodo
	More     bool // there are others
}

// TextLimits bound a TextWork: its messages, those of one folder, and the bytes of them, each
// counted up to a bound.
type TextLimits struct {
	Most, Each int
	Bytes      int64
	Message    int64 // what a message counts at most
}

// TextWork picks what of an account is indexed next.
func (tx *Tx) TextWork(account uint32, l TextLimits) (*TextWork, error) {
	p := textPicker{tx: tx, limits: l}
	for t := range tx.TextTodos(account) {
		if t.Num != p.from.Num {
			p.from, p.to, p.each, p.validity = TextTodo{Num: t.Num, UID: math.MaxUint32}, 0, 0, 0
			f, err := tx.textFolder(t)
			switch {
			case err == nil:
				p.validity = f.UIDValidity
			case !errors.Is(err, ErrNotFound):
				return nil, err
			}
		}
		if err := p.pick(t); err != nil {
			return nil, err
		}
	}
	sort.Slice(p.work.Messages, func(i, j int) bool {
		a, b := &p.work.Messages[i], &p.work.Messages[j]
		return mailrow.ComparePos(InboxPos{b.Received, b.UID, b.Num}, InboxPos{a.Received, a.UID, a.Num}) < 0
	})
	return &p.work, tx.Err()
}

// textFolder gives the folder that something is to be done in, or ErrNotFound.
func (tx *Tx) textFolder(t TextTodo) (*Folder, error) {
	mailbox, folder := tx.FolderOfNum(t.Num)
	return tx.Folder(mailbox, folder)
}

// A textPicker picks messages of one folder after the other.
type textPicker struct {
	tx       *Tx
	limits   TextLimits
	work     TextWork
	bytes    int64
	each     int
	from     TextTodo // of the folder, what is to do from a UID on
	to       uint32   // up to where, exclusive, that is picked
	validity uint32   // UIDVALIDITY of the folder
	finished bool     // the limits are reached
}

func (p *textPicker) full() bool {
	p.finished = p.finished || len(p.work.Messages) >= p.limits.Most || p.bytes >= p.limits.Bytes
	return p.finished || p.each >= p.limits.Each
}

func (p *textPicker) add(m Message, num uint32) {
	m.Num = num
	p.work.Messages = append(p.work.Messages, m)
	p.bytes += min(int64(m.Blob.Length), p.limits.Message)
	p.each++
}

func (p *textPicker) done(t TextTodo) {
	t.Validity = p.validity
	p.work.Done = append(p.work.Done, t)
}

func (p *textPicker) pick(t TextTodo) error {
	switch {
	case !t.Single:
		return p.pickFrom(t)
	case t.UID >= p.from.UID: // it is among those from `from` on
		if t.UID < p.to {
			p.done(t)
		}
		return nil
	case p.full():
		p.work.More = true
		return nil
	}
	p.done(t)
	mailbox, folder := p.tx.FolderOfNum(t.Num)
	for m := range p.tx.Messages(mailbox, folder, t.UID, t.UID) {
		p.add(m, t.Num)
	}
	return nil
}

// pickFrom picks messages from a UID on.
func (p *textPicker) pickFrom(t TextTodo) error {
	p.from, p.to = t, t.UID
	mailbox, folder := p.tx.FolderOfNum(t.Num)
	for m := range p.tx.Messages(mailbox, folder, t.UID, math.MaxUint32) {
		if p.full() {
			p.work.More = true
			t.UID = p.to
			p.done(t)
			return nil
		}
		p.add(m, t.Num)
		p.to = m.UID + 1
	}
	f, err := p.tx.textFolder(t)
	switch {
	case err == nil:
		p.to = max(p.to, f.UIDNext)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	t.UID = p.to
	p.done(t)
	return nil
}

// TextDone notes that what t tells of is in the index: the one message, or those of the folder
// before t.UID.
func (tx *Tx) TextDone(t TextTodo) error {
	f, err := tx.textFolder(t)
	if err == nil && t.Validity != 0 && t.Validity != f.UIDValidity {
		return nil
	}
	if t.Single {
		return tx.DeleteRow(mailrow.BucketTextTodo, t.key())
	}
	if errors.Is(err, ErrNotFound) || err == nil && t.UID >= f.UIDNext {
		return tx.DeleteRow(mailrow.BucketTextTodo, t.key())
	}
	if err != nil {
		return err
	}
	return tx.PutRow(mailrow.BucketTextTodo, t.key(), t.row())
}

// unindexedFolders is how many folders one transaction of ResetText looks at.
const unindexedFolders = 3000

// markAllUnindexed notes that everything is to be indexed in the folders behind the key after,
// which it looks at up to limit (0: all of them). It gives the key to go on behind; nil: there are
// no more.
func (tx *Tx) markAllUnindexed(after []byte, limit int) (next []byte, err error) {
	looked := 0
	for k, row := range tx.Ascend(mailrow.BucketFolder, after) {
		if bytes.Equal(k, after) {
			continue
		}
		if looked++; limit > 0 && looked > limit {
			return next, tx.Err()
		}
		next = bytes.Clone(k)
		var f Folder
		if err := f.Decode(k, row); err != nil {
			return nil, fmt.Errorf("folder %x: %w", k, err)
		}
		if f.Num == 0 || f.Messages == 0 {
			continue
		}
		for m := range tx.Messages(f.Mailbox, f.ID, 1, math.MaxUint32) {
			if err := tx.markUnindexed(&m, f.Num, true); err != nil {
				return nil, err
			}
			break
		}
	}
	return nil, tx.Err()
}

// textResetting is the sequence of bktTextTodo from ResetText's first transaction to its last, by
// which TidyText knows one that did not come to its end.
const textResetting = 1

// ResetText forgets the text index, so that all of it is to be made anew: at first it notes all
// mail as not indexed, which searches look at message by message, some folders in each transaction,
// then it drops the index. One call at a time, and neither AddText nor TidyText beside it.
func (s *Store) ResetText() error {
	err := s.Update(func(tx *Tx) error {
		if err := tx.EmptyBucket(mailrow.BucketTextTodo); err != nil { // its rows may be what is damaged
			return err
		}
		return tx.SetSequence(mailrow.BucketTextTodo, textResetting)
	})
	var after []byte
	for more := true; more && err == nil; more = after != nil {
		next := after
		err = s.Update(func(tx *Tx) (err error) {
			next, err = tx.markAllUnindexed(after, unindexedFolders)
			return err
		})
		after = next
	}
	if err != nil {
		return err
	}
	return s.Update(func(tx *Tx) error {
		for _, i := range []*engine.Bucket{mailrow.BucketTextRun, mailrow.BucketTextPlace, mailrow.BucketTextWord, mailrow.BucketTextGone} {
			if err := tx.EmptyBucket(i); err != nil {
				return err
			}
		}
		return tx.SetSequence(mailrow.BucketTextTodo, 0)
	})
}
