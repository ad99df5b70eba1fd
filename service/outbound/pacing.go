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
	firstGap   = time.Second // gap between two messages after a next hop first asks for less mail
	maxGap     = 2 * time.Minute
	shortGap   = 10 * time.Millisecond // a smaller gap counts as none
	firstPause = 5 * time.Second       // pause after the first answer that asks for less mail
	pauseGaps  = 2                     // pause after each further such answer, as a multiple of the gap
	staleGap   = time.Hour             // a pace that was not used for this long starts again without a gap
	maxHopWait = 10 * time.Minute      // longest wait that a message is given at once, since a hop may recover sooner
	maxPaces   = 4096                  // paces in memory
)

// paces limits how fast messages are sent to each next hop. A pace belongs to a relay, to a mail
// operator, or to one mailbox at its own server. A hop that asks for less mail gets none for a
// while, and then one message at a time with a gap between them. The gap doubles with each further
// such answer and shrinks with each accepted message. The limits of the operator apply as well.
// Paces are kept in memory only.
type paces struct {
	now func() time.Time

	mu    sync.Mutex
	Lanes map[string]*pace
}

type pace struct {
	Gap   time.Duration // gap between two messages, since the hop asked for less mail; 0: none
	Next  time.Time     // when the next message may be sent
	safe  time.Duration // a gap that is probably long enough; 0: unknown
	last  time.Time     // when the hop last accepted a message
	tail  time.Time     // when the last waiting message is due
	until time.Time     // the latest send time that any message was given, also before the pace changed

	answer  string        // the newest answer that asked for less mail
	running int           // messages being delivered
	took    time.Duration // moving average of the time that the delivery of a message takes
}

func newPaces(now func() time.Time) *paces { return &paces{now: now, Lanes: map[string]*pace{}} }

// reserve asks whether a message may be sent on a lane now. If ok is true, it may, and the caller
// must call release after the delivery. If ok is false, at is when to try again.
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
		l = p.addPace(lane)
	}
	gap := max(l.Gap, limits.gap())
	if limits.Connections > 0 && l.running >= limits.Connections {
		return l.assignTime(now, now, max(gap, l.took/time.Duration(limits.Connections), shortGap)), false
	}
	if now.Before(l.Next) {
		return l.assignTime(now, l.Next, gap), false
	}
	l.Next = now.Add(gap)
	l.running++
	return now, true
}

// retryTime returns when to retry a message that a throttling next hop did not take.
func (p *paces) retryTime(lane string, limits destinationLimits) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.Lanes[lane], p.now()
	if l == nil {
		return now
	}
	return l.assignTime(now, l.Next, max(l.Gap, limits.gap()))
}

// assignTime gives the next waiting message its send time, which is no earlier than first, and
// returns it.
func (l *pace) assignTime(now, first time.Time, gap time.Duration) time.Time {
	l.tail = l.tail.Add(gap)
	if l.tail.Before(first) {
		l.tail = first
	}
	if !l.tail.After(now) {
		l.tail = now.Add(gap)
	}
	if limit := now.Add(maxHopWait); l.tail.After(limit) {
		l.tail = limit
	}
	if l.until.Before(l.tail) {
		l.until = l.tail
	}
	return roundUpToMillis(l.tail)
}

