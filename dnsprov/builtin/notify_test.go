package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// toldZone is a zone for a Notifier.
type toldZone struct {
	origin string
	serial uint32
}

func (z toldZone) Transfer() iter.Seq[dns.RR] {
	return func(yield func(dns.RR) bool) {
		_ = yield(&dns.SOA{Hdr: header(z.origin+".", dns.TypeSOA, 60), Ns: "ns.", Mbox: "m.", Serial: z.serial}) &&
			yield(&dns.NS{Hdr: header(z.origin+".", dns.TypeNS, 60), Ns: "ns."})
	}
}

// A fakeSecondary answers NOTIFY with the result of answer (nil: no answer), and records what it
// receives and when.
type fakeSecondary struct {
	t      *testing.T
	start  time.Time
	answer func(q *dns.Msg) []byte

	mu    sync.Mutex
	heard []string // "seconds origin serial"
	wires [][]byte
}

func (f *fakeSecondary) dial(context.Context, netip.AddrPort) (net.Conn, error) {
	ours, theirs := net.Pipe() // keeps what one Write sends together, as a datagram, for a buffer that is long enough
	go func() {
		defer theirs.Close()
		buf := make([]byte, 4096)
		for {
			n, err := theirs.Read(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if err := q.Unpack(buf[:n]); err != nil {
				f.t.Errorf("heard %x: %v", buf[:n], err)
				return
			}
			f.note(q, buf[:n])
			if out := f.answer(q); out != nil {
				go theirs.Write(out)
			}
		}
	}()
	return ours, nil
}

func (f *fakeSecondary) note(q *dns.Msg, wire []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	serial := q.Answer[0].(*dns.SOA).Serial
	f.heard = append(f.heard, fmt.Sprintf("%.1f %s %d", time.Since(f.start).Seconds(), strings.TrimSuffix(q.Question[0].Name, "."), serial))
	f.wires = append(f.wires, bytes.Clone(wire))
	if q.Opcode != dns.OpcodeNotify || !q.Authoritative || q.Response || q.Question[0].Qtype != dns.TypeSOA {
		f.t.Errorf("heard %v", q)
	}
}

// all returns the messages received since the last call.
func (f *fakeSecondary) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.heard
	f.heard = nil
	return out
}

func replyTo(q *dns.Msg, rcode int) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.Rcode = rcode
	return m
}

func packedMsg(m *dns.Msg) []byte {
	wire, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return wire
}

func accept(q *dns.Msg) []byte { return packedMsg(replyTo(q, dns.RcodeSuccess)) }
func silent(*dns.Msg) []byte   { return nil }

// notified runs test with a Notifier for the fakes, in a synctest bubble. zones holds its zones
// with their serials.
func notified(t *testing.T, zones map[string]uint32, key *TSIGKey, test func(n *Notifier, log *bytes.Buffer), fakes ...*fakeSecondary) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		find := func(origin string) (CopiedZone, bool) {
			serial, ok := zones[origin]
			return toldZone{origin, serial}, ok
		}
		var all []Secondary
		for i := range fakes {
			all = append(all, Secondary{Name: fmt.Sprint("s", i), Key: key})
		}
		n := NewNotifier(all, find, slog.New(slog.NewTextHandler(&log, nil)))
		for i, f := range fakes {
			f.t, f.start = t, time.Now()
			n.senders[i].dial = f.dial
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); n.Run(ctx) }()
		test(n, &log)
		cancel()
		<-done
	})
}

