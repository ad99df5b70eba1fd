package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// An ownResolver asks our own DNS server about the names that are hosted here, and the system's
// resolver about all others. So a sandbox needs no delegation.
type ownResolver struct {
	hosts func(name string) bool // tells whether a name is hosted here; nil: none is
	own   *net.Resolver
	net.Resolver
}

// reserved are the top-level domains that the public DNS will never have (RFC 6761). No resolver is
// asked about them.
var reserved = []string{"test", "example", "invalid", "localhost"}

// resolverFor picks the resolver for a name. The error says that the name cannot exist.
func (r *ownResolver) resolverFor(name string) (*net.Resolver, error) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if r.hosts != nil && r.hosts(name) {
		return r.own, nil
	}
	if top := name[strings.LastIndexByte(name, '.')+1:]; name != "localhost" && slices.Contains(reserved, top) {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return &r.Resolver, nil
}

// ask makes one look-up through the resolver for the name.
func ask[T any](r *ownResolver, name string, lookup func(*net.Resolver) (T, error)) (T, error) {
	to, err := r.resolverFor(name)
	if err != nil {
		var none T
		return none, err
	}
	return lookup(to)
}

func (r *ownResolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return ask(r, name, func(to *net.Resolver) ([]string, error) { return to.LookupTXT(ctx, name) })
}

func (r *ownResolver) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return ask(r, name, func(to *net.Resolver) ([]*net.MX, error) { return to.LookupMX(ctx, name) })
}

func (r *ownResolver) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	return ask(r, name, func(to *net.Resolver) ([]*net.NS, error) { return to.LookupNS(ctx, name) })
}

func (r *ownResolver) LookupCNAME(ctx context.Context, name string) (string, error) {
	return ask(r, name, func(to *net.Resolver) (string, error) { return to.LookupCNAME(ctx, name) })
}

func (r *ownResolver) LookupSRV(ctx context.Context, service, proto, name string) (cname string, found []*net.SRV, err error) {
	found, err = ask(r, name, func(to *net.Resolver) (found []*net.SRV, err error) {
		cname, found, err = to.LookupSRV(ctx, service, proto, name)
		return found, err
	})
	return cname, found, err
}

func (r *ownResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return ask(r, host, func(to *net.Resolver) ([]netip.Addr, error) { return to.LookupNetIP(ctx, network, host) })
}

func (r *ownResolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return ask(r, host, func(to *net.Resolver) ([]net.IPAddr, error) { return to.LookupIPAddr(ctx, host) })
}
