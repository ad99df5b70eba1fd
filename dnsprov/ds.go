package dnsprov

import (
	"context"
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

// DS says at a parent which key signs a zone (RFC 4034 section 5).
type DS struct {
	KeyTag     uint16
	Algorithm  uint8
	DigestType uint8
	Digest     string // lower-case hexadecimal
}

// String is the data of the record in a zone file.
func (d DS) String() string {
	return fmt.Sprintf("%d %d %d %s", d.KeyTag, d.Algorithm, d.DigestType, d.Digest)
}

// LookupDS asks the resolver at addr, host:port or a host for port 53, which keys the parent of a
// domain names: none for a domain that is not there too. addr "" is the system's first resolver. An
// error says that the look-up failed.
func LookupDS(ctx context.Context, addr, domain string) ([]DS, error) {
	m, err := exchange(ctx, addr, dns.Fqdn(domain), dns.TypeDS)
	if err != nil {
		return nil, fmt.Errorf("look up DS of %s: %w", domain, err)
	}
	var out []DS
	for _, rr := range m.Answer {
		if ds, ok := rr.(*dns.DS); ok && hostName(ds.Hdr.Name) == hostName(domain) {
			out = append(out, DS{KeyTag: ds.KeyTag, Algorithm: ds.Algorithm, DigestType: ds.DigestType, Digest: strings.ToLower(ds.Digest)})
		}
	}
	return out, nil
}
