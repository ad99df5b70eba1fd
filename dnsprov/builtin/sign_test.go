package builtin

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// testKey returns a key, with the data that it was made from.
func testKey(t testing.TB) *Key {
	t.Helper()
	private, public, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return NewKey(public, func() ([]byte, error) { return private, nil })
}

// signedRecords has names with gaps between them, aliases, a long text and services.
func signedRecords() []dnsprov.Record {
	mx := rec("example.test", "MX", "mail.example.test")
	mx.Priority = 10
	srv := rec("_imaps._tcp.example.test", "SRV", "mail.example.test")
	srv.Priority, srv.Weight, srv.Port = 1, 2, 993
	return []dnsprov.Record{
		mx, srv,
		rec("example.test", "A", "192.0.2.1"),
		rec("example.test", "TXT", "v=spf1 mx ~all"),
		rec("example.test", "TXT", "another"),
		rec("example.test", "CAA", `0 issue "ca.example"`),
		rec("ns1.example.test", "A", "192.0.2.2"),
		rec("mail.example.test", "A", "192.0.2.3"),
		rec("mail.example.test", "AAAA", "2001:db8::3"),
		rec("s._domainkey.example.test", "TXT", "v=DKIM1; p="+strings.Repeat("QUJD", 300)),
		rec("www.example.test", "CNAME", "mail.example.test"),
		rec("gone.example.test", "CNAME", "nothing.deep.example.test"),
		rec("empty.example.test", "CNAME", "_domainkey.example.test"),
		rec("out.example.test", "CNAME", "elsewhere.test"),
		rec("a.b.c.example.test", "A", "192.0.2.4"),
	}
}

func signedZone(t testing.TB, o Options, more ...dnsprov.Record) *Zone {
	t.Helper()
	o.Nameservers, o.Hostmaster = testOptions().Nameservers, testOptions().Hostmaster
	z, err := NewZone("example.test", append(signedRecords(), more...), o)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// question returns a query with the DO bit.
func question(name string, typ uint16) *dns.Msg {
	q := new(dns.Msg).SetQuestion(name, typ)
	return q.SetEdns0(dns.DefaultMsgSize, true)
}

// prove queries a zone with proofs, sends the answer over the wire, and validates all of it.
func prove(t testing.TB, z *Zone, key PublicKey, at time.Time, name string, typ uint16) *dns.Msg {
	t.Helper()
	q := question(name, typ)
	m := z.Answer(q)
	if m == nil {
		t.Fatalf("%s %s: no answer", name, dns.TypeToString[typ])
	}
	m.Compress = true
	wire, err := m.Pack()
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[typ], err)
	}
	if err := m.Unpack(wire); err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[typ], err)
	}
	v := validator{key: key.record(z.apex), apex: z.apex, at: at}
	if err := v.validate(m); err != nil {
		t.Fatalf("%s %s: %v\n%v", name, dns.TypeToString[typ], err, m)
	}
	return m
}

