package submit

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/view"
	"github.com/mailstead/mailstead/mail/visible"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// maxBodyInAnswer is the maximum size in bytes of a held message's text, and of its HTML, in an
// answer.
const maxBodyInAnswer = 1 << 20

// ApprovalEvent is the data of email.held, email.approved and email.rejected: an approval without
// the message's texts.
type ApprovalEvent struct {
	ApprovalID string `json:"approval_id" words:"ours"`
	Status     string `json:"status" enum:"pending|approved|rejected|expired"`
	// policy: a sending policy requires approval; tainted: the sender had read a stranger's words.
	Reason string `json:"reason" enum:"policy|tainted"`
	Via    string `json:"via" enum:"api|mcp|smtp|rule"`
	// The token or the program's password that it was sent with. Null for a mailbox's own password
	// and for what a person sends.
	Token  *ApprovalName `json:"token"`
	UserID *string       `json:"user_id" words:"ours"`
	Email  string        `json:"email" words:"ours"`                          // The sender, in the envelope.
	To     []string      `json:"to" words:"theirs" example:"ben@example.net"` // Recipients in the To field.
	Cc     []string      `json:"cc" words:"theirs" example:"[]"`              // Recipients in the Cc field.
	Bcc    []string      `json:"bcc" words:"theirs" example:"[]"`             // All other recipients.
	Size   int64         `json:"size"`
	// The SHA-256, in hex, of `MAIL FROM:<address>` CRLF, `RCPT TO:<address>` CRLF for each
	// recipient in the order of bytes, CRLF, and the bytes of get_approval_raw.
	ContentHash string        `json:"content_hash" words:"ours"`
	MessageID   string        `json:"message_id" words:"theirs"` // The Message-ID header, with brackets.
	CreatedAt   core.Time     `json:"created_at"`
	ExpiresAt   core.Time     `json:"expires_at"`
	DecidedAt   core.Time     `json:"decided_at"`
	DecidedBy   *ApprovalName `json:"decided_by" rare:"true"`                                      // Null while the approval is pending, and if nobody decided.
	Note        *string       `json:"note" words:"ours" example:"The price is wrong." rare:"true"` // The comment given with the decision.
}

