package dnsprov

import (
	"context"
	"fmt"
	"strings"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/lookup"
)

// DS is the data of a DS record, with which the parent zone confirms the key of a signed zone (RFC
// 4034 section 5).
type DS struct {
	KeyTag     uint16
	Algorithm  uint8
	DigestType uint8
	Digest     string // lower-case hexadecimal
}

// String returns the data of the record as in a zone file.
func (d DS) String() string {
	return fmt.Sprintf("%d %d %d %s", d.KeyTag, d.Algorithm, d.DigestType, d.Digest)
}

// DSOf returns the data of a DS record of the wire.
func DSOf(rr *dns.DS) DS {
	return DS{KeyTag: rr.KeyTag, Algorithm: rr.Algorithm, DigestType: rr.DigestType, Digest: strings.ToLower(rr.Digest)}
}

// LookupDS looks up the DS records of a domain. It bypasses the lookup cache. It returns nil if
// there are none; an error means that the lookup failed.
func LookupDS(ctx context.Context, c *lookup.Client, domain string) ([]DS, error) {
	m, err := c.Ask(lookup.Fresh(ctx), domain, dns.TypeDS, false)
	if err != nil {
		return nil, fmt.Errorf("look up DS of %s: %w", domain, err)
	}
	var out []DS
	for _, rr := range m.Answer {
		if ds, ok := rr.(*dns.DS); ok && hostName(ds.Hdr.Name) == hostName(domain) {
			out = append(out, DSOf(ds))
		}
	}
	return out, nil
}
