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

// The text index finds messages by their words. It consists of runs. A run holds the words of some
// messages of one account and never changes. It numbers its messages, newest first, and stores for
// each word the numbers of the messages that have it, mostly in one byte or less per message. New
// messages form small runs, which are merged into larger ones to keep their number low. A search
// examines the runs from newest to oldest, and each as a whole.
//
// The caller provides the words of a message some time after it arrives. BucketTextTodo records per
// folder the UID from which messages are not indexed yet, and single messages with lower UIDs that
// were added later, as in external mailboxes. It changes in the transaction that adds the message,
// so no message is missed. In a store without an index, all messages are to be indexed.
//
// A search checks whether a message still exists, so it does not find deleted ones. Their words
// stay until the run is rewritten: when many of its messages are deleted, or one has been for a day
// (BucketTextGone).

// ErrDamaged is returned for damaged rows of the text index. Reset rebuilds the index.
var ErrDamaged = postings.ErrDamaged

// Work is a set of messages to index together. Once they are indexed, the caller passes each
// element of Done to MarkIndexed.
type Work struct {
	Messages []mailrow.Message    // newest first
	Done     []mailindex.TextTodo // what MarkIndexed must record
	More     bool                 // the account has other messages to index
}

// Limits bound how much PickWork returns.
type Limits struct {
	Most, Each int   // most messages in all, and of one folder
	Bytes      int64 // stop after this many bytes of messages
	Message    int64 // the most that one message counts toward Bytes
}

// PickWork returns the messages of an account to index next.
func PickWork(tx *mailindex.Tx, account uint32, l Limits) (*Work, error) {
	p := workCollector{tx: tx, limits: l}
	for t := range tx.TextTodos(account) {
		if t.Num != p.from.Num {
			p.from, p.to, p.each, p.validity = mailindex.TextTodo{Num: t.Num, UID: math.MaxUint32}, 0, 0, 0
			f, err := mailindex.FolderOfTodo(tx, t)
			switch {
			case err == nil:
				p.validity = f.UIDValidity
			case !errors.Is(err, engine.ErrNotFound):
				return nil, err
			}
		}
		if err := p.takeMessages(t); err != nil {
			return nil, err
		}
	}
	sort.Slice(p.work.Messages, func(i, j int) bool {
		a, b := &p.work.Messages[i], &p.work.Messages[j]
		return mailrow.ComparePos(mailrow.InboxPos{Received: b.Received, UID: b.UID, Num: b.Num}, mailrow.InboxPos{Received: a.Received, UID: a.UID, Num: a.Num}) < 0
	})
	return &p.work, tx.Err()
}

// A workCollector collects the messages of one Work, one folder after the other.
type workCollector struct {
	tx       *mailindex.Tx
	limits   Limits
	work     Work
	bytes    int64              // counted toward Limits.Bytes
	each     int                // messages of the current folder
	from     mailindex.TextTodo // the todo of the folder that starts at a UID
	to       uint32             // messages of the folder with UIDs below this are picked
	validity uint32             // UIDVALIDITY of the folder
	finished bool               // a limit for all folders is reached
}

// isFull reports whether the current folder may have no more messages.
func (p *workCollector) isFull() bool {
	p.finished = p.finished || len(p.work.Messages) >= p.limits.Most || p.bytes >= p.limits.Bytes
	return p.finished || p.each >= p.limits.Each
}

// add adds a message of the folder with the number num.
func (p *workCollector) add(m mailrow.Message, num uint32) {
	m.Num = num
	p.work.Messages = append(p.work.Messages, m)
	p.bytes += min(int64(m.Blob.Length), p.limits.Message)
	p.each++
}

// recordDone adds a todo that MarkIndexed must record.
func (p *workCollector) recordDone(t mailindex.TextTodo) {
	t.Validity = p.validity
	p.work.Done = append(p.work.Done, t)
}

// takeMessages adds the messages of a todo to the work, as many as the limits allow.
func (p *workCollector) takeMessages(t mailindex.TextTodo) error {
	switch {
	case !t.Single:
		return p.takeFrom(t)
	case t.UID >= p.from.UID: // included in the todo `from`
		if t.UID < p.to {
			p.recordDone(t)
		}
		return nil
	case p.isFull():
		p.work.More = true
		return nil
	}
	p.recordDone(t)
	mailbox, folder := p.tx.FolderOfNum(t.Num)
	for m := range p.tx.Messages(mailbox, folder, t.UID, t.UID) {
		p.add(m, t.Num)
	}
	return nil
}

// takeFrom adds the messages from t.UID on.
func (p *workCollector) takeFrom(t mailindex.TextTodo) error {
	p.from, p.to = t, t.UID
	mailbox, folder := p.tx.FolderOfNum(t.Num)
	for m := range p.tx.Messages(mailbox, folder, t.UID, math.MaxUint32) {
		if p.isFull() {
			p.work.More = true
			t.UID = p.to
			p.recordDone(t)
			return nil
		}
		p.add(m, t.Num)
		p.to = m.UID + 1
	}
	f, err := mailindex.FolderOfTodo(p.tx, t)
	switch {
	case err == nil:
		p.to = max(p.to, f.UIDNext)
	case !errors.Is(err, engine.ErrNotFound):
		return err
	}
	t.UID = p.to
	p.recordDone(t)
	return nil
}

// ResetFoldersPerTx is how many folders one transaction of Reset examines.
const ResetFoldersPerTx = 3000

// ResettingSequence is the sequence number of BucketTextTodo while Reset runs. Tidy finds it after
// an interrupted Reset.
const ResettingSequence = 1

// Reset deletes the text index, so that it is built again. It first marks all messages as not
// indexed, some folders per transaction; searches then read these messages one by one. Then it
// deletes the index. Only one call at a time is allowed, and no Write, Tidy or Purge meanwhile.
func (s *Index) Reset() error {
	err := s.Update(func(tx *mailindex.Tx) error {
		if err := tx.EmptyBucket(mailrow.BucketTextTodo); err != nil { // its rows may be damaged
			return err
		}
		return tx.SetSequence(mailrow.BucketTextTodo, ResettingSequence)
	})
	var after []byte
	for more := true; more && err == nil; more = after != nil {
		next := after
		err = s.Update(func(tx *mailindex.Tx) (err error) {
			next, err = mailindex.MarkAllUnindexed(tx, after, ResetFoldersPerTx)
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
