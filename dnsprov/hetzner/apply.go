package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

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
// error is a *dnsprov.Refused for the first.
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
	var refused error
	for _, e := range todo {
		err := w.write(ctx, e)
		var no *rest.Error
		switch {
		case err == nil:
			continue
		case !errors.As(err, &no) || !slices.Contains(aboutSets, no.Status):
			return w.made, ofZone(err, z)
		}
		now, readErr := c.list(ctx, z)
		switch {
		case readErr != nil:
			return w.made, readErr
		case rrset.Changed([]*rrset.Edit{e}, now.sets):
			return w.made, fmt.Errorf("hetzner: %w: %w", dnsprov.ErrChanged, err)
		case e.Want == nil:
			return w.made, err
		case refused == nil:
			refused = &dnsprov.Refused{Want: *e.Want, Err: err}
		}
	}
	return w.made, refused
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
	whole := len(e.Gone) == len(e.There)
	if whole && e.Set.Type == "CNAME" && len(e.There) > 0 && len(e.Add) > 0 { // it has room for one value
		if err := w.action(ctx, e, "remove_records", e.Gone, nil); err != nil {
			return err
		}
		e = &rrset.Edit{Set: e.Set, Add: e.Add, TTL: e.TTL, Made: e.Made}
	}
	switch {
	case len(e.Add) == 0:
	case len(e.There) == 0:
		body := set{Name: w.zone.relative(e.Set.Name), Type: e.Set.Type, TTL: &e.TTL, Records: values(e.Add)}
		if err := w.do(ctx, rest.Request{Method: http.MethodPost, Path: w.zone.path(), Body: body}); err != nil {
			return err
		}
	default:
		var same *uint32 // the API refuses it if the set has another TTL by now
		if w.list.explicit[e.Set] {
			same = &e.There[0].TTL
		}
		if err := w.action(ctx, e, "add_records", e.Add, same); err != nil {
			return err
		}
	}
	w.made = append(w.made, e.Made...)
	if len(e.Gone) > 0 {
		if err := w.action(ctx, e, "remove_records", e.Gone, nil); err != nil {
			return err
		}
	}
	if len(e.There) > 0 && len(e.After()) > 0 && e.There[0].TTL != e.TTL {
		return w.action(ctx, e, "change_ttl", nil, &e.TTL)
	}
	return nil
}

func values(of []rrset.Value) []value {
	var out []value
	for _, v := range of {
		out = append(out, value{v.Text})
	}
	return out
}

// action starts an action of a set.
func (w *writer) action(ctx context.Context, e *rrset.Edit, name string, of []rrset.Value, ttl *uint32) error {
	body := struct {
		Records []value `json:"records,omitempty"`
		TTL     *uint32 `json:"ttl,omitempty"`
	}{values(of), ttl}
	path := w.zone.path() + "/" + url.PathEscape(w.zone.relative(e.Set.Name)) + "/" + url.PathEscape(e.Set.Type) + "/actions/" + name
	return w.do(ctx, rest.Request{Method: http.MethodPost, Path: path, Body: body})
}

// An action is what the API says of a change that it makes later.
type action struct {
	Action struct {
		ID     int64  `json:"id"`
		Status string `json:"status"` // running, success or error
		Error  *struct{ Code, Message string }
	}
}

// do sends a request for a change, and waits until it is made. It tries again while the zone is
// locked.
func (w *writer) do(ctx context.Context, r rest.Request) error {
	var a action
	for n := 1; ; n++ {
		_, err := w.api.Call(ctx, r, &a)
		if err == nil {
			break
		}
		var no *rest.Error
		if n == maxLocked || !errors.As(err, &no) || codeOf(no.Body) != "locked" && codeOf(no.Body) != "conflict" {
			return err
		}
		if err := rest.Sleep(ctx, time.Duration(n)*w.api.Pause); err != nil {
			return fmt.Errorf("hetzner: the zone %s is locked: %w", w.zone.Name, err)
		}
	}
	for a.Action.Status == "running" {
		if err := rest.Sleep(ctx, w.api.Pause); err != nil {
			return fmt.Errorf("hetzner: the zone %s is not changed yet: %w", w.zone.Name, err)
		}
		path := "/actions/" + strconv.FormatInt(a.Action.ID, 10)
		if _, err := w.api.Call(ctx, rest.Request{Method: http.MethodGet, Path: path, Repeat: true}, &a); err != nil {
			return fmt.Errorf("hetzner: it is unknown whether the zone %s was changed: %w", w.zone.Name, unknown(err))
		}
	}
	if a.Action.Status == "success" {
		return nil
	}
	code := ""
	if a.Action.Error != nil {
		code = a.Action.Error.Message + " (" + a.Action.Error.Code + ")"
	}
	return fmt.Errorf("hetzner: the change of the zone %s failed: %s", w.zone.Name, rest.Clean(code, w.api.Token))
}

// unknown returns an error that is no *rest.Error, since a change may have been made.
func unknown(err error) error {
	var no *rest.Error
	if errors.As(err, &no) {
		return errors.New(err.Error())
	}
	return err
}
