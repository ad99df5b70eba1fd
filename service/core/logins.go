package core

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service/core/password"
	"github.com/mailstead/mailstead/store"
)

const (
	argonSalt = 16
	argonKey  = 32
)

// verifiedFor is how long a log-in that was verified is not hashed again; mail clients reconnect
// all the time.
const verifiedFor = 5 * time.Minute

// logins hashes passwords, a bounded number at a time, and remembers for a short while which were
// right.
type logins struct {
	Time, Memory uint32 // of argon2id, for new hashes: passes and KiB; most tests take less

	limiter *hashLimiter
	derive  func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte // argon2id
	secret  [32]byte                                                                              // keys the cache, so that it holds no password
	mu      sync.Mutex
	right   map[[32]byte]time.Time
}

func newLogins() *logins {
	l := &logins{Time: argonTime, Memory: argonMemory, limiter: newHashLimiter(), derive: argon2.IDKey, right: map[[32]byte]time.Time{}}
	rand.Read(l.secret[:])
	return l
}

// Hash makes the PHC text of a password.
func (l *logins) Hash(password string) string {
	salt := make([]byte, argonSalt)
	rand.Read(salt)
	if release, err := l.limiter.acquire(context.Background(), ownWork, true); err == nil { // it waits for as long as it takes
		defer release()
	}
	key := l.derive([]byte(password), salt, l.Time, l.Memory, 1, argonKey)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, l.Memory, l.Time, b64.EncodeToString(salt), b64.EncodeToString(key))
}

// Verify reports whether the password is the one of the hash. An empty hash takes as long and is
// never right. Who is known at the network does not wait for strangers. The error is busy, or of
// ctx.
func (l *logins) Verify(ctx context.Context, hash, password string, from Origin, now time.Time) (bool, error) {
	cacheKey := sha256.Sum256([]byte(string(l.secret[:]) + hash + "\x00" + password))
	l.mu.Lock()
	until, ok := l.right[cacheKey]
	l.mu.Unlock()
	if ok && now.Before(until) {
		return true, nil
	}
	release, err := l.limiter.acquire(ctx, from.fairNetwork(), from.Known)
	if err != nil {
		return false, err
	}
	defer release()
	if !l.Check(hash, password) {
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.right) >= 10_000 {
		clear(l.right)
	}
	l.right[cacheKey] = now.Add(verifiedFor)
	return true, nil
}

// Check hashes the password as the hash was made. Whoever calls it has a slot.
func (l *logins) Check(hash, text string) bool {
	if password.IsForeign(hash) {
		return password.Matches(hash, text)
	}
	var version, memory, time, threads int
	fields := strings.Split(hash, "$")
	known := len(fields) == 6 && fields[1] == "argon2id"
	salt, key := make([]byte, argonSalt), make([]byte, argonKey)
	memory, time, threads = int(l.Memory), int(l.Time), 1
	if known {
		_, errV := fmt.Sscanf(fields[2], "v=%d", &version)
		_, errP := fmt.Sscanf(fields[3], "m=%d,t=%d,p=%d", &memory, &time, &threads)
		var errS, errK error
		salt, errS = base64.RawStdEncoding.DecodeString(fields[4])
		key, errK = base64.RawStdEncoding.DecodeString(fields[5])
		known = errV == nil && errP == nil && errS == nil && errK == nil && version == argon2.Version
	}
	got := l.derive([]byte(text), salt, uint32(max(time, 1)), uint32(max(memory, 8)), uint8(max(threads, 1)), uint32(max(len(key), 16)))
	return known && subtle.ConstantTimeCompare(got, key) == 1
}

// PasswordAlphabet has no characters that look alike, and none with which a spreadsheet begins a
// formula.
const PasswordAlphabet = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// NewPassword makes a password of 20 characters, 115 bits.
func NewPassword() string { return RandomText(20, PasswordAlphabet) }

// RandomText draws n characters of the alphabet evenly.
func RandomText(n int, alphabet string) string {
	out := make([]byte, 0, n)
	most := byte(256 - 256%len(alphabet))
	var b [64]byte
	for len(out) < n {
		rand.Read(b[:])
		for _, c := range b {
			if (most == 0 || c < most) && len(out) < n {
				out = append(out, alphabet[int(c)%len(alphabet)])
			}
		}
	}
	return string(out)
}

// Bounds on passwords that are hashed or wait for it. Strangers are those who have not logged in
// lately from where they are: a slot is kept from them, so that a flood of theirs holds nobody else
// up.
const (
	hashSlots     = 3
	strangerSlots = 2
	waitersEach   = 64               // of one network
	waitersAll    = 4096             // of strangers, and as many of the others
	loginPatience = 10 * time.Second // how long one waits
	busyFor       = 10 * time.Second // when to come again
	ownWork       = "here"           // the network of passwords that are set here
)

// A hashLimiter gives slots to hash passwords in. Networks take turns, one each, so that who sends
// many waits for the own ones.
type hashLimiter struct {
	mu        sync.Mutex
	running   int
	strangers int // of the running
	known     fairQueue
	strange   fairQueue
}

// A hashWaiter waits for a slot.
type hashWaiter struct {
	granted chan struct{} // closed when the slot is given
	network string
}

