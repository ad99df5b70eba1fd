package dnsprov

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
)

const delegationTimeout = 10 * time.Second

// Delegation is the result of CheckDelegation: the nameservers that the DNS has for a domain.
type Delegation struct {
	Current  []string // host names, lower-case, without the trailing dot, sorted; empty if there are none
	Verified bool     // whether Current is not empty and has only our nameservers
}

// CheckDelegation looks up the nameservers of a domain and compares them with ours. It bypasses
// the lookup cache. A domain that does not exist has no nameservers; an error means that the
// lookup failed. Most resolvers return nameservers only if these already answer for the domain.
func CheckDelegation(ctx context.Context, r Resolver, domain string, ours []string) (Delegation, error) {
	ctx, cancel := context.WithTimeout(lookup.Fresh(ctx), delegationTimeout)
	defer cancel()
	found, err := r.LookupNS(ctx, domain+".")
	if err != nil && !lookup.IsNotFound(err) {
		return Delegation{}, fmt.Errorf("look up nameservers of %s: %w", domain, err)
	}
	d := Delegation{Current: make([]string, 0, len(found))}
	for _, ns := range found {
		d.Current = append(d.Current, hostName(ns.Host))
	}
	slices.Sort(d.Current)
	d.Current = slices.Compact(d.Current)
	known := make(map[string]bool, len(ours))
	for _, ns := range ours {
		known[hostName(ns)] = true
	}
	foreign := func(ns string) bool { return !known[ns] }
	d.Verified = len(d.Current) > 0 && !slices.ContainsFunc(d.Current, foreign)
	return d, nil
}
