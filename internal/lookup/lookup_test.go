package lookup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/lookup/lookuptest"
	"github.com/miekg/dns"
)

// A fakeServer answers from records, counts its queries, and misbehaves on request.
type fakeServer struct {
	t       *testing.T
	addr    string
	records map[string][]dns.RR

	mu     sync.Mutex
	asked  map[string]int // by "NAME TYPE"
	delay  time.Duration
	rcode  int  // answered to everything, if not 0
	silent bool // answers nothing over UDP
	liar   bool // sends answers to other questions first
	udp    []string
}

func newFakeServer(t *testing.T, lines ...string) *fakeServer {
	t.Helper()
	f := &fakeServer{t: t, records: map[string][]dns.RR{}, asked: map[string]int{}}
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ToLower(rr.Header().Name)
		f.records[name] = append(f.records[name], rr)
	}
	packets, stream := lookuptest.SamePort(t)
	f.addr = packets.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: f}, {Listener: stream, Handler: f}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return f
}

func (f *fakeServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, kind := strings.ToLower(q.Question[0].Name), q.Question[0].Qtype
	udp := w.RemoteAddr().Network() == "udp"
	if udp {
		f.udp = append(f.udp, w.RemoteAddr().String())
	}
	f.asked[name+" "+dns.TypeToString[kind]]++
	if f.silent && udp {
		return
	}
	time.Sleep(f.delay)
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	m.Rcode = f.rcode
	if m.Rcode != 0 {
		_ = w.WriteMsg(m)
		return
	}
	at := name
	for range 5 {
		for _, rr := range f.records[at] {
			if alias, ok := rr.(*dns.CNAME); ok && kind != dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
				at = alias.Target
				break
			}
		}
	}
	for _, rr := range f.records[at] {
		if rr.Header().Rrtype == kind {
			m.Answer = append(m.Answer, rr)
		}
	}
	if len(f.records[name]) == 0 {
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 {
		m.Ns = f.records["soa."]
	}
	if f.liar && udp {
		lie := m.Copy()
		lie.Id++
		_ = w.WriteMsg(lie)
		lie.Id, lie.Question[0].Name = m.Id, "other.test."
		_ = w.WriteMsg(lie)
		_, _ = w.Write([]byte("no message at all"))
	}
	if udp {
		m.Truncate(udpSize)
	}
	_ = w.WriteMsg(m)
}

