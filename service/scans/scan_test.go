package scans_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/scans"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A scanner is a fake of the nameservers of others, which serve each domain alike.
type scanner struct {
	mu      sync.Mutex
	servers scan.Servers
	result  scan.Result
	again   map[string][]dnsprov.Record // what Ask answers, by "TYPE name"; the records of the result by default
	err     error                       // of Find
	hold    chan struct{}               // Zone waits until it is closed; nil: it does not
	slow    time.Duration               // that Zone takes; then Ask gets no answer
	asked   [][]string                  // the names that Find was given
	running int
	most    int // how many calls of Zone ran at the same time
}

func (s *scanner) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *scanner) Find(_ context.Context, _ string, names []string) (*scan.Servers, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, names)
	found := s.servers
	if len(names) > 0 {
		found.Names = names
	}
	return &found, s.err
}

func (s *scanner) Parent(context.Context, string) (*scan.Parent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := slices.Clone(s.servers.DS)
	return &scan.Parent{Names: s.servers.Names, TTL: s.servers.NSTTL, DS: &ds}, s.err
}

func (s *scanner) Ask(ctx context.Context, _ *scan.Servers, name, typ string) ([]dnsprov.Record, error) {
	slow := time.Duration(0)
	s.set(func() { slow = s.slow })
	if slow > 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	records, ok := s.again[typ+" "+name]
	for _, r := range s.result.Records {
		if !ok && r.Name == name && r.Type == typ {
			records = append(records, r)
		}
	}
	return records, nil
}

func (s *scanner) OwnTexts(context.Context, *scan.Servers, string, ...string) (map[string][]string, error) {
	return nil, scan.ErrNoServer
}

func (s *scanner) Zone(ctx context.Context, servers *scan.Servers, _ string, progress func(done, total int)) (*scan.Result, error) {
	s.mu.Lock()
	s.running++
	s.most = max(s.most, s.running)
	hold, slow, found := s.hold, s.slow, s.result
	s.mu.Unlock()
	progress(1, 2)
	time.Sleep(slow)
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	s.set(func() { s.running-- })
	found.Nameservers, found.DS = servers.Names, servers.DS
	found.NSTTL, found.DSTTL = servers.NSTTL, servers.DSTTL
	if len(servers.Names) == 0 {
		return &scan.Result{Method: scan.MethodNone}, ctx.Err()
	}
	return &found, ctx.Err()
}

func record(name, typ, text string) dnsprov.Record {
	r, err := dnsprov.FromText(name, typ, text, 7200)
	if err != nil {
		panic(err)
	}
	return r
}

// newScanner returns a scanner of a zone own.test with a website, mail and what others need.
func newScanner() *scanner {
	s := &scanner{servers: scan.Servers{
		Names: []string{"ns1.old.test", "ns2.old.test"}, Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53")}, NSTTL: 48 * time.Hour,
	}}
	s.result = scan.Result{Method: scan.MethodAXFR, Complete: true, Records: []dnsprov.Record{
		record("_dmarc.own.test", "TXT", "v=DMARC1; p=quarantine"),
		record("own.test", "A", "192.0.2.1"), record("own.test", "MX", "10 mx.old.test"), record("own.test", "NS", "ns1.old.test"),
		record("own.test", "TXT", "v=spf1 ip4:192.0.2.0/24 -all"), record("own.test", "TXT", "site-verification=x"),
		record("www.own.test", "A", "192.0.2.2"), record("www.own.test", "A", "192.0.2.3"), record("cdn.own.test", "A", "104.16.0.1"),
	}}
	return s
}

// A scanWorld is a service with a scanner.
type scanWorld struct {
	*servicetest.Sandbox
	t       *testing.T
	scanner *scanner
	dns     *servicetest.World
	ds      []dnsprov.DS // that the parent zone has
	who     core.Actor
}

