package core_test

import (
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestFilteredListIsBounded looks for the oldest of many events: the first page is short, but leads
// there.
func TestFilteredListIsBounded(t *testing.T) {
	s, who := servicetest.NewBare(t)
	for from := 0; from < core.ListScan+5; from += 1000 {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			for n := from; n < min(from+1000, core.ListScan+5); n++ {
				e := &store.Event{ID: tx.NewID("evt"), AccountID: who.AccountID, Type: "common", Created: tx.Now(), Data: []byte("{}")}
				if n == 0 {
					e.Type = "rare"
				}
				if err := store.Events.Put(tx, e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	first, err := s.ListEvents(t.Context(), who, events.ListEventsIn{Type: "rare"})
	if err != nil || len(first.Data) != 0 || !first.Pagination.HasMore {
		t.Fatalf("first page %+v, %v", first, err)
	}
	in := events.ListEventsIn{Type: "rare"}
	in.Cursor = *first.Pagination.Cursor
	second, err := s.ListEvents(t.Context(), who, in)
	if err != nil || len(second.Data) != 1 || second.Pagination.HasMore || second.Pagination.Cursor != nil {
		t.Fatalf("second page %+v, %v", second, err)
	}
}
