package domains_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/rdap/rdaptest"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/servicetest"
)

// newRegistries makes a sandbox with fake RDAP registries, and a World for everything else.
func newRegistries(t *testing.T, shop registrar.Registrar, endings ...string) (*servicetest.Sandbox, *rdaptest.Fake, *servicetest.World, core.Actor) {
	t.Helper()
	f, w := rdaptest.Start(t, endings...), &servicetest.World{}
	client := rdap.New(rdap.Config{BootstrapURL: f.URL(), NoCopy: true, HTTP: f.Client(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(client.Close)
	b := servicetest.New(t, func(c *core.Config) {
		c.Sandbox, c.Resolver, c.RDAP = false, w, client
		if shop != nil {
			c.Registrars = append(c.Registrars, shop)
		}
	})
	who, err := b.Accounts.Operator(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return b, f, w, who
}

// said is a short form of a result: the name, whether it is available, and the source.
func said(r domains.SearchResult) string {
	available := "unknown"
	if r.Available != nil {
		available = map[bool]string{true: "free", false: "taken"}[*r.Available]
	}
	if (r.Error != nil) != (r.Available == nil) {
		available += " with the wrong error"
	}
	return r.Domain + " " + available + " " + r.CheckedVia
}

// TestWhoIsAsked holds the order: the registrar, the registry, the DNS.
func TestWhoIsAsked(t *testing.T) {
	b, f, w, who := newRegistries(t, servicetest.SandboxRegistrar(), "com", "shop", "bad")
	for _, name := range []string{"taken.shop", "mine.com", "taken.bad"} {
		f.Add(name, rdaptest.Domain{Registrar: "R"})
	}
	f.Behave("bad", rdaptest.Garbage)
	w.Tell("NS", "live.bad", "ns.else.test.")
	w.Tell("NS", "live.zone", "ns.else.test.")
	w.Tell("NS", "free.shop", "ns.else.test.") // the registry knows better
	for name, want := range map[string]string{
		"mine.com": "free registrar", "taken-x.com": "taken registrar", "taken.shop": "taken rdap", "free.shop": "free rdap",
		"taken.bad": "unknown dns", "live.bad": "taken dns", "live.zone": "taken dns", "none.zone": "unknown dns",
	} {
		r, err := b.Domains.SearchDomain(t.Context(), who, domains.SearchDomainIn{Q: name})
		if err != nil || said(*r) != name+" "+want {
			t.Errorf("%s: %s, %v, not %s", name, said(*r), err, want)
		}
		if r.CheckedVia != "registrar" && (r.Price != nil || r.Purchasable || r.Registrar != nil) {
			t.Errorf("%s: a price without a registrar: %+v", name, r)
		}
	}
	w.Set(func() { w.Dead = "all" })
	r, err := b.Domains.SearchDomain(t.Context(), who, domains.SearchDomainIn{Q: "live.bad"})
	if err != nil || said(*r) != "live.bad unknown dns" {
		t.Errorf("with nobody to answer: %s, %v", said(*r), err)
	}
}

// TestBadRegistryHoldsNoNeighboursUp asks for 100 names at once, of good and bad registries and no
// names at all.
func TestBadRegistryHoldsNoNeighboursUp(t *testing.T) {
	b, f, _, who := newRegistries(t, nil, "com", "net", "slow", "broken", "lies")
	f.Behave("slow", rdaptest.Slow)
	f.Behave("broken", rdaptest.Broken)
	f.Behave("lies", rdaptest.OtherName)
	var names, want []string
	add := func(name, result string) { names, want = append(names, name), append(want, result) }
	for i := range 16 {
		add(fmt.Sprintf("free%d.com", i), fmt.Sprintf("free%d.com free rdap", i))
		add(fmt.Sprintf("a%d.slow", i), fmt.Sprintf("a%d.slow unknown dns", i))
		add(fmt.Sprintf("a%d.broken", i), fmt.Sprintf("a%d.broken unknown dns", i))
		add(fmt.Sprintf("a%d.lies", i), fmt.Sprintf("a%d.lies unknown dns", i))
		taken := fmt.Sprintf("taken%d.net", i)
		f.Add(taken, rdaptest.Domain{Registrar: "R"})
		add(taken, taken+" taken rdap")
		add(fmt.Sprintf("no name %d", i), fmt.Sprintf("no name %d unknown rdap", i))
	}
	add("Bücher.com", "xn--bcher-kva.com free rdap")
	add("xn--bcher-kva.com", "xn--bcher-kva.com free rdap")
	add("co.uk", "co.uk unknown rdap")
	add("www.free0.com", "www.free0.com unknown rdap")
	began := time.Now()
	out, err := b.Domains.SearchDomainsBulk(t.Context(), who, domains.SearchDomainsBulkIn{Domains: names})
	took := time.Since(began)
	if err != nil || out.Count != 100 || out.AvailableCount != 18 || took > 40*time.Second {
		t.Fatalf("%+v, %v, after %s", out, err, took)
	}
	for i, r := range out.Results {
		if said(r) != want[i] {
			t.Errorf("%d: %s, not %s", i, said(r), want[i])
		}
	}
	if n := f.Asked("broken"); n > 20 {
		t.Errorf("a broken registry was asked %d times", n)
	}
	t.Logf("100 names of five registries, three of them bad, in %s", took)
}

func TestProviderByRegistry(t *testing.T) {
	shop := servicetest.NewShop()
	b, f, _, who := newRegistries(t, shop.Registrar(nil), "com", "co.uk", "quiet", "bad")
	shop.Sell("ours.com", time.Now(), "ns1.example.test")
	f.Add("ours.com", rdaptest.Domain{Registrar: "What the registry calls it"})
	f.Add("edge.com", rdaptest.Domain{Registrar: "Cloudflare, Inc.", IANAID: "1910", Nameservers: []string{"b.ns.test", "A.NS.test"}})
	f.Add("xn--bcher-kva.co.uk", rdaptest.Domain{Registrar: "Other", IANAID: "19100"})
	f.Add("a.quiet", rdaptest.Domain{})
	f.Behave("quiet", rdaptest.Mixed)
	f.Behave("bad", rdaptest.Page)
	for name, want := range map[string]string{
		"ours.com": "ours.com sandbox [ns1.example.test] false", "Edge.com.": "edge.com Cloudflare, Inc. [a.ns.test b.ns.test] true",
		"mail.edge.com": "mail.edge.com Cloudflare, Inc. [a.ns.test b.ns.test] true", "www.bücher.co.uk": "www.xn--bcher-kva.co.uk Other [] false",
		"a.quiet": "a.quiet 42 [] false", "nobodys.com": "nobodys.com <nil> [] false",
	} {
		p, err := b.Domains.CheckProvider(t.Context(), who, domains.CheckProviderIn{Domain: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		told := "<nil>"
		if p.Registrar != nil {
			told = *p.Registrar
		}
		if got := fmt.Sprintf("%s %s %s %t", p.Domain, told, p.Nameservers, p.IsEdge); got != want || p.Nameservers == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range []string{"a.bad", "a.zone"} {
		_, err := b.Domains.CheckProvider(t.Context(), who, domains.CheckProviderIn{Domain: name})
		if e, ok := core.AsError(err); !ok || e.Code != "upstream_error" || e.Details[0].Field != "rdap" || !strings.Contains(e.Message, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSuggestions(t *testing.T) {
	b, f, _, who := newRegistries(t, nil, "com", "xn--p1ai", "slow")
	suggest := func(in domains.SuggestDomainsIn) []string {
		t.Helper()
		out, err := b.Domains.SuggestDomains(t.Context(), who, in)
		if err != nil || out.Count != len(out.Suggestions) {
			t.Fatalf("%+v: %+v, %v", in, out, err)
		}
		var names []string
		for _, r := range out.Suggestions {
			names = append(names, r.Domain)
		}
		return names
	}
	few := 3
	for keywords, want := range map[string][]string{
		"the coffee of Berlin": {"coffeeberlin.com", "coffee-berlin.com", "berlincoffee.com"}, "of the": {"ofthe.com", "of-the.com", "theof.com"},
		"www.Bakery.co.uk": {"bakery.com", "getbakery.com", "bakeryhq.com"}, "get mail": {"getmail.com", "get-mail.com", "mailget.com"},
		"xn--bcher-kva.de": {"xn--bcher-kva.com", "xn--getbcher-95a.com", "xn--bcherhq-n2a.com"}, "кофе": {"xn--e1ajmy.com"}, "coffee кофе": {"coffee.com", "xn--e1ajmy.com", "coffeehq.com"},
	} {
		if got := suggest(domains.SuggestDomainsIn{Keywords: keywords, TLDs: "com", Limit: &few}); !slices.Equal(got, want) {
			t.Errorf("%q: %s", keywords, got)
		}
	}
	if got := suggest(domains.SuggestDomainsIn{Keywords: "кофе", TLDs: "рф,xn--p1ai,com"}); !slices.Equal(got, []string{"xn--e1ajmy.xn--p1ai", "xn--e1ajmy.com"}) {
		t.Errorf("endings: %s", got)
	}
	for _, label := range []string{"bread", "getbread", "breadhq", "trybread"} {
		f.Add(label+".com", rdaptest.Domain{Registrar: "R"})
	}
	if got := suggest(domains.SuggestDomainsIn{Keywords: "bread", TLDs: "com", Limit: &few}); !slices.Equal(got, []string{"breadmail.com", "mybread.com", "breadapp.com"}) {
		t.Errorf("taken names: %s", got)
	}
	asked := f.Asked("com")
	if got := suggest(domains.SuggestDomainsIn{Keywords: "bread", TLDs: "com", Limit: &few, Check: new(false)}); got[0] != "bread.com" || f.Asked("com") != asked {
		t.Errorf("unchecked: %s", got)
	}
}
