// Package dane looks up TLSA records with DNSSEC, and verifies certificates of mail hosts by them
// (RFC 7672). It does not know how mail is sent, nor what a caller does with a result.
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

// Certificate usages that can be used for mail (RFC 7672 section 3.1). Records with other usages
// count as unusable.
const (
	UsageTA = 2 // an authority that must have issued the certificate of the host
	UsageEE = 3 // the certificate or key of the host itself
)

// ErrMismatch is returned by Verify if no record matches the certificate of the host.
var ErrMismatch = errors.New("no TLSA record matches the certificate")

// A Record is one TLSA record (RFC 6698 section 2.1).
type Record struct {
	Usage, Selector, Match uint8
	Data                   []byte
}

// String returns the record as its data stands in a zone file.
func (r Record) String() string {
	return fmt.Sprintf("%d %d %d %s", r.Usage, r.Selector, r.Match, hex.EncodeToString(r.Data))
}

// ParseRecord parses the form that String returns.
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

// Usable reports whether the record can be used to verify mail hosts: its usage is DANE-TA or
// DANE-EE, and its parameters are valid.
func (r Record) Usable() bool {
	size := map[uint8]int{1: sha256.Size, 2: sha512.Size}
	known := (r.Usage == UsageTA || r.Usage == UsageEE) && r.Selector <= 1 && r.Match <= 2
	return known && len(r.Data) > 0 && (r.Match == 0 || len(r.Data) == size[r.Match])
}

// matches reports whether the record matches a certificate.
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

// Verify verifies the certificate chain of a host by the usable records. The first certificate of
// chain must be that of the host. A DANE-EE record verifies only the key, not the name or dates
// (RFC 7672 section 3.1.1). A DANE-TA record requires a valid chain from an authority to a
// certificate for one of the names (sections 3.1.2 and 3.2.2). Verify returns ErrMismatch, or an
// error that wraps that of x509 about the chain.
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

// authorities returns the certificates that match a DANE-TA record: those of the chain, or the one
// in the record itself.
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
	return fmt.Errorf("the certificate is not issued by an authority in the TLSA records: %w", err)
}
