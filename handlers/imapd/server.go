// Package imapd lets mail clients read and change mailboxes over IMAP4rev1 (RFC 3501) and IMAP4rev2
// (RFC 9051). It does not know how messages are stored, nor which limits a mailbox has: the service
// decides that.
package imapd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/deflate"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// AppendLimit is the size of the largest message that APPEND takes, in bytes (RFC 7889).
const AppendLimit = 36 << 20

// A Server speaks IMAP on any number of listeners. Its fields are set before the first Run.
type Server struct {
	Service *service.Service
	TLS     *tls.Config // nil: a sandbox accepts log-ins without TLS, others refuse them
	Log     *slog.Logger

	MaxConnections int            // on all listeners together
	MaxPerAddress  int            // from one IPv4 address or IPv6 /64
	Exempt         []netip.Prefix // addresses to which MaxPerAddress does not apply
	MaxPerMailbox  int            // log-ins at the same time
	MaxCompressed  int            // connections with compression; each takes 45 KB more
	// Bytes that one FETCH may read or decode without sending anything.
	MaxUnsent int64
	LoginTime time.Duration // from connecting to the end of log-in
	IdleTime  time.Duration // between commands
	Grace     time.Duration // for running commands when the server stops

	pool        *deflate.Pool // of compressors
	limiterOnce sync.Once     // sets limiter
	limiter     *connlimit.Limiter

	largeOrders chan struct{} // one value for each large SORT or THREAD that runs

	mu         sync.Mutex
	compressed int                           // connections with compression
	logins     map[uint32]int                // by mailbox number
	sessions   map[*session]core.MailboxUser // the sessions that are logged in
}

// New returns a server with the default limits.
func New(s *service.Service) *Server {
	return &Server{
		Service: s, Log: slog.Default(),
		MaxConnections: 5000, MaxPerAddress: 200, MaxPerMailbox: 50, MaxCompressed: 1000, MaxUnsent: 1 << 30,
		LoginTime: time.Minute, IdleTime: 30 * time.Minute, Grace: 5 * time.Second,
		pool: deflate.NewPool(), logins: map[uint32]int{}, sessions: map[*session]core.MailboxUser{},
		largeOrders: make(chan struct{}, maxLargeOrders),
	}
}

// caps are the capabilities beyond those that go-imap always offers: SASL-IR, LITERAL- (which
// becomes LITERAL+), UNSELECT, ENABLE, IDLE, UTF8=ACCEPT. addCaps adds the capabilities that
// go-imap does not know.
var caps = imap.CapSet{
	imap.CapIMAP4rev1: {}, imap.CapIMAP4rev2: {}, imap.CapNamespace: {}, imap.CapUIDPlus: {}, imap.CapESearch: {},
	imap.CapSearchRes: {}, imap.CapListExtended: {}, imap.CapListStatus: {}, imap.CapMove: {}, imap.CapStatusSize: {},
	imap.CapBinary: {}, imap.CapChildren: {}, imap.CapSpecialUse: {}, imap.CapCreateSpecialUse: {},
}

// Run serves the listener until ctx ends, with TLS from the start if implicit is set. When ctx
// ends, idle clients get a BYE at once and running commands have the time Grace to finish. Run
// returns when the last connection has ended.
func (s *Server) Run(ctx context.Context, ln net.Listener, implicit bool) error {
	if s.TLS == nil && implicit {
		return errors.New("serve IMAP over TLS: no certificate")
	}
	s.limiterOnce.Do(func() {
		s.limiter = connlimit.New("imap", connlimit.Limits{All: s.MaxConnections, PerAddress: s.MaxPerAddress, Exempt: s.Exempt}, s.Log)
	})
	defer s.limiter.Close()
	r := &run{Server: s, implicit: implicit, conns: map[*trackedConn]struct{}{}, parser: newConnQueue(ln.Addr())}
	library := imapserver.New(&imapserver.Options{
		NewSession: s.newSession, Caps: caps, InsecureAuth: true, Logger: libraryLog{s.Log},
	})
	served := make(chan error, 1)
	go func() { served <- library.Serve(r.parser) }()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	go s.endLogins(ctx)
	err := r.accept(ctx, ln)
	r.close()
	r.parser.Close()
	return errors.Join(err, <-served)
}

// A run is the state of one listener of a server.
type run struct {
	*Server
	implicit bool
	parser   *connQueue
	wg       sync.WaitGroup

	connsMu sync.Mutex
	conns   map[*trackedConn]struct{}
	closing bool
}

// A trackedConn is one client connection, from its accept to its end.
type trackedConn struct {
	net.Conn
	slot       *connlimit.Slot
	conn       *protocolConn // nil until the parser has the connection
	forgetOnce sync.Once
}

func (r *run) accept(ctx context.Context, ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept IMAP connections: %w", err)
		case err != nil: // out of file descriptors, or the client left before the accept
			r.Log.Warn("accept IMAP connection", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if p := r.admit(conn); p == nil {
			refuseConn(conn, "[LIMIT] Too many connections")
		} else {
			r.wg.Add(1) // until forget calls Done
			go r.handshake(ctx, p)
		}
	}
}

// refuseConn sends a BYE without blocking: the line fits into the socket's empty send buffer.
func refuseConn(conn net.Conn, why string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("* BYE " + why + "\r\n")) // a refused client need not get the reply
	conn.Close()
}

// admit acquires a slot for a connection; it returns nil if there is none.
func (r *run) admit(conn net.Conn) *trackedConn {
	p := &trackedConn{Conn: conn}
	r.connsMu.Lock() // until p.slot is set: another connection may evict this one at once
	defer r.connsMu.Unlock()
	p.slot = r.limiter.Acquire(conn.RemoteAddr(), func() { r.evict(p) })
	if p.slot == nil {
		return nil
	}
	r.conns[p] = struct{}{}
	return p
}

