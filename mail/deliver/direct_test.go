package deliver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestDirectDeliversToBestMX(t *testing.T) {
	n := newInternet(t)
	first, second := &host{offers: []string{"PIPELINING", "SIZE 1000"}}, &host{}
	n.host("mx2.them.example", second)
	ip := n.host("mx1.them.example", first)
	n.domain("them.example", "mx1.them.example", "mx2.them.example")
	r := n.client().Direct(t.Context(), "Them.Example.", envelope(), text("Subject: x\r\n\r\n.dot\r\n..two\r\n"))
	want(t, r, Delivered, 250, "2.0.0")
	if r.Host != "mx1.them.example" || r.TLS != "" || r.Reply != "250 2.0.0 queued as 1" {
		t.Errorf("delivered as %+v", r)
	}
	if len(r.Attempts) != 1 || r.Attempts[0].IP != ip.String() || r.Attempts[0].Err != nil {
		t.Errorf("attempts %+v", r.Attempts)
	}
	if got := first.received(); len(got) != 1 || got[0] != "Subject: x\r\n\r\n.dot\r\n..two\r\n" {
		t.Errorf("host received %q", got)
	}
	wantLog := []string{"EHLO us.example", "MAIL FROM:<a@us.example> SIZE=27", "RCPT TO:<b@them.example>", "DATA"}
	if got := first.heard(); !slices.Equal(got, wantLog) {
		t.Errorf("host heard %q, want %q", got, wantLog)
	}
	if got := n.dials(); !slices.Equal(got, []string{ip.String() + ":25"}) || second.connections() != 0 {
		t.Errorf("dialled %q", got)
	}
}

// TestTargets holds what the DNS answers mean.
func TestTargets(t *testing.T) {
	mx := func(pref uint16, host string) *net.MX { return &net.MX{Host: host, Pref: pref} }
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tc := range []struct {
		name, domain string
		mx           []*net.MX
		ips          []netip.Addr
		fail         error
		hosts        string // in order, or the failure's enhanced code
		status       Status
		fault        bool
	}{
		{name: "order", domain: "d.example", mx: []*net.MX{mx(30, "c."), mx(10, "A."), mx(20, "b.")}, hosts: "a b c"},
		{name: "no MX", domain: "d.example", ips: addr, hosts: "d.example"},
		{name: "nothing at all", domain: "d.example", hosts: "5.1.2", status: Permanent, fault: true},
		{name: "null MX", domain: "d.example", mx: []*net.MX{mx(0, ".")}, ips: addr, hosts: "5.1.10", status: Permanent, fault: true},
		{name: "null MX beside others", domain: "d.example", mx: []*net.MX{mx(0, "."), mx(5, "a.")}, hosts: "a"},
		{name: "two null MX", domain: "d.example", mx: []*net.MX{mx(0, "."), mx(5, ".")}, hosts: "5.4.4", status: Permanent},
		{name: "loop", domain: "d.example", mx: []*net.MX{mx(10, "US.example.")}, hosts: "5.4.6", status: Permanent},
		{name: "we are a backup", domain: "d.example", mx: []*net.MX{mx(10, "a."), mx(20, "us.example."), mx(20, "b."), mx(30, "c.")}, hosts: "a"},
		{name: "loop without MX", domain: "us.example", ips: addr, hosts: "5.4.6", status: Permanent},
		{name: "DNS is down", domain: "d.example", ips: addr, fail: errors.New("server misbehaving"), hosts: "4.4.3", status: Temporary},
		{name: "five hosts at most", domain: "d.example", mx: []*net.MX{mx(1, "a."), mx(2, "b."), mx(3, "c."), mx(4, "d."), mx(5, "e."), mx(6, "f.")}, hosts: "a b c d e"},
		{name: "a host named twice", domain: "d.example", mx: []*net.MX{mx(1, "a."), mx(2, "a.")}, hosts: "a"},
		{name: "IDN", domain: "BÜCHER.example", ips: addr, hosts: "xn--bcher-kva.example"},
		{name: "bad name", domain: "a b.example", hosts: "5.1.2", status: Permanent, fault: true},
		{name: "empty label", domain: "a..example", hosts: "5.1.2", status: Permanent, fault: true},
		{name: "empty", domain: "", hosts: "5.1.2", status: Permanent, fault: true},
		{name: "long", domain: strings.Repeat("abc.", 80) + "example", hosts: "5.1.2", status: Permanent, fault: true},
		{name: "literal", domain: "[192.0.2.9]", hosts: "192.0.2.9"},
		{name: "IPv6 literal", domain: "[ipv6:2001:db8::1]", hosts: "2001:db8::1"},
		{name: "mapped literal", domain: "[IPv6:::ffff:192.0.2.9]", hosts: "192.0.2.9"},
		{name: "open literal", domain: "[192.0.2.9", hosts: "5.1.2", status: Permanent, fault: true},
		{name: "literal with zone", domain: "[IPv6:fe80::1%eth0]", hosts: "5.1.2", status: Permanent, fault: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newInternet(t)
			name := strings.ReplaceAll(strings.ToLower(tc.domain), "bücher", "xn--bcher-kva")
			n.mx[name], n.ips[name], n.fail[name] = tc.mx, tc.ips, tc.fail
			targets, f := n.client().targets(t.Context(), tc.domain)
			var got []string
			for _, tg := range targets {
				got = append(got, tg.hop.host)
			}
			if f != nil {
				got = append(got, f.enhanced)
				if f.status != tc.status || f.recipientFault() != tc.fault {
					t.Errorf("failure is %v, recipient's fault %v; want %v, %v", f.status, f.recipientFault(), tc.status, tc.fault)
				}
			}
			if strings.Join(got, " ") != tc.hosts {
				t.Errorf("got %q, want %q", got, tc.hosts)
			}
		})
	}
}

