package dnsprov

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// zoneFile is a resolver with fixed answers, keyed "TYPE name". A missing name does not exist; for
// the value "SERVFAIL" the lookup fails.
type zoneFile map[string][]string

func (z zoneFile) find(ctx context.Context, typ, name string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	values := z[typ+" "+name]
	switch {
	case len(values) == 0:
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	case values[0] == "SERVFAIL":
		return nil, &net.DNSError{Err: "server misbehaving", Name: name, IsTemporary: true}
	}
	return values, nil
}

func (z zoneFile) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return z.find(ctx, "TXT", name)
}

func (z zoneFile) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	values, err := z.find(ctx, "MX", name)
	var out []*net.MX
	for _, v := range values {
		pref := uint16(10)
		if v[0] == '!' {
			pref, v = 20, v[1:]
		}
		out = append(out, &net.MX{Host: v, Pref: pref})
	}
	return out, err
}

func (z zoneFile) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	values, err := z.find(ctx, "NS", name)
	var out []*net.NS
	for _, v := range values {
		out = append(out, &net.NS{Host: v})
	}
	return out, err
}

func (z zoneFile) LookupNetIP(ctx context.Context, network, name string) ([]netip.Addr, error) {
	values, err := z.find(ctx, network, name)
	var out []netip.Addr
	for _, v := range values {
		out = append(out, netip.MustParseAddr(v))
	}
	return out, err
}

func (z zoneFile) LookupCNAME(ctx context.Context, name string) (string, error) {
	values, err := z.find(ctx, "CNAME", name)
	if err != nil {
		return "", err
	}
	return values[0], nil
}

func (z zoneFile) LookupSRV(ctx context.Context, _, _, name string) (string, []*net.SRV, error) {
	values, err := z.find(ctx, "SRV", name)
	var out []*net.SRV
	for _, v := range values {
		srv := &net.SRV{}
		if _, err := fmt.Sscan(v, &srv.Priority, &srv.Weight, &srv.Port, &srv.Target); err != nil {
			return "", nil, err
		}
		out = append(out, srv)
	}
	return "", out, err
}

