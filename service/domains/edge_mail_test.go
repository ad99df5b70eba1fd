package domains_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mailstead/mailstead/internal/soak"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const (
	ourMX     = "MX edge.test 10 mail.example.test"
	ourSPF    = "TXT edge.test v=spf1 mx ip4:127.0.0.1 ~all"
	ourPolicy = "TXT _dmarc.edge.test v=DMARC1; p=reject"
)

// usedZone is a zone edge.test whose owner has mail elsewhere.
var usedZone = []string{
	"MX edge.test 5 mx1.elsewhere.test",
	"MX edge.test 9 mx2.elsewhere.test",
	"TXT _dmarc.edge.test v=DMARC1; p=none; rua=mailto:dmarc@elsewhere.test",
	"TXT edge.test somebody's",
	"TXT edge.test v=spf1 mx include:_spf.elsewhere.test -all",
}

// mergedSPF is the SPF record of usedZone with our terms.
const mergedSPF = "TXT edge.test v=spf1 mx ip4:127.0.0.1 a:mx1.elsewhere.test a:mx2.elsewhere.test include:_spf.elsewhere.test -all"

// newUsedWorld returns a world in which edge.test has records of its owner, as "TYPE name value".
func newUsedWorld(t *testing.T, records ...string) *edgeWorld {
	t.Helper()
	w := newEdgeWorld(t)
	w.edge.Takes = true
	for _, line := range records {
		typ, rest, _ := strings.Cut(line, " ")
		name, value, _ := strings.Cut(rest, " ")
		w.edge.Add("edge.test", typ, name, value)
	}
	return w
}

// connectMail connects edge.test with a credential, and returns its id.
func (w *edgeWorld) connectMail(credential, mx string, replace bool) string {
	w.t.Helper()
	in := domains.ConnectDomainsIn{Domains: []string{"edge.test"}, DNSCredentialID: &credential, MX: mx, Replace: replace}
	out, err := w.Domains.ConnectDomains(w.t.Context(), w.who, in)
	if err != nil {
		w.t.Fatal(err)
	}
	if d := out.Domains[0]; d.Error != nil {
		w.t.Fatal(*d.Error)
	}
	w.settle()
	return *out.Domains[0].DomainID
}

// setMX says where the mail of a domain goes.
func (w *edgeWorld) setMX(id, mode string, replace bool) error {
	w.t.Helper()
	_, err := w.Domains.UpdateDomain(w.t.Context(), w.who, domains.UpdateDomainIn{DomainID: id, MX: &domains.MXIn{Mode: mode}, Replace: replace})
	w.settle()
	return err
}

// wantZone compares the zone edge.test with some records, and our keys.
func (w *edgeWorld) wantZone(what string, lines ...string) {
	w.t.Helper()
	want := append(slices.Clone(lines), managed[3], managed[4])
	slices.Sort(want)
	got := slices.Sorted(slices.Values(brief(append(w.edge.Ours("edge.test"), w.edge.Strangers("edge.test")...))))
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: the zone has\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantReplaced compares what was replaced for a domain.
func (w *edgeWorld) wantReplaced(what, id string, want ...string) {
	w.t.Helper()
	got := []string{}
	for _, r := range w.domain(id).Replaced {
		name := strings.TrimPrefix(r.Name+".edge.test", "@.")
		got = append(got, r.Type+" "+name+" "+r.Value)
	}
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		w.t.Errorf("%s: replaced are %q, want %q", what, got, want)
	}
}

// mxIssue returns what the health of a domain says about MX records of others; "" for nothing.
func (w *edgeWorld) mxIssue(id string) string {
	w.t.Helper()
	for _, i := range w.domain(id).DNSHealth.Issues {
		if i.Code == "zone_conflict" && i.Purpose == "MX" {
			return i.Message
		}
	}
	return ""
}

// eachProvider runs a test at a provider that marks our records, and at one that does not.
func eachProvider(t *testing.T, test func(*testing.T, string)) {
	for _, provider := range []string{store.DomainProviderHetzner, store.DomainProviderCloudflare} {
		t.Run(provider, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, provider) })
		})
	}
}

// without returns the lines but some.
func without(lines []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return slices.Contains(some, l) })
}

