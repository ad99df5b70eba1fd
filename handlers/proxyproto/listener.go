// Package proxyproto takes connections from proxies that speak the PROXY protocol, version 1 or 2,
// and say in it for whom they have opened the connection. It does not know what is spoken behind
// the header.
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

// headerTime is how long a proxy may take to send its header.
const headerTime = 5 * time.Second

// maxWaiting is how many connections of proxies may be without a whole header at a time.
const maxWaiting = 4096

// Listen takes connections from ln. One from the networks must begin with a header, else it is
// closed; the address in the header is then its remote address. Connections from elsewhere are as
// they are. Without networks it is ln itself.
func Listen(ln net.Listener, networks []netip.Prefix, log *slog.Logger) net.Listener {
	if len(networks) == 0 {
		return ln
	}
	l := &listener{Listener: ln, networks: networks, log: log, taken: make(chan accepted), closed: make(chan struct{})}
	go l.accept()
	return l
}

type listener struct {
	net.Listener
	networks []netip.Prefix
	log      *slog.Logger
	taken    chan accepted
	closed   chan struct{}
	close    sync.Once

	mu      sync.Mutex
	waiting map[net.Conn]struct{} // for their headers
}

type accepted struct {
	conn net.Conn
	err  error
}

// accept takes connections until the listener is closed.
func (l *listener) accept() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !l.deliver(accepted{nil, err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // Accept's caller waits before it asks again
		}
		if !l.isProxy(conn.RemoteAddr()) {
			l.deliver(accepted{conn, nil})
		} else if !l.await(conn) {
			conn.Close()
		} else {
			go l.read(conn)
		}
	}
}

func (l *listener) isProxy(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	return limit.Within(l.networks, tcp.AddrPort().Addr())
}

// await remembers a connection that has no header yet; false if there are too many, or none is
// taken any more.
func (l *listener) await(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
	}
	if len(l.waiting) == maxWaiting {
		return false
	}
	if l.waiting == nil {
		l.waiting = map[net.Conn]struct{}{}
	}
	l.waiting[conn] = struct{}{}
	return true
}

// read reads the header, and has the connection accepted.
func (l *listener) read(conn net.Conn) {
	c, err := readHeader(conn)
	l.mu.Lock()
	delete(l.waiting, conn)
	l.mu.Unlock()
	if err != nil {
		l.log.Debug("a connection of a proxy was closed", "proxy", conn.RemoteAddr().String(), "error", err)
		conn.Close()
		return
	}
	l.deliver(accepted{c, nil})
}

// deliver hands a connection to Accept; false if the listener has been closed.
func (l *listener) deliver(a accepted) bool {
	select {
	case l.taken <- a:
		return true
	case <-l.closed:
		if a.conn != nil {
			a.conn.Close()
		}
		return false
	}
}

// Accept waits for a connection, whose header has been read if it is a proxy's.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.taken:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener, and the connections that have no header yet.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.close.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.closed)
		for conn := range l.waiting {
			conn.Close()
		}
	})
	return err
}

// readHeader reads the header of a connection, in pieces too.
func readHeader(conn net.Conn) (net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(headerTime)); err != nil {
		return nil, err
	}
	var in []byte
	for {
		piece := make([]byte, MaxHeader-len(in))
		n, err := conn.Read(piece)
		in = append(in, piece[:n]...)
		h, length, bad := Parse(in)
		switch {
		case bad == nil:
			return &proxied{Conn: conn, remote: h.address(conn.RemoteAddr()), ahead: in[length:]}, conn.SetReadDeadline(time.Time{})
		case !errors.Is(bad, errPartial) || len(in) == MaxHeader:
			return nil, bad
		case err != nil:
			return nil, err
		}
	}
}

// A proxied connection is a client's, behind a proxy.
type proxied struct {
	net.Conn
	remote net.Addr
	ahead  []byte // what came with the header
}

// RemoteAddr is the client's address.
func (c *proxied) RemoteAddr() net.Addr { return c.remote }

// NetConn is the connection to the proxy.
func (c *proxied) NetConn() net.Conn { return c.Conn }

// Read reads what the client sends.
func (c *proxied) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	if len(c.ahead) == 0 {
		c.ahead = nil
	}
	return n, nil
}
