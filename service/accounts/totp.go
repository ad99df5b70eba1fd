package accounts

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Codes by the clock as every authenticator app makes them (RFC 6238 over RFC 4226, SHA-1).
const (
	totpPeriod = 30 // seconds
	totpDigits = 6
	totpSkew   = 1 // steps that a clock may be off, either way
)

// hotp is the code of a counter (RFC 4226 section 5.3).
func hotp(secret []byte, counter uint64, digits int) string {
	h := hmac.New(sha1.New, secret)
	_ = binary.Write(h, binary.BigEndian, counter) // a hash takes everything
	sum := h.Sum(nil)
	at := sum[len(sum)-1] & 0xf
	n := uint64(binary.BigEndian.Uint32(sum[at:at+4]) & 0x7fffffff)
	mod := uint64(1)
	for range digits {
		mod *= 10
	}
	return fmt.Sprintf("%0*d", digits, n%mod)
}

// totpStep is the newest step of the clock, within the skew, whose code is the given one, spaces
// left out; -1 if there is none.
func totpStep(secret []byte, code string, now time.Time) int64 {
	code, found := strings.ReplaceAll(code, " ", ""), int64(-1)
	for step := now.Unix()/totpPeriod - totpSkew; step <= now.Unix()/totpPeriod+totpSkew; step++ {
		if subtle.ConstantTimeCompare([]byte(code), []byte(hotp(secret, uint64(step), totpDigits))) == 1 {
			found = step
		}
	}
	return found
}
