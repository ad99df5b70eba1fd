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
	"github.com/miekg/dns"
)

// newWorld starts a sandbox whose lookups are answered by a worldDNS.
func newWorld(t *testing.T, change func(*core.Config)) (*sandbox, *servicetest.World) {
	t.Helper()
	w := &servicetest.World{}
	b := newSandbox(t, func(c *core.Config) {
		c.Resolver = w
		if change != nil {
			change(c)
		}
	})
	w.Set(func() { w.Ours = b.Service })
	return b, w
}

// connect connects one builtin domain and returns its ID.
func (b *sandbox) connect(name string) string {
	b.t.Helper()
	return b.post("/v1/domains/connect", map[string]any{"domains": []string{name}}).is(200).
		has("domains.0.status", "created").text("domains.0.domain_id")
}

// until asks for a path until a value at it is as wanted.
func (b *sandbox) until(path, at, want string) *reply {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		r := b.get(path).is(200)
		if r.text(at) == want {
			return r
		}
		if time.Since(began) > 10*time.Second {
			b.t.Fatalf("%s of %s is never %q: %.900s", at, path, want, r.raw)
		}
	}
}

// complete connects a builtin domain and waits until it is complete.
func (b *sandbox) complete(name string) string {
	b.t.Helper()
	id := b.connect(name)
	b.post("/v1/domains/check-ns", map[string]any{"domains": []string{name}}).is(200).has("all_verified", "true")
	b.until("/v1/domains/"+id, "status", "complete")
	return id
}

func TestConnectDomains(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.Account(t, "other@example.test")
	b.Domain(t, other.AccountID, "foreign.test", "builtin", "complete")
	r := b.post("/v1/domains/connect", map[string]any{
		"domains": []string{"One.Test.", "bücher.test", "one.test", "not a name", "boxes.test", "foreign.test", "com", "xn--bcher-kva.test", "not a name"},
		"tags":    []string{"a", " a ", "b"},
	}).is(200)
	r.has("edge_mode", "false", "domains_used", "3", "domain_limit", "500", "nameservers.0", "ns1.example.test", "nameservers.1", "ns2.example.test",
		"domains.0.domain", "one.test", "domains.0.status", "created", "domains.0.dns_provider", "builtin", "domains.0.error", "<nil>",
		"domains.0.nameservers.1", "ns2.example.test",
		"domains.1.domain", "xn--bcher-kva.test", "domains.1.status", "created",
		"domains.2.domain", "not a name", "domains.2.status", "error", "domains.2.domain_id", "<nil>",
		"domains.3.domain", "boxes.test", "domains.3.status", "already_exists", "domains.3.domain_id", b.domain,
		"domains.4.domain", "foreign.test", "domains.4.status", "error", "domains.4.domain_id", "<nil>",
		"domains.5.domain", "com", "domains.5.status", "error", "domains.6", "")
	for _, i := range []string{"2", "4", "5"} {
		if len(r.text("domains."+i+".error")) < 20 {
			t.Errorf("item %s has no useful error: %s", i, r.raw)
		}
	}
	if strings.Contains(string(r.raw), other.AccountID) {
		t.Error("the answer names the other account")
	}
	id := r.text("domains.0.domain_id")
	b.get("/v1/domains/"+id).is(200).has("id", id, "domain_id", id, "domain", "one.test", "domain_unicode", "one.test", "status", "pending_ns",
		"status_detail", "<nil>", "error", "<nil>", "source", "connected", "registrar", "<nil>", "expires_at", "<nil>", "auto_renew", "false",
		"nameservers.0", "ns1.example.test", "ns_status", "pending", "dns_status", "pending", "dns_health.status", "unknown",
		"dns_health.issues", "[]", "dns_health.checked_at", "<nil>", "dns_health.failing_since", "<nil>", "dkim_selector", "ms1",
		"dmarc_override", "<nil>", "redirect_url", "<nil>", "forward_address", "<nil>", "catch_all", "<nil>", "sending_mode", "direct",
		"email_users_count", "0", "tags", "[a b]", "notes", "<nil>", "job_id", "<nil>", "completed_at", "<nil>")
	b.get("/v1/domains/"+r.text("domains.1.domain_id")).is(200).has("domain_unicode", "bücher.test", "dnssec.status", "unknown",
		"dnssec.ds.0.algorithm", "13", "dnssec.ds.0.digest_type", "2", "dnssec.ds.1", "")
	b.get("/v1/events?type=domain.created").is(200).has("pagination.count", "0")
	manual := b.post("/v1/domains/connect", map[string]any{"domains": []string{"byhand.test"}, "manual_dns": true}).is(200).text("domains.0.domain_id")
	b.get("/v1/domains/"+manual).is(200).has("dnssec", "<nil>")
}

