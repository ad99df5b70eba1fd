package submit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

const (
	approvalPeriod       = 7 * 24 * time.Hour  // how long a message waits for a decision
	approvalRetention    = 30 * 24 * time.Hour // how long a decided approval is kept
	approvalMailInterval = 10 * time.Minute    // minimum interval between messages about approvals to an account
	maxHeld              = 1000                // messages of an account that may wait for approval

	kindApprovalEnds = "approval_ends"
	kindApprovalRows = "approval_rows"
	kindApprovalMail = "approval_letter"
)

// HoldDetails says why a message is held for approval, and who sent it and how.
type HoldDetails struct {
	Reason    string // "policy" or "tainted", see ApprovalEvent.Reason
	Via       string // one of the store.ApprovalVia… constants
	TokenID   string // ID of the token or credential; "" if none was used
	TokenName string
	Content   *heldContent
}

// readHeld reads the parts of a message that a person is shown for approval.
func readHeld(from string, to []outbound.Rcpt, body *io.SectionReader) (*heldContent, error) {
	root, err := msg.Scan(msg.Again(body))
	if err != nil {
		return nil, fmt.Errorf("read held message: %w", err)
	}
	sum, err := msg.Summarize(body, root)
	if err != nil {
		return nil, fmt.Errorf("read held message: %w", err)
	}
	h := &heldContent{preview: sum.Preview, size: body.Size()}
	var all []string
	for _, r := range to {
		is := func(a msg.Address) bool {
			email, err := msg.NormalizeEmail(a.Email())
			return err == nil && email == r.Address
		}
		switch {
		case slices.ContainsFunc(sum.To, is):
			h.to = append(h.to, r.Address)
		case slices.ContainsFunc(sum.Cc, is):
			h.cc = append(h.cc, r.Address)
		default:
			h.bcc = append(h.bcc, r.Address)
		}
		all = append(all, r.Address)
	}
	h.hash, err = contentHash(from, all, msg.Again(body))
	return h, err
}