// evictedReply is the text of the BYE for a client whose connection is closed to make room for
// another.
const evictedReply = "[UNAVAILABLE] Idle connection closed for others, try again later"

// evict ends a connection that has not logged in.
func (r *run) evict(p *trackedConn) {
	r.connsMu.Lock()
	w := p.conn
	r.connsMu.Unlock()
	switch {
	case w != nil:
		w.stop(evictedReply)
	case r.implicit:
		p.Close()
	default:
		refuseConn(p.Conn, evictedReply)
	}
}

// forget releases everything that a connection holds; further calls do nothing.
func (r *run) forget(p *trackedConn) {
	p.forgetOnce.Do(func() {
		p.Close()
		p.slot.Release()
		r.connsMu.Lock()
		delete(r.conns, p)
		r.connsMu.Unlock()
		r.wg.Done()
	})
}

// handshake does TLS or STARTTLS on a connection and then passes it to the parser.
func (r *run) handshake(ctx context.Context, p *trackedConn) {
	until := time.Now().Add(r.LoginTime)
	conn, skipGreeting, err := net.Conn(p.Conn), true, error(nil)
	switch {
	case r.implicit:
		conn, err = tlsHandshake(ctx, p.Conn, r.TLS, until)
	case r.TLS != nil || !r.Service.Core.Config.Sandbox:
		conn, err = startTLS(ctx, p.Conn, r.TLS, until)
		skipGreeting = false
	}
	if err != nil {
		r.Log.Debug("IMAP connection ended before log-in", "remote", p.RemoteAddr(), "error", err)
		r.forget(p)
		return
	}
	w := newProtocolConn(conn, skipGreeting, until, r.IdleTime, func() { r.forget(p) })
	w.slot = p.slot
	if !r.attach(p, w) || !r.parser.push(w) {
		w.Close()
	}
}

func (r *run) attach(p *trackedConn, w *protocolConn) bool {
	r.connsMu.Lock()
	defer r.connsMu.Unlock()
	p.conn = w
	return !r.closing
}

// close ends all connections: idle ones at once, the others after at most the time Grace.
func (r *run) close() {
	force := time.AfterFunc(r.Grace, func() {
		r.connsMu.Lock()
		defer r.connsMu.Unlock()
		for p := range r.conns {
			if p.conn != nil {
				p.conn.cancel()
			}
			p.Close()
		}
	})
	defer force.Stop()
	r.connsMu.Lock()
	r.closing = true
	for p := range r.conns {
		if p.conn != nil {
			p.conn.stop("[UNAVAILABLE] The server is stopping")
		} else {
			p.Close()
		}
	}
	r.connsMu.Unlock()
	r.wg.Wait()
}

// acquireLogin counts a log-in to a mailbox; it returns false if the mailbox is at its limit.
func (s *Server) acquireLogin(ss *session, u core.MailboxUser) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logins[u.Mailbox] >= s.MaxPerMailbox {
		return false
	}
	s.logins[u.Mailbox]++
	s.sessions[ss] = u
	return true
}

// endLogins ends the connections that are logged in to a mailbox that was closed, or with a
// password that is no longer valid. It runs until ctx ends.
func (s *Server) endLogins(ctx context.Context) {
	changes, end := s.Service.Core.Hub.Watch(core.AllLogins)
	defer end()
	expiries := time.NewTicker(time.Second)
	defer expiries.Stop()
	for {
		expired := false
		select {
		case <-changes:
		case <-expiries.C:
			expired = true
		case <-ctx.Done():
			return
		}
		now := s.Service.Core.Now()
		var look []*session
		s.mu.Lock()
		for ss, u := range s.sessions {
			if !expired || !u.Expires.IsZero() && !now.Before(u.Expires) {
				look = append(look, ss)
			}
		}
		s.mu.Unlock()
		for _, ss := range look {
			s.mu.Lock()
			u, still := s.sessions[ss]
			s.mu.Unlock()
			if e, ok := core.AsError(s.Service.Accounts.MailboxOpen(ctx, u)); still && ok && e.Code == core.CodeMailboxClosed {
				ss.conn.stop("[UNAVAILABLE] " + plainText(e.Message))
			}
		}
	}
}

func (s *Server) releaseLogin(ss *session, mailbox uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, ss)
	if s.logins[mailbox]--; s.logins[mailbox] == 0 {
		delete(s.logins, mailbox)
	}
}

// acquireCompression counts a connection with compression; it returns false at the limit.
func (s *Server) acquireCompression() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compressed >= s.MaxCompressed {
		return false
	}
	s.compressed++
	return true
}

func (s *Server) releaseCompression() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compressed--
}

// addressOf returns the client's IP address in the form by which log-ins are throttled.
func addressOf(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.String()
}

// A connQueue is a listener: go-imap accepts from it the connections that have finished their
// handshake.
type connQueue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newConnQueue(addr net.Addr) *connQueue {
	return &connQueue{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (h *connQueue) push(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

// Accept returns the next connection, or net.ErrClosed.
func (h *connQueue) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept return net.ErrClosed.
func (h *connQueue) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr returns the address of the real listener.
func (h *connQueue) Addr() net.Addr { return h.addr }

// libraryLog receives go-imap's log lines: panics, errors that sessions return, and connections
// that end.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	level := slog.LevelDebug
	if strings.HasPrefix(format, "panic") {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, "IMAP session", "event", fmt.Sprintf(format, args...))
}
