package zones_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// askTimes lets the world ask for a name.
func askTimes(t *testing.T, s *service.Service, name string, times int, at time.Time) {
	t.Helper()
	zone, ok := s.Zones.Zone(name)
	if !ok {
		t.Fatalf("%s is not served", name)
	}
	for range times {
		zone.CountQuestion(at)
	}
}

// questionsOf calls get_zone_questions, and returns the code of the error.
func questionsOf(t *testing.T, s *service.Service, account, id string) (*zones.ZoneQuestions, string) {
	t.Helper()
	q, err := s.Zones.GetZoneQuestions(t.Context(), core.Actor{AccountID: account}, zones.GetZoneQuestionsIn{DomainID: id})
	return q, codeOf(t, err)
}

func TestQuestionsOfADomain(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 30, 0, 0, time.UTC)
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, func() time.Time { return now })
	d := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "own.test", DNSProvider: "builtin", Claim: store.ClaimProven}
	servicetest.PutTestDomain(t, s, d)
	began := now
	q, code := questionsOf(t, s, "acc_1", "dom_1")
	if code != "" || q.Domain != "own.test" || q.Total != 0 || !q.LastAskedAt.IsZero() || !q.Since.Equal(began) || len(q.Hours) != 24 {
		t.Fatalf("before the first question: %+v, %s", q, code)
	}
	askTimes(t, s, "www.own.test", 2, now)
	now = now.Add(time.Hour)
	askTimes(t, s, "own.test", 3, now)
	servicetest.PutTestDomain(t, s, d) // the zone is made again
	askTimes(t, s, "own.test", 1, now)
	q, _ = questionsOf(t, s, "acc_1", "dom_1")
	if q.Total != 6 || !q.LastAskedAt.Equal(now) || !q.Since.Equal(began) || q.Hours[22].Count != 2 || q.Hours[23].Count != 4 || !q.Hours[23].Hour.Equal(now.Truncate(time.Hour)) {
		t.Errorf("%+v", q)
	}
	for range 2 { // lookups of ours do not count, and others do afterwards
		before := q.Total
		err := s.Zones.WithLookupSlot(t.Context(), "acc_1", "own.test", func() error {
			askTimes(t, s, "own.test", 5, now)
			return nil
		})
		askTimes(t, s, "own.test", 1, now)
		if q, _ = questionsOf(t, s, "acc_1", "dom_1"); err != nil || q.Total != before+1 {
			t.Errorf("after a look of ours: %d after %d, %v", q.Total, before, err)
		}
	}
	for _, provider := range []string{"manual", "external", "cloudflare", "hetzner"} {
		other := &store.Domain{ID: "dom_" + provider, AccountID: "acc_1", Name: provider + ".test", DNSProvider: provider, Claim: store.ClaimProven}
		servicetest.PutTestDomain(t, s, other)
		if _, code := questionsOf(t, s, "acc_1", other.ID); code != "dns_provider_unsupported" {
			t.Errorf("%s: %q", provider, code)
		}
	}
}

// Two accounts may claim a name. Nobody sees the questions for the zone of the other one, also
// after the name has changed hands.
func TestQuestionsAreOfOneAccount(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 30, 0, 0, time.UTC)
	s := servicetest.ZoneService(t, t.TempDir(), core.Config{}, func() time.Time { return now })
	first := &store.Domain{ID: "dom_1", AccountID: "acc_1", Name: "own.test", DNSProvider: "builtin", Claim: store.ClaimProven}
	second := &store.Domain{ID: "dom_2", AccountID: "acc_2", Name: "own.test", DNSProvider: "builtin", Claim: store.ClaimLost}
	servicetest.PutTestDomain(t, s, first)
	servicetest.PutTestDomain(t, s, second)
	askTimes(t, s, "own.test", 3, now)
	if _, code := questionsOf(t, s, "acc_2", "dom_1"); code != "not_found" {
		t.Errorf("another account gets %q", code)
	}
	want := func(account, id string, total int64, counts bool) {
		t.Helper()
		q, code := questionsOf(t, s, account, id)
		if code != "" || q.Total != total || q.Since.IsZero() == counts || q.LastAskedAt.IsZero() != (total == 0) || len(q.Hours) != 24 || q.Hours[23].Count != total {
			t.Errorf("%s: %+v, %s", account, q, code)
		}
	}
	want("acc_1", "dom_1", 3, true)
	want("acc_2", "dom_2", 0, false)
	first.Claim, second.Claim = store.ClaimLost, store.ClaimProven
	servicetest.PutTestDomain(t, s, first)
	servicetest.PutTestDomain(t, s, second)
	askTimes(t, s, "own.test", 1, now)
	want("acc_1", "dom_1", 0, false)
	want("acc_2", "dom_2", 1, true)
}
