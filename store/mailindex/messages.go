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
	"github.com/mailstead/mailstead/store/rowform"
)

// ErrKeywords is returned for more than MaxKeywords keywords, and for one that is empty or longer
// than MaxKeyword bytes.
var ErrKeywords = errors.New("too many keywords, or one that is empty or too long")

// AddMessage inserts a message into an existing folder. The caller sets Account, Mailbox, Folder,
// Blob, Received (zero: now), Flags, Keywords and Bits; AddMessage sets UID, ModSeq and Saved. A
// nil meta is empty. The blob must have a lease, as after appending it, or be referenced by another
// message or record; otherwise the error is ErrNotFound.
func (tx *Tx) AddMessage(m *mailrow.Message, meta *mailrow.Meta) error {
	m.UID = 0
	return tx.add(m, meta)
}

// AddMessageAt is AddMessage with the UID that m has, from another server. It returns ErrExists if
// the folder has a message with that UID.
func (tx *Tx) AddMessageAt(m *mailrow.Message, meta *mailrow.Meta) error {
	if m.UID == 0 || m.UID == math.MaxUint32 {
		return ErrFolderFull
	}
	key := m.Key()
	if tx.GetRow(mailrow.BucketMessage, key[:]) != nil {
		return engine.ErrExists
	}
	return tx.add(m, meta)
}

// add checks and completes m and inserts it.
func (tx *Tx) add(m *mailrow.Message, meta *mailrow.Meta) error {
	if !validKeywords(m.Keywords) {
		return ErrKeywords
	}
	if m.Received.IsZero() {
		m.Received = tx.Now()
	}
	if meta == nil {
		meta = &mailrow.Meta{}
	}
	m.Received = mailrow.StorableTime(m.Received)
	row, err := MetaRow(tx, m.Blob, meta)
	if err != nil {
		return err
	}
	return tx.insert(m, row)
}

// MetaRow encodes the meta row, without its checksum, of a message with the bytes at blob. It
// writes a MIME structure over MaxOwnStructure to BucketStructure, where all messages with those
// bytes share it. It is deleted with the last reference to the bytes.
func MetaRow(tx *Tx, blob mailrow.BlobRef, meta *mailrow.Meta) ([]byte, error) {
	if len(meta.Structure) <= mailrow.MaxOwnStructure {
		return meta.Row(engine.RowVersion), nil
	}
	key := mailrow.BlobPrefix(blob)
	if tx.GetRow(mailrow.BucketStructure, key[:]) == nil {
		if err := PutStructure(tx, key[:], meta.Structure); err != nil {
			return nil, err
		}
	}
	rest := *meta
	rest.Structure = nil
	return rest.Row(mailrow.MetaShared), nil
}

// PutStructure writes the MIME structure of the message bytes whose BlobPrefix is `blob`.
func PutStructure(tx *Tx, blob, structure []byte) error {
	row := append(append(make([]byte, 0, 1+len(structure)+rowform.SumSize), engine.RowVersion), structure...)
	return tx.PutRow(mailrow.BucketStructure, blob, mailrow.BucketStructure.Seal(blob, row))
}

// Structure returns the MIME structure of the message bytes whose BlobPrefix is `blob`; nil if
// there is none. Old rows have only the structure, without a checksum. They begin with the version
// of the structure, which is below 0x10.
func Structure(tx *Tx, blob []byte) ([]byte, error) {
	row := tx.GetRow(mailrow.BucketStructure, blob)
	if row == nil || len(row) > 0 && row[0] < 0x10 {
		return row, nil
	}
	row, err := mailrow.BucketStructure.Open(blob, row)
	if err != nil {
		return nil, fmt.Errorf("read structure of the blob %x: %w", blob, err)
	}
	return row[1:], nil
}

// insert inserts m with its meta row, which has no checksum yet. It sets ModSeq, and the UID if
// that is 0.
func (tx *Tx) insert(m *mailrow.Message, meta []byte) error {
	c, err := tx.readCounters(m.Mailbox, m.Folder)
	if err != nil {
		return err
	}
	if err := tx.insertCounted(&c, m, meta); err != nil {
		return err
	}
	if err := AddAccountUsage(tx, m.Account, 1, int64(m.Blob.Length)); err != nil {
		return err
	}
	return tx.putCounters(&c)
}