func TestEqualPreferencesAreShuffled(t *testing.T) {
	records := []*net.MX{{Host: "a.", Pref: 1}, {Host: "b.", Pref: 1}, {Host: "c.", Pref: 2}}
	first := map[string]int{}
	for range 200 {
		hosts, _ := rankMXHosts(records, "")
		first[hosts[0]]++
		if hosts[2] != "c" {
			t.Fatalf("the worst host comes at %v", hosts)
		}
	}
	if first["a"] == 0 || first["b"] == 0 {
		t.Errorf("first hosts of 200 walks: %v", first)
	}
}

func TestAddressesKeepBothFamilies(t *testing.T) {
	var in []netip.Addr
	for _, s := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8::5", "::ffff:192.0.2.1"} {
		in = append(in, netip.MustParseAddr(s))
	}
	var got []string
	for _, a := range alternateFamilies(in) {
		got = append(got, a.String())
	}
	if s := strings.Join(got, " "); s != "2001:db8::1 192.0.2.1 2001:db8::2 2001:db8::3" {
		t.Errorf("addresses %s", s)
	}
}

// replyCase is what a reply at a stage ("" is the greeting) means.
type replyCase struct {
	verb, reply string
	status      Status
	code        int
	enhanced    string
	second      bool // a second host is asked
	fault       bool
}

