package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

const (
	deliverTimeout    = 20 * time.Minute // timeout of one attempt, at all hosts together
	maxLoggedAttempts = 30               // newest attempts that a row of the sending log keeps
	MaxAttempts       = 1000             // far more than fit into GiveUpAfter; ends a job that would otherwise run for ever
)

func (s *Service) deliverKind(local Mailboxes, name string, perLane, maxJobs, maxOfAccount int) jobs.Kind {
	attempt := func(ctx context.Context, j *store.Job) (jobs.Writes, error) { return s.runDeliveryJob(ctx, j, local) }
	return jobs.Kind{
		Name: name, Work: attempt, Max: MaxAttempts, Timeout: deliverTimeout + 5*time.Minute, PerLane: perLane, Most: maxJobs, MostEach: maxOfAccount,
		Backoff: RetryWait, Failed: s.deliveryFailed, Parked: deliveryParked,
	}
}

// newClients makes the SMTP clients that do not depend on the settings: relayed connects to the
// operator's relays in the settings file, which may have any address, guarded to those that were
// set by API, and plain to tenants' servers without TLS.
func (s *Service) newClients() {
	s.relayed, s.guarded, s.plain = s.newClient(), s.newClient(), s.newClient()
	s.relayed.IdlePerHop, s.guarded.IdlePerHop = relayPerLane, relayPerLane
	s.guarded.Dialer = s.Guard.Dialer(s.Resolver)
	s.plain.Dialer = s.servers.PlainGuard().Dialer(s.Resolver)
}

// directClient returns the client that connects to the MX hosts of recipients.
func (s *Service) directClient(from core.Sending) *deliver.Client {
	c := s.newClient()
	c.Dialer, c.Helo, c.Skip = s.Guard.DialerFrom(s.Resolver, from.Addresses()...), from.Helo, s.AvoidsAddress
	c.MXPort, c.DANE = s.Config.MXPort, s.Config.DANE
	return c
}

func (s *Service) newClient() *deliver.Client {
	return &deliver.Client{
		Hostname: s.Config.Hostname, Resolver: s.Resolver, RootCAs: s.Config.RootCAs, Now: s.Now, Timeouts: deliver.Timeouts{Overall: deliverTimeout},
	}
}

const (
	cancelledText     = "it was cancelled by its sender"
	interruptedRemark = "; an attempt was cut off before its end, so that a host may have it all the same"
)

// runDeliveryJob works on a delivery job: it makes one attempt. Afterwards it cancels the message
// if its cancellation was requested and it was not delivered.
func (s *Service) runDeliveryJob(ctx context.Context, j *store.Job, local Mailboxes) (jobs.Writes, error) {
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.loadDelivery(args.OutgoingID)
	if d == nil || err != nil {
		return nil, err
	}
	d.local = local
	if d.row.Stop != "" { // an earlier attempt was interrupted, and its outcome is unknown
		return s.withCancellation(d, interruptedRemark, nil), nil
	}
	writes, err := s.tryDelivery(ctx, j, d)
	if ctx.Err() != nil && err != nil {
		return nil, err
	}
	return s.withCancellation(d, "", writes), err
}

// withCancellation extends the writes of an attempt: if the message is still pending and its
// cancellation was requested, it is cancelled. remark is added to the reason in its row.
func (s *Service) withCancellation(d *delivery, remark string, writes jobs.Writes) jobs.Writes {
	return func(tx *store.Tx, j *store.Job) error {
		if writes != nil {
			if err := writes(tx, j); err != nil {
				return err
			}
		}
		row, err := pendingRow(tx, d.row.ID)
		if row == nil || row.Stop == "" {
			return err
		}
		row.LastResponse = withUnknownOutcome(row, row.Stop+remark)
		return s.CloseRow(tx, row, store.OutgoingCancelled)
	}
}

