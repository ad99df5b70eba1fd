package domains_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
)

// People see the beginning and the end of an episode in the log and at the domain, once each.
func TestRecoveryIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := &servicetest.World{}, &servicetest.Log{}
		b := servicetest.New(t, func(c *core.Config) { c.Resolver, c.Log = w, slog.New(slog.NewTextHandler(log, nil)) })
		w.Set(func() { w.Ours = b.Service })
		who, err := b.Accounts.Operator(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		id := connect(t, b.Service, who, "sick.test")
		verify(t, b.Service, who, "sick.test")
		time.Sleep(time.Second)
		for range 2 {
			w.Tell("MX", "sick.test", "20 mail.example.test.")
			time.Sleep(5 * time.Hour)
			d := getDomain(t, b.Service, who, id)
			if d.StatusDetail == nil || !strings.HasPrefix(*d.StatusDetail, "Its DNS has been failing since ") ||
				!strings.Contains(d.DNSHealth.Issues[0].Message, "must have priority 10, but there is 20 mail.example.test") {
				t.Fatalf("failing: %+v", d)
			}
			w.Set(func() { w.Names = nil })
			time.Sleep(5 * time.Hour)
			if d := getDomain(t, b.Service, who, id); d.StatusDetail == nil || !strings.HasPrefix(*d.StatusDetail, "Its DNS has been healthy again since ") || d.DNSHealth.Status != "healthy" {
				t.Fatalf("recovered: %+v", d)
			}
		}
		if bad, good := log.Count("is failing"), log.Count("is healthy again"); bad != 2 || good != 2 {
			t.Errorf("%d and %d lines in the log, want 2 and 2", bad, good)
		}
	})
}

// Checks at the same time count as one: a short DNS failure that several checks see is no episode.
func TestLooksAtTheSameTimeAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		id := connect(t, b.Service, who, "blink.test")
		verify(t, b.Service, who, "blink.test")
		time.Sleep(time.Second)
		hang := make(chan struct{})
		world.Tell("MX", "blink.test", "1 thief.test.")
		world.Set(func() { world.Hang = hang })
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := b.Domains.GetDNSStatus(t.Context(), who, domains.GetDNSStatusIn{DomainID: id, Refresh: true}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(time.Second)
		close(hang)
		all.Wait()
		if d := getDomain(t, b.Service, who, id); d.DNSHealth.Status != "degraded" || len(eventsOf(t, b.Service, who, events.EventDomainDNSFailed)) != 0 {
			t.Errorf("one blink: %+v", d.DNSHealth)
		}
		time.Sleep(5 * time.Minute)
		if d := getDomain(t, b.Service, who, id); d.DNSHealth.Status != "failing" {
			t.Errorf("it stayed so: %+v", d.DNSHealth)
		}
	})
}

// An owner who has an SPF record for other senders is shown one record for all senders, everywhere.
func TestMergedSPFIsOffered(t *testing.T) {
	b, world, who := newWorld(t)
	out, err := b.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{"manual.test"}, ManualDNS: true})
	if err != nil || out.Domains[0].DomainID == nil {
		t.Fatalf("%+v, %v", out, err)
	}
	id := *out.Domains[0].DomainID
	in := domains.DomainIn{DomainID: id}
	entered := func() string {
		t.Helper()
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
			records, err := b.Domains.GetDNSRecords(t.Context(), who, in)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records.Records {
				if r.Purpose == "SPF" {
					return r.Value
				}
			}
		}
		t.Fatal("no records")
		return ""
	}
	const own, merged = "v=spf1 mx ip4:127.0.0.1 ~all", "v=spf1 mx ip4:127.0.0.1 include:_spf.else.test -all"
	if got := entered(); got != own {
		t.Errorf("at first %q", got)
	}
	look := func(there []string, verified bool, expected, code string) {
		t.Helper()
		world.Tell("TXT", "manual.test", there...)
		v, err := b.Domains.VerifyDNS(t.Context(), who, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.Records {
			if r.Purpose == "SPF" && (r.Expected != expected || r.Verified != verified) {
				t.Errorf("with %q: %+v", there, r)
			}
		}
		status, err := b.Domains.GetDNSStatus(t.Context(), who, domains.GetDNSStatusIn{DomainID: id})
		if err != nil || !status.Cached {
			t.Fatalf("%+v, %v", status, err)
		}
		for _, r := range status.Records {
			if r.Purpose == "SPF" && (r.Expected != expected || (r.Error == nil) != (code == "") || r.Error != nil && *r.Error != code) {
				t.Errorf("with %q dns-status says %+v", there, r)
			}
		}
		if got := entered(); got != expected {
			t.Errorf("with %q the value to enter is %q", there, got)
		}
	}
	look([]string{"google-site-verification=1", "v=spf1 include:_spf.else.test -all"}, false, merged, "mismatch")
	look([]string{own, "v=spf1 include:_spf.else.test -all"}, false, merged, "multiple_spf")
	look([]string{merged}, true, merged, "")
	look(nil, false, own, "missing")
}

// A record of the owner's own that was there before keeps its place, and can be changed; a new one
// is refused.
func TestOwnersRecordsWinOverOptionalOnes(t *testing.T) {
	b, world, who := newWorld(t)
	id := connect(t, b.Service, who, "own.test")
	verify(t, b.Service, who, "own.test")
	www, err := b.Zones.CreateCustomDNSRecord(t.Context(), who, zones.CreateCustomDNSRecordIn{DomainID: id, Name: "www", Type: "A", Value: "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Domains.SetRedirect(t.Context(), who, domains.SetRedirectIn{DomainID: id, RedirectURL: "https://else.test/"}); err != nil {
		t.Fatal(err)
	}
	ttl := 600
	if _, err := b.Zones.UpdateCustomDNSRecord(t.Context(), who, zones.UpdateCustomDNSRecordIn{DomainID: id, RecordID: www.Record.ID, TTL: &ttl}); err != nil {
		t.Errorf("the owner's record cannot be changed: %v", err)
	}
	address := func() string {
		addrs, _ := world.LookupNetIP(t.Context(), "ip4", "www.own.test.")
		return strings.Trim(fmt.Sprint(addrs), "[]")
	}
	if got := address(); got != "192.0.2.7" {
		t.Errorf("www is %q", got)
	}
	if _, err := b.Zones.DeleteCustomDNSRecord(t.Context(), who, zones.CustomDNSRecordIn{DomainID: id, RecordID: www.Record.ID}); err != nil {
		t.Fatal(err)
	}
	if got := address(); got != "127.0.0.1" {
		t.Errorf("without the owner's, www is %q", got)
	}
	_, err = b.Zones.CreateCustomDNSRecord(t.Context(), who, zones.CreateCustomDNSRecordIn{DomainID: id, Name: "www", Type: "A", Value: "192.0.2.7"})
	if e, ok := core.AsError(err); !ok || e.Code != "managed_record_collision" {
		t.Errorf("a new record in a managed place: %v", err)
	}
	if _, err := b.Domains.DeleteRedirect(t.Context(), who, domains.DomainIn{DomainID: id}); err != nil {
		t.Fatal(err)
	}
	if got := address(); got != "" {
		t.Errorf("without a redirect, www is %q", got)
	}
}
