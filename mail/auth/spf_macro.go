package auth

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxPointers is how many names of an address are looked at (RFC 7208 section 4.6.4).
const maxPointers = 10

// spfMacros expands what stands for the sender in a record (RFC 7208 section 7).
type spfMacros struct {
	look          *lookups
	ip            netip.Addr
	helo          string
	local, domain string   // of the sender
	names         []string // of ip, once they are looked up: those that lead back to it
	looked        bool
}

// expandSpec gives the name that a well-formed domain-spec in the record of domain stands for. One
// that is too long loses labels on the left (RFC 7208 section 7.3).
func (m *spfMacros) expandSpec(ctx context.Context, spec, domain string) string {
	name := strings.TrimSuffix(macro.ReplaceAllStringFunc(spec, func(s string) string { return m.expand(ctx, s, domain) }), ".")
	for len(name) > maxDomain {
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return ""
		}
		name = rest
	}
	return name
}

var macro = regexp.MustCompile(macroExpand)

// expand gives what one macro stands for.
func (m *spfMacros) expand(ctx context.Context, s, domain string) string {
	switch s {
	case "%%":
		return "%"
	case "%_":
		return " "
	case "%-":
		return "%20"
	}
	letter, transformers := s[2:3], s[3:len(s)-1]
	value := transformed(m.value(ctx, strings.ToLower(letter), domain), transformers)
	if letter == strings.ToUpper(letter) {
		return urlEscaped(value)
	}
	return value
}

// value gives what a letter stands for (RFC 7208 section 7.2); c, r and t are for explanations
// only.
func (m *spfMacros) value(ctx context.Context, letter, domain string) string {
	switch letter {
	case "s":
		return m.local + "@" + m.domain
	case "l":
		return m.local
	case "o":
		return m.domain
	case "d":
		return domain
	case "i":
		return dotted(m.ip)
	case "p":
		return m.validated(ctx, domain)
	case "v":
		if m.ip.Is4() {
			return "in-addr"
		}
		return "ip6"
	}
	return m.helo
}

// dotted gives an address of IPv6 by its nibbles.
func dotted(ip netip.Addr) string {
	if ip.Is4() {
		return ip.String()
	}
	bytes, nibbles := ip.As16(), make([]string, 0, 32)
	for _, b := range bytes {
		nibbles = append(nibbles, strconv.FormatUint(uint64(b>>4), 16), strconv.FormatUint(uint64(b&15), 16))
	}
	return strings.Join(nibbles, ".")
}

// transformed splits a value at delimiters, turns it round if told to, and keeps as many of the
// last parts as are asked for.
func transformed(value, transformers string) string {
	digits := strings.TrimLeft(transformers, "0123456789")
	keep, _ := strconv.Atoi(transformers[:len(transformers)-len(digits)])
	delimiters := strings.TrimLeft(digits, "rR")
	reverse := delimiters != digits
	if delimiters == "" {
		delimiters = "."
	}
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(delimiters, r) })
	if reverse {
		slices.Reverse(parts)
	}
	if 0 < keep && keep < len(parts) {
		parts = parts[len(parts)-keep:]
	}
	return strings.Join(parts, ".")
}

// urlEscaped escapes all but the unreserved characters of RFC 3986 section 2.3.
func urlEscaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if isAlnum(s[i]) || strings.IndexByte("-._~", s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// validated gives a name of the client that leads back to its address: the domain's own, else one
// under it, else any (RFC 7208 section 7.3).
func (m *spfMacros) validated(ctx context.Context, domain string) string {
	if !m.looked {
		m.looked = true
		m.names = m.pointers(ctx)
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

func (m *spfMacros) pointers(ctx context.Context) (out []string) {
	names, err := m.look.LookupAddr(ctx, m.ip.String())
	if err != nil {
		return nil
	}
	for _, name := range names[:min(len(names), maxPointers)] {
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
