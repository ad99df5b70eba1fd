package mta

import (
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

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
		addSession(row, s)
	}
	return store.TLSCounts.Put(tx, row)
}

// addSession counts one session. Past the bounds of a row failures are counted and not told apart.
func addSession(row *store.TLSCount, s deliver.Session) {
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

// failedTLS tells whether a row has anything to report.
func FailedTLS(row *store.TLSCount) bool {
	return slices.ContainsFunc(row.Policies, func(p store.TLSPolicyCount) bool { return p.Failed > 0 })
}
