// Package webhooks signs events and posts them to the HTTPS endpoints of tenants. It does not know
// accounts, endpoint records, the job queue or the store: its callers handle these and act on its
// results.
package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	hintLength   = 4
)

// NewSecret returns a fresh endpoint secret: "whsec_" and the standard base64 of 32 random bytes,
// 50 characters in all.
func NewSecret() string {
	key := make([]byte, secretBytes)
	rand.Read(key) // never fails: crypto/rand ends the process instead
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// SecretHint returns the last 4 characters of a secret, by which people can distinguish secrets
// without seeing them.
func SecretHint(secret string) string {
	return secret[max(0, len(secret)-hintLength):]
}

// standardKey returns the key that Standard Webhooks libraries use: the decoded part after the
// prefix.
func standardKey(secret string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
}
