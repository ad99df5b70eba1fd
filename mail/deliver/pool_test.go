package deliver

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionIsReused(t *testing.T) {
	h := &host{offers: []string{"PIPELINING"}}
	n := oneHost(t, h)
	n.domain("other.example", "mx.them.example")
	c := n.client()
	for _, domain := range []string{"them.example", "them.example", "other.example"} {
		want(t, c.Direct(t.Context(), domain, envelope(), hello), Delivered, 250, "2.0.0")
	}
	if h.connections() != 1 || len(h.received()) != 3 || slices.Contains(h.heard(), "RSET") {
		t.Errorf("%d connections, %d messages, host heard %q", h.connections(), len(h.received()), h.heard())
	}
	c.Close()
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	if h.connections() != 3 {
		t.Errorf("%d connections; a closed client keeps none", h.connections())
	}
}

// TestRefusalLeavesNoTrace: what follows a refused message on the same connection begins with RSET.
func TestRefusalLeavesNoTrace(t *testing.T) {
	for _, offers := range [][]string{nil, {"PIPELINING"}} {
		h := &host{offers: offers}
		h.hook = func(p *peer, verb string) bool {
			last := h.log[len(h.log)-1]
			refuse := last == "RCPT TO:<bad@them.example>" || verb == "DATA" && slices.Contains(h.log, "RCPT TO:<bad@them.example>") && !slices.Contains(h.log, "RSET")
			if refuse {
				p.say("550 5.1.1 unknown")
			}
			return refuse
		}
		c := oneHost(t, quietly(h)).client()
		env := envelope()
		env.To = "bad@them.example"
		want(t, c.Direct(t.Context(), "them.example", env, hello), Permanent, 550, "5.1.1")
		want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
		if h.connections() != 1 || !slices.Contains(h.heard(), "RSET") || len(h.received()) != 1 {
			t.Errorf("%d connections, host heard %q", h.connections(), h.heard())
		}
	}
}

// quietly keeps a hook from being asked for the greeting.
func quietly(h *host) *host {
	hook := h.hook
	h.hook = func(p *peer, verb string) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return verb != "" && hook(p, verb)
	}
	return h
}

// TestNoMessageWithoutRecipient: a pipelining host that refuses RCPT and yet says 354 gets nothing,
// not even a dot.
func TestNoMessageWithoutRecipient(t *testing.T) {
	h := &host{offers: []string{"PIPELINING"}, answers: map[string]string{"RCPT": "550 5.1.1 unknown"}}
	c := oneHost(t, h).client()
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Permanent, 550, "5.1.1")
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Permanent, 550, "5.1.1")
	if h.connections() != 2 || len(h.received()) != 0 {
		t.Errorf("%d connections, received %q", h.connections(), h.received())
	}
}

// TestDeadIdleConnectionIsReplaced: whatever became of a connection while it was idle, the message
// goes over a fresh one.
func TestDeadIdleConnectionIsReplaced(t *testing.T) {
	for name, after := range map[string]func(p *peer){
		"closed":     func(p *peer) {},
		"said 421":   func(p *peer) { p.say("421 4.4.2 idle too long") },
		"421 to us":  func(p *peer) { p.br.ReadString('\n'); p.say("421 4.7.0 too many messages") },
		"RST":        func(p *peer) { p.conn.(*net.TCPConn).SetLinger(0) },
		"closes now": func(p *peer) { p.br.ReadString('\n') },
		"garbage":    func(p *peer) { p.br.ReadString('\n'); p.say("what") },
	} {
		t.Run(name, func(t *testing.T) {
			var done atomic.Bool
			died := make(chan struct{})
			h := &host{hook: func(p *peer, verb string) bool {
				if verb != "." || done.Swap(true) {
					return false
				}
				p.say("250 ok")
				if name == "said 421" {
					time.Sleep(20 * time.Millisecond)
				}
				go close(died)
				after(p)
				p.hangUp()
				return true
			}}
			c := oneHost(t, h).client()
			want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
			<-died
			time.Sleep(20 * time.Millisecond)
			r := c.Direct(t.Context(), "them.example", envelope(), hello)
			want(t, r, Delivered, 250, "2.0.0")
			if h.connections() != 2 || len(h.received()) != 2 || len(r.Attempts) != 1 {
				t.Errorf("%d connections, %d messages, %+v", h.connections(), len(h.received()), r)
			}
		})
	}
}