// A domain whose mail is elsewhere is connected without touching a record of others. When its mail
// comes here, their MX records are replaced, what their SPF record permits stays permitted, and
// their policy stays. All of it can be put back, which the domain then says, and taken over again.
func TestMailElsewhereStaysUntilItIsBrought(t *testing.T) {
	eachProvider(t, func(t *testing.T, provider string) {
		w := newUsedWorld(t, usedZone...)
		credential := w.credentialAt(provider, servicetest.EdgeToken)
		plan := func(mx string, replace bool) *edge.DNSPlan {
			t.Helper()
			out, err := w.Edge.PreviewDNSPlan(t.Context(), w.who, edge.PreviewDNSPlanIn{Domain: "edge.test", DNSCredentialID: credential, MX: mx, Replace: replace})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		for _, c := range plan("elsewhere", false).Changes {
			if c.Name == "@" && c.Type == "MX" || (c.Name == "@" || c.Name == "_dmarc") && c.Action != "keep" {
				t.Errorf("the plan has %+v", c)
			}
		}
		if p := plan("elsewhere", false); len(p.ForeignConflicts) != 0 {
			t.Errorf("conflicts: %+v", p.ForeignConflicts)
		}
		if p := plan("here", false); len(p.ForeignConflicts) != 2 {
			t.Errorf("conflicts of mail that comes here: %+v", p.ForeignConflicts)
		}
		id := w.connectMail(credential, "elsewhere", false)
		w.wantZone("elsewhere", usedZone...)
		d := w.domain(id)
		if d.Status != "pending_dns_records" || d.DMARCOverride == nil || d.DMARCOverride.Value != "v=DMARC1; p=none; rua=mailto:dmarc@elsewhere.test" ||
			!slices.Equal(d.MX.Hosts, []string{"mx1.elsewhere.test", "mx2.elsewhere.test"}) || len(d.Replaced) != 0 {
			t.Errorf("elsewhere: %+v, %+v, %+v", d, d.DMARCOverride, d.MX)
		}
		if err := w.setMX(id, "here", true); err != nil {
			t.Fatal(err)
		}
		here := []string{ourMX, mergedSPF, usedZone[2], usedZone[3]}
		w.wantZone("here", here...)
		w.wantReplaced("here", id, usedZone[0], usedZone[1], usedZone[4])
		if d := w.domain(id); d.Status != "complete" || w.mxIssue(id) != "" || !slices.Equal(d.MX.Hosts, []string{"mail.example.test"}) {
			t.Errorf("here: %+v, %+v", d, d.DNSHealth)
		}
		if _, err := w.Edge.PutBackZoneRecords(t.Context(), w.who, edge.PutBackZoneRecordsIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		wantBack := func() {
			t.Helper()
			w.wantZone("put back", usedZone...)
			w.wantReplaced("put back", id)
			d := w.domain(id)
			if d.DNSHealth.Status == "healthy" || !strings.Contains(w.mxIssue(id), "mx1.elsewhere.test") || !strings.Contains(w.mxIssue(id), id) ||
				d.StatusDetail == nil || !strings.HasPrefix(*d.StatusDetail, "zone_conflict: ") || !strings.Contains(*d.StatusDetail, `"replace": true`) || d.MX.Hosts[0] != "mx1.elsewhere.test" {
				t.Errorf("put back: %+v, %+v", d, d.DNSHealth)
			}
		}
		wantBack()
		r := w.create(id, "x", "TXT", "x") // another sync finds them
		w.settle()
		if _, err := w.Zones.DeleteCustomDNSRecord(t.Context(), w.who, zones.CustomDNSRecordIn{DomainID: id, RecordID: r.ID}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		wantBack()
		if err := w.setMX(id, "here", true); err != nil {
			t.Fatal(err)
		}
		w.wantZone("here again", here...)
		w.wantReplaced("here again", id, usedZone[0], usedZone[1], usedZone[4])
		if d := w.domain(id); w.mxIssue(id) != "" || d.StatusDetail != nil && strings.Contains(*d.StatusDetail, "zone_conflict") {
			t.Errorf("here again: %+v", d)
		}
	})
}

// replace merges the SPF record at once while the mail is elsewhere, and touches no MX record.
func TestReplaceLeavesMailThatIsElsewhere(t *testing.T) {
	eachProvider(t, func(t *testing.T, provider string) {
		w := newUsedWorld(t, usedZone...)
		id := w.connectMail(w.credentialAt(provider, servicetest.EdgeToken), "elsewhere", true)
		merged := append(without(usedZone, usedZone[4]), mergedSPF)
		w.wantZone("connected", merged...)
		w.wantReplaced("connected", id, usedZone[4])
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", Replace: true})
		w.settle()
		w.wantZone("set up", merged...)
		if err := w.setMX(id, "here", true); err != nil {
			t.Fatal(err)
		}
		w.wantZone("here", ourMX, mergedSPF, usedZone[2], usedZone[3])
		w.wantReplaced("here", id, usedZone[0], usedZone[1], usedZone[4])
		if _, err := w.Edge.PutBackZoneRecords(t.Context(), w.who, edge.PutBackZoneRecordsIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.wantZone("put back", usedZone...)
	})
}

// Mail that comes here without replace is a conflict of which the domain says what to do.
func TestMailThatReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newUsedWorld(t, usedZone...)
		id := w.connectMail(w.mustCredential(), "elsewhere", false)
		if err := w.setMX(id, "elsewhere", true); code(err) != "validation_error" {
			t.Errorf("replace of mail elsewhere: %v", err)
		}
		conflict := func() {
			t.Helper()
			if err := w.setMX(id, "here", false); err != nil {
				t.Fatal(err)
			}
			w.wantZone("a conflict", usedZone...)
			d := w.domain(id)
			if d.Status != "error" || d.Error.Code != "zone_conflict" || !strings.Contains(d.Error.Message, `PATCH /v1/domains/`+id+` with {"mx": {"mode": "here"}, "replace": true}`) {
				t.Errorf("domain %+v, %+v", d, d.Error)
			}
		}
		conflict()
		if err := w.setMX(id, "elsewhere", false); err != nil {
			t.Fatal(err)
		}
		if d := w.domain(id); d.Status != "pending_dns_records" || d.Error != nil {
			t.Errorf("elsewhere again: %+v", d)
		}
		conflict()
		if err := w.setMX(id, "here", true); err != nil {
			t.Fatal(err)
		}
		w.wantZone("replaced", ourMX, mergedSPF, usedZone[2], usedZone[3])
		if d := w.domain(id); d.Status != "complete" {
			t.Errorf("replaced: %+v", d)
		}
		builtin := w.Domain(t, w.Owner.AccountID, "builtin.test", "builtin", "complete")
		if err := w.setMX(builtin.ID, "here", true); code(err) != "validation_error" {
			t.Errorf("replace at our own servers: %v", err)
		}
	})
}

// If the owner says that the mail stays elsewhere after its MX records were replaced, these are put
// back, also after a fault in the middle of it.
func TestReplacedMXComesBackForMailElsewhere(t *testing.T) {
	eachProvider(t, func(t *testing.T, provider string) {
		w := newUsedWorld(t, usedZone...)
		w.edge.Meddle = func(call string) error {
			if call == "applied" { // the setup fails after everything was written
				return servicetest.ErrCredential
			}
			return nil
		}
		id := w.connectMail(w.credentialAt(provider, servicetest.EdgeToken), "", true)
		w.wantZone("a setup that failed", ourMX, mergedSPF, usedZone[2], usedZone[3])
		if d := w.domain(id); d.Status != "error" {
			t.Fatalf("domain %+v", d)
		}
		count := 0
		w.edge.Set(func() {
			w.edge.Meddle = func(call string) error {
				if call == "change" || call == "applied" {
					if count++; count == 2 || count == 5 {
						return servicetest.ErrNoAnswer
					}
				}
				return nil
			}
		})
		if err := w.setMX(id, "elsewhere", false); err != nil {
			t.Fatal(err)
		}
		w.wantZone("elsewhere", append(without(usedZone, usedZone[4]), mergedSPF)...)
		w.wantReplaced("elsewhere", id, usedZone[4])
		if d := w.domain(id); d.Status != "pending_dns_records" || count < 5 {
			t.Errorf("after %d calls: %+v", count, d)
		}
	})
}

// An SPF record that permits this host already stays, and was not replaced.
func TestAnSPFRecordThatFitsIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fits = "TXT edge.test v=spf1 ip4:127.0.0.1 include:_spf.elsewhere.test -all"
		w := newUsedWorld(t, usedZone[0], fits)
		id := w.connectMail(w.mustCredential(), "", true)
		w.wantZone("replaced", ourMX, fits, ourPolicy)
		w.wantReplaced("replaced", id, usedZone[0])
	})
}

