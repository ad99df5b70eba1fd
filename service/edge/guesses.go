package edge

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	maxAsked   = 8               // credentials whose providers are asked about one domain
	askTimeout = 3 * time.Second // for all of them
)

// serverNames has the names of nameservers that DNS providers document.
var serverNames = []struct {
	provider string
	pattern  func() *regexp.Regexp
}{
	{store.DomainProviderCloudflare, lazyregexp.New(`\.(ns\.cloudflare\.com|foundationdns\.(com|net|org))$`)},
	{store.DomainProviderRoute53, lazyregexp.New(`^ns-\d+\.awsdns-\d+\.(com|net|org|co\.uk)$`)},
	{store.DomainProviderHetzner, lazyregexp.New(`\.ns\.hetzner\.(com|de)$`)},
	{store.DomainProviderDeSEC, lazyregexp.New(`^ns\d+\.desec\.(io|org)$`)},
}

// GuessProvider returns the DNS provider by API that runs all of a domain's nameservers, by their
// names, which are in lower case and without the last dot. It returns "" if there is none.
func GuessProvider(nameservers []string) string {
	for _, of := range serverNames {
		if len(nameservers) > 0 && !slices.ContainsFunc(nameservers, func(name string) bool { return !of.pattern().MatchString(name) }) {
			return of.provider
		}
	}
	return ""
}

// FindCredentials returns the DNS credentials of the actor's account that are for a domain: those
// whose zones it is in, and of those without zones the ones whose provider has a zone that it is
// in. It asks the providers of maxAsked credentials at most, and leaves out those that do not
// answer within askTimeout. The credentials with the longest zone come first, then the oldest.
// There are none for an actor who may not list credentials.
func (s *Service) FindCredentials(ctx context.Context, who core.Actor, domain string) ([]*store.DNSCredential, error) {
	if !who.Manages() || who.Bound {
		return nil, nil
	}
	var all []*store.DNSCredential
	err := s.Store.View(func(tx *store.Tx) error {
		for _, c := range store.DNSCredentialsByAccount.Asc(tx, who.AccountID, "") {
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var (
		wg    sync.WaitGroup
		zones = make([]string, len(all)) // that the domain is in, by credential
		asked = 0
	)
	for i, c := range all {
		for _, zone := range c.Zones {
			if dnsprov.IsWithin(domain, zone) && len(zone) > len(zones[i]) {
				zones[i] = zone
			}
		}
		if len(c.Zones) > 0 || c.Error != "" || asked == maxAsked {
			continue
		}
		asked++
		wg.Go(func() {
			p, err := s.openCredential(c)
			if err == nil {
				zones[i], err = p.FindZone(within, domain)
			}
			if err != nil {
				s.LogOf(ctx).Debug("could not find the zone of a domain at a DNS provider", "domain", domain, "credential", c.ID, "error", err)
			}
		})
	}
	wg.Wait()
	order := make([]int, 0, len(all))
	for i, zone := range zones {
		if zone != "" {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(zones[b]), len(zones[a])) })
	var out []*store.DNSCredential
	for _, i := range order {
		out = append(out, all[i])
	}
	return out, nil
}
