package mta

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	deliverTimeout = 20 * time.Minute // of one attempt with all its hosts
	keptAttempts   = 30               // in a row of the sending log
	maxAttempts    = 1000             // far beyond what five days hold, so that no job goes on for ever
)

// deliverArgs is the job of handing a message on to one recipient.
type deliverArgs struct {
	OutgoingID string `json:"outgoing_id"`
}

func (s *Service) deliverKind(name string, lanes, most, each int) jobs.Kind {
	return jobs.Kind{
		Name: name, Work: s.attemptDelivery, Max: maxAttempts, Timeout: deliverTimeout + 5*time.Minute, Lanes: lanes, Most: most, MostEach: each,
		Backoff: retryWait, Failed: s.deliveryFailed,
	}
}

// newClients makes those that dial out: to hosts that strangers name, and to the operator's relays,
// which may be anywhere.
func (s *Service) newClients() {
	s.direct, s.relayed = s.newClient(), s.newClient()
	s.direct.Dialer = s.Guard.Dialer(s.Resolver)
	s.direct.MXPort, s.direct.DANE = s.Config.MXPort, s.Config.DANE
	s.relayed.IdlePerHop = relayLanes
	s.plain = s.newClient()
	s.plain.Dialer = s.inbox.PlainGuard().Dialer(s.Resolver)
}

func (s *Service) newClient() *deliver.Client {
	return &deliver.Client{
		Hostname: s.Config.Hostname, Resolver: s.Resolver, RootCAs: s.Config.RootCAs, Now: s.Now,
		Timeouts: deliver.Timeouts{Overall: deliverTimeout},
	}
}

// A delivery is all that an attempt needs to know.
type delivery struct {
	row        *store.Outgoing
	sub        *store.Submission
	domain     *store.Domain // nil: gone
	blob       *store.Blob   // open while the attempt lasts
	route      route
	to         *destination // of viaLocal; nil if it takes none
	refusal    error        // why not
	suppressed bool         // the recipient has been suppressed since
	now        time.Time
	stored     []*inbox.StoredMessage // made for the Writes of the attempt, and released when it is over
}

// An attemptResult is what came of an attempt.
type attemptResult struct {
	status   string // that the row gets
	provided string // the Message-ID that a relay minted
	result   deliver.Result
	arrived  *inbox.StoredMessage // to be filed where a local message goes
}

// attemptDelivery makes one attempt. What it does to the world may be done again after a crash, so that a
// relay or a host may get a message twice if we die between its answer and our commit (RFC 5321
// section 4.5.4.1 asks no less); what it writes, mail for mailboxes here included, is written once.
func (s *Service) attemptDelivery(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	m, err := s.mailing(args.OutgoingID)
	if m == nil || err != nil {
		return nil, err
	}
	if m.blob, err = s.Store.OpenBlob(m.sub.Blob); err != nil {
		return nil, m.internalFailure(err)
	}
	defer m.blob.Close()
	jobs.Finally(ctx, func() {
		for _, d := range m.stored {
			s.inbox.Release(d) // does nothing for what was filed
		}
	})
	if m.now.Before(m.row.NextAt) {
		return s.waitUntilDue(m)
	}
	if wait, ok := s.paces.reserve(m.pace()); !ok {
		return s.waitForSlot(m, wait)
	}
	counted := m.sub.Forward && m.route.transport != core.ViaCapture && !m.suppressed
	if counted {
		if at, ok := s.forwards.Take(m.row.Recipient, m.now); !ok {
			return s.waitForForward(m, at)
		}
	}
	o, err := s.attempt(ctx, m)
	if counted && (err != nil || o.result.Status == deliver.Temporary) {
		s.forwards.giveBack(m.row.Recipient)
	}
	if err != nil {
		return nil, m.internalFailure(err)
	}
	if ctx.Err() != nil && o.result.Status == deliver.Temporary {
		return nil, ctx.Err() // we stopped it: not the host's fault
	}
	s.paces.observe(m.pace(), o.result)
	return s.finish(m, j, o)
}

