package service_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

// agedService is a service with a clock that the test sets.
func agedService(t *testing.T, now *time.Time) *service.Service {
	t.Helper()
	clock := func() time.Time { return *now }
	st := storetest.Open(t, store.Options{Now: clock})
	keys, err := core.NewKeys(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(st, jobs.NewQueue(st), keys, core.Config{Hostname: "mail.example.test", Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	return s
}

func countOf[T any](t *testing.T, s *service.Service, table *store.Table[T]) (n int) {
	t.Helper()
	err := s.Core.Store.View(func(tx *store.Tx) error {
		for range table.All(tx) {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPruningGoesOnBehindARowThatIsNeverOld: a message that waits for ever is kept, and what was
// sent after it is deleted.
func TestPruningGoesOnBehindARowThatIsNeverOld(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := agedService(t, &now)
	put := func(status string) {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			return store.Outgoings.Put(tx, &store.Outgoing{ID: tx.NewID("msg"), AccountID: "acc_1", Status: status, QueuedAt: tx.Now()})
		})
	}
	put(store.OutgoingQueued)
	for range 3 {
		put(store.OutgoingDelivered)
	}
	now = now.Add(core.SendingLogTTL + time.Hour)
	put(store.OutgoingDelivered)
	if _, err := s.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := countOf(t, s, store.Outgoings); n != 2 {
		t.Errorf("%d rows are left, want the one that waits and the new one", n)
	}
}

// TestPruningPassesManyRowsThatAreKept: more than are read in one transaction.
func TestPruningPassesManyRowsThatAreKept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := agedService(t, &now)
	for from := 0; from < service.PruneLook+600; from += 500 {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			for n := from; n < from+500; n++ {
				o := &store.Outgoing{ID: tx.NewID("msg"), AccountID: "acc_1", Status: store.OutgoingQueued, QueuedAt: tx.Now()}
				if n%2 == 1 {
					o.Status = store.OutgoingDelivered
				}
				if err := store.Outgoings.Put(tx, o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	before := countOf(t, s, store.Outgoings)
	now = now.Add(core.SendingLogTTL + time.Hour)
	if _, err := s.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := countOf(t, s, store.Outgoings); n != before/2 {
		t.Errorf("%d of %d rows are left, want half", n, before)
	}
}

func TestDayStatisticsAreKeptFor400Days(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	s := agedService(t, &now)
	for account := range 3 {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			for day := range 800 {
				if day%(account+1) > 0 {
					continue
				}
				d := &store.DayStat{AccountID: fmt.Sprint("acc_", account), Date: now.AddDate(0, 0, -day).Format(time.DateOnly), Sent: 1}
				if err := store.DayStats.Put(tx, d); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if _, err := s.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := countOf(t, s, store.DayStats); n != 401+201+134 {
		t.Errorf("%d days are left, want %d", n, 401+201+134)
	}
}

func TestAuditRowsAreKeptFor400Days(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	s := agedService(t, &now)
	put := func() {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			return core.PutAudit(tx, store.Audit{AccountID: "acc_1", Action: "login", Count: 1})
		})
	}
	put()
	now = now.Add(399 * 24 * time.Hour)
	put()
	for _, want := range []int{2, 1} {
		if _, err := s.Prune(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if n := countOf(t, s, store.Audits); n != want {
			t.Errorf("there are %d rows, want %d", n, want)
		}
		now = now.Add(2 * 24 * time.Hour)
	}
}