func TestSignedAnswersValidate(t *testing.T) {
	key := testKey(t)
	z := signedZone(t, Options{Key: key})
	for _, tc := range []struct {
		name  string
		typ   uint16
		rcode int
		want  string // types of the sections
	}{
		{"example.test.", dns.TypeMX, 0, "MX RRSIG | | A RRSIG AAAA RRSIG"},
		{"example.test.", dns.TypeTXT, 0, "TXT TXT RRSIG | | "},
		{"example.test.", dns.TypeSOA, 0, "SOA RRSIG | | "},
		{"example.test.", dns.TypeNS, 0, "NS NS RRSIG | | A RRSIG"},
		{"example.test.", dns.TypeCAA, 0, "CAA RRSIG | | "},
		{"example.test.", dns.TypeDNSKEY, 0, "DNSKEY RRSIG | | "},
		{"example.test.", dns.TypeNSEC, 0, "NSEC RRSIG | | "},
		{"example.test.", dns.TypeDS, 0, " | SOA RRSIG NSEC RRSIG | "},
		{"example.test.", dns.TypeAAAA, 0, " | SOA RRSIG NSEC RRSIG | "},
		{"example.test.", dns.TypeANY, 0, "MX RRSIG | | A RRSIG AAAA RRSIG"},
		{"mail.example.test.", dns.TypeRRSIG, 0, "RRSIG RRSIG RRSIG | | "},
		{"_imaps._tcp.example.test.", dns.TypeSRV, 0, "SRV RRSIG | | A RRSIG AAAA RRSIG"},
		{"_tcp.example.test.", dns.TypeSRV, 0, " | SOA RRSIG NSEC RRSIG | "},
		{"_domainkey.example.test.", dns.TypeTXT, 0, " | SOA RRSIG NSEC RRSIG | "},
		{"_domainkey.example.test.", dns.TypeANY, 0, " | SOA RRSIG NSEC RRSIG | "},
		{"_domainkey.example.test.", dns.TypeRRSIG, 0, "RRSIG | | "},
		{"_domainkey.example.test.", dns.TypeNSEC, 0, "NSEC RRSIG | | "},
		{"c.example.test.", dns.TypeA, 0, " | SOA RRSIG NSEC RRSIG | "},
		{"www.example.test.", dns.TypeA, 0, "CNAME RRSIG A RRSIG | | "},
		{"www.example.test.", dns.TypeNSEC, 0, "NSEC RRSIG | | "},
		{"www.example.test.", dns.TypeANY, 0, "CNAME RRSIG | | "},
		{"www.example.test.", dns.TypeTXT, 0, "CNAME RRSIG | SOA RRSIG NSEC RRSIG | "},
		{"empty.example.test.", dns.TypeTXT, 0, "CNAME RRSIG | SOA RRSIG NSEC RRSIG | "},
		{"out.example.test.", dns.TypeTXT, 0, "CNAME RRSIG | | "},
		{"gone.example.test.", dns.TypeTXT, dns.RcodeNameError, "CNAME RRSIG | SOA RRSIG NSEC RRSIG NSEC RRSIG | "},
		{"no.example.test.", dns.TypeA, dns.RcodeNameError, "| SOA RRSIG NSEC RRSIG NSEC RRSIG |"},
		{"zzz.example.test.", dns.TypeA, dns.RcodeNameError, "| SOA RRSIG NSEC RRSIG NSEC RRSIG |"}, // after the last name
		{"!.example.test.", dns.TypeA, dns.RcodeNameError, "| SOA RRSIG NSEC RRSIG NSEC RRSIG |"},
		{"x.b.c.example.test.", dns.TypeA, dns.RcodeNameError, "| SOA RRSIG NSEC RRSIG NSEC RRSIG |"},
		{"X.MAIL.example.TEST.", dns.TypeA, dns.RcodeNameError, "| SOA RRSIG NSEC RRSIG NSEC RRSIG |"},
		{"WwW.eXample.tEst.", dns.TypeAAAA, 0, "CNAME RRSIG AAAA RRSIG | | "},
		{"*.example.test.", dns.TypeA, dns.RcodeNameError, "| SOA RRSIG NSEC RRSIG |"},
	} {
		m := prove(t, z, key.public, time.Now(), tc.name, tc.typ)
		types := func(rrs []dns.RR) string {
			var out []string
			for _, rr := range rrs {
				if rr.Header().Rrtype != dns.TypeOPT {
					out = append(out, dns.TypeToString[rr.Header().Rrtype])
				}
			}
			return strings.Join(out, " ")
		}
		got := types(m.Answer) + " | " + types(m.Ns) + " | " + types(m.Extra)
		if m.Rcode != tc.rcode || strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(tc.want), " ") || !m.Authoritative {
			t.Errorf("%s %s: %s %s\nwant %s\n%v", tc.name, dns.TypeToString[tc.typ], dns.RcodeToString[m.Rcode], got, tc.want, m)
		}
		if len(m.Answer) > 0 && m.Answer[0].Header().Name != tc.name {
			t.Errorf("%s is answered as %s", tc.name, m.Answer[0].Header().Name)
		}
	}
}

func TestSignaturesOnlyForWhoAsks(t *testing.T) {
	signed, plain := signedZone(t, Options{Key: testKey(t)}), signedZone(t, Options{})
	for _, name := range []string{"example.test.", "www.example.test.", "no.example.test.", "_domainkey.example.test.", "EXAMPLE.test."} {
		for _, typ := range []uint16{dns.TypeMX, dns.TypeA, dns.TypeTXT, dns.TypeANY, dns.TypeSOA} {
			_, want := ask(t, plain, name, typ)
			if _, got := ask(t, signed, name, typ); got != want {
				t.Errorf("%s %s\n got %s\nwant %s", name, dns.TypeToString[typ], got, want)
			}
		}
	}
	if m := plain.Answer(question("no.example.test.", dns.TypeA)); len(m.Ns) != 1 {
		t.Errorf("a zone without a key answers %v", m)
	}
}

