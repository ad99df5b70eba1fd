package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

func TestBulkCreationTellsEveryEndpointWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.PutWebhooks(t, s, who)
	d := servicetest.PutDomainRow(t, s, who, "big.test", store.DomainComplete)
	var users []mailboxes.BulkUser
	for i := range 100 {
		users = append(users, mailboxes.BulkUser{Username: fmt.Sprintf("u%d", i), Name: strings.Repeat("ä", 200), Footer: strings.Repeat("f", 10_000)})
	}
	out, err := s.Mailboxes.CreateEmailUsersBulk(t.Context(), who, mailboxes.BulkCreateIn{Domain: d.ID, Users: &users})
	if err != nil || out.Created != 100 {
		t.Fatalf("%+v, %v", out, err)
	}
	servicetest.RunJobs(t, s, "webhook_events")
	if events, tells := servicetest.ToldOf(t, s, events.EventEmailUserCreated); events != 100 || tells != 1000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
	var emails []string
	for _, u := range out.Users {
		emails = append(emails, u.Email)
	}
	gone, err := s.Mailboxes.DeleteEmailUsersBulk(t.Context(), who, mailboxes.BulkDeleteIn{Emails: &emails})
	if err != nil || gone.Queued != 100 {
		t.Fatalf("%+v, %v", gone, err)
	}
	servicetest.RunJobs(t, s, "email_users_bulk_delete", "webhook_events")
	if events, tells := servicetest.ToldOf(t, s, events.EventEmailUserDeleted); events != 100 || tells != 1000 {
		t.Errorf("%d deletions are told %d times", events, tells)
	}
}

func TestConnectingManyDomainsTellsWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.PutWebhooks(t, s, who)
	for _, in := range []domains.ConnectDomainsIn{{External: true}, {ManualDNS: true}, {}} {
		for i := range 100 {
			in.Domains = append(in.Domains, fmt.Sprintf("d%d-%v-%v.test", i, in.External, in.ManualDNS))
		}
		out, err := s.Domains.ConnectDomains(t.Context(), who, in)
		if err != nil || out.Domains[99].Status != "created" {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	servicetest.RunJobs(t, s, "webhook_events")
	if events, tells := servicetest.ToldOf(t, s, events.EventDomainReady); events != 100 || tells != 1000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
	if events, tells := servicetest.ToldOf(t, s, events.EventDomainCreated); events != 200 || tells != 2000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
}

func TestAProofAboveManyClaimsWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.ServeZones(s)
	below := servicetest.Others(t, s, 1000, func(i int) string { return fmt.Sprintf("n%d.wanted.test", i) })
	if _, ok := s.Zones.Zone(below[999].Name); !ok {
		t.Fatal("what nobody else claims is served")
	}
	out, err := s.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{"wanted.test"}})
	if err != nil || out.Domains[0].Status != "created" {
		t.Fatalf("%+v, %v", out, err)
	}
	servicetest.RunJobs(t, s, "claims_changed")
	for _, d := range below {
		if z, ok := s.Zones.Zone(d.Name); ok && z.Origin == d.Name {
			t.Fatalf("%s is served though others claim a name above it", d.Name)
		}
	}
	id := *out.Domains[0].DomainID
	if now, err := s.Domains.SettleProof(id, domains.ProvenByTXT); err != nil || now.Claim != store.ClaimProven {
		t.Fatalf("%+v, %v", now, err)
	}
	servicetest.RunJobs(t, s, "claims_changed")
	if z, ok := s.Zones.Zone("wanted.test"); !ok || z.Origin != "wanted.test" {
		t.Error("the winner is not served")
	}
	if _, err := s.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: id}); err != nil {
		t.Fatal(err)
	}
	servicetest.RunJobs(t, s, "domain_delete", "claims_changed")
	for _, d := range below {
		if z, ok := s.Zones.Zone(d.Name); !ok || z.Origin != d.Name {
			t.Fatalf("%s is not served though nobody else claims it any more", d.Name)
		}
	}
}

func TestPruningWithinTheBounds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, who := servicetest.NewClocked(t, func() time.Time { return now })
	const n = 1200
	long := strings.Repeat("x", 900)
	servicetest.PutMany(t, s, store.Outgoings, n, func(i int) *store.Outgoing {
		return &store.Outgoing{ID: s.Core.Store.NewID("msg"), AccountID: who.AccountID, MessageID: "<" + long + ">", Recipient: long, Status: store.OutgoingSent, QueuedAt: now}
	})
	servicetest.PutMany(t, s, store.Mappings, n, func(i int) *store.MessageIDMapping {
		return &store.MessageIDMapping{ID: s.Core.Store.NewID("map"), AccountID: who.AccountID, Original: "<" + long + ">", Provided: "<" + long + ">", RelayedAt: now}
	})
	servicetest.PutMany(t, s, store.Events, n, func(i int) *store.Event {
		return &store.Event{ID: s.Core.Store.NewID("evt"), AccountID: who.AccountID, Type: events.EventEmailReceived, Created: now, Data: []byte("{}")}
	})
	servicetest.PutMany(t, s, store.Deliveries, n, func(i int) *store.Delivery {
		return &store.Delivery{ID: s.Core.Store.NewID("dlv"), AccountID: who.AccountID, WebhookID: "wh_1", EventID: "evt_1", At: now}
	})
	servicetest.PutMany(t, s, store.Tokens, n, func(i int) *store.Token {
		return &store.Token{
			ID: s.Core.Store.NewID("tok"), AccountID: who.AccountID, UserID: who.UserID, Hash: fmt.Sprint("hash", i), Kind: core.SessionKind,
			CreatedAt: now, ExpiresAt: now.Add(accounts.SessionLife),
		}
	})
	now = now.Add(400 * 24 * time.Hour)
	if _, err := s.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, table := range []func(*store.Tx) int{
		func(tx *store.Tx) int { return store.OutgoingsByAccount.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.MappingsByOriginal.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.EventsByAccount.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.DeliveriesByWebhook.Count(tx, "", 0) },
		func(tx *store.Tx) int { return store.SessionsByTime.Count(tx, "", 0) },
	} {
		if err := s.Core.Store.View(func(tx *store.Tx) error {
			if left := table(tx); left > 0 {
				t.Errorf("%d rows are left", left)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAccountWithManyMailboxesWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	d := servicetest.PutDomainRow(t, s, who, "big.test", store.DomainComplete)
	servicetest.PutMany(t, s, store.Mailboxes, 20_500, func(i int) *store.Mailbox {
		return &store.Mailbox{ID: fmt.Sprintf("eu_%026d", i), Num: uint32(i + 1), AccountID: who.AccountID, DomainID: d.ID, Email: fmt.Sprintf("u%d@big.test", i), Status: "active", Type: "hosted"}
	})
	name := "other"
	if out, err := s.Accounts.UpdateAccount(t.Context(), who, accounts.UpdateAccountIn{Name: &name}); err != nil || out.EmailUsersUsed != 20_500 {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := s.Domains.UpdateDomain(t.Context(), who, domains.UpdateDomainIn{DomainID: d.ID, Tags: &[]string{"x"}}); err != nil || out.EmailUsersCount != 20_500 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := s.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: d.ID}); err != nil {
		t.Error(err)
	}
}
