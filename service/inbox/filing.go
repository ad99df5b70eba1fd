package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// An Envelope is what SMTP said about a message; it is kept beside its bytes.
type Envelope struct {
	From     string    `json:"from"`
	To       []string  `json:"to"`
	Received time.Time `json:"received"`
}

// A StoredMessage is a message that was read once and whose bytes are in a segment, ready to be
// filed in any number of folders.
type StoredMessage struct {
	Blob    store.BlobRef
	Meta    store.Meta
	bits    store.Bits
	Summary *msg.Summary
	Report  *DeliveryReport // what it says about a message of ours; nil: nothing
}

// A DeliveryReport is what a message says about one of ours.
type DeliveryReport struct {
	DSN       *msg.Report    // nil: it is no bounce
	Complaint *msg.Complaint // nil: it is no complaint

	// What in it proves of which message it speaks, beside the address that it came to. Only mail
	// that is delivered is looked through for it.
	RowID             string
	Domain, MessageID string
}

// readDeliveryReport finds out what a message says; nil for one that is not about another.
func readDeliveryReport(body io.ReaderAt, root *msg.Part, sum *msg.Summary, sender string) *DeliveryReport {
	isReport := root.IsMultipart() && root.Subtype == "report"
	if report, ok := msg.ParseReport(body, root); ok && (sum.Bounce || isReport || sender == "") {
		return &DeliveryReport{DSN: report}
	}
	if c, ok := msg.ParseComplaint(body, root); ok {
		return &DeliveryReport{Complaint: c}
	}
	return nil
}

// Prepare reads a message and appends its bytes, outside any transaction. Whoever does not file it
// calls release.
func (s *Service) Prepare(body *store.Spool, env Envelope) (*StoredMessage, error) {
	envelope, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("write envelope: %w", err)
	}
	d, err := ReadMessage(body, body.Size(), env.From)
	if err != nil {
		return nil, err
	}
	d.Blob, err = s.Store.Append(envelope, body)
	return d, err
}

// ReadMessage reads a message whose bytes are appended already, or are still to be.
func ReadMessage(body io.ReaderAt, size int64, sender string) (*StoredMessage, error) {
	root, err := msg.Scan(io.NewSectionReader(body, 0, size))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	sum, err := msg.Summarize(body, root)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	d := &StoredMessage{Summary: sum, Meta: store.Meta{
		Structure: root.AppendBinary(nil), Preview: sum.Preview, ReturnPath: sender,
	}}
	if len(sum.Attachments) > 0 {
		d.bits |= store.BitAttachments
	}
	if sum.AutoReply {
		d.bits |= store.BitAutoReply
	}
	if sum.Bounce {
		d.bits |= store.BitBounce
	}
	if d.Report = readDeliveryReport(body, root, sum, sender); d.Report != nil && d.Report.DSN != nil {
		d.bits |= store.BitBounce | store.BitAutoReply
	}
	return d, nil
}

// Release gives the bytes of a stored message that nobody filed back to compaction.
func (s *Service) Release(d *StoredMessage) { s.Store.Release(d.Blob) }

// A Filing says how a stored message goes into a folder.
type Filing struct {
	Folder   uint32
	Received time.Time
	Flags    store.Flags
	keywords []string
	UID      uint32 // that another server gave; 0: the folder's next
	Arrived  bool   // it came from somebody, rather than being put there by the mailbox's owner

	Recipient string // that the envelope named; "" where there was none
}

// File puts a stored message into a folder of the mailbox, tells who watches, and for mail that
// arrives counts it and emits email.received, all in the caller's transaction.
func (s *Service) File(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, f Filing) (*store.Message, error) {
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err != nil {
		return nil, err
	}
	m := &store.Message{
		Account: mb.AccountNum, Mailbox: mb.Num, Folder: f.Folder, Blob: d.Blob, Received: f.Received,
		Flags: f.Flags, Keywords: f.keywords, Bits: d.bits, UID: f.UID,
	}
	add := tx.AddMessage
	if f.UID != 0 {
		add = tx.AddMessageAt
	}
	if warmup(a.WarmupPhrases, d.Summary) {
		m.Bits |= store.BitWarmup
	}
	meta := d.Meta
	if f.Recipient != mb.Email {
		meta.Recipient = f.Recipient
	}
	if meta.OriginalMessageID, err = s.answered(tx, mb.AccountID, d.Summary); err != nil {
		return nil, err
	}
	if meta.ThreadID, err = thread(tx, mb.AccountNum, d.Summary, meta.OriginalMessageID); err != nil {
		return nil, err
	}
	if err := add(m, &meta); err != nil {
		return nil, err
	}
	if m.Folder != store.InboxID { // those of INBOX are noted when it is indexed
		if err := recordSubject(tx, mb.AccountNum, d.Summary, meta.ThreadID, m.Received); err != nil {
			return nil, err
		}
	}
	tx.After(func() { s.Hub.Changed(mb.Num) })
	if !f.Arrived {
		return m, nil
	}
	return m, s.arrived(tx, mb, m, d, &meta)
}

// soughtIDs is how many Message-IDs of a reply are looked for among what was sent.
const soughtIDs = 10

