package rfc2136_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
)

// How a message can be lost.
const (
	notSent    = iota // the connection ends before it
	notHeard          // the server has done what it says, and the answer does not arrive
	halfHeard         // half of the answer arrives
	waysToLose = 3
)

const messagesToLose = 14 // of one reading and writing

// A breaker dials connections on which one message is lost.
type breaker struct {
	mu    sync.Mutex
	armed bool
	left  int // messages before the one that is lost
	way   int
}

func (b *breaker) arm(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.left, b.way = true, n/waysToLose, n%waysToLose
	return n < messagesToLose*waysToLose
}

func (b *breaker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &brittle{Conn: conn, breaker: b}, err
}

// brittle is a connection on which a message may get lost. Each Write is one message.
type brittle struct {
	net.Conn
	*breaker
	broken bool
	rest   []byte // of the last answer that is read
}

var errBroken = errors.New("broken by the test")

func (c *brittle) Write(p []byte) (int, error) {
	c.mu.Lock()
	now := c.armed && c.left == 0
	c.left--
	way := c.way
	if now {
		c.armed = false
	}
	c.mu.Unlock()
	if !now {
		return c.Conn.Write(p)
	}
	c.broken = true
	if way == notSent {
		return 0, errBroken
	}
	if _, err := c.Conn.Write(p); err != nil {
		return 0, err
	}
	answer := make([]byte, 2)
	if _, err := io.ReadFull(c.Conn, answer); err != nil {
		return 0, err
	}
	answer = append(answer, make([]byte, binary.BigEndian.Uint16(answer))...)
	if _, err := io.ReadFull(c.Conn, answer[2:]); err != nil {
		return 0, err
	}
	if way == halfHeard {
		c.rest = answer[:len(answer)/2]
	}
	return len(p), nil
}

func (c *brittle) Read(p []byte) (int, error) {
	if !c.broken {
		return c.Conn.Read(p)
	}
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// TestConformance: the zone may be that of the domain or one above it, and may be transferred or
// not.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, k, 300)
			for name, tc := range map[string]struct {
				open  bool
				below string
			}{
				"transfers": {true, ""}, "transfers of a zone above": {true, "team.at."}, "questions": {false, ""}, "questions to a zone above": {false, "team.at."},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					providertest.Run(t, func(t *testing.T) providertest.Case { return conformanceCase(t, p, tc.open, tc.below) })
				})
			}
		})
	}
}

func conformanceCase(t *testing.T, p *peer, open bool, below string) providertest.Case {
	zone := p.newZone(t, open)
	b := &breaker{}
	out := providertest.Case{
		Provider: providertest.Remember(p.client(t, b.dial, "elsewhere.test", zone, "test")),
		Zone:     dnsprov.ZoneRef{Domain: below + zone, OwnerTag: "m"},
		Stranger: func(t *testing.T, r dnsprov.Record) {
			rr, err := r.RR()
			if err != nil {
				t.Fatal(err)
			}
			p.change(t, zone, []dns.RR{rr}, nil)
		},
		Strangers: func(t *testing.T) []dnsprov.Record { return p.records(t, zone) },
	}
	if below == "" { // in a zone above the same messages are sent
		out.Cut = func(_ *testing.T, n int) bool { return b.arm(n) }
	}
	return out
}