// pace names those who are told together that they send too much: all with the same next hop, but
// at a server that a mailbox logs in to itself that mailbox alone.
func (m *delivery) pace() string {
	lane := m.route.lane(m.row.Recipient)
	if m.route.own {
		return lane + " " + m.row.MailboxID
	}
	return lane
}

// internalFailure is a failure of our own, which is for good once it has lasted as long as any may.
func (m *delivery) internalFailure(err error) error {
	if m.now.Before(m.row.QueuedAt.Add(giveUpAfter)) {
		return err
	}
	return jobs.Permanent(err)
}

// mailing reads what an attempt needs, in one snapshot; nil if the message waits no more.
func (s *Service) mailing(id string) (*delivery, error) {
	m := &delivery{now: s.Now()}
	err := s.Store.View(func(tx *store.Tx) (err error) {
		if m.row, err = waitingRow(tx, id); m.row == nil || err != nil {
			return err
		}
		if m.sub, err = store.Submissions.Get(tx, m.row.SubmissionID); err != nil {
			return fmt.Errorf("submission %s: %w", m.row.SubmissionID, err)
		}
		if m.domain, err = store.Domains.Get(tx, m.sub.DomainID); err != nil && !core.IsGone(err) {
			return err
		}
		if m.suppressed, err = core.IsSuppressed(tx, m.row.AccountID, m.row.Recipient); err != nil {
			return err
		}
		if m.route, err = s.routeOf(tx, m.domain, m.row); err != nil || m.route.transport != core.ViaLocal {
			return err
		}
		return m.look(tx, s)
	})
	if m.row == nil || err != nil {
		return nil, err
	}
	return m, nil
}

// look finds where local mail goes, or why it goes nowhere.
func (m *delivery) look(tx *store.Tx, s *Service) error {
	to, err := s.receiver(tx, m.row.Recipient)
	if err == nil {
		err = to.admits(m.sub.Sender)
	}
	if err == nil {
		err = to.takes(tx, int64(m.sub.Blob.Length))
	}
	if e := new(core.SMTPError); errors.As(err, &e) {
		m.refusal = e
		return nil
	}
	m.to = to
	return err
}

// attempt hands the message on, once.
func (s *Service) attempt(ctx context.Context, m *delivery) (*attemptResult, error) {
	if m.suppressed {
		return localResult(store.OutgoingSuppressed, deliver.Delivered, "5.7.1", suppressedNow), nil
	}
	if m.route.transport == core.ViaCapture {
		return localResult(store.OutgoingCaptured, deliver.Delivered, "2.0.0", "captured: this server sends no mail out"), nil
	}
	if e := new(core.SMTPError); errors.As(m.refusal, &e) {
		return refused(e), nil
	}
	if m.route.transport == core.ViaRelay && m.route.relay == nil {
		return localResult("", deliver.Temporary, "4.3.5", m.route.missing()), nil
	}
	content, err := contentOf(m.sub, m.blob)
	if err != nil {
		return nil, err
	}
	content, cleaned, err := s.withoutControls(m.route, content)
	if err != nil {
		return nil, err
	}
	defer cleaned()
	head, err := s.signed(m, content)
	if err != nil {
		s.Log.Error("sign outgoing mail", "message", m.row.ID, "err", err)
		return localResult("", deliver.Temporary, "4.3.5", "the message could not be signed: its domain's DKIM keys cannot be used"), nil
	}
	if m.route.transport == core.ViaLocal {
		return s.deliverHere(m, head, content)
	}
	if m.sub.Forward || m.sub.Sender == "" { // of others' words nobody has made sure
		if m.sub.EightBit, err = hasHighBytes(again(content)); err != nil {
			return nil, err
		}
	}
	return s.dial(ctx, m, head, content), nil
}

