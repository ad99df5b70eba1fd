// Package dnsprov decides which DNS records a hosted domain needs, plans the changes that bring a
// zone to that state, and looks up whether the records are published. It knows nothing of accounts,
// of where domains are stored, or of who asks.
package dnsprov

import "strings"

// Record is one DNS record of a domain, the same for every provider.
type Record struct {
	Name     string // the full name, lower-case, without the trailing dot
	Type     string // NS, MX, A, AAAA, TXT, CNAME, SRV, CAA or TLSA
	Value    string // an address, a host name in the form of Name, the whole text of a TXT, unquoted and unsplit, a CAA as 0 issue "ca.example", or a TLSA as 3 1 1 and hex digits
	Priority uint16 // for an MX or SRV
	Weight   uint16 // for an SRV (RFC 2782)
	Port     uint16 // for an SRV
	TTL      uint32 // seconds
	Purpose  string // one of the Purpose constants; empty for a foreign record
	Critical bool   // mail does not work without it
	ID       string // the provider's id for the record, if it has one; ignored in comparisons
}

// Flattened is the Type of a CNAME that a provider answers with the addresses behind it, so that
// other records can be at its name. Providers list such records; none is ever wanted.
const Flattened = "CNAME flattened"

// Purposes of records.
const (
	PurposeNS         = "NS"
	PurposeA          = "A" // also AAAA
	PurposeMX         = "MX"
	PurposeSPF        = "SPF"
	PurposeDKIM       = "DKIM"
	PurposeDMARC      = "DMARC"
	PurposeMTASTS     = "MTA_STS"    // RFC 8461: the policy's id, and the host that serves the policy
	PurposeTLSRPT     = "TLSRPT"     // RFC 8460
	PurposeAutoconfig = "AUTOCONFIG" // for mail clients to find their settings: hosts, and SRV (RFC 6186)
	PurposeDANE       = "DANE"       // keys with which other servers verify the mail host (RFC 7672)
	PurposeACME       = "ACME"       // a challenge of a certificate authority (RFC 8555 section 8.4)
	PurposeCustom     = "CUSTOM"     // a record that the domain's owner added
)

// Same reports whether two records publish the same data. It ignores TTL, purpose and the letter
// case of names.
func (r Record) Same(o Record) bool {
	if r.Type != o.Type || hostName(r.Name) != hostName(o.Name) || r.Priority != o.Priority || r.Weight != o.Weight || r.Port != o.Port {
		return false
	}
	return r.value() == o.value()
}

// value returns the record's value in normalized form: a text unquoted and joined, a name or
// address in lower case.
func (r Record) value() string {
	if r.Type == "TXT" {
		return unquote(r.Value)
	}
	return hostName(r.Value)
}

// hostName converts a host name to the form of Record.Name.
func hostName(s string) string {
	return strings.ToLower(strings.TrimSuffix(strings.TrimSpace(s), "."))
}

// unquote joins the quoted character strings of a TXT value in the notation of zone files (RFC 1035
// section 5.1), which some providers return. A text in another form is returned unchanged.
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

// cutQuoted splits one quoted character string off the front of s.
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

// isDecimal reports whether s, the three digits of a \DDD escape, is the value of a byte.
func isDecimal(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s <= "255"
}
