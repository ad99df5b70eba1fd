package deliver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oneHost is a world in which them.example has one host.
func oneHost(t testing.TB, h *host) *internet {
	n := newInternet(t)
	n.host("mx.them.example", h)
	n.domain("them.example", "mx.them.example")
	return n
}

// misbehave makes a host that does act in place of answering verb ("" is the greeting), and then
// hangs up.
func misbehave(verb string, act func(p *peer)) *host {
	return &host{hook: func(p *peer, v string) bool {
		if v != verb {
			return false
		}
		act(p)
		p.hangUp()
		return true
	}}
}

// TestGarbageIsTemporary: nothing that a host utters out of form is ever taken for yes or no.
func TestGarbageIsTemporary(t *testing.T) {
	for name, utter := range map[string]string{
		"nothing":           "",
		"no code":           "hello there\r\n",
		"HTTP":              "HTTP/1.1 400 Bad Request\r\n\r\n",
		"code too low":      "150 hm\r\n",
		"code too high":     "650 hm\r\n",
		"no separator":      "550hm\r\n",
		"codes that differ": "250-yes\r\n550 no\r\n",
		"unfinished":        "550-5.1.1 no\r\n",
		"half a line":       "550 5.1.1 no",
		"NULs":              strings.Repeat("\x00", 100) + "\r\n",
		"endless line":      "550 " + strings.Repeat("x", maxReplyLine) + "\r\n",
		"endless lines":     strings.Repeat("550-no\r\n", maxReplyLines) + "550 no\r\n",
		"too much":          strings.Repeat("550-"+strings.Repeat("x", 1000)+"\r\n", 20) + "550 no\r\n",
	} {
		for _, verb := range []string{"", "EHLO", "MAIL", "RCPT", "DATA", "."} {
			t.Run(name+" at "+verb, func(t *testing.T) {
				h := misbehave(verb, func(p *peer) { io.WriteString(p.conn, utter) })
				r := oneHost(t, h).client().Direct(t.Context(), "them.example", envelope(), hello)
				want(t, r, Temporary, 0, "4.4.2")
				if len(r.Attempts) != 1 || r.Attempts[0].Err == nil || r.RecipientFault {
					t.Errorf("result %+v", r)
				}
				if errors.Is(r.Attempts[0].Err, ErrOutcomeUnknown) != (verb == ".") {
					t.Errorf("error at %q is %v", verb, r.Attempts[0].Err)
				}
			})
		}
	}
}

// TestEndlessReplyCostsNothing: the host sends as fast as it can for as long as it is listened to.
func TestEndlessReplyCostsNothing(t *testing.T) {
	for name, line := range map[string]string{"lines": "250-more\r\n", "one line": "250 xxxxxxxx"} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan int64, 1)
			h := misbehave("MAIL", func(p *peer) {
				var n int64
				for block := []byte(strings.Repeat(line, 1000)); ; {
					m, err := p.conn.Write(block)
					n += int64(m)
					if err != nil {
						sent <- n
						return
					}
				}
			})
			r := oneHost(t, h).client().Direct(t.Context(), "them.example", envelope(), hello)
			want(t, r, Temporary, 0, "4.4.2")
			if !errors.Is(r.Attempts[0].Err, errReplyTooLong) {
				t.Errorf("error is %v", r.Attempts[0].Err)
			}
			if n := <-sent; n > 32<<20 {
				t.Errorf("host could send %d bytes", n)
			}
		})
	}
}

// TestUnexpectedSuccess: a yes where something else belongs is not a yes.
func TestUnexpectedSuccess(t *testing.T) {
	for verb, reply := range map[string]string{"": "354 hi", "MAIL": "354 go", "DATA": "250 ok", ".": "354 more"} {
		h := &host{answers: map[string]string{verb: reply}}
		if verb == "" {
			h.greeting = reply
		}
		r := oneHost(t, h).client().Direct(t.Context(), "them.example", envelope(), hello)
		want(t, r, Temporary, 0, "4.5.0")
	}
}

// TestRepliesBeforeCommands: a host that answers ahead would have its old answers taken for new
// ones.
func TestRepliesBeforeCommands(t *testing.T) {
	h := &host{answers: map[string]string{"MAIL": "250 ok\r\n250 ok\r\n354 go\r\n250 delivered"}}
	r := oneHost(t, h).client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Temporary, 0, "4.4.2")
	if !errors.Is(r.Attempts[0].Err, errUnsolicited) {
		t.Errorf("error is %v", r.Attempts[0].Err)
	}
}

func TestDropBeforeTheMessageTriesNextHost(t *testing.T) {
	for _, verb := range []string{"", "EHLO", "MAIL", "RCPT", "DATA"} {
		n := oneHost(t, misbehave(verb, func(*peer) {}))
		n.host("mx2.them.example", &host{})
		n.domain("two.example", "mx.them.example", "mx2.them.example")
		r := n.client().Direct(t.Context(), "two.example", envelope(), hello)
		want(t, r, Delivered, 250, "2.0.0")
		if r.Host != "mx2.them.example" || len(r.Attempts) != 2 {
			t.Errorf("drop at %q: %+v", verb, r)
		}
	}
}

