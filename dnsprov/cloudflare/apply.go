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
	made []dnsprov.Record // records that were created, overwritten or adopted
}

// recordID names a record to delete in a batch.
type recordID struct {
	ID string `json:"id"`
}

// applyBatch sends all changes in one request. The API makes all of them or none: first deletions,
// then updates, then new records.
func (w *writer) applyBatch(ctx context.Context, changes []dnsprov.Change) error {
	var body struct {
		Deletes []recordID `json:"deletes,omitempty"`
		Puts    []record   `json:"puts,omitempty"`
		Posts   []record   `json:"posts,omitempty"`
	}
	var puts, posts []dnsprov.Record
	for _, ch := range changes {
		if ch.Op == dnsprov.Delete {
			body.Deletes = append(body.Deletes, recordID{ch.Have.ID})
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
	if _, err := w.Call(ctx, Request{Method: http.MethodPost, Path: w.zone.recordsPath() + "/batch", Body: body, Needs: permissionEditRecords}, &done); err != nil {
		return err
	}
	if err := w.recordMade(puts, done.Puts); err != nil {
		return err
	}
	return w.recordMade(posts, done.Posts)
}

// recordMade appends the wanted records to w.made, with the IDs that the API answered. It returns
// an error if the answer differs from the wanted records.
func (w *writer) recordMade(wanted []dnsprov.Record, got []record) error {
	if len(wanted) != len(got) {
		return fmt.Errorf("cloudflare: %d records were sent for the zone %s, but the answer has %d", len(wanted), w.zone.Name, len(got))
	}
	for i, want := range wanted {
		made := got[i].toCommon(w.at.OwnerTag)
		if !made.Same(want) || !isPlainID(made.ID) {
			return fmt.Errorf("cloudflare: the zone %s now has the record %s %s %.80q instead of %s %s %.80q",
				w.zone.Name, made.Name, made.Type, made.Value, want.Name, want.Type, want.Value)
		}
		want.ID = made.ID
		w.made = append(w.made, want)
	}
	return nil
}

// applyEach makes the changes one by one. It stops at the first error.
func (w *writer) applyEach(ctx context.Context, changes []dnsprov.Change) error {
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
		if errors.As(err, &refused) && refused.Status == http.StatusBadRequest && !refused.isCredential() && ch.Want != nil {
			return &dnsprov.Refused{Want: *ch.Want, Err: err}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// delete deletes a record. It returns nil if the record does not exist.
func (w *writer) delete(ctx context.Context, have *dnsprov.Record) error {
	_, err := w.Call(ctx, Request{Method: http.MethodDelete, Path: w.zone.recordsPath() + "/" + have.ID, Repeat: true, Needs: permissionEditRecords}, nil)
	if isGone(err) {
		return nil
	}
	return err
}

// update overwrites the record have, or creates a new one if have does not exist any more. If
// another record already has the wanted content, update adopts that record and deletes have.
func (w *writer) update(ctx context.Context, have *dnsprov.Record, want dnsprov.Record) error {
	err := w.sendRecord(ctx, Request{Method: http.MethodPut, Path: w.zone.recordsPath() + "/" + have.ID, Repeat: true, Needs: permissionEditRecords}, want)
	var refused *Error
	switch {
	case isGone(err):
		return w.create(ctx, want)
	case errors.As(err, &refused) && refused.Has(codeExists, codeIdentical):
		if err := w.adoptExisting(ctx, want, err); err != nil || w.made[len(w.made)-1].ID == have.ID {
			return err
		}
		return w.delete(ctx, have)
	}
	return err
}

// create creates a record. It sends the request only once; if the answer is lost, the next call of
// Records shows the result.
func (w *writer) create(ctx context.Context, want dnsprov.Record) error {
	err := w.sendRecord(ctx, Request{Method: http.MethodPost, Path: w.zone.recordsPath(), Needs: permissionEditRecords}, want)
	var refused *Error
	if errors.As(err, &refused) && refused.Has(codeExists, codeIdentical, codeAddressExists, codeCNAMEExists, codeNSExists) {
		return w.adoptExisting(ctx, want, err)
	}
	return err
}

// sendRecord sends the wanted record as the body of r, and checks the answer.
func (w *writer) sendRecord(ctx context.Context, r Request, want dnsprov.Record) error {
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

// adoptExisting finds the existing record because of which the API refused to write a wanted one.
// If the existing record has the wanted content, adoptExisting appends it to w.made. Otherwise it
// returns a *dnsprov.Conflict.
func (w *writer) adoptExisting(ctx context.Context, want dnsprov.Record, refused error) error {
	have, err := w.listRecords(ctx, w.zone, w.at)
	if err != nil {
		return err
	}
	var conflicting *dnsprov.Record
	for i, h := range have {
		switch {
		case h.Same(want):
			w.made = append(w.made, h)
			return nil
		case h.Name != want.Name:
		case conflicting == nil || excludes(h, want) && !excludes(*conflicting, want):
			conflicting = &have[i]
		}
	}
	if conflicting == nil {
		return refused
	}
	return &dnsprov.Conflict{Have: *conflicting, Want: want}
}

// excludes reports whether the API refuses the wanted record because of the record h of the same
// name.
func excludes(h, want dnsprov.Record) bool {
	return h.Type == "CNAME" || want.Type == "CNAME" || h.Type == "NS" || h.Type == want.Type && h.Value == want.Value
}

// isGone reports whether err means that the record does not exist.
func isGone(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Has(codeNoSuchRecord))
}