func (f *fakeServer) count(question string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[question]
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

// TestAnswersAreKept: answers, also negative ones, are cached for their lifetime and no longer.
func TestAnswersAreKept(t *testing.T) {
	f := newFakeServer(t, `a.test. 60 IN TXT "one"`, `now.test. 0 IN TXT "two"`, `long.test. 900000 IN TXT "three"`, "soa. 100 IN SOA ns. root. 1 1 1 1 30")
	now := time.Unix(1_700_000_000, 0)
	c := newClient(t, Options{Servers: []string{f.addr}, Now: func() time.Time { return now }})
	ask := func(name string, want int) {
		t.Helper()
		for range 2 {
			list, err := c.LookupTXT(t.Context(), name)
			var dnsErr *net.DNSError
			if gone := strings.HasPrefix(name, "none"); gone != (errors.As(err, &dnsErr) && dnsErr.IsNotFound) || !gone && len(list) != 1 {
				t.Errorf("%s: %q, %v", name, list, err)
			}
		}
		if n := f.count(strings.ToLower(name) + ". TXT"); n != want {
			t.Errorf("%s was asked for %d times, want %d", name, n, want)
		}
	}
	ask("a.test", 1)
	ask("A.test", 1)
	ask("now.test", 2)
	ask("long.test", 1)
	ask("none.test", 1)
	now = now.Add(29 * time.Second)
	ask("none.test", 1)
	now = now.Add(time.Second)
	ask("none.test", 2)
	now = now.Add(30 * time.Second)
	ask("a.test", 2)
	now = now.Add(time.Hour - time.Minute)
	ask("long.test", 2)

	if _, err := c.LookupTXT(Fresh(t.Context()), "a.test"); err != nil {
		t.Fatal(err)
	}
	before := f.count("a.test. TXT")
	ask("a.test", before) // what was asked anew is kept
	if s := c.Stats(); s.Cached == 0 || s.Asked == 0 || s.Failed != 0 || s.Bytes == 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestOneQuestionForMany: a hundred simultaneous callers share one query; a caller that gives up
// does not affect the others.
func TestOneQuestionForMany(t *testing.T) {
	f := newFakeServer(t, "mx.test. 60 IN A 192.0.2.1", "mx.test. 60 IN AAAA 2001:db8::1")
	f.delay = 50 * time.Millisecond
	c := newClient(t, Options{Servers: []string{f.addr}})
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		var dnsErr *net.DNSError
		if _, err := c.LookupNetIP(short, "ip", "mx.test"); !errors.As(err, &dnsErr) || !dnsErr.IsTimeout {
			t.Errorf("the impatient one: %v", err)
		}
	})
	for range 100 {
		all.Go(func() {
			got, err := c.LookupNetIP(t.Context(), "ip", "mx.test")
			if want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	all.Wait()
	if a, aaaa := f.count("mx.test. A"), f.count("mx.test. AAAA"); a != 1 || aaaa != 1 {
		t.Errorf("asked %d and %d times", a, aaaa)
	}
}

// TestBytesAreBounded: the cache stays below its limit, even if somebody makes up names.
func TestBytesAreBounded(t *testing.T) {
	var lines []string
	for n := range 300 {
		lines = append(lines, fmt.Sprintf("n%d.test. 60 IN TXT %q", n, strings.Repeat("x", 200)))
	}
	f := newFakeServer(t, lines...)
	c := newClient(t, Options{Servers: []string{f.addr}, MaxBytes: 50_000})
	for n := range 300 {
		if _, err := c.LookupTXT(t.Context(), fmt.Sprintf("n%d.test", n)); err != nil {
			t.Fatal(err)
		}
		if n%50 == 0 {
			_, _ = c.LookupTXT(t.Context(), "n0.test") // stays in use
		}
	}
	if s := c.Stats(); s.Bytes > 50_000 || s.Bytes < 30_000 || len(c.answers) != c.order.Len() {
		t.Errorf("%+v of %d answers", s, len(c.answers))
	}
	none := newClient(t, Options{Servers: []string{f.addr}, MaxBytes: -1})
	for range 2 {
		_, _ = none.LookupTXT(t.Context(), "n1.test")
	}
	if n := f.count("n1.test. TXT"); n != 3 {
		t.Errorf("a client that keeps nothing asked %d times in all", n)
	}
}

// TestSameAsNet: the results equal those of Go's resolver.
func TestSameAsNet(t *testing.T) {
	lines := []string{
		`txt.test. 60 IN TXT "one " "piece" `, `txt.test. 60 IN TXT "q\"uote\\ \200"`,
		"mx.test. 60 IN MX 20 b.test.", "mx.test. 60 IN MX 10 a.test.", "ns.test. 60 IN NS n1.test.",
		"a.test. 60 IN A 192.0.2.1", "a.test. 60 IN A 192.0.2.2", "six.test. 60 IN AAAA 2001:db8::2",
		"alias.test. 60 IN CNAME next.test.", "next.test. 60 IN CNAME a.test.",
		"dangling.test. 60 IN CNAME nowhere.test.",
		"_imap._tcp.srv.test. 60 IN SRV 10 1 143 a.test.", "_imap._tcp.srv.test. 60 IN SRV 5 0 993 b.test.",
		"1.2.0.192.in-addr.arpa. 60 IN PTR a.test.", "soa. 60 IN SOA ns. root. 1 1 1 1 60",
	}
	var big []string
	for n := range 40 {
		big = append(big, fmt.Sprintf("big.test. 60 IN TXT %q", fmt.Sprint(strings.Repeat("long", 20), n)))
	}
	f := newFakeServer(t, append(lines, big...)...)
	ours := newClient(t, Options{Servers: []string{f.addr}})
	theirs := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, f.addr)
	}}
	ctx := t.Context()
	type found struct {
		of       any
		notFound bool
	}
	read := func(v any, err error) found {
		var dnsErr *net.DNSError
		if err != nil && !errors.As(err, &dnsErr) {
			t.Errorf("error %T %v", err, err)
		}
		if err != nil {
			return found{notFound: dnsErr.IsNotFound}
		}
		if list, ok := v.([]netip.Addr); ok { // Go sorts by what this host can reach
			for i := range list {
				list[i] = list[i].Unmap()
			}
			slices.SortFunc(list, netip.Addr.Compare)
		}
		return found{of: v}
	}
	names := []string{"txt.test.", "mx.test.", "ns.test.", "a.test.", "six.test.", "alias.test.", "dangling.test.", "srv.test.", "none.test.", "big.test.", ""}
	for _, name := range names {
		for kind, pair := range map[string][2]found{
			"TXT": {read(ours.LookupTXT(ctx, name)), read(theirs.LookupTXT(ctx, name))},
			"MX":  {read(ours.LookupMX(ctx, name)), read(theirs.LookupMX(ctx, name))},
			"NS":  {read(ours.LookupNS(ctx, name)), read(theirs.LookupNS(ctx, name))},
			"IP":  {read(ours.LookupNetIP(ctx, "ip", name)), read(theirs.LookupNetIP(ctx, "ip", name))},
			"IP4": {read(ours.LookupNetIP(ctx, "ip4", name)), read(theirs.LookupNetIP(ctx, "ip4", name))},
			"IP6": {read(ours.LookupNetIP(ctx, "ip6", name)), read(theirs.LookupNetIP(ctx, "ip6", name))},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s of %q: %+v, Go %+v", kind, name, pair[0], pair[1])
			}
		}
		switch name {
		case "dangling.test.": // Go says that this does not exist, or names the target, by version
		case "alias.test.": // Go names the end of the chain, or its middle, by which answer comes first
			if a := read(ours.LookupCNAME(ctx, name)); a.of != "a.test." {
				t.Errorf("CNAME of %q: %+v", name, a)
			}
		default:
			a, b := read(ours.LookupCNAME(ctx, name)), read(theirs.LookupCNAME(ctx, name))
			if !reflect.DeepEqual(a, b) {
				t.Errorf("CNAME of %q: %+v, Go %+v", name, a, b)
			}
		}
	}
	_, a, errA := ours.LookupSRV(ctx, "imap", "tcp", "srv.test.")
	_, b, errB := theirs.LookupSRV(ctx, "imap", "tcp", "srv.test.")
	if !reflect.DeepEqual(a, b) || errA != nil || errB != nil {
		t.Errorf("SRV: %v %v, Go %v %v", a, errA, b, errB)
	}
	for _, addr := range []string{"192.0.2.1", "192.0.2.9", "not an address"} {
		if a, b := read(ours.LookupAddr(ctx, addr)), read(theirs.LookupAddr(ctx, addr)); !reflect.DeepEqual(a, b) {
			t.Errorf("PTR of %s: %+v, Go %+v", addr, a, b)
		}
	}
}

