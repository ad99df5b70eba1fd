// Package imapd lets mail clients read and keep the mailboxes over IMAP4rev1 (RFC 3501) and
// IMAP4rev2 (RFC 9051). It does not know how messages are stored, nor what a mailbox may hold: the
// service decides.
package imapd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/service"
)

// AppendLimit is the size of the largest message that APPEND takes, in bytes (RFC 7889).
const AppendLimit = 36 << 20

// A Server speaks IMAP on any number of listeners. Its fields are set before the first Run.
type Server struct {
	Service *service.Service
	TLS     *tls.Config // nil: a sandbox takes log-ins in the clear, any other installation takes none
	Log     *slog.Logger

	MaxConnections int           // in all
	MaxPerAddress  int           // from one IPv4 address or IPv6 /64
	MaxPerMailbox  int           // log-ins at a time
	MaxCompressed  int           // connections that are compressed, each of which takes 45 KB more
	LoginTime      time.Duration // from connecting to having logged in
	IdleTime       time.Duration // between commands
	Grace          time.Duration // for commands that run when the server stops

	packers     *packers
	limiterOnce sync.Once // of crowd
	limiter     *connlimit.Limiter

	mu        sync.Mutex
	packed    int // connections that are compressed
	mailboxes map[uint32]int
}

// New makes a server with the usual limits.
func New(s *service.Service) *Server {
	return &Server{
		Service: s, Log: slog.Default(),
		MaxConnections: 5000, MaxPerAddress: 200, MaxPerMailbox: 50, MaxCompressed: 1000,
		LoginTime: time.Minute, IdleTime: 30 * time.Minute, Grace: 5 * time.Second,
		packers: newPackers(), mailboxes: map[uint32]int{},
	}
}

// caps are what is told on top of what go-imap always does: SASL-IR, LITERAL- (which becomes
// LITERAL+), UNSELECT, ENABLE, IDLE, UTF8=ACCEPT. What go-imap does not know, the wire adds.
var caps = imap.CapSet{
	imap.CapIMAP4rev1: {}, imap.CapIMAP4rev2: {}, imap.CapNamespace: {}, imap.CapUIDPlus: {}, imap.CapESearch: {},
	imap.CapSearchRes: {}, imap.CapListExtended: {}, imap.CapListStatus: {}, imap.CapMove: {}, imap.CapStatusSize: {},
	imap.CapBinary: {}, imap.CapChildren: {}, imap.CapSpecialUse: {}, imap.CapCreateSpecialUse: {},
}

// Run serves the listener, with TLS from the start if implicit is set, until ctx ends. Then clients
// between commands get a BYE, commands get the time of Grace to end, and Run returns when the last
// connection has ended.
func (s *Server) Run(ctx context.Context, ln net.Listener, implicit bool) error {
	if s.TLS == nil && implicit {
		return errors.New("serve IMAP over TLS: no certificate")
	}
	s.limiterOnce.Do(func() {
		s.limiter = connlimit.New("imap", connlimit.Limits{All: s.MaxConnections, PerAddress: s.MaxPerAddress, Loopback: true}, s.Log)
	})
	defer s.limiter.Close()
	r := &run{Server: s, implicit: implicit, peers: map[*peer]struct{}{}, parser: newHandover(ln.Addr())}
	library := imapserver.New(&imapserver.Options{
		NewSession: s.newSession, Caps: caps, InsecureAuth: true, Logger: libraryLog{s.Log},
	})
	served := make(chan error, 1)
	go func() { served <- library.Serve(r.parser) }()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	err := r.accept(ctx, ln)
	r.close()
	r.parser.Close()
	return errors.Join(err, <-served)
}

// A run is one listener's share of a server.
type run struct {
	*Server
	implicit bool
	parser   *handover
	wg       sync.WaitGroup

	peersMu sync.Mutex
	peers   map[*peer]struct{}
	closing bool
}

// A peer is one client from its first byte to its last.
type peer struct {
	net.Conn
	slot *connlimit.Slot
	wire *wire // once the parser has it
	once sync.Once
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
		case err != nil: // out of file descriptors, or a client that left in the queue
			r.Log.Warn("accept IMAP connection", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if p := r.admit(conn); p == nil {
			dismiss(conn, "[LIMIT] Too many connections")
		} else {
			r.wg.Add(1) // until leave
			go r.welcome(ctx, p)
		}
	}
}

