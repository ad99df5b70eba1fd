package deliver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
)

// What one call tries at most, however many records a domain publishes.
const (
	maxHosts    = 5
	maxAddrs    = 4 // for one host
	maxAttempts = 12
)

// tlsPolicy says what one host must offer before it gets a message.
type tlsPolicy int

const (
	tlsOpportunistic tlsPolicy = iota // STARTTLS if it works, verified or not
	tlsNone                           // plain
	tlsVerified                       // STARTTLS with a certificate for the host
	tlsImplicit                       // TLS from the first byte with a certificate for the host
	tlsSTS                            // as tlsVerified, since the domain's MTA-STS policy says so
	tlsDANE                           // STARTTLS with a certificate that TLSA records vouch for
	tlsEncrypted                      // STARTTLS with any certificate: there are TLSA records, none of them usable
)

// hop is a next hop and all that a connection to it depends on, so that equal hops may share
// connections.
type hop struct {
	host               string
	port               int
	tls                tlsPolicy
	relay              bool
	username, password string
	tlsa               string // the TLSA records that count, one a line
	names              string // for which one of them wants a certificate, with blanks between
	sni                string // the name that TLS asks for; "" is host
}

// target is a hop with its addresses; nil means that they are still to be looked up.
type target struct {
	hop     hop
	addrs   []netip.Addr
	secure  bool // DNSSEC vouches for the host's name
	literal bool // there is no name that anything could vouch for
	itself  bool // it is the recipient's domain, which has no MX
}

var errNoAddress = errors.New("the name has no address")

// targets finds the hosts of domain in the order in which they are tried (RFC 5321 §5.1).
func (c *Client) targets(ctx context.Context, domain string) ([]target, *failure) {
	if strings.HasPrefix(domain, "[") {
		return c.literal(domain)
	}
	name, ok := idn.Host(domain)
	if !ok {
		return nil, unroutable("5.1.2", fmt.Errorf("%q is not a domain name", bounded(domain, 100)))
	}
	records, secure, err := c.lookupMX(ctx, name)
	if err != nil {
		return nil, &failure{stage: stageConnect, err: fmt.Errorf("look up MX of %s: %w", name, err), enhanced: "4.4.3"}
	}
	if len(records) == 0 {
		return c.implicitMX(ctx, name, secure)
	}
	if len(records) == 1 && isNullMX(records[0]) {
		return nil, unroutable("5.1.10", fmt.Errorf("%s takes no mail: it has a null MX record", name)) // RFC 7505
	}
	hosts, loop := rank(records, c.Hostname)
	if len(hosts) == 0 && loop {
		return nil, unroutable("5.4.6", fmt.Errorf("mail for %s loops back to us: its MX is %s", name, c.Hostname))
	}
	if len(hosts) == 0 {
		return nil, unroutable("5.4.4", fmt.Errorf("no MX record of %s names a host", name))
	}
	var out []target
	for _, h := range hosts[:min(len(hosts), maxHosts)] {
		out = append(out, target{hop: c.mxHop(h), secure: secure})
	}
	return out, nil
}

func (c *Client) mxHop(host string) hop {
	port := c.MXPort
	if port == 0 {
		port = 25
	}
	return hop{host: host, port: port, tls: tlsOpportunistic}
}

// literal makes the target of "[192.0.2.1]" or "[IPv6:2001:db8::1]" (RFC 5321 §4.1.3).
func (c *Client) literal(domain string) ([]target, *failure) {
	text, closed := strings.CutSuffix(strings.TrimPrefix(domain, "["), "]")
	if len(text) > 5 && strings.EqualFold(text[:5], "IPv6:") {
		text = text[5:]
	}
	ip, err := netip.ParseAddr(text)
	if !closed || err != nil || ip.Zone() != "" {
		return nil, unroutable("5.1.2", fmt.Errorf("%q is not an address literal", domain))
	}
	ip = ip.Unmap()
	return []target{{hop: c.mxHop(ip.String()), addrs: []netip.Addr{ip}, literal: true}}, nil
}

