// Package mailrow encodes the rows and keys of the message index: messages, their metadata,
// folders, the counters of mailboxes, entries of message lists, threads, and references to the
// bytes of messages. It does not know when a row is written, or which rows change together.
//
// Comments on row forms give the size of each field in bytes. Numbers are big-endian.
package mailrow

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/postings"
	"github.com/mailstead/mailstead/store/rowform"
	"github.com/mailstead/mailstead/store/segment"
)

// The buckets of the message index. doc.go of package store describes their keys and rows.
var (
	BucketMessage      = engine.NewBucket("msg").Sequential().FreesSpace()
	BucketMeta         = engine.NewBucket("msg_meta", MetaShared).Sequential()
	BucketInbox        = engine.NewBucket("inbox_class")
	BucketInboxOf      = engine.NewBucket("inbox_mbx_class")
	BucketFolder       = engine.NewBucket("folder").FreesSpace()
	BucketFolderName   = engine.NewBucket("folder_name")
	BucketFolderNum    = engine.NewBucket("folder_num")
	BucketMailbox      = engine.NewBucket("mailbox_count")
	BucketAccount      = engine.NewBucket("account_count")
	BucketRef          = engine.NewBucket("blob_ref").Sequential().FreesSpace()
	BucketLive         = engine.NewBucket("blob_live")
	BucketThread       = engine.NewBucket("thread")
	BucketThreadJoined = engine.NewBucket("thread_joined")
	BucketSubject      = engine.NewBucket("thread_subject")
	BucketSubscribed   = engine.NewBucket("subscribed")
	BucketStructure    = engine.NewBucket("blob_structure")
	BucketSpamToken    = engine.NewBucket("spam_token")
	BucketTextTodo     = engine.NewBucket("text_todo")
	BucketTextRun      = engine.NewBucket("text_run").FreesSpace()
	BucketTextPlace    = engine.NewBucket("text_place")
	BucketTextWord     = engine.NewBucket("text_word")
	BucketTextGone     = engine.NewBucket("text_gone")
	BucketExpunged     = engine.NewBucket("expunged").Sequential()
)

// Buckets lists all buckets of the message index.
var Buckets = []*engine.Bucket{
	BucketMessage, BucketMeta, BucketInbox, BucketInboxOf, BucketFolder, BucketFolderName, BucketFolderNum, BucketMailbox, BucketAccount,
	BucketRef, BucketLive, BucketThread, BucketThreadJoined, BucketSubject, BucketSubscribed, BucketStructure, BucketSpamToken, BucketExpunged,
	BucketTextTodo, BucketTextRun, BucketTextPlace, BucketTextWord, BucketTextGone,
}

// Flags are the system flags (RFC 3501 section 2.3.2) that are stored with a message.
type Flags uint8

// The system flags: \Seen, \Answered, \Flagged, \Deleted, \Draft.
const (
	FlagSeen Flags = 1 << iota
	FlagAnswered
	FlagFlagged
	FlagDeleted
	FlagDraft
)

// Bits are facts about a message that IMAP clients cannot change.
type Bits uint8

// The bits. Lists filter by them and show them without reading the message.
const (
	BitAttachments Bits = 1 << iota // has attachments
	BitWarmup                       // warmup mail
	BitAutoReply                    // automatic reply
	BitBounce                       // bounce message
	BitTaughtSpam                   // the spam classifier has learned it as spam
	BitTaughtHam                    // learned as wanted mail; with BitTaughtSpam: wanted mail that the classifier chose as an example
	BitMoved                        // a person, not a rule, moved or copied it to its folder
)

// A Message is one message in one folder of a mailbox. Inserting it into the folder assigns its
// UID. Its bytes are at Blob in a segment. A copy in another folder is a separate Message that
// shares the bytes. Its Meta holds what parsing found on arrival. Later only flags, keywords and
// bits change, and each change raises ModSeq. Moving a message deletes it in one folder and inserts
// it in the other under a new UID. The UIDs of deleted messages are kept for IMAP clients that were
// offline, see ExpungedRow.
type Message struct {
	Account, Mailbox uint32 // numbers of the account and the mailbox
	Folder, UID      uint32
	Blob             BlobRef
	Received         time.Time // UTC, in whole milliseconds; IMAP's INTERNALDATE
	Saved            time.Time // when it was inserted into its folder (RFC 8514); UTC, in whole milliseconds
	Flags            Flags
	Keywords         []string
	Bits             Bits
	ModSeq           uint64 // RFC 7162 mod-sequence: each change in the mailbox has a higher one

	Num uint32 // number of its folder, see Folder.Num; set only on messages from the text index
}

