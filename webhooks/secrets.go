// Package webhooks signs events and posts them to HTTPS endpoints of tenants. It does not know
// accounts, the job queue or the store.
package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32 // length of the key in bytes
	hintLength   = 4  // length of a hint in characters
)

// NewSecret returns a new secret for an endpoint: "whsec_" and 32 random bytes in base64.
func NewSecret() string {
	key := make([]byte, secretBytes)
	rand.Read(key) // never fails: crypto/rand ends the process instead
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// SecretHint returns the last 4 characters of a secret, so that people can tell secrets apart.
func SecretHint(secret string) string {
	return secret[max(0, len(secret)-hintLength):]
}

// standardKey returns the key of a secret in Standard Webhooks: the base64-decoded part after the
// prefix. It returns an error if that is not base64.
func standardKey(secret string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
}
