package dnsprov

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"

	"github.com/mailstead/mailstead/mail/idn"
)

const (
	maxLabel = 63   // maximum length of a label in characters (RFC 1035 section 3.1)
	maxText  = 4096 // maximum length of a TXT value in bytes
)

// specialNames lists reserved top-level names, which the public suffix list does not have (RFC
// 6761, RFC 6762).
var specialNames = []string{"test", "example", "invalid", "localhost", "local", "onion", "internal"}

// CustomName converts the name that a domain's owner enters for a record to the form of
// Record.Name. The owner may enter "@" for the domain, a full name in the domain, or only the part
// before the domain. The first label may be "*" (RFC 4592). CustomName returns an error for a name
// that clearly belongs to another domain. Its errors are shown to the owner.
func CustomName(given, domain string) (string, error) {
	name := strings.TrimSpace(given)
	if name == "@" {
		return domain, nil
	}
	if name == "" || len(name) > 4*idn.MaxName || !utf8.ValidString(name) {
		return "", errors.New("must be @ for the domain itself, a label such as www, or a whole name")
	}
	absolute := strings.HasSuffix(name, ".")
	name = strings.TrimSuffix(name, ".")
	wildcard := name == "*" || strings.HasPrefix(name, "*.") // RFC 4592 section 2.1.1
	below, err := "", error(nil)
	if name != "*" {
		below, err = asciiName(strings.TrimPrefix(name, "*."))
		if err != nil {
			return "", err
		}
	}
	name = below
	switch {
	case wildcard && below == "":
		name = "*"
	case wildcard:
		name = "*." + below
	}
	inside := IsWithin(name, domain)
	switch {
	case !inside && (absolute || hasPublicSuffix(below)):
		return "", fmt.Errorf("%.80q is not in %s; to put a record below the domain, write the name in full, ending in .%s", name, domain, domain)
	case !inside:
		name += "." + domain
	}
	if len(name) > idn.MaxName {
		return "", fmt.Errorf("is too long: a name has at most %d characters", idn.MaxName)
	}
	return name, nil
}

// hasPublicSuffix reports whether a name has several labels and ends in a public or reserved
// suffix, so that it is a full name.
func hasPublicSuffix(name string) bool {
	if !strings.Contains(name, ".") {
		return false
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, icann := publicsuffix.PublicSuffix(name)
	return icann || slices.Contains(specialNames, last)
}

// asciiName converts a name to the form of Record.Name. It allows underscores in labels, as in
// _dmarc.
func asciiName(name string) (string, error) {
	labels := strings.Split(name, ".")
	for i, label := range labels {
		ascii := strings.ToLower(label)
		if strings.ContainsFunc(label, func(r rune) bool { return r >= utf8.RuneSelf }) {
			var err error
			ascii, err = idn.Address(label)
			if err != nil {
				return "", fmt.Errorf("has the label %.80q, which cannot be one", label)
			}
		}
		if !isLabel(ascii) {
			return "", fmt.Errorf("has the label %.80q; labels have 1 to %d letters, digits, hyphens and underscores; a * stands alone, as the first label", label, maxLabel)
		}
		labels[i] = ascii
	}
	return strings.Join(labels, "."), nil
}

func isLabel(s string) bool {
	forbidden := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	return s != "" && len(s) <= maxLabel && s[0] != '-' && s[len(s)-1] != '-' && !strings.ContainsFunc(s, forbidden)
}

// addressValue returns the normalized form of the address that the owner enters for an A or AAAA
// record.
func addressValue(typ, value string) (string, error) {
	ip, err := netip.ParseAddr(value)
	if err != nil || ip.Zone() != "" || ip.Is4() != (typ == "A") || ip.Is4In6() {
		return "", fmt.Errorf("%.80q is not an %s address", value, map[string]string{"A": "IPv4", "AAAA": "IPv6"}[typ])
	}
	return ip.String(), nil
}

// targetName converts a host name that the owner enters as a value to the form of Record.Name. "@"
// is the domain.
func targetName(value, domain string) (string, error) {
	if value == "@" {
		return domain, nil
	}
	name, err := asciiName(strings.TrimSuffix(value, "."))
	switch {
	case len(value) > 4*idn.MaxName || err != nil || len(name) > idn.MaxName:
		return "", fmt.Errorf("%.80q is not a host name", value)
	case isIP(name):
		return "", fmt.Errorf("%.80q is an address, where a record of this type has a host name; use an A or AAAA record", value)
	case !strings.Contains(name, "."):
		return "", fmt.Errorf("%.80q is not a whole name: write it to its end, as in www.example.com", value)
	}
	return name, nil
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return err == nil
}

func textValue(value string) (string, error) {
	text := unquote(value)
	switch {
	case text == "":
		return "", errors.New("is empty")
	case len(text) > maxText:
		return "", fmt.Errorf("is too long: a text has at most %d bytes", maxText)
	case !utf8.ValidString(text), strings.ContainsFunc(text, unicode.IsControl):
		return "", errors.New("must be a text without control characters")
	}
	return text, nil
}

// QuoteText puts a text in the quotes of zone files. UnquoteText removes them again.
func QuoteText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// EscapeText escapes a text for a character string of a zone file (RFC 1035 section 5.1). Bytes
// that are not printable ASCII become \DDD. It does not add the quotes around the string.
func EscapeText(s string) string {
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

// UnquoteText parses quoted character strings in the notation of zone files (RFC 1035 section 5.1)
// and joins them. It returns other texts unchanged.
func UnquoteText(s string) string { return unquote(s) }
