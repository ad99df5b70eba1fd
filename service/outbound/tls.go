package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	policyRecheck = 5 * time.Minute     // between two lookups of a domain's record, also after a failure (RFC 8461 section 3.3)
	policyRefresh = 24 * time.Hour      // between two fetches of a policy that is in use
	policyUnused  = 30 * 24 * time.Hour // a policy that was not used for this long is not fetched again
	policyTimeout = time.Minute         // timeout of one lookup, DNS and HTTPS
	maxLookups    = 4096                // lookups in memory
	refreshAtOnce = 8                   // policies that are fetched at the same time
)

// A policyCache has the MTA-STS policies of other domains (RFC 8461). Fetched policies are stored
// and valid until they expire, even if the domain cannot be reached. The time of the last lookup is
// kept in memory.
type policyCache struct {
	svc  *Service
	HTTP *http.Client

	mu      sync.Mutex
	lookups map[string]*policyLookup
}

// A policyLookup is a lookup of a domain's policy, shared by all deliveries to the domain.
type policyLookup struct {
	done    chan struct{}    // closed when the fields below are set
	expires time.Time        // when the record may be looked up again
	policy  *mtasts.Policy   // nil if the domain has none
	failed  *deliver.Session // for TLS reports: the domain has a record, but its policy could not be fetched
}

func newPolicies(s *Service) *policyCache {
	t := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableKeepAlives = true
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = 10*time.Second, 20*time.Second
	t.MaxResponseHeaderBytes = 16 << 10
	return &policyCache{svc: s, lookups: map[string]*policyLookup{}, HTTP: mtasts.NewHTTP(t)}
}

