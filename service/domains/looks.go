package domains

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A domain whose owner must change nameservers or enter records waits. While it waits, a job looks
// at its DNS again and again, and sets it up as soon as the DNS is right.

const (
	kindLook        = "domain_look"
	looksAtOnce     = 32                  // looks that run at the same time
	looksOfAccount  = 16                  // looks of one account that run at the same time
	waitPeriod      = 14 * 24 * time.Hour // how long a domain waits
	frequentPeriod  = 7 * 24 * time.Hour  // within this time, the looks are frequent
	frequentLook    = 15 * time.Minute    // time between two frequent looks
	infrequentLook  = time.Hour           // time between two later looks
	nsTimeout       = "ns_timeout"        // error code of a builtin domain that has waited too long
	recordsNotReady = "records_not_ready" // error code of other domains that have waited too long
)

// firstLooks are the times of the first looks, counted from the time at which the wait began.
var firstLooks = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}

// lookAfter returns when the next look is due, with a jitter of a tenth. The wait began at since. r
// is a random number from 0 to 1 for the jitter. A look is due at the end of the wait, too. Domains
// that may wait for longer are looked at hourly after it.
func lookAfter(since, now time.Time, r float64) time.Time {
	waited, end := now.Sub(since), since.Add(waitPeriod)
	for _, at := range firstLooks {
		if jobs.Jitter(at, 0) > waited { // this look was not made yet, even if its jitter is the smallest
			return since.Add(jobs.Jitter(at, r))
		}
	}
	gap := frequentLook
	if waited >= frequentPeriod {
		gap = infrequentLook
	}
	next := now.Add(jobs.Jitter(gap, r))
	if now.Before(end) && next.After(end) {
		next = end
	}
	return next
}

// isWaiting reports whether a domain waits for its owner to change nameservers or to enter records.
func isWaiting(d *store.Domain) bool {
	return d.Status == store.DomainPendingNS || d.Status == store.DomainPendingDNS
}

// await makes a domain wait for its nameservers or its records, and plans the next look. status is
// DomainPendingNS or DomainPendingDNS. If the domain waits already, its wait goes on. The caller
// writes the domain.
func (s *Service) await(tx *store.Tx, d *store.Domain, status string) error {
	d.Status = status
	if d.NSAwaited.IsZero() {
		d.NSAwaited = tx.Now()
	}
	return s.planLook(tx, d, lookAfter(d.NSAwaited, tx.Now(), s.Rand()))
}

// planLook plans a look at a domain, unless an earlier one is planned. The caller writes the
// domain.
func (s *Service) planLook(tx *store.Tx, d *store.Domain, at time.Time) error {
	j, err := s.Queue.Add(tx, jobs.New{
		AccountID: d.AccountID, Kind: kindLook, Key: d.ID, Lane: "domain looks " + d.AccountID, Args: domainArgs{d.ID}, Due: at,
	})
	if err != nil {
		return err
	}
	d.NextCheckAt = j.Due
	return nil
}

// lookKind returns the kind of job that looks at a waiting domain. Each domain has a job of its
// own. A slow resolver holds up no other lane, and no account holds up another one.
func (s *Service) lookKind() jobs.Kind {
	return jobs.Kind{Name: kindLook, Work: s.lookAtWaiting, Timeout: 2 * time.Minute, PerLane: looksOfAccount, Most: looksAtOnce}
}

