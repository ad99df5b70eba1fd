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
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/zones"
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
		w.wantDetail(id, "Set these name servers")
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

// TestAddressesThatChange: an address that the name servers do not give twice is that of a proxy.
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
