package domains

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	scoutsAtOnce = 8                // names of one request that the edge provider is asked about
	scoutsFor    = 45 * time.Second // all of one request
)

// A tokenChecker is a provider that can tell of a token at once whether it is good for anything.
type tokenChecker interface {
	// Check is dnsprov.ErrCredential for a token that is not.
	Check(ctx context.Context) error
}

// checkEdgeToken asks whether a token is good, as far as that can be told without a zone.
func checkEdgeToken(ctx context.Context, p dnsprov.Provider) error {
	if c, ok := p.(tokenChecker); ok {
		return c.Check(ctx)
	}
	return nil
}

// scoutEdge asks the edge provider about names that are to be connected by a token, a bounded
// number at a time and for a bounded time in all. For each name that it asked about it gives why it
// cannot be connected, or "".
func (s *Service) scoutEdge(ctx context.Context, token string, names []string) (map[string]string, error) {
	why := map[string]string{}
	if s.Config.Edge == nil {
		for _, name := range names {
			why[name] = errNoEdge().Error()
		}
		return why, nil
	}
	within, cancel := context.WithTimeout(ctx, scoutsFor)
	defer cancel()
	provider := s.Config.Edge(token)
	dead := checkEdgeToken(within, provider)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, scoutsAtOnce)
	)
	for _, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := dead
			if err == nil {
				err = s.scoutZone(within, provider, name)
			}
			mu.Lock()
			defer mu.Unlock()
			if why[name] = ""; err != nil {
				why[name] = edgeFailure(name, err).Error()
			}
		})
	}
	wg.Wait()
	return why, ctx.Err()
}

// scoutZone looks whether there is a zone for a name, with room for the records that it will need.
func (s *Service) scoutZone(ctx context.Context, p dnsprov.Provider, name string) error {
	have, err := p.Records(ctx, dnsprov.ZoneRef{Domain: name, OwnerTag: "new"})
	if err != nil {
		return err
	}
	spec := s.spec(&store.Domain{Name: name, DNSProvider: core.ProviderEdge})
	_, err = dnsprov.Compatible(have, dnsprov.Wanted(spec, core.ProviderEdge))
	return err
}

// newNames are those of the candidates that are to be made domains of the account.
func (s *Service) newNames(who core.Actor, names []candidate) ([]string, error) {
	var out []string
	err := s.Store.View(func(tx *store.Tx) error {
		for _, c := range names {
			if c.problem != "" || s.operatorsOnly(tx, who.AccountID, c.name) {
				continue
			}
			if elsewhere, err := provenElsewhere(tx, who.AccountID, c.name); elsewhere || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			_, err := claimOf(tx, who.AccountID, c.name)
			if errors.Is(err, store.ErrNotFound) {
				out = append(out, c.name)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
