// Package smtpd receives mail over SMTP (RFC 5321): as MX on port 25, and as submission server for
// users of local mailboxes on ports 587 and 465 (RFC 6409). It does not know which mailboxes exist,
// whether to accept a message, nor where a message goes: the service decides that.
package smtpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service"
)

// Mode is the purpose of a listener.
type Mode int

// The modes of Run.
const (
	MX          Mode = iota // mail from anyone to local mailboxes; no log-in
	Submission              // mail from users of local mailboxes; STARTTLS
	Submissions             // the same as Submission, but with TLS from the first byte
)

// String returns the name of the mode in the IANA list of services.
func (m Mode) String() string { return [...]string{"smtp", "submission", "submissions"}[m] }

// A Server receives mail. Set its fields before Run. Run may be called for several listeners at
// once.
type Server struct {
	Log    *slog.Logger // nil: slog.Default
	TLS    *tls.Config  // nil: no TLS
	Limits Limits
	Logins *connlimit.Logins // counts the connections of each mailbox and account after log-in; servers can share it

	service *service.Service
}

// New returns a server for a service, with the default limits.
func New(s *service.Service) *Server {
	return &Server{service: s, Limits: DefaultLimits(), Logins: connlimit.NewLogins(2000)}
}

// run is the state of one call of Run.
type run struct {
	service *service.Service
	log     *slog.Logger
	tls     *tls.Config
	limits  Limits
	mode    Mode
	host    string // this host's name
	rates   *clientRates
	limiter *connlimit.Limiter
	logins  *connlimit.Logins

	ctx       context.Context // for calls of the service; it ends after the ctx of Run
	cancel    context.CancelFunc
	receiving sync.WaitGroup // messages that are being received

	mu       sync.Mutex
	conns    map[*protocolConn]struct{}
	stopping bool
}

// errNoTLS is returned by Run for the mode Submissions if Server.TLS is nil.
var errNoTLS = errors.New("the server has no TLS certificate")

// Run serves the connections of ln until ctx ends, and closes ln. When ctx ends, messages that are
// being received may finish within Limits.Grace. Run then returns nil when its last goroutine has
// ended. It returns an error if ln fails.
func (s *Server) Run(ctx context.Context, ln net.Listener, mode Mode) error {
	if mode == Submissions && s.TLS == nil {
		return errors.Join(fmt.Errorf("serve SMTP over TLS on %s: %w", ln.Addr(), errNoTLS), ln.Close())
	}
	r := s.newRun(ctx, mode)
	defer r.cancel()
	defer r.limiter.Close()
	unhook := context.AfterFunc(ctx, func() { ln.Close() })
	defer unhook()
	var conns sync.WaitGroup
	err := r.accept(ctx, ln, &conns)
	ln.Close()
	r.stop()
	hard := time.AfterFunc(r.limits.Grace, r.closeAll)
	defer hard.Stop()
	conns.Wait()
	r.receiving.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accept SMTP connections on %s: %w", ln.Addr(), err)
}

// newRun makes the state of one call of Run.
func (s *Server) newRun(ctx context.Context, mode Mode) *run {
	r := &run{
		service: s.service, log: s.Log, tls: s.TLS, limits: s.Limits, mode: mode, host: s.service.Core.Hostname(), logins: s.Logins,
		rates: newClientRates(s.Limits, s.service.Core.Now), conns: map[*protocolConn]struct{}{},
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	r.limiter = connlimit.New(mode.String(), connlimit.Limits{
		All: s.Limits.Conns, PerAddress: s.Limits.ConnsPerAddress, PerNetwork: s.Limits.ConnsPerNetwork, PerMailbox: s.Limits.ConnsPerMailbox, Changing: s.Limits.Changing, Exempt: s.Limits.Exempt,
	}, r.log)
	// A message that is being received when ctx ends may still be delivered.
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// accept accepts connections until ln is closed. After other errors, such as a lack of file
// descriptors, it tries again.
func (r *run) accept(ctx context.Context, ln net.Listener, conns *sync.WaitGroup) error {
	wait := 5 * time.Millisecond
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			wait = 5 * time.Millisecond
			r.admit(c, conns)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return err
		default:
			r.log.Warn("smtp: accept a connection", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, time.Second)
		}
	}
}

