package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// An Envelope is the SMTP envelope of a message. It is stored beside the message's bytes: if the
// database is lost, a rebuild finds in it which mailboxes the message belongs to. Later versions
// may add fields.
type Envelope struct {
	From     string    `json:"from"`
	To       []string  `json:"to"`
	Received time.Time `json:"received"`
	Mailbox  uint32    `json:"mailbox,omitempty"`  // number of the mailbox, if To does not name it
	Outgoing bool      `json:"outgoing,omitempty"` // the message was submitted for sending: To are the recipients, not mailboxes that received it
}

// MaxFilingJobs is how many jobs of one kind may file messages at the same time.
const MaxFilingJobs = 2

// A StoredMessage is a parsed message whose bytes are in a segment. It can be filed in any number
// of folders.
type StoredMessage struct {
	store.Facts
	Blob    store.BlobRef
	Meta    store.Meta // without the fields of Facts
	Bits    store.Bits
	Summary *msg.Summary
	Report  *DeliveryReport // if it is a bounce or complaint about a message that we sent; else nil
	Embeds  bool            // it contains another whole message, whose author may be anybody
	Root    *msg.Part       // its MIME structure; nil after it is no longer needed
}

// meta returns the Meta of the message. The fields that depend on the mailbox are not set.
func (d *StoredMessage) meta() store.Meta {
	meta := d.Meta
	meta.SPF, meta.DKIM, meta.DMARC, meta.Judged = d.SPF, d.DKIM, d.DMARC, d.Judged
	return meta
}

// JudgedText returns the text that is stored as Meta.Judged: the DMARC policy of the author's
// domain, and the DMARC result and policy by RFC 7489.
func JudgedText(policy, formerResult, formerPolicy string) string {
	return policy + " " + formerResult + " " + formerPolicy
}

// A DeliveryReport is what a bounce or complaint says about a message that we sent.
type DeliveryReport struct {
	DSN       *msg.Report    // nil if it is not a bounce
	Complaint *msg.Complaint // nil if it is not a complaint

	// These fields name the message that the report is about, in addition to the return path that
	// received the report. They are compared with delivered mail only.
	RowID             string
	Domain, MessageID string
}

// Prepare parses a message and appends its bytes to a segment. It must not be called in a
// transaction. If the caller does not file the message, it must call Release.
func (s *Service) Prepare(body store.Body, env Envelope) (*StoredMessage, error) {
	envelope, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("encode the envelope of a message: %w", err)
	}
	d, err := ReadMessage(body, body.Size(), env.From)
	if err != nil {
		return nil, err
	}
	killpoint.At("inbox.append")
	d.Blob, err = s.Store.Append(envelope, body)
	return d, err
}

// ReadMessage parses a message. body need not be in a segment. The result has no Blob.
func ReadMessage(body io.ReaderAt, size int64, sender string) (*StoredMessage, error) {
	root, err := msg.Scan(io.NewSectionReader(body, 0, size))
	if err != nil {
		return nil, fmt.Errorf("parse message: %w", err)
	}
	sum, err := msg.Summarize(body, root)
	if err != nil {
		return nil, fmt.Errorf("parse message: %w", err)
	}
	d := &StoredMessage{Summary: sum, Root: root, Meta: store.Meta{
		Structure: root.AppendBinary(nil), Preview: sum.Preview, ReturnPath: sender,
	}}
	d.Embeds = embedsMessage(root)
	if len(sum.Attachments) > 0 {
		d.Bits |= store.BitAttachments
	}
	if sum.AutoReply {
		d.Bits |= store.BitAutoReply
	}
	if sum.Bounce {
		d.Bits |= store.BitBounce
	}

	isReport := root.IsMultipart() && root.Subtype == "report"
	if report, ok := msg.ParseReport(body, root); ok && (sum.Bounce || isReport || sender == "") {
		d.SetDSN(report)
	} else if complaint, ok := msg.ParseComplaint(body, root); ok {
		d.Report = &DeliveryReport{Complaint: complaint}
	}
	return d, nil
}