// TestReplies holds what a reply at each stage means, alone and with a second host behind.
func TestReplies(t *testing.T) {
	for _, tc := range []replyCase{
		{"", "421 4.3.2 busy", Temporary, 421, "4.3.2", true, false},
		{"", "450 not now", Temporary, 450, "4.0.0", true, false},
		{"", "554 5.7.1 go away", Permanent, 554, "5.7.1", true, false},
		{"EHLO", "421 busy", Temporary, 421, "4.0.0", true, false},
		{"EHLO", "451 4.3.0 not now", Temporary, 451, "4.3.0", true, false},
		{"MAIL", "421 4.3.2 busy", Temporary, 421, "4.3.2", true, false},
		{"MAIL", "451 4.7.1 slow down", Temporary, 451, "4.7.1", true, false},
		{"MAIL", "550 5.1.1 no such sender", Permanent, 550, "5.1.1", false, false},
		{"MAIL", "530 5.7.0 log in", Permanent, 530, "5.7.0", false, false},
		{"RCPT", "421 4.3.2 busy", Temporary, 421, "4.3.2", true, false},
		{"RCPT", "450 4.2.0 greylisted", Temporary, 450, "4.2.0", false, false},
		{"RCPT", "452 4.2.2 full", Temporary, 452, "4.2.2", false, false},
		{"RCPT", "550 5.1.1 unknown", Permanent, 550, "5.1.1", false, true},
		{"RCPT", "550 unknown", Permanent, 550, "5.0.0", false, true},
		{"RCPT", "551 5.0.0 moved", Permanent, 551, "5.0.0", false, true},
		{"RCPT", "553 bad mailbox", Permanent, 553, "5.0.0", false, true},
		{"RCPT", "550 mailbox unavailable", Permanent, 550, "5.0.0", false, true},
		{"RCPT", "550 Blocked, see https://bl.example/?ip=192.0.2.1", Permanent, 550, "5.0.0", false, false},
		{"RCPT", "550 mailbox is full", Permanent, 550, "5.0.0", false, false},
		{"RCPT", "553 not authorized", Permanent, 553, "5.0.0", false, false},
		{"RCPT", "554 no", Permanent, 554, "5.0.0", false, false},
		{"RCPT", "550 5.2.1 disabled", Permanent, 550, "5.2.1", false, true},
		{"RCPT", "552 5.2.2 full", Permanent, 552, "5.2.2", false, false},
		{"RCPT", "550 5.4.1 Recipient address rejected: Access denied", Permanent, 550, "5.4.1", false, true},
		{"RCPT", "550 5.7.1 spam", Permanent, 550, "5.7.1", false, false},
		{"RCPT", "550 5.1.8 bad sender domain", Permanent, 550, "5.1.8", false, false},
		{"RCPT", "550 4.1.1 mixed up", Permanent, 550, "5.0.0", false, true},
		{"DATA", "451 4.3.0 later", Temporary, 451, "4.3.0", false, false},
		{"DATA", "554 5.5.1 no", Permanent, 554, "5.5.1", false, false},
		{"DATA", "550 5.1.1 unknown after all", Permanent, 550, "5.1.1", false, true},
		{".", "421 4.3.2 busy", Temporary, 421, "4.3.2", false, false},
		{".", "451 4.7.1 greylisted", Temporary, 451, "4.7.1", false, false},
		{".", "550 spam", Permanent, 550, "5.0.0", false, false},
		{".", "554 5.7.1 spam", Permanent, 554, "5.7.1", false, false},
		{".", "550 5.2.1 disabled", Permanent, 550, "5.2.1", false, true},
	} {
		t.Run(tc.verb+" "+tc.reply, func(t *testing.T) { tc.check(t, nil) })
		t.Run(tc.verb+" "+tc.reply+" pipelined", func(t *testing.T) { tc.check(t, []string{"PIPELINING"}) })
	}
}

func (tc replyCase) check(t *testing.T, offers []string) {
	h := &host{answers: map[string]string{tc.verb: tc.reply}, offers: offers}
	if tc.verb == "" {
		h.greeting = tc.reply
	}
	n := newInternet(t)
	n.host("mx1.example", h)
	n.domain("one.example", "mx1.example")
	r := n.client().Direct(t.Context(), "one.example", envelope(), hello)
	want(t, r, tc.status, tc.code, tc.enhanced)
	if r.RecipientFault != tc.fault || r.Reply != tc.reply || r.Host != "mx1.example" {
		t.Errorf("result %+v", r)
	}
	second := &host{}
	n.host("mx2.example", second)
	n.domain("two.example", "mx1.example", "mx2.example")
	r = n.client().Direct(t.Context(), "two.example", envelope(), hello)
	if (r.Status == Delivered) != tc.second || (second.connections() > 0) != tc.second {
		t.Errorf("with a second host: %+v", r)
	}
}

