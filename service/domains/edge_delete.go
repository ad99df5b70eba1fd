package domains

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// How often a deletion asks the edge provider before the domain goes without it.
const (
	eraseTriesRefused = 3  // by an answer that will hardly change: the token is dead, the zone is gone
	eraseTriesFailed  = 10 // by any other; three quarters of an hour
)

// eraseEdgeRecords deletes what we made at the edge provider. If it cannot be had in the end, the
// domain goes all the same, and the error, an errPartly, says what remains there.
func (s *Service) eraseEdgeRecords(ctx context.Context, d *store.Domain, j *store.Job) error {
	err := s.atEdge(ctx, d.ID, (*edgeWork).erase)
	if err == nil || errors.Is(err, errNotAtEdge) {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e, ours := core.AsError(err)
	if !ours && !errors.As(err, new(edgeFault)) {
		return err
	}
	if !ours {
		e = edgeFailure(d.Name, err)
	}
	tries := eraseTriesRefused
	if e.Code == "upstream_error" {
		tries = eraseTriesFailed
	}
	if j.Attempt >= tries {
		return errPartly{e.Code + ": " + e.Message + " " + s.remainsAtEdge(d)}
	}
	var wait *dnsprov.Wait
	if errors.As(err, &wait) {
		return s.edgeOutcome(ctx, d.Name, err)
	}
	return e
}

// remainsAtEdge says which of our records may still be at the edge provider.
func (s *Service) remainsAtEdge(d *store.Domain) string {
	mark := "The domain is deleted here. Records with a comment that begins with mailstead:" + d.ID + " are to be deleted at " + edgeName + " by hand"
	if len(d.EdgeRecords) == 0 {
		return mark + ", if there are any."
	}
	purposes := map[string]int{}
	for _, p := range d.EdgeRecords {
		purposes[p]++
	}
	var names []string
	for _, r := range dnsprov.Wanted(s.spec(d), core.ProviderEdge) {
		if name := r.Type + " " + r.Name; purposes[r.Purpose] > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := purposes[dnsprov.PurposeCustom]; n > 0 {
		names = append(names, strconv.Itoa(n)+" of your own")
	}
	return mark + ": " + strings.Join(names, ", ") + "."
}