// pass lets time go by, and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestChangesAreToldOnceAndSoon(t *testing.T) {
	f := &fakeSecondary{answer: accept}
	notified(t, map[string]uint32{"a.test": 7, "b.test": 8}, nil, func(n *Notifier, _ *bytes.Buffer) {
		n.Changed("a.test")
		for range 50 { // a burst of changes
			pass(time.Millisecond)
			n.Changed("a.test", "b.test")
		}
		pass(time.Hour)
		if got, want := f.all(), []string{"0.1 a.test 7", "0.1 b.test 8"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		n.Changed("a.test")
		pass(time.Second)
		n.Changed("a.test")
		n.Changed("gone.test") // is not told
		pass(time.Hour)
		if got, want := f.all(), []string{"3600.2 a.test 7", "3601.2 a.test 7"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}, f)
}

func TestSilenceIsToldAgainWithPatience(t *testing.T) {
	dead, alive := &fakeSecondary{answer: silent}, &fakeSecondary{answer: accept}
	notified(t, map[string]uint32{"a.test": 7, "b.test": 8}, nil, func(n *Notifier, log *bytes.Buffer) {
		n.Changed("a.test")
		pass(time.Minute)
		n.Changed("b.test") // the dead one does not hold it up
		pass(time.Second)
		if got, want := alive.all(), []string{"0.1 a.test 7", "60.1 b.test 8"}; !slices.Equal(got, want) {
			t.Errorf("the one that answers was told %q, want %q", got, want)
		}
		pass(time.Hour)
		var a []string
		for _, one := range dead.all() {
			if strings.Contains(one, "a.test") {
				a = append(a, one)
			}
		}
		want := []string{"0.1 a.test 7", "2.1 a.test 7", "6.1 a.test 7", "14.1 a.test 7", "30.1 a.test 7", "62.1 a.test 7", "126.1 a.test 7"}
		if !slices.Equal(a, want) {
			t.Errorf("told %q, want %q", a, want)
		}
		if n := strings.Count(log.String(), "does not answer"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, log)
		}
		if h := n.senders[0]; len(h.pending) != 0 || len(h.order) != 0 || h.socket != nil {
			t.Errorf("it keeps %d zones", len(h.pending))
		}
		dead.answer = accept // it comes back
		n.Changed("a.test")
		pass(time.Second)
		if got := dead.all(); len(got) != 1 || !strings.Contains(log.String(), "answers NOTIFY again") {
			t.Errorf("told %q; the log says\n%s", got, log)
		}
	}, dead, alive)
}

