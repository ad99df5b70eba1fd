// Package builtin keeps the zones that Mailstead serves itself and answers queries from them (RFC
// 1034 section 4.3.2). It does not know where zones are stored, who asks, or over what transport.
//
// Where things are:
//   - zone.go: a zone and its records. rr.go: records as text. zones.go: the zones that are served.
//   - answer.go: what a query is answered. denial.go, minimal.go: names that do not exist.
//   - sign.go: DNSSEC signatures. key.go: the key of a zone.
//   - transfer.go, tsig.go: zone transfers. notify.go, notify_sender.go: NOTIFY to servers that
//     copy zones. catalog.go: the catalog of zones.
//   - provider.go: zones of Mailstead itself as a DNS provider.
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
	soaTTL      = 3600 // seconds; for the SOA, and for NS records from Options
	negativeTTL = 300  // seconds that a resolver may cache a negative answer (RFC 2308)
	// delegationTTL is the TTL of DS, in seconds. A delegated zone with a new key is unreachable
	// for validating resolvers for up to this time.
	delegationTTL = 300
	refresh       = 3600   // seconds; this and the next two are timers for secondaries
	retry         = 600    // seconds
	expire        = 604800 // seconds
	maxTTL        = 1<<31 - 1
)

// Options are the properties of a zone apart from its records.
type Options struct {
	Nameservers []string // the zone's name servers; the first is the SOA's primary
	Hostmaster  string   // an email address; "": hostmaster@ the origin
	Serial      uint32   // of the SOA; must rise with each change (RFC 1982)
	Delegations []Delegation
	Key         *Key             // nil: the zone is not signed
	Now         func() time.Time // nil: time.Now
}

// A Delegation is a zone below this one with its own name servers. Records at and below its name
// are not served here.
type Delegation struct {
	Name        string // as Record.Name
	Nameservers []string
	Key         PublicKey // nil: the delegated zone is not signed
}

// Zone is a zone that can answer queries. Its records never change, and its signatures are made
// when first needed, under a lock, so any number of goroutines may use it.
type Zone struct {
	Origin   string // the domain, lower-case, without the trailing dot
	apex     string // Origin with a trailing dot
	nodes    map[string]*node
	chain    chain
	cuts     bool // there are delegations
	soa      *rrset
	negative []dns.RR // the SOA with the TTL of a negative answer
	signing  *signing // nil: not signed
	denied   denials
	records  []dnsprov.Record // the records that a Provider made it from
}

// node holds the records of a name. A name that only has names below it, such as _domainkey, has no
// sets.
type node struct {
	sets []*rrset
	nsec *rrset // the NSEC for transfers; only if the zone is signed and the node has sets
	cut  bool   // another zone begins here

	own        atomic.Pointer[rrset] // the NSEC of the name for answers, made when first needed
	noWildcard atomic.Pointer[rrset] // the NSEC that proves that no wildcard is below the name, made when first needed
}

// name returns the name of a node, which must have sets.
func (n *node) name() string { return n.sets[0].rrs[0].Header().Name }

// rrset holds the records of one type. glue holds the addresses, in this zone, of the hosts that
// the records name.
type rrset struct {
	typ       uint16
	rrs       []dns.RR
	hosts     []*rrset // the sets that glue is from
	glue      []dns.RR
	unsigned  bool // NS records of a delegation, which this zone must not sign (RFC 4035 section 2.2)
	signature atomic.Pointer[signature]
}

// NewZone makes the zone of origin, a Record.Name, from records. It refuses records outside the
// origin, values that do not fit their type, a CNAME beside any other record, a wildcard that is
// not the first label, and a zone without name servers.
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

// zone makes the zone from the collected nodes.
func (b *builder) zone(origin string, o Options) *Zone {
	z := &Zone{
		Origin: origin, apex: b.apex, nodes: b.nodes, chain: newChain(b.nodes), cuts: len(o.Delegations) > 0,
		soa: b.nodes[b.apex].set(dns.TypeSOA),
	}
	negative := dns.Copy(z.soa.rrs[0])
	negative.Header().Ttl = negativeTTL
	z.negative = []dns.RR{negative}
	if o.Key == nil {
		return z
	}
	z.chain.link(b.apex)
	z.signing = &signing{apex: b.apex, key: o.Key, tag: o.Key.public.Tag(), now: o.Now}
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
		return errors.New("a wildcard is a whole label, and the first (RFC 4592 section 2.1.1)")
	case r.Type == "NS" && name != b.apex:
		return errors.New("a part of the zone cannot be delegated")
	}
	b.put(rr)
	return nil
}

// put adds a record under its name, without duplicates. All records of a set get the smallest TTL
// (RFC 2181 section 5.2).
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

// node returns the node of name. It creates the node, and those between it and the apex, which
// exist without records of their own (RFC 4592 section 2.2.2).
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
		// A dot in the local part must be escaped, since it does not separate labels (RFC 1035
		// sections 5.1 and 8).
		box = strings.ReplaceAll(o.Hostmaster[:at], ".", `\.`) + "." + fqdn(o.Hostmaster[at+1:])
	}
	return canonical(&dns.SOA{
		Hdr: header(b.apex, dns.TypeSOA, soaTTL), Ns: fqdn(o.Nameservers[0]), Mbox: box,
		Serial: o.Serial, Refresh: refresh, Retry: retry, Expire: expire, Minttl: negativeTTL,
	})
}

// delegate makes a part of the zone a delegation.
func (b *builder) delegate(d Delegation) error {
	name := fqdn(d.Name)
	if !dns.IsSubDomain(b.apex, name) || name == b.apex {
		return errors.New("it is not below the zone")
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
		return errors.New("it has no name servers")
	}
	cut.cut, cut.set(dns.TypeNS).unsigned = true, true
	if d.Key != nil {
		ds := d.Key.record(name).ToDS(dns.SHA256)
		ds.Hdr = header(name, dns.TypeDS, delegationTTL)
		b.put(ds)
	}
	return nil
}

// finish checks the rules that need the whole zone, and ties host names to their addresses.
func (b *builder) finish() error {
	for name, n := range b.nodes {
		if cname := n.set(dns.TypeCNAME); cname != nil && (len(n.sets) > 1 || len(cname.rrs) > 1) {
			return fmt.Errorf("%s: a CNAME must be alone at its name (RFC 1034 section 3.6.2)", name)
		}
		for _, set := range n.sets {
			b.linkAddresses(set)
		}
	}
	return nil
}

// linkAddresses adds to a set the addresses, in this zone, of the hosts that it names.
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

// set returns the records of one type, or nil if there are none.
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
