package builtin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

const (
	keyTTL   = 3600 // TTL of DNSKEY records in seconds
	keyFlags = 257  // zone key and secure entry point (RFC 4034 section 2.1.1)
)

// A Key is a DNSSEC key of a zone: ECDSA P-256 with SHA-256, algorithm 13 (RFC 6605). The same key
// signs the records and the DNSKEY set (RFC 6781 section 3.1).
type Key struct {
	public  PublicKey
	private func() (*ecdsa.PrivateKey, error)
}

// A PublicKey is a public key in the format of DNSKEY records, 64 bytes (RFC 6605 section 4).
type PublicKey []byte

// GenerateKey generates a key. Pass a function that returns private to NewKey.
func GenerateKey() (private []byte, public PublicKey, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate zone key: %w", err)
	}
	private, err = key.Bytes()
	if err != nil {
		return nil, nil, fmt.Errorf("encode private zone key: %w", err)
	}
	public, err = publicKeyOf(key)
	return private, public, err
}

// NewKey returns the key with the given public key. open must return the private key. It is called
// once, for the first signature. If it fails, every signature fails.
func NewKey(public PublicKey, open func() ([]byte, error)) *Key {
	return &Key{public: public, private: sync.OnceValues(func() (*ecdsa.PrivateKey, error) {
		secret, err := open()
		if err != nil {
			return nil, err
		}
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
		if err != nil {
			return nil, fmt.Errorf("parse private key of zone key %d: %w", public.Tag(), err)
		}
		if have, err := publicKeyOf(key); err != nil || !bytes.Equal(have, public) {
			return nil, errors.Join(fmt.Errorf("zone key %d: the private key does not match the public key", public.Tag()), err)
		}
		return key, nil
	})}
}

// publicKeyOf returns the coordinates of the public key, without the leading byte of an
// uncompressed point.
func publicKeyOf(key *ecdsa.PrivateKey) (PublicKey, error) {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode public zone key: %w", err)
	}
	return point[1:], nil
}

// record returns the DNSKEY record of the key. apex is the name of the zone with a trailing dot.
func (k PublicKey) record(apex string) *dns.DNSKEY {
	return &dns.DNSKEY{
		Hdr: header(apex, dns.TypeDNSKEY, keyTTL), Flags: keyFlags, Protocol: 3,
		Algorithm: dns.ECDSAP256SHA256, PublicKey: base64.StdEncoding.EncodeToString(k),
	}
}

// Tag returns the key tag, by which signatures identify the key (RFC 4034 appendix B).
func (k PublicKey) Tag() uint16 { return k.record(".").KeyTag() }

// String returns the key as DNSKEY data in a zone file: flags, protocol, algorithm and key.
func (k PublicKey) String() string {
	return fmt.Sprintf("%d 3 %d %s", keyFlags, dns.ECDSAP256SHA256, base64.StdEncoding.EncodeToString(k))
}

// DS returns the DS record, with a SHA-256 digest (RFC 4509), that the parent zone of domain must
// publish. domain is in the form of Record.Name.
func (k PublicKey) DS(domain string) dnsprov.DS {
	return dnsprov.DSOf(k.record(fqdn(domain)).ToDS(dns.SHA256))
}
