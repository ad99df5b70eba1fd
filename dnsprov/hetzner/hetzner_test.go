package hetzner_test

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
	"github.com/mailstead/mailstead/dnsprov/hetzner/hetznertest"
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
		own("c", "HTTPS", `1 . alpn="h2,h3"`), own("_dns.c", "SVCB", `1 svc.elsewhere.test alpn="dot" port="853"`),
	}
	p := providertest.Remember(c)
	must(t, p, want...)
	must(t, p)
	if left := records(api, testDomain); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTTLs: a set of ours gets the TTL that is wanted, and one with others' values keeps its own,
// also if that is the zone's.
func TestTTLs(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	short, long := own("", "TXT", "short"), own("", "TXT", "long")
	short.TTL, long.TTL = 5, 7200
	is := func(ttl string, records int) {
		t.Helper()
		for _, s := range api.Sets(testDomain) {
			got := "none"
			if s.TTL != nil {
				got = fmt.Sprint(*s.TTL)
			}
			if s.Type == "TXT" && (got != ttl || len(s.Records) != records) {
				t.Errorf("there is %+v with TTL %s, want %d records and TTL %s", s, got, records, ttl)
			}
		}
	}
	must(t, p, long)
	is("7200", 1)
	must(t, p, short, long)
	is("60", 2)
	must(t, p, long)
	is("7200", 1)
	api.Put(testDomain, "@", "TXT", 5000, `"long"`, `"theirs"`)
	must(t, p, short, long)
	is("5000", 3)
	api.Put(testDomain, "@", "TXT", 0, `"theirs"`)
	must(t, p, short)
	is("none", 2)
}

// TestStrangers: what is below the zone's name without a dot, what we cannot read, and what we
// would write otherwise, is listed and stays.
func TestStrangers(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	api.Put(testDomain, "@", "TXT", 3600, `"v=spf1" " -all"`, `plain ; text`)
	api.Put(testDomain, "www", "CNAME", 3600, "site")
	api.Put(testDomain, "new", "NEWTYPE", 3600, "a b c")
	before := fmt.Sprint(records(api, testDomain))
	have, err := c.Records(t.Context(), place)
	if err != nil || len(have) != 6 {
		t.Fatalf("%d records, %v", len(have), err)
	}
	for _, h := range have {
		if h.Purpose != "" || !h.SetTTL || h.Type == "CNAME" && h.Value != "site.example.com" || (h.Type == "NEWTYPE" || h.Type == "TXT") && h.ID != "" || h.Type == "NS" && h.TTL != hetznertest.ZoneTTL {
			t.Errorf("%+v", h)
		}
	}
	must(t, p, own("", "TXT", "ours"), own("", "TXT", "ours too"), own("new", "TXT", "ours"))
	must(t, p, own("", "TXT", "ours again"))
	must(t, p)
	for _, line := range []string{`"v=spf1" " -all"`, `plain ; text`} {
		if !strings.Contains(fmt.Sprint(api.Sets(testDomain)), line) {
			t.Errorf("%s is gone", line)
		}
	}
	if n := len(records(api, testDomain)); n != 4 {
		t.Errorf("there is %v, was %s", records(api, testDomain), before)
	}
}

func TestSwaps(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	alias, other, v4, text := own("www", "CNAME", "site.elsewhere.test"), own("www", "CNAME", "other.elsewhere.test"), own("www", "A", "192.0.2.1"), own("www", "TXT", "x")
	for _, want := range [][]dnsprov.Record{{v4}, {alias}, {other}, {v4, text}, {alias}, nil} {
		must(t, p, want...)
		if got := records(api, testDomain); len(got) != len(want) {
			t.Errorf("there is %v, want %v", got, want)
		}
	}
}