// admit serves a connection in a new goroutine if there is a slot for it. Otherwise it refuses the
// connection.
func (r *run) admit(c net.Conn, conns *sync.WaitGroup) {
	if r.mode == MX {
		r.service.Core.Clients.Record(clientAddress(c))
	}
	w := newProtocolConn(c, &r.limits, r.host, libraryLog{r.log})
	if r.mode != MX {
		w.now = r.service.Core.Now
	}
	slot := r.limiter.Acquire(c.RemoteAddr(), func() { w.stop(errEvicted) })
	if slot == nil {
		if r.mode != Submissions {
			// This does not block, since the line fits into the empty send buffer.
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			fmt.Fprintf(c, "421 4.7.0 %s Too many connections, try again later\r\n", r.host)
		}
		c.Close()
		return
	}
	w.attachSlot(slot)
	if !r.register(w) {
		slot.Release()
		c.Close()
		return
	}
	conns.Go(func() {
		defer slot.Release()
		defer r.unregister(w)
		r.serve(w, clientAddress(c))
	})
}

// clientAddress returns the IP address of the client. The zero value means that it is not known.
func clientAddress(c net.Conn) netip.Addr {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// serve serves a client until its connection ends. After STARTTLS it begins a new session.
func (r *run) serve(w *protocolConn, ip netip.Addr) {
	defer w.closeNow()
	defer func() {
		// go-smtp recovers from panics in its own goroutines, but does not make the handshake.
		if v := recover(); v != nil {
			w.log.Printf("panic serving %v: %v\n%s", ip, v, debug.Stack())
		}
	}()
	if r.mode == Submissions {
		if err := w.handshake(r.tls); err != nil {
			r.log.Debug("smtp: the connection ended", "ip", ip, "error", err)
			return
		}
	}
	w.canTLS = r.tls != nil && r.mode != Submissions
	for {
		r.serveSession(w, ip)
		if !w.wantTLS {
			return
		}
		if err := w.handshake(r.tls); err != nil {
			r.log.Debug("smtp: the connection ended", "ip", ip, "error", err)
			return
		}
	}
}

// serveSession lets go-smtp serve a connection. It returns when the connection has ended, or when a
// TLS handshake is next.
func (r *run) serveSession(w *protocolConn, ip netip.Addr) {
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return r.newSession(w, c, ip), nil }))
	srv.Domain = r.host
	srv.ErrorLog = w.log
	srv.MaxRecipients = r.limits.Rcpts
	srv.MaxMessageBytes = r.limits.Size
	srv.MaxLineLength = maxLineBytes
	srv.EnableSMTPUTF8 = true
	srv.EnableDSN = r.mode != MX
	srv.AllowInsecureAuth = true // AuthMechanisms decides, because the library does not see TLS
	if w.canTLS {
		srv.TLSConfig = r.tls // only for the reply to EHLO; checkCommand answers STARTTLS
	}
	_ = srv.Serve(&singleListener{w})
	_ = srv.Shutdown(context.Background())
}

// newSession makes the session that go-smtp calls.
func (r *run) newSession(w *protocolConn, c *smtp.Conn, ip netip.Addr) smtp.Session {
	s := &session{run: r, conn: w, smtpConn: c, ip: ip}
	s.ctx, s.end = context.WithCancel(r.ctx)
	if r.mode == MX {
		return s
	}
	return loginSession{s}
}

// register adds a connection to those that stop and closeAll end. It returns false if the server is
// stopping.
func (r *run) register(w *protocolConn) (registered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		r.conns[w] = struct{}{}
	}
	return !r.stopping
}

func (r *run) unregister(w *protocolConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, w)
}

// stop ends all connections. Messages that are being received may finish first.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	for w := range r.conns {
		w.stop(errStopping)
	}
}

// closeAll closes all connections at once.
func (r *run) closeAll() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.conns {
		w.closeNow()
	}
}

// A singleListener is a net.Listener that returns one connection.
type singleListener struct{ w *protocolConn }

// errNoMoreConns is what singleListener.Accept returns when it is called again.
var errNoMoreConns = errors.New("the listener of one connection has no further connections")

func (l *singleListener) Accept() (net.Conn, error) {
	if w := l.w; w != nil {
		l.w = nil
		return w, nil
	}
	return nil, errNoMoreConns
}

func (l *singleListener) Close() error   { return nil }
func (l *singleListener) Addr() net.Addr { return &net.TCPAddr{} }

// A libraryLog receives the log lines of go-smtp. It logs panics as errors, and other lines for
// debugging, because clients cause them.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	text := "smtp: " + fmt.Sprintf(format, args...)
	if strings.HasPrefix(format, "panic") && !isLateChunkPanic(text) {
		l.log.Error(text)
		return
	}
	l.log.Debug(text)
}

