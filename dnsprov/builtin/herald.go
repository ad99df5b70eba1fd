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
	// firstWait is how long an answer may take before the zone is told about again; each next wait
	// is twice as long (RFC 1996 section 3.6), up to maxTells tellings, which is about four
	// minutes.
	firstWait = 2 * time.Second
	maxTells  = 7
	// tellEvery paces what one secondary gets, as after a start, when it is told about every zone.
	tellEvery   = 2 * time.Millisecond
	notifyFudge = 300 // seconds (RFC 8945 section 10)
	// deafFor is the pause after a failed read.
	deafFor = 10 * time.Millisecond
	// sayAgain is how often the log tells that a secondary refuses zones.
	sayAgain = 10 * time.Minute
)

// notice is one zone that a secondary is to be told about.
type notice struct {
	origin string
	due    time.Time // of the next telling, or of giving up
	tells  int       // so far
	id     uint16    // of the newest
	mac    string    // of the newest
	at     int       // its place in the heap
}

// notices is a heap by due time.
type notices []*notice

func (n notices) Len() int           { return len(n) }
func (n notices) Less(i, j int) bool { return n[i].due.Before(n[j].due) }
func (n notices) Swap(i, j int)      { n[i], n[j] = n[j], n[i]; n[i].at, n[j].at = i, j }

// Push is for package heap.
func (n *notices) Push(x any) {
	one := x.(*notice)
	one.at = len(*n)
	*n = append(*n, one)
}

// Pop is for package heap.
func (n *notices) Pop() any {
	last := len(*n) - 1
	one := (*n)[last]
	(*n)[last] = nil
	*n = (*n)[:last]
	return one
}

// herald tells one secondary.
type herald struct {
	to   Secondary
	find func(origin string) (Copied, bool)
	dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	log  *slog.Logger
	wake chan struct{} // something was noted

	mu    sync.Mutex
	noted map[string]time.Time // zones that have changed, and when

	// The rest belongs to run.
	pending map[string]*notice
	order   notices
	free    time.Time // when the next datagram may go out
	said    string    // the trouble that was logged last; "" after an answer
	line    *line

	refusedAt time.Time // when the log was last told that it refuses a zone
}

// line is an open socket to the secondary.
type line struct {
	conn  net.Conn
	heard chan []byte
	done  chan struct{} // closed with the socket
}

func newHerald(to Secondary, find func(string) (Copied, bool), log *slog.Logger) *herald {
	return &herald{
		to: to, find: find, dial: dialUDP, log: log.With("secondary", to.Name), wake: make(chan struct{}, 1),
		noted: map[string]time.Time{}, pending: map[string]*notice{},
	}
}

