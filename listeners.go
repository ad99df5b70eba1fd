package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/proxyproto"
	"github.com/mailstead/mailstead/internal/metrics"
	"github.com/mailstead/mailstead/service/health"
)

// maxConnsPerAddress is how many HTTP connections one address, or one IPv6 /64, may have open.
const maxConnsPerAddress = 256

// A limitedListener is a listener for HTTP that limits its connections. TLS is a listener around
// it, since the HTTP server speaks HTTP/2 only where it sees the TLS connection itself.
type limitedListener struct {
	net.Listener
	limiter *connlimit.Limiter
	plain   bool // without TLS, so that a refused client can be told why
}

// limitListener limits what ln accepts. Only the limit of all connections holds for exempt
// addresses.
func limitListener(ln net.Listener, name string, plain bool, exempt []netip.Prefix, log *slog.Logger) *limitedListener {
	bounds := connlimit.Limits{All: maxHTTPConns, PerAddress: maxConnsPerAddress, Exempt: exempt}
	return &limitedListener{Listener: ln, limiter: connlimit.New(name, bounds, log), plain: plain}
}

// tooManyConns is the answer to a client that is refused.
const tooManyConns = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n" +
	"Content-Type: text/plain\r\nContent-Length: 21\r\n\r\nToo many connections\n"

// Accept waits for a connection that the limits allow.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if slot := l.limiter.Acquire(conn.RemoteAddr(), func() { conn.Close() }); slot != nil {
			return &trackedConn{Conn: conn, slot: slot}, nil
		}
		if l.plain {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // an empty socket takes a few lines at once
			_, _ = io.WriteString(conn, tooManyConns)
		}
		conn.Close()
	}
}

// Close ends the listener.
func (l *limitedListener) Close() error {
	l.limiter.Close()
	return l.Listener.Close()
}

// A trackedConn is a connection with its slot in the limiter.
type trackedConn struct {
	net.Conn
	slot    *connlimit.Slot
	release sync.Once
}

// Close closes the connection and releases its slot.
func (c *trackedConn) Close() error {
	c.release.Do(c.slot.Release)
	return c.Conn.Close()
}

type slotKey struct{}

// trackConns has the server tell each connection's slot whether the connection is idle. It is idle
// until the header of a request is there, and again when all requests are answered.
func trackConns(hs *http.Server) {
	serve := hs.Handler
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, slotKey{}, slotOf(c))
	}
	hs.ConnState = func(c net.Conn, state http.ConnState) {
		if slot := slotOf(c); slot != nil && state == http.StateIdle {
			slot.Idle()
		}
	}
	hs.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slot, _ := r.Context().Value(slotKey{}).(*connlimit.Slot); slot != nil {
			slot.Busy()
		}
		serve.ServeHTTP(w, r)
	})
}

// slotOf finds the slot of a connection, below TLS too; nil if it has none.
func slotOf(c net.Conn) *connlimit.Slot {
	if below, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = below.NetConn()
	}
	if tracked, ok := c.(*trackedConn); ok {
		return tracked.slot
	}
	return nil
}

// listeners are the open sockets. One that is off is nil.
type listeners struct {
	http, httpTLS, smtp, submission, submissions, imap, imaps, dnsTCP net.Listener
	dnsUDP                                                            *net.UDPConn
}

// listen opens every socket that is not off, or none. It takes those that a service manager has
// passed to the process, and opens the others itself.
func listen(s *config.Settings, log *slog.Logger) (l *listeners, err error) {
	passed, err := takePassedSockets()
	if err != nil {
		return nil, err
	}
	defer passed.close()
	l = &listeners{}
	for _, one := range []struct {
		name string
		at   config.Address
		to   *net.Listener
	}{
		{"http", s.HTTP, &l.http}, {"http-tls", s.HTTPTLS, &l.httpTLS}, {"smtp", s.SMTP, &l.smtp},
		{"submission", s.Submission, &l.submission}, {"submissions", s.Submissions, &l.submissions},
		{"imap", s.IMAP, &l.imap}, {"imaps", s.IMAPS, &l.imaps},
	} {
		if !one.at.On() {
			continue
		}
		if ln, ok := take(&passed.streams, one.name, one.at); ok {
			*one.to = ln
			continue
		}
		*one.to, err = net.Listen("tcp", one.at.String())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for --%s: %w", one.name, err), l.close())
		}
	}
	if err := l.listenDNS(s.DNS, passed); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for --dns: %w", err), l.close())
	}
	passed.warn(log)
	return l, nil
}

// named gives the TCP listeners by the names of their protocols.
func (l *listeners) named() map[string]*net.Listener {
	return map[string]*net.Listener{
		"http": &l.http, "https": &l.httpTLS, "smtp": &l.smtp, "submission": &l.submission, "submissions": &l.submissions,
		"imap": &l.imap, "imaps": &l.imaps, "dns": &l.dnsTCP,
	}
}

