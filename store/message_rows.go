package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/segment"
)

// A messageBucket is one bucket of the message index. doc.go draws their keys and values.
type messageBucket int

const (
	bktMessage messageBucket = iota
	bktMeta
	bktInbox
	bktInboxOf
	bktFolder
	bktFolderName
	bktMailbox
	bktAccount
	bktRef
	bktLive
	bktTextTodo
	bktTextRun
	bktTextPlace
	bktTextWord
	bktTextGone
	bktThread
	bktThreadJoined
	bktSubject
	bktSubscribed
	bktStructure
)

// messageBuckets are their names.
var messageBuckets = [...]string{
	bktMessage:      "msg",
	bktMeta:         "msg_meta",
	bktInbox:        "inbox_class",
	bktInboxOf:      "inbox_mbx_class",
	bktFolder:       "folder",
	bktFolderName:   "folder_name",
	bktMailbox:      "mailbox_count",
	bktAccount:      "account_count",
	bktRef:          "blob_ref",
	bktLive:         "blob_live",
	bktTextTodo:     "text_todo",
	bktTextRun:      "text_run",
	bktTextPlace:    "text_place",
	bktTextWord:     "text_word",
	bktTextGone:     "text_gone",
	bktThread:       "thread",
	bktThreadJoined: "thread_joined",
	bktSubject:      "thread_subject",
	bktSubscribed:   "subscribed",
	bktStructure:    "blob_structure",
}

// errDamagedRow is returned for a row that this version cannot have written.
var errDamagedRow = errors.New("damaged row")

func (tx *Tx) messageBucket(i messageBucket) *bolt.Bucket {
	if tx.messages[i] == nil {
		tx.messages[i] = tx.bucket(messageBuckets[i])
	}
	return tx.messages[i]
}

func (tx *Tx) getRow(i messageBucket, key []byte) []byte { return tx.messageBucket(i).Get(key) }

// putRow keeps row until the transaction ends: it must not be changed afterwards.
func (tx *Tx) putRow(i messageBucket, key, row []byte) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.bytes += len(key) + len(row)
	if err := tx.messageBucket(i).Put(key, row); err != nil {
		return fmt.Errorf("put in %s: %w", messageBuckets[i], err)
	}
	return nil
}

func (tx *Tx) deleteRow(i messageBucket, key []byte) error {
	if !tx.writable {
		return errReadOnly
	}
	tx.writes++
	tx.bytes += len(key)
	if err := tx.messageBucket(i).Delete(key); err != nil {
		return fmt.Errorf("delete in %s: %w", messageBuckets[i], err)
	}
	tx.frees = tx.frees || i == bktMessage || i == bktRef || i == bktFolder || i == bktTextRun
	return nil
}

// Every row but the smallest begins with the version of its form.
const rowVersion = 1

// A message row: version 1 | flags 1 | bits 1 | account 4 | received ms 8 | modseq 8 | blob 16 |
// keywords, each length 1 and text.
const (
	messageRowSize = 39
	maxKeywords    = 128
	maxKeyword     = 255
)

func messageKey(mailbox, folder, uid uint32) (key [12]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], folder)
	binary.BigEndian.PutUint32(key[8:], uid)
	return key
}

func (m *Message) key() [12]byte { return messageKey(m.Mailbox, m.Folder, m.UID) }

func (m *Message) row() []byte {
	size := messageRowSize
	for _, k := range m.Keywords {
		size += 1 + len(k)
	}
	b := make([]byte, 0, size)
	b = append(b, rowVersion, byte(m.Flags), byte(m.Bits))
	b = binary.BigEndian.AppendUint32(b, m.Account)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Received.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, m.ModSeq)
	b = m.Blob.AppendTo(b)
	for _, k := range m.Keywords {
		b = append(b, byte(len(k)))
		b = append(b, k...)
	}
	return b
}

