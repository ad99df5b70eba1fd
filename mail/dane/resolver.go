package dane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/lookup"
)

const (
	maxRecords = 32 // records of one name that are used
	resolvConf = "/etc/resolv.conf"
)

// ErrLookup is wrapped if a look-up fails. Bogus answers are failures too, since a validating
// resolver returns SERVFAIL for them.
var ErrLookup = errors.New("DNS look-up with DNSSEC failed")

// A Resolver queries DNS servers that validate DNSSEC, and trusts the AD bit in their answers. So
// nobody must be able to change data on the way from the servers (RFC 6698 section 4.1).
type Resolver struct {
	Servers []string // host:port, tried in order; if a server reports a failure, no other is tried. Must not change after the first use

	once   sync.Once
	client *lookup.Client
}

// NewResolver returns a resolver for one server. addr is host:port, or a host, whose port is then
// 53; "" means the servers of the system. If trust is false and not all servers are on a loopback
// address, it returns nil without an error.
func NewResolver(addr string, trust bool) (*Resolver, error) {
	servers := []string{addr}
	if addr == "" {
		system, err := dns.ClientConfigFromFile(resolvConf)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", resolvConf, err)
		}
		servers = system.Servers
	}
	r := &Resolver{}
	for _, s := range servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(s, "53")
		}
		host, _, _ := net.SplitHostPort(s)
		if ip, err := netip.ParseAddr(host); !trust && (err != nil || !ip.Unmap().IsLoopback()) {
			return nil, nil
		}
		r.Servers = append(r.Servers, s)
	}
	if len(r.Servers) == 0 {
		return nil, nil
	}
	return r, nil
}

// An Answer is the answer for a name. Secure reports that DNSSEC validated all of it, also if it
// has no records.
type Answer struct {
	Name   string // the name to which CNAMEs lead, without a final dot
	Secure bool
	rrs    []dns.RR
}

// LookupMX returns the MX records of a name, and whether the answer is secure. It is not an error
// if there are no records or no such name.
func (r *Resolver) LookupMX(ctx context.Context, name string) (_ []*net.MX, secure bool, err error) {
	a, err := r.ask(ctx, name, dns.TypeMX)
	if err != nil {
		return nil, false, err
	}
	var out []*net.MX
	for _, rr := range a.rrs {
		if mx, ok := rr.(*dns.MX); ok {
			out = append(out, &net.MX{Host: mx.Mx, Pref: mx.Preference})
		}
	}
	return out, a.Secure, nil
}

// LookupHost returns the addresses of a host, and an Answer with the name to which CNAMEs lead.
// Secure reports whether the answers for IPv4 and for IPv6 are both secure.
func (r *Resolver) LookupHost(ctx context.Context, host string) ([]netip.Addr, Answer, error) {
	var out []netip.Addr
	all := Answer{Name: host, Secure: true}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		a, err := r.ask(ctx, host, kind)
		if err != nil {
			return nil, Answer{}, err
		}
		all.Name, all.Secure = a.Name, all.Secure && a.Secure
		for _, rr := range a.rrs {
			out = append(out, addressOf(rr)...)
		}
	}
	return out, all, nil
}

func addressOf(rr dns.RR) []netip.Addr {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return nil
	}
	return []netip.Addr{addr.Unmap()}
}

// LookupTLSA returns the TLSA records for a TCP port of a host, and whether they are secure.
// Records that are not secure must not be used.
func (r *Resolver) LookupTLSA(ctx context.Context, host string, port int) (_ []Record, secure bool, err error) {
	a, err := r.ask(ctx, "_"+strconv.Itoa(port)+"._tcp."+host, dns.TypeTLSA)
	if err != nil {
		return nil, false, err
	}
	var out []Record
	for _, rr := range a.rrs {
		tlsa, ok := rr.(*dns.TLSA)
		if !ok {
			continue
		}
		rec, err := ParseRecord(fmt.Sprintf("%d %d %d %s", tlsa.Usage, tlsa.Selector, tlsa.MatchingType, tlsa.Certificate))
		if err != nil {
			rec = Record{Usage: tlsa.Usage, Selector: tlsa.Selector, Match: tlsa.MatchingType} // invalid data: keep the record as an unusable one
		}
		out = append(out, rec)
	}
	return out, a.Secure, nil
}

// ask returns the answer of the first server that responds.
func (r *Resolver) ask(ctx context.Context, name string, kind uint16) (Answer, error) {
	r.once.Do(func() { r.client = lookup.New(lookup.Options{Servers: r.Servers}) })
	m, err := r.client.Ask(ctx, name, kind, true)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %s %s: %w", ErrLookup, dns.TypeToString[kind], name, err)
	}
	return recordsIn(m, kind), nil
}

// recordsIn returns the records of a kind in a response, and the name to which CNAMEs lead.
func recordsIn(m *dns.Msg, kind uint16) Answer {
	a := Answer{Name: canonicalName(lookup.CanonicalName(m)), Secure: m.AuthenticatedData}
	for _, rr := range m.Answer {
		if h := rr.Header(); h.Rrtype == kind && canonicalName(h.Name) == a.Name {
			a.rrs = append(a.rrs, rr)
		}
	}
	// Only maxRecords are kept, so the best MX hosts must come first (RFC 5321 section 5.1).
	slices.SortStableFunc(a.rrs, func(x, y dns.RR) int { return preference(x) - preference(y) })
	a.rrs = a.rrs[:min(len(a.rrs), maxRecords)]
	return a
}

// preference returns the preference of an MX record, 0 for other records.
func preference(rr dns.RR) int {
	if mx, ok := rr.(*dns.MX); ok {
		return int(mx.Preference)
	}
	return 0
}

// canonicalName returns a DNS name in lower case without a final dot.
func canonicalName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }
