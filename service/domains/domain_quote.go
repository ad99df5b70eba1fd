package domains

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A SetupQuote is what a setup would buy, and for how much, in USD. Price is of all years, today;
// nothing above PriceLimit is bought.
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

// QuoteSetup says what SetupDomain would buy with the same request; nil if nothing, since it is not
// asked to or the account has the domain already. It refuses what SetupDomain would refuse, and
// what is not to be had at the price.
func (s *Service) QuoteSetup(ctx context.Context, who core.Actor, in SetupDomainIn) (*SetupQuote, error) {
	p, err := s.planSetup(who, in)
	if err != nil || p.shop == nil {
		return nil, err
	}
	bought := false
	err = s.Store.View(func(tx *store.Tx) error {
		if err := p.look(tx); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, quotesFor)
	defer cancel()
	offers, err := p.shop.Quote(ctx, []string{p.name})
	if err == nil && len(offers) != 1 {
		err = errors.New("it did not answer for the name")
	}
	if err != nil {
		return nil, core.Errorf("upstream_error", "%s did not say what %s costs. Try again later.", p.shop.Name(), p.name).
			With(p.shop.Name(), "upstream_error", "did not answer").Because(err)
	}
	return p.quote(offers[0])
}

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
		return nil, core.Invalid("domain", "not_allowed", "%s is sold at a premium price, which is not bought automatically", p.name)
	case total > limit:
		return nil, core.Invalid("price", "out_of_range", "%s costs %s for %s now, more than the %s that price allows; ask the person about the new price", p.name, usd(total), term(years), usd(limit))
	}
	return &SetupQuote{
		Domain: p.name, Registrar: p.shop.Name(), Years: years, AutoRenew: p.in.AutoRenew,
		Price: dollars(total), PriceLimit: dollars(limit), RenewalPrice: dollars(o.Renewal), Currency: currency,
	}, nil
}
