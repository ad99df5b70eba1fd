package auth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/taglist"
)

// Errors of keys and key records.
var (
	errNoKey     = errors.New("no key for signature")
	errManyKeys  = errors.New("multiple TXT records found for key")
	errKeyRecord = errors.New("key record too large")
	errBadKey    = errors.New("key syntax error")
	errRevoked   = errors.New("key revoked")
	errShortKey  = errors.New("key is too short")
	errLongKey   = errors.New("key is too long")
	errService   = errors.New("key does not apply to email")
	errKeyHash   = errors.New("key does not allow the hash algorithm")
	errKeyKind   = errors.New("key has another algorithm than the signature")
	errWeakHash  = errors.New("hash algorithm too weak")
	errAlgorithm = errors.New("algorithm is not supported")
)

// Limits on keys. The sender chooses the key, and verifying with a large one is expensive.
const (
	maxKeyRecord  = 4 << 10 // bytes; an RSA key of 16 384 bits has 2.8 KiB
	maxVerifyBits = 16 << 10
)

// A keyRecord is a parsed DKIM key record (RFC 6376 section 3.6.1).
type keyRecord struct {
	public  crypto.PublicKey
	strict  bool // t=s: the domain of i= must equal d=
	testing bool // t=y: a failed signature counts as no signature
}

// publicKey looks up the key of a signature (RFC 6376 section 3.6) for the algorithm in a=. Errors
// that are not defined in this file are temporary.
func publicKey(look *lookups, tags map[string]string) (keyRecord, error) {
	domain, isDomain := idn.Host(removeSpace(tags["d"]))
	selector, isSelector := idn.Host(removeSpace(tags["s"]))
	if !isDomain || !isSelector {
		return keyRecord{}, errNoKey
	}
	txts, err := look.LookupTXT(look.ctx, selector+"._domainkey."+domain)
	switch {
	case isNotFound(err) || err == nil && len(txts) == 0:
		return keyRecord{}, errNoKey
	case err != nil:
		return keyRecord{}, err
	case len(txts) > 1:
		return keyRecord{}, errManyKeys
	}
	return parsePublicKey(txts[0], removeSpace(tags["a"]))
}

// parsePublicKey parses a key record for the algorithm rsa-sha256 or ed25519-sha256. If the record
// is well-formed, it returns the flags strict and testing even with an error.
func parsePublicKey(record, algorithm string) (keyRecord, error) {
	if len(record) > maxKeyRecord {
		return keyRecord{}, errKeyRecord
	}
	tags, wellFormed := taglist.Parse(record)
	if v, ok := tags["v"]; !wellFormed || ok && v != "DKIM1" {
		return keyRecord{}, errBadKey
	}
	_, flagged := tags["t"]
	out := keyRecord{strict: flagged && tagAllows(tags, "t", "s"), testing: flagged && tagAllows(tags, "t", "y")}
	kind, hash, _ := strings.Cut(strings.ToLower(algorithm), "-")
	switch k := strings.ToLower(tags["k"]); {
	case hash == "sha1": // forbidden by RFC 8301 section 3.1
		return out, errWeakHash
	case hash != "sha256" || kind != "rsa" && kind != "ed25519":
		return out, errAlgorithm
	case !tagAllows(tags, "s", "email"):
		return out, errService
	case !tagAllows(tags, "h", hash):
		return out, errKeyHash
	case k != kind && (k != "" || kind != "rsa"):
		return out, errKeyKind
	}
	p, ok := tags["p"]
	der, err := base64.StdEncoding.DecodeString(removeSpace(p))
	switch {
	case !ok || err != nil:
		return out, errBadKey
	case len(der) == 0:
		return out, errRevoked
	case kind == "rsa":
		out.public, err = parseRSA(der)
	case len(der) == ed25519.PublicKeySize:
		out.public = ed25519.PublicKey(der)
	default:
		err = errBadKey
	}
	return out, err
}

// parseRSA parses an RSA key in either of the forms in which keys are published (RFC 6376 section
// 3.6.1 and its erratum).
func parseRSA(der []byte) (crypto.PublicKey, error) {
	key, err := x509.ParsePKCS1PublicKey(der)
	if err != nil {
		any, err := x509.ParsePKIXPublicKey(der)
		if err != nil {
			return nil, errBadKey
		}
		var ok bool
		key, ok = any.(*rsa.PublicKey)
		if !ok {
			return nil, errBadKey
		}
	}
	switch n := key.N.BitLen(); {
	case n < minRSABits:
		return nil, errShortKey
	case n > maxVerifyBits:
		return nil, errLongKey
	}
	return key, nil
}

// tagAllows reports whether the tag allows the value. It does if it is absent, or if its
// colon-separated list has the value or *.
func tagAllows(tags map[string]string, tag, value string) bool {
	list, ok := tags[tag]
	if !ok {
		return true
	}
	for one := range strings.SplitSeq(list, ":") {
		one = strings.TrimSpace(one)
		if one == value || one == "*" {
			return true
		}
	}
	return false
}

// checkSignature checks a signature over a SHA-256 digest. b is the value of b=.
func checkSignature(key crypto.PublicKey, digest []byte, b string) error {
	sig, err := base64.StdEncoding.DecodeString(removeSpace(b))
	if err != nil {
		return errSignature
	}
	switch key := key.(type) {
	case *rsa.PublicKey:
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, digest, sig) == nil {
			return nil
		}
	case ed25519.PublicKey: // signs the digest as a message (RFC 8463 section 3)
		if ed25519.Verify(key, digest, sig) {
			return nil
		}
	}
	return errSignature
}
