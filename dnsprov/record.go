// Package dnsprov decides which DNS records a hosted domain needs, plans the changes of a zone, and
// looks up whether the records are published. It does not know accounts, or how domains are stored.
package dnsprov

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// MaxTTL is the maximum TTL in seconds (RFC 2181 section 8).
const MaxTTL = 1<<31 - 1

// Record is one DNS record of a domain, in a form that does not depend on the provider.
type Record struct {
	Name string // the full name, lower-case, without the trailing dot
	Type string // such as MX; TYPE65280 for a type without a name

	// Value is the data of the record: an IP address; a host name in the form of Name; the text of
	// a TXT, unquoted and in one piece; for other types what RecordOf returns, such as
	// 0 issue "ca.example" for a CAA, or 3 1 1 and hex digits for a TLSA.
	Value string

	Priority uint16 // of an MX or SRV
	Weight   uint16 // of an SRV (RFC 2782)
	Port     uint16 // of an SRV
	TTL      uint32 // seconds
	Purpose  string // one of the Purpose constants; "" for a foreign record
	Critical bool   // whether mail does not work without the record
	ID       string // the provider's id of the record; "" if it has none; ignored in comparisons
	SetTTL   bool   // whether the provider has one TTL for all records of this name and type; ignored in comparisons
	LeastTTL uint32 // the shortest TTL that the provider permits in the zone; 0 if it permits any; ignored in comparisons

	// Accepts says which other values verify the record: one of the Accepts constants; "" for none.
	// If Value is AnyOrNone, no address is needed.
	Accepts string
}

// Values of Record.Accepts.
const (
	AcceptsPublic = "public" // any public address
	AcceptsAny    = "any"    // any address, as in a sandbox
	AcceptsPolicy = "policy" // any valid DMARC policy
)

// Flattened is the Type of a foreign CNAME that the provider replaces by the addresses of its
// target when it answers. Other records can have the same name. Wanted never returns this type.
const Flattened = "CNAME flattened"

// Purposes of records.
const (
	PurposeNS         = "NS"
	PurposeA          = "A" // also AAAA
	PurposeMX         = "MX"
	PurposeSPF        = "SPF"
	PurposeDKIM       = "DKIM"
	PurposeDMARC      = "DMARC"
	PurposeMTASTS     = "MTA_STS"    // the id of the MTA-STS policy, and the host that serves it (RFC 8461)
	PurposeTLSRPT     = "TLSRPT"     // the address for TLS reports (RFC 8460)
	PurposeAutoconfig = "AUTOCONFIG" // hosts and SRV records that give mail clients their settings (RFC 6186)
	PurposeDANE       = "DANE"       // TLSA records of the mail host's keys (RFC 7672)
	PurposeACME       = "ACME"       // a challenge of a certificate authority (RFC 8555 section 8.4)
	PurposeCustom     = "CUSTOM"     // a record that the domain's owner added
)

// Same reports whether two records publish the same data. It ignores TTL, purpose and the letter
// case of names.
func (r Record) Same(o Record) bool { return r.Type == o.Type && r.id() == o.id() }

// recordID is what a record publishes. It is equal for two records if Same is true of them.
type recordID struct {
	set                    Set
	value                  string
	priority, weight, port uint16
}

func (r Record) id() recordID {
	return recordID{r.set(), r.value(), r.Priority, r.Weight, r.Port}
}

// Key returns a short text that is equal for two records if and only if Same is true of them: the
// type, the name, and a hash of the data. It is the ID of records at providers that cannot mark
// them, so its form must not change.
func (r Record) Key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", r.Priority, r.Weight, r.Port, r.value()))
	return r.Type + " " + hostName(r.Name) + " " + hex.EncodeToString(sum[:16])
}

// FromText returns the record that has the text, as Record.Text returns it. It does not check the
// data of the record, but it returns an error if a number of an MX or SRV is missing.
func FromText(name, typ, text string, ttl uint32) (Record, error) {
	r := Record{Name: name, Type: typ, Value: text, TTL: ttl}
	var numbers []*uint16
	switch typ {
	case "MX":
		numbers = []*uint16{&r.Priority}
	case "SRV":
		numbers = []*uint16{&r.Priority, &r.Weight, &r.Port}
	}
	for _, to := range numbers {
		number, rest, _ := strings.Cut(r.Value, " ")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || rest == "" {
			return Record{}, fmt.Errorf("%.80q is not the data of a record of type %s", text, typ)
		}
		*to, r.Value = uint16(n), rest
	}
	return r, nil
}

// value returns the record's value in normalized form: a TXT value without quotes, and names and
// addresses in lower case without a trailing dot.
func (r Record) value() string {
	switch r.Type {
	case "TXT":
		return unquote(r.Value)
	case "CAA", "HTTPS", "SVCB": // they may have a URL or a path
		return r.Value
	}
	return hostName(r.Value)
}

// hostName converts a host name to the form of Record.Name.
func hostName(s string) string {
	return strings.ToLower(strings.TrimSuffix(strings.TrimSpace(s), "."))
}

// IsWithin reports whether a name is the domain or below it. Both are in the form of Record.Name.
func IsWithin(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

// unquote parses a TXT value that consists of quoted character strings (RFC 1035 section 5.1), as
// some providers return it, and joins the strings. It returns other texts unchanged.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' {
		return s
	}
	var text strings.Builder
	rest := s
	for rest != "" {
		part, after, ok := cutQuoted(rest)
		if !ok {
			return s
		}
		text.WriteString(part)
		rest = strings.TrimLeft(after, " \t")
	}
	return text.String()
}

// cutQuoted parses one quoted character string at the start of s. It returns the string without
// quotes and the rest of s; ok is false if s does not start with a quoted string.
func cutQuoted(s string) (text, rest string, ok bool) {
	if s[0] != '"' {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+3 < len(s) && isDecimal(s[i+1:i+4]):
			b.WriteByte((s[i+1]-'0')*100 + (s[i+2]-'0')*10 + (s[i+3] - '0'))
			i += 3
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// isDecimal reports whether s, the three characters of a \DDD escape, is a number up to 255.
func isDecimal(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s <= "255"
}
