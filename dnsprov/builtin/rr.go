package builtin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// maxString is the maximum length of a character string in bytes (RFC 1035 section 3.3). A name has
// the same limit.
const maxString = 255

// maxRecord is the maximum size of a record on the wire in bytes. It is half the maximum size of an
// answer, which has other parts too.
const maxRecord = 32 << 10

func header(name string, typ uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: typ, Class: dns.ClassINET, Ttl: ttl}
}

// newRR converts r to a resource record of package dns. Its names have the same notation as names
// in unpacked queries.
func newRR(r dnsprov.Record) (dns.RR, error) {
	if r.TTL > dnsprov.MaxTTL {
		return nil, fmt.Errorf("the TTL %d is more than %d (RFC 2181 section 8)", r.TTL, dnsprov.MaxTTL)
	}
	name := fqdn(r.Name)
	switch r.Type {
	case "A", "AAAA":
		return addressRR(name, r)
	case "TXT":
		return canonical(&dns.TXT{Hdr: header(name, dns.TypeTXT, r.TTL), Txt: characterStrings(dnsprov.UnquoteText(r.Value))})
	case "CAA":
		return caaRR(name, r)
	case "TLSA":
		return tlsaRR(name, r)
	case "SSHFP", "HTTPS", "SVCB", "DS":
		rr, err := r.RR() // it was packed and unpacked, as canonical does
		if err != nil {
			return nil, err
		}
		if size := dns.Len(rr); size > maxRecord {
			return nil, errTooLong(size)
		}
		rr.Header().Name = dns.CanonicalName(rr.Header().Name)
		return rr, nil
	}
	target := fqdn(r.Value)
	if strings.Trim(r.Value, ".") == "" && (r.Type != "SRV" && r.Type != "MX" || r.Value != ".") { // there is no such service (RFC 2782), or no mail (RFC 7505)
		return nil, errors.New("the value is not a host name")
	}
	switch r.Type {
	case "NS":
		return canonical(&dns.NS{Hdr: header(name, dns.TypeNS, r.TTL), Ns: target})
	case "MX":
		return canonical(&dns.MX{Hdr: header(name, dns.TypeMX, r.TTL), Preference: r.Priority, Mx: target})
	case "CNAME":
		return canonical(&dns.CNAME{Hdr: header(name, dns.TypeCNAME, r.TTL), Target: target})
	case "SRV":
		return canonical(&dns.SRV{Hdr: header(name, dns.TypeSRV, r.TTL), Priority: r.Priority, Weight: r.Weight, Port: r.Port, Target: target})
	}
	return nil, errors.New("records of this type are not served")
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
	return nil, fmt.Errorf("%s is not an address for this record type", r.Value)
}

// caaRR parses a CAA value in the notation of zone files (RFC 8659 section 4.1.1): flags, tag and
// quoted value.
func caaRR(name string, r dnsprov.Record) (dns.RR, error) {
	number, rest, _ := strings.Cut(strings.TrimSpace(r.Value), " ")
	tag, value, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	flags, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("the CAA flags %q are not a number up to 255", number)
	}
	value = strings.TrimLeft(value, " ")
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	notWord := func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') }
	notPlain := func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }
	switch {
	case tag == "" || len(tag) > maxString || strings.ContainsFunc(tag, notWord):
		return nil, fmt.Errorf("the CAA tag %q must have only letters and digits", tag)
	case strings.ContainsFunc(value, notPlain):
		return nil, errors.New("the CAA value must be printable ASCII without quotes and backslashes")
	}
	return canonical(&dns.CAA{Hdr: header(name, dns.TypeCAA, r.TTL), Flag: uint8(flags), Tag: tag, Value: value})
}

// tlsaRR parses a TLSA value in the notation of zone files (RFC 6698 section 2.2): three numbers
// and hex digits.
func tlsaRR(name string, r dnsprov.Record) (dns.RR, error) {
	fields := strings.Fields(r.Value)
	if len(fields) != 4 {
		return nil, errors.New("the TLSA value must be three numbers and hex digits")
	}
	var numbers [3]uint8
	for i, f := range fields[:3] {
		n, err := strconv.ParseUint(f, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("the TLSA field %q is not a number up to 255", f)
		}
		numbers[i] = uint8(n)
	}
	if data, err := hex.DecodeString(fields[3]); err != nil || len(data) == 0 {
		return nil, fmt.Errorf("the TLSA data %.80q are not hex digits", fields[3])
	}
	return canonical(&dns.TLSA{
		Hdr: header(name, dns.TypeTLSA, r.TTL), Usage: numbers[0], Selector: numbers[1], MatchingType: numbers[2], Certificate: strings.ToLower(fields[3]),
	})
}

func fqdn(name string) string { return dns.CanonicalName(name) }

// canonical packs a record and unpacks it again. Its names then have the same notation as names in
// queries. It returns an error for a record that cannot be sent.
func canonical(rr dns.RR) (dns.RR, error) {
	if _, ok := dns.IsDomainName(rr.Header().Name); !ok {
		return nil, errors.New("the record name is not a DNS name")
	}
	size := dns.Len(rr)
	if size > maxRecord {
		return nil, errTooLong(size)
	}
	wire := make([]byte, size+1) // package dns needs one more byte to unpack an empty text
	n, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		return nil, err
	}
	out, _, err := dns.UnpackRR(wire[:n], 0)
	if err != nil {
		return nil, err
	}
	out.Header().Name = dns.CanonicalName(out.Header().Name) // \DDD may have been a capital letter
	return out, nil
}

func errTooLong(size int) error {
	return fmt.Errorf("the record is too long: it has %d bytes, and the limit is %d", size, maxRecord)
}

// characterStrings splits a text into strings of at most maxString bytes, and escapes them for
// package dns.
func characterStrings(text string) []string {
	var out []string
	for len(text) > maxString {
		out = append(out, dnsprov.EscapeText(text[:maxString]))
		text = text[maxString:]
	}
	return append(out, dnsprov.EscapeText(text))
}
