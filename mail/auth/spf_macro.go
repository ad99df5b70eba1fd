package auth

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/spf"
)

// maxPTRNames is the maximum number of PTR names of one address that are checked (RFC 7208 section
// 4.6.4).
const maxPTRNames = 10

// spfMacros expands the macros in an SPF record (RFC 7208 section 7).
type spfMacros struct {
	look          *lookups
	ip            netip.Addr
	helo          string
	local, domain string   // of the sender address
	names         []string // PTR names of ip that resolve to ip; set if hasNames is true
	hasNames      bool
}

// expandName expands a well-formed domain-spec in the record of domain. If the name is too long, it
// drops labels on the left (RFC 7208 section 7.3).
func (m *spfMacros) expandName(ctx context.Context, spec, domain string) string {
	name := strings.TrimSuffix(spf.Expand(spec, func(letter byte) string { return m.macroValue(ctx, letter, domain) }), ".")
	for len(name) > idn.MaxName {
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return ""
		}
		name = rest
	}
	return name
}

// macroValue returns the value of a macro letter (RFC 7208 section 7.2). It does not support c, r
// and t, which occur in explanations only.
func (m *spfMacros) macroValue(ctx context.Context, letter byte, domain string) string {
	switch letter {
	case 's':
		return m.local + "@" + m.domain
	case 'l':
		return m.local
	case 'o':
		return m.domain
	case 'd':
		return domain
	case 'i':
		return dottedAddress(m.ip)
	case 'p':
		return m.validatedPTRName(ctx, domain)
	case 'v':
		if m.ip.Is4() {
			return "in-addr"
		}
		return "ip6"
	}
	return m.helo
}

// dottedAddress returns an IPv4 address in dotted form, and an IPv6 address as nibbles separated by
// dots.
func dottedAddress(ip netip.Addr) string {
	if ip.Is4() {
		return ip.String()
	}
	bytes, nibbles := ip.As16(), make([]string, 0, 32)
	for _, b := range bytes {
		nibbles = append(nibbles, strconv.FormatUint(uint64(b>>4), 16), strconv.FormatUint(uint64(b&15), 16))
	}
	return strings.Join(nibbles, ".")
}

// validatedPTRName returns a PTR name of the client that resolves to its address (RFC 7208 section
// 7.3): domain itself if it is one, otherwise a name below domain, otherwise any. It returns
// "unknown" if there is none.
func (m *spfMacros) validatedPTRName(ctx context.Context, domain string) string {
	if !m.hasNames {
		m.hasNames = true
		m.names = m.ptrNames(ctx)
	}
	if slices.Contains(m.names, domain) {
		return domain
	}
	for _, name := range m.names {
		if strings.HasSuffix(name, "."+domain) {
			return name
		}
	}
	if len(m.names) > 0 {
		return m.names[0]
	}
	return "unknown"
}

// ptrNames looks up the PTR names of ip and returns those that resolve to ip.
func (m *spfMacros) ptrNames(ctx context.Context) (out []string) {
	names, err := m.look.LookupAddr(ctx, m.ip.String())
	if err != nil {
		return nil
	}
	for _, name := range names[:min(len(names), maxPTRNames)] {
		addresses, err := m.look.LookupIPAddr(ctx, name)
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == m.ip {
				out = append(out, strings.ToLower(strings.TrimSuffix(name, ".")))
				break
			}
		}
	}
	return out
}
