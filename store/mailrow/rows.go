// Package mailrow is the rows and keys of the message index: messages, what was found in them,
// folders, the counters of mailboxes, places in lists, and who refers to the bytes of a message. It
// says how each is written down; it does not know when a row is written, nor what follows from one.
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

// The buckets of the message index. store's doc.go draws their keys and values.
var (
	BucketMessage      = engine.NewBucket("msg").Rising().Frees()
	BucketMeta         = engine.NewBucket("msg_meta", MetaShared).Rising()
	BucketInbox        = engine.NewBucket("inbox_class")
	BucketInboxOf      = engine.NewBucket("inbox_mbx_class")
	BucketFolder       = engine.NewBucket("folder").Frees()
	BucketFolderName   = engine.NewBucket("folder_name")
	BucketFolderNum    = engine.NewBucket("folder_num")
	BucketMailbox      = engine.NewBucket("mailbox_count")
	BucketAccount      = engine.NewBucket("account_count")
	BucketRef          = engine.NewBucket("blob_ref").Rising().Frees()
	BucketLive         = engine.NewBucket("blob_live")
	BucketThread       = engine.NewBucket("thread")
	BucketThreadJoined = engine.NewBucket("thread_joined")
	BucketSubject      = engine.NewBucket("thread_subject")
	BucketSubscribed   = engine.NewBucket("subscribed")
	BucketStructure    = engine.NewBucket("blob_structure")
	BucketSpamToken    = engine.NewBucket("spam_token")
	BucketTextTodo     = engine.NewBucket("text_todo")
	BucketTextRun      = engine.NewBucket("text_run").Frees()
	BucketTextPlace    = engine.NewBucket("text_place")
	BucketTextWord     = engine.NewBucket("text_word")
	BucketTextGone     = engine.NewBucket("text_gone")
	BucketExpunged     = engine.NewBucket("expunged").Rising()
)

// Buckets are all of them.
var Buckets = []*engine.Bucket{
	BucketMessage, BucketMeta, BucketInbox, BucketInboxOf, BucketFolder, BucketFolderName, BucketFolderNum, BucketMailbox, BucketAccount,
	BucketRef, BucketLive, BucketThread, BucketThreadJoined, BucketSubject, BucketSubscribed, BucketStructure, BucketSpamToken, BucketExpunged,
	BucketTextTodo, BucketTextRun, BucketTextPlace, BucketTextWord, BucketTextGone,
}

// Flags are the system flags of RFC 3501 section 2.3.2 that are kept with a message.
type Flags uint8

// The flags that IMAP clients set.
const (
	FlagSeen Flags = 1 << iota
	FlagAnswered
	FlagFlagged
	FlagDeleted
	FlagDraft
)

// Bits are what was found out about a message when it came; IMAP does not change them.
type Bits uint8

// What lists filter by and show without reading the message.
const (
	BitAttachments Bits = 1 << iota
	BitWarmup
	BitAutoReply
	BitBounce
	BitTaughtSpam // the classifier of spam has counted it as spam
	BitTaughtHam  // the same, as wanted mail; both: as an example of that, chosen by the classifier
	BitMoved      // somebody has moved or copied it to where it lies, rather than a rule
)

// A Message is one message in one folder of a mailbox. It gets its UID when it comes into the
// folder. Its bytes are Blob, of Blob.Length bytes in a segment; a copy in another folder is a
// Message of its own with the same bytes. What was found in them when they came is its Meta.
// Afterwards only flags, keywords and bits change, each time under a higher ModSeq. A message that
// is moved is deleted here and written there, under a new UID; an expunged row stays for IMAP
// clients that were away.
type Message struct {
	Account, Mailbox uint32 // numbers
	Folder, UID      uint32
	Blob             BlobRef
	Received         time.Time // UTC, whole milliseconds; IMAP's INTERNALDATE
	Saved            time.Time // the same: when it came into its folder (RFC 8514)
	Flags            Flags
	Keywords         []string
	Bits             Bits
	ModSeq           uint64 // RFC 7162: rises with every change in the mailbox

	Num uint32 // of its folder, see Folder; only where the text index gave the message
}