func TestVerify(t *testing.T) {
	dkim := Record{Name: "s._domainkey.a.test", Type: "TXT", Value: "v=DKIM1; k=rsa; p=QUJD", Purpose: PurposeDKIM}
	ed := dkim
	ed.Value = "v=DKIM1; k=ed25519; p=QUJD"
	spf := Record{Name: "a.test", Type: "TXT", Value: "v=spf1 mx ip4:192.0.2.1 ip6:2001:db8::1 ~all", Purpose: PurposeSPF}
	dmarc := Record{Name: "_dmarc.a.test", Type: "TXT", Value: "v=DMARC1; p=reject", Purpose: PurposeDMARC}
	mx := Record{Name: "a.test", Type: "MX", Value: "mail.test", Priority: 10, Purpose: PurposeMX}
	ip := Record{Name: "a.test", Type: "A", Value: "192.0.2.1", Purpose: PurposeA}
	ip6 := Record{Name: "a.test", Type: "AAAA", Value: "2001:db8::1", Purpose: PurposeA}
	cname := Record{Name: "www.a.test", Type: "CNAME", Value: "a.test", Purpose: PurposeCustom}
	ns := Record{Name: "a.test", Type: "NS", Value: "ns1.test", Purpose: PurposeNS}
	const txt, key, dm = "TXT a.test.", "TXT s._domainkey.a.test.", "TXT _dmarc.a.test."
	for _, tc := range []struct {
		name   string
		want   Record
		there  zoneFile
		err    string
		actual string
	}{
		{"no SPF", spf, zoneFile{}, Missing, ""},
		{"other texts are no SPF", spf, zoneFile{txt: {"note", "v=spf10"}}, Missing, ""},
		{"SPF", spf, zoneFile{txt: {"note", spf.Value}}, "", spf.Value},
		{"owner's SPF with mx", spf, zoneFile{txt: {"V=SPF1 include:other.test +MX -all"}}, "", "V=SPF1 include:other.test +MX -all"},
		{"owner's SPF by network", spf, zoneFile{txt: {"v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 -all"}}, "", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 -all"},
		{"owner's SPF with half of our addresses", spf, zoneFile{txt: {"v=spf1 ip4:192.0.2.1 -all"}}, Mismatch, "v=spf1 ip4:192.0.2.1 -all"},
		{"SPF without us", spf, zoneFile{txt: {"v=spf1 include:other.test -all"}}, Mismatch, "v=spf1 include:other.test -all"},
		{"SPF that refuses us", spf, zoneFile{txt: {"v=spf1 -mx ~all"}}, Mismatch, "v=spf1 -mx ~all"},
		{"SPF that names us after all", spf, zoneFile{txt: {"v=spf1 -all mx"}}, Mismatch, "v=spf1 -all mx"},
		{"two SPF", spf, zoneFile{txt: {spf.Value, "v=spf1 -all"}}, MultipleSPF, spf.Value + ", v=spf1 -all"},
		{"SPF servfail", spf, zoneFile{txt: {"SERVFAIL"}}, LookupFailed, ""},
		{"no DKIM", dkim, zoneFile{}, Missing, ""},
		{"DKIM", dkim, zoneFile{key: {dkim.Value}}, "", dkim.Value},
		{"DKIM folded, in another order, without defaults", dkim, zoneFile{key: {"p=QU JD ; t=s"}}, "", "p=QU JD ; t=s"},
		{"DKIM with another key", dkim, zoneFile{key: {"v=DKIM1; k=rsa; p=REVG"}}, Mismatch, "v=DKIM1; k=rsa; p=REVG"},
		{"DKIM key in another case", dkim, zoneFile{key: {"v=DKIM1; k=rsa; p=qujd"}}, Mismatch, "v=DKIM1; k=rsa; p=qujd"},
		{"DKIM of another kind", ed, zoneFile{key: {"v=DKIM1; p=QUJD"}}, Mismatch, "v=DKIM1; p=QUJD"},
		{"DKIM twice", dkim, zoneFile{key: {dkim.Value, "v=DKIM1; p=REVG"}}, Mismatch, dkim.Value + ", v=DKIM1; p=REVG"},
		{"DKIM tag twice", dkim, zoneFile{key: {"v=DKIM1; p=QUJD; p=QUJD"}}, Mismatch, "v=DKIM1; p=QUJD; p=QUJD"},
		{"DKIM as CNAME to nothing", dkim, zoneFile{"CNAME s._domainkey.a.test.": {"s.other.test."}}, DKIMWrongType, "s.other.test"},
		{"DKIM as CNAME to another key", dkim, zoneFile{"CNAME s._domainkey.a.test.": {"s.other.test."}, key: {"p=REVG"}}, DKIMWrongType, "s.other.test"},
		{"DKIM as CNAME to our key", dkim, zoneFile{"CNAME s._domainkey.a.test.": {"s.other.test."}, key: {dkim.Value}}, "", dkim.Value},
		{"no DMARC", dmarc, zoneFile{dm: {"something"}}, Missing, ""},
		{"DMARC", dmarc, zoneFile{dm: {"v=DMARC1;p=Reject; rua=mailto:x@a.test"}}, "", "v=DMARC1;p=Reject; rua=mailto:x@a.test"},
		{"weaker DMARC", dmarc, zoneFile{dm: {"v=DMARC1; p=none"}}, Mismatch, "v=DMARC1; p=none"},
		{"DMARC twice", dmarc, zoneFile{dm: {dmarc.Value, dmarc.Value}}, Mismatch, dmarc.Value + ", " + dmarc.Value},
		{"MX", mx, zoneFile{"MX a.test.": {"Mail.test.", "!backup.test."}}, "", "10 mail.test, 20 backup.test"},
		{"MX priority", mx, zoneFile{"MX a.test.": {"!mail.test."}}, Mismatch, "20 mail.test"},
		{"another MX beside ours", mx, zoneFile{"MX a.test.": {"mail.test.", "other.test."}}, Mismatch, "10 mail.test, 10 other.test"},
		{"no MX", mx, zoneFile{}, Missing, ""},
		{"A", ip, zoneFile{"ip4 a.test.": {"192.0.2.1", "192.0.2.9"}}, "", "192.0.2.1, 192.0.2.9"},
		{"wrong A", ip, zoneFile{"ip4 a.test.": {"192.0.2.9"}}, Mismatch, "192.0.2.9"},
		{"AAAA", ip6, zoneFile{"ip6 a.test.": {"2001:0db8::1"}}, "", "2001:db8::1"},
		{"NS", ns, zoneFile{"NS a.test.": {"NS1.test."}}, "", "ns1.test"},
		{"CNAME", cname, zoneFile{"CNAME www.a.test.": {"A.test."}}, "", "a.test"},
		{"CNAME that is none", cname, zoneFile{"CNAME www.a.test.": {"www.a.test."}}, Missing, ""},
		{"wrong CNAME", cname, zoneFile{"CNAME www.a.test.": {"b.test."}}, Mismatch, "b.test"},
	} {
		got := Verify(t.Context(), tc.there, []Record{tc.want})[0]
		if got.Error != tc.err || got.Actual != tc.actual || got.Verified != (tc.err == "") || got.Record != tc.want {
			t.Errorf("%s: verified=%v error=%q actual=%q, want error=%q actual=%q", tc.name, got.Verified, got.Error, got.Actual, tc.err, tc.actual)
		}
	}
}

// One of a domain's addresses is enough, for example while it moves.
func TestVerifyTakesAnyAddressOfOurs(t *testing.T) {
	wanted := []Record{
		{Name: "a.test", Type: "A", Value: "192.0.2.1", Purpose: PurposeA},
		{Name: "a.test", Type: "A", Value: "192.0.2.2", Purpose: PurposeA},
	}
	for i, c := range Verify(t.Context(), zoneFile{"ip4 a.test.": {"192.0.2.2"}}, wanted) {
		if !c.Verified {
			t.Errorf("record %d: %q", i, c.Error)
		}
	}
}

// slowResolver does not answer before its context ends, and counts its queries.
type slowResolver struct {
	zoneFile
	now, most, total atomic.Int64
	mu               sync.Mutex
	wait             time.Duration
}

func (s *slowResolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	s.total.Add(1)
	now := s.now.Add(1)
	defer s.now.Add(-1)
	s.mu.Lock()
	s.most.Store(max(s.most.Load(), now))
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.wait):
		return []string{"x " + name}, nil
	}
}

