package imapd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// Run serves the listener until ctx ends. If implicitTLS is set, connections use TLS from the
// start. When ctx ends, idle clients get a BYE at once, and running commands have the time Grace to
// finish. Run returns when the last connection has ended.
func (s *Server) Run(ctx context.Context, ln net.Listener, implicitTLS bool) error {
	if s.TLS == nil && implicitTLS {
		return errors.New("serve IMAP over TLS: the server has no certificate")
	}
	s.limiterOnce.Do(func() {
		s.limiter = connlimit.New("imap", connlimit.Limits{
			All: s.MaxConnections, PerAddress: s.MaxPerAddress, PerMailbox: s.MaxPerMailbox, Changing: s.Changing, Exempt: s.Exempt,
		}, s.Log)
	})
	defer s.limiter.Close()
	r := &listener{Server: s, name: ln.Addr().String(), implicitTLS: implicitTLS, conns: map[*trackedConn]struct{}{}}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	go s.endLogins(ctx)
	err := r.accept(ctx, ln)
	r.close()
	return err
}

// A listener is one listener of a server, with its connections.
type listener struct {
	*Server
	name        string         // its address
	implicitTLS bool           // TLS from the start
	wg          sync.WaitGroup // one for each connection

	connsMu sync.Mutex
	conns   map[*trackedConn]struct{}
	closing bool
}

// A trackedConn is one client connection from accept to close.
type trackedConn struct {
	net.Conn
	slot    *connlimit.Slot
	session *session // nil until TLS has started
}

// accept accepts connections until ctx ends.
func (r *listener) accept(ctx context.Context, ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept IMAP connections on %s: %w", ln.Addr(), err)
		case err != nil: // out of file descriptors, or the client left before the accept
			r.Log.Warn("accept IMAP connection", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if p := r.admit(conn); p == nil {
			refuseConn(conn, "[LIMIT] Too many connections")
		} else {
			r.wg.Add(1)
			go r.serve(ctx, p)
		}
	}
}

// admit acquires a slot for a connection. It returns nil if no slot is free.
func (r *listener) admit(conn net.Conn) *trackedConn {
	p := &trackedConn{Conn: conn}
	r.connsMu.Lock() // until p.slot is set, since another connection may evict this one at once
	defer r.connsMu.Unlock()
	p.slot = r.limiter.AcquireOn(r.name, conn.RemoteAddr(), func() { r.evict(p) })
	if p.slot == nil {
		return nil
	}
	r.conns[p] = struct{}{}
	return p
}

// evictedReply is the BYE text for a client whose connection is closed to make room for another
// one.
const evictedReply = "[UNAVAILABLE] Idle connection closed for others, try again later"

// evict ends a connection that has not logged in.
func (r *listener) evict(p *trackedConn) {
	r.connsMu.Lock()
	ss := p.session
	r.connsMu.Unlock()
	switch {
	case ss != nil:
		ss.conn.Stop(evictedReply)
	case r.implicitTLS:
		p.Close()
	default:
		refuseConn(p.Conn, evictedReply)
	}
}

// serve serves one connection. It starts TLS, and then runs the session.
func (r *listener) serve(ctx context.Context, p *trackedConn) {
	defer r.wg.Done()
	defer func() {
		p.Close()
		p.slot.Release()
		r.connsMu.Lock()
		delete(r.conns, p)
		r.connsMu.Unlock()
	}()
	until := time.Now().Add(r.LoginTime)
	conn, greet, err := net.Conn(p.Conn), true, error(nil)
	switch {
	case r.implicitTLS:
		conn, err = tlsHandshake(ctx, p.Conn, r.TLS, until)
	case r.TLS != nil || !r.Service.Core.Config.Sandbox:
		conn, err = startTLS(ctx, p.Conn, r.TLS, until)
		greet = false // the client was greeted before TLS
	}
	if err != nil {
		r.Log.Debug("IMAP connection ended before log-in", "remote", p.RemoteAddr(), "error", err)
		return
	}
	// The context of the session does not end with ctx, because a running command has the time
	// Grace to finish.
	sessionCtx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ss := &session{server: r.Server, conn: wire.New(conn, until, r.IdleTime), slot: p.slot, ctx: sessionCtx, cancel: cancel}
	r.connsMu.Lock()
	p.session = ss
	closing := r.closing
	r.connsMu.Unlock()
	if !closing {
		ss.serve(greet)
	}
}

// close ends all connections: idle ones at once, the others after the time Grace at the latest. It
// returns when all have ended.
func (r *listener) close() {
	force := time.AfterFunc(r.Grace, func() {
		r.connsMu.Lock()
		defer r.connsMu.Unlock()
		for p := range r.conns {
			if p.session != nil {
				p.session.cancel()
			}
			p.Close()
		}
	})
	defer force.Stop()
	r.connsMu.Lock()
	r.closing = true
	for p := range r.conns {
		if p.session != nil {
			p.session.conn.Stop("[UNAVAILABLE] The server is stopping")
		} else {
			p.Close()
		}
	}
	r.connsMu.Unlock()
	r.wg.Wait()
}