func TestConnectDomainsRefuses(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.Domains = 3 })
	many := `"` + strings.Join(slices.Repeat([]string{"a.test"}, 101), `","`) + `"`
	b.post("/v1/domains/connect", `{"domains":[`+many+`]}`).fails(400, "too_many_items")
	for _, tc := range []struct{ body, field string }{
		{`{}`, "domains"},
		{`{"domains":[]}`, "domains"},
		{`{"domains":"a.test"}`, "domains"},
		{`{"domains":["a.test"],"manual":true}`, "manual"},
		{`{"domains":["a.test"],"manual_dns":true,"external":true}`, "external"},
		{`{"domains":["a.test"],"manual_dns":true,"edge_api_token":"x"}`, "edge_api_token"},
		{`{"domains":["a.test"],"external":true,"cloudflare_api_token":"x"}`, "edge_api_token"},
		{`{"domains":["a.test"],"edge_api_token":" "}`, "edge_api_token"},
		{`{"domains":["a.test"],"tags":[" "]}`, "tags"},
	} {
		b.post("/v1/domains/connect", tc.body).fails(400, "validation_error").has("error.details.0.field", tc.field)
	}
	names := func(list ...string) map[string]any { return map[string]any{"domains": list} }
	b.post("/v1/domains/connect", names("a.test", "b.test", "c.test")).fails(403, "domain_limit_exceeded")
	b.get("/v1/domains").is(200).has("pagination.count", "1")
	b.post("/v1/domains/connect", names("a.test", "b.test", "boxes.test", "-.test", "A.test")).is(200).has("domains_used", "3")
	b.post("/v1/domains/connect", names("a.test", "b.test")).is(200).has("domains.1.status", "already_exists", "domains_used", "3")
	member, reader := b.Token(t, b.Owner.AccountID, "member", "read", "write"), b.Token(t, b.Owner.AccountID, "owner", "read")
	b.with(member).post("/v1/domains/connect", names("a.test")).fails(403, "forbidden_role")
	b.with(reader).post("/v1/domains/connect", names("a.test")).fails(403, "insufficient_scope")
	b.with("").post("/v1/domains/connect", names("a.test")).fails(401, "unauthorized")
}

// A name of a list that is none has an error of its own, whatever is in it, and the others go on.
func TestABadNameFailsAlone(t *testing.T) {
	bad := []string{`a\u0000.test`, `a\nb.test`, `\u202ea.test`, ``, `*.a.test`, `http://a.test/`, `x@a.test`, `[::1]`, `a_b.test`, `xn--a.com`, `co.uk`, strings.Repeat("a.", 500) + "test"}
	body := `{"domains":["boxes.test","` + strings.Join(bad, `","`) + `","good.test"]}`
	for path, list := range map[string]string{"search-bulk": "results", "connect": "domains", "check-ns": "domains"} {
		b := newSandbox(t, nil)
		r := b.post("/v1/domains/"+path, body).is(200).has(list+".0.domain", "boxes.test", list+".13.domain", "good.test")
		for i := range bad {
			item := fmt.Sprintf("%s.%d.", list, i+1)
			why := r.text(item + "error")
			if path == "check-ns" {
				r.has(item+"status", "error")
				why = r.text(item + "message")
			}
			if len(why) < 20 || len(why) > 300 {
				t.Errorf("%s: %q has the error %q", path, bad[i], why)
			}
		}
		if path == "connect" {
			r.has("domains.0.status", "already_exists", "domains.13.status", "created")
		}
	}
}

func TestConnectWithAnEdgeTokenMakesNothing(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post("/v1/domains/connect", `{"domains":["a.test","boxes.test"],"cloudflare_api_token":"secret-token"}`).is(200).
		has("edge_mode", "true", "nameservers", "[]", "domains_used", "1", "domains.0.status", "error", "domains.0.domain_id", "<nil>",
			"domains.0.dns_provider", "cloudflare", "domains.0.nameservers", "[]", "domains.1.status", "already_exists")
	if !strings.Contains(r.text("domains.0.error"), "not_configured") || strings.Contains(string(r.raw), "secret-token") {
		t.Errorf("answer %s", r.raw)
	}
}