// A Meta is written once, with its message.
type Meta struct {
	Structure         []byte // the parsed message, in a form of the caller's
	Preview           string
	ThreadID          string
	OriginalMessageID string
	ReturnPath        string
	SPF, DKIM, DMARC  string
	Recipient         string // that the envelope named; "" is the mailbox's own address
	Bcc               string // who got a blind copy of a message that the mailbox sent, one a line
	AnsweredBy        string // who answered it, in a form of the caller's
	Spam              string // what the classifier of spam said when it came, in a form of the caller's
	Arrived           string // that it arrived, and from whom for sure, in a form of the caller's; "": it was put there
	Words             string // whose words it has, if that is sure, in a form of the caller's
	Drafted           string // not "": it has lain in the folder of drafts
	Judged            string // what the editions of DMARC say of it, in a form of the caller's
}

// A message row: version 1 | flags 1 | bits 1 | account 4 | received ms 8 | modseq 8 | blob 16 |
// keywords, each length 1 and text | 0 and saved ms 8, where that is not received | crc32c 4.
const (
	MessageRowSize = 39
	savedSize      = 9
	MaxKeywords    = 128
	MaxKeyword     = 255
)

func MessageKey(mailbox, folder, uid uint32) (key [12]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], folder)
	binary.BigEndian.PutUint32(key[8:], uid)
	return key
}

func (m *Message) Key() [12]byte { return MessageKey(m.Mailbox, m.Folder, m.UID) }

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

// Decode fills m from a key of 12 bytes and its row.
func (m *Message) Decode(key, row []byte) error {
	row, err := BucketMessage.OpenAny(key, row)
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
			m.Saved = Storable(MsTime(binary.BigEndian.Uint64(rest[1:])))
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

// A meta row: version 1 | structure and texts, each length uvarint and bytes | crc32c 4. The later
// texts follow as far as they are not empty; rows from before these were kept have none. In version
// metaShared the structure is empty and stands in bktStructure, once for all messages that have the
// same bytes.
const (
	MetaShared     = 0x33
	bareMetaShared = 2 // without a checksum
)

// MaxOwnStructure is how many bytes of structure a meta row has itself. A message to a thousand
// people has more, and may be in a thousand mailboxes.
const MaxOwnStructure = 2 << 10

func (m *Meta) texts() [7]*string {
	return [...]*string{&m.Preview, &m.ThreadID, &m.OriginalMessageID, &m.ReturnPath, &m.SPF, &m.DKIM, &m.DMARC}
}

func (m *Meta) laterTexts() [8]*string {
	return [...]*string{&m.Recipient, &m.Bcc, &m.AnsweredBy, &m.Spam, &m.Arrived, &m.Words, &m.Drafted, &m.Judged}
}

// Row gives the row without its checksum.
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

// OpenMeta verifies a meta row, and gives it without its checksum as row makes it today.
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

// Decode fills m from a row, of which it keeps the structure alone; that of a shared row is not in
// it.
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
	all := string(rest) // shared by the texts: one allocation for seven
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
			return false, engine.ErrDamagedRow // the last one is never empty
		}
		end := len(all) - len(rest)
		*text = all[end-len(field) : end]
	}
	if len(rest) > 0 {
		return false, engine.ErrDamagedRow
	}
	return shared, nil
}

// An InboxPos is a place in the order of lists: Received, then UID, then Num, the folder's number.
type InboxPos struct {
	Received time.Time
	UID      uint32
	Num      uint32
}

// A class is the marks that lists filter by, as one byte of the inbox keys: messages of one class
// lie side by side, so that a list reads what passes its filter and nothing else.
const (
	ClassSeen = 1 << iota
	ClassAttachments
	ClassWarmup
	ClassFlagged
	Classes
)

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

