package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

const (
	orderFor     = 30 * time.Second // one question to a registrar, the order included
	orderSettles = 2 * time.Minute  // after a try that was not answered, until it is looked up; longer than orderFor
	lapsedAfter  = 90 * 24 * time.Hour
)

// planPurchase checks what concerns the purchase.
func (p *setupPlan) planPurchase() error {
	if !p.who.Can("purchase") {
		return Errorf(403, "insufficient_scope", "This token lacks the \"purchase\" permission that register needs. Use a token that has it.")
	}
	if top := dnsprov.Registrable(p.name); top != p.name {
		return Errorf(400, "invalid_domain", "%s lies below %s, and only that can be registered.", p.name, top).With("domain", "invalid_domain", "cannot be registered")
	}
	if p.in.Price == nil {
		return Invalid("price", "required", "is required with register: give the price that was quoted, for one year in USD, beyond which nothing is bought")
	}
	if len(p.s.Config.Registrars) == 0 {
		return Errorf(503, "not_configured", "This installation has no registrar. Its operator adds one to mailstead.toml; or register %s elsewhere and set it up without register.", p.name)
	}
	p.shop = p.s.Config.Registrars[0]
	if p.in.Registrar != "" {
		if p.shop = p.s.registrarNamed(p.in.Registrar); p.shop == nil {
			return Invalid("registrar", "not_allowed", "%.40q is not a registrar of this installation; GET /v1/account lists them", p.in.Registrar)
		}
	}
	return nil
}

func (s *Service) registrarNamed(name string) registrar.Registrar {
	for _, shop := range s.Config.Registrars {
		if shop.Name() == name {
			return shop
		}
	}
	return nil
}

// intend writes the intent to buy the domain, or finds the one that there is: what was bought, or may have been, is not
// bought again.
func (p *setupPlan) intend(tx *store.Tx) (id string, err error) {
	years := 1
	if p.in.Years != nil {
		years = *p.in.Years
	}
	pu, err := store.PurchaseOfDomain.Get(tx, p.name)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return "", err
	case pu.State == store.PurchaseBought && tx.Now().Sub(pu.ExpiresAt) > lapsedAfter, pu.State == store.PurchaseIntended && pu.AccountID != p.who.AccountID:
		pu.State, pu.RefusedCode, pu.RefusedWhy = store.PurchaseRefused, "domain_unavailable", "It has lapsed."
		if err := store.Purchases.Put(tx, pu); err != nil {
			return "", err
		}
	case pu.AccountID != p.who.AccountID:
		return "", Invalid("domain", "not_allowed", "%s", notAvailable(p.name))
	case pu.State != store.PurchaseIntended:
		return pu.ID, nil
	default:
		pu.State, pu.RefusedCode, pu.RefusedWhy = store.PurchaseRefused, "domain_unavailable", "It was asked for again."
		if err := store.Purchases.Put(tx, pu); err != nil {
			return "", err
		}
	}
	pu = &store.Purchase{
		ID: tx.NewID("pur"), AccountID: p.who.AccountID, Domain: p.name, Registrar: p.shop.Name(), Years: years,
		MaxPrice: cents(*p.in.Price) * int64(years), AutoRenew: p.in.AutoRenew, State: store.PurchaseIntended, CreatedAt: tx.Now(),
	}
	return pu.ID, store.Purchases.Put(tx, pu)
}

// A purchasing is the step of a setup that buys the domain.
type purchasing struct {
	*setup
	shop registrar.Registrar
	pu   *store.Purchase
}

// register buys the domain once. What it is about to do is written before it is done; after a try whose outcome is not
// known, the registrar is asked what came of it before there is another.
func (p *setup) register() error {
	b := &purchasing{setup: p}
	err := p.s.Store.View(func(tx *store.Tx) (err error) {
		b.pu, err = store.Purchases.Get(tx, p.args.PurchaseID)
		return err
	})
	if err != nil {
		return err
	}
	if b.shop = p.s.registrarNamed(b.pu.Registrar); b.shop == nil {
		return jobs.Permanent(Errorf(503, "not_configured", "The registrar %s of this purchase is not configured any more. Its operator must add it again.", b.pu.Registrar))
	}
	switch b.pu.State {
	case store.PurchaseBought:
		return b.keep(&registrar.Registration{Price: b.pu.Price, ExpiresAt: b.pu.ExpiresAt, AutoRenew: b.pu.AutoRenew})
	case store.PurchaseRefused:
		return b.refused()
	case store.PurchaseOrdering:
		return b.lookUp()
	}
	return b.order()
}

