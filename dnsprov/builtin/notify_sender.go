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
	// coalesceFor is how long a change waits for more changes of its zone.
	coalesceFor = 100 * time.Millisecond
	// firstRetry is how long an answer may take before the NOTIFY is sent again; each next wait is
	// twice as long (RFC 1996 section 3.6), up to maxSends, which is about four minutes.
	firstRetry = 2 * time.Second
	maxSends   = 7
	// sendInterval is the shortest time between two messages to one secondary, which gets one for
	// every zone after a start.
	sendInterval = 2 * time.Millisecond
	notifyFudge  = 300 // seconds (RFC 8945 section 10)
	// readErrorPause is the pause after a failed read.
	readErrorPause = 10 * time.Millisecond
	// refusalLogInterval is how often the log says that a secondary refuses zones.
	refusalLogInterval = 10 * time.Minute
)

// notice is a zone for which a secondary has yet to get or answer a NOTIFY.
type notice struct {
	origin string
	due    time.Time // when to send the NOTIFY again, or to give up
	sends  int       // how many were sent
	id     uint16    // of the newest NOTIFY
	mac    string    // of the newest NOTIFY
	at     int       // index in the heap
}

// notices is a heap by due time.
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

// notifySender sends one secondary its NOTIFY messages, and reads the replies.
type notifySender struct {
	to   Secondary
	find func(origin string) (Copied, bool)
	dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	log  *slog.Logger
	wake chan struct{} // has an element when changed has new entries

	mu      sync.Mutex
	changed map[string]time.Time // zones that have changed, and when

	// Only run uses the fields below.
	pending   map[string]*notice
	order     notices
	nextSend  time.Time // when the next datagram may be sent
	lastError string    // the last logged error; "" after an answer
	socket    *socket

	refusedAt time.Time // when the log last reported a refusal
}

// socket is an open socket to the secondary.
type socket struct {
	conn    net.Conn
	replies chan []byte
	done    chan struct{} // closed with the socket
}

func newNotifySender(to Secondary, find func(string) (Copied, bool), log *slog.Logger) *notifySender {
	return &notifySender{
		to: to, find: find, dial: dialUDP, log: log.With("secondary", to.Name), wake: make(chan struct{}, 1),
		changed: map[string]time.Time{}, pending: map[string]*notice{},
	}
}

func (s *notifySender) noteChanged(origins []string, now time.Time) {
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

// run sends and listens until ctx ends. While nothing is pending, no socket is open.
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
			s.handleReply(wire)
		case <-due:
			s.sendNext(ctx)
		}
		stop()
	}
}

// collectChanges makes notices of the changed zones. If a zone changes again, its retries start
// again.
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

// timer returns a channel that fires when the next notice may be sent; nil if there is none.
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

func (s *notifySender) sendNext(ctx context.Context) {
	n, now := s.order[0], time.Now()
	if n.due.After(now) {
		return
	}
	if n.sends == maxSends {
		s.drop(n)
		s.logError("it does not answer", n.origin)
		return
	}
	zone, ok := s.find(n.origin)
	if !ok {
		s.drop(n)
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

func (s *notifySender) drop(n *notice) {
	heap.Remove(&s.order, n.at)
	delete(s.pending, n.origin)
}

// send sends a NOTIFY with the zone's SOA as a hint (RFC 1996 section 3.7).
func (s *notifySender) send(ctx context.Context, n *notice, zone Copied) error {
	wire, err := s.message(n, zone)
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
	if errors.Is(err, syscall.ECONNREFUSED) { // reports that the previous message was refused; this one was not sent
		_, err = s.socket.conn.Write(wire)
	}
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		s.disconnect() // the next message opens a new socket, since our own address may have changed
		return err
	}
	return nil
}

func (s *notifySender) message(n *notice, zone Copied) ([]byte, error) {
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
		return nil, fmt.Errorf("sign NOTIFY: %w", err)
	}
	n.mac = mac
	return wire, nil
}

func (s *notifySender) secret() string { return base64.StdEncoding.EncodeToString(s.to.Key.Secret) }

// disconnect closes the socket, if one is open, and waits until listen has ended.
func (s *notifySender) disconnect() {
	if s.socket == nil {
		return
	}
	close(s.socket.done)
	s.socket.conn.Close()
	for range s.socket.replies { // until listen has ended
	}
	s.socket = nil
}

// listen passes on the received messages until the socket is closed.
func (l *socket) listen() {
	defer close(l.replies)
	buf := make([]byte, dns.DefaultMsgSize)
	for {
		n, err := l.conn.Read(buf)
		if err != nil { // nothing listens at the secondary now, or the socket is closed
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

// handleReply handles a reply. Any reply to the newest NOTIFY of a zone ends its retries (RFC 1996
// section 3.6), since a secondary that refuses will refuse again. If there is a key, the reply must
// be signed, or anybody could end the retries.
func (s *notifySender) handleReply(wire []byte) {
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
	s.drop(n)
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

// logError logs an error if it differs from the last one: a secondary that is down would otherwise
// fill the log with every zone.
func (s *notifySender) logError(text, origin string) {
	if s.lastError == text {
		return
	}
	s.lastError = text
	s.log.Warn("NOTIFY of a secondary", "error", text, "zone", origin)
}
