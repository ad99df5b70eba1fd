package domains

import (
	"context"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
)

// edgeIANAID is the number that IANA gave the edge provider's registrar.
const edgeIANAID = "1910"

// CheckProviderIn is the body of check_provider.
type CheckProviderIn struct {
	Domain string `json:"domain" required:"true"`
}

// A DomainProvider says where a domain is registered. At the edge provider's registrar nameservers
// cannot be changed.
type DomainProvider struct {
	Domain      string   `json:"domain" words:"ours"`
	Registrar   *string  `json:"registrar" words:"theirs"`
	Nameservers []string `json:"nameservers" words:"theirs"`
	IsEdge      bool     `json:"is_edge"`
	CheckedVia  string   `json:"checked_via" enum:"registrar|rdap|dns"`
}

// CheckProvider says where a domain is registered, or that nobody has registered it: then it has
// neither registrar nor nameservers. Our own registrars know what is theirs; about anything else
// its registry is asked by RDAP.
func (s *Service) CheckProvider(ctx context.Context, _ core.Actor, in CheckProviderIn) (*DomainProvider, error) {
	ascii, _, err := idn.Registrable(in.Domain)
	if err != nil {
		return nil, core.Errorf("invalid_domain", "%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, quotesFor)
	defer cancel()
	registered := dnsprov.RegisteredName(ascii)
	for _, shop := range s.Config.Registrars {
		r, err := shop.Find(ctx, registered)
		if err == nil {
			name := shop.Name()
			return &DomainProvider{Domain: ascii, Registrar: &name, Nameservers: append([]string{}, r.Nameservers...), IsEdge: name == core.ProviderEdge, CheckedVia: viaRegistrar}, nil
		}
		if !errors.Is(err, registrar.ErrNotFound) {
			s.Log.Warn("a registrar was asked for a domain", "registrar", shop.Name(), "domain", ascii, "error", err)
		}
	}
	if s.Config.RDAP == nil {
		return s.unknownProvider(ctx, ascii, registered, noProvider(ascii, "this installation asks no RDAP service"))
	}
	d, err := s.Config.RDAP.Domain(ctx, registered)
	switch {
	case err == nil:
		return registryProvider(ascii, d), nil
	case errors.Is(err, rdap.ErrNotFound):
		return &DomainProvider{Domain: ascii, Nameservers: []string{}, CheckedVia: viaRDAP}, nil
	case errors.Is(err, rdap.ErrNoServer):
		return s.unknownProvider(ctx, ascii, registered, noProvider(ascii, "the registry has no RDAP service").Because(err))
	}
	return s.unknownProvider(ctx, ascii, registered, noProvider(ascii, "the registry's RDAP service gave no answer that can be used").Because(err))
}

// unknownProvider is the answer without one of RDAP: the error, but in a sandbox, whose names are
// in no registry, what the DNS knows. The registrar stays unknown.
func (s *Service) unknownProvider(ctx context.Context, asked, registered string, err error) (*DomainProvider, error) {
	if !s.Config.Sandbox {
		return nil, err
	}
	p := &DomainProvider{Domain: asked, Nameservers: []string{}, CheckedVia: viaDNS}
	servers, lookErr := s.Resolver.LookupNS(ctx, registered)
	for _, ns := range servers {
		p.Nameservers = append(p.Nameservers, strings.ToLower(strings.TrimSuffix(ns.Host, ".")))
	}
	if lookErr != nil {
		s.Log.Debug("look up nameservers", "domain", registered, "error", lookErr)
	}
	return p, nil
}

// registryProvider is what a registry says. Some do not tell the registrar.
func registryProvider(asked string, d *rdap.Domain) *DomainProvider {
	p := &DomainProvider{Domain: asked, Nameservers: append([]string{}, d.Nameservers...), IsEdge: d.IANAID == edgeIANAID, CheckedVia: viaRDAP}
	if d.Registrar != "" {
		p.Registrar = &d.Registrar
	}
	return p
}

func noProvider(name, why string) *core.Error {
	return core.Errorf("upstream_error", "No RDAP service answered for %s, so its registrar is not known. Look it up by hand, or connect it with manual_dns.", name).
		With("rdap", "upstream_error", why)
}
