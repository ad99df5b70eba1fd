package certs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/store"
)

const (
	secondariesFor = time.Minute
	secondaryPause = 2 * time.Second
)

// answerChallenges has our HTTP listeners answer challenges until the function that it gives is
// called.
func (c *certificates) answerChallenges(all []ca.Challenge) (withdraw func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range all {
		c.answers[ch.Token] = ch.Answer
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, ch := range all {
			delete(c.answers, ch.Token)
		}
	}
}

// publishChallenges puts challenges into the zone of a domain that we serve, and waits until other
// nameservers of the zone have them too.
func (s *Service) publishChallenges(ctx context.Context, domainID string, all []ca.Challenge) error {
	var texts []store.DNSChallenge
	for _, ch := range all {
		texts = append(texts, store.DNSChallenge{Name: acmeLabel + ch.Name, Value: ch.Answer})
	}
	if err := s.setChallenges(domainID, texts); err != nil {
		return err
	}
	s.awaitSecondaries(ctx, texts)
	return ctx.Err()
}

// withdrawChallenges takes the challenges of a domain out of its zone, if there are any.
func (s *Service) withdrawChallenges(domainID string) error {
	d, err := s.domains.DomainByID(domainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(d.Challenges) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return s.setChallenges(domainID, nil)
}

func (s *Service) setChallenges(domainID string, texts []store.DNSChallenge) error {
	give := func(put func(*store.Tx, *store.Domain) error) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, domainID)
			if errors.Is(err, store.ErrNotFound) && len(texts) == 0 {
				return nil
			}
			if err != nil {
				return err
			}
			d.Challenges = texts
			return put(tx, d)
		}
	}
	if len(texts) > 0 {
		err := s.Store.View(give(func(tx *store.Tx, d *store.Domain) error {
			if _, err := s.domains.ZoneSource(tx, d).Zone(); err != nil { // the zone as it is goes on being served
				return fmt.Errorf("challenges in the zone of %s: %w", d.Name, err)
			}
			return nil
		}))
		if err != nil {
			return err
		}
	}
	return s.Store.Update(give(s.domains.PutZone))
}

// awaitSecondaries waits until every nameserver of ours that is another host answers with the
// texts. One that does not for a minute keeps nobody from a certificate: the authority may ask
// another one.
func (s *Service) awaitSecondaries(ctx context.Context, texts []store.DNSChallenge) {
	ctx, cancel := context.WithTimeout(ctx, secondariesFor)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range s.Config.Nameservers {
		wg.Go(func() {
			addrs, _ := s.addressesOf(ctx, name) // a name without address is nobody to wait for
			for _, ip := range addrs {
				if !s.ownAddress(ip) {
					s.awaitSecondary(ctx, ip, texts)
				}
			}
		})
	}
	wg.Wait()
}

func (s *Service) awaitSecondary(ctx context.Context, ip netip.Addr, texts []store.DNSChallenge) {
	resolver := dnsprov.NewResolver(net.JoinHostPort(ip.Unmap().String(), "53"))
	for _, t := range texts {
		for {
			found, err := resolver.LookupTXT(ctx, t.Name+".")
			if slices.Contains(found, t.Value) {
				break
			}
			select {
			case <-time.After(secondaryPause):
			case <-ctx.Done():
				s.Log.Warn("a nameserver does not have a challenge of a certificate authority", "nameserver", ip, "name", t.Name, "error", err)
				return
			}
		}
	}
}
