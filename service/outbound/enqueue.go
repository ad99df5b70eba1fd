package outbound

import (
	"context"
	"maps"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// RecipientsAtATime is the maximum number of recipients that one transaction enqueues, since other
// writers wait for it.
const RecipientsAtATime = 50

// Enqueue writes a submission with a row and a job for each recipient, in tx. The rows of the
// recipients beyond RecipientsAtATime are returned too, but a job stores them in later
// transactions. A suppressed recipient gets a row without a job. The submission's blob must be
// leased or referenced already.
func (s *Service) Enqueue(tx *store.Tx, sub *store.Submission, d *store.Domain, to []Rcpt) ([]*store.Outgoing, error) {
	sub.ID, sub.CreatedAt, sub.Waiting = tx.NewID("sub"), tx.Now(), 0
	now := min(len(to), RecipientsAtATime)
	rows := make([]*store.Outgoing, 0, len(to))
	for _, r := range to[:now] {
		row := NewRow(tx, sub, d.Name, r)
		if err := s.addDelivery(tx, sub, row, d); err != nil {
			return nil, err
		}
		if row.Waits() {
			sub.Waiting++
		}
		rows = append(rows, row)
	}
	later, err := s.enqueueLater(tx, sub, d, to[now:])
	rows = append(rows, later...)
	if err != nil || sub.Waiting == 0 {
		return rows, err
	}
	if err := store.SubmissionBlobs.Ref(tx, sub.Blob, sub.ID); err != nil {
		return nil, err
	}
	return rows, store.Submissions.Put(tx, sub)
}

// NewRow returns the row of a recipient before the first attempt.
func NewRow(tx *store.Tx, sub *store.Submission, domain string, r Rcpt) *store.Outgoing {
	row := &store.Outgoing{
		ID: tx.NewID("msg"), SubmissionID: sub.ID, AccountID: sub.AccountID, MailboxID: sub.MailboxID, MessageID: sub.MessageID,
		Sender: sub.Sender, Recipient: r.Address, Program: sub.Program, Subject: sub.Subject, Domain: domain, Notify: r.Notify, ORCPT: r.ORCPT,
		QueuedAt: tx.Now(), UpdatedAt: tx.Now(), Status: store.OutgoingQueued, RequireTLS: sub.RequireTLS, Tags: sub.Tags,
		ApprovalID: sub.ApprovalID, Tainted: sub.Tainted, Checked: sub.Checked && sub.Sender != "", OwnWords: sub.OwnWords, RequestID: sub.RequestID,
	}
	if sub.SendAt.After(row.QueuedAt) {
		row.Status, row.SendAt, row.TriedFrom = store.OutgoingScheduled, sub.SendAt, sub.SendAt
	}
	return row
}

// SuppressedText is the text that the row of a suppressed recipient has as its last response.
const SuppressedText = "The address is on the account's suppression list."

// isSuppressed reports whether a submission must not be sent to an address, since the account
// suppresses the address.
func isSuppressed(tx *store.Tx, sub *store.Submission, address string) (bool, error) {
	if sub.Required {
		return false, nil
	}
	return core.IsSuppressed(tx, sub.AccountID, address)
}

// addDelivery writes one recipient's row, with a job unless the recipient is suppressed.
func (s *Service) addDelivery(tx *store.Tx, sub *store.Submission, row *store.Outgoing, d *store.Domain) error {
	r, err := s.RouteOf(tx, d, row)
	if err != nil {
		return err
	}
	row.Transport = r.Transport
	suppressed, err := isSuppressed(tx, sub, row.Recipient)
	if err != nil {
		return err
	}
	if suppressed {
		row.Status, row.LastResponse = store.OutgoingSuppressed, SuppressedText
		return store.Outgoings.Put(tx, row)
	}
	return s.putWithJob(tx, row, r)
}

// putWithJob writes a pending row with its job on a route. The job is due at the row's SendAt.
func (s *Service) putWithJob(tx *store.Tx, row *store.Outgoing, r Route) error {
	j, err := s.Queue.Add(tx, r.newJob(row))
	if err != nil {
		return err
	}
	row.JobID, row.NextAt = j.ID, j.Due
	return store.Outgoings.Put(tx, row)
}

const kindRecipients = "recipients"

// recipientsArgs are the arguments of the job that enqueues the remaining recipients of a
// submission.
type recipientsArgs struct {
	SubmissionID string `json:"submission_id"`
}

// recipientsKind is the kind of the jobs that enqueue the recipients of a submission beyond
// RecipientsAtATime.
func (s *Service) recipientsKind() jobs.Kind {
	return jobs.Kind{Name: kindRecipients, Work: s.enqueueRest, Timeout: time.Hour, Most: inbox.MaxFilingJobs}
}

// enqueueLater stores the recipients that a job will enqueue, and returns their future rows. The
// submission counts them as pending from now on, so that it is not deleted.
func (s *Service) enqueueLater(tx *store.Tx, sub *store.Submission, d *store.Domain, to []Rcpt) (rows []*store.Outgoing, err error) {
	if len(to) == 0 {
		return nil, nil
	}
	p := &store.PendingRcpts{SubmissionID: sub.ID, Domain: d.Name}
	for _, r := range to {
		row := NewRow(tx, sub, d.Name, r)
		suppressed, err := isSuppressed(tx, sub, r.Address)
		if err != nil {
			return nil, err
		}
		if suppressed {
			row.Status = store.OutgoingSuppressed
		}
		to, err := s.RouteOf(tx, d, row)
		if err != nil {
			return nil, err
		}
		row.Transport = to.Transport
		rows = append(rows, row)
		p.To = append(p.To, store.PendingRcpt{Address: r.Address, Notify: r.Notify, ORCPT: r.ORCPT})
	}
	sub.Waiting += len(p.To)
	if err := store.PendingRecipients.Put(tx, p); err != nil {
		return nil, err
	}
	_, err = s.Queue.Add(tx, jobs.New{
		AccountID: sub.AccountID, Kind: kindRecipients, Lane: "recipients " + sub.ID, Args: recipientsArgs{sub.ID},
	})
	return rows, err
}

// enqueueRest enqueues the remaining recipients, RecipientsAtATime in each transaction, so that
// other writers get their turn. The transaction that writes a recipient's row also removes the
// recipient from the list, so that each gets exactly one row.
func (s *Service) enqueueRest(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[recipientsArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for more := true; more; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			more, err = s.enqueueNextRecipients(tx, args.SubmissionID)
			return err
		})
		if err != nil {
			return nil, err
		}
		core.Sleep(ctx, time.Since(began)) // let other writers go first
	}
	return nil, nil
}

