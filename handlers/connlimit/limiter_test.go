package connlimit

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

// A fixture is a limiter in a bubble of false time, and what it logs.
type fixture struct {
	*Limiter
	t         *testing.T
	log       bytes.Buffer
	evictions atomic.Int32 // connections that were evicted
}

func within(t *testing.T, b Limits, test func(p *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		p := &fixture{t: t}
		p.Limiter = New("test", b, slog.New(slog.NewTextHandler(&p.log, nil)))
		defer p.Close()
		test(p)
	})
}

// acquire takes a slot, which there must be.
func (p *fixture) acquire(ip string) *Slot {
	p.t.Helper()
	slot := p.Acquire(from(ip), func() { p.evictions.Add(1) })
	if slot == nil {
		p.t.Fatalf("no slot for %s", ip)
	}
	return slot
}

func (p *fixture) refuse(ip string) {
	p.t.Helper()
	if p.Acquire(from(ip), func() { p.evictions.Add(1) }) != nil {
		p.t.Fatalf("a slot for %s", ip)
	}
}

// evicted waits for connections that are being evicted, and counts them.
func (p *fixture) evicted() int {
	synctest.Wait()
	return int(p.evictions.Load())
}

func TestLimitsOfAddressesAndNetworks(t *testing.T) {
	within(t, Limits{All: 100, PerAddress: 2, PerNetwork: 3}, func(p *fixture) {
		first := p.acquire("192.0.2.1")
		p.acquire("192.0.2.1")
		p.refuse("192.0.2.1")
		p.acquire("192.0.2.2")
		p.refuse("192.0.2.2")
		p.acquire("198.51.100.1")
		first.Release()
		first.Release() // counts once
		p.acquire("192.0.2.2")
		p.refuse("192.0.2.3")
		p.acquire("2001:db8::1")
		p.acquire("2001:db8::2")
		p.refuse("2001:db8::3")
		p.acquire("2001:db8:0:1::1")
		p.refuse("2001:db8:0:2::1")
		p.acquire("2001:db8:1::1")
		if n := p.evicted(); n != 0 {
			t.Errorf("%d were evicted though there are free slots", n)
		}
	})
}

func TestLoopbackIsNotExempt(t *testing.T) {
	within(t, Limits{PerAddress: 1}, func(p *fixture) {
		p.acquire("127.0.0.1")
		p.refuse("127.0.0.1")
		p.acquire("127.0.0.2")
	})
}

// TestProxiesStandForMany: no share of one address or network holds for them.
func TestProxiesStandForMany(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::7/128")}
	within(t, Limits{All: 9, PerAddress: 1, PerNetwork: 2, Exempt: proxies}, func(p *fixture) {
		for range 3 {
			p.acquire("192.0.2.7")
			p.acquire("2001:db8::7")
		}
		p.refuse("192.0.2.8")
		p.refuse("2001:db8::8")
		p.acquire("127.0.0.1")
		p.refuse("127.0.0.1")
	})
}

// TestManyMakeRoomForFew takes all slots from two networks; those who come from elsewhere get in
// until all have as many.
func TestManyMakeRoomForFew(t *testing.T) {
	within(t, Limits{All: 12}, func(p *fixture) {
		var first []*Slot
		for range 6 {
			first = append(first, p.acquire("192.0.2.1"))
			p.acquire("198.51.100.1")
			time.Sleep(time.Millisecond)
		}
		p.refuse("192.0.2.9") // its network has no fewer than any
		for i := range 4 {
			p.acquire("203.0.113.1")
			if n := p.evicted(); n != i+1 {
				t.Fatalf("%d were evicted for %d", n, i+1)
			}
		}
		p.refuse("203.0.113.1") // each has four now
		if len(first[0].limiter.networks) != 3 || p.all != 12 {
			t.Errorf("%d connections of %d networks", p.all, len(p.networks))
		}
		if !first[0].released || !first[1].released || first[5].released {
			t.Error("not who was idle for longest was evicted")
		}
		first[0].Release()
		if p.all != 12 {
			t.Error("who was evicted is released twice")
		}
	})
}

// TestBusyConnectionsStay evicts no connection that is not idle.
func TestBusyConnectionsStay(t *testing.T) {
	within(t, Limits{All: 4}, func(p *fixture) {
		var all []*Slot
		for range 4 {
			all = append(all, p.acquire("192.0.2.1"))
			all[len(all)-1].Busy()
		}
		time.Sleep(time.Hour)
		p.refuse("198.51.100.1")
		all[2].Idle()
		p.acquire("198.51.100.1")
		if p.evicted() != 1 || !all[2].released {
			t.Error("the idle one was not evicted")
		}
	})
}

// TestIdleGraceEnds has a connection from each of many networks, so that none has more than
// another.
func TestIdleGraceEnds(t *testing.T) {
	within(t, Limits{All: 4}, func(p *fixture) {
		for i := range 4 {
			p.acquire(fmt.Sprintf("192.0.%d.1", i))
		}
		p.refuse("198.51.100.1")
		time.Sleep(idleGrace)
		p.acquire("198.51.100.1")
		p.acquire("198.51.100.1") // as many as the others have
		p.refuse("198.51.100.1")
		if n := p.evicted(); n != 2 {
			t.Errorf("%d were evicted", n)
		}
	})
}

// TestRefusalsAreLoggedTogether has thousands of them in few lines, whose numbers add up.
func TestRefusalsAreLoggedTogether(t *testing.T) {
	within(t, Limits{All: 1}, func(p *fixture) {
		p.acquire("192.0.2.1").Busy()
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
	within(t, Limits{All: 2, PerAddress: 1}, func(p *fixture) {
		for range 2 {
			if p.Acquire(&net.UnixAddr{Name: "@", Net: "unix"}, nil) == nil {
				t.Error("no slot")
			}
		}
	})
}