// TestNamesThatNoHostHas: names that are invalid for hosts can be looked up too.
func TestNamesThatNoHostHas(t *testing.T) {
	f := newFakeServer(t, `bob+news._spf.test. 60 IN TXT "odd"`)
	c := newClient(t, Options{Servers: []string{f.addr}})
	if got, err := c.LookupTXT(t.Context(), "bob+news._spf.test"); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than one try
	defer cancel()
	for odd := range 256 {
		name := "a" + string([]byte{byte(odd)}) + "b=c._spf.test"
		var dnsErr *net.DNSError
		if _, err := c.LookupTXT(ctx, name); !errors.As(err, &dnsErr) || !dnsErr.IsNotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestResolversThatFail: the next resolver is queried, except when the answer was to be validated.
func TestResolversThatFail(t *testing.T) {
	bad, good := newFakeServer(t), newFakeServer(t, `a.test. 60 IN TXT "one"`)
	bad.rcode = dns.RcodeServerFailure
	c := newClient(t, Options{Servers: []string{bad.addr}})
	var dnsErr *net.DNSError
	if _, err := c.LookupTXT(t.Context(), "a.test"); !errors.As(err, &dnsErr) || !dnsErr.IsTemporary || dnsErr.IsNotFound {
		t.Errorf("of a resolver that fails: %v", err)
	}
	if n := bad.count("a.test. TXT"); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	c.servers = append(c.servers, &server{addr: good.addr})
	if got, err := c.LookupTXT(t.Context(), "a.test"); err != nil || len(got) != 1 {
		t.Errorf("of the next one: %q, %v", got, err)
	}
	if _, err := c.Ask(t.Context(), "a.test", dns.TypeTXT, true); err == nil {
		t.Error("an answer that may be bogus was asked for elsewhere")
	}
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	c = newClient(t, Options{Servers: []string{gone.LocalAddr().String()}})
	if _, err := c.LookupTXT(t.Context(), "a.test"); !errors.As(err, &dnsErr) || !dnsErr.IsTemporary {
		t.Errorf("where no resolver is: %v", err)
	}
}

// TestAnswersToOtherQuestions: they are ignored, and sockets are reused a limited number of times.
func TestAnswersToOtherQuestions(t *testing.T) {
	f := newFakeServer(t, `a.test. 0 IN TXT "one"`)
	f.liar = true
	c := newClient(t, Options{Servers: []string{f.addr}})
	for range 250 {
		if got, err := c.LookupTXT(t.Context(), "a.test"); err != nil || len(got) != 1 || got[0] != "one" {
			t.Fatal(got, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.udp)
	if n := len(slices.Compact(f.udp)); n < 3 || n > 50 { // more than three where the machine is busy, and an answer came late
		t.Errorf("250 questions came from %d sockets", n)
	}
}

func TestHostsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("127.0.0.1 localhost\n# no\n192.0.2.7\tRelay.example relay # ours\n2001:db8::7 relay\nbad line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Options{Servers: []string{"127.0.0.1:1"}})
	c.hosts = &hostsFile{path: file}
	for name, want := range map[string]string{"relay": "[192.0.2.7 2001:db8::7]", "relay.EXAMPLE.": "[192.0.2.7]", "localhost": "[127.0.0.1]"} {
		if got, err := c.LookupNetIP(t.Context(), "ip", name); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := c.LookupNetIP(t.Context(), "ip6", "relay"); err != nil || len(got) != 1 {
		t.Errorf("ip6: %v, %v", got, err)
	}
	h := &hostsFile{path: file + ".none"}
	if got := h.addresses("relay"); got != nil {
		t.Errorf("of no file: %v", got)
	}
}

// FuzzAnswer parses anything that a resolver may send.
func FuzzAnswer(f *testing.F) {
	m := new(dns.Msg).SetQuestion("a.test.", dns.TypeTXT)
	for _, line := range []string{`a.test. 60 IN CNAME b.test.`, `b.test. 60 IN TXT "x" "\\200"`, "b.test. 1 IN CNAME a.test."} {
		rr, err := dns.NewRR(line)
		if err != nil {
			f.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	seed, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, wire []byte) {
		m := new(dns.Msg)
		if m.Unpack(wire) != nil || len(m.Question) != 1 {
			return
		}
		if got := cacheLifetime(m, m.Question[0].Qtype); got < 0 || got > maxPositive {
			t.Errorf("kept for %s", got)
		}
		for _, rr := range recordsOf[*dns.TXT](m, dns.TypeTXT) {
			_ = unescaped(strings.Join(rr.Txt, ""))
		}
		recordsOf[dns.RR](m, dns.TypeA)
	})
}

func FuzzHosts(f *testing.F) {
	f.Add("127.0.0.1 a b # c\n::1 x")
	f.Fuzz(func(_ *testing.T, text string) { parseHosts(text) })
}