func TestVerifyIsBoundedAndKeepsOrder(t *testing.T) {
	var wanted []Record
	for i := range 40 {
		name := string(rune('a'+i%20)) + ".test" // each name twice
		wanted = append(wanted, Record{Name: name, Type: "TXT", Value: "x " + name + ".", Purpose: PurposeCustom})
	}
	synctest.Test(t, func(t *testing.T) {
		r := &slowResolver{wait: time.Second}
		start := time.Now()
		checks := Verify(t.Context(), r, wanted)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("20 lookups of 1 s took %v, want 3 s, eight at a time", took)
		}
		if r.most.Load() != 8 || r.total.Load() != 20 {
			t.Errorf("%d at once, %d in all, want 8 and 20", r.most.Load(), r.total.Load())
		}
		for i, c := range checks {
			if c.Record != wanted[i] || !c.Verified {
				t.Errorf("check %d is %+v", i, c)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := &slowResolver{wait: time.Hour}
		start := time.Now()
		checks := Verify(t.Context(), r, wanted)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("a dead resolver held Verify for %v, want 10 s", took)
		}
		if slices.ContainsFunc(checks, func(c Check) bool { return c.Error != LookupFailed || c.Verified }) {
			t.Error("a dead resolver verified something")
		}
	})
}

func TestCheckDelegation(t *testing.T) {
	ours := []string{"ns1.host.test", "ns2.host.test"}
	for _, tc := range []struct {
		name     string
		there    []string
		current  []string
		verified bool
	}{
		{"all ours", []string{"NS2.host.test.", "ns1.host.test."}, []string{"ns1.host.test", "ns2.host.test"}, true},
		{"one of ours", []string{"ns2.host.test."}, []string{"ns2.host.test"}, true},
		{"ours and another", []string{"ns1.host.test.", "ns.other.test."}, []string{"ns.other.test", "ns1.host.test"}, false},
		{"another", []string{"ns.other.test."}, []string{"ns.other.test"}, false},
		{"none", nil, nil, false},
	} {
		d, err := CheckDelegation(t.Context(), zoneFile{"NS a.test.": tc.there}, "a.test", ours)
		if err != nil || d.Verified != tc.verified || !slices.Equal(d.Current, tc.current) || d.Current == nil {
			t.Errorf("%s: %+v, %v", tc.name, d, err)
		}
	}
	if d, err := CheckDelegation(t.Context(), zoneFile{"NS a.test.": {"SERVFAIL"}}, "a.test", ours); err == nil || d.Verified {
		t.Errorf("a failed lookup gave %+v, %v", d, err)
	}
}
