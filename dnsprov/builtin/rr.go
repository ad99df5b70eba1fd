package builtin

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// maxString is the length of one character string on the wire, in bytes (RFC 1035 section 3.3).
const maxString = 255

// maxRecord leaves room in an answer, 64 KiB at most, for what stands beside a record. In bytes on the wire.
const maxRecord = 32 << 10

func header(name string, typ uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: ttl}
}

// newRR makes the resource record of r, with its names in the form in which queries are unpacked.
func newRR(r dnsprov.Record) (dns.RR, error) {
	if r.TTL > maxTTL {
		return nil, fmt.Errorf("TTL %d is over %d (RFC 2181 section 8)", r.TTL, maxTTL)
	}
	name := fqdn(r.Name)
	switch r.Type {
	case "A", "AAAA":
		return addressRR(name, r)
	case "TXT":
		return canonical(&dns.TXT{Hdr: header(name, dns.TypeTXT, r.TTL), Txt: characterStrings(r.Value)})
	}
	if strings.Trim(r.Value, ".") == "" {
		return nil, errors.New("the value is not a host name")
	}
	target := fqdn(r.Value)
	switch r.Type {
	case "NS":
		return canonical(&dns.NS{Hdr: header(name, dns.TypeNS, r.TTL), Ns: target})
	case "MX":
		return canonical(&dns.MX{Hdr: header(name, dns.TypeMX, r.TTL), Preference: r.Priority, Mx: target})
	case "CNAME":
		return canonical(&dns.CNAME{Hdr: header(name, dns.TypeCNAME, r.TTL), Target: target})
	}
	return nil, errors.New("this type is not served")
}

func addressRR(name string, r dnsprov.Record) (dns.RR, error) {
	ip, err := netip.ParseAddr(r.Value)
	switch {
	case err != nil:
		return nil, err
	case r.Type == "A" && ip.Is4():
		return canonical(&dns.A{Hdr: header(name, dns.TypeA, r.TTL), A: ip.AsSlice()})
	case r.Type == "AAAA" && ip.Is6() && !ip.Is4In6() && ip.Zone() == "":
		return canonical(&dns.AAAA{Hdr: header(name, dns.TypeAAAA, r.TTL), AAAA: ip.AsSlice()})
	}
	return nil, fmt.Errorf("%s is not an address of this type", r.Value)
}

func fqdn(name string) string { return dns.CanonicalName(name) }

// canonical sends a record once through the wire form: what cannot be packed is refused here and never in an answer,
// and each name comes back in the one notation that names of queries have.
func canonical(rr dns.RR) (dns.RR, error) {
	if _, ok := dns.IsDomainName(rr.Header().Name); !ok {
		return nil, errors.New("the name is not a DNS name")
	}
	size := dns.Len(rr)
	if size > maxRecord {
		return nil, fmt.Errorf("%d bytes are too long for a record: %d fit into an answer", size, maxRecord)
	}
	wire := make([]byte, size)
	n, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		return nil, err
	}
	out, _, err := dns.UnpackRR(wire[:n], 0)
	if err != nil {
		return nil, err
	}
	out.Header().Name = dns.CanonicalName(out.Header().Name) // an escape may have hidden a capital
	return out, nil
}

// characterStrings splits a text over as many strings as it takes, in the escaped notation of the dns package.
func characterStrings(text string) []string {
	var out []string
	for len(text) > maxString {
		out = append(out, escape(text[:maxString]))
		text = text[maxString:]
	}
	return append(out, escape(text))
}

// escape writes a string so that the dns package packs exactly its bytes: it reads a backslash as the start of \DDD or
// of a quoted byte (RFC 1035 section 5.1).
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
