package domains_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

func TestACompleteDomainTellsOfItsMailboxesWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.PutWebhooks(t, s, who)
	d := servicetest.PutDomainRow(t, s, who, "big.test", store.DomainInProgress)
	var users []mailboxes.BulkUser
	for i := range 100 {
		users = append(users, mailboxes.BulkUser{Username: fmt.Sprintf("u%d", i)})
	}
	if out, err := s.Mailboxes.CreateEmailUsersBulk(t.Context(), who, mailboxes.BulkCreateIn{Domain: d.ID, Users: &users}); err != nil || out.Created != 100 {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := s.Domains.ActivateMany(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	servicetest.Update(t, s, func(tx *store.Tx) error {
		now, err := store.Domains.Get(tx, d.ID)
		if err != nil {
			return err
		}
		return s.Domains.CompleteDomain(tx, now, &domains.Look{At: tx.Now()})
	})
	servicetest.RunJobs(t, s, "webhook_events")
	if events, tells := servicetest.ToldOf(t, s, events.EventEmailUserCreated); events != 100 || tells != 1000 {
		t.Errorf("%d events are told %d times", events, tells)
	}
}

// The zone above delegates each zone below it, with 300 records of its owner in it.
func TestConnectingManyNamesBelowOneWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.ServeZones(s)
	top := servicetest.PutDomainRow(t, s, who, "top.test", store.DomainComplete)
	servicetest.PutMany(t, s, store.CustomRecords, 300, func(i int) *store.CustomRecord {
		return &store.CustomRecord{ID: s.Core.Store.NewID("rec"), DomainID: top.ID, Name: fmt.Sprintf("r%d.top.test", i), Type: "TXT", Value: strings.Repeat("v", 1000), TTL: 300}
	})
	servicetest.PutMany(t, s, store.Domains, 399, func(i int) *store.Domain {
		return &store.Domain{ID: s.Core.Store.NewID("dom"), AccountID: who.AccountID, Name: fmt.Sprintf("o%d.top.test", i), Status: store.DomainComplete, DNSProvider: "builtin"}
	})
	s.Zones.Zone("top.test")
	var in domains.ConnectDomainsIn
	for i := range 100 {
		in.Domains = append(in.Domains, fmt.Sprintf("n%d.top.test", i))
	}
	out, err := s.Domains.ConnectDomains(t.Context(), who, in)
	if err != nil || out.Domains[99].Status != "created" {
		t.Fatalf("%v", err)
	}
	for _, name := range []string{"n0.top.test", "n99.top.test", "o1.top.test"} {
		if z, ok := s.Zones.Zone(name); !ok || z.Origin != name {
			t.Errorf("%s is not served", name)
		}
	}
}

func TestAProofAmongManyRivalsWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	servicetest.ServeZones(s)
	servicetest.Others(t, s, 500, func(int) string { return "wanted.test" })
	d := servicetest.PutDomainRow(t, s, who, "wanted.test", store.DomainPendingNS)
	servicetest.Update(t, s, func(tx *store.Tx) error { d.Claim = store.ClaimOpen; return store.Domains.Put(tx, d) })
	s.Zones.Zone("wanted.test")
	if now, err := s.Domains.SettleProof(d.ID, domains.ProvenByTXT); err != nil || now.Claim != store.ClaimProven {
		t.Fatalf("%+v, %v", now, err)
	}
	if _, ok := s.Zones.Zone("wanted.test"); !ok {
		t.Error("the winner is not served")
	}
	servicetest.RunJobs(t, s, "claims_changed")
	lost := 0
	if err := s.Core.Store.View(func(tx *store.Tx) error {
		for o := range store.Domains.All(tx) {
			if o.Claim == store.ClaimLost && o.Status == store.DomainError && o.ErrorCode == domains.ClaimedElsewhere {
				lost++
			}
		}
		return nil
	}); err != nil || lost != 500 {
		t.Errorf("%d of 500 rivals lost, %v", lost, err)
	}
}

// The records of a domain at a DNS provider are made, deleted, made again, and erased with the
// domain.
func TestManyRecordsAtAProviderWithinTheBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 5 000 records several times")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.Add("edge.test", "TXT", "edge.test", "somebody's")
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		const most = 5_000 // custom records of a domain
		w.importMany(id, most)
		for _, n := range []int{most, 0, most} {
			w.settle()
			if ours := len(w.edge.Ours("edge.test")); ours != len(managed)+n {
				t.Fatalf("%d records are there, want %d", ours, len(managed)+n)
			}
			w.wantNoted(id)
			w.undo(id)
		}
		w.undo(id)
		w.settle()
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.wantNothingLeft([]string{"TXT edge.test somebody's"})
	})
}
