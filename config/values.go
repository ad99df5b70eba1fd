package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/outbound"
)

// Types of settings are structs, because the decoder calls UnmarshalText of structs and reports the
// line if that returns an error.

// checkedText is the text of a setting after UnmarshalText has checked it.
type checkedText struct{ text string }

// String returns the text, or "" if the setting is not set.
func (c checkedText) String() string { return c.text }

// An Address is an address to listen on, HOST:PORT, or "off".
type Address struct{ checkedText }

// On reports whether the address is set and not off.
func (a Address) On() bool { return a.text != "" && a.text != "off" }

// UnmarshalText checks that the text is HOST:PORT, :PORT or "off".
func (a *Address) UnmarshalText(text []byte) error {
	a.text = string(text)
	if !a.On() {
		return nil
	}
	_, p, err := net.SplitHostPort(a.text)
	if err == nil {
		_, err = strconv.ParseUint(p, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not an address; write HOST:PORT, :PORT, or off", text)
	}
	return nil
}

// A hostPort is the HOST:PORT of another server.
type hostPort struct{ checkedText }

// UnmarshalText checks that the text is HOST:PORT.
func (t *hostPort) UnmarshalText(text []byte) error {
	t.text = string(text)
	host, p, err := net.SplitHostPort(t.text)
	if n, bad := strconv.ParseUint(p, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		return fmt.Errorf("%q is not the address of a server; write HOST:PORT, such as mx.example.com:25", text)
	}
	return nil
}

// An httpURL is an HTTP URL, or "" if it is not set.
type httpURL struct{ checkedText }

// UnmarshalText checks that the text is an HTTP URL or "".
func (h *httpURL) UnmarshalText(text []byte) error {
	h.text = string(text)
	u, err := url.Parse(h.text)
	if h.text != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		return errors.New("the value is not a URL, such as https://alerts.example.com/mailstead")
	}
	return nil
}

// A hostName is the public name of this host in ASCII and lower case. It is "" in the sandbox.
type hostName struct{ checkedText }

// UnmarshalText checks and normalizes the name.
func (h *hostName) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		h.text = ""
		return nil
	}
	h.text, _, err = idn.Registrable(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a public hostname; use, for example, mail.example.com", text)
	}
	return nil
}

// A contact is the email address of an ACME account, or "" if it is not set.
type contact struct{ checkedText }

// UnmarshalText checks that the text is an email address or "".
func (c *contact) UnmarshalText(text []byte) error {
	c.text = string(text)
	return CheckContact(c.text)
}

// CheckContact returns an error if email is not a plain email address, as certificate authorities
// need it for contacts. It accepts "".
func CheckContact(email string) error {
	if a, err := mail.ParseAddress(email); email != "" && (err != nil || a.Address != email) {
		return fmt.Errorf("%q is not an email address, such as owner@example.com", email)
	}
	return nil
}

// An acmeURL is the directory URL of an ACME certificate authority, "off", or "" if it is not set.
type acmeURL struct{ checkedText }

// On reports whether the URL is set and not off.
func (a acmeURL) On() bool { return a.text != "" && a.text != "off" }

// UnmarshalText checks that the text is an https URL or "off".
func (a *acmeURL) UnmarshalText(text []byte) error {
	a.text = string(text)
	u, err := url.Parse(a.text)
	if a.On() && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return fmt.Errorf("%q is not a directory of a certificate authority; write its https URL, or off", text)
	}
	return nil
}

// A collectorURL is the URL of a trace collector without the path /v1/traces, or "" if it is not
// set.
type collectorURL struct{ checkedText }

// UnmarshalText checks that the text is an HTTP URL or "".
func (c *collectorURL) UnmarshalText(text []byte) error {
	c.text = strings.TrimRight(string(text), "/")
	u, err := url.Parse(c.text)
	if c.text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.HasSuffix(u.Path, "/v1/traces")) {
		return fmt.Errorf("%q is not the address of a collector; write, for example, http://127.0.0.1:4318, without /v1/traces", text)
	}
	return nil
}

// An eabKey is the MAC key for external account binding (RFC 8555 section 7.3.4).
type eabKey struct{ key []byte }

// UnmarshalText decodes the key.
func (k *eabKey) UnmarshalText(text []byte) (err error) {
	k.key, err = ca.DecodeEABKey(string(text))
	if err != nil {
		return errors.New("the value is not a key in base64url, as the certificate authority shows it")
	}
	return nil
}

// An ipList is a list of IP addresses. The file has a TOML list; flags and the environment separate
// the addresses by commas.
type ipList []netip.Addr

// UnmarshalText parses comma-separated addresses.
func (l *ipList) UnmarshalText(text []byte) error {
	*l = nil
	for _, t := range strings.Split(string(text), ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(t))
		if err != nil {
			return fmt.Errorf("%q is not an IP address", t)
		}
		*l = append(*l, ip)
	}
	return nil
}

// A network is an IP address or a CIDR prefix. Prefixes of all addresses, such as 0.0.0.0/0, are
// invalid.
type network struct{ netip.Prefix }