func TestDelegations(t *testing.T) {
	key, below := testKey(t), testKey(t)
	z := signedZone(t, Options{Key: key, Delegations: []Delegation{
		{Name: "sub.example.test", Nameservers: []string{"ns1.example.test"}, Key: below.public},
		{Name: "plain.example.test", Nameservers: []string{"ns1.example.test"}},
		{Name: "mail.example.test", Nameservers: []string{"ns1.example.test"}},
	}}, rec("x.sub.example.test", "A", "192.0.2.66"), rec("into.example.test", "CNAME", "x.sub.example.test"))
	for _, tc := range []struct {
		name string
		typ  uint16
		want string
	}{
		{"sub.example.test.", dns.TypeA, "NOERROR | | NS DS RRSIG | A"},
		{"x.sub.example.test.", dns.TypeDS, "NOERROR | | NS DS RRSIG | A"},
		{"x.plain.example.test.", dns.TypeA, "NOERROR | | NS NSEC RRSIG | A"},
		{"sub.example.test.", dns.TypeDS, "NOERROR | DS RRSIG | | "},
		{"plain.example.test.", dns.TypeDS, "NOERROR | | SOA RRSIG NSEC RRSIG | "},
		{"into.example.test.", dns.TypeA, "NOERROR | CNAME RRSIG | | "},
		{"example.test.", dns.TypeMX, "NOERROR | MX RRSIG | | "}, // the host is in another zone now
		{"t.example.test.", dns.TypeA, "NXDOMAIN | | SOA RRSIG NSEC RRSIG NSEC RRSIG | "},
	} {
		m := z.Answer(question(tc.name, tc.typ))
		got := dns.RcodeToString[m.Rcode]
		for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
			got += " |"
			for _, rr := range section {
				got += " " + dns.TypeToString[rr.Header().Rrtype]
			}
		}
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(tc.want), " ") {
			t.Errorf("%s %s: %s\nwant %s\n%v", tc.name, dns.TypeToString[tc.typ], got, tc.want, m)
		}
		if m.Authoritative != !strings.Contains(tc.want, "NS DS") && !strings.Contains(tc.want, "NS NSEC") {
			t.Errorf("%s %s: authoritative %v", tc.name, dns.TypeToString[tc.typ], m.Authoritative)
		}
	}
	ds := z.Answer(question("sub.example.test.", dns.TypeDS)).Answer[0].(*dns.DS)
	if want := below.public.DS("sub.example.test"); ds.Digest != want.Digest || ds.KeyTag != want.KeyTag {
		t.Errorf("DS %v, want %v", ds, want)
	}
	for _, d := range []Delegation{{Name: "example.test", Nameservers: []string{"a.test"}}, {Name: "other.test", Nameservers: []string{"a.test"}}, {Name: "s.example.test"}} {
		if _, err := NewZone("example.test", nil, Options{Nameservers: []string{"a.test"}, Delegations: []Delegation{d}}); err == nil {
			t.Errorf("%v was taken", d)
		}
	}
}

// Over months, every signature in an answer is valid for long enough, and signatures are reused.
func TestSignaturesAreRenewedInTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	key := testKey(t)
	z := signedZone(t, Options{Key: key, Now: func() time.Time { return now }})
	made := map[uint32]bool{}
	const days = 90
	for range days * 4 {
		m := prove(t, z, key.public, now, "example.test.", dns.TypeMX)
		sig := m.Answer[1].(*dns.RRSIG)
		made[sig.Inception] = true
		if left := time.Unix(int64(sig.Expiration), 0).Sub(now); left < 6*24*time.Hour {
			t.Fatalf("a signature with %v left was given out", left)
		}
		if since := now.Sub(time.Unix(int64(sig.Inception), 0)); since < time.Hour {
			t.Fatalf("a signature is valid since %v only", since)
		}
		now = now.Add(6 * time.Hour)
	}
	if len(made) < days/8 || len(made) > days/6+1 {
		t.Errorf("%d signatures in %d days", len(made), days)
	}
	now = now.Add(-60 * 24 * time.Hour) // the clock was wrong
	prove(t, z, key.public, now, "example.test.", dns.TypeMX)
}

