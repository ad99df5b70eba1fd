package e2e

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
)

// TestEdgeFaults: whatever the provider answers, the domain is complete in the end, with each
// record once.
func TestEdgeFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []cloudflaretest.Fault{
		{Kind: cloudflaretest.TooMany, Path: "batch", After: time.Second, Times: 2},
		{Kind: cloudflaretest.TooMany, Path: "batch", After: 12 * time.Second},
		{Kind: cloudflaretest.Broken, Path: "batch"},
		{Kind: cloudflaretest.Garbage, Path: "dns_records", Skip: 1, Times: 4},
		{Kind: cloudflaretest.Cut, Method: "POST"},
		{Kind: cloudflaretest.CutAfter, Method: "POST"},
		{Kind: cloudflaretest.HalfDone, Method: "POST"},
	} {
		t.Run(fault.Kind, func(t *testing.T) {
			t.Parallel()
			f := newFakeEdge(t, "edge.test")
			i := newInstance(t, f.config(), "--resolver", newResolver(t).addr)
			f.Fail(fault)
			r := i.connectEdge(edgeToken, "edge.test")[0]
			if r.Status != "created" {
				t.Fatalf("connect: %+v", r)
			}
			i.complete(r.DomainID)
			wantManaged(t, f, "edge.test", fault.Kind)
		})
	}
}

// wantManaged wants the managed records of a zone to be there, each once.
func wantManaged(t *testing.T, f *fakeEdge, zone, when string) {
	t.Helper()
	want := []string{"MX " + zone + " 10", "TXT _dmarc." + zone, "TXT " + zone + " \"v=spf1", "TXT ms1._domainkey." + zone, "TXT ms1e._domainkey." + zone}
	got := slices.DeleteFunc(f.lines(zone, true), func(l string) bool { return strings.HasPrefix(l, "SRV ") })
	for n, line := range want {
		if len(got) != len(want) || !strings.HasPrefix(got[n], line) {
			t.Errorf("%s: ours are %q", when, got)
			return
		}
	}
}

// TestEdgeRaces: somebody makes records between our look and our change. One that says the same is
// adopted, and left when the domain goes; one in the place of ours is a conflict, and stays.
func TestEdgeRaces(t *testing.T) {
	t.Parallel()
	f := newFakeEdge(t, "same.test", "other.test")
	i := newInstance(t, f.config(), "--resolver", newResolver(t).addr)
	var once sync.Once
	race := func(zone, kind, name, content string) {
		once = sync.Once{}
		f.watch(func(_, path string) {
			if strings.HasSuffix(path, "/batch") {
				once.Do(func() { f.put(zone, kind, name, content) })
			}
		})
	}
	race("same.test", "TXT", "_dmarc.same.test", `"v=DMARC1; p=reject"`) // 81058
	same := i.connectEdge(edgeToken, "same.test")[0].DomainID
	i.complete(same)
	if f.has("same.test", "TXT _dmarc") || !f.has("same.test", "MX same.test") || len(f.lines("same.test", false)) != 1 {
		t.Errorf("ours are %q, others' %q", f.lines("same.test", true), f.lines("same.test", false))
	}
	if i.erase(same); len(f.lines("same.test", true)) != 0 || len(f.lines("same.test", false)) != 1 {
		t.Errorf("left are %q and %q", f.lines("same.test", true), f.lines("same.test", false))
	}

	race("other.test", "MX", "other.test", "20 mail.mailstead.test") // 81057
	job := i.setUp(map[string]any{"domain": "other.test", "edge_api_token": edgeToken})
	if job.Status != "error" || job.Error.Code != "zone_conflict" || !strings.Contains(job.Error.Message, `MX other.test "20 mail.mailstead.test"`) {
		t.Errorf("setup %+v %+v", job, job.Error)
	}
	f.watch(nil)
	if i.erase(job.Resource.ID); len(f.lines("other.test", true)) != 0 || !slices.Equal(f.lines("other.test", false), []string{"MX other.test 20 mail.mailstead.test"}) {
		t.Errorf("left are %q and %q", f.lines("other.test", true), f.lines("other.test", false))
	}
}
