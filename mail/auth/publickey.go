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
)

// Why a signature does not verify.
var (
	errNoKey     = errors.New("no key for signature")
	errBadKey    = errors.New("key cannot be used")
	errRevoked   = errors.New("key has been revoked")
	errAlgorithm = errors.New("algorithm is not supported")
	errSignature = errors.New("signature did not verify")
)

// publicKey looks the key of a signature up (RFC 6376 section 3.6) and gives it for the algorithm
// a=. An error that is none of this file's is temporary.
func publicKey(look *lookups, tags map[string]string) (crypto.PublicKey, error) {
	domain, isDomain := idn.Host(compact(tags["d"]))
	selector, isSelector := idn.Host(compact(tags["s"]))
	if !isDomain || !isSelector {
		return nil, errNoKey
	}
	txts, err := look.LookupTXT(look.ctx, selector+"._domainkey."+domain)
	switch {
	case notFound(err) || err == nil && len(txts) == 0:
		return nil, errNoKey
	case err != nil:
		return nil, err
	case len(txts[0]) > maxKeyRecord:
		return nil, errKeyRecord
	}
	return parsePublicKey(txts[0], compact(tags["a"]))
}

// parsePublicKey reads a key record for rsa-sha256 or ed25519-sha256.
func parsePublicKey(record, algorithm string) (crypto.PublicKey, error) {
	tags := parseTags(record)
	kind, hash, _ := strings.Cut(strings.ToLower(algorithm), "-")
	if v, ok := tags["v"]; ok && v != "DKIM1" || !listed(tags, "s", "email") {
		return nil, errBadKey
	}
	if k := tags["k"]; hash != "sha256" || k != kind && (k != "" || kind != "rsa") || !listed(tags, "h", "sha256") {
		return nil, errAlgorithm
	}
	der, err := base64.StdEncoding.DecodeString(compact(tags["p"]))
	switch {
	case err != nil:
		return nil, errBadKey
	case len(der) == 0:
		return nil, errRevoked
	case kind == "ed25519" && len(der) == ed25519.PublicKeySize:
		return ed25519.PublicKey(der), nil
	case kind != "rsa":
		return nil, errBadKey
	}
	return parseRSA(der)
}

// parseRSA reads both forms in which RSA keys are published (RFC 6376 section 3.6.1 and its
// erratum).
func parseRSA(der []byte) (crypto.PublicKey, error) {
	key, err := x509.ParsePKCS1PublicKey(der)
	if err != nil {
		any, err := x509.ParsePKIXPublicKey(der)
		if err != nil {
			return nil, errBadKey
		}
		var ok bool
		if key, ok = any.(*rsa.PublicKey); !ok {
			return nil, errBadKey
		}
	}
	if n := key.N.BitLen(); n < minRSABits || n > maxRSABits {
		return nil, errBadKey
	}
	return key, nil
}

// listed tells whether a colon-separated tag allows a value: it is absent, names it or is *.
func listed(tags map[string]string, tag, value string) bool {
	list, ok := tags[tag]
	if !ok {
		return true
	}
	for one := range strings.SplitSeq(list, ":") {
		if one = strings.TrimSpace(one); one == value || one == "*" {
			return true
		}
	}
	return false
}

// verifies checks the signature b= over a SHA-256 digest.
func verifies(key crypto.PublicKey, digest []byte, b string) error {
	sig, err := base64.StdEncoding.DecodeString(compact(b))
	if err != nil {
		return errSignature
	}
	switch key := key.(type) {
	case *rsa.PublicKey:
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, digest, sig) == nil {
			return nil
		}
	case ed25519.PublicKey: // over the digest (RFC 8463 section 3)
		if ed25519.Verify(key, digest, sig) {
			return nil
		}
	}
	return errSignature
}
