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

// ErrResolve is returned by the dialers of a Guard if a name has no address, or if the lookup
// fails.
var ErrResolve = errors.New("name not resolved")

const (
	lookupTimeout  = 5 * time.Second        // for the lookup of a name
	connectTimeout = 30 * time.Second       // for connecting to one address
	attemptDelay   = 250 * time.Millisecond // between connecting to two addresses (RFC 8305 §5)
	maxAddresses   = 8                      // maximum number of addresses to try
)

// Resolver looks up the addresses of a host. *net.Resolver implements it.
type Resolver interface {
	// LookupNetIP returns the addresses of host. network is "ip", "ip4" or "ip6".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer returns a function that opens a connection. network is "tcp", "tcp4" or "tcp6", and addr
// is "host:port" with a numeric port. The function looks up the host with resolver, or with the
// system's if that is nil. It tries up to 8 of the allowed addresses, alternating between IPv4 and
// IPv6 (RFC 8305), and returns the first connection. It returns ErrBlocked if no address is
// allowed, and ErrResolve if the host has no address. A lookup may take 5 seconds, and connecting
// 30 seconds.
func (g *Guard) Dialer(resolver Resolver) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return g.DialerFrom(resolver)
}

// DialerFrom does the same as Dialer, but from has the source addresses to use, at most one of each
// family. The system chooses the source address of a family that is not in from.
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

// DialIP connects to an IP address. network is "tcp" or "udp", and addr is "IP:port". It returns
// ErrBlocked if the address is not allowed, or if it is a name. Connecting may take 30 seconds.
func (g *Guard) DialIP(ctx context.Context, network, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil || network != "tcp" && network != "udp" {
		return nil, fmt.Errorf("dial %s: %w: %s", addr, ErrBlocked, network)
	}
	if err := g.checkAddress(to.Addr()); err != nil {
		return nil, err
	}
	return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, to.String())
}

// A dialer opens connections for Dialer and DialerFrom.
type dialer struct {
	guard    *Guard
	resolver Resolver
	// connect connects to an IP address.
	connect func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	family, ok := strings.CutPrefix(network, "tcp")
	if !ok {
		return nil, fmt.Errorf("dial %s: %w: %s", addr, ErrBlocked, network)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("parse address %s: %w", addr, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, fmt.Errorf("parse address %s: the port is not a number: %w", addr, err)
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
		// Tenants can read this text. It does not have the address, which may be from a private
		// zone.
		return nil, fmt.Errorf("%w: %s has no %s address", ErrBlocked, host, d.guard.allowedKind())
	}
	targets := alternateFamilies(allowed)
	targets = targets[:min(len(targets), maxAddresses)]
	return dialFastest(ctx, targets, func(ctx context.Context, ip netip.Addr) (net.Conn, error) {
		return d.connect(ctx, network, net.JoinHostPort(ip.String(), port))
	})
}

// lookup returns the addresses of a host. It returns ErrResolve if there are none.
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

// alternateFamilies sorts addresses so that IPv4 and IPv6 alternate, starting with the family of
// the first address (RFC 8305 §4).
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

// A dialResult is the result of connecting to one address.
type dialResult struct {
	conn net.Conn
	err  error
}

// dialFastest connects to the targets in parallel, and returns the first connection. It starts with
// the next target after attemptDelay, or at once if an attempt has failed. If all attempts fail, it
// returns all errors.
func dialFastest(ctx context.Context, targets []netip.Addr, connect func(context.Context, netip.Addr) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan dialResult, len(targets))
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
				done <- dialResult{conn, err}
			}()
			next.Reset(attemptDelay)
		case a := <-done:
			ended++
			if a.err == nil {
				cancel()
				closeLateConnections(done, started-ended)
				return a.conn, nil
			}
			failures = append(failures, a.err)
			next.Reset(0)
		}
	}
	return nil, errors.Join(failures...)
}

// closeLateConnections waits for a number of running attempts, and closes their connections.
// dialFastest has canceled their context.
func closeLateConnections(done <-chan dialResult, running int) {
	for range running {
		if a := <-done; a.conn != nil {
			a.conn.Close()
		}
	}
}

// maxHeaderBytes is the maximum size in bytes of the header of an HTTP response.
const maxHeaderBytes = 64 << 10

// Transport returns an HTTP transport that opens connections with Dialer(resolver). It trusts the
// certificate authorities in roots, or the system's if that is nil. It needs TLS 1.2 or later, uses
// no proxy, and limits response headers to 64 KiB. The caller should set timeouts and limits of
// idle connections.
func (g *Guard) Transport(resolver Resolver, roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            g.Dialer(resolver),
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}
