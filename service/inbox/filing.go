package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// An Envelope is what SMTP said about a message; it is kept beside its bytes. Should the database
// be lost, it tells whose the message is. Later versions may add fields.
type Envelope struct {
	From     string    `json:"from"`
	To       []string  `json:"to"`
	Received time.Time `json:"received"`
	Mailbox  uint32    `json:"mailbox,omitempty"`  // number of the one that it was put into, where To does not tell
	Outgoing bool      `json:"outgoing,omitempty"` // it was written to be sent: To does not have it from here
}

// ArrivalsMost is how many jobs of a kind file messages at a time.
const ArrivalsMost = 2

// A StoredMessage is a message that was read once and whose bytes are in a segment, ready to be
// filed in any number of folders.
type StoredMessage struct {
	store.Facts
	Blob    store.BlobRef
	Meta    store.Meta // without the facts
	Bits    store.Bits
	Summary *msg.Summary
	Report  *DeliveryReport // what it says about a message of ours; nil: nothing
	Embeds  bool            // it has a whole message in it, whose words are anybody's
	Root    *msg.Part       // what it consists of; nil where nobody needs it any more
}

// meta is what the rows of the message keep of it, so far as that does not depend on a mailbox.
func (d *StoredMessage) meta() store.Meta {
	meta := d.Meta
	meta.SPF, meta.DKIM, meta.DMARC, meta.Judged = d.SPF, d.DKIM, d.DMARC, d.Judged
	return meta
}

// Judged is the form in which a Meta keeps the policy that DMARC asks for, and what RFC 7489 says.
func Judged(policy, formerResult, formerPolicy string) string {
	return policy + " " + formerResult + " " + formerPolicy
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

// Prepare reads a message and appends its bytes, outside any transaction. Whoever does not file it
// calls release.
func (s *Service) Prepare(body store.Body, env Envelope) (*StoredMessage, error) {
	envelope, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("write envelope: %w", err)
	}
	d, err := ReadMessage(body, body.Size(), env.From)
	if err != nil {
		return nil, err
	}
	killpoint.At("inbox.append")
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

	// What it says about a message of ours: a bounce, a complaint, or nothing.
	isReport := root.IsMultipart() && root.Subtype == "report"
	if report, ok := msg.ParseReport(body, root); ok && (sum.Bounce || isReport || sender == "") {
		d.SetDSN(report)
	} else if complaint, ok := msg.ParseComplaint(body, root); ok {
		d.Report = &DeliveryReport{Complaint: complaint}
	}
	return d, nil
}

// SetDSN notes that a message is a bounce, and what it says.
func (d *StoredMessage) SetDSN(report *msg.Report) {
	d.Report = &DeliveryReport{DSN: report}
	d.Bits |= store.BitBounce | store.BitAutoReply
}

// embedsMessage reports whether a part is a whole message, or has one.
func embedsMessage(p *msg.Part) bool {
	return p.IsMessage() || slices.ContainsFunc(p.Children, embedsMessage)
}

// Release gives the bytes of a stored message that nobody filed back to compaction.
func (s *Service) Release(d *StoredMessage) { s.Store.Release(d.Blob) }

// A Filing says how a stored message goes into a folder.
type Filing struct {
	Folder   uint32
	Received time.Time // not of one that arrives: it gets the time at which its row is written
	Flags    store.Flags
	Keywords []string
	UID      uint32 // that another server gave; 0: the folder's next
	Arrived  bool   // it came from somebody, rather than being put there by the mailbox's owner
	Copied   bool   // a rule made it of one that arrives, and of its time, if that was filed
	Own      bool   // the mailbox itself has sent it, so that nobody waits for it
	Moved    bool   // a rule put it there
	Spam     string // what the classifier said, as a Meta keeps it

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
		Flags: f.Flags, Keywords: f.Keywords, Bits: d.Bits, UID: f.UID,
	}
	add := tx.AddMessage
	if f.UID != 0 {
		add = tx.AddMessageAt
	}
	if len(a.WarmupPhrases) > 0 && hasPhrase(foldPhrases(a.WarmupPhrases), d.Summary.Subject, d.Summary.Preview) {
		m.Bits |= store.BitWarmup
	}
	meta := d.meta()
	if f.Recipient != mb.Email {
		meta.Recipient = f.Recipient
	}
	meta.Spam = f.Spam
	fromMachine := d.Bits&(store.BitAutoReply|store.BitBounce) != 0 // machines repeat what they were sent
	if !fromMachine && !d.Embeds || d.Origin == agents.OriginTainted {
		meta.Words = d.Origin
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
		m.Received, err = s.arrivals.next(tx, mb.AccountNum)
		if err != nil {
			return nil, err
		}
	}
	if (f.Arrived || f.Copied) && !f.Own {
		meta.Arrived = arrivedText(d.Proven, d.Lacks)
	}
	meta.OriginalMessageID, err = s.answered(tx, mb.AccountID, d.Summary)
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
	if m.Folder != store.InboxID { // those of INBOX are noted when it is indexed
		if err := recordSubject(tx, mb.AccountNum, d.Summary, meta.ThreadID, m.Received); err != nil {
			return nil, err
		}
	}
	tx.After(func() { s.Hub.Changed(mb.Num) })
	if meta.Arrived != "" {
		tx.After(func() { s.arrivals.told(mb.AccountNum, m) })
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
		_, err = s.events.Emit(tx, mb.AccountID, events.EventEmailReceived, data)
	}
	return m, err
}

