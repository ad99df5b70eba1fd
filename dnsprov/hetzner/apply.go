package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const maxLocked = 5 // attempts while something else is under way in the zone

// aboutSets lists the statuses of refusals because of what a set is or has.
var aboutSets = []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusLocked}

// Apply adds and removes single values, set by set. Sets whose values all go are first, so that an
// alias can take their place. In a set that stays, the new values are there before the old ones go.
// The API notices a set that others have made, and a value that they have removed: then the error
// is dnsprov.ErrChanged. What the API refuses does not keep the other sets from being written; the
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
	edits, err := rrset.NewEdits(z.name, at, changes)
	if err != nil {
		return nil, fmt.Errorf("hetzner: %w", err)
	}
	l, err := c.list(ctx, z)
	if err != nil {
		return nil, err
	}
	todo, made, err := rrset.Plan(edits, l.sets, leastTTL)
	if err != nil {
		return nil, fmt.Errorf("hetzner: %w", err)
	}
	slices.SortStableFunc(todo, func(a, b *rrset.Edit) int { return min(len(a.After()), 1) - min(len(b.After()), 1) })
	w := &writer{Client: c, zone: z, list: l, made: made}
	var (
		refused []*rrset.Edit
		why     []error
	)
	for _, e := range todo {
		err := w.write(ctx, e)
		var no *refusal
		switch {
		case err == nil:
		case errors.As(err, &no) && slices.Contains(aboutSets, no.status):
			refused, why = append(refused, e), append(why, err)
		default:
			return w.made, ofZone(err, z)
		}
	}
	if len(refused) == 0 {
		return w.made, nil
	}
	now, err := c.list(ctx, z)
	if err != nil {
		return w.made, err
	}
	var all dnsprov.Refusals
	for i, e := range refused {
		switch {
		case rrset.Changed([]*rrset.Edit{e}, now.sets):
			return w.made, fmt.Errorf("hetzner: %w: %w", dnsprov.ErrChanged, why[i])
		case e.Want == nil:
			return w.made, why[i]
		}
		all.Add(&dnsprov.Refused{Want: *e.Want, Err: why[i]})
	}
	return w.made, all.Err()
}

// A writer makes the edits of one Apply.
type writer struct {
	*Client
	zone *zone
	list *list
	made []dnsprov.Record
}

// write makes one edit.
func (w *writer) write(ctx context.Context, e *rrset.Edit) error {
	at := &hcloud.ZoneRRSet{Zone: w.zone.Zone, Name: url.PathEscape(w.zone.relative(e.Set.Name)), Type: hcloud.ZoneRRSetType(e.Set.Type)}
	remove := func() error {
		return w.do(ctx, "remove_records", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return w.api.Zone.RemoveRRSetRecords(ctx, at, hcloud.ZoneRRSetRemoveRecordsOpts{Records: values(e.Gone)})
		})
	}
	there, gone := len(e.There), len(e.Gone)
	if gone == there && e.Set.Type == "CNAME" && there > 0 && len(e.Add) > 0 { // it has room for one value
		if err := remove(); err != nil {
			return err
		}
		there, gone = 0, 0
	}
	ttl := int(e.TTL)
	var err error
	switch {
	case len(e.Add) == 0:
	case there == 0:
		set := hcloud.ZoneRRSetCreateOpts{Name: w.zone.relative(e.Set.Name), Type: at.Type, TTL: &ttl, Records: values(e.Add)}
		err = w.do(ctx, "create rrset", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			made, answer, err := w.api.Zone.CreateRRSet(ctx, w.zone.Zone, set)
			return made.Action, answer, err
		})
	default:
		added := hcloud.ZoneRRSetAddRecordsOpts{Records: values(e.Add)}
		if w.list.explicit[e.Set] { // the API refuses it if the set has another TTL by now
			same := int(e.There[0].TTL)
			added.TTL = &same
		}
		err = w.do(ctx, "add_records", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return w.api.Zone.AddRRSetRecords(ctx, at, added)
		})
	}
	if err != nil {
		return err
	}
	w.made = append(w.made, e.Made...)
	if gone > 0 {
		if err := remove(); err != nil {
			return err
		}
	}
	if there > 0 && len(e.After()) > 0 && e.There[0].TTL != e.TTL {
		return w.do(ctx, "change_ttl", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return w.api.Zone.ChangeRRSetTTL(ctx, at, hcloud.ZoneRRSetChangeTTLOpts{TTL: &ttl})
		})
	}
	return nil
}

func values(of []rrset.Value) []hcloud.ZoneRRSetRecord {
	var out []hcloud.ZoneRRSetRecord
	for _, v := range of {
		out = append(out, hcloud.ZoneRRSetRecord{Value: v.Text})
	}
	return out
}

// do sends a request for a change, and waits until it is made. It tries again while the zone is
// locked.
func (w *writer) do(ctx context.Context, what string, send func(context.Context) (*hcloud.Action, *hcloud.Response, error)) error {
	var a *hcloud.Action
	for n := 1; ; n++ {
		var err error
		a, err = call(ctx, w.Client, what, false, send)
		if err == nil {
			break
		}
		var no *refusal
		if n == maxLocked || !errors.As(err, &no) || no.code != hcloud.ErrorCodeLocked && no.code != hcloud.ErrorCodeConflict {
			return err
		}
		if err := rest.Sleep(ctx, time.Duration(n)*w.pause); err != nil {
			return fmt.Errorf("hetzner: the zone %s is locked: %w", w.zone.name, err)
		}
	}
	for id := a.ID; a.Status == hcloud.ActionStatusRunning; {
		if err := rest.Sleep(ctx, w.pause); err != nil {
			return fmt.Errorf("hetzner: the zone %s is not changed yet: %w", w.zone.name, err)
		}
		var err error
		a, err = call(ctx, w.Client, "get action", true, func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return w.api.Action.GetByID(ctx, id)
		})
		if err == nil && a == nil {
			err = errors.New("the API does not know the action")
		}
		if err != nil { // not as a refusal, since the change may have been made
			return fmt.Errorf("hetzner: it is unknown whether the zone %s was changed: %s", w.zone.name, err)
		}
	}
	if a.Status == hcloud.ActionStatusSuccess {
		return nil
	}
	return fmt.Errorf("hetzner: the change of the zone %s failed: %s", w.zone.name, rest.Clean(a.ErrorMessage+" ("+a.ErrorCode+")", w.token))
}
