package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// erase deletes our records at the provider. It repeats this until none is left, because requests
// from before a crash may still take effect.
func (w *zoneSync) erase() error {
	for range maxEraseRounds {
		have, err := w.read(nil)
		if err != nil {
			return err
		}
		changes := dnsprov.Plan(have, nil)
		if len(changes) == 0 {
			return nil
		}
		_, err = w.apply(changes, nil)
		if err != nil && !errors.Is(err, dnsprov.ErrChanged) {
			return err
		}
	}
	return w.access.fault(fmt.Errorf("delete records of %s: some remain after several attempts", w.d.Name))
}

// After so many attempts to delete records at a DNS provider, the domain is deleted even if records
// remain there.
const (
	eraseTriesRefused = 3  // for errors that retrying rarely helps: the token is invalid, or the zone does not exist
	eraseTriesFailed  = 10 // for all other errors; about 45 minutes
)

// Erase deletes our records at the DNS provider, and at the one to which the domain moves, in the
// given attempt of a job. After the last attempt it returns no error even if it failed, so that the
// domain can be deleted. Then remains says which records are left. That is noted in the domain: a
// later attempt does not know any more which records are ours.
func (s *Service) Erase(ctx context.Context, d *store.Domain, attempt int) (remains string, err error) {
	if d.EdgeRemains != "" {
		return d.EdgeRemains, nil
	}
	type place struct {
		provider string
		number   uint32
		lock     func(context.Context, string, func(*zoneSync) error) error
	}
	places := []place{{d.DNSProvider, d.EdgePlace, s.withZoneLock}}
	if d.Move != nil {
		places = append(places, place{d.Move.Provider, d.Move.Place, s.withMoveLock})
	}
	var failed []string // what may remain, for each place
	tries := eraseTriesRefused
	for _, at := range places {
		why := at.lock(ctx, d.ID, (*zoneSync).erase)
		if why == nil || errors.Is(why, errNotAtEdge) {
			continue
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		e, ours := core.AsError(why)
		var fault providerFault
		if !ours && !errors.As(why, &fault) {
			return "", why
		}
		if !ours {
			e = fault.access.failure(d.Name, why)
		}
		if e.Code == "upstream_error" {
			tries = eraseTriesFailed
		}
		text, viewErr := s.remainsAtEdge(d, at.provider, at.number)
		if viewErr != nil {
			return "", viewErr
		}
		failed = append(failed, e.Code+": "+e.Message+" "+text)
		err = e
		var wait *dnsprov.Wait
		if errors.As(why, &wait) {
			err = s.jobError(ctx, d.Name, why)
		}
	}
	if len(failed) == 0 || attempt < tries {
		return "", err
	}
	remains = strings.Join(failed, " ")
	return remains, s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, d.ID)
		if err != nil {
			return err
		}
		tx.MayUseReserve()
		d.EdgeRemains = remains
		return store.Domains.Put(tx, d)
	})
}

// remainsAtEdge returns a text that says which of our records may remain at a DNS provider.
func (s *Service) remainsAtEdge(d *store.Domain, provider string, place uint32) (string, error) {
	purposes := map[string]int{}
	err := s.Store.View(func(tx *store.Tx) error {
		for _, purpose := range ownRecordsOf(tx, d.ID)[place] {
			purposes[purpose]++
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	mark := "The domain is deleted here. Its records are to be deleted at " + Name(provider) + " by hand"
	if provider == store.DomainProviderCloudflare {
		mark = "The domain is deleted here. Records with a comment that begins with mailstead:" + d.ID + " are to be deleted at " + Name(provider) + " by hand"
	}
	if len(purposes) == 0 {
		return mark + ", if there are any.", nil
	}
	var names []string
	for _, r := range dnsprov.Wanted(zonedata.Spec(s.Core, d), provider) {
		if name := r.Type + " " + r.Name; purposes[r.Purpose] > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := purposes[dnsprov.PurposeCustom]; n > 0 {
		names = append(names, strconv.Itoa(n)+" of your own")
	}
	return mark + ": " + strings.Join(names, ", ") + ".", nil
}
