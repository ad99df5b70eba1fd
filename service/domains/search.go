package domains

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/store"
	"golang.org/x/net/publicsuffix"
)

const (
	maxSearchNames = 100              // names in one request, and names that are tried for a suggestion
	searchTimeout  = 45 * time.Second // time limit for a whole request
	searchesAtOnce = 20               // DNS lookups of one request that run at the same time
	rdapTimeout    = 18 * time.Second // time limit for all RDAP queries of one request
)

// Texts for a search that cannot say whether a name is available.
const (
	notInDNS          = "It is not in the DNS, but only a registrar knows whether it is available. Configure one to see prices."
	registryHasNoRDAP = "It is not in the DNS, and its registry has no RDAP service, so only a registrar knows whether it is available."
	noRDAPAnswer      = "It is not in the DNS, and its registry's RDAP service did not answer. Try again in a minute."
	noAnswer          = "It could not be looked up. Try again in a minute."
)

// A SearchResult says whether a domain is available, and at which price for one year. checked_via
// is the source of this information.
type SearchResult struct {
	Domain       string   `json:"domain" words:"ours"`
	Available    *bool    `json:"available"`                     // Whether the domain can be registered; null if that is not known.
	Price        *float64 `json:"price"`                         // In USD.
	RenewalPrice *float64 `json:"renewal_price" example:"14.99"` // In USD.
	Currency     string   `json:"currency" words:"ours" example:"USD"`
	Premium      bool     `json:"premium"`
	Registrar    *string  `json:"registrar" words:"ours"`
	CheckedVia   string   `json:"checked_via" enum:"registrar|rdap|dns"`
	Purchasable  bool     `json:"purchasable"`
	Error        *string  `json:"error" words:"theirs" rare:"true"`
}

// SearchDomainIn is the query of search_domain.
type SearchDomainIn struct {
	Q string `query:"q" alias:"domain" required:"true"` // Text to search for.
}

// SearchDomain checks whether one domain is available.
func (s *Service) SearchDomain(ctx context.Context, _ core.Actor, in SearchDomainIn) (*SearchResult, error) {
	name, err := registrableName(in.Q)
	if err != nil {
		return nil, err
	}
	return &s.searchNames(ctx, []string{name})[0], nil
}

// registrableName normalizes a domain name that somebody has typed. It returns an error if
// registries do not sell such names.
func registrableName(given string) (string, error) {
	ascii, _, err := idn.Registrable(given)
	if err != nil {
		return "", core.Errorf("invalid_domain", "%s", err)
	}
	if top := dnsprov.RegisteredName(ascii); top != ascii {
		return "", core.Errorf("invalid_domain", "%s is a subdomain: only %s can be registered.", ascii, top)
	}
	return ascii, nil
}

// SearchDomainsBulkIn is the body of search_domains_bulk.
type SearchDomainsBulkIn struct {
	Domains []string `json:"domains" required:"true" min:"1" max:"100" items:"judged" log:"true"`
}

// SearchedBulk is the answer of search_domains_bulk: one result for each name, in their order.
type SearchedBulk struct {
	Results        []SearchResult `json:"results"`
	Count          int            `json:"count"` // How many names are in `results`.
	AvailableCount int            `json:"available_count"`
}

