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
	orderTimeout    = 30 * time.Second // time limit for one call to a registrar, including an order
	orderSettleTime = 2 * time.Minute  // time between an unanswered order and the next one; longer than orderTimeout
	orderLostAfter  = 24 * time.Hour   // so long after an unanswered order, a purchase would be visible at the registrar
	maxClockSkew    = 24 * time.Hour   // a registrar may give times in another time zone
)

// planPurchase validates the fields of a request that buys a domain.
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
	shops := p.s.Settings().Registrars
	if len(shops) == 0 {
		return core.Errorf("not_configured", "This installation has no registrar. Its operator can add one in the settings; or register %s elsewhere and set it up without register.", p.name)
	}
	p.shop = shops[0]
	if p.in.Registrar != "" {
		p.shop = p.s.registrarNamed(p.in.Registrar)
		if p.shop == nil {
			return core.Invalid("registrar", "not_allowed", "%.40q is not a registrar of this installation; see GET /v1/account for the list", p.in.Registrar)
		}
	}
	if registrar.HasFixedNameservers(p.shop) && p.in.EdgeAPIToken == nil && p.in.DNSCredentialID == nil && !p.in.ManualDNS {
		return core.Invalid("edge_api_token", "required",
			"is required with register at %s, which does not allow other nameservers: give an API token for its DNS, or manual_dns to enter the records yourself, or choose another registrar", p.shop.Name())
	}
	return nil
}

// addPurchase writes a record of the intended purchase and returns its ID. If the account has
// already bought the domain, or may have, it returns that purchase instead, so that the domain is
// not bought twice.
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
		pu.State == store.PurchaseOrdering && pu.AccountID == "" && tx.Now().Sub(pu.TriedAt) > orderLostAfter:
		pu.State, pu.RefusedCode, pu.RefusedWhy = store.PurchaseRefused, "domain_unavailable", "It has lapsed."
		if err := store.Purchases.Put(tx, pu); err != nil {
			return "", err
		}
	case pu.AccountID != p.who.AccountID:
		return "", core.Invalid("domain", "not_allowed", "%s", notAvailableText(p.name))
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

// A purchaseStep is the step of a setup that buys the domain.
type purchaseStep struct {
	*setupRun
	shop registrar.Registrar
	pu   *store.Purchase
}

// buyDomain buys the domain, but never twice: it records an order before it sends it. If an order
// was not answered, it asks the registrar for the result before it orders again.
func (p *setupRun) buyDomain() error {
	b := &purchaseStep{setupRun: p}
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
		return b.refusedError()
	case store.PurchaseOrdering:
		return b.lookUpOrder()
	}
	return b.placeOrder()
}

// withTimeout calls `call`, which sends one request to the registrar, with orderTimeout as its
// limit.
func (b *purchaseStep) withTimeout(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(b.ctx, orderTimeout)
	defer cancel()
	return call(ctx)
}

// lookUpOrder asks the registrar for the result of an order that was not answered.
func (b *purchaseStep) lookUpOrder() error {
	found, err := b.findRegistration()
	switch {
	case err == nil && b.isOurs(found):
		return b.acceptPurchase(found)
	case err == nil:
		return b.endWithoutBuying("domain_unavailable", "%s is already in the registrar account, from another order. The operator of this installation can say whose it is.", b.pu.Domain)
	case !errors.Is(err, registrar.ErrNotFound):
		return b.unclearError(err)
	}
	if settled := b.pu.TriedAt.Add(orderSettleTime); b.s.Now().Before(settled) {
		return jobs.RetryAt(settled, b.unclearError(errors.New("find order: the registrar does not show the domain yet")))
	}
	return b.placeOrder()
}

// findRegistration returns the domain's registration in the account at the registrar.
func (b *purchaseStep) findRegistration() (found *registrar.Registration, err error) {
	err = b.withTimeout(func(ctx context.Context) (err error) {
		found, err = b.shop.Find(ctx, b.pu.Domain)
		return err
	})
	return found, err
}

// isOurs reports whether a registration comes from this purchase. Some registrars do not keep the
// key of an order. There, a registration that is not older than the purchase record comes from this
// purchase, because the domain was for sale at that time.
func (b *purchaseStep) isOurs(r *registrar.Registration) bool {
	return r.Key == b.pu.ID || r.Key == "" && r.RegisteredAt.After(b.pu.CreatedAt.Add(-maxClockSkew))
}

// orderMaySucceed reports whether an order was sent so recently that its result may still show up
// at the registrar.
func (b *purchaseStep) orderMaySucceed() bool {
	return b.pu.State == store.PurchaseOrdering && b.s.Now().Sub(b.pu.TriedAt) < orderLostAfter
}

