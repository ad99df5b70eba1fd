package config

import (
	"fmt"
	"net/url"
)

// registrarSettings is the table [registrar]. The sandbox has no settings; its presence switches it
// on.
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

// checkAccount checks the settings of one registrar. setting is the name of the key that names the
// account.
func checkAccount(table, setting, account string, token *string, file string) error {
	if err := secretOf("token", token, file); err != nil {
		return fmt.Errorf("[registrar.%s]: %w", table, err)
	}
	if account == "" || *token == "" {
		return fmt.Errorf("[registrar.%s]: %s and token, or token_file, are required", table, setting)
	}
	return nil
}

// edgeSettings is the table [cloudflare]. It has no token, since owners of domains give their own.
type edgeSettings struct {
	BaseURL apiURL `toml:"base_url"`
}

// An apiURL is the base URL of an API.
type apiURL struct{ checked }

// UnmarshalText checks its form.
func (a *apiURL) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is no URL of an API; write it like https://api.example.com/v4", text)
	}
	a.text = string(text)
	return nil
}

// rdapSettings is the table [rdap].
type rdapSettings struct {
	BootstrapURL bootstrapURL `toml:"bootstrap_url"`
}

// A bootstrapURL is the URL of the list of RDAP servers, or off; empty if it is not set.
type bootstrapURL struct{ checked }

// UnmarshalText checks its form.
func (b *bootstrapURL) UnmarshalText(text []byte) error {
	b.text = string(text)
	if b.text == "off" {
		return nil
	}
	u, err := url.Parse(b.text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil {
		return fmt.Errorf("%q is no URL; write it like https://data.iana.org/rdap/dns.json, or off", text)
	}
	return nil
}