func InboxKey(m *Message) (key [21]byte) {
	binary.BigEndian.PutUint32(key[0:], m.Account)
	key[4] = m.Class()
	binary.BigEndian.PutUint64(key[5:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[13:], m.UID)
	binary.BigEndian.PutUint32(key[17:], m.Mailbox)
	return key
}

func InboxOfKey(m *Message, num uint32) (key [17]byte) {
	binary.BigEndian.PutUint32(key[0:], num)
	key[4] = m.Class()
	binary.BigEndian.PutUint64(key[5:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[13:], m.UID)
	return key
}

// places are the order of inboxes in keys: received ms 8, uid 4, mailbox 4 where the keys are of
// several mailboxes.
const (
	PlaceSize   = postings.PlaceSize
	PlaceOfSize = 12
)

func (p InboxPos) Place() (b [PlaceSize]byte) {
	binary.BigEndian.PutUint64(b[0:], KeyCeil(p.Received))
	binary.BigEndian.PutUint32(b[8:], p.UID)
	binary.BigEndian.PutUint32(b[12:], p.Num)
	return b
}

// ComparePos compares by the order of inboxes.
func ComparePos(a, b InboxPos) int {
	return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Num, b.Num))
}

func ParsePlace(b []byte, num uint32) InboxPos {
	if len(b) == PlaceSize {
		num = binary.BigEndian.Uint32(b[12:])
	}
	return InboxPos{MsTime(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), num}
}

// KeyCeil is the first millisecond that is not before t, as keys have it; 0 for the zero time.
func KeyCeil(t time.Time) uint64 {
	return uint64(max(t.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 0))
}

// InboxID is the folder id of INBOX in every mailbox.
const InboxID = 1

const InboxName = "INBOX"

// A Folder is one folder of a mailbox as IMAP sees it, INBOX among them.
type Folder struct {
	Mailbox     uint32 // the mailbox's number
	ID          uint32 // from 1 in each mailbox, never used again
	Num         uint32 // among all folders: of INBOX the mailbox's number, of others from firstFolderNum on
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

// FirstFolderNum is the first number of a folder that is not INBOX. Numbers of mailboxes are below
// it.
const FirstFolderNum = 1 << 31

// A folder row: version 1 | subscribed 1 | validity 4 | counters 28 | name, special use, each
// length uvarint and text | number 4, but for INBOX | crc32c 4. Stores of format 5 and before have
// no numbers.
const folderRowHead = 34

// FolderCounts is what changes in a folder with its messages: uidnext 4 | modseq 8 | messages 4 |
// unseen 4 | bytes 8.
type FolderCounts struct {
	UIDNext  uint32
	ModSeq   uint64
	Messages uint32
	Unseen   uint32
	Bytes    int64
}

func (c *FolderCounts) Put(row []byte) {
	binary.BigEndian.PutUint32(row[6:], c.UIDNext)
	binary.BigEndian.PutUint64(row[10:], c.ModSeq)
	binary.BigEndian.PutUint32(row[18:], c.Messages)
	binary.BigEndian.PutUint32(row[22:], c.Unseen)
	binary.BigEndian.PutUint64(row[26:], uint64(c.Bytes))
}

// Gaps are the UIDs below UIDNEXT of which there is no message. A removal adds one; a new message
// adds none.
func (c *FolderCounts) Gaps() uint32 { return c.UIDNext - 1 - c.Messages }

// Get reads a row, which it gives without its checksum.
func (c *FolderCounts) Get(key, row []byte) ([]byte, error) {
	row, err := BucketFolder.OpenAny(key, row)
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

func FolderKey(mailbox, id uint32) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], id)
	return key
}

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

