package core

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/lookup"
)

// ReverseNames looks up the reverse DNS names of an address, without the cache. resolvesBack
// reports whether one of the names resolves to the address: many receivers refuse mail if none does
// (RFC 1912 section 2.1). An address without names is not an error.
func (s *Core) ReverseNames(ctx context.Context, ip netip.Addr) (names []string, resolvesBack bool, err error) {
	ip = ip.Unmap()
	names, err = s.Resolver.LookupAddr(lookup.Fresh(ctx), ip.String())
	if err != nil && !lookup.IsNotFound(err) {
		return nil, false, err
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, ".")
		addrs, err := s.Resolver.LookupNetIP(lookup.Fresh(ctx), "ip", names[i]+".")
		if err != nil && !lookup.IsNotFound(err) {
			return nil, false, err
		}
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap() == ip }) {
			return names, true, nil
		}
	}
	return names, false, nil
}
