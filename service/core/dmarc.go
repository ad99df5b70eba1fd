package core

import (
	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/store"
)

// ObsoleteDMARC gives the tags without effect, such as pct=, of the DMARC record of a domain: the
// owner's own one, or the one that was found in the DNS.
func ObsoleteDMARC(d *store.Domain) []string {
	record := d.DMARC
	for _, c := range d.Checks {
		if record == "" && c.Purpose == dnsprov.PurposeDMARC {
			record = c.Actual
		}
	}
	tags := dmarc.Obsolete(record)
	for i := range tags {
		tags[i] += "="
	}
	return tags
}