// TestSomebodyElseIsFaster: nothing is overwritten that others change between the reading and the
// writing.
func TestSomebodyElseIsFaster(t *testing.T) {
	for _, tc := range []struct {
		name       string
		ours, want []dnsprov.Record
		typ        string
		theirs     []string
		changed    bool // whether the API notices
		end        string
	}{
		{"makes the set", nil, []dnsprov.Record{own("n", "TXT", "ours")}, "TXT", []string{`"theirs"`}, true, `[{"theirs" }]`},
		{"makes the same", nil, []dnsprov.Record{own("n", "TXT", "ours")}, "TXT", []string{`"ours"`}, true, `[{"ours" }]`},
		{"makes an alias", nil, []dnsprov.Record{own("n", "TXT", "ours")}, "CNAME", []string{"theirs.test."}, true, "[{theirs.test. }]"},
		{"adds to the set", []dnsprov.Record{own("n", "TXT", "a")}, []dnsprov.Record{own("n", "TXT", "b")}, "TXT", []string{`"a"`, `"theirs"`}, false, `[{"theirs" } {"b" }]`},
		{"adds before we delete", []dnsprov.Record{own("n", "TXT", "a")}, nil, "TXT", []string{`"a"`, `"theirs"`}, false, `[{"theirs" }]`},
		{"adds what we are about to make", []dnsprov.Record{own("n", "TXT", "a")}, []dnsprov.Record{own("n", "TXT", "b")}, "TXT", []string{`"a"`, `"b"`}, true, `[{"a" } {"b" }]`},
		{"removes ours", []dnsprov.Record{own("n", "TXT", "a")}, nil, "TXT", []string{`"theirs"`}, true, `[{"theirs" }]`},
		{"removes the set", []dnsprov.Record{own("n", "TXT", "a")}, nil, "TXT", nil, true, ""},
		{"changes an alias", []dnsprov.Record{own("n", "CNAME", "a.test")}, []dnsprov.Record{own("n", "CNAME", "b.test")}, "CNAME", []string{"theirs.test."}, true, "[{theirs.test. }]"},
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
					api.Put(testDomain, "n", tc.typ, 3600, tc.theirs...)
				}
			}
			made, err := p.Apply(t.Context(), place, dnsprov.Plan(have, tc.want))
			if errors.Is(err, dnsprov.ErrChanged) != tc.changed || !tc.changed && err != nil || tc.changed && len(made) > 0 {
				t.Errorf("it made %v, %v", made, err)
			}
			end := ""
			for _, s := range api.Sets(testDomain) {
				if s.Name == "n" {
					end += fmt.Sprint(s.Records)
				}
			}
			if end != tc.end {
				t.Errorf("there is %s, want %s", end, tc.end)
			}
		})
	}
}

// TestOneRefusedRecord: what the API refuses does not keep the others from being written.
func TestOneRefusedRecord(t *testing.T) {
	api, c := start()
	p := providertest.Remember(c)
	must(t, p, own("a", "TXT", "x"), own("locked", "TXT", "x"))
	api.Protect(testDomain, "locked", "TXT")
	for _, bad := range []dnsprov.Record{own("c", "SSHFP", "4 2 "+strings.Repeat("ab", 32)), own("locked", "TXT", "y")} {
		want := []dnsprov.Record{bad, own("a", "TXT", bad.Type), own("b", "TXT", bad.Type)}
		if bad.Name != "locked."+testDomain {
			want = append(want, own("locked", "TXT", "x"))
		}
		made, err := bring(t, p, want...)
		var refused *dnsprov.Refused
		if !errors.As(err, &refused) || !refused.Want.Same(bad) || len(made) != 2 {
			t.Errorf("%v, made %v", err, made)
		}
	}
}

// TestRefusedRecords: all records that the API refuses are told at once, up to a bound, and the
// zone is read once because of them.
func TestRefusedRecords(t *testing.T) {
	for given, told := range map[int]int{3: 3, 150: 100} {
		api, c := start()
		p := providertest.Remember(c)
		want := []dnsprov.Record{own("a", "TXT", "x")}
		for n := range given {
			want = append(want, own(fmt.Sprint("bad", n), "SSHFP", "4 2 "+strings.Repeat("ab", 32)))
		}
		want = append(want, own("b", "TXT", "x"))
		made, err := bring(t, p, want...)
		all, _ := err.(interface{ Unwrap() []error })
		if all == nil || len(all.Unwrap()) != told || len(made) != 2 {
			t.Errorf("of %d: %v, made %v", given, err, made)
			continue
		}
		for n, one := range all.Unwrap() {
			var refused *dnsprov.Refused
			if !errors.As(one, &refused) || refused.Want.Name != fmt.Sprintf("bad%d.%s", n, testDomain) {
				t.Errorf("%d is %v", n, one)
			}
		}
		if n := api.Count(http.MethodGet, "/rrsets"); n > 3 { // to plan, by Apply, and because of the refusals
			t.Errorf("the zone was read %d times", n)
		}
	}
}

