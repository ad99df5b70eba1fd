// Package builtin keeps the zones that Mailstead serves itself and answers queries from them (RFC 1034 section 4.3.2).
// It does not know where zones are stored, who asks, or over what transport.
package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

const (
	soaTTL      = 3600   // seconds, of SOA and of name servers that no record names
	negativeTTL = 300    // seconds that a resolver may remember that there is nothing (RFC 2308)
	refresh     = 3600   // seconds; this and the next two are for secondaries
	retry       = 600    // seconds
	expire      = 604800 // seconds
	maxTTL      = 1<<31 - 1
)

// Options are what a zone has beside its records.
type Options struct {
	Nameservers []string // the zone's name servers; the first is the SOA's primary
	Hostmaster  string   // an email address; empty for hostmaster at the origin
	Serial      uint32   // of the SOA; larger at each change (RFC 1982)
}

// Zone is one zone, ready to answer. It never changes after it is made, so any number of goroutines may ask it.
type Zone struct {
	Origin   string // the domain, lower-case, without the trailing dot
	nodes    map[string]*node
	negative []dns.RR         // the SOA as it goes with "there is nothing"
	records  []dnsprov.Record // what a Provider made it from
}

// node is what a name has. A name that only leads to others, as _domainkey, has no sets.
type node struct{ sets []rrset }

// rrset holds the records of one type; glue are the addresses, in this zone, of the hosts that they name.
type rrset struct {
	typ  uint16
	rrs  []dns.RR
	glue []dns.RR
}

// NewZone makes the zone of origin, a Record.Name, from records. It refuses records outside of the origin, values that
// do not fit their type, a CNAME beside anything else, wildcards, and a zone without name servers.
func NewZone(origin string, records []dnsprov.Record, o Options) (*Zone, error) {
	origin = strings.ToLower(strings.TrimSuffix(origin, "."))
	b := &builder{apex: dns.Fqdn(origin), nodes: make(map[string]*node)}
	for _, ns := range o.Nameservers {
		records = append(slices.Clip(records), dnsprov.Record{Name: origin, Type: "NS", Value: ns, TTL: soaTTL})
	}
	for _, r := range records {
		if err := b.add(r); err != nil {
			return nil, fmt.Errorf("zone %s: %s %s: %w", origin, r.Name, r.Type, err)
		}
	}
	if len(o.Nameservers) == 0 {
		return nil, fmt.Errorf("zone %s: no name servers", origin)
	}
	soa, err := b.soa(o)
	if err != nil {
		return nil, fmt.Errorf("zone %s: SOA: %w", origin, err)
	}
	b.put(soa)
	if err := b.finish(); err != nil {
		return nil, fmt.Errorf("zone %s: %w", origin, err)
	}
	negative := dns.Copy(soa)
	negative.Header().Ttl = negativeTTL
	return &Zone{Origin: origin, nodes: b.nodes, negative: []dns.RR{negative}}, nil
}

// builder collects the nodes of a zone that is being made.
type builder struct {
	apex  string // with the trailing dot
	nodes map[string]*node
}

func (b *builder) add(r dnsprov.Record) error {
	rr, err := newRR(r)
	if err != nil {
		return err
	}
	name := rr.Header().Name
	switch {
	case !dns.IsSubDomain(b.apex, name):
		return errors.New("the name is outside of the zone")
	case slices.Contains(dns.SplitDomainName(name), "*"):
		return errors.New("wildcards are not served")
	case r.Type == "NS" && name != b.apex:
		return errors.New("a part of the zone cannot be delegated")
	}
	b.put(rr)
	return nil
}

// put files a record under its name, once. All records of a set get the smallest TTL (RFC 2181 section 5.2).
func (b *builder) put(rr dns.RR) {
	set := b.node(rr.Header().Name).grow(rr.Header().Rrtype)
	for _, have := range set.rrs {
		ttl := min(have.Header().Ttl, rr.Header().Ttl)
		have.Header().Ttl, rr.Header().Ttl = ttl, ttl
	}
	if !slices.ContainsFunc(set.rrs, func(have dns.RR) bool { return dns.IsDuplicate(have, rr) }) {
		set.rrs = append(set.rrs, rr)
	}
}

// node returns the node of name, and makes it and those between it and the apex, which exist without records of their
// own (RFC 4592 section 2.2.2).
func (b *builder) node(name string) *node {
	for at := name; ; {
		if b.nodes[at] == nil {
			b.nodes[at] = &node{}
		}
		next, end := dns.NextLabel(at, 0)
		if at == b.apex || end {
			return b.nodes[name]
		}
		at = at[next:]
	}
}

func (b *builder) soa(o Options) (dns.RR, error) {
	box := "hostmaster." + b.apex
	if o.Hostmaster != "" {
		at := strings.LastIndexByte(o.Hostmaster, '@')
		if at < 0 {
			return nil, fmt.Errorf("hostmaster %q is not an email address", o.Hostmaster)
		}
		// A dot in the local part is not one between labels (RFC 1035 section 5.1, 8).
		box = strings.ReplaceAll(o.Hostmaster[:at], ".", `\.`) + "." + fqdn(o.Hostmaster[at+1:])
	}
	return canonical(&dns.SOA{
		Hdr: header(b.apex, dns.TypeSOA, soaTTL), Ns: fqdn(o.Nameservers[0]), Mbox: box,
		Serial: o.Serial, Refresh: refresh, Retry: retry, Expire: expire, Minttl: negativeTTL,
	})
}

// finish checks what only the whole zone shows and ties hosts to their addresses.
func (b *builder) finish() error {
	for name, n := range b.nodes {
		if cname := n.set(dns.TypeCNAME); cname != nil && (len(n.sets) > 1 || len(cname.rrs) > 1) {
			return fmt.Errorf("%s: a CNAME must be alone at its name (RFC 1034 section 3.6.2)", name)
		}
		for i := range n.sets {
			n.sets[i].glue = b.glue(n.sets[i].rrs)
		}
	}
	return nil
}

func (b *builder) glue(rrs []dns.RR) []dns.RR {
	var out []dns.RR
	for _, rr := range rrs {
		target := ""
		switch rr := rr.(type) {
		case *dns.NS:
			target = rr.Ns
		case *dns.MX:
			target = rr.Mx
		}
		host := b.nodes[target]
		if host == nil {
			continue
		}
		for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if set := host.set(typ); set != nil {
				out = append(out, set.rrs...)
			}
		}
	}
	return out
}

// set returns the records of one type, or nil.
func (n *node) set(typ uint16) *rrset {
	for i := range n.sets {
		if n.sets[i].typ == typ {
			return &n.sets[i]
		}
	}
	return nil
}

func (n *node) grow(typ uint16) *rrset {
	if set := n.set(typ); set != nil {
		return set
	}
	n.sets = append(n.sets, rrset{typ: typ})
	return &n.sets[len(n.sets)-1]
}
