package certs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

const (
	certifiedAtOnce     = 4 // sets, of all accounts
	certifiedAtOnceEach = 2 // of one account
	certifyFor          = 10 * time.Minute
	sweptAtATime        = 200 // domains looked at in one transaction
)

type certificateArgs struct {
	Set string `json:"set"`
}

// certificateKind keeps the certificate of one set of names: each set has a job of its own, which
// waits for the next time that there is something to do, and ends when nothing of the set leads
// here any more.
func (s *Service) certificateKind() jobs.Kind {
	return jobs.Kind{
		Name: "certificate", Work: s.certify, Timeout: certifyFor, Most: certifiedAtOnce, MostEach: certifiedAtOnceEach,
		Backoff: certificateBackoff,
	}
}

// certificateSweepKind plans what a crash, a change of settings or a clock has left without a job.
func (s *Service) certificateSweepKind() jobs.Kind {
	return jobs.Kind{Name: "certificate_sweep", Work: s.sweepCertificates, Max: 3}
}

// certificateBackoff is how long to wait after so many attempts in a row that came to nothing: from
// five minutes, so that an authority that takes five failures an hour takes all of them, to a day.
func certificateBackoff(failures int, r float64) time.Duration {
	wait := 24 * time.Hour
	if n := max(failures, 1) - 1; n < 9 {
		wait = min(wait, 5*time.Minute<<n)
	}
	return jobs.Jitter(wait, r)
}

// planCertificate queues the work on a domain's certificate if there is something to do. The
// domain's record need not be written yet.
func (s *Service) PlanCertificate(tx *store.Tx, d *store.Domain) error {
	lacks, err := s.lacksCertificate(tx, d)
	if err != nil || !lacks {
		return err
	}
	return s.addCertificate(tx, d.ID, d.AccountID, time.Time{})
}

func (s *Service) addCertificate(tx *store.Tx, set, account string, due time.Time) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: account, Kind: "certificate", Key: set, Lane: "certificate " + set, Args: certificateArgs{set}, Due: due,
	})
	return err
}

// lacksCertificate tells whether a domain has names that may lead here and that its certificate is
// not for, or soon not any more. While a failure is to be waited out it lacks nothing.
func (s *Service) lacksCertificate(tx *store.Tx, d *store.Domain) (bool, error) {
	names, err := s.candidates(tx, d)
	if err != nil || len(names) == 0 {
		return false, err
	}
	row, err := store.Certificates.Get(tx, d.ID)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	now := tx.Now()
	if row.Directory != s.Config.ACME.Directory {
		return true, nil
	}
	if row.NextTry.After(now) {
		return false, nil
	}
	return !row.RenewAt.After(now) || slices.ContainsFunc(names, func(name string) bool {
		return !slices.Contains(row.Names, name) && !refusedLately(row, name, now)
	}), nil
}

// refusedLately tells whether it is too early to ask again for a name that the authority did not
// take.
func refusedLately(row *store.Certificate, name string, now time.Time) bool {
	r, ok := row.Refused[name]
	return ok && now.Before(retryOf(r))
}

func retryOf(r store.Refusal) time.Time { return r.At.Add(certificateBackoff(r.Times, 0)) }

// planHostCertificate queues the work on the certificate of the host's own name. After a failure it
// waits as long as it would have without a restart.
func (s *Service) planHostCertificate() error {
	if s.Config.ACME == nil || !s.Config.ACME.Host {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error {
		row, err := store.Certificates.Get(tx, hostSet)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		due := time.Time{}
		if row != nil && row.Directory == s.Config.ACME.Directory {
			due = row.NextTry
		}
		return s.addCertificate(tx, hostSet, "", due)
	})
}

// RetryCertificate has the certificate authority asked at once for the certificate of the host's
// own name, whatever failure was to be waited out, if there is a need for one.
func (s *Service) RetryCertificate() error {
	if s.Config.ACME == nil || !s.Config.ACME.Host {
		return nil
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		row, err := store.Certificates.Get(tx, hostSet)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		row.NextTry, row.Refused = time.Time{}, nil
		return store.Certificates.Put(tx, row)
	})
	return errors.Join(err, s.planHostCertificate())
}

// sweepCertificates is the work of certificate_sweep.
func (s *Service) sweepCertificates(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	if s.Config.ACME == nil {
		return nil, nil
	}
	after, more := "", true
	for more {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		lacking, last, err := s.lackingCertificates(after)
		if err != nil {
			return nil, err
		}
		after, more = last, last != ""
		if len(lacking) == 0 {
			continue
		}
		if err := s.planCertificates(lacking); err != nil {
			return nil, err
		}
	}
	return nil, s.planHostCertificate()
}

// lackingCertificates looks at one page of domains. last is where the next begins; "" after the
// last one.
func (s *Service) lackingCertificates(after string) (ids []string, last string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		n := 0
		for key, d := range store.DomainsByName.Asc(tx, "", after) {
			lacks, err := s.lacksCertificate(tx, d)
			if err != nil {
				return err
			}
			if lacks {
				ids = append(ids, d.ID)
			}
			if n++; n == sweptAtATime {
				last = key
				break
			}
		}
		return nil
	})
	return ids, last, err
}

func (s *Service) planCertificates(ids []string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		for _, id := range ids {
			d, err := store.Domains.Get(tx, id)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if err := s.PlanCertificate(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}
