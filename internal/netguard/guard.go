// Package netguard decides which addresses this server may connect to for tenants: public
// addresses, and private ones only if the operator allows them. It checks URLs, and makes dialers
// and HTTP transports that check every address. It does not know who connects, or which protocol is
// used.
package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/net/idna"
)

// ErrBlocked is returned if a Guard refuses an address, or all addresses of a name.
var ErrBlocked = errors.New("address not allowed")

// Guard decides which addresses this server may connect to for tenants. Its zero value, and a nil
// Guard, allow only public unicast addresses. It is safe for concurrent use.
type Guard struct {
	// AllowPrivate also allows loopback, private, shared (RFC 6598), documentation and benchmark
	// networks, and names of local networks. It does not allow link-local addresses, where cloud
	// providers publish the credentials of a machine.
	AllowPrivate bool
	// OnlyPrivate refuses public addresses. It is for traffic that must not cross the internet.
	OnlyPrivate bool
}

// refusedRange is a range of addresses that the guard refuses.
type refusedRange struct {
	prefix netip.Prefix
	what   string // what kind of address it is, for errors
	local  bool   // whether AllowPrivate allows it
}

// refusedRanges lists the ranges in the IANA registries of special-purpose addresses (RFC 6890),
// and metadata addresses of cloud providers. The first range that contains an address applies.
var refusedRanges = []refusedRange{
	{netip.MustParsePrefix("100.100.100.200/32"), "a cloud metadata address", false},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud metadata address", false},
	{netip.MustParsePrefix("192.0.0.192/32"), "a cloud metadata address", false},
	{netip.MustParsePrefix("fd00:ec2::/32"), "a cloud metadata address", false},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a cloud metadata address", false},

	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address", false},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "a shared (CGNAT) address", true},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address", true},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address", false},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address", true},
	{netip.MustParsePrefix("192.0.0.0/24"), "a protocol assignment address", false},
	{netip.MustParsePrefix("192.0.2.0/24"), "a documentation address", true},
	{netip.MustParsePrefix("192.31.196.0/24"), "an AS112 address", false},
	{netip.MustParsePrefix("192.52.193.0/24"), "a multicast tunnel address", false},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay address", false},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address", true},
	{netip.MustParsePrefix("192.175.48.0/24"), "an AS112 address", false},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmark address", true},
	{netip.MustParsePrefix("198.51.100.0/24"), "a documentation address", true},
	{netip.MustParsePrefix("203.0.113.0/24"), "a documentation address", true},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address", false},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address", false},

	{netip.MustParsePrefix("::/128"), "an unspecified address", false},
	{netip.MustParsePrefix("::1/128"), "a loopback address", true},
	{netip.MustParsePrefix("fc00::/7"), "a private address", true},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address", false},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address", false},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address", false},
	{netip.MustParsePrefix("2001:2::/48"), "a benchmark address", true},
	{netip.MustParsePrefix("2001::/23"), "a Teredo or protocol assignment address", false},
	{netip.MustParsePrefix("2001:db8::/32"), "a documentation address", true},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address", false},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "an AS112 address", false},
	{netip.MustParsePrefix("3fff::/20"), "a documentation address", true},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")     // all public IPv6 addresses (RFC 4291 §2.4)
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // IPv6 addresses that stand for IPv4 addresses (RFC 6052 §2.1)
)

// Allowed reports whether this server may connect to an address for tenants. For an IPv4-mapped or
// NAT64 (64:ff9b::/96) address, the IPv4 address in it counts. Addresses with a zone are not
// allowed.
func (g *Guard) Allowed(ip netip.Addr) bool {
	return g.refusalReason(ip) == ""
}

// Control is a function for net.Dialer.Control. It returns ErrBlocked if the address is not
// allowed. It checks the address of the connection itself, so it does not matter if a name resolves
// to another address than at an earlier check.
func (g *Guard) Control(network, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return fmt.Errorf("%w: %s %s", ErrBlocked, network, address)
	}
	return g.checkAddress(target.Addr())
}

// checkAddress returns ErrBlocked if an address is not allowed.
func (g *Guard) checkAddress(ip netip.Addr) error {
	if what := g.refusalReason(ip); what != "" {
		return fmt.Errorf("%w: %s is %s", ErrBlocked, ip, what)
	}
	return nil
}

