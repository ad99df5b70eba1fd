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

// An Answerer is one zone. It must be safe for concurrent use. A nil answer becomes SERVFAIL. If it
// also has the method Transfer() iter.Seq[dns.RR], secondaries can copy the zone; Transfer yields
// all records of the zone, with the SOA record first and last. If it has the method Hidden() bool
// and that returns true, the zone answers only secondaries. If it has the method
// CountQuestion(time.Time), that is called for each answered question of others.
type Answerer interface {
	Answer(q *dns.Msg) *dns.Msg
}

// Zones finds zones.
type Zones interface {
	// Zone returns the zone that encloses name most closely. name is in lower case, without the dot
	// at the end, in the notation of the dns package: a dot inside a label is \. and a byte beyond
	// ASCII is \DDD.
	Zone(name string) (Answerer, bool)
}

// Defaults of the fields of Server.
const (
	defaultRate            = 200
	defaultConns           = 512
	defaultConnsPerNetwork = 32
	defaultIdle            = 10 * time.Second
	defaultGrace           = 2 * time.Second
	defaultTransfers       = 16
	defaultTransferFor     = 5 * time.Minute
)

// cookieRateFactor is the factor by which the rate limit over UDP is higher for a client whose
// cookie proves its address.
const cookieRateFactor = 10

// A Server is an authoritative nameserver. Set its fields before Run. Only Zones is required;
// other zero fields have defaults.
type Server struct {
	Zones Zones
	Log   *slog.Logger // nil: slog.Default

	Rate            int // UDP answers per second to one client network, and the burst
	Conns           int // TCP connections at once
	ConnsPerNetwork int // TCP connections at once from one IPv4 /24 or IPv6 /48
	// Idle is how long a TCP client may take to send its next query, and to receive an answer.
	Idle     time.Duration
	Grace    time.Duration // how long running answers may take after ctx has ended
	Now      func() time.Time
	Answered func(rcode string) // called with the status of each answer, such as NOERROR; may be nil
	Exempt   []netip.Prefix     // addresses to which Rate and ConnsPerNetwork do not apply
	// Own reports whether a client is this host itself, whose questions are not counted. Addresses
	// are without the IPv4 mapping. nil: no client is.
	Own func(netip.Addr) bool

	Secondaries []builtin.Secondary // clients that may copy zones
	// Transfers is how many transfers may run at once. Further ones wait for up to Idle.
	Transfers   int
	TransferFor time.Duration // how long one transfer may take
}

// run is the state of one call of Run.
type run struct {
	Server
	limits      *answerLimiter // for all clients
	trusted     *answerLimiter // a higher limit, for clients with a valid cookie
	cookies     *cookieMaker
	conns       *connTable
	connLimiter *connlimit.Limiter
	secondaries *secondaries
	transfers   *limit.Semaphore[*builtin.Secondary]
}

// Run answers queries on both sockets until ctx ends, and closes both. When ctx ends, it reads no
// more queries, lets running answers finish, and returns nil when its last goroutine has ended. It
// returns an error if a socket fails.
func (s *Server) Run(ctx context.Context, udp *net.UDPConn, tcp net.Listener) error {
	r := s.newRun()
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

// newRun returns a run in which the zero fields of s have their defaults.
func (s *Server) newRun() *run {
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
	r.limits, r.trusted = newAnswerLimiter(r.Rate, r.Exempt), newAnswerLimiter(r.Rate*cookieRateFactor, r.Exempt)
	r.cookies = newCookieMaker(r.Now())
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

// shutDown stops the server in two steps. It first ends the reading of queries. After the time
// Grace it closes the connections that are still open.
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

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// isFatal reports whether err means that a socket cannot be used any more.
func isFatal(err error) bool { return errors.Is(err, net.ErrClosed) }
