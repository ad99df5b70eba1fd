package scan

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	udpSize       = 1232 // maximum UDP message in bytes, which most networks do not fragment
	packetTimeout = 3 * time.Second
	streamTimeout = 5 * time.Second // for connecting and one answer over TCP
	maxStrays     = 100             // packets that do not answer the question
	maxSilences   = 3               // questions in a row without an answer, after which a server is left aside
)

// Errors of one question.
var (
	errSilent = errors.New("the nameserver does not answer")
	errLame   = errors.New("the nameserver does not answer for the zone")
)

// A server is one address of a nameserver.
type server struct {
	addr     netip.AddrPort
	serial   uint32       // of its zone
	edns     atomic.Bool  // it has answered a question with EDNS (RFC 6891)
	plain    atomic.Bool  // it answers only questions without EDNS
	packets  atomic.Bool  // it has answered over UDP
	stream   atomic.Bool  // it answers only over TCP
	silences atomic.Int32 // questions in a row without an answer
}

func (s *server) aside() bool { return s.silences.Load() >= maxSilences }

// A try is one way to ask a server.
type try struct {
	network string // udp or tcp
	edns    bool   // even of a server that is not known to take it
}

// tries are the ways to ask a server, in order. Some servers drop questions with EDNS, some
// networks drop UDP.
var tries = []try{{"udp", true}, {"udp", false}, {"tcp", true}}

// try asks a server once: again without EDNS if the server does not take it, and again over TCP if
// the answer is truncated. The errors are errSilent, errLame and that of ctx.
func (c *Client) try(ctx context.Context, s *server, q dns.Question, secure bool, how try) (*dns.Msg, error) {
	edns := !s.plain.Load() && (how.edns || secure || s.edns.Load())
	if secure && !edns {
		return nil, errLame
	}
	network := how.network
	if s.stream.Load() {
		network = "tcp"
	}
	for {
		m := new(dns.Msg)
		m.Id = dns.Id()
		m.Question = []dns.Question{q}
		if edns {
			m.SetEdns0(udpSize, secure)
		}
		in, err := c.exchange(ctx, s.addr, m, network)
		switch {
		case err != nil:
			return nil, err
		case edns && (in.Rcode == dns.RcodeFormatError || in.Rcode == dns.RcodeNotImplemented || in.Rcode == dns.RcodeBadVers):
			s.plain.Store(true)
			edns = false
			if secure {
				return nil, errLame
			}
		case in.Truncated && network == "udp":
			network = "tcp"
		case in.Truncated:
			return nil, errLame
		default:
			if edns {
				s.edns.Store(true)
			} else if !s.edns.Load() {
				s.plain.Store(true)
			}
			if how.network == "udp" {
				s.packets.Store(true)
			} else if !s.packets.Load() {
				s.stream.Store(true)
			}
			return in, nil
		}
	}
}

// exchange sends a question and reads its answer.
func (c *Client) exchange(ctx context.Context, to netip.AddrPort, m *dns.Msg, network string) (*dns.Msg, error) {
	if err := c.Pace.wait(ctx, to.Addr()); err != nil {
		return nil, err
	}
	timeout := packetTimeout
	if network == "tcp" {
		timeout = streamTimeout
	}
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	in, err := c.exchangeSoon(soon, to, m, network)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return in, err
}

func (c *Client) exchangeSoon(ctx context.Context, to netip.AddrPort, m *dns.Msg, network string) (*dns.Msg, error) {
	conn, err := c.Dial(ctx, network, to.String())
	if err != nil {
		return nil, errSilent
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := send(conn, m, network); err != nil {
		return nil, errSilent
	}
	buf := make([]byte, 4096) // some servers send larger packets than they are asked for
	for range maxStrays {
		wire, err := receive(conn, network, buf)
		if err != nil {
			return nil, errSilent
		}
		in, answers := parse(wire, m)
		switch {
		case in != nil:
			return in, nil
		case answers || network == "tcp":
			return nil, errLame
		}
	}
	return nil, errSilent
}

func send(conn net.Conn, m *dns.Msg, network string) error {
	wire, err := m.Pack()
	if err != nil {
		return err
	}
	if network == "tcp" {
		wire = append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
	}
	_, err = conn.Write(wire)
	return err
}

// receive reads one message. It reads packets to buf.
func receive(conn net.Conn, network string, buf []byte) ([]byte, error) {
	if network == "udp" {
		n, err := conn.Read(buf)
		return buf[:n], err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	wire := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(conn, wire)
	return wire, err
}

// parse parses the answer to a question. in is nil if it cannot be read, or if it is a message that
// does not answer the question; answers distinguishes them. A truncated answer has no records.
func parse(wire []byte, asked *dns.Msg) (in *dns.Msg, answers bool) {
	const headerSize = 12
	if len(wire) < headerSize || binary.BigEndian.Uint16(wire) != asked.Id || wire[2]&0x80 == 0 {
		return nil, false
	}
	if truncated := wire[2]&0x02 != 0; truncated { // some servers cut the message within a record
		in = new(dns.Msg)
		in.Truncated = true
		return in, true
	}
	in = new(dns.Msg)
	if in.Unpack(wire) != nil || in.Opcode != dns.OpcodeQuery {
		return nil, true
	}
	if len(in.Question) == 0 && in.Rcode != dns.RcodeSuccess && in.Rcode != dns.RcodeNameError {
		return in, true // some refusals do not repeat the question
	}
	q := asked.Question[0]
	if len(in.Question) != 1 || in.Question[0].Qtype != q.Qtype || in.Question[0].Qclass != q.Qclass || !strings.EqualFold(in.Question[0].Name, q.Name) {
		return nil, false
	}
	return in, true
}
