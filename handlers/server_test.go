package handlers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/external"
)

func TestErrorBodies(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.get("/v1/nothing").fails(404, "not_found")
	if !regexp.MustCompile(`^req_[0-9a-z]{26}$`).MatchString(r.text("error.request_id")) || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("error %s as %s", r.raw, r.header.Get("Content-Type"))
	}
	b.do("GET", "/v1/email-users/eu_x", nil, "X-Request-Id", "my-own.ID_1").fails(404, "not_found").has("error.request_id", "my-own.ID_1")
	if r := b.do("GET", "/v1/email-users/eu_x", nil, "X-Request-Id", "has space"); r.text("error.request_id") == "has space" {
		t.Error("a bad request id was echoed")
	}
	p := b.do("POST", "/v1/email-users", `{"domain":"boxes.test"}`, "Accept", "application/problem+json").is(400)
	p.has("type", "about:blank", "title", "Bad Request", "status", "400", "code", "validation_error", "instance", "/v1/email-users",
		"details.0.field", "username", "request_id", p.header.Get("X-Request-Id"))
	if p.text("detail") == "" || p.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("problem %s as %s", p.raw, p.header.Get("Content-Type"))
	}
}

func TestMethodsThatARouteLacks(t *testing.T) {
	b := newSandbox(t, nil)
	for _, tc := range []struct{ method, path, allow string }{
		{"PUT", "/v1/email-users", "GET, POST"},
		{"POST", "/v1/email-users/eu_x", "DELETE, GET, PATCH"},
		{"DELETE", "/v1/account", "GET, PATCH"},
		{"PUT", "/v1/inbox/5", "DELETE, GET, PATCH"},
		{"PUT", "/v1/email-users/bulk", "DELETE, GET, PATCH, POST"},
		{"OPTIONS", "/v1/email-users/eu_x", "DELETE, GET, PATCH"},
	} {
		r := b.do(tc.method, tc.path, nil).fails(405, "method_not_allowed")
		if r.header.Get("Allow") != tc.allow {
			t.Errorf("%s %s allows %q, want %q", tc.method, tc.path, r.header.Get("Allow"), tc.allow)
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/email-users/", "/v1/email-users/x/y", "/v1/%00", "/v1/../v1/x"} {
		if r := b.do("POST", path, nil); r.status != 404 && r.status != 405 {
			t.Errorf("%s: %d %s", path, r.status, r.raw)
		}
	}
}

// TestSlashInAName: a slash that is escaped in a path is part of a name.
func TestSlashInAName(t *testing.T) {
	b := newSandbox(t, nil)
	for _, email := range []string{"a/b@far.test", "%2f%@far.test", "a//@far.test"} {
		b.post("/v1/suppressions", map[string]string{"email": email}).is(201).has("email", email)
		b.remove("/v1/suppressions/"+url.PathEscape(email)).is(200).has("email", email)
	}
	b.get("/v1/domains/"+b.domain+"%2Femail-users").fails(404, "not_found")
	b.get("/v1%2Faccount").is(404)
}

func TestWhoWantsAProblem(t *testing.T) {
	b := newSandbox(t, nil)
	for accept, want := range map[string]bool{
		"application/problem+json": true, "Application/Problem+JSON": true, "text/html, application/problem+json;q=0.5": true,
		"application/problem+json;q=0": false, "application/problem+json;q=0.000": false, "application/json": false, "*/*": false, "x/application/problem+json": false,
	} {
		r := b.do("GET", "/v1/nothing", nil, "Accept", accept).is(404)
		if got := r.header.Get("Content-Type") == "application/problem+json"; got != want {
			t.Errorf("%s: %s", accept, r.header.Get("Content-Type"))
		}
	}
}

func TestAuthentication(t *testing.T) {
	b := newSandbox(t, nil)
	for _, token := range []string{"mst_x", "sk_live_x", b.token[:45] + "AAAAA", b.token + "x", "mst_" + strings.Repeat("é", 23)} {
		r := b.with(token).get("/v1/account").fails(401, "unauthorized")
		if !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") || r.header.Get("X-RateLimit-Limit") != "" {
			t.Errorf("headers of a 401: %v", r.header)
		}
	}
	b.with("").get("/v1/account").fails(401, "unauthorized")
	b.with("").do("GET", "/v1/account", nil, "Authorization", "Basic "+b.token).fails(401, "unauthorized")
	b.with("").do("GET", "/v1/account", nil, "Authorization", "bearer "+b.token).is(200)
	b.with("").get("/v1/nothing").fails(401, "unauthorized")
	made := b.post("/v1/auth/tokens", `{"expires_in_days":1}`).is(201)
	b.with(made.text("token")).get("/v1/account").is(200).has("api_token.id", made.text("id"))
	b.remove("/v1/auth/tokens/" + made.text("id")).is(200)
	b.with(made.text("token")).get("/v1/account").fails(401, "token_revoked")
	b.ExpireTokens(t, b.Owner.AccountID)
	b.get("/v1/account").fails(401, "token_expired")
}