// dismiss cannot wait: the line fits into the buffer of a socket that has sent little.
func dismiss(conn net.Conn, why string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("* BYE " + why + "\r\n")) // it has no claim to an answer
	conn.Close()
}

// admit gives a connection its place, if there is room; nil if there is none.
func (r *run) admit(conn net.Conn) *peer {
	p := &peer{Conn: conn}
	r.peersMu.Lock() // until the place is there, which others may want at once
	defer r.peersMu.Unlock()
	p.slot = r.limiter.Acquire(conn.RemoteAddr(), func() { r.sendAway(p) })
	if p.slot == nil {
		return nil
	}
	r.peers[p] = struct{}{}
	return p
}

// crowded is said to those who make room for others.
const crowded = "[UNAVAILABLE] Others wait for your place; come again later"

// sendAway ends a connection that has not logged in.
func (r *run) sendAway(p *peer) {
	r.peersMu.Lock()
	w := p.wire
	r.peersMu.Unlock()
	switch {
	case w != nil:
		w.stop(crowded)
	case r.implicit:
		p.Close()
	default:
		dismiss(p.Conn, crowded)
	}
}

// leave counts a connection out, once.
func (r *run) leave(p *peer) {
	p.once.Do(func() {
		p.Close()
		p.slot.Release()
		r.peersMu.Lock()
		delete(r.peers, p)
		r.peersMu.Unlock()
		r.wg.Done()
	})
}

// welcome brings a connection to where the parser can take it over.
func (r *run) welcome(ctx context.Context, p *peer) {
	until := time.Now().Add(r.LoginTime)
	conn, greeted, err := net.Conn(p.Conn), true, error(nil)
	switch {
	case r.implicit:
		conn, err = handshake(ctx, p.Conn, r.TLS, until)
	case r.TLS != nil || !r.Service.Config.Sandbox:
		conn, err = startTLS(ctx, p.Conn, r.TLS, until)
		greeted = false
	}
	if err != nil {
		r.Log.Debug("IMAP connection ended before log-in", "remote", p.RemoteAddr(), "error", err)
		r.leave(p)
		return
	}
	w := newWire(conn, greeted, until, r.IdleTime, func() { r.leave(p) })
	w.place = p.slot
	if !r.attach(p, w) || !r.parser.give(w) {
		w.Close()
	}
}

func (r *run) attach(p *peer, w *wire) bool {
	r.peersMu.Lock()
	defer r.peersMu.Unlock()
	p.wire = w
	return !r.closing
}

// close ends all connections: those between commands at once, the others within the time of Grace.
func (r *run) close() {
	force := time.AfterFunc(r.Grace, func() {
		r.peersMu.Lock()
		defer r.peersMu.Unlock()
		for p := range r.peers {
			if p.wire != nil {
				p.wire.cancel()
			}
			p.Close()
		}
	})
	defer force.Stop()
	r.peersMu.Lock()
	r.closing = true
	for p := range r.peers {
		if p.wire != nil {
			p.wire.stop("[UNAVAILABLE] The server is stopping")
		} else {
			p.Close()
		}
	}
	r.peersMu.Unlock()
	r.wg.Wait()
}

// login counts a log-in to a mailbox, if the limit allows it.
func (s *Server) login(mailbox uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mailboxes[mailbox] >= s.MaxPerMailbox {
		return false
	}
	s.mailboxes[mailbox]++
	return true
}

func (s *Server) logout(mailbox uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mailboxes[mailbox]--; s.mailboxes[mailbox] == 0 {
		delete(s.mailboxes, mailbox)
	}
}

// mayCompress counts a connection that is to be compressed, if the limit allows it.
func (s *Server) mayCompress() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packed >= s.MaxCompressed {
		return false
	}
	s.packed++
	return true
}

func (s *Server) endCompress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packed--
}

// addressOf is the client's IP address as log-ins are throttled by.
func addressOf(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.String()
}

// A handover is the listener from which go-imap gets connections that are ready for it.
type handover struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandover(addr net.Addr) *handover {
	return &handover{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (h *handover) give(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.done:
		return false
	}
}

// Accept gives the next connection, or net.ErrClosed.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr is that of the listener outside.
func (h *handover) Addr() net.Addr { return h.addr }

// libraryLog takes what go-imap logs: panics, errors that sessions return, and connections that
// end.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	level := slog.LevelDebug
	if strings.HasPrefix(format, "panic") {
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, "IMAP session", "event", fmt.Sprintf(format, args...))
}
