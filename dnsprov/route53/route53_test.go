package route53_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
	"github.com/mailstead/mailstead/dnsprov/route53/route53test"
)

func own(name, typ, value string) dnsprov.Record {
	return dnsprov.Record{Name: strings.TrimPrefix(name+"."+testDomain, "."), Type: typ, Value: value, TTL: 3600, Purpose: dnsprov.PurposeCustom}
}

// bring reads, plans and applies once.
func bring(t *testing.T, p dnsprov.Provider, want ...dnsprov.Record) ([]dnsprov.Record, error) {
	t.Helper()
	have, err := p.Records(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	return p.Apply(t.Context(), place, dnsprov.Plan(have, want))
}

// must is bring, and fails the test on an error, or if a second plan is not empty.
func must(t *testing.T, p dnsprov.Provider, want ...dnsprov.Record) {
	t.Helper()
	if _, err := bring(t, p, want...); err != nil {
		t.Fatal(err)
	}
	have, err := p.Records(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range dnsprov.Plan(have, want) {
		t.Errorf("left to do: %s have %+v want %+v", c.Op, c.Have, c.Want)
	}
}

func TestTypes(t *testing.T) {
	api, c := start()
	mx, srv := own("mx", "MX", "mail.host.test"), own("_imaps._tcp", "SRV", "mail.host.test")
	mx.Priority, srv.Priority, srv.Weight, srv.Port = 10, 1, 2, 993
	want := []dnsprov.Record{
		mx, srv,
		own("a", "A", "192.0.2.1"), own("a", "AAAA", "2001:db8::1"), own("*.wild", "CNAME", "elsewhere.test"),
		own("t", "TXT", "one; \\ \"two\" é"), own("t", "TXT", strings.Repeat("0123456789", 400)), own("t", "TXT", `"\"quoted\""`),
		own("sub", "NS", "ns.elsewhere.test"), own("sub", "DS", "12345 13 2 "+strings.Repeat("0a", 32)),
		own("c", "CAA", `0 issue "ca.test; accounturi=https://ca.test/Acct"`), own("_25._tcp.c", "TLSA", "3 1 1 "+strings.Repeat("ab", 32)),
		own("c", "SSHFP", "4 2 "+strings.Repeat("ab", 32)), own("c", "HTTPS", `1 . alpn="h2,h3"`), own("_dns.c", "SVCB", `1 svc.elsewhere.test alpn="dot" port="853"`),
	}
	p := providertest.Remember(c)
	must(t, p, want...)
	if n := api.Count(http.MethodPost, ""); n != 1 {
		t.Errorf("%d requests made the records", n)
	}
	if sets := fmt.Sprint(api.Sets(testDomain)); !strings.Contains(sets, `\052.wild.example.com.`) || !strings.Contains(sets, `\303\251`) {
		t.Errorf("there is %s", sets)
	}
	must(t, p)
	if left := records(api, testDomain); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTTLs: a set of ours gets the TTL that is wanted, and one with others' values keeps its own.
func TestTTLs(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	short, long := own("", "TXT", "short"), own("", "TXT", "long")
	short.TTL, long.TTL = 5, 7200
	is := func(ttl, records int) {
		t.Helper()
		for _, s := range api.Sets(testDomain) {
			if s.Type == "TXT" && (*s.TTL != ttl || len(s.Values) != records) {
				t.Errorf("there is %v with TTL %d, want %d records and TTL %d", s.Values, *s.TTL, records, ttl)
			}
		}
	}
	must(t, p, long)
	is(7200, 1)
	must(t, p, short, long)
	is(5, 2)
	must(t, p, long)
	is(7200, 1)
	api.Put(testDomain, testDomain, "TXT", 5000, `"long"`, `"theirs \303\251"`)
	must(t, p, short, long)
	is(5000, 3)
	must(t, p)
	is(5000, 1)
}

// TestStrangers: aliases, sets with a routing policy, and what we would write otherwise are listed
// and stay.
func TestStrangers(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	api.PutSet(testDomain, route53test.Set{Name: testDomain, Type: "A", Alias: &route53test.Alias{HostedZoneID: "Z1", DNSName: "Site.cloudfront.test."}})
	weight, ttl := 1, 60
	for _, id := range []string{"one", "two"} {
		api.PutSet(testDomain, route53test.Set{Name: "w.example.com", Type: "TXT", TTL: &ttl, SetIdentifier: id, Weight: &weight, Values: []route53test.Value{{Text: `"` + id + `"`}}})
	}
	api.Put(testDomain, "t.example.com", "TXT", 60, `"a" "b"`, `"\\\134"`)
	before := fmt.Sprint(api.Sets(testDomain))
	have, err := c.Records(t.Context(), place)
	if err != nil || len(have) != 7 {
		t.Fatalf("%d records, %v", len(have), err)
	}
	for _, h := range have {
		if h.Purpose != "" || !h.SetTTL || h.Type == dnsprov.Flattened && h.Value != "site.cloudfront.test" || h.Type == "A" || h.ID != "" && h.Type == "TXT" && h.Value != `\\` {
			t.Errorf("%+v", h)
		}
	}
	mail := []dnsprov.Record{{Name: testDomain, Type: "AAAA", Value: "2001:db8::1", Purpose: dnsprov.PurposeA}, {Name: testDomain, Type: "MX", Value: "mail.test", Purpose: dnsprov.PurposeMX}}
	if _, err := dnsprov.Compatible(have, mail); !errors.As(err, new(*dnsprov.Conflict)) {
		t.Errorf("an address beside an alias: %v", err)
	}
	for _, want := range []dnsprov.Record{own("", "A", "192.0.2.1"), own("w", "TXT", "ours"), own("w", "CNAME", "ours.test")} {
		var conflict *dnsprov.Conflict
		if _, err := bring(t, p, want); !errors.As(err, &conflict) || conflict.Have.Name != want.Name {
			t.Errorf("%s %s: %v", want.Name, want.Type, err)
		}
	}
	must(t, p, own("t", "TXT", "ours"))
	must(t, p)
	if after := fmt.Sprint(records(api, testDomain)); len(fmt.Sprint(api.Sets(testDomain))) != len(before) && !strings.Contains(after, "ab") {
		t.Errorf("there is %v, was %s", api.Sets(testDomain), before)
	}
	if n := len(records(api, testDomain)); n != 4 {
		t.Errorf("%d records of others", n)
	}
}

func TestSwaps(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	alias, other, v4, text := own("www", "CNAME", "site.elsewhere.test"), own("www", "CNAME", "other.elsewhere.test"), own("www", "A", "192.0.2.1"), own("www", "TXT", "x")
	for n, want := range [][]dnsprov.Record{{v4}, {alias}, {other}, {v4, text}, {alias}, nil} {
		must(t, p, want...)
		if got := records(api, testDomain); len(got) != len(want) || api.Count(http.MethodPost, "") != n+1 {
			t.Errorf("there is %v, want %v, after %d requests", got, want, api.Count(http.MethodPost, ""))
		}
	}
}

// TestSomebodyElseIsFaster: what others change between the reading and the writing makes Apply
// change nothing, and the next attempt is right.
func TestSomebodyElseIsFaster(t *testing.T) {
	for _, tc := range []struct {
		name       string
		ours, want []dnsprov.Record
		typ        string
		ttl        int
		theirs     []string
	}{
		{"makes the set", nil, []dnsprov.Record{own("n", "TXT", "ours")}, "TXT", 60, []string{`"theirs"`}},
		{"makes the same", nil, []dnsprov.Record{own("n", "TXT", "ours")}, "TXT", 60, []string{`"ours"`}},
		{"makes an alias", nil, []dnsprov.Record{own("n", "TXT", "ours")}, "CNAME", 60, []string{"theirs.test."}},
		{"adds to the set", []dnsprov.Record{own("n", "TXT", "a")}, []dnsprov.Record{own("n", "TXT", "b")}, "TXT", 3600, []string{`"a"`, `"theirs"`}},
		{"adds before we delete", []dnsprov.Record{own("n", "TXT", "a")}, nil, "TXT", 3600, []string{`"a"`, `"theirs"`}},
		{"removes ours", []dnsprov.Record{own("n", "TXT", "a")}, nil, "TXT", 60, nil},
		{"changes the TTL", []dnsprov.Record{own("n", "TXT", "a")}, []dnsprov.Record{own("n", "TXT", "b")}, "TXT", 60, []string{`"a"`}},
		{"is there before our alias", []dnsprov.Record{own("n", "A", "192.0.2.1")}, []dnsprov.Record{own("n", "CNAME", "ours.test")}, "TXT", 60, []string{`"theirs"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, c := start()
			p := providertest.Remember(c)
			must(t, p, tc.ours...)
			have, err := p.Records(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			done := false
			api.Between = func(call resttest.Call) {
				if call.Method == http.MethodPost && !done {
					done = true
					api.Put(testDomain, "n.example.com", tc.typ, tc.ttl, tc.theirs...)
				}
			}
			made, err := p.Apply(t.Context(), place, dnsprov.Plan(have, tc.want))
			if !errors.Is(err, dnsprov.ErrChanged) || len(made) > 0 {
				t.Errorf("it made %v, %v", made, err)
			}
			for _, s := range api.Sets(testDomain) {
				if s.Name == "n.example.com." && s.Type == tc.typ && len(s.Values) != len(tc.theirs) {
					t.Errorf("there is %v, want %v", s.Values, tc.theirs)
				}
			}
		})
	}
}

// TestLostAnswers: a change whose answer is lost is sent again, which the API refuses; that it is
// made shows the next reading.
func TestLostAnswers(t *testing.T) {
	for _, kind := range []string{resttest.CutAfter, resttest.Endless} {
		api, c := start()
		p := providertest.Remember(c)
		api.Fail(resttest.Fault{Kind: kind, Method: http.MethodPost, Times: 3})
		if _, err := bring(t, p, own("", "TXT", "x")); err == nil {
			t.Errorf("%s: no error", kind)
		}
		api.Heal()
		must(t, p, own("", "TXT", "x"))
		must(t, p)
		if n := len(records(api, testDomain)); n != 0 {
			t.Errorf("%s: %d records are left", kind, n)
		}
	}
}

// TestOneRefusedRecord: what the API refuses does not keep the others from being written.
func TestOneRefusedRecord(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	bad := own("b", "LOC", "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m")
	bad.Value = "52 22 23.000 N 04 53 32.000 E -2m 0.00m 10000m 10m"
	made, err := bring(t, p, own("a", "TXT", "x"), bad, own("c", "TXT", "x"))
	var refused *dnsprov.Refused
	if !errors.As(err, &refused) || refused.Want.Type != "LOC" || len(made) != 2 && len(made) != 0 {
		t.Errorf("%v, made %v", err, made)
	}
	other := bad
	other.Name = "other." + testDomain
	_, err = bring(t, p, own("a", "TXT", "x"), bad, own("c", "TXT", "x"), other)
	if all, _ := err.(interface{ Unwrap() []error }); all == nil || len(all.Unwrap()) != 2 {
		t.Errorf("two are refused: %v", err)
	}
	large := own("large", "TXT", "")
	var want []dnsprov.Record
	for n := range 20 {
		large.Value = strings.Repeat(fmt.Sprint(n%10), 4000-n)
		want = append(want, large)
	}
	made, err = bring(t, p, append(want, own("a", "TXT", "y"))...)
	if !errors.As(err, &refused) || refused.Want.Name != large.Name || len(made) != 1 {
		t.Errorf("%v, made %d", err, len(made))
	}
	if n := len(records(api, testDomain)); n > 3 {
		t.Errorf("%d records", n)
	}
}

func TestKeys(t *testing.T) {
	for _, tc := range []struct {
		name, key, secret string
		change            func(*route53test.Server)
		check, apply      error
	}{
		{"all rights", testKey, testSecret, func(*route53test.Server) {}, nil, nil},
		{"unknown", "AKIAOTHER", testSecret, func(*route53test.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"another secret", testKey, "other-secret", func(*route53test.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"no secret", testKey, "two words", func(*route53test.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"reads only", testKey, testSecret, func(s *route53test.Server) { s.Denied = func(string) bool { return true } }, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"another zone only", testKey, testSecret, func(s *route53test.Server) {
			s.AddZone("zzz.test", false)
			s.Denied = func(zone string) bool { return zone != "zzz.test" }
		}, nil, dnsprov.ErrCredential},
		{"no zones", testKey, testSecret, func(s *route53test.Server) { s.RemoveZones() }, dnsprov.ErrZoneNotFound, dnsprov.ErrZoneNotFound},
		{"private zones", testKey, testSecret, func(s *route53test.Server) { s.RemoveZones(); s.AddZone(testDomain, true) }, dnsprov.ErrZoneNotFound, dnsprov.ErrZoneNotFound},
		{"two zones of a name", testKey, testSecret, func(s *route53test.Server) { s.AddZone(testDomain, false) }, nil, dnsprov.ErrZoneNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, _ := start(tc.change)
			c := client(api, tc.key, tc.secret)
			want := own("", "TXT", "x")
			_, apply := c.Apply(t.Context(), place, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}})
			for i, got := range []error{c.Check(t.Context()), apply} {
				if want := []error{tc.check, tc.apply}[i]; !errors.Is(got, want) || want == nil && got != nil {
					t.Errorf("step %d: %v, want %v", i, got, want)
				}
				if got != nil && strings.Contains(got.Error(), tc.secret) {
					t.Errorf("the secret is in %q", got)
				}
			}
		})
	}
}

func TestZones(t *testing.T) {
	api, c := start()
	api.AddZone("deep.example.com", false)
	api.AddZone("example.com.br", false)
	for domain, zone := range map[string]string{testDomain: testDomain, "a.b.example.com": testDomain, "x.deep.example.com": "deep.example.com"} {
		want := dnsprov.Record{Name: domain, Type: "TXT", Value: "in " + domain, TTL: 60, Purpose: dnsprov.PurposeCustom}
		if _, err := c.Apply(t.Context(), dnsprov.ZoneRef{Domain: domain}, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}}); err != nil {
			t.Error(err)
		}
		if !strings.Contains(fmt.Sprint(records(api, zone)), want.Value) {
			t.Errorf("%s has %v", zone, records(api, zone))
		}
	}
	have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "b.example.com"})
	if err != nil || len(have) != 1 || have[0].Name != "a.b.example.com" {
		t.Errorf("%v, %v", have, err)
	}
}

func TestTooManyRequests(t *testing.T) {
	for times, want := range map[int]time.Duration{1: 0, 9: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			api, c := start()
			api.Fail(resttest.Fault{Kind: resttest.TooMany, Method: http.MethodPost, Times: times})
			_, err := bring(t, c, own("", "TXT", "x"))
			var wait *dnsprov.Wait
			if errors.As(err, &wait) != (want > 0) || wait != nil && wait.For != want || wait == nil && err != nil {
				t.Errorf("%d times: %v", times, err)
			}
		})
	}
}

// TestManyRecords: requests keep to the bounds of the API, and a domain that is too large is an
// error.
func TestManyRecords(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	var want []dnsprov.Record
	for n := range 1500 {
		want = append(want, own(fmt.Sprint("n", n), "TXT", "v=DKIM1; k=rsa; p=0123456789"))
	}
	must(t, p, want...)
	if n := api.Count(http.MethodPost, ""); n != 2 {
		t.Errorf("%d requests", n)
	}
	must(t, p)
	if n := len(records(api, testDomain)); n != 0 {
		t.Errorf("%d records are left", n)
	}
	for n := range 11 {
		api.Put(testDomain, fmt.Sprintf("n%d.example.com", n), "TXT", 60, slices.Repeat([]string{`"x"`}, 1000)...)
	}
	if _, err := c.Records(t.Context(), place); err == nil || !strings.Contains(err.Error(), "10000") {
		t.Errorf("%v", err)
	}
}
