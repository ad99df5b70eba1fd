package desec_test

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
	"github.com/mailstead/mailstead/dnsprov/desec/desectest"
	"github.com/mailstead/mailstead/dnsprov/providertest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
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
	must(t, p)
	if left := records(api, testDomain); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTTLs: a shorter TTL than deSEC permits becomes the shortest that it does, and is not wanted
// again and again. A set with others' values keeps its TTL.
func TestTTLs(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	short, long := own("", "TXT", "short"), own("", "TXT", "long")
	short.TTL, long.TTL = 60, 7200
	is := func(ttl, records int) {
		t.Helper()
		for _, s := range api.Sets(testDomain) {
			if s.Type == "TXT" && (s.TTL != ttl || len(s.Records) != records) {
				t.Errorf("there is %+v, want %d records and TTL %d", s, records, ttl)
			}
		}
	}
	must(t, p, long)
	is(7200, 1)
	must(t, p, short, long)
	is(desectest.MinimumTTL, 2)
	must(t, p, long)
	is(7200, 1)
	api.Put(testDomain, "", "TXT", 5000, `"long"`, `"theirs"`)
	must(t, p, short, long)
	is(5000, 3)
}

// TestStrangers: what we cannot read, and what we would write otherwise, is listed and stays, also
// in a set of ours.
func TestStrangers(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	api.Put(testDomain, "", "TXT", 3600, `"v=spf1" " -all"`, `"\"ours\""`)
	api.Put(testDomain, "", "LOC", 3600, "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m")
	api.Put(testDomain, "new", "NEWTYPE", 3600, "a b c")
	before := fmt.Sprint(api.Sets(testDomain))
	have, err := c.Records(t.Context(), place)
	if err != nil || len(have) != 6 {
		t.Fatalf("%d records, %v", len(have), err)
	}
	for _, h := range have {
		if h.Purpose != "" || h.LeastTTL != desectest.MinimumTTL || !h.SetTTL || (h.Type == "NEWTYPE" || h.Type == "TXT" && h.Value != `"\"ours\""`) && h.ID != "" {
			t.Errorf("%+v", h)
		}
	}
	must(t, p, own("", "TXT", "ours"), own("new", "TXT", "ours"))
	must(t, p)
	if after := fmt.Sprint(api.Sets(testDomain)); len(after) != len(before) || !strings.Contains(after, `"v=spf1" " -all" "\"ours\""`) {
		t.Errorf("there is\n%s, was\n%s", after, before)
	}
}

// TestSwaps: an alias takes the place of other records of ours in one request, and the other way
// round.
func TestSwaps(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	alias, v4, text := own("www", "CNAME", "site.elsewhere.test"), own("www", "A", "192.0.2.1"), own("www", "TXT", "x")
	for _, want := range [][]dnsprov.Record{{v4}, {alias}, {v4, text}, {alias}, nil} {
		before := api.Count("", "") - api.Count(http.MethodGet, "")
		must(t, p, want...)
		if n := api.Count("", "") - api.Count(http.MethodGet, "") - before; n != 1 {
			t.Errorf("%d writing requests", n)
		}
		if got := records(api, testDomain); len(got) != len(want) {
			t.Errorf("there is %v, want %v", got, want)
		}
	}
}

func TestAliasesOfOthers(t *testing.T) {
	api, c := start()
	api.Put(testDomain, "a", "CNAME", 3600, "theirs.test.")
	api.Put(testDomain, "b", "A", 3600, "192.0.2.9")
	for _, want := range []dnsprov.Record{own("a", "A", "192.0.2.1"), own("a", "CNAME", "ours.test"), own("b", "CNAME", "ours.test")} {
		var conflict *dnsprov.Conflict
		if _, err := bring(t, c, want); !errors.As(err, &conflict) || conflict.Have.Name != want.Name {
			t.Errorf("%s %s: %v", want.Name, want.Type, err)
		}
	}
	if n := api.Count("", "") - api.Count(http.MethodGet, ""); n != 0 {
		t.Errorf("%d writing requests", n)
	}
}

