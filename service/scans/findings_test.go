package scans_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/scans"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// TestDSComesFirst: while the parent zone has a DS record of another key, and until resolvers have
// forgotten it, that is what the owner is told of.
func TestDSComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.dns.Tell("NS", "own.test", "ns1.old.test")
		w.ds = []dnsprov.DS{{KeyTag: 1, Algorithm: 13, DigestType: 2, Digest: strings.Repeat("ab", 32)}}
		w.scanner.servers.DS, w.scanner.servers.DSTTL = w.ds, 6*time.Hour
		w.scanner.result.Records = nil
		id := w.connect("own.test")
		synctest.Wait()
		if _, r := w.result(w.stored(id).ScanJobID); len(r.DS) != 1 || *r.TTL.DS != 6*3600 {
			t.Errorf("result %+v", r)
		}
		if got := w.issues(id); got != "remove_ds_first" {
			t.Errorf("issues: %s", got)
		}
		w.wantDetail(id, "wait 6 hours")
		time.Sleep(time.Hour)
		w.ds = nil
		time.Sleep(time.Hour)
		synctest.Wait()
		w.wantDetail(id, "resolvers may keep them until")
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if got := w.issues(id); got != "" {
			t.Errorf("issues after the TTL: %s", got)
		}
		w.wantDetail(id, "Set these nameservers")
	})
}

// TestDSAfterTheChange: if the nameservers were changed too early, the owner is told what to do
// now, until resolvers have forgotten the DS record.
func TestDSAfterTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.dns.Tell("NS", "own.test", "ns1.old.test", "ns2.old.test")
		w.ds = []dnsprov.DS{{KeyTag: 1, Algorithm: 13, DigestType: 2, Digest: strings.Repeat("ab", 32)}}
		w.scanner.servers.DS, w.scanner.servers.DSTTL = w.ds, 6*time.Hour
		w.scanner.result.Records = nil
		id := w.connect("own.test")
		synctest.Wait()
		w.dns.Set(func() { w.dns.Ours = w.Service })
		w.dns.Tell("NS", "own.test", "ns1.example.test", "ns2.example.test")
		time.Sleep(time.Hour)
		synctest.Wait()
		d := w.domain(id)
		if d.Status != "complete" || w.issues(id) != "remove_ds_first" || !strings.Contains(d.DNSHealth.Issues[0].Message, "Remove them there now") || d.DNSHealth.Status != "degraded" {
			t.Errorf("after the change: %s, %+v", d.Status, d.DNSHealth)
		}
		w.ds = nil
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		d = w.domain(id)
		if w.issues(id) != "remove_ds_first" || !strings.Contains(d.DNSHealth.Issues[0].Message, "previous nameservers (ns1.old.test, ns2.old.test)") {
			t.Errorf("after the DS record is gone: %+v", d.DNSHealth)
		}
		time.Sleep(7 * time.Hour)
		synctest.Wait()
		if d := w.domain(id); w.issues(id) != "" || d.DNSHealth.Status != "healthy" {
			t.Errorf("after its TTL: %+v", d.DNSHealth)
		}
	})
}

// TestMailThatComesWithTheChange: the owner is told of mail that comes here with the change of the
// nameservers and would be refused.
func TestMailThatComesWithTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.scanner.result.Records = nil
		has := func(id string) bool { return strings.Contains(w.issues(id), "mx_changes") }
		for name, mx := range map[string]string{"none.test": "", "null.test": "0 .", "here.test": "10 mail.example.test"} {
			w.scanner.set(func() {
				w.scanner.result.Records = nil
				if mx != "" {
					w.scanner.result.Records = []dnsprov.Record{record(name, "MX", mx)}
				}
			})
			id := w.connect(name)
			synctest.Wait()
			if has(id) {
				t.Errorf("%s has no mail of others, and issues %s", name, w.issues(id))
			}
		}
		connect := func(name string) string {
			w.scanner.set(func() { w.scanner.result.Records = []dnsprov.Record{record(name, "MX", "10 mx.old.test")} })
			id := w.connect(name)
			synctest.Wait()
			if !has(id) {
				t.Errorf("%s: issues %s", name, w.issues(id))
			}
			return id
		}
		stays, caught, taken, moved := connect("stays.test"), connect("caught.test"), connect("taken.test"), connect("moved.test")
		w.dns.Tell("NS", "stays.test", "ns1.old.test")
		if _, err := w.Domains.UpdateDomain(t.Context(), w.who, domains.UpdateDomainIn{DomainID: stays, MX: &domains.MXIn{Mode: "elsewhere"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Domains.UpdateDomain(t.Context(), w.who, domains.UpdateDomainIn{DomainID: caught, CatchAll: core.Opt[string]{Set: true, Value: "ann@far.test"}}); err != nil {
			t.Fatal(err)
		}
		w.mailbox("ann@taken.test")
		w.dns.Set(func() { w.dns.Ours = w.Service })
		w.dns.Tell("NS", "moved.test", "ns1.example.test", "ns2.example.test")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, id := range []string{stays, caught, taken, moved} {
			if has(id) {
				t.Errorf("%s: issues %s", w.domain(id).Domain, w.issues(id))
			}
		}
	})
}