// An SPF record that receivers would refuse once it is merged stays a conflict, and so do records
// that are too many to be kept.
func TestWhatCannotBeReplacedStays(t *testing.T) {
	for name, records := range map[string][]string{
		"lookups":   {"TXT edge.test v=spf1 mx" + strings.Repeat(" include:%d.elsewhere.test", 9) + " -all", usedZone[0], usedZone[1]},
		"too many":  make([]string, 101),
		"too large": {"TXT edge.test v=spf1 a -all" + strings.Repeat(" ", 65<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := range records {
					if records[i] == "" {
						records[i] = fmt.Sprintf("MX edge.test 5 mx%d.elsewhere.test", i)
					}
					for n := range 9 {
						records[i] = strings.Replace(records[i], "%d", fmt.Sprint(n), 1)
					}
				}
				w := newUsedWorld(t, records...)
				before := w.edge.Strangers("edge.test")
				if _, why := w.connectWith(w.mustCredential(), true); !strings.HasPrefix(why, "zone_conflict: ") || !strings.Contains(why, "RFC 7208") {
					t.Errorf("connected: %.500q", why)
				} else if len(why) > 3000 {
					t.Errorf("the error has %d bytes", len(why))
				}
				if after := w.edge.Strangers("edge.test"); !slices.Equal(before, after) {
					t.Errorf("%d records became %d", len(before), len(after))
				}
			})
		})
	}
}