// insertCounted is insert with counters that the caller has read and will write.
func (tx *Tx) insertCounted(c *counters, m *mailrow.Message, meta []byte) error {
	if c.counts.UIDNext == math.MaxUint32 {
		return ErrFolderFull
	}
	if m.UID == 0 {
		m.UID = c.counts.UIDNext
	}
	rises := m.UID >= c.counts.UIDNext
	m.ModSeq, m.Saved = c.nextModSeq(), mailrow.StorableTime(tx.Now())
	c.counts.UIDNext = max(c.counts.UIDNext, m.UID+1)
	c.add(m, 1)
	if err := AddRef(tx, m.Blob, mailrow.MessageOwner(m)); err != nil {
		return err
	}
	if err := tx.putMessage(m, c.num); err != nil {
		return err
	}
	key := m.Key()
	if err := tx.PutRow(mailrow.BucketMeta, key[:], mailrow.BucketMeta.Seal(key[:], meta)); err != nil {
		return err
	}
	return MarkUnindexed(tx, m, c.num, rises)
}

// putMessage writes the row of a message and its entries in the lists of messages. num is the
// number of its folder.
func (tx *Tx) putMessage(m *mailrow.Message, num uint32) error {
	key := m.Key()
	if err := tx.PutRow(mailrow.BucketMessage, key[:], m.Row()); err != nil {
		return err
	}
	return AddToLists(tx, m, num)
}

// AddToLists adds a message to the list of its folder and, if that is INBOX, to the list of the
// account. num is the number of the folder.
func AddToLists(tx *Tx, m *mailrow.Message, num uint32) error {
	marks := []byte{byte(m.Flags), byte(m.Bits)}
	byFolder := mailrow.InboxOfKey(m, num)
	if m.Folder == mailrow.InboxID {
		byAccount := mailrow.InboxKey(m)
		if err := tx.PutRow(mailrow.BucketInbox, byAccount[:], marks); err != nil {
			return err
		}
	}
	return tx.PutRow(mailrow.BucketInboxOf, byFolder[:], marks)
}

// validKeywords reports whether a message may have the keywords.
func validKeywords(keywords []string) bool {
	return len(keywords) <= mailrow.MaxKeywords && !slices.ContainsFunc(keywords, func(k string) bool {
		return k == "" || len(k) > mailrow.MaxKeyword
	})
}

// Message returns a message, or ErrNotFound.
func (tx *Tx) Message(mailbox, folder, uid uint32) (*mailrow.Message, error) {
	key := mailrow.MessageKey(mailbox, folder, uid)
	row := tx.GetRow(mailrow.BucketMessage, key[:])
	if row == nil {
		return nil, fmt.Errorf("read message %d in folder %d of mailbox %d: %w", uid, folder, mailbox, engine.ErrNotFound)
	}
	m := new(mailrow.Message)
	if err := m.Decode(key[:], row); err != nil {
		return nil, fmt.Errorf("read message %d in folder %d of mailbox %d: %w", uid, folder, mailbox, err)
	}
	return m, nil
}

// Meta returns the metadata of a message, or ErrNotFound.
func (tx *Tx) Meta(mailbox, folder, uid uint32) (*mailrow.Meta, error) {
	meta := new(mailrow.Meta)
	err := tx.readMetaRow(meta, mailbox, folder, uid, nil)
	if err != nil {
		return nil, err
	}
	meta.Structure = bytes.Clone(meta.Structure) // bbolt owns the row
	return meta, nil
}

// ReadMeta decodes the metadata of m into meta. Its structure is valid only until the transaction
// writes or ends.
func (tx *Tx) ReadMeta(meta *mailrow.Meta, m *mailrow.Message) error {
	return tx.readMetaRow(meta, m.Mailbox, m.Folder, m.UID, m)
}