// SetDSN makes the message a bounce with the given report.
func (d *StoredMessage) SetDSN(report *msg.Report) {
	d.Report = &DeliveryReport{DSN: report}
	d.Bits |= store.BitBounce | store.BitAutoReply
}

// embedsMessage reports whether a MIME part is a whole message, or contains one.
func embedsMessage(p *msg.Part) bool {
	return p.IsMessage() || slices.ContainsFunc(p.Children, embedsMessage)
}

// Release gives up a message that was not filed, so that compaction can delete its bytes.
func (s *Service) Release(d *StoredMessage) { s.Store.Release(d.Blob) }

// A Filing says in which folder a stored message is filed, and with which properties.
type Filing struct {
	Folder   uint32
	Received time.Time // INTERNALDATE; ignored if Arrived is set: then it is the time at which the row is written
	Flags    store.Flags
	Keywords []string
	UID      uint32 // assigned by another server; 0: the folder's next UID
	Arrived  bool   // it was received from a sender; the mailbox's owner did not add it
	Copied   bool   // a rule copied it from an arriving message; Received is the time of that message, or zero if that message was not filed
	Own      bool   // the mailbox itself sent it, so requests that wait for mail do not get it
	Moved    bool   // a rule moved it into this folder
	Spam     string // the result of the spam classifier, in the format of Meta.Spam
	warmup   bool   // it is filed as warm-up mail, and deleted when it is old

	Recipient string // from the envelope; "" if there was no envelope
}

// File files a stored message in a folder of the mailbox and notifies watchers. If f.Arrived is
// set, it also counts the message and emits email.received. It writes all rows in the caller's
// transaction.
func (s *Service) File(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, f Filing) (*store.Message, error) {
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err != nil {
		return nil, err
	}
	m := &store.Message{
		Account: mb.AccountNum, Mailbox: mb.Num, Folder: f.Folder, Blob: d.Blob, Received: f.Received,
		Flags: f.Flags, Keywords: f.Keywords, Bits: d.Bits, UID: f.UID,
	}
	add := tx.AddMessage
	if f.UID != 0 {
		add = tx.AddMessageAt
	}
	meta := d.meta()
	filter := newWarmupFilter(a)
	meta.Warmup = warmupText(f.warmup, filter.matchingField(d.Summary.XFields))
	if filter.matches(d.Summary.Subject, d.Summary.Preview, &meta) {
		m.Bits |= store.BitWarmup
	}
	if f.Recipient != mb.Email {
		meta.Recipient = f.Recipient
	}
	meta.Spam = f.Spam
	fromMachine := d.Bits&(store.BitAutoReply|store.BitBounce) != 0 // an automatic message may quote the message that it answers
	if !fromMachine && !d.Embeds || d.Origin == agents.OriginTainted {
		meta.Origin = d.Origin
	}
	if f.Folder != store.InboxID {
		in, err := tx.Folder(mb.Num, f.Folder)
		if err != nil {
			return nil, err
		}
		if roleOf(in) == roleDrafts {
			meta.Drafted = "1"
		}
	}
	if f.Arrived || f.Copied && m.Received.IsZero() {
		m.Received, err = s.arrivals.nextArrivalTime(tx, mb.AccountNum)
		if err != nil {
			return nil, err
		}
	}
	if (f.Arrived || f.Copied) && !f.Own {
		meta.Arrived = arrivedText(d.Proven, d.Lacks)
	}
	meta.OriginalMessageID, err = s.answeredMessageID(tx, mb.AccountID, d.Summary)
	if err != nil {
		return nil, err
	}
	meta.ThreadID, err = ThreadFor(tx, mb.AccountNum, d.Summary, meta.OriginalMessageID)
	if err != nil {
		return nil, err
	}
	if err := add(m, &meta); err != nil {
		return nil, err
	}
	if m.Folder != store.InboxID { // for INBOX, the text indexer records the subject later
		if err := recordSubject(tx, mb.AccountNum, d.Summary, meta.ThreadID, m.Received); err != nil {
			return nil, err
		}
	}
	tx.After(func() { s.Hub.Changed(mb.Num) })
	if meta.Arrived != "" {
		tx.After(func() { s.arrivals.recordArrival(mb.AccountNum, m) })
	}
	if !f.Arrived {
		return m, nil
	}
	if err := s.Count(tx, mb.AccountID, func(st *store.DayStat) { st.Received++ }); err != nil {
		return nil, err
	}
	if m.Bits&store.BitWarmup != 0 || m.Folder != store.InboxID && !f.Moved {
		return m, nil
	}
	data, err := receivedData(tx, mb, d, m, &meta)
	if err == nil {
		_, err = s.events.Emit(tx, mb.AccountID, events.EventEmailReceived, events.About{MailboxID: mb.ID, Domain: mb.DomainID}, data)
	}
	return m, err
}