func TestMediaTypesAndSizes(t *testing.T) {
	b := newSandbox(t, nil)
	b.do("POST", "/v1/email-users", `{"email":"a@boxes.test"}`, "Content-Type", "text/plain").fails(415, "unsupported_media_type")
	b.do("POST", "/v1/email-users", `{"email":"a@boxes.test"}`, "Content-Type", "").fails(415, "unsupported_media_type")
	b.do("POST", "/v1/email-users", `{"email":"a@boxes.test"}`, "Content-Type", "application/json; charset=utf-8").is(201)
	b.post("/v1/email-users", `{"email":"`+strings.Repeat("x", 1<<20)+`"}`).fails(413, "payload_too_large")
	for _, body := range []string{`{`, `[]`, `"x"`, `null`, `{"email":"a@boxes.test"} x`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", strings.Repeat(`{"a":`, 20000), `{"a":01}`} {
		b.post("/v1/email-users", body).fails(400, "invalid_json")
	}
}

func TestRatesAreCountedInMinutes(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 3, 5 })
	now := time.Date(2026, 11, 2, 10, 0, 20, 0, time.UTC)
	b.server.now = func() time.Time { return now }
	reset := fmt.Sprint(now.Truncate(time.Minute).Add(time.Minute).Unix())
	second := b.with(b.Token(t, b.Owner.AccountID, "member", "read")) // of the same account, so of the same budget
	for i, remaining := range []string{"2", "1", "0", "0", "0"} {
		c := b.client
		if i%2 == 1 {
			c = second
		}
		path := []string{"/v1/account", "/v1/nothing"}[i%2] // errors count and carry the headers too
		r := c.get(path)
		h := r.header
		if h.Get("X-RateLimit-Limit") != "3" || h.Get("X-RateLimit-Remaining") != remaining || h.Get("X-RateLimit-Reset") != reset {
			t.Errorf("request %d: %d %v", i, r.status, h)
		}
	}
	r := b.get("/v1/account").fails(429, "rate_limited").has("error.retry_after", "40")
	if r.header.Get("Retry-After") != "40" || r.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("headers of a 429: %v", r.header)
	}
	b.with(b.Account(t, "other@example.test").Token).get("/v1/account").is(200)
	now = now.Add(40 * time.Second)
	b.get("/v1/account/usage").is(200).has("rate_limit.limit", "3", "rate_limit.remaining", "2", "rate_limit.reset", fmt.Sprint(now.Add(time.Minute).Unix()))
}

func TestBadTokensAreBounded(t *testing.T) {
	b := newSandbox(t, nil)
	now := time.Date(2026, 11, 2, 10, 0, 20, 0, time.UTC)
	b.server.now = func() time.Time { return now }
	for range badTokensPerMinute + 1 {
		b.server.badTokens.count("127.0.0.1", now)
	}
	b.with("mst_bad").get("/v1/account").fails(429, "rate_limited").has("error.retry_after", "40")
	now = now.Add(time.Minute)
	b.with("mst_bad").get("/v1/account").fails(401, "unauthorized")
	if n := b.server.badTokens.used("127.0.0.1", now); n != 1 {
		t.Errorf("counted %d bad tokens, want 1", n)
	}
}

