package rfc2136_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rfc2136"
)

func TestConfig(t *testing.T) {
	good := rfc2136.Config{Server: "ns1.example.com", KeyName: "a.key", Algorithm: "HMAC-SHA512.", Secret: " " + ourSecret + "\n", Zones: []string{"Example.com.", "sub.example.com"}}
	if _, err := rfc2136.New(good); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*rfc2136.Config)) rfc2136.Config { c := good; change(&c); return c }
	for _, server := range []string{"192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:53", " ns1.example.com:53 "} {
		if _, err := rfc2136.New(with(func(c *rfc2136.Config) { c.Server = server })); err != nil {
			t.Errorf("%q: %v", server, err)
		}
	}
	for _, tc := range []struct {
		field, value, text string
		change             func(c *rfc2136.Config, value string)
	}{
		{"server", "", "nameserver", func(c *rfc2136.Config, v string) { c.Server = v }},
		{"server", "ns1.example.com:0", "nameserver", func(c *rfc2136.Config, v string) { c.Server = v }},
		{"server", "ns1.example.com:dns", "nameserver", func(c *rfc2136.Config, v string) { c.Server = v }},
		{"server", "https://ns1.example.com", "nameserver", func(c *rfc2136.Config, v string) { c.Server = v }},
		{"server", "a:b:c", "nameserver", func(c *rfc2136.Config, v string) { c.Server = v }},
		{"server", "ns1..example.com", "nameserver", func(c *rfc2136.Config, v string) { c.Server = v }},
		{"key_name", "", "name of the key", func(c *rfc2136.Config, v string) { c.KeyName = v }},
		{"key_name", "a..key", "name of the key", func(c *rfc2136.Config, v string) { c.KeyName = v }},
		{"algorithm", "hmac-md5", "hmac-md5 is too weak", func(c *rfc2136.Config, v string) { c.Algorithm = v }},
		{"algorithm", "hmac-md5.sig-alg.reg.int", "too weak", func(c *rfc2136.Config, v string) { c.Algorithm = v }},
		{"algorithm", "hmac-sha1", "hmac-sha1 is too weak", func(c *rfc2136.Config, v string) { c.Algorithm = v }},
		{"algorithm", "sha256", "must be hmac-sha224", func(c *rfc2136.Config, v string) { c.Algorithm = v }},
		{"secret", "", "base64", func(c *rfc2136.Config, v string) { c.Secret = v }},
		{"secret", "not base64, but a secret", "base64", func(c *rfc2136.Config, v string) { c.Secret = v }},
		{"zones", "", "zone", func(c *rfc2136.Config, v string) { c.Zones = []string{v} }},
		{"zones", "a..test", "zone", func(c *rfc2136.Config, v string) { c.Zones = []string{"a.test", v} }},
		{"zones", "none", "zone", func(c *rfc2136.Config, _ string) { c.Zones = nil }},
	} {
		_, err := rfc2136.New(with(func(c *rfc2136.Config) { tc.change(c, tc.value) }))
		var wrong *dnsprov.FieldError
		if !errors.As(err, &wrong) || wrong.Field != tc.field || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s %q: %v", tc.field, tc.value, err)
		}
		if tc.field == "secret" && tc.value != "" && strings.Contains(err.Error(), tc.value) {
			t.Errorf("%v tells the secret", err)
		}
	}
}

func TestDomainInNoZone(t *testing.T) {
	c := client(t, rfc2136.Config{Server: "192.0.2.1", KeyName: ourKey, Secret: ourSecret, Zones: []string{"example.com"}})
	for _, domain := range []string{"example.org", "notexample.com", "com"} {
		if _, err := c.Records(t.Context(), dnsprov.ZoneRef{Domain: domain}); !errors.Is(err, dnsprov.ErrZoneNotFound) {
			t.Errorf("%s: %v", domain, err)
		}
		want := dnsprov.Record{Name: domain, Type: "TXT", Value: "x", TTL: 60, Purpose: dnsprov.PurposeCustom}
		if _, err := c.Apply(t.Context(), dnsprov.ZoneRef{Domain: domain}, []dnsprov.Change{{Op: dnsprov.Create, Want: &want}}); !errors.Is(err, dnsprov.ErrZoneNotFound) {
			t.Errorf("%s: %v", domain, err)
		}
	}
}

// TestNothingOfOthersIsTouched: changes that no plan has are refused before anything is sent.
func TestNothingOfOthersIsTouched(t *testing.T) {
	c := client(t, rfc2136.Config{Server: "192.0.2.1", KeyName: ourKey, Secret: ourSecret, Zones: []string{"example.com"}})
	at := dnsprov.ZoneRef{Domain: "example.com"}
	ours := dnsprov.Record{Name: "example.com", Type: "MX", Value: "mail.host.test", Priority: 10, TTL: 60, Purpose: dnsprov.PurposeMX}
	ours.ID = ours.Key()
	with := func(change func(*dnsprov.Record)) *dnsprov.Record { r := ours; change(&r); return &r }
	identified := func(change func(*dnsprov.Record)) *dnsprov.Record {
		r := with(change)
		r.ID = r.Key()
		return r
	}
	for name, change := range map[string]dnsprov.Change{
		"a stranger's":            {Op: dnsprov.Delete, Have: with(func(r *dnsprov.Record) { r.Purpose = "" })},
		"without ID":              {Op: dnsprov.Delete, Have: with(func(r *dnsprov.Record) { r.ID = "" })},
		"another ID":              {Op: dnsprov.Update, Have: with(func(r *dnsprov.Record) { r.Priority = 5 }), Want: &ours},
		"outside":                 {Op: dnsprov.Create, Want: identified(func(r *dnsprov.Record) { r.Name = "example.org" })},
		"deleted outside":         {Op: dnsprov.Delete, Have: identified(func(r *dnsprov.Record) { r.Name = "example.org" })},
		"nameservers of a zone":   {Op: dnsprov.Create, Want: identified(func(r *dnsprov.Record) { r.Type, r.Priority = "NS", 0 })},
		"their deletion":          {Op: dnsprov.Delete, Have: identified(func(r *dnsprov.Record) { r.Type, r.Priority = "NS", 0 })},
		"no purpose":              {Op: dnsprov.Create, Want: with(func(r *dnsprov.Record) { r.Purpose = "" })},
		"half":                    {Op: dnsprov.Update, Want: &ours},
		"empty":                   {},
		"no operation":            {Op: "drop", Want: &ours},
		"too much":                {Op: dnsprov.Delete, Have: &ours, Want: &ours},
		"no value":                {Op: dnsprov.Create, Want: with(func(r *dnsprov.Record) { r.Value = "two words" })},
		"written in another form": {Op: dnsprov.Create, Want: with(func(r *dnsprov.Record) { r.Type, r.Priority, r.Value = "CAA", 0, "0 issue ca.test" })},
	} {
		if _, err := c.Apply(t.Context(), at, []dnsprov.Change{change}); err == nil || errors.Is(err, rfc2136.ErrNoAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if made, err := c.Apply(t.Context(), at, nil); made != nil || err != nil {
		t.Errorf("no changes: %v, %v", made, err)
	}
}
