package service

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
)

const (
	maxSearches     = 100              // names of one request
	searchesFor     = 45 * time.Second // all of one request
	searchesAtOnce  = 20               // DNS look-ups of one request
	quotesFor       = 20 * time.Second // one question to a registrar
	currency        = "USD"
	viaRegistrar    = "registrar"
	viaDNS          = "dns"
	unknownInTheDNS = "It is not in the DNS, but only a registrar can tell whether it is free. Configure one to see prices."
)

// A SearchResult says whether a domain can be had, and for how much. Prices are of one year.
type SearchResult struct {
	Domain       string   `json:"domain"`
	Available    *bool    `json:"available"`
	Price        *float64 `json:"price"`
	RenewalPrice *float64 `json:"renewal_price"`
	Currency     string   `json:"currency"`
	Premium      bool     `json:"premium"`
	Registrar    *string  `json:"registrar"`
	CheckedVia   string   `json:"checked_via" enum:"registrar|rdap|dns"`
	Purchasable  bool     `json:"purchasable"`
	Error        *string  `json:"error"`
}

// SearchDomainIn is the query of search_domain.
type SearchDomainIn struct {
	Q string `query:"q" alias:"domain" required:"true"`
}

// SearchDomain looks whether one domain can be had.
func (s *Service) SearchDomain(ctx context.Context, _ Actor, in SearchDomainIn) (*SearchResult, error) {
	name, err := registrableName(in.Q)
	if err != nil {
		return nil, err
	}
	return &s.search(ctx, []string{name})[0], nil
}

// registrableName brings what a person typed to a name that registries sell.
func registrableName(given string) (string, error) {
	ascii, _, err := dnsprov.NormalizeDomain(given)
	if err != nil {
		return "", Errorf(400, "invalid_domain", "%s", err)
	}
	if top := dnsprov.Registrable(ascii); top != ascii {
		return "", Errorf(400, "invalid_domain", "%s lies below %s, and only that can be registered.", ascii, top)
	}
	return ascii, nil
}

// SearchDomainsBulkIn is the body of search_domains_bulk.
type SearchDomainsBulkIn struct {
	Domains []string `json:"domains" required:"true" min:"1" max:"100"`
}

// SearchedBulk is the answer of search_domains_bulk: one result for each name, in their order.
type SearchedBulk struct {
	Results        []SearchResult `json:"results"`
	Count          int            `json:"count"`
	AvailableCount int            `json:"available_count"`
}

// SearchDomainsBulk looks whether up to 100 domains can be had. A bad name does not hold up its neighbours.
func (s *Service) SearchDomainsBulk(ctx context.Context, _ Actor, in SearchDomainsBulkIn) (*SearchedBulk, error) {
	out := &SearchedBulk{Results: make([]SearchResult, len(in.Domains)), Count: len(in.Domains)}
	var names []string
	places := map[string][]int{}
	for i, given := range in.Domains {
		name, err := registrableName(given)
		if e, bad := AsError(err); bad {
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
	if len(s.Config.Registrars) > 0 {
		r.CheckedVia = viaRegistrar
	}
	return r
}

// search asks the registrar about names, and the DNS about those that it does not answer for.
func (s *Service) search(ctx context.Context, names []string) []SearchResult {
	ctx, cancel := context.WithTimeout(ctx, searchesFor)
	defer cancel()
	out := make([]SearchResult, len(names))
	offers := s.quotes(ctx, names)
	var wg sync.WaitGroup
	slots := make(chan struct{}, searchesAtOnce)
	for i, name := range names {
		if offers != nil && offers[i].Err == nil {
			out[i] = s.offered(offers[i])
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i] = s.searchDNS(ctx, name)
		})
	}
	wg.Wait()
	return out
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

// searchDNS can tell that a name is taken: it is delegated. That it is not proves nothing.
func (s *Service) searchDNS(ctx context.Context, name string) SearchResult {
	r := SearchResult{Domain: name, Currency: currency, CheckedVia: viaDNS}
	var found dnsprov.Delegation
	err := s.looking(ctx, func() (err error) {
		found, err = dnsprov.CheckDelegation(ctx, s.Resolver, name, nil)
		return err
	})
	why := unknownInTheDNS
	switch {
	case err != nil:
		why = "It could not be looked up just now. Try again in a minute."
		r.Error = &why
	case len(found.Current) > 0:
		r.Available = new(false)
	default:
		r.Error = &why
	}
	return r
}
