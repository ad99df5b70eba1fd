package domains_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

const day = 24 * time.Hour

// jobsOf returns the planned jobs of one kind that are about a domain.
func jobsOf(t *testing.T, b *servicetest.Sandbox, kind, id string) (planned []*store.Job) {
	t.Helper()
	err := b.Core.Store.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == kind && j.Key == id && !j.Ended() {
				planned = append(planned, j)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return planned
}

// looksOf returns the planned looks at a domain.
func looksOf(t *testing.T, b *servicetest.Sandbox, id string) []*store.Job {
	t.Helper()
	return jobsOf(t, b, "domain_look", id)
}

// waits fails the test unless a domain waits with a status, and exactly one look at it is planned,
// at next_look_at, from least to most after now.
func waits(t *testing.T, b *servicetest.Sandbox, who core.Actor, id, status string, least, most time.Duration) *domains.Domain {
	t.Helper()
	d := getDomain(t, b.Service, who, id)
	looks := looksOf(t, b, id)
	if d.Status != status || d.Error != nil || len(looks) != 1 {
		t.Fatalf("%s is %s %+v with %d planned looks, want %s with one", d.Domain, d.Status, d.Error, len(looks), status)
	}
	if wait := time.Until(d.NextLookAt.Time); !looks[0].Due.Equal(d.NextLookAt.Time) || wait < least || wait > most {
		t.Fatalf("the next look at %s is in %s, planned for in %s, want %s to %s", d.Domain, wait, time.Until(looks[0].Due), least, most)
	}
	return d
}

// ended fails the test unless a domain has the error code and no look at it is planned.
func ended(t *testing.T, b *servicetest.Sandbox, who core.Actor, id, code string) *domains.Domain {
	t.Helper()
	d := getDomain(t, b.Service, who, id)
	if d.Status != "error" || claimCode(d) != code || !d.NextLookAt.IsZero() || d.StatusDetail != nil {
		t.Fatalf("%s is %s %+v, next look %v, want the error %s", d.Domain, d.Status, d.Error, d.NextLookAt, code)
	}
	return d
}

// addManual connects a domain whose records its owner enters, and waits until they are computed. It
// has no MX record yet.
func addManual(t *testing.T, b *servicetest.Sandbox, w *servicetest.World, who core.Actor, name string) string {
	t.Helper()
	w.Tell("MX", name)
	id := *connectAs(t, b, who, domains.ConnectDomainsIn{Domains: []string{name}, ManualDNS: true}).DomainID
	synctest.Wait()
	return id
}

// publish enters the records of a manual domain.
func publish(t *testing.T, b *servicetest.Sandbox, w *servicetest.World, who core.Actor, id string) {
	t.Helper()
	out, err := b.Domains.GetDNSRecords(t.Context(), who, domains.DomainIn{DomainID: id})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Records {
		name, value := out.Domain, r.Value
		if r.Host != "@" {
			name = r.Host + "." + out.Domain
		}
		if r.Priority != nil {
			value = fmt.Sprintf("%d %s", *r.Priority, value)
		}
		w.Tell(r.Type, name, value)
	}
}

// A waiting domain is looked at 1, 2, 5 and 10 minutes after it was connected, then every 15
// minutes for 7 days, then hourly until the end of the 14th day. Looks that find nothing new do not
// change updated_at.
func TestWaitingDomainsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		w.Tell("NS", "wait.test", "ns.registrar.test.")
		began := time.Now()
		id := connect(t, b.Service, who, "wait.test")
		byHand := addManual(t, b, w, who, "hand.test")
		about := func(d time.Duration) (least, most time.Duration) { return d * 9 / 10, d * 11 / 10 }
		sleepUntil := func(at time.Time) {
			w.Set(func() { w.Looked = 0 })
			time.Sleep(time.Until(at) + time.Millisecond)
			synctest.Wait()
		}
		looks := 0
		var looked *domains.Domain // after the first look
		for time.Since(began) < 14*day-time.Second {
			least, most := about(15 * time.Minute)
			if time.Since(began) >= 7*day {
				least, most = about(time.Hour)
			}
			if first := []time.Duration{1, 2, 5, 10}; looks < len(first) {
				least, most = about(first[looks] * time.Minute)
				least, most = least-time.Since(began), most-time.Since(began)
			} else if time.Since(began) > 14*day-most {
				least = 0
			}
			d := waits(t, b, who, id, "pending_ns", least-time.Second, most)
			if looks == 1 {
				looked = d
			}
			if looks > 1 && !d.UpdatedAt.Equal(looked.UpdatedAt.Time) {
				t.Fatalf("a look changed updated_at from %s to %s", looked.UpdatedAt, d.UpdatedAt)
			}
			sleepUntil(d.NextLookAt.Time)
			if w.Looked == 0 {
				t.Fatalf("no look after %s", time.Since(began))
			}
			looks++
		}
		if waited := time.Since(began); looks < 800 || looks > 900 || waited > 14*day+time.Second {
			t.Errorf("%d looks, the last after %s", looks, waited)
		}
		ended(t, b, who, id, "ns_timeout")
		time.Sleep(time.Minute)
		ended(t, b, who, byHand, "records_not_ready")
	})
}