// TestSomebodyElseIsFaster: where the API can see that a set was made between the reading and the
// writing, nothing is overwritten.
func TestSomebodyElseIsFaster(t *testing.T) {
	for _, tc := range []struct {
		name, method string
		ours, want   []dnsprov.Record
		typ, theirs  string
	}{
		{"makes the set", http.MethodPost, nil, []dnsprov.Record{own("n", "TXT", "ours")}, "TXT", `"theirs"`},
		{"makes the same", http.MethodPost, nil, []dnsprov.Record{own("n", "TXT", "ours")}, "TXT", `"ours"`},
		{"makes an alias", http.MethodPost, nil, []dnsprov.Record{own("n", "TXT", "ours")}, "CNAME", "theirs.test."},
		{"is there before our alias", http.MethodPatch, []dnsprov.Record{own("n", "TXT", "ours")}, []dnsprov.Record{own("n", "CNAME", "ours.test")}, "A", "192.0.2.9"},
		{"adds before we read", http.MethodGet, []dnsprov.Record{own("n", "TXT", "ours")}, nil, "TXT", ""},
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
				if call.Method == tc.method && strings.Contains(call.Path, "rrsets") && !done {
					done = true
					texts := []string{tc.theirs}
					if tc.theirs == "" {
						texts = nil
					}
					api.Put(testDomain, "n", tc.typ, 3600, texts...)
				}
			}
			made, err := p.Apply(t.Context(), place, dnsprov.Plan(have, tc.want))
			if !errors.Is(err, dnsprov.ErrChanged) || len(made) > 0 {
				t.Errorf("it made %v, %v", made, err)
			}
			if sets := fmt.Sprint(api.Sets(testDomain)); !strings.Contains(sets, tc.theirs) {
				t.Errorf("there is %s", sets)
			}
		})
	}
}

// TestOneRefusedRecord: what the API refuses does not keep the others from being written.
func TestOneRefusedRecord(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	bad, long := own("", "CNAME", "site.test"), own("long", "TXT", "x")
	long.TTL = 100_000
	must(t, p, own("a", "TXT", "x"))
	made, err := bring(t, p, own("a", "TXT", "y"), long, own("b", "TXT", "z"))
	var refused *dnsprov.Refused
	if !errors.As(err, &refused) || !refused.Want.Same(long) || !strings.Contains(err.Error(), "86400") {
		t.Errorf("%v", err)
	}
	if len(made) != 2 || len(records(api, testDomain)) != 2 {
		t.Errorf("made %v, there is %v", made, records(api, testDomain))
	}
	longer := own("longer", "TXT", "x")
	longer.TTL = 100_000
	_, err = bring(t, p, own("a", "TXT", "y"), long, own("b", "TXT", "z"), longer)
	if all, _ := err.(interface{ Unwrap() []error }); all == nil || len(all.Unwrap()) != 2 {
		t.Errorf("two are refused: %v", err)
	}
	if _, err := bring(t, p, bad); !errors.As(err, new(*dnsprov.Conflict)) { // the nameservers are there
		t.Errorf("%v", err)
	}
	if _, err := bring(t, p, own("x", "TYPE65280", `\# 1 00`)); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
}

func TestTokens(t *testing.T) {
	const other = "another-token-of-28-letters."
	nothing := func(string, string, string) bool { return false }
	for _, tc := range []struct {
		name           string
		token          string
		change         func(*desectest.Server)
		check, change2 error
	}{
		{"all rights", testToken, func(*desectest.Server) {}, nil, nil},
		{"unknown", other, func(*desectest.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"no token", "two words", func(*desectest.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"reads only", testToken, func(s *desectest.Server) { s.Writable = nothing }, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"another domain only", testToken, func(s *desectest.Server) {
			s.AddDomain("zzz.test")
			s.Writable = func(domain, _, _ string) bool { return domain == "zzz.test" }
		}, nil, dnsprov.ErrCredential},
		{"no domains", testToken, func(s *desectest.Server) { s.RemoveDomain(testDomain) }, dnsprov.ErrZoneNotFound, dnsprov.ErrZoneNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, _ := start(tc.change)
			c := client(api, tc.token)
			want := own("", "TXT", "x")
			_, apply := c.Apply(t.Context(), place, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}})
			for i, got := range []error{c.Check(t.Context()), apply} {
				if want := []error{tc.check, tc.change2}[i]; !errors.Is(got, want) || want == nil && got != nil {
					t.Errorf("step %d: %v, want %v", i, got, want)
				}
				if got != nil && strings.Contains(got.Error(), tc.token) {
					t.Errorf("the token is in %q", got)
				}
			}
			if n := len(records(api, testDomain)); n > 0 && apply != nil {
				t.Errorf("%d records are there", n)
			}
		})
	}
}

