package builtin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

const (
	keyTTL   = 3600 // seconds, of DNSKEY
	keyFlags = 257  // a zone key that a DS at the parent names (RFC 4034 section 2.1.1)
)

// A Key signs a zone with ECDSA P-256 and SHA-256, algorithm 13 (RFC 6605): one key for its records
// and for the set of its keys (RFC 6781 section 3.1), since a parent has to be told of a new one
// either way.
type Key struct {
	public  PublicKey
	private func() (*ecdsa.PrivateKey, error)
}

// A PublicKey is the public half of a key as in a DNSKEY record, 64 bytes (RFC 6605 section 4).
type PublicKey []byte

// GenerateKey makes a new key. The private half is what open of NewKey gives.
func GenerateKey() (private []byte, public PublicKey, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a zone key: %w", err)
	}
	private, err = key.Bytes()
	if err != nil {
		return nil, nil, fmt.Errorf("encode a zone key: %w", err)
	}
	public, err = publicHalf(key)
	return private, public, err
}

// NewKey gives the key with this public half. open is called for the private half, once, when first
// something is to be signed; its error is an answer's.
func NewKey(public PublicKey, open func() ([]byte, error)) *Key {
	return &Key{public: public, private: sync.OnceValues(func() (*ecdsa.PrivateKey, error) {
		secret, err := open()
		if err != nil {
			return nil, err
		}
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
		if err != nil {
			return nil, fmt.Errorf("zone key %d: %w", public.Tag(), err)
		}
		if have, err := publicHalf(key); err != nil || !bytes.Equal(have, public) {
			return nil, errors.Join(fmt.Errorf("zone key %d: its halves do not belong together", public.Tag()), err)
		}
		return key, nil
	})}
}

// publicHalf is the two coordinates, without the byte in front that says so.
func publicHalf(key *ecdsa.PrivateKey) (PublicKey, error) {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode the public half of a zone key: %w", err)
	}
	return point[1:], nil
}

// record is the key's DNSKEY record at the apex, which ends in a dot.
func (k PublicKey) record(apex string) *dns.DNSKEY {
	return &dns.DNSKEY{
		Hdr: header(apex, dns.TypeDNSKEY, keyTTL), Flags: keyFlags, Protocol: 3,
		Algorithm: dns.ECDSAP256SHA256, PublicKey: base64.StdEncoding.EncodeToString(k),
	}
}

// Tag is the key's short name in signatures (RFC 4034 appendix B).
func (k PublicKey) Tag() uint16 { return k.record(".").KeyTag() }

// String is the key as the data of a DNSKEY record in a zone file: flags, protocol, algorithm, key.
func (k PublicKey) String() string {
	return fmt.Sprintf("%d 3 %d %s", keyFlags, dns.ECDSAP256SHA256, base64.StdEncoding.EncodeToString(k))
}

// DS is what the parent of domain, a Record.Name, has to say for the key to count: its SHA-256 (RFC
// 4509).
func (k PublicKey) DS(domain string) dnsprov.DS {
	ds := k.record(fqdn(domain)).ToDS(dns.SHA256)
	return dnsprov.DS{KeyTag: ds.KeyTag, Algorithm: ds.Algorithm, DigestType: ds.DigestType, Digest: strings.ToLower(ds.Digest)}
}
