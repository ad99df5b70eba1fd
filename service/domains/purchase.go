package domains

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	orderFor     = 30 * time.Second // for one call to a registrar, also an order
	orderSettles = 2 * time.Minute  // after an unanswered order, until there may be another one; longer than orderFor
	orderIsLost  = 24 * time.Hour   // after an unanswered order: a purchase would be visible by now
	clocksDiffer = 24 * time.Hour   // a registrar may write times of another zone
	lapsedAfter  = 90 * 24 * time.Hour
)

// planPurchase validates the fields for a purchase.
func (p *setupPlan) planPurchase() error {
	if !p.who.Can("purchase") {
		return core.Errorf("insufficient_scope", "This token lacks the \"purchase\" permission that register needs. Use a token that has it.")
	}
	if top := dnsprov.RegisteredName(p.name); top != p.name {
		return core.Errorf("invalid_domain", "%s is a subdomain: only %s can be registered.", p.name, top).With("domain", "invalid_domain", "cannot be registered")
	}
	if p.in.Price == nil {
		return core.Invalid("price", "required", "is required with register: give the quoted price for one year in USD; nothing is bought above it")
	}
	if len(p.s.Config.Registrars) == 0 {
		return core.Errorf("not_configured", "This installation has no registrar. Its operator can add one to mailstead.toml; or register %s elsewhere and set it up without register.", p.name)
	}
	p.shop = p.s.Config.Registrars[0]
	if p.in.Registrar != "" {
		p.shop = p.s.registrarNamed(p.in.Registrar)
		if p.shop == nil {
			return core.Invalid("registrar", "not_allowed", "%.40q is not a registrar of this installation; see GET /v1/account for the list", p.in.Registrar)
		}
	}
	if registrar.HasFixedNameservers(p.shop) && p.in.EdgeAPIToken == nil && !p.in.ManualDNS {
		return core.Invalid("edge_api_token", "required",
			"is required with register at %s, which does not allow other nameservers: give an API token for its DNS, or manual_dns to enter the records yourself, or choose another registrar", p.shop.Name())
	}
	return nil
}