// A Meta holds what is known about a message besides the fields of its Message, most of it found on
// arrival. The texts that the caller encodes are opaque to the store.
type Meta struct {
	Structure         []byte // the parsed MIME structure, encoded by the caller
	Preview           string
	ThreadID          string
	OriginalMessageID string
	ReturnPath        string
	SPF, DKIM, DMARC  string
	Recipient         string // recipient address in the envelope; "": the mailbox's own address
	Bcc               string // recipients of the blind copy of a message that the mailbox sent, one per line
	AnsweredBy        string // who answered it, encoded by the caller
	Spam              string // verdict of the spam classifier on arrival, encoded by the caller
	Arrived           string // verified sender, if any, encoded by the caller; "": it did not arrive by mail
	Origin            string // origin of its text, if verified, encoded by the caller
	Drafted           string // not "": it was in the drafts folder once
	Judged            string // DMARC results by version of the standard, encoded by the caller
	Warmup            string // why it is warm-up mail besides its text, encoded by the caller
}

// A message row: version 1 | flags 1 | bits 1 | account 4 | received ms 8 | modseq 8 | blob 16 |
// keywords, each a length 1 and its text | 0 and saved ms 8, if that differs from received | crc32c
// 4.
const (
	MessageRowSize = 39  // bytes of a row without keywords, saved time and checksum
	savedSize      = 9   // bytes of the saved time
	MaxKeywords    = 128 // keywords of one message
	MaxKeyword     = 255 // bytes of one keyword
)

// MessageKey returns the key of a message in BucketMessage and BucketMeta.
func MessageKey(mailbox, folder, uid uint32) (key [12]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], folder)
	binary.BigEndian.PutUint32(key[8:], uid)
	return key
}

// Key returns the key of the message in BucketMessage and BucketMeta.
func (m *Message) Key() [12]byte { return MessageKey(m.Mailbox, m.Folder, m.UID) }

// Row encodes the message, with the checksum. The key holds the mailbox, the folder and the UID.
func (m *Message) Row() []byte {
	size := MessageRowSize + savedSize + rowform.SumSize
	for _, k := range m.Keywords {
		size += 1 + len(k)
	}
	b := make([]byte, 0, size)
	b = append(b, engine.RowVersion, byte(m.Flags), byte(m.Bits))
	b = binary.BigEndian.AppendUint32(b, m.Account)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Received.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, m.ModSeq)
	b = m.Blob.AppendTo(b)
	for _, k := range m.Keywords {
		b = append(b, byte(len(k)))
		b = append(b, k...)
	}
	if saved := m.Saved.UnixMilli(); !m.Saved.IsZero() && saved != m.Received.UnixMilli() {
		b = binary.BigEndian.AppendUint64(append(b, 0), uint64(max(saved, 0)))
	}
	key := m.Key()
	return BucketMessage.Seal(key[:], b)
}

// Decode verifies a row and decodes it with its key of 12 bytes into m.
func (m *Message) Decode(key, row []byte) error {
	row, err := BucketMessage.OpenLegacy(key, row)
	if err != nil {
		return err
	}
	if len(key) != 12 || len(row) < MessageRowSize {
		return engine.ErrDamagedRow
	}
	blob, err := segment.ParseRef(row[23:MessageRowSize])
	if err != nil {
		return err
	}
	*m = Message{
		Account:  binary.BigEndian.Uint32(row[3:]),
		Mailbox:  binary.BigEndian.Uint32(key),
		Folder:   binary.BigEndian.Uint32(key[4:]),
		UID:      binary.BigEndian.Uint32(key[8:]),
		Blob:     blob,
		Received: MsTime(binary.BigEndian.Uint64(row[7:])),
		Flags:    Flags(row[1]),
		Bits:     Bits(row[2]),
		ModSeq:   binary.BigEndian.Uint64(row[15:]),
	}
	m.Saved = m.Received
	for rest := row[MessageRowSize:]; len(rest) > 0; {
		n := int(rest[0])
		if n == 0 && len(rest) == savedSize {
			m.Saved = StorableTime(MsTime(binary.BigEndian.Uint64(rest[1:])))
			return nil
		}
		if n == 0 || len(rest) < 1+n || len(m.Keywords) == MaxKeywords {
			return engine.ErrDamagedRow
		}
		m.Keywords = append(m.Keywords, string(rest[1:1+n]))
		rest = rest[1+n:]
	}
	return nil
}

