package zones

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/store"
)

// followAliases looks up the addresses of aliases, as long as their domains are asked for, until
// ctx ends.
func (s *Service) followAliases(ctx context.Context) {
	if err := s.loadAliases(ctx); err != nil && ctx.Err() == nil {
		s.Log.Error("could not read which domains are aliases", "error", err)
	}
	ticks, stop := s.Store.Clock().Every(aliasTick)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		case <-s.aliases.wake:
		}
		var wg sync.WaitGroup
		slots := make(chan struct{}, aliasesAtOnce)
		for _, one := range s.aliases.due(s.Now()) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := s.followAlias(ctx, one); err != nil && ctx.Err() == nil {
					s.Log.Error("could not write the addresses of an alias", "domain_id", one.domainID, "error", err)
				}
			})
		}
		wg.Wait()
	}
}

// loadAliases finds the domains that have an alias, several in each transaction.
func (s *Service) loadAliases(ctx context.Context) error {
	for after, more := "", true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.View(func(tx *store.Tx) error {
			more = false
			n := 0
			for d := range store.Domains.After(tx, after) {
				after = d.ID
				if host := apexSetting(d).Alias; host != "" {
					s.aliases.set(d.Name, d.ID, host, d.AtEdge())
				}
				if n++; n == zonesPerView {
					more = true
					break
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// followAlias looks up the addresses of one alias, and publishes them if they have changed.
func (s *Service) followAlias(ctx context.Context, one *alias) error {
	var d *store.Domain
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = store.Domains.Find(tx, one.domainID)
		return err
	})
	if err != nil {
		return err
	}
	if d == nil || d.Gone() {
		if d != nil {
			s.aliases.set(d.Name, d.ID, "", false)
		}
		return nil
	}
	host := apexSetting(d).Alias
	if host == "" {
		return nil
	}
	found, answered := s.AliasAddresses(ctx, d.AccountID, host)
	now := s.Now()
	switch {
	case answered:
		one.seen = now
	case ctx.Err() != nil || now.Sub(one.seen) < aliasKept || now.Sub(d.Apex.AliasSeenAt) < aliasKept:
		return nil
	}
	differs := !slices.Equal(found, d.Apex.AliasAddresses)
	if differs && now.Sub(d.Apex.AliasChangedAt) < aliasChangeEach || !differs && (!answered || now.Sub(d.Apex.AliasSeenAt) < aliasSeenEach) {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, d.ID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (d.Gone() || apexSetting(d).Alias != host) {
			return nil
		}
		if err != nil {
			return err
		}
		if answered {
			d.Apex.AliasSeenAt = now
		}
		if !differs {
			return store.Domains.Put(tx, d)
		}
		d.Apex.AliasAddresses, d.Apex.AliasChangedAt = found, now
		return s.PutZone(tx, d)
	})
}

// AliasAddresses looks up the addresses of the host that a domain is an alias of: those that a
// website may have, sorted, at most MaxApexAddresses. A host in a zone of this server has none.
// answered is false if the lookup failed.
func (s *Service) AliasAddresses(ctx context.Context, accountID, host string) (addresses []string, answered bool) {
	if s.HostsName(host) {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, aliasTimeout)
	defer cancel()
	err := s.WithLookupSlot(ctx, accountID, "", func() error {
		found, err := s.Resolver.LookupNetIP(ctx, "ip", host+".")
		for _, ip := range found {
			if s.mayBeSite(ip) {
				addresses = append(addresses, ip.Unmap().String())
			}
		}
		return err
	})
	if err != nil && !lookup.IsNotFound(err) {
		return nil, false
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	return addresses[:min(len(addresses), MaxApexAddresses)], true
}

// ApexWithAlias returns where a domain itself leads that is an alias of a host, with the addresses
// of that host if they can be looked up now.
func (s *Service) ApexWithAlias(ctx context.Context, accountID, host string) store.DomainApex {
	out := store.DomainApex{Mode: store.ApexElsewhere, Alias: host}
	found, answered := s.AliasAddresses(ctx, accountID, host)
	if answered {
		out.AliasAddresses, out.AliasSeenAt, out.AliasChangedAt = found, s.Now(), s.Now()
	}
	return out
}
