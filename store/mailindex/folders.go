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
	MaxFolderName     = 1000 // bytes
	todoRowsPerTx     = 1000 // text-todo rows that one transaction deletes with a mailbox or folder
	expungedRowsPerTx = 1000 // expunged rows that one transaction deletes with a folder
)

var (
	// ErrInbox is returned for renaming or deleting INBOX, which every mailbox must have.
	ErrInbox = errors.New("INBOX cannot be renamed or deleted")
	// ErrFolderName is returned for a folder name that is empty or longer than MaxFolderName bytes.
	ErrFolderName = errors.New("folder name is empty or too long")
	// ErrFolderFull is returned when a folder has used all of its 2³² - 1 UIDs.
	ErrFolderFull = errors.New("the folder has no UIDs left")
)

// CreateFolder creates a folder from f's Mailbox, Name, SpecialUse and Subscribed, and sets the
// other fields of f. A folder named INBOX, in upper or lower case, gets the id InboxID. The error
// is ErrExists if the mailbox has a folder of that name.
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
	if err := AssignFolderNum(tx, f); err != nil {
		return err
	}
	return PutFolder(tx, f)
}

// AssignFolderNum assigns f.Num: the mailbox's number for INBOX, a new number otherwise.
func AssignFolderNum(tx *Tx, f *mailrow.Folder) error {
	f.Num = f.Mailbox
	if f.ID == mailrow.InboxID {
		return nil
	}
	n, err := tx.NextSequence(mailrow.BucketFolderNum)
	if err != nil {
		return err
	}
	f.Num = mailrow.FirstFolderNum + uint32(n)
	return PutFolderNum(tx, f)
}

// PutFolderNum writes the row that maps f.Num to the folder.
func PutFolderNum(tx *Tx, f *mailrow.Folder) error {
	key, at := binary.BigEndian.AppendUint32(nil, f.Num), mailrow.FolderKey(f.Mailbox, f.ID)
	return tx.PutRow(mailrow.BucketFolderNum, key, at[:])
}

// FolderOfNum returns the mailbox and the id of the folder with the number; zeros if there is none.
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

// PutFolder writes the rows of a folder and of its name.
func PutFolder(tx *Tx, f *mailrow.Folder) error {
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	if err := tx.PutRow(mailrow.BucketFolder, key[:], f.Row()); err != nil {
		return err
	}
	return tx.PutRow(mailrow.BucketFolderName, mailrow.FolderNameKey(f.Mailbox, f.Name), key[4:])
}

// Folders returns all folders of a mailbox, INBOX first, then in the order of their creation.
func (tx *Tx) Folders(mailbox uint32) ([]*mailrow.Folder, error) {
	var folders []*mailrow.Folder
	from := mailrow.FolderKey(mailbox, 0)
	for k, row := range tx.Ascend(mailrow.BucketFolder, from[:]) {
		if string(k[:4]) != string(from[:4]) {
			break
		}
		f := new(mailrow.Folder)
		if err := f.Decode(k, row); err != nil {
			return nil, fmt.Errorf("read folder with key %x: %w", k, err)
		}
		folders = append(folders, f)
	}
	return folders, nil
}

// Folder returns the folder with the id, or ErrNotFound.
func (tx *Tx) Folder(mailbox, id uint32) (*mailrow.Folder, error) {
	key := mailrow.FolderKey(mailbox, id)
	row := tx.GetRow(mailrow.BucketFolder, key[:])
	if row == nil {
		return nil, fmt.Errorf("read folder %d of mailbox %d: %w", id, mailbox, engine.ErrNotFound)
	}
	f := new(mailrow.Folder)
	if err := f.Decode(key[:], row); err != nil {
		return nil, fmt.Errorf("read folder %d of mailbox %d: %w", id, mailbox, err)
	}
	return f, nil
}

// FolderByName returns the folder with the name, or ErrNotFound. The case of letters matters,
// except for INBOX.
func (tx *Tx) FolderByName(mailbox uint32, name string) (*mailrow.Folder, error) {
	id := tx.GetRow(mailrow.BucketFolderName, mailrow.FolderNameKey(mailbox, name))
	if len(id) != 4 {
		return nil, fmt.Errorf("read folder %q of mailbox %d: %w", name, mailbox, engine.ErrNotFound)
	}
	return tx.Folder(mailbox, binary.BigEndian.Uint32(id))
}

