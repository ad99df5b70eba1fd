package certs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/store"
)

const acmeLabel = "_acme-challenge." // RFC 8555 section 8.4

// A nameSet is what one certificate is to be for.
type nameSet struct {
	id      string
	account string // whose domain it is; "" for the host
	kind    string // of the challenges
	names   []string
	unsure  []string // names that could not be looked up
}

// hostedNames are the names of a domain at which this host has something to serve.
func (s *Service) hostedNames(d *store.Domain) []string {
	if s.Config.ACME == nil || !s.Config.HTTPS || d.Status != core.DomainComplete || d.Claim != store.ClaimProven || d.DNSProvider == core.ProviderExternal {
		return nil
	}
	var out []string
	if d.RedirectURL != "" {
		out = append(out, d.Name, "www."+d.Name)
	}
	out = append(out, "mta-sts."+d.Name, "autoconfig."+d.Name, "autodiscover."+d.Name)
	return slices.DeleteFunc(out, func(name string) bool { return name == s.Config.Hostname })
}

// candidates are the hosted names of a domain that may have a certificate: for a domain that we
// serve, those that its zone leads here; for others, all, since only a look-up can tell. A name
// that is a domain of its own is not in it.
func (s *Service) candidates(tx *store.Tx, d *store.Domain) ([]string, error) {
	names := s.hostedNames(d)
	names = slices.DeleteFunc(names, func(name string) bool { return name != d.Name && domains.ClaimedBeside(tx, d.AccountID, name) })
	if len(names) == 0 || d.DNSProvider != dnsprov.Builtin {
		return names, nil
	}
	if d.NSStatus != domains.NSVerified {
		return nil, nil
	}
	zone := dnsprov.Wanted(s.domains.ZoneSource(tx, d).Spec, dnsprov.Builtin)
	return slices.DeleteFunc(names, func(name string) bool { return !s.zoneLeadsHere(zone, name) }), nil
}

// zoneLeadsHere tells whether the records of a zone lead visitors of a name to this host, and leave
// room for a challenge.
func (s *Service) zoneLeadsHere(zone []dnsprov.Record, name string) bool {
	here := false
	for _, r := range zone {
		switch {
		case r.Name == acmeLabel+name && r.Type == "CNAME":
			return false
		case r.Name != name:
		case r.Type == "CNAME":
			return r.Value == s.Config.Hostname
		case r.Type == "A" || r.Type == "AAAA":
			ip, err := netip.ParseAddr(r.Value)
			if err != nil || !s.ownAddress(ip) {
				return false
			}
			here = true
		}
	}
	return here
}

func (s *Service) ownAddress(ip netip.Addr) bool {
	return slices.ContainsFunc(s.Config.PublicIPs, func(own netip.Addr) bool { return own.Unmap() == ip.Unmap() })
}

// domainSet says which names of a domain lead here now. Of a domain that others serve that takes a
// look-up.
func (s *Service) domainSet(ctx context.Context, d *store.Domain, candidates []string) (*nameSet, error) {
	set := &nameSet{id: d.ID, account: d.AccountID, kind: ca.DNS01, names: candidates}
	if d.DNSProvider == dnsprov.Builtin {
		return set, nil
	}
	set.kind, set.names = ca.HTTP01, nil
	err := s.domains.Looking(ctx, func() error {
		for _, name := range candidates {
			addrs, err := s.addressesOf(ctx, name)
			switch {
			case err != nil:
				set.unsure = append(set.unsure, name)
			case len(addrs) > 0 && !slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !s.ownAddress(ip) }):
				set.names = append(set.names, name)
			}
		}
		return ctx.Err()
	})
	return set, err
}

// addressesOf looks a name up; one that does not exist has none.
func (s *Service) addressesOf(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, domains.LookFor)
	defer cancel()
	addrs, err := s.Resolver.LookupNetIP(ctx, "ip", name+".")
	if e := (*net.DNSError)(nil); errors.As(err, &e) && e.IsNotFound {
		return nil, nil
	}
	return addrs, err
}

// hostSetOf is the set of this host's own name. There is a need for it before anybody could look it
// up, but no use in asking.
func (s *Service) hostSetOf(ctx context.Context) (*nameSet, error) {
	set := &nameSet{id: hostSet, kind: ca.HTTP01}
	addrs, err := s.addressesOf(ctx, s.Config.Hostname)
	switch {
	case err != nil:
		set.unsure = []string{s.Config.Hostname}
	case len(addrs) > 0:
		set.names = []string{s.Config.Hostname}
	}
	return set, ctx.Err()
}