// contentOf is the message as it goes on. What was delivered here before has a Return-Path on top,
// which is for the mailbox alone (RFC 5321 section 4.4).
func contentOf(sub *store.Submission, blob *store.Blob) (*io.SectionReader, error) {
	if !sub.Forward {
		return Whole(blob), nil
	}
	first := make([]byte, min(blob.Size(), 1<<10))
	if _, err := blob.ReadAt(first, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read message: %w", err)
	}
	skip := 0
	if end := bytes.Index(first, []byte("\r\n")); end >= 0 && bytes.HasPrefix(first, []byte("Return-Path:")) {
		skip = end + 2
	}
	return io.NewSectionReader(blob, int64(skip), blob.Size()-int64(skip)), nil
}

// withoutControls leaves out what the operator's relay would take as commands, also of a message
// from outside whose signature covers such a field. What it gives can be read until done is called.
func (s *Service) withoutControls(r route, content *io.SectionReader) (clean *io.SectionReader, done func(), err error) {
	done = func() {}
	if r.relay == nil || r.own {
		return content, done, nil
	}
	spool, err := s.stripped(content, r.relay.controls())
	if spool == nil || err != nil {
		return content, done, err
	}
	return io.NewSectionReader(spool, 0, spool.Size()), func() { _ = spool.Close() }, nil
}

// stripped copies a message without the fields whose names begin with one of prefixes; nil if it
// has none.
func (s *Service) stripped(content *io.SectionReader, prefixes []string) (*store.Spool, error) {
	found, err := msg.HasFields(again(content), prefixes)
	if !found || err != nil {
		return nil, err
	}
	spool := s.Store.NewSpool(content.Size())
	if _, err := msg.StripFields(spool, again(content), prefixes); err != nil {
		return nil, errors.Join(fmt.Errorf("copy message: %w", err), spool.Close())
	}
	return spool, nil
}

// signed gives the header fields that go before the stored message on this route.
func (s *Service) signed(m *delivery, content *io.SectionReader) ([]byte, error) {
	var fields []byte
	var err error
	switch replaced := m.route.relay.replaces(); {
	case m.route.relay != nil && m.route.relay.NoDKIM && m.sub.Forward:
	case m.route.own: // which signs for its domain, with keys that we do not have
	case !m.sub.Forward:
		fields, err = s.signOwn(m, content, replaced)
	case m.route.transport != core.ViaLocal:
		fields, err = s.signer.seal(m.domain, again(content), auth.SealOptions{AuthservID: s.Hostname(), OmitMessageID: replaced, Now: m.now})
	}
	if err != nil {
		return nil, err
	}
	if m.route.relay != nil {
		return append([]byte(m.route.relay.head(s, m.row)), fields...), nil
	}
	return fields, nil
}

// signOwn signs a message of ours, with the fields that are for this recipient alone.
func (s *Service) signOwn(m *delivery, content *io.SectionReader, replaced bool) ([]byte, error) {
	extra, id := s.unsubscribeFields(m), m.sub.ID
	if m.route.relay != nil && m.route.relay.NoDKIM { // it signs itself
		return extra, nil
	}
	if len(extra) > 0 {
		id = m.row.ID
	}
	fields, err := s.signer.sign(m.domain, id, io.MultiReader(bytes.NewReader(extra), again(content)), replaced)
	return slices.Concat(fields, extra), err
}

func Whole(blob *store.Blob) *io.SectionReader { return io.NewSectionReader(blob, 0, blob.Size()) }

// again reads the same from its start.
func again(r *io.SectionReader) io.Reader { return io.NewSectionReader(r, 0, r.Size()) }

