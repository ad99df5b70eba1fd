package handlers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// setUp runs a setup to its end and gives the job.
func (b *sandbox) setUp(body any) *reply {
	b.t.Helper()
	job := b.post("/v1/domains/setup", body).is(202).text("job_id")
	return b.get("/v1/jobs/" + job + "?wait=10").is(200)
}

func TestSetupDomain(t *testing.T) {
	b, _ := newWorld(t, nil)
	tpl := b.Template(t, b.Owner.AccountID, "Persona", "sales", "ann")
	body := map[string]any{
		"domain": "Fresh.Test.", "users": []any{map[string]any{"username": "Ann", "name": "Ann A", "password": "correct horse"}, map[string]any{"username": "bob"}},
		"template_id": tpl, "redirect_url": "https://example.net/", "forward_address": "team@example.net", "tags": []string{"new", "new"},
	}
	r := b.post("/v1/domains/setup", body).is(202).has("type", "domain_setup", "status", "queued", "resource.type", "domain", "resource.name", "fresh.test")
	job := r.text("job_id")
	if got := r.header.Get("Location"); got != "/v1/jobs/"+job {
		t.Errorf("Location %q", got)
	}
	r = b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed", "progress.percent", "100", "attempts", "1", "error", "<nil>", "result.domain", "fresh.test",
		"result.status", "complete", "result.registrar", "<nil>", "result.price", "<nil>", "result.email_users.created", "3", "result.email_users.existed", "0", "result.email_users.failed", "0")
	if got := fmt.Sprint(r.list("steps", "name"), r.list("steps", "status")); got != "[keys zone users redirect forward delegate mail verify] [completed completed completed completed completed completed completed completed]" {
		t.Errorf("steps %s", got)
	}
	id := r.text("result.domain_id")
	d := b.get("/v1/domains/"+id).has("domain", "fresh.test", "status", "complete", "dns_provider", "builtin", "source", "connected", "registrar", "<nil>", "redirect_url", "https://example.net/",
		"forward_address", "team@example.net", "tags", "[new]", "job_id", job, "ns_status", "verified", "dns_status", "complete", "dkim_selector", "ms1", "email_users_count", "3", "error", "<nil>", "status_detail", "<nil>")
	b.get("/v1/email-users?domain=fresh.test&status=active").has("pagination.count", "3")
	if got := fmt.Sprint(b.get("/v1/email-users?domain=fresh.test").list("data", "email")); got != "[sales@fresh.test bob@fresh.test ann@fresh.test]" {
		t.Errorf("mailboxes %s", got)
	}
	if _, err := b.LoginMailbox(t.Context(), "ann@fresh.test", "correct horse", "127.0.0.1"); err != nil {
		t.Errorf("log-in with the password of the request: %v", err)
	}
	b.get("/v1/events?type=domain.created").has("pagination.count", "1", "data.0.data.domain_id", id, "data.0.data.status", "pending", "data.0.data.job_id", job)
	b.get("/v1/events?type=domain.ready").has("pagination.count", "1", "data.0.data.ready_at", d.text("completed_at"))
	b.get("/v1/events?type=email_user.created").has("pagination.count", "3")
}

// Run again, a setup does what is not done, and leaves what the owner chose.
func TestSetupAgain(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.setUp(`{"domain":"again.test","users":[{"username":"ann"}]}`).has("status", "completed").text("resource.id")
	path := "/v1/domains/" + id
	b.put(path+"/dmarc", `{"value":"v=DMARC1; p=none"}`).is(200)
	b.post(path+"/custom-dns-records", `{"name":"www","type":"A","value":"192.0.2.1"}`).is(200)
	completed := b.get(path).text("completed_at")
	hang := make(chan struct{})
	world.Set(func() { world.Hang = hang })
	job := b.post("/v1/domains/setup", `{"domain":"again.test","users":[{"username":"ann"},{"username":"bob"}]}`).is(202).text("job_id")
	b.until("/v1/jobs/"+job, "status", "in_progress")
	b.get(path).has("status", "complete", "job_id", job) // mail goes on
	b.post("/v1/domains/setup", `{"domain":"again.test"}`).fails(409, "domain_busy").has("error.details.0.field", job)
	b.remove(path).fails(409, "domain_busy")
	world.Set(func() { world.Hang = nil })
	close(hang)
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed", "result.email_users.created", "1", "result.email_users.existed", "1")
	b.get(path).has("status", "complete", "completed_at", completed, "dmarc_override.value", "v=DMARC1; p=none", "email_users_count", "2")
	b.wantAnswer(dns.TypeTXT, "_dmarc.again.test", `NOERROR 3600 "v=DMARC1; p=none"`)
	b.wantAnswer(dns.TypeA, "www.again.test", "NOERROR 300 192.0.2.1")
	b.get("/v1/events?type=domain.ready").has("pagination.count", "1")
	b.get("/v1/events?type=domain.created").has("pagination.count", "1")
}

