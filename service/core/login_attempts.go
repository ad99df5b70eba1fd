package core

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// Bounds on wrong passwords within AttemptWindow. A pair is one mailbox seen from one network;
// those that have logged in from there lately are not held up by what others do to the mailbox or
// from the network.
const (
	AttemptWindow = 30 * time.Minute
	pairSlowed    = 5   // wrong ones of a pair after which each attempt waits
	pairRefused   = 20  // of a pair
	NetRefused    = 100 // from one network, over all mailboxes; twice as many from an IPv6 /56, four times from a /48
	BoxRefused    = 200 // at one mailbox, from everywhere
	slowestAnswer = 8 * time.Second
	AttemptKeys   = 50_000
)

// loginAttempts remembers wrong passwords, and from where mailboxes were logged in to. Attempts of
// one pair take turns, so that many at once are held up like one after the other.
type loginAttempts struct {
	failures     *limit.Counter[string]   // of pairs and their networks
	wideFailures *limit.Counter[string]   // of mailboxes, and of wider networks: many pairs do not push these out
	Locks        limit.KeyedMutex[string] // of pairs
}

// An Origin is where an attempt comes from.
type Origin struct {
	Network string // see func Network
	Known   bool   // whoever it is has logged in from there lately
}

// fairNetwork is who takes turns with others for a slot. Of those who are known an IPv4 address is
// one of its own; a /48 is not, or one tenant who is known in each of its /64s would fill the
// queue.
func (o Origin) fairNetwork() string {
	if o.Known && widerNetworks(o.Network) == nil {
		return o.Network
	}
	return fairNetwork(o.Network)
}

func newLoginAttempts() *loginAttempts {
	return &loginAttempts{
		failures: limit.NewSlidingCounter[string](AttemptWindow, AttemptKeys), wideFailures: limit.NewSlidingCounter[string](AttemptWindow, AttemptKeys),
	}
}

// delay says how long an attempt waits before it is looked at; refused says that it is not looked
// at.
func (g *loginAttempts) delay(email string, from Origin, now time.Time) (wait time.Duration, refused bool) {
	bounds := g.bounds(email, from.Network)
	n := bounds[0].count(now)
	if n >= pairRefused {
		return 0, true
	}
	if !from.Known && slices.ContainsFunc(bounds[1:], func(b attemptBound) bool { return b.count(now) >= b.most }) {
		return 0, true
	}
	if n < pairSlowed {
		return 0, false
	}
	return min(time.Second<<min(n-pairSlowed, 3), slowestAnswer), false
}

// An attemptBound is one of the counts of an attempt, and what it may come to.
type attemptBound struct {
	counter   *limit.Counter[string]
	key, name string
	most      int
}

func (b attemptBound) count(now time.Time) int { return b.counter.Count(b.key, now) }

// bounds are those of an attempt, the pair's first.
func (g *loginAttempts) bounds(email, network string) []attemptBound {
	out := []attemptBound{
		{g.failures, pairKey(email, network), "pair", pairRefused},
		{g.failures, "net " + network, "network", NetRefused},
		{g.wideFailures, "box " + email, "mailbox", BoxRefused},
	}
	for i, w := range widerNetworks(network) {
		out = append(out, attemptBound{g.wideFailures, "net " + w, w, NetRefused << (i + 1)})
	}
	return out
}

func pairKey(email, network string) string { return "pair " + network + " " + email }

// RecordFailure counts a wrong password. shut says what it was too many for: the pair, the network,
// a wider one or the mailbox, once each.
func (g *loginAttempts) RecordFailure(email, network string, now time.Time) (shut string) {
	for _, b := range g.bounds(email, network) {
		if b.counter.Add(b.key, now) == b.most {
			shut = b.name
		}
	}
	return shut
}

func (g *loginAttempts) RecordSuccess(email, network string) {
	g.failures.Delete(pairKey(email, network))
}

// Begin waits for the turn and the time of an attempt at what the key names, a mailbox or a team
// user; done ends it. The error is an *Error, 429, where the attempt is not looked at.
func (g *loginAttempts) Begin(ctx context.Context, key string, from Origin, now func() time.Time) (done func(), err error) {
	if done, err = g.Locks.Lock(ctx, from.Network+" "+key); err != nil {
		return nil, err
	}
	wait, refused := g.delay(key, from, now())
	if refused {
		err = tooManyFailures()
	} else {
		err = waitDelay(ctx, wait)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

func tooManyFailures() *Error {
	e := Errorf("rate_limited", "Too many wrong passwords. Wait half an hour, then try again.")
	e.RetryAfter = AttemptWindow
	return e
}

// RecordWrongPassword counts a wrong password for whom it was and where it came from, and tells the
// log when it was one too many.
func (s *Core) RecordWrongPassword(whose, from string) {
	if shut := s.LoginAttempts.RecordFailure(whose, from, s.Now()); shut != "" {
		s.Log.Warn("too many wrong passwords: log-ins are refused for half an hour", "of", shut, "who", whose, "network", from)
	}
}

// waitDelay waits for d or the end of ctx.
func waitDelay(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
