package domains_test

import (
	"crypto"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/internal/soak"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// An edgeWorld is a service with an edge provider that has a zone edge.test.
type edgeWorld struct {
	*servicetest.Sandbox
	t    *testing.T
	edge *servicetest.Edge
	who  core.Actor
}

func newEdgeWorld(t *testing.T) *edgeWorld {
	t.Helper()
	w, end := newEdgeWorldIn(t, t.TempDir(), store.Options{}, servicetest.NewEdge("edge.test"))
	t.Cleanup(end)
	return w
}

// newEdgeWorldIn is newEdgeWorld over a store and a provider that may have been another one's. end
// closes the service.
func newEdgeWorldIn(t *testing.T, dir string, o store.Options, edge *servicetest.Edge) (w *edgeWorld, end func()) {
	t.Helper()
	world := &servicetest.World{}
	b, closes := servicetest.NewIn(t, dir, o, edge.With(func(c *core.Config) { c.Resolver = world }))
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return &edgeWorld{b, t, edge, who}, func() {
		closes()
		for _, bad := range edge.Bad {
			t.Errorf("the edge provider was asked for: %s", bad)
		}
	}
}

// connect connects names with a token.
func (w *edgeWorld) connect(token string, names ...string) *domains.Connected {
	w.t.Helper()
	out, err := w.Domains.ConnectDomains(w.t.Context(), w.who, domains.ConnectDomainsIn{Domains: names, EdgeAPIToken: &token})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// add connects edge.test and returns its id.
func (w *edgeWorld) add() string {
	w.t.Helper()
	out := w.connect(servicetest.EdgeToken, "edge.test")
	if out.Domains[0].Status != "created" {
		w.t.Fatalf("connect: %s", *out.Domains[0].Error)
	}
	return *out.Domains[0].DomainID
}

// settle runs every job that is due within a day.
func (w *edgeWorld) settle() {
	time.Sleep(24 * time.Hour)
	synctest.Wait()
}

func (w *edgeWorld) domain(id string) *domains.Domain { return getDomain(w.t, w.Service, w.who, id) }

// record returns one custom record as it is listed.
func (w *edgeWorld) record(domain, id string) zones.CustomDNSRecord {
	w.t.Helper()
	out, err := w.Zones.ListCustomDNSRecords(w.t.Context(), w.who, zones.ListCustomDNSRecordsIn{DomainID: domain})
	if err != nil {
		w.t.Fatal(err)
	}
	at := slices.IndexFunc(out.Records, func(r zones.CustomDNSRecord) bool { return r.ID == id })
	if at < 0 {
		w.t.Fatalf("there is no record %s", id)
	}
	return out.Records[at]
}

func (w *edgeWorld) create(domain, name, typ, value string) zones.CustomDNSRecord {
	w.t.Helper()
	out, err := w.Zones.CreateCustomDNSRecord(w.t.Context(), w.who, zones.CreateCustomDNSRecordIn{DomainID: domain, Name: name, Type: typ, Value: value})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Record
}

// brief shortens the values of keys.
func brief(lines []string) []string {
	var out []string
	for _, l := range lines {
		if head, _, key := strings.Cut(l, "; p="); key && strings.Contains(l, "_domainkey") {
			l = head
		}
		out = append(out, l)
	}
	return out
}

// managed returns the records that edge.test needs.
var managed = []string{
	"MX edge.test 10 mail.example.test",
	"TXT _dmarc.edge.test v=DMARC1; p=reject",
	"TXT edge.test v=spf1 mx ip4:127.0.0.1 ~all",
	"TXT ms1._domainkey.edge.test v=DKIM1; k=rsa",
	"TXT ms1e._domainkey.edge.test v=DKIM1; k=ed25519",
}

// wantOurs compares the records that we made in the zone edge.test with the managed records, plus
// some and minus others.
func (w *edgeWorld) wantOurs(more []string, without ...string) {
	w.t.Helper()
	want := []string{}
	for _, line := range append(slices.Clone(managed), more...) {
		if !slices.Contains(without, line) {
			want = append(want, line)
		}
	}
	slices.Sort(want)
	if got := brief(w.edge.Ours("edge.test")); !slices.Equal(got, want) {
		w.t.Errorf("ours are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A token, zones and their records are looked at before anything is made; one bad name does not
// fail its neighbours.
func TestConnectAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.AddZone("taken.test")
		w.edge.Add("taken.test", "MX", "taken.test", "5 mx.elsewhere.test")
		w.edge.AddZone("parent.test")
		w.edge.Add("parent.test", "MX", "parent.test", "5 mx.elsewhere.test")
		out := w.connect(servicetest.EdgeToken, "edge.test", "nozone.test", "taken.test", "not a name", "mail.parent.test")
		var got []string
		for _, d := range out.Domains {
			line := d.Domain + " " + d.Status + " " + d.DNSProvider
			if d.Error != nil {
				code, _, _ := strings.Cut(*d.Error, ": ")
				line += " " + code
			}
			got = append(got, line)
		}
		want := []string{
			"edge.test created cloudflare", "nozone.test error cloudflare zone_not_found", "taken.test error cloudflare zone_conflict",
			got[3], "mail.parent.test created cloudflare",
		}
		if !slices.Equal(got, want) || !strings.HasPrefix(got[3], "not a name error") || !out.EdgeMode || len(out.Nameservers) != 0 || out.DomainsUsed != 2 {
			t.Errorf("answer %q, %+v", got, out)
		}
		if why := *out.Domains[2].Error; !strings.Contains(why, `MX taken.test "5 mx.elsewhere.test"`) {
			t.Errorf("the conflict is told as %s", why)
		}
		for _, d := range w.connect("no-such-token", "edge.test", "other.test", "third.test").Domains[1:] {
			if d.Status != "error" || !strings.HasPrefix(*d.Error, "edge_token_invalid: ") || strings.Contains(*d.Error, "no-such-token") {
				t.Errorf("with a bad token: %+v %s", d, *d.Error)
			}
		}
		w.settle()
		d := w.domain(*out.Domains[0].DomainID)
		if d.Status != "complete" || d.NSStatus != "not_required" || len(d.Nameservers) != 0 || d.DNSProvider != "cloudflare" {
			t.Errorf("domain %+v", d)
		}
		w.wantOurs(nil)
		if got := w.edge.Strangers("taken.test"); len(got) != 1 || len(w.edge.Ours("taken.test")) != 0 {
			t.Errorf("the zone with a conflict has %s and %s", got, w.edge.Ours("taken.test"))
		}
		if got := brief(w.edge.Ours("parent.test")); len(got) != 5 || got[0] != "MX mail.parent.test 10 mail.example.test" {
			t.Errorf("the domain inside of another zone has %s", got)
		}
	})
}

// One hundred names are asked about eight at a time, and no longer than the whole request may take.
func TestConnectAtTheEdgeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		var names []string
		for n := range 100 {
			names = append(names, fmt.Sprintf("n%d.test", n))
		}
		w.edge.Meddle = func(call string) error {
			if call == "records" {
				time.Sleep(time.Second)
			}
			return nil
		}
		start := time.Now()
		out := w.connect(servicetest.EdgeToken, names...)
		if took := time.Since(start); took != 13*time.Second || len(out.Domains) != 100 {
			t.Errorf("%d names took %s", len(out.Domains), took)
		}
	})
}