// readMetaRow reads the meta row of a message. m is the message, or nil: then readMetaRow reads the
// message if it needs it.
func (tx *Tx) readMetaRow(meta *mailrow.Meta, mailbox, folder, uid uint32, m *mailrow.Message) error {
	key := mailrow.MessageKey(mailbox, folder, uid)
	row := tx.GetRow(mailrow.BucketMeta, key[:])
	if row == nil {
		return fmt.Errorf("read message %d in folder %d of mailbox %d: %w", uid, folder, mailbox, engine.ErrNotFound)
	}
	shared, err := meta.Decode(key[:], row)
	if err != nil {
		return fmt.Errorf("read metadata of message %d in folder %d of mailbox %d: %w", uid, folder, mailbox, err)
	}
	if !shared {
		return nil
	}
	if m == nil {
		m, err = tx.Message(mailbox, folder, uid)
		if err != nil {
			return err
		}
	}
	at := mailrow.BlobPrefix(m.Blob)
	meta.Structure, err = Structure(tx, at[:])
	if meta.Structure == nil && err == nil {
		err = engine.ErrDamagedRow
	}
	if err != nil {
		return fmt.Errorf("read structure of message %d in folder %d of mailbox %d: %w", uid, folder, mailbox, err)
	}
	return nil
}

// Messages iterates over the messages of a folder with UIDs from `from` to `to`, both inclusive, in
// ascending order. The loop body may change and delete messages of the folder.
func (tx *Tx) Messages(mailbox, folder, from, to uint32) iter.Seq[mailrow.Message] {
	return func(yield func(mailrow.Message) bool) {
		first, last := mailrow.MessageKey(mailbox, folder, from), mailrow.MessageKey(mailbox, folder, to)
		var m mailrow.Message
		for k, row := range tx.Ascend(mailrow.BucketMessage, first[:]) {
			if bytes.Compare(k, last[:]) > 0 {
				return
			}
			if err := m.Decode(k, row); err != nil {
				tx.Fail(fmt.Errorf("read message with key %x: %w", k, err))
				return
			}
			if !yield(m) {
				return
			}
		}
	}
}

// EachMessage calls fn for each existing message of a folder with these UIDs, which must be
// ascending, until fn returns false. If structures is true, fn also gets the message's structure. m
// and structure are valid only during the call. Nothing may write to the folder meanwhile.
func (tx *Tx) EachMessage(mailbox, folder uint32, uids []uint32, structures bool, fn func(m *mailrow.Message, structure []byte) bool) error {
	if len(uids) == 0 {
		return nil
	}
	rows, metas := tx.Walk(mailrow.BucketMessage), tx.Walk(mailrow.BucketMeta)
	key := mailrow.MessageKey(mailbox, folder, 0)
	var m mailrow.Message
	var structure []byte
	for _, uid := range uids {
		binary.BigEndian.PutUint32(key[8:], uid)
		row := rows.Get(key[:])
		if row == nil {
			continue
		}
		if err := m.Decode(key[:], row); err != nil {
			return fmt.Errorf("read message with key %x: %w", key, err)
		}
		if structures {
			var err error
			structure, err = tx.structureOf(&m, key[:], metas.Get(key[:]))
			if err != nil {
				return fmt.Errorf("read structure of message with key %x: %w", key, err)
			}
		}
		if !fn(&m, structure) {
			return nil
		}
	}
	return nil
}

// structureOf returns the structure of a message from its meta row, without copying it.
func (tx *Tx) structureOf(m *mailrow.Message, key, meta []byte) ([]byte, error) {
	if meta == nil {
		return nil, engine.ErrNotFound
	}
	row, err := mailrow.OpenMeta(key, meta)
	if err != nil {
		return nil, err
	}
	if row[0] == mailrow.MetaShared {
		at := mailrow.BlobPrefix(m.Blob)
		structure, err := Structure(tx, at[:])
		if structure == nil && err == nil {
			err = engine.ErrDamagedRow
		}
		return structure, err
	}
	structure, _, err := mailrow.CutField(row[1:])
	return structure, err
}

// SetFlags replaces the flags and keywords of a message, and sets m to what is then stored. ModSeq
// increases only if they change. It returns ErrNotFound if the message is gone.
func (tx *Tx) SetFlags(m *mailrow.Message, flags mailrow.Flags, keywords []string) error {
	if !validKeywords(keywords) {
		return ErrKeywords
	}
	now, err := tx.Message(m.Mailbox, m.Folder, m.UID)
	if err != nil {
		return err
	}
	*m = *now
	if m.Flags == flags && slices.Equal(m.Keywords, keywords) {
		return nil
	}
	m.Flags, m.Keywords = flags, slices.Clone(keywords)
	return tx.rewriteMessage(now, m)
}

