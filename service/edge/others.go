package edge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	maxForeignMX        = 20              // MX records of others that are noted in a domain
	maxPolicy           = 1024            // bytes of a DMARC record that are noted in a domain
	policyLookupTimeout = 5 * time.Second // for the policy behind a CNAME
)

// isPolicy reports whether a record is a DMARC record of a domain, or an alias in its place.
func isPolicy(d *store.Domain, r dnsprov.Record) bool {
	if r.Name != "_dmarc."+d.Name {
		return false
	}
	return r.Type == "CNAME" || r.Type == "TXT" && dmarc.IsRecord(dnsprov.UnquoteText(r.Value))
}

// clipPolicy shortens the text of a DMARC record, as it is noted in a domain.
func clipPolicy(text string) string {
	if len(text) > maxPolicy {
		text = strings.ToValidUTF8(text[:maxPolicy], "")
	}
	return text
}

// foreignPolicy returns the DMARC record of others at the provider; "" if there is none. valid
// reports whether it can be the policy of the domain: there is one record, which all receivers
// accept.
func (w *zoneSync) foreignPolicy(have []dnsprov.Record) (text string, valid bool) {
	var policies []dnsprov.Record
	for _, h := range have {
		if h.Purpose == "" && isPolicy(w.d, h) {
			policies = append(policies, h)
		}
	}
	if len(policies) == 0 {
		return "", false
	}
	text = strings.TrimSpace(dnsprov.UnquoteText(policies[0].Value))
	if policies[0].Type == "CNAME" {
		ctx, cancel := context.WithTimeout(w.ctx, policyLookupTimeout)
		defer cancel()
		texts, err := w.s.Resolver.LookupTXT(ctx, policies[0].Name+".")
		if err != nil {
			w.s.LogOf(ctx).Debug("could not look up the DMARC policy behind an alias", "domain", w.d.Name, "error", err)
		}
		texts = slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return !dmarc.IsRecord(t) })
		if len(texts) != 1 {
			return clipPolicy(text), false
		}
		text = strings.TrimSpace(texts[0])
	}
	return clipPolicy(text), len(policies) == 1 && dmarc.Check(text) == nil
}

// followPolicy notes the DMARC record of others at the provider in the domain, and makes it the
// policy of the domain unless the owner has chosen another. If it is gone, the policy stays and
// becomes a record of ours. It reports whether that changes anything.
func followPolicy(d *store.Domain, text string, valid bool, now time.Time) (changed bool) {
	follows := d.DMARC == "" || d.DMARC == d.ForeignDMARC
	changed = d.ForeignDMARC != text
	d.ForeignDMARC = text
	if valid && follows && d.DMARC != text {
		d.DMARC, d.DMARCAt, changed = text, now, true
	}
	return changed
}

// adoptPolicy stores the DMARC record of others at the provider, see followPolicy.
func (w *zoneSync) adoptPolicy(have []dnsprov.Record) error {
	if w.moving {
		return nil
	}
	text, valid := w.foreignPolicy(have)
	if !followPolicy(w.d, text, valid, w.s.Now()) {
		return nil
	}
	return w.s.Store.Update(func(tx *store.Tx) error {
		d, err := w.current(tx)
		if err != nil {
			return err
		}
		followPolicy(d, text, valid, tx.Now())
		w.d.DMARC, w.d.DMARCAt = d.DMARC, d.DMARCAt // the owner may have chosen another in the meantime
		return store.Domains.Put(tx, d)
	})
}

// otherMX returns the MX records of others at a domain itself that are not wanted.
func otherMX(d *store.Domain, have, want []dnsprov.Record) []dnsprov.Record {
	var out []dnsprov.Record
	for _, h := range have {
		if h.Purpose == "" && h.Type == "MX" && h.Name == d.Name && !slices.ContainsFunc(want, h.Same) {
			out = append(out, h)
		}
	}
	return out
}

// storedMX converts MX records to the form in which a domain has them, the most preferred first.
func storedMX(records []dnsprov.Record) []store.MXRecord {
	var out []store.MXRecord
	for _, r := range records[:min(len(records), maxForeignMX)] {
		out = append(out, store.MXRecord{Host: r.Value, Priority: r.Priority, TTL: r.TTL})
	}
	slices.SortStableFunc(out, func(a, b store.MXRecord) int { return int(a.Priority) - int(b.Priority) })
	return out
}

// besideOthers returns the records that a zone gets if conflicts leave out some of the wanted ones,
// and fits are the rest. If MX records of others are in the place of ours, one of ours that is
// there stays, since mail would be lost without it, and there is no MTA-STS policy, which would
// forbid the hosts of others.
func besideOthers(fits, have []dnsprov.Record, conflicts []*dnsprov.Conflict) []dnsprov.Record {
	at := slices.IndexFunc(conflicts, func(c *dnsprov.Conflict) bool { return c.Want.Purpose == dnsprov.PurposeMX })
	if at < 0 {
		return fits
	}
	ours := conflicts[at].Want
	fits = slices.DeleteFunc(slices.Clone(fits), func(r dnsprov.Record) bool { return r.Purpose == dnsprov.PurposeMTASTS })
	if slices.ContainsFunc(have, func(h dnsprov.Record) bool { return h.Purpose == dnsprov.PurposeMX && h.Same(ours) }) {
		fits = append(fits, ours)
	}
	return fits
}

// ChoosePolicy sets the DMARC policy that the owner of a domain has chosen; "" is the default. It
// returns zone_conflict if there is a DMARC record of others at its DNS provider with another
// policy, unless that is to be replaced. The caller writes the domain.
func ChoosePolicy(d *store.Domain, value string, replace bool, now time.Time) error {
	if d.AtEdge() && d.ForeignDMARC != "" && value != d.ForeignDMARC {
		where := fmt.Sprintf("The DMARC record of %s at %s is not Mailstead's, and stays as it is: %q.", d.Name, Name(d.DNSProvider), d.ForeignDMARC)
		switch {
		case value == "":
			return core.Errorf("zone_conflict", "%s Remove it there, then try again; or set another policy with set_dmarc and replace.", where)
		case !replace:
			return core.Errorf("zone_conflict", "%s Change it there, or give replace: it is then kept in replaced of the domain.", where)
		}
		d.ReplaceDMARC = true
	}
	d.DMARC, d.DMARCAt = value, now
	if value == "" {
		d.DMARCAt = time.Time{}
	}
	return nil
}
