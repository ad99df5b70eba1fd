// Package builtin has the zones of Mailstead's own authoritative name server in memory, and answers
// queries from them (RFC 1034 section 4.3.2). It does not know where zones are stored, or how
// queries arrive.
//
// Where things are:
//   - zone.go: a zone and its records. rr.go: conversion of records. zones.go: the served zones.
//   - answer.go: answers to queries. denial.go, minimal.go: proofs that names do not exist.
//   - sign.go: DNSSEC signatures. key.go: the key of a zone.
//   - transfer.go, tsig.go: zone transfers. notify.go, notify_sender.go: NOTIFY to servers that
//     copy zones. catalog.go: the catalog of zones.
//   - provider.go: the zones as a dnsprov.Provider.
package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

const (
	soaTTL      = 3600 // TTL of the SOA and of NS records from Options, in seconds
	negativeTTL = 300  // TTL of negative answers in seconds (RFC 2308)
	// delegationTTL is the TTL of DS records in seconds. After a key change, validating resolvers
	// may fail to resolve the delegated zone for this time.
	delegationTTL = 300
	soaRefresh    = 3600      // SOA refresh in seconds: how often secondaries check for changes
	soaRetry      = 600       // SOA retry in seconds: when secondaries check again after an error
	soaExpire     = 604800    // SOA expire in seconds: when secondaries drop a zone without contact
	maxTTL        = 1<<31 - 1 // maximum TTL in seconds (RFC 2181 section 8)
)

// Options are the properties of a zone except its records.
type Options struct {
	Nameservers []string // host names; the first is the primary in the SOA
	Hostmaster  string   // an email address; "" means hostmaster@ORIGIN
	Serial      uint32   // serial of the SOA; must rise with each change (RFC 1982)
	Delegations []Delegation
	Key         *Key             // nil if the zone is not signed
	Now         func() time.Time // nil means time.Now
}

// A Delegation is a subdomain of a zone that has name servers of its own. The zone does not serve
// records at and below its name.
type Delegation struct {
	Name        string // in the form of Record.Name
	Nameservers []string
	Key         PublicKey // nil if the subdomain is not signed
}

// Zone is a zone that can answer queries. Its records never change. It makes signatures when they
// are first needed. It is safe for concurrent use.
type Zone struct {
	Origin         string           // the domain, lower-case, without the trailing dot
	apex           string           // Origin with a trailing dot
	nodes          map[string]*node // by name, in canonical form with a trailing dot
	chain          nsecChain
	hasDelegations bool
	soa            *rrset
	negative       []dns.RR // the SOA with the TTL of a negative answer
	signing        *signer  // nil if the zone is not signed
	denials        denialCache
	records        []dnsprov.Record // the records from which a Provider made the zone
}

// node has the record sets of a name. A name that only has names below it, such as _domainkey, has
// no sets.
type node struct {
	sets      []*rrset
	nsec      *rrset // the NSEC for transfers; nil if the zone is not signed or there are no sets
	delegated bool   // whether the name is that of a delegated zone

	own        atomic.Pointer[rrset] // the NSEC of the name for answers; nil until it is needed
	noWildcard atomic.Pointer[rrset] // the NSEC of noWildcardNSEC; nil until it is needed
}

// name returns the name of a node, which must have sets.
func (n *node) name() string { return n.sets[0].rrs[0].Header().Name }

// rrset is a record set: the records of one name and type.
type rrset struct {
	typ       uint16
	rrs       []dns.RR
	hosts     []*rrset // address sets, in this zone, of the hosts that rrs name
	glue      []dns.RR // all records of hosts
	unsigned  bool     // whether the set must not be signed, as NS of a delegation (RFC 4035 section 2.2)
	signature atomic.Pointer[signature]
}

// NewZone makes the zone of origin from records. It returns an error for records outside of the
// zone, values that are invalid for their type, a CNAME beside other records of the name, a
// wildcard that is not the first label, and if there are no name servers.
func NewZone(origin string, records []dnsprov.Record, o Options) (*Zone, error) {
	origin = strings.ToLower(strings.TrimSuffix(origin, "."))
	b := &builder{apex: dns.Fqdn(origin), nodes: make(map[string]*node)}
	for _, ns := range o.Nameservers {
		records = append(slices.Clip(records), dnsprov.Record{Name: origin, Type: "NS", Value: ns, TTL: soaTTL})
	}
	for _, r := range records {
		if err := b.add(r); err != nil {
			return nil, fmt.Errorf("zone %s: record %s %s: %w", origin, r.Name, r.Type, err)
		}
	}
	if len(o.Nameservers) == 0 {
		return nil, fmt.Errorf("zone %s has no name servers", origin)
	}
	soa, err := b.soa(o)
	if err != nil {
		return nil, fmt.Errorf("zone %s: SOA record: %w", origin, err)
	}
	b.put(soa)
	for _, d := range o.Delegations {
		if err := b.delegate(d); err != nil {
			return nil, fmt.Errorf("zone %s: delegation of %s: %w", origin, d.Name, err)
		}
	}
	if o.Key != nil {
		b.put(o.Key.public.record(b.apex))
	}
	if err := b.finish(); err != nil {
		return nil, fmt.Errorf("zone %s: %w", origin, err)
	}
	return b.zone(origin, o), nil
}

