package textindex

import (
	"errors"
	"math"
	"sort"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
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

// ErrDamaged is returned for rows of the text index that cannot have been written; Reset
// helps.
var ErrDamaged = postings.ErrDamaged

// A Work is some messages that are to be indexed together, newest first, and what that leaves
// to do.
type Work struct {
	Messages []mailrow.Message
	Done     []mailindex.TextTodo
	More     bool // there are others
}

// Limits bound a Work: its messages, those of one folder, and the bytes of them, each
// counted up to a bound.
type Limits struct {
	Most, Each int
	Bytes      int64
	Message    int64 // what a message counts at most
}

// PickWork picks what of an account is indexed next.
func PickWork(tx *mailindex.Tx, account uint32, l Limits) (*Work, error) {
	p := textPicker{tx: tx, limits: l}
	for t := range tx.TextTodos(account) {
		if t.Num != p.from.Num {
			p.from, p.to, p.each, p.validity = mailindex.TextTodo{Num: t.Num, UID: math.MaxUint32}, 0, 0, 0
			f, err := mailindex.TextFolder(tx, t)
			switch {
			case err == nil:
				p.validity = f.UIDValidity
			case !errors.Is(err, engine.ErrNotFound):
				return nil, err
			}
		}
		if err := p.pick(t); err != nil {
			return nil, err
		}
	}
	sort.Slice(p.work.Messages, func(i, j int) bool {
		a, b := &p.work.Messages[i], &p.work.Messages[j]
		return mailrow.ComparePos(mailrow.InboxPos{Received: b.Received, UID: b.UID, Num: b.Num}, mailrow.InboxPos{Received: a.Received, UID: a.UID, Num: a.Num}) < 0
	})
	return &p.work, tx.Err()
}

// A textPicker picks messages of one folder after the other.
type textPicker struct {
	tx       *mailindex.Tx
	limits   Limits
	work     Work
	bytes    int64
	each     int
	from     mailindex.TextTodo // of the folder, what is to do from a UID on
	to       uint32             // up to where, exclusive, that is picked
	validity uint32             // UIDVALIDITY of the folder
	finished bool               // the limits are reached
}

func (p *textPicker) full() bool {
	p.finished = p.finished || len(p.work.Messages) >= p.limits.Most || p.bytes >= p.limits.Bytes
	return p.finished || p.each >= p.limits.Each
}

func (p *textPicker) add(m mailrow.Message, num uint32) {
	m.Num = num
	p.work.Messages = append(p.work.Messages, m)
	p.bytes += min(int64(m.Blob.Length), p.limits.Message)
	p.each++
}

func (p *textPicker) done(t mailindex.TextTodo) {
	t.Validity = p.validity
	p.work.Done = append(p.work.Done, t)
}

func (p *textPicker) pick(t mailindex.TextTodo) error {
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
func (p *textPicker) pickFrom(t mailindex.TextTodo) error {
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
	f, err := mailindex.TextFolder(p.tx, t)
	switch {
	case err == nil:
		p.to = max(p.to, f.UIDNext)
	case !errors.Is(err, engine.ErrNotFound):
		return err
	}
	t.UID = p.to
	p.done(t)
	return nil
}

// UnindexedFolders is how many folders one transaction of Reset looks at.
const UnindexedFolders = 3000

// Resetting is the sequence of bktTextTodo from Reset's first transaction to its last, by
// which Tidy knows one that did not come to its end.
const Resetting = 1

// Reset forgets the text index, so that all of it is to be made anew: at first it notes all
// mail as not indexed, which searches look at message by message, some folders in each transaction,
// then it drops the index. One call at a time, and neither AddText nor Tidy beside it.
func (s *Index) Reset() error {
	err := s.Update(func(tx *mailindex.Tx) error {
		if err := tx.EmptyBucket(mailrow.BucketTextTodo); err != nil { // its rows may be what is damaged
			return err
		}
		return tx.SetSequence(mailrow.BucketTextTodo, Resetting)
	})
	var after []byte
	for more := true; more && err == nil; more = after != nil {
		next := after
		err = s.Update(func(tx *mailindex.Tx) (err error) {
			next, err = mailindex.MarkAllUnindexed(tx, after, UnindexedFolders)
			return err
		})
		after = next
	}
	if err != nil {
		return err
	}
	return s.Update(func(tx *mailindex.Tx) error {
		for _, i := range []*engine.Bucket{mailrow.BucketTextRun, mailrow.BucketTextPlace, mailrow.BucketTextWord, mailrow.BucketTextGone} {
			if err := tx.EmptyBucket(i); err != nil {
				return err
			}
		}
		return tx.SetSequence(mailrow.BucketTextTodo, 0)
	})
}
