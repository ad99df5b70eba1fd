package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare"
	"github.com/mailstead/mailstead/dnsprov/desec"
	"github.com/mailstead/mailstead/dnsprov/hetzner"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/rfc2136"
	"github.com/mailstead/mailstead/dnsprov/route53"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// shops makes the clients of registrars, and keeps each until its settings change.
type shops struct {
	client *http.Client
	store  *store.Store
	log    *slog.Logger

	mu         sync.Mutex
	nameCom    keptShop
	cloudflare keptShop
	sandbox    registrar.Registrar // it keeps what it has sold in memory too, so there is only one
}

// A keptShop is a client with its settings: URL, account and token.
type keptShop struct {
	settings [3]string
	client   registrar.Registrar
}

// open returns clients of the registrars in the settings. The sandbox registrar is the last.
func (p *shops) open(s *config.Settings) (out []registrar.Registrar, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := s.Registrar.NameCom; n != nil {
		now := [3]string{n.BaseURL.String(), n.Username, n.Token}
		if p.nameCom.client == nil || p.nameCom.settings != now {
			shop, err := registrar.NewNameCom(registrar.NameComConfig{BaseURL: n.BaseURL.String(), Username: n.Username, Token: n.Token, HTTP: p.client})
			if err != nil {
				return nil, config.Mistake(err)
			}
			p.nameCom = keptShop{now, shop}
		}
		out = append(out, p.nameCom.client)
	}
	if f := s.Registrar.Cloudflare; f != nil {
		now := [3]string{f.BaseURL.String(), f.AccountID, f.Token}
		if p.cloudflare.client == nil || p.cloudflare.settings != now {
			p.cloudflare = keptShop{now, registrar.NewCloudflare(registrar.CloudflareConfig{BaseURL: f.BaseURL.String(), AccountID: f.AccountID, Token: f.Token, HTTP: p.client})}
		}
		out = append(out, p.cloudflare.client)
	}
	if s.Registrar.Sandbox == nil {
		return out, nil
	}
	if p.sandbox == nil {
		p.sandbox, err = sandboxRegistrar(p.store, p.log)
		if err != nil {
			return nil, err
		}
	}
	return append(out, p.sandbox), nil
}

// registrarClient returns the HTTP client for registrars. It uses a new connection for each
// request, so that no order is sent on a connection that the registrar is about to close.
func registrarClient(c core.Config) *http.Client {
	dial := (&netguard.Guard{AllowPrivate: true}).Dialer(c.Resolver)
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
	}}
}

