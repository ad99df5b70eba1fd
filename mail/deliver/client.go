// Package deliver sends one message to another server by SMTP, directly to the MX hosts of a domain
// or through a relay. It does not know accounts, queues, retries or stores: one call is one attempt
// and returns its Result.
package deliver

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/dane"
)

// Resolver looks up names; *net.Resolver implements it. If a name does not exist or has no such
// record, the error is a *net.DNSError with IsNotFound. Any other error counts as a failure of DNS.
// Domains and MX hosts are passed with a final dot, so that no search list applies; the host of a
// relay is passed as configured.
type Resolver interface {
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Client delivers messages. Set its exported fields before the first use; after that it is safe for
// concurrent use.
type Client struct {
	// Hostname is the name of this host in EHLO. If it is also an MX host of the domain, mail would
	// loop.
	Hostname string
	// Helo is the name in EHLO if it is to differ from Hostname.
	Helo string
	// Skip reports whether an address of a host must not be used; nil means that all may be used.
	Skip func(netip.Addr) bool
	// Resolver is used for all look-ups except those of DANE; nil means net.DefaultResolver.
	Resolver Resolver
	// Dialer connects to addr, which is always an ip:port that Client has resolved; nil means a
	// plain net.Dialer. It can refuse forbidden addresses: an error counts as an unreachable host.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// MXPort is the port for direct delivery; 0 means 25.
	MXPort int
	// RootCAs are the trusted root certificates; nil means those of the system.
	RootCAs *x509.CertPool
	// DANE does all look-ups for direct delivery with DNSSEC (RFC 7672), also those of MX records;
	// nil disables DANE.
	DANE *dane.Resolver
	// Timeouts limit each step; fields that are zero have defaults.
	Timeouts Timeouts
	// Now is the clock for Attempt.At; nil means time.Now. Certificates are always checked with
	// time.Now.
	Now func() time.Time
	// IdlePerHop is the maximum number of idle connections to one next hop; 0 means 4, a negative
	// number means none.
	IdlePerHop int
	// IdleTotal is the maximum number of all idle connections; 0 means 64.
	IdleTotal int
	// IdleTimeout is how long an idle connection is kept; 0 means 30 s.
	IdleTimeout time.Duration

	idle pool
}

// Timeouts limit the steps of an attempt. The steps are those of RFC 5321 §4.5.3.2. Most limits are
// shorter than in the RFC, since mail for a slow server is retried. DataEnd is not, since a short
// limit would cause duplicates. The comments give the defaults.
type Timeouts struct {
	DNS       time.Duration // one look-up: 20 s
	Connect   time.Duration // one address: 30 s
	Greeting  time.Duration // until the 220: 2 min
	TLS       time.Duration // one handshake: 1 min
	Command   time.Duration // EHLO, STARTTLS, AUTH, MAIL, RCPT, RSET: 2 min each
	DataStart time.Duration // until the 354: 2 min
	DataBlock time.Duration // each block of the message: 3 min
	DataEnd   time.Duration // from the final dot to its reply: 10 min
	Overall   time.Duration // the whole call with all hosts: 30 min
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		DNS:       cmp.Or(t.DNS, 20*time.Second),
		Connect:   cmp.Or(t.Connect, 30*time.Second),
		Greeting:  cmp.Or(t.Greeting, 2*time.Minute),
		TLS:       cmp.Or(t.TLS, time.Minute),
		Command:   cmp.Or(t.Command, 2*time.Minute),
		DataStart: cmp.Or(t.DataStart, 2*time.Minute),
		DataBlock: cmp.Or(t.DataBlock, 3*time.Minute),
		DataEnd:   cmp.Or(t.DataEnd, 10*time.Minute),
		Overall:   cmp.Or(t.Overall, 30*time.Minute),
	}
}

// Relay is a server that accepts our mail for all recipients.
type Relay struct {
	Host     string // a name, or an IP address
	Port     int    // 0 is 587, or 465 with TLS "tls"
	TLS      string // "starttls", "tls" (from the first byte) or "none"; the certificate must verify against Host
	Username string // "" means no AUTH
	Password string
}