// receivedData returns the event data of a message that has arrived. m is nil if the message was
// not filed in any folder.
func receivedData(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, m *store.Message, meta *store.Meta) (ReceivedData, error) {
	sum := d.Summary
	refs := append([]string{}, sum.References...)
	if over := len(refs) - maxEventReferences; over > 0 {
		refs = append(refs[:1], refs[1+over:]...)
	}
	out := ReceivedData{
		UserID: mb.ID, Mailbox: mb.Email, Recipient: cmp.Or(meta.Recipient, mb.Email),
		Sender: firstEmail(sum.From), SenderName: firstShownName(sum.From), From: firstAddressText(sum.From),
		To: firstAddressTexts(sum.To), ToCount: sum.ToCount, CC: firstAddressTexts(sum.Cc), CCCount: sum.CcCount, Subject: sum.Subject, MessageID: sum.MessageID,
		InReplyTo: core.OrNull(sum.InReplyTo), References: refs, ReferencesCount: len(sum.References), ThreadID: meta.ThreadID,
		ReceivedAt: core.Time{Time: tx.Now()}, HasAttachments: d.Bits&store.BitAttachments != 0,
		Size: int64(d.Blob.Length), IsAutoReply: d.Bits&store.BitAutoReply != 0, OriginalMessageID: core.OrNull(meta.OriginalMessageID),
	}
	if m == nil {
		return out, nil
	}
	out.UID, out.ReceivedAt, out.Folder = core.UIDText(m.UID), core.Time{Time: m.Received}, InboxName
	if m.Folder != store.InboxID {
		f, err := tx.Folder(mb.Num, m.Folder)
		if err != nil {
			return out, err
		}
		out.Folder = f.Name
	}
	return out, nil
}

