package auth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
)

const (
	generatedRSABits = 2048
	minRSABits       = 1024 // RFC 8301 section 3.2
	maxRSABits       = 4096 // RFC 8301 does not require verifiers to support larger keys
)

// ErrKey is returned by ParseKey, Sign and Seal for a key that is not PKCS#8 PEM of an ed25519 key
// or of an RSA key of 1024 to 4096 bits.
var ErrKey = errors.New("not a DKIM key")

// Key is a signing key of a domain. The value of KeyRecord must be published at
// <Selector>._domainkey.<Domain>.
type Key struct {
	Domain, Selector string
	// Signer is the result of ParseKey, GenerateRSA or GenerateEd25519.
	Signer crypto.Signer
}

// dnsNames returns the domain and the selector as DNS names. It returns ErrKey if one of them is
// invalid or if the key cannot sign.
func (k Key) dnsNames() (domain, selector string, err error) {
	domain, isDomain := idn.Host(k.Domain)
	selector, isSelector := idn.Host(k.Selector)
	if !isDomain || !isSelector || k.Signer == nil || !canSign(k.Signer) {
		return "", "", fmt.Errorf("%w: %s._domainkey.%s is no DNS name, or the key has no usable type or size", ErrKey, k.Selector, k.Domain)
	}
	return domain, selector, nil
}

// algorithm returns the value of a= for signatures by the key (RFC 6376 section 3.3, RFC 8463
// section 3).
func (k Key) algorithm() string {
	if _, ok := k.Signer.Public().(ed25519.PublicKey); ok {
		return "ed25519-sha256"
	}
	return "rsa-sha256"
}

// sign signs the SHA-256 hash of text. f is the signature field with an empty b= at its end. sign
// returns f with the signature appended and folded.
func (k Key) sign(f field, text string) (field, error) {
	digest := sha256.Sum256([]byte(text))
	var hash crypto.Hash // Ed25519 signs the digest as if it were a message
	if k.algorithm() == "rsa-sha256" {
		hash = crypto.SHA256
	}
	sig, err := k.Signer.Sign(rand.Reader, digest[:], hash)
	if err != nil {
		return field{}, fmt.Errorf("sign as %s._domainkey.%s: %w", k.Selector, k.Domain, err)
	}
	raw := strings.TrimSuffix(f.raw, "\r\n")
	for rest := base64.StdEncoding.EncodeToString(sig); rest != ""; {
		n := min(len(rest), foldAt-2)
		raw += "\r\n\t" + rest[:n]
		rest = rest[n:]
	}
	return newField(raw+"\r\n", 1), nil
}

// GenerateRSA generates an RSA key of 2048 bits. text is the key as PKCS#8 PEM.
func GenerateRSA() (text []byte, key crypto.Signer, err error) {
	k, err := rsa.GenerateKey(rand.Reader, generatedRSABits)
	if err != nil {
		return nil, nil, fmt.Errorf("generate RSA key: %w", err)
	}
	text, err = marshalKey(k)
	return text, k, err
}

// GenerateEd25519 generates an ed25519 key (RFC 8463). text is the key as PKCS#8 PEM.
func GenerateEd25519() (text []byte, key crypto.Signer, err error) {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate ed25519 key: %w", err)
	}
	text, err = marshalKey(k)
	return text, k, err
}

func marshalKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("marshal DKIM key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseKey parses a key in the PEM form that GenerateRSA and GenerateEd25519 return. It returns an
// error that wraps ErrKey if text is not a key that can sign.
func ParseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%w: no PKCS#8 PEM block", ErrKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok || !canSign(signer) {
		return nil, fmt.Errorf("%w: the type or size of %T is not supported", ErrKey, key)
	}
	return signer, nil
}

func canSign(key crypto.Signer) bool {
	switch public := key.Public().(type) {
	case *rsa.PublicKey:
		return minRSABits <= public.N.BitLen() && public.N.BitLen() <= maxRSABits
	case ed25519.PublicKey:
		return true
	}
	return false
}

// KeyRecord returns the TXT value that publishes the key (RFC 6376 section 3.6.1, RFC 8463 section
// 4). It has up to 736 bytes, so DNS stores it in several strings of at most 255. It is "" for a
// key that is neither RSA nor ed25519.
func KeyRecord(key crypto.Signer) string {
	switch public := key.Public().(type) {
	case *rsa.PublicKey:
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			return ""
		}
		return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
	case ed25519.PublicKey:
		return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
	}
	return ""
}
