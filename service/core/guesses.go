package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// Limits on wrong passwords. The counters remember a wrong password for at least half of
// AttemptWindow. So an identity has at most MaxIdentityFailures in any quarter of an hour.
const (
	AttemptWindow       = 30 * time.Minute
	MaxIdentityFailures = 30  // wrong passwords for one identity, over all protocols and networks
	reservedForKnown    = 6   // part of MaxIdentityFailures that is reserved for networks from which the identity has logged in lately
	delayFrom           = 5   // wrong passwords for one identity from one network; from then on each attempt is delayed
	MaxNetworkFailures  = 100 // wrong passwords from one network, over all identities; twice as many from an IPv6 /56, four times from a /48
	longestDelay        = 8 * time.Second
	MaxAttemptKeys      = 50_000 // keys of one counter
)

// An Identity is one user whose password is tried: a team user, or a login of mail clients. One
// address may be both.
type Identity struct {
	Name  string // the key of its counters
	Known bool   // the identity has logged in from the network lately
}

// An Origin is the network that an attempt comes from.
type Origin struct {
	Network string // see func Network
	Known   bool   // the identity has logged in from the network lately
}

// fairNetwork returns the network that takes turns with others for a hashing slot. A known IPv4
// address has a turn of its own. A known IPv6 /64 shares the turn of its /48: otherwise one tenant
// with many known /64s could fill the queue.
func (o Origin) fairNetwork() string {
	if o.Known && widerNetworks(o.Network) == nil {
		return o.Network
	}
	return fairNetwork(o.Network)
}

// loginAttempts counts wrong passwords. Attempts at one identity from one network take turns, so
// that parallel attempts are delayed as much as sequential ones.
type loginAttempts struct {
	Locks limit.KeyedMutex[string] // by identity and network

	mu           sync.Mutex             // held while counters are read and changed
	failures     *limit.Counter[string] // by pair of identity and network, and by network
	wideFailures *limit.Counter[string] // by identity, and by wider network; not in failures, where many pairs could evict them
}

func newLoginAttempts() *loginAttempts {
	return &loginAttempts{
		failures: limit.NewSlidingCounter[string](AttemptWindow, MaxAttemptKeys), wideFailures: limit.NewSlidingCounter[string](AttemptWindow, MaxAttemptKeys),
	}
}

// A counterKey is one key of a counter.
type counterKey struct {
	counter *limit.Counter[string]
	key     string
}

// delayKey is the key of the wrong passwords since the last right one: they delay the next attempt.
// pairKey is the key of all wrong passwords: they limit attackers, even if a device in the same
// network logs in again and again.
func delayKey(identity, network string) string { return "slow " + network + " " + identity }
func pairKey(identity, network string) string  { return "pair " + network + " " + identity }

// identityKeys returns the counter keys of an identity: two for this network, and one for all
// networks.
func (a *loginAttempts) identityKeys(name, network string) []counterKey {
	return []counterKey{{a.failures, delayKey(name, network)}, {a.failures, pairKey(name, network)}, {a.wideFailures, "of " + name}}
}

// networkKeys returns the counter keys of a network and of the wider networks around it, over all
// identities. The limit for the network itself is MaxNetworkFailures. It doubles with each wider
// network.
func (a *loginAttempts) networkKeys(network string) []counterKey {
	out := []counterKey{{a.failures, "net " + network}}
	for _, wider := range widerNetworks(network) {
		out = append(out, counterKey{a.wideFailures, "net " + wider})
	}
	return out
}

// delay returns how long an attempt at an identity must wait. If refusedBy is not "", the attempt
// is refused, and refusedBy names the count that is too high: identity, pair or network. The count
// of a pair is too high from twice the number of wrong passwords that the identity has left, so
// that a few networks cannot lock out users elsewhere. The caller holds a.mu.
func (a *loginAttempts) delay(id Identity, network string, now time.Time) (wait time.Duration, refusedBy string) {
	left := MaxIdentityFailures - a.wideFailures.Count("of "+id.Name, now)
	if !id.Known {
		left -= reservedForKnown
	}
	if left <= 0 {
		return 0, "identity"
	}
	if a.failures.Count(pairKey(id.Name, network), now) >= 2*left {
		return 0, "pair"
	}
	for i, c := range a.networkKeys(network) {
		if !id.Known && c.counter.Count(c.key, now) >= MaxNetworkFailures<<i {
			return 0, "network"
		}
	}
	n := a.failures.Count(delayKey(id.Name, network), now)
	if n < delayFrom {
		return 0, ""
	}
	return min(time.Second<<min(n-delayFrom, 3), longestDelay), ""
}

// admit returns the longest delay of the identities, or an error if one is refused. The caller
// holds a.mu.
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