// A change during the retries of an earlier one starts them again, with the newest serial.
func TestChangeWhileTelling(t *testing.T) {
	f := &fakeSecondary{answer: silent}
	zones := map[string]uint32{"a.test": 7}
	notified(t, zones, nil, func(n *Notifier, _ *bytes.Buffer) {
		n.Changed("a.test")
		pass(20 * time.Second)
		f.all()
		zones["a.test"] = 9
		n.Changed("a.test")
		pass(3 * time.Second)
		if got, want := f.all(), []string{"20.1 a.test 9", "22.1 a.test 9"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}, f)
}

// Only answers to the newest NOTIFY end the retries, and with a key only signed ones.
func TestAnswersToNotify(t *testing.T) {
	key := &TSIGKey{Name: "key.test", Algorithm: "hmac-sha256", Secret: []byte("0123456789abcdef")}
	sign := func(secret []byte, rcode int) func(*dns.Msg) []byte {
		return func(q *dns.Msg) []byte {
			m := replyTo(q, rcode)
			m.SetTsig("key.test.", dns.HmacSHA256, 300, time.Now().Unix())
			wire, _, err := dns.TsigGenerate(m, base64.StdEncoding.EncodeToString(secret), q.IsTsig().MAC, false)
			if err != nil {
				panic(err)
			}
			return wire
		}
	}
	change := func(do func(*dns.Msg)) func(*dns.Msg) []byte {
		return func(q *dns.Msg) []byte {
			m := replyTo(q, dns.RcodeSuccess)
			do(m)
			return packedMsg(m)
		}
	}
	for _, tc := range []struct {
		name   string
		key    *TSIGKey
		answer func(*dns.Msg) []byte
		ends   bool
		log    string
	}{
		{"accepted", nil, accept, true, ""},
		{"refused", nil, change(func(m *dns.Msg) { m.Rcode = dns.RcodeRefused }), true, "REFUSED"},
		{"does not know NOTIFY", nil, change(func(m *dns.Msg) { m.Rcode = dns.RcodeNotImplemented }), true, "NOTIMP"},
		{"another ID", nil, change(func(m *dns.Msg) { m.Id++ }), false, ""},
		{"no answer but a query", nil, change(func(m *dns.Msg) { m.Response = false }), false, ""},
		{"another operation", nil, change(func(m *dns.Msg) { m.Opcode = dns.OpcodeQuery }), false, ""},
		{"another zone", nil, change(func(m *dns.Msg) { m.Question[0].Name = "b.test." }), false, ""},
		{"no question", nil, change(func(m *dns.Msg) { m.Question = nil }), false, ""},
		{"garbage", nil, func(*dns.Msg) []byte { return []byte("garbage") }, false, ""},
		{"signed", key, sign(key.Secret, dns.RcodeSuccess), true, ""},
		{"refused, signed", key, sign(key.Secret, dns.RcodeRefused), true, "REFUSED"},
		{"not signed", key, accept, false, "no signature found"},
		{"another secret", key, sign([]byte("fedcba9876543210"), dns.RcodeSuccess), false, "signature of its answer is wrong"},
		{"it does not know the key", key, change(func(m *dns.Msg) {
			m.Rcode = dns.RcodeNotAuth
			m.SetTsig("key.test.", dns.HmacSHA256, 300, 0)
			m.IsTsig().Error = dns.RcodeBadKey
		}), false, "BADKEY"},
	} {
		f := &fakeSecondary{answer: tc.answer}
		notified(t, map[string]uint32{"a.test": 7}, tc.key, func(n *Notifier, log *bytes.Buffer) {
			n.Changed("a.test")
			pass(5 * time.Second)
			if got := f.all(); (len(got) == 1) != tc.ends {
				t.Errorf("%s: told %q", tc.name, got)
			}
			if !strings.Contains(log.String(), tc.log) || tc.log == "" && log.Len() > 0 {
				t.Errorf("%s: the log says %q, want %q", tc.name, log, tc.log)
			}
			if tc.key != nil {
				secret := base64.StdEncoding.EncodeToString(key.Secret)
				if err := dns.TsigVerify(f.wires[0], secret, "", false); err != nil {
					t.Errorf("%s: our signature: %v", tc.name, err)
				}
			}
		}, f)
	}
}

// After a start there are many zones: one message is sent every few milliseconds, and one for each
// zone.
func TestManyZonesArePaced(t *testing.T) {
	const count = 1000
	zones, names := map[string]uint32{}, []string{}
	for i := range count {
		names = append(names, fmt.Sprintf("z%d.test", i))
		zones[names[i]] = 1
	}
	f := &fakeSecondary{answer: accept}
	notified(t, zones, nil, func(n *Notifier, _ *bytes.Buffer) {
		n.Changed(names...)
		n.Changed(names...)
		pass(coalesceFor + count/2*sendInterval)
		if got := len(f.all()); got < count/2-10 || got > count/2+10 {
			t.Errorf("%d told after half the time", got)
		}
		pass(time.Minute)
		if got := len(f.all()); got < count/2-10 || got > count/2+10 {
			t.Errorf("%d told in the other half", got)
		}
	}, f)
}

// Uses a real socket, on which nothing listens at first.
func TestNotifyOverUDP(t *testing.T) {
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := gone.LocalAddr().String()
	gone.Close()
	n := NewNotifier([]Secondary{{Name: "s", Addr: netip.MustParseAddrPort(addr)}}, func(origin string) (CopiedZone, bool) {
		return toldZone{origin, 7}, true
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	n.Changed("a.test")
	time.Sleep(2 * coalesceFor)
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Skip("the port is in use by now")
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	size, from, err := conn.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	q := new(dns.Msg)
	if err := q.Unpack(buf[:size]); err != nil || q.Opcode != dns.OpcodeNotify {
		t.Fatalf("heard %v, %v", q, err)
	}
	if _, err := conn.WriteTo(accept(q), from); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
}

// FuzzNotifyAnswer treats any bytes as a reply: only a valid reply ends the retries.
func FuzzNotifyAnswer(f *testing.F) {
	q := new(dns.Msg).SetNotify("a.test.")
	q.Id = 4711
	f.Add(accept(q), true)
	f.Add(accept(q), false)
	f.Add(packedMsg(replyTo(q, dns.RcodeNotAuth)), true)
	signed := replyTo(q, dns.RcodeSuccess)
	signed.SetTsig("key.test.", dns.HmacSHA256, 300, 0)
	f.Add(packedMsg(signed), true)
	f.Fuzz(func(t *testing.T, wire []byte, keyed bool) {
		to := Secondary{Name: "s"}
		if keyed {
			to.Key = &TSIGKey{Name: "key.test", Algorithm: "hmac-sha256", Secret: []byte("0123456789abcdef")}
		}
		h := newNotifySender(to, nil, slog.New(slog.DiscardHandler))
		h.recordChanges([]string{"a.test"}, time.Now())
		h.collectChanges()
		h.pending["a.test"].id, h.pending["a.test"].sends = 4711, 1
		was := bytes.Clone(wire)
		h.processReply(wire)
		if ended := len(h.pending) == 0; ended && (keyed || len(was) < 12 || was[0] != 4711>>8 || was[1] != 4711&0xFF || was[2]&0x80 == 0) {
			t.Fatalf("%x ends the telling", was)
		}
	})
}