// tryDelivery makes one attempt. If the process dies between a host's answer and our commit, the
// next attempt sends the message to that host again (RFC 5321 section 4.5.4.1 accepts that). The
// writes of an attempt, including mail for mailboxes here, happen only once.
func (s *Service) tryDelivery(ctx context.Context, j *store.Job, d *delivery) (jobs.Writes, error) {
	blob, err := s.Store.OpenBlob(d.sub.Blob)
	switch {
	case errors.Is(err, store.ErrDamaged):
		s.LogOf(ctx).Error("a queued message is damaged on the disk", "message_id", d.row.ID, "error", err)
		d.blob, d.damaged = strings.NewReader(""), true
	case err != nil:
		return nil, d.internalFailure(err)
	default:
		defer blob.Close()
		d.blob = blob
	}
	jobs.Finally(ctx, func() {
		for _, m := range d.stored {
			s.inbox.Release(m) // no effect on a filed message
		}
		s.logAttempt(ctx, d)
	})

	// The message may have to wait: until somebody releases it, until its sender may send, until
	// its scheduled time, or for a limit of the next hop or of forwards to this address.
	if d.held {
		return s.holdRow(d), nil
	}
	if d.paused != nil {
		return s.deferWhilePaused(d)
	}
	if d.now.Before(d.row.NextAt) {
		return s.waitUntilDue(d)
	}
	if at := s.slowAcceptTime(d); d.now.Before(at) {
		return s.reschedule(d, at, "4.0.0", "waiting: the simulator accepts the message at "+at.UTC().Format(time.RFC3339))
	}
	s.applyDestination(ctx, d)
	if slot, ok := s.paces.reserve(d.paceKey(), d.limits); !ok {
		return s.waitForSlot(d, slot)
	}
	began := time.Now()
	defer func() { s.paces.release(d.paceKey(), time.Since(began)) }()
	counted := d.sub.Forward && d.route.Transport != core.ViaCapture && d.route.Transport != core.ViaSimulator && !d.suppressed
	if counted {
		if at, ok := s.forwards.Take(d.row.Recipient, d.now); !ok {
			return s.waitForForward(d, at)
		}
	}

	traced, span := s.Tracer.Start(ctx, otlp.Client, "deliver message")
	span.Set("message_id", d.row.ID)
	span.Set("submission_id", d.sub.ID)
	span.Set("route", d.route.Transport)
	r, err := s.deliverOnce(traced, d)
	if err == nil {
		span.Set("result", resultName(r.result.Status))
		span.Set("smtp.status", r.result.Enhanced)
	}
	if err != nil || r.result.Status != deliver.Delivered {
		span.Fail()
	}
	span.End()
	if counted && (err != nil || r.result.Status == deliver.Temporary) {
		s.forwards.undoTake(d.row.Recipient)
	}
	if err != nil {
		return nil, d.internalFailure(err)
	}
	if ctx.Err() != nil && r.result.Status == deliver.Temporary {
		return nil, ctx.Err() // this server stopped the attempt; the host is not at fault
	}
	s.paces.observeResult(d.paceKey(), d.limits, r.result)
	killpoint.At("delivery.decided")

	var writes jobs.Writes
	var again error
	switch {
	case r.result.Status == deliver.Delivered:
		writes = s.finishDelivery(d, r)
	case r.result.Status == deliver.Permanent:
		writes, again = s.bounce(d, r.result)
	case !d.now.Before(d.row.Began().Add(GiveUpAfter)):
		writes, again = s.bounce(d, asExpired(r.result))
	default:
		writes, again = s.scheduleRetry(d, j, r)
	}
	writes, err = s.withSentCopy(d, writes)
	if err != nil {
		return nil, d.internalFailure(err)
	}
	if r.result.Status != deliver.Temporary {
		writes = s.withNextTurns(d, writes)
	}
	return writes, again
}

// paceKey returns the key of the message's pace. All mail through one relay has the same pace, and
// so has all mail to the hosts of one operator. On a mailbox's own server, each mailbox has its
// own.
func (m *delivery) paceKey() string {
	if m.operator != "" {
		return "mx " + m.operator
	}
	lane := m.route.lane(m.row.Recipient)
	if m.route.own {
		return lane + " " + m.row.MailboxID
	}
	return lane
}

// internalFailure returns err, a failure of this server. Once the message has been tried for
// GiveUpAfter, the returned error is permanent, so that the job is not retried.
func (m *delivery) internalFailure(err error) error {
	if m.now.Before(m.row.Began().Add(GiveUpAfter)) {
		return err
	}
	return jobs.Permanent(err)
}

