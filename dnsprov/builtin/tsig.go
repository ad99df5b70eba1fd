package builtin

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"

	"github.com/miekg/dns"
)

// tsigHashes has the hash function of each TSIG algorithm (RFC 8945 section 6), without those that
// must not be used any more.
var tsigHashes = map[string]func() hash.Hash{
	dns.HmacSHA1: sha1.New, dns.HmacSHA224: sha256.New224, dns.HmacSHA256: sha256.New,
	dns.HmacSHA384: sha512.New384, dns.HmacSHA512: sha512.New,
}

// TSIGKey is a secret key that this server shares with a secondary (RFC 8945). It implements
// dns.TsigProvider.
type TSIGKey struct {
	Name      string // name of the key, which is a domain name
	Algorithm string // such as hmac-sha256
	Secret    []byte
}

var (
	errAlgorithm = errors.New("unknown TSIG algorithm")
	errMACSize   = errors.New("the TSIG MAC is too short or too long")
)

// Generate returns the MAC of a message. It returns an error if the algorithm of t is unknown.
func (k *TSIGKey) Generate(msg []byte, t *dns.TSIG) ([]byte, error) {
	digest := tsigHashes[dns.CanonicalName(t.Algorithm)]
	if digest == nil {
		return nil, errAlgorithm
	}
	mac := hmac.New(digest, k.Secret)
	mac.Write(msg)
	return mac.Sum(nil), nil
}

// Verify returns an error unless t has the right MAC of the message. The MAC may be truncated to
// half its length (RFC 8945 section 5.2.2.1).
func (k *TSIGKey) Verify(msg []byte, t *dns.TSIG) error {
	want, err := k.Generate(msg, t)
	if err != nil {
		return err
	}
	have, err := hex.DecodeString(t.MAC)
	if err != nil {
		return err
	}
	if len(have) > len(want) || len(have) < max(10, len(want)/2) {
		return errMACSize
	}
	if !hmac.Equal(want[:len(have)], have) {
		return dns.ErrSig
	}
	return nil
}

// MACSize returns the length of an untruncated MAC in bytes, or 0 if the algorithm is unknown.
func (k *TSIGKey) MACSize() int {
	digest := tsigHashes[dns.CanonicalName(k.Algorithm)]
	if digest == nil {
		return 0
	}
	return digest().Size()
}
