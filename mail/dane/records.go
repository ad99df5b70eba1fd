// Package dane finds out which certificates the DNS vouches for (RFC 7672), and judges those that a
// host shows by it. It does not know how mail is sent, nor what follows from its answers.
package dane

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Certificate usages that apply to mail (RFC 7672 section 3.1); the others count as unusable.
const (
	UsageTA = 2 // an authority that the host's certificate must come from
	UsageEE = 3 // the host's own certificate or key
)

// ErrMismatch says that no record vouches for the certificate that a host showed.
var ErrMismatch = errors.New("no TLSA record matches the certificate")

// A Record is one TLSA record (RFC 6698 section 2.1).
type Record struct {
	Usage, Selector, Match uint8
	Data                   []byte
}

// String is the record's data as in a zone file.
func (r Record) String() string {
	return fmt.Sprintf("%d %d %d %s", r.Usage, r.Selector, r.Match, hex.EncodeToString(r.Data))
}

// ParseRecord reads what String writes.
func ParseRecord(text string) (Record, error) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return Record{}, fmt.Errorf("%.100q is not a TLSA record", text)
	}
	var n [3]uint8
	for i := range n {
		v, err := strconv.ParseUint(words[i], 10, 8)
		if err != nil {
			return Record{}, fmt.Errorf("%.100q is not a TLSA record", text)
		}
		n[i] = uint8(v)
	}
	data, err := hex.DecodeString(words[3])
	if err != nil {
		return Record{}, fmt.Errorf("%.100q is not a TLSA record: %w", text, err)
	}
	return Record{n[0], n[1], n[2], data}, nil
}

// Usable reports whether mail can be held to the record: DANE-TA and DANE-EE alone, and parameters
// that have a meaning.
func (r Record) Usable() bool {
	size := map[uint8]int{1: sha256.Size, 2: sha512.Size}
	known := (r.Usage == UsageTA || r.Usage == UsageEE) && r.Selector <= 1 && r.Match <= 2
	return known && len(r.Data) > 0 && (r.Match == 0 || len(r.Data) == size[r.Match])
}

// matches compares the record with a certificate.
func (r Record) matches(cert *x509.Certificate) bool {
	data := cert.Raw
	if r.Selector == 1 {
		data = cert.RawSubjectPublicKeyInfo
	}
	switch r.Match {
	case 1:
		sum := sha256.Sum256(data)
		data = sum[:]
	case 2:
		sum := sha512.Sum512(data)
		data = sum[:]
	}
	return bytes.Equal(r.Data, data)
}

// Verify judges the chain that a host showed, its own certificate first, by the usable ones of the
// records. DANE-EE binds the key alone; name and dates do not count (RFC 7672 section 3.1.1).
// DANE-TA wants a valid chain from the authority to a certificate for one of the names (section
// 3.1.2, 3.2.2). The error wraps ErrMismatch, or is what x509 says of the chain.
func Verify(records []Record, chain []*x509.Certificate, names []string, now time.Time) error {
	if len(chain) == 0 {
		return ErrMismatch
	}
	roots, found := x509.NewCertPool(), false
	for _, r := range records {
		switch {
		case !r.Usable():
		case r.Usage == UsageEE && r.matches(chain[0]):
			return nil
		case r.Usage == UsageTA:
			for _, cert := range r.authorities(chain) {
				roots.AddCert(cert)
				found = true
			}
		}
	}
	if !found {
		return ErrMismatch
	}
	return verifyChain(chain, roots, names, now)
}

// authorities are the certificates that a DANE-TA record names: of the chain, or in the record
// itself.
func (r Record) authorities(chain []*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, cert := range chain {
		if r.matches(cert) {
			out = append(out, cert)
		}
	}
	if r.Selector == 0 && r.Match == 0 && out == nil {
		if cert, err := x509.ParseCertificate(r.Data); err == nil {
			out = append(out, cert)
		}
	}
	return out
}

func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, names []string, now time.Time) error {
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: now}
	for _, cert := range chain[1:] {
		opts.Intermediates.AddCert(cert)
	}
	err := error(ErrMismatch)
	for _, name := range names {
		opts.DNSName = name
		if _, err = chain[0].Verify(opts); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the certificate does not chain to an authority of the TLSA records: %w", err)
}