func newScanWorld(t *testing.T) *scanWorld {
	t.Helper()
	w := &scanWorld{t: t, scanner: newScanner(), dns: &servicetest.World{}}
	w.Sandbox = servicetest.New(t, func(c *core.Config) {
		c.Scanner, c.ScanNew, c.Resolver = w.scanner, true, w.dns
		c.LookupDS = func(context.Context, string) ([]dnsprov.DS, error) { return w.ds, nil }
	})
	var err error
	w.who, err = w.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// connect connects a name and returns the ID of the domain.
func (w *scanWorld) connect(name string) string {
	w.t.Helper()
	out, err := w.Domains.ConnectDomains(w.t.Context(), w.who, domains.ConnectDomainsIn{Domains: []string{name}})
	if err != nil || out.Domains[0].Error != nil {
		w.t.Fatalf("connect: %+v, %v", out, err)
	}
	return *out.Domains[0].DomainID
}

func (w *scanWorld) domain(id string) *domains.Domain {
	w.t.Helper()
	d, err := w.Domains.GetDomain(w.t.Context(), w.who, domains.DomainIn{DomainID: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *scanWorld) stored(id string) *store.Domain {
	w.t.Helper()
	d, err := w.Domains.DomainByID(id)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// issues returns the codes of what would break.
func (w *scanWorld) issues(id string) string {
	w.t.Helper()
	var codes []string
	for _, i := range w.domain(id).DNSHealth.Issues {
		codes = append(codes, i.Code)
	}
	return strings.Join(codes, " ")
}

// wantDetail compares a part of the domain's status_detail.
func (w *scanWorld) wantDetail(id, part string) {
	w.t.Helper()
	detail := ""
	if d := w.domain(id).StatusDetail; d != nil {
		detail = *d
	}
	if !strings.Contains(detail, part) {
		w.t.Errorf("status_detail is %q, without %q", detail, part)
	}
}

// mailbox creates a mailbox.
func (w *scanWorld) mailbox(email string) {
	w.t.Helper()
	if _, err := w.Mailboxes.CreateEmailUser(w.t.Context(), w.who, mailboxes.CreateEmailUserIn{Email: email}); err != nil {
		w.t.Fatal(err)
	}
}

// scan calls scan_zone.
func (w *scanWorld) scan(id string, names ...string) string {
	w.t.Helper()
	j, err := w.Scans.ScanZone(w.t.Context(), w.who, scans.ScanZoneIn{DomainID: id, Nameservers: names})
	if err != nil {
		w.t.Fatal(err)
	}
	return j.ID
}

// result returns the status and the result of a job.
func (w *scanWorld) result(job string) (status string, r *zones.ScanResult) {
	w.t.Helper()
	j, err := w.GetJob(w.t.Context(), w.who, service.GetJobIn{ID: job})
	if err != nil {
		w.t.Fatal(err)
	}
	if j.Result != nil {
		r = &zones.ScanResult{}
		if err := json.Unmarshal(j.Result, r); err != nil {
			w.t.Fatal(err)
		}
	}
	return j.Status, r
}

// take imports a scan.
func (w *scanWorld) take(id string, in zones.ImportZoneIn) *zones.ZoneImported {
	w.t.Helper()
	in.DomainID, in.Scan = id, w.stored(id).ScanJobID
	out, err := w.Zones.ImportZone(w.t.Context(), w.who, in)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// events returns the data of the events of one type, the oldest first.
func (w *scanWorld) events(kind string) (out []map[string]any) {
	w.t.Helper()
	err := w.Core.Store.View(func(tx *store.Tx) error {
		for _, e := range store.EventsByAccount.Asc(tx, w.who.AccountID, "") {
			data := map[string]any{}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				return err
			}
			if e.Type == kind {
				out = append(out, data)
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestConnectingScans: connecting a domain scans its zone. Until that has ended, and until what was
// found is imported or left out, the domain is not told to change its nameservers.
func TestConnectingScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.dns.Tell("NS", "own.test", "ns1.old.test", "ns2.old.test")
		w.scanner.hold = make(chan struct{})
		id := w.connect("own.test")
		job := w.stored(id).ScanJobID
		synctest.Wait()
		w.wantDetail(id, "Wait for the job "+job)
		if status, r := w.result(job); status != "in_progress" || r != nil {
			t.Errorf("the job is %s with %+v", status, r)
		}
		in := zones.ImportZoneIn{DomainID: id, Scan: job}
		if _, err := w.Zones.ImportZone(t.Context(), w.who, in); err == nil || !strings.Contains(err.Error(), "has not ended yet") {
			t.Errorf("imported: %v", err)
		}
		checked, err := w.Domains.CheckNameservers(t.Context(), w.who, domains.CheckNameserversIn{Domains: []string{"own.test"}})
		if err != nil || !strings.Contains(checked.Domains[0].Message, "Wait for the job") {
			t.Errorf("check_nameservers: %+v, %v", checked, err)
		}
		close(w.scanner.hold)
		synctest.Wait()
		status, r := w.result(job)
		if status != "completed" || r == nil {
			t.Fatalf("the job is %s with %+v", status, r)
		}
		if r.Method != "axfr" || !r.Complete || fmt.Sprint(r.Nameservers, r.MX, *r.TTL.NS, *r.TTL.LongestChanged) != "[ns1.old.test ns2.old.test] [{10 mx.old.test}] 172800 7200" {
			t.Errorf("result %+v", r)
		}
		if www := r.Records[slices.IndexFunc(r.Records, func(s zones.ScannedSet) bool { return s.Name == "www" })]; fmt.Sprint(www) != "{www A 7200 [192.0.2.2 192.0.2.3]}" {
			t.Errorf("www is %v", www)
		}
		if fmt.Sprint(r.Proxied) != "[{cdn A 104.16.0.1}]" {
			t.Errorf("proxied: %v", r.Proxied)
		}
		actions := map[string]string{}
		for _, o := range r.Ours {
			if len(o.Theirs) > 0 {
				actions[o.Name+" "+o.Type] = o.Action + fmt.Sprint(o.Theirs)
			}
		}
		if want := `map[@ MX:replace[10 mx.old.test] @ TXT:merge["v=spf1 ip4:192.0.2.0/24 -all"] _dmarc TXT:keep["v=DMARC1; p=quarantine"]]`; fmt.Sprint(actions) != want {
			t.Errorf("ours: %v\nwant  %s", actions, want)
		}
		list, err := w.ListJobs(t.Context(), w.who, service.ListJobsIn{Type: "zone_scan"})
		if err != nil || len(list.Page.Data) != 1 || list.Page.Data[0].Result != nil || list.Page.Data[0].Resource.ID != id {
			t.Errorf("list_jobs: %+v, %v", list, err)
		}
		told := w.events("zone.scan_finished")
		if len(told) != 1 || told[0]["job_id"] != job || told[0]["method"] != "axfr" || told[0]["records"] != 9.0 {
			t.Errorf("events %v", told)
		}
		d := w.domain(id)
		if fmt.Sprint(d.PreviousNameservers) != "[ns1.old.test ns2.old.test]" || w.issues(id) != "mx_changes senders_refused proxied not_imported" || d.ScanJobID == nil || *d.ScanJobID != job || d.DNSHealth.Status != "unknown" {
			t.Errorf("domain %+v", d)
		}
		w.wantDetail(id, "goes to mx.old.test now")
		w.wantDetail(id, "See also the other issues in dns_health. Then set these nameservers")
		w.mailbox("ann@own.test")
		w.wantDetail(id, "refuse mail that other servers send")
		w.take(id, zones.ImportZoneIn{Exclude: []zones.ZoneExclude{{Name: "cdn"}}, DryRun: true})
		w.take(id, zones.ImportZoneIn{Exclude: []zones.ZoneExclude{{Name: "cdn"}, {Name: "www"}}})
		if got := w.issues(id); got != "" {
			t.Errorf("issues after the import: %s", got)
		}
		w.wantDetail(id, "Set these nameservers, and only these, at the registrar of own.test: ns1.example.test, ns2.example.test")
		out := w.take(id, zones.ImportZoneIn{Accept: []string{"104.16.0.1"}})
		if out.Imported != 3 {
			t.Errorf("imported %+v", out)
		}

		w.dns.Tell("NS", "own.test", "ns1.example.test", "ns2.example.test")
		time.Sleep(time.Hour)
		synctest.Wait()
		changed := w.events("domain.nameservers_changed")
		if len(changed) != 1 || fmt.Sprint(changed[0]["before"], changed[0]["after"], changed[0]["verified"]) != "[ns1.old.test ns2.old.test] [ns1.example.test ns2.example.test] true" {
			t.Errorf("events %v", changed)
		}
		w.scanner.set(func() {
			w.scanner.servers.Names, w.scanner.asked = []string{"ns1.example.test", "ns2.example.test"}, nil
		})
		w.scan(id)
		synctest.Wait()
		if got := fmt.Sprint(w.scanner.asked); got != "[[] [ns1.old.test ns2.old.test]]" {
			t.Errorf("after the change these servers are looked up: %s", got)
		}
		if status, r := w.result(job); status != "completed" || r != nil {
			t.Errorf("the job of before is %s with %+v", status, r)
		}
		if got := fmt.Sprint(w.domain(id).PreviousNameservers); got != "[ns1.old.test ns2.old.test]" {
			t.Errorf("previous nameservers: %s", got)
		}
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		err = w.Core.Store.View(func(tx *store.Tx) error {
			row, err := store.ZoneScans.Find(tx, id)
			if row != nil {
				t.Error("the scan outlives its domain")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestOneScanInTenMinutes: a second request gets the job of the first one, and others do not see
// the domain.
func TestOneScanInTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		id := w.connect("own.test")
		first := w.stored(id).ScanJobID
		synctest.Wait()
		time.Sleep(scans.ScanAgain - time.Second)
		if again := w.scan(id, "ns9.old.test"); again != first {
			t.Errorf("%s and then %s", first, again)
		}
		time.Sleep(time.Second)
		second := w.scan(id, "ns9.old.test.", "192.0.2.9", "ns9.old.test")
		synctest.Wait()
		if _, r := w.result(second); second == first || fmt.Sprint(r.Nameservers) != "[ns9.old.test 192.0.2.9]" {
			t.Errorf("the second scan %s has %+v", second, r)
		}
		if got := fmt.Sprint(w.domain(id).PreviousNameservers); got != "[ns1.old.test ns2.old.test]" {
			t.Errorf("nameservers that were only asked became those of before: %s", got)
		}
		other := core.Actor{AccountID: w.Account(t, "other@example.test").AccountID, Role: "owner"}
		_, err := w.Scans.ScanZone(t.Context(), other, scans.ScanZoneIn{DomainID: id})
		if e, ok := core.AsError(err); !ok || e.Code != "not_found" {
			t.Errorf("another account: %v", err)
		}
		for _, bad := range []string{"", "ns1", "ns1.old.test:53", "fe80::1%eth0", "a b.test"} {
			_, err := w.Scans.ScanZone(t.Context(), w.who, scans.ScanZoneIn{DomainID: id, Nameservers: []string{bad}})
			if e, ok := core.AsError(err); !ok || e.Code != "validation_error" {
				t.Errorf("%q: %v", bad, err)
			}
		}
		later := zones.ImportZoneIn{DomainID: id, Scan: first}
		if _, err := w.Zones.ImportZone(t.Context(), w.who, later); err == nil || !strings.Contains(err.Error(), "is not the newest scan") {
			t.Errorf("the scan of before: %v", err)
		}
		for _, in := range []zones.ImportZoneIn{{DomainID: id}, {DomainID: id, Scan: second, ZoneFile: "www A 192.0.2.1\n"}} {
			_, err := w.Zones.ImportZone(t.Context(), w.who, in)
			if e, ok := core.AsError(err); !ok || e.Code != "exactly_one_parameter" {
				t.Errorf("%+v: %v", in, err)
			}
		}
	})
}

// TestFewScansAtOnce: four run at the same time, and two of one account.
func TestFewScansAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.scanner.hold = make(chan struct{})
		for _, who := range []string{"", "b", "c"} {
			if who != "" {
				a := w.Account(t, who+"@example.test")
				w.who = core.Actor{AccountID: a.AccountID, UserID: a.UserID, Role: "owner", Permissions: []string{"admin"}}
			}
			for i := range 5 {
				w.connect(fmt.Sprintf("own%s%d.test", who, i))
			}
			synctest.Wait()
			want := 4
			if who == "" {
				want = 2
			}
			if w.scanner.most != want {
				t.Errorf("%d scans run, want %d", w.scanner.most, want)
			}
		}
		close(w.scanner.hold)
		synctest.Wait()
	})
}

// TestConnectingManyScansThem: the scans of as many domains as one request connects are within the
// bounds of its transaction, and all end.
func TestConnectingManyScansThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("own%d.test", i))
		}
		out, err := w.Domains.ConnectDomains(t.Context(), w.who, domains.ConnectDomainsIn{Domains: names})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, d := range out.Domains {
			if status, r := w.result(w.stored(*d.DomainID).ScanJobID); status != "completed" || r == nil {
				t.Errorf("the scan of %s is %s", d.Domain, status)
			}
		}
	})
}

// TestScanFails: a scan whose lookups fail is tried again, and then tells so. One that nobody
// answers has a result.
func TestScanFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.scanner.err = scan.ErrLookup
		id := w.connect("own.test")
		time.Sleep(time.Minute)
		synctest.Wait()
		j, err := w.GetJob(t.Context(), w.who, service.GetJobIn{ID: w.stored(id).ScanJobID})
		if err != nil || j.Status != "error" || j.Error.Code != "upstream_error" || j.Attempts != 3 {
			t.Errorf("job %+v, %v", j, err)
		}
		w.wantDetail(id, "do not answer") // so it is not known either whether there is a website
		if told := w.events("zone.scan_finished"); len(told) != 1 || told[0]["status"] != "error" || told[0]["method"] != nil {
			t.Errorf("events %v", told)
		}
		w.scanner.set(func() { w.scanner.err, w.scanner.servers = nil, scan.Servers{} })
		time.Sleep(10 * time.Minute)
		job := w.scan(id)
		synctest.Wait()
		if status, r := w.result(job); status != "completed" || r.Method != "none" || len(r.Nameservers)+len(r.Records) > 0 {
			t.Errorf("%s %+v", status, r)
		}
		w.wantDetail(id, "Set these nameservers")
	})
}