// TestActions: an action that fails is an error, and a zone that is locked for a short time is
// waited for.
func TestActions(t *testing.T) {
	api, c := start(func(s *hetznertest.Server) { s.Failing = "create_rrset" })
	if made, err := bring(t, c, own("a", "TXT", "x")); err == nil || len(made) > 0 || !strings.Contains(err.Error(), "action_failed") {
		t.Errorf("%v, %v", made, err)
	}
	api.Failing, api.Polls = "", 2
	api.Fail(resttest.Fault{Kind: resttest.CutAfter, Method: http.MethodPost})
	if _, err := bring(t, c, own("a", "TXT", "x")); err == nil {
		t.Error("no error")
	}
	if _, err := bring(t, c, own("b", "TXT", "x")); err != nil { // the other one is under way
		t.Error(err)
	}
	if n := len(records(api, testDomain)); n != 2 {
		t.Errorf("%d records", n)
	}
}

func TestTokens(t *testing.T) {
	for _, tc := range []struct {
		name, token  string
		change       func(*hetznertest.Server)
		check, apply error
	}{
		{"all rights", testToken, func(*hetznertest.Server) {}, nil, nil},
		{"unknown", "another-token", func(*hetznertest.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"no token", "two words", func(*hetznertest.Server) {}, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"reads only", testToken, func(s *hetznertest.Server) { s.ReadOnly = true }, dnsprov.ErrCredential, dnsprov.ErrCredential},
		{"no zones", testToken, func(s *hetznertest.Server) { s.RemoveZones() }, dnsprov.ErrZoneNotFound, dnsprov.ErrZoneNotFound},
		{"a copy", testToken, func(s *hetznertest.Server) { s.RemoveZones(); s.AddZone(testDomain, "secondary") }, nil, dnsprov.ErrZoneNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, _ := start(tc.change)
			c := client(api, tc.token)
			want := own("", "TXT", "x")
			_, apply := c.Apply(t.Context(), place, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}})
			for i, got := range []error{c.Check(t.Context()), apply} {
				if want := []error{tc.check, tc.apply}[i]; !errors.Is(got, want) || want == nil && got != nil {
					t.Errorf("step %d: %v, want %v", i, got, want)
				}
				if got != nil && strings.Contains(got.Error(), tc.token) {
					t.Errorf("the token is in %q", got)
				}
			}
		})
	}
}

func TestTooManyRequests(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{4 * time.Second: 0, 90 * time.Second: 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			api, c := start()
			api.Fail(resttest.Fault{Kind: resttest.TooMany, Method: http.MethodPost, After: after})
			began := time.Now()
			_, err := bring(t, c, own("", "TXT", "x"))
			var wait *dnsprov.Wait
			if errors.As(err, &wait) != (want > 0) || wait != nil && wait.For != want || wait == nil && (err != nil || time.Since(began).Round(time.Second) != after) {
				t.Errorf("after %s of %s: %v", time.Since(began), after, err)
			}
		})
	}
}

// TestChangingLists: a list that changes while its pages are read is read again.
func TestChangingLists(t *testing.T) {
	api, c := start()
	for n := range 130 {
		api.Put(testDomain, fmt.Sprintf("n%03d", n), "TXT", 0, `"x"`)
	}
	changes := 0
	api.Between = func(call resttest.Call) {
		if strings.Contains(call.Path, "page=2") && changes < 2 {
			changes++
			api.Put(testDomain, fmt.Sprintf("n%03d", changes), "TXT", 0)
		}
	}
	if have, err := c.Records(t.Context(), place); err != nil || len(have) != 130 {
		t.Errorf("%d records, %v", len(have), err)
	}
	api.Between = func(call resttest.Call) {
		if strings.Contains(call.Path, "page=2") {
			changes++
			api.Put(testDomain, fmt.Sprintf("more%d", changes), "TXT", 0, `"x"`)
		}
	}
	if _, err := c.Records(t.Context(), place); !errors.Is(err, dnsprov.ErrChanged) {
		t.Errorf("%v", err)
	}
}

func TestLargeZone(t *testing.T) {
	api, c := start()
	for n := range 11 {
		api.Put(testDomain, fmt.Sprint("large", n), "TXT", 0, slices.Repeat([]string{`"x"`}, 1000)...)
	}
	if _, err := c.Records(t.Context(), place); err == nil || !strings.Contains(err.Error(), "10000") {
		t.Errorf("%v", err)
	}
}
