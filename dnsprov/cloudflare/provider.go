package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/mailstead/mailstead/dnsprov"
)

const (
	perPage  = 100 // number of records in a page of a list
	maxPages = 100 // maximum number of pages for one domain
	maxBatch = 200 // maximum number of changes in a batch, in a zone without a paid plan
)

// Records returns the zone's records at and below the domain. Records with the owner tag in their
// comment have a Purpose.
func (c *Client) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	z, err := c.Zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	return c.listRecords(ctx, z, at)
}

func (c *Client) listRecords(ctx context.Context, z *Zone, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	q := url.Values{"per_page": {strconv.Itoa(perPage)}}
	if z.Name != at.Domain {
		q.Set("name.endswith", at.Domain)
	}
	var out []dnsprov.Record
	seen := map[string]bool{} // by ID; pages shift if a record is added or removed meanwhile
	for page := 1; ; page++ {
		if page > maxPages {
			return nil, fmt.Errorf("cloudflare: the zone %[2]s has more than %[1]d records", maxPages*perPage, z.Name)
		}
		q.Set("page", strconv.Itoa(page))
		var found []record
		info, err := c.Call(ctx, Request{Method: http.MethodGet, Path: z.recordsPath(), Query: q, Repeat: true, Needs: permissionEditRecords}, &found)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			one := r.toCommon(at.OwnerTag)
			if one.Type == "CNAME" && one.Name == z.Name { // Cloudflare always flattens a CNAME at the apex
				one.Type = dnsprov.Flattened
			}
			if dnsprov.IsWithin(one.Name, at.Domain) && isPlainID(r.ID) && !seen[r.ID] {
				seen[r.ID] = true
				out = append(out, one)
			}
		}
		if len(found) == 0 || page >= info.TotalPages && (info.TotalPages > 0 || len(found) < perPage) {
			return out, nil
		}
	}
}

func (z *Zone) recordsPath() string { return "/zones/" + z.ID + "/dns_records" }

// Apply sends the changes in batches. If the API refuses a batch, Apply makes its changes one by
// one, so that a record that already exists, or is already deleted, does not stop the others. An
// adopted foreign record is returned without a Purpose. If Apply returns an error, it also returns
// the records that it made before. It makes none if we know no form for one of them.
func (c *Client) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	if err := checkChanges(at, changes); err != nil {
		return nil, err
	}
	var refused []error
	for _, ch := range changes {
		if ch.Want == nil {
			continue
		}
		if _, err := toAPI(*ch.Want, at.OwnerTag); err != nil {
			refused = append(refused, &dnsprov.Refused{Want: *ch.Want, Err: err})
		}
	}
	if len(refused) > 0 {
		return nil, errors.Join(refused...)
	}
	z, err := c.Zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	w := &writer{Client: c, zone: z, at: at}
	for part := range slices.Chunk(changes, maxBatch) {
		err := w.applyBatch(ctx, part)
		var refused *Error
		if errors.As(err, &refused) && !refused.isCredential() {
			err = w.applyEach(ctx, part)
		}
		if err != nil {
			return w.made, err
		}
	}
	return w.made, nil
}

// checkChanges returns an error if a change is about a record that is not ours or not of the
// domain. So a wrong plan cannot damage other records.
func checkChanges(at dnsprov.ZoneRef, changes []dnsprov.Change) error {
	for _, ch := range changes {
		if h := ch.Have; h != nil && (h.Purpose == "" || !isPlainID(h.ID) || !dnsprov.IsWithin(h.Name, at.Domain)) {
			return fmt.Errorf("cloudflare: cannot %s the record %s %s, which is not ours", ch.Op, h.Name, h.Type)
		}
		if w := ch.Want; w != nil && (w.Purpose == "" && ch.Op != dnsprov.Create || !dnsprov.IsWithin(w.Name, at.Domain)) {
			return fmt.Errorf("cloudflare: cannot %s the record %s %s, which does not belong to %s", ch.Op, w.Name, w.Type, at.Domain)
		}
		complete := ch.Op == dnsprov.Create && ch.Have == nil && ch.Want != nil || ch.Op == dnsprov.Delete && ch.Have != nil && ch.Want == nil ||
			ch.Op == dnsprov.Update && ch.Have != nil && ch.Want != nil
		if !complete {
			return fmt.Errorf("cloudflare: the change %.20q has missing or extra records", ch.Op)
		}
	}
	return nil
}
