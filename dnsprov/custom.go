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
	maxLabel = 63   // characters of a label (RFC 1035 section 3.1)
	maxText  = 4096 // bytes of a TXT record's value
)

// specialNames lists top-level names that are in no registry (RFC 6761, RFC 6762, RFC 8375).
var specialNames = []string{"test", "example", "invalid", "localhost", "local", "onion", "internal"}

// CustomName returns the full name, as in Record.Name, for the name that a domain's owner gives a
// record: "@" for the domain, a full name below it, or the part of that before the domain. The
// first label of a name below may be * (RFC 4592). A name that clearly belongs to another domain is
// refused and not placed below the domain. Errors are written for the owner.
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
	inside := name == domain || strings.HasSuffix(name, "."+domain)
	switch {
	case !inside && (absolute || isElsewhere(below)):
		return "", fmt.Errorf("%.80q is not in %s; to put a record below the domain, write the name in full, ending in .%s", name, domain, domain)
	case !inside:
		name += "." + domain
	}
	if len(name) > idn.MaxName {
		return "", fmt.Errorf("is too long: a name has at most %d characters", idn.MaxName)
	}
	return name, nil
}

// isElsewhere reports whether a name has several labels and ends like a name of the public DNS.
func isElsewhere(name string) bool {
	if !strings.Contains(name, ".") {
		return false
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	_, icann := publicsuffix.PublicSuffix(name)
	return icann || slices.Contains(specialNames, last)
}

// asciiName converts a name to the form of Record.Name. Labels may have underscores, like those of
// services.
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
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	return s != "" && len(s) <= maxLabel && s[0] != '-' && s[len(s)-1] != '-' && !strings.ContainsFunc(s, odd)
}

// CustomValue returns the normalized value of an owner's record of type A, AAAA, CNAME or TXT. A
// text may have the quotes of zone files, which are removed. Errors are written for the owner.
func CustomValue(typ, given, domain string) (string, error) {
	value := strings.TrimSpace(given)
	switch typ {
	case "A", "AAAA":
		ip, err := netip.ParseAddr(value)
		if err != nil || ip.Zone() != "" || ip.Is4() != (typ == "A") || ip.Is4In6() {
			return "", fmt.Errorf("%.80q is not an %s address", value, map[string]string{"A": "IPv4", "AAAA": "IPv6"}[typ])
		}
		return ip.String(), nil
	case "CNAME":
		return aliasTarget(value, domain)
	case "TXT":
		return textValue(value)
	}
	return "", fmt.Errorf("there are no records of type %.20s here; use TXT, CNAME, A or AAAA", typ)
}

func aliasTarget(value, domain string) (string, error) {
	if value == "@" {
		return domain, nil
	}
	name, err := asciiName(strings.TrimSuffix(value, "."))
	switch {
	case len(value) > 4*idn.MaxName || err != nil || len(name) > idn.MaxName:
		return "", fmt.Errorf("%.80q is not a host name", value)
	case !strings.Contains(name, "."):
		return "", fmt.Errorf("%.80q is not a whole name: write it to its end, as in www.example.com", value)
	case isIP(name):
		return "", fmt.Errorf("%.80q is an address: a CNAME leads to a name; use an A or AAAA record", value)
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

// QuoteText writes a text in the quotes of zone files, from which CustomValue restores it.
func QuoteText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// EscapeText escapes bytes for a character string of a zone file (RFC 1035 section 5.1), without
// the quotes around it: bytes that are not printable ASCII become \DDD.
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

// UnquoteText joins the quoted character strings of a text in the notation of zone files (RFC 1035
// section 5.1). A text in another form is returned unchanged.
func UnquoteText(s string) string { return unquote(s) }