// contentHash returns the hash that a person approves: of the envelope and every byte of the
// message.
func contentHash(from string, to []string, body io.Reader) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "MAIL FROM:<%s>\r\n", from)
	for _, address := range slices.Sorted(slices.Values(to)) {
		fmt.Fprintf(sum, "RCPT TO:<%s>\r\n", address)
	}
	_, _ = io.WriteString(sum, "\r\n") // a hash never returns an error
	if _, err := buffers.Copy(sum, body); err != nil {
		return "", fmt.Errorf("read held message: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// checkHeldLimit returns rate_limited if too many messages of an account wait for approval. The
// sending limits do not count held messages.
func checkHeldLimit(tx *store.Tx, accountID string) error {
	if store.ApprovalsByStatus.Count(tx, store.ApprovalStatusKey(accountID, store.ApprovalPending), maxHeld) < maxHeld {
		return nil
	}
	e := core.Errorf("rate_limited", "%d messages wait for approval already. An owner or admin must decide about some of them first.", maxHeld)
	e.RetryAfter = approvalMailInterval
	return core.OverSMTP(452, "4.7.1", e)
}

// holdForApproval writes a submission and holds its rows until a person approves it. It does not
// check suppressions and counts nothing as sent. The message that is sent after approval is
// h.Content. Nothing of the original is kept, not even the texts of the envelope.
func (s *Service) holdForApproval(tx *store.Tx, sub *store.Submission, d *store.Domain, to []outbound.Rcpt, h HoldDetails) ([]*store.Outgoing, *store.Approval, error) {
	now := tx.Now()
	sub.Blob, sub.MessageID, sub.Subject = h.Content.blob, h.Content.messageID, h.Content.subject
	sub.EightBit, sub.SMTPUTF8, sub.Starts = h.Content.eightBit, h.Content.eightBit, h.Content.startsThread && h.Via != store.ApprovalViaRule
	sub.EnvelopeID, sub.TLSOptional, sub.ListID = "", false, ""
	a := &store.Approval{
		ID: tx.NewID("apr"), AccountID: sub.AccountID, SubmissionID: tx.NewID("sub"), MailboxID: sub.MailboxID, DomainID: sub.DomainID, Status: store.ApprovalPending,
		Reason: h.Reason, Via: h.Via, TokenID: h.TokenID, TokenName: h.TokenName, Sender: sub.Sender, To: h.Content.to, Cc: h.Content.cc, Bcc: h.Content.bcc,
		Subject: sub.Subject, Preview: h.Content.preview, Size: h.Content.size, ContentHash: h.Content.hash, MessageID: sub.MessageID, Blob: sub.Blob,
		CreatedAt: now, ExpiresAt: now.Add(approvalPeriod), BeforeRows: tx.NewID("msg"),
	}
	sub.ID, sub.CreatedAt, sub.Waiting, sub.ApprovalID = a.SubmissionID, now, len(to), a.ID
	sub.FileSent = h.Via == store.ApprovalViaAPI || h.Via == store.ApprovalViaMCP
	rows := make([]*store.Outgoing, 0, len(to))
	for _, r := range to {
		r.ORCPT = ""
		row := outbound.NewRow(tx, sub, d.Name, r)
		row.Status, row.TriedFrom = store.OutgoingHeld, time.Time{}
		way, err := s.rooms.Outbound.RouteOf(tx, d, row)
		if err != nil {
			return nil, nil, err
		}
		row.Transport = way.Transport
		if err := store.Outgoings.Put(tx, row); err != nil {
			return nil, nil, err
		}
		rows = append(rows, row)
	}
	a.LastRow = rows[len(rows)-1].ID
	if err := store.SubmissionBlobs.Ref(tx, sub.Blob, sub.ID); err != nil {
		return nil, nil, err
	}
	if err := store.ApprovalBlobs.Ref(tx, a.Blob, a.ID); err != nil {
		return nil, nil, err
	}
	if err := store.Submissions.Put(tx, sub); err != nil {
		return nil, nil, err
	}
	j, err := s.Queue.Add(tx, jobs.New{AccountID: a.AccountID, Kind: kindApprovalEnds, Lane: "approval " + a.ID, Args: approvalArgs{a.ID}, Due: a.ExpiresAt})
	if err != nil {
		return nil, nil, err
	}
	a.JobID = j.ID
	if err := store.Approvals.Put(tx, a); err != nil {
		return nil, nil, err
	}
	if _, err := s.rooms.Events.Emit(tx, a.AccountID, events.EventEmailHeld, events.About{MailboxID: a.MailboxID, Domain: a.DomainID}, approvalEvent(a)); err != nil {
		return nil, nil, err
	}
	_, err = s.Queue.Add(tx, jobs.New{AccountID: a.AccountID, Kind: kindApprovalMail, Key: a.AccountID, Lane: "approvals " + a.AccountID})
	return rows, a, err
}

func approvalEvent(a *store.Approval) ApprovalEvent {
	name := func(id, name string) *ApprovalName {
		if id == "" {
			return nil
		}
		return &ApprovalName{id, name}
	}
	list := func(l []string) []string { return append([]string{}, l...) }
	return ApprovalEvent{
		ApprovalID: a.ID, Status: a.Status, Reason: a.Reason, Via: a.Via, Token: name(a.TokenID, a.TokenName), UserID: core.OrNull(a.MailboxID), Email: a.Sender,
		To: list(a.To), Cc: list(a.Cc), Bcc: list(a.Bcc), Size: a.Size, ContentHash: a.ContentHash, MessageID: a.MessageID,
		CreatedAt: core.Time{Time: a.CreatedAt}, ExpiresAt: core.Time{Time: a.ExpiresAt}, DecidedAt: core.Time{Time: a.DecidedAt},
		DecidedBy: name(a.DecidedBy, a.DecidedByName), Note: core.OrNull(a.Note),
	}
}

// approvalArgs are the arguments of the jobs that expire an approval and settle its rows.
type approvalArgs struct {
	ApprovalID string `json:"approval_id"`
}

func (s *Service) approvalKinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: kindApprovalEnds, Work: s.expireApproval, Timeout: 5 * time.Minute},
		{Name: kindApprovalRows, Work: s.settleApproval, Timeout: time.Hour},
		s.WhileActive(jobs.Kind{Name: kindApprovalMail, Work: s.notifyApprovers, Max: 5, Timeout: time.Minute}),
	}
}

