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
	keyFlags = 257  // zone key and secure entry point: a DS at the parent refers to it (RFC 4034 section 2.1.1)
)

// A Key signs a zone with ECDSA P-256 and SHA-256, algorithm 13 (RFC 6605). One key signs both the
// records and the DNSKEY set (RFC 6781 section 3.1), since a new key has to be published at the
// parent either way.
type Key struct {
	public  PublicKey
	private func() (*ecdsa.PrivateKey, error)
}

// A PublicKey is the public half of a key as in a DNSKEY record, 64 bytes (RFC 6605 section 4).
type PublicKey []byte

// GenerateKey makes a new key. The open function of NewKey must return the private half.
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

// NewKey returns the key with this public half. open is called once for the private half, when
// something is first signed. If it fails, so does every signature.
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

// publicHalf returns the two coordinates, without the leading byte that marks an uncompressed
// point.
func publicHalf(key *ecdsa.PrivateKey) (PublicKey, error) {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode the public half of a zone key: %w", err)
	}
	return point[1:], nil
}

// record returns the DNSKEY record of the key at the apex, which ends in a dot.
func (k PublicKey) record(apex string) *dns.DNSKEY {
	return &dns.DNSKEY{
		Hdr: header(apex, dns.TypeDNSKEY, keyTTL), Flags: keyFlags, Protocol: 3,
		Algorithm: dns.ECDSAP256SHA256, PublicKey: base64.StdEncoding.EncodeToString(k),
	}
}

// Tag returns the key tag that signatures carry (RFC 4034 appendix B).
func (k PublicKey) Tag() uint16 { return k.record(".").KeyTag() }

// String returns the key as the data of a DNSKEY record in a zone file: flags, protocol, algorithm,
// key.
func (k PublicKey) String() string {
	return fmt.Sprintf("%d 3 %d %s", keyFlags, dns.ECDSAP256SHA256, base64.StdEncoding.EncodeToString(k))
}

// DS returns the DS record with which the parent of domain, a Record.Name, must confirm the key:
// its SHA-256 digest (RFC 4509).
func (k PublicKey) DS(domain string) dnsprov.DS {
	ds := k.record(fqdn(domain)).ToDS(dns.SHA256)
	return dnsprov.DS{KeyTag: ds.KeyTag, Algorithm: ds.Algorithm, DigestType: ds.DigestType, Digest: strings.ToLower(ds.Digest)}
}
