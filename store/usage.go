package store

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Usage is what an account or a mailbox holds.
type Usage struct {
	Messages int64 // in all folders
	Bytes    int64 // of their messages, headers included; a message in two folders counts twice
	Unseen   int64 // messages of INBOX that are not seen; 0 in what AccountUsage gives
}

// mailboxRow is what changes in a mailbox with its messages: version 1 | next folder 4 | validity 4
// | modseq 8 | messages 8 | bytes 8.
type mailboxRow struct {
	nextFolder uint32 // id of the next folder
	validity   uint32 // the newest UIDVALIDITY
	modSeq     uint64 // of the newest change
	messages   int64
	bytes      int64
}

const mailboxRowSize = 33

func (r *mailboxRow) row() []byte {
	b := append(make([]byte, 0, mailboxRowSize), rowVersion)
	b = binary.BigEndian.AppendUint32(b, r.nextFolder)
	b = binary.BigEndian.AppendUint32(b, r.validity)
	b = binary.BigEndian.AppendUint64(b, r.modSeq)
	b = binary.BigEndian.AppendUint64(b, uint64(r.messages))
	return binary.BigEndian.AppendUint64(b, uint64(r.bytes))
}

func (r *mailboxRow) decode(b []byte) error {
	if len(b) != mailboxRowSize || b[0] != rowVersion {
		return errDamagedRow
	}
	r.nextFolder = binary.BigEndian.Uint32(b[1:])
	r.validity = binary.BigEndian.Uint32(b[5:])
	r.modSeq = binary.BigEndian.Uint64(b[9:])
	r.messages = int64(binary.BigEndian.Uint64(b[17:]))
	r.bytes = int64(binary.BigEndian.Uint64(b[25:]))
	return nil
}

// mailboxRow returns the row of a mailbox, or ErrNotFound if it has never had a folder.
func (tx *Tx) mailboxRow(mailbox uint32) (r mailboxRow, err error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	row := tx.getRow(bktMailbox, key[:])
	if row == nil {
		return r, fmt.Errorf("folders of mailbox %d: %w", mailbox, ErrNotFound)
	}
	if err := r.decode(row); err != nil {
		return r, fmt.Errorf("counters of mailbox %d: %w", mailbox, err)
	}
	return r, nil
}

func (tx *Tx) putMailbox(mailbox uint32, r mailboxRow) error {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	return tx.putRow(bktMailbox, key[:], r.row())
}

// MailboxUsage gives what a mailbox holds; zeros for one without folders.
func (tx *Tx) MailboxUsage(mailbox uint32) (Usage, error) {
	box, err := tx.mailboxRow(mailbox)
	if errors.Is(err, ErrNotFound) {
		return Usage{}, nil
	}
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Messages: box.messages, Bytes: box.bytes}
	var inbox folderCounts
	key := folderKey(mailbox, InboxID)
	if row := tx.getRow(bktFolder, key[:]); row != nil {
		err = inbox.get(row)
		u.Unseen = int64(inbox.unseen)
	}
	return u, err
}

// An account row: messages 8 | bytes 8.
const accountRowSize = 16

// AccountUsage gives what all mailboxes of an account hold; zeros for one without messages.
func (tx *Tx) AccountUsage(account uint32) (Usage, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	row := tx.getRow(bktAccount, key[:])
	if row == nil {
		return Usage{}, nil
	}
	if len(row) != accountRowSize {
		return Usage{}, fmt.Errorf("counters of account %d: %w", account, errDamagedRow)
	}
	return Usage{
		Messages: int64(binary.BigEndian.Uint64(row)),
		Bytes:    int64(binary.BigEndian.Uint64(row[8:])),
	}, nil
}

func (tx *Tx) addAccountUsage(account uint32, messages, bytes int64) error {
	u, err := tx.AccountUsage(account)
	if err != nil {
		return err
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	if u.Messages+messages == 0 && u.Bytes+bytes == 0 {
		return tx.deleteRow(bktAccount, key[:])
	}
	row := make([]byte, 0, accountRowSize)
	row = binary.BigEndian.AppendUint64(row, uint64(u.Messages+messages))
	row = binary.BigEndian.AppendUint64(row, uint64(u.Bytes+bytes))
	return tx.putRow(bktAccount, key[:], row)
}

// counters are those that every change to a message of a folder moves.
type counters struct {
	mailbox, folder uint32
	row             []byte // of the folder
	in              folderCounts
	box             mailboxRow
}

func (tx *Tx) counters(mailbox, folder uint32) (c counters, err error) {
	c.mailbox, c.folder = mailbox, folder
	key := folderKey(mailbox, folder)
	if c.row = tx.getRow(bktFolder, key[:]); c.row == nil {
		return c, fmt.Errorf("folder %d of mailbox %d: %w", folder, mailbox, ErrNotFound)
	}
	if err := c.in.get(c.row); err != nil {
		return c, fmt.Errorf("folder %d of mailbox %d: %w", folder, mailbox, err)
	}
	c.box, err = tx.mailboxRow(mailbox)
	return c, err
}

// change counts one change to the mailbox, and gives its MODSEQ.
func (c *counters) change() uint64 {
	c.box.modSeq++
	c.in.modSeq = c.box.modSeq
	return c.box.modSeq
}

// add counts a message in, or, with sign -1, out.
func (c *counters) add(m *Message, sign int) {
	size := int64(sign) * int64(m.Blob.Length)
	c.in.messages += uint32(sign)
	c.in.bytes += size
	c.box.messages += int64(sign)
	c.box.bytes += size
	if m.Flags&FlagSeen == 0 {
		c.in.unseen += uint32(sign)
	}
}

func (tx *Tx) putCounters(c *counters) error {
	if c.folder == InboxID {
		tx.recordInboxChange(c.mailbox)
	}
	key := folderKey(c.mailbox, c.folder)
	row := append(make([]byte, 0, len(c.row)), c.row...)
	c.in.put(row)
	if err := tx.putRow(bktFolder, key[:], row); err != nil {
		return err
	}
	return tx.putMailbox(c.mailbox, c.box)
}