// RenameFolder renames a folder and sets its subscription to f.Subscribed. Its messages, UIDs and
// UIDVALIDITY stay. It sets f to the stored folder. It returns ErrInbox for INBOX and ErrExists if
// the mailbox has a folder of that name. It does not rename folders below it in the hierarchy. It
// makes three writes.
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

// SetSubscribed sets whether the folder is subscribed, as IMAP's LSUB lists, and sets f to the
// stored folder.
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

// AdoptUIDValidity gives an empty folder the UIDVALIDITY of another server. UIDs start at 1 again.
// The error is ErrExists if the folder has messages.
func (tx *Tx) AdoptUIDValidity(mailbox, folder, validity uint32) error {
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

// DeleteFolder deletes up to limit messages of the folder, and the folder itself with the last of
// them. Call it in new transactions until done is true. limit is at least 1. It returns ErrInbox
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

// emptyFolder deletes up to limit messages of the folder, and the folder once it is empty. left is
// how many more messages may be deleted. If account is not 0, a message of another account is an
// error.
func (tx *Tx) emptyFolder(f *mailrow.Folder, account uint32, limit int) (done bool, left int, err error) {
	for m := range tx.Messages(f.Mailbox, f.ID, 1, math.MaxUint32) {
		if limit <= 0 {
			return false, 0, nil
		}
		if account != 0 && m.Account != account {
			return false, 0, fmt.Errorf("mailbox %d has a message of account %d, not of %d", f.Mailbox, m.Account, account)
		}
		if err := tx.removeMessage(&m, false); err != nil {
			return false, 0, err
		}
		limit--
	}
	if tx.Err() != nil {
		return false, 0, tx.Err()
	}
	if done, err := tx.dropExpunged(f, expungedRowsPerTx); err != nil || !done {
		return false, 0, err
	}
	if account != 0 && f.ID != mailrow.InboxID {
		if done, err := tx.dropTextTodos(account, f.Num, todoRowsPerTx); err != nil || !done {
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
// of them. Call it in new transactions until done is true. limit is at least 1. For a mailbox that
// does not exist, done is true at once.
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
	done, err = tx.dropTextTodos(account, mailbox, todoRowsPerTx)
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

// Usage counts the messages of an account or a mailbox.
type Usage struct {
	Messages int64 // in all folders
	Bytes    int64 // size of all messages, headers included; a message in two folders counts twice
	Unseen   int64 // unseen messages of INBOX; always 0 from AccountUsage
}

// MailboxCounts returns the counters of a mailbox, or ErrNotFound if it never had a folder.
func MailboxCounts(tx *Tx, mailbox uint32) (r mailrow.MailboxCounts, err error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	row := tx.GetRow(mailrow.BucketMailbox, key[:])
	if row == nil {
		return r, fmt.Errorf("read counters of mailbox %d: %w", mailbox, engine.ErrNotFound)
	}
	if err := r.Decode(key[:], row); err != nil {
		return r, fmt.Errorf("read counters of mailbox %d: %w", mailbox, err)
	}
	return r, nil
}

// PutMailboxCounts writes the counters of a mailbox.
func PutMailboxCounts(tx *Tx, mailbox uint32, r mailrow.MailboxCounts) error {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], mailbox)
	return tx.PutRow(mailrow.BucketMailbox, key[:], r.Row(key[:]))
}

// MailboxUsage returns the usage of a mailbox; zeros if it has no folders.
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

// Sizes of an account row in bytes. The row: messages 8 | bytes 8 | and, once mail has arrived, the
// time of the last arrival 8, in Unix milliseconds.
const (
	accountRowSize            = 16
	accountRowSizeWithArrival = 24
)

// AccountUsage returns the usage of all mailboxes of an account; zeros if it has no messages.
func (tx *Tx) AccountUsage(account uint32) (Usage, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	row := tx.GetRow(mailrow.BucketAccount, key[:])
	if row == nil {
		return Usage{}, nil
	}
	if len(row) != accountRowSize && len(row) != accountRowSizeWithArrival {
		return Usage{}, fmt.Errorf("read counters of account %d: %w", account, engine.ErrDamagedRow)
	}
	return Usage{
		Messages: int64(binary.BigEndian.Uint64(row)),
		Bytes:    int64(binary.BigEndian.Uint64(row[8:])),
	}, nil
}

// AddAccountUsage adds messages and bytes, which may be negative, to the usage of an account.
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
	return tx.putAccountRow(account, u, last)
}

// putAccountRow writes an account row. If mail has ever arrived, the row stays even without
// messages: the next arrival must be later.
func (tx *Tx) putAccountRow(account uint32, u Usage, lastArrived time.Time) error {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	if u.Messages == 0 && u.Bytes == 0 && lastArrived.IsZero() {
		return tx.DeleteRow(mailrow.BucketAccount, key[:])
	}
	row := make([]byte, 0, accountRowSizeWithArrival)
	row = binary.BigEndian.AppendUint64(row, uint64(u.Messages))
	row = binary.BigEndian.AppendUint64(row, uint64(u.Bytes))
	if !lastArrived.IsZero() {
		row = binary.BigEndian.AppendUint64(row, uint64(lastArrived.UnixMilli()))
	}
	return tx.PutRow(mailrow.BucketAccount, key[:], row)
}

// LastArrived returns the time of the last arrival in an account, see AssignArrivalTime; zero if
// there was none.
func (tx *Tx) LastArrived(account uint32) (time.Time, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], account)
	row := tx.GetRow(mailrow.BucketAccount, key[:])
	switch len(row) {
	case 0, accountRowSize:
		return time.Time{}, nil
	case accountRowSizeWithArrival:
		return mailrow.MsTime(binary.BigEndian.Uint64(row[accountRowSize:])), nil
	}
	return time.Time{}, fmt.Errorf("read counters of account %d: %w", account, engine.ErrDamagedRow)
}

