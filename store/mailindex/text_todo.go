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

// A TextTodo says which messages of a folder are not in the text index: those from UID on, or, if
// it is Single, the one. Validity is the UIDVALIDITY of the UIDs, where TextWork gave
// it: what was read under another one, which an external mailbox may get meanwhile, is not done.
type TextTodo struct {
	Account, Num, UID uint32 // Num is the folder's
	Single            bool
	Validity          uint32
}

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

// MarkUnindexed notes that the message, of the folder with a number, has to be indexed; rises says
// that its UID is higher than any before it.
func MarkUnindexed(tx *Tx, m *mailrow.Message, num uint32, rises bool) error {
	t := TextTodo{Account: m.Account, Num: num, UID: m.UID, Single: !rises}
	key := t.Key()
	if rises {
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

// IsUnindexed tells whether a message is not in the text index.
func IsUnindexed(tx *Tx, account, num, uid uint32) bool {
	row := tx.GetRow(mailrow.BucketTextTodo, TextTodo{Account: account, Num: num}.Key())
	return len(row) == 4 && uid >= binary.BigEndian.Uint32(row) ||
		tx.HasRow(mailrow.BucketTextTodo, TextTodo{Account: account, Num: num, UID: uid, Single: true}.Key())
}

// dropTextTodos deletes up to limit rows of a folder, of which that of an external mailbox may have
// as many as messages.
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

// MarkTextGone notes that the message is deleted, for its run.
func MarkTextGone(tx *Tx, m *mailrow.Message, num uint32) error {
	place := mailrow.InboxPos{Received: m.Received, UID: m.UID, Num: num}.Place()
	key := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+mailrow.PlaceSize), m.Account), place[:]...)
	row := binary.BigEndian.AppendUint64([]byte{engine.RowVersion}, uint64(tx.Now().Unix()))
	return tx.PutRow(mailrow.BucketTextGone, key, mailrow.BucketTextGone.Seal(key, row))
}

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
				tx.Fail(fmt.Errorf("what is to be indexed %x: %w", k, engine.ErrDamagedRow))
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
func (tx *Tx) TextWaiting(account uint32, folders []uint32) iter.Seq[mailrow.Message] {
	return func(yield func(mailrow.Message) bool) {
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

func (tx *Tx) textWaiting(t TextTodo, yield func(mailrow.Message) bool) bool {
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

// TextFolder gives the folder that something is to be done in, or ErrNotFound.
func TextFolder(tx *Tx, t TextTodo) (*mailrow.Folder, error) {
	mailbox, folder := tx.FolderOfNum(t.Num)
	return tx.Folder(mailbox, folder)
}

// TextDone notes that what t tells of is in the index: the one message, or those of the folder
// before t.UID.
func (tx *Tx) TextDone(t TextTodo) error {
	f, err := TextFolder(tx, t)
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

// MarkAllUnindexed notes that everything is to be indexed in the folders behind the key after,
// which it looks at up to limit (0: all of them). It gives the key to go on behind; nil: there are
// no more.
func MarkAllUnindexed(tx *Tx, after []byte, limit int) (next []byte, err error) {
	looked := 0
	for k, row := range tx.Ascend(mailrow.BucketFolder, after) {
		if bytes.Equal(k, after) {
			continue
		}
		if looked++; limit > 0 && looked > limit {
			return next, tx.Err()
		}
		next = bytes.Clone(k)
		var f mailrow.Folder
		if err := f.Decode(k, row); err != nil {
			return nil, fmt.Errorf("folder %x: %w", k, err)
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
