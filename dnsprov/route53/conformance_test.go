package route53_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
	"github.com/mailstead/mailstead/dnsprov/route53"
	"github.com/mailstead/mailstead/dnsprov/route53/route53test"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const (
	testKey    = "AKIAIOSFODNN7EXAMPLE"
	testSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	testDomain = "example.com"
)

var place = dnsprov.ZoneRef{Domain: testDomain, OwnerTag: "m"}

// start returns a fake with one zone, and a client of it without a network between them.
func start(change ...func(*route53test.Server)) (*route53test.Server, *route53.Client) {
	api := route53test.New(testKey, testSecret)
	api.AddZone(testDomain, false)
	for _, c := range change {
		c(api)
	}
	return api, client(api, testKey, testSecret)
}

func client(api *route53test.Server, key, secret string) *route53.Client {
	return route53.New(route53.Config{BaseURL: "http://api.test", AccessKeyID: key, SecretAccessKey: secret, HTTP: api.HTTP(), Pause: time.Microsecond})
}

// records returns the records of a zone but its nameservers.
func records(api *route53test.Server, zone string) []dnsprov.Record {
	out := []dnsprov.Record{}
	for _, s := range api.Sets(zone) {
		at := dnsprov.Set{Name: strings.TrimSuffix(s.Name, "."), Type: s.Type}
		for _, v := range s.Values {
			if s.Type != "NS" || at.Name != zone {
				out = append(out, rrset.Read(at, uint32(*s.TTL), v.Text, ".").Record(at))
			}
		}
	}
	return out
}

// add adds a record to its set, as somebody would in Amazon's console.
func add(t *testing.T, api *route53test.Server, zone string, r dnsprov.Record) {
	t.Helper()
	rr, err := r.RR()
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	ttl := int(r.TTL)
	for _, s := range api.Sets(zone) {
		if s.Name == r.Name+"." && s.Type == r.Type {
			ttl = *s.TTL
			for _, v := range s.Values {
				texts = append(texts, v.Text)
			}
		}
	}
	api.Put(zone, r.Name, r.Type, ttl, append(texts, rrset.Of(rr).Text)...)
}

func conformanceCase(domain string, change ...func(*route53test.Server)) providertest.Case {
	api, c := start(change...)
	var cuts []resttest.Fault
	for _, kind := range resttest.Failures {
		if kind == resttest.Endless { // see TestLostAnswers
			continue
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for skip := range 4 {
				cuts = append(cuts, resttest.Fault{Kind: kind, Method: method, Skip: skip, Times: 3})
			}
		}
	}
	return providertest.Case{
		Provider: providertest.Remember(c), Zone: dnsprov.ZoneRef{Domain: domain, OwnerTag: "m"},
		Stranger:  func(t *testing.T, r dnsprov.Record) { add(t, api, testDomain, r) },
		Strangers: func(*testing.T) []dnsprov.Record { return records(api, testDomain) },
		Late: func(_ *testing.T, readings int) {
			api.Fail(resttest.Fault{Kind: resttest.Late, Method: http.MethodGet, Path: "/rrset", Times: readings})
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
			return conformanceCase(testDomain, func(s *route53test.Server) { s.PageSize = 2 })
		})
	})
}
