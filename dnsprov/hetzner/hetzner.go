// Package hetzner keeps the records of domains at Hetzner, through the zones of its Cloud API. It
// does not know which records a domain should have, nor which of those that it finds are ours.
package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

// BaseURL is the default URL of the API.
const BaseURL = "https://api.hetzner.cloud/v1"

const (
	maxRecords = 10_000 // of one zone
	perPage    = 50     // sets of a page
	maxReads   = 3      // of a list that changes while it is read
	leastTTL   = 60     // seconds
)

// Config configures a Client.
type Config struct {
	BaseURL string        // "" means the constant BaseURL
	Token   string        // an API token of a project, which may read and write
	HTTP    *http.Client  // nil means http.DefaultClient
	Pause   time.Duration // wait before the second attempt of a request, and between looks at what is under way; 0 means half a second
}

// A Client uses the API with one token. It is a dnsprov.Provider, and any number of goroutines may
// use it.
type Client struct {
	api   *hcloud.Client
	token string
	pause time.Duration
}

// New returns a client without sending a request.
func New(c Config) *Client {
	if c.BaseURL == "" {
		c.BaseURL = BaseURL
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Pause == 0 {
		c.Pause = rest.FirstPause
	}
	own := *c.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // or the token would be sent to another address
	own.Transport = bounded{own.Transport}
	api := hcloud.NewClient(hcloud.WithEndpoint(c.BaseURL), hcloud.WithToken(c.Token), hcloud.WithHTTPClient(&own),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0})) // it would wait for minutes; see call
	return &Client{api: api, token: c.Token, pause: c.Pause}
}

// A zone is a zone of the token's project.
type zone struct {
	*hcloud.Zone
	name string // in the form of dnsprov.Record.Name
}

// relative returns a name in the form of the API.
func (z *zone) relative(name string) string {
	if name == z.name {
		return "@"
	}
	return strings.TrimSuffix(name, "."+z.name)
}

// Check returns dnsprov.ErrCredential if the token is not valid or may only read, and
// dnsprov.ErrZoneNotFound if its project has no zones. It tries to remove a record that does not
// exist, which changes nothing.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	zones, err := c.zones(ctx, hcloud.ZoneListOpts{ListOpts: hcloud.ListOpts{PerPage: 1}})
	if err != nil {
		return err
	}
	if len(zones) == 0 {
		return fmt.Errorf("hetzner: %w: the project of the token has no zones", dnsprov.ErrZoneNotFound)
	}
	none := &hcloud.ZoneRRSet{Zone: zones[0], Name: "_mailstead-check", Type: hcloud.ZoneRRSetTypeTXT}
	_, err = call(ctx, c, "remove_records", true, func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return c.api.Zone.RemoveRRSetRecords(ctx, none, hcloud.ZoneRRSetRemoveRecordsOpts{Records: []hcloud.ZoneRRSetRecord{{Value: `"none"`}}})
	})
	if errors.As(err, new(*refusal)) { // it may write, but there is nothing to remove
		return nil
	}
	return err
}

func (c *Client) zones(ctx context.Context, which hcloud.ZoneListOpts) ([]*hcloud.Zone, error) {
	return call(ctx, c, "list zones", true, func(ctx context.Context) ([]*hcloud.Zone, *hcloud.Response, error) {
		return c.api.Zone.List(ctx, which)
	})
}

// zone returns the zone with the longest name that a domain is in.
func (c *Client) zone(ctx context.Context, domain string) (*zone, error) {
	for name := domain; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		found, err := c.zones(ctx, hcloud.ZoneListOpts{Name: name})
		if err != nil {
			return nil, err
		}
		for _, z := range found {
			switch {
			case !strings.EqualFold(z.Name, name):
			case z.Mode == hcloud.ZoneModeSecondary:
				return nil, fmt.Errorf("hetzner: %w: the zone %s is a copy of one on other nameservers", dnsprov.ErrZoneNotFound, name)
			default:
				return &zone{z, name}, nil
			}
		}
	}
	return nil, fmt.Errorf("hetzner: %w: the project of the token has no zone that %s is in", dnsprov.ErrZoneNotFound, domain)
}

