package domains_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
)

// live makes edge.test complete.
func (w *edgeWorld) live() (id string) {
	w.t.Helper()
	id = w.add()
	w.settle()
	if d := w.domain(id); d.Status != "complete" {
		w.t.Fatalf("domain %+v", d)
	}
	return id
}

// A record that conflicts with somebody else's is refused with a reason. The other records are
// made, and existing equal ones are adopted.
func TestCustomRecordsAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.live()
		w.edge.Add("edge.test", "A", "shop.edge.test", "192.0.2.1")
		w.edge.Add("edge.test", "CNAME", "pages.edge.test", "pages.elsewhere.test")
		w.edge.Add("edge.test", "TXT", "both.edge.test", "theirs")
		w.edge.Add("edge.test", "TXT", "same.edge.test", "the same")
		strangers := w.edge.Strangers("edge.test")
		for _, tc := range []struct{ name, typ, value, status, why string }{
			{"shop", "CNAME", "shop.elsewhere.test", "error", `A shop.edge.test "192.0.2.1"`},
			{"pages", "TXT", "x", "error", `CNAME pages.edge.test "pages.elsewhere.test"`},
			{"both", "TXT", "ours", "active", ""},
			{"same", "TXT", "the same", "active", ""},
			{"www", "CNAME", "www.elsewhere.test", "active", ""},
		} {
			r := w.create(id, tc.name, tc.typ, tc.value)
			if r.Status != tc.status || (r.Error == nil) != (tc.why == "") || r.Error != nil && !strings.Contains(*r.Error, tc.why) {
				t.Errorf("%s %s: %+v", tc.name, tc.typ, r)
			}
		}
		w.wantOurs([]string{"TXT both.edge.test ours", "CNAME www.edge.test www.elsewhere.test"})

		out, err := w.Zones.ListCustomDNSRecords(t.Context(), w.who, zones.ListCustomDNSRecordsIn{DomainID: id})
		if err != nil || len(out.Records) != 5 || out.DNSProvider != "cloudflare" {
			t.Fatalf("list %+v, %v", out, err)
		}
		both, www, same := out.Records[2].ID, out.Records[4].ID, out.Records[3].ID
		other := "app.elsewhere.test"
		changed, err := w.Zones.UpdateCustomDNSRecord(t.Context(), w.who, zones.UpdateCustomDNSRecordIn{DomainID: id, RecordID: www, Value: &other})
		if err != nil || changed.Record.Status != "active" {
			t.Errorf("update: %+v, %v", changed, err)
		}
		for _, r := range []string{both, same} {
			if _, err := w.Zones.DeleteCustomDNSRecord(t.Context(), w.who, zones.CustomDNSRecordIn{DomainID: id, RecordID: r}); err != nil {
				t.Error(err)
			}
		}
		w.wantOurs([]string{"CNAME www.edge.test app.elsewhere.test"})
		if got := w.edge.Strangers("edge.test"); strings.Join(got, "|") != strings.Join(strangers, "|") {
			t.Errorf("others have %s, had %s", got, strangers)
		}

		// Once the stranger's record is gone, setup makes ours.
		w.edge.Remove("edge.test", "A", "shop.edge.test")
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		w.settle()
		if r := w.record(id, out.Records[0].ID); r.Status != "active" || r.Error != nil {
			t.Errorf("record %+v", r)
		}
	})
}

// While the provider does not answer, a change does not delay the request for long; it is made
// later.
func TestEdgeRecordsWaitForTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.live()
		w.edge.Set(func() { w.edge.Meddle = func(string) error { return servicetest.ErrNoAnswer } })
		start := time.Now()
		r := w.create(id, "own", "TXT", "x")
		if took := time.Since(start); r.Status != "pending" || r.Error != nil || took != 5*time.Second {
			t.Errorf("after %s the record is %+v", took, r)
		}
		gone := w.create(id, "gone", "TXT", "y")
		if _, err := w.Zones.DeleteCustomDNSRecord(t.Context(), w.who, zones.CustomDNSRecordIn{DomainID: id, RecordID: gone.ID}); err != nil {
			t.Error(err)
		}
		w.edge.Set(func() { w.edge.Meddle = nil })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if r := w.record(id, r.ID); r.Status != "active" {
			t.Errorf("record %+v", r)
		}
		w.wantOurs([]string{"TXT own.edge.test x"})

		// A token that is dead is no reason to wait.
		w.edge.Set(func() { clear(w.edge.Tokens) })
		start = time.Now()
		r = w.create(id, "late", "TXT", "z")
		if took := time.Since(start); r.Status != "error" || r.Error == nil || !strings.Contains(*r.Error, "does not accept the API token") || took > 4*time.Second {
			t.Errorf("after %s the record is %+v", took, r)
		}
		if d := w.domain(id); d.Status != "complete" || d.StatusDetail == nil || !strings.HasPrefix(*d.StatusDetail, "edge_token_invalid: ") {
			t.Errorf("domain %+v", d)
		}
		w.edge.Set(func() { w.edge.Tokens["new"] = "edit" })
		token := "new"
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", EdgeAPIToken: &token})
		w.settle()
		if r := w.record(id, r.ID); r.Status != "active" || r.Error != nil {
			t.Errorf("record %+v", r)
		}
		if d := w.domain(id); d.StatusDetail != nil {
			t.Errorf("status detail %s", *d.StatusDetail)
		}
	})
}