// A domain is set up when a look finds its delegation or its records; nobody needs to call
// anything. No audit row says that somebody did.
func TestLooksSetDomainsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		w.Tell("NS", "wait.test", "ns.registrar.test.")
		id, byHand := connect(t, b.Service, who, "wait.test"), addManual(t, b, w, who, "hand.test")
		time.Sleep(3 * day)
		waits(t, b, who, id, "pending_ns", 0, 17*time.Minute)
		d := waits(t, b, who, byHand, "pending_dns_records", 0, 17*time.Minute)
		time.Sleep(2 * time.Hour)
		if now := getDomain(t, b.Service, who, byHand); !now.UpdatedAt.Equal(d.UpdatedAt.Time) {
			t.Errorf("looks changed updated_at from %s to %s", d.UpdatedAt, now.UpdatedAt)
		}
		w.Tell("NS", "wait.test", "ns1.example.test.", "ns2.example.test.")
		publish(t, b, w, who, byHand)
		time.Sleep(17 * time.Minute)
		for _, id := range []string{id, byHand} {
			if d := getDomain(t, b.Service, who, id); d.Status != "complete" || d.Error != nil || !d.NextLookAt.IsZero() {
				t.Errorf("%s is %s %+v, next look %v", d.Domain, d.Status, d.Error, d.NextLookAt)
			}
		}
		time.Sleep(17 * time.Minute)
		if left := len(looksOf(t, b, id)) + len(looksOf(t, b, byHand)); left != 0 {
			t.Errorf("%d looks are planned for domains that are complete", left)
		}
		err := b.Core.Store.View(func(tx *store.Tx) error {
			for row := range store.Audits.All(tx) {
				if time.Since(row.CreatedAt) < 2*day {
					t.Errorf("audit row %+v", row)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A request that finds the DNS of a waiting domain right need not wait for the next look.
func TestADNSStatusThatIsRightSetsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		w.Tell("NS", "wait.test", "ns.registrar.test.")
		ids := []string{connect(t, b.Service, who, "wait.test"), addManual(t, b, w, who, "hand.test")}
		time.Sleep(3 * time.Hour)
		look := func(id string) {
			if _, err := b.Domains.GetDNSStatus(t.Context(), who, domains.GetDNSStatusIn{DomainID: id, Refresh: true}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for _, id := range ids {
			before := getDomain(t, b.Service, who, id)
			look(id)
			waits(t, b, who, id, before.Status, 0, 17*time.Minute)
		}
		w.Tell("NS", "wait.test", "ns1.example.test.")
		publish(t, b, w, who, ids[1])
		for _, id := range ids {
			look(id)
			time.Sleep(time.Second)
			if d := getDomain(t, b.Service, who, id); d.Status != "complete" || d.Error != nil {
				t.Errorf("%s is %s %+v", d.Domain, d.Status, d.Error)
			}
		}
	})
}

// After 14 days a domain has an error, its unproven claim ends, and a call begins anew.
func TestWaitsEndAndBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who, rival := rivals(t)
		w.Tell("NS", "wait.test", "ns.registrar.test.")
		w.Tell("NS", "mine.test", "ns.registrar.test.")
		w.Tell("NS", "setup.test", "ns.registrar.test.")
		id, byHand := connect(t, b.Service, who, "wait.test"), addManual(t, b, w, who, "hand.test")
		mine := connect(t, b.Service, who, "mine.test")
		if _, err := b.Domains.DecideClaim(t.Context(), domains.ClaimDecision{Account: who.AccountID, Domain: "mine.test"}); err != nil {
			t.Fatal(err)
		}
		no := false
		job := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "setup.test"})
		withoutDNS := setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "bare.test", SetupDNS: &no}).Resource.ID
		w.Tell("NS", "bare.test", "ns.registrar.test.")
		time.Sleep(14*day + time.Minute)
		for _, id := range []string{id, mine, job.Resource.ID, withoutDNS} {
			if d := ended(t, b, who, id, "ns_timeout"); !strings.Contains(d.Error.Message, "ns1.example.test, ns2.example.test") {
				t.Errorf("the error does not say what to do: %s", d.Error.Message)
			}
		}
		ended(t, b, who, byHand, "records_not_ready")
		if j := getJob(t, b.Service, who, job.JobID); j.Status != "error" || j.Error.Code != "ns_timeout" {
			t.Errorf("the setup is %s %+v", j.Status, j.Error)
		}
		time.Sleep(2 * time.Hour)
		for _, id := range []string{id, mine, byHand, job.Resource.ID} {
			if n := len(looksOf(t, b, id)); n != 0 {
				t.Errorf("%d looks are planned after the end", n)
			}
		}
		if r := connectAs(t, b, rival, domains.ConnectDomainsIn{Domains: []string{"mine.test"}}); r.Status != "error" {
			t.Errorf("a proven claim has ended with the wait: %+v", r)
		}
		theirs := domains.DomainIn{DomainID: connect(t, b.Service, rival, "wait.test")} // an unproven claim has ended
		if _, err := b.Domains.DeleteDomain(t.Context(), rival, theirs); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)

		for _, name := range []string{"wait.test", "mine.test"} {
			checkNS(t, b, who, name)
		}
		setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "setup.test"})
		if _, err := b.Domains.VerifyDNS(t.Context(), who, domains.DomainIn{DomainID: byHand}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, id := range []string{id, mine, job.Resource.ID} {
			waits(t, b, who, id, "pending_ns", 54*time.Second, 66*time.Second)
		}
		waits(t, b, who, byHand, "pending_dns_records", 54*time.Second, 66*time.Second)
	})
}

