package cloudflare_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare"
	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
	"github.com/mailstead/mailstead/dnsprov/providertest"
)

// ways lists all ways in which a step of an Apply can fail; the first requests only read.
func ways() []cloudflaretest.Fault {
	var out []cloudflaretest.Fault
	for _, kind := range []string{
		cloudflaretest.Cut, cloudflaretest.CutAfter, cloudflaretest.HalfDone, cloudflaretest.Broken, cloudflaretest.Garbage, cloudflaretest.Empty, cloudflaretest.Elsewhere,
	} {
		for _, at := range []struct{ method, path string }{
			{http.MethodGet, "/zones"}, {http.MethodGet, "dns_records"}, {http.MethodPost, "dns_records"}, {http.MethodPut, "dns_records"}, {http.MethodDelete, "dns_records"},
		} {
			for skip := range 3 {
				out = append(out, cloudflaretest.Fault{Kind: kind, Method: at.method, Path: at.path, Skip: skip, Times: 3})
			}
		}
	}
	return out
}

func conformanceCase(t *testing.T, change func(*cloudflaretest.Server), domain string) providertest.Case {
	api := cloudflaretest.New()
	api.AddToken(testToken, cloudflaretest.Token{Rights: cloudflaretest.DNS})
	api.AddZone(testDomain, "")
	change(api)
	c := cloudflare.New(cloudflare.Config{BaseURL: "http://api.test/client/v4", Token: testToken, HTTP: api.HTTP(), Pause: time.Microsecond})
	all := ways()
	return providertest.Case{
		Provider: c, Zone: dnsprov.ZoneRef{Domain: domain, OwnerTag: testMark},
		Stranger: func(_ *testing.T, r dnsprov.Record) { api.Put(testDomain, stranger(r)) },
		Strangers: func(*testing.T) []dnsprov.Record {
			var out []dnsprov.Record
			for _, r := range api.Records(testDomain) {
				out = append(out, toCommon(r))
			}
			return out
		},
		Cut: func(_ *testing.T, n int) bool {
			if n >= len(all) {
				return false
			}
			api.Fail(all[n])
			return true
		},
	}
}

// stranger returns a record as somebody would enter it in the dashboard.
func stranger(r dnsprov.Record) cloudflaretest.Record {
	out := cloudflaretest.Record{Type: r.Type, Name: r.Name, Content: r.Value, TTL: 1}
	if r.Type == "MX" {
		out.Priority = &r.Priority
	}
	return out
}

// toCommon converts a record of the API to the form of all providers.
func toCommon(r cloudflaretest.Record) dnsprov.Record {
	out := dnsprov.Record{Name: r.Name, Type: r.Type, Value: r.Content, TTL: uint32(r.TTL)}
	if r.Priority != nil {
		out.Priority = *r.Priority
	}
	return out
}

func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*cloudflaretest.Server){
		"batches": func(*cloudflaretest.Server) {},
		"single":  func(s *cloudflaretest.Server) { s.NoBatch = true },
		"pages":   func(s *cloudflaretest.Server) { s.MaxPerPage = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) providertest.Case { return conformanceCase(t, change, testDomain) })
		})
	}
	t.Run("in the zone of the parent", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) providertest.Case {
			return conformanceCase(t, func(*cloudflaretest.Server) {}, "team.example.com")
		})
	})
}
