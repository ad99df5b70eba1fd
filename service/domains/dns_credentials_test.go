package domains_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// credential adds a credential for the provider that marks no records.
func (w *edgeWorld) credential(token string) (string, error) {
	c, err := w.Edge.CreateDNSCredential(w.t.Context(), w.who, edge.CreateDNSCredentialIn{
		Provider: store.DomainProviderHetzner, Name: "ours", DNSSecrets: edge.DNSSecrets{Token: &token},
	})
	if err != nil {
		return "", err
	}
	return c.ID, nil
}

func (w *edgeWorld) mustCredential() string {
	w.t.Helper()
	id, err := w.credential(servicetest.EdgeToken)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// connectWith connects edge.test with a credential and returns its id.
func (w *edgeWorld) connectWith(credential string, replace bool) (id, why string) {
	w.t.Helper()
	out, err := w.Domains.ConnectDomains(w.t.Context(), w.who, domains.ConnectDomainsIn{Domains: []string{"edge.test"}, DNSCredentialID: &credential, Replace: replace})
	if err != nil {
		w.t.Fatal(err)
	}
	if d := out.Domains[0]; d.Error != nil {
		return "", *d.Error
	}
	return *out.Domains[0].DomainID, ""
}

func (w *edgeWorld) stored(id string) *store.Domain {
	w.t.Helper()
	d, err := w.Domains.DomainByID(id)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func code(err error) string {
	if e, ok := core.AsError(err); ok {
		return e.Code
	}
	return ""
}

// A credential is tried when it is made, shows no secret, and stays while a domain uses it.
func TestDNSCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		if _, err := w.credential("no-such-token"); code(err) != "credential_invalid" || strings.Contains(err.Error(), "no-such-token") {
			t.Errorf("a bad token: %v", err)
		}
		w.edge.Meddle = func(string) error { return servicetest.ErrNoAnswer }
		if _, err := w.credential(servicetest.EdgeToken); code(err) != "upstream_error" {
			t.Errorf("no answer: %v", err)
		}
		w.edge.Meddle = nil
		id := w.mustCredential()
		domain, why := w.connectWith(id, false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		if d := w.domain(domain); d.DNSProvider != "hetzner" || d.Status != "complete" || d.DNSCredentialID == nil || *d.DNSCredentialID != id {
			t.Errorf("domain %+v", d)
		}
		_, err := w.Edge.DeleteDNSCredential(t.Context(), w.who, edge.DNSCredentialIn{CredentialID: id})
		if code(err) != "in_use" {
			t.Errorf("deleted: %v", err)
		}
		elsewhere := []string{"other.test"}
		if _, err := w.Edge.UpdateDNSCredential(t.Context(), w.who, edge.UpdateDNSCredentialIn{CredentialID: id, Zones: &elsewhere}); err != nil {
			t.Fatal(err)
		}
		out, err := w.Domains.ConnectDomains(t.Context(), w.who, domains.ConnectDomainsIn{Domains: []string{"mail.edge.test"}, DNSCredentialID: &id})
		if err != nil || out.Domains[0].Error == nil || !strings.HasPrefix(*out.Domains[0].Error, "zone_not_found") {
			t.Errorf("a domain outside of the zones: %+v, %v", out, err)
		}
		other := core.Actor{AccountID: "acc_other", Role: "owner"}
		if _, err := w.Edge.DeleteDNSCredential(t.Context(), other, edge.DNSCredentialIn{CredentialID: id}); code(err) != "not_found" {
			t.Errorf("another account: %v", err)
		}
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: domain}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if ours := w.edge.Ours("edge.test"); len(ours) != 0 {
			t.Errorf("left: %s", ours)
		}
		if _, err := w.Edge.DeleteDNSCredential(t.Context(), w.who, edge.DNSCredentialIn{CredentialID: id}); err != nil {
			t.Error(err)
		}
	})
}