// A domain at a DNS provider by API whose records were not made waits for its owner, too.
func TestDomainsAtProvidersWaitForTheirRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		no, token := false, servicetest.EdgeToken
		id := setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", EdgeAPIToken: &token, SetupDNS: &no}).Resource.ID
		synctest.Wait()
		d := waits(t, w.Sandbox, w.who, id, "pending_dns_records", 54*time.Second, 66*time.Second)
		if d.StatusDetail == nil {
			t.Error("nothing says why it waits")
		}
		time.Sleep(14*day + time.Minute)
		if d := ended(t, w.Sandbox, w.who, id, "records_not_ready"); !strings.Contains(d.Error.Message, "run setup again, with setup_dns. If they are, set the nameservers of Cloudflare at the registrar of edge.test") {
			t.Errorf("the error does not say what to do: %s", d.Error.Message)
		}
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		time.Sleep(time.Minute)
		if d := w.domain(id); d.Status != "complete" || d.Error != nil {
			t.Errorf("after a setup it is %s %+v", d.Status, d.Error)
		}
	})
}

// Records that could not be computed are not computed still.
func TestRecordsThatCannotBeComputed(t *testing.T) {
	b, _, who := newWorld(t)
	d := b.Domain(t, who.AccountID, "hand.test", "manual", "error")
	servicetest.Update(t, b.Service, func(tx *store.Tx) error {
		d.DKIM, d.ErrorCode, d.ErrorMessage = nil, "internal_error", "The domain could not be provisioned."
		return store.Domains.Put(tx, d)
	})
	_, err := b.Domains.VerifyDNS(t.Context(), who, domains.DomainIn{DomainID: d.ID})
	if e, ok := core.AsError(err); !ok || e.Code != "records_not_ready" || !strings.Contains(e.Message, "The domain could not be provisioned. Run setup again.") {
		t.Errorf("%v", err)
	}
}

