package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// An Envelope is what SMTP said about a message; it is kept beside its bytes.
type Envelope struct {
	From     string    `json:"from"`
	To       []string  `json:"to"`
	Received time.Time `json:"received"`
}

// A draft is a message that was read once and whose bytes are in a segment, ready to be filed in
// any number of folders.
type draft struct {
	blob    store.BlobRef
	meta    store.Meta
	bits    store.Bits
	summary *msg.Summary
	tiding  *tiding // what it says about a message of ours; nil: nothing
}

// A tiding is what a message says about one of ours.
type tiding struct {
	report    *msg.Report    // nil: it is no bounce
	complaint *msg.Complaint // nil: it is no complaint

	// What in it proves of which message it speaks, beside the address that it came to. Only mail
	// that is delivered is looked through for it.
	rowID             string
	domain, messageID string
}

// readTiding finds out what a message says; nil for one that is not about another.
func readTiding(body io.ReaderAt, root *msg.Part, sum *msg.Summary, sender string) *tiding {
	isReport := root.IsMultipart() && root.Subtype == "report"
	if report, ok := msg.ParseReport(body, root); ok && (sum.Bounce || isReport || sender == "") {
		return &tiding{report: report}
	}
	if c, ok := msg.ParseComplaint(body, root); ok {
		return &tiding{complaint: c}
	}
	return nil
}

// prepare reads a message and appends its bytes, outside any transaction. Whoever does not file it
// calls release.
func (s *Service) prepare(body *store.Spool, env Envelope) (*draft, error) {
	envelope, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("write envelope: %w", err)
	}
	d, err := readDraft(body, body.Size(), env.From)
	if err != nil {
		return nil, err
	}
	d.blob, err = s.Store.Append(envelope, body)
	return d, err
}