// Where records cannot be marked, ours are known by their values, and a credential alone proves no
// claim.
func TestRecordsAreOursByValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.Add("edge.test", "TXT", "edge.test", "somebody's")
		w.edge.Add("edge.test", "A", "shop.edge.test", "192.0.2.1")
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		w.wantOurs(nil)
		if d := w.stored(id); d.Claim != store.ClaimOpen {
			t.Errorf("the claim is %q, proven by %s", d.Claim, d.ProvenBy)
		}
		w.create(id, "x", "TXT", `"a" "b"`)
		w.settle()
		w.wantOurs([]string{"TXT x.edge.test ab"})
		changes := w.edge.Changes
		w.create(id, "y", "TXT", "y")
		w.settle()
		if w.edge.Changes != changes+1 {
			t.Errorf("%d changes for one record", w.edge.Changes-changes)
		}
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if ours, theirs := w.edge.Ours("edge.test"), w.edge.Strangers("edge.test"); len(ours) != 0 || len(theirs) != 2 {
			t.Errorf("ours %s, theirs %s", ours, theirs)
		}
	})
}

// The store knows what is about to be made before the provider is asked, so that nothing is lost if
// the process ends between the two, or if the answer is lost.
func TestWhatIsMadeIsNotedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		lost := 0
		w.edge.Meddle = func(call string) error {
			if call != "applied" || lost > 0 {
				return nil
			}
			lost++
			err := w.Core.Store.View(func(tx *store.Tx) error {
				for _, d := range store.DomainsByAccount.Asc(tx, w.who.AccountID, "") {
					if n := len(ownRows(tx, d.ID)); d.Name == "edge.test" && n != len(managed) {
						t.Errorf("%d records are noted", n)
					}
				}
				return nil
			})
			return errors.Join(err, servicetest.ErrNoAnswer)
		}
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		w.wantOurs(nil)
		if lost != 1 {
			t.Errorf("%d answers were lost", lost)
		}
		w.wantNoted(id)
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if ours := w.edge.Ours("edge.test"); len(ours) != 0 {
			t.Errorf("left: %s", ours)
		}
	})
}

// If somebody else changes records meanwhile, they are read and planned again, but not for ever.
func TestChangedRecordsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		times := 0
		w.edge.Set(func() {
			w.edge.Meddle = func(call string) error {
				if call == "apply" && times < 3 {
					times++
					return servicetest.ErrChanged
				}
				return nil
			}
		})
		r := w.create(id, "x", "TXT", "x")
		if times != 3 || r.Status != "active" {
			t.Errorf("after %d times the record is %+v", times, r)
		}
		tries := 0
		w.edge.Set(func() {
			w.edge.Meddle = func(call string) error {
				if call == "apply" {
					tries++
					return servicetest.ErrChanged
				}
				return nil
			}
		})
		w.create(id, "y", "TXT", "y")
		w.settle()
		if tries > 6*24 {
			t.Errorf("tried %d times", tries)
		}
	})
}