// Domains that waited before there were looks, and domains whose look was lost, are looked at after
// a start. The wait of the former begins then.
func TestOldWaitingDomainsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		old := map[string]string{}
		for i := range 450 { // more than a start reads at a time
			status, provider := "pending_ns", "builtin"
			if i%2 == 1 {
				status, provider = "pending_dns_records", "manual"
			}
			d := b.Domain(t, who.AccountID, fmt.Sprintf("old%d.test", i), provider, status)
			old[d.ID] = status
			w.Tell("NS", d.Name, "ns.registrar.test.")
			w.Tell("MX", d.Name)
		}
		time.Sleep(time.Hour)
		for range 2 { // a second start plans nothing twice
			b.FlushUses(t)
		}
		kept := map[string]int{}
		for id, status := range old {
			waits(t, b, who, id, status, 0, 15*time.Minute)
			if kept[status]++; kept[status] > 2 { // the others need not wait for 14 days
				servicetest.Update(t, b.Service, func(tx *store.Tx) error { return store.Domains.Delete(tx, id) })
				delete(old, id)
			}
		}
		time.Sleep(14*day - time.Minute)
		for id, status := range old {
			waits(t, b, who, id, status, 0, 66*time.Minute)
		}
		time.Sleep(2 * time.Minute)
		for id, status := range old {
			ended(t, b, who, id, map[string]string{"pending_ns": "ns_timeout", "pending_dns_records": "records_not_ready"}[status])
		}
	})
}

// connectMany connects n domains, many0.test and so on, which are delegated to others.
func connectMany(t *testing.T, b *servicetest.Sandbox, w *servicetest.World, who core.Actor, n int) (ids []string) {
	t.Helper()
	for len(ids) < n {
		var names []string
		for k := len(ids); k < min(len(ids)+100, n); k++ {
			name := fmt.Sprintf("many%d.test", k)
			names = append(names, name)
			w.Tell("NS", name, "ns.registrar.test.")
		}
		out, err := b.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: names})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Domains {
			ids = append(ids, *r.DomainID)
		}
	}
	return ids
}

// Many waiting domains and a slow resolver hold up no other job and no other account, and each
// domain is looked at in time.
func TestManyLooksHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		w.Set(func() { w.Late = time.Hour }) // no look is answered
		other, err := b.Accounts.Operator(t.Context(), b.Account(t, "other@example.test").AccountID)
		if err != nil {
			t.Fatal(err)
		}
		ids := connectMany(t, b, w, who, 500)
		time.Sleep(75 * time.Second) // the first looks at all of them are due
		theirs := connect(t, b.Service, other, "other.test")
		gone := connect(t, b.Service, other, "gone.test")
		job, err := b.Domains.DeleteDomain(t.Context(), other, domains.DomainIn{DomainID: gone})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if j := getJob(t, b.Service, other, job.JobID); j.Status != "completed" {
			t.Errorf("a deletion is %s while looks run", j.Status)
		}
		mostLate := func() (most time.Duration) {
			for _, id := range ids {
				most = max(most, time.Since(getDomain(t, b.Service, who, id).NextLookAt.Time))
			}
			return most
		}
		if late := mostLate(); late < 5*time.Second {
			t.Fatalf("the looks are only %s late: the resolver is not slow", late)
		}
		time.Sleep(90 * time.Second)
		waits(t, b, other, theirs, "pending_ns", -21*time.Second, 66*time.Second) // it takes its turns with the other account
		for range 8 {
			time.Sleep(7 * time.Minute)
			if late := mostLate(); late > 12*time.Minute { // 500 looks of 20 s, 16 at the same time, take 10.4 minutes
				t.Fatalf("a look is %s late", late)
			}
		}
		w.Set(func() { w.Late = time.Second })
		time.Sleep(28 * time.Minute)
		if late := mostLate(); late > time.Minute {
			t.Errorf("a look is %s late with a quick resolver", late)
		}
		w.Tell("NS", "many77.test", "ns1.example.test.")
		time.Sleep(17 * time.Minute)
		if d := getDomain(t, b.Service, who, ids[77]); d.Status != "complete" {
			t.Errorf("%s is %s", d.Domain, d.Status)
		}
	})
}