// TestLossAfterTheFinalDotIsUnknown: the message may be there, so no other host gets it now.
func TestLossAfterTheFinalDotIsUnknown(t *testing.T) {
	h := misbehave(".", func(*peer) {})
	n := oneHost(t, h)
	second := &host{}
	n.host("mx2.them.example", second)
	n.domain("them.example", "mx2.them.example")
	n.mx["them.example"][1].Pref = 20
	r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Temporary, 0, "4.4.2")
	if !errors.Is(r.Attempts[0].Err, ErrOutcomeUnknown) || second.connections() != 0 || len(h.received()) != 1 {
		t.Errorf("result %+v", r)
	}
}

// zeros is n bytes of lines.
func zeros(n int64) Message {
	return Message{Size: n, Open: func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(lines{}, n)), nil }}
}

type lines struct{}

func (lines) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	for i := 76; i+1 < len(p); i += 78 {
		p[i], p[i+1] = '\r', '\n'
	}
	return len(p), nil
}

func TestDropInTheMiddleOfTheMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		act    func(p *peer)
		status Status
		code   int
		enh    string
	}{
		"silently":       {func(p *peer) { io.CopyN(io.Discard, p.br, 1<<20) }, Temporary, 0, "4.4.2"},
		"with a reason":  {func(p *peer) { p.say("552 5.3.4 enough"); io.CopyN(io.Discard, p.br, 1<<20) }, Permanent, 552, "5.3.4"},
		"after a reason": {func(p *peer) { p.say("552 5.3.4 enough"); io.Copy(io.Discard, p.br) }, Permanent, 552, "5.3.4"},
		"with a yes":     {func(p *peer) { p.say("250 fine"); io.CopyN(io.Discard, p.br, 1<<20) }, Temporary, 0, "4.4.2"},
	} {
		t.Run(name, func(t *testing.T) {
			h := misbehave("DATA", func(p *peer) { p.say("354 go"); tc.act(p) })
			n := oneHost(t, h)
			r := n.client().Direct(t.Context(), "them.example", envelope(), zeros(24<<20))
			want(t, r, tc.status, tc.code, tc.enh)
			if h.connections() != 1 {
				t.Errorf("%d connections", h.connections())
			}
		})
	}
}

// TestCancelReturnsAtOnce holds at every stage at which a host may stall.
func TestCancelReturnsAtOnce(t *testing.T) {
	config, _ := certificate(t, "mx.them.example")
	stall := func(p *peer) { io.Copy(io.Discard, p.br) }
	stop := func(p *peer) { time.Sleep(100 * time.Millisecond) } // reads nothing
	for name, h := range map[string]*host{
		"greeting": misbehave("", stall), "EHLO": misbehave("EHLO", stall), "MAIL": misbehave("MAIL", stall),
		"STARTTLS": {tls: config, hook: misbehave("STARTTLS", func(p *peer) { p.say("220 go"); stall(p) }).hook},
		"RCPT":     misbehave("RCPT", stall), "DATA": misbehave("DATA", stall), "final dot": misbehave(".", stall),
		"message": {hook: func(p *peer, verb string) bool {
			if verb != "DATA" {
				return false
			}
			p.say("354 go")
			for range 20 {
				stop(p)
			}
			p.hangUp()
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := oneHost(t, h).client()
			c.Timeouts = Timeouts{}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(200*time.Millisecond, cancel)
			start := time.Now()
			r := c.Direct(ctx, "them.example", envelope(), zeros(24<<20))
			if took := time.Since(start); took > time.Second {
				t.Errorf("took %v", took)
			}
			if r.Status != Temporary || len(r.Attempts) != 1 || !errors.Is(r.Attempts[0].Err, context.Canceled) {
				t.Errorf("result %+v", r)
			}
		})
	}
}

// pipeNet is one host at the other end of a net.Pipe, for tests in synthetic time.
type pipeNet struct {
	*internet
	serve func(conn net.Conn)
}

func newPipeNet(t *testing.T, serve func(conn net.Conn)) (*Client, *pipeNet) {
	n := &pipeNet{internet: newInternet(t), serve: serve}
	n.ips["them.example"] = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	return &Client{Hostname: "us.example", Resolver: n, Dialer: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			n.serve(theirs)
		}()
		return ours, nil
	}}, n
}

