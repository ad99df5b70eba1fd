package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	WaitingAtATime  = 100  // rows that one write transaction changes
	waitingRowsRead = 5000 // rows that one view transaction reads

	// explainWaitAfter is how long a message waits for its first attempt before its row explains
	// the wait.
	explainWaitAfter = 30 * time.Second
)

// waitReason returns, for the sending log, the newest answer to a message. If the message has
// waited long for its first attempt, it returns the reason for the wait.
func waitReason(o *store.Outgoing, now time.Time) string {
	if o.Stop != "" && o.Waits() {
		return "being delivered at this moment; if no host takes it now, it is cancelled"
	}
	early := o.Status != store.OutgoingQueued && o.Status != store.OutgoingScheduled || now.Before(o.NextAt) || now.Before(o.Began().Add(explainWaitAfter))
	if o.LastResponse != "" || early {
		return o.LastResponse
	}
	switch o.Transport {
	case store.OutgoingTransportRelay:
		return "not tried yet: other messages are before it on the way to the relay"
	case store.OutgoingTransportDirect:
		return "not tried yet: other messages are before it on the way to " + core.DomainOfAddress(o.Recipient)
	}
	return "not tried yet: other messages are before it"
}

// CancelWaiting cancels the pending messages of an account for which matches returns true, and
// records the reason why in their rows.
func (s *Service) CancelWaiting(ctx context.Context, accountID, why string, matches func(*store.Outgoing) bool) error {
	return s.eachPending(ctx, accountID, matches, func(tx *store.Tx, row *store.Outgoing) error { return s.cancelRow(tx, row, why) })
}