// SearchDomainsBulk checks whether up to 100 domains are available. If a name is invalid, the
// others are still checked.
func (s *Service) SearchDomainsBulk(ctx context.Context, _ core.Actor, in SearchDomainsBulkIn) (*SearchedBulk, error) {
	out := &SearchedBulk{Results: make([]SearchResult, len(in.Domains)), Count: len(in.Domains)}
	var names []string
	places := map[string][]int{}
	for i, given := range in.Domains {
		name, err := registrableName(given)
		if e, bad := core.AsError(err); bad {
			out.Results[i] = s.emptyResult(edge.ClipName(given))
			out.Results[i].Error = &e.Message
			continue
		}
		if places[name] == nil {
			names = append(names, name)
		}
		places[name] = append(places[name], i)
	}
	for i, r := range s.searchNames(ctx, names) {
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

// emptyResult returns a result that does not say yet whether the name is available. Its checked_via
// is the source that is asked first.
func (s *Service) emptyResult(name string) SearchResult {
	r := SearchResult{Domain: name, Currency: currency, CheckedVia: viaDNS}
	switch {
	case len(s.Settings().Registrars) > 0:
		r.CheckedVia = viaRegistrar
	case s.Config.RDAP != nil:
		r.CheckedVia = viaRDAP
	}
	return r
}

// searchNames asks the registrar about all names, RDAP about names for which the registrar made no
// offer, and the DNS about the rest.
func (s *Service) searchNames(ctx context.Context, names []string) []SearchResult {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	out := make([]SearchResult, len(names))
	offers, shop := s.fetchOffers(ctx, names)
	asking, cancel := context.WithTimeout(ctx, rdapTimeout)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, searchesAtOnce)
	for i, name := range names {
		if offers != nil && offers[i].Err == nil {
			out[i] = offerResult(offers[i], shop)
			continue
		}
		wg.Go(func() {
			var why string
			out[i], why = s.searchRDAP(asking, name)
			if why == "" {
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

// searchRDAP asks the registry of a name by RDAP whether it is available. If the registry does not
// answer, why is the text that explains this to the user.
func (s *Service) searchRDAP(ctx context.Context, name string) (r SearchResult, why string) {
	if s.Config.RDAP == nil {
		return r, notInDNS
	}
	_, err := s.Config.RDAP.Domain(ctx, name)
	free := errors.Is(err, rdap.ErrNotFound)
	if err == nil || free {
		return SearchResult{Domain: name, Currency: currency, CheckedVia: viaRDAP, Available: &free}, ""
	}
	if errors.Is(err, rdap.ErrNoServer) {
		return r, registryHasNoRDAP
	}
	s.LogOf(ctx).Debug("RDAP service could not look up a domain", "domain", name, "error", err)
	return r, noRDAPAnswer
}

// fetchOffers asks the first registrar, whose name is by, for an offer for each name. It returns
// nil if there is no registrar or its answer is not valid.
func (s *Service) fetchOffers(ctx context.Context, names []string) (offers []registrar.Offer, by string) {
	shops := s.Settings().Registrars
	if len(shops) == 0 || len(names) == 0 {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, quoteTimeout)
	defer cancel()
	shop := shops[0]
	offers, err := shop.Quote(ctx, names)
	if err == nil && len(offers) != len(names) {
		err = errors.New("get offers: the registrar did not answer for every domain")
	}
	if err != nil {
		s.LogOf(ctx).Warn("registrar did not return prices", "registrar", shop.Name(), "error", err)
		return nil, ""
	}
	return offers, shop.Name()
}

// offerResult converts an offer of a registrar to a SearchResult.
func offerResult(o registrar.Offer, shop string) SearchResult {
	r := SearchResult{Domain: o.Domain, Currency: currency, CheckedVia: viaRegistrar, Available: &o.Available, Premium: o.Premium, Registrar: &shop}
	if o.Available && o.Price > 0 {
		r.Price, r.RenewalPrice = dollars(o.Price), dollars(o.Renewal)
		r.Purchasable = !o.Premium
	}
	return r
}

// searchDNS looks up whether a name is delegated, and thus taken. If it is not delegated, it may
// still be registered: then the result has the error why. The searches of all accounts share the
// lookup slots of one.
func (s *Service) searchDNS(ctx context.Context, name, why string) SearchResult {
	r := SearchResult{Domain: name, Currency: currency, CheckedVia: viaDNS}
	var found dnsprov.Delegation
	err := s.zones.WithLookupSlot(ctx, "", name, func() (err error) {
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

const (
	maxTLDs         = 20
	maxSuggestWords = 8 // keywords that are used; more are ignored
)

// Words that suggestions put before or after the keywords.
var (
	suggestBefore = []string{"get", "try", "my", "the", "go", "hello", "use", "join", "meet"}
	suggestAfter  = []string{"hq", "mail", "app", "team", "group", "labs", "hub", "online", "works", "now", "co"}
)

// suggestFiller are words that are left out of suggestions, because they only make names longer.
var suggestFiller = []string{"a", "an", "and", "at", "by", "for", "from", "in", "my", "of", "on", "or", "our", "the", "to", "with"}

// SuggestDomainsIn is the query of suggest_domains.
type SuggestDomainsIn struct {
	Keywords string `query:"keywords" alias:"keyword" required:"true" min:"1" max:"200"`
	TLDs     string `query:"tlds" max:"500"`     // Top-level domains, separated by commas.
	Limit    *int   `query:"limit" example:"20"` // Maximum names: 20 by default, at most 50.
	Check    *bool  `query:"check"`
}

// DomainSuggestions is the answer of suggest_domains.
type DomainSuggestions struct {
	Keywords    string         `json:"keywords" words:"ours"`
	Suggestions []SearchResult `json:"suggestions"`
	Count       int            `json:"count"` // How many names are in `suggestions`.
}

// SuggestDomains makes domain names from keywords. Unless check is false, it leaves out names that
// are taken.
func (s *Service) SuggestDomains(ctx context.Context, _ core.Actor, in SuggestDomainsIn) (*DomainSuggestions, error) {
	limit, err := page.Query{Limit: in.Limit}.PageSize(20, 50)
	if err != nil {
		return nil, err
	}
	tlds, err := parseTLDs(in.TLDs)
	if err != nil {
		return nil, err
	}
	words := keywordsOf(in.Keywords)
	if len(words) == 0 {
		return nil, core.Invalid("keywords", "invalid", "must hold at least one word of letters or digits")
	}
	names := suggestNames(words, tlds, maxSearchNames)
	out := &DomainSuggestions{Keywords: in.Keywords, Suggestions: []SearchResult{}}
	if in.Check == nil || *in.Check {
		out.Suggestions = s.suggestFree(ctx, names, limit)
	} else {
		for _, name := range names[:min(len(names), limit)] {
			out.Suggestions = append(out.Suggestions, s.emptyResult(name))
		}
	}
	out.Count = len(out.Suggestions)
	return out, nil
}

// suggestFree returns up to limit names that are not taken. It checks no more names than it needs
// to.
func (s *Service) suggestFree(ctx context.Context, names []string, limit int) []SearchResult {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	out := []SearchResult{}
	for len(names) > 0 && len(out) < limit && ctx.Err() == nil {
		some := names[:min(len(names), limit+limit/2)]
		names = names[len(some):]
		for _, r := range s.searchNames(ctx, some) {
			if taken := r.Available != nil && !*r.Available; !taken && len(out) < limit {
				out = append(out, r)
			}
		}
	}
	return out
}

// parseTLDs parses a comma-separated list of domain endings, such as "com,co.uk".
func parseTLDs(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return []string{"com", "net", "org", "io", "dev"}, nil
	}
	var out []string
	for given := range strings.SplitSeq(list, ",") {
		tld := strings.Trim(strings.TrimSpace(given), ".")
		ascii, _, err := idn.Registrable("example." + tld)
		if err != nil || tld == "" || dnsprov.RegisteredName(ascii) != ascii {
			return nil, core.Invalid("tlds", "invalid", "%.80q is not a domain ending such as com or co.uk", given)
		}
		tld = strings.TrimPrefix(ascii, "example.")
		if !slices.Contains(out, tld) {
			out = append(out, tld)
		}
	}
	if len(out) > maxTLDs {
		return nil, core.Invalid("tlds", "too_many_items", "must have at most %d items", maxTLDs)
	}
	return out, nil
}

// keywordsOf returns the distinct words of a text in lower case. If the text is a domain name, its
// ending is left out.
func keywordsOf(text string) []string {
	if ascii, _, err := idn.Registrable(text); err == nil {
		if _, known := publicsuffix.PublicSuffix(ascii); known {
			_, own, _ := idn.Registrable(dnsprov.RegisteredName(ascii)) // use the Unicode form, because the ASCII form of such a name is not a word
			text, _, _ = strings.Cut(own, ".")
		}
	}
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }) {
		if len(out) < maxSuggestWords && utf8.RuneCountInString(w) <= 40 && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	filler := func(w string) bool { return slices.Contains(suggestFiller, w) }
	if better := slices.DeleteFunc(slices.Clone(out), filler); len(better) > 0 {
		return better
	}
	return out
}

// suggestNames returns up to limit names, the simplest first. It combines a label with all endings
// before it uses the next label.
func suggestNames(words, tlds []string, limit int) []string {
	var out []string
	for _, label := range suggestLabels(words) {
		for _, tld := range tlds {
			ascii, _, err := idn.Registrable(label + "." + tld)
			if err != nil || mixesScripts(label) || dnsprov.RegisteredName(ascii) != ascii || slices.Contains(out, ascii) {
				continue
			}
			out = append(out, ascii)
			if len(out) == limit {
				return out
			}
		}
	}
	return out
}

// mixesScripts reports whether a label has Latin letters and letters of another script. Registries
// do not accept such labels.
func mixesScripts(label string) bool {
	latin := strings.ContainsFunc(label, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
	return latin && strings.ContainsFunc(label, func(r rune) bool { return unicode.IsLetter(r) && !unicode.Is(unicode.Latin, r) })
}

// suggestLabels returns combinations of the words with each other and with common words.
func suggestLabels(words []string) []string {
	joined := strings.Join(words, "")
	out := []string{joined}
	if len(words) > 1 {
		reversed := slices.Clone(words)
		slices.Reverse(reversed)
		out = append(out, strings.Join(words, "-"), strings.Join(reversed, ""))
	}
	for i := range max(len(suggestBefore), len(suggestAfter)) {
		if i < len(suggestBefore) && words[0] != suggestBefore[i] {
			out = append(out, suggestBefore[i]+joined)
		}
		if i < len(suggestAfter) && words[len(words)-1] != suggestAfter[i] {
			out = append(out, joined+suggestAfter[i])
		}
	}
	if len(words) == 1 {
		return out
	}
	out = append(out, words...)
	for _, w := range words {
		for _, behind := range suggestAfter {
			if w != behind {
				out = append(out, w+behind)
			}
		}
	}
	return out
}

// A SetupQuote says what a setup would buy. price is today's price in USD for all years. Nothing is
// bought above price_limit.
type SetupQuote struct {
	Domain       string   `json:"domain" words:"ours"`
	Registrar    string   `json:"registrar" words:"ours"`
	Years        int      `json:"years"`
	AutoRenew    bool     `json:"auto_renew"`
	Price        *float64 `json:"price"`
	PriceLimit   *float64 `json:"price_limit"`
	RenewalPrice *float64 `json:"renewal_price"`
	Currency     string   `json:"currency" words:"ours"`
}

// QuoteSetup returns what SetupDomain would buy for the same request. It returns nil if the request
// does not ask to buy a domain, or if the account has already bought it. It returns an error if
// SetupDomain would refuse the request, or if the domain is not available at the price.
func (s *Service) QuoteSetup(ctx context.Context, who core.Actor, in SetupDomainIn) (*SetupQuote, error) {
	p, err := s.planSetup(who, in)
	if err != nil || p.shop == nil {
		return nil, err
	}
	bought := false
	err = s.Store.View(func(tx *store.Tx) error {
		if err := p.checkStored(tx); err != nil {
			return err
		}
		pu, err := store.PurchaseOfDomain.Get(tx, p.name)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		bought = err == nil && pu.AccountID == who.AccountID && (pu.State == store.PurchaseOrdering ||
			pu.State == store.PurchaseBought && tx.Now().Sub(pu.ExpiresAt) <= lapsedAfter)
		return err
	})
	if err != nil || bought {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, quoteTimeout)
	defer cancel()
	offers, err := p.shop.Quote(ctx, []string{p.name})
	if err == nil && len(offers) != 1 {
		err = errors.New("get offer: the registrar returned none for the domain")
	}
	if err != nil {
		return nil, core.Errorf("upstream_error", "%s did not say what %s costs. Try again later.", p.shop.Name(), p.name).
			With(p.shop.Name(), "upstream_error", "did not answer").Because(err)
	}
	return p.quote(offers[0])
}

// quote checks an offer against the request and returns the SetupQuote for it.
func (p *setupPlan) quote(o registrar.Offer) (*SetupQuote, error) {
	years := 1
	if p.in.Years != nil {
		years = *p.in.Years
	}
	total, limit := o.Total(years), cents(*p.in.Price)*int64(years)
	switch {
	case o.Err != nil:
		return nil, core.Invalid("domain", "not_allowed", "%s does not sell %s", p.shop.Name(), p.name).Because(o.Err)
	case !o.Available:
		return nil, core.Invalid("domain", "not_allowed", "%s is not available; choose another name", p.name)
	case o.Premium || o.Price <= 0:
		return nil, core.Invalid("domain", "not_allowed", "%s is a premium domain, which Mailstead does not buy", p.name)
	case total > limit:
		return nil, core.Invalid("price", "out_of_range", "%s now costs %s for %s, more than the %s in price; ask the person about the new price", p.name, usd(total), termText(years), usd(limit))
	}
	return &SetupQuote{
		Domain: p.name, Registrar: p.shop.Name(), Years: years, AutoRenew: p.in.AutoRenew,
		Price: dollars(total), PriceLimit: dollars(limit), RenewalPrice: dollars(o.Renewal), Currency: currency,
	}, nil
}