// loadDelivery reads what an attempt needs, in one transaction. It returns nil if the message is no
// longer pending.
func (s *Service) loadDelivery(id string) (*delivery, error) {
	d := &delivery{now: s.Now()}
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d.row, err = pendingRow(tx, id)
		if d.row == nil || err != nil {
			return err
		}
		d.sub, err = store.Submissions.Get(tx, d.row.SubmissionID)
		if err != nil {
			return fmt.Errorf("read submission %s: %w", d.row.SubmissionID, err)
		}
		d.domain, err = store.Domains.Read(tx, d.sub.DomainID)
		if err != nil && !core.IsGone(err) {
			return err
		}
		if err := s.loadSenderState(tx, d); err != nil {
			return err
		}
		d.suppressed, err = isSuppressed(tx, d.sub, d.row.Recipient)
		if err != nil {
			return err
		}
		d.route, err = s.RouteOf(tx, d.domain, d.row)
		if err != nil {
			return err
		}
		if d.route.Transport == core.ViaSimulator && d.sub.Forward {
			ours, err := core.IsHosted(tx, d.sub.Sender)
			d.stranger = !ours || d.sub.ReportTo == ""
			return err
		}
		if d.route.Transport != core.ViaLocal {
			return nil
		}
		d.to, err = s.recipients.Resolve(tx, d.sub.Sender, d.row.Recipient, int64(d.sub.Blob.Length))
		if errors.As(err, &d.refusal) {
			return nil
		}
		return err
	})
	if d.row == nil || err != nil {
		return nil, err
	}
	return d, nil
}

// deliverOnce tries to deliver the message once, on its route.
func (s *Service) deliverOnce(ctx context.Context, d *delivery) (*attemptResult, error) {
	relay := d.route.relay
	switch {
	case d.damaged:
		return localResult("", deliver.Temporary, "4.3.0", "the message is damaged on this server's disk; its operator can run mailstead check and restore it"), nil
	case d.domain == nil && d.sub.DomainID != "" || d.domain != nil && d.domain.Gone():
		return localResult(store.OutgoingCancelled, deliver.Delivered, "5.7.1", DomainDeleted), nil
	case d.orphaned:
		return localResult(store.OutgoingCancelled, deliver.Delivered, "5.7.1", MailboxDeleted), nil
	case d.route.gone:
		return localResult(store.OutgoingCancelled, deliver.Delivered, "5.7.1", "its mailbox, which lived at a server elsewhere, was deleted before it was sent"), nil
	case d.suppressed:
		return localResult(store.OutgoingSuppressed, deliver.Delivered, "5.7.1", SuppressedText), nil
	case d.route.Transport == core.ViaSimulator:
		return s.simulate(ctx, d)
	case d.route.Transport == core.ViaCapture:
		return localResult(store.OutgoingCaptured, deliver.Delivered, "2.0.0", "captured: this server sends no mail out"), nil
	case d.refusal != nil:
		return refusedResult(d.refusal), nil
	case d.route.Transport == core.ViaRelay && relay == nil:
		return localResult("", deliver.Temporary, "4.3.5", d.route.missingRelayText()), nil
	}

	content, err := msg.AsSent(d.blob)
	if err != nil {
		return nil, err
	}

	// The operator's relay interprets some header fields as commands. Remove these fields, even
	// from a forwarded message whose signature covers them.
	if relay != nil && !d.route.own {
		clean, err := s.WithoutFields(content, relay.controlPrefixes())
		if err != nil {
			return nil, err
		}
		if clean != nil {
			defer clean.Close()
			content = io.NewSectionReader(clean, 0, clean.Size())
		}
	}

	head, err := s.headFields(d, content)
	if err != nil {
		if s.signer.mayLog(d.sub.DomainID, d.now) {
			s.Log.Error("sign outgoing mail", "domain", d.row.Domain, "message_id", d.row.ID, "error", err)
		}
		return localResult("", deliver.Temporary, "4.3.5", "the message could not be signed: its domain's DKIM keys cannot be used"), nil
	}
	if d.route.Transport == core.ViaLocal {
		arrived, err := d.local.Deliver(ctx, LocalMail{Submission: d.sub, Row: d.row, To: d.to, Head: head, Content: content, Now: d.now})
		return d.localDeliveryResult(arrived, err)
	}
	if d.sub.Forward || d.sub.Sender == "" { // it is not recorded whether these messages have 8-bit content
		d.sub.EightBit, err = msg.HasHighBytes(msg.Again(content))
		if err != nil {
			return nil, err
		}
	}
	r := s.sendToHost(ctx, d, head, content, d.sub.SMTPUTF8)
	if d.sub.Forward || !lacksUTF8(r.result) {
		return r, nil
	}
	return s.sendEncoded(ctx, d, r, content)
}

