package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

const (
	orderResumable = 24 * time.Hour   // how long an unfinished order can be continued
	ordersSpread   = 30 * time.Minute // orders that must wait for the rate limit are spread over this time
)

// A certRun is one attempt of the certificate job of a nameSet.
type certRun struct {
	s      *Service
	ctx    context.Context
	set    *nameSet
	row    *store.Certificate // the row that will be written
	issued bool               // row has a new certificate
	due    bool               // the certificate must be renewed, or there is none

	hasNewKey bool // row has a new key for the next certificate
}

// certify works on a certificate job. After a crash it continues the order that was started.
func (s *Service) certify(ctx context.Context, j *store.Job) (w jobs.Writes, err error) {
	args, err := jobs.Args[certificateArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	if args.Set != store.HostCertificate { // remove challenges even if they are left from a crash or certificates are now turned off
		defer func() { err = errors.Join(err, s.withdrawChallenges(args.Set)) }()
	}
	if s.Config.ACME == nil || args.Set == store.HostCertificate && !s.Config.ACME.Host {
		return nil, nil
	}
	c := &certRun{s: s, ctx: ctx}
	if err := c.loadRow(args.Set); err != nil {
		return nil, err
	}
	now := s.Now()
	if c.row.NextTry.After(now) {
		return nil, jobs.Snooze(c.row.NextTry)
	}
	c.due = !c.row.RenewAt.After(now)
	names := c.wantedNames(now)
	switch {
	case len(c.set.names) == 0 && len(names) == 0:
		return c.resultWithoutNames(j, now)
	case len(names) == 0, !c.due && c.covers(names):
		return c.waitResult()
	}
	if wait := s.certs.Orders.Take(); wait > 0 {
		return nil, jobs.Snooze(now.Add(wait + time.Duration(s.Rand()*float64(ordersSpread))))
	}
	if err := c.obtainCertificate(names); err != nil {
		return c.failureResult(err)
	}
	return c.successResult()
}

// loadRow reads the row of a nameSet and finds out which of its names point to this host.
func (c *certRun) loadRow(id string) error {
	var d *store.Domain
	var candidates []string
	err := c.s.Store.View(func(tx *store.Tx) (err error) {
		c.row, err = store.Certificates.Get(tx, id)
		if errors.Is(err, store.ErrNotFound) {
			c.row, err = &store.Certificate{ID: id}, nil
		}
		if err != nil || id == store.HostCertificate {
			return err
		}
		d, err = store.Domains.Get(tx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			candidates, err = c.s.candidateNames(tx, d)
		}
		return err
	})
	if err != nil {
		return err
	}
	if directory := c.s.Config.ACME.Directory; c.row.Directory != directory { // the orders and refusals of another authority do not count
		r := c.row
		r.Directory, r.Order, r.Refused, r.Failures, r.NextTry, r.RenewAt = directory, store.CertificateOrder{}, nil, 0, time.Time{}, time.Time{}
	}
	switch {
	case id == store.HostCertificate:
		c.set, err = c.s.hostNameSet(c.ctx)
	case d == nil:
		c.set = &nameSet{id: id}
	default:
		c.set, err = c.s.domainNameSet(c.ctx, d, candidates)
	}
	return err
}

// wantedNames returns the names for the certificate: those that point to this host, and those whose
// lookup failed if the present certificate has them. It leaves out names that the authority has
// refused recently.
func (c *certRun) wantedNames(now time.Time) []string {
	out := slices.Clone(c.set.names)
	for _, name := range c.set.unknown {
		if slices.Contains(c.row.Names, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(out, func(name string) bool { return isRefused(c.row, name, now) })
}

// covers reports whether the present certificate has all the names.
func (c *certRun) covers(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(c.row.Names, name) })
}

// resultWithoutNames returns the job's result if no name of the set points to this host. The job of
// the host's own name waits until it does. The job of a domain ends, but not before the certificate
// has expired, because clients may still use it.
func (c *certRun) resultWithoutNames(j *store.Job, now time.Time) (jobs.Writes, error) {
	switch {
	case c.set.id == store.HostCertificate:
		return nil, jobs.Snooze(now.Add(jobs.PollDelay(now.Sub(j.CreatedAt), c.s.Rand())))
	case c.row.RenewAt.After(now):
		return nil, jobs.Snooze(c.row.RenewAt)
	case c.row.NotAfter.After(now):
		return nil, jobs.Snooze(c.row.NotAfter)
	}
	return func(tx *store.Tx, _ *store.Job) error { return c.s.DropCertificate(tx, c.set.id) }, nil
}

// waitResult returns the job's result if there is nothing to do now. If the host's certificate has
// no next key, because an older release ordered it, waitResult generates one.
func (c *certRun) waitResult() (jobs.Writes, error) {
	if err := c.prepareKey(); err != nil {
		return nil, err
	}
	if !c.hasNewKey {
		return nil, jobs.Snooze(c.nextAttempt())
	}
	return c.writeAndServe, jobs.Snooze(c.nextAttempt())
}

// nextAttempt returns the time of the next attempt: when the certificate must be renewed, or when a
// refused name may be ordered again.
func (c *certRun) nextAttempt() time.Time {
	now := c.s.Now()
	var at time.Time
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	sooner(c.row.RenewAt)
	for _, name := range c.set.names {
		if r, refused := c.row.Refused[name]; refused {
			sooner(retryAt(r))
		}
	}
	if at.IsZero() { // for example, the certificate is valid for a very short time
		at = now.Add(time.Minute)
	}
	return at
}

// obtainCertificate gets a certificate for the names, except those that the authority refuses.
func (c *certRun) obtainCertificate(names []string) error {
	client, err := c.s.authorityClient(c.ctx)
	if err != nil {
		return err
	}
	for {
		err := c.orderCertificate(client, names)
		var refusal *ca.Refusal
		if !errors.As(err, &refusal) {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return refusal.Names[name] != "" })
		if len(rest) == len(names) {
			return err
		}
		c.recordRefusal(refusal)
		if len(rest) == 0 {
			return err
		}
		c.s.Log.Warn("ordering a certificate without the refused names", "names", rest, "error", err)
		names = rest
		if !c.due && c.covers(rest) {
			return nil
		}
	}
}

