package netguard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ErrResolve is returned by a guarded dialer when a name has no address, or the resolver does not
// answer in time.
var ErrResolve = errors.New("name not resolved")

const (
	lookupTimeout  = 5 * time.Second
	connectTimeout = 30 * time.Second
	attemptDelay   = 250 * time.Millisecond // RFC 8305 §5
	maxAddresses   = 8
)

// Resolver looks up the addresses of a host; *net.Resolver implements it.
type Resolver interface {
	// LookupNetIP takes "ip", "ip4" or "ip6" as network.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer returns a dial function for network "tcp", "tcp4" or "tcp6" and addr "host:port" with a
// numeric port. It resolves host with resolver (nil: the system's), drops the addresses that are
// not allowed, and tries at most 8 of the others a quarter of a second apart, alternating families
// (RFC 8305); the first connection wins. Errors wrap ErrBlocked if no address is allowed, and
// ErrResolve if there is none. A lookup ends after 5 s and a connect after 30 s, or with ctx.
func (g *Guard) Dialer(resolver Resolver) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return g.DialerFrom(resolver)
}

// DialerFrom is Dialer with given source addresses of this machine, at most one for each family;
// for a family without one, the system chooses.
func (g *Guard) DialerFrom(resolver Resolver, from ...netip.Addr) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	connect := func(ctx context.Context, network, addr string) (net.Conn, error) {
		nd := &net.Dialer{Timeout: connectTimeout, Control: g.Control}
		if to, err := netip.ParseAddrPort(addr); err == nil {
			for _, ip := range from {
				if ip.Is4() == to.Addr().Is4() {
					nd.LocalAddr = &net.TCPAddr{IP: ip.AsSlice()}
				}
			}
		}
		return nd.DialContext(ctx, network, addr)
	}
	d := &dialer{guard: g, resolver: resolver, connect: connect}
	return d.dial
}

type dialer struct {
	guard    *Guard
	resolver Resolver
	connect  func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	family, ok := strings.CutPrefix(network, "tcp")
	if !ok {
		return nil, fmt.Errorf("dial %s: %w: %s", addr, ErrBlocked, network)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, fmt.Errorf("dial %s: port is not a number: %w", addr, err)
	}
	addrs, err := d.lookup(ctx, "ip"+family, host)
	if err != nil {
		return nil, err
	}
	allowed := make([]netip.Addr, 0, len(addrs))
	for _, ip := range addrs {
		if d.guard.Allowed(ip) {
			allowed = append(allowed, ip.Unmap())
		}
	}
	if len(allowed) == 0 {
		// The address itself is not in the text, which a tenant can read: it may come from a
		// private zone.
		return nil, fmt.Errorf("%w: %s has no %s address", ErrBlocked, host, d.guard.allowedKind())
	}
	targets := alternateFamilies(allowed)
	targets = targets[:min(len(targets), maxAddresses)]
	return race(ctx, targets, func(ctx context.Context, ip netip.Addr) (net.Conn, error) {
		return d.connect(ctx, network, net.JoinHostPort(ip.String(), port))
	})
}

func (d *dialer) lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := d.resolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrResolve, host, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%w: %s has no address", ErrResolve, host)
	}
	return addrs, nil
}

// alternateFamilies orders addresses so that families alternate, beginning with that of the first
// address (RFC 8305 §4).
func alternateFamilies(addrs []netip.Addr) []netip.Addr {
	var same, other []netip.Addr
	for _, ip := range addrs {
		if ip.Is4() == addrs[0].Is4() {
			same = append(same, ip)
		} else {
			other = append(other, ip)
		}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out
}

type attempt struct {
	conn net.Conn
	err  error
}

// race starts a connection to the next target when the previous one has failed or taken
// attemptDelay. It returns the first connection, or all errors once all attempts have failed.
func race(ctx context.Context, targets []netip.Addr, connect func(context.Context, netip.Addr) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan attempt, len(targets))
	next := time.NewTimer(0)
	defer next.Stop()
	started, ended := 0, 0
	var failures []error
	for ended < len(targets) {
		select {
		case <-next.C:
			if started == len(targets) {
				continue
			}
			target := targets[started]
			started++
			go func() {
				conn, err := connect(ctx, target)
				done <- attempt{conn, err}
			}()
			next.Reset(attemptDelay)
		case a := <-done:
			ended++
			if a.err == nil {
				cancel()
				closeLate(done, started-ended)
				return a.conn, nil
			}
			failures = append(failures, a.err)
			next.Reset(0)
		}
	}
	return nil, errors.Join(failures...)
}

// closeLate waits for the remaining attempts, whose context has ended, and closes the connections
// that they still made.
func closeLate(done <-chan attempt, running int) {
	for range running {
		if a := <-done; a.conn != nil {
			a.conn.Close()
		}
	}
}

// maxHeaderBytes is the largest header of an HTTP response.
const maxHeaderBytes = 64 << 10

// Transport returns an HTTP transport that dials through the guard, resolving names as Dialer does.
// It trusts roots (nil: the system's), speaks TLS 1.2 or later, uses no proxy, and reads at most 64
// KiB of a response header. Its other fields are zero: the caller sets timeouts and limits of idle
// connections before the first request.
func (g *Guard) Transport(resolver Resolver, roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            g.Dialer(resolver),
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}