// unclearError returns the job's error if it is not known whether the domain was bought. Its text
// says what to check.
func (b *purchaseStep) unclearError(err error) error {
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

// placeOrder checks the registrar's offer and buys the domain.
func (b *purchaseStep) placeOrder() error {
	if err := b.checkOffer(); err != nil {
		return err
	}
	before, doubtful := *b.pu, b.orderMaySucceed()
	if err := b.updatePurchase(func(pu *store.Purchase) { pu.State, pu.TriedAt = store.PurchaseOrdering, b.s.Now() }); err != nil {
		return err
	}
	o := registrar.Order{Key: b.pu.ID, Domain: b.pu.Domain, Years: b.pu.Years, MaxPrice: b.pu.MaxPrice, AutoRenew: b.pu.AutoRenew}
	ours := b.s.Config.Nameservers
	if b.d.DNSProvider == dnsprov.Builtin && b.args.DNS && len(hostsInside(b.pu.Domain, ours)) == 0 && !registrar.HasFixedNameservers(b.shop) {
		o.Nameservers = ours // nameservers inside the domain can be set only after it is registered
	}
	var r *registrar.Registration
	err := b.withTimeout(func(ctx context.Context) (err error) {
		r, err = b.shop.Register(ctx, o)
		return err
	})
	nothingBought := slices.ContainsFunc([]error{
		registrar.ErrNotSold, registrar.ErrTaken, registrar.ErrPrice, registrar.ErrPremium, registrar.ErrNoFunds, registrar.ErrBadDomain, registrar.ErrNotNow,
	}, func(known error) bool { return errors.Is(err, known) })
	switch {
	case err == nil:
		return b.acceptPurchase(r)
	case !nothingBought:
		return b.unclearError(err)
	case errors.Is(err, registrar.ErrTaken):
		r, lost := b.findRegistration()
		if lost == nil && b.isOurs(r) {
			return b.acceptPurchase(r) // a proxy has sent our order twice, and the first one succeeded
		}
		if lost != nil && !errors.Is(lost, registrar.ErrNotFound) {
			return b.unclearError(lost)
		}
	}
	if !doubtful && !errors.Is(err, registrar.ErrNotNow) {
		return b.jobError(err)
	}
	// This order has bought nothing: restore the state before it.
	if err := b.updatePurchase(func(pu *store.Purchase) { pu.State, pu.TriedAt = before.State, before.TriedAt }); err != nil {
		return err
	}
	return b.unclearError(err)
}

// checkOffer returns an error if the domain is not available or costs more than the price limit.
func (b *purchaseStep) checkOffer() error {
	var offers []registrar.Offer
	err := b.withTimeout(func(ctx context.Context) (err error) {
		offers, err = b.shop.Quote(ctx, []string{b.pu.Domain})
		return err
	})
	if err == nil && len(offers) != 1 {
		err = errors.New("get offer: the registrar returned none for the domain")
	}
	if err != nil {
		return b.unclearError(err)
	}
	o := offers[0]
	switch total := o.Total(b.pu.Years); {
	case b.orderMaySucceed() && (o.Err != nil || !o.Available || o.Premium || o.Price <= 0 || total > b.pu.MaxPrice):
		return b.unclearError(fmt.Errorf("check offer: the registrar now offers %+v", o)) // an order may have succeeded: neither order again nor give up
	case o.Err != nil:
		return b.jobError(o.Err)
	case !o.Available:
		return b.jobError(registrar.ErrTaken)
	case o.Premium:
		return b.jobError(registrar.ErrPremium)
	case o.Price <= 0 || total > b.pu.MaxPrice:
		return b.endWithoutBuying("price_changed", "%s now costs %s for %s, more than the %s in price. Search for it again, and give the new price for one year.",
			b.pu.Domain, usd(total), termText(b.pu.Years), usd(b.pu.MaxPrice))
	}
	return nil
}

// jobError converts an error of the registrar to the job's error. A known error means that nothing
// was bought; then the purchase ends.
func (b *purchaseStep) jobError(err error) error {
	name, shop := b.pu.Domain, b.shop.Name()
	switch {
	case errors.Is(err, registrar.ErrTaken):
		return b.endWithoutBuying("domain_unavailable", "%s is no longer available. Choose another name, and delete this one.", name)
	case errors.Is(err, registrar.ErrPrice):
		return b.endWithoutBuying("price_changed", "%s now costs more than the %s in price. Search for it again, and give the new price.", name, usd(b.pu.MaxPrice))
	case errors.Is(err, registrar.ErrPremium):
		return b.endWithoutBuying("premium_not_supported", "%s is a premium domain, which Mailstead does not buy. Buy it at a registrar, then set it up without register.", name)
	case errors.Is(err, registrar.ErrNoFunds):
		return b.endWithoutBuying("insufficient_funds", "The account at %s has insufficient funds. Its owner must add some; then run setup again.", shop)
	case errors.Is(err, registrar.ErrNotSold), errors.Is(err, registrar.ErrBadDomain):
		return b.endWithoutBuying("registrar_error", "%s does not sell %s: %s.", shop, name, err)
	}
	return b.unclearError(err)
}

// endWithoutBuying ends a purchase that has bought nothing, and returns the job's error.
func (b *purchaseStep) endWithoutBuying(code, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	if err := b.updatePurchase(func(pu *store.Purchase) { pu.State, pu.RefusedCode, pu.RefusedWhy = store.PurchaseRefused, code, why }); err != nil {
		return err
	}
	return b.refusedError()
}

// refusedError returns the job's error for a purchase that has ended without buying anything.
func (b *purchaseStep) refusedError() error {
	return jobs.Permanent(core.Errorf(b.pu.RefusedCode, "%s", b.pu.RefusedWhy))
}

// updatePurchase changes the record of a purchase, unless the purchase has ended.
func (b *purchaseStep) updatePurchase(change func(*store.Purchase)) error {
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

// acceptPurchase saves a successful purchase. Before that, it sets auto-renewal at the registrar as
// the request wanted. If this fails, the domain shows the registrar's setting.
func (b *purchaseStep) acceptPurchase(r *registrar.Registration) error {
	shop, ok := b.shop.(registrar.AutoRenewer)
	if ok && r.AutoRenew != b.pu.AutoRenew {
		err := b.withTimeout(func(ctx context.Context) error { return shop.SetAutoRenew(ctx, b.pu.Domain, b.pu.AutoRenew) })
		if err == nil {
			r.AutoRenew = b.pu.AutoRenew
		} else {
			b.s.Log.Warn("registrar did not set the auto-renewal of a new domain", "domain", b.pu.Domain, "registrar", b.shop.Name(), "error", err)
		}
	}
	return b.saveBought(r)
}

// saveBought records a successful purchase and marks the domain as bought.
func (b *purchaseStep) saveBought(r *registrar.Registration) error {
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
		_, err = b.s.recordProof(tx, d, provenByPurchase)
		return err
	})
}