// addPurchase writes the intent to buy the domain and returns its id. If the account has bought it,
// or may have, addPurchase returns that purchase, so that the domain is not bought twice.
func (p *setupPlan) addPurchase(tx *store.Tx) (id string, err error) {
	years := 1
	if p.in.Years != nil {
		years = *p.in.Years
	}
	pu, err := store.PurchaseOfDomain.Get(tx, p.name)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return "", err
	case pu.State == store.PurchaseBought && tx.Now().Sub(pu.ExpiresAt) > lapsedAfter, pu.State == store.PurchaseIntended && pu.AccountID != p.who.AccountID,
		pu.State == store.PurchaseOrdering && pu.AccountID == "" && tx.Now().Sub(pu.TriedAt) > orderIsLost:
		pu.State, pu.RefusedCode, pu.RefusedWhy = store.PurchaseRefused, "domain_unavailable", "It has lapsed."
		if err := store.Purchases.Put(tx, pu); err != nil {
			return "", err
		}
	case pu.AccountID != p.who.AccountID:
		return "", core.Invalid("domain", "not_allowed", "%s", notAvailable(p.name))
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

// register buys the domain once. It records each step before it takes the step. If an order is not
// answered, it asks the registrar for the result before it orders again.
func (p *setup) register() error {
	b := &purchasing{setup: p}
	err := p.s.Store.View(func(tx *store.Tx) (err error) {
		b.pu, err = store.Purchases.Get(tx, p.args.PurchaseID)
		return err
	})
	if err != nil {
		return err
	}
	b.shop = p.s.registrarNamed(b.pu.Registrar)
	if b.shop == nil {
		return jobs.Permanent(core.Errorf("not_configured", "The registrar %s of this purchase is no longer configured here. The operator of this installation must add it again.", b.pu.Registrar))
	}
	switch b.pu.State {
	case store.PurchaseBought:
		return b.saveBought(&registrar.Registration{Price: b.pu.Price, ExpiresAt: b.pu.ExpiresAt, AutoRenew: b.pu.AutoRenew})
	case store.PurchaseRefused:
		return b.refused()
	case store.PurchaseOrdering:
		return b.lookUp()
	}
	return b.order()
}

// ask calls the registrar with a timeout.
func (b *purchasing) ask(question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(b.ctx, orderFor)
	defer cancel()
	return question(ctx)
}

// lookUp finds out the result of an order that was not answered.
func (b *purchasing) lookUp() error {
	found, err := b.find()
	switch {
	case err == nil && b.ours(found):
		return b.accept(found)
	case err == nil:
		return b.refuse("domain_unavailable", "%s is already in the registrar account, from another order. The operator of this installation can say whose it is.", b.pu.Domain)
	case !errors.Is(err, registrar.ErrNotFound):
		return b.unclear(err)
	}
	if settled := b.pu.TriedAt.Add(orderSettles); b.s.Now().Before(settled) {
		return jobs.RetryAt(settled, b.unclear(errors.New("the registrar does not show the order yet")))
	}
	return b.order()
}

func (b *purchasing) find() (found *registrar.Registration, err error) {
	err = b.ask(func(ctx context.Context) (err error) {
		found, err = b.shop.Find(ctx, b.pu.Domain)
		return err
	})
	return found, err
}

// ours reports whether a domain in the registrar account is from this purchase. Some registrars
// keep no key of the order. There a domain is somebody else's only if it is older than our intent:
// it was for sale when we ordered it.
func (b *purchasing) ours(r *registrar.Registration) bool {
	return r.Key == b.pu.ID || r.Key == "" && r.RegisteredAt.After(b.pu.CreatedAt.Add(-clocksDiffer))
}

// mayBeOurs reports whether an order was sent and its result may still become known.
func (b *purchasing) mayBeOurs() bool {
	return b.pu.State == store.PurchaseOrdering && b.s.Now().Sub(b.pu.TriedAt) < orderIsLost
}

// unclear is the error if it is not known whether the domain was bought. Its text says what to
// check.
func (b *purchasing) unclear(err error) error {
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if b.pu.State == store.PurchaseIntended {
		return core.Errorf("registrar_error",
			"%s accepts no order for %s now, and nothing was bought. Mailstead will try again for a while; you can also run setup again, or delete the domain.",
			b.shop.Name(), b.pu.Domain).Because(err)
	}
	return core.Errorf("registrar_error",
		"It is unknown whether %s was bought: %s did not answer the order %s of %s. Mailstead will look again for a while. If this stays, look for that order and for the domain in the account there; then run setup again: it checks first, and never buys twice.",
		b.pu.Domain, b.shop.Name(), b.pu.ID, b.pu.TriedAt.UTC().Format(time.RFC3339)).Because(err)
}

// order checks the offer and buys the domain.
func (b *purchasing) order() error {
	if err := b.checkOffer(); err != nil {
		return err
	}
	before, doubtful := *b.pu, b.mayBeOurs()
	if err := b.write(func(pu *store.Purchase) { pu.State, pu.TriedAt = store.PurchaseOrdering, b.s.Now() }); err != nil {
		return err
	}
	o := registrar.Order{Key: b.pu.ID, Domain: b.pu.Domain, Years: b.pu.Years, MaxPrice: b.pu.MaxPrice, AutoRenew: b.pu.AutoRenew}
	ours := b.s.Config.Nameservers
	if b.d.DNSProvider == dnsprov.Builtin && b.args.DNS && len(inside(b.pu.Domain, ours)) == 0 && !registrar.HasFixedNameservers(b.shop) {
		o.Nameservers = ours // nameservers inside the domain can be set only after the domain exists
	}
	var r *registrar.Registration
	err := b.ask(func(ctx context.Context) (err error) {
		r, err = b.shop.Register(ctx, o)
		return err
	})
	nothingBought := slices.ContainsFunc([]error{
		registrar.ErrNotSold, registrar.ErrTaken, registrar.ErrPrice, registrar.ErrPremium, registrar.ErrNoFunds, registrar.ErrBadDomain, registrar.ErrNotNow,
	}, func(known error) bool { return errors.Is(err, known) })
	switch {
	case err == nil:
		return b.accept(r)
	case !nothingBought:
		return b.unclear(err)
	case errors.Is(err, registrar.ErrTaken):
		r, lost := b.find()
		if lost == nil && b.ours(r) {
			return b.accept(r) // a proxy has repeated our order, and the first one succeeded
		}
		if lost != nil && !errors.Is(lost, registrar.ErrNotFound) {
			return b.unclear(lost)
		}
	}
	if !doubtful && !errors.Is(err, registrar.ErrNotNow) {
		return b.explain(err)
	}
	// This order bought nothing, so the state is the one before it.
	if err := b.write(func(pu *store.Purchase) { pu.State, pu.TriedAt = before.State, before.TriedAt }); err != nil {
		return err
	}
	return b.unclear(err)
}

// checkOffer returns an error if the domain is not available or costs more than was agreed.
func (b *purchasing) checkOffer() error {
	var offers []registrar.Offer
	err := b.ask(func(ctx context.Context) (err error) {
		offers, err = b.shop.Quote(ctx, []string{b.pu.Domain})
		return err
	})
	if err == nil && len(offers) != 1 {
		err = errors.New("the registrar did not answer for the name")
	}
	if err != nil {
		return b.unclear(err)
	}
	o := offers[0]
	switch total := o.Total(b.pu.Years); {
	case b.mayBeOurs() && (o.Err != nil || !o.Available || o.Premium || o.Price <= 0 || total > b.pu.MaxPrice):
		return b.unclear(fmt.Errorf("the registrar's offer is now %+v", o)) // an unclear purchase is neither repeated nor given up
	case o.Err != nil:
		return b.explain(o.Err)
	case !o.Available:
		return b.explain(registrar.ErrTaken)
	case o.Premium:
		return b.explain(registrar.ErrPremium)
	case o.Price <= 0 || total > b.pu.MaxPrice:
		return b.refuse("price_changed", "%s now costs %s for %s, more than the %s in price. Search for it again, and give the new price for one year.",
			b.pu.Domain, usd(total), term(b.pu.Years), usd(b.pu.MaxPrice))
	}
	return nil
}

// term says in words for how long a domain is bought.
func term(years int) string {
	if years == 1 {
		return "one year"
	}
	return fmt.Sprintf("%d years", years)
}

// dollars converts cents to the API's dollars; nil for 0, which means that they are not known.
func dollars(cents int64) *float64 {
	if cents == 0 {
		return nil
	}
	d := float64(cents) / 100
	return &d
}

func usd(cents int64) string { return fmt.Sprintf("%.2f %s", float64(cents)/100, currency) }

// explain turns an error of the registrar into the job's error. The known errors mean that nothing
// was bought.
func (b *purchasing) explain(err error) error {
	name, shop := b.pu.Domain, b.shop.Name()
	switch {
	case errors.Is(err, registrar.ErrTaken):
		return b.refuse("domain_unavailable", "%s is no longer available. Choose another name, and delete this one.", name)
	case errors.Is(err, registrar.ErrPrice):
		return b.refuse("price_changed", "%s now costs more than the %s in price. Search for it again, and give the new price.", name, usd(b.pu.MaxPrice))
	case errors.Is(err, registrar.ErrPremium):
		return b.refuse("premium_not_supported", "%s is a premium domain, which Mailstead does not buy. Buy it at a registrar, then set it up without register.", name)
	case errors.Is(err, registrar.ErrNoFunds):
		return b.refuse("insufficient_funds", "The account at %s has insufficient funds. Its owner must add some; then run setup again.", shop)
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
	return jobs.Permanent(core.Errorf(b.pu.RefusedCode, "%s", b.pu.RefusedWhy))
}

// write changes the record of a purchase that has not ended.
func (b *purchasing) write(change func(*store.Purchase)) error {
	return b.s.Store.Update(func(tx *store.Tx) error {
		pu, err := store.Purchases.Get(tx, b.pu.ID)
		if err != nil {
			return err
		}
		if pu.State == store.PurchaseRefused || pu.State == store.PurchaseBought {
			return fmt.Errorf("purchase %s has ended already: it is %s", pu.ID, pu.State)
		}
		change(pu)
		b.pu = pu
		return store.Purchases.Put(tx, pu)
	})
}

// accept saves what was bought, after it has set auto-renewal at the registrar as requested. If the
// registrar does not set it, the domain shows the registrar's setting.
func (b *purchasing) accept(r *registrar.Registration) error {
	shop, ok := b.shop.(registrar.AutoRenewer)
	if ok && r.AutoRenew != b.pu.AutoRenew {
		err := b.ask(func(ctx context.Context) error { return shop.SetAutoRenew(ctx, b.pu.Domain, b.pu.AutoRenew) })
		if err == nil {
			r.AutoRenew = b.pu.AutoRenew
		} else {
			b.s.Log.Warn("registrar did not set the auto-renewal of a new domain", "domain", b.pu.Domain, "registrar", b.shop.Name(), "error", err)
		}
	}
	return b.saveBought(r)
}

// saveBought records the purchase and marks the domain as bought.
func (b *purchasing) saveBought(r *registrar.Registration) error {
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
		d.Source, d.Registrar, d.ExpiresAt, d.AutoRenew = store.DomainSourceRegistered, pu.Registrar, pu.ExpiresAt, pu.AutoRenew
		b.pu, b.d = pu, d
		if err := b.s.emitCreated(tx, d); err != nil {
			return err
		}
		if err := b.s.putDomain(tx, d); err != nil {
			return err
		}
		_, err = b.s.prove(tx, d, provenByPurchase)
		return err
	})
}

