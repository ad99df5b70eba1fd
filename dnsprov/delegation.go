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

// Delegation is the result of CheckDelegation: the name servers that the DNS has for a domain.
type Delegation struct {
	Current  []string // host names, lower-case, without the trailing dot, sorted; empty if there are none
	Verified bool     // whether Current is not empty and has only our name servers
}

// CheckDelegation looks up the name servers of a domain and compares them with ours. It bypasses
// the lookup cache. A domain that does not exist has no name servers; an error means that the
// lookup failed. Most resolvers return name servers only if these already answer for the domain.
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

// notFound reports whether err is the answer that the name or its records do not exist.
func notFound(err error) bool {
	var dnsErr *net.DNSError
	return errors.As(err, &dnsErr) && dnsErr.IsNotFound
}
