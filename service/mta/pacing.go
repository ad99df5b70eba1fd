package mta

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lazyregexp"
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

	answer string // that asked for less, the newest one
}

func newPaces(now func() time.Time) *paces { return &paces{now: now, Lanes: map[string]*pace{}} }

// reserve takes a message's turn, which is at the time now; if it has none yet, at is when to ask
// again.
func (p *paces) reserve(lane string) (at time.Time, ok bool) {
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

// observe has a pace learn from what came of a message.
func (p *paces) observe(lane string, r deliver.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.Lanes[lane]
	switch slow := throttles(r); {
	case slow:
		p.slower(lane, l)
		p.Lanes[lane].answer = r.Reply
	case l != nil && r.Status == deliver.Delivered:
		l.Gap = l.Gap * 9 / 10
		if l.Gap < shortGap {
			delete(p.Lanes, lane)
		}
	}
}

// answer is what a next hop said when it asked for less; "" if it has not.
func (p *paces) answer(lane string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.Lanes[lane]; l != nil {
		return l.answer
	}
	return ""
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
var tooMuch = lazyregexp.New(`(?i)throttl|\brate\b|\blimit|too (many|much|fast|quick|frequent)|slow down|try (again )?later|temporarily deferred|exceeded|busy`)

// throttles tells an answer that asks for less mail from one about a message or a mailbox: 421, and
// 45x that says so.
func throttles(r deliver.Result) bool {
	switch {
	case r.Status != deliver.Temporary, strings.HasPrefix(r.Enhanced, "4.1."), strings.HasPrefix(r.Enhanced, "4.2."):
		return false
	case r.Code == 421:
		return true
	case r.Code == 429, r.Code >= 450 && r.Code <= 454:
		return tooMuch().MatchString(r.Reply) && !greylists().MatchString(r.Reply)
	}
	return false
}

// greylists is how hosts say that a sender who comes back is welcome, which is no matter of how
// much comes.
var greylists = lazyregexp.New(`(?i)gr[ea]y.?list`)

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

// Take notes a message to the address; if there have been too many, at is when to ask again.
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
