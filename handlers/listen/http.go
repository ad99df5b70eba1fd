package listen

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
)

// MaxHTTPConns is how many connections an HTTP listener may have open at once.
const MaxHTTPConns = 4096

// maxConnsPerAddress is how many HTTP connections one IPv4 address or IPv6 /64 may have open at
// once.
const maxConnsPerAddress = 256

// A limitedListener limits the connections of an HTTP listener. The TLS listener must wrap it, not
// the other way round, because the HTTP server speaks HTTP/2 only if it gets the TLS connection
// itself.
type limitedListener struct {
	net.Listener
	limiter    *connlimit.Limiter
	withoutTLS bool // so a refused client can get a response
}

// LimitHTTP returns a listener that limits the connections of ln. For exempt addresses only the
// limit on all connections applies. name is the name in the log. withoutTLS says that ln is without
// TLS.
func LimitHTTP(ln net.Listener, name string, withoutTLS bool, exempt []netip.Prefix, log *slog.Logger) net.Listener {
	bounds := connlimit.Limits{All: MaxHTTPConns, PerAddress: maxConnsPerAddress, Exempt: exempt}
	return &limitedListener{Listener: ln, limiter: connlimit.New(name, bounds, log), withoutTLS: withoutTLS}
}

// tooManyConns is the response to a client whose connection is refused.
const tooManyConns = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n" +
	"Content-Type: text/plain\r\nContent-Length: 21\r\n\r\nToo many connections\n"

// Accept returns the next connection that the limits allow. It closes others.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if slot := l.limiter.Acquire(conn.RemoteAddr(), func() { conn.Close() }); slot != nil {
			return &trackedConn{Conn: conn, slot: slot}, nil
		}
		if l.withoutTLS {
			// This does not block, since a few lines fit into the empty send buffer.
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(conn, tooManyConns)
		}
		conn.Close()
	}
}

// Close closes the listener.
func (l *limitedListener) Close() error {
	l.limiter.Close()
	return l.Listener.Close()
}

// A trackedConn is a connection with its slot in the limiter.
type trackedConn struct {
	net.Conn
	slot        *connlimit.Slot
	releaseOnce sync.Once
}

// Close closes the connection and releases its slot.
func (c *trackedConn) Close() error {
	c.releaseOnce.Do(c.slot.Release)
	return c.Conn.Close()
}

// slotKey is the context key of a connection's *connlimit.Slot.
type slotKey struct{}

// trackConns makes the server mark the slot of each connection as idle or busy. A connection is
// idle until the header of a request has been received, and again when all requests are answered.
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

// slotOf returns the slot of a connection, which may be below TLS. It returns nil if there is none.
func slotOf(c net.Conn) *connlimit.Slot {
	if below, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = below.NetConn()
	}
	if tracked, ok := c.(*trackedConn); ok {
		return tracked.slot
	}
	return nil
}

// NewHTTPServer returns an HTTP server with timeouts, so that no client can hold a connection for
// long.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	hs := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, WriteTimeout: 5 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	trackConns(hs)
	return hs
}
