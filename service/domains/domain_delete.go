package domains

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Steps of a deletion, in order. Each can be done again.
const (
	stepMailboxes     = "mailboxes" // with their mail
	stepDropZone      = "zone"
	stepCustomRecords = "custom_records"
	stepDomain        = "domain"
)

const (
	markAtATime = 50 // mailboxes taken out of use in one transaction
)

func (s *Service) domainDeleteKind() jobs.Kind {
	return jobs.Kind{Name: "domain_delete", Work: s.eraseDomain, Timeout: time.Hour, Lanes: 2, Visible: true}
}

// DeleteDomain takes a domain out of use at once; a job deletes its mailboxes with their mail, its
// records and then the domain. A second request answers the same job.
func (s *Service) DeleteDomain(_ context.Context, who core.Actor, in DomainIn) (*core.JobResponse, error) {
	var out core.JobResponse
	mailboxes := 0
	err := s.Store.View(func(tx *store.Tx) error { // there may be more than a transaction may walk over
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err == nil {
			mailboxes = store.MailboxesByDomain.Count(tx, d.ID, 0)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		if err := s.makeIdle(tx, d); err != nil {
			if d.Status != core.DomainDeleting {
				return err
			}
			j, err := store.Jobs.Get(tx, d.JobID)
			if err == nil {
				out = core.JobOut(j)
			}
			return err
		}
		j, err := s.addDelete(tx, d, who, mailboxes)
		if err != nil {
			return err
		}
		out = core.JobOut(j)
		tx.MayUseReserve() // what frees room is the job's
		d.Status, d.StatusDetail, d.JobID = core.DomainDeleting, "", j.ID
		if err := s.putDomain(tx, d); err != nil || d.Claim != store.ClaimOpen {
			return err
		}
		return s.claimsChanged(tx, d)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (s *Service) addDelete(tx *store.Tx, d *store.Domain, who core.Actor, mailboxes int) (*store.Job, error) {
	steps := []string{stepMailboxes, stepDropZone, stepCustomRecords, stepDomain}
	if d.DNSProvider == core.ProviderEdge {
		steps[1] = stepEdgeRecords
	}
	return s.Queue.Add(tx, jobs.New{
		AccountID: who.AccountID, Kind: "domain_delete", Lane: "delete " + who.AccountID, CreatedBy: who.UserID,
		Args: domainArgs{d.ID}, Resource: store.JobResource{Type: "domain", ID: d.ID, Name: d.Name}, Steps: steps,
		Total: mailboxes + 1,
	})
}

// eraseDomain is the work of domain_delete. Begun again after a crash it goes on where it was.
func (s *Service) eraseDomain(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dns := provisionStep{stepDropZone, func() error { return s.dropZone(d) }}
	if d.DNSProvider == core.ProviderEdge {
		dns = provisionStep{stepEdgeRecords, func() error { return s.eraseEdgeRecords(ctx, d, j) }}
	}
	for _, step := range []provisionStep{
		{stepMailboxes, func() error { return s.eraseMailboxesOf(ctx, d, j) }},
		dns,
		{stepCustomRecords, func() error { return errors.Join(s.eraseCustomRecords(ctx, d.ID), s.Hooks.EraseReports(ctx, d.ID)) }},
	} {
		jobs.Step(ctx, step.name, "in_progress", "")
		switch err := step.do(); {
		case err == nil:
			jobs.Step(ctx, step.name, "completed", "")
		case errors.As(err, new(errPartly)):
			jobs.Step(ctx, step.name, "error", stepText(err))
		default:
			jobs.Step(ctx, step.name, "error", stepText(err))
			return nil, fmt.Errorf("delete %s: %s: %w", d.Name, step.name, err)
		}
	}
	jobs.Step(ctx, stepDomain, "completed", "")
	jobs.Progress(ctx, j.Total, j.Total, "")
	return func(tx *store.Tx, _ *store.Job) error {
		if err := errors.Join(s.Hooks.DropCertificate(tx, d.ID), store.Domains.Delete(tx, d.ID)); err != nil {
			return err
		}
		return s.claimsChanged(tx, d)
	}, nil
}

// eraseMailboxesOf deletes the mailboxes of a domain one after the other. Nobody makes new ones on
// a domain that is being deleted.
func (s *Service) eraseMailboxesOf(ctx context.Context, d *store.Domain, j *store.Job) error {
	if err := s.markMailboxesOf(ctx, d.ID, j.ID); err != nil {
		return err
	}
	for done := j.Completed; ; done++ {
		id := ""
		err := s.Store.View(func(tx *store.Tx) error {
			for _, id = range store.MailboxesByDomain.Keys(tx, d.ID, "") {
				break
			}
			return nil
		})
		if err != nil || id == "" {
			return err
		}
		if err := s.mailboxes.EraseMailbox(ctx, id); err != nil {
			return err
		}
		jobs.Progress(ctx, min(done+1, j.Total-1), j.Total, "")
	}
}

// markMailboxesOf takes every mailbox of a domain out of use, before the mail of the first one is
// deleted.
func (s *Service) markMailboxesOf(ctx context.Context, domainID, jobID string) error {
	after := ""
	for n := markAtATime; n == markAtATime; {
		if err := ctx.Err(); err != nil {
			return err
		}
		last := after
		err := s.Store.Update(func(tx *store.Tx) error {
			n, last = 0, after
			var boxes []*store.Mailbox
			for key, mb := range store.MailboxesByDomain.Asc(tx, domainID, after) {
				last = key
				if boxes = append(boxes, mb); len(boxes) == markAtATime {
					break
				}
			}
			n = len(boxes)
			for _, mb := range boxes {
				if mb.Status == "deleting" {
					continue
				}
				if err := s.mailboxes.DeleteMailbox(tx, mb, jobID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		after = last
	}
	return nil
}

func (s *Service) eraseCustomRecords(ctx context.Context, domainID string) error {
	for n := core.DropsAtATime; n == core.DropsAtATime; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			var ids []string
			for _, id := range store.CustomRecordsByDomain.Keys(tx, domainID, "") {
				if ids = append(ids, id); len(ids) == core.DropsAtATime {
					break
				}
			}
			n = len(ids)
			return core.DeleteAll(tx, store.CustomRecords, ids)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