// Whatever is queried, nothing is signed apart from the zone's sets and a limited number of proofs.
func TestAFloodOfNamesMakesNoSignatures(t *testing.T) {
	opened, public := 0, PublicKey(nil)
	private, public, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	z := signedZone(t, Options{Key: NewKey(public, func() ([]byte, error) { opened++; return private, nil })})
	sets := 0
	for _, n := range z.nodes {
		sets += len(n.sets)
	}
	made := map[*signature]bool{}
	for i := range 2000 {
		name := strings.Repeat(string(rune('a'+i%26)), 1+i%40) + "." + signedRecords()[i%len(signedRecords())].Name + "."
		for _, typ := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeRRSIG, dns.TypeANY, dns.TypeNSEC} {
			z.Answer(question(name, typ))
		}
		for _, n := range z.nodes {
			for _, set := range n.sets {
				if sig := set.signature.Load(); sig != nil {
					made[sig] = true
				}
			}
		}
	}
	if len(made) == 0 || len(made) > sets || opened != 1 {
		t.Errorf("%d signatures over %d sets, the key was opened %d times", len(made), sets, opened)
	}
}

func TestManyAskAtOnce(t *testing.T) {
	key := testKey(t)
	z := signedZone(t, Options{Key: key})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, r := range signedRecords() {
				m := z.Answer(question("x."+r.Name+".", dns.TypeA))
				if m == nil || len(m.Ns) < 4 {
					t.Errorf("%s: %v", r.Name, m)
				}
			}
			for range z.Transfer() {
			}
		})
	}
	wg.Wait()
	for _, n := range z.nodes {
		for _, set := range n.sets {
			if set.signature.Load() == nil {
				t.Errorf("%v was never signed, not even for a transfer", set.rrs)
			}
		}
	}
}

// Unchanged sets keep their signatures, and only those.
func TestSignaturesAreTakenOver(t *testing.T) {
	key := testKey(t)
	var zones Zones
	put := func(key *Key, serial uint32, more ...dnsprov.Record) *Zone {
		z := signedZone(t, Options{Key: key, Serial: serial}, more...)
		zones.Put(z)
		return z
	}
	signatures := func(z *Zone) map[string]*signature {
		out := map[string]*signature{}
		for name, n := range z.nodes {
			for _, set := range n.sets {
				if sig := set.signature.Load(); sig != nil {
					out[name+" "+dns.TypeToString[set.typ]] = sig
				}
			}
		}
		return out
	}
	first := put(key, 1)
	for range first.Transfer() {
	}
	had := signatures(first)
	second := put(key, 2, rec("new.example.test", "A", "192.0.2.5"), rec("example.test", "TXT", "a third"))
	has := signatures(second)
	var lost []string
	for name, sig := range had {
		switch has[name] {
		case nil:
			lost = append(lost, name)
		case sig:
		default:
			t.Errorf("%s has another signature", name)
		}
	}
	slices.Sort(lost)
	if want := []string{"example.test. SOA", "example.test. TXT", "mail.example.test. NSEC"}; !slices.Equal(lost, want) {
		t.Errorf("signed anew: %q, want %q", lost, want)
	}
	for _, name := range []string{"example.test.", "mail.example.test.", "new.example.test."} {
		for _, typ := range []uint16{dns.TypeTXT, dns.TypeA, dns.TypeNSEC, dns.TypeSOA} {
			prove(t, second, key.public, time.Now(), name, typ)
		}
	}
	if got := signatures(put(testKey(t), 3)); len(got) != 0 {
		t.Errorf("another key took over %d signatures", len(got))
	}
	if got := signatures(put(nil, 4)); len(got) != 0 {
		t.Errorf("a zone without a key took over %d signatures", len(got))
	}
	put(key, 5)
}

