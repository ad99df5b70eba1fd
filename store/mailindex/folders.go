package mailindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
)

const (
	MaxFolderName = 1000 // bytes
	dropTodos     = 1000 // rows of what is to be indexed that one transaction deletes with a mailbox
	dropGone      = 1000 // rows of removed messages that one transaction deletes with a folder
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

// CreateFolder makes a folder of f's Mailbox, Name, SpecialUse and Subscribed, and sets the rest of
// f. A folder named INBOX, in any case, has the id InboxID. The error is ErrExists where the
// mailbox has the name.
func (tx *Tx) CreateFolder(f *mailrow.Folder) error {
	if f.Name == "" || len(f.Name) > MaxFolderName {
		return ErrFolderName
	}
	name := mailrow.FolderNameKey(f.Mailbox, f.Name)
	if tx.GetRow(mailrow.BucketFolderName, name) != nil {
		return engine.ErrExists
	}
	box, err := MailboxCounts(tx, f.Mailbox)
	if errors.Is(err, engine.ErrNotFound) {
		box = mailrow.MailboxCounts{NextFolder: mailrow.InboxID + 1}
	} else if err != nil {
		return err
	}
	box.Validity = max(box.Validity+1, uint32(tx.Now().Unix()))
	box.ModSeq++
	*f = mailrow.Folder{
		Mailbox: f.Mailbox, Name: string(name[4:]), SpecialUse: f.SpecialUse, Subscribed: f.Subscribed,
		ID: mailrow.InboxID, UIDValidity: box.Validity, UIDNext: 1, ModSeq: box.ModSeq,
	}
	if f.Name != mailrow.InboxName {
		f.ID = box.NextFolder
		box.NextFolder++
	}
	if err := PutMailboxCounts(tx, f.Mailbox, box); err != nil {
		return err
	}
	if err := NumberFolder(tx, f); err != nil {
		return err
	}
	return PutFolder(tx, f)
}

// NumberFolder gives a folder its number.
func NumberFolder(tx *Tx, f *mailrow.Folder) error {
	f.Num = f.Mailbox
	if f.ID == mailrow.InboxID {
		return nil
	}
	n, err := tx.Next(mailrow.BucketFolderNum)
	if err != nil {
		return err
	}
	f.Num = mailrow.FirstFolderNum + uint32(n)
	return PutFolderNum(tx, f)
}

// PutFolderNum notes which folder has a number.
func PutFolderNum(tx *Tx, f *mailrow.Folder) error {
	key, at := binary.BigEndian.AppendUint32(nil, f.Num), mailrow.FolderKey(f.Mailbox, f.ID)
	return tx.PutRow(mailrow.BucketFolderNum, key, at[:])
}

// FolderOfNum gives the mailbox and the id of the folder of a number; zeros if there is none.
func (tx *Tx) FolderOfNum(num uint32) (mailbox, id uint32) {
	if num < mailrow.FirstFolderNum {
		return num, mailrow.InboxID
	}
	at := tx.GetRow(mailrow.BucketFolderNum, binary.BigEndian.AppendUint32(make([]byte, 0, 4), num))
	if len(at) != 8 {
		return 0, 0
	}
	return binary.BigEndian.Uint32(at), binary.BigEndian.Uint32(at[4:])
}

// PutFolder writes a folder and its name.
func PutFolder(tx *Tx, f *mailrow.Folder) error {
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	if err := tx.PutRow(mailrow.BucketFolder, key[:], f.Row()); err != nil {
		return err
	}
	return tx.PutRow(mailrow.BucketFolderName, mailrow.FolderNameKey(f.Mailbox, f.Name), key[4:])
}

// Folders gives all folders of a mailbox, INBOX first, then in the order in which they were made.
func (tx *Tx) Folders(mailbox uint32) ([]*mailrow.Folder, error) {
	var folders []*mailrow.Folder
	from := mailrow.FolderKey(mailbox, 0)
	for k, row := range tx.Ascend(mailrow.BucketFolder, from[:]) {
		if string(k[:4]) != string(from[:4]) {
			break
		}
		f := new(mailrow.Folder)
		if err := f.Decode(k, row); err != nil {
			return nil, fmt.Errorf("folder %x: %w", k, err)
		}
		folders = append(folders, f)
	}
	return folders, nil
}

// Folder returns the folder of the id, or ErrNotFound.
func (tx *Tx) Folder(mailbox, id uint32) (*mailrow.Folder, error) {
	key := mailrow.FolderKey(mailbox, id)
	row := tx.GetRow(mailrow.BucketFolder, key[:])
	if row == nil {
		return nil, fmt.Errorf("folder %d of mailbox %d: %w", id, mailbox, engine.ErrNotFound)
	}
	f := new(mailrow.Folder)
	if err := f.Decode(key[:], row); err != nil {
		return nil, fmt.Errorf("folder %d of mailbox %d: %w", id, mailbox, err)
	}
	return f, nil
}

// FolderByName returns the folder of the name, or ErrNotFound. INBOX is found in any case, other
// names as they were given.
func (tx *Tx) FolderByName(mailbox uint32, name string) (*mailrow.Folder, error) {
	id := tx.GetRow(mailrow.BucketFolderName, mailrow.FolderNameKey(mailbox, name))
	if len(id) != 4 {
		return nil, fmt.Errorf("folder %q of mailbox %d: %w", name, mailbox, engine.ErrNotFound)
	}
	return tx.Folder(mailbox, binary.BigEndian.Uint32(id))
}

// RenameFolder gives the folder another name and what f says of its subscription; its messages,
// UIDs and UIDVALIDITY stay. It returns ErrInbox for INBOX and ErrExists when the mailbox has the
// name. Folders below it by name are the caller's to rename. It makes three writes.
func (tx *Tx) RenameFolder(f *mailrow.Folder, name string) error {
	if name == "" || len(name) > MaxFolderName {
		return ErrFolderName
	}
	now, err := tx.Folder(f.Mailbox, f.ID)
	if err != nil {
		return err
	}
	switch {
	case now.ID == mailrow.InboxID:
		return ErrInbox
	case now.Name == name:
		*f = *now
		return nil
	case tx.GetRow(mailrow.BucketFolderName, mailrow.FolderNameKey(now.Mailbox, name)) != nil:
		return engine.ErrExists
	}
	if err := tx.DeleteRow(mailrow.BucketFolderName, mailrow.FolderNameKey(now.Mailbox, now.Name)); err != nil {
		return err
	}
	now.Name, now.Subscribed = string(mailrow.FolderNameKey(now.Mailbox, name)[4:]), f.Subscribed
	*f = *now
	return PutFolder(tx, f)
}

// SetSubscribed sets whether the folder is in LSUB's list.
func (tx *Tx) SetSubscribed(f *mailrow.Folder, subscribed bool) error {
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
	return PutFolder(tx, f)
}

// AdoptUIDs gives an empty folder the UIDVALIDITY of another server; UIDs begin again at 1.
func (tx *Tx) AdoptUIDs(mailbox, folder, validity uint32) error {
	f, err := tx.Folder(mailbox, folder)
	if err != nil {
		return err
	}
	if f.Messages > 0 {
		return fmt.Errorf("folder %d of mailbox %d has %d messages: %w", folder, mailbox, f.Messages, engine.ErrExists)
	}
	box, err := MailboxCounts(tx, mailbox)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return err
	}
	box.Validity = max(box.Validity, validity)
	f.UIDValidity, f.UIDNext = validity, 1
	if err := PutMailboxCounts(tx, mailbox, box); err != nil {
		return err
	}
	return PutFolder(tx, f)
}

