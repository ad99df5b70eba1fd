package handlers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// withShop gives an installation a registrar.
func withShop(shop servicetest.Registrar) func(*core.Config) {
	return func(c *core.Config) { c.Registrars = append(c.Registrars, shop) }
}

func TestSearchThroughARegistrar(t *testing.T) {
	shop := servicetest.NewShop()
	b, world := newWorld(t, withShop(shop.Registrar(nil)))
	b.get("/v1/account").has("registrars", "[sandbox]")
	b.get("/v1/domains/search?q=Bakery.io").is(200).has("domain", "bakery.io", "available", "true", "currency", "USD", "premium", "false",
		"registrar", "sandbox", "checked_via", "registrar", "purchasable", "true", "error", "<nil>", "price", "35", "renewal_price", "45")
	b.get("/v1/domains/search?domain=b%C3%BCcher.com").is(200).has("domain", "xn--bcher-kva.com", "available", "true")
	b.get("/v1/domains/search?q=xn--bcher-kva.com").is(200).has("domain", "xn--bcher-kva.com", "available", "true")
	b.get("/v1/domains/search?q=example.com").is(200).has("available", "false", "price", "<nil>", "renewal_price", "<nil>", "purchasable", "false", "error", "<nil>")
	b.get("/v1/domains/search?q=premium-bread.com").is(200).has("available", "true", "premium", "true", "price", "1100", "purchasable", "false")
	world.Tell("NS", "bakery.shop", "ns.else.test.")
	b.get("/v1/domains/search?q=bakery.shop").is(200).has("available", "false", "checked_via", "dns", "registrar", "<nil>", "price", "<nil>", "purchasable", "false")
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	b.get("/v1/domains/search?q=bakery.io").is(200).has("available", "<nil>", "checked_via", "dns", "purchasable", "false")
}

func TestSearchWithoutARegistrar(t *testing.T) {
	b, world := newWorld(t, nil)
	b.get("/v1/account").has("registrars", "[]")
	world.Tell("NS", "taken.com", "ns.else.test.")
	b.get("/v1/domains/search?q=taken.com").is(200).has("available", "false", "checked_via", "dns", "error", "<nil>", "currency", "USD", "registrar", "<nil>")
	r := b.get("/v1/domains/search?q=perhaps.com").is(200).has("available", "<nil>", "checked_via", "dns", "price", "<nil>", "purchasable", "false")
	if len(r.text("error")) < 20 {
		t.Errorf("nothing says why it is unknown: %s", r.raw)
	}
	world.Set(func() { world.Dead = "all" })
	b.get("/v1/domains/search?q=taken.com").is(200).has("available", "<nil>", "error", "It could not be looked up just now. Try again in a minute.")
	for _, q := range []string{"", "com", "co.uk", "no%20name", "www.taken.com", "https://taken.com", "*.com", strings.Repeat("a", 300) + ".com", "192.0.2.1", "a%00.com"} {
		if r := b.get("/v1/domains/search?q=" + q).is(400); r.text("error.code") != "invalid_domain" && !strings.Contains(q, "%00") {
			t.Errorf("%q: %s", q, r.raw)
		}
	}
	b.get("/v1/domains/search").fails(400, "validation_error")
}

func TestSearchInBulk(t *testing.T) {
	b, world := newWorld(t, withShop(servicetest.SandboxRegistrar()))
	world.Tell("NS", "taken.shop", "ns.else.test.")
	r := b.post("/v1/domains/search-bulk", `{"domains":["one.com","not a name","Two.IO","example.net","one.com","taken.shop","www.one.com","bücher.dev"]}`).is(200).
		has("count", "8", "available_count", "4", "results.0.available", "true", "results.0.price", "11", "results.0.error", "<nil>",
			"results.1.domain", "not a name", "results.1.available", "<nil>", "results.1.price", "<nil>", "results.1.checked_via", "registrar",
			"results.2.domain", "two.io", "results.2.price", "35", "results.3.available", "false", "results.4.domain", "one.com", "results.4.available", "true",
			"results.5.available", "false", "results.5.checked_via", "dns", "results.6.available", "<nil>", "results.7.domain", "xn--bcher-kva.dev", "results.7.available", "true")
	for _, i := range []string{"1", "6"} {
		if len(r.text("results."+i+".error")) < 20 {
			t.Errorf("item %s has no useful error: %s", i, r.raw)
		}
	}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("n%d.shop", i)
	}
	began := time.Now()
	if got := b.post("/v1/domains/search-bulk", map[string]any{"domains": names}).is(200).list("results", "domain"); !slices.Equal(got, names) {
		t.Errorf("the results are not in order: %s", got)
	}
	t.Logf("100 names by DNS in %s", time.Since(began))
	b.post("/v1/domains/search-bulk", map[string]any{"domains": append(names, "x.shop")}).fails(400, "too_many_items")
	for _, body := range []string{`{}`, `{"domains":[]}`, `{"domains":"a.com"}`, `{"domains":[1]}`, `{"domains":null}`} {
		b.post("/v1/domains/search-bulk", body).fails(400, "validation_error")
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).post("/v1/domains/search-bulk", `{"domains":["one.com"]}`).is(200)
}