func TestSetupRecoversADomain(t *testing.T) {
	b, _ := newWorld(t, nil)
	b.Domain(t, b.Owner.AccountID, "broken.test", "builtin", "error")
	b.setUp(`{"domain":"broken.test"}`).has("status", "completed", "result.status", "complete")
	id := b.connect("waits.test")
	b.setUp(`{"domain":"waits.test","tags":["x"]}`).has("status", "completed", "resource.id", id, "result.status", "complete")
	b.get("/v1/domains/"+id).has("tags", "[x]")
}

func TestSetupOfAManualDomain(t *testing.T) {
	b, _ := newWorld(t, nil)
	r := b.setUp(`{"domain":"bücher.test","manual_dns":true,"users":[{"username":"ann"}],"address":"x@example.net"}`).has("status", "completed", "result.status", "pending_dns_records")
	if got := fmt.Sprint(r.list("steps", "name")); got != "[keys records users forward]" {
		t.Errorf("steps %s", got)
	}
	path := "/v1/domains/" + r.text("resource.id")
	b.get(path).has("domain", "xn--bcher-kva.test", "domain_unicode", "bücher.test", "dns_provider", "manual", "ns_status", "not_required", "forward_address", "x@example.net")
	b.get(path+"/dns-records").is(200).has("status", "ready")
	b.get("/v1/email-users").has("data.0.status", "pending")
	b.post(path+"/verify-dns", nil).is(200).has("critical_verified", "true")
	b.get("/v1/email-users").has("data.0.status", "active")
	b.setUp(`{"domain":"xn--bcher-kva.test"}`).has("status", "completed", "result.status", "complete")
	b.get(path).has("dns_provider", "manual", "status", "complete")
}

func TestSetupInParts(t *testing.T) {
	b, world := newWorld(t, nil)
	r := b.setUp(`{"domain":"mailonly.test","setup_dns":false,"users":[{"username":"ann"}]}`).has("status", "completed", "result.status", "pending_ns", "result.email_users.created", "1")
	if got := fmt.Sprint(r.list("steps", "name")); got != "[keys users]" || world.Looked > 0 {
		t.Errorf("steps %s, %d look-ups", got, world.Looked)
	}
	b.post("/v1/domains/check-ns", `{"domains":["mailonly.test"]}`).has("all_verified", "true")
	b.until("/v1/domains/"+r.text("resource.id"), "status", "complete")
	r = b.setUp(`{"domain":"dnsonly.test","setup_email":false}`).has("status", "completed", "result.status", "complete")
	if got := fmt.Sprint(r.list("steps", "name")); got != "[keys zone delegate verify]" {
		t.Errorf("steps %s", got)
	}
}

