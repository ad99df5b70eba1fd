package accounts_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestUsageOverAYear: each day is noted once, with the traffic that is counted meanwhile; the
// newest 400 days are kept; today is as it is now.
func TestUsageOverAYear(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)
	now := begin
	s, who := servicetest.NewClocked(t, func() time.Time { return now })
	other, err := s.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "other@example.test"})
	if err != nil {
		t.Fatal(err)
	}
	const days = 450
	usage := func(id, from, to string) []accounts.HostedUsage {
		t.Helper()
		out, err := s.Accounts.GetHostedUsage(t.Context(), who, accounts.GetHostedUsageIn{AccountID: id, From: from, To: to})
		if err != nil || out.Count != len(out.Data) {
			t.Fatal(out, err)
		}
		return out.Data
	}
	for day := range days {
		now = begin.AddDate(0, 0, day)
		if day%100 == 50 { // the server was off
			continue
		}
		servicetest.Update(t, s, func(tx *store.Tx) error {
			if day%3 == 0 {
				return s.Core.Count(tx, who.AccountID, func(d *store.DayStat) { d.Sent += int64(day) + 1 })
			}
			return nil
		})
		if day < 60 {
			servicetest.Update(t, s, func(tx *store.Tx) error {
				return store.Domains.Put(tx, &store.Domain{ID: tx.NewID("dom"), AccountID: who.AccountID, Name: now.Format("d20060102") + ".test", Status: "complete"})
			})
		}
		for range 2 { // the second time changes nothing
			if err := s.Accounts.NoteUsage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(20 * time.Hour)
		servicetest.Update(t, s, func(tx *store.Tx) error {
			return s.Core.Count(tx, who.AccountID, func(d *store.DayStat) { d.Received++ })
		})
		if day%50 == 0 || day == days-1 {
			if _, err := s.Prune(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	today := now.Format(time.DateOnly)
	all := usage(who.AccountID, "2026-01-01", today)
	first := now.Add(-400 * 24 * time.Hour).Format(time.DateOnly)
	want := 401 - 4 // without the days on which the server was off
	if len(all) != want || all[0].Date != first || all[len(all)-1].Date != today {
		t.Fatalf("%d days from %s to %s, want %d from %s", len(all), all[0].Date, all[len(all)-1].Date, want, first)
	}
	last := ""
	for _, d := range all {
		date, err := time.Parse(time.DateOnly, d.Date)
		if err != nil || d.Date <= last {
			t.Fatalf("%s after %s: %v", d.Date, last, err)
		}
		last = d.Date
		day := int(date.Sub(begin.Truncate(24*time.Hour)) / (24 * time.Hour))
		sent, domains := int64(0), min(day+1, 60)
		if day%3 == 0 {
			sent = int64(day) + 1
		}
		if day >= 50 {
			domains = min(day, 59)
		}
		if d.Sent != sent || d.Received != 1 || d.Domains != int64(domains) || d.Mailboxes != 0 || d.StorageBytes != 0 {
			t.Errorf("day %d: %+v, want %d sent and %d domains", day, d, sent, domains)
		}
	}
	if got := usage(who.AccountID, "", ""); len(got) != 30 || got[29].Date != today {
		t.Errorf("without bounds: %d days", len(got))
	}
	if got := usage(who.AccountID, "2026-12-01", "2026-12-02"); len(got) != 2 || got[0].Date != "2026-12-01" {
		t.Errorf("two days: %+v", got)
	}

	// Today is as it is now, other days are as they were noted, and other accounts have their own.
	servicetest.Update(t, s, func(tx *store.Tx) error {
		return store.Domains.Put(tx, &store.Domain{ID: tx.NewID("dom"), AccountID: who.AccountID, Name: "now.test", Status: "complete"})
	})
	if got := usage(who.AccountID, "", ""); got[29].Domains != 60 || got[28].Domains != 59 {
		t.Errorf("today has %d domains, yesterday %d", got[29].Domains, got[28].Domains)
	}
	if got := usage(other.AccountID, "", ""); len(got) != 30 || got[0].Domains != 0 || got[0].Received != 0 {
		t.Errorf("another account: %+v", got)
	}
	if _, err := s.Accounts.GetHostedUsage(t.Context(), who, accounts.GetHostedUsageIn{AccountID: "acc_none"}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("an account that is not there: %v", err)
	}
	var none core.Actor
	if got, err := s.Accounts.ListHostedAccounts(t.Context(), none, accounts.ListHostedAccountsIn{}); err != nil || len(got.Data) != 2 || got.Data[1].Used.Domains != 60 {
		t.Errorf("%+v, %v", got, err)
	}
}