// roundUpToMillis rounds a time up to milliseconds, the precision of rows.
func roundUpToMillis(at time.Time) time.Time {
	return at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// nextTurn returns when the next message of a lane may be sent, and the gap to the message after
// it. waiting is true if the send times of waiting messages may have become too late. It is false
// if no message waits, or if the hop has not asked for less mail lately.
func (p *paces) nextTurn(lane string, limits destinationLimits) (next time.Time, gap time.Duration, waiting bool) {
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
	return roundUpToMillis(next), max(l.Gap, limits.gap()), true
}

// release records that the delivery of a message, which reserve allowed, has ended. took is how
// long the delivery took.
func (p *paces) release(lane string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.Lanes[lane]
	if l == nil {
		return
	}
	l.running = max(l.running-1, 0)
	l.took = (7*l.took + took) / 8
	if l.isIdle(p.now()) {
		delete(p.Lanes, lane)
	}
}

// isIdle reports whether a pace has no state worth keeping.
func (l *pace) isIdle(now time.Time) bool {
	return l.running == 0 && l.Gap == 0 && !now.Before(l.Next) && !now.Before(l.until)
}

// addPace returns a new pace without a gap, and keeps it under the lane.
func (p *paces) addPace(lane string) *pace {
	if len(p.Lanes) >= maxPaces {
		now := p.now()
		maps.DeleteFunc(p.Lanes, func(_ string, l *pace) bool { return l.isIdle(now) })
	}
	if len(p.Lanes) >= maxPaces {
		clear(p.Lanes) // a hop that wants less mail will say so again
	}
	p.Lanes[lane] = &pace{took: time.Second}
	return p.Lanes[lane]
}

// observeResult updates a pace with the result of a message. After an answer that asks for less
// mail, nothing is sent for at least limits.Pause.
func (p *paces) observeResult(lane string, limits destinationLimits, r deliver.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.Lanes[lane]
	switch slow := asksForLessMail(r); {
	case slow:
		if l == nil {
			l = p.addPace(lane)
		}
		l.slowDown(p.now(), limits)
		l.answer = r.Reply
	case l != nil && r.Status == deliver.Delivered:
		l.speedUp(p.now())
	}
}

// throttleAnswer returns the newest answer of a next hop that asked for less mail; "" if there is
// none.
func (p *paces) throttleAnswer(lane string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.Lanes[lane]; l != nil {
		return l.answer
	}
	return ""
}

// slowDown slows a pace down after an answer that asks for less mail. If several messages get such
// an answer at the same time, only the first one slows it down.
func (l *pace) slowDown(now time.Time, limits destinationLimits) {
	if l.Gap == 0 && l.safe > 0 {
		l.Gap = shortGap // safe is set: the hop asked for less mail a short while ago
	}
	switch {
	case l.Gap == 0:
		l.Gap = max(firstGap, 2*limits.gap())
		l.Next = now.Add(max(firstPause, limits.Pause))
	case now.Add(l.Gap).Before(l.Next):
		return
	default:
		l.safe = l.Gap * 5 / 4
		l.Gap = min(2*l.Gap, maxGap)
		l.Next = now.Add(max(pauseGaps*l.Gap, limits.Pause))
	}
	l.tail = time.Time{}
}

// speedUp shrinks the gap by a tenth after an accepted message. Once the gap is at most l.safe, it
// shrinks only by a hundredth per second, so that the rate stays close to what the host accepts. If
// the gap falls far below l.safe, the host accepts more mail than before, and l.safe is dropped.
func (l *pace) speedUp(now time.Time) {
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

// throttleTexts matches replies of hosts that ask for less mail.
var throttleTexts = lazyregexp.New(`(?i)throttl|\brate\b|\blimit|too (many|much|fast|quick|frequent)|slow down|try (again )?later|temporarily deferred|exceeded|busy`)

// asksForLessMail reports whether a result asks for less mail, and is not about the message or the
// mailbox: a reply of 421, or one of 429 or 450 to 454 whose text says so.
func asksForLessMail(r deliver.Result) bool {
	switch {
	case r.Status != deliver.Temporary, strings.HasPrefix(r.Enhanced, "4.1."), strings.HasPrefix(r.Enhanced, "4.2."):
		return false
	case r.Code == 421:
		return true
	case r.Code == 429, r.Code >= 450 && r.Code <= 454:
		return throttleTexts().MatchString(r.Reply) && !greylistTexts().MatchString(r.Reply)
	}
	return false
}

// greylistTexts matches replies about greylisting, which ask for a retry and not for less mail.
var greylistTexts = lazyregexp.New(`(?i)gr[ea]y.?list`)

// Limits of the mail forwarded to one address. A person cannot read more, and hosts blame the
// forwarder if so much mail is spam.
const (
	maxForwards       = 200
	forwardWindow     = time.Hour
	forwardGap        = forwardWindow / maxForwards
	maxForwardTargets = 10000 // addresses in memory
)

// A forwardCounter counts the messages forwarded to each address within the last hour, in memory
// only.
type forwardCounter struct {
	mu sync.Mutex
	to map[string]*forwardTarget
}

type forwardTarget struct {
	sent []time.Time // oldest first, at most maxForwards
	tail time.Time   // when the last waiting message is due
}

func newForwards() *forwardCounter { return &forwardCounter{to: map[string]*forwardTarget{}} }

// Take counts a message to the address. If the limit is reached, it counts nothing: ok is false,
// and at is when to try again.
func (f *forwardCounter) Take(address string, now time.Time) (at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.to[address]
	if t == nil {
		if len(f.to) >= maxForwardTargets {
			maps.DeleteFunc(f.to, func(_ string, t *forwardTarget) bool { return t.isIdle(now) })
		}
		t = &forwardTarget{}
		f.to[address] = t
	}
	for len(t.sent) > 0 && !now.Before(t.sent[0].Add(forwardWindow)) {
		t.sent = t.sent[1:]
	}
	if len(t.sent) < maxForwards {
		t.sent = append(t.sent, now)
		return now, true
	}
	free := t.sent[0].Add(forwardWindow)
	t.tail = t.tail.Add(forwardGap)
	if t.tail.Before(free) {
		t.tail = free
	}
	// tail also counts messages that were given up or cancelled while they waited, so it may be too
	// late. A message waits at most until limit.
	if limit := free.Add(forwardWindow); t.tail.After(limit) {
		t.tail = limit
	}
	return t.tail, false
}

// isIdle reports whether the address has no state worth keeping.
func (t *forwardTarget) isIdle(now time.Time) bool {
	return len(t.sent) == 0 || !now.Before(t.sent[len(t.sent)-1].Add(forwardWindow))
}

// undoTake removes the last message that Take counted for the address, since it was not sent.
func (f *forwardCounter) undoTake(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.to[address]; t != nil && len(t.sent) > 0 {
		t.sent = t.sent[:len(t.sent)-1]
	}
}
