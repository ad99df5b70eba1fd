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

// Permissions of a token, as Cloudflare's dashboard names them.
const (
	permissionReadZones   = "Zone: Zone: Read"
	permissionEditRecords = "Zone: DNS: Edit"
)

// Active is the Status of a zone that is delegated to Cloudflare. Other zones can be changed too,
// but resolvers do not see their records.
const Active = "active"

// A Zone is a DNS zone at Cloudflare.
type Zone struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Status      string   `json:"status"` // initializing, pending, active or moved
	Nameservers []string `json:"name_servers"`
	Account     struct {
		ID string `json:"id"`
	} `json:"account"`
}

// Check returns dnsprov.ErrCredential if the token is not valid or cannot read zones. It cannot
// find out whether the token can change records.
func (c *Client) Check(ctx context.Context) error {
	userErr := c.verifyToken(ctx, "/user/tokens/verify")
	if userErr != nil && !errors.Is(userErr, dnsprov.ErrCredential) {
		return userErr
	}
	var zones []Zone
	_, err := c.Call(ctx, Request{Method: http.MethodGet, Path: "/zones", Query: url.Values{"per_page": {"5"}}, Repeat: true, Needs: permissionReadZones}, &zones)
	if err != nil || userErr == nil {
		return err
	}
	// The token may belong to an account instead of a user. That account also has the zones.
	if len(zones) == 0 || !isPlainID(zones[0].Account.ID) {
		return userErr
	}
	return c.verifyToken(ctx, "/accounts/"+zones[0].Account.ID+"/tokens/verify")
}

// verifyToken asks the API whether the token is valid. path is the path for tokens of users, or
// that for tokens of an account.
func (c *Client) verifyToken(ctx context.Context, path string) error {
	var token struct {
		Status string `json:"status"` // active, disabled or expired
	}
	_, err := c.Call(ctx, Request{Method: http.MethodGet, Path: path, Repeat: true, Needs: permissionReadZones}, &token)
	if err == nil && token.Status != "active" {
		err = fmt.Errorf("cloudflare: %w: its status is %.20q", dnsprov.ErrCredential, token.Status)
	}
	return err
}

// Zone returns the zone that contains a domain: that with the longest name, and preferably an
// Active one. The zone need not be Active. Zone returns dnsprov.ErrZoneNotFound if the token can
// read no such zone.
func (c *Client) Zone(ctx context.Context, domain string) (*Zone, error) {
	for name := domain; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		var found []Zone
		q := url.Values{"name": {name}, "per_page": {"50"}}
		_, err := c.Call(ctx, Request{Method: http.MethodGet, Path: "/zones", Query: q, Repeat: true, Needs: permissionReadZones}, &found)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(z Zone) bool { return !strings.EqualFold(z.Name, name) || !isPlainID(z.ID) })
		if len(found) > 0 {
			best := slices.MinFunc(found, func(a, b Zone) int { return a.rank() - b.rank() })
			best.Name = name
			return &best, nil
		}
	}
	return nil, fmt.Errorf("cloudflare: %w: the token can read no zone that contains %s (it needs the permission %s)", dnsprov.ErrZoneNotFound, domain, permissionReadZones)
}

// FindZone returns the name of the zone that a domain is in.
func (c *Client) FindZone(ctx context.Context, domain string) (string, error) {
	z, err := c.Zone(ctx, domain)
	if err != nil {
		return "", err
	}
	return z.Name, nil
}

// Delegated reports whether the zone of a domain is delegated to Cloudflare. Anybody can create a
// zone of any name there, so the existence of a zone proves nothing.
func (c *Client) Delegated(ctx context.Context, domain string) (bool, error) {
	z, err := c.Zone(ctx, domain)
	if err != nil {
		return false, err
	}
	return z.Status == Active || z.Status == "", nil
}

// rank orders zones with the same name. The zone with the lowest rank is preferred.
func (z Zone) rank() int {
	if at := slices.Index([]string{Active, "pending", "initializing"}, z.Status); at >= 0 {
		return at
	}
	return 3
}

// isPlainID reports whether s has the form of an ID of the API, so that it is safe in a path.
func isPlainID(s string) bool {
	invalid := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, invalid)
}
