package dnsprov

import (
	"context"
	"net"
	"net/netip"
)

// Resolver looks up DNS records. *lookup.Client and *net.Resolver implement it. Callers add a
// trailing dot to names, so that the resolver does not append the domains of a search list.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupCNAME(ctx context.Context, host string) (string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}