// recordRefusal records which names the authority has refused, and why.
func (c *certRun) recordRefusal(r *ca.Refusal) {
	if c.row.Refused == nil {
		c.row.Refused = map[string]store.Refusal{}
	}
	for name, why := range r.Names {
		if slices.Contains(c.set.names, name) || slices.Contains(c.set.unknown, name) {
			c.row.Refused[name] = store.Refusal{Why: why, Times: c.row.Refused[name].Times + 1, At: c.s.Now()}
		}
	}
	c.row.Order = store.CertificateOrder{}
}

// orderCertificate gets a certificate for exactly these names.
func (c *certRun) orderCertificate(client *ca.Client, names []string) error {
	key, err := c.keyForOrder(names)
	if err != nil {
		return err
	}
	withdraw := func() {}
	defer func() { withdraw() }()
	chain, err := client.Obtain(c.ctx, ca.Request{
		Names: names, Key: key, Kind: c.set.kind, Order: c.row.Order.URL, Begun: c.storeOrder,
		Publish: func(ctx context.Context, all []ca.Challenge) error {
			if c.set.kind == ca.DNS01 {
				return c.s.publishChallenges(ctx, c.set.id, all)
			}
			withdraw = c.s.certs.answerChallenges(all)
			return nil
		},
	})
	if err != nil {
		return err
	}
	return c.setChain(chain)
}

// keyForOrder returns the key of the unfinished order for the names or, if there is none, that of a
// new order, which it records in the row.
func (c *certRun) keyForOrder(names []string) (*ecdsa.PrivateKey, error) {
	o, binding := &c.row.Order, store.CertificateBinding(c.set.id)
	if o.URL != "" && slices.Equal(o.Names, names) && c.s.Now().Sub(o.BegunAt) < orderResumable {
		if key, err := c.s.openKey(binding, o.Key); err == nil {
			return key, nil
		}
	}
	key, sealed, err := c.orderKey()
	*o = store.CertificateOrder{Names: names, Key: sealed, BegunAt: c.s.Now()}
	return key, err
}