// implicitMX takes the domain for its own MX, since it has none.
func (c *Client) implicitMX(ctx context.Context, name string, secure bool) ([]target, *failure) {
	if strings.EqualFold(name, c.Hostname) {
		return nil, unroutable("5.4.6", fmt.Errorf("mail for %s loops back to us", name))
	}
	t := target{hop: c.mxHop(name), secure: secure, itself: true}
	addrs, err := c.lookupAddrs(ctx, t.hop)
	switch {
	case errors.Is(err, errNoAddress):
		return nil, unroutable("5.1.2", fmt.Errorf("the domain %s does not exist or takes no mail: it has neither MX nor address", name))
	case err != nil:
		return nil, &failure{stage: stageConnect, err: err, enhanced: "4.4.3"}
	}
	t.addrs = addrs
	return []target{t}, nil
}

// lookupMX returns no records and no error where there are none, and whether DNSSEC vouches for
// that.
func (c *Client) lookupMX(ctx context.Context, name string) ([]*net.MX, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeouts.withDefaults().DNS)
	defer cancel()
	if c.DANE != nil {
		return c.DANE.LookupMX(ctx, name)
	}
	records, err := c.resolver().LookupMX(ctx, name+".")
	if len(records) > 0 || isNotFound(err) {
		return records, false, nil // *net.Resolver gives the valid records together with an error about the others
	}
	return nil, false, err
}

// addresses returns where to find a target, bounded, both families in turn.
func (c *Client) addresses(ctx context.Context, t target) ([]netip.Addr, *failure) {
	if t.addrs != nil {
		return alternate(t.addrs), nil
	}
	addrs, err := c.lookupAddrs(ctx, t.hop)
	switch {
	case errors.Is(err, errNoAddress):
		return nil, &failure{stage: stageConnect, err: err, enhanced: "5.4.4", status: Permanent}
	case err != nil:
		return nil, &failure{stage: stageConnect, err: err, enhanced: "4.4.3"}
	}
	if c.Skip != nil {
		addrs = slices.DeleteFunc(slices.Clone(addrs), c.Skip)
		if len(addrs) == 0 {
			return nil, &failure{stage: stageConnect, err: fmt.Errorf("%s has no address that this host sends to", t.hop.host), enhanced: "4.4.1"}
		}
	}
	return alternate(addrs), nil
}

// lookupAddrs returns at least one address, errNoAddress, or another error where DNS failed.
func (c *Client) lookupAddrs(ctx context.Context, h hop) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeouts.withDefaults().DNS)
	defer cancel()
	name := h.host
	if !h.relay {
		name += "."
	}
	addrs, err := c.resolver().LookupNetIP(ctx, "ip", name)
	if isNotFound(err) || err == nil && len(addrs) == 0 {
		return nil, fmt.Errorf("look up %s: %w", h.host, errNoAddress)
	}
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", h.host, err)
	}
	return addrs, nil
}

// alternate takes IPv4 and IPv6 in turn, beginning with the family that the resolver put first, so
// that the bound never leaves out a family.
func alternate(addrs []netip.Addr) []netip.Addr {
	var first, second []netip.Addr
	for _, a := range addrs {
		a = a.Unmap()
		if a.Is4() == addrs[0].Unmap().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	var out []netip.Addr
	for i := 0; i < len(addrs) && len(out) < maxAddrs; i++ {
		if i < len(first) {
			out = append(out, first[i])
		}
		if i < len(second) {
			out = append(out, second[i])
		}
	}
	return out[:min(len(out), maxAddrs)]
}

// rank orders MX hosts by preference, at random among equals, without those that are no better than
// ourselves; loop says that there were such (RFC 5321 §5.1).
func rank(records []*net.MX, self string) (hosts []string, loop bool) {
	sorted := slices.Clone(records)
	rand.Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	slices.SortStableFunc(sorted, func(a, b *net.MX) int { return int(a.Pref) - int(b.Pref) })
	ours := slices.IndexFunc(sorted, func(r *net.MX) bool { return strings.EqualFold(mxHost(r), self) && self != "" })
	for _, r := range sorted {
		if ours >= 0 && r.Pref >= sorted[ours].Pref {
			loop = true
			break
		}
		if h := mxHost(r); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts, loop
}

func mxHost(r *net.MX) string { return strings.ToLower(strings.TrimSuffix(r.Host, ".")) }

func isNullMX(r *net.MX) bool { return mxHost(r) == "" }

func isNotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