// AssignArrivalTime returns the arrival time for a new message of an account, and stores it as the
// last one. It is the present time; if that is not after `after` and after every earlier arrival,
// it is a little later. A reader that has seen all messages up to such a time misses none if it
// continues after it.
func (tx *Tx) AssignArrivalTime(account uint32, after time.Time) (time.Time, error) {
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
	at := mailrow.StorableTime(tx.Now())
	if !at.After(last) {
		at = mailrow.StorableTime(last).Add(time.Millisecond)
	}
	return at, tx.putAccountRow(account, u, at)
}

// counters are the counters that a change to a message of a folder updates.
type counters struct {
	mailbox, folder uint32
	num             uint32 // number of the folder
	row             []byte // row of the folder, without its checksum
	counts          mailrow.FolderCounts
	box             mailrow.MailboxCounts
}

// readCounters reads the counters of a folder and its mailbox.
func (tx *Tx) readCounters(mailbox, folder uint32) (c counters, err error) {
	c.mailbox, c.folder = mailbox, folder
	key := mailrow.FolderKey(mailbox, folder)
	c.row = tx.GetRow(mailrow.BucketFolder, key[:])
	if c.row == nil {
		return c, fmt.Errorf("read folder %d of mailbox %d: %w", folder, mailbox, engine.ErrNotFound)
	}
	c.row, err = c.counts.Get(key[:], c.row)
	if err != nil {
		return c, fmt.Errorf("read folder %d of mailbox %d: %w", folder, mailbox, err)
	}
	c.num = mailbox
	if folder != mailrow.InboxID {
		var f mailrow.Folder
		if err := f.Decode(key[:], tx.GetRow(mailrow.BucketFolder, key[:])); err != nil {
			return c, fmt.Errorf("read folder %d of mailbox %d: %w", folder, mailbox, err)
		}
		c.num = f.Num
	}
	c.box, err = MailboxCounts(tx, mailbox)
	return c, err
}

// nextModSeq increments the mod-sequence of the mailbox and returns it.
func (c *counters) nextModSeq() uint64 {
	c.box.ModSeq++
	c.counts.ModSeq = c.box.ModSeq
	return c.box.ModSeq
}

// add adds a message to the counts, or removes it if sign is -1.
func (c *counters) add(m *mailrow.Message, sign int) {
	size := int64(sign) * int64(m.Blob.Length)
	c.counts.Messages += uint32(sign)
	c.counts.Bytes += size
	c.box.Messages += int64(sign)
	c.box.Bytes += size
	if m.Flags&mailrow.FlagSeen == 0 {
		c.counts.Unseen += uint32(sign)
	}
}