// A meta row: version 1 | structure and texts, each a length uvarint and its bytes | crc32c 4. The
// texts of laterTexts end with the last that is not empty; older rows have none of them. In version
// MetaShared the structure is empty: it is in BucketStructure, once for all messages with the same
// bytes.
const (
	MetaShared     = 0x33 // version of a row whose structure is in BucketStructure
	bareMetaShared = 2    // version of such a row without a checksum
)

// MaxOwnStructure is the largest structure, in bytes, that is stored in the meta row itself. The
// structure of a message to a thousand people is longer, and the message may be in a thousand
// mailboxes.
const MaxOwnStructure = 2 << 10

// texts returns the texts that every meta row has, in their order.
func (m *Meta) texts() [7]*string {
	return [...]*string{&m.Preview, &m.ThreadID, &m.OriginalMessageID, &m.ReturnPath, &m.SPF, &m.DKIM, &m.DMARC}
}

// laterTexts returns the texts that were added to the form later, in their order.
func (m *Meta) laterTexts() [9]*string {
	return [...]*string{&m.Recipient, &m.Bcc, &m.AnsweredBy, &m.Spam, &m.Arrived, &m.Origin, &m.Drafted, &m.Judged, &m.Warmup}
}

// Row encodes the meta as a row of the version, without a checksum.
func (m *Meta) Row(version byte) []byte {
	texts, later := m.texts(), m.laterTexts()
	last := len(later)
	for last > 0 && *later[last-1] == "" {
		last--
	}
	size := 1 + 2*binary.MaxVarintLen32 + len(m.Structure) + rowform.SumSize
	for _, text := range texts {
		size += binary.MaxVarintLen32 + len(*text)
	}
	for _, text := range later[:last] {
		size += binary.MaxVarintLen32 + len(*text)
	}
	b := append(make([]byte, 0, size), version)
	b = binary.AppendUvarint(b, uint64(len(m.Structure)))
	b = append(b, m.Structure...)
	for _, text := range texts {
		b = binary.AppendUvarint(b, uint64(len(*text)))
		b = append(b, *text...)
	}
	for _, text := range later[:last] {
		b = binary.AppendUvarint(b, uint64(len(*text)))
		b = append(b, *text...)
	}
	return b
}

// OpenMeta verifies a meta row of any version and returns it in the form of Meta.Row, without the
// checksum.
func OpenMeta(key, row []byte) ([]byte, error) {
	if len(row) == 0 || row[0] != engine.BareRow && row[0] != bareMetaShared {
		return BucketMeta.Open(key, row)
	}
	now := bytes.Clone(row)
	now[0] = engine.RowVersion
	if row[0] == bareMetaShared {
		now[0] = MetaShared
	}
	return now, nil
}

// Decode verifies a row and decodes it into m. m.Structure refers to memory of row; the texts are
// copies. If shared is true, m.Structure is nil and the structure is in BucketStructure.
func (m *Meta) Decode(key, row []byte) (shared bool, err error) {
	row, err = OpenMeta(key, row)
	if err != nil {
		return false, err
	}
	shared = row[0] == MetaShared
	*m = Meta{}
	structure, rest, err := CutField(row[1:])
	if err != nil {
		return false, err
	}
	if len(structure) > 0 {
		m.Structure = structure
	}
	all := string(rest) // one allocation for all texts
	for _, text := range m.texts() {
		var field []byte
		field, rest, err = CutField(rest)
		if err != nil {
			return false, err
		}
		end := len(all) - len(rest)
		*text = all[end-len(field) : end]
	}
	for _, text := range m.laterTexts() {
		if len(rest) == 0 {
			break
		}
		var field []byte
		field, rest, err = CutField(rest)
		if err != nil || len(field) == 0 && len(rest) == 0 {
			return false, engine.ErrDamagedRow // the last text is never empty
		}
		end := len(all) - len(rest)
		*text = all[end-len(field) : end]
	}
	if len(rest) > 0 {
		return false, engine.ErrDamagedRow
	}
	return shared, nil
}

// An InboxPos is a position in the order of message lists: by Received, then UID, then Num, the
// number of the folder. The zero value means no position.
type InboxPos struct {
	Received time.Time
	UID      uint32
	Num      uint32
}