// FindZone returns the name of the zone that a domain is in.
func (c *Client) FindZone(ctx context.Context, domain string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	z, err := c.zone(ctx, domain)
	if err != nil {
		return "", err
	}
	return z.name, nil
}

// Records lists the zone's records at the domain and below it but the SOA, all of them as foreign.
// A record has its Key as ID, unless it is in another form than Apply writes it, such as a text
// that is split elsewhere.
func (c *Client) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	z, err := c.zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	l, err := c.list(ctx, z)
	if err != nil {
		return nil, err
	}
	return l.sets.Records(at.Domain, leastTTL), nil
}

// A list has the sets of a zone.
type list struct {
	sets     rrset.Sets
	explicit map[dnsprov.Set]bool // sets that have a TTL of their own
	total    int                  // what the API counts
}

// list lists the sets of a zone, and again if it changes meanwhile, since a set could be missed
// between two pages.
func (c *Client) list(ctx context.Context, z *zone) (*list, error) {
	for range maxReads {
		l := &list{sets: rrset.Sets{}, explicit: map[dnsprov.Set]bool{}}
		complete, err := c.read(ctx, z, l)
		if complete || err != nil {
			return l, err
		}
	}
	return nil, fmt.Errorf("hetzner: %w: the zone %s changes all the time", dnsprov.ErrChanged, z.name)
}

// read reads all pages. It returns false if the number of sets changes meanwhile.
func (c *Client) read(ctx context.Context, z *zone, l *list) (complete bool, err error) {
	records := 0
	for page := 1; page <= maxRecords/perPage+1; page++ {
		var answer *hcloud.Response
		sets, err := call(ctx, c, "list rrsets", true, func(ctx context.Context) (sets []*hcloud.ZoneRRSet, _ *hcloud.Response, err error) {
			sets, answer, err = c.api.Zone.ListRRSets(ctx, z.Zone, hcloud.ZoneRRSetListOpts{ListOpts: hcloud.ListOpts{Page: page, PerPage: perPage}})
			return sets, answer, err
		})
		if err != nil {
			return false, ofZone(err, z)
		}
		for _, s := range sets {
			at := dnsprov.Set{Name: strings.ToLower(s.Name + "." + z.name), Type: string(s.Type)}
			if s.Name == "@" || s.Name == "" {
				at.Name = z.name
			}
			if _, seen := l.sets[at]; seen || at.Type == "SOA" {
				continue
			}
			ttl := z.TTL
			if s.TTL != nil {
				ttl, l.explicit[at] = *s.TTL, true
			}
			records += len(s.Records)
			for _, r := range s.Records {
				l.sets[at] = append(l.sets[at], rrset.Read(at, uint32(min(max(ttl, 0), dnsprov.MaxTTL)), r.Value, z.name))
			}
		}
		if records > maxRecords {
			break
		}
		p := answer.Meta.Pagination
		if p != nil {
			if page > 1 && p.TotalEntries != l.total {
				return false, nil
			}
			l.total = p.TotalEntries
		}
		if p == nil || p.NextPage == 0 || len(sets) == 0 {
			return true, nil
		}
	}
	return false, fmt.Errorf("hetzner: the zone %s has more than %d records", z.name, maxRecords)
}

// ofZone replaces the error that the API does not find a zone.
func ofZone(err error, z *zone) error {
	var no *refusal
	if errors.As(err, &no) && slices.Contains([]int{http.StatusNotFound, http.StatusGone}, no.status) {
		return fmt.Errorf("hetzner: %w: %s", dnsprov.ErrZoneNotFound, z.name)
	}
	return err
}