// ask gives a question to the registrar its time.
func (b *purchasing) ask(question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(b.ctx, orderFor)
	defer cancel()
	return question(ctx)
}

// lookUp finds out what came of a try whose answer never came.
func (b *purchasing) lookUp() error {
	var found *registrar.Registration
	err := b.ask(func(ctx context.Context) (err error) {
		found, err = b.shop.Find(ctx, b.pu.Domain)
		return err
	})
	switch {
	case err == nil && (found.Key == b.pu.ID || found.Key == "" && found.RegisteredAt.After(b.pu.TriedAt.Add(-time.Hour))):
		return b.keep(found)
	case err == nil:
		return b.refuse("domain_unavailable", "%s is in the registrar account already, by another order. The operator of this installation can say whose it is.", b.pu.Domain)
	case !errors.Is(err, registrar.ErrNotFound):
		return b.unclear(err)
	}
	if settled := b.pu.TriedAt.Add(orderSettles); b.s.now().Before(settled) {
		return jobs.RetryAt(settled, b.unclear(errors.New("the order is not there yet")))
	}
	return b.order()
}

// unclear is an error after which it is not known whether the domain was bought. It says what to check.
func (b *purchasing) unclear(err error) error {
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if b.pu.State == store.PurchaseIntended {
		return Errorf(502, "registrar_error", "%s did not answer, and %s was not ordered. Run setup again later.", b.shop.Name(), b.pu.Domain).Because(err)
	}
	return Errorf(502, "registrar_error",
		"It is not known whether %s was bought: %s did not answer the order %s of %s. Look for that order and for the domain there, then run setup again: it looks first, and never buys twice.",
		b.pu.Domain, b.shop.Name(), b.pu.ID, b.pu.TriedAt.UTC().Format(time.RFC3339)).Because(err)
}

// order asks for the price and buys.
func (b *purchasing) order() error {
	if err := b.guard(); err != nil {
		return err
	}
	again := b.pu.State == store.PurchaseOrdering
	if err := b.write(func(pu *store.Purchase) { pu.State, pu.TriedAt = store.PurchaseOrdering, b.s.now() }); err != nil {
		return err
	}
	o := registrar.Order{Key: b.pu.ID, Domain: b.pu.Domain, Years: b.pu.Years, MaxPrice: b.pu.MaxPrice, AutoRenew: b.pu.AutoRenew}
	if b.d.DNSProvider == dnsprov.Builtin && b.args.DNS {
		o.Nameservers = b.s.Config.Nameservers
	}
	var r *registrar.Registration
	err := b.ask(func(ctx context.Context) (err error) {
		r, err = b.shop.Register(ctx, o)
		return err
	})
	switch {
	case err == nil:
		return b.keep(r)
	case errors.Is(err, registrar.ErrTaken) && again:
		return b.unclear(err) // by our own first order, it may be
	}
	return b.explain(err)
}

// guard refuses what must not be bought: what is not to be had, or costs more than was agreed to.
func (b *purchasing) guard() error {
	var offers []registrar.Offer
	err := b.ask(func(ctx context.Context) (err error) {
		offers, err = b.shop.Quote(ctx, []string{b.pu.Domain})
		return err
	})
	if err == nil && len(offers) != 1 {
		err = errors.New("it did not answer for the name")
	}
	if err != nil {
		return b.unclear(err)
	}
	o := offers[0]
	switch total := o.Total(b.pu.Years); {
	case o.Err != nil:
		return b.explain(o.Err)
	case !o.Available && b.pu.State == store.PurchaseOrdering:
		return b.unclear(registrar.ErrTaken)
	case !o.Available:
		return b.explain(registrar.ErrTaken)
	case o.Premium:
		return b.explain(registrar.ErrPremium)
	case o.Price <= 0 || total > b.pu.MaxPrice:
		return b.refuse("price_changed", "%s costs %s for %d years now, more than the %s that were agreed to. Search for it again, and give the new price.",
			b.pu.Domain, usd(total), b.pu.Years, usd(b.pu.MaxPrice))
	}
	return nil
}