// TestOtherSendersAreRefused: our DMARC policy lets receivers refuse mail of servers that our SPF
// record does not name. The owner is told so until his records are here, or 14 days have passed.
func TestOtherSendersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.dns.Tell("NS", "own.test", "ns1.old.test")
		has := func(id, part string) bool {
			for _, i := range w.domain(id).DNSHealth.Issues {
				if i.Code == "senders_refused" {
					return strings.Contains(i.Message, part)
				}
			}
			return false
		}
		connect := func(name, mx string, records ...dnsprov.Record) string {
			w.scanner.set(func() { w.scanner.result.Records = records })
			out, err := w.Domains.ConnectDomains(t.Context(), w.who, domains.ConnectDomainsIn{Domains: []string{name}, MX: mx})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return *out.Domains[0].DomainID
		}
		other := func(name string) dnsprov.Record { return record(name, "TXT", "v=spf1 include:_spf.far.test -all") }
		policy := func(name string) dnsprov.Record { return record("_dmarc."+name, "TXT", "v=DMARC1; p=none") }
		spf, dmarc, both := connect("spf.test", "", other("spf.test")), connect("dmarc.test", "", policy("dmarc.test")), connect("both.test", "", other("both.test"), policy("both.test"))
		for _, id := range []string{spf, dmarc, both} {
			if !has(id, "Once the nameservers are changed") || !has(id, "p=reject") {
				t.Errorf("%s: %+v", w.domain(id).Domain, w.domain(id).DNSHealth.Issues)
			}
		}
		if id := connect("plain.test", "", record("plain.test", "A", "192.0.2.1")); has(id, "") {
			t.Error("a domain that had no other senders")
		}
		if id := connect("strict.test", "", record("_dmarc.strict.test", "TXT", "v=DMARC1; p=reject; rua=mailto:a@far.test")); has(id, "") {
			t.Error("a domain that had such a policy")
		}
		stays := connect("stays.test", "elsewhere", record("stays.test", "MX", "10 mx.old.test"))
		if !has(stays, "Name the servers with set_spf") {
			t.Errorf("mail elsewhere: %+v", w.domain(stays).DNSHealth.Issues)
		}
		if out := w.take(stays, zones.ImportZoneIn{DryRun: true}); len(out.Skipped) != 1 || !strings.HasPrefix(out.Skipped[0].Reason, "mx: Mailstead keeps the present MX records") {
			t.Errorf("the MX records of before: %+v", out.Skipped)
		}
		if _, err := w.Zones.SetDMARC(t.Context(), w.who, zones.SetDMARCIn{DomainID: stays, Value: "v=DMARC1; p=none"}); err != nil || has(stays, "") {
			t.Errorf("with a policy that refuses nothing: %v", err)
		}
		if _, err := w.Zones.ImportZone(t.Context(), w.who, zones.ImportZoneIn{DomainID: spf, Scan: w.stored(spf).ScanJobID, Exclude: []zones.ZoneExclude{{Name: "@"}}}); err != nil || has(spf, "") {
			t.Errorf("left out: %v", err)
		}
		w.take(dmarc, zones.ImportZoneIn{})
		if has(dmarc, "") {
			t.Error("after the import")
		}
		w.dns.Set(func() { w.dns.Ours = w.Service })
		w.dns.Tell("NS", "both.test", "ns1.example.test", "ns2.example.test")
		time.Sleep(time.Hour)
		synctest.Wait()
		if d := w.domain(both); d.Status != "complete" || !has(both, "Receivers refuse") {
			t.Errorf("after the change it is %s with %+v", d.Status, d.DNSHealth)
		}
		time.Sleep(14 * 24 * time.Hour)
		if has(both, "") {
			t.Error("after 14 days")
		}
	})
}

