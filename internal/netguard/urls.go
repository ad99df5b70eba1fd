package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

const (
	maxURLLength  = 2048
	maxHostLength = 253
	maxLabel      = 63
)

// localSuffixes end names that only a local network or this machine can resolve (RFC 6761, RFC
// 6762, RFC 8375, and ICANN's "internal" with the common habits beside it).
var localSuffixes = []string{
	"localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home", "lan", "home.arpa",
}

// CheckURL says whether raw may be the URL of an endpoint: https, a host, no user info, no
// fragment, a port from 1 to 65535, at most 2048 characters. A host that is an address must be
// allowed and written in its usual form; a name must be one that the public DNS can know, unless
// AllowPrivate is set. Addresses behind names are checked when they are dialled. The error is a
// sentence for the person who gave the URL; refused hosts wrap ErrBlocked.
func (g *Guard) CheckURL(raw string) error {
	if len(raw) > maxURLLength {
		return fmt.Errorf("url is longer than %d characters", maxURLLength)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("url is not a valid URL")
	}
	switch {
	case u.Scheme != "https":
		return errors.New("url must begin with https://")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("url has no host")
	case u.User != nil:
		return errors.New("url must not carry a user name or password")
	case strings.Contains(raw, "#"):
		return errors.New("url must not have a fragment (#)")
	}
	if err := checkPort(u); err != nil {
		return err
	}
	return g.checkHost(u)
}

func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return errors.New("url's port must be from 1 to 65535")
	}
	return nil
}

func (g *Guard) checkHost(u *url.URL) error {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		return g.checkLiteral6(host)
	}
	name, err := asciiName(host)
	if err != nil {
		return errors.New("url's host is not a valid name")
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.Is4() {
		return g.check(ip)
	}
	return g.checkName(strings.TrimSuffix(name, "."))
}

// checkLiteral6 refuses the forms that hide an IPv4 address even where that address is allowed:
// nobody needs them.
func (g *Guard) checkLiteral6(host string) error {
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() {
		return errors.New("url's host is not a valid IPv6 address")
	}
	if ip.Is4In6() || nat64.Contains(ip) {
		return fmt.Errorf("%w: %s stands for an IPv4 address; write that one", ErrBlocked, ip)
	}
	return g.check(ip)
}

func (g *Guard) checkName(name string) error {
	labels := strings.Split(name, ".")
	if len(name) > maxHostLength || slices.ContainsFunc(labels, badLabel) {
		return errors.New("url's host is not a valid name")
	}
	if numeric(labels[len(labels)-1]) {
		return fmt.Errorf("%w: %s is not the usual form of an address; write four decimal numbers", ErrBlocked, name)
	}
	if g.allowPrivate() {
		return nil
	}
	if len(labels) == 1 || slices.ContainsFunc(localSuffixes, func(s string) bool { return strings.HasSuffix("."+name, "."+s) }) {
		return fmt.Errorf("%w: %s is a name of a local network", ErrBlocked, name)
	}
	return nil
}

// numeric reports whether a last label makes C libraries and browsers read the host as an IPv4
// address: 2130706433, 0x7f000001, 0177.0.0.1, 127.1. No top-level domain looks like this (RFC 3696
// §2).
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// badLabel is lenient about underscores, which many hosts have though RFC 1123 §2.1 does not.
func badLabel(label string) bool {
	return label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' ||
		strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != ""
}

// asciiName is host in lower case and ASCII, mapped as the HTTP client maps it: full-width digits
// may become an address.
func asciiName(host string) (string, error) {
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return idna.Lookup.ToASCII(host)
	}
	return strings.ToLower(host), nil
}
