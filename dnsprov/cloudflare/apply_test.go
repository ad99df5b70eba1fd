package cloudflare_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
)

// meanwhile runs a function once, before the first request of a method.
func meanwhile(api *cloudflaretest.Server, method string, do func()) {
	done := false
	api.Between = func(n int) {
		if !done && api.Calls()[n].Method == method {
			done = true
			do()
		}
	}
}

func mx(host string, priority uint16, purpose string) dnsprov.Record {
	return dnsprov.Record{Name: testDomain, Type: "MX", Value: host, Priority: priority, TTL: 3600, Purpose: purpose}
}

func TestSomebodyElseIsFaster(t *testing.T) {
	want := mx("mail.host.test", 10, dnsprov.PurposeMX)
	alias := dnsprov.Record{Name: "www.example.com", Type: "A", Value: "192.0.2.1", TTL: 3600, Purpose: dnsprov.PurposeA}
	for _, tc := range []struct {
		name     string
		want     dnsprov.Record
		theirs   dnsprov.Record
		conflict bool
	}{
		{"with the same", want, mx("mail.host.test", 10, ""), false},
		{"with the same at another priority", want, mx("mail.host.test", 20, ""), true},
		{"with an alias", alias, dnsprov.Record{Name: "www.example.com", Type: "CNAME", Value: "site.test"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, c := start()
			meanwhile(api, http.MethodPost, func() { api.Put(testDomain, stranger(tc.theirs)) })
			made, err := bring(t, c, []dnsprov.Record{tc.want})
			var conflict *dnsprov.Conflict
			if errors.As(err, &conflict) != tc.conflict || !tc.conflict && err != nil {
				t.Fatalf("%v", err)
			}
			if tc.conflict && (!conflict.Have.Same(tc.theirs) || !conflict.Want.Same(tc.want)) {
				t.Errorf("the conflict is %+v", conflict)
			}
			if !tc.conflict && (len(made) != 1 || made[0].Purpose != "" || made[0].ID == "") {
				t.Errorf("adopted %+v", made)
			}
			if there := api.Records(testDomain); len(there) != 1 || there[0].Comment != nil {
				t.Errorf("there is %+v", there)
			}
		})
	}
}

// TestGoneMeanwhile: a record that somebody deletes between reading and writing causes no error.
func TestGoneMeanwhile(t *testing.T) {
	api, c := start()
	old := mx("old.host.test", 10, dnsprov.PurposeMX)
	text := dnsprov.Record{Name: testDomain, Type: "TXT", Value: "x", TTL: 3600, Purpose: dnsprov.PurposeCustom}
	if _, err := bring(t, c, []dnsprov.Record{old, text}); err != nil {
		t.Fatal(err)
	}
	meanwhile(api, http.MethodPost, func() { api.RemoveRecords(testDomain) })
	want := []dnsprov.Record{mx("new.host.test", 10, dnsprov.PurposeMX)}
	if _, err := bring(t, c, want); err != nil {
		t.Fatal(err)
	}
	settled(t, c, want)
	if n := len(api.Records(testDomain)); n != 1 {
		t.Errorf("%d records", n)
	}
}

// TestUpdateBesideAnIdentical: if somebody else has made the wanted record, ours is deleted.
func TestUpdateBesideAnIdentical(t *testing.T) {
	api, c := start()
	if _, err := bring(t, c, []dnsprov.Record{mx("old.host.test", 10, dnsprov.PurposeMX)}); err != nil {
		t.Fatal(err)
	}
	meanwhile(api, http.MethodPost, func() { api.Put(testDomain, stranger(mx("new.host.test", 10, ""))) })
	want := []dnsprov.Record{mx("new.host.test", 10, dnsprov.PurposeMX)}
	if _, err := bring(t, c, want); err != nil {
		t.Fatal(err)
	}
	settled(t, c, want)
	if there := api.Records(testDomain); len(there) != 1 || there[0].Comment != nil {
		t.Errorf("there is %+v", there)
	}
}

func TestNothingOfStrangersIsTouched(t *testing.T) {
	api, c := start()
	api.Put(testDomain, stranger(mx("theirs.test", 1, "")))
	have, err := c.Records(t.Context(), place)
	if err != nil || len(have) != 1 || have[0].Purpose != "" {
		t.Fatalf("%+v, %v", have, err)
	}
	theirs, ours := have[0], mx("mail.host.test", 10, dnsprov.PurposeMX)
	outside := ours
	outside.Name = "example.org"
	elsewhere := ours
	elsewhere.ID, elsewhere.Name = theirs.ID, "example.org"
	unnamed := ours
	odd := ours
	odd.ID = "../../accounts"
	for name, change := range map[string]dnsprov.Change{
		"delete":       {Op: dnsprov.Delete, Have: &theirs},
		"update":       {Op: dnsprov.Update, Have: &theirs, Want: &ours},
		"outside":      {Op: dnsprov.Create, Want: &outside},
		"elsewhere":    {Op: dnsprov.Delete, Have: &elsewhere},
		"without ID":   {Op: dnsprov.Delete, Have: &unnamed},
		"odd ID":       {Op: dnsprov.Delete, Have: &odd},
		"half":         {Op: dnsprov.Update, Want: &ours},
		"empty":        {},
		"no operation": {Op: "drop", Want: &ours},
	} {
		before := len(api.Calls())
		if _, err := c.Apply(t.Context(), place, []dnsprov.Change{change}); err == nil {
			t.Errorf("%s was done", name)
		}
		if len(api.Calls()) != before {
			t.Errorf("%s: requests were made", name)
		}
	}
	if n := len(api.Records(testDomain)); n != 1 {
		t.Errorf("%d records", n)
	}
}