// UnmarshalText parses the address or prefix.
func (n *network) UnmarshalText(text []byte) (err error) {
	t := string(text)
	if ip, none := netip.ParseAddr(t); none == nil {
		ip = ip.Unmap().WithZone("")
		n.Prefix = netip.PrefixFrom(ip, ip.BitLen())
		return nil
	}
	n.Prefix, err = netip.ParsePrefix(t)
	switch {
	case err != nil || n.Addr().Is4In6():
		return fmt.Errorf("%q is not a network; write an address or CIDR, such as 127.0.0.1 or 10.0.0.0/8", t)
	case n.Bits() == 0:
		return fmt.Errorf("%q contains every address, so any client could forge its address; give the proxy's address", t)
	}
	n.Prefix = n.Masked()
	return nil
}

// A netList is a list of networks. The file has a TOML list; flags and the environment separate the
// networks by commas.
type netList []network

// UnmarshalText parses comma-separated networks.
func (l *netList) UnmarshalText(text []byte) error {
	*l = nil
	for _, t := range strings.Split(string(text), ",") {
		var n network
		if err := n.UnmarshalText([]byte(strings.TrimSpace(t))); err != nil {
			return err
		}
		*l = append(*l, n)
	}
	return nil
}

// Prefixes returns the networks as prefixes.
func (l netList) Prefixes() (out []netip.Prefix) {
	for _, n := range l {
		out = append(out, n.Prefix)
	}
	return out
}

// oneOf returns the text if it is one of the allowed words, else an error that lists them.
func oneOf(text []byte, allowed ...string) (string, error) {
	if slices.Contains(allowed, string(text)) {
		return string(text), nil
	}
	return "", fmt.Errorf("%q is not allowed; use one of %s", text, strings.Join(allowed, ", "))
}

type (
	sendingMode    struct{ checkedText }     // one of its words
	logFormat      struct{ checkedText }     // one of its words
	logLevel       struct{ checkedText }     // one of its words
	relayKind      struct{ checkedText }     // one of its words
	returnPathKind struct{ checkedText }     // one of its words
	relayTLS       struct{ checkedText }     // one of its words
	plan           struct{ checkedText }     // one of its words
	pattern        struct{ checkedText }     // a regular expression with a group
	port           uint16                    // 1 to 65535
	count          uint32                    // a whole number that is not negative
	duration       struct{ d time.Duration } // longer than 0; may be in days, such as 7d
	clockOffset    struct{ d time.Duration } // may be negative
	toggle         bool                      // true or false
)

func (sendingMode) words() []string    { return []string{"capture", "direct", "relay"} }
func (logFormat) words() []string      { return []string{"text", "json"} }
func (logLevel) words() []string       { return []string{"debug", "info", "warn", "error"} }
func (plan) words() []string           { return []string{"startup", "enterprise"} }
func (relayTLS) words() []string       { return []string{"starttls", "tls", "none"} }
func (relayKind) words() []string      { return outbound.RelayKinds() }
func (returnPathKind) words() []string { return []string{"sender", "verp"} }

func (o *sendingMode) UnmarshalText(t []byte) (err error) {
	o.text, err = oneOf(t, o.words()...)
	return err
}

func (l *logFormat) UnmarshalText(t []byte) (err error) {
	l.text, err = oneOf(t, l.words()...)
	return err
}

func (l *logLevel) UnmarshalText(t []byte) (err error) {
	l.text, err = oneOf(t, l.words()...)
	return err
}

func (p *plan) UnmarshalText(t []byte) (err error) {
	p.text, err = oneOf(t, p.words()...)
	return err
}

func (r *relayTLS) UnmarshalText(t []byte) (err error) {
	r.text, err = oneOf(t, r.words()...)
	return err
}

func (r *relayKind) UnmarshalText(t []byte) (err error) {
	r.text, err = oneOf(t, r.words()...)
	return err
}

func (p *returnPathKind) UnmarshalText(t []byte) (err error) {
	p.text, err = oneOf(t, p.words()...)
	return err
}

// UnmarshalText checks that the pattern is a regular expression with a group.
func (p *pattern) UnmarshalText(text []byte) error {
	re, err := regexp.Compile(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a regular expression: %w", text, err)
	}
	if re.NumSubexp() == 0 {
		return fmt.Errorf("the pattern %q has no group; put parentheses around the id", text)
	}
	p.text = string(text)
	return nil
}

func (p *port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port; use a number from 1 to 65535", text)
	}
	*p = port(n)
	return nil
}

func (d *duration) UnmarshalText(text []byte) (err error) {
	d.d, err = ParseDuration(string(text))
	return err
}

// ParseDuration parses a positive duration as people write it: as time.ParseDuration does, or as a
// whole number of days such as 7d.
func ParseDuration(text string) (time.Duration, error) {
	v, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		v = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%q is not a duration; write, for example, 7d, 1h or 30m", text)
	}
	return v, nil
}

func (o *clockOffset) UnmarshalText(text []byte) error {
	size, back := strings.CutPrefix(string(text), "-")
	var d duration
	if err := d.UnmarshalText([]byte(size)); err != nil || d.d > maxClockOffset {
		return fmt.Errorf("%q is not a clock offset; write, for example, 26h, 7d or -30m, at most 3650d", text)
	}
	o.d = d.d
	if back {
		o.d = -d.d
	}
	return nil
}

const maxClockOffset = 3650 * 24 * time.Hour // ten years

// Level returns the level for log/slog.
func (l logLevel) Level() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.text)) // valid, because oneOf has checked it
	return level
}
