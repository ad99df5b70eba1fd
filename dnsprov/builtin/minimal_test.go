package builtin

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

func wildZone(t testing.TB, key *Key) *Zone {
	t.Helper()
	z, err := NewZone("example.test", []dnsprov.Record{
		rec("*.example.test", "TXT", "wild"), rec("*.example.test", "A", "192.0.2.1"), rec("*.sub.example.test", "CNAME", "host.example.test"),
		rec("host.example.test", "A", "192.0.2.2"), rec("_x._tcp.example.test", "TXT", "deep"),
	}, Options{Nameservers: []string{"ns1.other.test"}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Wildcards answer only for names that do not exist (RFC 4592 section 2.2.1).
func TestWildcardsAnswer(t *testing.T) {
	key := testKey(t)
	for _, z := range []*Zone{wildZone(t, key), wildZone(t, nil)} {
		v := validator{key: key.public.record(z.apex), apex: z.apex, at: time.Now()}
		for _, tc := range []struct {
			name   string
			typ    uint16
			answer string // values
			closer string // shown not to exist
		}{
			{"foo.example.test.", dns.TypeTXT, "wild", "foo.example.test."},
			{"a.b.Foo.example.test.", dns.TypeA, "192.0.2.1", "foo.example.test."},
			{"*.example.test.", dns.TypeTXT, "wild", ""},
			{"foo.example.test.", dns.TypeAAAA, "", "foo.example.test."},
			{"host.example.test.", dns.TypeTXT, "", ""},
			{"_tcp.example.test.", dns.TypeTXT, "", ""},
			{"sub.example.test.", dns.TypeTXT, "", ""},
			{"x.sub.example.test.", dns.TypeA, "host.example.test. 192.0.2.2", "x.sub.example.test."},
			{"x.sub.example.test.", dns.TypeTXT, "host.example.test.", "x.sub.example.test."},
			{"x.host.example.test.", dns.TypeA, "NXDOMAIN", "x.host.example.test."},
			{"y._tcp.example.test.", dns.TypeTXT, "NXDOMAIN", "y._tcp.example.test."},
		} {
			m := z.Answer(question(tc.name, tc.typ))
			var got []string
			for _, rr := range m.Answer {
				if rr.Header().Rrtype == dns.TypeRRSIG {
					continue
				}
				fields := strings.Fields(rr.String())
				got = append(got, strings.Trim(fields[len(fields)-1], `"`))
				if len(got) == 1 && rr.Header().Name != tc.name {
					t.Errorf("%s: answered as %s", tc.name, rr.Header().Name)
				}
			}
			if m.Rcode == dns.RcodeNameError {
				got = append(got, "NXDOMAIN")
			}
			if strings.Join(got, " ") != tc.answer {
				t.Errorf("%s %s: %q, want %q", tc.name, dns.TypeToString[tc.typ], got, tc.answer)
			}
			if z.signing == nil {
				continue
			}
			for _, section := range [][]dns.RR{m.Answer, m.Ns} {
				sets, sigs := group(section)
				for id, set := range sets {
					if err := v.verify(id, set, sigs[id]); err != nil {
						t.Errorf("%s %s: %v", tc.name, dns.TypeToString[tc.typ], err)
					}
				}
			}
			if tc.closer != "" && !slices.ContainsFunc(nsecs(m), func(n *dns.NSEC) bool { return v.covers(n, tc.closer) }) {
				t.Errorf("%s %s: nothing shows that %s does not exist:\n%v", tc.name, dns.TypeToString[tc.typ], tc.closer, m)
			}
		}
	}
}

// Following NSEC records does not reveal the names of a zone.
func TestAZoneCannotBeWalked(t *testing.T) {
	key := testKey(t)
	var records []dnsprov.Record
	for i := range 50 {
		records = append(records, rec(fmt.Sprintf("secret%d.example.test", i), "TXT", "x"))
	}
	z, err := NewZone("example.test", records, Options{Nameservers: []string{"ns1.other.test"}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	ask := func(name string, typ uint16) (next string) {
		m := z.Answer(question(name, typ))
		if m == nil {
			return ""
		}
		for _, rr := range append(m.Answer, m.Ns...) {
			if n, ok := rr.(*dns.NSEC); ok {
				next = n.NextDomain
				seen[n.Hdr.Name], seen[n.NextDomain] = true, true
			}
		}
		return next
	}
	long := strings.Repeat("z", 63) + ".example.test."
	for _, start := range []string{"example.test.", "a.example.test.", "secres.example.test.", "*.example.test.", long, `\255.example.test.`,
		strings.Repeat(`\255`, 63) + ".example.test.", `\000.example.test.`, "secret.example.test.", strings.Repeat("a.", 120) + "example.test."} {
		for name, n := start, 0; name != "" && n < 200; n++ {
			ask(name, dns.TypeNSEC)
			ask(name, dns.TypeAAAA)
			name = ask(name, dns.TypeTXT)
		}
	}
	for name := range seen {
		if strings.HasPrefix(name, "secret") && !strings.HasPrefix(name, "secret.") && !strings.HasPrefix(name, `secret\000.`) {
			t.Errorf("%s was found", name)
		}
	}
	whole := 0 // secondaries get the chain
	for rr := range z.Transfer() {
		if n, ok := rr.(*dns.NSEC); ok && strings.HasPrefix(n.NextDomain, "secret") {
			whole++
		}
	}
	if whole != 50 {
		t.Errorf("a transfer leads to %d names", whole)
	}
}

// However many names are queried, a limited number of proofs is signed; existing names are always
// answered.
func TestLiesAreBounded(t *testing.T) {
	now := time.Now()
	z, err := NewZone("example.test", []dnsprov.Record{rec("www.example.test", "A", "192.0.2.1")},
		Options{Nameservers: []string{"ns1.other.test"}, Key: testKey(t), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(from, n int) (made int) {
		for i := range n {
			if z.Answer(question(fmt.Sprintf("n%d.example.test.", from+i), dns.TypeA)) != nil {
				made++
			}
		}
		return made
	}
	if made := ask(0, denialBurst+500); made != denialBurst {
		t.Errorf("%d names were signed for, want %d", made, denialBurst)
	}
	if z.Answer(question("www.example.test.", dns.TypeAAAA)) == nil || z.Answer(question("www.example.test.", dns.TypeA)) == nil {
		t.Error("a name that exists is not answered for")
	}
	if m := z.Answer(new(dns.Msg).SetQuestion("none.example.test.", dns.TypeA)); m == nil || m.Rcode != dns.RcodeNameError {
		t.Error("a question without DO is not answered")
	}
	now = now.Add(time.Second)
	if ask(10_000, denialsPerSecond+500) != denialsPerSecond {
		t.Error("the bound does not pass")
	}
	if n := len(z.denials.sets); n > maxCachedDenials {
		t.Errorf("%d are kept", n)
	}
}

// The names around a name are in order, and leave no room for other names.
func FuzzAround(f *testing.F) {
	f.Add([]byte("www"), []byte("wwx"))
	f.Add([]byte{0}, []byte{255})
	f.Add(bytes.Repeat([]byte{255}, 63), []byte("["))
	z := wildZone(f, testKey(f))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a) == 0 || len(b) == 0 || len(a) > 63 || len(b) > 63 {
			return
		}
		lower := func(label []byte) []byte { return bytes.ToLower(bytes.ToValidUTF8(label, []byte("?"))) }
		name := append([][]byte{lower(a)[:min(len(lower(a)), 63)]}, splitName(z.apex)...)
		other := joinName(append([][]byte{lower(b)[:min(len(lower(b)), 63)]}, splitName(z.apex)...))
		at := joinName(name)
		for _, before := range [][][]byte{shortPredecessor(name), immediatePredecessor(name)} {
			if freeBytes(before) < 0 || compareNames(joinName(before), at) >= 0 {
				t.Fatalf("%s is not before %s", joinName(before), at)
			}
		}
		behind := joinName(z.nameAfter(name))
		if behind != z.apex && (compareNames(behind, at) <= 0 || dns.IsSubDomain(at, behind)) {
			t.Fatalf("%s is not behind %s", behind, at)
		}
		if other != at && compareNames(other, joinName(immediatePredecessor(name))) > 0 && (behind == z.apex || compareNames(other, behind) < 0) {
			t.Fatalf("%s is between those around %s", other, at)
		}
	})
}
