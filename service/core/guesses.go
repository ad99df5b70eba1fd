package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// Bounds on wrong passwords within AttemptWindow. The counters forget one after half of it at the
// earliest, so that no quarter of an hour has more than IdentityRefused of one identity.
const (
	AttemptWindow   = 30 * time.Minute
	IdentityRefused = 30  // at one identity, over all doors and networks
	keptForKnown    = 6   // of them: networks at which the identity is not known do not use these up
	pairSlowed      = 5   // of one identity from one network, after which each attempt waits
	NetRefused      = 100 // from one network, over all identities; twice as many from an IPv6 /56, four times from a /48
	slowestAnswer   = 8 * time.Second
	AttemptKeys     = 50_000
)

// An Identity is whose password is asked for: a team user, or whatever mail clients log in to. An
// address may be that of one of each.
type Identity struct {
	Name  string // under which its wrong passwords are counted
	Known bool   // whoever it is has logged in from the network lately
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

// loginAttempts remembers wrong passwords, and from where mailboxes were logged in to. Attempts of
// one pair of identity and network take turns, so that many at once are held up like one after the
// other.
type loginAttempts struct {
	Locks limit.KeyedMutex[string] // of pairs

	mu           sync.Mutex             // held while counts are looked at and changed
	failures     *limit.Counter[string] // of pairs and their networks
	wideFailures *limit.Counter[string] // of identities, and of wider networks: many pairs do not push these out
}

func newLoginAttempts() *loginAttempts {
	return &loginAttempts{
		failures: limit.NewSlidingCounter[string](AttemptWindow, AttemptKeys), wideFailures: limit.NewSlidingCounter[string](AttemptWindow, AttemptKeys),
	}
}

// A count is one of the counts of a guess.
type count struct {
	counter *limit.Counter[string]
	key     string
}

// slowKey counts since the last right password, and pairKey whatever came between, or a device that
// is logged in would have those guess on who share its network.
func slowKey(of, network string) string { return "slow " + network + " " + of }
func pairKey(of, network string) string { return "pair " + network + " " + of }

// ofIdentity are the counts of an identity, from a network and from everywhere.
func (a *loginAttempts) ofIdentity(name, network string) []count {
	return []count{{a.failures, slowKey(name, network)}, {a.failures, pairKey(name, network)}, {a.wideFailures, "of " + name}}
}

// ofNetwork are the counts of a network and of those around it, over all identities. Each may come
// to twice as many as the one before, the first to NetRefused.
func (a *loginAttempts) ofNetwork(network string) []count {
	out := []count{{a.failures, "net " + network}}
	for _, wider := range widerNetworks(network) {
		out = append(out, count{a.wideFailures, "net " + wider})
	}
	return out
}

// delay says how long an attempt at an identity waits before it is looked at; shut names what has
// had too many, so that it is not looked at. A network may have twice as many wrong ones as it
// leaves to others: so one alone, or a few, shut nobody out elsewhere. The lock is held.
func (a *loginAttempts) delay(id Identity, network string, now time.Time) (wait time.Duration, shut string) {
	left := IdentityRefused - a.wideFailures.Count("of "+id.Name, now)
	if !id.Known {
		left -= keptForKnown
	}
	if left <= 0 {
		return 0, "identity"
	}
	if a.failures.Count(pairKey(id.Name, network), now) >= 2*left {
		return 0, "pair"
	}
	for i, c := range a.ofNetwork(network) {
		if !id.Known && c.counter.Count(c.key, now) >= NetRefused<<i {
			return 0, "network"
		}
	}
	n := a.failures.Count(slowKey(id.Name, network), now)
	if n < pairSlowed {
		return 0, ""
	}
	return min(time.Second<<min(n-pairSlowed, 3), slowestAnswer), ""
}

// admit gives the longest delay of the identities; one that is shut is enough. The lock is held.
func (a *loginAttempts) admit(of []Identity, network string, now time.Time) (wait time.Duration, err error) {
	for _, id := range of {
		w, shut := a.delay(id, network, now)
		if shut != "" {
			return 0, tooManyFailures()
		}
		wait = max(wait, w)
	}
	return wait, nil
}

func tooManyFailures() *Error {
	e := Errorf("rate_limited", "Too many wrong passwords. Wait half an hour, then try again.")
	e.RetryAfter = AttemptWindow
	return e
}

// A Guess is one password that is compared with those of one identity or of two. It is counted as
// wrong at each of them before any is compared, so that many at once are no way round; End takes
// back what it was not compared with, and Right what it was right for.
type Guess struct {
	core    *Core
	network string
	of      []Identity
	counted []bool // of each: it counts
	wrong   []bool // of each: it was compared, and is not right as far as is known
	right   bool   // it was right for one
	onNet   bool   // it counts at the network
	done    []func()
}

// BeginGuess waits for the turn and the time of a guess from a network. Whoever begins one ends it.
// The error is an *Error, 429, where it is not looked at: where any of the identities, or the
// network, has had too many.
func (s *Core) BeginGuess(ctx context.Context, network string, of ...Identity) (*Guess, error) {
	g := &Guess{core: s, network: network, of: of, counted: make([]bool, len(of)), wrong: make([]bool, len(of))}
	names := make([]string, len(of))
	for i, id := range of {
		names[i] = id.Name
	}
	slices.Sort(names) // two guesses at the same identities do not wait for each other
	for _, name := range names {
		unlock, err := s.LoginAttempts.Locks.Lock(ctx, network+" "+name)
		if err != nil {
			g.unlock()
			return nil, err
		}
		g.done = append(g.done, unlock)
	}
	if err := g.count(ctx); err != nil {
		g.unlock()
		return nil, err
	}
	return g, nil
}

// count waits, and counts the guess unless it is refused by then.
func (g *Guess) count(ctx context.Context) error {
	a := g.core.LoginAttempts
	a.mu.Lock()
	wait, err := a.admit(g.of, g.network, g.core.Now())
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if wait > 0 {
		Sleep(ctx, wait)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := g.core.Now()
	if _, err := a.admit(g.of, g.network, now); err != nil { // those of other networks went on meanwhile
		return err
	}
	for i, id := range g.of {
		g.counted[i] = true
		for _, b := range a.ofIdentity(id.Name, g.network) {
			b.counter.Add(b.key, now)
		}
	}
	return nil
}

// Compare reports whether the password is that of a hash of the identity; see Verify.
func (g *Guess) Compare(ctx context.Context, name, hash, password string) (right bool, err error) {
	i := slices.IndexFunc(g.of, func(id Identity) bool { return id.Name == name })
	right, err = g.core.Logins.Verify(ctx, hash, password, Origin{g.network, g.of[i].Known}, g.core.Now())
	switch {
	case err != nil:
	case right:
		g.Right(name)
	default:
		g.wrong[i] = true
	}
	return right, err
}

// Wrong has the guess count at every identity after its end, until Right.
func (g *Guess) Wrong() {
	for i := range g.wrong {
		g.wrong[i] = true
	}
}

// Right says that the guess was right for an identity, perhaps after its end.
func (g *Guess) Right(name string) {
	a := g.core.LoginAttempts
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, id := range g.of {
		if id.Name == name {
			g.wrong[i] = false
			g.takeBack(i)
			a.failures.Delete(slowKey(name, g.network))
		}
	}
	g.right = true
	if g.onNet {
		g.onNet = false
		for _, c := range a.ofNetwork(g.network) {
			c.counter.Remove(c.key)
		}
	}
}

// takeBack has the guess no longer count at an identity. The lock of the attempts is held.
func (g *Guess) takeBack(i int) {
	if !g.counted[i] {
		return
	}
	g.counted[i] = false
	for _, b := range g.core.LoginAttempts.ofIdentity(g.of[i].Name, g.network) {
		b.counter.Remove(b.key)
	}
}

// End lets the next guess begin, and tells the log when this one was one too many.
func (g *Guess) End() {
	defer g.unlock()
	a := g.core.LoginAttempts
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range g.of {
		if !g.wrong[i] {
			g.takeBack(i)
		}
	}
	if slices.Contains(g.wrong, true) && !g.right { // not before, or those who wait would shut a busy network
		g.onNet = true
		for _, c := range a.ofNetwork(g.network) {
			c.counter.Add(c.key, g.core.Now())
		}
	}
	for i, id := range g.of {
		if _, shut := a.delay(id, g.network, g.core.Now()); g.wrong[i] && shut != "" {
			g.core.Log.Warn("too many wrong passwords: log-ins are refused for half an hour", "of", shut, "who", LoginName(id.Name), "network", g.network)
		}
	}
}

func (g *Guess) unlock() {
	for _, unlock := range g.done {
		unlock()
	}
	g.done = nil
}
