package api

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/rdap/rdaptest"
	"github.com/mailstead/mailstead/e2e/rig"
)

// A found is what the tests read of a search.
type found struct {
	Domain      string
	Available   *bool
	Price       *float64
	CheckedVia  string `json:"checked_via"`
	Purchasable bool
	Error       *string
}

func (f found) String() string {
	available := "unknown"
	if f.Available != nil {
		available = map[bool]string{true: "free", false: "taken"}[*f.Available]
	}
	if (f.Error == nil) != (f.Available != nil) || f.Price != nil || f.Purchasable {
		available += " and more"
	}
	return f.Domain + " " + available + " " + f.CheckedVia
}

// newSearcher starts a server as in production, with a fake of the world's registries.
func newSearcher(t *testing.T, f *rdaptest.Fake, world *rig.FakeResolver) *rig.Instance {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, f.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("hostname = %q\nhttp_tls = \"off\"\nsubmissions = \"off\"\nimaps = \"off\"\noutbound = \"capture\"\npublic_ip = [\"192.0.2.1\"]\n"+
		"resolver = %q\nca_file = %q\n%s[rdap]\nbootstrap_url = %q\n", "mail.example.org", world.Addr, ca, rig.GenerousLimits, f.URL())
	return rig.Start(t, config)
}

