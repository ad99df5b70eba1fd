package outbound

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

// paces spaces out the messages to next hops, one pace for a relay or a mail operator, or for one
// mailbox at a server that the mailbox logs in to itself. A hop that says that it gets too much is
// left alone for a while, and then gets one message at a time with a gap between them, which
// doubles with each such answer and shrinks with each message that is taken. The limits of an
// operator hold beside that. Nothing of it outlives the process.
type paces struct {
	now func() time.Time

	mu    sync.Mutex
	Lanes map[string]*pace
}

type pace struct {
	Gap   time.Duration // that the hop asked for
	Next  time.Time     // when the next message may go
	safe  time.Duration // a gap that is probably long enough; 0: nobody knows
	last  time.Time     // when the hop took a message
	tail  time.Time     // when the last of those that were told to wait tries again
	until time.Time     // the latest time that anybody was told, also before the pace changed

	answer  string        // that asked for less, the newest one
	running int           // messages that are under way
	took    time.Duration // for a message, about
}

func newPaces(now func() time.Time) *paces { return &paces{now: now, Lanes: map[string]*pace{}} }

// reserve takes a message's turn, which is at the time now, and which leave ends; if it has none
// yet, at is when to ask again.
func (p *paces) reserve(lane string, limits destinationLimits) (at time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.Lanes[lane], p.now()
	if l != nil && now.Sub(l.Next) > staleGap {
		l.Gap, l.safe, l.answer = 0, 0, ""
	}
	if l == nil {
		if limits.Connections == 0 && limits.PerMinute == 0 {
			return now, true
		}
		l = p.add(lane)
	}
	gap := max(l.Gap, limits.gap())
	if limits.Connections > 0 && l.running >= limits.Connections {
		return l.queue(now, now, max(gap, l.took/time.Duration(limits.Connections), shortGap)), false
	}
	if now.Before(l.Next) {
		return l.queue(now, l.Next, gap), false
	}
	l.Next = now.Add(gap)
	l.running++
	return now, true
}

// later is when a message that was refused asks for its next turn.
func (p *paces) later(lane string, limits destinationLimits) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.Lanes[lane], p.now()
	if l == nil {
		return now
	}
	return l.queue(now, l.Next, max(l.Gap, limits.gap()))
}

// queue gives the next of those who wait a time, from first on.
func (l *pace) queue(now, first time.Time, gap time.Duration) time.Time {
	l.tail = l.tail.Add(gap)
	if l.tail.Before(first) {
		l.tail = first
	}
	if !l.tail.After(now) {
		l.tail = now.Add(gap)
	}
	if limit := now.Add(farthest); l.tail.After(limit) {
		l.tail = limit
	}
	if l.until.Before(l.tail) {
		l.until = l.tail
	}
	return wholeMillis(l.tail)
}

// wholeMillis is the first time that rows can hold, which have milliseconds, that is not before at.
func wholeMillis(at time.Time) time.Time {
	return at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// turn is when the next message may go, and how far behind it the one after that; waiting is false
// where nobody was told to wait so long, or the times that they were told are right: the hop has
// not asked for less.
func (p *paces) turn(lane string, limits destinationLimits) (next time.Time, gap time.Duration, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.Lanes[lane], p.now()
	if l == nil || l.Gap == 0 && l.safe == 0 || !l.until.After(now) {
		return now, 0, false
	}
	next = now
	if l.Next.After(now) {
		next = l.Next
	}
	return wholeMillis(next), max(l.Gap, limits.gap()), true
}

// leave ends the turn of a message, which took so long.
func (p *paces) leave(lane string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.Lanes[lane]
	if l == nil {
		return
	}
	l.running = max(l.running-1, 0)
	l.took = (7*l.took + took) / 8
	if l.idle(p.now()) {
		delete(p.Lanes, lane)
	}
}

// idle reports whether nothing need be remembered of a next hop.
func (l *pace) idle(now time.Time) bool {
	return l.running == 0 && l.Gap == 0 && !now.Before(l.Next) && !now.Before(l.until)
}

// add makes a pace without a gap.
func (p *paces) add(lane string) *pace {
	if len(p.Lanes) >= keptPaces {
		now := p.now()
		maps.DeleteFunc(p.Lanes, func(_ string, l *pace) bool { return l.idle(now) })
	}
	if len(p.Lanes) >= keptPaces {
		clear(p.Lanes) // they will tell again
	}
	p.Lanes[lane] = &pace{took: time.Second}
	return p.Lanes[lane]
}

// observe has a pace learn from what came of a message. One that asked for less gets nothing for
// the pause of its limits at least.
func (p *paces) observe(lane string, limits destinationLimits, r deliver.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.Lanes[lane]
	switch slow := throttles(r); {
	case slow:
		if l == nil {
			l = p.add(lane)
		}
		l.slower(p.now(), limits)
		l.answer = r.Reply
	case l != nil && r.Status == deliver.Delivered:
		l.faster(p.now())
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

// slower makes a pace slower, once for all who are told the same at the same time.
func (l *pace) slower(now time.Time, limits destinationLimits) {
	if l.Gap == 0 && l.safe > 0 {
		l.Gap = shortGap // its gap ended a short while ago
	}
	switch {
	case l.Gap == 0:
		l.Gap = max(firstGap, 2*limits.gap())
		l.Next = now.Add(max(firstHold, limits.Pause))
	case now.Add(l.Gap).Before(l.Next):
		return
	default:
		l.safe = l.Gap * 5 / 4
		l.Gap = min(2*l.Gap, longGap)
		l.Next = now.Add(max(holdGaps*l.Gap, limits.Pause))
	}
	l.tail = time.Time{}
}

// faster shrinks the gap by a tenth for a message that was taken, and near the one that was too
// short before by a hundredth a second, so that a host gets most of what it takes. One that takes
// far more than it did has changed.
func (l *pace) faster(now time.Time) {
	if l.Gap == 0 {
		return
	}
	part := 0.1
	if l.Gap <= l.safe {
		part = min(part, now.Sub(l.last).Seconds()/100)
	}
	l.last = now
	l.Gap -= time.Duration(part * float64(l.Gap))
	if l.Gap < l.safe*2/3 {
		l.safe = 0
	}
	if l.Gap < shortGap {
		l.Gap, l.safe, l.answer = 0, shortGap, ""
	}
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
	t.tail = t.tail.Add(forwardGap)
	if t.tail.Before(free) {
		t.tail = free
	}
	// Those that the tail counts may have been given up or taken back: whoever comes behind very
	// many of them asks again sooner.
	if limit := free.Add(forwardWindow); t.tail.After(limit) {
		t.tail = limit
	}
	return t.tail, false
}

// idle reports whether nothing need be remembered of the address.
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