// refusalReason says why an address is not allowed, such as "a loopback address". It returns "" if
// the address is allowed.
func (g *Guard) refusalReason(ip netip.Addr) string {
	if !ip.IsValid() {
		return "no address"
	}
	if ip.Zone() != "" {
		return "an address with a zone"
	}
	ip = embeddedIPv4(ip)
	for _, c := range refusedRanges {
		if !c.prefix.Contains(ip) {
			continue
		}
		if c.local && g.allowPrivate() {
			return ""
		}
		return c.what
	}
	if ip.Is6() && !globalUnicast.Contains(ip) {
		return "not a global unicast address"
	}
	if g != nil && g.OnlyPrivate {
		return "a public address"
	}
	return ""
}

// allowedKind describes the addresses that the guard allows, for errors.
func (g *Guard) allowedKind() string {
	switch {
	case g == nil || !g.OnlyPrivate:
		return "public"
	case g.AllowPrivate:
		return "private"
	}
	return "allowed"
}

func (g *Guard) allowPrivate() bool { return g != nil && g.AllowPrivate }

// embeddedIPv4 returns the IPv4 address in an IPv4-mapped or NAT64 address. It returns other
// addresses unchanged.
func embeddedIPv4(ip netip.Addr) netip.Addr {
	if nat64.Contains(ip) {
		b := ip.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip.Unmap()
}

const (
	maxURLLength  = 2048 // bytes
	maxHostLength = 253  // characters
	maxLabel      = 63   // characters
)

// localSuffixes lists suffixes of names that exist only in local networks (RFC 6761, RFC 6762, RFC
// 8375, ICANN's "internal", and others that are common).
var localSuffixes = []string{
	"localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home", "lan", "home.arpa",
}

// CheckURL returns an error if raw cannot be the URL of an endpoint. The URL must have https, a
// host, no user info, no fragment, and at most 2048 bytes. If the host is an IP address, it must be
// allowed and in the usual notation. If it is a name, it must not be one of a local network, unless
// AllowPrivate is set. The addresses of names are checked only when a connection is opened. The
// error is a text for people, and wraps ErrBlocked if the host is refused.
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

// checkPort returns an error if a URL has an invalid port.
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

// checkHost returns an error if the host of a URL is invalid or not allowed.
func (g *Guard) checkHost(u *url.URL) error {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		return g.checkIPv6Literal(host)
	}
	name, err := asciiName(host)
	if err != nil {
		return errors.New("url's host is not a valid name")
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.Is4() {
		return g.checkAddress(ip)
	}
	return g.checkName(strings.TrimSuffix(name, "."))
}

// checkIPv6Literal returns an error if an IPv6 address in a URL is invalid or not allowed. It also
// refuses IPv6 addresses that stand for IPv4 addresses.
func (g *Guard) checkIPv6Literal(host string) error {
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() {
		return errors.New("url's host is not a valid IPv6 address")
	}
	if ip.Is4In6() || nat64.Contains(ip) {
		return fmt.Errorf("%w: %s stands for an IPv4 address; write that one", ErrBlocked, ip)
	}
	return g.checkAddress(ip)
}

// checkName returns an error if a host name in a URL is invalid or not allowed.
func (g *Guard) checkName(name string) error {
	labels := strings.Split(name, ".")
	if len(name) > maxHostLength || slices.ContainsFunc(labels, isInvalidLabel) {
		return errors.New("url's host is not a valid name")
	}
	if looksNumeric(labels[len(labels)-1]) {
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

// looksNumeric reports whether a host name with this last label might be an IPv4 address in a
// notation that C libraries and browsers accept, such as 2130706433, 0x7f000001, 0177.0.0.1 or
// 127.1. No top-level domain has this form (RFC 3696 §2).
func looksNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isInvalidLabel reports whether a label of a host name is invalid. It permits underscores, which
// many host names have although RFC 1123 §2.1 forbids them.
func isInvalidLabel(label string) bool {
	return label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' ||
		strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != ""
}

// asciiName converts a host name to lower case and ASCII, as the HTTP client does. The result may
// be an IP address, for example if the name has full-width digits.
func asciiName(host string) (string, error) {
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return idna.Lookup.ToASCII(host)
	}
	return strings.ToLower(host), nil
}
