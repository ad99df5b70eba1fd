package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	bolt "go.etcd.io/bbolt"
)

// The text index finds the messages of INBOX folders by their words. It consists of runs, each of which has the words of
// some messages of one account and does not change any more: a run numbers its messages, newest first, and keeps for
// each word the numbers of those that have it, which takes one byte or less for most. Few messages make a small run;
// small ones are merged into larger ones, so that there are few. A search looks at the runs by time, newest first, and
// at each as a whole.
//
// What the words of a message are, the caller says, some time after the message came: text_todo knows per mailbox from
// which UID on none have been given, and changes in the message's own transaction. So nothing is ever missed, and a
// store that has no index yet is one in which everything is to do.
//
// A deleted message is found no more, since a search looks whether it is there. Its words stay until its run is made
// anew, because many of its messages are gone, or because one has been for a day (text_gone).

// A TextTodo says from which UID on the messages in INBOX of a mailbox are not in the text index.
type TextTodo struct {
	Account, Mailbox, UID uint32
}

func (t TextTodo) key() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, t.Account), t.Mailbox)
}

// textAwaits notes that the message, which is the newest of its folder, has to be indexed.
func (tx *Tx) textAwaits(m *Message) error {
	var key [8]byte
	binary.BigEndian.PutUint32(key[0:], m.Account)
	binary.BigEndian.PutUint32(key[4:], m.Mailbox)
	if tx.getRow(bktTextTodo, key[:]) != nil {
		return nil
	}
	if wake := tx.s.text.wake; wake != nil {
		tx.After(func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	}
	return tx.putRow(bktTextTodo, key[:], binary.BigEndian.AppendUint32(nil, m.UID))
}

// textGone notes that the message is deleted, for its run.
func (tx *Tx) textGone(m *Message) error {
	place := InboxPos{m.Received, m.UID, m.Mailbox}.place()
	key := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+placeSize), m.Account), place[:]...)
	return tx.putRow(bktTextGone, key, binary.BigEndian.AppendUint64(nil, uint64(tx.Now().Unix())))
}

// textIndex is what the store knows of its text index besides the rows.
type textIndex struct {
	wake chan struct{} // holds a value when there may be something to do
}

func newTextIndex() textIndex { return textIndex{make(chan struct{}, 1)} }

// TextWake gives a value some time after mail has come that is to be indexed.
func (s *Store) TextWake() <-chan struct{} { return s.text.wake }

// TextTodos walks what is to be indexed, of one account or, if that is 0, of all.
func (tx *Tx) TextTodos(account uint32) iter.Seq[TextTodo] {
	return func(yield func(TextTodo) bool) {
		var prefix []byte
		if account != 0 {
			prefix = binary.BigEndian.AppendUint32(nil, account)
		}
		for k, v := range tx.ascend(tx.messageBucket(bktTextTodo), prefix) {
			if !bytes.HasPrefix(k, prefix) {
				return
			}
			if len(k) != 8 || len(v) != 4 {
				tx.fail(fmt.Errorf("what is to be indexed %x: %w", k, errDamagedRow))
				return
			}
			if !yield(TextTodo{binary.BigEndian.Uint32(k), binary.BigEndian.Uint32(k[4:]), binary.BigEndian.Uint32(v)}) {
				return
			}
		}
	}
}

// TextDone notes that the messages of the mailbox are in the index up to those whose UID is t.UID.
func (tx *Tx) TextDone(t TextTodo) error {
	f, err := tx.Folder(t.Mailbox, InboxID)
	if errors.Is(err, ErrNotFound) || err == nil && t.UID >= f.UIDNext {
		return tx.deleteRow(bktTextTodo, t.key())
	}
	if err != nil {
		return err
	}
	return tx.putRow(bktTextTodo, t.key(), binary.BigEndian.AppendUint32(nil, t.UID))
}

// textAll notes that everything is to be indexed.
func (tx *Tx) textAll() error {
	for k, row := range tx.ascend(tx.messageBucket(bktFolder), nil) {
		var f Folder
		if err := f.decode(k, row); err != nil {
			return fmt.Errorf("folder %x: %w", k, err)
		}
		if f.ID != InboxID || f.Messages == 0 {
			continue
		}
		for m := range tx.Messages(f.Mailbox, InboxID, 1, math.MaxUint32) {
			if err := tx.textAwaits(&m); err != nil {
				return err
			}
			break
		}
	}
	return tx.err
}

// ResetText forgets the text index, so that all of it is to be made anew.
func (s *Store) ResetText() error {
	err := s.Update(func(tx *Tx) error {
		for _, i := range []messageBucket{bktTextTodo, bktTextRun, bktTextPlace, bktTextWord, bktTextGone} {
			if err := tx.emptyBucket(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.Update(func(tx *Tx) error { return tx.textAll() })
}

// emptyBucket drops all rows of a bucket at once; its sequence goes on.
func (tx *Tx) emptyBucket(i messageBucket) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	name, last := []byte(messageBuckets[i]), tx.messageBucket(i).Sequence()
	tx.messages[i] = nil
	if err := tx.b.DeleteBucket(name); err != nil {
		return fmt.Errorf("empty %s: %w", name, err)
	}
	b, err := tx.b.CreateBucket(name)
	if err != nil {
		return fmt.Errorf("make bucket %s: %w", name, err)
	}
	return b.SetSequence(last)
}

// prepareText has a store that is older than the text index make one.
func (s *Store) prepareText(b *bolt.Tx) error {
	tx := &Tx{b: b, s: s, writable: true}
	return tx.textAll()
}
