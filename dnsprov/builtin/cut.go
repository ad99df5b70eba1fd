package builtin

import (
	"errors"
	"maps"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// A cut is a delegation of a name (RFC 1034 section 4.2).
type cut struct {
	served bool            // whether this server serves the zone below; that zone has all records of its names
	hosts  map[string]bool // the names of the nameservers
}

// addServedCut records a delegation from Options.
func (b *builder) addServedCut(d Delegation) error {
	name := fqdn(d.Name)
	if !dns.IsSubDomain(b.apex, name) || name == b.apex {
		return errors.New("the name is not below the zone")
	}
	b.cuts[name] = &cut{served: true}
	return nil
}

// addCut records the delegation by an NS record.
func (b *builder) addCut(ns *dns.NS) {
	c := b.cuts[ns.Hdr.Name]
	if c == nil {
		c = &cut{hosts: map[string]bool{}}
		b.cuts[ns.Hdr.Name] = c
	}
	if !c.served {
		c.hosts[ns.Ns] = true
	}
}

// cutOf returns the name of the delegation at or above a name that is nearest to the apex, or "" if
// there is none.
func (b *builder) cutOf(name string) string {
	top := ""
	if len(b.cuts) == 0 {
		return top
	}
	for at, end := 0, false; !end && len(name)-at > len(b.apex); at, end = dns.NextLabel(name, at) {
		if b.cuts[name[at:]] != nil {
			top = name[at:]
		}
	}
	return top
}

// putGlue adds an address at or below a delegation. It is no part of the zone, and only in
// referrals and transfers.
func (b *builder) putGlue(rr dns.RR) {
	name := rr.Header().Name
	if b.glue[name] == nil {
		b.glue[name] = &node{}
	}
	set := b.glue[name].ensureSet(rr.Header().Rrtype)
	set.unsigned = true
	b.putInSet(set, rr)
}

// markCuts marks the nodes at which names are delegated.
func (b *builder) markCuts() {
	for name := range b.cuts {
		if n := b.nodes[name]; n != nil && b.cutOf(name) == name {
			n.delegated, n.set(dns.TypeNS).unsigned = true, true
		}
	}
}

// sortedGlue returns the sets of the glue in the order of their names.
func (b *builder) sortedGlue() []*rrset {
	var out []*rrset
	for _, name := range slices.Sorted(maps.Keys(b.glue)) {
		out = append(out, b.glue[name].sets...)
	}
	return out
}

// delegate adds the NS and DS records of a delegation from Options. It adds none below another
// delegation.
func (b *builder) delegate(d Delegation) error {
	name := fqdn(d.Name)
	if b.cutOf(name) != name {
		return nil
	}
	if len(d.Nameservers) == 0 {
		return errors.New("the delegation has no nameservers")
	}
	for _, ns := range d.Nameservers {
		rr, err := newRR(dnsprov.Record{Name: d.Name, Type: "NS", Value: ns, TTL: soaTTL})
		if err != nil {
			return err
		}
		b.put(rr)
	}
	if d.Key != nil {
		ds := d.Key.record(name).ToDS(dns.SHA256)
		ds.Hdr = header(name, dns.TypeDS, delegationTTL)
		b.put(ds)
	}
	return nil
}
