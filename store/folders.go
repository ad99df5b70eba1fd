package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// InboxID is the folder id of INBOX in every mailbox.
const InboxID = 1

const (
	inboxName     = "INBOX"
	maxFolderName = 1000 // bytes
	dropTodos     = 1000 // rows of what is to be indexed that one transaction deletes with a mailbox
)

var (
	// ErrInbox is returned for a rename or deletion of INBOX, which every mailbox keeps.
	ErrInbox = errors.New("INBOX stays")
	// ErrFolderName is returned for an empty folder name and for one over 1000 bytes.
	ErrFolderName = errors.New("not a folder name")
	// ErrFolderFull is returned by an insertion into a folder that has given out all of its 2³² - 1
	// UIDs.
	ErrFolderFull = errors.New("the folder has no UIDs left")
)

// A Folder is one folder of a mailbox as IMAP sees it, INBOX among them.
type Folder struct {
	Mailbox     uint32 // the mailbox's number
	ID          uint32 // from 1 in each mailbox, never used again
	Name        string // UTF-8, at most 1000 bytes
	SpecialUse  string // RFC 6154 attribute such as \Sent, or ""
	Subscribed  bool
	UIDValidity uint32 // RFC 3501 section 2.3.1.1; rises within a mailbox, so that a name that comes again has another one
	UIDNext     uint32
	ModSeq      uint64 // RFC 7162 HIGHESTMODSEQ
	Messages    uint32
	Unseen      uint32 // messages without FlagSeen
	Bytes       int64
}

// A folder row: version 1 | subscribed 1 | validity 4 | counters 28 | name, special use, each
// length uvarint and text.
const folderRowHead = 34

// folderCounts is what changes in a folder with its messages: uidnext 4 | modseq 8 | messages 4 |
// unseen 4 | bytes 8.
type folderCounts struct {
	uidNext  uint32
	modSeq   uint64
	messages uint32
	unseen   uint32
	bytes    int64
}

func (c *folderCounts) put(row []byte) {
	binary.BigEndian.PutUint32(row[6:], c.uidNext)
	binary.BigEndian.PutUint64(row[10:], c.modSeq)
	binary.BigEndian.PutUint32(row[18:], c.messages)
	binary.BigEndian.PutUint32(row[22:], c.unseen)
	binary.BigEndian.PutUint64(row[26:], uint64(c.bytes))
}

func (c *folderCounts) get(row []byte) error {
	if len(row) < folderRowHead || row[0] != rowVersion {
		return errDamagedRow
	}
	c.uidNext = binary.BigEndian.Uint32(row[6:])
	c.modSeq = binary.BigEndian.Uint64(row[10:])
	c.messages = binary.BigEndian.Uint32(row[18:])
	c.unseen = binary.BigEndian.Uint32(row[22:])
	c.bytes = int64(binary.BigEndian.Uint64(row[26:]))
	return nil
}

func folderKey(mailbox, id uint32) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], id)
	return key
}

func (f *Folder) row() []byte {
	b := make([]byte, folderRowHead, folderRowHead+4+len(f.Name)+len(f.SpecialUse))
	b[0] = rowVersion
	if f.Subscribed {
		b[1] = 1
	}
	binary.BigEndian.PutUint32(b[2:], f.UIDValidity)
	c := folderCounts{f.UIDNext, f.ModSeq, f.Messages, f.Unseen, f.Bytes}
	c.put(b)
	b = binary.AppendUvarint(b, uint64(len(f.Name)))
	b = append(b, f.Name...)
	b = binary.AppendUvarint(b, uint64(len(f.SpecialUse)))
	return append(b, f.SpecialUse...)
}