func TestSetupRefuses(t *testing.T) {
	b, _ := newWorld(t, func(c *core.Config) { c.Limits.Domains, c.Limits.MailboxesPerDomain = 3, 3 })
	other := b.Account(t, "other@example.test")
	b.Domain(t, other.AccountID, "foreign.test", "builtin", "complete")
	b.Domain(t, b.Owner.AccountID, "away.test", "external", "complete")
	b.Domain(t, b.Owner.AccountID, "going.test", "builtin", "deleting")
	for _, tc := range []struct {
		body   string
		status int
		code   string
	}{
		{`{}`, 400, "validation_error"},
		{`{"domain":"x.test","domian":1}`, 400, "validation_error"},
		{`{"domain":"x.test","users":[{"username":"a","pasword":"x"}]}`, 400, "validation_error"},
		{`{"domain":"x.test","users":{}}`, 400, "validation_error"},
		{`{"domain":"x.test","users":[{}]}`, 400, "validation_error"},
		{`{"domain":"x.test","users":[{"username":"abuse"}]}`, 400, "validation_error"},
		{`{"domain":"x.test","users":[{"username":"a","password":"short"}]}`, 400, "validation_error"},
		{`{"domain":"x.test","users":[{"username":"a"},{"username":"A"}]}`, 400, "validation_error"},
		{`{"domain":"x.test","users":[{"username":"a"}],"setup_email":false}`, 400, "validation_error"},
		{`{"domain":"x.test","template_id":"tpl_nothing"}`, 400, "validation_error"},
		{`{"domain":"x.test","redirect_url":"nowhere"}`, 400, "validation_error"},
		{`{"domain":"x.test","redirect_url":"https://x.test/"}`, 400, "validation_error"},
		{`{"domain":"x.test","forward_address":"a@x.test"}`, 400, "validation_error"},
		{`{"domain":"x.test","tags":[""]}`, 400, "validation_error"},
		{`{"domain":"x.test","years":11}`, 400, "validation_error"},
		{`{"domain":"x.test","price":-1}`, 400, "validation_error"},
		{`{"domain":"x.test","price":"9.99"}`, 400, "validation_error"},
		{`{"domain":"x.test","manual_dns":true,"edge_api_token":"t"}`, 400, "validation_error"},
		{`{"domain":"x.test","cloudflare_api_token":"t"}`, 503, "not_configured"},
		{`{"domain":"x.com","register":true,"price":20}`, 503, "not_configured"},
		{`{"domain":"x.com","register":true}`, 400, "validation_error"},
		{`{"domain":"not a name"}`, 400, "invalid_domain"},
		{`{"domain":"com"}`, 400, "invalid_domain"},
		{`{"domain":"foreign.test"}`, 400, "validation_error"},
		{`{"domain":"github.io"}`, 400, "invalid_domain"},
		{`{"domain":"away.test"}`, 400, "validation_error"},
		{`{"domain":"going.test"}`, 409, "domain_busy"},
		{`{"domain":"boxes.test","manual_dns":true}`, 400, "validation_error"},
		{`{"domain":"fourth.test"}`, 403, "domain_limit_exceeded"},
		{`{"domain":"boxes.test","users":[{"username":"a"},{"username":"b"},{"username":"c"},{"username":"d"}]}`, 403, "email_user_limit_exceeded"},
	} {
		if r := b.post("/v1/domains/setup", tc.body); r.text("error.code") != tc.code || r.status != tc.status {
			t.Errorf("%s: %d %s, want %d %s", tc.body, r.status, r.raw, tc.status, tc.code)
		}
	}
	b.post("/v1/domains/setup", `{"domain":"x.test","users":[{"username":"ok"},{"username":"a b"}]}`).has("error.details.0.field", "users.1.username")
	b.post("/v1/domains/setup", `{"domain":"x.test","users":[{"username":"a","pasword":"x"}]}`).has("error.details.0.code", "unknown_field")
	many := strings.TrimSuffix(strings.Repeat(`{"username":"a"},`, 101), ",")
	b.post("/v1/domains/setup", `{"domain":"x.test","users":[`+many+`]}`).fails(400, "too_many_items")
	b.get("/v1/domains").has("pagination.count", "3")
	b.get("/v1/jobs").has("pagination.count", "0")
	member, reader := b.Token(t, b.Owner.AccountID, "member", "read", "write"), b.Token(t, b.Owner.AccountID, "owner", "read")
	b.with(member).post("/v1/domains/setup", `{"domain":"x.test"}`).fails(403, "forbidden_role")
	b.with(reader).post("/v1/domains/setup", `{"domain":"x.test"}`).fails(403, "insufficient_scope")
}