func TestIdempotencyKey(t *testing.T) {
	b := newSandbox(t, nil)
	const body = `{"email":"once@boxes.test"}`
	var mu sync.Mutex
	var wg sync.WaitGroup
	var made []string
	for range 20 {
		wg.Go(func() {
			for {
				r := b.do("POST", "/v1/email-users", body, "Idempotency-Key", "k1")
				if r.status == 409 && r.text("error.code") == "idempotency_in_progress" {
					continue
				}
				mu.Lock()
				defer mu.Unlock()
				made = append(made, fmt.Sprint(r.status, string(r.raw)))
				return
			}
		})
	}
	wg.Wait()
	for _, m := range made {
		if m != made[0] || !strings.HasPrefix(m, "201") {
			t.Fatalf("answers differ or fail: %s and %s", made[0], m)
		}
	}
	b.get("/v1/email-users").has("pagination.count", "1")
	again := b.do("POST", "/v1/email-users", body, "Idempotency-Key", "k1").is(201)
	if again.header.Get("Idempotent-Replayed") != "true" || again.text("password") == "" {
		t.Errorf("replay: %v %s", again.header, again.raw)
	}
	b.do("POST", "/v1/email-users", body+" ", "Idempotency-Key", "k1").fails(422, "idempotency_key_reused")
	b.do("POST", "/v1/email-users", body, "Idempotency-Key", strings.Repeat("k", 256)).fails(400, "validation_error")
	b.with(b.Token(t, b.Owner.AccountID, "admin", "write")).do("POST", "/v1/email-users", body, "Idempotency-Key", "k1").fails(409, "email_user_exists")
	refused := b.do("POST", "/v1/email-users", `{}`, "Idempotency-Key", "k2").is(400)
	kept := b.do("POST", "/v1/email-users", `{}`, "Idempotency-Key", "k2").is(400)
	if string(kept.raw) != string(refused.raw) || kept.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a refusal was not kept: %s, then %s", refused.raw, kept.raw)
	}
}

// TestLargeAnswersAreNotKept: what has a large answer is done once all the same, and the writer of
// the store keeps nothing of the answer.
func TestLargeAnswersAreNotKept(t *testing.T) {
	b := newSandbox(t, nil)
	bulk := func(name string, users int) string {
		var list []string
		for n := range users {
			list = append(list, fmt.Sprintf(`{"username":"%s%d","footer":%q}`, name, n, strings.Repeat("x", 9000)))
		}
		return `{"domain":"boxes.test","users":[` + strings.Join(list, ",") + `]}`
	}
	const path = "/v1/email-users/bulk"
	first := b.do("POST", path, bulk("much", 50), "Idempotency-Key", "k").is(200)
	if len(first.raw) <= once.MostKept {
		t.Fatalf("the answer has %d bytes", len(first.raw))
	}
	first.has("created", "50")
	if r := b.do("POST", path, bulk("much", 50), "Idempotency-Key", "k").fails(409, "answer_not_kept"); r.header.Get("Idempotent-Replayed") != "" {
		t.Error("the refusal says that it is the first answer")
	}
	b.do("POST", path, bulk("more", 1), "Idempotency-Key", "k").fails(422, "idempotency_key_reused")
	b.get("/v1/email-users").has("pagination.count", "25", "pagination.has_more", "true")

	b.do("POST", path, bulk("little", 1), "Idempotency-Key", "small").is(200)
	if again := b.do("POST", path, bulk("little", 1), "Idempotency-Key", "small").is(200); again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("a small answer was not kept")
	}
	if n := b.LargestAnswerKept(t); n > 16<<10 {
		t.Errorf("%d bytes of an answer are kept", n)
	}
}