const renewalTimeout = 15 * time.Second // time limit for a call to a registrar that changes auto-renewal

// registrarNamed returns the configured registrar with the given name; nil if there is none.
func (s *Service) registrarNamed(name string) registrar.Registrar {
	for _, shop := range s.Settings().Registrars {
		if shop.Name() == name {
			return shop
		}
	}
	return nil
}

// setNameservers sets our nameservers at the registrar at which the domain was bought. If
// nameservers are inside the domain, it also sets their IP addresses (glue records).
func (p *setupRun) setNameservers() error {
	shop := p.s.registrarNamed(p.d.Registrar)
	if shop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.ctx, orderTimeout)
	defer cancel()
	found, err := shop.Find(ctx, p.d.Name)
	if errors.Is(err, registrar.ErrNotFound) {
		return nil // the domain was transferred to another registrar; its owner must set the nameservers there
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

// setGlue sets glue records: the IP addresses of our nameservers that are inside the domain. This
// must happen before the domain is delegated to them.
func (p *setupRun) setGlue(ctx context.Context, shop registrar.Registrar, found *registrar.Registration) error {
	c := p.s.Config
	hosts := hostsInside(p.d.Name, c.Nameservers)
	if len(hosts) == 0 {
		return nil
	}
	setter, ok := shop.(registrar.GlueSetter)
	if !ok && sameNames(found.Nameservers, c.Nameservers) {
		return nil // the glue records were entered by hand
	}
	if !ok {
		return jobs.Permanent(core.Errorf("registrar_error",
			"%s is inside %s, and Mailstead cannot set glue records at %s. Enter them there as %v, set these nameservers, and run setup again.",
			joinNames(hosts), p.d.Name, shop.Name(), c.PublicIPs))
	}
	for _, host := range hosts {
		if err := setter.SetGlue(ctx, p.d.Name, host, c.PublicIPs); err != nil {
			return err
		}
	}
	return nil
}

// hostsInside returns those of the hosts that are inside the domain.
func hostsInside(domain string, hosts []string) []string {
	var out []string
	for _, h := range hosts {
		if strings.HasSuffix(h, "."+domain) {
			out = append(out, h)
		}
	}
	return out
}

// sameNames reports whether two lists have the same names, in any order.
func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
