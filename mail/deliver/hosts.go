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

// Limits on what one call tries, whatever a domain publishes.
const (
	maxHosts    = 5
	maxAddrs    = 4 // addresses of one host
	maxAttempts = 12
)

// tlsPolicy is the kind of TLS that is used or required for a connection.
type tlsPolicy int

const (
	tlsOpportunistic tlsPolicy = iota // STARTTLS if it works, even with an invalid certificate
	tlsNone                           // plain text
	tlsVerified                       // STARTTLS with a valid certificate for the host
	tlsImplicit                       // TLS from the first byte, with a valid certificate for the host
	tlsSTS                            // like tlsVerified, but required by the domain's MTA-STS policy
	tlsDANE                           // STARTTLS with a certificate that matches the TLSA records
	tlsEncrypted                      // STARTTLS with any certificate, since there are TLSA records but none is usable
)

// hop is a next hop: a host and all parameters of a connection to it. Deliveries to equal hops may
// use the same connection.
type hop struct {
	host               string
	port               int
	tls                tlsPolicy
	relay              bool
	username, password string
	tlsa               string // the TLSA records that apply, one per line
	names              string // names that a certificate may have for usage DANE-TA, separated by spaces
	sni                string // server name for TLS (SNI); "" means host
}

// target is a hop with its addresses. addrs is nil until they are looked up.
type target struct {
	hop        hop
	addrs      []netip.Addr
	secure     bool // DNSSEC validates the name of the host
	literal    bool // the host is an address literal, so there is no name to validate
	implicitMX bool // the host is the recipient's domain itself, which has no MX records
}

var errNoAddress = errors.New("the name has no address")

// targets returns the hosts of domain in the order in which to try them (RFC 5321 §5.1).
func (c *Client) targets(ctx context.Context, domain string) ([]target, *failure) {
	if strings.HasPrefix(domain, "[") {
		return c.literalTarget(domain)
	}
	name, ok := idn.Host(domain)
	if !ok {
		return nil, unroutableFailure("5.1.2", fmt.Errorf("%q is not a domain name", printableLine(domain, 100)))
	}
	records, secure, err := c.lookupMX(ctx, name)
	if err != nil {
		return nil, &failure{stage: stageConnect, err: fmt.Errorf("look up MX of %s: %w", name, err), enhanced: "4.4.3"}
	}
	if len(records) == 0 {
		return c.implicitMXTarget(ctx, name, secure)
	}
	if len(records) == 1 && isNullMX(records[0]) {
		return nil, unroutableFailure("5.1.10", fmt.Errorf("%s takes no mail: it has a null MX record", name)) // RFC 7505
	}
	hosts, loop := rankMXHosts(records, c.Hostname)
	if len(hosts) == 0 && loop {
		return nil, unroutableFailure("5.4.6", fmt.Errorf("mail for %s loops back to us: its MX is %s", name, c.Hostname))
	}
	if len(hosts) == 0 {
		return nil, unroutableFailure("5.4.4", fmt.Errorf("no MX record of %s names a host", name))
	}
	var out []target
	for _, h := range hosts[:min(len(hosts), maxHosts)] {
		out = append(out, target{hop: c.mxHop(h), secure: secure})
	}
	return out, nil
}

// mxHop returns the next hop for an MX host.
func (c *Client) mxHop(host string) hop {
	port := c.MXPort
	if port == 0 {
		port = 25
	}
	return hop{host: host, port: port, tls: tlsOpportunistic}
}

// literalTarget returns the target for an address literal: "[192.0.2.1]" or "[IPv6:2001:db8::1]"
// (RFC 5321 §4.1.3).
func (c *Client) literalTarget(domain string) ([]target, *failure) {
	text, closed := strings.CutSuffix(strings.TrimPrefix(domain, "["), "]")
	if len(text) > 5 && strings.EqualFold(text[:5], "IPv6:") {
		text = text[5:]
	}
	ip, err := netip.ParseAddr(text)
	if !closed || err != nil || ip.Zone() != "" {
		return nil, unroutableFailure("5.1.2", fmt.Errorf("%q is not an address literal", domain))
	}
	ip = ip.Unmap()
	return []target{{hop: c.mxHop(ip.String()), addrs: []netip.Addr{ip}, literal: true}}, nil
}

// implicitMXTarget returns the domain itself as target, since it has no MX records (RFC 5321 §5.1).
func (c *Client) implicitMXTarget(ctx context.Context, name string, secure bool) ([]target, *failure) {
	if strings.EqualFold(name, c.Hostname) {
		return nil, unroutableFailure("5.4.6", fmt.Errorf("mail for %s loops back to us", name))
	}
	t := target{hop: c.mxHop(name), secure: secure, implicitMX: true}
	addrs, err := c.lookupAddrs(ctx, t.hop)
	switch {
	case errors.Is(err, errNoAddress):
		return nil, unroutableFailure("5.1.2", fmt.Errorf("the domain %s does not exist or takes no mail: it has neither MX nor address", name))
	case err != nil:
		return nil, &failure{stage: stageConnect, err: err, enhanced: "4.4.3"}
	}
	t.addrs = addrs
	return []target{t}, nil
}

// lookupMX returns the MX records of name, perhaps none. secure reports whether DNSSEC validates
// the answer.
func (c *Client) lookupMX(ctx context.Context, name string) (records []*net.MX, secure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeouts.withDefaults().DNS)
	defer cancel()
	if c.DANE != nil {
		return c.DANE.LookupMX(ctx, name)
	}
	records, err = c.resolver().LookupMX(ctx, name+".")
	if len(records) > 0 || isNotFound(err) {
		return records, false, nil // *net.Resolver returns the valid records even if others are invalid, with an error about these
	}
	return nil, false, err
}

// addresses returns at most maxAddrs addresses of a target. IPv4 and IPv6 alternate.
func (c *Client) addresses(ctx context.Context, t target) ([]netip.Addr, *failure) {
	if t.addrs != nil {
		return alternateFamilies(t.addrs), nil
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
			return nil, &failure{stage: stageConnect, err: fmt.Errorf("all addresses of %s are excluded from sending", t.hop.host), enhanced: "4.4.1"}
		}
	}
	return alternateFamilies(addrs), nil
}

// lookupAddrs returns at least one address of the hop. The error wraps errNoAddress if there is
// none, and is another error if DNS failed.
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

// alternateFamilies returns the first maxAddrs addresses with IPv4 and IPv6 alternating, so that
// the limit does not exclude one of the two. It begins with the family that the resolver returned
// first.
func alternateFamilies(addrs []netip.Addr) []netip.Addr {
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

// rankMXHosts sorts MX hosts by preference, and at random if that is equal. If self is one of them,
// mail would loop: loop is true, and the result has only the hosts that are preferred to self (RFC
// 5321 §5.1).
func rankMXHosts(records []*net.MX, self string) (hosts []string, loop bool) {
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
