package core

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"
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

	gate   *hashGate
	derive func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte // argon2id
	secret [32]byte                                                                              // keys the cache, so that it holds no password
	mu     sync.Mutex
	right  map[[32]byte]time.Time
}

func newLogins() *logins {
	l := &logins{Time: argonTime, Memory: argonMemory, gate: newHashGate(), derive: argon2.IDKey, right: map[[32]byte]time.Time{}}
	rand.Read(l.secret[:])
	return l
}

// Hash makes the PHC text of a password.
func (l *logins) Hash(password string) string {
	salt := make([]byte, argonSalt)
	rand.Read(salt)
	if release, err := l.gate.acquire(context.Background(), ownWork, true); err == nil { // it waits for as long as it takes
		defer release()
	}
	key := l.derive([]byte(password), salt, l.Time, l.Memory, 1, argonKey)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, l.Memory, l.Time, b64.EncodeToString(salt), b64.EncodeToString(key))
}

// Verify tells whether the password is the one of the hash. An empty hash takes as long and is
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
	release, err := l.gate.acquire(ctx, from.fairNetwork(), from.Known)
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
func (l *logins) Check(hash, password string) bool {
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
	got := l.derive([]byte(password), salt, uint32(max(time, 1)), uint32(max(memory, 8)), uint8(max(threads, 1)), uint32(max(len(key), 16)))
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