// A DMARC record of others is adopted and stays until the owner has it replaced. It is never beside
// one of ours.
func TestPoliciesOfOthersAreAdopted(t *testing.T) {
	eachProvider(t, func(t *testing.T, provider string) {
		const theirs, next = "TXT _dmarc.edge.test v=DMARC1; p=quarantine", "TXT _dmarc.edge.test v=DMARC1; p=none"
		w := newUsedWorld(t, theirs)
		id := w.connectMail(w.credentialAt(provider, servicetest.EdgeToken), "", false)
		w.wantZone("adopted", ourMX, ourSPF, theirs)
		override := func(want string) {
			t.Helper()
			if d := w.domain(id); d.Status != "complete" || d.DMARCOverride == nil || d.DMARCOverride.Value != want {
				t.Errorf("domain %+v, policy %+v, not %s", d, d.DMARCOverride, want)
			}
		}
		override("v=DMARC1; p=quarantine")
		sources := func(live bool) string {
			t.Helper()
			z, err := w.Zones.GetZone(t.Context(), w.who, zones.GetZoneIn{DomainID: id, Live: live})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, r := range z.Zone.Records {
				if r.Name == "_dmarc" {
					out = append(out, r.Source)
				}
			}
			return strings.Join(out, " ")
		}
		if kept, live := sources(false), sources(true); kept != "" || live != "foreign" {
			t.Errorf("its sources are %q and live %q", kept, live)
		}
		set := func(value string, replace bool) error {
			t.Helper()
			_, err := w.Zones.SetDMARC(t.Context(), w.who, zones.SetDMARCIn{DomainID: id, Value: value, Replace: replace})
			w.settle()
			return err
		}
		if err := set("v=DMARC1; p=none", false); code(err) != "zone_conflict" || !strings.Contains(err.Error(), "p=quarantine") {
			t.Errorf("another policy: %v", err)
		}
		if _, err := w.Zones.ResetDMARC(t.Context(), w.who, zones.ResetDMARCIn{DomainID: id}); code(err) != "zone_conflict" {
			t.Errorf("the default policy: %v", err)
		}
		if err := set("v=DMARC1; p=quarantine", false); err != nil {
			t.Errorf("the same policy: %v", err)
		}
		w.wantZone("still theirs", ourMX, ourSPF, theirs)

		w.edge.Remove("edge.test", "TXT", "_dmarc.edge.test") // they change it
		w.edge.Add("edge.test", "TXT", "_dmarc.edge.test", "v=DMARC1; p=reject; sp=none")
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		w.settle()
		override("v=DMARC1; p=reject; sp=none")

		if err := set("v=DMARC1; p=none", true); err != nil {
			t.Fatal(err)
		}
		w.wantZone("replaced", ourMX, ourSPF, next)
		w.wantReplaced("replaced", id, "TXT _dmarc.edge.test v=DMARC1; p=reject; sp=none")
		if err := set("v=DMARC1; p=quarantine", false); err != nil { // now it is ours
			t.Errorf("our own policy: %v", err)
		}
		override("v=DMARC1; p=quarantine")
		if _, err := w.Edge.PutBackZoneRecords(t.Context(), w.who, edge.PutBackZoneRecordsIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		w.settle()
		w.wantZone("put back", ourMX, ourSPF, "TXT _dmarc.edge.test v=DMARC1; p=reject; sp=none")
		if provider == store.DomainProviderCloudflare { // the fake cannot tell whose it is elsewhere
			override("v=DMARC1; p=reject; sp=none")
		}

		w.edge.Remove("edge.test", "TXT", "_dmarc.edge.test") // they remove it: the policy stays
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		w.settle()
		w.wantZone("removed", ourMX, ourSPF, "TXT _dmarc.edge.test v=DMARC1; p=reject; sp=none")
	})
}

// A policy behind an alias is adopted; several policies, and what is none, are left alone.
func TestOddPoliciesOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		zone []string
		want string // the policy of the domain; "" for the default
	}{
		"alias":   {[]string{"CNAME _dmarc.edge.test edge.test._d.elsewhere.test"}, "v=DMARC1; p=none; sp=reject"},
		"several": {[]string{"TXT _dmarc.edge.test v=DMARC1; p=none", "TXT _dmarc.edge.test v=DMARC1; p=quarantine"}, ""},
		"invalid": {[]string{"TXT _dmarc.edge.test v=DMARC1; p=perhaps"}, ""},
		"long":    {[]string{"TXT _dmarc.edge.test v=DMARC1; p=none; x=" + strings.Repeat("x", 60_000)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newUsedWorld(t, tc.zone...)
				w.Core.Config.Resolver.(*servicetest.World).Tell("TXT", "_dmarc.edge.test", "v=DMARC1; p=none; sp=reject")
				id := w.connectMail(w.mustCredential(), "", true)
				w.wantZone(name, append(tc.zone, ourMX, ourSPF)...)
				d := w.domain(id)
				if d.Status != "complete" || (d.DMARCOverride == nil) != (tc.want == "") || tc.want != "" && d.DMARCOverride.Value != tc.want {
					t.Errorf("domain %+v, policy %+v", d, d.DMARCOverride)
				}
				if n := len(w.stored(id).ForeignDMARC); n == 0 || n > 1024 {
					t.Errorf("%d bytes are noted", n)
				}
				if _, err := w.Zones.SetDMARC(t.Context(), w.who, zones.SetDMARCIn{DomainID: id, Value: "v=DMARC1; p=reject", Replace: true}); err != nil {
					t.Fatal(err)
				}
				w.settle()
				w.wantZone("replaced", ourMX, ourSPF, ourPolicy)
				w.wantReplaced("replaced", id, tc.zone...)
			})
		})
	}
}