// putCounters writes the counters, and records a change of INBOX for OnCommit.
func (tx *Tx) putCounters(c *counters) error {
	if c.folder == mailrow.InboxID {
		tx.recordInboxChange(c.mailbox)
	}
	key := mailrow.FolderKey(c.mailbox, c.folder)
	row := append(make([]byte, 0, len(c.row)+rowform.SumSize), c.row...)
	row[0] = engine.RowVersion
	c.counts.Put(row)
	if err := tx.PutRow(mailrow.BucketFolder, key[:], mailrow.BucketFolder.Seal(key[:], row)); err != nil {
		return err
	}
	return PutMailboxCounts(tx, c.mailbox, c.box)
}

// InboxTable is the Table of a Change to the messages in a mailbox's INBOX. The ID of the Change is
// the mailbox's id.
const InboxTable = "inbox"

// recordInboxChange records that messages in the INBOX of a mailbox changed. It does nothing for a
// mailbox that is being deleted, which has no record any more.
func (tx *Tx) recordInboxChange(mailbox uint32) {
	if mailbox == tx.inboxRecorded || !tx.HasObserver() {
		return
	}
	if account, id := tx.index.MailboxIDs(tx.Tx, mailbox); id != "" {
		tx.inboxRecorded = mailbox
		tx.RecordChange(engine.Change{Table: InboxTable, Account: account, ID: id})
	}
}

// Subscriptions is the old form of a mailbox's subscriptions to names without a folder: one record
// for all names. IMAP keeps such names (RFC 3501 section 6.3.6). Today each name is a row of
// BucketSubscribed. A record is converted to rows when a subscription of its mailbox changes.
type Subscriptions struct {
	Mailbox uint32 // number
	Names   []string
}

// OldSubscriptions is the table of the Subscriptions that are not converted to rows of
// BucketSubscribed yet.
var OldSubscriptions = engine.NewTable("subscribed_names", func(s *Subscriptions) string { return SubscriptionsID(s.Mailbox) })

// SubscriptionsID returns the id of a mailbox's Subscriptions.
func SubscriptionsID(mailbox uint32) string { return strconv.FormatUint(uint64(mailbox), 10) }

// SubscribedNames returns the names that the mailbox is subscribed to, sorted. There may be no
// folders with these names.
func (tx *Tx) SubscribedNames(mailbox uint32) (names []string, err error) {
	old, err := OldSubscriptions.FindShared(tx, SubscriptionsID(mailbox))
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

// SetNameSubscribed adds or removes the subscription to a name.
func (tx *Tx) SetNameSubscribed(mailbox uint32, name string, subscribed bool) error {
	if err := tx.ConvertSubscriptions(mailbox); err != nil {
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

// ConvertSubscriptions converts the Subscriptions of a mailbox, which have at most a thousand
// names, to rows of BucketSubscribed.
func (tx *Tx) ConvertSubscriptions(mailbox uint32) error {
	old, err := OldSubscriptions.FindShared(tx, SubscriptionsID(mailbox))
	if old == nil || err != nil {
		return err
	}
	for _, name := range old.Names {
		if err := tx.PutRow(mailrow.BucketSubscribed, subscribedKey(mailbox, name), nil); err != nil {
			return err
		}
	}
	return OldSubscriptions.Delete(tx, SubscriptionsID(mailbox))
}

// dropSubscriptions deletes all subscriptions of a mailbox to names.
func (tx *Tx) dropSubscriptions(mailbox uint32) error {
	names, err := tx.SubscribedNames(mailbox)
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

// subscribedKey returns the key of a name in BucketSubscribed.
func subscribedKey(mailbox uint32, name string) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}

// CountMessages returns the number of messages in all mailboxes.
func CountMessages(tx *Tx) (n int64, err error) {
	for k, v := range tx.Ascend(mailrow.BucketAccount, nil) {
		if len(v) != accountRowSize && len(v) != accountRowSizeWithArrival {
			return 0, fmt.Errorf("read counters of account %x: %w", k, engine.ErrDamagedRow)
		}
		n += int64(binary.BigEndian.Uint64(v))
	}
	return n, nil
}