// TestHostThatIsGoneForGood: one retry, not a loop.
func TestHostThatIsGoneForGood(t *testing.T) {
	h := &host{}
	var dead atomic.Bool
	h.hook = func(p *peer, _ string) bool {
		if dead.Load() {
			p.hangUp()
		}
		return dead.Load()
	}
	c := oneHost(t, h).client()
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	dead.Store(true)
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Temporary, 0, "4.4.2")
	if h.connections() != 2 {
		t.Errorf("%d connections", h.connections())
	}
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	gate := make(chan struct{})
	var waiting atomic.Int32
	h := &host{hook: func(_ *peer, verb string) bool {
		if verb == "." && waiting.Add(1) == 5 {
			close(gate)
		}
		if verb == "." {
			<-gate
		}
		return false
	}}
	c := oneHost(t, h).client()
	c.IdlePerHop = 2
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0") })
	}
	wg.Wait()
	if c.idle.total != 2 || len(c.idle.idle) != 1 {
		t.Errorf("%d idle connections", c.idle.total)
	}
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	if c.idle.total != 2 || h.connections() != 5 {
		t.Errorf("%d idle connections of %d after another message", c.idle.total, h.connections())
	}
	c.Close()
	if c.idle.total != 0 {
		t.Errorf("%d idle connections after Close", c.idle.total)
	}
}

func TestConnectionCarriesBoundedMessages(t *testing.T) {
	h := &host{offers: []string{"PIPELINING"}}
	c := oneHost(t, h).client()
	for range maxPerConnection + 1 {
		want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	}
	if h.connections() != 2 {
		t.Errorf("%d connections for %d messages", h.connections(), maxPerConnection+1)
	}
}

// TestRelaysDoNotShareConnections: a connection that logged in as one user is not another's.
func TestRelaysDoNotShareConnections(t *testing.T) {
	h := &host{offers: []string{"AUTH PLAIN"}, hook: challenge(1, "235 welcome")}
	n := newInternet(t)
	n.host("relay.example", h)
	c := n.client()
	for _, user := range []string{"one", "two", "one", ""} {
		want(t, c.Relay(t.Context(), Relay{Host: "relay.example", TLS: "none", Username: user}, envelope(), hello), Delivered, 250, "2.0.0")
	}
	if h.connections() != 3 {
		t.Errorf("%d connections for three logins", h.connections())
	}
}

// TestIdleConnectionEnds after its time, with QUIT, and not before.
func TestIdleConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{t: t}
		c, _ := newPipeNet(t, h.serve)
		c.Timeouts.Overall = time.Second // the context of a call does not outlive it
		start := time.Now()
		want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
		time.Sleep(29 * time.Second)
		want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
		if h.connections() != 1 || slices.Contains(h.heard(), "QUIT") {
			t.Errorf("%d connections, heard %q after %v", h.connections(), h.heard(), time.Since(start))
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := h.heard(); got[len(got)-1] != "QUIT" || c.idle.total != 0 {
			t.Errorf("heard %q, %d idle", got, c.idle.total)
		}
	})
}

// BenchmarkReusedConnection sends 2 KiB messages over one connection at a time to a loopback sink.
func BenchmarkReusedConnection(b *testing.B) {
	h := &host{offers: []string{"PIPELINING", "SIZE"}}
	h.hook = func(p *peer, verb string) bool {
		if verb != "DATA" {
			return false
		}
		p.say("354 go")
		for {
			line, err := p.br.ReadSlice('\n')
			if err != nil || string(line) == ".\r\n" {
				break
			}
		}
		p.say("250 2.0.0 ok")
		return true
	}
	c := oneHost(b, h).client()
	m := text("Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 26))
	b.ReportAllocs()
	for b.Loop() {
		if r := c.Direct(b.Context(), "them.example", envelope(), m); r.Status != Delivered {
			b.Fatalf("%+v", r)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkBody normalises and stuffs 25 MiB of lines.
func BenchmarkBody(b *testing.B) {
	m := zeros(25 << 20)
	b.SetBytes(m.Size)
	b.ReportAllocs()
	for b.Loop() {
		content, err := m.Open()
		if err != nil {
			b.Fatal(err)
		}
		w := &bodyWriter{w: bufio.NewWriterSize(io.Discard, bodyBlock)}
		if _, err := io.Copy(w, content); err != nil || w.finish() != nil {
			b.Fatal(err)
		}
	}
}
