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
	maxRecords = 32 // of one name
	resolvConf = "/etc/resolv.conf"
)

// ErrLookup says that a look-up failed. A bogus answer is such a failure too: a validating resolver
// says SERVFAIL to it.
var ErrLookup = errors.New("DNS look-up failed")

// A Resolver asks servers that validate DNSSEC, and believes their AD bit: they must be reached
// over a path that nobody else can write to (RFC 6698 section 4.1).
type Resolver struct {
	Servers []string // host:port, asked in turn; one that answers that it failed has the last word. They stay as they are

	once   sync.Once
	client *lookup.Client
}

// NewResolver gives one that asks addr, host:port or a host for port 53, or the system's servers
// for "". Without trust it is nil, no error, unless every server is an address of this machine.
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

// An Answer is what was found out about a name; Secure says that DNSSEC vouches for all of it,
// emptiness included.
type Answer struct {
	Name   string // what the question led to by CNAME, without a final dot
	Secure bool
	rrs    []dns.RR
}

// LookupMX gives the MX records of a name; none where it has none or does not exist.
func (r *Resolver) LookupMX(ctx context.Context, name string) ([]*net.MX, bool, error) {
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

// LookupHost gives the addresses of a host, the name that it stands for, and whether both families
// of answers are secure.
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
			out = append(out, address(rr)...)
		}
	}
	return out, all, nil
}

func address(rr dns.RR) []netip.Addr {
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

// LookupTLSA gives the records for SMTP at a port of a host; only secure ones may be used.
func (r *Resolver) LookupTLSA(ctx context.Context, host string, port int) ([]Record, bool, error) {
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
			rec = Record{Usage: tlsa.Usage, Selector: tlsa.Selector, Match: tlsa.MatchingType} // there, and not usable
		}
		out = append(out, rec)
	}
	return out, a.Secure, nil
}

// ask gives what the first server says that answers.
func (r *Resolver) ask(ctx context.Context, name string, kind uint16) (Answer, error) {
	r.once.Do(func() { r.client = lookup.New(lookup.Options{Servers: r.Servers}) })
	m, err := r.client.Ask(ctx, name, kind, true)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %s %s: %w", ErrLookup, dns.TypeToString[kind], name, err)
	}
	return read(m, kind), nil
}

// read gives the records of a kind that an answer's question led to.
func read(m *dns.Msg, kind uint16) Answer {
	a := Answer{Name: canonical(lookup.Canonical(m)), Secure: m.AuthenticatedData}
	for _, rr := range m.Answer {
		if h := rr.Header(); h.Rrtype == kind && canonical(h.Name) == a.Name {
			a.rrs = append(a.rrs, rr)
		}
	}
	// Mail goes to the best MX first, wherever it stands in the answer (RFC 5321 section 5.1).
	slices.SortStableFunc(a.rrs, func(x, y dns.RR) int { return preference(x) - preference(y) })
	a.rrs = a.rrs[:min(len(a.rrs), maxRecords)]
	return a
}

// preference is that of an MX record; others have none.
func preference(rr dns.RR) int {
	if mx, ok := rr.(*dns.MX); ok {
		return int(mx.Preference)
	}
	return 0
}

func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }
