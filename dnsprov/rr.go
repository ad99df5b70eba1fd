package dnsprov

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/miekg/dns"
)

const maxString = 255 // bytes of one character string (RFC 1035 section 3.3)

// leastFields has how many fields records of some types have at least. The parser takes these types
// without their last field.
var leastFields = map[string]int{"MX": 2, "SRV": 4, "SOA": 7, "TLSA": 4, "SSHFP": 3, "DS": 4}

// TypeNumber returns the number of a type in the form of Record.Type.
func TypeNumber(name string) (uint16, bool) {
	if typ, ok := dns.StringToType[name]; ok {
		return typ, true
	}
	number, isNumber := strings.CutPrefix(name, "TYPE")
	typ, err := strconv.ParseUint(number, 10, 16)
	return uint16(typ), isNumber && err == nil
}

// ServerMakes reports whether a nameserver makes records of a type itself, or no zone can have
// them (RFC 6895 section 3.1).
func ServerMakes(typ uint16) bool {
	if typ == dns.TypeOPT || 128 <= typ && typ <= 255 {
		return true
	}
	const signing = 65534 // private records of bind about its keys
	return slices.Contains([]uint16{dns.TypeSOA, dns.TypeRRSIG, dns.TypeNSEC, dns.TypeNSEC3, dns.TypeNSEC3PARAM, dns.TypeDNSKEY, dns.TypeCDS, dns.TypeCDNSKEY, signing}, typ)
}

// RR returns the record as it is on the wire. RecordOf makes a record of it again; the result
// differs from r if the value was written in an unusual way, such as a CAA without quotes. Errors
// are written for whoever entered the value.
func (r Record) RR() (dns.RR, error) {
	data := r.Text()
	if r.Type == "TXT" {
		data = quoteStrings(unquote(r.Value))
	}
	return ParseRR(r.Name, r.Type, data, ".", r.TTL)
}

// DataSize returns how many bytes the data of the record has on the wire, with whole names. It
// returns 0 for a record that no zone can have.
func (r Record) DataSize() int {
	rr, err := r.RR()
	if err != nil {
		return 0
	}
	rr.Header().Name = "."
	const head = 11 // bytes of the root's name, type, class, TTL and length (RFC 1035 section 3.2.1)
	return dns.Len(rr) - head
}

// ParseRR returns the record with this data, which is in the notation of zone files, in one line
// without a comment (RFC 1035 section 5.1). Names in it that do not end in a dot are relative to
// origin; name is in the form of Record.Name. Errors are written for whoever entered the data.
func ParseRR(name, typ, data, origin string, ttl uint32) (dns.RR, error) {
	none := func() (dns.RR, error) {
		return nil, fmt.Errorf("%.80q is not the value of a record of type %.20q", data, typ)
	}
	if strings.ContainsFunc(data+typ, unicode.IsControl) {
		return none()
	}
	parser := dns.NewZoneParser(strings.NewReader(". 0 IN "+typ+" "+data+"\n"), origin, "")
	rr, ok := parser.Next()
	if !ok || parser.Err() != nil || parser.Comment() != "" || dns.Type(rr.Header().Rrtype).String() != typ {
		return none()
	}
	if len(strings.Fields(data)) < leastFields[typ] {
		return none()
	}
	rr.Header().Name, rr.Header().Ttl = dns.CanonicalName(name), ttl
	if _, ok := dns.IsDomainName(rr.Header().Name); !ok {
		return nil, fmt.Errorf("%.80q is not a name", name)
	}
	wire := make([]byte, dns.Len(rr)+1) // to unpack an empty text at the end takes one more byte
	end, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		return none()
	}
	rr, _, err = dns.UnpackRR(wire[:end], 0)
	if err != nil {
		return none()
	}
	return rr, nil
}

// RecordOf returns a record of the wire in the form of all providers. A value that has no fields in
// Record is in the notation of zone files, with the names of an HTTPS or SVCB record in the form of
// Record.Name. A TXT whose text begins with a quotation mark is quoted, so that it differs from the
// text within.
func RecordOf(rr dns.RR) Record {
	h := rr.Header()
	out := Record{Name: nameOf(h.Name), Type: dns.Type(h.Rrtype).String(), TTL: h.Ttl}
	switch rr := rr.(type) {
	case *dns.A:
		out.Value = addressOf(rr.A.To4())
	case *dns.AAAA:
		out.Value = addressOf(rr.AAAA)
	case *dns.NS:
		out.Value = nameOf(rr.Ns)
	case *dns.CNAME:
		out.Value = nameOf(rr.Target)
	case *dns.DNAME:
		out.Value = nameOf(rr.Target)
	case *dns.PTR:
		out.Value = nameOf(rr.Ptr)
	case *dns.MX:
		out.Priority, out.Value = rr.Preference, nameOf(rr.Mx)
	case *dns.SRV:
		out.Priority, out.Weight, out.Port, out.Value = rr.Priority, rr.Weight, rr.Port, nameOf(rr.Target)
	case *dns.TXT:
		var quoted strings.Builder
		for _, s := range rr.Txt {
			quoted.WriteString(`"` + s + `"`)
		}
		out.Value = unquote(quoted.String())
		if strings.HasPrefix(out.Value, `"`) {
			out.Value = QuoteText(out.Value)
		}
	case *dns.TLSA, *dns.SSHFP, *dns.DS:
		out.Value = strings.ToLower(dataText(rr))
	case *dns.SVCB:
		out.Value = serviceBinding(rr)
	case *dns.HTTPS:
		out.Value = serviceBinding(&rr.SVCB)
	case *dns.RFC3597:
		out.Value = fmt.Sprintf(`\# %d %s`, len(rr.Rdata)/2, rr.Rdata)
	default:
		out.Value = dataText(rr)
	}
	return out
}

// serviceBinding writes the data of an SVCB or HTTPS record (RFC 9460 section 2.1).
func serviceBinding(rr *dns.SVCB) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", rr.Priority, nameOf(rr.Target))
	for _, param := range rr.Value {
		fmt.Fprintf(&b, ` %s="%s"`, param.Key(), param)
	}
	return b.String()
}

func dataText(rr dns.RR) string { return strings.TrimPrefix(rr.String(), rr.Header().String()) }

func addressOf(ip net.IP) string {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return ""
	}
	return addr.String()
}

// nameOf converts a name of the wire to the form of Record.Name. The root stays a dot.
func nameOf(s string) string {
	if s == "." {
		return s
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}

// quoteStrings writes a text as the quoted character strings of a zone file (RFC 1035 section 5.1),
// each of at most 255 bytes.
func quoteStrings(text string) string {
	var b strings.Builder
	for ; len(text) > maxString; text = text[maxString:] {
		b.WriteString(`"` + EscapeText(text[:maxString]) + `" `)
	}
	b.WriteString(`"` + EscapeText(text) + `"`)
	return b.String()
}
