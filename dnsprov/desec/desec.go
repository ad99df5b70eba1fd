// Package desec keeps the records of domains at deSEC, through version 1 of its API. It does not
// know which records a domain should have, nor which of those that it finds are ours.
package desec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

// BaseURL is the default URL of the API.
const BaseURL = "https://desec.io/api/v1"

const (
	maxRecords = 10_000 // of one zone
	maxPages   = 50     // of up to 500 sets
	maxProbed  = 5      // domains of one Check
)

// Config configures a Client.
type Config struct {
	BaseURL string        // "" means the constant BaseURL
	Token   string        // the secret of an API token
	HTTP    *http.Client  // nil means http.DefaultClient
	Pause   time.Duration // wait before the second attempt of a request; 0 means half a second
}

// A Client uses the API with one token. It is a dnsprov.Provider, and any number of goroutines may
// use it.
type Client struct{ api *rest.Client }

// New returns a client without sending a request.
func New(c Config) *Client {
	if c.BaseURL == "" {
		c.BaseURL = BaseURL
	}
	return &Client{rest.New(rest.Config{Service: "desec", BaseURL: c.BaseURL, Scheme: "Token", Token: c.Token, Reason: reason, HTTP: c.HTTP, Pause: c.Pause})}
}

// A zone is a domain in an account of deSEC.
type zone struct {
	Name       string `json:"name"`
	MinimumTTL uint32 `json:"minimum_ttl"`
}

func (z *zone) path() string { return "/domains/" + url.PathEscape(z.Name) + "/rrsets/" }

// A set is a set of records in the form of the API.
type set struct {
	Subname string   `json:"subname"`
	Type    string   `json:"type"`
	TTL     uint32   `json:"ttl,omitempty"`
	Records []string `json:"records"`
}

// Check returns dnsprov.ErrCredential if the token is not valid, or may change no domain, and
// dnsprov.ErrZoneNotFound if the account has no domains. It tries to delete a set that does not
// exist, which changes nothing.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	var zones []zone
	if _, err := c.api.Call(ctx, rest.Request{Method: http.MethodGet, Path: "/domains/", Query: url.Values{"cursor": {""}}, Repeat: true}, &zones); err != nil {
		return err
	}
	err := fmt.Errorf("desec: %w: the account of the token has no domains", dnsprov.ErrZoneNotFound)
	for _, z := range zones[:min(len(zones), maxProbed)] {
		var none []set
		_, err = c.api.Call(ctx, rest.Request{Method: http.MethodPatch, Path: z.path(), Body: []set{{Subname: "_mailstead-check", Type: "TXT", Records: []string{}}}, Repeat: true}, &none)
		if !errors.Is(err, dnsprov.ErrCredential) {
			return err
		}
	}
	return err
}

// zone returns the zone that is responsible for a domain.
func (c *Client) zone(ctx context.Context, domain string) (*zone, error) {
	var found []zone
	_, err := c.api.Call(ctx, rest.Request{Method: http.MethodGet, Path: "/domains/", Query: url.Values{"owns_qname": {domain}}, Repeat: true}, &found)
	if err != nil {
		return nil, err
	}
	for _, z := range found {
		z.Name = strings.ToLower(z.Name)
		if dnsprov.IsWithin(domain, z.Name) && strings.Contains(z.Name, ".") {
			return &z, nil
		}
	}
	return nil, fmt.Errorf("desec: %w: the account of the token has no domain that %s is in", dnsprov.ErrZoneNotFound, domain)
}

// FindZone returns the name of the zone that a domain is in.
func (c *Client) FindZone(ctx context.Context, domain string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	z, err := c.zone(ctx, domain)
	if err != nil {
		return "", err
	}
	return z.Name, nil
}

// Records lists the zone's records at the domain and below it, all of them as foreign. deSEC does
// not list the records that it makes itself: the SOA and those of DNSSEC. A record has its Key as
// ID, unless it is in another form than Apply writes it, such as a text that is split elsewhere.
func (c *Client) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	z, err := c.zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	sets, err := c.sets(ctx, z)
	if err != nil {
		return nil, err
	}
	return sets.Records(at.Domain, z.MinimumTTL), nil
}

// sets lists the sets of a zone.
func (c *Client) sets(ctx context.Context, z *zone) (rrset.Sets, error) {
	out, n := rrset.Sets{}, 0
	q := url.Values{"cursor": {""}}
	for range maxPages {
		var page []set
		answer, err := c.api.Call(ctx, rest.Request{Method: http.MethodGet, Path: z.path(), Query: q, Repeat: true}, &page)
		if err != nil {
			return nil, ofZone(err, z)
		}
		for _, s := range page {
			at := dnsprov.Set{Name: strings.ToLower(strings.TrimSuffix(s.Subname+"."+z.Name, ".")), Type: s.Type}
			at.Name = strings.TrimPrefix(at.Name, ".")
			if _, seen := out[at]; seen || at.Type == "SOA" {
				continue
			}
			n += len(s.Records)
			for _, text := range s.Records {
				out[at] = append(out[at], rrset.Read(at, s.TTL, text, "."))
			}
		}
		if n > maxRecords {
			break
		}
		cursor, more := nextPage(answer.Header)
		if !more {
			return out, nil
		}
		q.Set("cursor", cursor)
	}
	return nil, fmt.Errorf("desec: the zone %s has more than %d records", z.Name, maxRecords)
}

// nextPage returns the cursor of the next page of a list, which is in the header Link (RFC 8288).
func nextPage(h http.Header) (cursor string, more bool) {
	for _, link := range strings.Split(strings.Join(h.Values("Link"), ","), ",") {
		target, params, ok := strings.Cut(link, ">")
		_, target, isLink := strings.Cut(target, "<")
		if !ok || !isLink || !slices.Contains(strings.Split(strings.ReplaceAll(params, " ", ""), ";"), `rel="next"`) {
			continue
		}
		u, err := url.Parse(target)
		if err == nil && u.Query().Get("cursor") != "" {
			return u.Query().Get("cursor"), true
		}
	}
	return "", false
}

// ofZone replaces the error that the API does not find a zone.
func ofZone(err error, z *zone) error {
	var refused *rest.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return fmt.Errorf("desec: %w: %s", dnsprov.ErrZoneNotFound, z.Name)
	}
	return err
}

// reason finds the texts in a refusal: a JSON object or list with texts at any depth.
func reason(status int, body []byte) (text string, credential bool) {
	var texts []string
	var collect func(any)
	collect = func(v any) {
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case []any:
			for _, item := range v {
				collect(item)
			}
		case map[string]any:
			for _, item := range v {
				collect(item)
			}
		}
	}
	var answer any
	if json.Unmarshal(body, &answer) == nil {
		collect(answer)
	}
	slices.Sort(texts)
	return strings.Join(texts, "; "), status == http.StatusUnauthorized || status == http.StatusForbidden
}
