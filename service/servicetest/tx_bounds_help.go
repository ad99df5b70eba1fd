package servicetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// The tests that use this file do the largest requests that the API allows. The store fails every
// transaction above its limits.

// PutMany writes n rows, some per transaction.
func PutMany[T any](t *testing.T, s *service.Service, table *store.Table[T], n int, row func(i int) *T) {
	t.Helper()
	for from := 0; from < n; from += 250 {
		Update(t, s, func(tx *store.Tx) error {
			for i := from; i < min(n, from+250); i++ {
				if err := table.Put(tx, row(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// PutWebhooks gives an account the maximum number of webhook endpoints, with subscriptions to all
// events.
func PutWebhooks(t *testing.T, s *service.Service, who core.Actor) {
	t.Helper()
	PutMany(t, s, store.Webhooks, core.WebhookLimit, func(int) *store.Webhook {
		return &store.Webhook{ID: s.Core.Store.NewID("wh"), AccountID: who.AccountID, URL: "https://hooks.test/", Events: []string{"*"}, Status: "enabled"}
	})
}

// ServeZones sets a service's host names, so that it can serve zones.
func ServeZones(s *service.Service) {
	s.Core.Config.Hostname, s.Core.Config.Nameservers = "mail.host.test", []string{"ns1.host.test", "ns2.host.test"}
}

func PutDomainRow(t *testing.T, s *service.Service, who core.Actor, name, status string) *store.Domain {
	t.Helper()
	d := &store.Domain{ID: s.Core.Store.NewID("dom"), AccountID: who.AccountID, Name: name, Status: status, DNSProvider: "builtin", CreatedAt: s.Core.Now()}
	Update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	return d
}

// RunJobs runs the jobs of some kinds one after the other, regardless of their times, until none is
// left.
func RunJobs(t *testing.T, s *service.Service, kinds ...string) {
	t.Helper()
	work := map[string]jobs.Kind{}
	for _, k := range s.Kinds() {
		if slices.Contains(kinds, k.Name) {
			work[k.Name] = k
		}
	}
	for {
		var j *store.Job
		err := s.Core.Store.View(func(tx *store.Tx) error {
			for one := range store.Jobs.All(tx) {
				if _, ok := work[one.Kind]; ok && !one.Ended() {
					j = one
					break
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if j == nil {
			return
		}
		writes, err := work[j.Kind].Work(t.Context(), j)
		if err != nil {
			t.Fatalf("%s: %v", j.Kind, err)
		}
		Update(t, s, func(tx *store.Tx) error {
			if writes != nil {
				if err := writes(tx, j); err != nil {
					return err
				}
			}
			return store.Jobs.Delete(tx, j.ID)
		})
	}
}

// ToldOf counts the events of a type, and the webhook deliveries that are queued for them.
func ToldOf(t *testing.T, s *service.Service, kind string) (happened, tells int) {
	t.Helper()
	waits := map[string]map[string]int{}
	err := s.Core.Store.View(func(tx *store.Tx) error {
		for e := range store.Events.All(tx) {
			if e.Type == kind {
				waits[e.ID] = map[string]int{}
			}
		}
		for j := range store.Jobs.All(tx) {
			if j.Kind != "webhook" {
				continue
			}
			args, err := jobs.Args[events.DeliveryArgs](j)
			if err != nil {
				return err
			}
			if of := waits[args.EventID]; of != nil {
				of[args.WebhookID]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, of := range waits {
		for hook, n := range of {
			if n != 1 {
				t.Errorf("%s is told %d times of %s", hook, n, id)
			}
			tells++
		}
	}
	return len(waits), tells
}

// Others makes n claims to domain names, each by another account. name returns the i-th name.
func Others(t *testing.T, s *service.Service, n int, name func(i int) string) []*store.Domain {
	t.Helper()
	var out []*store.Domain
	PutMany(t, s, store.Domains, n, func(i int) *store.Domain {
		d := &store.Domain{
			ID: fmt.Sprintf("dom_%026d", i), AccountID: fmt.Sprintf("acc_%026d", i), Name: name(i), Status: store.DomainPendingNS,
			DNSProvider: dnsprov.Builtin, Claim: store.ClaimOpen, ClaimedAt: s.Core.Now(),
		}
		out = append(out, d)
		if len(out) > n { // the transaction may run twice
			out = out[:n]
		}
		return d
	})
	return out
}