// eachPending calls change for the pending rows of an account for which matches returns true,
// WaitingAtATime in each transaction.
func (s *Service) eachPending(ctx context.Context, accountID string, matches func(*store.Outgoing) bool, change func(*store.Tx, *store.Outgoing) error) error {
	for _, index := range []*store.Index[store.Outgoing]{store.OutgoingsWaiting, store.OutgoingsParked} {
		for after, more := "", true; more; {
			var ids []string
			err := s.Store.View(func(tx *store.Tx) error {
				looked := 0
				more = false
				for key, row := range index.Asc(tx, accountID, after) {
					if looked == waitingRowsRead || len(ids) == WaitingAtATime {
						more = true
						break
					}
					looked++
					after = key
					if matches(row) {
						ids = append(ids, row.ID)
					}
				}
				return nil
			})
			if err == nil && len(ids) > 0 {
				err = s.Store.Update(func(tx *store.Tx) error {
					tx.MayUseReserve() // a deletion must work on a full disk
					for _, id := range ids {
						row, err := pendingRow(tx, id)
						if row != nil {
							err = change(tx, row)
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}

// cancelRow cancels a pending message for one recipient, and records the reason why in its row. If
// the message is being delivered, it is cancelled after the attempt, unless the attempt delivers
// it.
func (s *Service) cancelRow(tx *store.Tx, row *store.Outgoing, why string) error {
	if running, err := s.cancelAfterAttempt(tx, row, why); running || err != nil {
		return err
	}
	if err := s.Queue.Cancel(tx, row.JobID); err != nil && !core.IsGone(err) {
		return err
	}
	row.LastResponse = withUnknownOutcome(row, why)
	return s.CloseRow(tx, row, store.OutgoingCancelled)
}

// withUnknownOutcome returns the reason why a message was cancelled. It adds that a host may have
// the message, if the last attempt ended without a host's answer.
func withUnknownOutcome(row *store.Outgoing, why string) string {
	doubt := deliver.ErrOutcomeUnknown.Error()
	if n := len(row.Log); n == 0 || !strings.Contains(row.Log[n-1].Reply, doubt) || strings.Contains(why, doubt) {
		return why
	}
	return why + "; the last attempt got " + doubt
}

// cancelAfterAttempt requests that a message that is being delivered is cancelled after the
// attempt, with the reason why. If no attempt is running, it changes nothing and running is false.
func (s *Service) cancelAfterAttempt(tx *store.Tx, row *store.Outgoing, why string) (running bool, err error) {
	running, err = s.wakeAfterAttempt(tx, row)
	if !running || err != nil {
		return running, err
	}
	row.Stop, row.UpdatedAt = why, tx.Now()
	return true, store.Outgoings.Put(tx, row)
}

// wakeAfterAttempt makes the job of a row due again right after the running attempt. It returns
// false if none is running. It does not interrupt the attempt: the host may already have the
// message, and would get it again.
func (s *Service) wakeAfterAttempt(tx *store.Tx, row *store.Outgoing) (running bool, err error) {
	if row.JobID == "" {
		return false, nil
	}
	j, err := store.Jobs.Find(tx, row.JobID)
	if j == nil || err != nil || j.State != store.JobRunning {
		return false, err
	}
	return true, s.Queue.Wake(tx, j.ID, tx.Now())
}

// MayFinish reports whether a running job of an account that is being deleted must run to its end:
// it may be handing a message to a host.
func (s *Service) MayFinish(j *store.Job) bool {
	switch j.Kind {
	case KindDeliver, KindRelay, KindDirect:
		return j.State == store.JobRunning
	}
	return false
}

// DomainDeleted is the reason that is recorded when the mail of a deleted domain is cancelled.
const DomainDeleted = "its domain was deleted before it was sent"

// reschedule makes a message wait until at, and records status and text in its row as the reason.
func (s *Service) reschedule(m *delivery, at time.Time, status, text string) (jobs.Writes, error) {
	if end := m.row.Began().Add(GiveUpAfter); at.After(end) {
		at = end
	}
	at = at.Truncate(time.Millisecond)
	due, notice, err := s.delayNotice(m, at, status, text, !isNewestReply(m.row, text))
	if err != nil {
		return nil, err
	}
	writes := func(tx *store.Tx, _ *store.Job) error {
		row, err := pendingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		row.NextAt, row.LastResponse, row.UpdatedAt = at, text, tx.Now()
		if row.Status == store.OutgoingScheduled {
			row.Status = store.OutgoingQueued // its send time has come
		}
		row.DelayTold = row.DelayTold || notice != nil
		if err := s.SendReport(tx, m.sub, notice); err != nil {
			return err
		}
		return store.Outgoings.Put(tx, row)
	}
	return writes, jobs.Snooze(due)
}

// waitForSlot reschedules a message whose next hop is at its limit. The message is given up after
// GiveUpAfter, even if other messages are still before it.
func (s *Service) waitForSlot(m *delivery, at time.Time) (jobs.Writes, error) {
	if !m.now.Before(m.row.Began().Add(GiveUpAfter)) {
		answer := cmp.Or(m.row.LastResponse, "none: more messages are waiting for the next host than it accepts")
		return s.bounce(m, asExpired(deliver.Result{Reply: answer}))
	}
	status := "4.0.0"
	if n := len(m.row.Log); n > 0 && m.row.Log[n-1].Enhanced != "" {
		status = m.row.Log[n-1].Enhanced // status of the newest attempt
	}
	text := waitsForTurnText
	if answer := s.paces.throttleAnswer(m.paceKey()); answer != "" {
		text += "; it answered: " + answer
	}
	return s.reschedule(m, at, status, cmp.Or(m.row.LastResponse, text))
}

const waitsForTurnText = "waiting: the next host accepts fewer messages at a time than there are"

const (
	turnsGiven       = 2  // waiting messages that get an earlier turn for each accepted message
	maxTurnsExamined = 32 // jobs that are examined to find them
)

// withNextTurns extends the writes of an attempt: the next waiting messages of its lane get earlier
// turns, since the hop now accepts more mail than when their turns were set.
func (s *Service) withNextTurns(d *delivery, writes jobs.Writes) jobs.Writes {
	pace := d.paceKey()
	return func(tx *store.Tx, j *store.Job) error {
		at, gap, waiting := s.paces.nextTurn(pace, d.limits)
		if !waiting {
			return writes(tx, j)
		}
		var first []string
		for _, id := range store.JobsByLane.Keys(tx, store.LaneKey(j.Lane)+"\x00", "") {
			first = append(first, id)
			if len(first) == maxTurnsExamined {
				break
			}
		}
		given := 0
		for _, id := range first {
			next, err := store.Jobs.Find(tx, id)
			if next == nil || err != nil || next.State != store.JobQueued {
				continue // the queue reports jobs that cannot be read
			}
			args, err := jobs.Args[deliverArgs](next)
			if err != nil {
				continue
			}
			row, err := pendingRow(tx, args.OutgoingID)
			if err != nil {
				return err
			}
			if row == nil || !waitsAtHop(row) {
				continue
			}
			if turn := roundUpToMillis(at); turn.Before(next.Due) {
				row.NextAt, row.UpdatedAt = turn, tx.Now()
				if err := store.Outgoings.Put(tx, row); err != nil {
					return err
				}
				if err := s.Queue.Wake(tx, id, turn); err != nil {
					return err
				}
			}
			at = at.Add(gap)
			if given++; given == turnsGiven {
				break
			}
		}
		return writes(tx, j)
	}
}

// waitsAtHop reports whether a pending row waits for its turn at a throttled next hop, and not for
// its next attempt.
func waitsAtHop(row *store.Outgoing) bool {
	switch {
	case row.Status == store.OutgoingQueued:
		return strings.HasPrefix(row.LastResponse, waitsForTurnText)
	case row.Status == store.OutgoingDeferred && row.Transport == store.OutgoingTransportRelay && len(row.Log) > 0:
		a := row.Log[len(row.Log)-1]
		return asksForLessMail(deliver.Result{Status: deliver.Temporary, Code: a.Code, Enhanced: a.Enhanced, Reply: a.Reply})
	}
	return false
}

// waitForForward reschedules a forwarded message to an address that has reached its limit of
// forwards.
func (s *Service) waitForForward(m *delivery, at time.Time) (jobs.Writes, error) {
	if !m.now.Before(m.row.Began().Add(GiveUpAfter)) {
		return s.waitForSlot(m, at)
	}
	text := fmt.Sprintf("waiting: at most %d messages an hour are forwarded to %s, and others come first", maxForwards, m.row.Recipient)
	return s.reschedule(m, at, "4.7.0", text)
}

const kindReroute = "reroute"

// rerouteKind is the kind of the job that reroutes the messages that wait for a relay that is not
// configured. Each message is tried at once on its current route. If it has none, its row says what
// is missing.
func (s *Service) rerouteKind() jobs.Kind {
	return jobs.Kind{Name: kindReroute, Work: s.reroute, Timeout: time.Hour}
}

// planReroute queues the reroute job if a message waits for a relay that is not configured.
func (s *Service) planReroute() error {
	lanes, err := s.unconfiguredLanes()
	if err != nil || len(lanes) == 0 {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		_, err := s.Queue.Add(tx, jobs.New{Kind: kindReroute, Key: kindReroute})
		return err
	})
}

// unconfiguredLanes returns the lanes of relays that are not configured. Each is a key prefix in
// the index store.JobsByLane.
func (s *Service) unconfiguredLanes() (out []string, err error) {
	known := map[string]bool{}
	for _, r := range s.plan.Load().relays {
		known[store.LaneKey(Route{Transport: core.ViaRelay, relay: r}.lane(""))] = true
	}
	prefix := store.LaneKey(Route{Transport: core.ViaRelay}.lane(""))
	err = s.Store.View(func(tx *store.Tx) error {
		for after, more := "", true; more; {
			more = false
			for key := range store.JobsByLane.Keys(tx, prefix, after) {
				lane, _, _ := strings.Cut(key, "\x00")
				if (lane == prefix || strings.HasPrefix(lane, prefix+" ")) && !known[lane] {
					out = append(out, lane)
				}
				after, more = lane+"\x01", true // the next key after this lane
				break
			}
		}
		return nil
	})
	return out, err
}

func (s *Service) reroute(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	lanes, err := s.unconfiguredLanes()
	for _, lane := range lanes {
		for after, more := "", true; more && err == nil; {
			var ids []string
			err = s.Store.View(func(tx *store.Tx) error {
				more = false
				for key, id := range store.JobsByLane.Keys(tx, lane+"\x00", after) {
					more = len(ids) == WaitingAtATime
					if more {
						break
					}
					after = key
					ids = append(ids, id)
				}
				return nil
			})
			if err == nil {
				err = s.Store.Update(func(tx *store.Tx) error {
					for _, id := range ids {
						if err := s.rerouteJob(tx, id); err != nil {
							return err
						}
					}
					return nil
				})
			}
			err = cmp.Or(err, ctx.Err())
		}
	}
	return nil, err
}

// rerouteJob moves a waiting delivery to its current route, and makes it due at once. It skips a
// job whose route is unchanged, and one that cannot be read, which the queue reports.
func (s *Service) rerouteJob(tx *store.Tx, id string) error {
	j, err := store.Jobs.Find(tx, id)
	if j == nil || err != nil || j.State != store.JobQueued {
		return nil
	}
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil
	}
	row, err := pendingRow(tx, args.OutgoingID)
	if row == nil || err != nil {
		return err
	}
	sub, err := store.Submissions.Get(tx, row.SubmissionID)
	if err != nil {
		return fmt.Errorf("read submission %s: %w", row.SubmissionID, err)
	}
	d, err := store.Domains.Find(tx, sub.DomainID)
	if err != nil {
		return err
	}
	r, err := s.RouteOf(tx, d, row)
	if err != nil {
		return err
	}
	to := r.newJob(row)
	if to.Lane == j.Lane && to.Kind == j.Kind {
		return nil
	}
	if err := s.Queue.Move(tx, id, to.Kind, to.Lane); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	row.Transport, row.NextAt, row.UpdatedAt = r.Transport, tx.Now(), tx.Now()
	return store.Outgoings.Put(tx, row)
}
