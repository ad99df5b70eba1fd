package core

import (
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/store"
)

// ObsoleteDMARC gives the tags without effect, such as pct=, of the DMARC record of a domain: the
// owner's own one, or the one that was found in the DNS.
func ObsoleteDMARC(d *store.Domain) []string {
	if d.DMARC != "" {
		return obsoleteTags(d.DMARC)
	}
	for _, c := range d.Checks {
		if c.Purpose == dnsprov.PurposeDMARC && c.Actual != "" {
			return obsoleteTags(c.Actual)
		}
	}
	return nil
}

func obsoleteTags(record string) []string {
	tags := dmarc.Obsolete(strings.Trim(record, `"`))
	for i := range tags {
		tags[i] += "="
	}
	return tags
}