// The bits of a message's class. The class is one byte in the keys of BucketInbox and
// BucketInboxOf, and holds the marks that lists filter by. Messages of one class are adjacent, so a
// list reads only what passes its filter.
const (
	ClassSeen = 1 << iota
	ClassAttachments
	ClassWarmup
	ClassFlagged
	ClassCount // number of classes
)

// Class returns the message's class, a combination of the Class bits.
func (m *Message) Class() (c byte) {
	if m.Flags&FlagSeen != 0 {
		c |= ClassSeen
	}
	if m.Bits&BitAttachments != 0 {
		c |= ClassAttachments
	}
	if m.Bits&BitWarmup != 0 {
		c |= ClassWarmup
	}
	if m.Flags&FlagFlagged != 0 {
		c |= ClassFlagged
	}
	return c
}

// InboxKey returns the key in BucketInbox of a message in INBOX: account, class and place.
func InboxKey(m *Message) (key [21]byte) {
	binary.BigEndian.PutUint32(key[0:], m.Account)
	key[4] = m.Class()
	binary.BigEndian.PutUint64(key[5:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[13:], m.UID)
	binary.BigEndian.PutUint32(key[17:], m.Mailbox)
	return key
}

// InboxOfKey returns the key in BucketInboxOf of a message in the folder with the number num: num,
// class and place.
func InboxOfKey(m *Message, num uint32) (key [17]byte) {
	binary.BigEndian.PutUint32(key[0:], num)
	key[4] = m.Class()
	binary.BigEndian.PutUint64(key[5:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[13:], m.UID)
	return key
}

// The sizes of a place, the end of a list key, which sorts as InboxPos does: received ms 8 | uid 4
// | folder number 4. In BucketInboxOf, the place has no folder number.
const (
	PlaceSize       = postings.PlaceSize
	FolderPlaceSize = 12
)

// Place encodes the position as a place of PlaceSize bytes.
func (p InboxPos) Place() (b [PlaceSize]byte) {
	binary.BigEndian.PutUint64(b[0:], MillisCeil(p.Received))
	binary.BigEndian.PutUint32(b[8:], p.UID)
	binary.BigEndian.PutUint32(b[12:], p.Num)
	return b
}

// ComparePos compares two positions in the order of message lists, oldest first.
func ComparePos(a, b InboxPos) int {
	return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Num, b.Num))
}

// ParsePlace decodes a place. num is the number of the folder, for a place that does not contain
// it.
func ParsePlace(b []byte, num uint32) InboxPos {
	if len(b) == PlaceSize {
		num = binary.BigEndian.Uint32(b[12:])
	}
	return InboxPos{MsTime(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), num}
}

// MillisCeil returns t in milliseconds since 1970, rounded up; 0 for times before 1970.
func MillisCeil(t time.Time) uint64 {
	return uint64(max(t.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 0))
}

// InboxID is the folder id of INBOX in each mailbox.
const InboxID = 1

// InboxName is the folder name of INBOX.
const InboxName = "INBOX"

// A Folder is one folder of a mailbox in IMAP's sense, including INBOX.
type Folder struct {
	Mailbox     uint32 // number of the mailbox
	ID          uint32 // from 1 in each mailbox, never reused
	Num         uint32 // unique among all folders: INBOX has its mailbox's, others have FirstFolderNum or more
	Name        string // UTF-8, at most 1000 bytes
	SpecialUse  string // RFC 6154 attribute such as \Sent, or ""
	Subscribed  bool
	UIDValidity uint32 // RFC 3501 section 2.3.1.1; a folder created again under an old name has a higher one
	UIDNext     uint32 // UID of the next message
	ModSeq      uint64 // RFC 7162 HIGHESTMODSEQ
	Messages    uint32
	Unseen      uint32 // messages without FlagSeen
	Bytes       int64  // total size of the messages
}

// FirstFolderNum is the lowest folder number of folders other than INBOX. Mailbox numbers, which
// INBOX uses, are lower.
const FirstFolderNum = 1 << 31

// A folder row: version 1 | subscribed 1 | UIDVALIDITY 4 | counters 28 | name and special use, each
// a length uvarint and its text | folder number 4, except for INBOX | crc32c 4. Folders of stores
// up to format 5 have no number. folderRowHead is the size before the name.
const folderRowHead = 34

// FolderCounts are the fields of a folder that change with its messages. In the row: uidnext 4 |
// modseq 8 | messages 4 | unseen 4 | bytes 8.
type FolderCounts struct {
	UIDNext  uint32
	ModSeq   uint64
	Messages uint32
	Unseen   uint32
	Bytes    int64
}