func TestAKeyThatDoesNotOpen(t *testing.T) {
	_, public, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() ([]byte, error){
		"an error":        func() ([]byte, error) { return nil, errors.New("sealed") },
		"nonsense":        func() ([]byte, error) { return []byte("nonsense"), nil },
		"another's half":  func() ([]byte, error) { return other, nil },
		"nothing at all ": func() ([]byte, error) { return nil, nil },
	} {
		z := signedZone(t, Options{Key: NewKey(public, open)})
		for _, q := range []*dns.Msg{question("example.test.", dns.TypeMX), question("no.example.test.", dns.TypeA), question("mail.example.test.", dns.TypeRRSIG)} {
			if m := z.Answer(q); m != nil {
				t.Errorf("%s: an unsigned answer %v", name, m)
			}
		}
		if m, _ := ask(t, z, "example.test.", dns.TypeMX); len(m.Answer) != 1 {
			t.Errorf("%s: who wants no signature gets %v", name, m)
		}
		if n := len(slices.Collect(z.Transfer())); n != 0 {
			t.Errorf("%s: %d records of a transfer", name, n)
		}
	}
}

func TestTransfer(t *testing.T) {
	now := time.Now()
	key, below := testKey(t), testKey(t)
	o := Options{Key: key, Serial: 9, Now: func() time.Time { return now }, Delegations: []Delegation{
		{Name: "sub.example.test", Nameservers: []string{"ns1.example.test"}, Key: below.public},
	}}
	for _, tc := range []struct {
		o      Options
		signed bool
	}{{o, true}, {Options{Serial: 9}, false}} {
		z := signedZone(t, tc.o)
		now = now.Add(5 * 24 * time.Hour) // signatures that were made before have not enough left
		all := slices.Collect(z.Transfer())
		if z.Serial() != 9 || all[0].(*dns.SOA).Serial != 9 || !dns.IsDuplicate(all[0], all[len(all)-1]) {
			t.Errorf("begins with %v, ends with %v", all[0], all[len(all)-1])
		}
		all = all[:len(all)-1]
		v := validator{key: key.public.record(z.apex), apex: z.apex, at: now.Add(10 * 24 * time.Hour)}
		sets, sigs := group(all)
		for id, set := range sets {
			if id.typ == dns.TypeNS && id.name == "sub.example.test." {
				if len(sigs[id]) != 0 {
					t.Error("a delegation is signed")
				}
				continue
			}
			if err := v.verify(id, set, sigs[id]); (err == nil) != tc.signed {
				t.Errorf("%v: %v", id, err)
			}
		}
		if want := 18; !tc.signed && len(all) != want {
			t.Errorf("%d records, want %d", len(all), want)
		}
		if n := len(slices.Collect(func(yield func(dns.RR) bool) {
			for rr := range z.Transfer() {
				if !yield(rr) || rr.Header().Rrtype == dns.TypeMX {
					return
				}
			}
		})); n == 0 || n >= len(all) {
			t.Errorf("a transfer that is broken off gave %d records", n)
		}
	}
}

func TestPublicKeyAsText(t *testing.T) {
	// The example of RFC 6605 section 6.1.
	rr, err := dns.NewRR("example.net. 3600 IN DNSKEY 257 3 13 GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA==")
	if err != nil {
		t.Fatal(err)
	}
	z, err := NewZone("example.net", nil, Options{Nameservers: []string{"ns.test"}})
	if err != nil {
		t.Fatal(err)
	}
	public := make(PublicKey, 64)
	wire := make([]byte, 512)
	n, err := dns.PackRR(rr, wire, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	copy(public, wire[n-64:n])
	if got := public.DS(z.Origin).String(); got != "55648 13 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17" {
		t.Errorf("DS %s", got)
	}
	if got := public.String(); !strings.HasSuffix(strings.Join(strings.Fields(rr.String()), " "), got) || public.Tag() != 55648 {
		t.Errorf("DNSKEY %s, tag %d", got, public.Tag())
	}
}

func BenchmarkSignedAnswer(b *testing.B) {
	z := signedZone(b, Options{Key: testKey(b)})
	for name, q := range map[string]*dns.Msg{
		"MX": question("example.test.", dns.TypeMX), "TXT": question("example.test.", dns.TypeTXT),
		"NXDOMAIN": question("no.example.test.", dns.TypeA), "unsigned": new(dns.Msg).SetQuestion("example.test.", dns.TypeMX),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					z.Answer(q)
				}
			})
		})
	}
}

// Measures the cost of each signature for the first queries to a zone.
func BenchmarkSignZone(b *testing.B) {
	key := testKey(b)
	sets := 0
	for b.Loop() {
		z := signedZone(b, Options{Key: key})
		sets = 0
		for rr := range z.Transfer() {
			if rr.Header().Rrtype == dns.TypeRRSIG {
				sets++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sets), "ns/signature")
}
