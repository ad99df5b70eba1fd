package domains

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const renewalFor = 15 * time.Second // one question about it to a registrar

func (s *Service) registrarNamed(name string) registrar.Registrar {
	for _, shop := range s.Config.Registrars {
		if shop.Name() == name {
			return shop
		}
	}
	return nil
}

// tellRegistrar has the registrar that the domain was bought from name our nameservers, and their
// addresses where those lie inside of the domain.
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
			"%s does not let the nameservers of %s be changed, so that it cannot be served from here. Delete it here, where the registration stays, and run setup again with edge_api_token, an API token for the DNS there, or with manual_dns.",
			shop.Name(), p.d.Name).Because(err))
	}
	return core.Errorf("registrar_error", "%s did not set the nameservers of %s. It is tried again.", shop.Name(), p.d.Name).Because(err)
}

// setGlue tells the addresses of nameservers of ours that lie inside of the domain, before it is
// delegated to them.
func (p *setup) setGlue(ctx context.Context, shop registrar.Registrar, found *registrar.Registration) error {
	c := p.s.Config
	hosts := inside(p.d.Name, c.Nameservers)
	if len(hosts) == 0 {
		return nil
	}
	setter, ok := shop.(registrar.GlueSetter)
	if !ok && sameNames(found.Nameservers, c.Nameservers) {
		return nil // somebody has seen to it
	}
	if !ok {
		return jobs.Permanent(core.Errorf("registrar_error",
			"%s lies inside of %s, and %s cannot be told addresses of nameservers from here. Enter them there as %v, set these nameservers, and run setup again.",
			namesOf(hosts), p.d.Name, shop.Name(), c.PublicIPs))
	}
	for _, host := range hosts {
		if err := setter.SetGlue(ctx, p.d.Name, host, c.PublicIPs); err != nil {
			return err
		}
	}
	return nil
}

// inside are those of the hosts that lie inside of the domain.
func inside(domain string, hosts []string) []string {
	var out []string
	for _, h := range hosts {
		if strings.HasSuffix(h, "."+domain) {
			out = append(out, h)
		}
	}
	return out
}

// sameNames tells whether two lists hold the same names, in whatever order.
func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// tellRenewal has the registrar of a domain that was bought here renew it or not, before the record
// says so, if all that is asked for can be done.
func (s *Service) tellRenewal(ctx context.Context, who core.Actor, in UpdateDomainIn) error {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		if d, err = core.DomainOf(tx, who, in.DomainID); err != nil {
			return err
		}
		changed := *d
		return in.apply(tx, &changed)
	})
	if err != nil || d.Source != "registered" || d.Status == core.DomainDeleting || d.AutoRenew == *in.AutoRenew {
		return err
	}
	shop := s.registrarNamed(d.Registrar)
	if shop == nil {
		return core.Errorf("not_configured", "The registrar %s of %s is not configured any more, so that the renewal cannot be changed from here. Its operator must add it again.", d.Registrar, d.Name)
	}
	renewer, ok := shop.(registrar.AutoRenewer)
	if !ok {
		return core.Invalid("auto_renew", "not_allowed", "cannot be changed from here: change it at %s", shop.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, renewalFor)
	defer cancel()
	err = renewer.SetAutoRenew(ctx, d.Name, *in.AutoRenew)
	if errors.Is(err, registrar.ErrNotFound) {
		return core.Invalid("auto_renew", "not_allowed", "cannot be changed: %s is not in the account at %s any more", d.Name, shop.Name())
	}
	if err != nil {
		return core.Errorf("upstream_error", "%s did not change the renewal of %s, and nothing else was changed. Try again later.", shop.Name(), d.Name).
			With(shop.Name(), "upstream_error", "did not change the renewal").Because(err)
	}
	return nil
}