// Whichever call to the provider fails or crashes, before or after it has taken effect, the domain
// becomes complete with each record once. Deleted again, it leaves no record of ours and all
// records of others.
func TestEdgeSurvivesAFaultAtEveryCall(t *testing.T) {
	if testing.Short() {
		t.Skip("it does one thing after the other, many times")
	}
	calls, step := 0, soak.Size(2, 1)
	for hit := "-"; hit != ""; calls += step {
		synctest.Test(t, func(t *testing.T) { hit = edgeWithFault(t, calls+3) }) // connect's own calls are tested elsewhere
	}
	if calls < 18 {
		t.Errorf("there were only %d calls", calls)
	}
}

// edgeWithFault sets up a domain at the edge provider while the n-th call fails, and returns which
// call that was.
func edgeWithFault(t *testing.T, n int) (hit string) {
	w := newEdgeWorld(t)
	w.edge.Add("edge.test", "A", "edge.test", "192.0.2.1")
	w.edge.Add("edge.test", "TXT", "_dmarc.edge.test", "v=DMARC1; p=reject") // as ours would be: adopted
	w.edge.Add("edge.test", "TXT", "edge.test", "google-site-verification=1")
	strangers := w.edge.Strangers("edge.test")
	count := 0
	fault := func(call string) error {
		if count++; count != n {
			return nil
		}
		hit = call
		return servicetest.ErrNoAnswer
	}
	w.edge.Set(func() { w.edge.Meddle = fault })
	id := w.add()
	w.settle()
	if d := w.domain(id); d.Status != "complete" {
		t.Fatalf("call %d (%s): domain %+v", n, hit, d)
	}
	w.wantOurs(nil, managed[1])
	w.wantNoted(id)
	if r := w.create(id, "own", "TXT", "x"); r.Status == "error" {
		t.Errorf("record %+v", r)
	}
	w.settle()
	w.wantOurs([]string{"TXT own.edge.test x"}, managed[1])
	job, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id})
	if err != nil {
		t.Fatal(err)
	}
	w.settle()
	if j := getJob(t, w.Service, w.who, job.JobID); j.Status != "completed" || j.Steps[1].Name != "edge_records" || j.Steps[1].Status != "completed" {
		t.Errorf("call %d (%s): deletion %+v", n, hit, j)
	}
	if left, there := w.edge.Ours("edge.test"), w.edge.Strangers("edge.test"); len(left) != 0 || !slices.Equal(there, strangers) {
		t.Errorf("call %d (%s): left are %s and %s", n, hit, left, there)
	}
	return hit
}

