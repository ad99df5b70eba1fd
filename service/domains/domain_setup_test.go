package domains_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

func setUp(t testing.TB, s *service.Service, who core.Actor, in domains.SetupDomainIn) *core.JobResponse {
	t.Helper()
	j, err := s.Domains.SetupDomain(t.Context(), who, in)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func getJob(t testing.TB, s *service.Service, who core.Actor, id string) *core.JobResponse {
	t.Helper()
	j, err := s.GetJob(t.Context(), who, service.GetJobIn{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// The delegation of a domain that is delegated elsewhere is checked less and less often, and after
// 14 days not any more.
func TestSetupWaitsForItsDelegation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		world.Tell("NS", "slow.test", "ns.registrar.test.")
		job := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "slow.test", Users: []domains.SetupUser{{Username: "ann"}}})
		synctest.Wait()
		id := job.Resource.ID
		d := getDomain(t, b.Service, who, id)
		if d.Status != "pending_ns" || d.StatusDetail == nil || d.DKIMSelector == nil || d.EmailUsersCount != 1 {
			t.Fatalf("waiting domain %+v", d)
		}
		began := time.Now()
		var looks []time.Duration
		for {
			j := getJob(t, b.Service, who, job.JobID)
			if j.Status == "error" {
				break
			}
			if j.Status != "queued" || j.Attempts != 0 || j.StatusDetail == nil {
				t.Fatalf("waiting job %+v", j)
			}
			looks = append(looks, time.Until(j.NextAttemptAt.Time))
			time.Sleep(time.Until(j.NextAttemptAt.Time))
			synctest.Wait()
		}
		if waited := time.Since(began); waited < 14*24*time.Hour || waited > 14*24*time.Hour+time.Hour {
			t.Errorf("given up after %s", waited)
		}
		if first, last := looks[0], looks[len(looks)-2]; first > 67*time.Second || last < 50*time.Minute || last > 67*time.Minute || len(looks) > 1000 {
			t.Errorf("%d looks, the first after %s, the last after %s", len(looks), first, last)
		}
		if d := getDomain(t, b.Service, who, id); d.Status != "error" || d.Error == nil || d.Error.Code != "ns_timeout" || d.StatusDetail != nil {
			t.Errorf("domain that was given up: %+v", d)
		}
		world.Set(func() { world.Names = nil })
		again := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "slow.test"})
		synctest.Wait()
		time.Sleep(time.Second)
		if d := getDomain(t, b.Service, who, id); d.Status != "complete" || *d.JobID != again.JobID {
			t.Errorf("domain after another setup: %+v", d)
		}
	})
}

// check-ns does not wait for the next scheduled check; the setup then continues where it was.
func TestCheckNameserversWakesASetup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		world.Tell("NS", "woken.test", "ns.registrar.test.")
		job := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "woken.test", Users: []domains.SetupUser{{Username: "ann"}}})
		time.Sleep(30 * time.Hour)
		world.Set(func() { world.Names = nil })
		verify(t, b.Service, who, "woken.test")
		time.Sleep(time.Second)
		j := getJob(t, b.Service, who, job.JobID)
		if d := getDomain(t, b.Service, who, job.Resource.ID); d.Status != "complete" || *d.JobID != job.JobID || j.Status != "completed" || d.StatusDetail != nil {
			t.Errorf("domain %+v, job %+v", d, j)
		}
		if n := len(eventsOf(t, b.Service, who, events.EventDomainCreated)); n != 1 {
			t.Errorf("created %d times", n)
		}
	})
}

// A setup that waits blocks nothing.
func TestWaitingSetupGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, world, who := newWorld(t)
		world.Tell("NS", "away.test", "ns.registrar.test.")
		first := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "away.test"})
		synctest.Wait()
		second := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "away.test"})
		synctest.Wait()
		if j := getJob(t, b.Service, who, first.JobID); j.Status != "cancelled" {
			t.Errorf("first job %+v", j)
		}
		gone, err := b.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: first.Resource.ID})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if j := getJob(t, b.Service, who, second.JobID); j.Status != "cancelled" {
			t.Errorf("second job %+v", j)
		}
		if j := getJob(t, b.Service, who, gone.JobID); j.Status != "completed" {
			t.Errorf("deletion %+v", j)
		}
		time.Sleep(100 * time.Hour)
		err = b.Core.Store.View(func(tx *store.Tx) error {
			if !store.DomainsByName.Has(tx, store.ClaimsKey("away.test")) {
				return store.ErrNotFound
			}
			return nil
		})
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the domain came back: %v", err)
		}
	})
}

// Mailboxes above the account's limits do not hold up the domain.
func TestSetupGoesOnWithoutRoomForMailboxes(t *testing.T) {
	s, who, run := openWorld(t, t.TempDir(), func(c *core.Config) { c.Limits.MailboxesPerDomain = 2 })
	job := setUp(t, s, who, domains.SetupDomainIn{Domain: "full.test", Users: []domains.SetupUser{{Username: "a"}, {Username: "b"}}})
	if _, err := s.Mailboxes.CreateEmailUser(t.Context(), who, mailboxes.CreateEmailUserIn{Email: "first@full.test"}); err != nil {
		t.Fatal(err)
	}
	run()
	j, err := s.GetJob(t.Context(), who, service.GetJobIn{ID: job.JobID, Wait: new(10)})
	if err != nil || j.Status != "completed" || j.Steps[2].Name != "users" || j.Steps[2].Status != "error" || j.Steps[2].Error == nil {
		t.Fatalf("job %+v, %v", j, err)
	}
	if d := getDomain(t, s, who, job.Resource.ID); d.EmailUsersCount != 2 || d.Status != "complete" {
		t.Errorf("domain %+v", d)
	}
}

// openWorld opens a service whose lookups are answered by its own zones. It makes an account if
// there is none. run starts its queue.
func openWorld(t *testing.T, dir string, change func(*core.Config)) (s *service.Service, who core.Actor, run func()) {
	t.Helper()
	world := &servicetest.World{}
	c := core.Config{
		Hostname: "mail.example.test", Nameservers: []string{"ns1.example.test", "ns2.example.test"}, Resolver: world, Log: slog.New(slog.DiscardHandler),
		PublicIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Settings: core.Settings{Limits: core.Limits{Plan: "startup", Domains: 500, MailboxesPerDomain: 100}},
	}
	change(&c)
	s, run = openService(t, dir, c)
	world.Set(func() { world.Ours = s })
	who, err := s.Accounts.Operator(t.Context(), "")
	if err != nil {
		if _, err = s.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "owner@example.test", OwnerPassword: "correct horse"}); err == nil {
			who, err = s.Accounts.Operator(t.Context(), "")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, who, run
}