// ports are those of the TCP listeners. Others are to reach this host there, but not where the
// address is not public.
func (l *listeners) ports(public []netip.Addr) (out []health.Port) {
	named := l.named()
	for _, name := range slices.Sorted(maps.Keys(named)) {
		ln := *named[name]
		if ln == nil {
			continue
		}
		at, ok := ln.Addr().(*net.TCPAddr)
		if !ok {
			continue
		}
		port := health.Port{Name: name, Number: at.Port}
		if ip := at.AddrPort().Addr().Unmap(); !ip.IsUnspecified() && !slices.Contains(public, ip) {
			port.Inner = ip.String()
		}
		out = append(out, port)
	}
	return out
}

// count has the connections of every TCP listener counted.
func (l *listeners) count(r *metrics.Registry) {
	open := map[string]*atomic.Int64{}
	for name, ln := range l.named() {
		open[name] = new(atomic.Int64)
		if *ln != nil {
			*ln = &countedListener{*ln, open[name]}
		}
	}
	names := slices.Sorted(maps.Keys(open))
	r.Gauge("mailstead_connections", "Open connections of clients.", []string{"protocol"}, func(emit func(float64, ...string)) {
		for _, name := range names {
			emit(float64(open[name].Load()), name)
		}
	})
}

// A countedListener counts the connections that are open.
type countedListener struct {
	net.Listener
	open *atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: conn, open: l.open}, nil
}

type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

// NetConn is the connection itself.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// behindProxies has every TCP listener read the PROXY header of connections from the networks.
func (l *listeners) behindProxies(networks []netip.Prefix, log *slog.Logger) {
	for _, ln := range l.named() {
		if *ln != nil {
			*ln = proxyproto.Listen(*ln, networks, log)
		}
	}
}

// maxDNSTries is how many ports are tried, since one must be free for both UDP and TCP.
const maxDNSTries = 20

func (l *listeners) listenDNS(at config.Address, passed *passedSockets) error {
	if !at.On() {
		return nil
	}
	udp, udpPassed := take(&passed.packets, "dns", at)
	tcp, tcpPassed := take(&passed.streams, "dns", at)
	l.dnsUDP = udp
	if tcpPassed {
		l.dnsTCP = tcp
	}
	addr, err := net.ResolveUDPAddr("udp", at.String())
	if err != nil {
		return err
	}
	switch {
	case udpPassed && tcpPassed:
		return nil
	case udpPassed:
		l.dnsTCP, err = net.Listen("tcp", udp.LocalAddr().String())
		return err
	case tcpPassed:
		addr.Port = tcp.Addr().(*net.TCPAddr).Port
		l.dnsUDP, err = net.ListenUDP("udp", addr)
		return err
	}
	for range maxDNSTries {
		l.dnsUDP, err = net.ListenUDP("udp", addr)
		if err != nil {
			return err
		}
		l.dnsTCP, err = net.Listen("tcp", l.dnsUDP.LocalAddr().String())
		if err == nil {
			return nil
		}
		l.dnsUDP.Close()
		l.dnsUDP = nil
		if addr.Port != 0 {
			return err
		}
	}
	return err
}

func (l *listeners) all() []net.Listener {
	return []net.Listener{l.http, l.httpTLS, l.smtp, l.submission, l.submissions, l.imap, l.imaps, l.dnsTCP}
}

// close closes every socket that is open.
func (l *listeners) close() error {
	var errs []error
	for _, ln := range l.all() {
		if ln != nil {
			if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if l.dnsUDP != nil {
		if err := l.dnsUDP.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ready is the content of the ready file: the process, and the address of each open listener.
type ready struct {
	PID         int    `json:"pid"`
	HTTP        string `json:"http,omitempty"`
	HTTPTLS     string `json:"http_tls,omitempty"`
	SMTP        string `json:"smtp,omitempty"`
	Submission  string `json:"submission,omitempty"`
	Submissions string `json:"submissions,omitempty"`
	IMAP        string `json:"imap,omitempty"`
	IMAPS       string `json:"imaps,omitempty"`
	DNS         string `json:"dns,omitempty"`
}

func (l *listeners) ready(pid int) ready {
	return ready{
		PID: pid, HTTP: addrOf(l.http), HTTPTLS: addrOf(l.httpTLS), SMTP: addrOf(l.smtp), Submission: addrOf(l.submission),
		Submissions: addrOf(l.submissions), IMAP: addrOf(l.imap), IMAPS: addrOf(l.imaps), DNS: addrOf(l.dnsTCP),
	}
}

func addrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// portOf is the port of the first listener that is open; 0 if none is.
func portOf(all ...net.Listener) int {
	for _, l := range all {
		if l != nil {
			if a, ok := l.Addr().(*net.TCPAddr); ok {
				return a.Port
			}
		}
	}
	return 0
}