// A record that is added while its domain is being provisioned is there in the end, wherever the
// provisioning was.
func TestEdgeRecordsOfADomainInProgress(t *testing.T) {
	for _, moment := range []string{"records", "apply", "applied"} {
		synctest.Test(t, func(t *testing.T) {
			w := newEdgeWorld(t)
			reads := 0
			reached, goOn := make(chan struct{}), make(chan struct{})
			w.edge.Meddle = func(call string) error {
				if call == "records" {
					reads++
				}
				if reads == 2 && call == moment { // the first read is of connect
					close(reached)
					<-goOn
					reads++
				}
				return nil
			}
			id := w.add()
			<-reached
			r := w.create(id, "own", "TXT", "x")
			if r.Status != "pending" {
				t.Errorf("record %+v", r)
			}
			close(goOn)
			w.settle()
			if r := w.record(id, r.ID); r.Status != "active" {
				t.Errorf("record added at %s: %+v", moment, r)
			}
			w.wantOurs([]string{"TXT own.edge.test x"})
		})
	}
}

// The addresses of an edge domain are its owner's until its bare name is said to lead here, which a
// redirect needs. A website that is there stays, and does not keep other records from changing.
func TestRedirectAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.live()
		redirect := func(want string) *core.JobResponse {
			t.Helper()
			out, err := w.Domains.SetRedirect(t.Context(), w.who, domains.SetRedirectIn{DomainID: id, RedirectURL: "https://example.net/"})
			if err != nil {
				t.Fatal(err)
			}
			w.settle()
			j := getJob(t, w.Service, w.who, out.JobID)
			if j.Status != want || j.Steps[0].Name != "edge_records" {
				t.Errorf("job %+v %+v", j, j.Error)
			}
			return j
		}
		apex := func(mode string) {
			t.Helper()
			if _, err := setApex(t, w.Service, w.who, id, domains.ApexIn{Mode: mode}); err != nil {
				t.Fatal(err)
			}
			w.settle()
		}
		_, err := w.Domains.SetRedirect(t.Context(), w.who, domains.SetRedirectIn{DomainID: id, RedirectURL: "https://example.net/"})
		if code(err) != "apex_elsewhere" || !strings.Contains(err.Error(), id) {
			t.Errorf("a redirect of what leads elsewhere: %v", err)
		}
		w.wantOurs(nil)
		apex("here")
		redirect("completed")
		if got := w.edge.Ours("edge.test"); !strings.Contains(strings.Join(got, "|"), "A edge.test 127.0.0.1") {
			t.Errorf("redirected, ours are %s", brief(got))
		}
		if _, err := w.Domains.DeleteRedirect(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		apex("elsewhere")
		w.wantOurs(nil)
		w.edge.Add("edge.test", "A", "edge.test", "192.0.2.1")
		apex("here")
		if j := redirect("error"); j.Error.Code != "zone_conflict" || !strings.Contains(j.Error.Message, `A edge.test "192.0.2.1"`) {
			t.Errorf("error %+v", j.Error)
		}
		if r := w.create(id, "own", "TXT", "x"); r.Status != "active" {
			t.Errorf("record %+v", r)
		}
		if d := w.domain(id); d.StatusDetail == nil || !strings.HasPrefix(*d.StatusDetail, "zone_conflict: ") {
			t.Errorf("domain %+v", d)
		}
		if got := w.edge.Strangers("edge.test"); len(got) != 1 {
			t.Errorf("others have %s", got)
		}
	})
}

