// Package listen opens the sockets of the server or takes them from a service manager, limits
// connections, and finds the certificates for TLS handshakes. It does not know which protocol a
// connection has.
package listen

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/proxyproto"
	"github.com/mailstead/mailstead/internal/metrics"
	"github.com/mailstead/mailstead/service/health"
)

// Listeners are the open sockets. Those that are off in the settings are nil.
type Listeners struct {
	HTTP, HTTPTLS, SMTP, Submission, Submissions, IMAP, IMAPS, DNSTCP net.Listener
	DNSUDP                                                            *net.UDPConn
}

// Open opens all sockets that the settings turn on. It uses those that a service manager has passed
// to the process, and opens the others itself. If one fails, it closes all.
func Open(s *config.Settings, log *slog.Logger) (l *Listeners, err error) {
	passed, err := takePassedSockets()
	if err != nil {
		return nil, err
	}
	defer passed.close()
	l = &Listeners{}
	for _, one := range []struct {
		name string
		at   config.Address
		to   *net.Listener
	}{
		{"http", s.HTTP, &l.HTTP}, {"http-tls", s.HTTPTLS, &l.HTTPTLS}, {"smtp", s.SMTP, &l.SMTP},
		{"submission", s.Submission, &l.Submission}, {"submissions", s.Submissions, &l.Submissions},
		{"imap", s.IMAP, &l.IMAP}, {"imaps", s.IMAPS, &l.IMAPS},
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
			return nil, errors.Join(fmt.Errorf("listen for --%s: %w", one.name, err), l.Close())
		}
	}
	if err := l.listenDNS(s.DNS, passed); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for --dns: %w", err), l.Close())
	}
	passed.warnUnused(log)
	return l, nil
}

// byProtocol returns the TCP listeners by the names of their protocols.
func (l *Listeners) byProtocol() map[string]*net.Listener {
	return map[string]*net.Listener{
		"http": &l.HTTP, "https": &l.HTTPTLS, "smtp": &l.SMTP, "submission": &l.Submission, "submissions": &l.Submissions,
		"imap": &l.IMAP, "imaps": &l.IMAPS, "dns": &l.DNSTCP,
	}
}

// Ports returns the ports of the TCP listeners. If a listener has an address that is not public,
// Port.Inner is that address, because others cannot reach the port.
func (l *Listeners) Ports(public []netip.Addr) (out []health.Port) {
	named := l.byProtocol()
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

// CountConnections makes the TCP listeners count their open connections, and adds the counts to the
// registry as a metric.
func (l *Listeners) CountConnections(r *metrics.Registry) {
	open := map[string]*atomic.Int64{}
	for name, ln := range l.byProtocol() {
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

// A countedListener counts its open connections.
type countedListener struct {
	net.Listener
	openConns *atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.openConns.Add(1)
	return &countedConn{Conn: conn, openConns: l.openConns}, nil
}

// A countedConn is a connection of a countedListener.
type countedConn struct {
	net.Conn
	openConns *atomic.Int64
	closed    atomic.Bool
}

// NetConn returns the underlying connection.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.openConns.Add(-1)
	}
	return c.Conn.Close()
}

// ReadProxyHeaders makes all TCP listeners read a PROXY header from connections that come from the
// networks.
func (l *Listeners) ReadProxyHeaders(networks []netip.Prefix, log *slog.Logger) {
	for _, ln := range l.byProtocol() {
		if *ln != nil {
			*ln = proxyproto.Listen(*ln, networks, log)
		}
	}
}

// maxDNSTries is how many random ports are tried for DNS. The same port must be free for UDP and
// for TCP.
const maxDNSTries = 20

// listenDNS opens the two sockets for DNS, or takes those that were passed to the process.
func (l *Listeners) listenDNS(at config.Address, passed *passedSockets) error {
	if !at.On() {
		return nil
	}
	udp, udpPassed := take(&passed.packets, "dns", at)
	tcp, tcpPassed := take(&passed.streams, "dns", at)
	l.DNSUDP = udp
	if tcpPassed {
		l.DNSTCP = tcp
	}
	addr, err := net.ResolveUDPAddr("udp", at.String())
	if err != nil {
		return err
	}
	switch {
	case udpPassed && tcpPassed:
		return nil
	case udpPassed:
		l.DNSTCP, err = net.Listen("tcp", udp.LocalAddr().String())
		return err
	case tcpPassed:
		addr.Port = tcp.Addr().(*net.TCPAddr).Port
		l.DNSUDP, err = net.ListenUDP("udp", addr)
		return err
	}
	for range maxDNSTries {
		l.DNSUDP, err = net.ListenUDP("udp", addr)
		if err != nil {
			return err
		}
		l.DNSTCP, err = net.Listen("tcp", l.DNSUDP.LocalAddr().String())
		if err == nil {
			return nil
		}
		l.DNSUDP.Close()
		l.DNSUDP = nil
		if addr.Port != 0 {
			return err
		}
	}
	return err
}

// all returns the TCP listeners, with nil for those that are off.
func (l *Listeners) all() []net.Listener {
	return []net.Listener{l.HTTP, l.HTTPTLS, l.SMTP, l.Submission, l.Submissions, l.IMAP, l.IMAPS, l.DNSTCP}
}

// Close closes all open sockets.
func (l *Listeners) Close() error {
	var errs []error
	for _, ln := range l.all() {
		if ln != nil {
			if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if l.DNSUDP != nil {
		if err := l.DNSUDP.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Ready is the content of the ready file, which a server writes when it has opened its sockets: the
// process ID, and the address of each open listener.
type Ready struct {
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

// Ready returns the content of the ready file.
func (l *Listeners) Ready(pid int) Ready {
	return Ready{
		PID: pid, HTTP: AddrOf(l.HTTP), HTTPTLS: AddrOf(l.HTTPTLS), SMTP: AddrOf(l.SMTP), Submission: AddrOf(l.Submission),
		Submissions: AddrOf(l.Submissions), IMAP: AddrOf(l.IMAP), IMAPS: AddrOf(l.IMAPS), DNS: AddrOf(l.DNSTCP),
	}
}

// AddrOf returns the address of a listener, "" if it is nil.
func AddrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// PortOf returns the port of the first listener that is not nil, 0 if all are nil.
func PortOf(all ...net.Listener) int {
	for _, l := range all {
		if l != nil {
			if a, ok := l.Addr().(*net.TCPAddr); ok {
				return a.Port
			}
		}
	}
	return 0
}