// dial hands the message to another host.
func (s *Service) dial(ctx context.Context, m *delivery, head []byte, content *io.SectionReader) *attemptResult {
	env := deliver.Envelope{
		From: s.returnPath(m), To: m.row.Recipient, SMTPUTF8: m.sub.SMTPUTF8, EightBit: m.sub.EightBit,
		EnvelopeID: m.sub.EnvelopeID, Notify: m.row.Notify, Ret: m.sub.Ret, ORCPT: m.row.ORCPT,
	}
	message := deliver.Message{
		Size: int64(len(head)) + content.Size(),
		Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(head), again(content))), nil
		},
	}
	if r := m.route.relay; r != nil {
		client := s.relayed
		if m.route.own {
			client = s.direct // a tenant named the server, not the operator
			if r.TLS == "none" {
				client = s.plain
			}
		}
		o := &attemptResult{result: client.Relay(ctx, r.hop(), env, message), status: store.OutgoingRelayed}
		if client == s.plain && slices.ContainsFunc(o.result.Attempts, func(a deliver.Attempt) bool { return errors.Is(a.Err, netguard.ErrBlocked) }) {
			return localResult("", deliver.Permanent, "5.7.10", r.Host+" was not logged in to: smtp.security "+inbox.PlainRefused) // RFC 5248: encryption needed
		}
		if o.result.Status == deliver.Delivered {
			o.provided = r.mint(o.result.Reply)
		}
		return o
	}
	return s.dialDirect(ctx, m, env, message)
}

// dialDirect hands the message to the recipient's own hosts, as their domain's policies on TLS ask.
func (s *Service) dialDirect(ctx context.Context, m *delivery, env deliver.Envelope, message deliver.Message) *attemptResult {
	domain := core.DomainOfAddress(m.row.Recipient)
	if env.TLSOptional = m.sub.TLSReport; env.TLSOptional {
		o := &attemptResult{result: s.direct.Direct(ctx, domain, env, message), status: store.OutgoingSent}
		o.result.Sessions = nil // reports are not reported on (RFC 8460 section 3)
		return o
	}
	policy, failed, err := s.policies.Of(ctx, domain)
	if err != nil {
		return localResult("", deliver.Temporary, "4.4.3", "the MTA-STS policy could not be looked up: "+err.Error())
	}
	env.STS = policy
	o := &attemptResult{result: s.direct.Direct(ctx, domain, env, message), status: store.OutgoingSent}
	if failed != nil {
		o.result.Sessions = append(o.result.Sessions, *failed)
	}
	return o
}

// localResult is an outcome that no other host had a part in.
func localResult(status string, what deliver.Status, enhanced, text string) *attemptResult {
	return &attemptResult{status: status, result: deliver.Result{Status: what, Enhanced: enhanced, Reply: text}}
}

// refused is what becomes of mail that our own rules refuse.
func refused(e *core.SMTPError) *attemptResult {
	o := localResult("", deliver.Permanent, e.Enhanced, e.Error())
	o.result.Code = e.Code
	if e.Temporary() {
		o.result.Status = deliver.Temporary
	}
	o.result.RecipientFault = e.Enhanced == "5.1.1"
	return o
}

// finish decides what follows from an attempt: it is done, given up, or made again later.
func (s *Service) finish(m *delivery, j *store.Job, o *attemptResult) (jobs.Writes, error) {
	switch {
	case o.result.Status == deliver.Delivered:
		return s.done(m, o, s.successReport(m, o)), nil
	case o.result.Status == deliver.Permanent:
		return s.bounce(m, o.result)
	case !m.now.Before(m.row.QueuedAt.Add(giveUpAfter)):
		return s.bounce(m, expired(o.result))
	}
	return s.scheduleRetry(m, j, o)
}

// expired is a temporary failure that has lasted too long.
func expired(r deliver.Result) deliver.Result {
	r.Status, r.Enhanced, r.RecipientFault = deliver.Permanent, "4.4.7", false
	r.Reply = "not delivered within five days; the last answer was: " + r.Reply
	return r
}