// A Guess is one password that is compared with those of one or two identities. It counts as wrong
// at each identity before the comparison, so that parallel guesses cannot bypass the limits. End
// takes the count back at identities with which the guess was not compared, and Right at the one
// for which it was right.
type Guess struct {
	core         *Core
	network      string
	identities   []Identity
	counted      []bool // by identity: the guess is counted there
	wrong        []bool // by identity: the guess was compared and is not known to be right
	right        bool   // the guess was right for one identity
	countedOnNet bool   // the guess is counted at its network
	unlocks      []func()
}

// BeginGuess waits until a guess from a network may begin: until earlier guesses from the network
// at the same identities have ended, and then for the delay that earlier wrong passwords cause. The
// caller must call End. The error is an *Error, 429, if an identity or the network has had too many
// wrong passwords.
func (s *Core) BeginGuess(ctx context.Context, network string, of ...Identity) (*Guess, error) {
	g := &Guess{core: s, network: network, identities: of, counted: make([]bool, len(of)), wrong: make([]bool, len(of))}
	names := make([]string, len(of))
	for i, id := range of {
		names[i] = id.Name
	}
	slices.Sort(names) // in one order, so that two guesses at the same identities cannot deadlock
	for _, name := range names {
		unlock, err := s.LoginAttempts.Locks.Lock(ctx, network+" "+name)
		if err != nil {
			g.unlock()
			return nil, err
		}
		g.unlocks = append(g.unlocks, unlock)
	}
	if err := g.countGuess(ctx); err != nil {
		g.unlock()
		return nil, err
	}
	return g, nil
}

// countGuess waits for the delay, and counts the guess unless it is refused.
func (g *Guess) countGuess(ctx context.Context) error {
	a := g.core.LoginAttempts
	a.mu.Lock()
	wait, err := a.admit(g.identities, g.network, g.core.Now())
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
	if _, err := a.admit(g.identities, g.network, now); err != nil { // guesses from other networks were counted since
		return err
	}
	for i, id := range g.identities {
		g.counted[i] = true
		for _, b := range a.identityKeys(id.Name, g.network) {
			b.counter.Add(b.key, now)
		}
	}
	return nil
}

// Compare reports whether the password matches a hash of the identity (see logins.Verify).
func (g *Guess) Compare(ctx context.Context, name, hash, password string) (right bool, err error) {
	i := slices.IndexFunc(g.identities, func(id Identity) bool { return id.Name == name })
	right, err = g.core.Logins.Verify(ctx, hash, password, Origin{g.network, g.identities[i].Known}, g.core.Now())
	switch {
	case err != nil:
	case right:
		g.Right(name)
	default:
		g.wrong[i] = true
	}
	return right, err
}

// Wrong makes the guess count at every identity even after End, unless Right is called.
func (g *Guess) Wrong() {
	for i := range g.wrong {
		g.wrong[i] = true
	}
}

// Right records that the guess was right for an identity. It may be called after End.
func (g *Guess) Right(name string) {
	a := g.core.LoginAttempts
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, id := range g.identities {
		if id.Name == name {
			g.wrong[i] = false
			g.uncount(i)
			a.failures.Delete(delayKey(name, g.network))
		}
	}
	g.right = true
	if g.countedOnNet {
		g.countedOnNet = false
		for _, c := range a.networkKeys(g.network) {
			c.counter.Remove(c.key)
		}
	}
}

// uncount takes back the count of the guess at the identity with index i. The caller holds the lock
// of loginAttempts.
func (g *Guess) uncount(i int) {
	if !g.counted[i] {
		return
	}
	g.counted[i] = false
	for _, b := range g.core.LoginAttempts.identityKeys(g.identities[i].Name, g.network) {
		b.counter.Remove(b.key)
	}
}

// End lets the next guess begin. It takes the guess back where it was not compared, and logs if the
// guess was wrong and has reached a limit.
func (g *Guess) End() {
	defer g.unlock()
	a := g.core.LoginAttempts
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range g.identities {
		if !g.wrong[i] {
			g.uncount(i)
		}
	}
	if slices.Contains(g.wrong, true) && !g.right { // the network counts guesses only when they end: those that wait would otherwise lock a busy network
		g.countedOnNet = true
		for _, c := range a.networkKeys(g.network) {
			c.counter.Add(c.key, g.core.Now())
		}
	}
	for i, id := range g.identities {
		if _, shut := a.delay(id, g.network, g.core.Now()); g.wrong[i] && shut != "" {
			g.core.Log.Warn("too many wrong passwords: log-ins are refused for half an hour", "of", shut, "who", LoginName(id.Name), "network", g.network)
		}
	}
}

func (g *Guess) unlock() {
	for _, unlock := range g.unlocks {
		unlock()
	}
	g.unlocks = nil
}