// SetAnsweredBy stores who answered a message. ModSeq stays, since IMAP clients do not see it.
func (tx *Tx) SetAnsweredBy(m *mailrow.Message, by string) error {
	return tx.changeMeta(m, func(meta *mailrow.Meta) { meta.AnsweredBy = by })
}

// SetDrafted records that a message was in the drafts folder. It returns ErrNotFound if the message
// is gone.
func (tx *Tx) SetDrafted(m *mailrow.Message) error {
	return tx.changeMeta(m, func(meta *mailrow.Meta) { meta.Drafted = "1" })
}

// changeMeta applies change to the meta of a message. change must not touch the structure.
func (tx *Tx) changeMeta(m *mailrow.Message, change func(*mailrow.Meta)) error {
	key := m.Key()
	row := tx.GetRow(mailrow.BucketMeta, key[:])
	if row == nil {
		return fmt.Errorf("read message %d in folder %d of mailbox %d: %w", m.UID, m.Folder, m.Mailbox, engine.ErrNotFound)
	}
	var meta mailrow.Meta
	shared, err := meta.Decode(key[:], row)
	if err != nil {
		return fmt.Errorf("read metadata of message %d in folder %d of mailbox %d: %w", m.UID, m.Folder, m.Mailbox, err)
	}
	change(&meta)
	version := byte(engine.RowVersion)
	if shared {
		version = mailrow.MetaShared
	}
	return tx.PutRow(mailrow.BucketMeta, key[:], mailrow.BucketMeta.Seal(key[:], meta.Row(version)))
}

// SetBits replaces the bits of a message, and sets m to what is then stored. ModSeq increases only
// if they change. It returns ErrNotFound if the message is gone.
func (tx *Tx) SetBits(m *mailrow.Message, bits mailrow.Bits) error {
	now, err := tx.Message(m.Mailbox, m.Folder, m.UID)
	if err != nil {
		return err
	}
	*m = *now
	if m.Bits == bits {
		return nil
	}
	m.Bits = bits
	return tx.rewriteMessage(now, m)
}

// SetTaught sets BitTaughtSpam and BitTaughtHam of a message as in taught, and sets m to what is
// then stored. ModSeq stays, since IMAP clients do not see them.
func (tx *Tx) SetTaught(m *mailrow.Message, taught mailrow.Bits) error {
	now, err := tx.Message(m.Mailbox, m.Folder, m.UID)
	if err != nil {
		return err
	}
	*m = *now
	bits := m.Bits&^(mailrow.BitTaughtSpam|mailrow.BitTaughtHam) | taught
	if m.Bits == bits {
		return nil
	}
	m.Bits = bits
	c, err := tx.readCounters(m.Mailbox, m.Folder)
	if err != nil {
		return err
	}
	return tx.putMessage(m, c.num)
}

// rewriteMessage replaces the stored message `old` by m and sets m.ModSeq. They differ only in
// flags, keywords and bits.
func (tx *Tx) rewriteMessage(old, m *mailrow.Message) error {
	c, err := tx.readCounters(m.Mailbox, m.Folder)
	if err != nil {
		return err
	}
	m.ModSeq = c.nextModSeq()
	c.add(old, -1)
	c.add(m, 1)
	if m.Class() != old.Class() {
		if err := tx.removeFromLists(old, c.num); err != nil {
			return err
		}
	}
	if err := tx.putMessage(m, c.num); err != nil {
		return err
	}
	return tx.putCounters(&c)
}

// removeFromLists deletes the entries that AddToLists wrote.
func (tx *Tx) removeFromLists(m *mailrow.Message, num uint32) error {
	byFolder := mailrow.InboxOfKey(m, num)
	if m.Folder == mailrow.InboxID {
		byAccount := mailrow.InboxKey(m)
		if err := tx.DeleteRow(mailrow.BucketInbox, byAccount[:]); err != nil {
			return err
		}
	}
	return tx.DeleteRow(mailrow.BucketInboxOf, byFolder[:])
}