// TestReadingTakesNoKey: an operation that only reads is done each time, and keeps nothing.
func TestReadingTakesNoKey(t *testing.T) {
	b := newSandbox(t, nil)
	for range 2 {
		r := b.do("POST", "/v1/email-users/generate-names", `{"count":100}`, "Idempotency-Key", "k").is(200)
		if r.header.Get("Idempotent-Replayed") != "" {
			t.Error("it was not done again")
		}
	}
	b.do("POST", "/v1/email-users/generate-names", `{"count":1}`, "Idempotency-Key", "k").is(200)
}

// TestPanicReachesTheClient has an operation fail in the worst way, with the answer held back for
// its key, and without.
func TestPanicReachesTheClient(t *testing.T) {
	b := newSandbox(t, nil)
	b.server.ops = append(b.server.ops, api.Operation{Name: "fall_over", Route: api.POST("/v1/fall-over"), Status: 200, May: api.May{Scope: "write", Roles: api.Everyone}, Call: api.Plain(func(context.Context, core.Actor) (*external.InboxesRefreshed, error) { panic("over") })})
	b.server.route()
	b.post("/v1/fall-over", nil).fails(500, "internal_error")
	for range 2 { // it is not kept, and the key is free again
		b.do("POST", "/v1/fall-over", nil, "Idempotency-Key", "k").fails(500, "internal_error")
	}
}

func TestHealth(t *testing.T) {
	b := newSandbox(t, nil)
	if r := b.with("").get("/healthz").is(http.StatusOK); string(r.raw) != "ok\n" {
		t.Errorf("health: %q", r.raw)
	}
	b.with("").get("/elsewhere").is(http.StatusNotFound)
}

// TestTableIsSound finds rows that cannot be routed to, named or permitted.
func TestTableIsSound(t *testing.T) {
	odd := []string{"get_webhook_secret", "generate_names", "search_domains_bulk", "check_provider", "preview_message_template", "test_rules"}
	names := map[string]bool{}
	for _, o := range api.All(&service.Service{}) {
		if names[o.Name] != o.Alias {
			t.Errorf("%s: alias is %v", o.Name, o.Alias)
		}
		names[o.Name] = true
		if o.Status == 0 || o.Call.Do == nil || len(o.Roles) == 0 || !strings.HasPrefix(o.Path, "/v1/") {
			t.Errorf("%s lacks something: %+v", o.Name, o)
		}
		if (o.Method == http.MethodGet) != (o.Scope == "read") && !slices.Contains(odd, o.Name) {
			t.Errorf("%s %s needs scope %q", o.Method, o.Path, o.Scope)
		}
	}
}

