package hetzner_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/hetzner"
	"github.com/mailstead/mailstead/dnsprov/hetzner/hetznertest"
	"github.com/mailstead/mailstead/dnsprov/providertest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const (
	testToken  = "jEheVytlAoFl7F8MqUQ7jAo2hOXASztX"
	testDomain = "example.com"
)

var place = dnsprov.ZoneRef{Domain: testDomain, OwnerTag: "m"}

// start returns a fake with one zone, and a client of it without a network between them.
func start(change ...func(*hetznertest.Server)) (*hetznertest.Server, *hetzner.Client) {
	api := hetznertest.New(testToken)
	api.AddZone(testDomain, "primary")
	for _, c := range change {
		c(api)
	}
	return api, client(api, testToken)
}

func client(api *hetznertest.Server, token string) *hetzner.Client {
	return hetzner.New(hetzner.Config{BaseURL: "http://api.test/v1/", Token: token, HTTP: api.HTTP(), Pause: time.Microsecond})
}

// records returns the records of a zone but its nameservers.
func records(api *hetznertest.Server, zone string) []dnsprov.Record {
	out := []dnsprov.Record{}
	for _, s := range api.Sets(zone) {
		at := dnsprov.Set{Name: strings.TrimPrefix(s.Name+"."+zone, "@."), Type: s.Type}
		ttl := hetznertest.ZoneTTL
		if s.TTL != nil {
			ttl = *s.TTL
		}
		for _, r := range s.Records {
			if s.Type != "NS" || s.Name != "@" {
				out = append(out, rrset.Read(at, uint32(ttl), r.Value, zone).Record(at))
			}
		}
	}
	return out
}

// add adds a record to its set, as somebody would in Hetzner's console.
func add(t *testing.T, api *hetznertest.Server, zone string, r dnsprov.Record) {
	t.Helper()
	rr, err := r.RR()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(r.Name, zone), ".")
	if name == "" {
		name = "@"
	}
	var texts []string
	ttl := 0
	for _, s := range api.Sets(zone) {
		if s.Name == name && s.Type == r.Type {
			for _, o := range s.Records {
				texts = append(texts, o.Value)
			}
			if s.TTL != nil {
				ttl = *s.TTL
			}
		}
	}
	api.Put(zone, name, r.Type, ttl, append(texts, rrset.Of(rr).Text)...)
}

func conformanceCase(domain string, change ...func(*hetznertest.Server)) providertest.Case {
	api, c := start(change...)
	var cuts []resttest.Fault
	for _, kind := range resttest.Failures {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for skip := range 5 {
				cuts = append(cuts, resttest.Fault{Kind: kind, Method: method, Skip: skip, Times: 3})
			}
		}
	}
	return providertest.Case{
		Provider: providertest.Remember(c), Zone: dnsprov.ZoneRef{Domain: domain, OwnerTag: "m"},
		Stranger:  func(t *testing.T, r dnsprov.Record) { add(t, api, testDomain, r) },
		Strangers: func(*testing.T) []dnsprov.Record { return records(api, testDomain) },
		Late: func(_ *testing.T, readings int) {
			api.Fail(resttest.Fault{Kind: resttest.Late, Method: http.MethodGet, Path: "/rrsets", Times: readings})
		},
		Cut: func(_ *testing.T, n int) bool {
			if n >= len(cuts) {
				return false
			}
			api.Fail(cuts[n])
			return true
		},
	}
}

func TestConformance(t *testing.T) {
	t.Run("zone of the domain", func(t *testing.T) {
		providertest.Run(t, func(*testing.T) providertest.Case { return conformanceCase(testDomain) })
	})
	t.Run("zone of the parent", func(t *testing.T) {
		providertest.Run(t, func(*testing.T) providertest.Case { return conformanceCase("team.example.com") })
	})
	t.Run("pages", func(t *testing.T) {
		providertest.Run(t, func(*testing.T) providertest.Case {
			return conformanceCase(testDomain, func(s *hetznertest.Server) { s.PageSize = 2 })
		})
	})
	t.Run("actions take time", func(t *testing.T) {
		providertest.Run(t, func(*testing.T) providertest.Case {
			return conformanceCase(testDomain, func(s *hetznertest.Server) { s.Polls = 2 })
		})
	})
}