// TestSearchByRDAP runs the real program against registries, good and bad.
func TestSearchByRDAP(t *testing.T) {
	t.Parallel()
	f, world := rdaptest.Start(t, "com", "co.uk", "garbage", "lies", "dead", "moved", "limit"), rig.NewFakeResolver(t)
	for ending, manner := range map[string]rdaptest.Manner{
		"garbage": rdaptest.Garbage, "lies": rdaptest.OtherName, "dead": rdaptest.Slow, "moved": rdaptest.Moved, "limit": rdaptest.Busy,
	} {
		f.Behave(ending, manner)
	}
	for _, name := range []string{"taken.com", "edge.com", "xn--bcher-kva.co.uk", "taken.moved"} {
		f.Add(name, rdaptest.Domain{Registrar: "Other, Ltd", IANAID: "292", Nameservers: []string{"ns1.other.test"}})
	}
	f.Add("edge.com", rdaptest.Domain{Registrar: "Cloudflare, Inc.", IANAID: "1910", Nameservers: []string{"LIA.ns.test", "adam.ns.test"}})
	world.Set(t, "live.dead", "NS", "ns1.other.test.")
	i := newSearcher(t, f, world)

	var one found
	for q, want := range map[string]string{
		"taken.com": "taken.com taken rdap", "free.com": "free.com free rdap", "b%C3%BCcher.co.uk": "xn--bcher-kva.co.uk taken rdap",
		"xn--bcher-kva.com": "xn--bcher-kva.com free rdap", "taken.moved": "taken.moved taken rdap", "a.garbage": "a.garbage unknown dns",
		"a.limit": "a.limit unknown dns", "a.none": "a.none unknown dns", "live.dead": "live.dead taken dns",
	} {
		if i.Want(200, "GET", "/v1/domains/search?q="+q, nil, &one); one.String() != want {
			t.Errorf("%s: %s", q, one)
		}
	}

	searchInBulk(i, f)
	var p struct {
		Domain      string
		Registrar   *string
		Nameservers []string
		IsEdge      bool `json:"is_edge"`
	}
	for name, want := range map[string]string{
		"www.edge.com": "www.edge.com Cloudflare, Inc. [adam.ns.test lia.ns.test] true", "bücher.co.uk": "xn--bcher-kva.co.uk Other, Ltd [ns1.other.test] false",
	} {
		i.Want(200, "POST", "/v1/domains/check-provider", map[string]string{"domain": name}, &p)
		if got := fmt.Sprintf("%s %s %s %t", p.Domain, *p.Registrar, p.Nameservers, p.IsEdge); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	i.Want(200, "POST", "/v1/domains/check-provider", map[string]string{"domain": "free.com"}, &p)
	if p.Registrar != nil || p.Nameservers == nil || len(p.Nameservers) != 0 || p.IsEdge {
		t.Errorf("a domain of nobody's: %+v", p)
	}
	for _, name := range []string{"a.garbage", "a.lies", "a.dead", "a.limit", "a.none"} {
		var failed struct {
			Error struct {
				Code    string
				Details []struct{ Field string }
			}
		}
		i.Want(502, "POST", "/v1/domains/check-provider", map[string]string{"domain": name}, &failed)
		if failed.Error.Code != "upstream_error" || failed.Error.Details[0].Field != "rdap" {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	i.Want(400, "POST", "/v1/domains/check-provider", map[string]string{"domain": "co.uk"}, nil)

	var suggested struct{ Suggestions []found }
	i.Want(200, "GET", "/v1/domains/suggest?keywords=taken&tlds=com&limit=5", nil, &suggested)
	if s := suggested.Suggestions; len(s) != 5 || s[0].String() != "gettaken.com free rdap" {
		t.Errorf("suggestions: %s", s)
	}
}

// searchInBulk searches 100 names at once, one bad registry and one bad name among each five.
func searchInBulk(i *rig.Instance, f *rdaptest.Fake) {
	i.T.Helper()
	var names, want []string
	for n := range 20 {
		bad := []string{"garbage", "lies", "dead", "limit"}[n%4]
		names = append(names, fmt.Sprintf("a%d.com", n), fmt.Sprintf("no name %d", n), fmt.Sprintf("a%d.%s", n, bad), fmt.Sprintf("A%d.co.uk", n), "taken.com")
		want = append(want, fmt.Sprintf("a%d.com free rdap", n), fmt.Sprintf("no name %d unknown rdap", n), fmt.Sprintf("a%d.%s unknown dns", n, bad),
			fmt.Sprintf("a%d.co.uk free rdap", n), "taken.com taken rdap")
	}
	var bulk struct {
		Results        []found
		Count          int
		AvailableCount int `json:"available_count"`
	}
	began := time.Now()
	i.Want(200, "POST", "/v1/domains/search-bulk", map[string]any{"domains": names}, &bulk)
	i.T.Logf("100 names, among them a dead registry's, in %s", time.Since(began))
	if bulk.Count != 100 || bulk.AvailableCount != 40 || time.Since(began) > 40*time.Second {
		i.T.Errorf("%d results, %d available, after %s", bulk.Count, bulk.AvailableCount, time.Since(began))
	}
	for n, r := range bulk.Results {
		if r.String() != want[n] {
			i.T.Errorf("%d: %s, not %s", n, r, want[n])
		}
	}
	if n := f.Peak("com"); n > 40 {
		i.T.Errorf("a registry got %d questions in a second", n)
	}
}

// TestSandboxAsksNobodyUnasked shows that only a list which is named makes a sandbox ask
// registries, and no other than its.
func TestSandboxAsksNobodyUnasked(t *testing.T) {
	f, world := rdaptest.Start(t, "com"), rig.NewFakeResolver(t)
	f.Behave(rdaptest.Bootstrap, rdaptest.Broken)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, f.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{"", "[rdap]\nbootstrap_url = \"off\"\n", fmt.Sprintf("[rdap]\nbootstrap_url = %q\n", f.URL())} {
		i := rig.Start(t, config, "--resolver", world.Addr, "--ca-file", ca)
		var one found
		if i.Want(200, "GET", "/v1/domains/search?q=free.com", nil, &one); one.String() != "free.com unknown dns" {
			t.Errorf("%q: %s", config, one)
		}
		i.Stop()
	}
	if n := f.Asked(rdaptest.Bootstrap); n != 1 {
		t.Errorf("the list was asked for %d times", n)
	}
}
