package domains_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/registrar/namecomtest"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// nameCom is a separate fake registrar without a network.
func nameCom(t *testing.T) (*namecomtest.Fake, registrar.Registrar) {
	t.Helper()
	f := namecomtest.New()
	n, err := registrar.NewNameCom(registrar.NameComConfig{Username: f.Username, Token: f.Token, HTTP: &http.Client{Transport: namecomtest.Direct{Handler: f}}})
	if err != nil {
		t.Fatal(err)
	}
	return f, n
}

// buying opens a service that buys at the shop, with a domain that has keys already.
func buying(t *testing.T, shop registrar.Registrar, name string) (s *service.Service, who core.Actor, buy func() *core.JobResponse) {
	t.Helper()
	s, who, run := openWorld(t, t.TempDir(), func(c *core.Config) {
		c.Registrars = []registrar.Registrar{shop}
		c.Nameservers = []string{"ns1." + name, "ns2." + name}
	})
	makeReady(t, s, connect(t, s, who, name))
	run()
	return s, who, func() *core.JobResponse {
		return setUp(t, s, who, domains.SetupDomainIn{Domain: name, Register: true, Price: new(11.0), AutoRenew: true, SetupEmail: new(false)})
	}
}

func setMeddle(f *namecomtest.Fake, meddle func(call string) namecomtest.Fate) {
	f.Set(func() {
		f.Meddle = nil
		if meddle != nil {
			f.Meddle = func(call, _ string) namecomtest.Fate { return meddle(call) }
		}
	})
}

// Nameservers inside of a domain get their addresses before it is delegated to them, since the
// registry takes them only then.
func TestGlueComesBeforeDelegation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, shop := nameCom(t)
		s, who, buy := buying(t, shop, "glue.com")
		job := buy()
		time.Sleep(time.Minute)
		if j := getJob(t, s, who, job.JobID); j.Status != "completed" {
			t.Fatalf("job %+v %+v", j, j.Error)
		}
		d := f.Domain("glue.com")
		if !slices.Equal(d.Nameservers, []string{"ns1.glue.com", "ns2.glue.com"}) || !slices.Equal(d.Glue["ns2.glue.com"], []string{"127.0.0.1"}) || !d.AutoRenew {
			t.Errorf("at the registrar it is %+v", d)
		}
	})
}

// unable hides the optional methods of a registrar.
type unable struct{ registrar.Registrar }

type fixedShop struct{ unable }

func (fixedShop) FixedNameservers() bool { return true }

func (fixedShop) Delegate(context.Context, string, []string) error {
	return registrar.ErrFixedNameservers
}

func TestFixedNameserversAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, shop := nameCom(t)
		s, who, _ := buying(t, fixedShop{unable{shop}}, "fixed.com")
		in := domains.SetupDomainIn{Domain: "edge.com", Register: true, Price: new(11.0), SetupEmail: new(false)}
		_, err := s.Domains.SetupDomain(t.Context(), who, in)
		if e, ok := core.AsError(err); !ok || e.Code != "validation_error" || e.Details[0].Field != "edge_api_token" || !strings.Contains(e.Message, "manual_dns") {
			t.Errorf("builtin DNS at a registrar that keeps its nameservers: %v", err)
		}
		in.ManualDNS = true
		job := setUp(t, s, who, in)
		time.Sleep(30 * time.Second) // before the first look at fixed.com
		if j := getJob(t, s, who, job.JobID); j.Status != "completed" || f.Purchases("edge.com") != 1 {
			t.Errorf("job %+v %+v", j, j.Error)
		}
		f.Put(namecomtest.Domain{Name: "fixed.com", Created: time.Now(), Expires: time.Now().AddDate(1, 0, 0)})
		sold(t, s, "fixed.com", shop.Name())
		job = setUp(t, s, who, domains.SetupDomainIn{Domain: "fixed.com"})
		time.Sleep(time.Minute)
		if j := getJob(t, s, who, job.JobID); j.Status != "error" || j.Error.Code != "registrar_error" || !strings.Contains(j.Error.Message, "edge_api_token") || j.Attempts != 1 {
			t.Errorf("job %+v %+v", j, j.Error)
		}
	})
}

