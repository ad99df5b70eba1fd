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

// MaxHTTPConns is how many connections a listener of HTTP may have open.
const MaxHTTPConns = 4096

// maxConnsPerAddress is how many HTTP connections one address, or one IPv6 /64, may have open.
const maxConnsPerAddress = 256

// A limitedListener is a listener for HTTP that limits its connections. TLS is a listener around
// it, since the HTTP server speaks HTTP/2 only where it sees the TLS connection itself.
type limitedListener struct {
	net.Listener
	limiter *connlimit.Limiter
	plain   bool // without TLS, so that a refused client can be told why
}

// LimitHTTP limits what ln accepts. Only the limit of all connections holds for exempt
// addresses.
func LimitHTTP(ln net.Listener, name string, plain bool, exempt []netip.Prefix, log *slog.Logger) net.Listener {
	bounds := connlimit.Limits{All: MaxHTTPConns, PerAddress: maxConnsPerAddress, Exempt: exempt}
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

// NewHTTPServer makes a server with timeouts, so that no client holds a connection for long.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	hs := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, WriteTimeout: 5 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	trackConns(hs)
	return hs
}