// Put writes the counters into an encoded folder row.
func (c *FolderCounts) Put(row []byte) {
	binary.BigEndian.PutUint32(row[6:], c.UIDNext)
	binary.BigEndian.PutUint64(row[10:], c.ModSeq)
	binary.BigEndian.PutUint32(row[18:], c.Messages)
	binary.BigEndian.PutUint32(row[22:], c.Unseen)
	binary.BigEndian.PutUint64(row[26:], uint64(c.Bytes))
}

// Gaps returns the number of UIDs below UIDNext without a message. Removing a message adds one gap;
// inserting one adds none.
func (c *FolderCounts) Gaps() uint32 { return c.UIDNext - 1 - c.Messages }

// Get verifies a folder row, reads its counters and returns the row without the checksum.
func (c *FolderCounts) Get(key, row []byte) ([]byte, error) {
	row, err := BucketFolder.OpenLegacy(key, row)
	if err != nil {
		return nil, err
	}
	if len(row) < folderRowHead {
		return nil, engine.ErrDamagedRow
	}
	c.UIDNext = binary.BigEndian.Uint32(row[6:])
	c.ModSeq = binary.BigEndian.Uint64(row[10:])
	c.Messages = binary.BigEndian.Uint32(row[18:])
	c.Unseen = binary.BigEndian.Uint32(row[22:])
	c.Bytes = int64(binary.BigEndian.Uint64(row[26:]))
	return row, nil
}

// FolderKey returns the key of a folder in BucketFolder.
func FolderKey(mailbox, id uint32) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], id)
	return key
}

// Row encodes the folder, with the checksum. The key holds the mailbox and the id.
func (f *Folder) Row() []byte {
	b := make([]byte, folderRowHead, folderRowHead+8+len(f.Name)+len(f.SpecialUse)+rowform.SumSize)
	b[0] = engine.RowVersion
	if f.Subscribed {
		b[1] = 1
	}
	binary.BigEndian.PutUint32(b[2:], f.UIDValidity)
	c := FolderCounts{f.UIDNext, f.ModSeq, f.Messages, f.Unseen, f.Bytes}
	c.Put(b)
	b = binary.AppendUvarint(b, uint64(len(f.Name)))
	b = append(b, f.Name...)
	b = binary.AppendUvarint(b, uint64(len(f.SpecialUse)))
	b = append(b, f.SpecialUse...)
	if f.Num >= FirstFolderNum {
		b = binary.BigEndian.AppendUint32(b, f.Num)
	}
	key := FolderKey(f.Mailbox, f.ID)
	return BucketFolder.Seal(key[:], b)
}

// Decode verifies a row and decodes it with its key into f.
func (f *Folder) Decode(key, row []byte) error {
	var c FolderCounts
	row, err := c.Get(key, row)
	if err != nil {
		return err
	}
	if len(key) != 8 {
		return engine.ErrDamagedRow
	}
	name, rest, err := CutField(row[folderRowHead:])
	if err != nil {
		return err
	}
	use, rest, err := CutField(rest)
	num, ok := folderNum(key, rest)
	if err != nil || !ok || row[1] > 1 {
		return engine.ErrDamagedRow
	}
	*f = Folder{
		Mailbox:     binary.BigEndian.Uint32(key),
		ID:          binary.BigEndian.Uint32(key[4:]),
		Num:         num,
		Name:        string(name),
		SpecialUse:  string(use),
		Subscribed:  row[1] == 1,
		UIDValidity: binary.BigEndian.Uint32(row[2:]),
		UIDNext:     c.UIDNext,
		ModSeq:      c.ModSeq,
		Messages:    c.Messages,
		Unseen:      c.Unseen,
		Bytes:       c.Bytes,
	}
	return nil
}

// folderNum returns the folder number from rest, the end of a folder row. For INBOX it is the
// mailbox's number. It is 0 in stores from before folders had numbers; ok is false if the row is
// damaged.
func folderNum(key, rest []byte) (num uint32, ok bool) {
	if binary.BigEndian.Uint32(key[4:]) == InboxID {
		return binary.BigEndian.Uint32(key), len(rest) == 0
	}
	if len(rest) == 4 {
		num = binary.BigEndian.Uint32(rest)
	}
	return num, len(rest) == 0 || num >= FirstFolderNum
}

