package handlers

import (
	"errors"
	"testing"

	"github.com/mailstead/mailstead/service/servicetest"
)

func TestAssistantBuysADomain(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	a := b.assistant(b.Token(t, b.Owner.AccountID, "admin", "purchase"))
	args := map[string]any{"domain": "Bakery.io", "register": true, "price": 40, "years": 2, "users": []map[string]any{{"username": "ann"}}}
	quote := a.call("setup_domain", args).is(200).has("quote.domain", "bakery.io", "quote.registrar", "sandbox", "quote.years", "2",
		"quote.price", "80", "quote.price_limit", "80", "quote.renewal_price", "45", "quote.currency", "USD", "job_id", "")
	if b.get("/v1/jobs").text("pagination.count") != "0" || shop.Charges("bakery.io") != 0 {
		t.Fatal("the quote began something")
	}
	args["confirmation_token"] = quote.text("confirmation_token")
	job := a.call("setup_domain", args).is(200).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed", "result.registrar", "sandbox", "result.email_users.created", "1")
	if n := shop.Charges("bakery.io"); n != 1 {
		t.Fatalf("bought %d times", n)
	}
	delete(args, "confirmation_token") // it has been bought, so that there is nothing to confirm
	again := a.call("setup_domain", args).is(200).text("job_id")
	b.get("/v1/jobs/"+again+"?wait=10").has("status", "completed")
	a.call("setup_domain", map[string]any{"domain": "free.test"}).is(200).has("type", "domain_setup")
	if n := shop.Charges("bakery.io"); n != 1 {
		t.Errorf("bought %d times", n)
	}
}

func TestQuotesOfWhatIsNotBought(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	a := b.assistant(b.token)
	buy := func(domain string, price any) *reply {
		t.Helper()
		return a.call("setup_domain", map[string]any{"domain": domain, "register": true, "price": price}).is(400).has("confirmation_token", "")
	}
	buy("bakery.io", nil).has("error.details.0.field", "price", "error.details.0.code", "required")
	buy("bakery.io", 34.99).has("error.details.0.field", "price", "error.details.0.code", "out_of_range")
	buy("example.com", 99).has("error.details.0.field", "domain")
	buy("premium-bread.com", 9999).has("error.details.0.field", "domain")
	buy("bakery.shop", 99).has("error.details.0.field", "domain")
	buy("www.bakery.io", 99).breaks("invalid_domain")
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	buy("bakery.io", 40).breaks("upstream_error")
	writer := b.assistant(b.Token(t, b.Owner.AccountID, "admin", "write"))
	writer.call("setup_domain", map[string]any{"domain": "bakery.io", "register": true, "price": 40}).breaks("insufficient_scope")
	bare := newSandbox(t, nil)
	bare.assistant(bare.token).call("setup_domain", map[string]any{"domain": "bakery.io", "register": true, "price": 40}).breaks("not_configured")
}