// sold marks a domain as bought at a registrar.
func sold(t *testing.T, s *service.Service, name, shop string) {
	t.Helper()
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
			d.Source, d.Registrar = "registered", shop
			return store.Domains.Put(tx, d)
		}
		return store.ErrNotFound
	})
	if err != nil {
		t.Fatal(err)
	}
}

// If the registrar cannot set glue, the job says so.
func TestGlueByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, shop := nameCom(t)
		s, who, buy := buying(t, unable{shop}, "hand.com")
		job := buy()
		time.Sleep(time.Minute)
		j := getJob(t, s, who, job.JobID)
		if j.Status != "error" || !strings.Contains(j.Error.Message, "ns1.hand.com") || !strings.Contains(j.Error.Message, "127.0.0.1") {
			t.Errorf("job %+v %+v", j, j.Error)
		}
	})
}

// auto_renew changes at the registrar before it changes in the record. If the registrar does not
// change it, nothing changes.
func TestRenewalIsToldToTheRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, shop := nameCom(t)
		s, who, buy := buying(t, shop, "renew.com")
		job := buy()
		time.Sleep(time.Minute)
		id := job.Resource.ID
		update := func(in domains.UpdateDomainIn, code string, field string) {
			t.Helper()
			in.DomainID = id
			_, err := s.Domains.UpdateDomain(t.Context(), who, in)
			e, _ := core.AsError(err)
			if code == "" && err != nil || code != "" && (e == nil || e.Code != code || e.Details[0].Field != field) {
				t.Errorf("%v, want %q about %q", err, code, field)
			}
			if d := f.Domain("renew.com"); d != nil && d.AutoRenew != getDomain(t, s, who, id).AutoRenew {
				t.Errorf("renewed at the registrar: %v, in the record it is not so", d.AutoRenew)
			}
		}
		if d := f.Domain("renew.com"); !d.AutoRenew || !getDomain(t, s, who, id).AutoRenew {
			t.Fatalf("bought with auto_renew it is %+v", d)
		}
		update(domains.UpdateDomainIn{AutoRenew: new(false)}, "", "")
		update(domains.UpdateDomainIn{AutoRenew: new(false)}, "", "")
		if n := f.Calls("update"); n != 1 {
			t.Errorf("told %d times", n)
		}
		update(domains.UpdateDomainIn{AutoRenew: new(true), CatchAll: core.Opt[string]{Set: true, Value: "nobody@renew.com"}}, "validation_error", "catch_all")
		setMeddle(f, func(string) namecomtest.Fate { return namecomtest.Fail })
		update(domains.UpdateDomainIn{AutoRenew: new(true), Tags: &[]string{"x"}}, "upstream_error", "namecom")
		setMeddle(f, func(string) namecomtest.Fate { return namecomtest.Late })
		update(domains.UpdateDomainIn{AutoRenew: new(true)}, "upstream_error", "namecom")
		time.Sleep(time.Hour)
		setMeddle(f, nil)
		update(domains.UpdateDomainIn{AutoRenew: new(true)}, "", "")
		f.Set(func() { f.Token = "changed" })
		update(domains.UpdateDomainIn{AutoRenew: new(false)}, "upstream_error", "namecom")
		if d := getDomain(t, s, who, id); len(d.Tags) != 0 {
			t.Errorf("tags %v were kept without the rest", d.Tags)
		}
	})
}