// Many domains whose nameservers are all changed at the same time complete by themselves, although
// each lookup takes four seconds: the looks begin within the schedule, and end as fast as 16 at
// the same time can. Meanwhile other jobs of the account and of other accounts are done at once.
// make soak-looks has 500 domains.
func TestManyDomainsComplete(t *testing.T) {
	many := 60
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_LOOKS")); err == nil {
		many = n
	}
	synctest.Test(t, func(t *testing.T) {
		w := &servicetest.World{}
		b := servicetest.New(t, func(c *core.Config) { c.Resolver, c.Limits.Domains = w, many+10 })
		w.Set(func() { w.Ours = b.Service })
		who, err := b.Accounts.Operator(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		other, err := b.Accounts.Operator(t.Context(), b.Account(t, "other@example.test").AccountID)
		if err != nil {
			t.Fatal(err)
		}
		ids := connectMany(t, b, w, who, many)
		time.Sleep(30 * time.Minute)
		w.Set(func() { w.Late = 4 * time.Second })
		began := time.Now()
		for n := range ids {
			w.Tell("NS", fmt.Sprintf("many%d.test", n), "ns1.example.test.", "ns2.example.test.")
		}
		var left []string
		for len(ids) > 0 && time.Since(began) < time.Hour {
			time.Sleep(time.Minute)
			for n, a := range []core.Actor{who, other} { // jobs of other kinds
				id := connect(t, b.Service, a, fmt.Sprintf("gone%d.test", n))
				job, err := b.Domains.DeleteDomain(t.Context(), a, domains.DomainIn{DomainID: id})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if j := getJob(t, b.Service, a, job.JobID); j.Status != "completed" {
					t.Errorf("after %s a deletion is %s", time.Since(began), j.Status)
				}
			}
			left = left[:0]
			for _, id := range ids {
				switch d := getDomain(t, b.Service, who, id); {
				case d.Error != nil:
					t.Fatalf("%s: %+v", d.Domain, d.Error)
				case d.Status != "complete":
					left = append(left, id)
				}
			}
			ids = append([]string(nil), left...)
		}
		took := time.Since(began)
		t.Logf("the last of %d domains was complete after %s", many, took)
		if len(ids) > 0 || took > 35*time.Minute {
			t.Errorf("%d domains are not complete after %s", len(ids), took)
		}
	})
}

// A wait goes on after a restart, and a look that was due in between is made at once.
func TestWaitsGoOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	w := &servicetest.World{}
	var id string
	var began time.Time
	synctest.Test(t, func(t *testing.T) {
		s, who, run := openWorld(t, dir, func(c *core.Config) { c.Resolver = w })
		run()
		w.Tell("NS", "wait.test", "ns.registrar.test.")
		began = time.Now()
		id = connect(t, s, who, "wait.test")
		time.Sleep(12 * time.Minute)
		w.Set(func() { w.Late = time.Hour })
		time.Sleep(time.Until(getDomain(t, s, who, id).NextLookAt.Time) + time.Second) // it stops within a look
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(2 * time.Hour) // the clock of each bubble begins at the same time
		w.Set(func() { w.Late = 0 })
		s, who, run := openWorld(t, dir, func(c *core.Config) { c.Resolver = w })
		run()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Run(ctx); err != nil { // what a start plans
			t.Fatal(err)
		}
		synctest.Wait()
		d := getDomain(t, s, who, id)
		if wait := time.Until(d.NextLookAt.Time); d.Status != "pending_ns" || wait <= 0 || wait > 17*time.Minute {
			t.Fatalf("it is %s, the next look is in %s", d.Status, wait)
		}
		time.Sleep(time.Until(began.Add(14*day - time.Minute)))
		if d := getDomain(t, s, who, id); d.Status != "pending_ns" {
			t.Errorf("it is %s before its wait ends", d.Status)
		}
		time.Sleep(2 * time.Minute)
		if d := getDomain(t, s, who, id); claimCode(d) != "ns_timeout" {
			t.Errorf("it is %s %+v after its wait", d.Status, d.Error)
		}
	})
}

