package domains_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

// newWorld makes a sandbox whose lookups a World answers.
func newWorld(t testing.TB) (*servicetest.Sandbox, *servicetest.World, core.Actor) {
	t.Helper()
	w := &servicetest.World{}
	b := servicetest.New(t, func(c *core.Config) { c.Resolver = w })
	w.Set(func() { w.Ours = b.Service })
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return b, w, who
}

// connect connects a builtin domain and returns its id.
func connect(t testing.TB, s *service.Service, who core.Actor, name string) string {
	t.Helper()
	out, err := s.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{name}})
	if err != nil || out.Domains[0].Status != "created" {
		t.Fatalf("connect %s: %+v, %v", name, out, err)
	}
	return *out.Domains[0].DomainID
}

func verify(t testing.TB, s *service.Service, who core.Actor, name string) {
	t.Helper()
	out, err := s.Domains.CheckNameservers(t.Context(), who, domains.CheckNameserversIn{Domains: []string{name}})
	if err != nil || !out.AllVerified {
		t.Fatalf("check-ns of %s: %+v, %v", name, out, err)
	}
}

func getDomain(t testing.TB, s *service.Service, who core.Actor, id string) *domains.Domain {
	t.Helper()
	d, err := s.Domains.GetDomain(t.Context(), who, domains.DomainIn{DomainID: id})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// events returns the data of the account's events of a type, newest first.
func eventsOf(t testing.TB, s *service.Service, who core.Actor, kind string) []json.RawMessage {
	t.Helper()
	page, err := s.Events.ListEvents(t.Context(), who, events.ListEventsIn{Type: kind})
	if err != nil {
		t.Fatal(err)
	}
	var out []json.RawMessage
	for _, e := range page.Data {
		out = append(out, e.Data)
	}
	return out
}

func TestDNSFailureIsToldOnceAnEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		id := connect(t, b.Service, who, "sick.test")
		verify(t, b.Service, who, "sick.test")
		time.Sleep(time.Second)
		health := func(status string, told int) *domains.Domain {
			t.Helper()
			d := getDomain(t, b.Service, who, id)
			if n := len(eventsOf(t, b.Service, who, events.EventDomainDNSFailed)); d.DNSHealth.Status != status || n != told {
				t.Fatalf("health is %+v with %d events, want %s with %d", d.DNSHealth, n, status, told)
			}
			return d
		}
		health("healthy", 0)
		world.Tell("MX", "sick.test", "1 thief.test.")
		time.Sleep(67 * time.Minute) // an hour and its jitter; the second look is not due yet, or was just now
		if d := getDomain(t, b.Service, who, id); d.DNSHealth.FailingSince.IsZero() || d.Status != "complete" {
			t.Fatalf("the first bad check was not made within an hour: %+v", d)
		}
		time.Sleep(5 * time.Minute)
		d := health("failing", 1)
		if d.DNSStatus != "failed" || d.Status != "complete" || d.DNSHealth.Issues[0].Code != "mismatch" {
			t.Fatalf("failing domain %+v", d)
		}
		time.Sleep(10 * time.Hour)
		health("failing", 1)

		world.Set(func() { world.Dead = "all" }) // no lookup is answered: an episode neither ends nor begins
		time.Sleep(10 * time.Hour)
		health("failing", 1)
		world.Set(func() { world.Dead, world.Names = "", nil })
		time.Sleep(70 * time.Minute)
		if d := health("healthy", 1); !d.DNSHealth.FailingSince.IsZero() || d.DNSStatus != "complete" {
			t.Fatalf("recovered domain %+v", d)
		}

		world.Set(func() { world.Dead = "all" })
		time.Sleep(48 * time.Hour)
		health("healthy", 1)
		world.Set(func() { world.Dead = "" })
		world.Tell("NS", "sick.test", "ns.registrar.test.")
		time.Sleep(75 * time.Minute)
		d = health("failing", 2)
		if d.NSStatus != "lost" || d.DNSHealth.Issues[0].Code != "nameservers_lost" {
			t.Fatalf("domain that went elsewhere: %+v", d)
		}
		world.Tell("NS", "sick.test", "ns1.example.test.")
		time.Sleep(70 * time.Minute)
		if d := health("healthy", 2); d.NSStatus != "verified" {
			t.Fatalf("domain that came back: %+v", d)
		}
	})
}