// If the registrar cannot be reached, the domain is not bought, the job says so, and the purchase
// blocks nobody.
func TestPurchaseAtADeadRegistrarGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, shop := nameCom(t)
		setMeddle(f, func(string) namecomtest.Fate { return namecomtest.Drop })
		s, who, buy := buying(t, shop, "dead.com")
		first := buy()
		time.Sleep(time.Minute)
		j := getJob(t, s, who, first.JobID)
		if j.Status != "queued" || j.Error == nil || !strings.Contains(j.Error.Message, "nothing was bought") {
			t.Fatalf("job %+v %+v", j, j.Error)
		}
		setMeddle(f, nil)
		second := buy()
		time.Sleep(time.Second)
		if j := getJob(t, s, who, first.JobID); j.Status != "cancelled" {
			t.Errorf("the first job %+v", j)
		}
		if j := getJob(t, s, who, second.JobID); j.Status != "completed" || f.Purchases("dead.com") != 1 {
			t.Errorf("the second job %+v %+v", j, j.Error)
		}
	})
}

// The reverse case: an order was sent and the domain is deleted while the order is looked up. Set
// up again, the domain is ours.
func TestDeletionForgetsNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, shop := nameCom(t)
		f.Lag = 90 * time.Second
		setMeddle(f, func(call string) namecomtest.Fate {
			return map[string]namecomtest.Fate{"charged": namecomtest.Drop}[call]
		})
		s, who, buy := buying(t, shop, "again.com")
		job := buy()
		time.Sleep(time.Second)
		if j := getJob(t, s, who, job.JobID); !strings.Contains(j.Error.Message, "unknown whether") {
			t.Fatalf("job %+v", j.Error)
		}
		if _, err := s.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: job.Resource.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		makeReady(t, s, connect(t, s, who, "again.com"))
		job = buy()
		time.Sleep(10 * time.Minute)
		if j := getJob(t, s, who, job.JobID); j.Status != "completed" || f.Purchases("again.com") != 1 {
			t.Errorf("bought %d times; job %+v %+v", f.Purchases("again.com"), j, j.Error)
		}
	})
}

// An order that the registrar refuses at once leaves no doubt.
func TestOrderTurnedAwayIsNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, shop := nameCom(t)
		setMeddle(f, func(call string) namecomtest.Fate {
			if call == "create" {
				return namecomtest.Busy
			}
			return namecomtest.Well
		})
		f.RetryAfter = time.Hour
		s, who, buy := buying(t, shop, "later.com")
		job := buy()
		time.Sleep(time.Second)
		if j := getJob(t, s, who, job.JobID); !strings.Contains(j.Error.Message, "nothing was bought") {
			t.Errorf("job %+v", j.Error)
		}
		state := ""
		err := s.Core.Store.View(func(tx *store.Tx) error {
			pu, err := store.PurchaseOfDomain.Get(tx, "later.com")
			if err == nil {
				state = pu.State
			}
			return err
		})
		if err != nil || state != store.PurchaseIntended {
			t.Errorf("the purchase is %s, %v", state, err)
		}
	})
}

// As long as a lost order may still become visible, the purchase is neither ended nor refused,
// whatever the registrar says about the name. Afterwards it can be ordered again.
func TestALostOrderIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shop := servicetest.NewShop()
		shop.Set(func() {
			shop.Meddle = func(call string) error {
				if call == "register" {
					shop.Set(func() { shop.Meddle, shop.Raise = nil, 100 })
					return errors.New("no answer")
				}
				return nil
			}
		})
		s, who, buy := buying(t, shop.Registrar(nil), "lost.com")
		for _, want := range []string{"registrar_error", "registrar_error", "price_changed"} {
			job := buy()
			time.Sleep(10 * time.Hour)
			if j := getJob(t, s, who, job.JobID); j.Status != "error" || j.Error.Code != want {
				t.Errorf("%s: job %+v, want %s", j.Status, j.Error, want)
			}
			time.Sleep(3 * time.Hour)
		}
		shop.Set(func() { shop.Raise = 0 })
		job := buy()
		time.Sleep(time.Hour)
		if j := getJob(t, s, who, job.JobID); j.Steps[0].Status != "completed" || shop.Charges("lost.com") != 1 {
			t.Errorf("bought %d times; job %+v %+v", shop.Charges("lost.com"), j, j.Error)
		}
	})
}
