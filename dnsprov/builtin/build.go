package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// fewRecords is up to how many records of a set are compared one by one.
const fewRecords = 8

// NewZone makes the zone of origin from records, of dnsprov.CustomTypes. NS records below the
// origin delegate their name: at that name the zone has only NS and DS records, and at and below it
// the addresses of the hosts in these NS records (glue).
//
// NewZone returns an error for records outside of the zone, values that are invalid for their type,
// a CNAME beside other records of the name, a wildcard that is not the first label, other records
// at or below a delegation, a DS without NS, and if there are no nameservers. It leaves out
// managed records at or below a delegation, so that they cannot make a zone invalid later.
func NewZone(origin string, records []dnsprov.Record, o Options) (*Zone, error) {
	origin = strings.ToLower(strings.TrimSuffix(origin, "."))
	b := &builder{
		apex: dns.Fqdn(origin), nodes: make(map[string]*node, len(records)),
		cuts: map[string]*cut{}, glue: map[string]*node{}, seen: map[*rrset]map[string]bool{},
	}
	for _, ns := range o.Nameservers {
		records = append(slices.Clip(records), dnsprov.Record{Name: origin, Type: "NS", Value: ns, TTL: soaTTL})
	}
	rrs := make([]dns.RR, len(records))
	for i, r := range records {
		rr, err := b.convert(r)
		if err != nil {
			return nil, recordError(origin, r, err)
		}
		rrs[i] = rr
	}
	for _, d := range o.Delegations {
		if err := b.addServedCut(d); err != nil {
			return nil, fmt.Errorf("zone %s: delegation of %s: %w", origin, d.Name, err)
		}
	}
	for _, rr := range rrs {
		if ns, ok := rr.(*dns.NS); ok && ns.Hdr.Name != b.apex {
			b.addCut(ns)
		}
	}
	for i, rr := range rrs {
		if err := b.add(rr, records[i].Purpose); err != nil {
			return nil, recordError(origin, records[i], err)
		}
	}
	if len(o.Nameservers) == 0 {
		return nil, fmt.Errorf("zone %s has no nameservers", origin)
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

func recordError(origin string, r dnsprov.Record, err error) error {
	return fmt.Errorf("zone %s: record %s %s: %w", origin, r.Name, r.Type, err)
}

// zone returns the zone of the collected nodes.
func (b *builder) zone(origin string, o Options) *Zone {
	z := &Zone{
		Origin: origin, apex: b.apex, nodes: b.nodes, chain: newNSECChain(b.nodes), hasDelegations: len(b.cuts) > 0,
		glue: b.sortedGlue(), soa: b.nodes[b.apex].set(dns.TypeSOA),
	}
	negative := dns.Copy(z.soa.rrs[0])
	negative.Header().Ttl = negativeTTL
	z.negative = []dns.RR{negative}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	if o.Owner != "" {
		z.questions = &questions{owner: o.Owner, since: now()}
	}
	if o.Key == nil {
		return z
	}
	z.chain.addNSECs(b.apex)
	z.signing = &signer{apex: b.apex, key: o.Key, tag: o.Key.public.Tag(), now: now}
	return z
}

// builder collects the nodes of a new zone.
type builder struct {
	apex  string // with the trailing dot
	nodes map[string]*node
	cuts  map[string]*cut            // delegations, by name
	glue  map[string]*node           // addresses at and below delegations, by name
	seen  map[*rrset]map[string]bool // the data of the records of a set, for sets of more than fewRecords
}

// convert returns the resource record of r. It returns an error for a name that cannot be in the
// zone.
func (b *builder) convert(r dnsprov.Record) (dns.RR, error) {
	rr, err := newRR(r)
	if err != nil {
		return nil, err
	}
	name := rr.Header().Name
	switch {
	case !dns.IsSubDomain(b.apex, name):
		return nil, errors.New("the name is outside of the zone")
	case strings.Contains(name, ".*.") && slices.Contains(dns.SplitDomainName(name)[1:], "*"):
		return nil, errors.New("a wildcard must be the first label (RFC 4592 section 2.1.1)")
	case r.Type == "NS" && strings.HasPrefix(name, "*."):
		return nil, errors.New("a wildcard cannot be delegated (RFC 4592 section 4.2)")
	}
	return rr, nil
}

// add adds a record to the zone, or to the glue of a delegation.
func (b *builder) add(rr dns.RR, purpose string) error {
	name, typ := rr.Header().Name, rr.Header().Rrtype
	top := b.cutOf(name)
	c := b.cuts[top]
	isAddress := typ == dns.TypeA || typ == dns.TypeAAAA
	managed := purpose != "" && purpose != dnsprov.PurposeCustom
	switch {
	case c == nil && typ == dns.TypeDS:
		return errors.New("a DS record needs NS records at its name")
	case c == nil:
		b.put(rr)
	case c.served: // the zone of that name has the record
	case name == top && (typ == dns.TypeNS || typ == dns.TypeDS):
		b.put(rr)
	case isAddress && c.hosts[name]:
		b.putGlue(rr)
	case managed:
	default:
		return fmt.Errorf("the NS records of %s delegate this name; there can only be addresses of the hosts that they name", strings.TrimSuffix(top, "."))
	}
	return nil
}

// put adds a record to the set of its name and type.
func (b *builder) put(rr dns.RR) {
	b.putInSet(b.node(rr.Header().Name).ensureSet(rr.Header().Rrtype), rr)
}

// putInSet adds a record to a set, unless it is a duplicate.
func (b *builder) putInSet(set *rrset, rr dns.RR) {
	if len(set.rrs) > 0 { // the TTL of a duplicate counts too
		first := set.rrs[0].Header()
		first.Ttl = min(first.Ttl, rr.Header().Ttl)
	}
	if len(set.rrs) < fewRecords {
		if !slices.ContainsFunc(set.rrs, func(have dns.RR) bool { return dns.IsDuplicate(have, rr) }) {
			set.rrs = append(set.rrs, rr)
		}
		return
	}
	data := func(rr dns.RR) string { return strings.TrimPrefix(rr.String(), rr.Header().String()) }
	if b.seen[set] == nil {
		b.seen[set] = map[string]bool{}
		for _, have := range set.rrs {
			b.seen[set][data(have)] = true
		}
	}
	if !b.seen[set][data(rr)] {
		b.seen[set][data(rr)] = true
		set.rrs = append(set.rrs, rr)
	}
}

// node returns the node of name. If needed, it creates the node and those between it and the apex,
// which are empty nonterminals (RFC 4592 section 2.2.2).
func (b *builder) node(name string) *node {
	for at := name; b.nodes[at] == nil; {
		b.nodes[at] = &node{}
		next, end := dns.NextLabel(at, 0)
		if at == b.apex || end {
			break
		}
		at = at[next:]
	}
	return b.nodes[name]
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

// finish checks that CNAME records are alone at their names, gives all records of a set the
// smallest TTL (RFC 2181 section 5.2), and links host names to addresses.
func (b *builder) finish() error {
	b.markCuts()
	for name, n := range b.nodes {
		if cname := n.set(dns.TypeCNAME); cname != nil && (len(n.sets) > 1 || len(cname.rrs) > 1) {
			return fmt.Errorf("the CNAME of %s must be alone at its name (RFC 1034 section 3.6.2)", name)
		}
		n.unifyTTLs()
	}
	for _, n := range b.glue {
		n.unifyTTLs()
	}
	for _, n := range b.nodes {
		for _, set := range n.sets {
			b.linkAddresses(set)
		}
	}
	return nil
}

func (n *node) unifyTTLs() {
	for _, set := range n.sets {
		shortest := set.rrs[0].Header().Ttl
		for _, rr := range set.rrs {
			shortest = min(shortest, rr.Header().Ttl)
		}
		for _, rr := range set.rrs {
			rr.Header().Ttl = shortest
		}
	}
}

// linkAddresses adds to an NS, MX or SRV set the addresses of its hosts, if they are in this zone.
func (b *builder) linkAddresses(set *rrset) {
	linked := map[string]bool{}
	for _, rr := range set.rrs {
		target := ""
		switch rr := rr.(type) {
		case *dns.NS:
			target = rr.Ns
		case *dns.MX:
			target = rr.Mx
		case *dns.SRV:
			target = rr.Target
		default:
			return
		}
		host := b.nodes[target]
		if set.unsigned && b.glue[target] != nil {
			host = b.glue[target]
		}
		if host == nil || linked[target] {
			continue
		}
		linked[target] = true
		for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if addresses := host.set(typ); addresses != nil {
				set.hosts = append(set.hosts, addresses)
				set.glue = append(set.glue, addresses.rrs...)
			}
		}
	}
}

func (n *node) ensureSet(typ uint16) *rrset {
	set := n.set(typ)
	if set == nil {
		set = &rrset{typ: typ}
		n.sets = append(n.sets, set)
	}
	return set
}