func (h *herald) note(origins []string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, origin := range origins {
		if _, ok := h.noted[origin]; !ok {
			h.noted[origin] = now
		}
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run tells and listens until ctx ends. Between two tellings nothing is open.
func (h *herald) run(ctx context.Context) {
	defer h.hangUp()
	for {
		h.takeIn()
		if len(h.order) == 0 {
			h.hangUp()
		}
		var heard chan []byte
		if h.line != nil {
			heard = h.line.heard
		}
		alarm, stop := h.alarm()
		select {
		case <-ctx.Done():
			stop()
			return
		case <-h.wake:
		case wire := <-heard:
			h.hear(wire)
		case <-alarm:
			h.tellNext(ctx)
		}
		stop()
	}
}

// takeIn makes notices of what was noted. A zone that changes again is told about anew.
func (h *herald) takeIn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for origin, at := range h.noted {
		n := h.pending[origin]
		if n == nil {
			n = &notice{origin: origin, due: at.Add(coalesceFor)}
			h.pending[origin] = n
			heap.Push(&h.order, n)
		} else if n.tells > 0 {
			n.tells, n.due = 0, at.Add(coalesceFor)
			heap.Fix(&h.order, n.at)
		}
	}
	clear(h.noted)
}

// alarm rings when the next notice is due and may go out; without one it never does.
func (h *herald) alarm() (ring <-chan time.Time, stop func()) {
	if len(h.order) == 0 {
		return nil, func() {}
	}
	at := h.order[0].due
	if at.Before(h.free) {
		at = h.free
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

func (h *herald) tellNext(ctx context.Context) {
	n, now := h.order[0], time.Now()
	if n.due.After(now) {
		return
	}
	if n.tells == maxTells {
		h.drop(n)
		h.report("it does not answer", n.origin)
		return
	}
	zone, ok := h.find(n.origin)
	if !ok {
		h.drop(n)
		return
	}
	n.due = now.Add(firstWait << n.tells)
	n.tells++
	heap.Fix(&h.order, n.at)
	h.free = now.Add(tellEvery)
	if err := h.tell(ctx, n, zone); err != nil {
		h.report(err.Error(), n.origin)
	}
}

func (h *herald) drop(n *notice) {
	heap.Remove(&h.order, n.at)
	delete(h.pending, n.origin)
}

// tell sends a NOTIFY with the zone's SOA for a hint (RFC 1996 section 3.7).
func (h *herald) tell(ctx context.Context, n *notice, zone Copied) error {
	wire, err := h.message(n, zone)
	if err != nil {
		return err
	}
	if h.line == nil {
		if err := h.call(ctx); err != nil {
			return err
		}
	}
	_, err = h.line.conn.Write(wire)
	if errors.Is(err, syscall.ECONNREFUSED) { // that was about the one before, and this has not been sent
		_, err = h.line.conn.Write(wire)
	}
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		h.hangUp() // the next telling opens another socket, as our own address may be another now
		return err
	}
	return nil
}

func (h *herald) message(n *notice, zone Copied) ([]byte, error) {
	m := new(dns.Msg).SetNotify(dns.Fqdn(n.origin))
	n.id, n.mac = m.Id, ""
	for rr := range zone.Transfer() {
		m.Answer = []dns.RR{rr}
		break
	}
	if h.to.Key == nil {
		return m.Pack()
	}
	m.SetTsig(dns.Fqdn(h.to.Key.Name), dns.Fqdn(h.to.Key.Algorithm), notifyFudge, time.Now().Unix())
	wire, mac, err := dns.TsigGenerate(m, h.secret(), "", false)
	if err != nil {
		return nil, fmt.Errorf("sign NOTIFY: %w", err)
	}
	n.mac = mac
	return wire, nil
}

func (h *herald) secret() string { return base64.StdEncoding.EncodeToString(h.to.Key.Secret) }

// call opens a socket and listens on it.
func (h *herald) call(ctx context.Context) error {
	conn, err := h.dial(ctx, h.to.Addr)
	if err != nil {
		return err
	}
	l := &line{conn: conn, heard: make(chan []byte), done: make(chan struct{})}
	h.line = l
	go l.listen()
	return nil
}

// hangUp closes the socket, if one is open, and waits until nobody listens on it.
func (h *herald) hangUp() {
	if h.line == nil {
		return
	}
	close(h.line.done)
	h.line.conn.Close()
	for range h.line.heard { // until listen has ended
	}
	h.line = nil
}

// listen passes on what comes until the socket is closed.
func (l *line) listen() {
	defer close(l.heard)
	buf := make([]byte, dns.DefaultMsgSize)
	for {
		n, err := l.conn.Read(buf)
		if err != nil { // nobody is there now, or the socket is closed
			select {
			case <-l.done:
				return
			case <-time.After(deafFor):
				continue
			}
		}
		select {
		case l.heard <- append([]byte(nil), buf[:n]...):
		case <-l.done:
			return
		}
	}
}

// hear takes an answer. Any answer to what was asked ends the telling (RFC 1996 section 3.6), since
// a secondary that refuses will refuse again; with a key it must be signed, or anybody could end
// it.
func (h *herald) hear(wire []byte) {
	m := new(dns.Msg)
	if m.Unpack(wire) != nil || !m.Response || m.Opcode != dns.OpcodeNotify || len(m.Question) != 1 {
		return
	}
	origin := strings.TrimSuffix(dns.CanonicalName(m.Question[0].Name), ".")
	n := h.pending[origin]
	if n == nil || n.tells == 0 || n.id != m.Id {
		return
	}
	if h.to.Key != nil {
		if err := dns.TsigVerify(wire, h.secret(), n.mac, false); err != nil {
			h.report(keyTrouble(m, err), origin)
			return
		}
	}
	h.drop(n)
	if now := time.Now(); m.Rcode != dns.RcodeSuccess && now.Sub(h.refusedAt) > sayAgain {
		h.refusedAt = now
		h.log.Warn("a secondary refuses NOTIFY", "zone", origin, "status", dns.RcodeToString[m.Rcode])
	}
	if h.said != "" {
		h.log.Info("a secondary answers NOTIFY again", "zone", origin)
	}
	h.said = ""
}

// keyTrouble says what is wrong with the signature of an answer.
func keyTrouble(m *dns.Msg, err error) string {
	if tsig := m.IsTsig(); tsig != nil && tsig.Error != 0 {
		return "it does not take our signature: " + dns.RcodeToString[int(tsig.Error)]
	}
	return "its answer is not signed as it should be: " + err.Error()
}

// report logs a trouble when it is another than before: a secondary that is down would fill the log
// with every zone.
func (h *herald) report(trouble, origin string) {
	if h.said == trouble {
		return
	}
	h.said = trouble
	h.log.Warn("NOTIFY of a secondary", "trouble", trouble, "zone", origin)
}
