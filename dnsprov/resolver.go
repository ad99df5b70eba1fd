package dnsprov

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	tryTimeout = 5 * time.Second // of one try of a look-up
	udpSize    = 1232            // bytes that pass everywhere without fragments
	resolvConf = "/etc/resolv.conf"
)

// Resolver looks names up; *net.Resolver is one. Names are given with the trailing dot, so that no
// search list applies.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupCNAME(ctx context.Context, host string) (string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// NewResolver returns a resolver that asks only the server at addr, host:port or a host for port
// 53, over UDP and TCP.
func NewResolver(addr string) *net.Resolver {
	addr = withPort(addr)
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		},
	}
}

func withPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return net.JoinHostPort(addr, "53")
	}
	return addr
}

// AnyNames is a resolver that also finds names which no host has, such as
// bob+news._spf.example.com. net.Resolver says of those that they do not exist.
type AnyNames struct {
	*net.Resolver
	server string
}

// NewAnyNames returns a resolver that asks only the server at addr, host:port or a host for port
// 53; "" is the system's.
func NewAnyNames(addr string) *AnyNames {
	if addr == "" {
		return &AnyNames{Resolver: net.DefaultResolver}
	}
	return &AnyNames{Resolver: NewResolver(addr), server: addr}
}

// LookupTXT is that of net.Resolver, for any name.
func (r *AnyNames) LookupTXT(ctx context.Context, name string) (out []string, err error) {
	if !isOdd(name) {
		return r.Resolver.LookupTXT(ctx, name)
	}
	err = r.each(ctx, name, dns.TypeTXT, func(rr dns.RR) { out = append(out, strings.Join(rr.(*dns.TXT).Txt, "")) })
	return out, err
}

// LookupMX is that of net.Resolver, for any name. The hosts of odd names are in no order.
func (r *AnyNames) LookupMX(ctx context.Context, name string) (out []*net.MX, err error) {
	if !isOdd(name) {
		return r.Resolver.LookupMX(ctx, name)
	}
	err = r.each(ctx, name, dns.TypeMX, func(rr dns.RR) {
		mx := rr.(*dns.MX)
		out = append(out, &net.MX{Host: mx.Mx, Pref: mx.Preference})
	})
	return out, err
}

// LookupIPAddr is that of net.Resolver, for any name.
func (r *AnyNames) LookupIPAddr(ctx context.Context, host string) (out []net.IPAddr, err error) {
	if !isOdd(host) {
		return r.Resolver.LookupIPAddr(ctx, host)
	}
	four := r.each(ctx, host, dns.TypeA, func(rr dns.RR) { out = append(out, net.IPAddr{IP: rr.(*dns.A).A}) })
	six := r.each(ctx, host, dns.TypeAAAA, func(rr dns.RR) { out = append(out, net.IPAddr{IP: rr.(*dns.AAAA).AAAA}) })
	if len(out) > 0 {
		return out, nil
	}
	if four != nil && !four.(*net.DNSError).IsNotFound {
		return nil, four
	}
	return nil, six
}

// isOdd tells a name that net.Resolver does not ask for.
func isOdd(name string) bool {
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		odd := func(r rune) bool {
			return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}
		if strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") || strings.ContainsFunc(label, odd) {
			return true
		}
	}
	return false
}

const mostRecords = 100 // of one odd name

// each hands the records of an odd name to take. Its errors are *net.DNSError; none at all is one
// too.
func (r *AnyNames) each(ctx context.Context, name string, kind uint16, take func(dns.RR)) error {
	m, err := exchange(ctx, r.server, escaped(name), kind)
	if err != nil {
		return &net.DNSError{Err: err.Error(), Name: name, IsTemporary: true}
	}
	found := 0
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == kind && found < mostRecords {
			take(rr)
			found++
		}
	}
	if found == 0 {
		return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return nil
}

// escaped writes a name as the DNS library reads it (RFC 1035 section 5.1).
func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || strings.IndexByte(`"();@$'\`, c) >= 0 {
			fmt.Fprintf(&b, `\%03d`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return dns.Fqdn(b.String())
}

// exchange puts a question to the server at addr, host:port or a host for port 53; "" is the
// system's first. It asks over UDP, once more if nothing comes back, and over TCP if the answer did
// not fit. What is no answer is an error.
func exchange(ctx context.Context, addr, name string, kind uint16) (*dns.Msg, error) {
	if addr == "" {
		system, err := dns.ClientConfigFromFile(resolvConf)
		if err != nil {
			return nil, err
		}
		if len(system.Servers) == 0 {
			return nil, fmt.Errorf("%s names no resolver", resolvConf)
		}
		addr = system.Servers[0]
	}
	addr = withPort(addr)
	q := new(dns.Msg).SetQuestion(name, kind)
	q.SetEdns0(udpSize, false)
	c := dns.Client{Timeout: tryTimeout}
	m, _, err := c.ExchangeContext(ctx, q, addr)
	if err != nil {
		m, _, err = c.ExchangeContext(ctx, q, addr)
	}
	if err == nil && m.Truncated {
		c.Net = "tcp"
		m, _, err = c.ExchangeContext(ctx, q, addr)
	}
	if err == nil && m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		err = fmt.Errorf("%s answers %s", addr, dns.RcodeToString[m.Rcode])
	}
	return m, err
}