// TestTemporaryOutweighsPermanent: a greeting that refuses for good says nothing while another host
// may come back.
func TestTemporaryOutweighsPermanent(t *testing.T) {
	n := newInternet(t)
	n.host("mx1.example", &host{greeting: "450 4.3.2 later"})
	n.host("mx2.example", &host{greeting: "554 5.7.1 never"})
	n.ips["mx3.example"] = []netip.Addr{netip.MustParseAddr("192.0.2.200")}
	n.domain("them.example", "mx1.example", "mx2.example", "mx3.example", "mx4.example")
	r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Temporary, 450, "4.3.2")
	if len(r.Attempts) != 4 || r.Attempts[2].Enhanced != "4.4.1" || r.Attempts[3].Enhanced != "5.4.4" {
		t.Errorf("attempts %+v", r.Attempts)
	}
}

func TestNoHostHasAddressIsPermanent(t *testing.T) {
	n := newInternet(t)
	n.domain("them.example", "mx1.example", "mx2.example")
	r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Permanent, 0, "5.4.4")
	n.fail["mx2.example"] = errors.New("server misbehaving")
	r = n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Temporary, 0, "4.4.3")
	if r.RecipientFault {
		t.Error("a host's missing address is not the recipient's fault")
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	n := newInternet(t)
	for _, h := range []string{"a", "b", "c", "d", "e"} {
		n.domain("them.example", h)
		for i := range byte(20) {
			n.ips[h] = append(n.ips[h], netip.AddrFrom4([4]byte{198, 51, 100, i}))
		}
	}
	r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Temporary, 0, "4.4.1")
	if len(r.Attempts) != maxAttempts || len(n.dials()) != maxAttempts {
		t.Errorf("%d attempts, %d dialled", len(r.Attempts), len(n.dials()))
	}
}

func TestEndedContextIsTemporary(t *testing.T) {
	n := newInternet(t)
	n.host("mx1.example", &host{})
	n.domain("them.example", "mx1.example", "mx1.example")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := n.client().Direct(ctx, "them.example", envelope(), hello)
	want(t, r, Temporary, 0, "4.4.1")
	if len(r.Attempts) != 1 || !errors.Is(r.Attempts[0].Err, context.Canceled) {
		t.Errorf("attempts %+v", r.Attempts)
	}
}

func TestWhatTheHostCannotTakeIsPermanent(t *testing.T) {
	n := newInternet(t)
	h := &host{offers: []string{"SIZE 10"}}
	n.host("mx1.example", h)
	n.domain("them.example", "mx1.example")
	c := n.client()
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Permanent, 0, "5.3.4")
	h.offers = []string{"SIZE 0"}
	c = n.client()
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	env := envelope()
	env.SMTPUTF8 = true
	want(t, c.Direct(t.Context(), "them.example", env, hello), Permanent, 0, "5.6.7")
	env = envelope()
	env.To = "jürgen@them.example"
	want(t, c.Direct(t.Context(), "them.example", env, hello), Permanent, 0, "5.6.7")
}

// TestEightBitNeedsItsExtension: what has bytes beyond ASCII does not go to a host without 8BITMIME
// (RFC 6152 section 3).
func TestEightBitNeedsItsExtension(t *testing.T) {
	for offers, status := range map[string]Status{"": Permanent, "PIPELINING": Permanent, "8BITMIME": Delivered} {
		h := &host{offers: []string{offers}}
		n := newInternet(t)
		n.host("them.example", h)
		r := n.client().Direct(t.Context(), "them.example", Envelope{To: "b@them.example", EightBit: true}, hello)
		if status == Delivered {
			want(t, r, Delivered, 250, "2.0.0")
			continue
		}
		want(t, r, Permanent, 0, "5.6.3")
		if r.RecipientFault {
			t.Error("it is the recipient's fault")
		}
		want(t, n.client().Direct(t.Context(), "them.example", Envelope{To: "b@them.example"}, hello), Delivered, 250, "2.0.0")
	}
}

