package domains

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// claimsAtATime is how many rivals, and how many zones, one transaction brings to what a claim that
// has changed makes of them. A job goes on with the others.
const claimsAtATime = 50

const kindClaims = "claims_changed"

// claimArgs is what follows from a change of a claim, as far as it is still to be done.
type claimArgs struct {
	Name  string `json:"name"`
	But   string `json:"but"`   // the account whose zones stay as they are; "": none
	Lose  bool   `json:"lose"`  // first the rivals of a proven claim lose theirs
	After string `json:"after"` // the last key that was looked at, of DomainsByName or DomainsUnder
}

func (s *Service) claimsKind() jobs.Kind {
	return jobs.Kind{Name: kindClaims, Work: s.goOnWithClaims, Timeout: time.Hour, Most: 4}
}

// goOnWithClaims does what one transaction could not. All of it may be done twice: it brings
// everything to what the store says at the time.
func (s *Service) goOnWithClaims(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[claimArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for more := true; more; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		next := args
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			next = args
			more, err = s.someClaims(tx, &next)
			return err
		})
		if err != nil {
			return nil, err
		}
		args = next
		core.Sleep(ctx, time.Since(began)) // others go first
	}
	return nil, nil
}

// someClaims does the next part, and tells whether there is more.
func (s *Service) someClaims(tx *store.Tx, a *claimArgs) (more bool, err error) {
	if !a.Lose {
		names, more := s.zonesAround(tx, a)
		return more, s.serveAgain(tx, names, nil)
	}
	holder, err := store.DomainByName.Get(tx, a.Name)
	if errors.Is(err, store.ErrNotFound) { // it is free again
		a.Lose, a.After = false, ""
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = s.loseSome(tx, a, holder.ID)
	return true, err
}

// loseSome ends claims of the name but the holder's, and tells whether there were any. With the
// last of them Lose is false.
func (s *Service) loseSome(tx *store.Tx, a *claimArgs, holder string) (any bool, err error) {
	var rivals []*store.Domain
	looked := 0
	a.Lose = false
	for key, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(a.Name), a.After) {
		if len(rivals) == claimsAtATime || looked == 20*claimsAtATime {
			a.Lose = true
			break
		}
		looked++
		a.After = key
		if o.ID != holder && o.Claim == store.ClaimOpen {
			rivals = append(rivals, o)
		}
	}
	if !a.Lose {
		a.After = ""
	}
	for _, o := range rivals {
		o.Claim, o.ProvenBy, o.ProvenAt = store.ClaimLost, "", time.Time{}
		if err := s.endClaim(tx, o, errClaimedElsewhere(o.Name)); err != nil {
			return true, err
		}
		if err := s.cancelWork(tx, o); err != nil {
			return true, err
		}
	}
	return len(rivals) > 0 || a.Lose, nil
}

// claimsChanged serves the zones as they are to be after claims, which are written, have begun,
// have been proven or have ended: their own, and those of names above and below that others claim
// without proof.
func (s *Service) claimsChanged(tx *store.Tx, d *store.Domain) error {
	return s.changeClaims(tx, claimArgs{Name: d.Name, But: d.AccountID}, d)
}

// changeClaims does what claimsChanged does, and leaves rivals that have not lost their claims yet
// to a job.
func (s *Service) changeClaims(tx *store.Tx, a claimArgs, d *store.Domain) error {
	names, err := s.zonesAroundOf(tx, a, 0)
	if err != nil {
		return err
	}
	return s.serveAgain(tx, names, d)
}

// zonesAroundOf gives names as zonesAround does, for a transaction that has so many already, and
// leaves the rest to a job.
func (s *Service) zonesAroundOf(tx *store.Tx, a claimArgs, have int) (names []string, err error) {
	around := claimArgs{Name: a.Name, But: a.But}
	more := true
	if have < 2*claimsAtATime {
		names, more = s.zonesAround(tx, &around)
	}
	if !more && !a.Lose {
		return names, nil
	}
	if !a.Lose { // else all of it again, once the rivals have ended
		a = around
	}
	_, err = s.Queue.Add(tx, jobs.New{Kind: kindClaims, Lane: "claims " + a.Name, Args: a})
	return names, err
}

// zonesAround gives the names whose zones may be served otherwise from now on, as many as one
// transaction serves: at first the name itself and those above it, then some below it. Only zones
// whose claims are still to be proven depend on others.
func (s *Service) zonesAround(tx *store.Tx, a *claimArgs) (names []string, more bool) {
	depends := func(o *store.Domain) bool {
		return o.AccountID != a.But && o.Claim == store.ClaimOpen && s.hasZone(o)
	}
	if a.After == "" {
		names = append(names, a.Name)
		for _, name, more := strings.Cut(a.Name, "."); more; _, name, more = strings.Cut(name, ".") {
			for _, o := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
				if depends(o) {
					names = append(names, name)
					break
				}
			}
		}
	}
	looked := 0
	for key, o := range store.DomainsUnder.Asc(tx, store.TreeKey(a.Name), a.After) {
		if len(names) >= claimsAtATime || looked == 20*claimsAtATime {
			return names, true
		}
		looked++
		a.After = key
		if depends(o) && !slices.Contains(names, o.Name) {
			names = append(names, o.Name)
		}
	}
	return names, false
}

// serveAgain serves the zones of names as they are to be now, and those above them. d, which may be
// nil, is a record that the caller may write again.
func (s *Service) serveAgain(tx *store.Tx, names []string, d *store.Domain) error {
	for _, name := range names {
		now := s.serving(tx, name)
		if now == nil {
			tx.After(func() { s.zones.Note(name) })
			continue
		}
		if d != nil && now.ID == d.ID {
			now = d
		}
		if err := s.publish(tx, now); err != nil {
			return err
		}
	}
	return s.PublishAbove(tx, d, names...)
}
