// Package proxyproto accepts connections from proxies that use the PROXY protocol, version 1 or 2.
// The proxy first sends a header with the address of the client. The package does not know which
// protocol follows the header.
//
// The specification is HAProxy's doc/proxy-protocol.txt.
package proxyproto

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// headerTimeout is how long a proxy may take to send its header.
const headerTimeout = 5 * time.Second

// maxWaitingConns is how many connections of proxies may wait for their header at once.
const maxWaitingConns = 4096

// Listen returns a listener that accepts connections from ln. A connection from one of the networks
// must begin with a PROXY header, or it is closed. The address in the header becomes its remote
// address. Connections from elsewhere are not changed. Without networks, Listen returns ln.
func Listen(ln net.Listener, networks []netip.Prefix, log *slog.Logger) net.Listener {
	if len(networks) == 0 {
		return ln
	}
	l := &listener{Listener: ln, networks: networks, log: log, results: make(chan acceptResult), closed: make(chan struct{})}
	go l.accept()
	return l
}

// A listener is what Listen returns.
type listener struct {
	net.Listener
	networks  []netip.Prefix
	log       *slog.Logger
	results   chan acceptResult // results for Accept
	closed    chan struct{}     // closed by Close
	closeOnce sync.Once

	mu      sync.Mutex
	waiting map[net.Conn]struct{} // connections whose header has not arrived yet
}

// An acceptResult is one result of Accept.
type acceptResult struct {
	conn net.Conn
	err  error
}

// accept accepts connections of the inner listener until the listener is closed.
func (l *listener) accept() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !l.deliver(acceptResult{nil, err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // the caller of Accept waits before it tries again
		}
		if !l.isProxy(conn.RemoteAddr()) {
			l.deliver(acceptResult{conn, nil})
		} else if !l.addWaiting(conn) {
			conn.Close()
		} else {
			go l.readAndDeliver(conn)
		}
	}
}

// isProxy reports whether an address is in the networks of proxies.
func (l *listener) isProxy(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	return limit.Within(l.networks, tcp.AddrPort().Addr())
}

// addWaiting registers a connection that waits for its header. It returns false if too many wait,
// or if the listener is closed.
func (l *listener) addWaiting(conn net.Conn) (added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
	}
	if len(l.waiting) == maxWaitingConns {
		return false
	}
	if l.waiting == nil {
		l.waiting = map[net.Conn]struct{}{}
	}
	l.waiting[conn] = struct{}{}
	return true
}

// readAndDeliver reads the header of a connection, and passes the connection to Accept.
func (l *listener) readAndDeliver(conn net.Conn) {
	c, err := readHeader(conn)
	l.mu.Lock()
	delete(l.waiting, conn)
	l.mu.Unlock()
	if err != nil {
		l.log.Debug("closed a connection of a proxy without a valid PROXY header", "proxy", conn.RemoteAddr().String(), "error", err)
		conn.Close()
		return
	}
	l.deliver(acceptResult{c, nil})
}

// deliver passes a result to Accept. If the listener is closed, it closes the connection and
// returns false.
func (l *listener) deliver(a acceptResult) (delivered bool) {
	select {
	case l.results <- a:
		return true
	case <-l.closed:
		if a.conn != nil {
			a.conn.Close()
		}
		return false
	}
}

// Accept returns the next connection. The header of a connection from a proxy has been read.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.results:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and the connections that wait for their header.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.closeOnce.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.closed)
		for conn := range l.waiting {
			conn.Close()
		}
	})
	return err
}

// readHeader reads the header of a connection, which may arrive in pieces. It returns the
// connection without the header.
func readHeader(conn net.Conn) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(headerTimeout)); err != nil {
		return nil, err
	}
	var in []byte
	for {
		piece := make([]byte, MaxHeaderBytes-len(in))
		n, err := conn.Read(piece)
		in = append(in, piece[:n]...)
		h, length, bad := Parse(in)
		switch {
		case bad == nil:
			return &proxiedConn{Conn: conn, remote: h.clientAddr(conn.RemoteAddr()), buffered: in[length:]}, conn.SetReadDeadline(time.Time{})
		case !errors.Is(bad, errPartialHeader) || len(in) == MaxHeaderBytes:
			return nil, bad
		case err != nil:
			return nil, err
		}
	}
}

// A proxiedConn is the connection of a client that came through a proxy.
type proxiedConn struct {
	net.Conn
	remote   net.Addr
	buffered []byte // bytes that were read together with the header and not returned yet
}

// RemoteAddr returns the client's address.
func (c *proxiedConn) RemoteAddr() net.Addr { return c.remote }

// NetConn returns the connection to the proxy.
func (c *proxiedConn) NetConn() net.Conn { return c.Conn }

// Read reads bytes that follow the header.
func (c *proxiedConn) Read(b []byte) (int, error) {
	if len(c.buffered) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.buffered)
	c.buffered = c.buffered[n:]
	if len(c.buffered) == 0 {
		c.buffered = nil
	}
	return n, nil
}