// DeleteFolder deletes up to limit messages of the folder, and the folder with the last of them:
// call it again, in other transactions, until it is done. limit is at least 1. It returns ErrInbox
// for INBOX.
func (tx *Tx) DeleteFolder(mailbox, id uint32, limit int) (done bool, err error) {
	if id == mailrow.InboxID {
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
func (tx *Tx) emptyFolder(f *mailrow.Folder, account uint32, limit int) (done bool, left int, err error) {
	for m := range tx.Messages(f.Mailbox, f.ID, 1, math.MaxUint32) {
		if limit <= 0 {
			return false, 0, nil
		}
		if account != 0 && m.Account != account {
			return false, 0, fmt.Errorf("mailbox %d is of account %d, not %d", f.Mailbox, m.Account, account)
		}
		if err := tx.remove(&m, false); err != nil {
			return false, 0, err
		}
		limit--
	}
	if tx.Err() != nil {
		return false, 0, tx.Err()
	}
	if done, err := tx.dropExpunged(f, dropGone); err != nil || !done {
		return false, 0, err
	}
	if account != 0 && f.ID != mailrow.InboxID {
		if done, err := tx.dropTextTodos(account, f.Num, dropTodos); err != nil || !done {
			return false, 0, err
		}
	}
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	if err := tx.DeleteRow(mailrow.BucketFolder, key[:]); err != nil {
		return false, 0, err
	}
	if f.ID != mailrow.InboxID {
		if err := tx.DeleteRow(mailrow.BucketFolderNum, binary.BigEndian.AppendUint32(nil, f.Num)); err != nil {
			return false, 0, err
		}
	}
	return true, limit, tx.DeleteRow(mailrow.BucketFolderName, mailrow.FolderNameKey(f.Mailbox, f.Name))
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
		done, limit, err = tx.emptyFolder(f, account, limit)
		if err != nil || !done {
			return false, err
		}
	}
	done, err = tx.dropTextTodos(account, mailbox, dropTodos)
	if err != nil || !done {
		return false, err
	}
	if err := tx.dropSubscriptions(mailbox); err != nil {
		return false, err
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	return true, tx.DeleteRow(mailrow.BucketMailbox, key[:])
}

// Usage is what an account or a mailbox holds.
type Usage struct {
	Messages int64 // in all folders
	Bytes    int64 // of their messages, headers included; a message in two folders counts twice
	Unseen   int64 // messages of INBOX that are not seen; 0 in what AccountUsage gives
}

// mailboxRow returns the row of a mailbox, or ErrNotFound if it has never had a folder.
func MailboxCounts(tx *Tx, mailbox uint32) (r mailrow.MailboxCounts, err error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	row := tx.GetRow(mailrow.BucketMailbox, key[:])
	if row == nil {
		return r, fmt.Errorf("folders of mailbox %d: %w", mailbox, engine.ErrNotFound)
	}
	if err := r.Decode(key[:], row); err != nil {
		return r, fmt.Errorf("counters of mailbox %d: %w", mailbox, err)
	}
	return r, nil
}

func PutMailboxCounts(tx *Tx, mailbox uint32, r mailrow.MailboxCounts) error {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	return tx.PutRow(mailrow.BucketMailbox, key[:], r.Row(key[:]))
}

// MailboxUsage gives what a mailbox holds; zeros for one without folders.
func (tx *Tx) MailboxUsage(mailbox uint32) (Usage, error) {
	box, err := MailboxCounts(tx, mailbox)
	if errors.Is(err, engine.ErrNotFound) {
		return Usage{}, nil
	}
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Messages: box.Messages, Bytes: box.Bytes}
	var inbox mailrow.FolderCounts
	key := mailrow.FolderKey(mailbox, mailrow.InboxID)
	if row := tx.GetRow(mailrow.BucketFolder, key[:]); row != nil {
		_, err = inbox.Get(key[:], row)
		u.Unseen = int64(inbox.Unseen)
	}
	return u, err
}

// An account row: messages 8 | bytes 8 | received ms 8 of what arrived last, where anything has.
const (
	accountRowSize    = 16
	accountRowArrived = 24
)

// AccountUsage gives what all mailboxes of an account hold; zeros for one without messages.
func (tx *Tx) AccountUsage(account uint32) (Usage, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	row := tx.GetRow(mailrow.BucketAccount, key[:])
	if row == nil {
		return Usage{}, nil
	}
	if len(row) != accountRowSize && len(row) != accountRowArrived {
		return Usage{}, fmt.Errorf("counters of account %d: %w", account, engine.ErrDamagedRow)
	}
	return Usage{
		Messages: int64(binary.BigEndian.Uint64(row)),
		Bytes:    int64(binary.BigEndian.Uint64(row[8:])),
	}, nil
}

func AddAccountUsage(tx *Tx, account uint32, messages, bytes int64) error {
	u, err := tx.AccountUsage(account)
	if err != nil {
		return err
	}
	last, err := tx.LastArrived(account)
	if err != nil {
		return err
	}
	u.Messages, u.Bytes = u.Messages+messages, u.Bytes+bytes
	return tx.putAccount(account, u, last)
}

// putAccount writes an account row. One without messages stays where mail has arrived, so that what
// arrives next is later.
func (tx *Tx) putAccount(account uint32, u Usage, last time.Time) error {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	if u.Messages == 0 && u.Bytes == 0 && last.IsZero() {
		return tx.DeleteRow(mailrow.BucketAccount, key[:])
	}
	row := make([]byte, 0, accountRowArrived)
	row = binary.BigEndian.AppendUint64(row, uint64(u.Messages))
	row = binary.BigEndian.AppendUint64(row, uint64(u.Bytes))
	if !last.IsZero() {
		row = binary.BigEndian.AppendUint64(row, uint64(last.UnixMilli()))
	}
	return tx.PutRow(mailrow.BucketAccount, key[:], row)
}

// LastArrived is when the newest message of an account arrived, zero if none has; see Arrive.
func (tx *Tx) LastArrived(account uint32) (time.Time, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	row := tx.GetRow(mailrow.BucketAccount, key[:])
	switch len(row) {
	case 0, accountRowSize:
		return time.Time{}, nil
	case accountRowArrived:
		return mailrow.MsTime(binary.BigEndian.Uint64(row[accountRowSize:])), nil
	}
	return time.Time{}, fmt.Errorf("counters of account %d: %w", account, engine.ErrDamagedRow)
}

// Arrive gives the time of a message that arrives in an account: now, and later than `after` and
// than that of each message that arrived before, whatever the clock does. So whoever has seen all
// up to one of these times misses nothing by looking only behind it.
func (tx *Tx) Arrive(account uint32, after time.Time) (time.Time, error) {
	u, err := tx.AccountUsage(account)
	if err != nil {
		return time.Time{}, err
	}
	last, err := tx.LastArrived(account)
	if err != nil {
		return time.Time{}, err
	}
	if after.After(last) {
		last = after
	}
	at := mailrow.Storable(tx.Now())
	if !at.After(last) {
		at = mailrow.Storable(last).Add(time.Millisecond)
	}
	return at, tx.putAccount(account, u, at)
}

// counters are those that every change to a message of a folder moves.
type counters struct {
	mailbox, folder uint32
	num             uint32 // of the folder
	row             []byte // of the folder, without its checksum
	in              mailrow.FolderCounts
	box             mailrow.MailboxCounts
}

func (tx *Tx) counters(mailbox, folder uint32) (c counters, err error) {
	c.mailbox, c.folder = mailbox, folder
	key := mailrow.FolderKey(mailbox, folder)
	c.row = tx.GetRow(mailrow.BucketFolder, key[:])
	if c.row == nil {
		return c, fmt.Errorf("folder %d of mailbox %d: %w", folder, mailbox, engine.ErrNotFound)
	}
	c.row, err = c.in.Get(key[:], c.row)
	if err != nil {
		return c, fmt.Errorf("folder %d of mailbox %d: %w", folder, mailbox, err)
	}
	c.num = mailbox
	if folder != mailrow.InboxID {
		var f mailrow.Folder
		if err := f.Decode(key[:], tx.GetRow(mailrow.BucketFolder, key[:])); err != nil {
			return c, fmt.Errorf("folder %d of mailbox %d: %w", folder, mailbox, err)
		}
		c.num = f.Num
	}
	c.box, err = MailboxCounts(tx, mailbox)
	return c, err
}

// change counts one change to the mailbox, and gives its MODSEQ.
func (c *counters) change() uint64 {
	c.box.ModSeq++
	c.in.ModSeq = c.box.ModSeq
	return c.box.ModSeq
}

// add counts a message in, or, with sign -1, out.
func (c *counters) add(m *mailrow.Message, sign int) {
	size := int64(sign) * int64(m.Blob.Length)
	c.in.Messages += uint32(sign)
	c.in.Bytes += size
	c.box.Messages += int64(sign)
	c.box.Bytes += size
	if m.Flags&mailrow.FlagSeen == 0 {
		c.in.Unseen += uint32(sign)
	}
}

func (tx *Tx) putCounters(c *counters) error {
	if c.folder == mailrow.InboxID {
		tx.recordInboxChange(c.mailbox)
	}
	key := mailrow.FolderKey(c.mailbox, c.folder)
	row := append(make([]byte, 0, len(c.row)+rowform.SumSize), c.row...)
	row[0] = engine.RowVersion
	c.in.Put(row)
	if err := tx.PutRow(mailrow.BucketFolder, key[:], mailrow.BucketFolder.Seal(key[:], row)); err != nil {
		return err
	}
	return PutMailboxCounts(tx, c.mailbox, c.box)
}

// InboxName is the Table of a Change of messages in the INBOX of a mailbox, whose id its ID is.
const InboxName = "inbox"

// recordInboxChange remembers that messages in the INBOX of a mailbox have changed. One that is
// being dropped has no record any more, and nobody who would look at it.
func (tx *Tx) recordInboxChange(mailbox uint32) {
	if mailbox == tx.inboxRecorded || !tx.Observed() {
		return
	}
	if account, id := tx.index.InboxOf(tx.Tx, mailbox); id != "" {
		tx.inboxRecorded = mailbox
		tx.RecordChange(engine.Change{Table: InboxName, Account: account, ID: id})
	}
}

// Subscriptions are how the names that a mailbox is subscribed to although it has no folders of
// them were kept, as one record; IMAP keeps such names (RFC 3501 section 6.3.6). Today each is a
// row of bktSubscribed, and a record becomes rows when one of its mailbox's names changes.
type Subscriptions struct {
	Mailbox uint32 // number
	Names   []string
}

// SubscribedNames keeps what has not become rows yet, by SubscriptionsID.
var SubscribedNames = engine.NewTable("subscribed_names", func(s *Subscriptions) string { return SubscriptionsID(s.Mailbox) })

// SubscriptionsID is the id of a mailbox's Subscriptions.
func SubscriptionsID(mailbox uint32) string { return strconv.FormatUint(uint64(mailbox), 10) }

// Subscribed gives the names that the mailbox is subscribed to and has no folders of, in their
// order.
func (tx *Tx) Subscribed(mailbox uint32) (names []string, err error) {
	old, err := SubscribedNames.FindShared(tx, SubscriptionsID(mailbox))
	if err != nil {
		return nil, err
	}
	if old != nil {
		names = slices.Clone(old.Names)
	}
	prefix := subscribedKey(mailbox, "")
	for k := range tx.Ascend(mailrow.BucketSubscribed, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		names = append(names, string(k[len(prefix):]))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// SetNameSubscribed keeps or forgets the subscription of a name.
func (tx *Tx) SetNameSubscribed(mailbox uint32, name string, subscribed bool) error {
	if err := tx.MoveSubscriptions(mailbox); err != nil {
		return err
	}
	key := subscribedKey(mailbox, name)
	switch has := tx.HasRow(mailrow.BucketSubscribed, key); {
	case subscribed && !has:
		return tx.PutRow(mailrow.BucketSubscribed, key, nil)
	case !subscribed && has:
		return tx.DeleteRow(mailrow.BucketSubscribed, key)
	}
	return nil
}

// MoveSubscriptions makes rows of a record of before, which had a thousand names at most.
func (tx *Tx) MoveSubscriptions(mailbox uint32) error {
	old, err := SubscribedNames.FindShared(tx, SubscriptionsID(mailbox))
	if old == nil || err != nil {
		return err
	}
	for _, name := range old.Names {
		if err := tx.PutRow(mailrow.BucketSubscribed, subscribedKey(mailbox, name), nil); err != nil {
			return err
		}
	}
	return SubscribedNames.Delete(tx, SubscriptionsID(mailbox))
}

// dropSubscriptions forgets all names of a mailbox.
func (tx *Tx) dropSubscriptions(mailbox uint32) error {
	names, err := tx.Subscribed(mailbox)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := tx.SetNameSubscribed(mailbox, name, false); err != nil {
			return err
		}
	}
	return nil
}

func subscribedKey(mailbox uint32, name string) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}

// CountMessages counts those in all mailboxes.
func CountMessages(tx *Tx) (n int64, err error) {
	for k, v := range tx.Ascend(mailrow.BucketAccount, nil) {
		if len(v) != accountRowSize && len(v) != accountRowArrived {
			return 0, fmt.Errorf("counts of account %x: %w", k, engine.ErrDamagedRow)
		}
		n += int64(binary.BigEndian.Uint64(v))
	}
	return n, nil
}
