// Package dnsd answers DNS queries over UDP and TCP from its zones (RFC 1035, 6891, 7766), and
// sends whole zones to secondaries (RFC 5936). It does not know the content of a zone, and it never
// queries another server.
package dnsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/internal/limit"
)

// Answerer answers queries about one zone. It must be safe for concurrent use. A nil answer is
// served as SERVFAIL. Secondaries can copy a zone that also has Transfer() iter.Seq[dns.RR], which
// yields each record of the zone with the SOA first and last. A zone whose Hidden() returns true
// answers only secondaries.
type Answerer interface {
	Answer(q *dns.Msg) *dns.Msg
}

// Zones finds zones.
type Zones interface {
	// Zone returns the zone that encloses name most closely. The name is lower-case, without the
	// trailing dot, in the notation of the dns package: a dot inside a label is \. and a byte
	// outside of ASCII is \DDD.
	Zone(name string) (Answerer, bool)
}

// The values that replace zero fields of Server.
const (
	defaultRate            = 200
	defaultConns           = 512
	defaultConnsPerNetwork = 32
	defaultIdle            = 10 * time.Second
	defaultGrace           = 2 * time.Second
	defaultTransfers       = 16
	defaultTransferFor     = 5 * time.Minute
)

// trustedShare is by how much the rate limit over UDP is higher for a client whose cookie proves
// its address.
const trustedShare = 10

// Server is an authoritative name server. Set the fields before Run; only Zones has to be set.
type Server struct {
	Zones Zones
	Log   *slog.Logger // nil: slog.Default

	Rate            int // UDP answers per second to one client network; also the burst
	Conns           int // TCP connections at once
	ConnsPerNetwork int // of these, from one /24 (IPv4) or /48 (IPv6)
	// How long a TCP connection may take for its next query, and to accept an answer.
	Idle     time.Duration
	Grace    time.Duration // how long running answers may take after ctx has ended
	Now      func() time.Time
	Answered func(rcode string) // called with the status of each answer; may be nil
	Exempt   []netip.Prefix     // addresses to which Rate and ConnsPerNetwork do not apply

	Secondaries []builtin.Secondary // the only clients that may copy zones
	// Zones that are copied at the same time; further transfers wait for up to Idle.
	Transfers   int
	TransferFor time.Duration // how long one transfer may take
}

// run is the state of one call of Run.
type run struct {
	Server
	limits      *limiter
	trusted     *limiter // for clients over limits that have a valid cookie
	cookies     *cookies
	conns       *connTable
	connLimiter *connlimit.Limiter
	secondaries *secondaries
	transfers   *limit.Semaphore[*builtin.Secondary]
}

// Run answers queries on both sockets until ctx ends. Then it stops reading, lets running answers
// finish, and returns nil after its last goroutine has ended. It returns an error if a socket
// fails. It closes both sockets.
func (s *Server) Run(ctx context.Context, udp *net.UDPConn, tcp net.Listener) error {
	r := s.start()
	r.Log.Debug("dns listening", "udp", udp.LocalAddr(), "tcp", tcp.Addr())
	stop, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer r.connLimiter.Close()
	replyFromQueriedAddress(udp)
	_ = udp.SetReadBuffer(udpBuffer) // the system may set a smaller size
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 1 {
		wg.Go(func() {
			if err := r.serveUDP(stop, udp); err != nil {
				fail(fmt.Errorf("read DNS queries on %s: %w", udp.LocalAddr(), err))
			}
		})
	}
	wg.Go(func() {
		if err := r.serveTCP(stop, tcp, &wg); err != nil {
			fail(fmt.Errorf("accept DNS connections on %s: %w", tcp.Addr(), err))
		}
	})
	<-stop.Done()
	r.shutDown(udp, tcp, &wg)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(stop)
}

// start returns a run with defaults in place of zero fields.
func (s *Server) start() *run {
	r := &run{Server: *s}
	if r.Log == nil {
		r.Log = slog.Default()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	setDefault(&r.Rate, defaultRate)
	setDefault(&r.Conns, defaultConns)
	setDefault(&r.ConnsPerNetwork, defaultConnsPerNetwork)
	setDefault(&r.Idle, defaultIdle)
	setDefault(&r.Grace, defaultGrace)
	setDefault(&r.Transfers, defaultTransfers)
	setDefault(&r.TransferFor, defaultTransferFor)
	r.limits, r.trusted = newLimiter(r.Rate, r.Exempt), newLimiter(r.Rate*trustedShare, r.Exempt)
	r.cookies = newCookies(r.Now())
	r.secondaries, r.transfers = newSecondaries(r.Secondaries), limit.NewSemaphore[*builtin.Secondary](r.Transfers, transfersPerSecondary)
	r.conns = &connTable{open: make(map[net.Conn]struct{})}
	r.connLimiter = connlimit.New("dns", connlimit.Limits{All: r.Conns, PerNetwork: r.ConnsPerNetwork, Exempt: r.Exempt}, r.Log)
	return r
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// shutDown stops in two steps: it ends the reading of queries, and after Grace closes the
// connections that are still open.
func (r *run) shutDown(udp *net.UDPConn, tcp net.Listener, wg *sync.WaitGroup) {
	tcp.Close()
	udp.SetReadDeadline(time.Unix(1, 0))
	r.conns.stop()
	hard := time.AfterFunc(r.Grace, func() {
		r.conns.closeAll()
		udp.Close()
	})
	wg.Wait()
	hard.Stop()
	udp.Close()
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// fatal reports whether err means that the socket cannot be used any more.
func fatal(err error) bool { return errors.Is(err, net.ErrClosed) }
