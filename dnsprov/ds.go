package dnsprov

import (
	"context"
	"fmt"
	"strings"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/lookup"
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

// LookupDS asks which keys the parent of a domain names, past what the client keeps: none for a
// domain that is not there too. An error says that the look-up failed.
func LookupDS(ctx context.Context, c *lookup.Client, domain string) ([]DS, error) {
	m, err := c.Ask(lookup.Fresh(ctx), domain, dns.TypeDS, false)
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