func TestZones(t *testing.T) {
	api, c := start()
	api.AddDomain("deep.example.com")
	for domain, zone := range map[string]string{testDomain: testDomain, "a.b.example.com": testDomain, "x.deep.example.com": "deep.example.com"} {
		want := dnsprov.Record{Name: domain, Type: "TXT", Value: "in " + domain, TTL: 3600, Purpose: dnsprov.PurposeCustom}
		if _, err := c.Apply(t.Context(), dnsprov.ZoneRef{Domain: domain}, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}}); err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(records(api, zone), want.Same) {
			t.Errorf("%s has %v", zone, records(api, zone))
		}
	}
	have, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "b.example.com"})
	if err != nil || len(have) != 1 || have[0].Name != "a.b.example.com" {
		t.Errorf("%v, %v", have, err)
	}
	if _, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: "example.org"}); !errors.Is(err, dnsprov.ErrZoneNotFound) {
		t.Errorf("a domain of nobody: %v", err)
	}
}

func TestTooManyRequests(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{4 * time.Second: 0, 90 * time.Second: 90 * time.Second, 0: 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			api, c := start()
			api.Fail(resttest.Fault{Kind: resttest.TooMany, Method: http.MethodPost, After: after})
			began := time.Now()
			_, err := bring(t, c, own("", "TXT", "x"))
			var wait *dnsprov.Wait
			if errors.As(err, &wait) != (want > 0) || wait != nil && wait.For != want || wait == nil && (err != nil || time.Since(began) != after) {
				t.Errorf("after %s of %s: %v", time.Since(began), after, err)
			}
		})
	}
}

// TestManyRecords: the pages are read, new sets go out in few requests, and a zone that is too
// large is an error.
func TestManyRecords(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	for n := range 700 {
		api.Put(testDomain, fmt.Sprint("theirs", n), "TXT", 3600, `"x"`)
	}
	var want []dnsprov.Record
	for n := range 1200 {
		want = append(want, own(fmt.Sprint("n", n), "TXT", "v=DKIM1; k=rsa; p="))
	}
	must(t, p, want...)
	if n := api.Count(http.MethodPost, ""); n != 3 {
		t.Errorf("%d requests", n)
	}
	must(t, p)
	if n := len(records(api, testDomain)); n != 700 {
		t.Errorf("%d records are left of 700", n)
	}
	for n := range 11 {
		api.Put(testDomain, fmt.Sprint("large", n), "TXT", 3600, slices.Repeat([]string{`"x"`}, 1000)...)
	}
	if _, err := c.Records(t.Context(), place); err == nil || !strings.Contains(err.Error(), "10000") {
		t.Errorf("%v", err)
	}
}

// TestNothingOfOthersIsTouched: changes that no plan has are refused before anything is sent.
func TestNothingOfOthersIsTouched(t *testing.T) {
	api, c := start()
	ours := own("", "MX", "mail.host.test")
	ours.ID = ours.Key()
	with := func(change func(*dnsprov.Record)) *dnsprov.Record { r := ours; change(&r); return &r }
	for name, change := range map[string]dnsprov.Change{
		"a stranger's": {Op: dnsprov.Delete, Have: with(func(r *dnsprov.Record) { r.Purpose = "" })},
		"another ID":   {Op: dnsprov.Delete, Have: with(func(r *dnsprov.Record) { r.Priority = 5 })},
		"outside":      {Op: dnsprov.Create, Want: with(func(r *dnsprov.Record) { r.Name = "example.org" })},
		"nameservers":  {Op: dnsprov.Create, Want: with(func(r *dnsprov.Record) { r.Type = "NS" })},
		"half":         {Op: dnsprov.Update, Want: &ours},
		"no value":     {Op: dnsprov.Create, Want: with(func(r *dnsprov.Record) { r.Value = "two words" })},
	} {
		if _, err := c.Apply(t.Context(), place, []dnsprov.Change{change}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := api.Count("", "") - api.Count(http.MethodGet, ""); n != 0 {
		t.Errorf("%d writing requests", n)
	}
}
