package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/store"
)

// registrarSettings is the table [registrar]. The sandbox has no settings of its own; that it is
// there switches it on.
type registrarSettings struct {
	NameCom    *nameComSettings    `toml:"namecom"`
	Cloudflare *cloudflareSettings `toml:"cloudflare"`
	Sandbox    *struct{}           `toml:"sandbox"`
}

type nameComSettings struct {
	Username  string `toml:"username"`
	Token     string `toml:"token"`
	TokenFile string `toml:"token_file"`
	BaseURL   apiURL `toml:"base_url"`
}

type cloudflareSettings struct {
	AccountID string `toml:"account_id"`
	Token     string `toml:"token"`
	TokenFile string `toml:"token_file"`
	BaseURL   apiURL `toml:"base_url"`
}

// check fills in secrets that are in files, and finds what is missing.
func (r *registrarSettings) check() error {
	if n := r.NameCom; n != nil {
		if err := checkAccount("namecom", "username", n.Username, &n.Token, n.TokenFile); err != nil {
			return err
		}
	}
	if c := r.Cloudflare; c != nil {
		return checkAccount("cloudflare", "account_id", c.AccountID, &c.Token, c.TokenFile)
	}
	return nil
}

// checkAccount checks the settings of one registrar, whose account has the name that is called as
// the setting is.
func checkAccount(table, setting, account string, token *string, file string) error {
	if err := secretOf("token", token, file); err != nil {
		return fmt.Errorf("[registrar.%s]: %w", table, err)
	}
	if account == "" || *token == "" {
		return fmt.Errorf("[registrar.%s]: %s and token, or token_file, are required", table, setting)
	}
	return nil
}

// registrars are those of the settings, the real ones first.
func registrars(s registrarSettings, c service.Config, st *store.Store) ([]registrar.Registrar, error) {
	var out []registrar.Registrar
	client := apiClient(c)
	if n := s.NameCom; n != nil {
		shop, err := registrar.NewNameCom(registrar.NameComConfig{BaseURL: n.BaseURL.text, Username: n.Username, Token: n.Token, HTTP: client, Now: st.Now})
		if err != nil {
			return nil, usageError{err}
		}
		out = append(out, shop)
	}
	if f := s.Cloudflare; f != nil {
		out = append(out, registrar.NewCloudflare(registrar.CloudflareConfig{BaseURL: f.BaseURL.text, AccountID: f.AccountID, Token: f.Token, HTTP: client}))
	}
	if s.Sandbox == nil {
		return out, nil
	}
	shop, err := sandboxRegistrar(st, c.Log)
	if err != nil {
		return nil, err
	}
	return append(out, shop), nil
}

// apiClient is for the APIs that the operator has an account with. A connection serves one request:
// there are few, and an order must not go out on one that the other side is about to close.
func apiClient(c service.Config) *http.Client {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if r, ok := c.Resolver.(*net.Resolver); ok {
		d.Resolver = r
	}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
	}}
}

// sandboxRegistrar keeps its books in the store.
func sandboxRegistrar(st *store.Store, log *slog.Logger) (registrar.Registrar, error) {
	log.Warn("the registrar sandbox is on: it sells pretend names, which nobody else knows")
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
		return nil, fmt.Errorf("read the books of the sandbox registrar: %w", err)
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
