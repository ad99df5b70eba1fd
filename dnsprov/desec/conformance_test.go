package desec_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/desec"
	"github.com/mailstead/mailstead/dnsprov/desec/desectest"
	"github.com/mailstead/mailstead/dnsprov/providertest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const (
	testToken  = "i-T3b1h_OI-H9ab8tRS98stGtURe"
	testDomain = "example.com"
)

var place = dnsprov.ZoneRef{Domain: testDomain, OwnerTag: "m"}

// start returns a fake with one domain, and a client of it without a network between them.
func start(change ...func(*desectest.Server)) (*desectest.Server, *desec.Client) {
	api := desectest.New(testToken)
	api.AddDomain(testDomain)
	for _, c := range change {
		c(api)
	}
	return api, client(api, testToken)
}

func client(api *desectest.Server, token string) *desec.Client {
	return desec.New(desec.Config{BaseURL: "http://api.test/api/v1/", Token: token, HTTP: api.HTTP(), Pause: time.Microsecond})
}

// records returns the records of a domain but its nameservers.
func records(api *desectest.Server, domain string) []dnsprov.Record {
	out := []dnsprov.Record{}
	for _, s := range api.Sets(domain) {
		at := dnsprov.Set{Name: strings.TrimSuffix(s.Name, "."), Type: s.Type}
		for _, text := range s.Records {
			if s.Type != "NS" || s.Subname != "" {
				out = append(out, rrset.Read(at, uint32(s.TTL), text, ".").Record(at))
			}
		}
	}
	return out
}

// add adds a record to its set, as somebody would in deSEC's web interface.
func add(t *testing.T, api *desectest.Server, domain string, r dnsprov.Record) {
	t.Helper()
	rr, err := r.RR()
	if err != nil {
		t.Fatal(err)
	}
	subname := strings.TrimSuffix(strings.TrimSuffix(r.Name, domain), ".")
	var texts []string
	ttl := max(int(r.TTL), desectest.MinimumTTL) + 100
	for _, s := range api.Sets(domain) {
		if s.Subname == subname && s.Type == r.Type {
			texts, ttl = s.Records, s.TTL
		}
	}
	api.Put(domain, subname, r.Type, ttl, append(texts[:len(texts):len(texts)], rrset.Of(rr).Text)...)
}

func conformanceCase(domain string, change ...func(*desectest.Server)) providertest.Case {
	api, c := start(change...)
	var cuts []resttest.Fault
	for _, kind := range resttest.Failures {
		for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodPost} {
			for skip := range 3 {
				cuts = append(cuts, resttest.Fault{Kind: kind, Method: method, Skip: skip, Times: 3})
			}
		}
	}
	return providertest.Case{ // without Late: deSEC lists the sets from the database to which it writes them
		Provider: providertest.Remember(c), Zone: dnsprov.ZoneRef{Domain: domain, OwnerTag: "m"},
		Stranger:  func(t *testing.T, r dnsprov.Record) { add(t, api, testDomain, r) },
		Strangers: func(*testing.T) []dnsprov.Record { return records(api, testDomain) },
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
			return conformanceCase(testDomain, func(s *desectest.Server) { s.PageSize = 2 })
		})
	})
}
