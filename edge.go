package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/cloudflare"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/webhooks"
)

// edgeSettings is the table [cloudflare]; the tokens are those of the owners of domains.
type edgeSettings struct {
	BaseURL apiURL `toml:"base_url"`
}

// An apiURL is where an API is, with the part of the path that its calls have in common.
type apiURL struct{ text string }

// UnmarshalText checks its form.
func (a *apiURL) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is no URL of an API; write it like https://api.example.com/v4", text)
	}
	a.text = string(text)
	return nil
}

// edgeProvider gives the edge provider as each token opens it. Where it is, the operator decides,
// so it may be private.
func edgeProvider(s edgeSettings, c service.Config) func(token string) dnsprov.Provider {
	guard := &webhooks.Guard{AllowPrivate: true}
	client := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: guard.Dialer(c.Resolver), TLSClientConfig: &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 30 * time.Second,
		MaxIdleConnsPerHost: 8, MaxResponseHeaderBytes: 64 << 10,
	}}
	return func(token string) dnsprov.Provider {
		return cloudflare.New(cloudflare.Config{BaseURL: s.BaseURL.text, Token: token, HTTP: client})
	}
}
