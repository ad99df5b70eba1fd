package domains

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
)

const (
	maxSearches    = 100              // names of one request
	searchesFor    = 45 * time.Second // all of one request
	searchesAtOnce = 20               // DNS look-ups of one request
	quotesFor      = 20 * time.Second // one question to a registrar
	rdapFor        = 18 * time.Second // all questions of one request to registries
	currency       = "USD"
	viaRegistrar   = "registrar"
	viaRDAP        = "rdap"
	viaDNS         = "dns"
)

// Why a search does not say whether a name is free.
const (
	unknownInTheDNS = "It is not in the DNS, but only a registrar can tell whether it is free. Configure one to see prices."
	noRDAPForIt     = "It is not in the DNS, and its registry has no RDAP service, so only a registrar can tell whether it is free."
	noRDAPAnswer    = "It is not in the DNS, and its registry's RDAP service gave no answer just now. Try again in a minute."
	noAnswer        = "It could not be looked up just now. Try again in a minute."
)

// A SearchResult says whether a domain can be had, and for how much. Prices are of one year.
// CheckedVia is who answered, or would have been asked first where there was nothing to ask.
type SearchResult struct {
	Domain       string   `json:"domain" words:"ours"`
	Available    *bool    `json:"available"`
	Price        *float64 `json:"price"`
	RenewalPrice *float64 `json:"renewal_price"`
	Currency     string   `json:"currency" words:"ours"`
	Premium      bool     `json:"premium"`
	Registrar    *string  `json:"registrar" words:"ours"`
	CheckedVia   string   `json:"checked_via" enum:"registrar|rdap|dns"`
	Purchasable  bool     `json:"purchasable"`
	Error        *string  `json:"error" words:"theirs"`
}

// SearchDomainIn is the query of search_domain.
type SearchDomainIn struct {
	Q string `query:"q" alias:"domain" required:"true"`
}

// SearchDomain looks whether one domain can be had.
func (s *Service) SearchDomain(ctx context.Context, _ core.Actor, in SearchDomainIn) (*SearchResult, error) {
	name, err := registrableName(in.Q)
	if err != nil {
		return nil, err
	}
	return &s.search(ctx, []string{name})[0], nil
}

// registrableName brings what a person typed to a name that registries sell.
func registrableName(given string) (string, error) {
	ascii, _, err := idn.Registrable(given)
	if err != nil {
		return "", core.Errorf("invalid_domain", "%s", err)
	}
	if top := dnsprov.RegisteredName(ascii); top != ascii {
		return "", core.Errorf("invalid_domain", "%s lies below %s, and only that can be registered.", ascii, top)
	}
	return ascii, nil
}

// SearchDomainsBulkIn is the body of search_domains_bulk.
type SearchDomainsBulkIn struct {
	Domains []string `json:"domains" required:"true" min:"1" max:"100" items:"judged"`
}

// SearchedBulk is the answer of search_domains_bulk: one result for each name, in their order.
type SearchedBulk struct {
	Results        []SearchResult `json:"results"`
	Count          int            `json:"count"`
	AvailableCount int            `json:"available_count"`
}

// SearchDomainsBulk looks whether up to 100 domains can be had. A bad name does not hold up its
// neighbours.
func (s *Service) SearchDomainsBulk(ctx context.Context, _ core.Actor, in SearchDomainsBulkIn) (*SearchedBulk, error) {
	out := &SearchedBulk{Results: make([]SearchResult, len(in.Domains)), Count: len(in.Domains)}
	var names []string
	places := map[string][]int{}
	for i, given := range in.Domains {
		name, err := registrableName(given)
		if e, bad := core.AsError(err); bad {
			out.Results[i] = s.unsearched(clip(given))
			out.Results[i].Error = &e.Message
			continue
		}
		if places[name] == nil {
			names = append(names, name)
		}
		places[name] = append(places[name], i)
	}
	for i, r := range s.search(ctx, names) {
		for _, place := range places[names[i]] {
			out.Results[place] = r
		}
	}
	for _, r := range out.Results {
		if r.Available != nil && *r.Available {
			out.AvailableCount++
		}
	}
	return out, nil
}