// storeOrder stores the URL of a new order, so that it can be continued after a crash.
func (c *certRun) storeOrder(url string) error {
	c.row.Order.URL, c.row.Order.BegunAt = url, c.s.Now()
	return c.s.Store.Update(c.putRow)
}

// putRow writes the row. If its domain no longer exists, the error wraps store.ErrNotFound.
func (c *certRun) putRow(tx *store.Tx) error {
	if c.set.id != store.HostCertificate {
		if _, err := store.Domains.Get(tx, c.set.id); err != nil {
			return fmt.Errorf("store the certificate of %s: %w", c.set.id, err)
		}
	}
	return store.Certificates.Put(tx, c.row)
}

// setChain sets the certificate chain of the row. The certificate must be renewed when a third of
// its lifetime is left.
func (c *certRun) setChain(chain [][]byte) error {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return fmt.Errorf("parse the new certificate of %s: %w", c.set.id, err)
	}
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	r := c.row
	r.Names, r.Chain, r.Key = r.Order.Names, chain, r.Order.Key
	r.NotBefore, r.NotAfter = leaf.NotBefore, leaf.NotAfter
	r.RenewAt = leaf.NotAfter.Add(-life/3 - time.Duration(c.s.Rand()*float64(life/30))).Truncate(time.Second) // the job queue stores times in seconds
	r.Order = store.CertificateOrder{}
	for _, name := range r.Names {
		delete(r.Refused, name)
	}
	c.issued = true
	c.s.Log.Info("got a certificate", "names", r.Names, "valid_until", r.NotAfter, "renewed_at", r.RenewAt)
	return c.prepareKey()
}

// successResult returns the job's result after success: it writes the row and waits until the next
// attempt.
func (c *certRun) successResult() (jobs.Writes, error) {
	c.row.Failures, c.row.Error, c.row.NextTry, c.row.TriedAt = 0, "", time.Time{}, c.s.Now()
	return c.writeAndServe, jobs.Snooze(c.nextAttempt())
}