// An ApprovalName is the token that sent a message, or the token or person that decided about it.
type ApprovalName struct {
	ID   string `json:"id" words:"ours" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name string `json:"name" words:"ours" example:"Support agent"`
}

// An Approval is a message that is or was held for a person's approval. Its recipients are those of
// the envelope: to and cc have those in these fields, bcc the others.
type Approval struct {
	ApprovalEvent
	Subject string `json:"subject" words:"theirs"`
	Preview string `json:"preview" words:"theirs" example:"Hello Ben, your order is on its way."` // The beginning of the text.
}

// An ApprovalDetail is an approval with the message.
type ApprovalDetail struct {
	Approval
	Text         *string               `json:"text" words:"theirs"`
	HTML         *string               `json:"html" words:"theirs"`          // Sanitised for received messages; still do not trust it.
	BodyComplete bool                  `json:"body_complete" example:"true"` // Whether nothing of text and HTML was cut off.
	Headers      []inbox.MessageHeader `json:"headers"`
	Attachments  []ApprovalAttachment  `json:"attachments"`
}

// An ApprovalAttachment is a file in a held message.
type ApprovalAttachment struct {
	Filename    string `json:"filename" words:"theirs"`
	ContentType string `json:"content_type" words:"theirs"`
	Size        int64  `json:"size"`
}

func approvalOut(a *store.Approval) Approval {
	return Approval{approvalEvent(a), a.Subject, a.Preview}
}

// ListApprovalsIn is the request of list_approvals.
type ListApprovalsIn struct {
	page.Query
	Status string `query:"status" enum:"pending|approved|rejected|expired|"`
}

// ListApprovals lists the messages that are held for approval, and those that were decided in the
// last 30 days, newest first.
func (s *Service) ListApprovals(_ context.Context, who core.Actor, in ListApprovalsIn) (*page.Page[Approval], error) {
	l := page.Listing[store.Approval, Approval]{
		Operation: "approvals", Index: store.ApprovalsByAccount, Prefix: who.AccountID, Filters: []string{in.Status},
		Out: func(_ *store.Tx, a *store.Approval) (Approval, error) { return approvalOut(a), nil },
	}
	if in.Status != "" {
		l.Index, l.Prefix = store.ApprovalsByStatus, store.ApprovalStatusKey(who.AccountID, in.Status)
	}
	return l.Page(s.Core, who, in.Query)
}

// ApprovalIn names an approval.
type ApprovalIn struct {
	ApprovalID string `path:"approval_id"`
}

// findApproval returns an approval of the account. The error is not_found if there is none.
func findApproval(tx *store.Tx, who core.Actor, id string) (*store.Approval, error) {
	a, err := store.Approvals.Find(tx, id)
	if err == nil && (a == nil || a.AccountID != who.AccountID) {
		return nil, core.NotFound("approval")
	}
	return a, err
}

// openApproval returns an approval with the message as it would be sent. The caller closes the
// blob.
func (s *Service) openApproval(who core.Actor, id string) (a *store.Approval, blob *store.Blob, sent *io.SectionReader, err error) {
	if err = s.Store.View(func(tx *store.Tx) error {
		a, err = findApproval(tx, who, id)
		return err
	}); err != nil {
		return nil, nil, nil, err
	}
	blob, err = s.Store.OpenBlob(a.Blob)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read message of approval %s: %w", id, err)
	}
	sent, err = msg.AsSent(blob)
	if err != nil {
		blob.Close()
		return nil, nil, nil, err
	}
	return a, blob, sent, nil
}

// GetApproval shows an approval with everything in the message that a person needs for the
// decision.
func (s *Service) GetApproval(ctx context.Context, who core.Actor, in ApprovalIn) (*ApprovalDetail, error) {
	a, blob, sent, err := s.openApproval(who, in.ApprovalID)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	_, leave, err := s.WorkOnLarge(ctx, sent.Size())
	if err != nil {
		return nil, err
	}
	defer leave()
	root, err := msg.Scan(msg.Again(sent))
	if err != nil {
		return nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	body, err := msg.ReadRawBody(sent, root, maxBodyInAnswer)
	if err != nil {
		return nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	headers, err := msg.Headers(sent, root)
	if err != nil {
		return nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	out := &ApprovalDetail{Approval: approvalOut(a), BodyComplete: !body.Truncated, Headers: []inbox.MessageHeader{}, Attachments: []ApprovalAttachment{}}
	if body.HasText {
		out.Text = &body.Text
	}
	if body.HasHTML {
		html := visible.SanitizeHTML(body.HTML)
		out.HTML = &html
	}
	for _, h := range headers {
		out.Headers = append(out.Headers, inbox.MessageHeader(h))
	}
	files, err := filesOf(sent, root, "", 1)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		out.Attachments = append(out.Attachments, f.ApprovalAttachment)
	}
	if err := s.recordApprovalShown(who, a); err != nil {
		return nil, err
	}
	return out, nil
}

// recordApprovalShown records that a token was shown the texts of a held message.
func (s *Service) recordApprovalShown(who core.Actor, a *store.Approval) error {
	return s.rooms.Policies.Read(who.AccountID, agents.HolderOf(who), &who.Policy, agents.Source{MailboxID: a.MailboxID})
}

// ViewApprovalIn names a held message to be shown in a browser, and how.
type ViewApprovalIn struct {
	ApprovalID string `path:"approval_id"`
	Theme      string `query:"theme" enum:"light|dark"`
}

// ViewApproval renders a held message as an HTML document, without images.
func (s *Service) ViewApproval(_ context.Context, who core.Actor, in ViewApprovalIn) (*view.Document, error) {
	a, blob, sent, err := s.openApproval(who, in.ApprovalID)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	root, err := msg.Scan(msg.Again(sent))
	if err != nil {
		return nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	body, err := msg.ReadRawBody(sent, root, maxBodyInAnswer)
	if err != nil {
		return nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	shown := view.Options{Title: a.Subject, Dark: in.Theme == "dark", More: body.Truncated, Image: func(string) string { return "" }}
	if body.HasHTML {
		return view.HTML(body.HTML, shown), nil
	}
	return view.Text(body.Text, shown), nil
}

// ApprovalFileIn names a file of a held message, by its index in the list of attachments, and how
// it is shown.
type ApprovalFileIn struct {
	ApprovalID string `path:"approval_id"`
	Index      string `path:"index"`
	Theme      string `query:"theme" enum:"light|dark"`
	Save       bool   `query:"save"`
}

const notShownText = "This file is no text and no picture. Save it, and open it with a program that you trust.\n"

// OpenApprovalFile opens a file of a held message. With Save it returns a file. Otherwise it
// returns pictures as a file, and texts and messages as a document in which invisible characters
// are marked.
func (s *Service) OpenApprovalFile(ctx context.Context, who core.Actor, in ApprovalFileIn) (*view.Document, *core.File, error) {
	a, blob, sent, err := s.openApproval(who, in.ApprovalID)
	if err != nil {
		return nil, nil, err
	}
	defer blob.Close()
	_, leave, err := s.WorkOnLarge(ctx, sent.Size())
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	root, err := msg.Scan(msg.Again(sent))
	if err != nil {
		return nil, nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	files, err := filesOf(sent, root, "", 1)
	if err != nil {
		return nil, nil, err
	}
	n, err := strconv.Atoi(in.Index)
	if err != nil || n < 0 || n >= len(files) {
		return nil, nil, core.NotFound("attachment")
	}
	f := files[n]
	content, err := io.ReadAll(msg.Open(f.body, f.part))
	if f.of != nil {
		content, err = io.ReadAll(io.NewSectionReader(f.body, 0, f.Size))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	file := &core.File{Name: path.Base(f.Filename), ContentType: f.ContentType, Size: int64(len(content)), Body: io.NopCloser(bytes.NewReader(content))}
	if in.Save || shownPictures[f.ContentType] {
		return nil, file, nil
	}
	shown := view.Options{Title: f.Filename, Dark: in.Theme == "dark"}
	text, err := f.text(content)
	if err != nil {
		return nil, nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	if text == nil {
		return view.Source(notShownText, shown), nil, nil
	}
	first := text[:min(len(text), maxBodyInAnswer)]
	shown.More = len(first) < len(text)
	return view.Source(visible.MarkInvisible(string(first)), shown), nil, nil
}

// shownPictures are the content types of pictures that every browser shows and that cannot contain
// scripts.
var shownPictures = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// GetApprovalRaw returns the bytes that are sent if the message is approved.
func (s *Service) GetApprovalRaw(_ context.Context, who core.Actor, in ApprovalIn) (*core.File, error) {
	a, blob, sent, err := s.openApproval(who, in.ApprovalID)
	if err != nil {
		return nil, err
	}
	if err := s.recordApprovalShown(who, a); err != nil {
		return nil, errors.Join(err, blob.Close())
	}
	return &core.File{
		Name: "message-" + a.ID + ".eml", ContentType: "message/rfc822", Size: sent.Size(),
		Body: struct {
			io.Reader
			io.Closer
		}{sent, blob},
	}, nil
}

// ApproveMessageIn is the request of approve_message.
type ApproveMessageIn struct {
	ApprovalID  string `path:"approval_id"`
	ContentHash string `json:"content_hash" required:"true"` // As get_approval shows it.
	Note        string `json:"note" max:"1000" example:"Sent with the new price."`
}

// RejectMessageIn is the request of reject_message.
type RejectMessageIn struct {
	ApprovalID string `path:"approval_id"`
	Note       string `json:"note" max:"1000" example:"The price is wrong."`
}

// checkPending returns an error if the approval has expired or been decided.
func checkPending(tx *store.Tx, a *store.Approval) error {
	switch {
	case a.Status == store.ApprovalExpired, a.Status == store.ApprovalPending && !tx.Now().Before(a.ExpiresAt):
		return core.Errorf("approval_expired", "Nobody approved the message within seven days. It is not sent.")
	case a.Status != store.ApprovalPending:
		return core.Errorf("already_decided", "The message is %s already.", a.Status)
	}
	return nil
}

// recordDecider records in an approval who decided it, and with which note.
func recordDecider(tx *store.Tx, who core.Actor, a *store.Approval, note string) error {
	a.DecidedBy, a.DecidedByName, a.Note = who.TokenID, who.TokenName, note
	if who.TokenKind != core.SessionKind && who.TokenID != "" {
		return nil
	}
	u, err := store.Users.Find(tx, who.UserID)
	if u == nil || err != nil {
		return err
	}
	a.DecidedBy, a.DecidedByName = u.ID, strings.TrimSpace(u.FirstName+" "+u.LastName)
	if a.DecidedByName == "" {
		a.DecidedByName = u.Email
	}
	return nil
}

func approvalTarget(a *store.Approval) store.AuditTarget {
	return store.AuditTarget{Type: "approval", ID: a.ID, Name: a.Sender}
}

// ApproveMessage sends a held message, if content_hash matches the message. Limits and suppression
// apply as if it were sent now; above a limit it stays held.
func (s *Service) ApproveMessage(ctx context.Context, who core.Actor, in ApproveMessageIn) (*Approval, error) {
	a, blob, sent, err := s.openApproval(who, in.ApprovalID)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	var to []string
	if err := s.Store.View(func(tx *store.Tx) error {
		for row := range rowsOf(tx, a) {
			to = append(to, row.Recipient)
		}
		return checkPending(tx, a)
	}); err != nil {
		return nil, err
	}
	hash, err := contentHash(a.Sender, to, msg.Again(sent))
	if err != nil {
		return nil, fmt.Errorf("read message of approval %s: %w", a.ID, err)
	}
	if subtle.ConstantTimeCompare([]byte(hash), []byte(in.ContentHash)) == 0 {
		return nil, core.Errorf("content_changed", "content_hash is not that of this message and its recipients. Read the approval again.")
	}
	u := core.MailboxUser{AccountID: a.AccountID, MailboxID: a.MailboxID, DomainID: a.DomainID}
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		a, err = findApproval(tx, who, in.ApprovalID)
		if err != nil {
			return err
		}
		if err := checkPending(tx, a); err != nil {
			return err
		}
		if err := s.admitApproved(tx, u, a); err != nil {
			return err
		}
		if err := recordDecider(tx, who, a, in.Note); err != nil {
			return err
		}
		a.Status = store.ApprovalApproved
		if err := s.storeDecision(tx, a, events.EventEmailApproved); err != nil {
			return err
		}
		return core.Audit(tx, who, approvalTarget(a))
	})
	if err != nil {
		return nil, s.notifyLimit(u, err)
	}
	out := approvalOut(a)
	return &out, nil
}

// admitApproved counts the recipients of an approved message against the limits, as queueOrHold
// does for a message that needs no approval.
func (s *Service) admitApproved(tx *store.Tx, u core.MailboxUser, a *store.Approval) error {
	var sent []string
	for row := range rowsOf(tx, a) {
		suppressed, err := core.IsSuppressed(tx, row.AccountID, row.Recipient)
		if err != nil {
			return err
		}
		if row.AwaitsApproval() && !suppressed && row.Transport != core.ViaSimulator {
			sent = append(sent, row.Recipient)
		}
	}
	mb, d, err := senderOf(tx, u)
	if core.IsGone(err) || err == nil && (d.Gone() || mb != nil && mb.Gone()) {
		return core.Errorf("already_decided", "The mailbox or domain that sends the message is being deleted.")
	}
	if err != nil || len(sent) == 0 {
		return err
	}
	if err := s.rooms.Limits.Admit(tx, mb, d, sent); err != nil {
		return err
	}
	return s.Count(tx, a.AccountID, func(st *store.DayStat) { st.Sent += int64(len(sent)) })
}

// RejectMessage rejects a held message, which is then never sent.
func (s *Service) RejectMessage(ctx context.Context, who core.Actor, in RejectMessageIn) (*Approval, error) {
	a, err := s.rejectHeld(ctx, who, in.ApprovalID, in.Note)
	if err != nil {
		return nil, err
	}
	out := approvalOut(a)
	return &out, nil
}

// cancelHeld rejects the message of a row that waits for approval, for all of its recipients. It
// returns false if the row does not wait.
func (s *Service) cancelHeld(ctx context.Context, who core.Actor, id string) (rejected bool, err error) {
	var row *store.Outgoing
	if err := s.Store.View(func(tx *store.Tx) error {
		row, err = store.Outgoings.Find(tx, id)
		return err
	}); err != nil || row == nil || row.AccountID != who.AccountID || !who.Sees(row.MailboxID) || !row.AwaitsApproval() {
		return false, err
	}
	a, err := s.rejectHeld(ctx, who, row.ApprovalID, "Its sender has cancelled it.")
	if e, ours := core.AsError(err); ours && e.Code == "already_decided" {
		return false, nil // the message was approved, but this row is not queued yet
	}
	if err != nil {
		return false, err
	}
	return true, s.settleAllRows(ctx, a.ID)
}

func (s *Service) rejectHeld(ctx context.Context, who core.Actor, id, note string) (a *store.Approval, err error) {
	if err := s.Store.View(func(tx *store.Tx) error {
		a, err = findApproval(tx, who, id)
		if err != nil {
			return err
		}
		return checkPending(tx, a)
	}); err != nil {
		return nil, err
	}
	report, err := s.rejectionReport(a, rejectedText)
	if err != nil {
		return nil, err
	}
	defer s.releaseReport(report) // no effect if it was filed
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		a, err = findApproval(tx, who, id)
		if err != nil {
			return err
		}
		if err := checkPending(tx, a); err != nil {
			return err
		}
		if err := recordDecider(tx, who, a, note); err != nil {
			return err
		}
		a.Status = store.ApprovalRejected
		if err := s.endApproval(tx, a, report); err != nil {
			return err
		}
		return core.Audit(tx, who, approvalTarget(a))
	})
	return a, err
}
