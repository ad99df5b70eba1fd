package lookup

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A Split uses one client for some names, and another for all others. So a sandbox asks its own
// server about the names that it hosts, without a delegation.
type Split struct {
	Hosts   func(name string) bool // reports which names to look up with Own; nil: none
	Own     *Client
	*Client // for all other names
}

// reserved lists the top-level domains that the public DNS will never have (RFC 6761). No resolver
// is asked about them.
var reserved = []string{"test", "example", "invalid", "localhost"}

// resolverFor returns the client for a name. The error means that the name cannot exist.
func (r *Split) resolverFor(name string) (*Client, error) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if r.Hosts != nil && r.Hosts(name) {
		return r.Own, nil
	}
	if top := name[strings.LastIndexByte(name, '.')+1:]; name != "localhost" && slices.Contains(reserved, top) {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return r.Client, nil
}

// ask makes one lookup with the client for the name.
func ask[T any](r *Split, name string, find func(*Client) (T, error)) (T, error) {
	to, err := r.resolverFor(name)
	if err != nil {
		var none T
		return none, err
	}
	return find(to)
}

func (r *Split) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return ask(r, name, func(to *Client) ([]string, error) { return to.LookupTXT(ctx, name) })
}

func (r *Split) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return ask(r, name, func(to *Client) ([]*net.MX, error) { return to.LookupMX(ctx, name) })
}

func (r *Split) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	return ask(r, name, func(to *Client) ([]*net.NS, error) { return to.LookupNS(ctx, name) })
}

func (r *Split) LookupCNAME(ctx context.Context, name string) (string, error) {
	return ask(r, name, func(to *Client) (string, error) { return to.LookupCNAME(ctx, name) })
}

func (r *Split) LookupSRV(ctx context.Context, service, proto, name string) (cname string, found []*net.SRV, err error) {
	found, err = ask(r, name, func(to *Client) (found []*net.SRV, err error) {
		cname, found, err = to.LookupSRV(ctx, service, proto, name)
		return found, err
	})
	return cname, found, err
}

func (r *Split) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return ask(r, host, func(to *Client) ([]netip.Addr, error) { return to.LookupNetIP(ctx, network, host) })
}

func (r *Split) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return ask(r, host, func(to *Client) ([]net.IPAddr, error) { return to.LookupIPAddr(ctx, host) })
}