func (f *Folder) decode(key, row []byte) error {
	var c folderCounts
	if len(key) != 8 || c.get(row) != nil {
		return errDamagedRow
	}
	name, rest, err := cutField(row[folderRowHead:])
	if err != nil {
		return err
	}
	use, rest, err := cutField(rest)
	if err != nil || len(rest) > 0 || row[1] > 1 {
		return errDamagedRow
	}
	*f = Folder{
		Mailbox:     binary.BigEndian.Uint32(key),
		ID:          binary.BigEndian.Uint32(key[4:]),
		Name:        string(name),
		SpecialUse:  string(use),
		Subscribed:  row[1] == 1,
		UIDValidity: binary.BigEndian.Uint32(row[2:]),
		UIDNext:     c.uidNext,
		ModSeq:      c.modSeq,
		Messages:    c.messages,
		Unseen:      c.unseen,
		Bytes:       c.bytes,
	}
	return nil
}

// folderName is the key of a name: INBOX is the same in any case (RFC 3501 section 5.1).
func folderName(mailbox uint32, name string) []byte {
	if strings.EqualFold(name, inboxName) {
		name = inboxName
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}

// CreateFolder makes a folder of f's Mailbox, Name, SpecialUse and Subscribed, and sets the rest of
// f. A folder named INBOX, in any case, has the id InboxID. The error is ErrExists where the
// mailbox has the name.
func (tx *Tx) CreateFolder(f *Folder) error {
	if f.Name == "" || len(f.Name) > maxFolderName {
		return ErrFolderName
	}
	name := folderName(f.Mailbox, f.Name)
	if tx.getRow(bktFolderName, name) != nil {
		return ErrExists
	}
	box, err := tx.mailboxRow(f.Mailbox)
	if errors.Is(err, ErrNotFound) {
		box = mailboxRow{nextFolder: InboxID + 1}
	} else if err != nil {
		return err
	}
	box.validity = max(box.validity+1, uint32(tx.Now().Unix()))
	box.modSeq++
	*f = Folder{
		Mailbox: f.Mailbox, Name: string(name[4:]), SpecialUse: f.SpecialUse, Subscribed: f.Subscribed,
		ID: InboxID, UIDValidity: box.validity, UIDNext: 1, ModSeq: box.modSeq,
	}
	if f.Name != inboxName {
		f.ID = box.nextFolder
		box.nextFolder++
	}
	if err := tx.putMailbox(f.Mailbox, box); err != nil {
		return err
	}
	return tx.putFolder(f)
}

// putFolder writes a folder and its name.
func (tx *Tx) putFolder(f *Folder) error {
	key := folderKey(f.Mailbox, f.ID)
	if err := tx.putRow(bktFolder, key[:], f.row()); err != nil {
		return err
	}
	return tx.putRow(bktFolderName, folderName(f.Mailbox, f.Name), key[4:])
}

// Folders gives all folders of a mailbox, INBOX first, then in the order in which they were made.
func (tx *Tx) Folders(mailbox uint32) ([]*Folder, error) {
	var folders []*Folder
	from := folderKey(mailbox, 0)
	for k, row := range tx.ascend(tx.messageBucket(bktFolder), from[:]) {
		if string(k[:4]) != string(from[:4]) {
			break
		}
		f := new(Folder)
		if err := f.decode(k, row); err != nil {
			return nil, fmt.Errorf("folder %x: %w", k, err)
		}
		folders = append(folders, f)
	}
	return folders, nil
}

// Folder returns the folder of the id, or ErrNotFound.
func (tx *Tx) Folder(mailbox, id uint32) (*Folder, error) {
	key := folderKey(mailbox, id)
	row := tx.getRow(bktFolder, key[:])
	if row == nil {
		return nil, fmt.Errorf("folder %d of mailbox %d: %w", id, mailbox, ErrNotFound)
	}
	f := new(Folder)
	if err := f.decode(key[:], row); err != nil {
		return nil, fmt.Errorf("folder %d of mailbox %d: %w", id, mailbox, err)
	}
	return f, nil
}

// FolderByName returns the folder of the name, or ErrNotFound. INBOX is found in any case, other
// names as they were given.
func (tx *Tx) FolderByName(mailbox uint32, name string) (*Folder, error) {
	id := tx.getRow(bktFolderName, folderName(mailbox, name))
	if len(id) != 4 {
		return nil, fmt.Errorf("folder %q of mailbox %d: %w", name, mailbox, ErrNotFound)
	}
	return tx.Folder(mailbox, binary.BigEndian.Uint32(id))
}

// RenameFolder gives the folder another name and what f says of its subscription; its messages,
// UIDs and UIDVALIDITY stay. It returns ErrInbox for INBOX and ErrExists when the mailbox has the
// name. Folders below it by name are the caller's to rename. It makes three writes.
func (tx *Tx) RenameFolder(f *Folder, name string) error {
	if name == "" || len(name) > maxFolderName {
		return ErrFolderName
	}
	now, err := tx.Folder(f.Mailbox, f.ID)
	if err != nil {
		return err
	}
	switch {
	case now.ID == InboxID:
		return ErrInbox
	case now.Name == name:
		*f = *now
		return nil
	case tx.getRow(bktFolderName, folderName(now.Mailbox, name)) != nil:
		return ErrExists
	}
	if err := tx.deleteRow(bktFolderName, folderName(now.Mailbox, now.Name)); err != nil {
		return err
	}
	now.Name, now.Subscribed = string(folderName(now.Mailbox, name)[4:]), f.Subscribed
	*f = *now
	return tx.putFolder(f)
}

// SetSubscribed sets whether the folder is in LSUB's list.
func (tx *Tx) SetSubscribed(f *Folder, subscribed bool) error {
	now, err := tx.Folder(f.Mailbox, f.ID)
	if err != nil {
		return err
	}
	changed := now.Subscribed != subscribed
	now.Subscribed = subscribed
	*f = *now
	if !changed {
		return nil
	}
	return tx.putFolder(f)
}

// DeleteFolder deletes up to limit messages of the folder, and the folder with the last of them:
// call it again, in other transactions, until it is done. limit is at least 1. It returns ErrInbox
// for INBOX.
func (tx *Tx) DeleteFolder(mailbox, id uint32, limit int) (done bool, err error) {
	if id == InboxID {
		return false, ErrInbox
	}
	f, err := tx.Folder(mailbox, id)
	if err != nil {
		return false, err
	}
	done, _, err = tx.emptyFolder(f, 0, limit)
	return done, err
}

// emptyFolder deletes up to limit messages of the folder, and the folder once it has none. It says
// how many of limit are left. A message of another account than the given one ends it, unless that
// is 0.
func (tx *Tx) emptyFolder(f *Folder, account uint32, limit int) (done bool, left int, err error) {
	for m := range tx.Messages(f.Mailbox, f.ID, 1, math.MaxUint32) {
		if limit <= 0 {
			return false, 0, nil
		}
		if account != 0 && m.Account != account {
			return false, 0, fmt.Errorf("mailbox %d is of account %d, not %d", f.Mailbox, m.Account, account)
		}
		if err := tx.remove(&m); err != nil {
			return false, 0, err
		}
		limit--
	}
	if tx.err != nil {
		return false, 0, tx.err
	}
	key := folderKey(f.Mailbox, f.ID)
	if err := tx.deleteRow(bktFolder, key[:]); err != nil {
		return false, 0, err
	}
	return true, limit, tx.deleteRow(bktFolderName, folderName(f.Mailbox, f.Name))
}

// DropMailbox deletes up to limit messages of the account's mailbox, and its folders with the last
// of them: call it again, in other transactions, until it is done. limit is at least 1. Dropping
// what is not there is done at once.
func (tx *Tx) DropMailbox(account, mailbox uint32, limit int) (done bool, err error) {
	folders, err := tx.Folders(mailbox)
	if err != nil {
		return false, err
	}
	for _, f := range folders {
		if done, limit, err = tx.emptyFolder(f, account, limit); err != nil || !done {
			return false, err
		}
	}
	if done, err = tx.dropTextTodos(account, mailbox, dropTodos); err != nil || !done {
		return false, err
	}
	if err := tx.dropSubscriptions(mailbox); err != nil {
		return false, err
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	return true, tx.deleteRow(bktMailbox, key[:])
}