// ownRows returns the rows of the records that we have made for a domain at DNS providers.
func ownRows(tx *store.Tx, domainID string) []*store.EdgeRecord {
	return slices.Collect(store.EdgeRecordsOf(tx, domainID))
}

// wantNoted compares the noted records of a domain with those that exist at its DNS provider.
func (w *edgeWorld) wantNoted(id string) {
	w.t.Helper()
	err := w.Core.Store.View(func(tx *store.Tx) error {
		d, err := store.Domains.Get(tx, id)
		if err != nil {
			return err
		}
		rows := ownRows(tx, id)
		if n := len(w.edge.Ours(d.Name)); len(rows) != n {
			w.t.Errorf("%d records are noted, %d are there", len(rows), n)
		}
		for _, r := range rows {
			if r.Place != d.EdgePlace {
				w.t.Errorf("%s is noted at place %d, the domain is at %d", r.RecordID, r.Place, d.EdgePlace)
				break
			}
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// An API that drops the comments of records does not make us forget which records are ours.
func TestEdgeRecordsAreKnownByTheirIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.Lossy = true
		id := w.add()
		w.settle()
		w.create(id, "own", "A", "192.0.2.7")
		w.wantOurs([]string{"A own.edge.test 192.0.2.7"})
		if _, err := w.Zones.SetDMARC(t.Context(), w.who, zones.SetDMARCIn{DomainID: id, Value: "v=DMARC1; p=none"}); err != nil {
			t.Fatal(err)
		}
		w.wantOurs([]string{"A own.edge.test 192.0.2.7", "TXT _dmarc.edge.test v=DMARC1; p=none"}, managed[1])
		if _, err := w.Domains.DeleteDomain(t.Context(), w.who, domains.DomainIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if left := w.edge.Ours("edge.test"); len(left) != 0 {
			t.Errorf("left: %s", left)
		}
	})
}

// Other records in the place of ours end the job. It names all of them and changes nothing; setup
// continues once they are gone.
func TestEdgeConflictNamesEveryRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		generate := w.Core.GenerateRSA
		w.Core.GenerateRSA = func() ([]byte, crypto.Signer, error) { // the job does so before it looks at the records
			w.Core.GenerateRSA = generate
			w.edge.Add("edge.test", "MX", "edge.test", "1 mx.elsewhere.test")
			w.edge.Add("edge.test", "TXT", "edge.test", "v=spf1 include:elsewhere.test -all")
			return generate()
		}
		token := servicetest.EdgeToken
		job := setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", EdgeAPIToken: &token, Users: []domains.SetupUser{{Username: "ann"}}})
		w.settle()
		j := getJob(t, w.Service, w.who, job.JobID)
		if j.Status != "error" || j.Attempts != 1 || j.Error.Code != "zone_conflict" || !strings.Contains(j.Error.Message, `MX edge.test "1 mx.elsewhere.test"`) ||
			!strings.Contains(j.Error.Message, `TXT edge.test "v=spf1 include:elsewhere.test -all"`) {
			t.Errorf("job %+v, error %+v", j, j.Error)
		}
		if d := w.domain(job.Resource.ID); d.Status != "error" || d.Error.Code != "zone_conflict" {
			t.Errorf("domain %+v", d)
		}
		if len(w.edge.Ours("edge.test")) != 0 || len(w.edge.Strangers("edge.test")) != 2 {
			t.Errorf("ours %s, others' %s", w.edge.Ours("edge.test"), w.edge.Strangers("edge.test"))
		}
		w.edge.Remove("edge.test", "MX", "edge.test")
		w.edge.Remove("edge.test", "TXT", "edge.test")
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		w.settle()
		if d := w.domain(job.Resource.ID); d.Status != "complete" || d.EmailUsersCount != 1 {
			t.Errorf("domain after another setup %+v", d)
		}
		w.wantOurs(nil)
	})
}

