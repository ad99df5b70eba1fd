// Package hetzner keeps the records of domains at Hetzner, through the zones of its Cloud API. It
// does not know which records a domain should have, nor which of those that it finds are ours.
package hetzner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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
type Client struct{ api *rest.Client }

// New returns a client without sending a request.
func New(c Config) *Client {
	if c.BaseURL == "" {
		c.BaseURL = BaseURL
	}
	return &Client{rest.New(rest.Config{Service: "hetzner", BaseURL: c.BaseURL, Scheme: "Bearer", Token: c.Token, Reason: reason, HTTP: c.HTTP, Pause: c.Pause})}
}

// refusal is the body of an answer with an error.
type refusal struct {
	Error struct{ Code, Message string } `json:"error"`
}

func reason(status int, body []byte) (text string, credential bool) {
	code := codeOf(body)
	var answer refusal
	_ = json.Unmarshal(body, &answer)
	return answer.Error.Message + " (" + code + ")", status == http.StatusUnauthorized || code == "forbidden" || code == "token_readonly"
}

// codeOf returns the error code of an answer, or "".
func codeOf(body []byte) string {
	var answer refusal
	_ = json.Unmarshal(body, &answer)
	return answer.Error.Code
}

// A zone is a zone of the token's project.
type zone struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	TTL  uint32 `json:"ttl"`  // of the sets without a TTL
	Mode string `json:"mode"` // primary or secondary
}

func (z *zone) path() string { return "/zones/" + strconv.FormatInt(z.ID, 10) + "/rrsets" }

// A set is a set of records in the form of the API.
type set struct {
	Name    string  `json:"name"` // relative to the zone; @ for the zone itself
	Type    string  `json:"type"`
	TTL     *uint32 `json:"ttl"`
	Records []value `json:"records"`
}

type value struct {
	Value string `json:"value"`
}

// relative returns a name in the form of the API.
func (z *zone) relative(name string) string {
	if name == z.Name {
		return "@"
	}
	return strings.TrimSuffix(name, "."+z.Name)
}

// Check returns dnsprov.ErrCredential if the token is not valid or may only read, and
// dnsprov.ErrZoneNotFound if its project has no zones. It tries to remove a record that does not
// exist, which changes nothing.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	zones, err := c.zones(ctx, url.Values{"per_page": {"1"}})
	if err != nil {
		return err
	}
	if len(zones) == 0 {
		return fmt.Errorf("hetzner: %w: the project of the token has no zones", dnsprov.ErrZoneNotFound)
	}
	path := zones[0].path() + "/_mailstead-check/TXT/actions/remove_records"
	_, err = c.api.Call(ctx, rest.Request{Method: http.MethodPost, Path: path, Body: map[string][]value{"records": {{`"none"`}}}, Repeat: true}, &struct{}{})
	if errors.As(err, new(*rest.Error)) { // it may write, but there is nothing to remove
		return nil
	}
	return err
}

func (c *Client) zones(ctx context.Context, q url.Values) ([]zone, error) {
	var answer struct{ Zones []zone }
	_, err := c.api.Call(ctx, rest.Request{Method: http.MethodGet, Path: "/zones", Query: q, Repeat: true}, &answer)
	return answer.Zones, err
}

// zone returns the zone with the longest name that a domain is in.
func (c *Client) zone(ctx context.Context, domain string) (*zone, error) {
	for name := domain; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		found, err := c.zones(ctx, url.Values{"name": {name}})
		if err != nil {
			return nil, err
		}
		for _, z := range found {
			switch {
			case !strings.EqualFold(z.Name, name):
			case z.Mode == "secondary":
				return nil, fmt.Errorf("hetzner: %w: the zone %s is a copy of one on other name servers", dnsprov.ErrZoneNotFound, name)
			default:
				z.Name = name
				return &z, nil
			}
		}
	}
	return nil, fmt.Errorf("hetzner: %w: the project of the token has no zone that %s is in", dnsprov.ErrZoneNotFound, domain)
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
	return nil, fmt.Errorf("hetzner: %w: the zone %s changes all the time", dnsprov.ErrChanged, z.Name)
}

// read reads all pages. It returns false if the number of sets changes meanwhile.
func (c *Client) read(ctx context.Context, z *zone, l *list) (complete bool, err error) {
	records := 0
	for page := 1; page <= maxRecords/perPage+1; page++ {
		var answer struct {
			RRSets []set
			Meta   struct {
				Pagination struct {
					Next  *int `json:"next_page"`
					Total *int `json:"total_entries"`
				}
			}
		}
		q := url.Values{"page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(perPage)}}
		if _, err := c.api.Call(ctx, rest.Request{Method: http.MethodGet, Path: z.path(), Query: q, Repeat: true}, &answer); err != nil {
			return false, ofZone(err, z)
		}
		for _, s := range answer.RRSets {
			at := dnsprov.Set{Name: strings.ToLower(s.Name + "." + z.Name), Type: s.Type}
			if s.Name == "@" || s.Name == "" {
				at.Name = z.Name
			}
			if _, seen := l.sets[at]; seen || s.Type == "SOA" {
				continue
			}
			ttl := z.TTL
			if s.TTL != nil {
				ttl, l.explicit[at] = *s.TTL, true
			}
			records += len(s.Records)
			for _, r := range s.Records {
				l.sets[at] = append(l.sets[at], rrset.Read(at, ttl, r.Value, z.Name))
			}
		}
		if records > maxRecords {
			break
		}
		p := answer.Meta.Pagination
		if p.Total != nil {
			if page > 1 && *p.Total != l.total {
				return false, nil
			}
			l.total = *p.Total
		}
		if p.Next == nil || len(answer.RRSets) == 0 {
			return true, nil
		}
	}
	return false, fmt.Errorf("hetzner: the zone %s has more than %d records", z.Name, maxRecords)
}

// ofZone replaces the error that the API does not find a zone.
func ofZone(err error, z *zone) error {
	var refused *rest.Error
	if errors.As(err, &refused) && slices.Contains([]int{http.StatusNotFound, http.StatusGone}, refused.Status) {
		return fmt.Errorf("hetzner: %w: %s", dnsprov.ErrZoneNotFound, z.Name)
	}
	return err
}
