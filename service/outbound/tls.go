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
	policyAsked   = 5 * time.Minute     // between two looks at a domain's record, so long also after a failure (RFC 8461 section 3.3)
	policyFresh   = 24 * time.Hour      // between two fetches of a policy that is in use
	policyUnused  = 30 * 24 * time.Hour // after which a policy is not fetched again
	policyLookFor = time.Minute         // one look, DNS and HTTPS
	keptLooks     = 4096                // domains whose newest look is in memory
	refreshAtOnce = 8
)

// policies knows the MTA-STS policies of domains elsewhere (RFC 8461): those that were fetched are
// in the store, and count until they expire, also when nobody can be asked; when a domain was last
// looked at is in memory.
type policies struct {
	svc  *Service
	HTTP *http.Client

	mu      sync.Mutex
	lookups map[string]*policyLookup
}

// A policyLookup is one look at a domain, which everybody who delivers there shares.
type policyLookup struct {
	done   chan struct{} // closed when the rest is set
	until  time.Time
	policy *mtasts.Policy   // nil: none
	failed *deliver.Session // for reports: the domain has a record, and its policy could not be had
}

func newPolicies(s *Service) *policies {
	t := s.Guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableKeepAlives = true
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = 10*time.Second, 20*time.Second
	t.MaxResponseHeaderBytes = 16 << 10
	return &policies{svc: s, lookups: map[string]*policyLookup{}, HTTP: mtasts.NewHTTP(t)}
}

// Of gives the policy of a domain, an ASCII name, that counts now; nil if there is none. failed is
// to be counted.
func (p *policies) Of(ctx context.Context, domain string) (policy *mtasts.Policy, failed *deliver.Session, err error) {
	if strings.HasPrefix(domain, "[") {
		return nil, nil, nil
	}
	look, ours := p.look(domain)
	if ours {
		p.fill(context.WithoutCancel(ctx), look, domain)
		return look.policy, look.failed, nil
	}
	select {
	case <-look.done:
		return look.policy, nil, nil // whoever looked counts
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// look gives the newest look at a domain; ours tells that the caller must fill it.
func (p *policies) look(domain string) (look *policyLookup, ours bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.svc.Now()
	if l := p.lookups[domain]; l != nil && now.Before(l.until) {
		return l, false
	}
	if len(p.lookups) >= keptLooks {
		for name, l := range p.lookups {
			if !now.Before(l.until) {
				delete(p.lookups, name)
			}
		}
	}
	if len(p.lookups) >= keptLooks {
		clear(p.lookups) // those who wait have theirs in hand
	}
	l := &policyLookup{done: make(chan struct{}), until: now.Add(policyAsked)}
	p.lookups[domain] = l
	return l, true
}

func (p *policies) fill(ctx context.Context, l *policyLookup, domain string) {
	defer close(l.done)
	ctx, cancel := context.WithTimeout(ctx, policyLookFor)
	defer cancel()
	kept, err := p.Kept(domain)
	if err == nil {
		kept, err = p.renew(ctx, domain, kept, false)
	}
	l.policy = policyOf(kept)
	if err != nil {
		p.svc.LogOf(ctx).Info("MTA-STS", "domain", domain, "policy", l.policy != nil, "error", err)
		l.failed = policyFailure(domain, err)
	}
}

// Kept is the policy of a domain in the store, unless it has expired.
func (p *policies) Kept(domain string) (*store.TLSPolicy, error) {
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

// renew gives the policy that counts now: the one that is kept (nil: none) where the domain's
// record still has its id or nothing newer can be had, else the one that the domain serves. With
// again it is fetched whatever the id.
func (p *policies) renew(ctx context.Context, domain string, kept *store.TLSPolicy, anew bool) (*store.TLSPolicy, error) {
	texts, err := p.svc.Resolver.LookupTXT(ctx, "_mta-sts."+domain+".")
	id, ok := mtasts.ParseRecord(texts)
	if err != nil || !ok {
		return kept, nil // RFC 8461 section 5.1
	}
	if kept != nil && kept.ID == id && !anew {
		return kept, p.use(kept)
	}
	policy, err := mtasts.Fetch(ctx, p.HTTP, domain)
	if err != nil {
		return kept, err
	}
	now := p.svc.Now()
	row := &store.TLSPolicy{
		Domain: domain, ID: id, Mode: policy.Mode, MX: policy.MX, MaxAge: policy.MaxAge, FetchedAt: now, ExpiresAt: now.Add(policy.MaxAge), UsedAt: now,
	}
	if anew && kept != nil {
		row.UsedAt = kept.UsedAt
	}
	return row, p.put(row)
}

// use notes that a policy is in use, to a day.
func (p *policies) use(row *store.TLSPolicy) error {
	if now := p.svc.Now(); now.Sub(row.UsedAt) > policyFresh {
		row.UsedAt = now
		return p.put(row)
	}
	return nil
}

func (p *policies) put(row *store.TLSPolicy) error {
	return p.svc.Store.Update(func(tx *store.Tx) error { return store.TLSPolicies.Put(tx, row) })
}

func policyOf(row *store.TLSPolicy) *mtasts.Policy {
	if row == nil {
		return nil
	}
	return &mtasts.Policy{Mode: row.Mode, MX: row.MX, MaxAge: row.MaxAge}
}

// policyFailure is what a report says of a policy that could not be had.
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
		return nil // of our own
	}
	return out
}

// policyKind fetches the policies that are in use again, long before they run out (RFC 8461 section
// 3.3), and forgets the others.
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
			case now.Sub(row.UsedAt) < policyUnused && now.Sub(row.FetchedAt) > min(policyFresh, row.MaxAge/2):
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
	ctx, cancel := context.WithTimeout(ctx, policyLookFor)
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	if _, err := s.policies.renew(ctx, row.Domain, row, true); err != nil {
		s.LogOf(ctx).Info("MTA-STS: the policy before stays in force", "domain", row.Domain, "until", row.ExpiresAt, "error", err)
	}
}

// forgetPolicies deletes policies that have expired, unless they were fetched again meanwhile.
func forgetPolicies(tx *store.Tx, domains []string) error {
	for _, domain := range domains {
		row, err := store.TLSPolicies.Get(tx, domain)
		if err == nil && !tx.Now().Before(row.ExpiresAt) {
			err = store.TLSPolicies.Delete(tx, domain)
		}
		if err != nil && !core.IsGone(err) {
			return fmt.Errorf("forget policy of %s: %w", domain, err)
		}
	}
	return nil
}

// Bounds of what one domain's report tells of a day.
const (
	maxTLSPolicies = 4
	maxTLSFailures = 50
	maxTLSReason   = 300
)

// countTLS counts the TLS sessions of an attempt, in the transaction that keeps what came of it.
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

// AddSession counts one session. Past the bounds of a row failures are counted and not told apart.
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

// FailedTLS reports whether a row has anything to report.
func FailedTLS(row *store.TLSCount) bool {
	return slices.ContainsFunc(row.Policies, func(p store.TLSPolicyCount) bool { return p.Failed > 0 })
}
