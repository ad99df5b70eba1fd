package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
)

const (
	perPage  = 100
	maxPages = 100 // of records of one domain; the largest plans have 3,500 records by default
	maxBatch = 200 // changes in one batch, in a zone without a paid plan
)

// Records lists the zone's records at the domain and below it. Those with the owner tag in their
// comment are ours.
func (c *Client) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	z, err := c.Zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	return c.list(ctx, z, at)
}

func (c *Client) list(ctx context.Context, z *Zone, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	q := url.Values{"per_page": {strconv.Itoa(perPage)}}
	if z.Name != at.Domain {
		q.Set("name.endswith", at.Domain)
	}
	var out []dnsprov.Record
	seen := map[string]bool{} // a record that is added or removed during the reading shifts the pages
	for page := 1; ; page++ {
		if page > maxPages {
			return nil, fmt.Errorf("cloudflare: there are more than %d records in the zone %s", maxPages*perPage, z.Name)
		}
		q.Set("page", strconv.Itoa(page))
		var found []record
		info, err := c.Call(ctx, Request{Method: http.MethodGet, Path: z.records(), Query: q, Repeat: true, Needs: editRecords}, &found)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			one := r.toCommon(at.OwnerTag)
			if one.Type == "CNAME" && one.Name == z.Name { // at the apex Cloudflare always flattens it
				one.Type = dnsprov.Flattened
			}
			if within(one.Name, at.Domain) && plainID(r.ID) && !seen[r.ID] {
				seen[r.ID] = true
				out = append(out, one)
			}
		}
		if len(found) == 0 || page >= info.TotalPages && (info.TotalPages > 0 || len(found) < perPage) {
			return out, nil
		}
	}
}

func (z *Zone) records() string { return "/zones/" + z.ID + "/dns_records" }

func within(name, domain string) bool {
	return name == domain || strings.HasSuffix(name, "."+domain)
}

// Apply sends the changes as one batch. If the API refuses that, it makes them one by one, so that
// a record that already exists, or is gone already, does not stop the rest. The returned records
// have the ID and Purpose of ours; a foreign record that equals a wanted one has no Purpose. With
// an error, it returns the records made before it.
func (c *Client) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	if err := check(at, changes); err != nil {
		return nil, err
	}
	z, err := c.Zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	w := &writer{Client: c, zone: z, at: at}
	for part := range slices.Chunk(changes, maxBatch) {
		err := w.batch(ctx, part)
		var refused *Error
		if errors.As(err, &refused) && !refused.credential() {
			err = w.each(ctx, part)
		}
		if err != nil {
			return w.made, err
		}
	}
	return w.made, nil
}

// check makes sure that the changes touch only our own records, whatever the plan was made from.
func check(at dnsprov.ZoneRef, changes []dnsprov.Change) error {
	for _, ch := range changes {
		if h := ch.Have; h != nil && (h.Purpose == "" || !plainID(h.ID) || !within(h.Name, at.Domain)) {
			return fmt.Errorf("cloudflare: cannot %s %s %s, which is not a record of ours", ch.Op, h.Name, h.Type)
		}
		if w := ch.Want; w != nil && (w.Purpose == "" || !within(w.Name, at.Domain)) {
			return fmt.Errorf("cloudflare: cannot %s %s %s, which does not belong to %s", ch.Op, w.Name, w.Type, at.Domain)
		}
		complete := ch.Op == dnsprov.Create && ch.Have == nil && ch.Want != nil || ch.Op == dnsprov.Delete && ch.Have != nil && ch.Want == nil ||
			ch.Op == dnsprov.Update && ch.Have != nil && ch.Want != nil
		if !complete {
			return fmt.Errorf("cloudflare: the change %.20q is not complete", ch.Op)
		}
	}
	return nil
}