var errOverall = errors.New("the attempt exceeded its time limit")

// Direct delivers to the MX hosts of domain. domain is a name in Unicode or ASCII, or an address
// literal such as "[192.0.2.1]" (RFC 5321 §5.1). TLS is opportunistic (RFC 7435): it is used if the
// host offers it, even with an invalid certificate, and the message is sent in plain text if TLS
// fails. DANE or the MTA-STS policy of the domain can require more. If they forbid a connection,
// that is a temporary failure.
func (c *Client) Direct(ctx context.Context, domain string, env Envelope, m Message) Result {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeouts.withDefaults().Overall, errOverall)
	defer cancel()
	env, f := env.inSMTPForm()
	if f != nil {
		return c.failedResult(f)
	}
	targets, f := c.targets(ctx, domain)
	if f != nil {
		return c.failedResult(f)
	}
	w := delivery{client: c, env: env, message: m}
	return w.run(ctx, targets)
}

// Relay delivers through r, over verified TLS unless r.TLS is "none". If the relay cannot be
// reached, is not trusted or refuses the login, the failure is temporary whatever the reply code,
// since the operator must fix that. Result.Reply is the relay's reply to the message, such as "250
// Ok 0102018f-abc".
func (c *Client) Relay(ctx context.Context, r Relay, env Envelope, m Message) Result {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeouts.withDefaults().Overall, errOverall)
	defer cancel()
	env, f := env.inSMTPForm()
	if f != nil {
		return c.failedResult(f)
	}
	t, err := r.target()
	if err != nil {
		return c.failedResult(&failure{stage: stageConnect, err: err, enhanced: "4.3.5"})
	}
	w := delivery{client: c, env: env, message: m}
	return w.run(ctx, []target{t})
}

// TryRelay connects to r as Relay does, logs in, and disconnects without sending a message. Its
// error says which step failed and contains the relay's reply.
func (c *Client) TryRelay(ctx context.Context, r Relay) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeouts.withDefaults().Overall, errOverall)
	defer cancel()
	t, err := r.target()
	if err != nil {
		return err
	}
	addrs, f := c.addresses(ctx, t)
	for _, ip := range addrs {
		var s *session
		s, f = c.openSession(ctx, t.hop, ip, t.hop.tls)
		if f == nil {
			c.closeSession(s)
			return nil
		}
	}
	if f.err != nil {
		return withCause(ctx, f.err)
	}
	return fmt.Errorf("%s answered: %s", r.Host, f.reply)
}

// Close closes all idle connections. After that no connection is kept idle. It does not end calls
// that are running; these end with their contexts.
func (c *Client) Close() error {
	c.idle.close()
	return nil
}

func (r Relay) target() (target, error) {
	policies := map[string]tlsPolicy{"starttls": tlsVerified, "tls": tlsImplicit, "none": tlsNone}
	policy, ok := policies[r.TLS]
	if !ok {
		return target{}, fmt.Errorf("relay %s: tls is %q, not starttls, tls or none", r.Host, r.TLS)
	}
	if r.Host == "" {
		return target{}, errors.New("relay without a host")
	}
	if strings.Contains(r.Username+r.Password, "\x00") {
		return target{}, fmt.Errorf("relay %s: NUL in user name or password", r.Host)
	}
	port := r.Port
	switch {
	case port < 0 || port > 65535:
		return target{}, fmt.Errorf("relay %s: no port %d", r.Host, r.Port)
	case port == 0 && policy == tlsImplicit:
		port = 465
	case port == 0:
		port = 587
	}
	t := target{hop: hop{host: r.Host, port: port, tls: policy, relay: true, username: r.Username, password: r.Password}}
	if ip, err := netip.ParseAddr(r.Host); err == nil {
		t.addrs = []netip.Addr{ip}
	}
	return t, nil
}

func (c *Client) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

func (c *Client) resolver() Resolver {
	if c.Resolver != nil {
		return c.Resolver
	}
	return net.DefaultResolver
}

func (c *Client) dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	if c.Dialer != nil {
		return c.Dialer(ctx, "tcp", addr.String())
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr.String())
}
