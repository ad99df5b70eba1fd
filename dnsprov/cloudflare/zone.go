package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
)

// Permissions that a token needs.
const (
	readZones   = "Zone: Zone: Read"
	editRecords = "Zone: DNS: Edit"
)

// Active is the Status of a zone that its registry has delegated to Cloudflare. Records of other
// zones can be changed too, but nobody sees them yet.
const Active = "active"

// A Zone holds the records of a domain and of all names below it.
type Zone struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Status      string   `json:"status"` // initializing, pending, active or moved
	Nameservers []string `json:"name_servers"`
	Account     struct {
		ID string `json:"id"`
	} `json:"account"`
}

// Check returns dnsprov.ErrCredential if the token is not valid or may not read zones. Whether it
// may change records shows only when records are changed.
func (c *Client) Check(ctx context.Context) error {
	personal := c.verify(ctx, "/user/tokens/verify")
	if personal != nil && !errors.Is(personal, dnsprov.ErrCredential) {
		return personal
	}
	var zones []Zone
	_, err := c.Call(ctx, Request{Method: http.MethodGet, Path: "/zones", Query: url.Values{"per_page": {"5"}}, Repeat: true, Needs: readZones}, &zones)
	if err != nil || personal == nil {
		return err
	}
	// A token that belongs to an account is not known under /user. Its account is the one that the
	// zones belong to.
	if len(zones) == 0 || !plainID(zones[0].Account.ID) {
		return personal
	}
	return c.verify(ctx, "/accounts/"+zones[0].Account.ID+"/tokens/verify")
}

// verify checks the token at one of the two paths that know tokens.
func (c *Client) verify(ctx context.Context, path string) error {
	var token struct {
		Status string `json:"status"` // active, disabled or expired
	}
	_, err := c.Call(ctx, Request{Method: http.MethodGet, Path: path, Repeat: true, Needs: readZones}, &token)
	if err == nil && token.Status != "active" {
		err = fmt.Errorf("cloudflare: %w: it is %.20q", dnsprov.ErrCredential, token.Status)
	}
	return err
}

// Zone finds the zone that encloses a domain most closely; of several zones with the same name it
// prefers the Active one. The error is dnsprov.ErrZoneNotFound if the token sees none. A zone that
// is not yet Active, according to its Status, can be filled too.
func (c *Client) Zone(ctx context.Context, domain string) (*Zone, error) {
	for name := domain; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		var found []Zone
		q := url.Values{"name": {name}, "per_page": {"50"}}
		_, err := c.Call(ctx, Request{Method: http.MethodGet, Path: "/zones", Query: q, Repeat: true, Needs: readZones}, &found)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(z Zone) bool { return !strings.EqualFold(z.Name, name) || !plainID(z.ID) })
		if len(found) > 0 {
			best := slices.MinFunc(found, func(a, b Zone) int { return a.rank() - b.rank() })
			best.Name = name
			return &best, nil
		}
	}
	return nil, fmt.Errorf("cloudflare: %w: the token can read no zone that contains %s (it needs the permission %s)", dnsprov.ErrZoneNotFound, domain, readZones)
}

// Delegated reports whether Cloudflare serves the zone of a domain. Anybody may create a zone of
// any name there, and only a zone that its registry has delegated is Active.
func (c *Client) Delegated(ctx context.Context, domain string) (bool, error) {
	z, err := c.Zone(ctx, domain)
	if err != nil {
		return false, err
	}
	return z.Status == Active || z.Status == "", nil
}

// rank orders zones with the same name, the best first.
func (z Zone) rank() int {
	if at := slices.Index([]string{Active, "pending", "initializing"}, z.Status); at >= 0 {
		return at
	}
	return 3
}

// plainID reports whether s can be an identifier of the API, and so is safe in a path.
func plainID(s string) bool {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, odd)
}
