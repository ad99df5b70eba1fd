package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/mailstead/mailstead/dnsprov"
)

// A writer carries out the changes of one Apply.
type writer struct {
	*Client
	zone *Zone
	at   dnsprov.ZoneRef
	made []dnsprov.Record
}

// bareID is the form in which the API wants a record to delete.
type bareID struct {
	ID string `json:"id"`
}

// batch sends changes as one request. The API deletes first, then overwrites, then creates, all or
// nothing.
func (w *writer) batch(ctx context.Context, changes []dnsprov.Change) error {
	var body struct {
		Deletes []bareID `json:"deletes,omitempty"`
		Puts    []record `json:"puts,omitempty"`
		Posts   []record `json:"posts,omitempty"`
	}
	var puts, posts []dnsprov.Record
	for _, ch := range changes {
		if ch.Op == dnsprov.Delete {
			body.Deletes = append(body.Deletes, bareID{ch.Have.ID})
			continue
		}
		r, err := toAPI(*ch.Want, w.at.OwnerTag)
		if err != nil {
			return fmt.Errorf("cloudflare: prepare record %s %s: %w", ch.Want.Name, ch.Want.Type, err)
		}
		if ch.Op == dnsprov.Update {
			r.ID = ch.Have.ID
			body.Puts, puts = append(body.Puts, r), append(puts, *ch.Want)
		} else {
			body.Posts, posts = append(body.Posts, r), append(posts, *ch.Want)
		}
	}
	var done struct{ Puts, Posts []record }
	if _, err := w.Call(ctx, Request{Method: http.MethodPost, Path: w.zone.records() + "/batch", Body: body, Needs: editRecords}, &done); err != nil {
		return err
	}
	if err := w.recordMade(puts, done.Puts); err != nil {
		return err
	}
	return w.recordMade(posts, done.Posts)
}

// recordMade records what the API says it made, and returns an error if that differs from the
// wanted records.
func (w *writer) recordMade(wanted []dnsprov.Record, got []record) error {
	if len(wanted) != len(got) {
		return fmt.Errorf("cloudflare: %d records were sent for the zone %s, but the answer lists %d", len(wanted), w.zone.Name, len(got))
	}
	for i, want := range wanted {
		made := got[i].toCommon(w.at.OwnerTag)
		if !made.Same(want) || !plainID(made.ID) {
			return fmt.Errorf("cloudflare: the zone %s has %s %s %.80q now, instead of %s %s %.80q",
				w.zone.Name, made.Name, made.Type, made.Value, want.Name, want.Type, want.Value)
		}
		want.ID = made.ID
		w.made = append(w.made, want)
	}
	return nil
}

// each makes the changes one by one.
func (w *writer) each(ctx context.Context, changes []dnsprov.Change) error {
	for _, ch := range changes {
		var err error
		switch ch.Op {
		case dnsprov.Delete:
			err = w.delete(ctx, ch.Have)
		case dnsprov.Update:
			err = w.update(ctx, ch.Have, *ch.Want)
		default:
			err = w.create(ctx, *ch.Want)
		}
		var refused *Error
		if errors.As(err, &refused) && refused.Status == http.StatusBadRequest && !refused.credential() && ch.Want != nil {
			return &dnsprov.Refused{Want: *ch.Want, Err: err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// delete deletes a record; a missing record is not an error.
func (w *writer) delete(ctx context.Context, have *dnsprov.Record) error {
	_, err := w.Call(ctx, Request{Method: http.MethodDelete, Path: w.zone.records() + "/" + have.ID, Repeat: true, Needs: editRecords}, nil)
	if gone(err) {
		return nil
	}
	return err
}

// update overwrites a record of ours, or creates it if it is gone. If another record already has
// the wanted content, it adopts that one and deletes ours.
func (w *writer) update(ctx context.Context, have *dnsprov.Record, want dnsprov.Record) error {
	err := w.write(ctx, Request{Method: http.MethodPut, Path: w.zone.records() + "/" + have.ID, Repeat: true, Needs: editRecords}, want)
	var refused *Error
	switch {
	case gone(err):
		return w.create(ctx, want)
	case errors.As(err, &refused) && refused.Has(codeExists, codeIdentical):
		if err := w.adopt(ctx, want, err); err != nil || w.made[len(w.made)-1].ID == have.ID {
			return err
		}
		return w.delete(ctx, have)
	}
	return err
}

// create creates a record. The request is sent only once; if no answer comes, the next Records
// shows the result.
func (w *writer) create(ctx context.Context, want dnsprov.Record) error {
	err := w.write(ctx, Request{Method: http.MethodPost, Path: w.zone.records(), Needs: editRecords}, want)
	var refused *Error
	if errors.As(err, &refused) && refused.Has(codeExists, codeIdentical, codeAddressThere, codeCNAMEThere, codeNSThere) {
		return w.adopt(ctx, want, err)
	}
	return err
}

func (w *writer) write(ctx context.Context, r Request, want dnsprov.Record) error {
	body, err := toAPI(want, w.at.OwnerTag)
	if err != nil {
		return fmt.Errorf("cloudflare: prepare record %s %s: %w", want.Name, want.Type, err)
	}
	var got record
	r.Body = body
	if _, err := w.Call(ctx, r, &got); err != nil {
		return err
	}
	return w.recordMade([]dnsprov.Record{want}, []record{got})
}

// adopt finds the record that is in the way of a wanted one. If it has the wanted content, it is
// adopted; otherwise the result is a Conflict.
func (w *writer) adopt(ctx context.Context, want dnsprov.Record, refused error) error {
	have, err := w.list(ctx, w.zone, w.at)
	if err != nil {
		return err
	}
	var inWay *dnsprov.Record
	for i, h := range have {
		switch {
		case h.Same(want):
			w.made = append(w.made, h)
			return nil
		case h.Name != want.Name:
		case inWay == nil || blocks(h, want) && !blocks(*inWay, want):
			inWay = &have[i]
		}
	}
	if inWay == nil {
		return refused
	}
	return &dnsprov.Conflict{Have: *inWay, Want: want}
}

// blocks reports whether record h excludes the wanted record at the same name.
func blocks(h, want dnsprov.Record) bool {
	return h.Type == "CNAME" || want.Type == "CNAME" || h.Type == "NS" || h.Type == want.Type && h.Value == want.Value
}

// gone reports whether the API refused because the record does not exist.
func gone(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Has(codeNoSuchRecord))
}
