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
	tryTimeout     = 5 * time.Second  // for one try with one resolver
	triesPerServer = 2                // number of tries with each resolver
	udpSize        = 1232             // maximum UDP message in bytes, which most networks do not fragment
	maxIdle        = 16               // maximum number of idle sockets for one resolver
	socketUses     = 100              // maximum number of questions over one socket, which has one port
	socketAge      = 10 * time.Second // maximum age of a socket
)

// A server is a resolver with its idle sockets.
type server struct {
	addr string

	mu   sync.Mutex
	idle []*socket
}

// A socket is a connected UDP socket. It is used for one question at a time.
type socket struct {
	dns.Conn
	uses int // number of questions so far
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

// MisbehavesText is the beginning of the error text if a resolver answers with a failure, such as
// SERVFAIL. Package net has the same text.
const MisbehavesText = "server misbehaving"

// exchange sends a question to one resolver after the other, until one answers. Answers with a
// failure do not count.
func (c *Client) exchange(q question) (*dns.Msg, error) {
	failed := &net.DNSError{Name: strings.TrimSuffix(q.name, "."), IsTemporary: true}
	answered := false // whether a resolver answered with a failure; then another try is useless
	for try := 0; try < triesPerServer && !answered; try++ {
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
				failed.Err, failed.Server, failed.IsTimeout = MisbehavesText+": "+dns.RcodeToString[m.Rcode], s.addr, false
				if q.secure {
					// The resolver may have found invalid signatures. Do not ask another resolver,
					// which might not validate.
					return nil, failed
				}
			}
		}
	}
	return nil, failed
}

// ask sends a question to the resolver over UDP. If the answer is truncated, it asks again over
// TCP.
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
		k.Close() // or a late answer could be read after the next question
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

// exchangeOn sends a question and reads its answer. It ignores other messages.
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
			return nil, fmt.Errorf("read the answer of the resolver: %w", err)
		}
		if got.Id == m.Id && got.Response && len(got.Question) == 1 && got.Question[0].Qtype == m.Question[0].Qtype &&
			strings.EqualFold(got.Question[0].Name, m.Question[0].Name) {
			return got, nil
		}
	}
	return nil, errors.New("the resolver sent 100 messages without the answer to the question")
}