// scheduleRetry makes another attempt later.
func (s *Service) scheduleRetry(m *delivery, j *store.Job, o *attemptResult) (jobs.Writes, error) {
	paced := m.route.transport == core.ViaRelay && throttles(o.result) // it asks for patience, which is no failed attempt
	next := m.now.Add(retryWait(m.row.Attempts+1, float64(j.Jitter)/(1<<16)))
	if paced {
		next, _ = s.paces.reserve(m.pace())
	}
	if end := m.row.QueuedAt.Add(giveUpAfter); next.After(end) {
		next = end
	}
	next = next.Truncate(time.Millisecond)
	due, notice, err := s.delayNotice(m, next, o.result.Enhanced, o.result.Reply)
	if err != nil {
		return nil, err
	}
	writes := func(tx *store.Tx, j *store.Job) error {
		row, err := waitingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		row.Status, row.NextAt = store.OutgoingDeferred, next
		if j.Due.Before(due) { // somebody asked for it
			row.NextAt = j.Due
		}
		if err := recordAttempt(tx, row, m.route, o.result); err != nil {
			return err
		}
		if paced {
			row.Attempts--
		}
		row.DelayTold = row.DelayTold || notice != nil
		if err := s.sendReport(tx, m.sub, notice); err != nil {
			return err
		}
		row.UpdatedAt = tx.Now()
		return store.Outgoings.Put(tx, row)
	}
	if paced {
		return writes, jobs.Snooze(due)
	}
	return writes, jobs.RetryAt(due, errors.New(o.result.Reply))
}

// waitUntilDue is the turn of a job that came before its next attempt: for the delay notice.
func (s *Service) waitUntilDue(m *delivery) (jobs.Writes, error) {
	due, notice, err := s.delayNotice(m, m.row.NextAt, m.lastStatus(), m.row.LastResponse)
	if err != nil {
		return nil, err
	}
	if notice == nil {
		return nil, jobs.Snooze(due)
	}
	writes := func(tx *store.Tx, _ *store.Job) error {
		row, err := waitingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		row.DelayTold, row.UpdatedAt = true, tx.Now()
		if err := s.sendReport(tx, m.sub, notice); err != nil {
			return err
		}
		return store.Outgoings.Put(tx, row)
	}
	return writes, jobs.Snooze(due)
}

// waitForSlot is for a job whose next hop takes no more now. Its message is given up at its time,
// which its sender has been told, however many are before it.
func (s *Service) waitForSlot(m *delivery, turn time.Time) (jobs.Writes, error) {
	end := m.row.QueuedAt.Add(giveUpAfter)
	if !m.now.Before(end) {
		answer := cmp.Or(m.row.LastResponse, "none, since the next host takes fewer messages than wait for it")
		return s.bounce(m, expired(deliver.Result{Reply: answer}))
	}
	if m.row.NextAt = turn; turn.After(end) {
		m.row.NextAt = end
	}
	return s.waitUntilDue(m)
}

// lastStatus is the RFC 3463 status of the newest attempt.
func (m *delivery) lastStatus() string {
	if n := len(m.row.Log); n > 0 && m.row.Log[n-1].Enhanced != "" {
		return m.row.Log[n-1].Enhanced
	}
	return "4.0.0"
}

// done closes the row of a message that somebody took, even if its sender has tried to take it back
// meanwhile. notice, if there is one, tells the sender.
func (s *Service) done(m *delivery, o *attemptResult, notice *inbox.StoredMessage) jobs.Writes {
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := store.Outgoings.Get(tx, m.row.ID)
		if core.IsGone(err) || err == nil && o.arrived != nil && !row.Waits() {
			return nil
		}
		if err != nil {
			return err
		}
		if err := recordAttempt(tx, row, m.route, o.result); err != nil {
			return err
		}
		if err := s.sendReport(tx, m.sub, notice); err != nil {
			return err
		}
		if o.arrived != nil {
			if err := s.placeHere(tx, row, m, o.arrived); err != nil {
				return err
			}
		}
		if o.provided != "" {
			if err := s.addMapping(tx, row, o.provided); err != nil {
				return err
			}
		}
		if m.route.own && o.status == store.OutgoingRelayed {
			if err := s.copySent(tx, row.SubmissionID); err != nil {
				return err
			}
		}
		return s.closeRow(tx, row, o.status)
	}
}

