package inbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// An InboxMessage is a message as lists show it. UID is its IMAP UID. MessageID is its Message-ID
// header field, with angle brackets.
type InboxMessage struct {
	ID                string            `json:"id" words:"ours" example:"eu_01k9a2b3c4d5e6f7g8h9j0k1m2-1793870000-17"` // Opaque.
	UID               string            `json:"uid" words:"ours"`                                                      // The IMAP UID.
	UIDValidity       uint32            `json:"uid_validity"`
	UserID            string            `json:"user_id" words:"ours"`
	Mailbox           string            `json:"mailbox" words:"ours"` // The mailbox's address.
	Recipient         string            `json:"recipient" words:"theirs"`
	Folder            string            `json:"folder" words:"theirs" known:"folders"`
	EmailID           string            `json:"email_id" words:"ours"`     // The same for all copies of a message, wherever they are moved; IMAP's EMAILID.
	MessageID         string            `json:"message_id" words:"theirs"` // The Message-ID header, with brackets.
	ThreadID          string            `json:"thread_id" words:"ours"`
	InReplyTo         *string           `json:"in_reply_to" words:"theirs"`
	References        []string          `json:"references" words:"theirs"`
	From              string            `json:"from" words:"theirs"`
	FromEmail         string            `json:"from_email" words:"theirs"`
	FromName          *string           `json:"from_name" words:"theirs"`
	To                []string          `json:"to" words:"theirs"`
	CC                []string          `json:"cc" words:"theirs"`
	BCC               []string          `json:"bcc" words:"theirs"` // In Sent and Drafts: the blind copy recipients.
	ReplyTo           []string          `json:"reply_to" words:"theirs"`
	Subject           string            `json:"subject" words:"theirs"`
	BodyPreview       string            `json:"body_preview" words:"theirs"` // The first 200 characters of the text.
	ReceivedAt        core.Time         `json:"received_at"`
	Date              core.Time         `json:"date"`
	IsRead            bool              `json:"is_read"`
	IsAnswered        bool              `json:"is_answered"` // Whether a reply was sent, here or by IMAP (\Answered).
	IsFlagged         bool              `json:"is_flagged"`  // Whether it is flagged or starred, here or by IMAP (\Flagged).
	HasAttachments    bool              `json:"has_attachments"`
	Attachments       []InboxAttachment `json:"attachments"`
	Size              int64             `json:"size"`
	IsWarmup          bool              `json:"is_warmup"`
	IsAutoReply       bool              `json:"is_auto_reply"`
	IsBounce          bool              `json:"is_bounce"`
	Auth              InboxAuth         `json:"auth"`
	OriginalMessageID *string           `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
	AnsweredBy        *Answerer         `json:"answered_by"`                        // Who last answered it through the API or the dashboard.
	// The spam classifier's result when the message arrived; null if the classifier did not see it.
	Spam     *SpamVerdict   `json:"spam"`
	Withheld bool           `json:"withheld"`         // Its texts are left out, since a stranger may have written them.
	Thread   *ThreadSummary `json:"thread,omitempty"` // In a list with threads=true: its conversation.
}

// bytes estimates the message's size in an answer. It counts the fields that an author can make
// long.
func (m *InboxMessage) bytes() int {
	n := len(m.From) + len(m.Subject) + len(m.BodyPreview) + len(m.MessageID)
	for _, list := range [][]string{m.References, m.To, m.CC, m.BCC, m.ReplyTo} {
		for _, text := range list {
			n += len(text)
		}
	}
	for _, a := range m.Attachments {
		n += len(a.Filename) + len(a.ContentType)
	}
	return n
}

// A ThreadSummary describes a thread in a list with one row for each thread. It counts the messages
// in all folders of the mailbox except Junk and Trash.
type ThreadSummary struct {
	Messages int      `json:"messages"`
	Unread   int      `json:"unread"`
	From     []string `json:"from" words:"theirs"` // Names of the authors, the earliest first.
}

// A SpamVerdict is the spam classifier's result for a message when it arrived.
type SpamVerdict struct {
	Score float64 `json:"score" example:"0.0312"` // From 0, which is wanted mail, to 1, which is spam.
	// What the score means: wanted mail, unsure or spam. Spam goes to Junk, unless a rule moves it.
	Verdict string       `json:"verdict" enum:"ham|unsure|spam"`
	Reasons []SpamReason `json:"reasons"` // At most ten, the heaviest first.
}

// A SpamReason is a property of a message that raises its spam score if Weight is positive, and
// lowers it if Weight is negative.
type SpamReason struct {
	Code string `json:"code" words:"ours" example:"word"`                                               // The kind of property.
	Text string `json:"text" words:"theirs" example:"The word \"invoice\" is frequent in wanted mail."` // For people; the text may change.
	// How much it counts: above 0 for spam, below 0 against it.
	Weight float64 `json:"weight" example:"-1.25"`
}

// spamVerdict parses Meta.Spam. It returns nil if the message was not classified.
func spamVerdict(stored string) *SpamVerdict {
	v := spam.ParseVerdict(stored)
	if v == nil {
		return nil
	}
	out := &SpamVerdict{Score: v.Score, Verdict: v.Verdict, Reasons: make([]SpamReason, 0, len(v.Reasons))}
	for _, r := range v.Reasons {
		out.Reasons = append(out.Reasons, SpamReason{r.Code, r.Sentence(), r.Weight})
	}
	return out
}

// An InboxAttachment describes one attachment. Index is its number in the path of the download.
type InboxAttachment struct {
	Index       int     `json:"index"`
	Filename    string  `json:"filename" words:"theirs"`
	ContentType string  `json:"content_type" words:"theirs"`
	Size        int64   `json:"size"`
	ContentID   *string `json:"content_id" words:"theirs"`
}

// InboxAuth has the results of the sender checks at the time when the message arrived.
type InboxAuth struct {
	SPF   string `json:"spf" words:"ours"`
	DKIM  string `json:"dkim" words:"ours"`
	DMARC string `json:"dmarc" words:"ours"`

	// Why DMARC passes but does not prove that the author wrote what is shown here; null otherwise.
	Reason *string `json:"reason" words:"ours" example:"the field subject stands more than once" rare:"true"`

	// What the author's domain asks receivers to do with a message that fails DMARC; null for
	// others.
	Policy *string `json:"dmarc_policy" enum:"none|quarantine|reject"`
	// The DMARC result by the rules before RFC 9989, with the public suffix list and without
	// sampling; for information only. Null for mail that did not come from outside.
	Former *FormerResult `json:"dmarc_rfc7489"`
}

// A FormerResult is the DMARC result of a message by RFC 7489.
type FormerResult struct {
	Result string  `json:"result" words:"ours"`
	Policy *string `json:"policy" enum:"none|quarantine|reject"`
}

// authOf returns the results of the sender checks that are stored in a Meta.
func authOf(meta *store.Meta) InboxAuth {
	out := InboxAuth{SPF: resultOrNone(meta.SPF), DKIM: resultOrNone(meta.DKIM), DMARC: resultOrNone(meta.DMARC), Reason: core.OrNull(unprovenReason(meta))}
	if kept := strings.Split(meta.Judged, " "); len(kept) == 3 {
		out.Policy = core.OrNull(kept[0])
		out.Former = &FormerResult{kept[1], core.OrNull(kept[2])}
	}
	return out
}

// A messageView converts rows of messages to InboxMessages in one transaction.
type messageView struct {
	tx      *store.Tx
	domain  string                  // the ID of the domain whose mailboxes are shown; "": all domains
	folders map[uint32]viewedFolder // cache, by the folder's number

	// withholds reports whether the texts of a message are withheld. shownSources collects the
	// sources of the other messages, by message ID. Unless the reader's policy has taint, both are
	// nil.
	withholds    func(*agents.Source) (bool, error)
	shownSources map[string]agents.Source

	meta        store.Meta // the Meta of the last message that was converted
	structure   *msg.View  // the MIME structure of the last message that was converted
	envelope    *msg.EnvelopeView
	attachments []msg.Attachment
	text        []byte          // buffer for the text that is being built
	texts       strings.Builder // holds the copies that copyText returned
}

// A viewedFolder is a folder with its mailbox.
type viewedFolder struct {
	mailbox *store.Mailbox
	folder  *Folder
	ids     string // prefix of the IDs of its messages
}

// newMessageView returns a messageView. freeMessageView must be called before the transaction ends.
func (s *Service) newMessageView(tx *store.Tx) *messageView {
	structure, ok := s.structures.Get().(*msg.View)
	if !ok {
		structure = new(msg.View)
	}
	return &messageView{tx: tx, folders: map[uint32]viewedFolder{}, structure: structure}
}

// freeMessageView keeps the buffers of a messageView for the next one.
func (s *Service) freeMessageView(w *messageView) {
	w.structure.Clear()
	s.structures.Put(w.structure)
}

// inDomain reports whether the folder with the number num belongs to the view's domain.
func (w *messageView) inDomain(num uint32) (bool, error) {
	if w.domain == "" {
		return true, nil
	}
	b, err := w.folder(num)
	return err == nil && b.mailbox.DomainID == w.domain, err
}

// folder returns the folder with the number num.
func (w *messageView) folder(num uint32) (viewedFolder, error) {
	if b, ok := w.folders[num]; ok {
		return b, nil
	}
	mailbox, id := w.tx.FolderOfNum(num)
	mb, err := store.MailboxByNum.Read(w.tx, store.NumKey(mailbox))
	if err != nil {
		return viewedFolder{}, fmt.Errorf("read the mailbox with number %d: %w", mailbox, err)
	}
	f, err := w.tx.Folder(mailbox, id)
	if err != nil {
		return viewedFolder{}, err
	}
	w.folders[num] = viewedFolder{mb, f, fmt.Sprintf("%s-%d-", mb.ID, f.UIDValidity)}
	return w.folders[num], nil
}

// message returns the message at a position. ok is false if its mailbox is being deleted.
func (w *messageView) message(at store.InboxPos) (out InboxMessage, ok bool, err error) {
	b, err := w.folder(at.Num)
	if err != nil || b.mailbox.Gone() {
		return out, false, err
	}
	m, err := w.tx.Message(b.mailbox.Num, b.folder.ID, at.UID)
	if err != nil {
		return out, false, err
	}
	return w.row(at.Num, m)
}

// row is like message, for a row that the caller has read already. num is the number of its folder.
func (w *messageView) row(num uint32, m *store.Message) (out InboxMessage, ok bool, err error) {
	b, err := w.folder(num)
	if err != nil || b.mailbox.Gone() {
		return out, false, err
	}
	out, err = w.show(b, m)
	if err == nil {
		err = w.withhold(b, m, &out)
	}
	return out, true, err
}

// show returns a message without withholding any texts.
func (w *messageView) show(b viewedFolder, m *store.Message) (InboxMessage, error) {
	meta := &w.meta
	if err := w.tx.ReadMeta(meta, m); err != nil {
		return InboxMessage{}, err
	}
	threadID, err := currentThreadID(w.tx, m.Account, meta.ThreadID)
	if err != nil {
		return InboxMessage{}, err
	}
	parts, err := w.structure.Parts(meta.Structure)
	if err != nil {
		return InboxMessage{}, fmt.Errorf("decode structure of message %d of %s: %w", m.UID, b.mailbox.Email, err)
	}
	id := b.ids + core.UIDText(m.UID)
	out := InboxMessage{
		ID: id, UID: id[len(b.ids):], UIDValidity: b.folder.UIDValidity, UserID: b.mailbox.ID, Mailbox: b.mailbox.Email, Folder: b.folder.Name, EmailID: emailID(m, meta),
		Recipient: cmp.Or(meta.Recipient, b.mailbox.Email),
		ThreadID:  threadID, BodyPreview: meta.Preview, OriginalMessageID: core.OrNull(meta.OriginalMessageID), AnsweredBy: parseAnswerer(meta.AnsweredBy), Spam: spamVerdict(meta.Spam),
		Auth:       authOf(meta),
		ReceivedAt: core.Time{Time: m.Received}, Size: int64(m.Blob.Length),
		IsRead: m.Flags&store.FlagSeen != 0, IsAnswered: m.Flags&store.FlagAnswered != 0, IsFlagged: m.Flags&store.FlagFlagged != 0,
		HasAttachments: m.Bits&store.BitAttachments != 0, IsWarmup: m.Bits&store.BitWarmup != 0,
		IsAutoReply: m.Bits&store.BitAutoReply != 0, IsBounce: m.Bits&store.BitBounce != 0,
	}
	w.attachments = msg.AppendAttachments(w.attachments[:0], parts)
	out.Attachments = make([]InboxAttachment, 0, len(w.attachments))
	for _, a := range w.attachments {
		out.Attachments = append(out.Attachments, InboxAttachment{a.Index, a.Filename, a.ContentType, a.Size, core.OrNull(a.ContentID)})
	}
	w.envelope = parts[0].Envelope
	w.addEnvelope(&out, w.envelope)
	out.BCC = []string{}
	if role := roleOf(b.folder); role == roleSent || role == roleDrafts {
		if e := parts[0].Envelope; e != nil {
			out.BCC = w.addressTexts(e.Bcc)
		}
		if meta.Bcc != "" {
			out.BCC = append(out.BCC, strings.Split(meta.Bcc, "\n")...)
		}
	}
	return out, nil
}

// emailID returns the EMAILID of a message (RFC 8474). All copies of a message have the same
// EMAILID, because it is a digest of fields that copying does not change.
func emailID(m *store.Message, meta *store.Meta) string {
	h := sha256.New()
	h.Write(meta.Structure)
	h.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(m.Received.UnixMilli())), m.Blob.Length))
	return "em_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// addEnvelope fills in the fields that come from the message's header.
func (w *messageView) addEnvelope(out *InboxMessage, e *msg.EnvelopeView) {
	if e == nil {
		e = &msg.EnvelopeView{}
	}
	out.MessageID, out.Subject = w.copyText(e.MessageID), w.copyText(e.Subject)
	if e.Date.Known {
		out.Date.Time = time.Unix(e.Date.Unix, 0)
	}
	for i := range e.From {
		if from := &e.From[i]; !from.IsGroupMarker() {
			out.From, out.FromName = w.addressText(from), core.OrNull(w.copyText(msg.ShownName(from.Name)))
			w.text = from.AppendEmail(w.text[:0])
			out.FromEmail = w.copyText(w.text)
			break
		}
	}
	out.To, out.CC, out.ReplyTo = w.addressTexts(e.To), w.addressTexts(e.Cc), w.addressTexts(e.ReplyTo)
	out.References = make([]string, 0, len(e.References))
	for _, id := range e.References {
		out.References = append(out.References, w.copyText(id))
	}
	if len(e.InReplyTo) > 0 {
		to := w.copyText(e.InReplyTo[0])
		out.InReplyTo = &to
	}
}

// addressTexts returns the addresses as texts, without group markers.
func (w *messageView) addressTexts(list []msg.AddressView) []string {
	out := make([]string, 0, len(list))
	for i := range list {
		if !list[i].IsGroupMarker() {
			out = append(out, w.addressText(&list[i]))
		}
	}
	return out
}

func (w *messageView) addressText(a *msg.AddressView) string {
	shown := *a
	shown.Name = msg.ShownName(a.Name)
	w.text = shown.AppendText(w.text[:0])
	return w.copyText(w.text)
}

// copyText returns a copy of text that remains valid after the transaction. Several copies share
// one buffer, which saves allocations.
func (w *messageView) copyText(text []byte) string {
	if size := w.texts.Cap(); size-w.texts.Len() < len(text) {
		w.texts = strings.Builder{}
		w.texts.Grow(max(len(text), min(2*size, 4<<10), 512))
	}
	begin := w.texts.Len()
	w.texts.Write(text)
	return w.texts.String()[begin:]
}

// resultOrNone returns the result of a check, or "none" if the check was not made.
func resultOrNone(result string) string {
	if result == "" {
		return "none"
	}
	return result
}