func (s *Service) enqueueNextRecipients(tx *store.Tx, id string) (more bool, err error) {
	p, err := store.PendingRecipients.Get(tx, id)
	if core.IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sub, err := store.Submissions.Get(tx, id)
	if err != nil {
		return false, err
	}
	d, err := store.Domains.Read(tx, sub.DomainID)
	if err != nil && !core.IsGone(err) {
		return false, err
	}
	n := min(len(p.To), RecipientsAtATime)
	for _, r := range p.To[:n] {
		row := NewRow(tx, sub, p.Domain, Rcpt(r))
		if err := s.addDelivery(tx, sub, row, d); err != nil {
			return false, err
		}
		if !row.Waits() {
			sub.Waiting--
		}
	}
	p.To = p.To[n:]
	if len(p.To) > 0 {
		if err := store.PendingRecipients.Put(tx, p); err != nil {
			return false, err
		}
		return true, store.Submissions.Put(tx, sub)
	}
	if err := store.PendingRecipients.Delete(tx, id); err != nil {
		return false, err
	}
	return false, PutOrDeleteSubmission(tx, sub)
}

// PutOrDeleteSubmission writes a submission that has pending recipients. It deletes one that has
// none, with its message.
func PutOrDeleteSubmission(tx *store.Tx, sub *store.Submission) error {
	if sub.Waiting > 0 {
		return store.Submissions.Put(tx, sub)
	}
	if err := store.SubmissionBlobs.Unref(tx, sub.Blob, sub.ID); err != nil {
		return err
	}
	return store.Submissions.Delete(tx, sub.ID)
}

// Limits on the tags of a message.
const (
	maxTags     = 20
	maxTagName  = 64
	maxTagValue = 200 // characters of a value
)

// A TagMap is the tags of a message, by their names.
type TagMap map[string]string

// Sorted validates tags and returns them in the order of their names.
func (m TagMap) Sorted() (out []store.Tag, err error) {
	if len(m) > maxTags {
		return nil, core.Invalid("tags", "too_many_items", "a message can have at most %d tags", maxTags)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value := m[name]
		if !isTagName(name) {
			return nil, core.Invalid("tags", "invalid", "the name %.80q must be of 1 to %d letters, digits, _ and -", name, maxTagName)
		}
		if !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxTagValue || slices.ContainsFunc([]rune(value), unicode.IsControl) {
			return nil, core.Invalid("tags."+name, "invalid", "must be at most %d characters, on one line", maxTagValue)
		}
		out = append(out, store.Tag{Name: name, Value: value})
	}
	return out, nil
}

func isTagName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= maxTagName
}

// tagsOut returns the tags of a row as a map for the API, which is never nil.
func tagsOut(tags []store.Tag) TagMap {
	out := TagMap{}
	for _, t := range tags {
		out[t.Name] = t.Value
	}
	return out
}