// closeRow ends a row: its status is final, and the message's bytes go with its last recipient.
func (s *Service) closeRow(tx *store.Tx, row *store.Outgoing, status string) error {
	waited := row.Waits()
	row.Status, row.NextAt, row.UpdatedAt = status, time.Time{}, tx.Now()
	if err := store.Outgoings.Put(tx, row); err != nil || !waited {
		return err
	}
	sub, err := store.Submissions.Get(tx, row.SubmissionID)
	if err != nil {
		return fmt.Errorf("submission %s: %w", row.SubmissionID, err)
	}
	sub.Waiting--
	return keepSubmission(tx, sub)
}

// waitingRow gives a row that still waits; nil for one that has been closed meanwhile.
func waitingRow(tx *store.Tx, id string) (*store.Outgoing, error) {
	row, err := store.Outgoings.Get(tx, id)
	if core.IsGone(err) || err == nil && !row.Waits() {
		return nil, nil
	}
	return row, err
}

// recordAttempt notes an attempt in the row, and its TLS sessions for the report to the recipient's
// domain.
func recordAttempt(tx *store.Tx, row *store.Outgoing, r route, result deliver.Result) error {
	row.Attempts++
	row.Transport, row.Provider, row.LastResponse = r.transport, "", result.Reply
	if r.relay != nil {
		row.Provider = r.relay.Name
	}
	for _, a := range result.Attempts {
		row.Log = append(row.Log, store.Attempt{
			At: a.At.UTC().Truncate(time.Millisecond), Host: cmp.Or(a.Host, a.IP), IP: a.IP, TLS: a.TLS, Auth: a.Authenticated,
			Code: a.Code, Enhanced: a.Enhanced, Reply: a.Reply,
		})
	}
	if over := len(row.Log) - keptAttempts; over > 0 {
		row.Log = row.Log[over:]
	}
	return countTLS(tx, core.DomainOfAddress(row.Recipient), result.Sessions)
}

// deliveryFailed closes the row of a job that the queue gave up, to which only a bug or a damaged
// disk can bring it, so that nobody waits for it.
func (s *Service) deliveryFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil // there is no row that it could be about
	}
	row, err := waitingRow(tx, args.OutgoingID)
	if row == nil {
		return err
	}
	row.LastResponse = "given up: " + cause.Error()
	if err := s.emitBounce(tx, row, failure{Status: "5.3.0", diagnostic: row.LastResponse}); err != nil {
		return err
	}
	return s.closeRow(tx, row, store.OutgoingBounced)
}

// maxHops is how many servers a message may have passed; more is a loop (RFC 5321 section 6.3).
const maxHops = 50

// deliverHere makes mail of a mailbox here mail that arrives at another. It is filed, exactly once,
// with the end of the job.
func (s *Service) deliverHere(m *delivery, head []byte, content *io.SectionReader) (*attemptResult, error) {
	spool := s.Store.NewSpool(content.Size())
	defer spool.Close()
	if s.Config.Spam.Milter != nil && !m.sub.Forward {
		clean, err := s.stripped(content, filterFields)
		if err != nil {
			return nil, err
		}
		if clean != nil {
			defer clean.Close()
			content = io.NewSectionReader(clean, 0, clean.Size())
		}
	}
	if err := s.copyHere(spool, m.sub, content); err != nil {
		return nil, fmt.Errorf("copy message: %w", err)
	}
	passed, err := readHead(spool)
	if err != nil {
		return nil, err
	}
	if passed.hops > maxHops || m.to.Forward != "" && passed.delivered[m.row.Recipient] {
		return refused(core.SMTPErrorf(554, "5.4.6", "Mail loop")), nil
	}
	spool.Prepend(head)
	spool.Prepend(s.localTrace(m))
	d, err := s.inbox.Prepare(spool, inbox.Envelope{From: m.sub.Sender, To: []string{m.row.Recipient}, Received: m.now})
	if err != nil {
		return nil, err
	}
	m.stored = append(m.stored, d)
	if err := s.readProof(d.Report); err != nil {
		return nil, err
	}
	if err := s.Store.View(func(tx *store.Tx) error { return m.to.takesReport(tx, d) }); err != nil {
		if e := new(core.SMTPError); errors.As(err, &e) {
			return refused(e), nil
		}
		return nil, err
	}
	if !m.sub.Forward { // we know who sent it
		d.Meta.SPF, d.Meta.DKIM, d.Meta.DMARC = "pass", "none", string(localAuthors(m.sub, passed))
		if len(head) > 0 {
			d.Meta.DKIM = "pass"
		}
	}
	o := localResult(store.OutgoingDelivered, deliver.Delivered, "2.0.0", "250 2.0.0 delivered on this server")
	o.result.Code, o.arrived = 250, d
	return o, nil
}