// localDeliveryResult returns the result of a delivery to a mailbox here.
func (m *delivery) localDeliveryResult(a *Arrived, err error) (*attemptResult, error) {
	if a != nil && a.Message != nil {
		m.stored = append(m.stored, a.Message)
	}
	switch {
	case err != nil:
		return nil, err
	case a.Refusal != nil:
		return refusedResult(a.Refusal), nil
	}
	r := localResult(store.OutgoingDelivered, deliver.Delivered, "2.0.0", "250 2.0.0 delivered on this server")
	r.result.Code, r.arrived = 250, a
	return r, nil
}

// localResult returns the result of an attempt in which no other host took part.
func localResult(rowStatus string, outcome deliver.Status, enhanced, text string) *attemptResult {
	return &attemptResult{status: rowStatus, result: deliver.Result{Status: outcome, Enhanced: enhanced, Reply: text}}
}

// refusedResult returns the result for mail that the rules of this server refuse.
func refusedResult(e *core.SMTPError) *attemptResult {
	o := localResult("", deliver.Permanent, e.Enhanced, e.Error())
	o.result.Code = e.Code
	if e.Temporary() {
		o.result.Status = deliver.Temporary
	}
	o.result.RecipientFault = e.Enhanced == "5.1.1"
	return o
}

// scheduleRetry schedules another attempt.
func (s *Service) scheduleRetry(m *delivery, j *store.Job, o *attemptResult) (jobs.Writes, error) {
	paced := m.route.Transport == core.ViaRelay && asksForLessMail(o.result) // throttling by a relay does not count as a failed attempt
	next := m.now.Add(RetryWait(m.row.Attempts+1, float64(j.Jitter)/(1<<16)))
	if paced {
		next = s.paces.retryTime(m.paceKey(), m.limits)
	}
	if end := m.row.Began().Add(GiveUpAfter); next.After(end) {
		next = end
	}
	next = next.Truncate(time.Millisecond)
	due, notice, err := s.delayNotice(m, next, o.result.Enhanced, o.result.Reply, o.result.Code == 0)
	if err != nil {
		return nil, err
	}
	writes := func(tx *store.Tx, j *store.Job) error {
		row, err := pendingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		row.Status, row.NextAt = store.OutgoingDeferred, next
		if j.Due.Before(due) { // a user has asked for an earlier retry
			row.NextAt = j.Due
		}
		if err := s.recordAttempt(tx, row, m, o.result); err != nil {
			return err
		}
		if paced {
			row.Attempts--
		}
		if row.Stop != "" { // a cancelled message is not retried
			row.Stop += "; the last answer was: " + o.result.Reply
			return store.Outgoings.Put(tx, row)
		}
		row.DelayTold = row.DelayTold || notice != nil
		if err := s.SendReport(tx, m.sub, notice); err != nil {
			return err
		}
		if err := s.emitDelayed(tx, row, o.result); err != nil {
			return err
		}
		row.UpdatedAt = tx.Now()
		return store.Outgoings.Put(tx, row)
	}
	if paced {
		return writes, jobs.Snooze(due)
	}
	return writes, jobs.RetryAt(due, fmt.Errorf("deferred with status %s", o.result.Enhanced)) // without the answer, which may quote the message
}

// waitUntilDue reschedules a job that runs before its next attempt is due. It sends the delay
// notice if the time for that has come.
func (s *Service) waitUntilDue(d *delivery) (jobs.Writes, error) {
	status := "4.0.0"
	if n := len(d.row.Log); n > 0 && d.row.Log[n-1].Enhanced != "" {
		status = d.row.Log[n-1].Enhanced // status of the newest attempt
	}
	due, notice, err := s.delayNotice(d, d.row.NextAt, status, d.row.LastResponse, !isNewestReply(d.row, d.row.LastResponse))
	if err != nil {
		return nil, err
	}
	if notice == nil {
		return nil, jobs.Snooze(due)
	}
	writes := func(tx *store.Tx, _ *store.Job) error {
		row, err := pendingRow(tx, d.row.ID)
		if row == nil {
			return err
		}
		row.DelayTold, row.UpdatedAt = true, tx.Now()
		if err := s.SendReport(tx, d.sub, notice); err != nil {
			return err
		}
		return store.Outgoings.Put(tx, row)
	}
	return writes, jobs.Snooze(due)
}

