package main

import (
	"context"
	"net"
	"net/netip"
	"strings"
)

// An ownResolver asks our own DNS server about the names that are hosted here, and the system about all others, so that
// a sandbox needs no delegation.
type ownResolver struct {
	hosts func(name string) bool // nil: none
	own   *net.Resolver
	net.Resolver
}

func (r *ownResolver) of(name string) *net.Resolver {
	if r.hosts != nil && r.hosts(strings.TrimSuffix(strings.ToLower(name), ".")) {
		return r.own
	}
	return &r.Resolver
}

func (r *ownResolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return r.of(name).LookupTXT(ctx, name)
}

func (r *ownResolver) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return r.of(name).LookupMX(ctx, name)
}

func (r *ownResolver) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	return r.of(name).LookupNS(ctx, name)
}

func (r *ownResolver) LookupCNAME(ctx context.Context, name string) (string, error) {
	return r.of(name).LookupCNAME(ctx, name)
}

func (r *ownResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return r.of(host).LookupNetIP(ctx, network, host)
}

func (r *ownResolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return r.of(host).LookupIPAddr(ctx, host)
}
