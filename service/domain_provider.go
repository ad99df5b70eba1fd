package service

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/registrar"
)

// CheckProviderIn is the body of check_provider.
type CheckProviderIn struct {
	Domain string `json:"domain" required:"true"`
}

// A DomainProvider says where a domain is registered. At the edge provider's registrar nameservers cannot be changed.
type DomainProvider struct {
	Domain      string   `json:"domain"`
	Registrar   *string  `json:"registrar"`
	Nameservers []string `json:"nameservers"`
	IsEdge      bool     `json:"is_edge"`
}

// CheckProvider says where a domain is registered. Our own registrars know what is theirs; about anything else the
// registries would have to be asked.
func (s *Service) CheckProvider(ctx context.Context, _ Actor, in CheckProviderIn) (*DomainProvider, error) {
	ascii, _, err := dnsprov.NormalizeDomain(in.Domain)
	if err != nil {
		return nil, Errorf(400, "invalid_domain", "%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, quotesFor)
	defer cancel()
	for _, shop := range s.Config.Registrars {
		r, err := shop.Find(ctx, dnsprov.Registrable(ascii))
		if err == nil {
			name := shop.Name()
			return &DomainProvider{Domain: ascii, Registrar: &name, Nameservers: append([]string{}, r.Nameservers...), IsEdge: name == providerEdge}, nil
		}
		if !errors.Is(err, registrar.ErrNotFound) {
			s.Log.Warn("a registrar was asked for a domain", "registrar", shop.Name(), "domain", ascii, "error", err)
		}
	}
	return nil, Errorf(502, "upstream_error", "No RDAP service answered for %s, so its registrar is not known. Look it up by hand, or connect it with manual_dns.", ascii).
		With("rdap", "upstream_error", "this installation asks no RDAP service")
}