// notifyApprovers notifies the owner and the admins of an account that messages wait for approval.
func (s *Service) notifyApprovers(_ context.Context, j *store.Job) (jobs.Writes, error) {
	var notified time.Time
	err := s.Store.View(func(tx *store.Tx) error {
		a, err := store.Accounts.Find(tx, j.AccountID)
		if a != nil {
			notified = a.HeldToldAt
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if next := notified.Add(approvalMailInterval); s.Now().Before(next) {
		return nil, jobs.Snooze(next)
	}
	return func(tx *store.Tx, _ *store.Job) error {
		a, err := store.Accounts.Find(tx, j.AccountID)
		if a == nil || err != nil {
			return err
		}
		n := store.ApprovalsByStatus.Count(tx, store.ApprovalStatusKey(a.ID, store.ApprovalPending), maxHeld)
		if n == 0 {
			return nil
		}
		a.HeldToldAt = tx.Now()
		if err := store.Accounts.Put(tx, a); err != nil {
			return err
		}
		l := alert.HostMail{About: a.ID, Subject: fmt.Sprintf("%d messages wait for approval", n)}
		switch n {
		case 1:
			l.Subject = "A message waits for approval"
		case maxHeld:
			l.Subject = fmt.Sprintf("%d messages or more wait for approval", maxHeld)
		}
		l.Text = fmt.Sprintf("%s on %s. An owner or admin of the account %s can approve or reject:\n\n%s/approvals\n\n"+
			"A message that nobody approves within %d days is not sent.\n", l.Subject, s.Hostname(), a.Name, s.Config.BaseURL, int(approvalPeriod.Hours()/24))
		for _, u := range store.UsersByAccount.Asc(tx, a.ID, "") {
			if !core.IsOwnerOrAdmin(u.Role) || u.Status != store.UserActive {
				continue
			}
			l.To = u.Email
			if err := alert.Plan(s.Core, tx, l); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// expireApproval expires an approval that nobody decided in time.
func (s *Service) expireApproval(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[approvalArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var a *store.Approval
	if err := s.Store.View(func(tx *store.Tx) error {
		a, err = store.Approvals.Find(tx, args.ApprovalID)
		return err
	}); a == nil || err != nil || a.Status != store.ApprovalPending {
		return nil, err
	}
	if s.Now().Before(a.ExpiresAt) {
		return nil, jobs.Snooze(a.ExpiresAt)
	}
	report, err := s.rejectionReport(a, expiredText)
	if err != nil {
		return nil, err
	}
	jobs.Finally(ctx, func() { s.releaseReport(report) })
	return func(tx *store.Tx, _ *store.Job) error {
		a, err := store.Approvals.Find(tx, a.ID)
		if a == nil || err != nil || a.Status != store.ApprovalPending {
			return err
		}
		a.Status, a.JobID = store.ApprovalExpired, "" // its job is the one that is running now
		return s.endApproval(tx, a, report)
	}, nil
}

const (
	expiredText  = "nobody approved it within seven days"
	rejectedText = "it was not approved"
)

// endApproval writes an approval that was rejected or has expired, reports to the sender, and
// closes its rows.
func (s *Service) endApproval(tx *store.Tx, a *store.Approval, report *inbox.StoredMessage) error {
	sub, err := store.Submissions.Find(tx, a.SubmissionID)
	if err != nil {
		return err
	}
	if sub != nil && report != nil {
		if sub.Program {
			err = s.rooms.Outbound.QueueReport(tx, sub.AccountID, sub.DomainID, sub.ReportTo, report)
		} else {
			err = s.rooms.Outbound.SendReport(tx, sub, report)
		}
		if err != nil {
			return err
		}
	}
	return s.storeDecision(tx, a, events.EventEmailRejected)
}

// storeDecision writes an approval that has been decided, emits the event, and applies the decision
// to the first rows of the message. A job applies it to the others.
func (s *Service) storeDecision(tx *store.Tx, a *store.Approval, event string) error {
	if a.JobID != "" {
		if err := s.Queue.Cancel(tx, a.JobID); err != nil && !core.IsGone(err) {
			return err
		}
	}
	a.JobID, a.DecidedAt = "", tx.Now()
	if err := store.Approvals.Put(tx, a); err != nil {
		return err
	}
	if _, err := s.rooms.Events.Emit(tx, a.AccountID, event, events.About{MailboxID: a.MailboxID, Domain: a.DomainID}, approvalEvent(a)); err != nil {
		return err
	}
	more, err := s.settleNextRows(tx, a)
	if !more || err != nil {
		return err
	}
	_, err = s.Queue.Add(tx, jobs.New{AccountID: a.AccountID, Kind: kindApprovalRows, Lane: "approval " + a.ID, Args: approvalArgs{a.ID}})
	return err
}

// settleNextRows applies the decision to the next rows that still wait for it, at most
// RecipientsAtATime. more is true if others remain.
func (s *Service) settleNextRows(tx *store.Tx, a *store.Approval) (more bool, err error) {
	var rows []*store.Outgoing
	for row := range rowsOf(tx, a) {
		if !row.AwaitsApproval() {
			continue
		}
		if len(rows) == outbound.RecipientsAtATime {
			more = true
			break
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		if a.Status != store.ApprovalApproved {
			row.LastResponse = rejectedText
			if a.Status == store.ApprovalExpired {
				row.LastResponse = expiredText
			}
			err = s.rooms.Outbound.CloseRow(tx, row, store.OutgoingRejected)
		} else {
			err = s.queueApproved(tx, row)
		}
		if err != nil {
			return false, err
		}
	}
	return more, nil
}

// queueApproved queues an approved row for delivery.
func (s *Service) queueApproved(tx *store.Tx, row *store.Outgoing) error {
	suppressed, err := core.IsSuppressed(tx, row.AccountID, row.Recipient)
	if err != nil {
		return err
	}
	if suppressed {
		row.LastResponse = outbound.SuppressedText
		return s.rooms.Outbound.CloseRow(tx, row, store.OutgoingSuppressed)
	}
	row.Status, row.TriedFrom, row.UpdatedAt = store.OutgoingQueued, tx.Now(), tx.Now()
	if row.SendAt.After(tx.Now()) {
		row.Status, row.TriedFrom = store.OutgoingScheduled, row.SendAt
	}
	return s.rooms.Outbound.PutRowWithJob(tx, row)
}

// rowsOf iterates over the rows of an approval.
func rowsOf(tx *store.Tx, a *store.Approval) func(yield func(*store.Outgoing) bool) {
	return func(yield func(*store.Outgoing) bool) {
		for row := range store.Outgoings.After(tx, a.BeforeRows) {
			if row.ID > a.LastRow || row.SubmissionID == a.SubmissionID && !yield(row) {
				return
			}
		}
	}
}

// settleApproval is the job that applies the decision to the remaining rows of an approval, some in
// each transaction.
func (s *Service) settleApproval(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[approvalArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	return nil, s.settleAllRows(ctx, args.ApprovalID)
}

func (s *Service) settleAllRows(ctx context.Context, id string) error {
	for more := true; more; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		began := time.Now()
		err := s.Store.Update(func(tx *store.Tx) error {
			a, err := store.Approvals.Find(tx, id)
			more = false
			if a == nil || err != nil || a.Status == store.ApprovalPending {
				return err
			}
			more, err = s.settleNextRows(tx, a)
			return err
		})
		if err != nil {
			return err
		}
		if more {
			core.Sleep(ctx, time.Since(began)) // let other writers go first
		}
	}
	return nil
}

// rejectionReport returns a report to the sender of a message submitted by SMTP that it will not be
// sent; nil if no report is wanted.
func (s *Service) rejectionReport(a *store.Approval, text string) (*inbox.StoredMessage, error) {
	if a.Via != store.ApprovalViaSMTP {
		return nil, nil
	}
	var sub *store.Submission
	var first *store.Outgoing
	var about []msg.DSNRecipient
	err := s.Store.View(func(tx *store.Tx) (err error) {
		sub, err = store.Submissions.Find(tx, a.SubmissionID)
		if sub == nil || err != nil {
			return err
		}
		for row := range rowsOf(tx, a) {
			if first == nil {
				first = row
			}
			if row.AwaitsApproval() && outbound.WantsReport(row.Notify, "FAILURE") {
				about = append(about, msg.DSNRecipient{Final: row.Recipient, Original: row.ORCPT, Action: msg.ActionFailed, Status: "5.7.1", Diagnostic: text})
			}
		}
		return nil
	})
	if err != nil || len(about) == 0 {
		return nil, err
	}
	blob, err := s.Store.OpenBlob(sub.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	return s.rooms.Outbound.WriteReport(outbound.ReportedMessage{
		ID: first.ID, To: sub.Sender, EnvelopeID: sub.EnvelopeID, QueuedAt: first.QueuedAt, Original: blob, Full: sub.Ret == "FULL" && !sub.RequireTLS,
	}, about...)
}

// releaseReport releases a rejectionReport that was not filed.
func (s *Service) releaseReport(report *inbox.StoredMessage) {
	if report != nil {
		s.rooms.Inbox.Release(report)
	}
}

// rejectApprovals rejects the pending approvals of an account for which matches returns true, since
// their messages can no longer be sent.
func (s *Service) rejectApprovals(ctx context.Context, accountID, why string, matches func(*store.Approval) bool) error {
	for after, more := "", true; more; {
		var ids []string
		if err := s.Store.View(func(tx *store.Tx) error {
			more = false
			for key, a := range store.ApprovalsByStatus.Asc(tx, store.ApprovalStatusKey(accountID, store.ApprovalPending), after) {
				if len(ids) == outbound.WaitingAtATime {
					more = true
					break
				}
				after = key
				if matches(a) {
					ids = append(ids, a.ID)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		for _, id := range ids {
			err := s.Store.Update(func(tx *store.Tx) error {
				tx.MayUseReserve() // a deletion must work on a full disk
				a, err := store.Approvals.Find(tx, id)
				if a == nil || err != nil || a.Status != store.ApprovalPending {
					return err
				}
				a.Status, a.Note = store.ApprovalRejected, why
				return s.endApproval(tx, a, nil)
			})
			if err == nil {
				err = s.settleAllRows(ctx, id)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// PruneApprovals deletes approvals that were decided more than approvalRetention ago, with their
// messages.
func (s *Service) PruneApprovals(tx *store.Tx) (int, error) {
	var old []*store.Approval
	for key, a := range store.ApprovalsDecided.Asc(tx, "", "") {
		if len(old) == core.PruneAtATime || tx.Now().Sub(store.KeyTime(key)) < approvalRetention {
			break
		}
		old = append(old, a)
	}
	for _, a := range old {
		if err := store.ApprovalBlobs.Unref(tx, a.Blob, a.ID); err != nil {
			return 0, err
		}
		if err := store.Approvals.Delete(tx, a.ID); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}
