package core

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// AccountPlace is what the key of an account at a certificate authority is sealed for.
func AccountPlace(directory string) string { return "acme account " + directory }

// CertificatePlace is what the keys of a set's certificates are sealed for.
func CertificatePlace(set string) string { return "certificate " + set }

// dnssecPlace is what the zone's key of a domain is sealed for.
func DNSSECPlace(domainID string) string { return "dnssec " + domainID }

// dkimPlace is what the DKIM keys of a domain are sealed for.
func DKIMPlace(domainID string) string { return "dkim " + domainID }

// EdgePlace is what the edge provider's token of a domain is sealed for.
func EdgePlace(domainID string) string { return "edge " + domainID }

// ServerPlace is what the password of an external mailbox's server, imap or smtp, is sealed for.
func ServerPlace(id, field string) string { return "mailbox " + id + " " + field }

func TOTPPlace(userID string) string { return userID + " totp" }

// Keys seals secrets and authenticates what we hand out, under one master key that is kept outside
// the database.
type Keys struct {
	seal cipher.AEAD
	root []byte
}

func NewKeys(master []byte) (*Keys, error) {
	sealing, err := hkdf.Key(sha256.New, master, nil, "mailstead seal 1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive sealing key: %w", err)
	}
	root, err := hkdf.Key(sha256.New, master, nil, "mailstead mac 1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive mac key: %w", err)
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	return &Keys{seal: aead, root: root}, nil
}

// Seal encrypts a secret for the record named by place, such as a record's id; it opens only with
// the same place.
func (k *Keys) Seal(place string, secret []byte) []byte {
	nonce := make([]byte, k.seal.NonceSize(), k.seal.NonceSize()+len(secret)+k.seal.Overhead())
	rand.Read(nonce)
	return k.seal.Seal(nonce, nonce, secret, []byte(place))
}

// Open undoes Seal.
func (k *Keys) Open(place string, sealed []byte) ([]byte, error) {
	n := k.seal.NonceSize()
	if len(sealed) < n {
		return nil, fmt.Errorf("open the secret of %s: it is cut short", place)
	}
	secret, err := k.seal.Open(nil, sealed[:n], sealed[n:], []byte(place))
	if err != nil {
		return nil, fmt.Errorf("open the secret of %s: the master key does not fit: %w", place, err)
	}
	return secret, nil
}

// Mac authenticates the parts for one purpose.
func (k *Keys) Mac(purpose string, parts ...string) []byte {
	h := hmac.New(sha256.New, k.root)
	for _, p := range append([]string{purpose}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return h.Sum(nil)
}

const (
	Base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