// receivedData is the data of the event of a message that has arrived; m is nil for one that is
// filed nowhere.
func receivedData(tx *store.Tx, mb *store.Mailbox, d *StoredMessage, m *store.Message, meta *store.Meta) (ReceivedData, error) {
	sum := d.Summary
	refs := append([]string{}, sum.References...)
	if over := len(refs) - eventReferences; over > 0 {
		refs = append(refs[:1], refs[1+over:]...)
	}
	out := ReceivedData{
		UserID: mb.ID, Mailbox: mb.Email, Recipient: cmp.Or(meta.Recipient, mb.Email),
		Sender: firstEmail(sum.From), SenderName: firstName(sum.From), From: firstText(sum.From),
		To: fewTexts(sum.To), ToCount: sum.ToCount, CC: fewTexts(sum.Cc), CCCount: sum.CcCount, Subject: sum.Subject, MessageID: sum.MessageID,
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

// RuleMatchedData is the data of email.rule_matched: that of email.received, and the rule.
type RuleMatchedData struct {
	RuleID   string  `json:"rule_id" words:"ours" example:"rule_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	RuleName string  `json:"rule_name" words:"ours" example:"Invoices"`
	Value    *string `json:"value" words:"ours" example:"invoice"` // The value of the rule's action `webhook`.
	ReceivedData
}

// EmitRuleMatched tells that a rule of a mailbox was about a message that arrives; m is nil where
// that is filed nowhere.
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
	_, err = s.events.Emit(tx, mb.AccountID, events.EventRuleMatched, rule)
	return err
}

// soughtIDs is how many Message-IDs of a reply are looked for among what was sent.
const soughtIDs = 10

// Answers reports whether a message answers one that the account has sent.
func (s *Service) Answers(tx *store.Tx, accountID string, sum *msg.Summary) (bool, error) {
	id, err := s.answered(tx, accountID, sum)
	return id != "", err
}

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

// Bounds of the lists in events: a message to a thousand mailboxes here has a thousand events.
const (
	eventAddresses  = 50
	eventReferences = 20 // the first and the newest ones
)

func fewTexts(list []msg.Address) []string {
	return addressTexts(list[:min(len(list), eventAddresses)])
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

func firstText(list []msg.Address) string {
	a := first(list)
	a.Name = msg.ShownName(a.Name)
	return a.String()
}

func firstEmail(list []msg.Address) string { return first(list).Email() }

func firstName(list []msg.Address) string { return msg.ShownName(first(list).Name) }

func first(list []msg.Address) msg.Address {
	if len(list) == 0 {
		return msg.Address{}
	}
	return list[0]
}

// Watch gives a channel that gets a value soon after each change of the mailbox, and a function
// that ends the watch.
func (s *Service) Watch(_ context.Context, mailbox uint32) (<-chan struct{}, func()) {
	return s.Hub.Watch(mailbox)
}

const (
	threadPrefix = "thr_"
	threadRefs   = 20 // message ids of one message that are put to its thread: the first and the newest
	threadPairs  = 8  // people whom a subject is remembered with
)

// threadNode stands for a message id.
func threadNode(id string) store.ThreadNode {
	sum := sha256.Sum256([]byte(id))
	return store.ThreadNode(sum[:len(store.ThreadNode{})])
}

func threadText(n store.ThreadNode) string { return threadPrefix + hex.EncodeToString(n[:]) }

// parseThread reads a thread's id; ok is false for a text that is not one.
func parseThread(id string) (n store.ThreadNode, ok bool) {
	text, ok := strings.CutPrefix(id, threadPrefix)
	if !ok || len(text) != hex.EncodedLen(len(n)) {
		return n, false
	}
	_, err := hex.Decode(n[:], []byte(text))
	return n, err == nil
}

// ThreadFor gives the conversation that a message which is being filed belongs to, "" if nothing
// tells. It is named by its first message. What the message refers to decides; one that claims to
// be an answer and refers to nothing goes to the newest conversation of its subject between the
// same people. Where a message comes late and ties two conversations together they become one,
// under the name of the elder; the other name leads there too.
func ThreadFor(tx *store.Tx, account uint32, sum *msg.Summary, original string) (string, error) {
	var root store.ThreadNode
	found := false

	// The thread of the eldest message that is known, else that of the eldest.
	ids := threadIDs(sum, original)
	for k := 0; k < len(ids) && !found; k++ {
		node, known, err := tx.Thread(account, threadNode(ids[k]))
		if err != nil {
			return "", err
		}
		if known || k == 0 {
			root, found = node, known
		}
	}

	// An answer that names no message: the thread of its subject.
	if base, answer := msg.BaseSubject(sum.Subject); len(ids) == 0 && answer && base != "" {
		for _, key := range subjectKeys(base, sum) {
			var err error
			root, found, err = tx.FindSubject(account, key)
			if err != nil {
				return "", err
			}
			if found {
				break
			}
		}
	}

	// A message that refers to nothing has its own thread. Others may have referred to it already.
	if len(ids) == 0 && !found {
		if sum.MessageID == "" {
			return "", nil
		}
		own := threadNode(sum.MessageID)
		top, _, err := tx.Thread(account, own)
		if err != nil {
			return "", err
		}
		return threadText(top), tx.TouchThread(account, own)
	}

	if sum.MessageID != "" {
		ids = append(ids, sum.MessageID)
	}
	for _, id := range ids {
		if err := tx.JoinThread(account, root, threadNode(id)); err != nil {
			return "", err
		}
	}
	root, _, err := tx.Thread(account, root)
	return threadText(root), err
}

// threadIDs are what the message refers to, the eldest first. original is the message that it
// answers if a relay gave that another id.
func threadIDs(sum *msg.Summary, original string) []string {
	var ids []string
	if original != "" {
		ids = append(ids, original)
	}
	refs := sum.References
	if over := len(refs) - threadRefs; over > 0 {
		refs = append(refs[:1:1], refs[1+over:]...)
	}
	ids = append(ids, refs...)
	if sum.InReplyTo != "" {
		ids = append(ids, sum.InReplyTo)
	}
	return ids
}

// recordSubject remembers the message's subject for answers that will name no message.
func recordSubject(tx *store.Tx, account uint32, sum *msg.Summary, threadID string, at time.Time) error {
	n, ok := parseThread(threadID)
	base, _ := msg.BaseSubject(sum.Subject)
	if !ok || base == "" {
		return nil
	}
	for _, key := range subjectKeys(base, sum) {
		if err := tx.PutSubject(account, key, at, n); err != nil {
			return err
		}
	}
	return nil
}

// subjectKeys stand for the subject between the author and each of those the message is to.
func subjectKeys(base string, sum *msg.Summary) (keys []store.SubjectKey) {
	author := strings.ToLower(firstEmail(sum.From))
	for _, list := range [][]msg.Address{sum.To, sum.Cc} {
		for _, a := range list {
			if len(keys) == threadPairs {
				return keys
			}
			other := strings.ToLower(a.Email())
			hash := sha256.Sum256([]byte(base + "\x00" + min(author, other) + "\x00" + max(author, other)))
			keys = append(keys, store.SubjectKey(hash[:len(store.SubjectKey{})]))
		}
	}
	return keys
}

// threadNow is the name that the thread has now under which a message was filed.
func threadNow(tx *store.Tx, account uint32, id string) (string, error) {
	n, ok := parseThread(id)
	if !ok {
		return id, nil
	}
	root, _, err := tx.Thread(account, n)
	return threadText(root), err
}

// threadNames are the names under which messages of a thread may be filed; none for what is no
// thread's.
func threadNames(tx *store.Tx, account uint32, id string) ([]string, error) {
	n, ok := parseThread(id)
	if !ok {
		return nil, nil
	}
	nodes, err := tx.ThreadNames(account, n)
	var names []string
	for _, node := range nodes {
		names = append(names, threadText(node))
	}
	return names, err
}
