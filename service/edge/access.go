package edge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const maxToken = 500 // characters

// CleanToken validates the Cloudflare token of a request. It returns "" if there is none.
func CleanToken(given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	token := strings.TrimSpace(*given)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case token == "":
		return "", core.Invalid("edge_api_token", "invalid", "is empty; leave it out to use our own nameservers")
	case len(token) > maxToken || strings.ContainsFunc(token, odd):
		return "", core.Invalid("edge_api_token", "invalid", "is no API token: it has at most %d letters, digits and signs, without spaces", maxToken)
	}
	return token, nil
}

// An Access is how the records of a domain are reached at a DNS provider: by a token of the
// domain, or by a credential of the account.
type Access struct {
	Provider     string
	Token        string // of Cloudflare; "": there is a credential
	CredentialID string // "": there is a token

	replaceCall string // how mail records of others are replaced there, for texts; "": by connecting the domain
	replaces    bool   // they are replaced, so that a conflict with them is one that cannot be mended so
}

// fault marks an error as caused by the provider.
func (a Access) fault(err error) error {
	a.Token = ""
	return providerFault{err, a}
}

// TokenAccess returns the access by a sealed token of a domain.
func (s *Service) TokenAccess(domainID string, sealed []byte) (Access, error) {
	token, err := s.Keys.Open(store.EdgeBinding(domainID), sealed)
	return Access{Provider: store.DomainProviderCloudflare, Token: string(token)}, err
}

// accessOf returns the access to the provider of a domain.
func (s *Service) accessOf(d *store.Domain) (Access, error) {
	if d.DNSCredentialID != "" {
		return Access{Provider: d.DNSProvider, CredentialID: d.DNSCredentialID}, nil
	}
	return s.TokenAccess(d.ID, d.EdgeToken)
}

// CheckProvider returns an error if a provider is a DNS provider by API that this installation does
// not support.
func (s *Service) CheckProvider(provider string) error {
	if store.IsEdge(provider) && s.Config.DNS[provider] == nil {
		return errNoEdge(provider)
	}
	return nil
}

// open returns the client of a DNS provider. It sends nothing.
func (s *Service) open(a Access) (dnsprov.Provider, error) {
	open := s.Config.DNS[a.Provider]
	if open == nil {
		return nil, errNoEdge(a.Provider)
	}
	if a.CredentialID == "" {
		return open(core.DNSAccess{Secrets: map[string]string{"token": a.Token}})
	}
	var c *store.DNSCredential
	err := s.Store.View(func(tx *store.Tx) (err error) {
		c, err = store.DNSCredentials.Find(tx, a.CredentialID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, core.Errorf("credential_invalid", "The DNS credential %s does not exist any more.", a.CredentialID)
	}
	return s.openCredential(c)
}

const (
	probesAtOnce = 8                // names of one request that are checked at a provider at the same time
	probeTimeout = 45 * time.Second // time limit for all names of a request
)

// A tokenChecker is a provider that can check its token or credential without a zone.
type tokenChecker interface {
	// Check returns dnsprov.ErrCredential if the token is not valid.
	Check(ctx context.Context) error
}

// checkToken returns an error if the token or credential of a provider is not valid. If the
// provider cannot check it, checkToken returns nil.
func checkToken(ctx context.Context, p dnsprov.Provider) error {
	if c, ok := p.(tokenChecker); ok {
		return c.Check(ctx)
	}
	return nil
}

// Probe asks a DNS provider whether names can be connected there: probesAtOnce names at the
// same time, within probeTimeout. For each name the result says why it cannot be connected; "" if
// it can. like is a domain as they will be: it says which records of others are not in the way, by
// Replace and MX.
func (s *Service) Probe(ctx context.Context, access Access, names []string, like store.Domain) (map[string]string, error) {
	why := map[string]string{}
	access.replaces = like.Replace
	provider, err := s.open(access)
	if e, refused := core.AsError(err); refused {
		for _, name := range names {
			why[name] = e.Error()
		}
		return why, nil
	}
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dead := checkToken(within, provider)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, probesAtOnce)
	)
	for _, name := range names {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := dead
			if err == nil {
				err = s.probeZone(within, provider, access.Provider, name, like)
			}
			mu.Lock()
			defer mu.Unlock()
			why[name] = ""
			if err != nil {
				why[name] = access.failure(name, err).Error()
			}
		})
	}
	wg.Wait()
	if err := s.noteUse(access, dead); err != nil {
		return nil, err
	}
	return why, ctx.Err()
}

// probeZone returns an error if the provider has no zone for a name, or if the managed records
// conflict with records in it.
func (s *Service) probeZone(ctx context.Context, p dnsprov.Provider, kind, name string, d store.Domain) error {
	d.Name, d.DNSProvider = name, kind
	want := dnsprov.Wanted(zonedata.Spec(s.Core, &d), kind)
	have, err := p.Records(ctx, dnsprov.ZoneRef{Domain: name, OwnerTag: "new", Ask: setsToRead(name, want, nil)})
	if err != nil {
		return err
	}
	mine, want, _ := takeOver(&d, have, want)
	_, err = dnsprov.Compatible(mine, want)
	return err
}

// Try returns an error if the zone of a domain cannot be read at a DNS provider. If needZone is
// false, the zone need not exist.
func (s *Service) Try(ctx context.Context, d *store.Domain, access Access, needZone bool) error {
	provider, err := s.open(access)
	if err != nil {
		return s.jobError(ctx, d.Name, err)
	}
	err = checkToken(ctx, provider)
	if err == nil {
		want := dnsprov.Wanted(zonedata.Spec(s.Core, d), access.Provider)
		_, err = provider.Records(ctx, dnsprov.ZoneRef{Domain: d.Name, OwnerTag: d.ID, Ask: setsToRead(d.Name, want, nil)})
	}
	if noted := s.noteUse(access, err); noted != nil {
		return noted
	}
	if err != nil && (needZone || !errors.Is(err, dnsprov.ErrZoneNotFound)) {
		return s.jobError(ctx, d.Name, access.fault(err))
	}
	return nil
}