const renewalFor = 15 * time.Second // for one call to a registrar about it

func (s *Service) registrarNamed(name string) registrar.Registrar {
	for _, shop := range s.Config.Registrars {
		if shop.Name() == name {
			return shop
		}
	}
	return nil
}

// setNameservers sets our nameservers at the registrar that the domain was bought from, and their
// addresses (glue) if they are inside the domain.
func (p *setup) setNameservers() error {
	shop := p.s.registrarNamed(p.d.Registrar)
	if shop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, orderFor)
	defer cancel()
	found, err := shop.Find(ctx, p.d.Name)
	if errors.Is(err, registrar.ErrNotFound) {
		return nil // it was transferred to another registrar; the step checks the DNS
	}
	if err == nil && registrar.HasFixedNameservers(shop) {
		err = registrar.ErrFixedNameservers
	}
	if err == nil {
		err = p.setGlue(ctx, shop, found)
	}
	if err == nil && !sameNames(found.Nameservers, p.s.Config.Nameservers) {
		err = shop.Delegate(ctx, p.d.Name, p.s.Config.Nameservers)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*core.Error)):
		return err
	case errors.Is(err, registrar.ErrFixedNameservers):
		return jobs.Permanent(core.Errorf("registrar_error",
			"%s does not allow other nameservers for %s, so Mailstead cannot serve its DNS. Delete the domain here, which keeps the registration, and run setup again with edge_api_token, an API token for the DNS there, or with manual_dns.",
			shop.Name(), p.d.Name).Because(err))
	}
	return core.Errorf("registrar_error", "%s did not set the nameservers of %s. Mailstead will try again.", shop.Name(), p.d.Name).Because(err)
}

