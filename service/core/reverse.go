package core

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/lookup"
)

// ReverseNames looks up what the reverse DNS says of an address, past what is remembered: its
// names, and whether one of them leads back to it, since many receivers refuse mail from where that
// is not so (RFC 1912 section 2.1). No names is no error.
func (s *Core) ReverseNames(ctx context.Context, ip netip.Addr) (names []string, back bool, err error) {
	ip = ip.Unmap()
	names, err = s.Resolver.LookupAddr(lookup.Fresh(ctx), ip.String())
	if err != nil && !IsNoSuchName(err) {
		return nil, false, err
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, ".")
		addrs, err := s.Resolver.LookupNetIP(lookup.Fresh(ctx), "ip", names[i]+".")
		if err != nil && !IsNoSuchName(err) {
			return nil, false, err
		}
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap() == ip }) {
			return names, true, nil
		}
	}
	return names, false, nil
}

// IsNoSuchName reports whether the DNS answered a look-up with: there is no such name, or it has no
// such record.
func IsNoSuchName(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}
