package scan

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/lookup"
)

const (
	findTimeout    = time.Minute
	lookupTimeout  = 10 * time.Second
	maxAddresses   = 4 // of one nameserver
	maxParents     = 4 // addresses of one zone above the domain
	maxDelegations = 8 // between the first zone that has nameservers and the domain
)

// Find returns the servers that the parent zone delegates a domain to at the moment, and the DS
// records there. The resolver tells the servers of the parent zone, which are asked; if none
// answers, the resolver tells those of the domain. A domain inside of another zone has the servers
// of that zone. If names are given, the servers have these names or IP addresses, and the parent
// zone tells only the TTLs and DS records. A domain that nobody serves has no names. The error is
// ErrLookup, or that of ctx.
func (c *Client) Find(ctx context.Context, domain string, names []string) (*Servers, error) {
	ctx = lookup.Fresh(ctx)
	d, err := c.delegation(ctx, dns.CanonicalName(domain))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(names) > 0 {
		d.hosts, err = nil, nil
		for _, name := range names {
			d.hosts = append(d.hosts, dns.CanonicalName(strings.TrimSpace(name)))
		}
	}
	if err != nil {
		return nil, err
	}
	out := &Servers{Names: hostNames(d.hosts), DS: d.ds, NSTTL: d.nsTTL, DSTTL: d.dsTTL, Addrs: c.addresses(ctx, d.hosts, d.glue)}
	return out, ctx.Err()
}

// Parent asks the servers of the parent zone for the delegation of a domain. If none of them
// answers, the resolver tells the nameservers, and the TTL is 0. The error is ErrLookup, or that
// of ctx.
func (c *Client) Parent(ctx context.Context, domain string) (*Parent, error) {
	d, err := c.delegation(lookup.Fresh(ctx), dns.CanonicalName(domain))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	out := &Parent{TTL: d.nsTTL}
	if !d.inside {
		out.Names = hostNames(d.hosts)
	}
	if d.dsTold {
		out.DS = &d.ds
	}
	return out, nil
}

// hostNames returns the first maxHosts canonical names in the form of dnsprov.Record.Name, sorted.
func hostNames(hosts []string) (out []string) {
	for _, host := range hosts[:min(len(hosts), maxHosts)] {
		out = append(out, strings.TrimSuffix(host, "."))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// A delegation is what the parent zone has for a domain.
type delegation struct {
	hosts        []string // canonical; empty if nobody serves the domain
	inside       bool     // the domain is inside of another zone, whose servers hosts are
	glue         []dns.RR // addresses
	ds           []dnsprov.DS
	dsTold       bool // whether the DS records were told, or that there are none
	nsTTL, dsTTL time.Duration
}

// delegation asks the servers of the zone above a domain, or else the resolver. The error is
// ErrLookup.
func (c *Client) delegation(ctx context.Context, domain string) (delegation, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	told, err := c.lookupNS(ctx, domain)
	zone := &cut{name: parentOf(domain)}
	for ; zone.name != ""; zone.name = parentOf(zone.name) {
		zone.ns, _ = c.lookupNS(ctx, zone.name)
		if len(zone.ns) > 0 {
			break
		}
	}
	for range maxDelegations {
		if len(zone.ns) == 0 {
			break
		}
		addrs := c.addresses(ctx, zone.hosts(), zone.glue)
		z := c.session(zone.name, addrs[:min(len(addrs), maxParents)])
		r, failed := z.ask(ctx, domain, dns.TypeNS, false)
		switch {
		case failed != nil && len(told) == 0:
			return delegation{}, ErrLookup // it may be inside of the zone
		case failed != nil:
		case r.cut != nil && r.cut.name != domain:
			zone = r.cut
			continue
		case r.cut != nil:
			return z.withDS(ctx, domain, r.cut), nil
		case len(r.set) > 0 && r.set[0].Header().Rrtype == dns.TypeNS: // the servers have both zones
			return z.withDS(ctx, domain, &cut{name: domain, ns: r.set}), nil
		case r.exists:
			return delegation{hosts: zone.hosts(), inside: true, glue: zone.glue, dsTold: true}, nil
		default:
			return delegation{dsTold: true}, nil
		}
		break
	}
	if err != nil {
		return delegation{}, ErrLookup
	}
	d := delegation{hosts: (&cut{ns: told}).hosts()}
	if c.LookupDS != nil && len(told) > 0 {
		if ds, err := c.LookupDS(ctx, strings.TrimSuffix(domain, ".")); err == nil {
			d.ds, d.dsTold = ds, true
		}
	}
	return d, nil
}

// withDS returns a delegation with its DS records, for which it asks the servers of the zone above.
func (z *session) withDS(ctx context.Context, domain string, c *cut) delegation {
	d := delegation{hosts: c.hosts(), glue: c.glue, nsTTL: time.Duration(c.ns[0].Header().Ttl) * time.Second}
	r, err := z.ask(ctx, domain, dns.TypeDS, false)
	if err != nil {
		return d
	}
	d.dsTold = true
	for _, rr := range r.set[:min(len(r.set), maxAnswer)] {
		if ds, ok := rr.(*dns.DS); ok {
			d.ds = append(d.ds, dnsprov.DSOf(ds))
			d.dsTTL = time.Duration(ds.Hdr.Ttl) * time.Second
		}
	}
	return d
}

// lookupNS asks the resolver for the nameservers of a name. There are none if the name does not
// exist.
func (c *Client) lookupNS(ctx context.Context, name string) ([]dns.RR, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := c.Resolver.LookupNS(ctx, name)
	if lookup.IsNotFound(err) {
		return nil, nil
	}
	var out []dns.RR
	for _, ns := range found {
		out = append(out, &dns.NS{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeNS}, Ns: ns.Host})
	}
	return out, err
}

// addresses returns the addresses of nameservers: those that the resolver tells, or else the glue.
// The first addresses of all servers come before the second ones.
func (c *Client) addresses(ctx context.Context, hosts []string, glue []dns.RR) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts = hosts[:min(len(hosts), maxHosts)]
	all := make([][]netip.Addr, len(hosts))
	var g errgroup.Group
	for i, host := range hosts {
		g.Go(func() error {
			ip, err := netip.ParseAddr(strings.TrimSuffix(host, "."))
			if err == nil {
				all[i] = []netip.Addr{ip.Unmap()}
				return nil
			}
			found, err := c.Resolver.LookupNetIP(ctx, "ip", host)
			if err != nil {
				found = nil
				for _, rr := range glue {
					if ip, ok := addressOf(rr); ok && rr.Header().Name == host {
						found = append(found, ip)
					}
				}
			}
			for _, ip := range found {
				all[i] = append(all[i], ip.Unmap())
			}
			slices.SortStableFunc(all[i], func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
			all[i] = all[i][:min(len(all[i]), maxAddresses)]
			return nil
		})
	}
	_ = g.Wait()
	port := c.Port
	if port == 0 {
		port = 53
	}
	var out []netip.AddrPort
	for n := range maxAddresses {
		for _, addrs := range all {
			if n < len(addrs) && !slices.Contains(out, netip.AddrPortFrom(addrs[n], port)) {
				out = append(out, netip.AddrPortFrom(addrs[n], port))
			}
		}
	}
	return out
}

func addressOf(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		return netip.AddrFromSlice(rr.A)
	case *dns.AAAA:
		return netip.AddrFromSlice(rr.AAAA)
	}
	return netip.Addr{}, false
}
