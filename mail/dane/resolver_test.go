package dane

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/lookup/lookuptest"
	"github.com/miekg/dns"
)

// zone is a resolver on loopback: by "name TYPE" the records in zone-file form; ad says whether
// DNSSEC vouches for them.
type zone struct {
	records map[string][]string
	bogus   map[string]bool
	ad      bool
	big     bool // its UDP answers do not fit
	asked   atomic.Int32
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.asked.Add(1)
	m := new(dns.Msg).SetReply(q)
	key := strings.ToLower(q.Question[0].Name) + " " + dns.TypeToString[q.Question[0].Qtype]
	opt := q.IsEdns0()
	m.AuthenticatedData = z.ad && opt != nil && opt.Do()
	lines, known := z.records[key]
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	switch _, udp := w.RemoteAddr().(*net.UDPAddr); {
	case z.bogus[key]:
		m.Rcode = dns.RcodeServerFailure
	case !known:
		m.Rcode = dns.RcodeNameError
	case z.big && udp:
		m.Answer, m.Truncated = nil, true
	}
	_ = w.WriteMsg(m)
}

func (z *zone) start(t *testing.T) *Resolver {
	t.Helper()
	pc, ln := lookuptest.SamePort(t)
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: z}, {Listener: ln, Handler: z}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	r, err := NewResolver(pc.LocalAddr().String(), false)
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	return r
}

var records = map[string][]string{
	"them.example. MX":               {"them.example. 60 IN MX 10 mx.them.example."},
	"mx.them.example. A":             {"mx.them.example. 60 IN CNAME real.them.example.", "real.them.example. 60 IN A 192.0.2.1"},
	"mx.them.example. AAAA":          {"mx.them.example. 60 IN CNAME real.them.example.", "real.them.example. 60 IN AAAA 2001:db8::1"},
	"_25._tcp.mx.them.example. TLSA": {"_25._tcp.mx.them.example. 60 IN TLSA 3 1 1 " + strings.Repeat("ab", 32), "other.example. 60 IN TLSA 3 1 1 " + strings.Repeat("cd", 32)},
}

func TestLookups(t *testing.T) {
	for _, z := range []*zone{{records: records, ad: true}, {records: records}, {records: records, ad: true, big: true}} {
		r := z.start(t)
		mx, secure, err := r.LookupMX(t.Context(), "them.example")
		if err != nil || secure != z.ad || len(mx) != 1 || mx[0].Host != "mx.them.example." {
			t.Errorf("MX %v, %v, %v", mx, secure, err)
		}
		addrs, a, err := r.LookupHost(t.Context(), "mx.them.example")
		if err != nil || a.Secure != z.ad || a.Name != "real.them.example" || fmt.Sprint(addrs) != "[192.0.2.1 2001:db8::1]" {
			t.Errorf("host %v, %+v, %v", addrs, a, err)
		}
		tlsa, secure, err := r.LookupTLSA(t.Context(), "mx.them.example", 25)
		if err != nil || secure != z.ad || len(tlsa) != 1 || !tlsa[0].Usable() {
			t.Errorf("TLSA %v, %v, %v", tlsa, secure, err)
		}
		if mx, secure, err := r.LookupMX(t.Context(), "none.example"); err != nil || len(mx) != 0 || secure != z.ad {
			t.Errorf("no MX: %v, %v, %v", mx, secure, err)
		}
	}
}

// TestBestMXIsKept bounds the MX records of a name only after they are in their order.
func TestBestMXIsKept(t *testing.T) {
	z := &zone{records: map[string][]string{}, ad: true, big: true}
	const key = "many.example. MX"
	for i := range maxRecords {
		z.records[key] = append(z.records[key], fmt.Sprintf("many.example. 60 IN MX 20 worse%d.example.", i))
	}
	z.records[key] = append(z.records[key], "many.example. 60 IN MX 10 best.example.")
	mx, _, err := z.start(t).LookupMX(t.Context(), "many.example")
	if err != nil || len(mx) != maxRecords || mx[0].Host != "best.example." || mx[0].Pref != 10 {
		t.Errorf("%d records, %v, %v", len(mx), mx, err)
	}
}

func TestBogusAnswersAreFailures(t *testing.T) {
	z := &zone{records: records, ad: true, bogus: map[string]bool{"_25._tcp.mx.them.example. TLSA": true}}
	r := z.start(t)
	if tlsa, _, err := r.LookupTLSA(t.Context(), "mx.them.example", 25); !errors.Is(err, ErrLookup) || z.asked.Load() != 1 {
		t.Errorf("%v, %v after %d questions", tlsa, err, z.asked.Load())
	}
	r = &Resolver{Servers: append(r.Servers, (&zone{records: records}).start(t).Servers...)}
	if tlsa, _, err := r.LookupTLSA(t.Context(), "mx.them.example", 25); !errors.Is(err, ErrLookup) {
		t.Errorf("a server that does not validate is asked next: %v, %v", tlsa, err)
	}
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	r = &Resolver{Servers: append([]string{dead.LocalAddr().String()}, (&zone{records: records, ad: true}).start(t).Servers...)}
	if tlsa, secure, err := r.LookupTLSA(t.Context(), "mx.them.example", 25); err != nil || !secure || len(tlsa) != 1 {
		t.Errorf("the server after a dead one: %v, %v, %v", tlsa, secure, err)
	}
}

func TestOnlyTrustedResolversAreBelieved(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.53": true, "127.0.0.1:5353": true, "[::1]:53": true, "192.0.2.1:53": false, "dns.example:53": false, "::1": true} {
		r, err := NewResolver(addr, false)
		if err != nil || (r != nil) != want {
			t.Errorf("%s: %v, %v", addr, r, err)
		}
		if r, err := NewResolver(addr, true); err != nil || r == nil {
			t.Errorf("%s, trusted: %v, %v", addr, r, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	m := new(dns.Msg).SetQuestion("mx.them.example.", dns.TypeA)
	for _, line := range records["mx.them.example. A"] {
		rr, err := dns.NewRR(line)
		if err != nil {
			f.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	raw, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := new(dns.Msg)
		if m.Unpack(raw) != nil || len(m.Question) != 1 {
			return
		}
		if a := recordsIn(m, m.Question[0].Qtype); len(a.rrs) > maxRecords || len(a.rrs) > len(m.Answer) {
			t.Errorf("%d records", len(a.rrs))
		}
	})
}
