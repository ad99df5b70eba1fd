package lookup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	tryTimeout = 5 * time.Second // for one try
	tries      = 2               // at each resolver
	udpSize    = 1232            // bytes that pass most networks without fragmentation
	maxIdle    = 16              // idle sockets for one resolver
	socketUses = 100             // after so many questions a new socket, with another port, is used
	socketAge  = 10 * time.Second
)

// A server is a resolver, with the idle sockets to it.
type server struct {
	addr string

	mu   sync.Mutex
	idle []*socket
}

// A socket is a connected UDP socket. One question at a time is outstanding on it.
type socket struct {
	dns.Conn
	uses int
	made time.Time
}

// socket returns an idle socket, or a new one.
func (s *server) socket(ctx context.Context) (*socket, error) {
	s.mu.Lock()
	for len(s.idle) > 0 {
		last := s.idle[len(s.idle)-1]
		s.idle = s.idle[:len(s.idle)-1]
		if last.uses < socketUses && time.Since(last.made) < socketAge {
			s.mu.Unlock()
			return last, nil
		}
		last.Close()
	}
	s.mu.Unlock()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", s.addr)
	if err != nil {
		return nil, err
	}
	return &socket{Conn: dns.Conn{Conn: conn, UDPSize: udpSize}, made: time.Now()}, nil
}

// putIdle keeps a socket for the next question.
func (s *server) putIdle(k *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) >= maxIdle {
		k.Close()
		return
	}
	s.idle = append(s.idle, k)
}

func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.idle {
		k.Close()
	}
	s.idle = nil
}

// Misbehaves is the beginning of the error for a resolver that answers with a failure, as in
// package net.
const Misbehaves = "server misbehaving"

// exchange sends a question to the resolvers in turn, until one answers it.
func (c *Client) exchange(q question) (*dns.Msg, error) {
	failed := &net.DNSError{Name: strings.TrimSuffix(q.name, "."), IsTemporary: true}
	answered := false // by a resolver that reported a failure; another try would give the same result
	for try := 0; try < tries && !answered; try++ {
		for _, s := range c.resolvers() {
			m, err := s.ask(q)
			switch {
			case err != nil:
				failed.Err, failed.Server = err.Error(), s.addr
				var timeout net.Error
				failed.IsTimeout = errors.As(err, &timeout) && timeout.Timeout()
			case m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError:
				return m, nil
			default:
				answered = true
				failed.Err, failed.Server, failed.IsTimeout = Misbehaves+": "+dns.RcodeToString[m.Rcode], s.addr, false
				if q.secure {
					// The resolver may have found the answer bogus. Another that does not validate
					// would accept it, so this answer is final.
					return nil, failed
				}
			}
		}
	}
	return nil, failed
}

// ask sends a question over UDP, and over TCP if the answer was truncated.
func (s *server) ask(q question) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.Id = uint16(rand.Uint32())
	m.RecursionDesired = true
	m.AuthenticatedData = q.secure // RFC 6840 section 5.7
	m.Question = []dns.Question{{Name: q.name, Qtype: q.kind, Qclass: dns.ClassINET}}
	m.SetEdns0(udpSize, q.secure)
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	k, err := s.socket(ctx)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	_ = k.SetDeadline(end)
	k.uses++
	got, err := exchangeOn(&k.Conn, m)
	if err != nil {
		k.Close() // so that a late answer is not taken for the next one
		return nil, err
	}
	s.putIdle(k)
	if !got.Truncated {
		return got, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(end)
	return exchangeOn(&dns.Conn{Conn: conn}, m)
}

// exchangeOn sends a question and reads until its answer has come; other messages are ignored.
func exchangeOn(conn *dns.Conn, m *dns.Msg) (*dns.Msg, error) {
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for range 100 {
		got, err := conn.ReadMsg()
		if err != nil && (got == nil || got.Id != m.Id) {
			var timeout net.Error
			if errors.As(err, &timeout) {
				return nil, err
			}
			continue // not a DNS message
		}
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		if got.Id == m.Id && got.Response && len(got.Question) == 1 && got.Question[0].Qtype == m.Question[0].Qtype &&
			strings.EqualFold(got.Question[0].Name, m.Question[0].Name) {
			return got, nil
		}
	}
	return nil, errors.New("the resolver sends answers to other questions")
}
