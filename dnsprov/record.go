// Package dnsprov says which DNS records a hosted domain needs, plans the changes that bring a zone
// there and looks up live whether they are there. It knows nothing of accounts, of where domains
// are kept and of who asks.
package dnsprov

import "strings"

// Record is one DNS record of a domain, the same for every provider.
type Record struct {
	Name     string // the whole name, lower-case, without the trailing dot
	Type     string // NS MX A AAAA TXT CNAME SRV CAA TLSA
	Value    string // an address, a host name as Name, the whole text of a TXT, unquoted and unsplit, a CAA as 0 issue "ca.example", or a TLSA as 3 1 1 and hex digits
	Priority uint16 // of an MX or SRV
	Weight   uint16 // of an SRV (RFC 2782)
	Port     uint16 // of an SRV
	TTL      uint32 // seconds
	Purpose  string // one of the Purpose constants; empty for a foreign record
	Critical bool   // mail does not work without it
	ID       string // the provider's own name for it, if it has one; it does not count in a comparison
}

// Flattened is the Type, in what a provider lists, of a CNAME that it answers with the addresses
// behind it, so that other records can be at its name. None is ever wanted.
const Flattened = "CNAME flattened"

// What a record is for.
const (
	PurposeNS         = "NS"
	PurposeA          = "A" // AAAA too
	PurposeMX         = "MX"
	PurposeSPF        = "SPF"
	PurposeDKIM       = "DKIM"
	PurposeDMARC      = "DMARC"
	PurposeMTASTS     = "MTA_STS"    // RFC 8461: the policy's id and the host that serves it
	PurposeTLSRPT     = "TLSRPT"     // RFC 8460
	PurposeAutoconfig = "AUTOCONFIG" // where mail clients find their settings: hosts and SRV (RFC 6186)
	PurposeDANE       = "DANE"       // the keys by which other servers know the mail host (RFC 7672)
	PurposeACME       = "ACME"       // a challenge of a certificate authority (RFC 8555 section 8.4)
	PurposeCustom     = "CUSTOM"     // a record that the domain's owner added
)

// Same reports whether two records publish the same thing; TTL, purpose and the letter case of
// names do not count.
func (r Record) Same(o Record) bool {
	if r.Type != o.Type || hostName(r.Name) != hostName(o.Name) || r.Priority != o.Priority || r.Weight != o.Weight || r.Port != o.Port {
		return false
	}
	return r.value() == o.value()
}

// value is the record's value in the one form that compares: a text unquoted and joined, a name or
// address lower-case.
func (r Record) value() string {
	if r.Type == "TXT" {
		return unquote(r.Value)
	}
	return hostName(r.Value)
}

// hostName brings a host name to the form of Record.Name.
func hostName(s string) string {
	return strings.ToLower(strings.TrimSuffix(strings.TrimSpace(s), "."))
}

// unquote joins the quoted character strings of a TXT value in the notation of zone files (RFC 1035
// section 5.1), in which some providers hand them out. Any other text is returned as it is.
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

// cutQuoted takes one quoted character string off the front of s.
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

// isDecimal reports whether s, three digits of a \DDD escape, stands for a byte.
func isDecimal(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s <= "255"
}