// localAuthors says whether the author of a message that was sent here is who sent it, as
// submission wants it: what lay in the queue when an older release ended may be otherwise. What has
// no sender we wrote ourselves.
func localAuthors(sub *store.Submission, h *head) auth.Result {
	if sub.Sender == "" {
		return auth.Pass
	}
	if h.authors == nil {
		return auth.PermError
	}
	local, domain, _ := msg.SplitEmail(sub.Sender)
	mailbox, _, _ := strings.Cut(local, "+")
	for _, email := range h.authors {
		if _, err := ownAddress(mailbox+"@"+domain, email); err != nil {
			return auth.Fail
		}
	}
	return auth.Pass
}

// copyHere copies a message without what its sender claims that we said of it. What goes on after
// it arrived here has been freed of that already, and what it says of us is true.
func (s *Service) copyHere(to io.Writer, sub *store.Submission, content io.Reader) error {
	if sub.Forward {
		_, err := io.Copy(to, content)
		return err
	}
	return auth.StripResults(to, content, s.Hostname())
}

// localTrace is what a final delivery puts on top.
func (s *Service) localTrace(m *delivery) []byte {
	final := finalFields(Incoming{From: m.sub.Sender, Recipients: []Recipient{{m.row.Recipient}}})
	return fmt.Appendf(final, "Received: by %s (Mailstead) id %s\r\n\tfor <%s>;\r\n\t%s\r\n",
		s.Hostname(), m.row.ID, m.row.Recipient, m.now.Format(time.RFC1123Z))
}

// placeHere files a local message where its recipient's mail goes now.
func (s *Service) placeHere(tx *store.Tx, row *store.Outgoing, m *delivery, d *inbox.StoredMessage) error {
	to, err := s.receiver(tx, row.Recipient)
	if err == nil {
		err = s.place(tx, to, d, arrival{
			sender: m.sub.Sender, to: row.Recipient, folder: store.InboxID, received: tx.Now(), genuine: !m.sub.Forward || m.sub.ReportTo != "",
		})
	}
	if err == nil && mayHoldReport(d.Summary) {
		err = s.Hooks.KeepForReading(tx, to.domain.AccountID, d, row.Domain, !m.sub.Forward)
	}
	return err
}

const (
	giveUpAfter = 5 * 24 * time.Hour // RFC 5321 section 4.5.4.1: at least 4 to 5 days
	noticeAfter = 4 * time.Hour
	lastWait    = 8 * time.Hour
)

// retryWait is how long to wait after the attempt (from 1) of a delivery that failed for now: 1, 5,
// 15, 30 minutes, 1, 2, 4, 6 hours, then 8 hours each time, up to a tenth less or more as r goes
// from 0 to 1. Where r stays the same the waits never fall.
func retryWait(attempt int, r float64) time.Duration {
	waits := [...]time.Duration{
		time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour,
	}
	wait := lastWait
	if n := max(attempt, 1) - 1; n < len(waits) {
		wait = waits[n]
	}
	return time.Duration(float64(wait) * (0.9 + 0.2*r))
}