// folderNum is the number of a folder: that at the end of its row, or INBOX's; 0 in stores from
// before there were any.
func folderNum(key, rest []byte) (num uint32, ok bool) {
	if binary.BigEndian.Uint32(key[4:]) == InboxID {
		return binary.BigEndian.Uint32(key), len(rest) == 0
	}
	if len(rest) == 4 {
		num = binary.BigEndian.Uint32(rest)
	}
	return num, len(rest) == 0 || num >= FirstFolderNum
}

// folderName is the key of a name: INBOX is the same in any case (RFC 3501 section 5.1).
func FolderNameKey(mailbox uint32, name string) []byte {
	if strings.EqualFold(name, InboxName) {
		name = InboxName
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}

// mailboxRow is what changes in a mailbox with its messages: version 1 | next folder 4 | validity 4
// | modseq 8 | messages 8 | bytes 8 | crc32c 4.
type MailboxCounts struct {
	NextFolder uint32 // id of the next folder
	Validity   uint32 // the newest UIDVALIDITY
	ModSeq     uint64 // of the newest change
	Messages   int64
	Bytes      int64
}

const mailboxRowSize = 33

func (r *MailboxCounts) Row(key []byte) []byte {
	b := append(make([]byte, 0, mailboxRowSize+rowform.SumSize), engine.RowVersion)
	b = binary.BigEndian.AppendUint32(b, r.NextFolder)
	b = binary.BigEndian.AppendUint32(b, r.Validity)
	b = binary.BigEndian.AppendUint64(b, r.ModSeq)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Messages))
	return BucketMailbox.Seal(key, binary.BigEndian.AppendUint64(b, uint64(r.Bytes)))
}

func (r *MailboxCounts) Decode(key, b []byte) error {
	b, err := BucketMailbox.OpenAny(key, b)
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

// A BlobRef says where a message's bytes are; a Blob is those bytes, opened.
type (
	BlobRef = segment.Ref
	Blob    = segment.Blob
)

// Kinds of owners of a blob, the first byte of an owner: a message by its key, the others by their
// ids.
const (
	OwnerMessage    = 'm'
	OwnerSubmission = 's'
	OwnerReport     = 'r'
	OwnerCopy       = 'c'
	OwnerArrival    = 'a'
	OwnerBatch      = 'b'
	OwnerLesson     = 'l'
	OwnerApproval   = 'p'
)

func MessageOwner(m *Message) []byte {
	key := m.Key()
	return append([]byte{OwnerMessage}, key[:]...)
}

// BlobPrefix is what all keys of references to the blob begin with.
func BlobPrefix(ref BlobRef) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], ref.Segment)
	binary.BigEndian.PutUint32(key[4:], ref.Offset)
	return key
}

// RefRow is the part of a reference that its key does not have.
func RefRow(ref BlobRef) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 8), ref.Head)
	return binary.BigEndian.AppendUint32(b, ref.Length)
}

// DecodeRef reads a reference and its owner from a key and a row.
func DecodeRef(key, row []byte) (ref BlobRef, owner []byte, err error) {
	if len(key) < 9 || len(row) != 8 {
		return BlobRef{}, nil, fmt.Errorf("blob reference %x: %w", key, engine.ErrDamagedRow)
	}
	return BlobRef{
		Segment: binary.BigEndian.Uint32(key),
		Offset:  binary.BigEndian.Uint32(key[4:]),
		Head:    binary.BigEndian.Uint32(row),
		Length:  binary.BigEndian.Uint32(row[4:]),
	}, key[8:], nil
}

// CutField cuts a length and as many bytes from the front of b.
func CutField(b []byte) (field, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, engine.ErrDamagedRow
	}
	return b[used : used+int(n)], b[used+int(n):], nil
}

// MsTime undoes UnixMilli as rows and keys have it.
func MsTime(ms uint64) time.Time { return time.UnixMilli(int64(ms)).UTC() }

// keyTime is t as rows and keys can hold it: in whole milliseconds since 1970.
func Storable(t time.Time) time.Time { return MsTime(uint64(max(t.UnixMilli(), 0))) }