// TestIssuesOfDomainsElsewhere: what a scan knows of a domain whose DNS is elsewhere, and what
// matters there, is told, too.
func TestIssuesOfDomainsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		out, err := w.Domains.ConnectDomains(t.Context(), w.who, domains.ConnectDomainsIn{Domains: []string{"own.test"}, ManualDNS: true})
		if err != nil {
			t.Fatal(err)
		}
		id := *out.Domains[0].DomainID
		synctest.Wait()
		if got := w.issues(id); got != "" {
			t.Errorf("issues without a scan: %s", got)
		}
		w.dns.Tell("TXT", "_mta-sts.own.test", "v=STSv1; id=1")
		w.Scans.SetPolicies(policyHost("version: STSv1\nmode: enforce\nmx: mx.old.test\nmax_age: 86400\n"))
		w.scanner.set(func() {
			w.scanner.result.Records = append(newScanner().result.Records, record("own.test", "CAA", `0 issue "ca.example"`), record("_mta-sts.own.test", "TXT", "v=STSv1; id=1"))
		})
		w.scan(id)
		synctest.Wait()
		if got := w.issues(id); got != "mta_sts_enforced caa_excludes" {
			t.Errorf("issues: %s", got)
		}
		w.scanner.set(func() {
			w.scanner.result.Records = []dnsprov.Record{record("own.test", "CAA", `0 issue "ca.example"`), record("own.test", "CAA", `0 issue "letsencrypt.org"`)}
		})
		time.Sleep(scans.ScanAgain)
		w.scan(id)
		synctest.Wait()
		if got := w.issues(id); got != "" {
			t.Errorf("issues after another scan: %s", got)
		}
		servicetest.Update(t, w.Service, func(tx *store.Tx) error {
			d, err := store.Domains.Get(tx, id)
			if err != nil {
				return err
			}
			d.DNSProvider, d.MX = "cloudflare", &store.DomainMX{Mode: store.MXElsewhere, Found: true}
			return store.Domains.Put(tx, d)
		})
		if got := w.issues(id); got != "senders_refused" {
			t.Errorf("issues at a provider, while the mail is elsewhere: %s", got)
		}
	})
}

// TestKeysThatAreNotMade: a DKIM key that a domain does not have yet has no value.
func TestKeysThatAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		id := w.connect("own.test")
		synctest.Wait()
		_, r := w.result(w.stored(id).ScanJobID)
		found := 0
		for _, o := range r.Ours {
			if strings.HasSuffix(o.Name, "._domainkey") {
				found++
			}
			if slices.Contains(o.Ours, `""`) || slices.Contains(o.Ours, "") {
				t.Errorf("%+v", o)
			}
		}
		if found != 2 {
			t.Errorf("%d keys", found)
		}
	})
}

// policyHost answers requests for an MTA-STS policy.
type policyHost string

func (p policyHost) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(string(p))), Request: r}, nil
}