func TestSuggest(t *testing.T) {
	b, _ := newWorld(t, withShop(servicetest.SandboxRegistrar()))
	r := b.get("/v1/domains/suggest?keywords=Coffee%20Berlin").is(200).has("keywords", "Coffee Berlin", "count", "20", "suggestions.0.domain", "coffeeberlin.com",
		"suggestions.0.available", "true", "suggestions.0.price", "11", "suggestions.5.domain", "coffee-berlin.com")
	names := r.list("suggestions", "domain")
	if slices.Sort(names); len(slices.Compact(names)) != 20 {
		t.Errorf("suggestions %s", names)
	}
	if again := b.get("/v1/domains/suggest?keywords=Coffee%20Berlin"); string(again.raw) != string(r.raw) {
		t.Error("the same keywords suggest something else")
	}
	b.get("/v1/domains/suggest?keywords=example&tlds=com,.NET&limit=3").is(200).has("count", "3", "suggestions.0.domain", "getexample.com", "suggestions.1.domain", "getexample.net")
	b.get("/v1/domains/suggest?keywords=example&tlds=com&check=false&limit=1").is(200).has("suggestions.0.domain", "example.com", "suggestions.0.available", "<nil>", "suggestions.0.purchasable", "false")
	b.get("/v1/domains/suggest?keywords=b%C3%BCcher&limit=500&tlds=com,co.uk").is(200).has("suggestions.0.domain", "xn--bcher-kva.com", "suggestions.1.domain", "xn--bcher-kva.co.uk")
	for _, query := range []string{"", "?keywords=", "?keywords=%20-%20", "?keywords=x&limit=0", "?keywords=x&limit=many", "?keywords=x&check=perhaps", "?keywords=x&tlds=%20x%20y", "?keywords=x&tlds=com,,net", "?keywords=" + strings.Repeat("x", 201)} {
		b.get("/v1/domains/suggest"+query).fails(400, "validation_error")
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).get("/v1/domains/suggest?keywords=x").is(200)
}

func TestCheckProvider(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	shop.Sell("ours.com", time.Now(), "ns1.example.test")
	member := b.with(b.Token(t, b.Owner.AccountID, "member", "read"))
	member.post("/v1/domains/check-provider", `{"domain":"Ours.com."}`).is(200).has("domain", "ours.com", "registrar", "sandbox", "nameservers", "[ns1.example.test]", "is_edge", "false", "checked_via", "registrar")
	unknown := []string{"registrar", "<nil>", "nameservers", "[]", "is_edge", "false", "checked_via", "dns"} // in the sandbox
	member.post("/v1/domains/check-provider", `{"domain":"unknown.com"}`).is(200).has(unknown...)
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	member.post("/v1/domains/check-provider", `{"domain":"ours.com"}`).is(200).has(unknown...)
	member.post("/v1/domains/check-provider", `{"domain":"no name"}`).fails(400, "invalid_domain")
	member.post("/v1/domains/check-provider", `{}`).fails(400, "validation_error")
}

func TestAnswersByRDAP(t *testing.T) {
	b, world := newWorld(t, func(c *core.Config) {
		c.RDAP = servicetest.Registry{"edge.com": "1910", "other.com": "292", "quiet.com": "", "xn--bcher-kva.com": "292"}
	})
	b.get("/v1/domains/search?q=free.com").is(200).has("available", "true", "checked_via", "rdap", "price", "<nil>", "registrar", "<nil>", "purchasable", "false", "error", "<nil>")
	b.get("/v1/domains/search?q=b%C3%BCcher.com").is(200).has("domain", "xn--bcher-kva.com", "available", "false", "checked_via", "rdap", "error", "<nil>")
	world.Tell("NS", "live.bad", "ns.else.test.")
	b.get("/v1/domains/search?q=live.bad").is(200).has("available", "false", "checked_via", "dns", "error", "<nil>")
	r := b.post("/v1/domains/search-bulk", `{"domains":["other.com","a.bad","no name","free.com"]}`).is(200).has("count", "4", "available_count", "1",
		"results.0.available", "false", "results.1.available", "<nil>", "results.1.checked_via", "dns", "results.2.available", "<nil>", "results.3.available", "true")
	if !strings.Contains(r.text("results.1.error"), "RDAP") {
		t.Errorf("nothing says why it is unknown: %s", r.raw)
	}
	b.get("/v1/domains/suggest?keywords=other&tlds=com&limit=2").is(200).has("suggestions.0.domain", "getother.com", "suggestions.0.checked_via", "rdap", "count", "2")
	b.post("/v1/domains/check-provider", `{"domain":"www.Edge.com"}`).is(200).has("domain", "www.edge.com", "registrar", "Registrar 1910", "nameservers", "[ns1.else.test ns2.else.test]", "is_edge", "true", "checked_via", "rdap")
	b.post("/v1/domains/check-provider", `{"domain":"b\u00fccher.com"}`).is(200).has("domain", "xn--bcher-kva.com", "registrar", "Registrar 292", "is_edge", "false")
	for _, name := range []string{"quiet.com", "free.com"} {
		b.post("/v1/domains/check-provider", `{"domain":"`+name+`"}`).is(200).has("domain", name, "registrar", "<nil>", "nameservers", "[]", "is_edge", "false")
	}
	b.post("/v1/domains/check-provider", `{"domain":"live.bad"}`).is(200).has("registrar", "<nil>", "nameservers", "[ns.else.test]", "checked_via", "dns")
	b.Config.Sandbox = false
	b.post("/v1/domains/check-provider", `{"domain":"a.bad"}`).fails(502, "upstream_error").has("error.details.0.field", "rdap")
}