// Of returns the current policy of a domain, which must be an ASCII name; nil if there is none.
// failed, unless nil, must be counted for TLS reports.
func (p *policyCache) Of(ctx context.Context, domain string) (policy *mtasts.Policy, failed *deliver.Session, err error) {
	if strings.HasPrefix(domain, "[") {
		return nil, nil, nil
	}
	look, isNew := p.lookup(domain)
	if isNew {
		p.runLookup(context.WithoutCancel(ctx), look, domain)
		return look.policy, look.failed, nil
	}
	select {
	case <-look.done:
		return look.policy, nil, nil // the caller that did the lookup counts its failure
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// lookup returns the newest lookup of a domain. isNew is true if it is new; the caller must then
// call runLookup.
func (p *policyCache) lookup(domain string) (look *policyLookup, isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.svc.Now()
	if l := p.lookups[domain]; l != nil && now.Before(l.expires) {
		return l, false
	}
	if len(p.lookups) >= maxLookups {
		for name, l := range p.lookups {
			if !now.Before(l.expires) {
				delete(p.lookups, name)
			}
		}
	}
	if len(p.lookups) >= maxLookups {
		clear(p.lookups) // waiting callers hold their own lookup
	}
	l := &policyLookup{done: make(chan struct{}), expires: now.Add(policyRecheck)}
	p.lookups[domain] = l
	return l, true
}

func (p *policyCache) runLookup(ctx context.Context, l *policyLookup, domain string) {
	defer close(l.done)
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	stored, err := p.StoredPolicy(domain)
	if err == nil {
		stored, err = p.renew(ctx, domain, stored, false)
	}
	l.policy = policyOf(stored)
	if err != nil {
		p.svc.LogOf(ctx).Info("the MTA-STS policy could not be fetched", "domain", domain, "policy", l.policy != nil, "error", err)
		l.failed = policyFailure(domain, err)
	}
}

// StoredPolicy returns the stored policy of a domain; nil if there is none or it has expired.
func (p *policyCache) StoredPolicy(domain string) (*store.TLSPolicy, error) {
	var row *store.TLSPolicy
	err := p.svc.Store.View(func(tx *store.Tx) (err error) {
		row, err = store.TLSPolicies.Get(tx, domain)
		return err
	})
	if core.IsGone(err) || err == nil && !p.svc.Now().Before(row.ExpiresAt) {
		return nil, nil
	}
	return row, err
}

// renew returns the current policy of a domain. stored is the stored policy, nil if there is none.
// renew returns stored if the domain's record still has its ID, or if no newer policy can be
// fetched. Otherwise it returns the policy that the domain serves. With force, it fetches the
// policy even if the ID is the same.
func (p *policyCache) renew(ctx context.Context, domain string, stored *store.TLSPolicy, force bool) (*store.TLSPolicy, error) {
	texts, err := p.svc.Resolver.LookupTXT(ctx, "_mta-sts."+domain+".")
	id, ok := mtasts.ParseRecord(texts)
	if err != nil || !ok {
		return stored, nil // RFC 8461 section 5.1
	}
	if stored != nil && stored.ID == id && !force {
		return stored, p.markUsed(stored)
	}
	policy, err := mtasts.Fetch(ctx, p.HTTP, domain)
	if err != nil {
		return stored, err
	}
	now := p.svc.Now()
	row := &store.TLSPolicy{
		Domain: domain, ID: id, Mode: policy.Mode, MX: policy.MX, MaxAge: policy.MaxAge, FetchedAt: now, ExpiresAt: now.Add(policy.MaxAge), UsedAt: now,
	}
	if force && stored != nil {
		row.UsedAt = stored.UsedAt
	}
	return row, p.put(row)
}

// markUsed records that a policy is in use, at most once a day.
func (p *policyCache) markUsed(row *store.TLSPolicy) error {
	if now := p.svc.Now(); now.Sub(row.UsedAt) > policyRefresh {
		row.UsedAt = now
		return p.put(row)
	}
	return nil
}

func (p *policyCache) put(row *store.TLSPolicy) error {
	return p.svc.Store.Update(func(tx *store.Tx) error { return store.TLSPolicies.Put(tx, row) })
}

func policyOf(row *store.TLSPolicy) *mtasts.Policy {
	if row == nil {
		return nil
	}
	return &mtasts.Policy{Mode: row.Mode, MX: row.MX, MaxAge: row.MaxAge}
}

// policyFailure returns the entry in the TLS report for a policy that could not be fetched.
func policyFailure(domain string, err error) *deliver.Session {
	out := &deliver.Session{Policy: tlsrpt.PolicySTS, Host: domain, Reason: err.Error()}
	switch {
	case errors.Is(err, mtasts.ErrInvalid):
		out.Result = tlsrpt.STSInvalid
	case errors.Is(err, mtasts.ErrCertificate):
		out.Result = tlsrpt.STSWebPKI
	case errors.Is(err, mtasts.ErrFetch):
		out.Result = tlsrpt.STSFetch
	default:
		return nil // the failure is this server's own
	}
	return out
}

// policyKind is the kind of the job that fetches policies in use again well before they expire (RFC
// 8461 section 3.3), and deletes expired ones.
func (s *Service) policyKind() jobs.Kind {
	return jobs.Kind{Name: "tls_policies", Work: s.refreshPolicies, Timeout: 30 * time.Minute}
}

func (s *Service) refreshPolicies(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	var due []*store.TLSPolicy
	var old []string
	now := s.Now()
	err := s.Store.View(func(tx *store.Tx) error {
		for row := range store.TLSPolicies.All(tx) {
			switch {
			case !now.Before(row.ExpiresAt):
				old = append(old, row.Domain)
			case now.Sub(row.UsedAt) < policyUnused && now.Sub(row.FetchedAt) > min(policyRefresh, row.MaxAge/2):
				due = append(due, row)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	turns := make(chan struct{}, refreshAtOnce)
	var wg sync.WaitGroup
	for _, row := range due {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			s.refreshPolicy(ctx, row)
		})
	}
	wg.Wait()
	return func(tx *store.Tx, _ *store.Job) error { return forgetPolicies(tx, old) }, ctx.Err()
}

func (s *Service) refreshPolicy(ctx context.Context, row *store.TLSPolicy) {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	if _, err := s.policies.renew(ctx, row.Domain, row, true); err != nil {
		s.LogOf(ctx).Info("MTA-STS: the previous policy stays in force", "domain", row.Domain, "until", row.ExpiresAt, "error", err)
	}
}

// forgetPolicies deletes expired policies, unless they have been fetched again meanwhile.
func forgetPolicies(tx *store.Tx, domains []string) error {
	for _, domain := range domains {
		row, err := store.TLSPolicies.Get(tx, domain)
		if err == nil && !tx.Now().Before(row.ExpiresAt) {
			err = store.TLSPolicies.Delete(tx, domain)
		}
		if err != nil && !core.IsGone(err) {
			return fmt.Errorf("delete MTA-STS policy of %s: %w", domain, err)
		}
	}
	return nil
}

// Limits of one domain's TLS report for a day.
const (
	maxTLSPolicies = 4
	maxTLSFailures = 50
	maxTLSReason   = 300
)

// countTLS counts the TLS sessions of an attempt, in the transaction that records its result.
func countTLS(tx *store.Tx, domain string, sessions []deliver.Session) error {
	if len(sessions) == 0 {
		return nil
	}
	domain = strings.ToLower(domain)
	day := tx.Now().UTC().Format(time.DateOnly)
	row, err := store.TLSCounts.Get(tx, store.TLSCountID(day, domain))
	if core.IsGone(err) {
		row, err = &store.TLSCount{Day: day, Domain: domain}, nil
	}
	if err != nil {
		return err
	}
	for _, s := range sessions {
		AddSession(row, s)
	}
	return store.TLSCounts.Put(tx, row)
}

// AddSession counts one TLS session in a row. If the row has reached the limit of failures that it
// describes, a further failure is only counted.
func AddSession(row *store.TLSCount, s deliver.Session) {
	i := slices.IndexFunc(row.Policies, func(p store.TLSPolicyCount) bool {
		return p.Type == s.Policy && slices.Equal(p.Strings, s.Strings)
	})
	switch {
	case i >= 0:
	case len(row.Policies) < maxTLSPolicies:
		i = len(row.Policies)
		row.Policies = append(row.Policies, store.TLSPolicyCount{Type: s.Policy, Strings: s.Strings, MXHosts: s.MXHosts})
	default:
		i = maxTLSPolicies - 1
	}
	p := &row.Policies[i]
	if s.Result == "" {
		p.Successful++
		return
	}
	p.Failed++
	f := store.TLSFailureCount{Result: s.Result, Host: s.Host, IP: s.IP, Reason: s.Reason[:min(len(s.Reason), maxTLSReason)]}
	f.Reason = strings.ToValidUTF8(f.Reason, "")
	j := slices.IndexFunc(p.Failures, func(g store.TLSFailureCount) bool {
		return g.Result == f.Result && g.Host == f.Host && g.IP == f.IP
	})
	if j < 0 {
		if len(p.Failures) == maxTLSFailures {
			return
		}
		j = len(p.Failures)
		p.Failures = append(p.Failures, f)
	}
	p.Failures[j].Sessions++
}

// HasTLSFailures reports whether a row has failures to report.
func HasTLSFailures(row *store.TLSCount) bool {
	return slices.ContainsFunc(row.Policies, func(p store.TLSPolicyCount) bool { return p.Failed > 0 })
}