// interfaceRows are the operations that the interface promises, and those that the contract adds to
// it.
const interfaceRows = `
GET /v1/account get_account
PATCH /v1/account update_account
GET /v1/account/usage get_usage
POST /v1/account/universal-inbox set_universal_inbox
GET /v1/account/users list_team_users
POST /v1/account/users/invite invite_team_user
PATCH /v1/account/users/{user_id} update_team_user
DELETE /v1/account/users/{user_id} delete_team_user
GET /v1/auth/tokens list_tokens
POST /v1/auth/tokens create_token
DELETE /v1/auth/tokens/{token_id} delete_token
POST /v1/auth/tokens/{token_id}/clear-taint clear_token_taint
GET /v1/domains list_domains
GET /v1/domains/search search_domain
POST /v1/domains/search-bulk search_domains_bulk
GET /v1/domains/suggest suggest_domains
POST /v1/domains/connect connect_domains
POST /v1/domains/check-provider check_provider
POST /v1/domains/check-ns check_nameservers
POST /v1/domains/setup setup_domain
GET /v1/domains/{domain_id} get_domain
PATCH /v1/domains/{domain_id} update_domain
DELETE /v1/domains/{domain_id} delete_domain
GET /v1/domains/{domain_id}/dns-status get_dns_status
GET /v1/domains/{domain_id}/dns-records get_dns_records
POST /v1/domains/{domain_id}/verify-dns verify_dns
GET /v1/domains/{domain_id}/custom-dns-records list_custom_dns_records
POST /v1/domains/{domain_id}/custom-dns-records create_custom_dns_record
PATCH /v1/domains/{domain_id}/custom-dns-records/{record_id} update_custom_dns_record
DELETE /v1/domains/{domain_id}/custom-dns-records/{record_id} delete_custom_dns_record
PUT /v1/domains/{domain_id}/dmarc set_dmarc
DELETE /v1/domains/{domain_id}/dmarc reset_dmarc
POST /v1/domains/{domain_id}/redirect set_redirect
DELETE /v1/domains/{domain_id}/redirect delete_redirect
POST /v1/domains/{domain_id}/forward set_forward
DELETE /v1/domains/{domain_id}/forward delete_forward
GET /v1/domains/{domain_id}/email-users list_domain_email_users
GET /v1/email-users list_email_users
POST /v1/email-users create_email_user
POST /v1/inboxes create_inbox
POST /v1/email-users/generate-names generate_names
POST /v1/email-users/bulk create_email_users_bulk
DELETE /v1/email-users/bulk delete_email_users_bulk
POST /v1/email-users/bulk-delete delete_email_users_bulk
GET /v1/email-users/{user_id} get_email_user
PATCH /v1/email-users/{user_id} update_email_user
DELETE /v1/email-users/{user_id} delete_email_user
GET /v1/domains/{domain_id}/dmarc-reports list_dmarc_reports
GET /v1/domains/{domain_id}/tls-reports list_tls_reports
GET /v1/email-user-templates list_templates
POST /v1/email-user-templates create_template
GET /v1/email-user-templates/{template_id} get_template
PATCH /v1/email-user-templates/{template_id} update_template
DELETE /v1/email-user-templates/{template_id} delete_template
GET /v1/email-users/{user_id}/inbox list_email_user_inbox
POST /v1/email-users/{user_id}/inbox/send send_email
POST /v1/email-users/{user_id}/inbox/refresh refresh_email_user_inbox
GET /v1/email-users/{user_id}/inbox/{message_id} get_message
GET /v1/email-users/{user_id}/inbox/{message_id}/raw get_message_raw
GET /v1/email-users/{user_id}/inbox/{message_id}/attachments/{index} get_message_attachment
DELETE /v1/email-users/{user_id}/inbox/{message_id} delete_message
PATCH /v1/email-users/{user_id}/inbox/{message_id} mark_message
GET /v1/inbox list_inbox
GET /v1/email-users/{user_id}/inbox/wait wait_for_message
GET /v1/inbox/wait wait_for_any_message
POST /v1/inbox/refresh refresh_inbox
POST /v1/inbox/bulk-delete bulk_delete_messages
POST /v1/inbox/bulk-mark bulk_mark_messages
GET /v1/inbox/{message_id} get_inbox_message
PATCH /v1/inbox/{message_id} mark_inbox_message
DELETE /v1/inbox/{message_id} delete_inbox_message
GET /v1/webhooks list_webhooks
POST /v1/webhooks create_webhook
GET /v1/webhooks/{id} get_webhook
PATCH /v1/webhooks/{id} update_webhook
DELETE /v1/webhooks/{id} delete_webhook
GET /v1/webhooks/{id}/secret get_webhook_secret
POST /v1/webhooks/{id}/rotate-secret rotate_webhook_secret
POST /v1/webhooks/{id}/test test_webhook
GET /v1/webhooks/{id}/deliveries list_webhook_deliveries
POST /v1/webhooks/{id}/deliveries/{event_id}/redeliver redeliver_event
GET /v1/events list_events
GET /v1/messages list_messages
GET /v1/messages/lookup lookup_message
GET /v1/messages/{id} get_sent_message
POST /v1/messages/{id}/retry retry_message
POST /v1/messages/{id}/cancel cancel_message
GET /v1/suppressions list_suppressions
POST /v1/suppressions create_suppression
DELETE /v1/suppressions/{email} delete_suppression
GET /v1/jobs list_jobs
GET /v1/jobs/{job_id} get_job
POST /v1/export create_export
POST /v1/email-users/{user_id}/import import_messages
POST /v1/email-users/{user_id}/export export_messages
GET /v1/export/formats list_export_formats
GET /v1/health get_health
GET /v1/audit list_audit
POST /v1/email-users/{user_id}/held release_held_messages
GET /v1/email-users/{user_id}/folders list_folders
GET /v1/email-users/{user_id}/addresses suggest_addresses
POST /v1/email-users/{user_id}/inbox/{message_id}/unsubscribe unsubscribe_message
POST /v1/email-users/{user_id}/inbox/{message_id}/invitation answer_invitation
GET /v1/email-users/{user_id}/rules list_rules
POST /v1/email-users/{user_id}/rules create_rule
PATCH /v1/email-users/{user_id}/rules/{rule_id} update_rule
DELETE /v1/email-users/{user_id}/rules/{rule_id} delete_rule
POST /v1/email-users/{user_id}/rules/test test_rules
GET /v1/approvals list_approvals
GET /v1/approvals/{approval_id} get_approval
GET /v1/approvals/{approval_id}/raw get_approval_raw
POST /v1/approvals/{approval_id}/approve approve_message
POST /v1/approvals/{approval_id}/reject reject_message
GET /v1/email-users/{user_id}/vacation get_vacation
PUT /v1/email-users/{user_id}/vacation set_vacation
DELETE /v1/email-users/{user_id}/vacation delete_vacation
POST /v1/email-users/{user_id}/recovery-link create_recovery_link
POST /v1/email-users/{user_id}/drafts create_draft
PUT /v1/email-users/{user_id}/drafts/{message_id} update_draft
POST /v1/email-users/{user_id}/drafts/{message_id}/send send_draft
POST /v1/email-users/{user_id}/folders create_folder
PATCH /v1/email-users/{user_id}/folders/{folder_id} update_folder
DELETE /v1/email-users/{user_id}/folders/{folder_id} delete_folder
POST /v1/inbox/bulk-move bulk_move_messages
GET /v1/me get_me
PATCH /v1/me update_me
POST /v1/me/password change_my_password
GET /v1/groups list_groups
POST /v1/groups create_group
GET /v1/groups/{group_id} get_group
PATCH /v1/groups/{group_id} update_group
DELETE /v1/groups/{group_id} delete_group
GET /v1/email-users/{user_id}/credentials list_credentials
POST /v1/email-users/{user_id}/credentials create_credential
DELETE /v1/email-users/{user_id}/credentials/{credential_id} delete_credential
POST /v1/email-users/{user_id}/credentials/{credential_id}/clear-taint clear_credential_taint
GET /v1/domains/{domain_id}/smtp-credentials list_smtp_credentials
POST /v1/domains/{domain_id}/smtp-credentials create_smtp_credential
DELETE /v1/domains/{domain_id}/smtp-credentials/{credential_id} delete_smtp_credential
POST /v1/domains/{domain_id}/smtp-credentials/{credential_id}/clear-taint clear_smtp_credential_taint
GET /v1/message-templates list_message_templates
POST /v1/message-templates create_message_template
GET /v1/message-templates/{id} get_message_template
PATCH /v1/message-templates/{id} update_message_template
DELETE /v1/message-templates/{id} delete_message_template
POST /v1/message-templates/{id}/preview preview_message_template
POST /v1/email-users/{user_id}/inbox/send-batch send_email_batch
PATCH /v1/messages/{id} update_scheduled_message
GET /v1/reputation get_reputation
POST /v1/suppressions/import import_suppressions
`

// TestInterfaceIsComplete holds that every row of the interface is in the table, that the table has
// nothing else, and that every row is described.
func TestInterfaceIsComplete(t *testing.T) {
	have := map[string]bool{}
	for _, o := range api.All(&service.Service{}) {
		have[o.Method+" "+o.Path+" "+o.Name] = true
		if o.Group == "" || o.Summary == "" {
			t.Errorf("%s has no group or no summary", o.Name)
		}
	}
	rows := strings.Split(strings.TrimSpace(interfaceRows), "\n")
	for _, row := range rows {
		if !have[row] {
			t.Errorf("%s is missing", row)
		}
	}
	for row := range have {
		if !slices.Contains(rows, row) {
			t.Errorf("%s is not in the interface", row)
		}
	}
}
