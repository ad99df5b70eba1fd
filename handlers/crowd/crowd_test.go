package crowd

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func from(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

// A party is a crowd in a bubble of false time, and what it logs.
type party struct {
	*Crowd
	t    *testing.T
	log  bytes.Buffer
	gone atomic.Int32 // connections that were sent away
}

func within(t *testing.T, b Bounds, test func(p *party)) {
	synctest.Test(t, func(t *testing.T) {
		p := &party{t: t}
		p.Crowd = New("test", b, slog.New(slog.NewTextHandler(&p.log, nil)))
		defer p.Close()
		test(p)
	})
}

// enter lets one in who must get a place.
func (p *party) enter(ip string) *Place {
	p.t.Helper()
	place := p.Enter(from(ip), func() { p.gone.Add(1) })
	if place == nil {
		p.t.Fatalf("no place for %s", ip)
	}
	return place
}

func (p *party) refuse(ip string) {
	p.t.Helper()
	if p.Enter(from(ip), func() { p.gone.Add(1) }) != nil {
		p.t.Fatalf("a place for %s", ip)
	}
}

// sentAway waits for those who are being sent away, and counts them.
func (p *party) sentAway() int {
	synctest.Wait()
	return int(p.gone.Load())
}

func TestBoundsOfAddressesAndNetworks(t *testing.T) {
	within(t, Bounds{All: 100, PerAddress: 2, PerNetwork: 3}, func(p *party) {
		first := p.enter("192.0.2.1")
		p.enter("192.0.2.1")
		p.refuse("192.0.2.1")
		p.enter("192.0.2.2")
		p.refuse("192.0.2.2")
		p.enter("198.51.100.1")
		first.Leave()
		first.Leave() // counts once
		p.enter("192.0.2.2")
		p.refuse("192.0.2.3")
		p.enter("2001:db8::1")
		p.enter("2001:db8::2")
		p.refuse("2001:db8::3")
		p.enter("2001:db8:0:1::1")
		p.refuse("2001:db8:0:2::1")
		p.enter("2001:db8:1::1")
		for range 10 {
			p.enter("127.0.0.1")
			p.enter("::1")
		}
		if n := p.sentAway(); n != 0 {
			t.Errorf("%d were sent away from a crowd that is not full", n)
		}
	})
}

func TestLoopbackIsBoundedWhereAsked(t *testing.T) {
	within(t, Bounds{PerAddress: 1, Loopback: true}, func(p *party) {
		p.enter("127.0.0.1")
		p.refuse("127.0.0.1")
		p.enter("127.0.0.2")
	})
}

// TestProxiesStandForMany: no share of one address or network holds for them.
func TestProxiesStandForMany(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::7/128")}
	within(t, Bounds{All: 9, PerAddress: 1, PerNetwork: 2, Loopback: true, Proxies: proxies}, func(p *party) {
		for range 3 {
			p.enter("192.0.2.7")
			p.enter("2001:db8::7")
		}
		p.refuse("192.0.2.8")
		p.refuse("2001:db8::8")
		p.enter("127.0.0.1")
		p.refuse("127.0.0.1")
	})
}

// TestManyMakeRoomForFew fills the crowd from two networks; those who come from elsewhere get in
// until all have as many.
func TestManyMakeRoomForFew(t *testing.T) {
	within(t, Bounds{All: 12}, func(p *party) {
		var first []*Place
		for range 6 {
			first = append(first, p.enter("192.0.2.1"))
			p.enter("198.51.100.1")
			time.Sleep(time.Millisecond)
		}
		p.refuse("192.0.2.9") // its network has no fewer than any
		for i := range 4 {
			p.enter("203.0.113.1")
			if n := p.sentAway(); n != i+1 {
				t.Fatalf("%d were sent away for %d", n, i+1)
			}
		}
		p.refuse("203.0.113.1") // each has four now
		if len(first[0].crowd.networks) != 3 || p.all != 12 {
			t.Errorf("%d connections of %d networks", p.all, len(p.networks))
		}
		if !first[0].left || !first[1].left || first[5].left {
			t.Error("not who waited longest was sent away")
		}
		first[0].Leave()
		if p.all != 12 {
			t.Error("who was sent away leaves twice")
		}
	})
}

// TestWhoWorksStays sends nobody away who does not wait.
func TestWhoWorksStays(t *testing.T) {
	within(t, Bounds{All: 4}, func(p *party) {
		var all []*Place
		for range 4 {
			all = append(all, p.enter("192.0.2.1"))
			all[len(all)-1].Work()
		}
		time.Sleep(time.Hour)
		p.refuse("198.51.100.1")
		all[2].Wait()
		p.enter("198.51.100.1")
		if p.sentAway() != 1 || !all[2].left {
			t.Error("who waits was not sent away")
		}
	})
}

// TestPatienceEnds has a connection from each of many networks, so that none has more than another.
func TestPatienceEnds(t *testing.T) {
	within(t, Bounds{All: 4}, func(p *party) {
		for i := range 4 {
			p.enter(fmt.Sprintf("192.0.%d.1", i))
		}
		p.refuse("198.51.100.1")
		time.Sleep(Patience)
		p.enter("198.51.100.1")
		p.enter("198.51.100.1") // as many as the others have
		p.refuse("198.51.100.1")
		if n := p.sentAway(); n != 2 {
			t.Errorf("%d were sent away", n)
		}
	})
}

// TestRefusalsAreToldTogether has thousands of them in few lines, whose numbers add up.
func TestRefusalsAreToldTogether(t *testing.T) {
	within(t, Bounds{All: 1}, func(p *party) {
		p.enter("192.0.2.1").Work()
		for i := range 5000 {
			p.refuse("192.0.2.2")
			if i%2500 == 0 {
				time.Sleep(40 * time.Second)
			}
		}
		time.Sleep(10 * time.Minute)
		p.refuse("192.0.2.2")
		p.refuse("192.0.2.2")
		p.Close()
		var total, n int
		lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
		for _, line := range lines {
			_, rest, _ := strings.Cut(line, "refused=")
			if _, err := fmt.Sscan(rest, &n); err != nil || !strings.Contains(line, "level=WARN") || !strings.Contains(line, "server=test") {
				t.Fatalf("%q: %v", line, err)
			}
			total += n
		}
		if total != 5002 || len(lines) > 5 {
			t.Errorf("%d refusals in %d lines:\n%s", total, len(lines), p.log.String())
		}
	})
}

func TestSocketsOfThisHost(t *testing.T) {
	within(t, Bounds{All: 2, PerAddress: 1}, func(p *party) {
		for range 2 {
			if p.Enter(&net.UnixAddr{Name: "@", Net: "unix"}, nil) == nil {
				t.Error("no place")
			}
		}
	})
}