// sandboxRegistrar returns the sandbox registrar, which sells pretend names. It keeps its sales in
// the store.
func sandboxRegistrar(st *store.Store, log *slog.Logger) (registrar.Registrar, error) {
	log.Warn("the registrar sandbox is on: it sells pretend names, which do not exist outside of this server")
	var sold []registrar.Registration
	err := st.View(func(tx *store.Tx) error {
		for d := range store.PretendDomains.All(tx) {
			sold = append(sold, registrar.Registration{
				Domain: d.Name, Key: d.Key, Price: d.Price, AutoRenew: d.AutoRenew, Nameservers: d.Nameservers,
				RegisteredAt: d.RegisteredAt, ExpiresAt: d.ExpiresAt,
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the sales of the sandbox registrar: %w", err)
	}
	keep := func(r registrar.Registration) error {
		return st.Update(func(tx *store.Tx) error {
			return store.PretendDomains.Put(tx, &store.PretendDomain{
				Name: r.Domain, Key: r.Key, Price: r.Price, AutoRenew: r.AutoRenew, Nameservers: r.Nameservers,
				RegisteredAt: r.RegisteredAt, ExpiresAt: r.ExpiresAt,
			})
		})
	}
	return registrar.NewSandbox(st.Now, sold, keep), nil
}

// newRDAP returns the client for RDAP servers of registries, or nil if they are not queried. A
// sandbox queries them only if a list of servers is configured.
func newRDAP(s *config.Settings, resolver core.Resolver, roots *x509.CertPool, log *slog.Logger) *rdap.Client {
	list := s.RDAP.BootstrapURL.String()
	if list == "off" || list == "" && s.Sandbox() {
		return nil
	}
	// The operator's own list may have servers with private addresses.
	guard := &netguard.Guard{AllowPrivate: bool(s.Private) || list != "" && list != rdap.IANABootstrap}
	t := guard.Transport(resolver, roots)
	t.ForceAttemptHTTP2 = true
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout, t.IdleConnTimeout = 5*time.Second, 8*time.Second, 30*time.Second
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = 64, 4, 16
	return rdap.New(rdap.Config{BootstrapURL: list, NoCopy: s.Sandbox(), Log: log, HTTP: &http.Client{Transport: t}})
}

// newTracer returns a tracer that sends traces to the configured collector, or nil if there is
// none. The collector may have a private address, because the operator chooses it.
func newTracer(s *config.Settings, c core.Config) *otlp.Tracer {
	endpoint := s.OTLP.Endpoint.String()
	if endpoint == "" {
		return nil
	}
	t := (&netguard.Guard{AllowPrivate: true}).Transport(c.Resolver, c.RootCAs)
	t.TLSHandshakeTimeout, t.IdleConnTimeout = 5*time.Second, time.Minute
	return otlp.New(endpoint, c.Version, t, c.Log)
}

// newScanner returns the client that reads zones of domains from nameservers of others. In a
// sandbox these may have private addresses.
func newScanner(s *config.Settings, c core.Config) *scan.Client {
	guard := &netguard.Guard{AllowPrivate: bool(s.Private) || s.Sandbox()}
	client := &scan.Client{Resolver: net.DefaultResolver, Dial: guard.DialIP, LookupDS: c.LookupDS, Pace: &scan.Pace{}}
	if c.Resolver != nil {
		client.Resolver = c.Resolver
	}
	return client
}

// dnsProviders returns the DNS providers at which records of domains can be kept. Their APIs may
// have private addresses, because the operator chooses their URLs; a nameserver for dynamic
// updates may not, because its user chooses it.
func dnsProviders(s *config.Settings, c core.Config) map[string]core.OpenDNS {
	t := (&netguard.Guard{AllowPrivate: true}).Transport(c.Resolver, c.RootCAs)
	t.Proxy = http.ProxyFromEnvironment
	t.ForceAttemptHTTP2 = true
	t.TLSHandshakeTimeout, t.IdleConnTimeout = 10*time.Second, 30*time.Second
	t.MaxIdleConnsPerHost = 8
	client := &http.Client{Transport: t}
	dial := (&netguard.Guard{AllowPrivate: bool(s.Private) || s.Sandbox()}).Dialer(c.Resolver)
	return map[string]core.OpenDNS{
		store.DomainProviderCloudflare: func(a core.DNSAccess) (dnsprov.Provider, error) {
			return cloudflare.New(cloudflare.Config{BaseURL: s.Edge.BaseURL.String(), Token: a.Secrets["token"], HTTP: client}), nil
		},
		store.DomainProviderRFC2136: func(a core.DNSAccess) (dnsprov.Provider, error) {
			return rfc2136.New(rfc2136.Config{
				Server: a.Secrets["server"], KeyName: a.Secrets["key_name"], Algorithm: a.Secrets["algorithm"], Secret: a.Secrets["secret"], Zones: a.Zones, Dial: dial,
			})
		},
		store.DomainProviderRoute53: func(a core.DNSAccess) (dnsprov.Provider, error) {
			return route53.New(route53.Config{
				BaseURL: s.Route53.BaseURL.String(), AccessKeyID: a.Secrets["access_key_id"], SecretAccessKey: a.Secrets["secret_access_key"], HTTP: client,
			}), nil
		},
		store.DomainProviderHetzner: func(a core.DNSAccess) (dnsprov.Provider, error) {
			return hetzner.New(hetzner.Config{BaseURL: s.Hetzner.BaseURL.String(), Token: a.Secrets["token"], HTTP: client}), nil
		},
		store.DomainProviderDeSEC: func(a core.DNSAccess) (dnsprov.Provider, error) {
			return desec.New(desec.Config{BaseURL: s.DeSEC.BaseURL.String(), Token: a.Secrets["token"], HTTP: client}), nil
		},
	}
}
