package mailindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
)

// A TextTodo says that messages of a folder are not in the text index yet: all with a UID from UID
// on or, if Single is set, the one with that UID. Validity is the folder's UIDVALIDITY when the
// text index read the messages; 0: not read yet. If the UIDVALIDITY changes later, as it may in an
// external mailbox, MarkIndexed does nothing.
type TextTodo struct {
	Account, Num, UID uint32 // Num is the number of the folder
	Single            bool
	Validity          uint32
}

// Key returns the key in BucketTextTodo.
func (t TextTodo) Key() []byte {
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

// MarkUnindexed records that a message must be indexed. num is the number of its folder. isHighest
// says that the message has the highest UID of the folder.
func MarkUnindexed(tx *Tx, m *mailrow.Message, num uint32, isHighest bool) error {
	t := TextTodo{Account: m.Account, Num: num, UID: m.UID, Single: !isHighest}
	key := t.Key()
	if isHighest {
		if row := tx.GetRow(mailrow.BucketTextTodo, key); len(row) == 4 && binary.BigEndian.Uint32(row) <= m.UID {
			return nil
		}
	}
	tx.After(func() {
		select {
		case tx.index.TextWake <- struct{}{}:
		default:
		}
	})
	return tx.PutRow(mailrow.BucketTextTodo, key, t.row())
}

// IsUnindexed reports whether a message is not in the text index yet.
func IsUnindexed(tx *Tx, account, num, uid uint32) bool {
	row := tx.GetRow(mailrow.BucketTextTodo, TextTodo{Account: account, Num: num}.Key())
	return len(row) == 4 && uid >= binary.BigEndian.Uint32(row) ||
		tx.HasRow(mailrow.BucketTextTodo, TextTodo{Account: account, Num: num, UID: uid, Single: true}.Key())
}

// dropTextTodos deletes up to limit rows of a folder in BucketTextTodo. A folder of an external
// mailbox may have one row per message. done is false if rows remain.
func (tx *Tx) dropTextTodos(account, num uint32, limit int) (done bool, err error) {
	prefix := TextTodo{Account: account, Num: num}.Key()
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

// MarkTextGone records for the text index that the message is deleted.
func MarkTextGone(tx *Tx, m *mailrow.Message, num uint32) error {
	place := mailrow.InboxPos{Received: m.Received, UID: m.UID, Num: num}.Place()
	key := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+mailrow.PlaceSize), m.Account), place[:]...)
	row := binary.BigEndian.AppendUint64([]byte{engine.RowVersion}, uint64(tx.Now().Unix()))
	return tx.PutRow(mailrow.BucketTextGone, key, mailrow.BucketTextGone.Seal(key, row))
}

// TextTodos iterates over the TextTodos of one account or, if account is 0, of all accounts.
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
				tx.Fail(fmt.Errorf("read row %x of messages to index: %w", k, engine.ErrDamagedRow))
				return
			}
			if !yield(t) {
				return
			}
		}
	}
}

// UnindexedMessages iterates over the messages that are not in the text index yet: those in the
// folders with these numbers or, if there are none, in the INBOX of all mailboxes of the account.
func (tx *Tx) UnindexedMessages(account uint32, folders []uint32) iter.Seq[mailrow.Message] {
	return func(yield func(mailrow.Message) bool) {
		var from TextTodo
		for t := range tx.TextTodos(account) {
			if len(folders) == 0 && t.Num >= mailrow.FirstFolderNum || len(folders) > 0 && !slices.Contains(folders, t.Num) {
				continue
			}
			if !t.Single {
				from = t
			} else if from.Num == t.Num && t.UID >= from.UID {
				continue // already yielded with the messages from from.UID on
			}
			if !tx.yieldUnindexed(t, yield) {
				return
			}
		}
	}
}

// yieldUnindexed yields the messages of one TextTodo. It returns false if yield did.
func (tx *Tx) yieldUnindexed(t TextTodo, yield func(mailrow.Message) bool) (more bool) {
	mailbox, folder := tx.FolderOfNum(t.Num)
	if t.Single { // most are; Messages would take more memory than the message
		m, err := tx.Message(mailbox, folder, t.UID)
		switch {
		case errors.Is(err, engine.ErrNotFound):
			return true
		case err != nil:
			tx.Fail(err)
			return false
		}
		m.Num = t.Num
		return yield(*m)
	}
	for m := range tx.Messages(mailbox, folder, t.UID, math.MaxUint32) {
		m.Num = t.Num
		if !yield(m) {
			return false
		}
	}
	return true
}

// FolderOfTodo returns the folder of a TextTodo, or ErrNotFound.
func FolderOfTodo(tx *Tx, t TextTodo) (*mailrow.Folder, error) {
	mailbox, folder := tx.FolderOfNum(t.Num)
	return tx.Folder(mailbox, folder)
}

// MarkIndexed records that messages are now in the text index: the one of t if t.Single is set,
// otherwise those of the folder with UIDs below t.UID. It does nothing if the folder's UIDVALIDITY
// is no longer t.Validity.
func (tx *Tx) MarkIndexed(t TextTodo) error {
	f, err := FolderOfTodo(tx, t)
	if err == nil && t.Validity != 0 && t.Validity != f.UIDValidity {
		return nil
	}
	if t.Single {
		return tx.DeleteRow(mailrow.BucketTextTodo, t.Key())
	}
	if errors.Is(err, engine.ErrNotFound) || err == nil && t.UID >= f.UIDNext {
		return tx.DeleteRow(mailrow.BucketTextTodo, t.Key())
	}
	if err != nil {
		return err
	}
	return tx.PutRow(mailrow.BucketTextTodo, t.Key(), t.row())
}

// MarkAllUnindexed records that all messages of some folders must be indexed: of up to limit
// folders (0: all) with keys greater than afterKey. next is the afterKey of the following call, or
// nil at the end.
func MarkAllUnindexed(tx *Tx, afterKey []byte, limit int) (next []byte, err error) {
	looked := 0
	for k, row := range tx.Ascend(mailrow.BucketFolder, afterKey) {
		if bytes.Equal(k, afterKey) {
			continue
		}
		if looked++; limit > 0 && looked > limit {
			return next, tx.Err()
		}
		next = bytes.Clone(k)
		var f mailrow.Folder
		if err := f.Decode(k, row); err != nil {
			return nil, fmt.Errorf("read folder with key %x: %w", k, err)
		}
		if f.Num == 0 || f.Messages == 0 {
			continue
		}
		for m := range tx.Messages(f.Mailbox, f.ID, 1, math.MaxUint32) {
			if err := MarkUnindexed(tx, &m, f.Num, true); err != nil {
				return nil, err
			}
			break
		}
	}
	return nil, tx.Err()
}
