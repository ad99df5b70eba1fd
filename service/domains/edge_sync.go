package domains

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	edgeAwaited   = 5 * time.Second // by a request, until its change is at the edge provider
	edgeSyncsMost = 32              // at a time
	edgeSyncsEach = 8               // of one account
)

// edgeSyncKind brings the records of a complete domain at the edge provider to what a transaction
// has made of them here.
func (s *Service) edgeSyncKind() jobs.Kind {
	return jobs.Kind{
		Name: "edge_sync", Work: s.syncEdge, Max: 24, Timeout: 2 * edgeWorksFor, Most: edgeSyncsMost, MostEach: edgeSyncsEach, Failed: s.edgeSyncFailed,
	}
}

// addEdgeSync queues it, if the domain is complete: until then its provisioning sees to its
// records. The job's id is "" if there is none.
func (s *Service) addEdgeSync(tx *store.Tx, d *store.Domain) (id string, err error) {
	if !atEdgeNow(d) {
		return "", nil
	}
	j, err := s.Queue.Add(tx, jobs.New{AccountID: d.AccountID, Kind: "edge_sync", Key: d.ID, Lane: "edge " + d.ID, Args: domainArgs{d.ID}})
	if err != nil {
		return "", err
	}
	return j.ID, nil
}

// atEdgeNow tells whether the records of a domain are to be kept at the edge provider at any time.
func atEdgeNow(d *store.Domain) bool {
	return d.DNSProvider == core.ProviderEdge && d.Status == core.DomainComplete
}

func (s *Service) syncEdge(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	name := ""
	err = s.atEdge(ctx, args.DomainID, func(w *edgeWork) error {
		name = w.d.Name
		return w.sync(false)
	})
	if err == nil || errors.Is(err, errNotAtEdge) {
		return nil, nil
	}
	return nil, s.edgeOutcome(ctx, name, err)
}

// edgeSyncFailed shows why changes are not at the edge provider.
func (s *Service) edgeSyncFailed(tx *store.Tx, j *store.Job, cause error) error {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil // a job that names no domain cannot have failed for one
	}
	d, err := store.Domains.Get(tx, args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	code, why := "internal_error", "The change could not be made at "+edgeName+". The log of this installation says why."
	if e, ok := core.AsError(cause); ok {
		code, why = e.Code, e.Message
	}
	var waiting []*store.CustomRecord
	for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
		if r.Status == "pending" {
			waiting = append(waiting, r)
		}
	}
	for _, r := range waiting {
		r.Status, r.Error = "error", why
		if err := store.CustomRecords.Put(tx, r); err != nil {
			return err
		}
	}
	if d.Status != core.DomainComplete {
		return nil
	}
	d.StatusDetail = code + ": " + why
	return store.Domains.Put(tx, d)
}

// awaitEdge waits a while for the job that brings a change to the edge provider; what came of it
// the records say.
func (s *Service) awaitEdge(ctx context.Context, jobID string) {
	if jobID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, edgeAwaited)
	defer cancel()
	_, _ = s.Queue.Wait(ctx, jobID)
}

// redirectAtEdge brings the addresses that a redirect needs to the edge provider, or takes them
// away. If a web site of somebody else's is in their place, that is the error, and all other
// records are as they should be.
func (s *Service) redirectAtEdge(ctx context.Context, d *store.Domain) error {
	jobs.Step(ctx, stepEdgeRecords, "in_progress", "")
	err := s.atEdge(ctx, d.ID, func(w *edgeWork) error {
		if err := w.sync(false); err != nil || len(w.conflicts) == 0 {
			return err
		}
		return edgeFault{joinConflicts(w.conflicts)}
	})
	if err == nil || errors.Is(err, errNotAtEdge) {
		jobs.Step(ctx, stepEdgeRecords, "completed", "")
		return nil
	}
	err = s.edgeOutcome(ctx, d.Name, err)
	jobs.Step(ctx, stepEdgeRecords, "error", stepText(err))
	return err
}
