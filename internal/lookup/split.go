package lookup

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A SplitClient looks up some names with one client, and all other names with another. With it, a
// sandbox asks its own server about the names that it hosts.
type SplitClient struct {
	Hosts   func(name string) bool // reports whether to look up a name with Own; nil means none
	Own     *Client
	*Client // for all other names
}

// reservedTLDs lists top-level domains that the public DNS never has (RFC 6761).
var reservedTLDs = []string{"test", "example", "invalid", "localhost"}

// resolverFor returns the client for a name. It returns an error with IsNotFound for names below
// reserved top-level domains.
func (r *SplitClient) resolverFor(name string) (*Client, error) {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if r.Hosts != nil && r.Hosts(name) {
		return r.Own, nil
	}
	if top := name[strings.LastIndexByte(name, '.')+1:]; name != "localhost" && slices.Contains(reservedTLDs, top) {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return r.Client, nil
}

// ask calls find with the client for a name.
func ask[T any](r *SplitClient, name string, find func(*Client) (T, error)) (T, error) {
	to, err := r.resolverFor(name)
	if err != nil {
		var none T
		return none, err
	}
	return find(to)
}

func (r *SplitClient) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return ask(r, name, func(to *Client) ([]string, error) { return to.LookupTXT(ctx, name) })
}

func (r *SplitClient) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return ask(r, name, func(to *Client) ([]*net.MX, error) { return to.LookupMX(ctx, name) })
}

func (r *SplitClient) LookupNS(ctx context.Context, name string) ([]*net.NS, error) {
	return ask(r, name, func(to *Client) ([]*net.NS, error) { return to.LookupNS(ctx, name) })
}

func (r *SplitClient) LookupCNAME(ctx context.Context, name string) (string, error) {
	return ask(r, name, func(to *Client) (string, error) { return to.LookupCNAME(ctx, name) })
}

func (r *SplitClient) LookupSRV(ctx context.Context, service, proto, name string) (cname string, found []*net.SRV, err error) {
	found, err = ask(r, name, func(to *Client) (found []*net.SRV, err error) {
		cname, found, err = to.LookupSRV(ctx, service, proto, name)
		return found, err
	})
	return cname, found, err
}

func (r *SplitClient) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return ask(r, host, func(to *Client) ([]netip.Addr, error) { return to.LookupNetIP(ctx, network, host) })
}

func (r *SplitClient) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return ask(r, host, func(to *Client) ([]net.IPAddr, error) { return to.LookupIPAddr(ctx, host) })
}
