package mta

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
)

const (
	firstGap  = time.Second // between two messages to a next hop that has asked for less for the first time
	longGap   = 2 * time.Minute
	shortGap  = 10 * time.Millisecond // below which there is no gap
	firstHold = 5 * time.Second       // without any message, after the first such answer
	holdGaps  = 2                     // gaps without any message, after each that follows
	staleGap  = time.Hour             // after which a pace that nobody went by says nothing any more
	farthest  = 10 * time.Minute      // that a message is told to wait at once, since a hop may recover sooner
	keptPaces = 4096                  // next hops
)

// paces spaces out the messages to next hops that ask for it, one pace for a lane of the queue, or
// for one mailbox at a server that the mailbox logs in to itself. A hop that says that it gets too
// much is left alone for a while, and then gets one message at a time with a gap between them,
// which doubles with each such answer and shrinks with each message that is taken. Nothing of it
// outlives the process.
type paces struct {
	now func() time.Time

	mu    sync.Mutex
	Lanes map[string]*pace
}

type pace struct {
	Gap  time.Duration
	Next time.Time // when the next message may go
	tail time.Time // when the last of those that wait tries again
}

func newPaces(now func() time.Time) *paces { return &paces{now: now, Lanes: map[string]*pace{}} }

// turn takes a message's turn, which is at the time now; if it has none yet, at is when to ask
// again.
func (p *paces) turn(lane string) (at time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.Lanes[lane], p.now()
	if l == nil {
		return now, true
	}
	if now.Sub(l.Next) > staleGap {
		delete(p.Lanes, lane)
		return now, true
	}
	if !now.Before(l.Next) {
		l.Next = now.Add(l.Gap)
		return now, true
	}
	if l.tail.Before(l.Next) {
		l.tail = l.Next
	} else {
		l.tail = l.tail.Add(l.Gap)
	}
	if limit := now.Add(farthest); l.tail.After(limit) {
		l.tail = limit
	}
	return l.tail, false
}

// tell has a pace learn from what came of a message.
func (p *paces) tell(lane string, r deliver.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.Lanes[lane]
	switch slow := throttles(r); {
	case slow:
		p.slower(lane, l)
	case l != nil && r.Status == deliver.Delivered:
		l.Gap = l.Gap * 9 / 10
		if l.Gap < shortGap {
			delete(p.Lanes, lane)
		}
	}
}

// slower makes the pace of a lane slower, once for all who are told the same at the same time.
func (p *paces) slower(lane string, l *pace) {
	now := p.now()
	if l == nil {
		if len(p.Lanes) >= keptPaces {
			clear(p.Lanes) // they will tell again
		}
		p.Lanes[lane] = &pace{Gap: firstGap, Next: now.Add(firstHold)}
		return
	}
	if now.Add(l.Gap).Before(l.Next) {
		return
	}
	l.Gap = min(2*l.Gap, longGap)
	l.Next, l.tail = now.Add(holdGaps*l.Gap), time.Time{}
}

// tooMuch is how hosts say that they get too much at a time.
var tooMuch = regexp.MustCompile(`(?i)throttl|\brate\b|\blimit|too (many|much|fast|quick|frequent)|slow down|try (again )?later|temporarily deferred|exceeded|busy`)

// throttles tells an answer that asks for less mail from one about a message or a mailbox: 421, and
// 45x that says so.
func throttles(r deliver.Result) bool {
	switch {
	case r.Status != deliver.Temporary, strings.HasPrefix(r.Enhanced, "4.1."), strings.HasPrefix(r.Enhanced, "4.2."):
		return false
	case r.Code == 421:
		return true
	case r.Code == 429, r.Code >= 450 && r.Code <= 454:
		return tooMuch.MatchString(r.Reply) && !greylists.MatchString(r.Reply)
	}
	return false
}

// greylists is how hosts say that a sender who comes back is welcome, which is no matter of how
// much comes.
var greylists = regexp.MustCompile(`(?i)gr[ea]y.?list`)
