package idn

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

const (
	// maxRegistrable is the maximum length of a domain for mail. Of the 253 characters of a DNS
	// name it leaves 33 for the prefixes that mail needs, such as selector._domainkey.
	maxRegistrable = 220
	// maxInput limits the input before it is validated. The ASCII form of a name has at least a
	// third of the length of the input.
	maxInput = 4 * maxRegistrable
)

// Registrable returns the ASCII and the Unicode form of a domain that a person typed (RFC 5891). It
// refuses names that nobody can own, such as public suffixes. The text of an error is for the
// person who typed the domain.
func Registrable(s string) (ascii, unicode string, err error) {
	name := strings.TrimSuffix(strings.TrimSpace(s), ".")
	if err := checkInput(name); err != nil {
		return "", "", err
	}
	ascii, err = idna.Lookup.ToASCII(name)
	if err != nil {
		return "", "", fmt.Errorf("%.80q is not a domain name: use letters, digits and hyphens, as in example.com", name)
	}
	if err := checkName(ascii); err != nil {
		return "", "", err
	}
	unicode, err = idna.Lookup.ToUnicode(ascii)
	if err != nil {
		return "", "", fmt.Errorf("%.80q has a label that is not valid Punycode: give the name in its own letters", name)
	}
	// If encoding the Unicode form gave another ASCII form, the domain would have two names.
	if again, err := idna.Lookup.ToASCII(unicode); err != nil || again != ascii {
		return "", "", fmt.Errorf("%.80q has a label that is not valid Punycode: give the name in its own letters", name)
	}
	return ascii, unicode, nil
}

// checkInput refuses common mistakes, each with its own advice.
func checkInput(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the domain is empty: give a name such as example.com")
	case len(name) > maxInput:
		return fmt.Errorf("%.40q… is too long: a domain has at most %d characters", name, maxRegistrable)
	case !utf8.ValidString(name):
		return fmt.Errorf("%.80q is not valid UTF-8: give the name in UTF-8 or in Punycode", name)
	case strings.Contains(name, "://"), strings.ContainsAny(name, "/?#"):
		return fmt.Errorf("%.80q is an address of a page: give only its domain, such as example.com", name)
	case strings.Contains(name, "@"):
		return fmt.Errorf("%.80q is an email address: give only the part after the @", name)
	case strings.HasPrefix(name, "*"):
		return fmt.Errorf("%.80q is a wildcard: give each domain by its name", name)
	}
	return refuseIP(name)
}

func refuseIP(name string) error {
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return fmt.Errorf("%.80q is an IP address: give a domain name such as example.com", name)
	}
	return nil
}

// checkName refuses names that nobody can own, and names for which mail cannot be hosted.
func checkName(ascii string) error {
	if len(ascii) > maxRegistrable {
		return fmt.Errorf("%.40q… is too long: a domain that mail is hosted on has at most %d characters", ascii, maxRegistrable)
	}
	labels := strings.Split(ascii, ".")
	for _, label := range labels {
		if label == "" {
			return fmt.Errorf("%.80q has an empty part: write one dot between two parts", ascii)
		}
		if len(label) > maxLabel {
			return fmt.Errorf("%.40q… is too long: a part between dots has at most %d characters", label, maxLabel)
		}
	}
	if len(labels) < 2 {
		return fmt.Errorf("%q has no dot: give the whole name, such as %s.com", ascii, ascii)
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%.80q ends in a number: give a domain name such as example.com", ascii)
	}
	if err := refuseIP(ascii); err != nil {
		return err
	}
	// Private suffixes such as github.io count too, since only a company owns them.
	if suffix, _ := publicsuffix.PublicSuffix(ascii); suffix == ascii {
		return fmt.Errorf("%q is a public suffix, which no one person holds: give a name under it, such as example.%s", ascii, ascii)
	}
	return nil
}