// writeAndServe writes the row in the transaction that ends the attempt. After the commit, a new
// certificate is served.
func (c *certRun) writeAndServe(tx *store.Tx, _ *store.Job) error {
	err := c.putRow(tx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil && c.issued {
		tx.After(func() { c.s.serveCertificate(c.row) })
	}
	if err == nil && c.set.id == store.HostCertificate && (c.issued || c.hasNewKey) {
		err = c.s.publishKeys(tx)
	}
	return err
}

// failureResult returns the job's result after an error: it writes the error and the time of the
// next attempt.
func (c *certRun) failureResult(cause error) (jobs.Writes, error) {
	if errors.Is(c.ctx.Err(), context.Canceled) { // the job queue is stopping
		return nil, cause
	}
	now := c.s.Now()
	var hold *ca.Wait
	wait := time.Duration(0)
	if errors.As(cause, &hold) {
		wait = hold.For + time.Duration(c.s.Rand()*float64(hold.For)/10)
	} else {
		c.row.Failures++
		wait = certificateBackoff(c.row.Failures, c.s.Rand())
		if left := c.row.NotAfter.Sub(now); left > 0 {
			wait = min(wait, max(left/4, 5*time.Minute))
		}
	}
	if errors.Is(cause, ca.ErrNoAccount) {
		if err := c.s.forgetAuthority(); err != nil {
			return nil, errors.Join(cause, err)
		}
	}
	if errors.Is(cause, ca.ErrNoAccount) || errors.Is(cause, ca.ErrUnfit) || errors.Is(cause, ca.ErrOrder) {
		c.row.Order = store.CertificateOrder{}
	}
	c.row.Error, c.row.TriedAt, c.row.NextTry = cause.Error(), now, now.Add(wait).Truncate(time.Second)
	return c.writeAndServe, jobs.RetryAt(c.row.NextTry, cause)
}

const (
	maxRunning           = 4 // certificate jobs that run at the same time
	maxRunningPerAccount = 2 // certificate jobs of one account that run at the same time
	certifyTimeout       = 10 * time.Minute
	domainsPerView       = 200 // domains that one read transaction reads
)

// certificateArgs are the arguments of a certificate job.
type certificateArgs struct {
	Set string `json:"set"`
}

// certificateKind returns the kind of job that gets and renews the certificate of one nameSet. Each
// nameSet has a job of its own, which is snoozed until there is something to do. It ends when none
// of the names points to this host any more.
func (s *Service) certificateKind() jobs.Kind {
	return jobs.Kind{
		Name: "certificate", Work: s.certify, Timeout: certifyTimeout, Most: maxRunning, MostEach: maxRunningPerAccount,
		Backoff: certificateBackoff,
	}
}

// certificateSweepKind returns the kind of job that queues missing certificate jobs. They may be
// missing after a crash, or after a change of the settings or the clock.
func (s *Service) certificateSweepKind() jobs.Kind {
	return jobs.Kind{Name: "certificate_sweep", Work: s.sweepCertificates, Max: 3}
}

// certificateBackoff returns the delay after a number of failures in a row: from five minutes,
// because authorities often allow only five failures in an hour, up to a day. r is a random number
// from 0 to 1 for the jitter.
func certificateBackoff(failures int, r float64) time.Duration {
	wait := 24 * time.Hour
	if n := max(failures, 1) - 1; n < 9 {
		wait = min(wait, 5*time.Minute<<n)
	}
	return jobs.Jitter(wait, r)
}

// PlanCertificate queues the certificate job of a domain if there is something to do. The domain's
// record need not be written before.
func (s *Service) PlanCertificate(tx *store.Tx, d *store.Domain) error {
	lacks, err := s.lacksCertificate(tx, d)
	if err != nil || !lacks {
		return err
	}
	return s.queueCertificateJob(tx, d.ID, d.AccountID, time.Time{})
}

// queueCertificateJob queues the certificate job of a nameSet.
func (s *Service) queueCertificateJob(tx *store.Tx, set, account string, due time.Time) error {
	_, err := s.Queue.Add(tx, jobs.New{
		AccountID: account, Kind: "certificate", Key: set, Lane: "certificate " + set, Args: certificateArgs{set}, Due: due,
	})
	return err
}

// lacksCertificate reports whether there is something to do for the certificate of a domain:
// whether a name that may point to this host is not in it, or its renewal is due. It returns false
// while the job waits after a failure.
func (s *Service) lacksCertificate(tx *store.Tx, d *store.Domain) (bool, error) {
	names, err := s.candidateNames(tx, d)
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
		return !slices.Contains(row.Names, name) && !isRefused(row, name, now)
	}), nil
}

// isRefused reports whether the authority has refused a name and it is too early to order it again.
func isRefused(row *store.Certificate, name string, now time.Time) bool {
	r, ok := row.Refused[name]
	return ok && now.Before(retryAt(r))
}

// retryAt returns when a refused name may be ordered again.
func retryAt(r store.Refusal) time.Time { return r.At.Add(certificateBackoff(r.Times, 0)) }

// planHostCertificate queues the job for the certificate of the host's own name. If the job waits
// after a failure, it goes on waiting.
func (s *Service) planHostCertificate() error {
	if s.Config.ACME == nil || !s.Config.ACME.Host {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error {
		row, err := store.Certificates.Get(tx, store.HostCertificate)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		due := time.Time{}
		if row != nil && row.Directory == s.Config.ACME.Directory {
			due = row.NextTry
		}
		return s.queueCertificateJob(tx, store.HostCertificate, "", due)
	})
}

// RetryCertificate queues the job for the certificate of the host's own name to run now, even if it
// waits after a failure.
func (s *Service) RetryCertificate() error {
	if s.Config.ACME == nil || !s.Config.ACME.Host {
		return nil
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		row, err := store.Certificates.Get(tx, store.HostCertificate)
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

// sweepCertificates works on a certificate_sweep job.
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

// lackingCertificates reads one page of domains. It returns the IDs of those whose certificate job
// must be queued. last is the key after which the next page begins; "" after the last page.
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
			if n++; n == domainsPerView {
				last = key
				break
			}
		}
		return nil
	})
	return ids, last, err
}

// planCertificates queues the certificate jobs of domains, where there is something to do.
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
