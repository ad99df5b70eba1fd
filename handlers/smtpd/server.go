// Package smtpd listens for mail: as MX on port 25, and for the users of our mailboxes on 587 and
// 465 (RFC 5321, 6409). It does not know who has a mailbox, what a message is worth or where it
// goes: the service does.
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

// Mode is what a listener is for.
type Mode int

// The modes of Run.
const (
	MX          Mode = iota // mail from anybody to us; no log-in
	Submission              // mail of our users, STARTTLS
	Submissions             // the same, TLS from the first byte
)

// String names the service as port lists do.
func (m Mode) String() string { return [...]string{"smtp", "submission", "submissions"}[m] }

// Server takes mail. Its fields are set before Run, which may be called for several listeners at
// once.
type Server struct {
	Log    *slog.Logger // nil: slog.Default
	TLS    *tls.Config  // nil: no TLS
	Limits Limits

	service *service.Service
}

// New returns a server for what the service decides.
func New(s *service.Service) *Server { return &Server{service: s, Limits: DefaultLimits()} }

// run is one Run.
type run struct {
	service *service.Service
	log     *slog.Logger
	tls     *tls.Config
	limits  Limits
	mode    Mode
	host    string
	rates   *clientRates
	limiter *connlimit.Limiter

	ctx       context.Context // of what the service is asked
	cancel    context.CancelFunc
	receiving sync.WaitGroup // messages that are being taken

	mu       sync.Mutex
	conns    map[*protocolConn]struct{}
	stopping bool
}

var errNoTLS = errors.New("a listener for TLS needs a certificate")

// Run serves the connections of ln until ctx ends, lets what is being received come to its end, and
// returns nil after its last goroutine has ended. It returns an error if ln fails. ln is closed.
func (s *Server) Run(ctx context.Context, ln net.Listener, mode Mode) error {
	if mode == Submissions && s.TLS == nil {
		return errors.Join(fmt.Errorf("serve %s: %w", ln.Addr(), errNoTLS), ln.Close())
	}
	r := s.start(ctx, mode)
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
	return fmt.Errorf("accept on %s: %w", ln.Addr(), err)
}

func (s *Server) start(ctx context.Context, mode Mode) *run {
	r := &run{
		service: s.service, log: s.Log, tls: s.TLS, limits: s.Limits, mode: mode, host: s.service.Core.Hostname(),
		rates: newClientRates(s.Limits, s.service.Core.Now), conns: map[*protocolConn]struct{}{},
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	r.limiter = connlimit.New(mode.String(), connlimit.Limits{
		All: s.Limits.Conns, PerAddress: s.Limits.ConnsPerAddress, PerNetwork: s.Limits.ConnsPerNetwork, Exempt: s.Limits.Exempt,
	}, r.log)
	// A message that is being received may be taken after ctx has ended.
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// accept takes connections until ln is closed. A lack of file descriptors and the like passes.
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
			r.log.Warn("smtp: accept", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, time.Second)
		}
	}
}

// admit serves a connection if there is a slot for it.
func (r *run) admit(c net.Conn, conns *sync.WaitGroup) {
	if r.mode == MX {
		r.service.Core.Clients.Note(addressOf(c))
	}
	w := newProtocolConn(c, &r.limits, r.host, libraryLog{r.log})
	if r.mode != MX {
		w.now = r.service.Core.Now
	}
	slot := r.limiter.Acquire(c.RemoteAddr(), func() { w.stop(errEvicted) })
	if slot == nil {
		if r.mode != Submissions {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // an empty socket takes a line at once
			fmt.Fprintf(c, "421 4.7.0 %s Too many connections, try again later\r\n", r.host)
		}
		c.Close()
		return
	}
	w.attach(slot)
	if !r.watch(w) {
		slot.Release()
		c.Close()
		return
	}
	conns.Go(func() {
		defer slot.Release()
		defer r.forget(w)
		r.serve(w, addressOf(c))
	})
}

func addressOf(c net.Conn) netip.Addr {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// serve speaks with a client until it leaves. STARTTLS begins a new session.
func (r *run) serve(w *protocolConn, ip netip.Addr) {
	defer w.closeNow()
	defer func() {
		if v := recover(); v != nil { // go-smtp catches its own; this is for the handshake
			w.log.Printf("panic serving %v: %v\n%s", ip, v, debug.Stack())
		}
	}()
	if r.mode == Submissions {
		if err := w.handshake(r.tls); err != nil {
			r.log.Debug("smtp", "ip", ip, "error", err)
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
			r.log.Debug("smtp", "ip", ip, "error", err)
			return
		}
	}
}

// serveSession lets go-smtp serve a connection, and returns when it has ended, or when TLS is to
// begin on it.
func (r *run) serveSession(w *protocolConn, ip netip.Addr) {
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return r.newSession(w, c, ip), nil }))
	srv.Domain = r.host
	srv.ErrorLog = w.log
	srv.MaxRecipients = r.limits.Rcpts
	srv.MaxMessageBytes = r.limits.Size
	srv.MaxLineLength = maxLine
	srv.EnableSMTPUTF8 = true
	srv.EnableDSN = r.mode != MX
	srv.AllowInsecureAuth = true // the session says where it may be; the library does not see TLS
	if w.canTLS {
		srv.TLSConfig = r.tls // for EHLO alone: intercept answers STARTTLS
	}
	_ = srv.Serve(&singleListener{w})
	_ = srv.Shutdown(context.Background())
}

