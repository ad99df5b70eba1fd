package core

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

// ConfirmationTTL is how long a confirmation token is valid.
const ConfirmationTTL = 10 * time.Minute

const (
	confirmNonceSize  = 16 // random bytes of a confirmation token
	confirmHeaderSize = confirmNonceSize + 8
)

// confirmations remembers the used confirmation tokens until they expire. Nothing else about tokens
// is stored. They are authenticated with a key that is lost with this memory when the process ends,
// so that no used token becomes valid again.
type confirmations struct {
	key       [32]byte
	mu        sync.Mutex
	used      map[[confirmNonceSize]byte]time.Time // when each used token expires
	cleanedAt time.Time
}

func newConfirmations() *confirmations {
	c := &confirmations{used: map[[confirmNonceSize]byte]time.Time{}}
	rand.Read(c.key[:])
	return c
}

// use reports whether this is the token's first use. Expired tokens are removed once a minute.
func (c *confirmations) use(nonce [confirmNonceSize]byte, ends, now time.Time) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.cleanedAt) >= time.Minute {
		for n, end := range c.used {
			if !now.Before(end) {
				delete(c.used, n)
			}
		}
		c.cleanedAt = now
	}
	if _, again := c.used[nonce]; again {
		return false
	}
	c.used[nonce] = ends
	return true
}

// Confirmation returns a token that confirms one operation with these arguments, and the time at
// which the token expires. The token is valid once, for this actor's API token only.
func (s *Core) Confirmation(who Actor, operation string, args []byte) (token string, expires Time) {
	until := s.Now().Add(ConfirmationTTL).Truncate(time.Second)
	text := make([]byte, confirmNonceSize, confirmHeaderSize)
	rand.Read(text)
	text = binary.BigEndian.AppendUint64(text, uint64(until.Unix()))
	text = append(text, s.confirmationMAC(who, operation, args, text)...)
	return base64.RawURLEncoding.EncodeToString(text), Time{until}
}

// UseConfirmation checks that the text is a confirmation token for this operation with these
// arguments, and marks it as used. The error is a 400 that says what is wrong with the token.
func (s *Core) UseConfirmation(who Actor, operation string, args []byte, text string) error {
	const newTokenHint = ". Call without it to get a new one"
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < confirmHeaderSize || !hmac.Equal(raw[confirmHeaderSize:], s.confirmationMAC(who, operation, args, raw[:confirmHeaderSize])) {
		return Invalid("confirmation_token", "invalid", "does not match these arguments and this API token"+newTokenHint)
	}
	ends := time.Unix(int64(binary.BigEndian.Uint64(raw[confirmNonceSize:confirmHeaderSize])), 0)
	if !s.Now().Before(ends) {
		return Invalid("confirmation_token", "expired", "is older than ten minutes"+newTokenHint)
	}
	if !s.confirmations.use([confirmNonceSize]byte(raw), ends, s.Now()) {
		return Invalid("confirmation_token", "used", "was used already"+newTokenHint)
	}
	return nil
}

func (s *Core) confirmationMAC(who Actor, operation string, args, head []byte) []byte {
	return s.Keys.Mac("confirm", string(s.confirmations.key[:]), who.AccountID, who.TokenID, operation, string(args), string(head))
}
