package core

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

// ConfirmFor is how long a call can be confirmed.
const ConfirmFor = 10 * time.Minute

const (
	confirmNonce = 16 // random bytes of a confirmation
	confirmHead  = confirmNonce + 8
)

// confirmations keeps which ones were used, until they would have ended. Nothing else of them is
// kept: they are authenticated, with a key of this process alone, so that none outlives what is
// kept here.
type confirmations struct {
	key   [32]byte
	mu    sync.Mutex
	used  map[[confirmNonce]byte]time.Time // when it ends
	swept time.Time
}

func newConfirmations() *confirmations {
	c := &confirmations{used: map[[confirmNonce]byte]time.Time{}}
	rand.Read(c.key[:])
	return c
}

// use reports whether it is the first use. Those that have ended are forgotten once a minute.
func (c *confirmations) use(nonce [confirmNonce]byte, ends, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) >= time.Minute {
		for n, end := range c.used {
			if !now.Before(end) {
				delete(c.used, n)
			}
		}
		c.swept = now
	}
	if _, again := c.used[nonce]; again {
		return false
	}
	c.used[nonce] = ends
	return true
}

// Confirmation makes the text that confirms one operation with these arguments, for this token
// alone, once, and until the time that it gives.
func (s *Core) Confirmation(who Actor, operation string, args []byte) (string, Time) {
	until := s.Now().Add(ConfirmFor).Truncate(time.Second)
	text := make([]byte, confirmNonce, confirmHead)
	rand.Read(text)
	text = binary.BigEndian.AppendUint64(text, uint64(until.Unix()))
	text = append(text, s.confirmationMAC(who, operation, args, text)...)
	return base64.RawURLEncoding.EncodeToString(text), Time{until}
}

// Confirmed reports whether the text confirms the operation, and uses it up: a 400 says what is
// wrong with it.
func (s *Core) Confirmed(who Actor, operation string, args []byte, text string) error {
	const again = ". Call without it to get a new one"
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < confirmHead || !hmac.Equal(raw[confirmHead:], s.confirmationMAC(who, operation, args, raw[:confirmHead])) {
		return Invalid("confirmation_token", "invalid", "does not match these arguments and this API token"+again)
	}
	ends := time.Unix(int64(binary.BigEndian.Uint64(raw[confirmNonce:confirmHead])), 0)
	if !s.Now().Before(ends) {
		return Invalid("confirmation_token", "expired", "is older than ten minutes"+again)
	}
	if !s.confirmations.use([confirmNonce]byte(raw), ends, s.Now()) {
		return Invalid("confirmation_token", "used", "was used already"+again)
	}
	return nil
}

func (s *Core) confirmationMAC(who Actor, operation string, args, head []byte) []byte {
	return s.Keys.Mac("confirm", string(s.confirmations.key[:]), who.AccountID, who.TokenID, operation, string(args), string(head))
}
