package cloudflare_test

import (
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare"
	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
)

const (
	testToken  = "token-with-all-rights"
	testDomain = "example.com"
	testMark   = "dom_01TEST"
)

var place = dnsprov.ZoneRef{Domain: testDomain, OwnerTag: testMark}

// start returns a fake with one zone, and a client of it without a network between them. change
// sets the fields of the fake.
func start(change ...func(*cloudflaretest.Server)) (*cloudflaretest.Server, *cloudflare.Client) {
	api := cloudflaretest.New()
	api.AddToken(testToken, cloudflaretest.Token{Rights: cloudflaretest.DNS})
	api.AddZone(testDomain, "")
	for _, c := range change {
		c(api)
	}
	return api, inside(api, testToken)
}

// inside returns a client without a network, so that the clock can be fake.
func inside(api *cloudflaretest.Server, token string) *cloudflare.Client {
	return cloudflare.New(cloudflare.Config{BaseURL: "http://api.test/client/v4/", Token: token, HTTP: api.HTTP()})
}

// wanted returns records of every type.
func wanted() []dnsprov.Record {
	long := "v=DKIM1; k=rsa; p="
	for range 60 {
		long += `0123456789`
	}
	rec := func(name, typ, value, purpose string) dnsprov.Record {
		return dnsprov.Record{Name: name, Type: typ, Value: value, Purpose: purpose, TTL: 3600}
	}
	mx := rec("example.com", "MX", "mail.host.test", dnsprov.PurposeMX)
	mx.Priority = 10
	srv := rec("_imaps._tcp.example.com", "SRV", "mail.host.test", dnsprov.PurposeAutoconfig)
	srv.Priority, srv.Weight, srv.Port = 0, 1, 993
	return []dnsprov.Record{
		mx, srv,
		rec("example.com", "A", "192.0.2.1", dnsprov.PurposeA),
		rec("example.com", "AAAA", "2001:db8::1", dnsprov.PurposeA),
		rec("example.com", "TXT", "v=spf1 mx ~all", dnsprov.PurposeSPF),
		rec("s._domainkey.example.com", "TXT", long, dnsprov.PurposeDKIM),
		rec("_dmarc.example.com", "TXT", "v=DMARC1; p=reject", dnsprov.PurposeDMARC),
		rec("autoconfig.example.com", "CNAME", "mail.host.test", dnsprov.PurposeAutoconfig),
		rec("quote.example.com", "TXT", "a \"quoted\" \\ text with ünïcode", dnsprov.PurposeCustom),
		rec("quoted.example.com", "TXT", `"\"quoted\""`, dnsprov.PurposeCustom),
		rec("example.com", "CAA", `0 issue "ca.test"`, dnsprov.PurposeCustom),
	}
}

// bring reads, plans and applies once.
func bring(t *testing.T, p dnsprov.Provider, want []dnsprov.Record) ([]dnsprov.Record, error) {
	t.Helper()
	have, err := p.Records(t.Context(), place)
	if err != nil {
		return nil, err
	}
	return p.Apply(t.Context(), place, dnsprov.Plan(have, want))
}

// settled fails the test unless a second plan is empty.
func settled(t *testing.T, p dnsprov.Provider, want []dnsprov.Record) {
	t.Helper()
	have, err := p.Records(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range dnsprov.Plan(have, want) {
		t.Errorf("left to do: %s have %+v want %+v", c.Op, c.Have, c.Want)
	}
}

func TestEveryTypeComesAndGoes(t *testing.T) {
	api, c := start()
	made, err := bring(t, c, wanted())
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(wanted()) {
		t.Errorf("%d records made, %d wanted", len(made), len(wanted()))
	}
	for _, r := range made {
		if r.ID == "" || r.Purpose == "" {
			t.Errorf("made without an ID or purpose: %+v", r)
		}
	}
	settled(t, c, wanted())
	if n := api.Count("POST", "dns_records"); n != 1 {
		t.Errorf("%d writing requests, not one batch", n)
	}
	for _, r := range api.Records(testDomain) {
		if r.Proxied || r.Comment == nil {
			t.Errorf("%s %s: proxied %v, comment %v", r.Name, r.Type, r.Proxied, r.Comment)
		}
	}
	if _, err := bring(t, c, nil); err != nil {
		t.Fatal(err)
	}
	if left := api.Records(testDomain); len(left) != 0 {
		t.Errorf("left behind: %+v", left)
	}
}