// finishDelivery returns the writes that close the row of a delivered message, even if its
// cancellation was requested meanwhile. They also send a success report if the sender asked for
// one.
func (s *Service) finishDelivery(d *delivery, r *attemptResult) jobs.Writes {
	report := s.successReport(d, r)
	return func(tx *store.Tx, _ *store.Job) error {
		row, err := store.Outgoings.Get(tx, d.row.ID)
		if core.IsGone(err) || err == nil && r.arrived != nil && !row.Waits() {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.recordAttempt(tx, row, d, r.result); err != nil {
			return err
		}
		if r.status == store.OutgoingCancelled || r.status == store.OutgoingSuppressed {
			row.LastResponse = withUnknownOutcome(row, row.LastResponse)
		}
		if err := s.SendReport(tx, d.sub, report); err != nil {
			return err
		}

		if r.arrived != nil {
			if err := r.arrived.File(tx); err != nil {
				return err
			}
		}

		if r.assignedMessageID != "" {
			row.ProviderMessageID = r.assignedMessageID
			m := &store.MessageIDMapping{
				ID: tx.NewID("map"), AccountID: row.AccountID, Original: row.MessageID, Provided: r.assignedMessageID, Provider: row.Provider,
				Recipient: row.Recipient, Sender: row.Sender, SendingDomain: row.Domain, RelayedAt: tx.Now(),
			}
			if err := store.Mappings.Put(tx, m); err != nil {
				return err
			}
			if _, err := s.events.Emit(tx, row.AccountID, events.EventMessageRelayed, events.About{MailboxID: row.MailboxID, Domain: row.Domain}, RelayedData{
				OriginalMessageID: m.Original, ProviderMessageID: m.Provided, Provider: m.Provider, Recipient: m.Recipient, Sender: m.Sender,
				SendingDomain: m.SendingDomain, RelayedAt: core.Time{Time: m.RelayedAt}, UserID: core.OrNull(row.MailboxID), Tags: tagsOut(row.Tags),
			}); err != nil {
				return err
			}
		}
		if r.status == store.OutgoingSent {
			if err := s.emitDelivered(tx, row, r.result); err != nil {
				return err
			}
		}
		if d.route.own && r.status == store.OutgoingRelayed {
			if err := s.queueSentCopy(tx, row.SubmissionID); err != nil {
				return err
			}
		}
		if err := s.CloseRow(tx, row, r.status); err != nil || r.answer == nil {
			return err
		}
		return s.sendAnswer(tx, d, row, r.answer)
	}
}

// CloseRow gives a row its final status. If no recipient of its submission is pending any more, the
// submission and its message are deleted.
func (s *Service) CloseRow(tx *store.Tx, row *store.Outgoing, status string) error {
	waited := row.Waits()
	row.Status, row.NextAt, row.Stop, row.UpdatedAt = status, time.Time{}, "", tx.Now()
	if err := store.Outgoings.Put(tx, row); err != nil || !waited {
		return err
	}
	sub, err := store.Submissions.Get(tx, row.SubmissionID)
	if err != nil {
		return fmt.Errorf("read submission %s: %w", row.SubmissionID, err)
	}
	sub.Waiting--
	return PutOrDeleteSubmission(tx, sub)
}

// pendingRow returns the row with this ID if it is pending; nil if it has been closed.
func pendingRow(tx *store.Tx, id string) (*store.Outgoing, error) {
	row, err := store.Outgoings.Get(tx, id)
	if core.IsGone(err) || err == nil && !row.Waits() {
		return nil, nil
	}
	return row, err
}

// resultName returns the name of a result for metrics and traces.
func resultName(s deliver.Status) string {
	return map[deliver.Status]string{deliver.Delivered: "delivered", deliver.Temporary: "deferred", deliver.Permanent: "failed"}[s]
}

// recordAttempt records an attempt in the row, and counts its TLS sessions for the TLS report to
// the recipient's domain.
func (s *Service) recordAttempt(tx *store.Tx, row *store.Outgoing, d *delivery, result deliver.Result) error {
	r := d.route
	tx.After(func() {
		s.Metrics.Deliveries.Add(r.Transport, resultName(result.Status))
		d.recorded, d.answer = row, result
	})
	row.Attempts++
	row.Transport, row.Provider, row.LastResponse = r.Transport, "", result.Reply
	if err := s.reputation.CountAttempt(tx, row, d.sub.Forward, result); err != nil {
		return err
	}
	if r.relay != nil {
		row.Provider = r.relay.Name
	}
	for _, a := range result.Attempts {
		row.Log = append(row.Log, store.Attempt{
			At: a.At.UTC().Truncate(time.Millisecond), Host: cmp.Or(a.Host, a.IP), IP: a.IP, TLS: a.TLS, Auth: a.Authenticated,
			Code: a.Code, Enhanced: a.Enhanced, Reply: a.Reply,
		})
	}
	if over := len(row.Log) - maxLoggedAttempts; over > 0 {
		row.Log = row.Log[over:]
	}
	return countTLS(tx, core.DomainOfAddress(row.Recipient), result.Sessions)
}

// logAttempt logs the result of an attempt.
func (s *Service) logAttempt(ctx context.Context, d *delivery) {
	row, what := d.recorded, "message delivered"
	if row == nil {
		return
	}
	switch row.Status {
	case store.OutgoingDeferred, store.OutgoingBounced, store.OutgoingSuppressed, store.OutgoingCancelled:
		what = "message " + row.Status
	}
	s.LogMessage(ctx, what, row.ID, slog.String("submission_id", row.SubmissionID), slog.String("route", row.Transport),
		slog.String("to", core.DomainOfAddress(row.Recipient)), slog.String("host", d.answer.Host), slog.String("state", row.Status),
		slog.Int("attempt", row.Attempts), slog.Int("code", d.answer.Code), slog.String("enhanced", d.answer.Enhanced))
}

// deliveryParked records in the row of a parked job why the message waits. The queue or the
// operator retries it later. A job that has nothing left to deliver is unparked.
func deliveryParked(tx *store.Tx, j *store.Job) error {
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil // invalid arguments: no row to update
	}
	row, err := pendingRow(tx, args.OutgoingID)
	if err != nil {
		return err
	}
	if row == nil || row.Stop != "" {
		j.ParkedAt, j.Due = time.Time{}, tx.Now()
		return nil
	}
	row.LastResponse, row.NextAt, row.UpdatedAt = "4.3.0 parked: "+j.Err, time.Time{}, tx.Now()
	return store.Outgoings.Put(tx, row)
}