func TestSetupAndRegister(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	writer := b.with(b.Token(t, b.Owner.AccountID, "admin", "read", "write"))
	writer.post("/v1/domains/setup", `{"domain":"bakery.io","register":true,"price":35}`).fails(403, "insufficient_scope")
	b.post("/v1/domains/setup", `{"domain":"www.bakery.io","register":true,"price":35}`).fails(400, "invalid_domain")
	b.post("/v1/domains/setup", `{"domain":"bakery.io","register":true,"price":35,"registrar":"none"}`).fails(400, "validation_error")
	if shop.Charges("bakery.io") != 0 {
		t.Fatal("a refused request bought")
	}
	buyer := b.with(b.Token(t, b.Owner.AccountID, "admin", "read", "purchase"))
	job := buyer.post("/v1/domains/setup", `{"domain":"Bakery.io","register":true,"price":35.00,"auto_renew":true,"registrar":"sandbox","users":[{"username":"ann"}]}`).is(202).text("job_id")
	r := b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed", "steps.0.name", "register", "steps.0.status", "completed", "result.registrar", "sandbox",
		"status_detail", "bakery.io is a pretend name of the sandbox registrar: nothing was paid, and nobody else knows it.", "result.price", "35", "result.currency", "USD", "result.status", "complete", "result.email_users.created", "1")
	path := "/v1/domains/" + r.text("resource.id")
	d := b.get(path).has("source", "registered", "registrar", "sandbox", "auto_renew", "true", "status", "complete", "ns_status", "verified")
	if d.text("expires_at") != r.text("result.expires_at") || d.text("expires_at") <= d.text("created_at") {
		t.Errorf("expires at %s", d.text("expires_at"))
	}
	if got := fmt.Sprint(shop.NameserversOf("bakery.io")); got != "[ns1.example.test ns2.example.test]" || shop.Charges("bakery.io") != 1 {
		t.Errorf("nameservers %s, bought %d times", got, shop.Charges("bakery.io"))
	}
	b.get("/v1/events?type=domain.created").has("pagination.count", "1", "data.0.data.source", "registered")
	b.get("/v1/domains/search?q=bakery.io").has("available", "false")

	// Again, and after the domain was deleted: it is ours.
	b.setUp(`{"domain":"bakery.io","register":true,"price":35}`).has("status", "completed", "result.registrar", "sandbox")
	b.get("/v1/jobs/"+b.remove(path).is(202).text("job_id")+"?wait=10").has("status", "completed")
	r = b.setUp(`{"domain":"bakery.io","register":true,"price":35}`).has("status", "completed", "result.registrar", "sandbox", "result.status", "complete")
	b.get("/v1/jobs/"+b.remove("/v1/domains/"+r.text("resource.id")).is(202).text("job_id")+"?wait=10").has("status", "completed")
	other := b.with(b.Account(t, "other@example.test").Token)
	other.post("/v1/domains/setup", `{"domain":"bakery.io","register":true,"price":35}`).fails(400, "validation_error")
	if shop.Charges("bakery.io") != 1 {
		t.Errorf("bought %d times", shop.Charges("bakery.io"))
	}
}

// What must not be bought is not, and the job says why; once the reason is gone, setup goes on.
func TestPurchaseIsGuarded(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	fails := func(body, code string) {
		t.Helper()
		r := b.setUp(body).has("status", "error", "error.code", code, "steps.0.name", "register", "steps.0.status", "error")
		b.get("/v1/domains/"+r.text("resource.id")).has("status", "error", "error.code", code, "error.message", r.text("error.message"), "source", "connected")
	}
	fails(`{"domain":"dear.com","register":true,"price":10.99}`, "price_changed")
	fails(`{"domain":"years.io","register":true,"price":35,"years":2}`, "price_changed")
	fails(`{"domain":"taken-name.com","register":true,"price":99}`, "domain_unavailable")
	fails(`{"domain":"premium-name.com","register":true,"price":99999}`, "premium_not_supported")
	fails(`{"domain":"name.shop","register":true,"price":99}`, "registrar_error")
	shop.Set(func() {
		shop.Meddle = func(call string) error {
			if call == "register" {
				return servicetest.ErrNoFunds
			}
			return nil
		}
	})
	fails(`{"domain":"poor.com","register":true,"price":11}`, "insufficient_funds")
	shop.Set(func() { shop.Meddle = nil })
	b.get("/v1/events?type=domain.created").has("pagination.count", "0")
	for _, name := range []string{"dear.com", "years.io", "taken-name.com", "premium-name.com", "name.shop", "poor.com"} {
		if n := shop.Charges(name); n != 0 {
			t.Errorf("%s was bought %d times", name, n)
		}
	}
	b.setUp(`{"domain":"poor.com","register":true,"price":11}`).has("status", "completed", "result.price", "11")
	b.setUp(`{"domain":"years.io","register":true,"price":40,"years":2}`).has("status", "completed", "result.price", "80")
	// The price rises between the look and the order.
	shop.Set(func() {
		shop.Meddle = func(call string) error {
			if call == "register" {
				shop.Set(func() { shop.Raise = 1 })
			}
			return nil
		}
	})
	fails(`{"domain":"risen.com","register":true,"price":11}`, "price_changed")
	if shop.Charges("risen.com") != 0 {
		t.Error("bought at a higher price")
	}
}

// A name that was bought elsewhere in the registrar account is nobody's to adopt.
func TestSetupAdoptsNothing(t *testing.T) {
	shop := servicetest.NewShop()
	b, _ := newWorld(t, withShop(shop.Registrar(nil)))
	shop.Sell("operators.com", b.Store.Now())
	b.setUp(`{"domain":"operators.com","register":true,"price":11}`).has("status", "error", "error.code", "domain_unavailable")
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	b.post("/v1/domains/setup", `{"domain":"later.com","register":true,"price":11}`).is(202)
	b.until("/v1/jobs?domain=later.com", "data.0.error.code", "registrar_error").has("data.0.status", "queued")
}