// TestLostComments: if comments are lost, our records are recognized by the IDs that Apply
// returned.
func TestLostComments(t *testing.T) {
	api, c := start(func(s *cloudflaretest.Server) { s.LoseComments = true })
	made, err := bring(t, c, wanted())
	if err != nil {
		t.Fatal(err)
	}
	purposes := map[string]string{}
	for _, r := range made {
		purposes[r.ID] = r.Purpose
	}
	have, err := c.Records(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range have {
		if r.Purpose != "" {
			t.Errorf("ours without a comment: %+v", r)
		}
		have[i].Purpose = purposes[r.ID]
	}
	if _, err := c.Apply(t.Context(), place, dnsprov.Plan(have, nil)); err != nil {
		t.Fatal(err)
	}
	if left := api.Records(testDomain); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// TestProxiedIsPutRight: if somebody has switched proxying on for a record of ours, it is
// corrected.
func TestProxiedIsPutRight(t *testing.T) {
	api, c := start()
	want := []dnsprov.Record{{Name: testDomain, Type: "A", Value: "192.0.2.1", TTL: 3600, Purpose: dnsprov.PurposeA}}
	comment := "mailstead:" + testMark + ":" + dnsprov.PurposeA
	api.Put(testDomain, cloudflaretest.Record{Type: "A", Name: testDomain, Content: "192.0.2.1", TTL: 1, Proxied: true, Comment: &comment})
	if _, err := bring(t, c, want); err != nil {
		t.Fatal(err)
	}
	if there := api.Records(testDomain); len(there) != 1 || there[0].Proxied {
		t.Errorf("%+v", there)
	}
	settled(t, c, want)
}

func TestManyRecords(t *testing.T) {
	api, c := start()
	for i := range 250 {
		api.Put(testDomain, cloudflaretest.Record{Type: "TXT", Name: testDomain, Content: strings.Repeat("a", i+1), TTL: 1})
	}
	var want []dnsprov.Record
	for i := range 450 {
		want = append(want, dnsprov.Record{Name: testDomain, Type: "TXT", Value: strings.Repeat("b", i+1), TTL: 60, Purpose: dnsprov.PurposeCustom})
	}
	if _, err := bring(t, c, want); err != nil {
		t.Fatal(err)
	}
	if n := api.Count(http.MethodPost, "batch"); n != 3 {
		t.Errorf("%d batches of at most 200", n)
	}
	settled(t, c, want)
	if _, err := bring(t, c, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(api.Records(testDomain)); n != 250 {
		t.Errorf("%d are left of 250", n)
	}
}

// TestWhatStrangersHave: records of other types are read too, and names are normalized.
func TestWhatStrangersHave(t *testing.T) {
	api, c := start()
	api.Put(testDomain,
		cloudflaretest.Record{Type: "NAPTR", Name: testDomain, Content: "100 10 S x", Data: map[string]any{"flags": "S", "order": 100}},
		cloudflaretest.Record{Type: "SRV", Name: "_sip._tcp.example.com", Content: "5 5060 SIP.example.com", Priority: new(uint16)},
		cloudflaretest.Record{Type: "MX", Name: "Null.Example.com", Content: "."},
		cloudflaretest.Record{Type: "TXT", Name: testDomain, Content: `"one" "two"`},
		cloudflaretest.Record{Type: "AAAA", Name: testDomain, Content: "2001:DB8:0::1", Proxied: true},
		cloudflaretest.Record{Type: "A", Name: "notexample.com", Content: "192.0.2.1"},
	)
	have, err := c.Records(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range have {
		got = append(got, r.Name+" "+r.Type+" "+r.Value)
		if r.Purpose != "" {
			t.Errorf("taken for ours: %+v", r)
		}
	}
	want := []string{
		"example.com NAPTR 100 10 S x", "_sip._tcp.example.com SRV sip.example.com", "null.example.com MX .", "example.com TXT onetwo", "example.com AAAA 2001:db8::1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if srv := have[1]; srv.Weight != 5 || srv.Port != 5060 {
		t.Errorf("%+v", srv)
	}
}

// TestWhatCannotBeMade: a refusal names the record and states its reason, and a record of an
// unknown type is not sent.
func TestWhatCannotBeMade(t *testing.T) {
	api, c := start()
	for name, r := range map[string]dnsprov.Record{
		"TTL":     {Name: testDomain, Type: "TXT", Value: "x", TTL: 5, Purpose: dnsprov.PurposeCustom},
		"PTR":     {Name: testDomain, Type: "PTR", Value: "x.test", TTL: 60, Purpose: dnsprov.PurposeCustom},
		"CAA":     {Name: testDomain, Type: "CAA", Value: "issue", TTL: 60, Purpose: dnsprov.PurposeCustom},
		"comment": {Name: testDomain, Type: "TXT", Value: "x", TTL: 60, Purpose: strings.Repeat("long", 30)},
	} {
		_, err := c.Apply(t.Context(), place, []dnsprov.Change{{Op: dnsprov.Create, Want: &r}})
		var refused *dnsprov.Refused
		if !errors.As(err, &refused) || !refused.Want.Same(r) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(api.Records(testDomain)); n != 0 {
		t.Errorf("%d records were made", n)
	}
}