// TestInterruptedScan: a scan that the end of the program has interrupted is made again.
func TestInterruptedScan(t *testing.T) {
	fake := newScanner()
	fake.hold = make(chan struct{})
	b, restart := servicetest.NewRestarting(t, 0, func(c *core.Config) { c.Scanner, c.ScanNew, c.Resolver = fake, true, &servicetest.World{} })
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Domains.ConnectDomains(t.Context(), who, domains.ConnectDomainsIn{Domains: []string{"own.test"}})
	if err != nil {
		t.Fatal(err)
	}
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		fake.set(func() { begun = fake.running == 1 })
	}
	restart()
	close(fake.hold)
	d, err := b.Domains.DomainByID(*out.Domains[0].DomainID)
	if err != nil {
		t.Fatal(err)
	}
	wait := 30
	j, err := b.GetJob(t.Context(), who, service.GetJobIn{ID: d.ScanJobID, Wait: &wait})
	if err != nil || j.Status != "completed" || j.Result == nil {
		t.Errorf("job %+v, %v", j, err)
	}
}

// TestLargestScan: a result of 10 000 records and 5 MiB is stored, read and compared within the
// bounds of a transaction, and larger ones are cut.
func TestLargestScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		var many, large []dnsprov.Record
		for i := range 10_001 {
			many = append(many, record(fmt.Sprintf("n%05d.own.test", i), "A", "192.0.2.1"))
		}
		for i := range 200 {
			large = append(large, record(fmt.Sprintf("n%05d.own.test", i), "TXT", strings.Repeat("\x80\\", 16<<10)))
		}
		for _, records := range [][]dnsprov.Record{many, large} {
			w.scanner.result.Records = records
			id := w.connect(fmt.Sprintf("own%d.test", len(records)))
			time.Sleep(time.Second)
			synctest.Wait()
			status, r := w.result(w.stored(id).ScanJobID)
			size := 0
			for _, set := range r.Records {
				size += len(set.Name) + len(strings.Join(set.Values, ""))
			}
			if status != "completed" || r.Complete || len(r.Records) < 50 || len(r.Records) > 10_000 || size > 5<<20 {
				t.Errorf("%s: %d records of %d bytes, complete %v", status, len(r.Records), size, r.Complete)
			}
			if records[0].Type == "A" && w.issues(id) != "not_imported" {
				t.Errorf("issues: %s", w.issues(id))
			}
		}
	})
}