// readDraft reads a message whose bytes are appended already, or are still to be.
func readDraft(body io.ReaderAt, size int64, sender string) (*draft, error) {
	root, err := msg.Scan(io.NewSectionReader(body, 0, size))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	sum, err := msg.Summarize(body, root)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	d := &draft{summary: sum, meta: store.Meta{
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
	if d.tiding = readTiding(body, root, sum, sender); d.tiding != nil && d.tiding.report != nil {
		d.bits |= store.BitBounce | store.BitAutoReply
	}
	return d, nil
}

// release gives the bytes of a draft that nobody filed back to compaction.
func (s *Service) release(d *draft) { s.Store.Release(d.blob) }

// A filing says how a draft goes into a folder.
type filing struct {
	folder   uint32
	received time.Time
	flags    store.Flags
	keywords []string
	uid      uint32 // that another server gave; 0: the folder's next
	arrived  bool   // it came from somebody, rather than being put there by the mailbox's owner

	recipient string // that the envelope named; "" where there was none
}

// file puts a draft into a folder of the mailbox, tells who watches, and for mail that arrives
// counts it and emits email.received, all in the caller's transaction.
func (s *Service) file(tx *store.Tx, mb *store.Mailbox, d *draft, f filing) (*store.Message, error) {
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err != nil {
		return nil, err
	}
	m := &store.Message{
		Account: mb.AccountNum, Mailbox: mb.Num, Folder: f.folder, Blob: d.blob, Received: f.received,
		Flags: f.flags, Keywords: f.keywords, Bits: d.bits, UID: f.uid,
	}
	add := tx.AddMessage
	if f.uid != 0 {
		add = tx.AddMessageAt
	}
	if warmup(a.WarmupPhrases, d.summary) {
		m.Bits |= store.BitWarmup
	}
	meta := d.meta
	if f.recipient != mb.Email {
		meta.Recipient = f.recipient
	}
	if meta.OriginalMessageID, err = s.answered(tx, mb.AccountID, d.summary); err != nil {
		return nil, err
	}
	if meta.ThreadID, err = thread(tx, mb.AccountNum, d.summary, meta.OriginalMessageID); err != nil {
		return nil, err
	}
	if err := add(m, &meta); err != nil {
		return nil, err
	}
	if m.Folder != store.InboxID { // those of INBOX are noted when it is indexed
		if err := noteSubject(tx, mb.AccountNum, d.summary, meta.ThreadID, m.Received); err != nil {
			return nil, err
		}
	}
	tx.After(func() { s.hub.changed(mb.Num) })
	if !f.arrived {
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
			if domainOfAddress(row.Sender) == row.Domain { // else we forwarded it
				return id, nil
			}
			break
		}
	}
	return "", nil
}

// arrived counts mail that came in and emits email.received, unless it is warm-up traffic.
func (s *Service) arrived(tx *store.Tx, mb *store.Mailbox, m *store.Message, d *draft, meta *store.Meta) error {
	err := s.count(tx, mb.AccountID, func(st *store.DayStat) { st.Received++ })
	if err != nil || m.Bits&store.BitWarmup != 0 || m.Folder != store.InboxID {
		return err
	}
	sum := d.summary
	_, err = s.emit(tx, mb.AccountID, EventEmailReceived, receivedData{
		UserID: mb.ID, Mailbox: mb.Email, Recipient: cmp.Or(meta.Recipient, mb.Email),
		Sender: firstEmail(sum.From), SenderName: firstName(sum.From), From: firstText(sum.From),
		To: fewTexts(sum.To), ToCount: len(sum.To), CC: fewTexts(sum.Cc), CCCount: len(sum.Cc), Subject: sum.Subject, MessageID: sum.MessageID,
		InReplyTo: orNull(sum.InReplyTo), References: fewRefs(sum.References), ReferencesCount: len(sum.References), ThreadID: meta.ThreadID,
		UID: uidText(m.UID), ReceivedAt: Time{m.Received}, HasAttachments: m.Bits&store.BitAttachments != 0,
		Size: int64(m.Blob.Length), IsAutoReply: m.Bits&store.BitAutoReply != 0, OriginalMessageID: orNull(meta.OriginalMessageID),
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

// receivedData is the data of email.received.
type receivedData struct {
	UserID            string   `json:"user_id" words:"ours"`
	Mailbox           string   `json:"mailbox" words:"ours"`
	Recipient         string   `json:"recipient" words:"theirs"`
	Sender            string   `json:"sender" words:"theirs"`
	SenderName        string   `json:"sender_name" words:"theirs"`
	From              string   `json:"from" words:"theirs"`
	To                []string `json:"to" words:"theirs"`
	ToCount           int      `json:"to_count"`
	CC                []string `json:"cc" words:"theirs"`
	CCCount           int      `json:"cc_count"`
	Subject           string   `json:"subject" words:"theirs"`
	MessageID         string   `json:"message_id" words:"theirs"`
	InReplyTo         *string  `json:"in_reply_to" words:"theirs"`
	References        []string `json:"references" words:"theirs"`
	ReferencesCount   int      `json:"references_count"`
	ThreadID          string   `json:"thread_id" words:"ours"`
	UID               string   `json:"uid" words:"ours"`
	ReceivedAt        Time     `json:"received_at"`
	HasAttachments    bool     `json:"has_attachments"`
	Size              int64    `json:"size"`
	IsAutoReply       bool     `json:"is_auto_reply"`
	OriginalMessageID *string  `json:"original_message_id" words:"theirs"`
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

// mailboxOf gives a mailbox of the account; another account's is not there.
func mailboxOf(tx *store.Tx, who Actor, id string) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.Get(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && mb.AccountID != who.AccountID {
		return nil, NotFound("email user")
	}
	return mb, err
}

// domainOf gives a domain of the account; another account's is not there.
func domainOf(tx *store.Tx, who Actor, id string) (*store.Domain, error) {
	d, err := store.Domains.Get(tx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && d.AccountID != who.AccountID {
		return nil, NotFound("domain")
	}
	return d, err
}

// quotaLeft says how many bytes the mailbox may still take; a negative number is no bound.
func quotaLeft(tx *store.Tx, mb *store.Mailbox) (int64, error) {
	if mb.QuotaBytes == nil {
		return -1, nil
	}
	used, err := tx.MailboxUsage(mb.Num)
	return max(*mb.QuotaBytes-used.Bytes, 0), err
}

// A MailboxUser is who has logged in to a mailbox by IMAP or submission.
type MailboxUser struct {
	AccountID  string
	AccountNum uint32
	MailboxID  string
	Mailbox    uint32
	Email      string
	IP         string
}

// Watch gives a channel that gets a value soon after each change of the mailbox, and a function
// that ends the watch.
func (s *Service) Watch(_ context.Context, mailbox uint32) (<-chan struct{}, func()) {
	return s.hub.watch(mailbox)
}