// TestSilentHostsTimeOut holds the defaults of Timeouts, and that a host which trickles gains no
// time.
func TestSilentHostsTimeOut(t *testing.T) {
	trickle := func(conn net.Conn) {
		for {
			if _, err := conn.Write([]byte("2")); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	sink := func(conn net.Conn) { io.Copy(io.Discard, conn) }
	deaf := func(net.Conn) { time.Sleep(time.Hour) }
	upTo := func(verb string, then func(net.Conn)) func(net.Conn) {
		return func(conn net.Conn) {
			h := &host{t: t, hook: func(p *peer, v string) bool {
				if v != verb {
					return false
				}
				if v == "DATA" {
					p.say("354 go")
				}
				then(conn)
				return true
			}}
			h.serve(conn)
		}
	}
	for name, tc := range map[string]struct {
		serve func(net.Conn)
		takes time.Duration
	}{
		"silent greeting":   {sink, 2 * time.Minute},
		"trickled greeting": {trickle, 2 * time.Minute},
		"silent EHLO":       {upTo("EHLO", sink), 2 * time.Minute},
		"trickled MAIL":     {upTo("MAIL", trickle), 2 * time.Minute},
		"silent RCPT":       {upTo("RCPT", sink), 2 * time.Minute},
		"deaf to message":   {upTo("DATA", deaf), 3*time.Minute + replyGrace},
		"silent final dot":  {upTo(".", sink), 10 * time.Minute},
		"slow greeting":     {func(conn net.Conn) { time.Sleep(90 * time.Second); (&host{t: t}).serve(conn) }, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newPipeNet(t, tc.serve)
				start := time.Now()
				r := c.Direct(t.Context(), "them.example", envelope(), hello)
				if took := time.Since(start); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				if name == "slow greeting" {
					want(t, r, Delivered, 250, "2.0.0")
				} else if want(t, r, Temporary, 0, "4.4.2"); !errors.Is(r.Attempts[0].Err, os.ErrDeadlineExceeded) {
					t.Errorf("error is %v", r.Attempts[0].Err)
				}
				c.Close()
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

func TestOverallTimeEndsASlowTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newPipeNet(t, func(conn net.Conn) {
			h := &host{t: t, hook: func(p *peer, verb string) bool {
				if verb != "DATA" {
					return false
				}
				p.say("354 go")
				for {
					if _, err := p.br.Discard(512); err != nil {
						return true
					}
					time.Sleep(time.Second)
				}
			}}
			h.serve(conn)
		})
		start := time.Now()
		r := c.Direct(t.Context(), "them.example", envelope(), zeros(1<<20))
		want(t, r, Temporary, 0, "4.4.2")
		if took := time.Since(start); took > 30*time.Minute+replyGrace || !errors.Is(r.Attempts[0].Err, errOverall) {
			t.Errorf("took %v, error %v", took, r.Attempts[0].Err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestUnreadableMessageIsNotCompleted: the host must never take half a message for a whole one.
func TestUnreadableMessageIsNotCompleted(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, m := range map[string]Message{
		"cannot be opened": {Open: func() (io.ReadCloser, error) { return nil, broken }},
		"ends in an error": {Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("Subject: x\r\n"), failing{broken})), nil
		}},
		"too short": {Size: 30, Open: hello.Open},
		"too long":  {Size: 20, Open: hello.Open},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{}
			n := oneHost(t, h)
			second := &host{}
			n.host("mx2.them.example", second)
			n.domain("two.example", "mx.them.example", "mx2.them.example")
			r := n.client().Direct(t.Context(), "two.example", envelope(), m)
			want(t, r, Temporary, 0, "4.3.0")
			if err := r.Attempts[0].Err; !errors.Is(err, broken) && !errors.Is(err, errWrongSize) {
				t.Errorf("error is %v", err)
			}
			if len(h.received()) != 0 || second.connections() != 0 {
				t.Errorf("hosts received %q", h.received())
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestBigMessageTakesConstantMemory(t *testing.T) {
	h := &host{hook: func(p *peer, verb string) bool {
		if verb != "DATA" {
			return false
		}
		p.say("354 go")
		for end := make([]byte, 5); string(end) != "\r\n.\r\n"; {
			b, err := p.br.ReadByte()
			if err != nil {
				return true
			}
			copy(end, end[1:])
			end[4] = b
		}
		p.say("250 ok")
		return true
	}}
	n := oneHost(t, h)
	c := n.client()
	c.Timeouts = Timeouts{}
	var peak uint64
	reads := 0
	m := Message{Size: 25 << 20, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(watching{lines{}, &reads, &peak}, 25<<20)), nil
	}}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	want(t, c.Direct(t.Context(), "them.example", envelope(), m), Delivered, 250, "2.0.0")
	if reads < 500 || peak > before.HeapAlloc+2<<20 {
		t.Errorf("heap grew from %d to %d bytes in %d reads", before.HeapAlloc, peak, reads)
	}
}

// watching notes the largest heap while it is read, at every hundredth read and without what may
// be collected.
type watching struct {
	io.Reader
	reads *int
	peak  *uint64
}

func (w watching) Read(p []byte) (int, error) {
	if *w.reads++; *w.reads%100 == 1 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		*w.peak = max(*w.peak, m.HeapAlloc)
	}
	return w.Reader.Read(p)
}