// TestPolicyIsEnforced: an enforced MTA-STS policy keeps mail from us, unless it names this host.
func TestPolicyIsEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		for _, c := range []struct{ name, mode, mx, issues string }{
			{"a.test", "enforce", "mx.old.test", "mta_sts_enforced"}, {"b.test", "testing", "mx.old.test", ""}, {"c.test", "enforce", "*.example.test", ""},
		} {
			w.scanner.result.Records = []dnsprov.Record{record("_mta-sts."+c.name, "TXT", "v=STSv1; id=1")}
			w.dns.Tell("TXT", "_mta-sts."+c.name, "v=STSv1; id=1")
			w.Scans.SetPolicies(policyHost("version: STSv1\nmode: " + c.mode + "\nmx: " + c.mx + "\nmax_age: 86400\n"))
			id := w.connect(c.name)
			synctest.Wait()
			if _, r := w.result(w.stored(id).ScanJobID); r.MTASTS == nil || *r.MTASTS != (zones.ScannedSTS{Mode: c.mode, MaxAge: 86400}) {
				t.Errorf("%s: %+v", c.name, r.MTASTS)
			}
			if got := w.issues(id); got != c.issues {
				t.Errorf("%s: issues %s, want %s", c.name, got, c.issues)
			}
		}
	})
}

// TestAddressesThatChange: an address that the nameservers do not give twice is that of a proxy.
func TestAddressesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.scanner.result.Records = []dnsprov.Record{record("www.own.test", "A", "198.51.100.1"), record("shop.own.test", "A", "198.51.100.2"), record("shop.own.test", "A", "198.51.100.3")}
		w.scanner.again = map[string][]dnsprov.Record{
			"A www.own.test": {record("www.own.test", "A", "198.51.100.9")}, "A shop.own.test": {record("shop.own.test", "A", "198.51.100.3")},
		}
		id := w.connect("own.test")
		synctest.Wait()
		if _, r := w.result(w.stored(id).ScanJobID); len(r.Proxied) != 1 || r.Proxied[0].Name != "www" {
			t.Errorf("proxied: %+v", r.Proxied)
		}
		out := w.take(id, zones.ImportZoneIn{})
		if out.Imported != 2 || len(out.Skipped) != 1 || !strings.HasPrefix(out.Skipped[0].Reason, "proxied:") {
			t.Errorf("%+v", out)
		}
		if got := w.issues(id); got != "proxied" {
			t.Errorf("issues: %s", got)
		}
		if _, err := w.Zones.SetZoneRecords(t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: id, Name: "www", Type: "A", Values: []string{"192.0.2.1"}}); err != nil {
			t.Fatal(err)
		}
		if got := w.issues(id); got != "" {
			t.Errorf("issues with another address: %s", got)
		}
	})
}

// TestCAAExcludesUs: CAA records of the owner that name only another authority are told.
func TestCAAExcludesUs(t *testing.T) {
	w := newScanWorld(t)
	w.scanner.result.Records = nil
	id := w.connect("own.test")
	for _, c := range []struct {
		values []string
		issue  bool
	}{
		{[]string{`0 issue "ca.example"`}, true}, {[]string{`0 issue ";"`}, true}, {[]string{`0 issue "ca.example"`, `0 issue "letsencrypt.org; validationmethods=dns-01"`}, false},
		{[]string{`0 iodef "mailto:a@own.test"`}, false}, {[]string{`0 issuewild "ca.example"`}, false}, {[]string{`128 ISSUE "ca.example"`}, true},
	} {
		if _, err := w.Zones.SetZoneRecords(t.Context(), w.who, zones.SetZoneRecordsIn{DomainID: id, Name: "@", Type: "CAA", Values: c.values}); err != nil {
			t.Fatal(err)
		}
		isCAA := func(i domains.DNSIssue) bool { return i.Code == "caa_excludes" }
		if got := slices.ContainsFunc(w.domain(id).DNSHealth.Issues, isCAA); got != c.issue {
			t.Errorf("%v: %v", c.values, got)
		}
	}
}

// TestImportIsRemindedFor14Days: what was not imported is told until 14 days after the delegation.
func TestImportIsRemindedFor14Days(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		id := w.connect("own.test")
		synctest.Wait()
		w.dns.Set(func() { w.dns.Ours = w.Service })
		time.Sleep(time.Hour)
		synctest.Wait()
		if d := w.domain(id); d.Status != "complete" {
			t.Fatalf("the domain is %s", d.Status)
		}
		if got := w.issues(id); !strings.Contains(got, "not_imported") {
			t.Errorf("issues: %s", got)
		}
		time.Sleep(14 * 24 * time.Hour)
		if got := w.issues(id); got != "" {
			t.Errorf("issues after 14 days: %s", got)
		}
	})
}
