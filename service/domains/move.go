package domains

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// kindMove is the kind of job that moves a domain to another DNS provider.
const kindMove = "dns_move"

func (s *Service) moveKind() jobs.Kind {
	return jobs.Kind{Name: kindMove, Work: s.moveDomain, Max: 10, PerLane: 4, Visible: true, Failed: s.moveFailed}
}

// beginMove queues the job that moves a domain to the DNS provider of a credential. The caller
// writes the domain. A move that has not ended is given up for the new one.
func (s *Service) beginMove(tx *store.Tx, who core.Actor, d *store.Domain, credentialID string) error {
	c, err := edge.CredentialFor(tx, who, credentialID, d.Name)
	if err != nil {
		return err
	}
	if err := s.edge.CheckProvider(c.Provider); err != nil {
		return err
	}
	if err := edge.CheckMove(d, c); err != nil {
		return err
	}
	if d.Move == nil {
		if err := checkIdle(tx, d); err != nil {
			return err
		}
	} else if err := s.cancelMove(tx, d); err != nil {
		return err
	}
	edge.BeginMove(d, c)
	steps := []string{stepEdgeRecords, "delegate", stepVerify}
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: kindMove, Lane: "move " + d.AccountID, CreatedBy: who.UserID, Args: domainArgs{d.ID},
		Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps, Total: len(steps),
	})
	if err != nil {
		return err
	}
	d.JobID = j.ID
	return nil
}

// cancelMove cancels a queued job that moves a domain. The error is domain_busy if it is running.
func (s *Service) cancelMove(tx *store.Tx, d *store.Domain) error {
	j, err := store.Jobs.Find(tx, d.JobID)
	if err != nil || j == nil || j.Ended() {
		return err
	}
	if j.Kind != kindMove || j.State != store.JobQueued {
		return core.DomainBusy(d, "is being worked on")
	}
	return s.Queue.Cancel(tx, j.ID)
}

// moveDomain works on a dns_move job. It writes the records at the new provider. If our own servers
// serve the domain, they do so until it is delegated elsewhere, and the records at the new provider
// follow those here at each look.
func (s *Service) moveDomain(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (d.Gone() || d.Move == nil || d.JobID != j.ID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(d.DKIM) == 0 || zones.LacksZoneKey(d) {
		p := &setupRun{s: s, ctx: ctx, d: d}
		if err := p.generateKeys(); err != nil {
			return nil, err
		}
	}
	jobs.Step(ctx, stepEdgeRecords, "in_progress", "")
	if err := s.edge.WriteMove(ctx, d); err != nil {
		jobs.Step(ctx, stepEdgeRecords, "error", stepErrorText(err))
		return nil, err
	}
	jobs.Step(ctx, stepEdgeRecords, "completed", "")
	jobs.Step(ctx, "delegate", "in_progress", "")
	here, err := s.isDelegatedHere(ctx, d)
	if err != nil {
		return nil, err
	}
	if here {
		now := s.Now()
		detail := fmt.Sprintf("The records of %s are at %s now. Set the nameservers of that provider at its registrar; until then Mailstead's own nameservers serve it.", d.Name, edge.MoveTarget(d))
		jobs.Progress(ctx, 1, j.Total, detail)
		return nil, jobs.Snooze(now.Add(jobs.PollDelay(now.Sub(j.CreatedAt), s.Rand())))
	}
	jobs.Step(ctx, "delegate", "completed", "")
	if err := s.endMove(d.ID, j); err != nil {
		return nil, err
	}
	jobs.Step(ctx, stepVerify, "in_progress", "")
	d, err = s.DomainByID(d.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := s.checkNow(ctx, d)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	jobs.Step(ctx, stepVerify, "completed", "")
	jobs.Progress(ctx, j.Total, j.Total, "")
	return func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Get(tx, args.DomainID)
		if errors.Is(err, store.ErrNotFound) || err == nil && (d.Gone() || d.Status != store.DomainComplete) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.saveCheck(tx, d, l)
	}, nil
}

// isDelegatedHere reports whether a domain that our own nameservers serve is delegated to them
// still.
func (s *Service) isDelegatedHere(ctx context.Context, d *store.Domain) (here bool, err error) {
	if d.DNSProvider != dnsprov.Builtin || d.Status != store.DomainComplete {
		return false, nil
	}
	err = s.zones.WithLookupSlot(ctx, d.AccountID, d.Name, func() error {
		found, err := dnsprov.CheckDelegation(ctx, s.Resolver, d.Name, s.Config.Nameservers)
		here = found.Verified
		return err
	})
	return here, err
}

// endMove makes the new DNS provider that of the domain, and writes what has changed during the
// move once more. A domain that was not complete is set up there.
func (s *Service) endMove(id string, j *store.Job) error {
	return s.Store.Update(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, id)
		if errors.Is(err, store.ErrNotFound) || err == nil && (d.Move == nil || d.JobID != j.ID || d.Gone()) {
			return nil
		}
		if err != nil {
			return err
		}
		edge.EndMove(d)
		if d.Status != store.DomainComplete {
			d.Status, d.StatusDetail = store.DomainInProgress, ""
			if err := s.addProvision(tx, d, j.CreatedBy); err != nil {
				return err
			}
		}
		return errors.Join(s.zones.PutZone(tx, d), s.claimsChanged(tx, d))
	})
}

// moveFailed gives a move up and shows why in the domain, which stays at its DNS provider.
func (s *Service) moveFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil // the job names no domain
	}
	d, err := store.Domains.Get(tx, args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (d.Move == nil || d.JobID != j.ID || d.Gone()) {
		return nil
	}
	if err != nil {
		return err
	}
	why := "internal_error: The domain could not be moved. See the log of this installation."
	if e, ok := core.AsError(cause); ok {
		why = e.Code + ": " + e.Message
	}
	d.Move, d.Replace, d.StatusDetail = nil, false, why
	return s.putDomain(tx, d)
}
