package dnsd

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	// udpIn holds any query that is worth answering; the rest of a longer datagram is lost, and it
	// is refused as malformed.
	udpIn = 4096
	// controlIn holds the control message that names the address a datagram came to.
	controlIn = 128
	// udpBuffer is what the system may hold for us, in bytes: a burst of some thousand queries.
	udpBuffer = 4 << 20
	retryRead = 10 * time.Millisecond
)

// answerFromWhereAsked makes a socket that listens on all addresses tell to which of them a query
// came. An answer from another one is not taken. A socket on one address needs nothing, and a
// system that cannot do this answers as it can.
func answerFromWhereAsked(conn *net.UDPConn) {
	if local, ok := conn.LocalAddr().(*net.UDPAddr); ok && !local.IP.IsUnspecified() {
		return
	}
	tellDestination(conn)
}

// tellDestination asks the system for the control messages that source reads. A socket has one
// family or both.
func tellDestination(conn *net.UDPConn) bool {
	err6 := ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	err4 := ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	return err6 == nil || err4 == nil
}

// source turns the control message of a query into that of its answer, or nil to leave the choice
// to the system.
func source(control []byte) []byte {
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

// serveUDP answers datagrams until ctx ends or the socket is lost. Several run on one socket.
func (r *run) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	in := make([]byte, udpIn)
	control := make([]byte, controlIn)
	out := make([]byte, udpIn)
	for {
		n, cn, _, from, err := conn.ReadMsgUDPAddrPort(in, control)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if fatal(err) {
				return err
			}
			pause(ctx, retryRead) // as when the system is short of memory
			continue
		}
		if answer := r.answerUDP(in[:n], from.Addr(), out); answer != nil {
			// A client that is gone or cannot be reached is no concern of ours.
			_, _, _ = conn.WriteMsgUDPAddrPort(answer, source(control[:cn]), from)
		}
	}
}

// answerUDP returns the answer to a datagram, or nil if it gets none.
func (r *run) answerUDP(in []byte, from netip.Addr, out []byte) []byte {
	over := !r.limits.allow(from, r.Now())
	answer, _ := r.answer(query{wire: in, from: from, limit: plainUDP, over: over}, out)
	return answer
}