// One bad check between good ones is no episode.
func TestOneBadCheckIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		id := connect(t, b.Service, who, "blink.test")
		verify(t, b.Service, who, "blink.test")
		time.Sleep(time.Second)
		for range 3 {
			world.Tell("MX", "blink.test", "1 thief.test.")
			if _, err := b.Domains.GetDNSStatus(t.Context(), who, domains.GetDNSStatusIn{DomainID: id, Refresh: true}); err != nil {
				t.Fatal(err)
			}
			if d := getDomain(t, b.Service, who, id); d.DNSHealth.Status != "degraded" {
				t.Fatalf("after one bad look: %+v", d.DNSHealth)
			}
			world.Set(func() { world.Names = nil })
			time.Sleep(5 * time.Minute) // a bad check that a request asked for is followed by a second one too
			if d := getDomain(t, b.Service, who, id); d.DNSHealth.Status != "healthy" {
				t.Fatalf("after a good look: %+v", d.DNSHealth)
			}
		}
		if told := eventsOf(t, b.Service, who, events.EventDomainDNSFailed); len(told) > 0 {
			t.Fatalf("told of %s", told)
		}
	})
}

func TestChecksAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, who := newWorld(t)
		var ids []string
		for i := range 20 {
			name := fmt.Sprintf("d%d.test", i)
			ids = append(ids, connect(t, b.Service, who, name))
			verify(t, b.Service, who, name)
		}
		time.Sleep(time.Minute)
		var at []time.Time
		for _, id := range ids {
			out, err := b.Domains.GetDNSStatus(t.Context(), who, domains.GetDNSStatusIn{DomainID: id})
			if err != nil || !out.Cached || !out.Ready {
				t.Fatalf("%+v, %v", out, err)
			}
			at = append(at, out.NextCheckAt.Time)
		}
		slices.SortFunc(at, time.Time.Compare)
		if spread := at[len(at)-1].Sub(at[0]); spread < 2*time.Minute || spread > 15*time.Minute {
			t.Errorf("20 checks are spread over %v", spread)
		}
	})
}

// openService opens a service on a directory, which is checked and closed when the test ends. run
// starts its queue.
func openService(t *testing.T, dir string, c core.Config) (s *service.Service, run func()) {
	t.Helper()
	st, err := store.Open(dir, store.Options{Log: c.Log})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	q := jobs.NewQueue(st)
	q.Log = c.Log
	s = service.New(st, q, keys, c)
	servicetest.CheapSecrets(s.Core)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ended <- nil
	t.Cleanup(func() {
		stop()
		err := <-ended
		s.Close()
		if err := errors.Join(err, st.Check(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, func() {
		<-ended
		go func() { ended <- q.Run(ctx) }()
	}
}

// dkimRecords are the published halves of a domain's keys.
func dkimRecords(t *testing.T, s *service.Service, id string) (out []string) {
	t.Helper()
	err := s.Core.Store.View(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, id)
		if err != nil {
			return err
		}
		for _, k := range d.DKIM {
			out = append(out, k.Record)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// crashDuringProvisioning copies the data directory while the domain's job runs.
func crashDuringProvisioning(t *testing.T, s *service.Service, who core.Actor, id string) (dir string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if jobID := getDomain(t, s, who, id).JobID; jobID != nil {
			j, err := s.GetJob(t.Context(), who, service.GetJobIn{ID: *jobID})
			if err != nil {
				t.Fatal(err)
			}
			if j.Status == "in_progress" {
				break
			}
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("the job does not begin")
		}
	}
	return storetest.CopyCrashed(t, s.Core.Store)
}

// After a crash during provisioning, the job finds what exists and does the rest.
func TestProvisioningGoesOnAfterACrash(t *testing.T) {
	b, world, who := newWorld(t)
	hang := make(chan struct{})
	defer close(hang)
	world.Set(func() { world.Hang = hang }) // in the last step
	id := connect(t, b.Service, who, "crash.test")
	verify(t, b.Service, who, "crash.test")
	crashed := crashDuringProvisioning(t, b.Service, who, id)
	before := dkimRecords(t, b.Service, id)

	after := &servicetest.World{}
	c := servicetest.ConfigOf(b.Core)
	c.Resolver = after
	s, run := openService(t, crashed, c)
	after.Set(func() { after.Ours = s })
	run()
	job, err := s.GetJob(t.Context(), who, service.GetJobIn{ID: *getDomain(t, s, who, id).JobID, Wait: new(10)})
	if err != nil || job.Status != "completed" || job.Attempts != 2 {
		t.Errorf("job after the crash: %+v, %v", job, err)
	}
	if d := getDomain(t, s, who, id); d.Status != "complete" || d.DNSStatus != "complete" {
		t.Errorf("domain after the crash: %+v", d)
	}
	if got := dkimRecords(t, s, id); len(got) != 2 || !slices.Equal(got, before) {
		t.Errorf("keys %q became %q", before, got)
	}
	for _, kind := range []string{events.EventDomainCreated, events.EventDomainReady} {
		if n := len(eventsOf(t, s, who, kind)); n != 1 {
			t.Errorf("%d events %s", n, kind)
		}
	}
}
