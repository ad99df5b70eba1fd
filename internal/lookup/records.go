package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	maxRecords = 100 // maximum number of records that are used of an answer
	maxAliases = 16  // maximum number of CNAME records that are followed in an answer
)

// escapedName converts a name to the notation of zone files (RFC 1035 section 5.1), so that names
// with special characters can be looked up. It uses the same escapes as package dns, because names
// in answers are compared with it.
func escapedName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || strings.IndexByte(`"();@$'\`, c) >= 0 {
			fmt.Fprintf(&b, `\%03d`, c)
		} else {
			b.WriteByte(c)
		}
	}
	out := dns.Fqdn(b.String())
	if len(out) <= len(name)+1 {
		return out
	}
	wire := make([]byte, 256)
	if _, err := dns.PackDomainName(out, wire, 0, nil, false); err == nil {
		if read, _, err := dns.UnpackDomainName(wire, 0); err == nil {
			return read
		}
	}
	return out // the name is invalid; Ask returns an error for it
}

// notFoundError returns the error that a name or its records do not exist.
func notFoundError(name string) error {
	return &net.DNSError{Err: "no such host", Name: strings.TrimSuffix(name, "."), IsNotFound: true}
}

// IsNotFound reports whether an error is the answer that a name, or a record of that type, does not
// exist.
func IsNotFound(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}

// records looks up the records of a type. It follows CNAME records. If there are no records, it
// returns an error with IsNotFound.
func records[T dns.RR](ctx context.Context, c *Client, name string, kind uint16) ([]T, error) {
	if name == "" || len(name) > 255 {
		return nil, notFoundError(name)
	}
	m, err := c.Ask(ctx, escapedName(name), kind, false)
	if err != nil {
		return nil, err
	}
	out := recordsOf[T](m, kind)
	if len(out) == 0 {
		return nil, notFoundError(name)
	}
	return out, nil
}

// recordsOf returns the records of a type in an answer, at the name to which its CNAME records
// lead.
func recordsOf[T dns.RR](m *dns.Msg, kind uint16) (out []T) {
	name := CanonicalName(m)
	for _, rr := range m.Answer {
		if h := rr.Header(); h.Rrtype == kind && strings.EqualFold(h.Name, name) && len(out) < maxRecords {
			if r, ok := rr.(T); ok {
				out = append(out, r)
			}
		}
	}
	return out
}

// CanonicalName returns the name to which the CNAME records in an answer lead. Without CNAME
// records, it returns the name in the question.
func CanonicalName(m *dns.Msg) string {
	name := m.Question[0].Name
	for range maxAliases {
		next := ""
		for _, rr := range m.Answer {
			if alias, ok := rr.(*dns.CNAME); ok && strings.EqualFold(alias.Hdr.Name, name) && m.Question[0].Qtype != dns.TypeCNAME {
				next = alias.Target
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	return name
}

// LookupTXT returns the TXT records of a name. The strings of a record are joined.
func (c *Client) LookupTXT(ctx context.Context, name string) ([]string, error) {
	list, err := records[*dns.TXT](ctx, c, name, dns.TypeTXT)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list))
	for _, rr := range list {
		out = append(out, unescaped(strings.Join(rr.Txt, "")))
	}
	return out, nil
}

// unescaped removes the escapes in a text of package dns (RFC 1035 section 5.1).
func unescaped(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' && i+1 < len(text) {
			i++
			c = text[i]
			if c >= '0' && c <= '9' && i+2 < len(text) {
				c = (text[i]-'0')*100 + (text[i+1]-'0')*10 + (text[i+2] - '0')
				i += 2
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// LookupMX returns the MX records of a name, sorted by preference. Records with the same preference
// are in random order (RFC 5321 section 5.1).
func (c *Client) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	list, err := records[*dns.MX](ctx, c, name, dns.TypeMX)
	if err != nil {
		return nil, err
	}
	out := make([]*net.MX, 0, len(list))
	for _, rr := range list {
		out = append(out, &net.MX{Host: rr.Mx, Pref: rr.Preference})
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(a, b *net.MX) int { return cmp.Compare(a.Pref, b.Pref) })
	return out, nil
}

// LookupNS returns the NS records of a name.
func (c *Client) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	list, err := records[*dns.NS](ctx, c, name, dns.TypeNS)
	if err != nil {
		return nil, err
	}
	out := make([]*net.NS, 0, len(list))
	for _, rr := range list {
		out = append(out, &net.NS{Host: rr.Ns})
	}
	return out, nil
}

// LookupSRV returns the SRV records of _service._proto.name, or of name if service and proto are
// empty. They are in the order in which clients should try them (RFC 2782).
func (c *Client) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if service != "" || proto != "" {
		name = "_" + service + "._" + proto + "." + name
	}
	list, err := records[*dns.SRV](ctx, c, name, dns.TypeSRV)
	if err != nil {
		return "", nil, err
	}
	left := make([]*net.SRV, 0, len(list))
	for _, rr := range list {
		left = append(left, &net.SRV{Target: rr.Target, Port: rr.Port, Priority: rr.Priority, Weight: rr.Weight})
	}
	slices.SortStableFunc(left, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Weight, b.Weight))
	})
	var out []*net.SRV
	for len(left) > 0 {
		same, sum := 0, 0
		for same < len(left) && left[same].Priority == left[0].Priority {
			sum += int(left[same].Weight)
			same++
		}
		at, drawn := 0, rand.IntN(sum+1)
		for drawn -= int(left[0].Weight); drawn > 0 && at+1 < same; drawn -= int(left[at].Weight) {
			at++
		}
		out = append(out, left[at])
		left = slices.Delete(left, at, at+1)
	}
	return list[0].Hdr.Name, out, nil
}

// LookupAddr returns the names in the PTR records of an address, with their final dots.
func (c *Client) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	name, err := dns.ReverseAddr(addr)
	if err != nil {
		return nil, &net.DNSError{Err: "unrecognized address", Name: addr}
	}
	list, err := records[*dns.PTR](ctx, c, name, dns.TypePTR)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list))
	for _, rr := range list {
		out = append(out, rr.Ptr)
	}
	return out, nil
}

// LookupCNAME returns the name to which the CNAME records of a host lead, with its final dot. If
// the host has addresses but no CNAME record, it returns the host itself.
func (c *Client) LookupCNAME(ctx context.Context, host string) (string, error) {
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeCNAME} {
		m, err := c.Ask(ctx, escapedName(host), kind, false)
		if err != nil {
			return "", err
		}
		if name := CanonicalName(m); !strings.EqualFold(name, m.Question[0].Name) {
			return name, nil
		}
		for _, rr := range m.Answer {
			if alias, ok := rr.(*dns.CNAME); ok {
				return alias.Target, nil
			}
			if rr.Header().Rrtype == kind {
				return m.Question[0].Name, nil
			}
		}
	}
	return "", notFoundError(host)
}

// LookupIPAddr returns the addresses of a host.
func (c *Client) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	addrs, err := c.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	out := make([]net.IPAddr, 0, len(addrs))
	for _, a := range addrs {
		out = append(out, net.IPAddr{IP: a.AsSlice(), Zone: a.Zone()})
	}
	return out, nil
}

// LookupNetIP returns the addresses of a host. network is "ip4" or "ip6" for one family, or "ip"
// for both. If host is an IP address, it returns that.
func (c *Client) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	fits := func(a netip.Addr) bool { return network == "ip" || a.Is4() == (network == "ip4") }
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		if !fits(a) {
			return nil, notFoundError(host)
		}
		return []netip.Addr{a}, nil
	}
	if host == "" || len(host) > 255 {
		return nil, notFoundError(host)
	}
	if c.hosts != nil {
		if list := slices.DeleteFunc(c.hosts.addresses(host), func(a netip.Addr) bool { return !fits(a) }); len(list) > 0 {
			return list, nil
		}
		if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") { // RFC 6761 section 6.3
			return slices.DeleteFunc([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, func(a netip.Addr) bool { return !fits(a) }), nil
		}
	}
	kinds := []uint16{dns.TypeA, dns.TypeAAAA}
	switch network {
	case "ip4":
		kinds = kinds[:1]
	case "ip6":
		kinds = kinds[1:]
	}
	// Ask for both families before waiting for the first answer.
	var pending [2]*pendingLookup
	var answers [2]*dns.Msg
	name, fresh := strings.ToLower(escapedName(host)), ctx.Value(freshKey{}) != nil
	for i, kind := range kinds {
		pending[i], answers[i] = c.joinOrStart(question{name, kind, false}, fresh)
	}
	var out []netip.Addr
	var failed error
	for i, kind := range kinds {
		m := answers[i]
		if pending[i] != nil {
			var err error
			m, err = pending[i].wait(ctx, question{name, kind, false})
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
		}
		for _, rr := range recordsOf[dns.RR](m, kind) {
			if a, ok := addressOf(rr); ok {
				out = append(out, a)
			}
		}
	}
	var dnsErr *net.DNSError
	switch {
	case len(out) > 0:
		return out, nil
	case errors.As(failed, &dnsErr):
		return nil, dnsErr
	}
	return nil, notFoundError(host)
}

func addressOf(rr dns.RR) (netip.Addr, bool) {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}
