package dnsprov

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
)

const delegationTimeout = 10 * time.Second

// Delegation lists the name servers that a domain has now.
type Delegation struct {
	Current  []string // its name servers, lower-case, without the trailing dot, sorted; empty if it has none
	Verified bool     // at least one of Current is ours, and all are
}

// CheckDelegation looks up the name servers of a domain and compares them with ours. A domain that
// does not exist has none; an error means that the lookup itself failed. The listed servers must
// already answer for the domain, or most resolvers will not return them. It bypasses the lookup
// cache.
func CheckDelegation(ctx context.Context, r Resolver, domain string, ours []string) (Delegation, error) {
	ctx, cancel := context.WithTimeout(lookup.Fresh(ctx), delegationTimeout)
	defer cancel()
	found, err := r.LookupNS(ctx, domain+".")
	if err != nil && !notFound(err) {
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

// notFound reports whether the answer to a lookup was "there is none".
func notFound(err error) bool {
	var dnsErr *net.DNSError
	return errors.As(err, &dnsErr) && dnsErr.IsNotFound
}