// An invalid token, or a deleted zone, does not prevent a deletion; the job says what remains.
func TestDeleteWithADeadToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.live()
		w.create(id, "own", "TXT", "x")
		w.edge.Set(func() { clear(w.edge.Tokens) })
		job, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id})
		if err != nil {
			t.Fatal(err)
		}
		w.settle()
		j := getJob(t, w.Service, w.who, job.JobID)
		if j.Status != "completed" || j.Attempts != 3 || j.Steps[1].Status != "error" || j.Steps[1].Error == nil {
			t.Fatalf("job %+v", j)
		}
		for _, part := range []string{"edge_token_invalid", "mailstead:" + id, "MX edge.test", "TXT ms1._domainkey.edge.test", "1 of your own"} {
			if !strings.Contains(*j.Steps[1].Error, part) {
				t.Errorf("the step does not say %q: %s", part, *j.Steps[1].Error)
			}
		}
		if _, err := w.Domains.GetDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err == nil {
			t.Error("the domain is there")
		}
	})
}

// A sync that runs while its domain is deleted leaves nothing behind.
func TestDeletionWaitsForASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.live()
		reached, goOn := make(chan struct{}), make(chan struct{})
		first := true
		w.edge.Set(func() {
			w.edge.Meddle = func(call string) error {
				if call == "apply" && first {
					first = false
					close(reached)
					<-goOn
				}
				return nil
			}
		})
		w.create(id, "own", "TXT", "x") // waits until its timeout
		<-reached
		w.create(id, "more", "TXT", "y")
		job, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		close(goOn)
		w.settle()
		if j := getJob(t, w.Service, w.who, job.JobID); j.Status != "completed" {
			t.Errorf("job %+v", j)
		}
		if left := w.edge.Ours("edge.test"); len(left) != 0 {
			t.Errorf("left: %s", left)
		}
	})
}

// Without its DNS an edge domain waits for another setup; domains whose DNS is elsewhere are not
// moved.
func TestEdgeSetupInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		token, no := servicetest.EdgeToken, false
		job := setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", EdgeAPIToken: &token, SetupDNS: &no})
		w.settle()
		if d := w.domain(job.Resource.ID); d.Status != "pending_dns_records" || d.StatusDetail == nil || len(w.edge.Ours("edge.test")) != 0 {
			t.Errorf("domain %+v", d)
		}
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", RedirectURL: "https://example.net/"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := w.domain(job.Resource.ID); d.Status != "complete" || d.StatusDetail != nil {
			t.Errorf("domain %+v", d)
		}
		if got := strings.Join(w.edge.Ours("edge.test"), "|"); !strings.Contains(got, "A edge.test 127.0.0.1") {
			t.Errorf("ours are %s", got)
		}
		for _, provider := range []string{"builtin", "manual"} {
			w.Domain(t, w.Owner.AccountID, provider+".test", provider, "complete")
			if _, err := w.Domains.SetupDomain(t.Context(), w.who, domains.SetupDomainIn{Domain: provider + ".test", EdgeAPIToken: &token}); err == nil {
				t.Errorf("a %s domain was moved", provider)
			}
		}
	})
}

// fixed is a registrar whose domains stay with its own DNS, which is the edge provider's.
type fixed struct{ servicetest.Registrar }

func (fixed) FixedNameservers() bool { return true }

// A domain that is bought where the edge provider is has its zone from then on. A bad token is
// found out before anything is paid.
func TestRegisterAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		shop := servicetest.NewShop()
		bought := func(call string) error {
			if call == "charged" {
				w.edge.AddZone("bakery.com")
			}
			return nil
		}
		w.Core.ChangeSettings(func(c *core.Settings) { c.Registrars = []servicetest.Registrar{fixed{shop.Registrar(bought)}} })
		price := 11.0
		for _, token := range []string{"nonsense", servicetest.EdgeToken} {
			job := setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "bakery.com", Register: true, Price: &price, EdgeAPIToken: &token})
			w.settle()
			j := getJob(t, w.Service, w.who, job.JobID)
			well := token == servicetest.EdgeToken
			if (j.Status == "completed") != well || !well && j.Error.Code != "edge_token_invalid" {
				t.Errorf("setup with %s: %+v %+v", token, j, j.Error)
			}
			if paid := shop.Charges("bakery.com"); (paid == 1) != well {
				t.Errorf("with %s it was paid %d times", token, paid)
			}
		}
		if got := brief(w.edge.Ours("bakery.com")); len(got) != 5 || len(shop.NameserversOf("bakery.com")) != 0 {
			t.Errorf("ours are %s, nameservers %s", got, shop.NameserversOf("bakery.com"))
		}
	})
}

func TestWildcardsAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.live()
		for name, value := range map[string]string{"*": "wild.elsewhere.test", "*.sub": "sub.elsewhere.test"} {
			if r := w.create(id, name, "CNAME", value); r.Status != "active" || r.Name != name {
				t.Errorf("%s: %+v", name, r)
			}
		}
		w.wantOurs([]string{"CNAME *.edge.test wild.elsewhere.test", "CNAME *.sub.edge.test sub.elsewhere.test"})
	})
}
