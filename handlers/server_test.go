package handlers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// TestCommandsAreNotLimited: the operator's commands mend a limit that is too low for people.
func TestCommandsAreNotLimited(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 1, 1 })
	for range 3 {
		if got := Do(b.server.Local(), httptest.NewRequest("GET", "/v1/account", nil)).StatusCode; got != 200 {
			t.Errorf("over the socket: %d", got)
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
	if n := b.server.badTokens.requestsThisMinute("127.0.0.1", now); n != 1 {
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
	if len(first.raw) <= once.MaxStoredBody {
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
	b.server.fillRouters()
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
	odd := []string{"get_webhook_secret", "generate_names", "search_domains_bulk", "check_provider", "preview_message_template", "test_rules", "list_requests", "get_request"}
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