func usd(cents int64) string { return fmt.Sprintf("%.2f %s", float64(cents)/100, currency) }

// explain turns an error of the registrar into the job's. After those that are known nothing was bought.
func (b *purchasing) explain(err error) error {
	name, shop := b.pu.Domain, b.shop.Name()
	switch {
	case errors.Is(err, registrar.ErrTaken):
		return b.refuse("domain_unavailable", "%s is not available any more. Choose another name, and delete this one.", name)
	case errors.Is(err, registrar.ErrPrice):
		return b.refuse("price_changed", "%s costs more now than the %s that were agreed to. Search for it again, and give the new price.", name, usd(b.pu.MaxPrice))
	case errors.Is(err, registrar.ErrPremium):
		return b.refuse("premium_not_supported", "%s is sold at a premium price, which is not bought automatically. Buy it at a registrar, then set it up without register.", name)
	case errors.Is(err, registrar.ErrNoFunds):
		return b.refuse("insufficient_funds", "The account at %s has not enough funds. Its owner must add some; then run setup again.", shop)
	case errors.Is(err, registrar.ErrNotSold), errors.Is(err, registrar.ErrBadDomain):
		return b.refuse("registrar_error", "%s does not sell %s: %s.", shop, name, err)
	}
	return b.unclear(err)
}

// refuse ends the purchase: nothing was bought.
func (b *purchasing) refuse(code, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	if err := b.write(func(pu *store.Purchase) { pu.State, pu.RefusedCode, pu.RefusedWhy = store.PurchaseRefused, code, why }); err != nil {
		return err
	}
	return b.refused()
}

func (b *purchasing) refused() error {
	return jobs.Permanent(Errorf(409, b.pu.RefusedCode, "%s", b.pu.RefusedWhy))
}

// write changes the record of a purchase that has not ended.
func (b *purchasing) write(change func(*store.Purchase)) error {
	return b.s.Store.Update(func(tx *store.Tx) error {
		pu, err := store.Purchases.Get(tx, b.pu.ID)
		if err != nil {
			return err
		}
		if pu.State == store.PurchaseRefused || pu.State == store.PurchaseBought {
			return fmt.Errorf("purchase %s is %s already", pu.ID, pu.State)
		}
		change(pu)
		b.pu = pu
		return store.Purchases.Put(tx, pu)
	})
}

// keep writes that the domain was bought, and that it is.
func (b *purchasing) keep(r *registrar.Registration) error {
	return b.s.Store.Update(func(tx *store.Tx) error {
		pu, err := store.Purchases.Get(tx, b.pu.ID)
		if err != nil {
			return err
		}
		if pu.State != store.PurchaseBought {
			pu.State, pu.Price, pu.ExpiresAt, pu.AutoRenew, pu.BoughtAt = store.PurchaseBought, r.Price, r.ExpiresAt, r.AutoRenew, tx.Now()
			if err := store.Purchases.Put(tx, pu); err != nil {
				return err
			}
		}
		d, err := store.Domains.Get(tx, b.d.ID)
		if err != nil {
			return err
		}
		d.Source, d.Registrar, d.ExpiresAt, d.AutoRenew = "registered", pu.Registrar, pu.ExpiresAt, pu.AutoRenew
		b.pu, b.d = pu, d
		if err := b.s.tellCreated(tx, d); err != nil {
			return err
		}
		return b.s.putDomain(tx, d)
	})
}

// tellRegistrar has the registrar that the domain was bought from name our nameservers.
func (p *setup) tellRegistrar() error {
	shop := p.s.registrarNamed(p.d.Registrar)
	if shop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, orderFor)
	defer cancel()
	found, err := shop.Find(ctx, p.d.Name)
	if errors.Is(err, registrar.ErrNotFound) {
		return nil // it has been moved away; the DNS says where to
	}
	if err == nil && !sameNames(found.Nameservers, p.s.Config.Nameservers) {
		err = shop.Delegate(ctx, p.d.Name, p.s.Config.Nameservers)
	}
	if err != nil {
		return Errorf(502, "registrar_error", "%s did not set the nameservers of %s. It is tried again.", shop.Name(), p.d.Name).Because(err)
	}
	return nil
}

// sameNames tells whether two lists hold the same names, in whatever order.
func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
