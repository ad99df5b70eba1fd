package core

import (
	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/store"
)

// ObsoleteDMARC returns the tags without effect, such as pct=, in a domain's DMARC record. It reads
// the record that the owner has set or, if there is none, the record in the DNS.
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