// Only a proven claim keeps a name from others, and what is not proven takes no name out of another
// account's zone.
func TestOnlyProvenClaimsExcludeOthers(t *testing.T) {
	b, _ := newWorld(t, nil)
	other := b.with(b.Account(t, "other@example.test").Token)
	b.complete("mine.test")
	r := other.post("/v1/domains/connect", `{"domains":["mine.test","github.io","com","simulator.mail.example.test","a.simulator.mail.example.test"]}`).is(200).
		has("domains.0.status", "error", "domains.1.status", "error", "domains.2.status", "error")
	for i, code := range []string{"domain_claimed_elsewhere: ", "invalid_domain: ", "invalid_domain: ", "invalid_domain: ", "invalid_domain: "} {
		if text := r.text(fmt.Sprintf("domains.%d.error", i)); !strings.HasPrefix(text, code) {
			t.Errorf("item error %q, want %s", text, code)
		}
	}
	for _, name := range []string{"www.mine.test", "a.b.mine.test", "sub.later.test", "later.test"} {
		other.post("/v1/domains/connect", map[string]any{"domains": []string{name}}).is(200).has("domains.0.status", "created")
		if zone, ok := b.Zones.Zone(name); ok && strings.HasSuffix(name, ".mine.test") && zone.Origin != "mine.test" {
			t.Errorf("%s is answered from the zone %s", name, zone.Origin)
		}
	}
	r = other.post("/v1/domains/check-ns", `{"domains":["www.mine.test"]}`).is(200).has("domains.0.status", "failed", "all_verified", "false")
	if text := r.text("domains.0.message"); !strings.Contains(text, "_mailstead.www.mine.test") {
		t.Errorf("the message names no record: %s", text)
	}
	b.post("/v1/domains/connect", `{"domains":["later.test"]}`).is(200).has("domains.0.status", "created")
	if b.Zones.HostsName("later.test") || b.Zones.HostsName("sub.later.test") {
		t.Error("a name that two accounts claim is answered for")
	}
}

func TestCheckNameservers(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.connect("liar.test")
	b.post("/v1/email-users", `{"email":"ann@liar.test"}`).is(201).has("status", "pending")
	check := func() *reply {
		return b.post("/v1/domains/check-ns", `{"domains":["Liar.test","nobody.test","boxes.test","no name"]}`).is(200)
	}
	world.Tell("NS", "liar.test", "NS1.registrar.test.", "ns1.example.test.")
	r := check().has("all_verified", "false", "domains.0.domain", "liar.test", "domains.0.domain_id", id, "domains.0.status", "failed",
		"domains.0.verified", "false", "domains.0.current_ns", "[ns1.example.test ns1.registrar.test]", "domains.0.nameservers.0", "ns1.example.test",
		"domains.1.status", "not_found", "domains.1.domain_id", "<nil>", "domains.1.verified", "false", "domains.1.current_ns", "[]",
		"domains.2.status", "already_complete", "domains.2.verified", "true", "domains.3.status", "error", "domains.4", "")
	for _, i := range []string{"0", "1", "2", "3"} {
		if r.text("domains."+i+".message") == "" {
			t.Errorf("item %s says nothing: %s", i, r.raw)
		}
	}
	b.get("/v1/domains/"+id).has("status", "pending_ns", "ns_status", "pending", "job_id", "<nil>")
	world.Tell("NS", "liar.test")
	check().has("domains.0.status", "failed", "domains.0.current_ns", "[]")
	world.Set(func() { world.Dead = "all" })
	check().has("domains.0.status", "error", "domains.0.verified", "false", "domains.2.status", "already_complete")
	b.get("/v1/domains/"+id).has("status", "pending_ns")
	world.Set(func() { world.Dead = "" })
	world.Tell("NS", "liar.test", "NS2.example.TEST.")
	member := b.Token(t, b.Owner.AccountID, "member", "read", "write")
	b.with(member).post("/v1/domains/check-ns", `{"domains":["liar.test"]}`).is(200).
		has("all_verified", "true", "domains.0.status", "verified", "domains.0.verified", "true", "domains.0.current_ns", "[ns2.example.test]")
	d := b.until("/v1/domains/"+id, "status", "complete").has("ns_status", "verified", "dns_status", "complete", "dkim_selector", "ms1",
		"email_users_count", "1", "error", "<nil>")
	b.get("/v1/jobs/"+d.text("job_id")).is(200).has("type", "domain_provision", "status", "completed", "resource.type", "domain", "resource.id", id,
		"resource.name", "liar.test", "steps.0.name", "keys", "steps.1.name", "zone", "steps.2.name", "mail", "steps.3.name", "verify",
		"steps.0.status", "completed", "steps.3.status", "completed", "steps.4", "", "progress.percent", "100", "attempts", "1", "error", "<nil>")
	b.get("/v1/email-users?domain=liar.test").has("data.0.status", "active")
	b.get("/v1/events?type=domain.created").is(200).has("pagination.count", "1", "data.0.data.domain_id", id, "data.0.data.domain", "liar.test",
		"data.0.data.status", "pending", "data.0.data.dns_provider", "builtin", "data.0.data.source", "connected", "data.0.data.job_id", d.text("job_id"),
		"data.0.data.created_at", d.text("created_at"))
	b.get("/v1/events?type=domain.ready").is(200).has("pagination.count", "1", "data.0.data.status", "complete", "data.0.data.ready_at", d.text("completed_at"))
	b.get("/v1/events?type=email_user.created").is(200).has("pagination.count", "1", "data.0.data.email", "ann@liar.test")
	check().has("domains.0.status", "already_complete")
	b.post("/v1/domains/check-ns", `{"domains":[]}`).fails(400, "validation_error")
}