// answered finds the message of the account that this one answers: the one that In-Reply-To names,
// else the newest of References. Where a relay replaced its Message-ID, the reply names the
// relay's, and the mapping leads back to ours.
func (s *Service) answered(tx *store.Tx, accountID string, sum *msg.Summary) (string, error) {
	ids := []string{sum.InReplyTo}
	for i := len(sum.References) - 1; i >= 0 && len(ids) < soughtIDs; i-- {
		ids = append(ids, sum.References[i])
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		for _, m := range store.MappingsByProvided.Desc(tx, accountID+id+"\x00", "") {
			return m.Original, nil
		}
		for _, row := range store.OutgoingsByMessageID.Desc(tx, accountID+id+"\x00", "") {
			if core.DomainOfAddress(row.Sender) == row.Domain { // else we forwarded it
				return id, nil
			}
			break
		}
	}
	return "", nil
}

// arrived counts mail that came in and emits email.received, unless it is warm-up traffic.
func (s *Service) arrived(tx *store.Tx, mb *store.Mailbox, m *store.Message, d *StoredMessage, meta *store.Meta) error {
	err := s.Count(tx, mb.AccountID, func(st *store.DayStat) { st.Received++ })
	if err != nil || m.Bits&store.BitWarmup != 0 || m.Folder != store.InboxID {
		return err
	}
	sum := d.Summary
	_, err = s.events.Emit(tx, mb.AccountID, events.EventEmailReceived, ReceivedData{
		UserID: mb.ID, Mailbox: mb.Email, Recipient: cmp.Or(meta.Recipient, mb.Email),
		Sender: firstEmail(sum.From), SenderName: firstName(sum.From), From: firstText(sum.From),
		To: fewTexts(sum.To), ToCount: len(sum.To), CC: fewTexts(sum.Cc), CCCount: len(sum.Cc), Subject: sum.Subject, MessageID: sum.MessageID,
		InReplyTo: core.OrNull(sum.InReplyTo), References: fewRefs(sum.References), ReferencesCount: len(sum.References), ThreadID: meta.ThreadID,
		UID: core.UIDText(m.UID), ReceivedAt: core.Time{Time: m.Received}, HasAttachments: m.Bits&store.BitAttachments != 0,
		Size: int64(m.Blob.Length), IsAutoReply: m.Bits&store.BitAutoReply != 0, OriginalMessageID: core.OrNull(meta.OriginalMessageID),
	})
	return err
}

// Bounds of the lists in events: a message to a thousand mailboxes here has a thousand events.
const (
	eventAddresses  = 50
	eventReferences = 20 // the first and the newest ones
)

func fewTexts(list []msg.Address) []string {
	return addressTexts(list[:min(len(list), eventAddresses)])
}

func fewRefs(refs []string) []string {
	if over := len(refs) - eventReferences; over > 0 {
		return append([]string{refs[0]}, refs[1+over:]...)
	}
	return append([]string{}, refs...)
}

// ReceivedData is the data of email.received.
type ReceivedData struct {
	UserID            string    `json:"user_id" words:"ours"`
	Mailbox           string    `json:"mailbox" words:"ours"`
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SenderName        string    `json:"sender_name" words:"theirs"`
	From              string    `json:"from" words:"theirs"`
	To                []string  `json:"to" words:"theirs"`
	ToCount           int       `json:"to_count"`
	CC                []string  `json:"cc" words:"theirs"`
	CCCount           int       `json:"cc_count"`
	Subject           string    `json:"subject" words:"theirs"`
	MessageID         string    `json:"message_id" words:"theirs"`
	InReplyTo         *string   `json:"in_reply_to" words:"theirs"`
	References        []string  `json:"references" words:"theirs"`
	ReferencesCount   int       `json:"references_count"`
	ThreadID          string    `json:"thread_id" words:"ours"`
	UID               string    `json:"uid" words:"ours"`
	ReceivedAt        core.Time `json:"received_at"`
	HasAttachments    bool      `json:"has_attachments"`
	Size              int64     `json:"size"`
	IsAutoReply       bool      `json:"is_auto_reply"`
	OriginalMessageID *string   `json:"original_message_id" words:"theirs"`
}

func addressTexts(list []msg.Address) []string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func firstText(list []msg.Address) string  { return first(list).String() }
func firstEmail(list []msg.Address) string { return first(list).Email() }
func firstName(list []msg.Address) string  { return first(list).Name }

func first(list []msg.Address) msg.Address {
	if len(list) == 0 {
		return msg.Address{}
	}
	return list[0]
}

// QuotaLeft says how many bytes the mailbox may still take; a negative number is no bound.
func QuotaLeft(tx *store.Tx, mb *store.Mailbox) (int64, error) {
	if mb.QuotaBytes == nil {
		return -1, nil
	}
	used, err := tx.MailboxUsage(mb.Num)
	return max(*mb.QuotaBytes-used.Bytes, 0), err
}

// Watch gives a channel that gets a value soon after each change of the mailbox, and a function
// that ends the watch.
func (s *Service) Watch(_ context.Context, mailbox uint32) (<-chan struct{}, func()) {
	return s.Hub.Watch(mailbox)
}