// DeleteMessage deletes a message. It returns ErrNotFound if the message is gone.
func (tx *Tx) DeleteMessage(mailbox, folder, uid uint32) error {
	m, err := tx.Message(mailbox, folder, uid)
	if err != nil {
		return err
	}
	return tx.removeMessage(m, true)
}

// removeMessage deletes the rows of a stored message, its entries in lists and its reference, and
// updates the counters. If folderStays is true, it records the UID for clients that were offline.
// It is false while the folder itself is being deleted.
func (tx *Tx) removeMessage(m *mailrow.Message, folderStays bool) error {
	c, err := tx.readCounters(m.Mailbox, m.Folder)
	if err != nil {
		return err
	}
	before := c.counts
	c.nextModSeq()
	c.add(m, -1)
	if folderStays {
		tx.recordExpunged(m, before, c.counts.ModSeq)
	}
	key := m.Key()
	if err := tx.DeleteRow(mailrow.BucketMessage, key[:]); err != nil {
		return err
	}
	if err := tx.DeleteRow(mailrow.BucketMeta, key[:]); err != nil {
		return err
	}
	if err := tx.removeFromLists(m, c.num); err != nil {
		return err
	}
	if err := MarkTextGone(tx, m, c.num); err != nil {
		return err
	}
	// A missing reference is no reason to keep the message; Check reports it.
	if err := DropRef(tx, m.Blob, mailrow.MessageOwner(m)); err != nil && !errors.Is(err, engine.ErrNotFound) {
		return err
	}
	if err := AddAccountUsage(tx, m.Account, -1, -int64(m.Blob.Length)); err != nil {
		return err
	}
	return tx.putCounters(&c)
}

// CopyMessage copies a message, as it is stored now, into a folder of its mailbox, which may be the
// message's own folder. It returns the copy, which shares the bytes. It returns ErrNotFound if the
// message or the folder is gone.
func (tx *Tx) CopyMessage(m *mailrow.Message, folder uint32) (*mailrow.Message, error) {
	copies, err := tx.CopyMessages([]*mailrow.Message{m}, folder, 0)
	if err != nil {
		return nil, err
	}
	return copies[0], nil
}

// CopyMessages is CopyMessage for messages of one mailbox. It adds bits to the copies. After an
// error the transaction must fail.
func (tx *Tx) CopyMessages(list []*mailrow.Message, folder uint32, bits mailrow.Bits) (copies []*mailrow.Message, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	c, err := tx.readCounters(list[0].Mailbox, folder)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	for _, m := range list {
		copied, err := tx.Message(m.Mailbox, m.Folder, m.UID)
		if err != nil {
			return nil, err
		}
		meta, err := tx.metaForCopy(copied)
		if err != nil {
			return nil, fmt.Errorf("read metadata of message %d in folder %d of mailbox %d: %w", m.UID, m.Folder, m.Mailbox, err)
		}
		copied.Folder, copied.UID = folder, 0
		copied.Bits |= bits
		if err := tx.insertCounted(&c, copied, meta); err != nil {
			return nil, err
		}
		size += int64(copied.Blob.Length)
		copies = append(copies, copied)
	}
	if err := AddAccountUsage(tx, copies[0].Account, int64(len(copies)), size); err != nil {
		return nil, err
	}
	return copies, tx.putCounters(&c)
}

// metaForCopy returns the meta row of a message for its copy, without the checksum.
func (tx *Tx) metaForCopy(m *mailrow.Message) ([]byte, error) {
	key := m.Key()
	stored := tx.GetRow(mailrow.BucketMeta, key[:])
	if stored == nil {
		return nil, engine.ErrNotFound
	}
	row, err := mailrow.OpenMeta(key[:], stored)
	if err != nil {
		return nil, err
	}
	if row[0] == engine.RowVersion && len(row) > mailrow.MaxOwnStructure { // an old row
		var whole mailrow.Meta
		if _, err := whole.Decode(key[:], stored); err != nil {
			return nil, err
		}
		return MetaRow(tx, m.Blob, &whole)
	}
	return append(make([]byte, 0, len(row)+rowform.SumSize), row...), nil // bbolt owns the row
}