// An MX record that others add beside ours does not drive ours out. The domain says so.
func TestOurMXStaysBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newUsedWorld(t)
		id := w.connectMail(w.mustCredential(), "", false)
		w.edge.Add("edge.test", "MX", "edge.test", "20 backup.elsewhere.test")
		w.create(id, "x", "TXT", "x")
		w.settle()
		w.wantZone("beside", append(slices.Clone(managed[:3]), "MX edge.test 20 backup.elsewhere.test", "TXT x.edge.test x")...)
		if got := w.mxIssue(id); !strings.Contains(got, "backup.elsewhere.test") {
			t.Errorf("the health says %q", got)
		}
		w.edge.Remove("edge.test", "MX", "edge.test")
		w.create(id, "y", "TXT", "y")
		w.settle()
		w.wantOurs([]string{"TXT x.edge.test x", "TXT y.edge.test y"})
		if got := w.mxIssue(id); got != "" {
			t.Errorf("the health still says %q", got)
		}
	})
}

// Nothing is forgotten if what was replaced is put back only in part: it can be done again.
func TestPuttingBackInPartForgetsNothing(t *testing.T) {
	eachProvider(t, func(t *testing.T, provider string) {
		for fault := 1; ; fault += soak.Size(3, 1) {
			w := newUsedWorld(t, usedZone...)
			id := w.connectMail(w.credentialAt(provider, servicetest.EdgeToken), "", true)
			before := w.domain(id).Replaced
			count := 0
			w.edge.Set(func() {
				w.edge.Meddle = func(string) error {
					if count++; count == fault {
						return servicetest.ErrNoAnswer
					}
					return nil
				}
			})
			_, err := w.Edge.PutBackZoneRecords(t.Context(), w.who, edge.PutBackZoneRecordsIn{DomainID: id})
			if count < fault {
				if fault < 5 || err != nil {
					t.Errorf("there were only %d calls: %v", count, err)
				}
				return
			}
			if code(err) != "upstream_error" || !slices.Equal(w.domain(id).Replaced, before) {
				t.Errorf("fault %d: %v, replaced %+v", fault, err, w.domain(id).Replaced)
			}
			if _, err := w.Edge.PutBackZoneRecords(t.Context(), w.who, edge.PutBackZoneRecordsIn{DomainID: id}); err != nil {
				t.Errorf("fault %d: %v", fault, err)
			}
			w.wantZone(fmt.Sprintf("fault %d", fault), usedZone...)
			if w.mxIssue(id) == "" {
				t.Errorf("fault %d: the health says nothing", fault)
			}
		}
	})
}