// A provider that limits the rate is asked again at the time that it gives.
func TestEdgeWaitsAsItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		waits := 0
		id := ""
		w.edge.Meddle = func(call string) error {
			if call == "apply" && waits < 3 {
				waits++
				return &servicetest.EdgeWait{For: 7 * time.Minute, Err: servicetest.ErrNoAnswer}
			}
			return nil
		}
		start := time.Now()
		id = w.add()
		synctest.Wait()
		j := getJob(t, w.Service, w.who, *w.domain(id).JobID)
		if j.Status != "queued" || j.NextAttemptAt.Sub(start) < 7*time.Minute || j.Error.Code != "upstream_error" {
			t.Errorf("job %+v", j)
		}
		time.Sleep(22 * time.Minute)
		synctest.Wait()
		if d := w.domain(id); d.Status != "complete" || d.CompletedAt.Sub(start) < 21*time.Minute {
			t.Errorf("domain %+v", d)
		}
	})
}

// A token that may read only shows when the first record is made; a better one takes its place once
// it was checked.
func TestEdgeTokenIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		w.edge.Tokens["reader"], w.edge.Tokens["better"] = "read", "edit"
		id := *w.connect("reader", "edge.test").Domains[0].DomainID
		w.settle()
		if d := w.domain(id); d.Status != "error" || d.Error.Code != "edge_token_invalid" || !strings.Contains(d.Error.Message, "DNS → Edit") {
			t.Errorf("domain %+v", d.Error)
		}
		for _, token := range []string{"nonsense", "better"} {
			job := setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", EdgeAPIToken: &token})
			w.settle()
			j := getJob(t, w.Service, w.who, job.JobID)
			if well := token == "better"; (j.Status == "completed") != well || j.Steps[0].Name != "edge_token" || (j.Steps[0].Status == "completed") != well {
				t.Errorf("setup with %s: %+v %+v", token, j, j.Error)
			}
		}
		if d := w.domain(id); d.Status != "complete" {
			t.Errorf("domain %+v", d)
		}
		// A bad token does not take the place of a good one.
		bad := "worse"
		setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test", EdgeAPIToken: &bad})
		w.settle()
		if r := w.create(id, "own", "TXT", "x"); r.Status != "active" {
			t.Errorf("record %+v", r)
		}
		err := w.Core.Store.View(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if strings.Contains(string(j.Args), "better") || strings.Contains(j.Err, "better") {
					t.Errorf("job %s holds the token: %s", j.Kind, j.Args)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Setup restores records that were deleted or changed at the provider. It keeps the chosen policy.
func TestSetupRepairsAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t)
		id := w.add()
		w.settle()
		if _, err := w.Zones.SetDMARC(t.Context(), w.who, zones.SetDMARCIn{DomainID: id, Value: "v=DMARC1; p=none"}); err != nil {
			t.Fatal(err)
		}
		w.create(id, "own", "TXT", "x")
		own := []string{"TXT _dmarc.edge.test v=DMARC1; p=none", "TXT own.edge.test x"}
		w.wantOurs(own, managed[1])
		w.edge.Remove("edge.test", "MX", "edge.test")
		w.edge.Remove("edge.test", "TXT", "own.edge.test")
		w.edge.Remove("edge.test", "TXT", "_dmarc.edge.test")
		job := setUp(t, w.Service, w.who, domains.SetupDomainIn{Domain: "edge.test"})
		w.settle()
		if j := getJob(t, w.Service, w.who, job.JobID); j.Status != "completed" {
			t.Errorf("setup %+v", j)
		}
		w.wantOurs(own, managed[1])
		if _, err := w.Zones.ResetDMARC(t.Context(), w.who, zones.ResetDMARCIn{DomainID: id}); err != nil {
			t.Fatal(err)
		}
		w.wantOurs([]string{"TXT own.edge.test x"})
	})
}

// Resolvers remember for a while that there were no records; a domain that is new at the edge
// provider has not failed.
func TestNewEdgeDomainHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEdgeWorld(t) // none of its records is ever visible in the DNS
		id := w.add()
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if d := w.domain(id); d.Status != "complete" || d.DNSStatus != "propagating" || w.CountEvents(t, "domain.dns_failed") != 0 {
			t.Errorf("domain %+v", d)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if d := w.domain(id); d.DNSStatus != "failed" || w.CountEvents(t, "domain.dns_failed") != 1 {
			t.Errorf("after hours: %+v", d)
		}
	})
}
