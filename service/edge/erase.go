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

// Erase deletes our records at the DNS provider, in the given attempt of a job. After
// the last attempt it returns no error even if it failed, so that the domain can be deleted. Then
// remains says which records are left.
func (s *Service) Erase(ctx context.Context, d *store.Domain, attempt int) (remains string, err error) {
	err = s.withMoveLock(ctx, d.ID, (*zoneSync).erase)
	if err == nil || errors.Is(err, errNotAtEdge) {
		err = s.withZoneLock(ctx, d.ID, (*zoneSync).erase)
	}
	if err == nil || errors.Is(err, errNotAtEdge) {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	e, ours := core.AsError(err)
	var fault providerFault
	if !ours && !errors.As(err, &fault) {
		return "", err
	}
	if !ours {
		e = fault.access.failure(d.Name, err)
	}
	tries := eraseTriesRefused
	if e.Code == "upstream_error" {
		tries = eraseTriesFailed
	}
	if attempt >= tries {
		mark, err := s.remainsAtEdge(d)
		return e.Code + ": " + e.Message + " " + mark, err
	}
	var wait *dnsprov.Wait
	if errors.As(err, &wait) {
		return "", s.jobError(ctx, d.Name, err)
	}
	return "", e
}

// remainsAtEdge returns a text that says which of our records may remain at the DNS provider.
func (s *Service) remainsAtEdge(d *store.Domain) (string, error) {
	purposes := map[string]int{}
	err := s.Store.View(func(tx *store.Tx) error {
		for _, purpose := range ownRecordsOf(tx, d.ID)[d.EdgePlace] {
			purposes[purpose]++
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	mark := "The domain is deleted here. Its records are to be deleted at " + Name(d.DNSProvider) + " by hand"
	if d.DNSProvider == store.DomainProviderCloudflare {
		mark = "The domain is deleted here. Records with a comment that begins with mailstead:" + d.ID + " are to be deleted at " + Name(d.DNSProvider) + " by hand"
	}
	if len(purposes) == 0 {
		return mark + ", if there are any.", nil
	}
	var names []string
	for _, r := range dnsprov.Wanted(zonedata.Spec(s.Core, d), d.DNSProvider) {
		if name := r.Type + " " + r.Name; purposes[r.Purpose] > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := purposes[dnsprov.PurposeCustom]; n > 0 {
		names = append(names, strconv.Itoa(n)+" of your own")
	}
	return mark + ": " + strings.Join(names, ", ") + ".", nil
}
