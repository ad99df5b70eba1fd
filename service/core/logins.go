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
	argonSaltSize = 16 // bytes
	argonKeySize  = 32 // bytes
)

// verifiedFor is how long a right password is cached, so that it is not hashed again: mail clients
// reconnect often.
const verifiedFor = 5 * time.Minute

// logins hashes passwords, a limited number at a time, and remembers for a short time which were
// right.
type logins struct {
	Time, Memory uint32 // argon2id parameters for new hashes: passes and KiB; most tests use less

	limiter       *hashLimiter
	derive        func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte // argon2id
	secret        [32]byte                                                                              // key of the cache's hashes, so that the cache holds no password
	mu            sync.Mutex
	verifiedUntil map[[32]byte]time.Time // by a digest of the password and its stored hash
}

func newLogins() *logins {
	l := &logins{Time: argonTime, Memory: argonMemory, limiter: newHashLimiter(), derive: argon2.IDKey, verifiedUntil: map[[32]byte]time.Time{}}
	rand.Read(l.secret[:])
	return l
}

// Hash returns the hash of a password in PHC format.
func (l *logins) Hash(password string) string {
	salt := make([]byte, argonSaltSize)
	rand.Read(salt)
	if release, err := l.limiter.acquire(context.Background(), ownWork, true); err == nil { // own work waits without a time limit
		defer release()
	}
	key := l.derive([]byte(password), salt, l.Time, l.Memory, 1, argonKeySize)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, l.Memory, l.Time, b64.EncodeToString(salt), b64.EncodeToString(key))
}

// Verify reports whether the password matches the hash. For an empty hash it returns false, after
// the same time as for a wrong password. An attempt from a known origin does not wait for attempts
// from unknown ones. The error is busy, or the error of ctx.
func (l *logins) Verify(ctx context.Context, hash, password string, from Origin, now time.Time) (right bool, err error) {
	cacheKey := sha256.Sum256([]byte(string(l.secret[:]) + hash + "\x00" + password))
	l.mu.Lock()
	until, ok := l.verifiedUntil[cacheKey]
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
	if len(l.verifiedUntil) >= 10_000 {
		clear(l.verifiedUntil)
	}
	l.verifiedUntil[cacheKey] = now.Add(verifiedFor)
	return true, nil
}

// Check hashes the password with the parameters of the hash and compares the result with the hash.
// The caller holds a slot of the limiter.
func (l *logins) Check(hash, plaintext string) bool {
	if password.IsForeign(hash) {
		return password.Matches(hash, plaintext)
	}
	var version, memory, time, threads int
	fields := strings.Split(hash, "$")
	known := len(fields) == 6 && fields[1] == "argon2id"
	salt, key := make([]byte, argonSaltSize), make([]byte, argonKeySize)
	memory, time, threads = int(l.Memory), int(l.Time), 1
	if known {
		_, errV := fmt.Sscanf(fields[2], "v=%d", &version)
		_, errP := fmt.Sscanf(fields[3], "m=%d,t=%d,p=%d", &memory, &time, &threads)
		var errS, errK error
		salt, errS = base64.RawStdEncoding.DecodeString(fields[4])
		key, errK = base64.RawStdEncoding.DecodeString(fields[5])
		known = errV == nil && errP == nil && errS == nil && errK == nil && version == argon2.Version
	}
	got := l.derive([]byte(plaintext), salt, uint32(max(time, 1)), uint32(max(memory, 8)), uint8(max(threads, 1)), uint32(max(len(key), 16)))
	return known && subtle.ConstantTimeCompare(got, key) == 1
}

// PasswordAlphabet has no characters that look alike, and none that begins a formula in a
// spreadsheet.
const PasswordAlphabet = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// NewPassword returns a random password of 20 characters, 115 bits.
func NewPassword() string { return RandomText(20, PasswordAlphabet) }

// RandomText returns n random characters of the alphabet, evenly distributed.
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

// Limits on passwords that are being hashed or wait to be hashed. Strangers are attempts from
// networks where the identity has not logged in lately. One slot is not available to them, so that
// a flood of strangers does not delay others.
const (
	hashSlots         = 3
	strangerSlots     = 2
	waitersPerNetwork = 200              // strangers of one network that may wait, and as many others of the network
	waitersTotal      = 4096             // strangers of all networks that may wait, and as many others
	loginWait         = 10 * time.Second // longest wait of an attempt
	busyRetry         = 10 * time.Second // Retry-After of the error busy
	ownWork           = "here"           // used in place of a network for passwords that are hashed to be stored, not compared
)

