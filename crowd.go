package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/crowd"
)

// maxConnsPerAddress is how many HTTP connections one address, or one IPv6 /64, may have open.
const maxConnsPerAddress = 256

// An audience is a listener for HTTP whose connections have places in a crowd. TLS goes around it,
// since the HTTP server speaks HTTP/2 only where it sees TLS itself.
type audience struct {
	net.Listener
	crowd *crowd.Crowd
	plain bool // without TLS, so that those who are refused can be told
}

// newAudience bounds what ln accepts; proxies are networks whose connections stand for many.
func newAudience(ln net.Listener, name string, plain bool, proxies []netip.Prefix, log *slog.Logger) *audience {
	bounds := crowd.Bounds{All: maxHTTPConns, PerAddress: maxConnsPerAddress, Proxies: proxies}
	return &audience{Listener: ln, crowd: crowd.New(name, bounds, log), plain: plain}
}

// full is what a client is told for which there is no room.
const full = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n" +
	"Content-Type: text/plain\r\nContent-Length: 21\r\n\r\nToo many connections\n"

// Accept waits for a connection for which there is room.
func (a *audience) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if place := a.crowd.Enter(conn.RemoteAddr(), func() { conn.Close() }); place != nil {
			return &member{Conn: conn, place: place}, nil
		}
		if a.plain {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // an empty socket takes a few lines at once
			_, _ = io.WriteString(conn, full)
		}
		conn.Close()
	}
}

// Close ends the listener.
func (a *audience) Close() error {
	a.crowd.Close()
	return a.Listener.Close()
}

// A member is a connection with a place.
type member struct {
	net.Conn
	place *crowd.Place
	leave sync.Once
}

// Close closes the connection and gives its place back.
func (m *member) Close() error {
	m.leave.Do(m.place.Leave)
	return m.Conn.Close()
}

type placeKey struct{}

// seat has the server tell each connection's place what the connection does: it waits until a
// request's header is there, and again when all requests are answered.
func seat(hs *http.Server) {
	serve := hs.Handler
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, placeKey{}, placeOf(c))
	}
	hs.ConnState = func(c net.Conn, state http.ConnState) {
		if p := placeOf(c); p != nil && state == http.StateIdle {
			p.Wait()
		}
	}
	hs.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, _ := r.Context().Value(placeKey{}).(*crowd.Place); p != nil {
			p.Work()
		}
		serve.ServeHTTP(w, r)
	})
}

// placeOf finds the place of a connection, below TLS too; nil if it has none.
func placeOf(c net.Conn) *crowd.Place {
	if below, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = below.NetConn()
	}
	if m, ok := c.(*member); ok {
		return m.place
	}
	return nil
}