// isLateChunkPanic reports whether a panic is a known one of go-smtp: its goroutine for chunks
// begins after the session has ended, and finds no session. The stack of that panic has no code of
// this package.
func isLateChunkPanic(text string) bool {
	return strings.Contains(text, "go-smtp.(*Conn).handleBdat.func1(") && !strings.Contains(text, "/handlers/smtpd.")
}

func (l libraryLog) Println(args ...any) { l.log.Debug("smtp: " + fmt.Sprint(args...)) }

// Limits are the limits for each client and for all clients together. Times are of the real clock,
// which a sandbox cannot shift.
type Limits struct {
	Conns           int // connections at once to one listener
	ConnsPerAddress int // connections at once to one listener before log-in from one IPv4 address or IPv6 /64; 0: no limit
	ConnsPerNetwork int // connections at once to one listener before log-in from one IPv4 /24 or IPv6 /48; 0: no limit
	ConnsPerMailbox int // connections at once to all listeners that are logged in to one mailbox; 0: no limit

	// Changing, if not nil, returns ConnsPerAddress and ConnsPerMailbox, which may change.
	Changing func() (perAddress, perMailbox int)

	// Before log-in these are the limits of one address; a network may have four times as many.
	// After log-in they are the limits of one mailbox.
	MessagesPerMinute   int
	RecipientsPerMinute int
	ErrorsPerMinute     int // unknown recipients and failed log-ins

	Exempt []netip.Prefix // addresses to which only Conns and ConnsPerMailbox apply

	Messages int   // of one connection
	Commands int   // of one connection, one after another without effect
	Unknown  int   // refused recipients of one connection
	Logins   int   // failed log-ins of one connection
	Rcpts    int   // of one message
	Size     int64 // of one message, in bytes

	Idle      time.Duration // until a whole command must have arrived
	Session   time.Duration // of one connection; a message that is being received may finish
	BodyIdle  time.Duration // between two reads of a message
	BodyGrace time.Duration // from the start of a message until Rate applies
	Rate      int64         // the lowest average rate of a message, in bytes per second
	Handshake time.Duration // for the TLS handshake
	Write     time.Duration // for the client to receive replies
	Grace     time.Duration // for messages that are being received when Run ends
}

// DefaultLimits returns the limits of a public server.
func DefaultLimits() Limits {
	return Limits{
		Conns: 2000, ConnsPerAddress: 50, ConnsPerNetwork: 200, ConnsPerMailbox: 20,
		MessagesPerMinute: 1200, RecipientsPerMinute: 6000, ErrorsPerMinute: 300,
		Messages: 10_000, Commands: 250, Unknown: 20, Logins: 3, Rcpts: 1000, Size: 36 << 20,
		Idle: 5 * time.Minute, Session: 4 * time.Hour, BodyIdle: 3 * time.Minute, BodyGrace: time.Minute, Rate: 1 << 10,
		Handshake: 30 * time.Second, Write: time.Minute, Grace: 10 * time.Second,
	}
}

const (
	rateWindow    = time.Minute
	networkFactor = 4 // the limit of a network is this multiple of that of an address
)

// clientRates counts the events of each address, network and mailbox per minute. It also counts
// exempt addresses, but does not limit them.
type clientRates struct {
	limits Limits
	now    func() time.Time
	counts *limit.Counter[rateKey]
}

type rateKey struct {
	from    netip.Prefix
	mailbox string // an ID; "" before log-in
	what    eventKind
}

// An eventKind is a kind of action that is counted for each client.
type eventKind int

const (
	messageEvent eventKind = iota
	recipientEvent
	failureEvent // an unknown recipient, or a failed log-in
)

func newClientRates(l Limits, now func() time.Time) *clientRates {
	return &clientRates{limits: l, now: now, counts: limit.NewCounter[rateKey](rateWindow)}
}

// allow counts an event. It reports whether the client is within its limits. mailbox is the ID of
// the mailbox that it has logged in to, or "".
func (c *clientRates) allow(ip netip.Addr, mailbox string, what eventKind) (withinLimits bool) {
	most := map[eventKind]int{
		messageEvent: c.limits.MessagesPerMinute, recipientEvent: c.limits.RecipientsPerMinute, failureEvent: c.limits.ErrorsPerMinute,
	}[what]
	now := c.now()
	exempt := limit.Within(c.limits.Exempt, ip)
	if mailbox != "" {
		return c.counts.Add(rateKey{mailbox: mailbox, what: what}, now) <= most || exempt
	}
	address := c.counts.Add(rateKey{from: limit.HostNetwork(ip), what: what}, now)
	network := c.counts.Add(rateKey{from: limit.SiteNetwork(ip), what: what}, now)
	return exempt || address <= most && network <= networkFactor*most
}
