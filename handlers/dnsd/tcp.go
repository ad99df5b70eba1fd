package dnsd

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/handlers/connlimit"
)

// serveTCP accepts connections until ctx ends or the listener is lost; each is served on wg.
func (r *run) serveTCP(ctx context.Context, l net.Listener, wg *sync.WaitGroup) error {
	for wait := retryRead; ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil && fatal(err):
			return err
		case err != nil: // as when there are no descriptors left
			pause(ctx, wait)
			wait = min(2*wait, time.Second)
			continue
		}
		wait = retryRead
		slot := r.connLimiter.Acquire(conn.RemoteAddr(), func() { conn.Close() })
		if slot == nil {
			conn.Close() // which is all that DNS has to say (RFC 7766 section 6.2.2)
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

// serveConn answers the queries of one connection, one after the other, so that what a client sends
// ahead waits in the system's buffer and not in ours (RFC 7766 sections 6.2.1.1 and 6.2.3).
func (r *run) serveConn(ctx context.Context, conn net.Conn, slot *connlimit.Slot) {
	from := remote(conn)
	var in []byte
	out := make([]byte, udpIn)
	for r.conns.await(conn, r.Idle) {
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
		answer, transfer := r.answer(query{wire: in, from: from, limit: dns.MaxMsgSize - 1, stream: true}, out)
		switch {
		case transfer != nil:
			if err := transfer.serve(ctx, conn); err != nil {
				r.Log.Info("transfer cut off", "zone", transfer.origin, "secondary", transfer.to.Name, "error", err)
				return
			}
		case answer == nil:
			return // not a query: whoever sends this does not speak DNS with us
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

// remote returns whom a connection comes from; the zero address if it has none.
func remote(conn net.Conn) netip.Addr {
	addr, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr().Unmap()
}

// connTable knows the open connections and can end them.
type connTable struct {
	mu       sync.Mutex
	open     map[net.Conn]struct{}
	stopping bool
}

// add takes a connection in, unless all are to end.
func (t *connTable) add(conn net.Conn) bool {
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

// await sets the time by which the next query must be read, and reports whether there may be one.
func (t *connTable) await(conn net.Conn, idle time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.stopping && conn.SetReadDeadline(time.Now().Add(idle)) == nil
}

// stop ends the wait for queries on every connection. Answers can still be written.
func (t *connTable) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopping = true
	for conn := range t.open {
		conn.SetReadDeadline(time.Unix(1, 0))
	}
}

func (t *connTable) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for conn := range t.open {
		conn.Close()
	}
}
