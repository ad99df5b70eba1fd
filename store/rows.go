package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/postings"
	"github.com/mailstead/mailstead/store/rowform"
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
	bktFolderNum
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
	bktSpamToken
	bktExpunged
)

// messageBuckets are their names.
var messageBuckets = [...]string{
	bktMessage:      "msg",
	bktMeta:         "msg_meta",
	bktInbox:        "inbox_class",
	bktInboxOf:      "inbox_mbx_class",
	bktFolder:       "folder",
	bktFolderName:   "folder_name",
	bktFolderNum:    "folder_num",
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
	bktSpamToken:    "spam_token",
	bktExpunged:     "expunged",
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

// Every row but the smallest begins with the version of its form, and from rowVersion on a checksum
// ends it, see package rowform. Versions with a checksum have two bits that no older one has, so
// that a row does not lose its checksum by one bit.
const (
	rowVersion = 0x32
	bareRow    = 1 // without a checksum
)

// messageSums are the checksums of the message buckets.
var messageSums = func() (sums [len(messageBuckets)]rowform.Sum) {
	for i, name := range messageBuckets {
		sums[i] = rowform.SumOf(name)
	}
	return sums
}()

// seal appends its checksum to a row that begins with a version.
func (i messageBucket) seal(key, row []byte) []byte { return messageSums[i].Seal(key, row) }

// open verifies a row and gives it without its checksum. The error is ErrDamagedRow or ErrNewer.
func (i messageBucket) open(key, row []byte) ([]byte, error) {
	row, err := messageSums[i].Open(key, row)
	switch {
	case err != nil:
		return nil, err
	case len(row) == 0:
		return nil, ErrDamagedRow
	case row[0] != rowVersion && (i != bktMeta || row[0] != metaShared):
		return nil, fmt.Errorf("version %#x: %w", row[0], ErrNewer)
	}
	return row, nil
}

// openAny is open, and takes rows from before they had checksums.
func (i messageBucket) openAny(key, row []byte) ([]byte, error) {
	if len(row) > 0 && row[0] == bareRow {
		return row, nil
	}
	return i.open(key, row)
}

// A message row: version 1 | flags 1 | bits 1 | account 4 | received ms 8 | modseq 8 | blob 16 |
// keywords, each length 1 and text | 0 and saved ms 8, where that is not received | crc32c 4.
const (
	messageRowSize = 39
	savedSize      = 9
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
	size := messageRowSize + savedSize + rowform.SumSize
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
	if saved := m.Saved.UnixMilli(); !m.Saved.IsZero() && saved != m.Received.UnixMilli() {
		b = binary.BigEndian.AppendUint64(append(b, 0), uint64(max(saved, 0)))
	}
	key := m.key()
	return bktMessage.seal(key[:], b)
}

// decode fills m from a key of 12 bytes and its row.
func (m *Message) decode(key, row []byte) error {
	row, err := bktMessage.openAny(key, row)
	if err != nil {
		return err
	}
	if len(key) != 12 || len(row) < messageRowSize {
		return ErrDamagedRow
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
	m.Saved = m.Received
	for rest := row[messageRowSize:]; len(rest) > 0; {
		n := int(rest[0])
		if n == 0 && len(rest) == savedSize {
			m.Saved = keyTime(msTime(binary.BigEndian.Uint64(rest[1:])))
			return nil
		}
		if n == 0 || len(rest) < 1+n || len(m.Keywords) == maxKeywords {
			return ErrDamagedRow
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
	metaShared     = 0x33
	bareMetaShared = 2 // without a checksum
)

// maxOwnStructure is how many bytes of structure a meta row has itself. A message to a thousand
// people has more, and may be in a thousand mailboxes.
const maxOwnStructure = 2 << 10

func (m *Meta) texts() [7]*string {
	return [...]*string{&m.Preview, &m.ThreadID, &m.OriginalMessageID, &m.ReturnPath, &m.SPF, &m.DKIM, &m.DMARC}
}

func (m *Meta) laterTexts() [8]*string {
	return [...]*string{&m.Recipient, &m.Bcc, &m.AnsweredBy, &m.Spam, &m.Arrived, &m.Words, &m.Drafted, &m.Judged}
}

// row gives the row without its checksum.
func (m *Meta) row(version byte) []byte {
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

// openMeta verifies a meta row, and gives it without its checksum as row makes it today.
func openMeta(key, row []byte) ([]byte, error) {
	if len(row) == 0 || row[0] != bareRow && row[0] != bareMetaShared {
		return bktMeta.open(key, row)
	}
	now := bytes.Clone(row)
	now[0] = rowVersion
	if row[0] == bareMetaShared {
		now[0] = metaShared
	}
	return now, nil
}

// decode fills m from a row, of which it keeps the structure alone; that of a shared row is not in
// it.
func (m *Meta) decode(key, row []byte) (shared bool, err error) {
	row, err = openMeta(key, row)
	if err != nil {
		return false, err
	}
	shared = row[0] == metaShared
	*m = Meta{}
	structure, rest, err := cutField(row[1:])
	if err != nil {
		return false, err
	}
	if len(structure) > 0 {
		m.Structure = structure
	}
	all := string(rest) // shared by the texts: one allocation for seven
	for _, text := range m.texts() {
		var field []byte
		field, rest, err = cutField(rest)
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
		field, rest, err = cutField(rest)
		if err != nil || len(field) == 0 && len(rest) == 0 {
			return false, ErrDamagedRow // the last one is never empty
		}
		end := len(all) - len(rest)
		*text = all[end-len(field) : end]
	}
	if len(rest) > 0 {
		return false, ErrDamagedRow
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
	classSeen = 1 << iota
	classAttachments
	classWarmup
	classFlagged
	classes
)

func (m *Message) class() (c byte) {
	if m.Flags&FlagSeen != 0 {
		c |= classSeen
	}
	if m.Bits&BitAttachments != 0 {
		c |= classAttachments
	}
	if m.Bits&BitWarmup != 0 {
		c |= classWarmup
	}
	if m.Flags&FlagFlagged != 0 {
		c |= classFlagged
	}
	return c
}

func inboxKey(m *Message) (key [21]byte) {
	binary.BigEndian.PutUint32(key[0:], m.Account)
	key[4] = m.class()
	binary.BigEndian.PutUint64(key[5:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[13:], m.UID)
	binary.BigEndian.PutUint32(key[17:], m.Mailbox)
	return key
}

func inboxOfKey(m *Message, num uint32) (key [17]byte) {
	binary.BigEndian.PutUint32(key[0:], num)
	key[4] = m.class()
	binary.BigEndian.PutUint64(key[5:], uint64(m.Received.UnixMilli()))
	binary.BigEndian.PutUint32(key[13:], m.UID)
	return key
}

// places are the order of inboxes in keys: received ms 8, uid 4, mailbox 4 where the keys are of
// several mailboxes.
const (
	placeSize   = postings.PlaceSize
	placeOfSize = 12
)

func (p InboxPos) place() (b [placeSize]byte) {
	binary.BigEndian.PutUint64(b[0:], keyCeil(p.Received))
	binary.BigEndian.PutUint32(b[8:], p.UID)
	binary.BigEndian.PutUint32(b[12:], p.Num)
	return b
}

// comparePos compares by the order of inboxes.
func comparePos(a, b InboxPos) int {
	return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Num, b.Num))
}

func parsePlace(b []byte, num uint32) InboxPos {
	if len(b) == placeSize {
		num = binary.BigEndian.Uint32(b[12:])
	}
	return InboxPos{msTime(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), num}
}

// keyCeil is the first millisecond that is not before t, as keys have it; 0 for the zero time.
func keyCeil(t time.Time) uint64 {
	return uint64(max(t.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 0))
}

// InboxID is the folder id of INBOX in every mailbox.
const InboxID = 1

const inboxName = "INBOX"

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

// firstFolderNum is the first number of a folder that is not INBOX. Numbers of mailboxes are below
// it.
const firstFolderNum = 1 << 31

// A folder row: version 1 | subscribed 1 | validity 4 | counters 28 | name, special use, each
// length uvarint and text | number 4, but for INBOX | crc32c 4. Stores of format 5 and before have
// no numbers.
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

// get reads a row, which it gives without its checksum.
func (c *folderCounts) get(key, row []byte) ([]byte, error) {
	row, err := bktFolder.openAny(key, row)
	if err != nil {
		return nil, err
	}
	if len(row) < folderRowHead {
		return nil, ErrDamagedRow
	}
	c.uidNext = binary.BigEndian.Uint32(row[6:])
	c.modSeq = binary.BigEndian.Uint64(row[10:])
	c.messages = binary.BigEndian.Uint32(row[18:])
	c.unseen = binary.BigEndian.Uint32(row[22:])
	c.bytes = int64(binary.BigEndian.Uint64(row[26:]))
	return row, nil
}

// An expungedNote is what one transaction has removed from a folder.
type expungedNote struct {
	mailbox, folder uint32
	was             folderCounts // before
	modSeq          uint64       // after
	uids            []uint32
}

func folderKey(mailbox, id uint32) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], mailbox)
	binary.BigEndian.PutUint32(key[4:], id)
	return key
}

func (f *Folder) row() []byte {
	b := make([]byte, folderRowHead, folderRowHead+8+len(f.Name)+len(f.SpecialUse)+rowform.SumSize)
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
	b = append(b, f.SpecialUse...)
	if f.Num >= firstFolderNum {
		b = binary.BigEndian.AppendUint32(b, f.Num)
	}
	key := folderKey(f.Mailbox, f.ID)
	return bktFolder.seal(key[:], b)
}

func (f *Folder) decode(key, row []byte) error {
	var c folderCounts
	row, err := c.get(key, row)
	if err != nil {
		return err
	}
	if len(key) != 8 {
		return ErrDamagedRow
	}
	name, rest, err := cutField(row[folderRowHead:])
	if err != nil {
		return err
	}
	use, rest, err := cutField(rest)
	num, ok := folderNum(key, rest)
	if err != nil || !ok || row[1] > 1 {
		return ErrDamagedRow
	}
	*f = Folder{
		Mailbox:     binary.BigEndian.Uint32(key),
		ID:          binary.BigEndian.Uint32(key[4:]),
		Num:         num,
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

// folderNum is the number of a folder: that at the end of its row, or INBOX's; 0 in stores from
// before there were any.
func folderNum(key, rest []byte) (num uint32, ok bool) {
	if binary.BigEndian.Uint32(key[4:]) == InboxID {
		return binary.BigEndian.Uint32(key), len(rest) == 0
	}
	if len(rest) == 4 {
		num = binary.BigEndian.Uint32(rest)
	}
	return num, len(rest) == 0 || num >= firstFolderNum
}

// folderName is the key of a name: INBOX is the same in any case (RFC 3501 section 5.1).
func folderName(mailbox uint32, name string) []byte {
	if strings.EqualFold(name, inboxName) {
		name = inboxName
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}

// mailboxRow is what changes in a mailbox with its messages: version 1 | next folder 4 | validity 4
// | modseq 8 | messages 8 | bytes 8 | crc32c 4.
type mailboxRow struct {
	nextFolder uint32 // id of the next folder
	validity   uint32 // the newest UIDVALIDITY
	modSeq     uint64 // of the newest change
	messages   int64
	bytes      int64
}

const mailboxRowSize = 33

func (r *mailboxRow) row(key []byte) []byte {
	b := append(make([]byte, 0, mailboxRowSize+rowform.SumSize), rowVersion)
	b = binary.BigEndian.AppendUint32(b, r.nextFolder)
	b = binary.BigEndian.AppendUint32(b, r.validity)
	b = binary.BigEndian.AppendUint64(b, r.modSeq)
	b = binary.BigEndian.AppendUint64(b, uint64(r.messages))
	return bktMailbox.seal(key, binary.BigEndian.AppendUint64(b, uint64(r.bytes)))
}

func (r *mailboxRow) decode(key, b []byte) error {
	b, err := bktMailbox.openAny(key, b)
	if err != nil {
		return err
	}
	if len(b) != mailboxRowSize {
		return ErrDamagedRow
	}
	r.nextFolder = binary.BigEndian.Uint32(b[1:])
	r.validity = binary.BigEndian.Uint32(b[5:])
	r.modSeq = binary.BigEndian.Uint64(b[9:])
	r.messages = int64(binary.BigEndian.Uint64(b[17:]))
	r.bytes = int64(binary.BigEndian.Uint64(b[25:]))
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
	ownerMessage    = 'm'
	ownerSubmission = 's'
	ownerReport     = 'r'
	ownerCopy       = 'c'
	ownerArrival    = 'a'
	ownerBatch      = 'b'
	ownerLesson     = 'l'
	ownerApproval   = 'p'
)

func messageOwner(m *Message) []byte {
	key := m.key()
	return append([]byte{ownerMessage}, key[:]...)
}

// blobPrefix is what all keys of references to the blob begin with.
func blobPrefix(ref BlobRef) (key [8]byte) {
	binary.BigEndian.PutUint32(key[0:], ref.Segment)
	binary.BigEndian.PutUint32(key[4:], ref.Offset)
	return key
}

// refRow is the part of a reference that its key does not have.
func refRow(ref BlobRef) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 8), ref.Head)
	return binary.BigEndian.AppendUint32(b, ref.Length)
}

// decodeRef reads a reference and its owner from a key and a row.
func decodeRef(key, row []byte) (ref BlobRef, owner []byte, err error) {
	if len(key) < 9 || len(row) != 8 {
		return BlobRef{}, nil, fmt.Errorf("blob reference %x: %w", key, ErrDamagedRow)
	}
	return BlobRef{
		Segment: binary.BigEndian.Uint32(key),
		Offset:  binary.BigEndian.Uint32(key[4:]),
		Head:    binary.BigEndian.Uint32(row),
		Length:  binary.BigEndian.Uint32(row[4:]),
	}, key[8:], nil
}

// cutField cuts a length and as many bytes from the front of b.
func cutField(b []byte) (field, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, ErrDamagedRow
	}
	return b[used : used+int(n)], b[used+int(n):], nil
}

// msTime undoes UnixMilli as rows and keys have it.
func msTime(ms uint64) time.Time { return time.UnixMilli(int64(ms)).UTC() }

// keyTime is t as rows and keys can hold it: in whole milliseconds since 1970.
func keyTime(t time.Time) time.Time { return msTime(uint64(max(t.UnixMilli(), 0))) }