// A fairQueue holds waiters by network.
type fairQueue struct {
	waiting map[string][]*hashWaiter
	order   []string // networks that have some, the next first
	size    int
}

func newHashLimiter() *hashLimiter {
	return &hashLimiter{known: fairQueue{waiting: map[string][]*hashWaiter{}}, strange: fairQueue{waiting: map[string][]*hashWaiter{}}}
}

// acquire waits for a slot, a log-in no longer than loginPatience; release gives it back. The error
// is busy, or of ctx.
func (g *hashLimiter) acquire(ctx context.Context, network string, known bool) (release func(), err error) {
	g.mu.Lock()
	q := &g.strange
	if known {
		q = &g.known
	}
	own := network == ownWork
	if !own && (q.size >= waitersAll || len(q.waiting[network]) >= waitersEach) {
		g.mu.Unlock()
		return nil, tooBusy()
	}
	w := &hashWaiter{make(chan struct{}), network}
	q.add(w)
	g.grant()
	g.mu.Unlock()
	release = func() { g.release(known) }
	var over <-chan time.Time
	if !own {
		t := time.NewTimer(loginPatience)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-w.granted:
		return release, nil
	case <-over:
		err = tooBusy()
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !q.remove(w) { // its turn came at the last moment
		return release, nil
	}
	return nil, err
}

func tooBusy() *Error {
	e := Errorf("busy", "Too many log-ins are waiting. Try again in a moment.")
	e.RetryAfter = busyFor
	return e
}

func (g *hashLimiter) release(known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if !known {
		g.strangers--
	}
	g.grant()
}

// grant gives free slots away. One is never a stranger's, and the known, however many they are,
// leave one to strangers.
func (g *hashLimiter) grant() {
	for g.running < hashSlots {
		strange := g.strange.size > 0 && g.strangers < strangerSlots
		switch {
		case g.known.size > 0 && !(strange && g.strangers == 0 && g.running > 0):
			close(g.known.next().granted)
		case strange:
			close(g.strange.next().granted)
			g.strangers++
		default:
			return
		}
		g.running++
	}
}

func (q *fairQueue) add(w *hashWaiter) {
	if len(q.waiting[w.network]) == 0 {
		q.order = append(q.order, w.network)
	}
	q.waiting[w.network] = append(q.waiting[w.network], w)
	q.size++
}

// next takes the first waiter of the next network, which goes to the end of the order if it has
// more.
func (q *fairQueue) next() *hashWaiter {
	network := q.order[0]
	q.order = q.order[1:]
	list := q.waiting[network]
	w := list[0]
	q.size--
	if len(list) == 1 {
		delete(q.waiting, network)
		return w
	}
	q.waiting[network] = list[1:]
	q.order = append(q.order, network)
	return w
}

// remove reports whether the waiter still waited.
func (q *fairQueue) remove(w *hashWaiter) bool {
	list := q.waiting[w.network]
	i := slices.Index(list, w)
	if i < 0 {
		return false
	}
	q.size--
	if len(list) > 1 {
		q.waiting[w.network] = slices.Delete(list, i, i+1)
		return true
	}
	delete(q.waiting, w.network)
	q.order = slices.DeleteFunc(q.order, func(n string) bool { return n == w.network })
	return true
}

// Network is the part of an address that one party has to itself: an IPv4 address, an IPv6 /64.
func Network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	p := limit.Host(a)
	if p.Addr().Is4() {
		return p.Addr().String()
	}
	return p.String()
}

// widerNetworks are the networks around an IPv6 /64 that one party may have as well: a /56, a /48.
func widerNetworks(network string) (out []string) {
	p, err := netip.ParsePrefix(network)
	if err != nil || !p.Addr().Is6() {
		return nil
	}
	for _, bits := range []int{56, 48} {
		out = append(out, limit.Prefix(p.Addr(), 0, bits).String())
	}
	return out
}

// fairNetwork is the network that takes turns with others for a slot: an IPv6 /48, an IPv4 /24.
func fairNetwork(network string) string {
	if w := widerNetworks(network); w != nil {
		return w[len(w)-1]
	}
	if a, err := netip.ParseAddr(network); err == nil && a.Is4() {
		return limit.Site(a).String()
	}
	return network
}

// Bounds on the networks that a mailbox or a team user is known at.
const (
	knownFor  = 30 * 24 * time.Hour
	knownMost = 8
	noteAfter = 24 * time.Hour // how old a note may be before it is made anew
)

// IsKnown reports whether somebody has logged in from the network lately.
func IsKnown(seen []store.SeenNetwork, network string, now time.Time) bool {
	return slices.ContainsFunc(seen, func(s store.SeenNetwork) bool { return s.Network == network && now.Sub(s.At) < knownFor })
}

// RecordNetwork notes a log-in from the network, newest first; changed says whether there is
// something to keep.
func RecordNetwork(seen []store.SeenNetwork, network string, now time.Time) (out []store.SeenNetwork, changed bool) {
	for _, s := range seen {
		if s.Network == network && now.Sub(s.At) < noteAfter {
			return seen, false
		}
	}
	out = []store.SeenNetwork{{Network: network, At: now}}
	for _, s := range seen {
		if s.Network != network && now.Sub(s.At) < knownFor && len(out) < knownMost {
			out = append(out, s)
		}
	}
	return out, true
}
