package domains_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// listed returns the first labels of the domains that are listed, page by page.
func listed(t *testing.T, list func(domains.ListDomainsIn) (*page.Page[domains.Domain], error), in domains.ListDomainsIn, limit int) string {
	t.Helper()
	var names []string
	for in.Limit = &limit; ; {
		p, err := list(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Data {
			names = append(names, strings.TrimSuffix(d.Domain, ".test"))
		}
		if !p.Pagination.HasMore {
			return strings.Join(names, " ")
		}
		in.Cursor = *p.Pagination.Cursor
	}
}

// TestDomainsWithProblemsComeFirst: the rows in the index are those that the API shows as failed,
// waiting for their owner or wrong in the DNS, and they come first however the list is paged.
func TestDomainsWithProblemsComeFirst(t *testing.T) {
	s, who := servicetest.NewBare(t)
	check := func(purpose, failure string, critical bool) func(*store.Domain) {
		return func(d *store.Domain) {
			d.Checks = []store.DNSCheck{{Purpose: purpose, Type: "TXT", Host: d.Name, Critical: critical, Error: failure, Verified: failure == ""}}
		}
	}
	for n, c := range []struct {
		name   string
		change func(*store.Domain)
	}{
		{"b-good", check(dnsprov.PurposeSPF, "", true)},
		{"a-failed", func(d *store.Domain) { d.Status = store.DomainError }},
		{"g-unseen", func(d *store.Domain) { d.CheckedAt, d.NSStatus = time.Time{}, store.DomainNSLost }},
		{"h-elsewhere", func(d *store.Domain) {
			d.DNSProvider, d.NSStatus = store.DomainProviderExternal, store.DomainNSNotRequired
			check(dnsprov.PurposeMX, dnsprov.Missing, true)(d)
		}},
		{"c-lost", func(d *store.Domain) { d.NSStatus = store.DomainNSLost }},
		{"i-working", func(d *store.Domain) { d.Status = store.DomainInProgress }},
		{"d-missing", check(dnsprov.PurposeMX, dnsprov.Missing, true)},
		{"j-unanswered", check(dnsprov.PurposeMX, dnsprov.LookupFailed, true)},
		{"k-optional", check(dnsprov.PurposeTLSRPT, dnsprov.Missing, false)},
		{"e-dmarc", check(dnsprov.PurposeDMARC, dnsprov.Missing, false)},
		{"l-deleting", func(d *store.Domain) { d.Status = store.DomainDeleting }},
		{"f-nameservers", func(d *store.Domain) { d.Status, d.NSStatus = store.DomainPendingNS, store.DomainNSPending }},
		{"m-failing", func(d *store.Domain) { d.BadChecks = 2 }},
		{"n-foreign", func(d *store.Domain) { d.ForeignMX = []store.MXRecord{{Host: "mx.other.test"}} }},
		{"o-records", func(d *store.Domain) { d.Status = store.DomainPendingDNS }},
	} {
		at := time.Date(2026, 3, 1, 0, n, 0, 0, time.UTC)
		d := &store.Domain{ID: fmt.Sprintf("dom_%02d", n), AccountID: who.AccountID, Name: c.name + ".test", Status: store.DomainComplete, DNSProvider: store.DomainProviderBuiltin, NSStatus: store.DomainNSVerified, CheckedAt: at, CreatedAt: at}
		c.change(d)
		servicetest.Update(t, s, func(tx *store.Tx) error { return store.Domains.Put(tx, d) })
	}
	servicetest.Update(t, s, func(tx *store.Tx) error {
		return store.Domains.Put(tx, &store.Domain{ID: "dom_99", AccountID: "acc_other", Name: "z-other.test", Status: store.DomainError})
	})
	list := func(in domains.ListDomainsIn) (*page.Page[domains.Domain], error) {
		return s.Domains.ListDomains(t.Context(), who, in)
	}
	const (
		problems = "o-records n-foreign m-failing f-nameservers e-dmarc d-missing c-lost a-failed"
		others   = "l-deleting k-optional j-unanswered i-working h-elsewhere g-unseen b-good"
		newest   = "o-records n-foreign m-failing f-nameservers l-deleting e-dmarc k-optional j-unanswered d-missing i-working c-lost h-elsewhere g-unseen a-failed b-good"
	)
	backwards := func(names string) string {
		all := strings.Fields(names)
		slices.Reverse(all)
		return strings.Join(all, " ")
	}
	byName := strings.Fields(newest)
	slices.Sort(byName)
	for _, c := range []struct {
		in   domains.ListDomainsIn
		want string
	}{
		{domains.ListDomainsIn{}, newest},
		{domains.ListDomainsIn{Sort: "-created_at"}, newest},
		{domains.ListDomainsIn{Sort: "created_at"}, backwards(newest)},
		{domains.ListDomainsIn{Sort: "domain"}, strings.Join(byName, " ")},
		{domains.ListDomainsIn{Sort: "-domain"}, backwards(strings.Join(byName, " "))},
		{domains.ListDomainsIn{Sort: "-problems"}, problems + " " + others},
		{domains.ListDomainsIn{Problems: true}, problems},
		{domains.ListDomainsIn{Problems: true, Sort: "created_at"}, backwards(problems)},
		{domains.ListDomainsIn{Problems: true, Sort: "domain"}, "a-failed c-lost d-missing e-dmarc f-nameservers m-failing n-foreign o-records"},
		{domains.ListDomainsIn{Problems: true, Status: store.DomainError}, "a-failed"},
		{domains.ListDomainsIn{Sort: "-problems", Q: "-l"}, "c-lost"},
	} {
		for _, limit := range []int{1, 4, 100} {
			if got := listed(t, list, c.in, limit); got != c.want {
				t.Errorf("%+v by %d:\n%s, want\n%s", c.in, limit, got, c.want)
			}
		}
	}
	all, err := list(domains.ListDomainsIn{Query: page.Query{Limit: new(100)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all.Data {
		needs := slices.Contains([]string{store.DomainPendingNS, store.DomainPendingDNS, store.DomainError}, d.Status) ||
			d.Status == store.DomainComplete && d.DNSProvider != store.DomainProviderExternal && slices.Contains([]string{"degraded", "failing"}, d.DNSHealth.Status)
		if name := strings.TrimSuffix(d.Domain, ".test"); needs != slices.Contains(strings.Fields(problems), name) {
			t.Errorf("the API shows %s as %s, %s", d.Domain, d.Status, d.DNSHealth.Status)
		}
	}

	first, err := list(domains.ListDomainsIn{Query: page.Query{Limit: new(2)}, Sort: "domain"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := list(domains.ListDomainsIn{Query: page.Query{Cursor: *first.Pagination.Cursor}, Sort: "-domain"}); !servicetest.HasCode(err, "invalid_cursor") {
		t.Errorf("the cursor of another order: %v", err)
	}
	stranger := core.Actor{AccountID: "acc_none", Role: "owner", Permissions: []string{"admin"}}
	if p, err := s.Domains.ListDomains(t.Context(), stranger, domains.ListDomainsIn{Sort: "-problems"}); err != nil || len(p.Data) != 0 {
		t.Errorf("a stranger sees %+v, %v", p, err)
	}
}