// decode fills m from a key of 12 bytes and its row.
func (m *Message) decode(key, row []byte) error {
	if len(key) != 12 || len(row) < messageRowSize || row[0] != rowVersion {
		return errDamagedRow
	}
	blob, err := segment.ParseRef(row[23:messageRowSize])
	if err != nil {
		return err
	}
	*m = Message{
		Account:  binary.BigEndian.Uint32(row[3:]),
		Mailbox:  binary.BigEndian.Uint32(key),
		Folder:   binary.BigEndian.Uint32(key[4:]),
		UID:      binary.BigEndian.Uint32(key[8:]),
		Blob:     blob,
		Received: msTime(binary.BigEndian.Uint64(row[7:])),
		Flags:    Flags(row[1]),
		Bits:     Bits(row[2]),
		ModSeq:   binary.BigEndian.Uint64(row[15:]),
	}
	for rest := row[messageRowSize:]; len(rest) > 0; {
		n := int(rest[0])
		if n == 0 || len(rest) < 1+n || len(m.Keywords) == maxKeywords {
			return errDamagedRow
		}
		m.Keywords = append(m.Keywords, string(rest[1:1+n]))
		rest = rest[1+n:]
	}
	return nil
}

// A meta row: version 1 | structure and texts, each length uvarint and bytes. The recipient follows
// them where there is one; rows from before it was kept have none. In version 2 the structure is
// empty and stands in bktStructure, once for all messages that have the same bytes.
const metaShared = 2

// maxOwnStructure is how many bytes of structure a meta row has itself. A message to a thousand
// people has more, and may be in a thousand mailboxes.
const maxOwnStructure = 2 << 10

func (m *Meta) texts() [7]*string {
	return [...]*string{&m.Preview, &m.ThreadID, &m.OriginalMessageID, &m.ReturnPath, &m.SPF, &m.DKIM, &m.DMARC}
}

func (m *Meta) row() []byte {
	texts := m.texts()
	size := 1 + 2*binary.MaxVarintLen32 + len(m.Structure) + len(m.Recipient)
	for _, text := range texts {
		size += binary.MaxVarintLen32 + len(*text)
	}
	b := append(make([]byte, 0, size), rowVersion)
	b = binary.AppendUvarint(b, uint64(len(m.Structure)))
	b = append(b, m.Structure...)
	for _, text := range texts {
		b = binary.AppendUvarint(b, uint64(len(*text)))
		b = append(b, *text...)
	}
	if m.Recipient != "" {
		b = binary.AppendUvarint(b, uint64(len(m.Recipient)))
		b = append(b, m.Recipient...)
	}
	return b
}

// decode fills m from a row, of which it keeps nothing. The structure of a shared row is not in it.
func (m *Meta) decode(row []byte) error {
	if len(row) == 0 || row[0] != rowVersion && row[0] != metaShared {
		return errDamagedRow
	}
	*m = Meta{}
	structure, rest, err := cutField(row[1:])
	if err != nil {
		return err
	}
	if len(structure) > 0 {
		m.Structure = append([]byte(nil), structure...)
	}
	all := string(rest) // shared by the texts: one allocation for seven
	for _, text := range m.texts() {
		var field []byte
		if field, rest, err = cutField(rest); err != nil {
			return err
		}
		end := len(all) - len(rest)
		*text = all[end-len(field) : end]
	}
	if len(rest) == 0 {
		return nil
	}
	recipient, rest, err := cutField(rest)
	if err != nil || len(recipient) == 0 || len(rest) > 0 {
		return errDamagedRow
	}
	m.Recipient = all[len(all)-len(recipient):]
	return nil
}

// cutField cuts a length and as many bytes from the front of b.
func cutField(b []byte) (field, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, errDamagedRow
	}
	return b[used : used+int(n)], b[used+int(n):], nil
}

// msTime undoes UnixMilli as rows and keys have it.
func msTime(ms uint64) time.Time { return time.UnixMilli(int64(ms)).UTC() }

// keyTime is t as rows and keys can hold it: in whole milliseconds since 1970.
func keyTime(t time.Time) time.Time { return msTime(uint64(max(t.UnixMilli(), 0))) }