// unsearched is a result that says nothing yet.
func (s *Service) unsearched(name string) SearchResult {
	r := SearchResult{Domain: name, Currency: currency, CheckedVia: viaDNS}
	switch {
	case len(s.Config.Registrars) > 0:
		r.CheckedVia = viaRegistrar
	case s.Config.RDAP != nil:
		r.CheckedVia = viaRDAP
	}
	return r
}

// search asks the registrar about names, the registries about those that it does not answer for,
// and the DNS about what is still open.
func (s *Service) search(ctx context.Context, names []string) []SearchResult {
	ctx, cancel := context.WithTimeout(ctx, searchesFor)
	defer cancel()
	out := make([]SearchResult, len(names))
	offers := s.quotes(ctx, names)
	asking, cancel := context.WithTimeout(ctx, rdapFor)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, searchesAtOnce)
	for i, name := range names {
		if offers != nil && offers[i].Err == nil {
			out[i] = s.offered(offers[i])
			continue
		}
		wg.Go(func() {
			var why string
			if out[i], why = s.searchRDAP(asking, name); why == "" {
				return
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = s.searchDNS(ctx, name, why)
		})
	}
	wg.Wait()
	return out
}

// searchRDAP asks the registry. why says what is missing where that did not help.
func (s *Service) searchRDAP(ctx context.Context, name string) (r SearchResult, why string) {
	if s.Config.RDAP == nil {
		return r, unknownInTheDNS
	}
	_, err := s.Config.RDAP.Domain(ctx, name)
	free := errors.Is(err, rdap.ErrNotFound)
	if err == nil || free {
		return SearchResult{Domain: name, Currency: currency, CheckedVia: viaRDAP, Available: &free}, ""
	}
	if errors.Is(err, rdap.ErrNoServer) {
		return r, noRDAPForIt
	}
	s.Log.Debug("RDAP was asked about a domain", "domain", name, "error", err)
	return r, noRDAPAnswer
}

// quotes are the first registrar's offers; nil if there is none, or no answer.
func (s *Service) quotes(ctx context.Context, names []string) []registrar.Offer {
	if len(s.Config.Registrars) == 0 || len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, quotesFor)
	defer cancel()
	shop := s.Config.Registrars[0]
	offers, err := shop.Quote(ctx, names)
	if err == nil && len(offers) != len(names) {
		err = errors.New("it did not answer for every name")
	}
	if err != nil {
		s.Log.Warn("a registrar was asked for prices", "registrar", shop.Name(), "error", err)
		return nil
	}
	return offers
}

func (s *Service) offered(o registrar.Offer) SearchResult {
	r := s.unsearched(o.Domain)
	name := s.Config.Registrars[0].Name()
	r.Available, r.Premium, r.Registrar = &o.Available, o.Premium, &name
	if o.Available && o.Price > 0 {
		r.Price, r.RenewalPrice = dollars(o.Price), dollars(o.Renewal)
		r.Purchasable = !o.Premium
	}
	return r
}

// dollars are cents on the wire; null where they are not known.
func dollars(cents int64) *float64 {
	if cents == 0 {
		return nil
	}
	d := float64(cents) / 100
	return &d
}

// cents are what dollars come to, without any fraction, so that a bound is never exceeded.
func cents(dollars float64) int64 { return int64(math.Floor(dollars*100 + 1e-6)) }

// searchDNS can tell that a name is taken: it is delegated. That it is not proves nothing; why says
// what else is missing.
func (s *Service) searchDNS(ctx context.Context, name, why string) SearchResult {
	r := SearchResult{Domain: name, Currency: currency, CheckedVia: viaDNS}
	var found dnsprov.Delegation
	err := s.Looking(ctx, func() (err error) {
		found, err = dnsprov.CheckDelegation(ctx, s.Resolver, name, nil)
		return err
	})
	switch {
	case err != nil:
		why = noAnswer
		r.Error = &why
	case len(found.Current) > 0:
		r.Available = new(false)
	default:
		r.Error = &why
	}
	return r
}