func (r *run) newSession(w *protocolConn, c *smtp.Conn, ip netip.Addr) smtp.Session {
	s := &session{run: r, conn: w, smtpConn: c, ip: ip}
	s.ctx, s.end = context.WithCancel(r.ctx)
	if r.mode == MX {
		return s
	}
	return loginSession{s}
}

// watch remembers a connection so that it can be stopped; false if stopping has begun.
func (r *run) watch(w *protocolConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping {
		r.conns[w] = struct{}{}
	}
	return !r.stopping
}

func (r *run) forget(w *protocolConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, w)
}

// stop ends every connection that is not within a message, and the others when it has come.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
	for w := range r.conns {
		w.stop(errStopping)
	}
}

// closeAll ends everything that is still going on.
func (r *run) closeAll() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.conns {
		w.closeNow()
	}
}

// singleListener is a listener with one connection.
type singleListener struct{ w *protocolConn }

var errServed = errors.New("the only connection has been given")

func (l *singleListener) Accept() (net.Conn, error) {
	if w := l.w; w != nil {
		l.w = nil
		return w, nil
	}
	return nil, errServed
}

func (l *singleListener) Close() error   { return nil }
func (l *singleListener) Addr() net.Addr { return &net.TCPAddr{} }

// libraryLog takes what go-smtp logs: panics are our fault, the rest is the peers'.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	text := "smtp: " + fmt.Sprintf(format, args...)
	if strings.HasPrefix(format, "panic") && !tooLate(text) {
		l.log.Error(text)
		return
	}
	l.log.Debug(text)
}

// tooLate recognises the one panic that go-smtp has by itself: its goroutine for chunks begins when
// the session has ended already, and finds none. Nothing was asked of us then, so our code is not
// on its stack.
func tooLate(text string) bool {
	return strings.Contains(text, "go-smtp.(*Conn).handleBdat.func1(") && !strings.Contains(text, "/handlers/smtpd.")
}

func (l libraryLog) Println(args ...any) { l.log.Debug("smtp: " + fmt.Sprint(args...)) }

// Limits are what one client, and all of them together, may use. Times are of the real clock.
type Limits struct {
	Conns           int // at once
	ConnsPerAddress int // of these from one address (IPv4), or one /64 (IPv6)
	ConnsPerNetwork int // of these from one /24 or /48

	MessagesPerMinute   int // of one address; a network may have four times as many
	RecipientsPerMinute int
	ErrorsPerMinute     int // unknown recipients and failed log-ins

	Exempt []netip.Prefix // only Conns holds for these

	Messages int   // in one connection
	Commands int   // in one connection, without any that achieves something
	Unknown  int   // recipients of one connection that are refused
	Logins   int   // that fail in one connection
	Rcpts    int   // of one message
	Size     int64 // of one message, bytes

	Idle      time.Duration // until a whole command has come
	Session   time.Duration // of one connection; what is then being received may still end
	BodyIdle  time.Duration // between two pieces of a message
	BodyGrace time.Duration // before Rate is asked of a message
	Rate      int64         // bytes per second that a message must come at, on average
	Handshake time.Duration // of TLS
	Write     time.Duration // until the peer has taken our answers
	Grace     time.Duration // what is being received when Run is told to stop gets this long
}

// DefaultLimits are fit for a public server.
func DefaultLimits() Limits {
	return Limits{
		Conns: 2000, ConnsPerAddress: 50, ConnsPerNetwork: 200,
		MessagesPerMinute: 1200, RecipientsPerMinute: 6000, ErrorsPerMinute: 300,
		Messages: 10_000, Commands: 250, Unknown: 20, Logins: 3, Rcpts: 1000, Size: 36 << 20,
		Idle: 5 * time.Minute, Session: 4 * time.Hour, BodyIdle: 3 * time.Minute, BodyGrace: time.Minute, Rate: 1 << 10,
		Handshake: 30 * time.Second, Write: time.Minute, Grace: 10 * time.Second,
	}
}

const (
	rateWindow    = time.Minute
	networkFactor = 4 // what a network may do, in multiples of what an address may
)

// clientRates counts what every address and network does in a minute. Exempt ones are counted but
// not limited.
type clientRates struct {
	limits Limits
	now    func() time.Time
	counts *limit.Counter[rateKey]
}

type rateKey struct {
	from netip.Prefix
	what event
}

// An event is something that is counted.
type event int

const (
	message event = iota
	recipient
	failure // an unknown recipient, or a log-in that fails
)

func newClientRates(l Limits, now func() time.Time) *clientRates {
	return &clientRates{limits: l, now: now, counts: limit.NewCounter[rateKey](rateWindow)}
}

// allow counts an event, and reports whether the client is within its limits.
func (c *clientRates) allow(ip netip.Addr, what event) bool {
	most := map[event]int{
		message: c.limits.MessagesPerMinute, recipient: c.limits.RecipientsPerMinute, failure: c.limits.ErrorsPerMinute,
	}[what]
	now := c.now()
	address := c.counts.Add(rateKey{limit.Host(ip), what}, now)
	network := c.counts.Add(rateKey{limit.Site(ip), what}, now)
	return limit.Within(c.limits.Exempt, ip) || address <= most && network <= networkFactor*most
}