// A hashLimiter limits how many passwords are hashed at a time. Networks take turns, so that a
// network with many attempts delays only its own.
type hashLimiter struct {
	mu               sync.Mutex
	running          int // attempts that have a slot
	runningStrangers int // how many of the running attempts come from strangers
	knownQueue       fairQueue
	strangerQueue    fairQueue
}

// A hashWaiter is an attempt that waits for a slot.
type hashWaiter struct {
	granted chan struct{} // closed when it gets a slot
	network string
}

// A fairQueue holds waiters by network. Networks take turns.
type fairQueue struct {
	waiting map[string][]*hashWaiter
	order   []string // networks with waiters; the first is next
	size    int      // waiters of all networks
}

func newHashLimiter() *hashLimiter {
	return &hashLimiter{knownQueue: fairQueue{waiting: map[string][]*hashWaiter{}}, strangerQueue: fairQueue{waiting: map[string][]*hashWaiter{}}}
}

// acquire waits for a slot, at most loginWait for a login. release frees the slot. The error is
// busy, or the error of ctx.
func (g *hashLimiter) acquire(ctx context.Context, network string, known bool) (release func(), err error) {
	g.mu.Lock()
	q := &g.strangerQueue
	if known {
		q = &g.knownQueue
	}
	own := network == ownWork
	if !own && (q.size >= waitersTotal || len(q.waiting[network]) >= waitersPerNetwork) {
		g.mu.Unlock()
		return nil, tooBusy()
	}
	w := &hashWaiter{make(chan struct{}), network}
	q.add(w)
	g.grantSlots()
	g.mu.Unlock()
	release = func() { g.release(known) }
	var over <-chan time.Time
	if !own {
		t := time.NewTimer(loginWait)
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
	if !q.remove(w) { // the waiter got a slot in the meantime
		return release, nil
	}
	return nil, err
}

func tooBusy() *Error {
	e := Errorf("busy", "Too many log-ins are waiting. Try again in a moment.")
	e.RetryAfter = busyRetry
	return e
}

func (g *hashLimiter) release(known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if !known {
		g.runningStrangers--
	}
	g.grantSlots()
}

// grantSlots assigns free slots to waiters. Strangers cannot have the last slot, and known networks
// cannot have all slots while a stranger waits.
func (g *hashLimiter) grantSlots() {
	for g.running < hashSlots {
		strange := g.strangerQueue.size > 0 && g.runningStrangers < strangerSlots
		switch {
		case g.knownQueue.size > 0 && !(strange && g.runningStrangers == 0 && g.running > 0):
			close(g.knownQueue.next().granted)
		case strange:
			close(g.strangerQueue.next().granted)
			g.runningStrangers++
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

// next removes the first waiter of the next network. If the network has more waiters, it becomes
// the last one in the order.
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

// remove removes a waiter, and reports whether it was still in the queue.
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

// Network returns the part of an address that belongs to one party: an IPv4 address or an IPv6 /64.
func Network(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	p := limit.HostNetwork(a)
	if p.Addr().Is4() {
		return p.Addr().String()
	}
	return p.String()
}

// widerNetworks returns the networks around an IPv6 /64 that may belong to the same party: a /56
// and a /48.
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

// fairNetwork returns the network that takes turns with others for a hashing slot: the /48 of an
// IPv6 /64, or the /24 of an IPv4 address.
func fairNetwork(network string) string {
	if w := widerNetworks(network); w != nil {
		return w[len(w)-1]
	}
	if a, err := netip.ParseAddr(network); err == nil && a.Is4() {
		return limit.SiteNetwork(a).String()
	}
	return network
}

// Limits on the list of networks from which a mailbox or team user has logged in.
const (
	networkKnownFor  = 30 * 24 * time.Hour
	maxKnownNetworks = 8
	knownUpdateAfter = 24 * time.Hour // age from which the time of a known network is updated
)

// IsKnownNetwork reports whether seen has a recent login from the network.
func IsKnownNetwork(seen []store.SeenNetwork, network string, now time.Time) bool {
	return slices.ContainsFunc(seen, func(s store.SeenNetwork) bool { return s.Network == network && now.Sub(s.At) < networkKnownFor })
}

// RecordNetwork adds a login from the network to seen, newest first. changed is false if seen has a
// login from the network already that is recent enough.
func RecordNetwork(seen []store.SeenNetwork, network string, now time.Time) (out []store.SeenNetwork, changed bool) {
	for _, s := range seen {
		if s.Network == network && now.Sub(s.At) < knownUpdateAfter {
			return seen, false
		}
	}
	out = []store.SeenNetwork{{Network: network, At: now}}
	for _, s := range seen {
		if s.Network != network && now.Sub(s.At) < networkKnownFor && len(out) < maxKnownNetworks {
			out = append(out, s)
		}
	}
	return out, true
}