// RuleMatchedData is the data of email.rule_matched: the data of email.received and the matching
// rule.
type RuleMatchedData struct {
	RuleID   string  `json:"rule_id" words:"ours" example:"rule_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	RuleName string  `json:"rule_name" words:"ours" example:"Invoices"`
	Value    *string `json:"value" words:"ours" example:"invoice"` // The value of the rule's action `webhook`.
	ReceivedData
}

// EmitRuleMatched emits the event that a rule of the mailbox has matched an arriving message. m is
// nil if the message was not filed in any folder.
func (s *Service) EmitRuleMatched(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, m *store.Message, recipient string, rule RuleMatchedData) error {
	meta := d.meta()
	if m != nil {
		kept, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
		if err != nil {
			return err
		}
		meta = *kept
	} else if recipient != mb.Email {
		meta.Recipient = recipient
	}
	data, err := receivedData(tx, mb, d, m, &meta)
	if err != nil {
		return err
	}
	rule.ReceivedData = data
	_, err = s.events.Emit(tx, mb.AccountID, events.EventRuleMatched, events.About{MailboxID: mb.ID, Domain: mb.DomainID}, rule)
	return err
}

// maxReplyIDs is how many of a reply's Message-IDs are looked up among the messages that were sent.
const maxReplyIDs = 10

// RepliesToSent reports whether a message is a reply to a message that the account has sent.
func (s *Service) RepliesToSent(tx *store.Tx, accountID string, sum *msg.Summary) (bool, error) {
	id, err := s.answeredMessageID(tx, accountID, sum)
	return id != "", err
}

// answeredMessageID returns the Message-ID of the account's sent message that this message replies
// to; "" if there is none. It tries the Message-IDs in In-Reply-To first, and then those in
// References, the newest first. If a relay has replaced our Message-ID, the reply names the relay's
// ID, which is mapped back to ours.
func (s *Service) answeredMessageID(tx *store.Tx, accountID string, sum *msg.Summary) (string, error) {
	ids := []string{sum.InReplyTo}
	for i := len(sum.References) - 1; i >= 0 && len(ids) < maxReplyIDs; i-- {
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
			if core.DomainOfAddress(row.Sender) == row.Domain { // otherwise the account only forwarded the message
				return id, nil
			}
			break
		}
	}
	return "", nil
}

// Limits of the lists in the data of one event. A message to a thousand mailboxes causes a thousand
// events.
const (
	maxEventAddresses  = 50
	maxEventReferences = 20 // the first reference and the newest 19
)

func firstAddressTexts(list []msg.Address) []string {
	return addressTexts(list[:min(len(list), maxEventAddresses)])
}

// ReceivedData is the data of email.received.
type ReceivedData struct {
	UserID            string    `json:"user_id" words:"ours"`
	Mailbox           string    `json:"mailbox" words:"ours"` // The mailbox's address.
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SenderName        string    `json:"sender_name" words:"theirs"`
	From              string    `json:"from" words:"theirs"`
	To                []string  `json:"to" words:"theirs"`
	ToCount           int       `json:"to_count"` // All addresses in To; the list has the first 50.
	CC                []string  `json:"cc" words:"theirs"`
	CCCount           int       `json:"cc_count"` // All addresses in Cc; the list has the first 50.
	Subject           string    `json:"subject" words:"theirs"`
	MessageID         string    `json:"message_id" words:"theirs"` // The Message-ID header, with brackets.
	InReplyTo         *string   `json:"in_reply_to" words:"theirs"`
	References        []string  `json:"references" words:"theirs"`
	ReferencesCount   int       `json:"references_count"` // All of them; the list has at most 20, the first and the newest 19.
	ThreadID          string    `json:"thread_id" words:"ours"`
	Folder            string    `json:"folder" words:"theirs" known:"folders"` // The IMAP name of the folder that it is in; empty where it is in none.
	UID               string    `json:"uid" words:"ours"`                      // The IMAP UID.
	ReceivedAt        core.Time `json:"received_at"`
	HasAttachments    bool      `json:"has_attachments"`
	Size              int64     `json:"size"`
	IsAutoReply       bool      `json:"is_auto_reply"`
	OriginalMessageID *string   `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
}

func addressTexts(list []msg.Address) []string {
	out := make([]string, 0, len(list))
	for _, a := range list {
		a.Name = msg.ShownName(a.Name)
		out = append(out, a.String())
	}
	return out
}

func firstAddressText(list []msg.Address) string {
	a := firstAddress(list)
	a.Name = msg.ShownName(a.Name)
	return a.String()
}

func firstEmail(list []msg.Address) string { return firstAddress(list).Email() }

func firstShownName(list []msg.Address) string { return msg.ShownName(firstAddress(list).Name) }

func firstAddress(list []msg.Address) msg.Address {
	if len(list) == 0 {
		return msg.Address{}
	}
	return list[0]
}

// Watch returns a channel that receives a value after each change of the mailbox, and a function
// that ends the watch.
func (s *Service) Watch(_ context.Context, mailbox uint32) (<-chan struct{}, func()) {
	return s.Hub.Watch(mailbox)
}
