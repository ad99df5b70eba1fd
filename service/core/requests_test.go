package core_test

import (
	"context"
	"encoding/json"
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

// TestAnswerIsKeptWithWhatItAnswersFor: nothing happens between the transaction of an operation and
// the crash, and yet its answer is there.
func TestAnswerIsKeptWithWhatItAnswersFor(t *testing.T) {
	i, answers := servicetest.Install(t, core.Config{Outbound: core.ViaCapture}), 0
	s := i.Svc
	who := core.Actor{AccountID: i.Account.AccountID, TokenID: "tok_x"}
	once := core.NewOnce(core.ReplayID(who, "POST", "/v1/webhooks", "key"), []byte("body"), func(out any) (core.Replayed, error) {
		answers++
		body, err := json.Marshal(out)
		return core.Replayed{Status: 201, ContentType: "application/json", Body: body}, err
	})
	out, err := s.CreateWebhook(once.Context(context.Background()), who, events.CreateWebhookIn{URL: "https://hook.test", Events: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := s.Replay(once)
	if err != nil || kept == nil || kept.Status != 201 || string(kept.Body) != string(want) || answers == 0 {
		t.Errorf("kept %+v, %v; want %s", kept, err, want)
	}
	if err := s.KeepReplay(once, core.Replayed{Status: 500}); err != nil {
		t.Fatal(err)
	}
	if kept, err = s.Replay(once); err != nil || kept.Status != 201 {
		t.Errorf("kept again: %+v, %v", kept, err)
	}
	if _, err := s.Replay(core.NewOnce(once.ID, []byte("other"), nil)); err == nil {
		t.Error("another body under the same key is no error")
	}
}