// A domain that is deleted while Mailstead looks at it does not come back, and is not looked at
// again.
func TestDeletionDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		w.Set(func() { w.Late = 10 * time.Second })
		id := connect(t, b.Service, who, "gone.test")
		d := getDomain(t, b.Service, who, id)
		time.Sleep(time.Until(d.NextLookAt.Time) + time.Second)
		if looks := looksOf(t, b, id); len(looks) != 1 || looks[0].State != store.JobRunning {
			t.Fatalf("no look runs: %+v", looks)
		}
		if _, err := b.Domains.DeleteDomain(t.Context(), who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute) // past the next look
		err := b.Core.Store.View(func(tx *store.Tx) error {
			if d, err := store.Domains.Find(tx, id); d != nil || err != nil {
				t.Errorf("the domain is there: %+v, %v", d, err)
			}
			return nil
		})
		if n := len(looksOf(t, b, id)); n != 0 || err != nil {
			t.Errorf("%d looks are planned for a deleted domain, %v", n, err)
		}
	})
}

// A wait that begins anew during the last look of the one before goes on.
func TestAWaitBeginsAnewDuringTheLastLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		id := addManual(t, b, w, who, "hand.test")
		began := time.Now()
		time.Sleep(14*day - 70*time.Minute)
		hang := make(chan struct{})
		for {
			d := getDomain(t, b.Service, who, id)
			if d.NextLookAt.Sub(began) > 14*day-time.Second {
				break
			}
			time.Sleep(max(time.Until(d.NextLookAt.Time), 0) + time.Second)
		}
		w.Set(func() { w.Hang = hang })
		time.Sleep(time.Until(began.Add(14*day)) + time.Second)
		if looks := looksOf(t, b, id); len(looks) != 1 || looks[0].State != store.JobRunning {
			t.Fatalf("the last look does not run: %+v", looks)
		}
		setUp(t, b.Service, who, domains.SetupDomainIn{Domain: "hand.test"})
		time.Sleep(time.Second)
		again := getDomain(t, b.Service, who, id)
		w.Set(func() { w.Hang = nil })
		close(hang)
		synctest.Wait()
		d := waits(t, b, who, id, "pending_dns_records", 50*time.Second, 65*time.Second)
		if d.NextLookAt.After(again.NextLookAt.Time) {
			t.Errorf("the last look moved the next one from %s to %s", again.NextLookAt, d.NextLookAt)
		}
		time.Sleep(14*day - time.Minute)
		waits(t, b, who, id, "pending_dns_records", 0, time.Minute)
		time.Sleep(2 * time.Minute)
		ended(t, b, who, id, "records_not_ready")
	})
}

// A setup that waits says what is missing, also after that has changed.
func TestAWaitingSetupSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, a, z := rivals(t)
		w.Tell("NS", "both.test", "ns.registrar.test.")
		job := setUp(t, b.Service, a, domains.SetupDomainIn{Domain: "both.test"})
		connect(t, b.Service, z, "both.test")
		synctest.Wait()
		says := func(text string) {
			t.Helper()
			d, j := getDomain(t, b.Service, a, job.Resource.ID), getJob(t, b.Service, a, job.JobID)
			if d.StatusDetail == nil || !strings.Contains(*d.StatusDetail, text) || j.StatusDetail == nil || !strings.Contains(*j.StatusDetail, text) {
				t.Errorf("the domain says %v and the job %v, want %q", d.StatusDetail, j.StatusDetail, text)
			}
			if !j.NextAttemptAt.Equal(d.NextLookAt.Time) {
				t.Errorf("the next attempt is at %s, the next look at %s", j.NextAttemptAt, d.NextLookAt)
			}
		}
		says("is not delegated yet")
		w.Tell("NS", "both.test", "ns1.example.test.")
		time.Sleep(67 * time.Second)
		says("mailstead-claim=")
		w.Tell("TXT", "_mailstead.both.test", "mailstead-claim="+job.Resource.ID)
		time.Sleep(70 * time.Second)
		if d := getDomain(t, b.Service, a, job.Resource.ID); d.Status != "complete" {
			t.Errorf("with the record it is %s %v", d.Status, d.StatusDetail)
		}
	})
}
