package desec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const maxSets = 500 // of one request

// Apply reads the zone and writes the sets that differ: first the changed ones, then the new ones.
// deSEC makes each request whole or not at all, and knows no conditions but one: a new set must not
// exist yet. So what somebody else changes in the moment between the reading and the writing is
// lost if it is in a set of ours. Where the API refuses a request because the zone has changed, the
// error is dnsprov.ErrChanged. If it refuses sets, Apply sends the others without them, and the
// error wraps a *dnsprov.Refused for each.
func (c *Client) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	defer cancel()
	z, err := c.zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	edits, err := rrset.NewEdits(z.Name, at, changes)
	if err != nil {
		return nil, fmt.Errorf("desec: %w", err)
	}
	sets, err := c.sets(ctx, z)
	if err != nil {
		return nil, err
	}
	todo, made, err := rrset.Plan(edits, sets, z.MinimumTTL)
	if err != nil {
		return nil, fmt.Errorf("desec: %w", err)
	}
	w := &writer{Client: c, zone: z, made: made}
	alias, cleared := map[string]bool{}, map[string]bool{} // by name
	for _, e := range todo {
		alias[e.Set.Name] = alias[e.Set.Name] || e.Set.Type == "CNAME"
		cleared[e.Set.Name] = cleared[e.Set.Name] || len(e.After()) == 0
	}
	var changed, added []*rrset.Edit
	for _, e := range todo {
		swapped := alias[e.Set.Name] && cleared[e.Set.Name] // a CNAME and other records replace each other, in one request
		if len(e.There) > 0 || swapped {
			changed = append(changed, e)
		} else {
			added = append(added, e)
		}
	}
	if err := w.write(ctx, http.MethodPatch, changed); err != nil {
		return w.made, err
	}
	if err := w.write(ctx, http.MethodPost, added); err != nil {
		return w.made, err
	}
	return w.made, w.refused.Err()
}

// A writer sends the edits of one Apply.
type writer struct {
	*Client
	zone    *zone
	made    []dnsprov.Record
	refused dnsprov.Refusals
}

// write sends edits, and again without those that the API refuses.
func (w *writer) write(ctx context.Context, method string, edits []*rrset.Edit) error {
	for len(edits) > 0 {
		part := edits[:min(len(edits), maxSets)]
		var body, done []set
		for _, e := range part {
			body = append(body, w.set(e))
		}
		_, err := w.api.Call(ctx, rest.Request{Method: method, Path: w.zone.path(), Body: body}, &done)
		var refused *rest.Error
		switch {
		case err == nil:
			for _, e := range part {
				w.made = append(w.made, e.Made...)
			}
			edits = edits[len(part):]
			continue
		case !errors.As(err, &refused) || refused.Status != http.StatusBadRequest && refused.Status != http.StatusConflict:
			return ofZone(err, w.zone)
		}
		now, readErr := w.sets(ctx, w.zone)
		if readErr != nil {
			return readErr
		}
		if rrset.Changed(part, now) || refused.Status == http.StatusConflict {
			return fmt.Errorf("desec: %w: %w", dnsprov.ErrChanged, err)
		}
		items := refusedItems(refused.Body)
		if len(items) != len(part) {
			return err
		}
		var left []*rrset.Edit
		for i, e := range part {
			switch {
			case !items[i]:
				left = append(left, e)
			case e.Want == nil:
				return err
			default:
				w.refused.Add(&dnsprov.Refused{Want: *e.Want, Err: err})
			}
		}
		if len(left) == len(part) {
			return err
		}
		edits = append(left, edits[len(part):]...)
	}
	return nil
}

// set returns the set that an edit leads to. No values delete the set.
func (w *writer) set(e *rrset.Edit) set {
	out := set{Subname: strings.TrimSuffix(strings.TrimSuffix(e.Set.Name, w.zone.Name), "."), Type: e.Set.Type, TTL: e.TTL, Records: []string{}}
	for _, v := range e.After() {
		out.Records = append(out.Records, v.Text)
	}
	return out
}

// refusedItems returns which items of a request the API refuses: its answer has an object for each,
// which is empty for those that are right. It returns nil for another answer.
func refusedItems(body []byte) []bool {
	var items []map[string]json.RawMessage
	if json.Unmarshal(body, &items) != nil {
		return nil
	}
	var out []bool
	for _, item := range items {
		out = append(out, len(item) > 0)
	}
	return out
}