func TestEnvelopeParameters(t *testing.T) {
	all := []string{"PIPELINING", "SIZE", "8BITMIME", "SMTPUTF8", "DSN"}
	dsn := Envelope{From: "", To: "b@them.example", EnvelopeID: "id+1=x", Notify: "SUCCESS,DELAY", Ret: "HDRS", ORCPT: "rfc822;old b@x.example"}
	for _, tc := range []struct {
		name       string
		offers     []string
		env        Envelope
		mail, rcpt string
	}{
		{"plain host", nil, dsn, "MAIL FROM:<>", "RCPT TO:<b@them.example>"},
		{"DSN", all, dsn, "MAIL FROM:<> SIZE=25 RET=HDRS ENVID=id+2B1+3Dx", "RCPT TO:<b@them.example> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;old+20b@x.example"},
		{"DSN that cannot be sent", all, Envelope{To: "b@x", EnvelopeID: "ä", Notify: "NEVER,DELAY", Ret: "ALL", ORCPT: "b@x"}, "MAIL FROM:<> SIZE=25", "RCPT TO:<b@x>"},
		{"8-bit", all, Envelope{To: "b@x", EightBit: true}, "MAIL FROM:<> SIZE=25 BODY=8BITMIME", "RCPT TO:<b@x>"},
		{"UTF-8", all, Envelope{To: "jürgen@bücher.example"}, "MAIL FROM:<> SIZE=25 BODY=8BITMIME SMTPUTF8", "RCPT TO:<jürgen@xn--bcher-kva.example>"},
		{"IDN only", nil, Envelope{From: "a@bücher.example", To: "b@Bücher.example"}, "MAIL FROM:<a@xn--bcher-kva.example>", "RCPT TO:<b@xn--bcher-kva.example>"},
		{"quoted", nil, Envelope{To: `"a b> \" \\"@x`}, "MAIL FROM:<>", `RCPT TO:<"a b> \" \\"@x>`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &host{offers: tc.offers}
			n := newInternet(t)
			n.host("them.example", h)
			r := n.client().Direct(t.Context(), "them.example", tc.env, hello)
			want(t, r, Delivered, 250, "2.0.0")
			if got := h.heard(); len(got) < 3 || got[1] != tc.mail || got[2] != tc.rcpt {
				t.Errorf("host heard %q", got)
			}
		})
	}
}