// FolderNameKey returns the key of a folder name in BucketFolderName. For INBOX the case of letters
// does not matter (RFC 3501 section 5.1).
func FolderNameKey(mailbox uint32, name string) []byte {
	if strings.EqualFold(name, InboxName) {
		name = InboxName
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}

// MailboxCounts are the counters of a mailbox, a row of BucketMailbox: version 1 | next folder 4 |
// validity 4 | modseq 8 | messages 8 | bytes 8 | crc32c 4.
type MailboxCounts struct {
	NextFolder uint32 // id of the next folder that is created
	Validity   uint32 // highest UIDVALIDITY given to a folder
	ModSeq     uint64 // mod-sequence of the last change
	Messages   int64  // in all folders
	Bytes      int64  // total size of the messages
}

const mailboxRowSize = 33

// Row encodes the counters for their key, with the checksum.
func (r *MailboxCounts) Row(key []byte) []byte {
	b := append(make([]byte, 0, mailboxRowSize+rowform.SumSize), engine.RowVersion)
	b = binary.BigEndian.AppendUint32(b, r.NextFolder)
	b = binary.BigEndian.AppendUint32(b, r.Validity)
	b = binary.BigEndian.AppendUint64(b, r.ModSeq)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Messages))
	return BucketMailbox.Seal(key, binary.BigEndian.AppendUint64(b, uint64(r.Bytes)))
}

// Decode verifies a row and decodes it into r.
func (r *MailboxCounts) Decode(key, b []byte) error {
	b, err := BucketMailbox.OpenLegacy(key, b)
	if err != nil {
		return err
	}
	if len(b) != mailboxRowSize {
		return engine.ErrDamagedRow
	}
	r.NextFolder = binary.BigEndian.Uint32(b[1:])
	r.Validity = binary.BigEndian.Uint32(b[5:])
	r.ModSeq = binary.BigEndian.Uint64(b[9:])
	r.Messages = int64(binary.BigEndian.Uint64(b[17:]))
	r.Bytes = int64(binary.BigEndian.Uint64(b[25:]))
	return nil
}

// A BlobRef locates the bytes of a message in a segment. A Blob reads those bytes.
type (
	BlobRef = segment.Ref
	Blob    = segment.Blob
)

// Kinds of blob owners, the first byte of an owner. After OwnerMessage comes the key of the
// message, after the others the id of a record.
const (
	OwnerMessage    = 'm'
	OwnerSubmission = 's'
	OwnerReport     = 'r'
	OwnerCopy       = 'c'
	OwnerArrival    = 'a'
	OwnerBatch      = 'b'
	OwnerLesson     = 'l'
	OwnerApproval   = 'p'
	OwnerScan       = 'z' // the id is that of the domain
)

// MessageOwner returns the owner for a reference of the message to its blob.
func MessageOwner(m *Message) []byte {
	key := m.Key()
	return append([]byte{OwnerMessage}, key[:]...)
}

// BlobPrefix returns the prefix of the blob's keys in BucketRef; an owner follows. It is also the
// blob's key in BucketStructure.
func BlobPrefix(ref BlobRef) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], ref.Segment)
	binary.BigEndian.PutUint32(key[4:], ref.Offset)
	return key
}

// RefRow encodes the row of a reference in BucketRef: the head and length of the blob.
func RefRow(ref BlobRef) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 8), ref.Head)
	return binary.BigEndian.AppendUint32(b, ref.Length)
}

// DecodeRef decodes the blob and its owner from a key and row of BucketRef.
func DecodeRef(key, row []byte) (ref BlobRef, owner []byte, err error) {
	if len(key) < 9 || len(row) != 8 {
		return BlobRef{}, nil, fmt.Errorf("decode blob reference %x: %w", key, engine.ErrDamagedRow)
	}
	return BlobRef{
		Segment: binary.BigEndian.Uint32(key),
		Offset:  binary.BigEndian.Uint32(key[4:]),
		Head:    binary.BigEndian.Uint32(row),
		Length:  binary.BigEndian.Uint32(row[4:]),
	}, key[8:], nil
}

// CutField returns the bytes of the field at the front of b, after its uvarint length, and the
// bytes after the field.
func CutField(b []byte) (field, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, engine.ErrDamagedRow
	}
	return b[used : used+int(n)], b[used+int(n):], nil
}

// MsTime returns the UTC time of ms milliseconds since 1970.
func MsTime(ms uint64) time.Time { return time.UnixMilli(int64(ms)).UTC() }

// StorableTime returns t as rows and keys can hold it: in whole milliseconds, not before 1970.
func StorableTime(t time.Time) time.Time { return MsTime(uint64(max(t.UnixMilli(), 0))) }