// While its job runs, a domain is verified already, is not provisioned twice and cannot be deleted.
func TestDomainIsBusyWhileItsJobRuns(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.connect("busy.test")
	hang := make(chan struct{})
	world.Set(func() { world.Hang = hang })
	b.post("/v1/domains/check-ns", `{"domains":["busy.test"]}`).is(200).has("all_verified", "true")
	job := b.get("/v1/domains/" + id).text("job_id")
	b.remove("/v1/domains/"+id).fails(409, "domain_busy").has("error.details.0.field", job)
	b.post("/v1/domains/check-ns", `{"domains":["busy.test"]}`).is(200).has("domains.0.status", "verified", "domains.0.verified", "true")
	close(hang)
	b.until("/v1/domains/"+id, "status", "complete").has("job_id", job)
	b.remove("/v1/domains/" + id).is(202)
}

func TestProvisioningIsDoneWithADeadResolver(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.connect("dark.test")
	world.Set(func() { world.Dead = "records" })
	b.post("/v1/domains/check-ns", `{"domains":["dark.test"]}`).is(200).has("all_verified", "true")
	b.until("/v1/domains/"+id, "status", "complete")
}

func TestManualDomain(t *testing.T) {
	b, world := newWorld(t, func(c *core.Config) { c.Sandbox = false })
	r := b.post("/v1/domains/connect", `{"domains":["manual.test"],"manual_dns":true}`).is(200).
		has("nameservers", "[]", "domains.0.status", "created", "domains.0.dns_provider", "manual", "domains.0.nameservers", "[]")
	path := "/v1/domains/" + r.text("domains.0.domain_id")
	b.get("/v1/events?type=domain.created").has("data.0.data.dns_provider", "manual", "pagination.count", "1")
	b.until(path, "status", "pending_dns_records").has("ns_status", "not_required", "nameservers", "[]")
	b.post("/v1/email-users", `{"email":"ann@manual.test"}`).is(201).has("status", "pending")
	if b.Zones.HostsName("manual.test") {
		t.Error("a manual domain is served")
	}
	r = b.get(path+"/dns-records").is(200).has("status", "ready", "domain", "manual.test")
	purposes := r.list("records", "purpose")
	if want := []string{"A", "MX", "SPF", "DKIM", "DKIM", "DMARC"}; !slices.Equal(purposes, want) {
		t.Fatalf("purposes %q, want %q", purposes, want)
	}
	r.has("records.0.type", "A", "records.0.host", "@", "records.0.value", "127.0.0.1", "records.0.ttl", "3600", "records.0.priority", "<nil>",
		"records.1.value", "mail.example.test", "records.1.priority", "10", "records.3.host", "ms1._domainkey", "records.5.host", "_dmarc")
	b.post(path+"/verify-dns", nil).is(200).has("domain", "manual.test", "all_verified", "false", "critical_verified", "false",
		"records.1.type", "MX", "records.1.host", "@", "records.1.purpose", "MX", "records.1.verified", "false", "records.1.expected", "10 mail.example.test",
		"records.1.actual", "<nil>")
	b.get(path+"/dns-status").has("records.1.error", "missing")
	b.get(path).has("status", "pending_dns_records")
	for i := range purposes {
		at := fmt.Sprintf("records.%d.", i)
		host, value := r.text(at+"host")+".manual.test", r.text(at+"value")
		if purposes[i] == "MX" {
			value = r.text(at+"priority") + " " + value
		}
		if purposes[i] != "DMARC" { // which is not critical
			world.Tell(r.text(at+"type"), strings.TrimPrefix(host, "@."), value)
		}
	}
	world.Tell("TXT", "manual.test", r.text("records.2.value"), "v=spf1 -all")
	b.post(path+"/verify-dns", nil).is(200).has("critical_verified", "false")
	b.get(path+"/dns-status").has("records.2.error", "multiple_spf")
	world.Tell("TXT", "manual.test", r.text("records.2.value"), "something else")
	world.Set(func() { world.Dead = "all" })
	b.post(path+"/verify-dns", nil).is(200).has("critical_verified", "false")
	b.get(path+"/dns-status?refresh=true").has("records.2.error", "lookup_failed")
	b.get(path).has("status", "pending_dns_records")
	world.Set(func() { world.Dead = "" })
	member := b.Token(t, b.Owner.AccountID, "member", "read", "write")
	b.with(member).post(path+"/verify-dns", nil).is(200).has("critical_verified", "true", "all_verified", "false", "records.0.verified", "true", "records.0.actual", "127.0.0.1")
	b.get(path).has("status", "complete", "dns_status", "complete", "dns_health.status", "degraded", "dns_health.issues.0.purpose", "DMARC")
	b.get("/v1/email-users?domain=manual.test").has("data.0.status", "active")
	b.get("/v1/events?type=domain.ready").has("pagination.count", "1")
	b.post(path+"/verify-dns", nil).is(200)
	b.get("/v1/events?type=domain.ready").has("pagination.count", "1")
}

func TestManualDomainRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	b.get("/v1/domains/"+b.domain+"/dns-records").fails(400, "not_manual_domain")
	b.post("/v1/domains/"+b.domain+"/verify-dns", nil).fails(400, "not_manual_domain")
	path := "/v1/domains/" + b.Domain(t, b.Owner.AccountID, "early.test", "manual", "in_progress").ID
	b.get(path+"/dns-records").is(200).has("status", "pending", "records", "<nil>")
	b.post(path+"/verify-dns", nil).fails(409, "records_not_ready")
}

// In the sandbox our own server answers for manual domains too, so that they complete offline.
func TestManualDomainInTheSandbox(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.post("/v1/domains/connect", `{"domains":["manual.test"],"manual_dns":true}`).text("domains.0.domain_id")
	b.until("/v1/domains/"+id, "status", "pending_dns_records")
	b.post("/v1/domains/"+id+"/verify-dns", nil).is(200).has("all_verified", "true")
	b.get("/v1/domains/"+id).has("status", "complete", "dns_health.status", "healthy")
}

func TestExternalDomain(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.post("/v1/domains/connect", `{"domains":["away.test"],"external":true}`).is(200).
		has("nameservers", "[]", "domains.0.dns_provider", "external").text("domains.0.domain_id")
	b.get("/v1/domains/"+id).has("status", "complete", "ns_status", "not_required", "dns_status", "complete", "dns_health.status", "unknown", "job_id", "<nil>")
	b.get("/v1/events?type=domain.ready").has("pagination.count", "1", "data.0.data.job_id", "<nil>")
	b.get("/v1/domains/"+id+"/dns-status?refresh=true").is(200).has("ready", "true", "records", "[]", "status", "complete", "nameservers.verified", "true")
	if world.Looked > 1 || b.Zones.HostsName("away.test") { // for the record that proves the claim
		t.Errorf("%d lookups, hosted %v", world.Looked, b.Zones.HostsName("away.test"))
	}
}