// deliveryFailed closes the row of a job that the queue gave up, so that it does not stay pending
// for ever. Only a bug or a damaged disk leads here.
func (s *Service) deliveryFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil // invalid arguments: no row to update
	}
	row, err := pendingRow(tx, args.OutgoingID)
	if row == nil {
		return err
	}
	row.LastResponse = "given up: " + cause.Error()
	tx.After(func() { s.LogMessage(context.Background(), "message bounced", row.ID, slog.String("job_id", j.ID)) })
	if err := s.emitBounce(tx, row, Failure{Status: "5.3.0", Diagnostic: row.LastResponse}); err != nil {
		return err
	}
	return s.CloseRow(tx, row, store.OutgoingBounced)
}

const (
	GiveUpAfter      = 5 * 24 * time.Hour // RFC 5321 section 4.5.4.1: at least 4 to 5 days
	delayNoticeAfter = 4 * time.Hour
	maxRetryWait     = 8 * time.Hour
)

// RetryWait returns how long to wait after a temporary failure of the given attempt (from 1): 1, 5,
// 15, 30 minutes, 1, 2, 4, 6 hours, then 8 hours each time. r, from 0 to 1, varies the wait from a
// tenth less to a tenth more. With a constant r the waits never decrease.
func RetryWait(attempt int, r float64) time.Duration {
	waits := [...]time.Duration{
		time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour,
	}
	wait := maxRetryWait
	if n := max(attempt, 1) - 1; n < len(waits) {
		wait = waits[n]
	}
	return time.Duration(float64(wait) * (0.9 + 0.2*r))
}