// A domain moves to a provider at which its mail records are replaced, if the request says so.
func TestAMoveReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newUsedWorld(t, usedZone...)
		out, err := w.Domains.ConnectDomains(t.Context(), w.who, domains.ConnectDomainsIn{Domains: []string{"edge.test"}, ManualDNS: true})
		if err != nil {
			t.Fatal(err)
		}
		id, credential := *out.Domains[0].DomainID, w.mustCredential()
		w.settle()
		move := func(in domains.UpdateDomainIn) {
			t.Helper()
			in.DomainID, in.DNSCredentialID = id, &credential
			if _, err := w.Domains.UpdateDomain(t.Context(), w.who, in); err != nil {
				t.Fatal(err)
			}
			w.settle()
		}
		move(domains.UpdateDomainIn{})
		if d := w.stored(id); d.DNSProvider != "manual" || !strings.Contains(d.StatusDetail, `{"dns_credential_id": "`+credential+`", "replace": true}`) || d.Replace {
			t.Errorf("without replace: at %s, %s", d.DNSProvider, d.StatusDetail)
		}
		w.edge.Set(func() { delete(w.edge.Tokens, servicetest.EdgeToken) })
		move(domains.UpdateDomainIn{Replace: true})
		w.edge.Set(func() { w.edge.Tokens[servicetest.EdgeToken] = "edit" })
		if d := w.stored(id); d.DNSProvider != "manual" || d.Replace {
			t.Errorf("a move that failed: at %s, replace %v", d.DNSProvider, d.Replace)
		}
		move(domains.UpdateDomainIn{Replace: true})
		if d := w.stored(id); d.DNSProvider != "hetzner" || d.Status != "complete" || d.DMARC != "v=DMARC1; p=none; rua=mailto:dmarc@elsewhere.test" {
			t.Errorf("moved to %s: %s, %s", d.DNSProvider, d.StatusDetail, d.DMARC)
		}
		w.wantZone("moved", "A edge.test 127.0.0.1", ourMX, mergedSPF, usedZone[2], usedZone[3])
		w.wantReplaced("moved", id, usedZone[0], usedZone[1], usedZone[4])
	})
}

// Mail is not brought to a host that would refuse it, because it is not proven yet whose the domain
// is.
func TestMailIsNotBroughtToAnUnprovenDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, at := &servicetest.World{}, servicetest.NewEdge("edge.test")
		b, end := servicetest.NewIn(t, t.TempDir(), store.Options{}, at.With(func(c *core.Config) { c.Resolver, c.Sandbox = world, false }))
		defer end()
		who, err := b.Accounts.Operator(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		w := &edgeWorld{b, t, at, who}
		at.Takes = true
		at.Add("edge.test", "MX", "edge.test", "5 mx1.elsewhere.test")
		id := w.connectMail(w.mustCredential(), "elsewhere", false)
		if err := w.setMX(id, "here", true); code(err) != "domain_not_ready" {
			t.Errorf("brought: %v", err)
		}
		if d := w.domain(id); d.MX.Mode != "elsewhere" || len(at.Strangers("edge.test")) != 1 {
			t.Errorf("domain %+v, records of others %q", d.MX, at.Strangers("edge.test"))
		}
		servicetest.Update(t, b.Service, func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, id)
			if err != nil {
				return err
			}
			d.Claim = store.ClaimProven
			return store.Domains.Put(tx, d)
		})
		if err := w.setMX(id, "here", true); err != nil {
			t.Fatal(err)
		}
		if d := w.domain(id); d.Status != "complete" || len(at.Strangers("edge.test")) != 0 {
			t.Errorf("domain %+v, records of others %q", d, at.Strangers("edge.test"))
		}
	})
}