// zone returns the zone of the collected nodes.
func (b *builder) zone(origin string, o Options) *Zone {
	z := &Zone{
		Origin: origin, apex: b.apex, nodes: b.nodes, chain: newNSECChain(b.nodes), hasDelegations: len(o.Delegations) > 0,
		soa: b.nodes[b.apex].set(dns.TypeSOA),
	}
	negative := dns.Copy(z.soa.rrs[0])
	negative.Header().Ttl = negativeTTL
	z.negative = []dns.RR{negative}
	if o.Key == nil {
		return z
	}
	z.chain.addNSECs(b.apex)
	z.signing = &signer{apex: b.apex, key: o.Key, tag: o.Key.public.Tag(), now: o.Now}
	if o.Now == nil {
		z.signing.now = time.Now
	}
	return z
}

// builder collects the nodes of a new zone.
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
	case slices.Contains(dns.SplitDomainName(name)[1:], "*"):
		return errors.New("a wildcard must be the first label (RFC 4592 section 2.1.1)")
	case r.Type == "NS" && name != b.apex:
		return errors.New("a subdomain cannot be delegated by NS records")
	}
	b.put(rr)
	return nil
}

// put adds a record to the set of its name and type, unless it is a duplicate. All records of a set
// get the smallest TTL (RFC 2181 section 5.2).
func (b *builder) put(rr dns.RR) {
	set := b.node(rr.Header().Name).ensureSet(rr.Header().Rrtype)
	for _, have := range set.rrs {
		ttl := min(have.Header().Ttl, rr.Header().Ttl)
		have.Header().Ttl, rr.Header().Ttl = ttl, ttl
	}
	if !slices.ContainsFunc(set.rrs, func(have dns.RR) bool { return dns.IsDuplicate(have, rr) }) {
		set.rrs = append(set.rrs, rr)
	}
}

// node returns the node of name. If needed, it creates the node and those between it and the apex,
// which are empty nonterminals (RFC 4592 section 2.2.2).
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
			return nil, fmt.Errorf("the hostmaster %q is not an email address", o.Hostmaster)
		}
		// Escape the dots in the local part, which is one label (RFC 1035 sections 5.1 and 8).
		box = strings.ReplaceAll(o.Hostmaster[:at], ".", `\.`) + "." + fqdn(o.Hostmaster[at+1:])
	}
	return canonical(&dns.SOA{
		Hdr: header(b.apex, dns.TypeSOA, soaTTL), Ns: fqdn(o.Nameservers[0]), Mbox: box,
		Serial: o.Serial, Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: negativeTTL,
	})
}

// delegate adds a delegation, and removes the records at and below its name.
func (b *builder) delegate(d Delegation) error {
	name := fqdn(d.Name)
	if !dns.IsSubDomain(b.apex, name) || name == b.apex {
		return errors.New("the name is not below the zone")
	}
	for at := range b.nodes {
		if dns.IsSubDomain(name, at) {
			delete(b.nodes, at)
		}
	}
	for _, ns := range d.Nameservers {
		rr, err := newRR(dnsprov.Record{Name: d.Name, Type: "NS", Value: ns, TTL: soaTTL})
		if err != nil {
			return err
		}
		b.put(rr)
	}
	cut := b.nodes[name]
	if cut == nil {
		return errors.New("the delegation has no name servers")
	}
	cut.delegated, cut.set(dns.TypeNS).unsigned = true, true
	if d.Key != nil {
		ds := d.Key.record(name).ToDS(dns.SHA256)
		ds.Hdr = header(name, dns.TypeDS, delegationTTL)
		b.put(ds)
	}
	return nil
}

// finish checks that CNAME records are alone at their names, and links host names to addresses.
func (b *builder) finish() error {
	for name, n := range b.nodes {
		if cname := n.set(dns.TypeCNAME); cname != nil && (len(n.sets) > 1 || len(cname.rrs) > 1) {
			return fmt.Errorf("the CNAME of %s must be alone at its name (RFC 1034 section 3.6.2)", name)
		}
		for _, set := range n.sets {
			b.linkAddresses(set)
		}
	}
	return nil
}

// linkAddresses adds to an NS, MX or SRV set the addresses of its hosts, if they are in this zone.
func (b *builder) linkAddresses(set *rrset) {
	for _, rr := range set.rrs {
		target := ""
		switch rr := rr.(type) {
		case *dns.NS:
			target = rr.Ns
		case *dns.MX:
			target = rr.Mx
		case *dns.SRV:
			target = rr.Target
		}
		host := b.nodes[target]
		if host == nil {
			continue
		}
		for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if addresses := host.set(typ); addresses != nil && !slices.Contains(set.hosts, addresses) {
				set.hosts = append(set.hosts, addresses)
				set.glue = append(set.glue, addresses.rrs...)
			}
		}
	}
}

// set returns the record set of a type, or nil if there is none.
func (n *node) set(typ uint16) *rrset {
	for _, set := range n.sets {
		if set.typ == typ {
			return set
		}
	}
	return nil
}

func (n *node) ensureSet(typ uint16) *rrset {
	set := n.set(typ)
	if set == nil {
		set = &rrset{typ: typ}
		n.sets = append(n.sets, set)
	}
	return set
}
