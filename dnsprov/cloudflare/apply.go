package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/mailstead/mailstead/dnsprov"
)

// A writer makes the changes of one Apply.
type writer struct {
	*Client
	zone *Zone
	at   dnsprov.ZoneRef
	made []dnsprov.Record
}

// bareID is what the API wants of a record that it is to delete.
type bareID struct {
	ID string `json:"id"`
}

// batch sends changes as one. The API deletes first, then overwrites, then makes, all of it or
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
		r, err := ours(*ch.Want, w.at.OwnerTag)
		if err != nil {
			return fmt.Errorf("cloudflare: %s %s: %w", ch.Want.Name, ch.Want.Type, err)
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
	if err := w.note(puts, done.Puts); err != nil {
		return err
	}
	return w.note(posts, done.Posts)
}

// note keeps what the API says it made, if that is what was wanted.
func (w *writer) note(wanted []dnsprov.Record, got []record) error {
	if len(wanted) != len(got) {
		return fmt.Errorf("cloudflare: %d records were to be made in the zone %s, and the answer names %d", len(wanted), w.zone.Name, len(got))
	}
	for i, want := range wanted {
		made := got[i].common(w.at.OwnerTag)
		if !made.Same(want) || !plainID(made.ID) {
			return fmt.Errorf("cloudflare: in the zone %s there is now %s %s %.80q, where %s %s %.80q was to be",
				w.zone.Name, made.Name, made.Type, made.Value, want.Name, want.Type, want.Value)
		}
		want.ID = made.ID
		w.made = append(w.made, want)
	}
	return nil
}

// each makes one change after the other.
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

// delete takes a record away; one that is gone already is no error.
func (w *writer) delete(ctx context.Context, have *dnsprov.Record) error {
	_, err := w.Call(ctx, Request{Method: http.MethodDelete, Path: w.zone.records() + "/" + have.ID, Repeat: true, Needs: editRecords}, nil)
	if gone(err) {
		return nil
	}
	return err
}

// update overwrites a record of ours, or makes it again if it is gone. Where what is wanted stands
// beside it already, it goes.
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

// create makes a record. Its request is sent once; if no answer comes, the next reading tells.
func (w *writer) create(ctx context.Context, want dnsprov.Record) error {
	err := w.write(ctx, Request{Method: http.MethodPost, Path: w.zone.records(), Needs: editRecords}, want)
	var refused *Error
	if errors.As(err, &refused) && refused.Has(codeExists, codeIdentical, codeAddressThere, codeCNAMEThere, codeNSThere) {
		return w.adopt(ctx, want, err)
	}
	return err
}

func (w *writer) write(ctx context.Context, r Request, want dnsprov.Record) error {
	body, err := ours(want, w.at.OwnerTag)
	if err != nil {
		return fmt.Errorf("cloudflare: %s %s: %w", want.Name, want.Type, err)
	}
	var got record
	r.Body = body
	if _, err := w.Call(ctx, r, &got); err != nil {
		return err
	}
	return w.note([]dnsprov.Record{want}, []record{got})
}

// adopt looks what is in the way of a wanted record. If it exists already, it is taken as it is;
// else it is a conflict.
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

// blocks reports whether a record is of a kind that another at its name cannot stand beside.
func blocks(h, want dnsprov.Record) bool {
	return h.Type == "CNAME" || want.Type == "CNAME" || h.Type == "NS" || h.Type == want.Type && h.Value == want.Value
}

// gone reports whether the API refused because there is no such record.
func gone(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Has(codeNoSuchRecord))
}
