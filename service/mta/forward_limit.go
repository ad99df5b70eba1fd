package mta

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// Bounds of what is forwarded to one address: hosts take who forwards more spam than their users
// can read for its sender.
const (
	forwardMost   = 200
	forwardWindow = time.Hour
	forwardGap    = forwardWindow / forwardMost
	forwardKept   = 10000 // addresses that are remembered
)

// forwards counts what was forwarded to each address within the last hour. Nothing of it outlives
// the process.
type forwards struct {
	mu sync.Mutex
	to map[string]*forwardTarget
}

type forwardTarget struct {
	sent []time.Time // oldest first, at most forwardMost
	tail time.Time   // when the last of those that wait asks again
}

func newForwards() *forwards { return &forwards{to: map[string]*forwardTarget{}} }

// take notes a message to the address; if there have been too many, at is when to ask again.
func (f *forwards) Take(address string, now time.Time) (at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.to[address]
	if t == nil {
		if len(f.to) >= forwardKept {
			maps.DeleteFunc(f.to, func(_ string, t *forwardTarget) bool { return t.idle(now) })
		}
		t = &forwardTarget{}
		f.to[address] = t
	}
	for len(t.sent) > 0 && !now.Before(t.sent[0].Add(forwardWindow)) {
		t.sent = t.sent[1:]
	}
	if len(t.sent) < forwardMost {
		t.sent = append(t.sent, now)
		return now, true
	}
	free := t.sent[0].Add(forwardWindow)
	if t.tail = t.tail.Add(forwardGap); t.tail.Before(free) {
		t.tail = free
	}
	// Those that the tail counts may have been given up or taken back: whoever comes behind very
	// many of them asks again sooner.
	if limit := free.Add(forwardWindow); t.tail.After(limit) {
		t.tail = limit
	}
	return t.tail, false
}

// idle tells whether nothing need be remembered of the address.
func (t *forwardTarget) idle(now time.Time) bool {
	return len(t.sent) == 0 || !now.Before(t.sent[len(t.sent)-1].Add(forwardWindow))
}

// giveBack takes out what take noted last, since the message did not go.
func (f *forwards) giveBack(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.to[address]; t != nil && len(t.sent) > 0 {
		t.sent = t.sent[:len(t.sent)-1]
	}
}

// waitForward is for a forwarded message whose address has got too many: it waits, and its row says
// why.
func (s *Service) waitForward(m *mailing, at time.Time) (jobs.Writes, error) {
	end := m.row.QueuedAt.Add(giveUpAfter)
	if !m.now.Before(end) {
		return s.waitTurn(m, at)
	}
	if at.After(end) {
		at = end
	}
	at = at.Truncate(time.Millisecond)
	text := fmt.Sprintf("waits: at most %d messages an hour are forwarded to %s, and others are before this one", forwardMost, m.row.Recipient)
	due, notice, err := s.notice(m, at, "4.7.0", text)
	if err != nil {
		return nil, err
	}
	writes := func(tx *store.Tx, _ *store.Job) error {
		row, err := waitingRow(tx, m.row.ID)
		if row == nil {
			return err
		}
		row.NextAt, row.LastResponse, row.UpdatedAt = at, text, tx.Now()
		row.DelayTold = row.DelayTold || notice != nil
		if err := s.report(tx, m.sub, notice); err != nil {
			return err
		}
		return store.Outgoings.Put(tx, row)
	}
	return writes, jobs.Snooze(due)
}