// Without replace, mail records of others are a conflict; with it they are replaced and kept, the
// SPF record is merged, and all can be put back.
func TestReplacedRecordsArePutBack(t *testing.T) {
	for _, provider := range []string{store.DomainProviderHetzner, store.DomainProviderCloudflare} {
		t.Run(provider, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEdgeWorld(t)
				w.edge.Takes = true
				w.edge.Add("edge.test", "MX", "edge.test", "5 mx.elsewhere.test")
				w.edge.Add("edge.test", "MX", "edge.test", "9 mx2.elsewhere.test")
				w.edge.Add("edge.test", "TXT", "edge.test", "v=spf1 mx include:_spf.elsewhere.test -all")
				w.edge.Add("edge.test", "TXT", "edge.test", "somebody's")
				before := w.edge.Strangers("edge.test")
				token := servicetest.EdgeToken
				c, err := w.Edge.CreateDNSCredential(t.Context(), w.who, edge.CreateDNSCredentialIn{Provider: provider, Name: "ours", DNSSecrets: edge.DNSSecrets{Token: &token}})
				if err != nil {
					t.Fatal(err)
				}
				if _, why := w.connectWith(c.ID, false); !strings.HasPrefix(why, "zone_conflict") {
					t.Errorf("without replace: %s", why)
				}
				plan, err := w.Edge.PreviewDNSPlan(t.Context(), w.who, edge.PreviewDNSPlanIn{Domain: "edge.test", DNSCredentialID: c.ID})
				if err != nil || len(plan.ForeignConflicts) != 2 { // the MX records; by its mx the SPF record permits this host, once they are ours
					t.Errorf("plan %+v, %v", plan, err)
				}
				plan, err = w.Edge.PreviewDNSPlan(t.Context(), w.who, edge.PreviewDNSPlanIn{Domain: "edge.test", DNSCredentialID: c.ID, Replace: true})
				if err != nil || len(plan.ForeignConflicts) != 0 || plan.Changes[0].Action != "update" || plan.Changes[0].Type != "MX" || len(*plan.Changes[0].Before) != 2 || len(*plan.Changes[0].After) != 1 {
					t.Errorf("plan with replace %+v, %v", plan, err)
				}
				id, why := w.connectWith(c.ID, true)
				if why != "" {
					t.Fatal(why)
				}
				w.settle()
				const merged = "TXT edge.test v=spf1 mx ip4:127.0.0.1 a:mx.elsewhere.test a:mx2.elsewhere.test include:_spf.elsewhere.test -all"
				w.wantOurs([]string{merged}, "TXT edge.test v=spf1 mx ip4:127.0.0.1 ~all")
				if d := w.domain(id); len(d.Replaced) != 3 || d.Replaced[0].Value != "5 mx.elsewhere.test" {
					t.Errorf("replaced %+v", d.Replaced)
				}
				w.create(id, "x", "TXT", "x") // the merged record stays
				w.settle()
				w.wantOurs([]string{merged, "TXT x.edge.test x"}, "TXT edge.test v=spf1 mx ip4:127.0.0.1 ~all")
				if _, err := w.Edge.PutBackZoneRecords(t.Context(), w.who, edge.PutBackZoneRecordsIn{DomainID: id}); err != nil {
					t.Fatal(err)
				}
				if d := w.domain(id); len(d.Replaced) != 0 {
					t.Errorf("replaced %+v", d.Replaced)
				}
				if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
					t.Fatal(err)
				}
				w.settle()
				all := slices.Sorted(slices.Values(append(w.edge.Ours("edge.test"), w.edge.Strangers("edge.test")...)))
				if !slices.Equal(all, before) {
					t.Errorf("the zone has %q, not %q", all, before)
				}
			})
		})
	}
}

// A refused credential has an error, its domains an issue, and the owner one alert; it is over when
// the provider accepts it again.
func TestRefusedCredentialIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		credential := w.mustCredential()
		id, why := w.connectWith(credential, false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		look := func() (refused bool, issue bool) {
			list, err := w.Edge.ListDNSCredentials(t.Context(), w.who)
			if err != nil || list.Count != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			issue = slices.ContainsFunc(w.domain(id).DNSHealth.Issues, func(i domains.DNSIssue) bool { return i.Code == "credential_invalid" })
			return list.Data[0].Error != nil, issue
		}
		w.edge.Set(func() { delete(w.edge.Tokens, servicetest.EdgeToken) })
		w.create(id, "x", "TXT", "x")
		w.create(id, "y", "TXT", "y")
		time.Sleep(time.Minute)
		if refused, issue := look(); !refused || !issue {
			t.Errorf("refused %v, issue %v", refused, issue)
		}
		w.edge.Set(func() { w.edge.Tokens["new"] = "edit" })
		fresh := "new"
		if _, err := w.Edge.UpdateDNSCredential(t.Context(), w.who, edge.UpdateDNSCredentialIn{CredentialID: credential, DNSSecrets: edge.DNSSecrets{Token: &fresh}}); err != nil {
			t.Fatal(err)
		}
		if refused, issue := look(); refused || issue {
			t.Errorf("after the change refused %v, issue %v", refused, issue)
		}
	})
}

