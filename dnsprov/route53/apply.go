package route53

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

// Bounds of one request of the API.
const (
	maxValues = 1000
	maxBytes  = 32_000 // characters of all values
)

// Apply deletes each set exactly as Apply has read it just before, and creates it with the values
// that it shall have, in as few requests as possible. The API makes each request whole or not at
// all: not if a set that is deleted has changed, or one that is created exists. Then the error is
// dnsprov.ErrChanged. If the API refuses a request for another reason, Apply sends the names one by
// one, and the error wraps a *dnsprov.Refused for each that is refused.
func (c *Client) Apply(ctx context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	z, err := c.zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	edits, err := rrset.NewEdits(z.name, at, changes)
	if err != nil {
		return nil, fmt.Errorf("route53: %w", err)
	}
	l, err := c.list(ctx, z, at.Domain)
	if err != nil {
		return nil, err
	}
	for _, e := range edits {
		switch {
		case l.special[e.Set] && e.Want != nil:
			return nil, &dnsprov.Conflict{Have: l.sets[e.Set][0].Record(e.Set), Want: *e.Want}
		case l.special[e.Set]:
			return nil, fmt.Errorf("route53: %s %s: %w", e.Set.Name, e.Set.Type, dnsprov.ErrChanged)
		}
	}
	todo, made, err := rrset.Plan(edits, l.sets, 0)
	if err != nil {
		return nil, fmt.Errorf("route53: %w", err)
	}
	w := &writer{Client: c, zone: z, domain: at.Domain, list: l, made: made}
	if err := w.write(ctx, groups(todo)); err != nil {
		return w.made, err
	}
	return w.made, w.refused.Err()
}

// A group is the edits of one name, which come at once: a CNAME and other records may replace each
// other.
type group []*rrset.Edit

func groups(todo []*rrset.Edit) []group {
	var out []group
	at := map[string]int{}
	for _, e := range todo {
		n, seen := at[e.Set.Name]
		if !seen {
			n = len(out)
			at[e.Set.Name] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], e)
	}
	return out
}

// size returns the numbers of values and of their bytes in a request.
func (g group) size() (values, bytes int) {
	for _, e := range g {
		for _, v := range slices.Concat(e.There, e.After()) {
			values++
			bytes += len(octal(v.Text))
		}
	}
	return values, bytes
}

// A writer sends the edits of one Apply.
type writer struct {
	*Client
	zone   zone
	domain string
	list   *list
	made   []dnsprov.Record

	refused dnsprov.Refusals
}

// write sends groups, as many as fit into a request.
func (w *writer) write(ctx context.Context, all []group) error {
	for len(all) > 0 {
		n, values, bytes := 0, 0, 0
		for n < len(all) {
			v, b := all[n].size()
			values, bytes = values+v, bytes+b
			if n > 0 && (values > maxValues || bytes > maxBytes) {
				break
			}
			n++
		}
		if err := w.send(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// send sends groups in one request, or one by one if the API refuses that. A group that it refuses
// alone is in w.refused.
func (w *writer) send(ctx context.Context, part []group) error {
	var deletes, creates []types.Change
	edits := slices.Concat(part...)
	for _, e := range edits {
		if given, exists := w.list.given[e.Set]; exists {
			deletes = append(deletes, types.Change{Action: types.ChangeActionDelete, ResourceRecordSet: &given})
		}
		after := &types.ResourceRecordSet{Name: aws.String(e.Set.Name + "."), Type: types.RRType(e.Set.Type), TTL: aws.Int64(int64(e.TTL))}
		for _, v := range e.After() {
			text := v.Text
			if slices.ContainsFunc(e.Add, v.Same) {
				text = octal(text)
			}
			after.ResourceRecords = append(after.ResourceRecords, types.ResourceRecord{Value: &text})
		}
		if len(after.ResourceRecords) > 0 {
			creates = append(creates, types.Change{Action: types.ChangeActionCreate, ResourceRecordSet: after})
		}
	}
	err := w.change(ctx, w.zone, append(deletes, creates...))
	if err == nil {
		for _, e := range edits {
			w.made = append(w.made, e.Made...)
		}
		return nil
	}
	if !errors.As(err, new(*refusal)) {
		return err
	}
	now, readErr := w.Client.list(ctx, w.zone, w.domain)
	if readErr != nil {
		return readErr
	}
	if rrset.Changed(edits, now.sets) || w.ttlChanged(edits, now) {
		return fmt.Errorf("%s: %w", strings.TrimSpace(err.Error()), dnsprov.ErrChanged)
	}
	if len(part) > 1 {
		for _, g := range part {
			if err := w.send(ctx, []group{g}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, e := range edits {
		if e.Want != nil {
			w.refused.Add(&dnsprov.Refused{Want: *e.Want, Err: err})
			return nil
		}
	}
	return err
}

// ttlChanged reports whether a set has another TTL than when it was read.
func (w *writer) ttlChanged(edits []*rrset.Edit, now *list) bool {
	return slices.ContainsFunc(edits, func(e *rrset.Edit) bool {
		return aws.ToInt64(w.list.given[e.Set].TTL) != aws.ToInt64(now.given[e.Set].TTL)
	})
}