// setGlue sets the addresses of our nameservers that are inside the domain, before it is delegated
// to them.
func (p *setup) setGlue(ctx context.Context, shop registrar.Registrar, found *registrar.Registration) error {
	c := p.s.Config
	hosts := inside(p.d.Name, c.Nameservers)
	if len(hosts) == 0 {
		return nil
	}
	setter, ok := shop.(registrar.GlueSetter)
	if !ok && sameNames(found.Nameservers, c.Nameservers) {
		return nil // the glue was entered by hand
	}
	if !ok {
		return jobs.Permanent(core.Errorf("registrar_error",
			"%s is inside %s, and Mailstead cannot set glue records at %s. Enter them there as %v, set these nameservers, and run setup again.",
			namesOf(hosts), p.d.Name, shop.Name(), c.PublicIPs))
	}
	for _, host := range hosts {
		if err := setter.SetGlue(ctx, p.d.Name, host, c.PublicIPs); err != nil {
			return err
		}
	}
	return nil
}

// inside returns the hosts that are inside the domain.
func inside(domain string, hosts []string) []string {
	var out []string
	for _, h := range hosts {
		if strings.HasSuffix(h, "."+domain) {
			out = append(out, h)
		}
	}
	return out
}

// sameNames reports whether two lists hold the same names, in any order.
func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// setAutoRenew turns auto-renewal on or off at the registrar of a domain that was bought here,
// before the record changes. It does so only if the rest of the request is valid.
func (s *Service) setAutoRenew(ctx context.Context, who core.Actor, in UpdateDomainIn) error {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		changed := *d
		return in.apply(tx, &changed)
	})
	if err != nil || d.Source != store.DomainSourceRegistered || d.Gone() || d.AutoRenew == *in.AutoRenew {
		return err
	}
	shop := s.registrarNamed(d.Registrar)
	if shop == nil {
		return core.Errorf("not_configured", "The registrar %s of %s is no longer configured here, so the renewal cannot be changed. The operator of this installation must add it again.", d.Registrar, d.Name)
	}
	renewer, ok := shop.(registrar.AutoRenewer)
	if !ok {
		return core.Invalid("auto_renew", "not_allowed", "cannot be changed from here: change it at %s", shop.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, renewalFor)
	defer cancel()
	err = renewer.SetAutoRenew(ctx, d.Name, *in.AutoRenew)
	if errors.Is(err, registrar.ErrNotFound) {
		return core.Invalid("auto_renew", "not_allowed", "cannot be changed: %s is no longer in the account at %s", d.Name, shop.Name())
	}
	if err != nil {
		return core.Errorf("upstream_error", "%s did not change the renewal of %s. Nothing was changed. Try again later.", shop.Name(), d.Name).
			With(shop.Name(), "upstream_error", "did not change the renewal").Because(err)
	}
	return nil
}