// lookAtWaiting works on a domain_look job: it looks at a domain once and snoozes the job until the
// next look. The job ends when the domain no longer waits.
func (s *Service) lookAtWaiting(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[domainArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	looked, err := s.DomainByID(args.DomainID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !isWaiting(looked) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	began, since := s.Now(), looked.NSAwaited
	save, err := s.lookOnce(ctx, looked)
	if err != nil {
		return nil, err
	}
	if since.IsZero() { // it has waited since before there were looks
		since = began
	}
	next := lookAfter(since, s.Now(), s.Rand()).Truncate(time.Millisecond)
	return func(tx *store.Tx, _ *store.Job) error {
		d, err := store.Domains.Find(tx, looked.ID)
		if d == nil || err != nil || !isWaiting(d) {
			return err
		}
		if d.DNSProvider == looked.DNSProvider {
			if err := save(tx, d); err != nil || !isWaiting(d) {
				return err
			}
		}
		if d.NSAwaited.IsZero() {
			d.NSAwaited = since
		}
		over := !began.Before(d.NSAwaited.Add(waitPeriod)) // a wait that has begun anew during the look goes on
		if over && !isMailAwaited(d) {
			resumed, err := s.resumeSetup(tx, d) // the setup then fails, and that ends the wait
			if err != nil {
				return err
			}
			if !resumed {
				return s.endWait(tx, d, s.errWaitOver(d))
			}
		}
		d.NextCheckAt = next
		other, err := store.JobByKey.Find(tx, store.JobKey(kindLook, d.ID)) // planned during the look
		if other != nil && other.Due.Before(next) {
			d.NextCheckAt = other.Due
		}
		return errors.Join(err, store.Domains.Put(tx, d))
	}, jobs.Snooze(next)
}

// lookOnce looks at the DNS of a waiting domain. save saves the result in the domain, and sets the
// domain up if its DNS is right.
func (s *Service) lookOnce(ctx context.Context, d *store.Domain) (save func(*store.Tx, *store.Domain) error, err error) {
	if d.DNSProvider != dnsprov.Builtin {
		d, err = s.withPresentSite(ctx, d)
		if err != nil {
			return nil, err
		}
		l := s.checkNow(ctx, d)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if l.healthy() {
			err = s.activateMostMailboxes(ctx, d.ID)
		}
		return func(tx *store.Tx, d *store.Domain) error {
			if l.healthy() {
				return s.completeDomain(tx, d, l)
			}
			return s.saveCheck(tx, d, l)
		}, err
	}
	c := NameserverCheck{Domain: d.Name, DomainID: &d.ID, needsLookup: true, domain: d}
	err = s.Store.View(func(tx *store.Tx) error {
		c.contested = d.Claim != store.ClaimProven && zones.Contested(tx, d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, zones.LookupTimeout)
	defer cancel()
	s.lookUpDelegation(limited, &c)
	if !c.Verified {
		_, err = s.withPresentSite(ctx, d)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return func(tx *store.Tx, d *store.Domain) error {
		if !c.needsLookup { // the lookup failed
			return nil
		}
		found := c
		return s.saveDelegation(tx, d, &found, "")
	}, nil
}

// errWaitOver returns the error of a domain that has waited too long. It says how to begin anew.
func (s *Service) errWaitOver(d *store.Domain) *core.Error {
	days := int(waitPeriod.Hours() / 24)
	switch d.DNSProvider {
	case dnsprov.Builtin:
		return core.Errorf(nsTimeout, "%s was not delegated to Mailstead within %d days. Set these nameservers, and only these, at its registrar, and run setup again: %s.",
			d.Name, days, joinNames(s.Config.Nameservers))
	case store.DomainProviderManual:
		return core.Errorf(recordsNotReady, "The records of %s were not found within %d days. Enter the records of dns-records at its DNS provider, then call verify-dns.", d.Name, days)
	}
	return core.Errorf(recordsNotReady, "The DNS did not show the records of %s within %d days. If they are not at %s, run setup again, with setup_dns. If they are, set the nameservers of %[3]s at the registrar of %[1]s, and run setup again.",
		d.Name, days, edge.Name(d.DNSProvider))
}

// endWait ends the wait of a domain with an error, and writes the domain. A claim that is not
// proven ends too, so that others can connect the name.
func (s *Service) endWait(tx *store.Tx, d *store.Domain, why *core.Error) error {
	expires := d.Claim == store.ClaimOpen && !store.IsPublicMail(d.Name)
	if expires {
		d.Claim = store.ClaimExpired
	}
	if err := s.endClaim(tx, d, why); err != nil || !expires {
		return err
	}
	return s.claimsChanged(tx, d)
}

// planMissingLooks plans, at startup, the looks of waiting domains that have no job for them:
// domains that waited before there were looks. The looks are spread over frequentLook.
func (s *Service) planMissingLooks() error {
	const atATime = 200
	for after, more := "", true; more; {
		var missing []string
		err := s.Store.View(func(tx *store.Tx) error {
			more = false
			n := 0
			for d := range store.Domains.After(tx, after) {
				after = d.ID
				if isWaiting(d) && !store.JobByKey.Has(tx, store.JobKey(kindLook, d.ID)) {
					missing = append(missing, d.ID)
				}
				if n++; n == atATime {
					more = true
					break
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			continue
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			for _, id := range missing {
				d, err := store.Domains.Find(tx, id)
				if err != nil {
					return err
				}
				if d == nil || !isWaiting(d) {
					continue
				}
				if d.NSAwaited.IsZero() {
					d.NSAwaited = tx.Now()
				}
				at := tx.Now().Add(time.Duration(s.Rand() * float64(frequentLook)))
				if err := errors.Join(s.planLook(tx, d, at), store.Domains.Put(tx, d)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nextLook returns when Mailstead looks at a waiting domain again; zero if it does not wait.
func nextLook(d *store.Domain) time.Time {
	if !isWaiting(d) {
		return time.Time{}
	}
	return d.NextCheckAt
}

// NextAttempt returns when a queued job runs again. A setup that waits for the delegation goes on
// when a look finds it, so this is the time of the next look.
func NextAttempt(tx *store.Tx, j *store.Job) (time.Time, error) {
	if j.Kind != KindSetup || j.State != store.JobQueued {
		return j.Due, nil
	}
	d, err := store.Domains.Find(tx, j.Resource.ID)
	if err != nil || d == nil || d.JobID != j.ID || d.Status != store.DomainPendingNS || d.NextCheckAt.IsZero() || !d.NextCheckAt.Before(j.Due) {
		return j.Due, err
	}
	return d.NextCheckAt, nil
}
