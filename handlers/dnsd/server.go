// Package dnsd listens for DNS queries over UDP and TCP and sends back what the zones answer (RFC
// 1035, 6891, 7766), and whole zones to secondaries (RFC 5936). It does not know what a zone holds,
// and it never asks another server.
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

// Answerer answers queries about one zone, from many goroutines at once. A nil answer is served as
// SERVFAIL. One that also has Transfer() iter.Seq[dns.RR], each record of the zone with the SOA
// first and last, can be copied by secondaries; one that has Hidden() bool, and it is true, answers
// nobody else.
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

// What a zero field of Server stands for.
const (
	defaultRate            = 200
	defaultConns           = 512
	defaultConnsPerNetwork = 32
	defaultIdle            = 10 * time.Second
	defaultGrace           = 2 * time.Second
	defaultTransfers       = 16
	defaultTransferFor     = 5 * time.Minute
)

// trustedShare is how much more than others a client gets over UDP that has proved with a cookie
// where it is.
const trustedShare = 10

// Server is an authoritative name server. Set the fields before Run; only Zones has to be set.
type Server struct {
	Zones Zones
	Log   *slog.Logger // nil for slog.Default

	Rate            int           // answers per second over UDP to one client network, with bursts of as many
	Conns           int           // TCP connections at once
	ConnsPerNetwork int           // of these, from one /24 (IPv4) or /48 (IPv6)
	Idle            time.Duration // a TCP connection may take this long for its next query, and to take our answer
	Grace           time.Duration // what is being answered when Run is told to stop gets this long
	Now             func() time.Time
	Answered        func(rcode string) // told of each answer; nil: nobody is
	Exempt          []netip.Prefix     // Rate and ConnsPerNetwork do not hold for these

	Secondaries []builtin.Secondary // who may copy zones; nobody else
	Transfers   int                 // zones on their way to them at once; more wait, for Idle
	TransferFor time.Duration       // one transfer may take this long
}

// run is one Run of a server.
type run struct {
	Server
	limits      *limiter
	trusted     *limiter // of those who are over limits and have a good cookie
	cookies     *cookies
	conns       *connTable
	connLimiter *connlimit.Limiter
	secondaries *secondaries
	transfers   *limit.Semaphore[*builtin.Secondary]
}

// Run answers queries on both sockets until ctx ends, then stops reading, lets what is being
// answered finish, and returns nil after its last goroutine has ended. It returns an error if a
// socket fails. Both sockets are closed.
func (s *Server) Run(ctx context.Context, udp *net.UDPConn, tcp net.Listener) error {
	r := s.start()
	r.Log.Debug("dns listening", "udp", udp.LocalAddr(), "tcp", tcp.Addr())
	stop, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer r.connLimiter.Close()
	answerFromWhereAsked(udp)
	_ = udp.SetReadBuffer(udpBuffer) // the system gives what it may
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 1 {
		wg.Go(func() {
			if err := r.serveUDP(stop, udp); err != nil {
				fail(fmt.Errorf("read %s: %w", udp.LocalAddr(), err))
			}
		})
	}
	wg.Go(func() {
		if err := r.serveTCP(stop, tcp, &wg); err != nil {
			fail(fmt.Errorf("accept on %s: %w", tcp.Addr(), err))
		}
	})
	<-stop.Done()
	r.wind(udp, tcp, &wg)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(stop)
}

// start fills in what the fields leave open.
func (s *Server) start() *run {
	r := &run{Server: *s}
	if r.Log == nil {
		r.Log = slog.Default()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	orElse(&r.Rate, defaultRate)
	orElse(&r.Conns, defaultConns)
	orElse(&r.ConnsPerNetwork, defaultConnsPerNetwork)
	orElse(&r.Idle, defaultIdle)
	orElse(&r.Grace, defaultGrace)
	orElse(&r.Transfers, defaultTransfers)
	orElse(&r.TransferFor, defaultTransferFor)
	r.limits, r.trusted = newLimiter(r.Rate, r.Exempt), newLimiter(r.Rate*trustedShare, r.Exempt)
	r.cookies = newCookies(r.Now())
	r.secondaries, r.transfers = newSecondaries(r.Secondaries), limit.NewSemaphore[*builtin.Secondary](r.Transfers, transfersEach)
	r.conns = &connTable{open: make(map[net.Conn]struct{})}
	r.connLimiter = connlimit.New("dns", connlimit.Limits{All: r.Conns, PerNetwork: r.ConnsPerNetwork, Exempt: r.Exempt}, r.Log)
	return r
}

func orElse[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// wind stops in two steps: no new queries, then, for those who do not end in time, no more
// connection.
func (r *run) wind(udp *net.UDPConn, tcp net.Listener, wg *sync.WaitGroup) {
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

// pause waits before a failed call is tried again, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// fatal reports whether a socket that returned err will never work again.
func fatal(err error) bool { return errors.Is(err, net.ErrClosed) }
