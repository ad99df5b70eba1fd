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
	WaitingAtATime  = 100  // rows that one transaction changes
	waitingLookedAt = 5000 // rows that one view looks at

	// neverTried is how long a message waits for its first attempt before its row says so.
	neverTried = 30 * time.Second
)

// whyItWaits is what the sending log says of the newest answer to a message. One that was never
// tried has none: its row says what it waits for once that takes long.
func whyItWaits(o *store.Outgoing, now time.Time) string {
	if o.Stop != "" && o.Waits() {
		return "being delivered at this moment; if no host takes it now, it is cancelled"
	}
	early := o.Status != store.OutgoingQueued && o.Status != store.OutgoingScheduled || now.Before(o.NextAt) || now.Before(o.Began().Add(neverTried))
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

// CancelWaiting takes back what waits to be sent for an account, as far as which tells; the rows
// say why.
func (s *Service) CancelWaiting(ctx context.Context, accountID, why string, which func(*store.Outgoing) bool) error {
	return s.eachWaiting(ctx, accountID, which, func(tx *store.Tx, row *store.Outgoing) error { return s.takeBack(tx, row, why) })
}

// eachWaiting changes the rows of an account that wait, as far as which tells, some in each
// transaction.
func (s *Service) eachWaiting(ctx context.Context, accountID string, which func(*store.Outgoing) bool, change func(*store.Tx, *store.Outgoing) error) error {
	for _, index := range []*store.Index[store.Outgoing]{store.OutgoingsWaiting, store.OutgoingsParked} {
		for after, more := "", true; more; {
			var ids []string
			err := s.Store.View(func(tx *store.Tx) error {
				looked := 0
				more = false
				for key, row := range index.Asc(tx, accountID, after) {
					if looked == waitingLookedAt || len(ids) == WaitingAtATime {
						more = true
						break
					}
					looked++
					after = key
					if which(row) {
						ids = append(ids, row.ID)
					}
				}
				return nil
			})
			if err == nil && len(ids) > 0 {
				err = s.Store.Update(func(tx *store.Tx) error {
					tx.MayUseReserve() // it is what a deletion begins with
					for _, id := range ids {
						row, err := waitingRow(tx, id)
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

// takeBack cancels a message that still waits for one recipient, and has its row say why. One that
// is being delivered is cancelled when that has ended, unless it arrived.
func (s *Service) takeBack(tx *store.Tx, row *store.Outgoing, why string) error {
	if running, err := s.stopLater(tx, row, why); running || err != nil {
		return err
	}
	if err := s.Queue.Cancel(tx, row.JobID); err != nil && !core.IsGone(err) {
		return err
	}
	row.LastResponse = withDoubt(row, why)
	return s.CloseRow(tx, row, store.OutgoingCancelled)
}

// withDoubt adds to why a message is taken back that a host may have it, where its last attempt has
// left that open.
func withDoubt(row *store.Outgoing, why string) string {
	doubt := deliver.ErrOutcomeUnknown.Error()
	if n := len(row.Log); n == 0 || !strings.Contains(row.Log[n-1].Reply, doubt) || strings.Contains(why, doubt) {
		return why
	}
	return why + "; the last attempt got " + doubt
}

// stopLater has a message that is being delivered be taken back when that has ended, for why. It
// does nothing to one that waits, and answers false.
func (s *Service) stopLater(tx *store.Tx, row *store.Outgoing, why string) (running bool, err error) {
	running, err = s.wakeAfter(tx, row)
	if !running || err != nil {
		return running, err
	}
	row.Stop, row.UpdatedAt = why, tx.Now()
	return true, store.Outgoings.Put(tx, row)
}

// wakeAfter has the job of a row come again at once when the attempt that runs has ended; false if
// none runs. The attempt itself is not cut: the host may have the message before it answers, and
// would get it again.
func (s *Service) wakeAfter(tx *store.Tx, row *store.Outgoing) (running bool, err error) {
	if row.JobID == "" {
		return false, nil
	}
	j, err := store.Jobs.Find(tx, row.JobID)
	if j == nil || err != nil || j.State != store.JobRunning {
		return false, err
	}
	return true, s.Queue.Wake(tx, j.ID, tx.Now())
}

// MayFinish reports whether a job of an account that is being deleted is to go on to its end: it
// may be handing a message to a host.
func (s *Service) MayFinish(j *store.Job) bool {
	switch j.Kind {
	case KindDeliver, KindRelay, KindDirect:
		return j.State == store.JobRunning
	}
	return false
}

// DomainDeleted is why the mail of a deleted domain is cancelled.
const DomainDeleted = "its domain was deleted before it was sent"

// waitSaying has a message wait for its turn, and its row say until when and why.
func (s *Service) waitSaying(m *delivery, at time.Time, status, text string) (jobs.Writes, error) {
	if end := m.row.Began().Add(GiveUpAfter); at.After(end) {
		at = end
	}
	at = at.Truncate(time.Millisecond)
	due, notice, err := s.delayNotice(m, at, status, text, !answered(m.row, text))
	if err != nil {
		return nil, err
	}
	writes := func(tx *store.Tx, _ *store.Job) error {
		row, err := waitingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		row.NextAt, row.LastResponse, row.UpdatedAt = at, text, tx.Now()
		if row.Status == store.OutgoingScheduled {
			row.Status = store.OutgoingQueued // its time has come
		}
		row.DelayTold = row.DelayTold || notice != nil
		if err := s.SendReport(tx, m.sub, notice); err != nil {
			return err
		}
		return store.Outgoings.Put(tx, row)
	}
	return writes, jobs.Snooze(due)
}

// waitForSlot is for a job whose next hop takes no more now. Its message is given up at its time,
// which its sender has been told, however many are before it.
func (s *Service) waitForSlot(m *delivery, turn time.Time) (jobs.Writes, error) {
	if !m.now.Before(m.row.Began().Add(GiveUpAfter)) {
		answer := cmp.Or(m.row.LastResponse, "none: more messages are waiting for the next host than it accepts")
		return s.bounce(m, expired(deliver.Result{Reply: answer}))
	}
	status := "4.0.0"
	if n := len(m.row.Log); n > 0 && m.row.Log[n-1].Enhanced != "" {
		status = m.row.Log[n-1].Enhanced // of the newest attempt
	}
	text := waitsForTurn
	if answer := s.paces.answer(m.pace()); answer != "" {
		text += "; it answered: " + answer
	}
	return s.waitSaying(m, turn, status, cmp.Or(m.row.LastResponse, text))
}

const waitsForTurn = "waiting: the next host accepts fewer messages at a time than there are"

const (
	turnsGiven  = 2  // to those that wait, for each message that a host took
	turnsSought = 32 // rows that are looked at for that
)

// withNextTurns adds to the writes of an attempt that the first of those that wait for their turn
// in its lane come when that is. They were told a time when the host took less than it does now.
func (s *Service) withNextTurns(d *delivery, writes jobs.Writes) jobs.Writes {
	pace := d.pace()
	return func(tx *store.Tx, j *store.Job) error {
		at, gap, waiting := s.paces.turn(pace, d.limits)
		if !waiting {
			return writes(tx, j)
		}
		var first []string
		for _, id := range store.JobsByLane.Keys(tx, store.LaneKey(j.Lane)+"\x00", "") {
			first = append(first, id)
			if len(first) == turnsSought {
				break
			}
		}
		given := 0
		for _, id := range first {
			next, err := store.Jobs.Find(tx, id)
			if next == nil || err != nil || next.State != store.JobQueued {
				continue // the queue tells of what cannot be read
			}
			args, err := jobs.Args[deliverArgs](next)
			if err != nil {
				continue
			}
			row, err := waitingRow(tx, args.OutgoingID)
			if err != nil {
				return err
			}
			if row == nil || !waitsAtHop(row) {
				continue
			}
			if turn := wholeMillis(at); turn.Before(next.Due) {
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

// waitsAtHop reports whether a row that waits does so since its next hop gets too much, and not for
// its next attempt.
func waitsAtHop(row *store.Outgoing) bool {
	switch {
	case row.Status == store.OutgoingQueued:
		return strings.HasPrefix(row.LastResponse, waitsForTurn)
	case row.Status == store.OutgoingDeferred && row.Transport == store.OutgoingTransportRelay && len(row.Log) > 0:
		a := row.Log[len(row.Log)-1]
		return throttles(deliver.Result{Status: deliver.Temporary, Code: a.Code, Enhanced: a.Enhanced, Reply: a.Reply})
	}
	return false
}

// waitForForward is for a forwarded message whose address has got too many: it waits, and its row
// says why.
func (s *Service) waitForForward(m *delivery, at time.Time) (jobs.Writes, error) {
	if !m.now.Before(m.row.Began().Add(GiveUpAfter)) {
		return s.waitForSlot(m, at)
	}
	text := fmt.Sprintf("waiting: at most %d messages an hour are forwarded to %s, and others come first", forwardMost, m.row.Recipient)
	return s.waitSaying(m, at, "4.7.0", text)
}

const kindReroute = "reroute"

// rerouteKind has the messages tried at once that wait for a relay which is not configured any
// more, or was not and is again. Each goes the way that it has now, or its row says what is
// missing.
func (s *Service) rerouteKind() jobs.Kind {
	return jobs.Kind{Name: kindReroute, Work: s.reroute, Timeout: time.Hour}
}

// planReroute adds that job at a start, if anything waits for a relay that there is not.
func (s *Service) planReroute() error {
	lanes, err := s.lostLanes()
	if err != nil || len(lanes) == 0 {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		_, err := s.Queue.Add(tx, jobs.New{Kind: kindReroute, Key: kindReroute})
		return err
	})
}

// lostLanes are the lanes of relays that are not configured, as store.JobsByLane has them.
func (s *Service) lostLanes() (out []string, err error) {
	known := map[string]bool{}
	for _, r := range s.relays {
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
				after, more = lane+"\x01", true // behind all of the lane
				break
			}
		}
		return nil
	})
	return out, err
}

func (s *Service) reroute(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	lanes, err := s.lostLanes()
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

// rerouteJob has a waiting delivery go the way that it has now, at once. One that goes no other way
// stays as it is, and so does one that cannot be read, which the queue tells of.
func (s *Service) rerouteJob(tx *store.Tx, id string) error {
	j, err := store.Jobs.Find(tx, id)
	if j == nil || err != nil || j.State != store.JobQueued {
		return nil
	}
	args, err := jobs.Args[deliverArgs](j)
	if err != nil {
		return nil
	}
	row, err := waitingRow(tx, args.OutgoingID)
	if row == nil || err != nil {
		return err
	}
	sub, err := store.Submissions.Get(tx, row.SubmissionID)
	if err != nil {
		return fmt.Errorf("submission %s: %w", row.SubmissionID, err)
	}
	d, err := store.Domains.Find(tx, sub.DomainID)
	if err != nil {
		return err
	}
	r, err := s.RouteOf(tx, d, row)
	if err != nil {
		return err
	}
	to := r.job(row)
	if to.Lane == j.Lane && to.Kind == j.Kind {
		return nil
	}
	if err := s.Queue.Move(tx, id, to.Kind, to.Lane); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	row.Transport, row.NextAt, row.UpdatedAt = r.Transport, tx.Now(), tx.Now()
	return store.Outgoings.Put(tx, row)
}