// PATCH with a credential moves a domain when the new provider has its records.
func TestDomainMovesToAProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.add() // with a token at Cloudflare
		w.settle()
		credential := w.mustCredential()
		d, err := w.Domains.UpdateDomain(t.Context(), w.who, domains.UpdateDomainIn{DomainID: id, DNSCredentialID: &credential})
		if err != nil || d.JobID == nil {
			t.Fatalf("%+v, %v", d, err)
		}
		w.settle()
		if d := w.stored(id); d.DNSProvider != "hetzner" || d.DNSCredentialID != credential || d.Move != nil || len(d.EdgeToken) != 0 || d.Status != "complete" {
			t.Errorf("moved to %s with %s: %+v, %s", d.DNSProvider, d.DNSCredentialID, d.Move, d.StatusDetail)
		}
		unknown := "dnsc_unknown"
		if _, err := w.Domains.UpdateDomain(t.Context(), w.who, domains.UpdateDomainIn{DomainID: id, DNSCredentialID: &unknown}); code(err) != "validation_error" {
			t.Errorf("an unknown credential: %v", err)
		}
	})
}

// A plan has the records that are live: not those of an import that is being written, nor those
// that were removed.
func TestPlanHasLiveRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := connect(t, w.Service, w.who, "edge.test")
		w.create(id, "live", "TXT", "live")
		w.settle()
		err := w.Core.Store.Update(func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, id)
			if err != nil {
				return err
			}
			d.ZoneGeneration = 7
			other := store.CustomRecord{DomainID: id, Type: "TXT", Value: `"x"`, TTL: 300, CreatedAt: tx.Now(), UpdatedAt: tx.Now()}
			next, past := other, other
			next.ID, next.Name, next.From = w.Core.Store.NewID("rec"), "next.edge.test", 8
			past.ID, past.Name, past.Until = w.Core.Store.NewID("rec"), "past.edge.test", 6
			return errors.Join(store.Domains.Put(tx, d), store.CustomRecords.Put(tx, &next), store.CustomRecords.Put(tx, &past))
		})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := w.Edge.PreviewDNSPlan(t.Context(), w.who, edge.PreviewDNSPlanIn{Domain: "edge.test", DNSCredentialID: w.mustCredential()})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range plan.Changes {
			names = append(names, c.Name)
		}
		if !slices.Contains(names, "live") || slices.Contains(names, "next") || slices.Contains(names, "past") {
			t.Errorf("the plan has %s", names)
		}
	})
}

// TestZoneFileOfOthers: a record of others that no zone file can have is left out of it.
func TestZoneFileOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id, why := w.connectWith(w.mustCredential(), false)
		if why != "" {
			t.Fatal(why)
		}
		w.settle()
		w.edge.Add("edge.test", "A", "shop.edge.test", "192.0.2.1")
		w.edge.Add("edge.test", "CAA", "odd.edge.test", "0 issue")
		out, err := w.Zones.GetZone(t.Context(), w.who, zones.GetZoneIn{DomainID: id, Live: true})
		isOdd := func(r zones.RecordSet) bool { return r.Name == "odd" && r.Source == "foreign" }
		if err != nil || !slices.ContainsFunc(out.Zone.Records, isOdd) {
			t.Errorf("%+v, %v", out, err)
		}
		out, err = w.Zones.GetZone(t.Context(), w.who, zones.GetZoneIn{DomainID: id, Live: true, Accept: "text/dns"})
		if err != nil {
			t.Fatal(err)
		}
		defer out.File.Body.Close()
		text, err := io.ReadAll(out.File.Body)
		if err != nil || !strings.Contains(string(text), "shop.edge.test.") || strings.Contains(string(text), "odd.edge.test.") {
			t.Errorf("%s, %v", text, err)
		}
	})
}
