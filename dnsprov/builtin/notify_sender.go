package builtin

import (
	"container/heap"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

const (
	// coalesceFor is the delay after a change before its NOTIFY is sent, so that one message covers
	// several changes.
	coalesceFor = 100 * time.Millisecond
	// firstRetry is the time to wait for a reply before the NOTIFY is sent again. Each further wait
	// is twice as long (RFC 1996 section 3.6).
	firstRetry = 2 * time.Second
	// maxSends is how often a NOTIFY is sent without a reply, which takes about four minutes.
	maxSends = 7
	// sendInterval is the minimum time between two messages to one secondary. After a start there
	// is one message for every zone.
	sendInterval = 2 * time.Millisecond
	notifyFudge  = 300 // permitted clock difference of TSIG in seconds (RFC 8945 section 10)
	// readErrorPause is the pause after an error of reading from the socket.
	readErrorPause = 10 * time.Millisecond
	// refusalLogInterval is the minimum time between two log messages that a secondary refuses
	// NOTIFY.
	refusalLogInterval = 10 * time.Minute
)

// notice is a pending NOTIFY: the secondary has not confirmed the change of the zone yet.
type notice struct {
	origin string
	due    time.Time // when to send the NOTIFY, or after maxSends, when to give up
	sends  int       // how many times it was sent
	id     uint16    // message ID when it was last sent
	mac    string    // TSIG MAC when it was last sent
	at     int       // index in the heap
}

// notices is a heap of notices, ordered by due time.
type notices []*notice

func (n notices) Len() int           { return len(n) }
func (n notices) Less(i, j int) bool { return n[i].due.Before(n[j].due) }
func (n notices) Swap(i, j int)      { n[i], n[j] = n[j], n[i]; n[i].at, n[j].at = i, j }

// Push implements heap.Interface.
func (n *notices) Push(x any) {
	one := x.(*notice)
	one.at = len(*n)
	*n = append(*n, one)
}

// Pop implements heap.Interface.
func (n *notices) Pop() any {
	last := len(*n) - 1
	one := (*n)[last]
	(*n)[last] = nil
	*n = (*n)[:last]
	return one
}

// notifySender sends NOTIFY messages to one secondary, and reads the replies.
type notifySender struct {
	to   Secondary
	find func(origin string) (CopiedZone, bool)
	dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	log  *slog.Logger
	wake chan struct{} // has an element when changed has new entries

	mu      sync.Mutex
	changed map[string]time.Time // when zones changed, by origin

	// Only run uses the following fields.
	pending   map[string]*notice // by origin
	order     notices            // the same notices, ordered by due time
	nextSend  time.Time          // when the next message may be sent
	lastError string             // the last logged error; "" after a reply
	socket    *socket

	refusedAt time.Time // when the log last reported a refusal
}

// socket is an open UDP socket to the secondary.
type socket struct {
	conn    net.Conn
	replies chan []byte   // received messages; closed when listen has ended
	done    chan struct{} // closed by disconnect
}

func newNotifySender(to Secondary, find func(string) (CopiedZone, bool), log *slog.Logger) *notifySender {
	return &notifySender{
		to: to, find: find, dial: dialUDP, log: log.With("secondary", to.Name), wake: make(chan struct{}, 1),
		changed: map[string]time.Time{}, pending: map[string]*notice{},
	}
}

// recordChanges records that zones have changed, and wakes run.
func (s *notifySender) recordChanges(origins []string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, origin := range origins {
		if _, ok := s.changed[origin]; !ok {
			s.changed[origin] = now
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run sends NOTIFY messages and processes replies until ctx ends. It closes the socket while
// nothing is pending.
func (s *notifySender) run(ctx context.Context) {
	defer s.disconnect()
	for {
		s.collectChanges()
		if len(s.order) == 0 {
			s.disconnect()
		}
		var replies chan []byte
		if s.socket != nil {
			replies = s.socket.replies
		}
		due, stop := s.timer()
		select {
		case <-ctx.Done():
			stop()
			return
		case <-s.wake:
		case wire := <-replies:
			s.processReply(wire)
		case <-due:
			s.sendNext(ctx)
		}
		stop()
	}
}

// collectChanges turns the changed zones into notices. If a zone already has a notice, its retries
// start from the beginning.
func (s *notifySender) collectChanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for origin, at := range s.changed {
		n := s.pending[origin]
		if n == nil {
			n = &notice{origin: origin, due: at.Add(coalesceFor)}
			s.pending[origin] = n
			heap.Push(&s.order, n)
		} else if n.sends > 0 {
			n.sends, n.due = 0, at.Add(coalesceFor)
			heap.Fix(&s.order, n.at)
		}
	}
	clear(s.changed)
}

// timer returns a channel that fires when the next notice is due, or nil if there is no notice. The
// caller must call stop.
func (s *notifySender) timer() (ring <-chan time.Time, stop func()) {
	if len(s.order) == 0 {
		return nil, func() {}
	}
	at := s.order[0].due
	if at.Before(s.nextSend) {
		at = s.nextSend
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// sendNext sends the notice that is due next, if it is due. It gives up after maxSends.
func (s *notifySender) sendNext(ctx context.Context) {
	n, now := s.order[0], time.Now()
	if n.due.After(now) {
		return
	}
	if n.sends == maxSends {
		s.removeNotice(n)
		s.logError("it does not answer", n.origin)
		return
	}
	zone, ok := s.find(n.origin)
	if !ok {
		s.removeNotice(n)
		return
	}
	n.due = now.Add(firstRetry << n.sends)
	n.sends++
	heap.Fix(&s.order, n.at)
	s.nextSend = now.Add(sendInterval)
	if err := s.send(ctx, n, zone); err != nil {
		s.logError(err.Error(), n.origin)
	}
}

func (s *notifySender) removeNotice(n *notice) {
	heap.Remove(&s.order, n.at)
	delete(s.pending, n.origin)
}

// send sends a NOTIFY, which includes the zone's SOA (RFC 1996 section 3.7).
func (s *notifySender) send(ctx context.Context, n *notice, zone CopiedZone) error {
	wire, err := s.newMessage(n, zone)
	if err != nil {
		return err
	}
	if s.socket == nil {
		conn, err := s.dial(ctx, s.to.Addr)
		if err != nil {
			return err
		}
		s.socket = &socket{conn: conn, replies: make(chan []byte), done: make(chan struct{})}
		go s.socket.listen()
	}
	_, err = s.socket.conn.Write(wire)
	if errors.Is(err, syscall.ECONNREFUSED) { // about the previous message; this one was not sent
		_, err = s.socket.conn.Write(wire)
	}
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		s.disconnect() // our own address may have changed, so the next message needs a new socket
		return err
	}
	return nil
}

func (s *notifySender) newMessage(n *notice, zone CopiedZone) ([]byte, error) {
	m := new(dns.Msg).SetNotify(dns.Fqdn(n.origin))
	n.id, n.mac = m.Id, ""
	for rr := range zone.Transfer() {
		m.Answer = []dns.RR{rr}
		break
	}
	if s.to.Key == nil {
		return m.Pack()
	}
	m.SetTsig(dns.Fqdn(s.to.Key.Name), dns.Fqdn(s.to.Key.Algorithm), notifyFudge, time.Now().Unix())
	wire, mac, err := dns.TsigGenerate(m, s.secret(), "", false)
	if err != nil {
		return nil, fmt.Errorf("sign NOTIFY message: %w", err)
	}
	n.mac = mac
	return wire, nil
}

func (s *notifySender) secret() string { return base64.StdEncoding.EncodeToString(s.to.Key.Secret) }

// disconnect closes the socket if one is open, and waits until listen has ended.
func (s *notifySender) disconnect() {
	if s.socket == nil {
		return
	}
	close(s.socket.done)
	s.socket.conn.Close()
	for range s.socket.replies { // listen closes the channel when it ends
	}
	s.socket = nil
}

// listen sends received messages to l.replies until the socket is closed.
func (l *socket) listen() {
	defer close(l.replies)
	buf := make([]byte, dns.DefaultMsgSize)
	for {
		n, err := l.conn.Read(buf)
		if err != nil { // the secondary does not listen, or the socket was closed
			select {
			case <-l.done:
				return
			case <-time.After(readErrorPause):
				continue
			}
		}
		select {
		case l.replies <- append([]byte(nil), buf[:n]...):
		case <-l.done:
			return
		}
	}
}

// processReply removes the notice that a reply answers. A refusal ends the retries too (RFC 1996
// section 3.6), because the secondary would refuse again. If there is a key, the reply must be
// signed, so that only the secondary can end the retries.
func (s *notifySender) processReply(wire []byte) {
	m := new(dns.Msg)
	if m.Unpack(wire) != nil || !m.Response || m.Opcode != dns.OpcodeNotify || len(m.Question) != 1 {
		return
	}
	origin := strings.TrimSuffix(dns.CanonicalName(m.Question[0].Name), ".")
	n := s.pending[origin]
	if n == nil || n.sends == 0 || n.id != m.Id {
		return
	}
	if s.to.Key != nil {
		if err := dns.TsigVerify(wire, s.secret(), n.mac, false); err != nil {
			s.logError(signatureError(m, err), origin)
			return
		}
	}
	s.removeNotice(n)
	if now := time.Now(); m.Rcode != dns.RcodeSuccess && now.Sub(s.refusedAt) > refusalLogInterval {
		s.refusedAt = now
		s.log.Warn("a secondary refuses NOTIFY", "zone", origin, "status", dns.RcodeToString[m.Rcode])
	}
	if s.lastError != "" {
		s.log.Info("a secondary answers NOTIFY again", "zone", origin)
	}
	s.lastError = ""
}

// signatureError describes what is wrong with the signature of a reply.
func signatureError(m *dns.Msg, err error) string {
	if tsig := m.IsTsig(); tsig != nil && tsig.Error != 0 {
		return "it rejects our signature: " + dns.RcodeToString[int(tsig.Error)]
	}
	return "the signature of its answer is wrong: " + err.Error()
}

// logError logs an error unless it is the same as the last one. Otherwise a secondary that is down
// would cause a message for every zone.
func (s *notifySender) logError(text, origin string) {
	if s.lastError == text {
		return
	}
	s.lastError = text
	s.log.Warn("NOTIFY of a secondary", "error", text, "zone", origin)
}