func TestAddressesCannotInject(t *testing.T) {
	n := newInternet(t)
	h := &host{}
	n.host("them.example", h)
	for _, bad := range []string{
		"b@x>\r\nRCPT TO:<c@x", "b@x\r\nDATA", "b@x> SIZE=1", "b c@x", "b\x00@x", `"b@x`, `"b\`, "b@\xff", "<b@x>", `b\@x`, "b@a b.exämple",
		strings.Repeat("b", 400) + "@x",
	} {
		env := envelope()
		env.To = bad
		r := n.client().Direct(t.Context(), "them.example", env, hello)
		want(t, r, Permanent, 0, "5.1.3")
		if !r.RecipientFault {
			t.Errorf("%q is not the recipient's fault", bad)
		}
		env = envelope()
		env.From = bad
		r = n.client().Direct(t.Context(), "them.example", env, hello)
		want(t, r, Permanent, 0, "5.1.7")
		if r.RecipientFault {
			t.Errorf("sender %q is the recipient's fault", bad)
		}
	}
	env := envelope()
	env.To = ""
	want(t, n.client().Direct(t.Context(), "them.example", env, hello), Permanent, 0, "5.1.3")
	if h.connections() != 0 {
		t.Error("a host was asked")
	}
}

func TestHELOForOldHosts(t *testing.T) {
	h := &host{answers: map[string]string{"EHLO": "502 what?"}, offers: []string{"PIPELINING"}}
	n := newInternet(t)
	n.host("them.example", h)
	r := n.client().Direct(t.Context(), "them.example", envelope(), hello)
	want(t, r, Delivered, 250, "2.0.0")
	if got := h.heard(); got[1] != "HELO us.example" || got[2] != "MAIL FROM:<a@us.example>" {
		t.Errorf("host heard %q", got)
	}
	h.answers["HELO"] = "550 not you"
	want(t, n.client().Direct(t.Context(), "them.example", envelope(), hello), Permanent, 550, "5.0.0")
}

// TestZeroClient works with the system's dialer, and with addresses needs no resolver.
func TestZeroClient(t *testing.T) {
	h := &host{}
	where, err := netip.ParseAddrPort(h.start(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{MXPort: int(where.Port())}
	defer c.Close()
	want(t, c.Direct(t.Context(), "[127.0.0.1]", envelope(), hello), Delivered, 250, "2.0.0")
	relay := Relay{Host: "127.0.0.1", Port: int(where.Port()), TLS: "none"}
	want(t, c.Relay(t.Context(), relay, envelope(), hello), Delivered, 250, "2.0.0")
	if got := h.heard(); got[0] != "EHLO localhost" || h.connections() != 2 {
		t.Errorf("%d connections heard %q", h.connections(), got)
	}
}

// TestHeloAndSkippedAddresses: a name of its own in EHLO, and no connection to addresses that are
// left out; where no other is there, the message waits.
func TestHeloAndSkippedAddresses(t *testing.T) {
	n := newInternet(t)
	h := &host{}
	n.domain("them.example", "mx.them.example")
	ip := n.host("mx.them.example", h)
	c := n.client()
	c.Helo = "out.us.example"
	c.Skip = func(a netip.Addr) bool { return a != ip }
	want(t, c.Direct(t.Context(), "them.example", envelope(), hello), Delivered, 250, "2.0.0")
	if heard := strings.Join(h.heard(), "\n"); !strings.Contains(heard, "EHLO out.us.example") {
		t.Errorf("it heard %s", heard)
	}
	c = n.client()
	c.Skip = func(netip.Addr) bool { return true }
	r := c.Direct(t.Context(), "them.example", envelope(), hello)
	if r.Status != Temporary || !strings.Contains(r.Reply, "are excluded from sending") || h.connections() != 1 {
		t.Errorf("%+v, %d connections", r, h.connections())
	}
}

// TestTryRelay logs in and sends nothing.
func TestTryRelay(t *testing.T) {
	config, pool := certificate(t, "relay.example")
	h := &host{tls: config, offers: []string{"AUTH PLAIN"}}
	n := newInternet(t)
	n.host("relay.example", h)
	c := n.client()
	c.RootCAs = pool
	relay := Relay{Host: "relay.example", Port: 587, TLS: "starttls", Username: "user", Password: "secret"}
	if err := c.TryRelay(t.Context(), relay); err != nil {
		t.Error(err)
	}
	if heard := strings.Join(h.heard(), "\n"); !strings.Contains(heard, "AUTH PLAIN") || strings.Contains(heard, "MAIL") {
		t.Errorf("it heard %s", heard)
	}
	h.hook = challenge(1, "535 5.7.8 no")
	if err := c.TryRelay(t.Context(), relay); !errors.Is(err, ErrLogin) {
		t.Errorf("log-in refused: %v", err)
	}
	relay.Host = "nowhere.example"
	if err := c.TryRelay(t.Context(), relay); err == nil || !strings.Contains(err.Error(), "nowhere.example") {
		t.Errorf("nobody there: %v", err)
	}
}