// TestSlowServers: nameservers that use up the time of a scan and then fall silent do not make it
// fail.
func TestSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.scanner.slow = 10 * time.Minute
		id := w.connect("own.test")
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if status, r := w.result(w.stored(id).ScanJobID); status != store.JobCompleted || len(r.Records) == 0 {
			t.Errorf("the scan is %s: %+v", status, r)
		}
	})
}

// TestManyFindings: texts name the first record sets, and say how many others there are.
func TestManyFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newScanWorld(t)
		w.scanner.result.Records = []dnsprov.Record{record("own.test", "TXT", "v=spf1 ip4:192.0.2.0/24 -all")}
		for n := range 300 {
			w.scanner.result.Records = append(w.scanner.result.Records, record(fmt.Sprintf("n%03d.own.test", n), "A", "192.0.2.1"), record("own.test", "MX", fmt.Sprintf("10 mx%d.old.test", n)))
		}
		id := w.connect("own.test")
		synctest.Wait()
		text := ""
		for _, i := range w.domain(id).DNSHealth.Issues {
			text += i.Message + "\n"
		}
		for _, want := range []string{"(301 values): A n000, A n001, A n002, A n003, A n004 and 296 others. Import", "goes to mx0.old.test, mx1.old.test, mx2.old.test, mx3.old.test, mx4.old.test now"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
	})
}
