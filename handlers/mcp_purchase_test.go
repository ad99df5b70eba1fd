package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
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

type buyIn struct {
	Name     string  `json:"name" required:"true"`
	Register bool    `json:"register"`
	Price    float64 `json:"price"`
}

type buyOut struct {
	Bought string `json:"bought" words:"ours"`
}

// buying is an operation that may cost money.
func buying(bought *[]string) op {
	return op{
		name: "buy", method: "POST", path: "/v1/buy", status: 202, scope: "write", roles: managers, strict: true,
		call: with(func(_ context.Context, _ core.Actor, in buyIn) (*buyOut, error) {
			*bought = append(*bought, in.Name)
			return &buyOut{in.Name}, nil
		}),
		confirm: askFirst(func(_ context.Context, who core.Actor, in buyIn) (*intent, error) {
			if !in.Register {
				return nil, nil
			}
			if !who.Can("purchase") {
				return nil, core.Errorf("insufficient_scope", "No.")
			}
			return &intent{Would: "buy " + in.Name, Quote: &domains.SetupQuote{Domain: in.Name, Price: new(11.99)}}, nil
		}),
	}
}

func TestPurchaseTakesTwoCalls(t *testing.T) {
	b := newSandbox(t, nil)
	var bought []string
	b.withOps(buying(&bought))
	a := b.assistant(b.token)
	tool := a.tools()["buy"]
	if schema, _ := json.Marshal(tool.InputSchema); !strings.Contains(string(schema), "confirmation_token") || tool.Annotations.ReadOnlyHint {
		t.Errorf("buy is described as %s with %+v", schema, tool.Annotations)
	}
	args := func(more ...any) map[string]any {
		out := map[string]any{"name": "a.test", "register": true, "price": 11.99}
		for i := 0; i+1 < len(more); i += 2 {
			out[more[i].(string)] = more[i+1]
		}
		return out
	}
	quote := a.call("buy", args()).is(200).has("quote.domain", "a.test", "bought", "")
	token := quote.text("confirmation_token")
	if token == "" || len(bought) != 0 || !strings.Contains(quote.text("message"), "This would buy a.test.") {
		t.Fatalf("the first call bought %v and says %s", bought, quote.raw)
	}
	field := func(r *reply, code string) {
		t.Helper()
		r.breaks("validation_error").has("error.details.0.field", "confirmation_token", "error.details.0.code", code)
	}
	field(a.call("buy", args("confirmation_token", "x")), "invalid")
	field(a.call("buy", args("confirmation_token", token+"A")), "invalid")
	field(a.call("buy", args("confirmation_token", token, "name", "b.test")), "invalid")
	field(a.call("buy", args("confirmation_token", token, "price", 99)), "invalid")
	colleague := b.assistant(b.Token(t, b.Owner.AccountID, "admin", "admin"))
	field(colleague.call("buy", args("confirmation_token", token)), "invalid")
	stranger := b.assistant(b.Account(t, "other@example.test").Token)
	field(stranger.call("buy", args("confirmation_token", token)), "invalid")
	b.assistant(b.Token(t, b.Owner.AccountID, "admin", "write")).call("buy", args()).breaks("insufficient_scope")
	b.assistant(b.Token(t, b.Owner.AccountID, "admin", "read")).call("buy", args()).breaks("insufficient_scope")
	a.call("buy", args("surprise", 1)).breaks("validation_error").has("error.details.0.field", "surprise")
	if len(bought) != 0 {
		t.Fatalf("bought %v", bought)
	}
	a.call("buy", args("confirmation_token", token)).is(200).has("bought", "a.test")
	field(a.call("buy", args("confirmation_token", token)), "used")
	a.call("buy", map[string]any{"name": "free.test"}).is(200).has("bought", "free.test")
	if !slices.Equal(bought, []string{"a.test", "free.test"}) {
		t.Errorf("bought %v", bought)
	}
}