func TestListDomains(t *testing.T) {
	b := newSandbox(t, nil)
	b.post("/v1/domains/connect", `{"domains":["a.test","bücher.test"],"tags":["red"]}`).is(200)
	b.post("/v1/domains/connect", `{"domains":["c.test"],"external":true,"tags":["red","blue"]}`).is(200)
	b.with(b.Account(t, "other@example.test").Token).post("/v1/domains/connect", `{"domains":["d.test"]}`).is(200)
	for query, want := range map[string]string{
		"":                          "[c.test xn--bcher-kva.test a.test boxes.test]",
		"?status=pending_ns":        "[xn--bcher-kva.test a.test]",
		"?tag=red":                  "[c.test xn--bcher-kva.test a.test]",
		"?filter[tag]=blue":         "[c.test]",
		"?q=B%C3%9CCH":              "[xn--bcher-kva.test]",
		"?q=xes":                    "[boxes.test]",
		"?dns_provider=external":    "[c.test]",
		"?tag=red&status=complete":  "[c.test]",
		"?dns_provider=cloudflare":  "[]",
		"?status=pending_ns&q=none": "[]",
	} {
		if got := fmt.Sprint(b.get("/v1/domains"+query).is(200).list("data", "domain")); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	first := b.get("/v1/domains?limit=3").is(200).has("pagination.has_more", "true", "pagination.count", "3", "pagination.limit", "3")
	cursor := first.text("pagination.cursor")
	b.get("/v1/domains?limit=3&cursor="+cursor).is(200).has("data.0.domain", "boxes.test", "pagination.cursor", "<nil>")
	b.get("/v1/domains?limit=3&tag=red&cursor="+cursor).fails(400, "invalid_cursor")
	b.get("/v1/domains?status=wrong").fails(400, "validation_error")
}

func TestUpdateDomain(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	path := "/v1/domains/" + b.domain
	before := b.get(path).text("updated_at")
	b.patch(path, `{"tags":["x","x"],"auto_renew":true,"sending_mode":"relay","catch_all":"Ann@Boxes.test","notes":"hello"}`).is(200).
		has("tags", "[x]", "auto_renew", "true", "sending_mode", "relay", "catch_all", "ann@boxes.test", "notes", "hello")
	if after := b.get(path).has("catch_all", "ann@boxes.test").text("updated_at"); after < before {
		t.Errorf("updated_at went from %s to %s", before, after)
	}
	b.patch(path, `{"catch_all":"x@elsewhere.test","domain":"ignored.test"}`).is(200).has("catch_all", "x@elsewhere.test", "domain", "boxes.test", "notes", "hello")
	b.patch(path, `{"catch_all":null,"notes":null,"tags":[]}`).is(200).has("catch_all", "<nil>", "notes", "<nil>", "tags", "[]")
	b.patch(path, `{}`).fails(400, "nothing_to_update")
	b.patch(path, `{"domain":"x.test"}`).fails(400, "nothing_to_update")
	for _, body := range []string{
		`{"catch_all":"nobody@boxes.test"}`, `{"catch_all":"no address"}`, `{"sending_mode":"pigeon"}`, `{"tags":"x"}`, `{"notes":5}`,
		`{"notes":"` + strings.Repeat("x", 5001) + `"}`,
	} {
		b.patch(path, body).fails(400, "validation_error")
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read", "write")).patch(path, `{"notes":"x"}`).fails(403, "forbidden_role")
	direct := newSandbox(t, func(c *core.Config) { c.Outbound = "" })
	direct.patch("/v1/domains/"+direct.domain, `{"sending_mode":"relay"}`).fails(400, "validation_error")
}

func TestDomainsOfOthersAreNotThere(t *testing.T) {
	b := newSandbox(t, nil)
	other := b.with(b.Account(t, "other@example.test").Token)
	for _, id := range []string{b.domain, "dom_nothing", "boxes.test"} {
		path := "/v1/domains/" + id
		other.get(path).fails(404, "not_found")
		other.patch(path, `{"notes":"x"}`).fails(404, "not_found")
		other.remove(path).fails(404, "not_found")
		other.get(path+"/dns-status").fails(404, "not_found")
		other.get(path+"/dns-records").fails(404, "not_found")
		other.post(path+"/verify-dns", nil).fails(404, "not_found")
	}
	other.post("/v1/domains/check-ns", `{"domains":["boxes.test"]}`).is(200).has("domains.0.status", "not_found", "domains.0.domain_id", "<nil>", "domains.0.nameservers", "[]")
	other.get("/v1/domains").has("pagination.count", "0")
}

func TestDeleteDomain(t *testing.T) {
	b, _ := newWorld(t, nil)
	id := b.complete("gone.test")
	path := "/v1/domains/" + id
	for i := range 5 {
		email := fmt.Sprintf("box%d@gone.test", i)
		b.post("/v1/email-users", map[string]any{"email": email}).is(201)
		for range 3 {
			b.Put(t, email, "Subject: x\n\nx\n", mail{})
		}
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "read", "write")).remove(path).fails(403, "forbidden_role")
	r := b.remove(path).is(202).has("type", "domain_delete", "resource.name", "gone.test", "steps.0.name", "mailboxes", "steps.3.name", "domain")
	job := r.text("job_id")
	if got := r.header.Get("Location"); got != "/v1/jobs/"+job {
		t.Errorf("Location %q", got)
	}
	if again := b.remove(path); again.status == 202 {
		again.has("job_id", job)
	} else {
		again.fails(404, "not_found")
	}
	b.get("/v1/jobs/"+job+"?wait=10").is(200).has("status", "completed", "progress.percent", "100", "steps.0.status", "completed",
		"steps.1.status", "completed", "steps.2.status", "completed", "steps.3.status", "completed")
	b.get(path).fails(404, "not_found")
	b.get("/v1/email-users?q=gone.test").has("pagination.count", "0")
	b.get("/v1/events?type=email_user.deleted").has("pagination.count", "5")
	b.get("/v1/account/usage").has("storage.messages", "0", "domains.used", "1")
	if b.Zones.HostsName("gone.test") {
		t.Error("the zone of a deleted domain is served")
	}
	if next := b.complete("gone.test"); next == id {
		t.Error("the name came back under the same id")
	}
}

func TestDeletingDomain(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/domains/" + b.Domain(t, b.Owner.AccountID, "going.test", "builtin", "deleting").ID
	b.get(path).is(200).has("status", "deleting")
	b.patch(path, `{"notes":"x"}`).fails(409, "domain_busy")
	b.post("/v1/domains/connect", `{"domains":["going.test"]}`).is(200).has("domains.0.status", "error")
	b.post("/v1/domains/check-ns", `{"domains":["going.test"]}`).is(200).has("domains.0.status", "error", "domains.0.verified", "false")
	// Its job is not there any more, as after a restore: another takes its place.
	job := b.remove(path).is(202).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed")
}

func TestDNSStatus(t *testing.T) {
	b, world := newWorld(t, nil)
	id := b.connect("state.test")
	path := "/v1/domains/" + id + "/dns-status"
	world.Tell("NS", "state.test")
	b.get(path).is(200).has("domain_id", id, "domain", "state.test", "dns_provider", "builtin", "ready", "false", "cached", "false",
		"nameservers.expected.0", "ns1.example.test", "nameservers.actual", "[]", "nameservers.verified", "false", "summary.mx", "true", "summary.dkim", "true")
	b.get(path).has("cached", "true", "next_check_at", b.get("/v1/domains/"+id).text("next_look_at"))
	world.Tell("NS", "state.test", "ns1.example.test")
	b.post("/v1/domains/check-ns", `{"domains":["state.test"]}`).is(200)
	b.until("/v1/domains/"+id, "status", "complete")
	r := b.get(path).is(200).has("status", "complete", "ready", "true", "cached", "true", "nameservers.verified", "true", "nameservers.actual", "[ns1.example.test]",
		"summary.mx", "true", "summary.spf", "true", "summary.dkim", "true", "summary.dmarc", "true",
		"records.1.purpose", "MX", "records.1.expected", "10 mail.example.test", "records.1.actual", "10 mail.example.test", "records.1.error", "<nil>")
	if got := fmt.Sprint(r.list("records", "purpose")); got != "[A MX SPF DKIM DKIM DMARC]" {
		t.Errorf("purposes %s", got)
	}
	if r.text("next_check_at") <= r.text("checked_at") {
		t.Errorf("checked at %s, next at %s", r.text("checked_at"), r.text("next_check_at"))
	}
	world.Tell("MX", "state.test", "5 mx.else.test.", "10 mail.example.test.")
	world.Tell("CNAME", "ms1._domainkey.state.test", "key.else.test.")
	world.Tell("TXT", "ms1._domainkey.state.test")
	b.get(path+"?refresh=true").is(200).has("ready", "false", "cached", "false", "status", "propagating", "summary.mx", "false", "summary.spf", "true",
		"records.1.error", "mismatch", "records.1.actual", "5 mx.else.test, 10 mail.example.test", "records.3.error", "dkim_wrong_type", "records.3.actual", "key.else.test")
	b.get("/v1/domains/"+id).has("status", "complete", "dns_health.status", "degraded", "dns_health.issues.0.code", "mismatch", "dns_health.issues.0.host", "@",
		"dns_health.issues.1.code", "dkim_wrong_type", "dns_health.issues.1.host", "ms1._domainkey", "dns_health.issues.2", "")
	b.get("/v1/events?type=domain.dns_failed").has("pagination.count", "0")
	b.get(path+"?refresh=true").is(200).has("status", "failed")
	b.get(path+"?refresh=true").is(200).has("status", "failed")
	b.get("/v1/domains/"+id).has("status", "complete", "dns_status", "failed", "dns_health.status", "failing")
	b.get("/v1/events?type=domain.dns_failed").has("pagination.count", "1", "data.0.data.domain", "state.test", "data.0.data.issues.0.code", "mismatch",
		"data.0.data.issues.0.type", "MX", "data.0.data.issues.0.purpose", "MX", "data.0.data.issues.0.host", "@",
		"data.0.data.issues.0.expected", "10 mail.example.test", "data.0.data.issues.0.actual", "5 mx.else.test, 10 mail.example.test")
	world.Set(func() { world.Dead = "all" })
	b.get(path+"?refresh=true").is(200).has("ready", "false", "records.1.error", "lookup_failed")
	b.get("/v1/domains/"+id).has("dns_health.status", "failing")
	world.Set(func() { world.Dead, world.Names = "", nil })
	b.get(path+"?refresh=true").is(200).has("ready", "true")
	b.get("/v1/domains/"+id).has("dns_status", "complete", "dns_health.status", "healthy", "dns_health.failing_since", "<nil>", "dns_health.issues", "[]")
}

// The names of the server itself, and what holds them, are for the account that set it up.
func TestHostsOwnNamesAreForTheOperator(t *testing.T) {
	b, _ := newWorld(t, nil)
	other := b.with(b.Account(t, "other@else.test").Token)
	host := b.Core.Config.Hostname
	_, parent, _ := strings.Cut(host, ".")
	for _, name := range []string{host, parent} {
		other.post("/v1/domains/connect", map[string]any{"domains": []string{name}}).is(200).has("domains.0.status", "error")
		other.post("/v1/domains/setup", map[string]any{"domain": name}).fails(400, "validation_error")
	}
	other.post("/v1/domains/connect", map[string]any{"domains": []string{"x" + parent}}).is(200).has("domains.0.status", "created")
	b.post("/v1/domains/connect", map[string]any{"domains": []string{host}}).is(200).has("domains.0.status", "created")
}

// setUp runs a setup to its end and returns the job.
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
	if _, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "ann@fresh.test", Password: "correct horse", IP: "127.0.0.1"}); err != nil {
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
		t.Errorf("steps %s, %d lookups", got, world.Looked)
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
		{`{"domain":"simulator.mail.example.test"}`, 400, "invalid_domain"},
		{`{"domain":"a.Simulator.mail.example.test"}`, 400, "invalid_domain"},
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
		"status_detail", "bakery.io was registered at the sandbox registrar: nothing was paid, and it does not exist on the internet.", "result.price", "35", "result.currency", "USD", "result.status", "complete", "result.email_users.created", "1")
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
	shop.Sell("operators.com", b.Core.Store.Now())
	b.setUp(`{"domain":"operators.com","register":true,"price":11}`).has("status", "error", "error.code", "domain_unavailable")
	shop.Set(func() { shop.Meddle = func(string) error { return errors.New("out of order") } })
	b.post("/v1/domains/setup", `{"domain":"later.com","register":true,"price":11}`).is(202)
	b.until("/v1/jobs?domain=later.com", "data.0.error.code", "registrar_error").has("data.0.status", "queued")
}
