package dnsd

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	// udpReadSize is the size of the read buffer in bytes, which is enough for every valid query. A
	// longer datagram is cut off, and then refused as malformed.
	udpReadSize = 4096
	// controlReadSize is the size in bytes of the buffer for control messages. It is enough for one
	// with the destination address of a datagram.
	controlReadSize = 128
	// udpBuffer is the size in bytes of the system's receive buffer. It has room for some thousand
	// queries.
	udpBuffer      = 4 << 20
	readRetryDelay = 10 * time.Millisecond // before reading again after an error
)

// replyFromQueriedAddress makes a socket that listens on all addresses report the destination
// address of each query. The answer must come from that address, or the client ignores it. A socket
// that listens on one address needs no report. If the system does not support such reports, it
// chooses the source address of answers itself.
func replyFromQueriedAddress(conn *net.UDPConn) {
	if local, ok := conn.LocalAddr().(*net.UDPAddr); ok && !local.IP.IsUnspecified() {
		return
	}
	reportDestination(conn)
}

// reportDestination requests the control messages that replySource reads. A socket can have IPv4,
// IPv6 or both. reportDestination reports whether the request worked for one of them.
func reportDestination(conn *net.UDPConn) (supported bool) {
	err6 := ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	err4 := ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	return err6 == nil || err4 == nil
}

// replySource returns the control message for the answer to a query. control is the control message
// of the query. nil lets the system choose the source address.
func replySource(control []byte) []byte {
	if len(control) == 0 {
		return nil
	}
	var dst net.IP
	var cm6 ipv6.ControlMessage
	var cm4 ipv4.ControlMessage
	if cm6.Parse(control) == nil && cm6.Dst != nil {
		dst = cm6.Dst
	} else if cm4.Parse(control) == nil {
		dst = cm4.Dst
	}
	switch {
	case dst == nil || dst.IsMulticast():
		return nil
	case dst.To4() == nil:
		return (&ipv6.ControlMessage{Src: dst}).Marshal()
	}
	return (&ipv4.ControlMessage{Src: dst}).Marshal() // also for an IPv4 client of an IPv6 socket
}

// serveUDP answers datagrams until ctx ends or the socket fails. Several goroutines run it on one
// socket.
func (r *run) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	in := make([]byte, udpReadSize)
	control := make([]byte, controlReadSize)
	out := make([]byte, udpReadSize)
	for {
		n, cn, _, from, err := conn.ReadMsgUDPAddrPort(in, control)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if isFatal(err) {
				return err
			}
			sleep(ctx, readRetryDelay) // for example if the system is short of memory
			continue
		}
		if answer := r.answerUDP(in[:n], from.Addr(), out); answer != nil {
			// An error does not matter: the client has left or cannot be reached.
			_, _, _ = conn.WriteMsgUDPAddrPort(answer, replySource(control[:cn]), from)
		}
	}
}

// answerUDP returns the answer to a datagram. It returns nil if the datagram gets no answer.
func (r *run) answerUDP(in []byte, from netip.Addr, out []byte) []byte {
	over := !r.limits.allow(from, r.Now())
	answer, _ := r.answer(query{wire: in, from: from, limit: defaultUDPSize, overLimit: over}, out)
	return answer
}

// serveTCP accepts connections until ctx ends or the listener fails. It serves each connection in a
// goroutine of wg.
func (r *run) serveTCP(ctx context.Context, l net.Listener, wg *sync.WaitGroup) error {
	for wait := readRetryDelay; ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil && isFatal(err):
			return err
		case err != nil: // for example if there are no file descriptors left
			sleep(ctx, wait)
			wait = min(2*wait, time.Second)
			continue
		}
		wait = readRetryDelay
		slot := r.connLimiter.Acquire(conn.RemoteAddr(), func() { conn.Close() })
		if slot == nil {
			conn.Close() // DNS has no message for this (RFC 7766 section 6.2.2)
			continue
		}
		wg.Go(func() {
			defer slot.Release()
			defer conn.Close()
			if r.conns.add(conn) {
				defer r.conns.remove(conn)
				r.serveConn(ctx, conn, slot)
			}
		})
	}
}

// serveConn answers the queries of one connection, one after another. So pipelined queries wait in
// the system's buffer, not in ours (RFC 7766 sections 6.2.1.1 and 6.2.3).
func (r *run) serveConn(ctx context.Context, conn net.Conn, slot *connlimit.Slot) {
	from := clientAddress(conn)
	var in []byte
	out := make([]byte, udpReadSize)
	for r.conns.setQueryDeadline(conn, r.Idle) {
		var prefix [2]byte
		if _, err := io.ReadFull(conn, prefix[:]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint16(prefix[:]))
		if size > cap(in) {
			in = make([]byte, size)
		}
		in = in[:size]
		if _, err := io.ReadFull(conn, in); err != nil {
			return
		}
		slot.Busy()
		answer, transfer := r.answer(query{wire: in, from: from, limit: dns.MaxMsgSize - 1, overTCP: true}, out)
		switch {
		case transfer != nil:
			if err := transfer.serve(ctx, conn); err != nil {
				r.Log.Info("a zone transfer was interrupted", "zone", transfer.origin, "secondary", transfer.to.Name, "error", err)
				return
			}
		case answer == nil:
			return // the client does not speak DNS
		case writeFrame(conn, answer, time.Now().Add(r.Idle)) != nil:
			return
		}
		slot.Idle()
	}
}

// writeFrame sends one message with its length before it (RFC 7766 section 8).
func writeFrame(conn net.Conn, message []byte, deadline time.Time) error {
	if err := conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	frame := make([]byte, 2, 2+len(message))
	binary.BigEndian.PutUint16(frame, uint16(len(message)))
	_, err := conn.Write(append(frame, message...))
	return err
}

// clientAddress returns the client's IP address, the zero address if it is not known.
func clientAddress(conn net.Conn) netip.Addr {
	addr, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr().Unmap()
}

// A connTable has the open connections, so that they can be closed.
type connTable struct {
	mu       sync.Mutex
	open     map[net.Conn]struct{}
	stopping bool
}

// add adds a connection. It returns false if the server is stopping.
func (t *connTable) add(conn net.Conn) (added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopping {
		t.open[conn] = struct{}{}
	}
	return !t.stopping
}

func (t *connTable) remove(conn net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, conn)
}

// setQueryDeadline sets the read deadline for the next query. It returns false if the connection
// must end.
func (t *connTable) setQueryDeadline(conn net.Conn, idle time.Duration) (mayContinue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.stopping && conn.SetReadDeadline(time.Now().Add(idle)) == nil
}

// stop makes all connections wait for no more queries. Answers can still be written.
func (t *connTable) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopping = true
	for conn := range t.open {
		conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// closeAll closes all connections.
func (t *connTable) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.open {
		conn.Close()
	}
}
