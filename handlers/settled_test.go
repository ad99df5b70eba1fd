package handlers

import (
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestStatusOfExternalMailboxes: pending until the first sync, error after a failed one, active
// after a good one; the error has a code.
func TestStatusOfExternalMailboxes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remote := pulltest.Serve(t, ln)
	remote.Change(func() { remote.Add("From: A <a@far.test>\r\nTo: me@away.test\r\nSubject: m\r\n\r\nhello\r\n") })
	b := newSandbox(t, nil)
	b.Domain(t, b.Owner.AccountID, "away.test", "external", "complete")
	b.box("here")
	r := b.post("/v1/email-users", fmt.Sprintf(`{"email":"me@away.test","type":"external",
		"imap":{"host":"127.0.0.1","port":%d,"security":"none","username":"me","password":"s3cret"}}`, remote.Port)).is(201)
	r.has("status", "pending", "error", "<nil>")
	path := "/v1/email-users/" + r.text("id")
	sync := func(status string) *reply {
		t.Helper()
		b.post(path+"/inbox/refresh", nil).is(200)
		return b.until(path, "status", status)
	}
	only := func(status string) {
		t.Helper()
		for _, other := range []string{"pending", "active", "error"} {
			want := map[bool]string{true: "1", false: "0"}[other == status]
			for _, list := range []string{"/v1/email-users?q=me@away&status=", "/v1/domains/" + r.text("domain_id") + "/email-users?status="} {
				b.get(list+other).is(200).has("pagination.count", want)
			}
		}
	}
	only("pending")
	refuse := func(on bool) {
		remote.Change(func() {
			remote.Manners = nil
			if on {
				remote.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
					if verb == "LOGIN" || verb == "AUTHENTICATE" {
						fmt.Fprintf(w, "%s NO [UNAVAILABLE] not now\r\n", tag)
						return true
					}
					return false
				}
			}
		})
	}
	failing := func(got *reply) {
		t.Helper()
		got.has("status", "error", "error.code", "upstream_error")
		if !strings.Contains(got.text("error.message"), "not now") {
			t.Errorf("error %s", got.raw)
		}
	}
	refuse(true)
	failing(sync("error"))
	only("error")
	b.assistant(b.token).call("get_email_user", map[string]any{"user_id": r.text("id")}).is(200).has("status", "error", "error.code", "upstream_error")
	refuse(false)
	sync("active").has("status", "active", "error", "<nil>")
	only("active")
	refuse(true)
	failing(sync("error"))
	refuse(false)
	sync("active").has("status", "active", "error", "<nil>")

	// Rows of older releases have the text alone.
	for text, code := range map[string]string{
		"imap.away.test does not answer in time.":                          "upstream_error",
		"The mailbox could not be read. See the log of this installation.": "internal_error",
	} {
		b.ChangeMailbox(t, "me@away.test", func(m *servicetest.Mailbox) { m.ErrorText = text })
		b.get(path).is(200).has("status", "error", "error.code", code, "error.message", text)
	}
	b.patch(path, `{"status":"suspended"}`).is(200).has("status", "suspended")
}

// TestTokensOfOthersAreNotThere for a member, whoever made them.
func TestTokensOfOthersAreNotThere(t *testing.T) {
	b := newSandbox(t, nil)
	one := b.with(b.Token(t, b.Owner.AccountID, "member", "read", "write"))
	two := b.with(b.Token(t, b.Owner.AccountID, "member", "read", "write"))
	admin := b.with(b.Token(t, b.Owner.AccountID, "admin", "admin"))
	theirs := map[string]string{
		"another member's": two.get("/v1/auth/tokens").is(200).text("data.0.id"),
		"an admin's":       admin.post("/v1/auth/tokens", `{"permissions":["read"]}`).is(201).text("id"),
		"the owner's":      b.post("/v1/auth/tokens", `{"permissions":["read"]}`).is(201).text("id"),
		"nobody's":         "tok_00000000000000000000000000",
	}
	for whose, id := range theirs {
		r := one.remove("/v1/auth/tokens/" + id)
		if r.status != 404 || r.text("error.code") != "not_found" || r.text("error.message") != one.remove("/v1/auth/tokens/tok_x").text("error.message") {
			t.Errorf("%s: %d %s", whose, r.status, r.raw)
		}
	}
	b.get("/v1/auth/tokens").is(200).has("count", "6")
}

// TestNullIsNoName: in a list of names it is an error of the request that names its place.
func TestNullIsNoName(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	for path, body := range map[string]string{
		"/v1/domains/search-bulk":        `{"domains":["a.test",null]}`,
		"/v1/domains/connect":            `{"domains":["a.test",null]}`,
		"/v1/domains/check-ns":           `{"domains":["a.test",null]}`,
		"/v1/domains/connect?":           `{"domains":["a.test"],"tags":["x",null]}`,
		"/v1/email-users/bulk-delete":    `{"emails":["a@b.test",null]}`,
		"/v1/email-users/bulk-delete?":   `{"user_ids":["` + ann + `",null]}`,
		"/v1/email-user-templates":       `{"name":"t","usernames":["a",null]}`,
		"/v1/auth/tokens":                `{"permissions":["read",null]}`,
		"/v1/webhooks":                   `{"url":"https://example.com/h","events":["*",null]}`,
		"/v1/email-users/generate-names": `{"exclude":["a",null]}`,
	} {
		r := b.post(path, body).fails(400, "validation_error")
		if field := r.text("error.details.0.field"); !strings.HasSuffix(field, ".1") {
			t.Errorf("%s: field %q in %s", path, field, r.raw)
		}
	}
	b.patch("/v1/account", `{"warmup_phrases":["a",null]}`).fails(400, "validation_error").has("error.details.0.field", "warmup_phrases.1")
	b.patch("/v1/domains/"+b.domain, `{"tags":["a",null]}`).fails(400, "validation_error").has("error.details.0.field", "tags.1")
	if n := b.get("/v1/domains").text("pagination.count"); n != "1" {
		t.Errorf("%s domains", n)
	}
}

// TestAMalformedMailboxIsItsItemsError in the bulk operations of the inbox.
func TestAMalformedMailboxIsItsItemsError(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	b.Put(t, "ann@boxes.test", "Subject: s\r\n\r\nx\r\n", mail{})
	bad := []string{`"no address"`, `"a@b@c"`, `"@"`, `" "`, `"ann@boxes.test\u0000"`, `"` + strings.Repeat("x", 3000) + `@boxes.test"`}
	refs := `{"uid":"1","mailbox":"ann@boxes.test"}`
	for _, m := range bad {
		refs += `,{"uid":"1","mailbox":` + m + `}`
	}
	b.post("/v1/inbox/bulk-mark", `{"is_read":true,"messages":[`+refs+`]}`).is(200).has("marked", "1", "failed", fmt.Sprint(len(bad)), "errors.0.mailbox", "no address")
	b.post("/v1/inbox/bulk-delete", `{"messages":[`+refs+`]}`).is(200).has("deleted", "1", "failed", fmt.Sprint(len(bad)), "errors.0.mailbox", "no address")
}

// TestNullInAPatch: of every field of every PATCH that cannot be null, it is an error that names
// it; where it can be, it is none.
func TestNullInAPatch(t *testing.T) {
	b := newSandbox(t, servicetest.NewEdge().With(nil))
	ann := b.box("ann")
	b.Put(t, "ann@boxes.test", "Subject: s\r\n\r\nx\r\n", mail{})
	paths := map[string]string{
		"update_account": "/v1/account", "update_domain": "/v1/domains/" + b.domain, "update_email_user": "/v1/email-users/" + ann,
		"mark_message": "/v1/email-users/" + ann + "/inbox/1", "mark_inbox_message": "/v1/inbox/1?mailbox=ann@boxes.test",
		"update_team_user": "/v1/account/users/" + b.post(users+"/invite", `{"email":"bob@team.test","password":"a secret"}`).is(200).text("id"), "update_template": "/v1/email-user-templates/" + b.Template(t, b.Owner.AccountID, "", "ann"),
		"update_webhook":           "/v1/webhooks/" + b.post("/v1/webhooks", `{"url":"https://example.com/h","events":["*"]}`).is(201).text("id"),
		"update_custom_dns_record": "/v1/domains/" + b.domain + "/custom-dns-records/" + b.post("/v1/domains/"+b.domain+"/custom-dns-records", `{"name":"x","type":"TXT","value":"y"}`).is(200).text("record.id"),
	}
	paths["update_message_template"] = "/v1/message-templates/" + b.post("/v1/message-templates", `{"name":"n","subject":"s","text":"t","html":"h"}`).is(201).text("id")
	paths["update_scheduled_message"] = "/v1/messages/" + b.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t","send_at":"`+soon(24)+`"}`).is(200).text("recipients.0.id")
	paths["update_dns_credential"] = "/v1/dns-credentials/" + b.post("/v1/dns-credentials", `{"provider":"hetzner","name":"n","token":"edge-token"}`).is(201).text("id")
	paths["update_folder"] = "/v1/email-users/" + ann + "/folders/" + b.post("/v1/email-users/"+ann+"/folders", `{"name":"Work"}`).is(201).text("id")
	paths["update_group"] = "/v1/groups/" + b.post("/v1/groups", `{"email":"sales@boxes.test","members":[{"email":"ann@boxes.test"}]}`).is(201).text("id")
	paths["update_rule"] = "/v1/email-users/" + ann + "/rules/" + b.post("/v1/email-users/"+ann+"/rules", `{"name":"r","actions":[{"type":"stop"}]}`).is(201).text("id")
	paths["update_account_by_id"] = "/v1/accounts/" + b.Account(t, "other@example.test").AccountID
	web := b.browser().signIn()
	nullable := map[string]bool{
		"update_email_user.signature": true, "update_email_user.recovery_email": true, "update_group.name": true,
		"update_domain.catch_all": true, "update_domain.notes": true, "update_domain.relay": true, "update_webhook.description": true, "update_webhook.filters": true,
		"update_team_user.first_name": true, "update_team_user.last_name": true, "update_email_user.footer": true, "update_email_user.daily_send_limit": true, "update_email_user.forward_to": true,
		"update_email_user.quota_bytes": true, "update_email_user.relay": true, "update_email_user.sending_paused": true, "update_domain.sending_paused": true,
		"update_message_template.text": true, "update_email_user.send_policy": true, "update_email_user.expires_at": true, "update_account.warmup_folder": true,
	}
	seen := 0
	for _, o := range b.server.ops {
		if o.Method != "PATCH" || o.Name == "update_me" || o.OperatorNow { // which are for the person of a mailbox, and for the operator
			continue
		}
		path, ok := paths[o.Name]
		if !ok {
			t.Errorf("%s is not tried", o.Name)
			continue
		}
		patch := b.patch
		if o.OperatorNow {
			patch = func(path string, body any) *reply { return web.ask("PATCH", path, body) }
		}
		for _, f := range reflect.VisibleFields(o.Call.In) {
			name := openapi.JSONName(f)
			if name == "" || f.Anonymous {
				continue
			}
			seen++
			r := patch(path, `{"`+name+`":null}`)
			if nullable[o.Name+"."+name] {
				r.is(200)
				continue
			}
			if r.status != 400 || r.text("error.code") != "validation_error" || r.text("error.details.0.field") != name {
				t.Errorf("%s.%s: %d %s", o.Name, name, r.status, r.raw)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d fields", seen)
	}
	// Beside a change that is right, nothing is changed.
	b.patch(paths["update_email_user"], `{"name":null,"footer":"f"}`).fails(400, "validation_error").has("error.details.0.field", "name")
	b.get(paths["update_email_user"]).has("footer", "<nil>")
	b.assistant(b.token).call("update_email_user", map[string]any{"user_id": ann, "name": nil}).breaks("validation_error")
	b.post("/v1/auth/tokens", `{"name":null,"expires_in_days":null}`).is(201) // elsewhere null is as good as absent
}

// TestAReplayedErrorKeepsItsRequestID in the body; the header is that of the new request.
func TestAReplayedErrorKeepsItsRequestID(t *testing.T) {
	b := newSandbox(t, nil)
	for name, accept := range map[string]string{"plain": "*/*", "problem": "application/problem+json"} {
		ask := func() *reply {
			return b.do("POST", "/v1/email-users", `{}`, "Idempotency-Key", name, "Accept", accept).is(400)
		}
		first, again := ask(), ask()
		id := first.header.Get("X-Request-Id")
		if again.header.Get("Idempotent-Replayed") != "true" || string(again.raw) != string(first.raw) || !strings.Contains(string(again.raw), `"`+id+`"`) {
			t.Errorf("%s: %s, then %s", name, first.raw, again.raw)
		}
		if now := again.header.Get("X-Request-Id"); now == id || !strings.HasPrefix(now, "req_") {
			t.Errorf("%s: header %q after %q", name, now, id)
		}
	}
	r := b.do("POST", "/v1/email-users", `{}`, "Idempotency-Key", "plain", "Accept", "*/*", "X-Request-Id", "my-own")
	if r.header.Get("X-Request-Id") != "my-own" {
		t.Errorf("header %v", r.header)
	}
}

// TestErrorsOfTheProtocol are those of JSON-RPC 2.0 section 5.1.
func TestErrorsOfTheProtocol(t *testing.T) {
	b := newSandbox(t, nil)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"nothing"}`:                                "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"nothing","params":{}}`:                    "-32601",
		`{"jsonrpc":"2.0","id":"a","method":"tools/nothing"}`:                        "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`:                         "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}`:      "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no_tool"}}`: "-32602",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`:                 "-32602",
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`:       "-32601",
		`{}`:                       "-32600",
		`null`:                     "-32600",
		`7`:                        "-32600",
		`"x"`:                      "-32600",
		`[]`:                       "-32600",
		`[1]`:                      "-32600",
		`{"jsonrpc":"2.0"}`:        "-32600",
		`{"jsonrpc":"2.0","id":1}`: "-32600",
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                  "-32600",
		`{"id":1,"method":"tools/list"}`:                            "-32600",
		`{"jsonrpc":"2.0","id":1,"method":7}`:                       "-32600",
		`{"jsonrpc":"2.0","id":{},"method":"tools/list"}`:           "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":7}`: "-32600",
		`x`:          "-32700",
		`{"jsonrpc"`: "-32700",
		``:           "-32700",
	} {
		r := b.do("POST", mcpPath, body, "Accept", "application/json, text/event-stream")
		got := ""
		if r.json != nil {
			got = r.text("error.code")
		}
		if got != want || r.text("jsonrpc") != "2.0" || r.text("error.message") == "" {
			t.Errorf("%.80s: %d %s %.300s, want %s", body, r.status, r.header.Get("Content-Type"), r.raw, want)
		}
	}
	b.do("POST", mcpPath, `{"jsonrpc":"2.0","id":"a7","method":"nothing"}`, "Accept", "application/json, text/event-stream").is(200).has("id", "a7")
	b.do("POST", mcpPath, `{"jsonrpc":"1.0","id":7,"method":"ping"}`, "Accept", "application/json, text/event-stream").is(400).has("id", "7")
	b.do("POST", mcpPath, `{`, "Accept", "application/json, text/event-stream").is(400).has("id", "<nil>")
}

// TestReportAddress: in production the default DMARC record asks for reports to an address that is
// reserved and read; the record of a manual domain's owner counts with and without it, and so does
// any other valid one.
func TestReportAddress(t *testing.T) {
	const address = "dmarc-reports@manual.test"
	b, world := newWorld(t, func(c *core.Config) { c.Sandbox = false })
	path := "/v1/domains/" + b.post("/v1/domains/connect", `{"domains":["manual.test"],"manual_dns":true}`).is(200).text("domains.0.domain_id")
	b.until(path, "status", "pending_dns_records")
	r := b.get(path + "/dns-records").is(200)
	at := slices.Index(r.list("records", "purpose"), "DMARC")
	r.has(fmt.Sprintf("records.%d.value", at), "v=DMARC1; p=reject; rua=mailto:"+address)
	for i := range r.list("records", "purpose") {
		p := fmt.Sprintf("records.%d.", i)
		value := r.text(p + "value")
		if r.text(p+"type") == "MX" {
			value = r.text(p+"priority") + " " + value
		}
		world.Tell(r.text(p+"type"), strings.TrimPrefix(r.text(p+"host")+".manual.test", "@."), value)
	}
	for there, want := range map[string]string{
		"v=DMARC1; p=reject; rua=mailto:" + address:              "true",
		"v=DMARC1; p=reject":                                     "true",
		"v=DMARC1;p=reject;rua=mailto:else@reports.test":         "true",
		"v=DMARC1; p=none; rua=mailto:" + address:                "true",
		"v=DMARC1; p=quarantine":                                 "true",
		"v=DMARC1; p=maybe":                                      "false",
		"v=DMARC1; p=reject; rua=mailto:" + address + "; p=none": "false",
	} {
		world.Tell("TXT", "_dmarc.manual.test", there)
		b.post(path+"/verify-dns", nil).is(200).has("all_verified", want, "critical_verified", "true", fmt.Sprintf("records.%d.verified", at), want)
		b.get(path+"/dns-status?refresh=true").is(200).has("summary.dmarc", want)
	}
	b.until(path, "status", "complete")
	b.remove(path+"/dmarc").fails(503, "dns_provider_unsupported")
	b.get("/v1/account").has("default_dmarc", "v=DMARC1; p=reject")

	b.post("/v1/email-users", `{"email":"ann@manual.test"}`).is(201)
	b.post("/v1/email-users", `{"email":"`+address+`"}`).fails(400, "validation_error").has("error.details.0.code", "reserved")
	b.post("/v1/email-users/bulk", `{"domain":"manual.test","users":[{"username":"DMARC-Reports"}]}`).is(200).has("created", "0", "errors.0.code", "validation_error")
	b.post("/v1/email-user-templates", `{"name":"t","usernames":["dmarc-reports"]}`).fails(400, "validation_error")
	b.patch(path, `{"catch_all":"ann@manual.test"}`).is(200)
	for _, to := range []string{address, "DMARC-Reports+x@manual.test", "else@manual.test"} {
		if err := b.Arrive(t, "noreply@far.test", to, "From: noreply@far.test\nSubject: "+to+"\n\nx\n"); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	b.get("/v1/inbox").is(200).has("pagination.count", "1", "data.0.recipient", "else@manual.test")
	b.get("/v1/events?type=email.received").has("pagination.count", "1", "data.0.data.recipient", "else@manual.test", "data.0.data.mailbox", "ann@manual.test")
}

// TestZoneConflict: foreign mail in an edge zone is the error of its item in connect and of the job
// in setup, and stays where it is.
func TestZoneConflict(t *testing.T) {
	b, edge := newEdge(t, "edge.test", "taken.test")
	edge.Add("taken.test", "MX", "taken.test", "5 mx.elsewhere.test")
	r := b.post("/v1/domains/connect", `{"domains":["edge.test","taken.test"],"edge_api_token":"edge-token"}`).is(200).
		has("domains.0.status", "created", "domains.1.status", "error", "domains.1.domain_id", "<nil>", "domains_used", "2")
	if e := r.text("domains.1.error"); !strings.HasPrefix(e, "zone_conflict: ") || !strings.Contains(e, "mx.elsewhere.test") {
		t.Errorf("item error %q", e)
	}
	r = b.setUp(`{"domain":"taken.test","edge_api_token":"edge-token"}`).has("status", "error", "error.code", "zone_conflict")
	if e := r.text("error.message"); !strings.Contains(e, "mx.elsewhere.test") {
		t.Errorf("job error %q", e)
	}
	b.get("/v1/domains/"+r.text("resource.id")).is(200).has("status", "error", "error.code", "zone_conflict")
	if ours := edge.Ours("taken.test"); len(ours) != 0 {
		t.Errorf("changed: %q", ours)
	}
}

// TestAMailboxLiftsItsSuppression when it is made, when its domain is complete, and when it is
// taken back.
func TestAMailboxLiftsItsSuppression(t *testing.T) {
	b, _ := newWorld(t, func(c *core.Config) { c.Sandbox = false })
	suppress := func(email string) { t.Helper(); b.post("/v1/suppressions", map[string]any{"email": email}).is(201) }
	is := func(email string) bool {
		t.Helper()
		return slices.Contains(b.get("/v1/suppressions?limit=100").is(200).list("data", "email"), email)
	}
	for _, email := range []string{"one@boxes.test", "two@boxes.test", "else@boxes.test", "early@late.test"} {
		suppress(email)
	}
	one := b.box("one")
	b.post("/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"two"}]}`).is(200).has("created", "1")
	if is("one@boxes.test") || is("two@boxes.test") || !is("else@boxes.test") {
		t.Error("one or two is suppressed, or else is not")
	}
	suppress("one@boxes.test")
	b.patch("/v1/email-users/"+one, `{"name":"One"}`).is(200)
	b.patch("/v1/email-users/"+one, `{"status":"suspended"}`).is(200)
	if !is("one@boxes.test") {
		t.Error("lifted by another change")
	}
	b.patch("/v1/email-users/"+one, `{"status":"active"}`).is(200)
	if is("one@boxes.test") {
		t.Error("taken back, and still suppressed")
	}
	late := b.connect("late.test")
	b.post("/v1/email-users", `{"email":"early@late.test"}`).is(201).has("status", "pending")
	if is("early@late.test") {
		t.Error("made, and still suppressed")
	}
	suppress("early@late.test")
	b.post("/v1/domains/check-ns", `{"domains":["late.test"]}`).is(200)
	b.until("/v1/domains/"+late, "status", "complete")
	b.until("/v1/email-users?domain=late.test", "data.0.status", "active")
	if is("early@late.test") {
		t.Error("active, and still suppressed")
	}
}

// TestWhatAnEventSaysOfAMessage: whom it was written to, what it answers, and no more of long lists
// than their bounds; the inbox exists already.
func TestWhatAnEventSaysOfAMessage(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	sent := b.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"far@far.test","subject":"s","text":"t"}`).is(200).text("message_id")
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",\n ")
	}
	arrive := func(to, header string) *reply {
		t.Helper()
		if err := b.Arrive(t, "far@far.test", to, "From: far@far.test\n"+header+"Subject: s\n\nx\n"); err != nil {
			t.Fatal(err)
		}
		return b.get("/v1/events?type=email.received&limit=1").is(200)
	}
	e := arrive("Ann+Shop@boxes.test", "To: "+many(50, "a%02d@far.test")+"\nIn-Reply-To: "+sent+"\n")
	e.has("data.0.data.recipient", "ann+shop@boxes.test", "data.0.data.mailbox", "ann@boxes.test", "data.0.data.original_message_id", sent, "data.0.data.to_count", "50", "data.0.data.cc_count", "0", "data.0.data.references_count", "0")
	if n := len(e.items("data.0.data.to")); n != 50 {
		t.Errorf("%d of 50 in to", n)
	}
	b.get("/v1/inbox").has("data.0.recipient", e.text("data.0.data.recipient"), "data.0.mailbox", "ann@boxes.test", "data.0.original_message_id", sent)
	refs := strings.ReplaceAll(many(21, "<r%02d@far.test>"), ",", "")
	e = arrive("ann@boxes.test", "To: "+many(51, "a%02d@far.test")+"\nCc: "+many(51, "c%02d@far.test")+"\nReferences: "+refs+"\n")
	e.has("data.0.data.to_count", "51", "data.0.data.cc_count", "51", "data.0.data.references_count", "21", "data.0.data.original_message_id", "<nil>",
		"data.0.data.references.0", "<r00@far.test>", "data.0.data.references.1", "<r02@far.test>", "data.0.data.references.19", "<r20@far.test>", "data.0.data.to.49", "a49@far.test")
	for field, want := range map[string]int{"to": 50, "cc": 50, "references": 20} {
		if n := len(e.items("data.0.data." + field)); n != want {
			t.Errorf("%d in %s, want %d", n, field, want)
		}
	}
}

// items is the list at a path.
func (r *reply) items(path string) []any {
	r.t.Helper()
	v, _ := r.at(path)
	list, ok := v.([]any)
	if !ok {
		r.t.Fatalf("%s is no list in %.500s", path, r.raw)
	}
	return list
}

// TestInboxOfADomain: the filter takes a name or an id, combines with the others, and passes pages
// on.
func TestInboxOfADomain(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	second := b.Domain(t, b.Owner.AccountID, "second.test", "builtin", "complete").ID
	cleo := b.post("/v1/email-users", `{"email":"cleo@second.test"}`).is(201).text("id")
	for n := range 12 {
		to := map[bool]string{true: "cleo@second.test", false: "ann@boxes.test"}[n%4 == 0]
		b.Put(t, to, fmt.Sprintf("From: fred@far.test\nSubject: m%d\n\nThe body of %d\n", n, n), mail{Received: time.Date(2026, 11, 1+n, 0, 0, 0, 0, time.UTC)})
	}
	for _, indexed := range []bool{false, true} {
		if indexed {
			b.IndexMail(t)
		}
		for query, want := range map[string]string{
			"/v1/inbox?domain=Second.test":                                "[m8 m4 m0]",
			"/v1/inbox?domain=" + second + "&date_from=2026-11-05":        "[m8 m4]",
			"/v1/inbox?filter[domain]=second.test&q=body":                 "[m8 m4 m0]",
			"/v1/inbox?domain=boxes.test&q=body+8":                        "[]",
			"/v1/inbox?domain=boxes.test&from=fred":                       "[m11 m10 m9 m7 m6 m5 m3 m2 m1]",
			"/v1/inbox?domain=second.test&mailbox=ann@boxes.test":         "[]",
			"/v1/inbox?domain=second.test&mailbox=cleo@second.test":       "[m8 m4 m0]",
			"/v1/inbox?domain=nowhere.test":                               "[]",
			"/v1/inbox?domain=no%20name&q=body":                           "[]",
			"/v1/email-users/" + cleo + "/inbox?domain=second.test":       "[m8 m4 m0]",
			"/v1/email-users/" + ann + "/inbox?domain=second.test":        "[]",
			"/v1/email-users/" + ann + "/inbox?domain=second.test&q=body": "[]",
		} {
			if got := fmt.Sprint(b.get(query).is(200).list("data", "subject")); got != want {
				t.Errorf("indexed %v: %s: %s, want %s", indexed, query, got, want)
			}
		}
		for _, q := range []string{"", "&q=body"} {
			var got []string
			for cursor := ""; ; {
				r := b.get("/v1/inbox?limit=1&domain=second.test" + q + cursor).is(200)
				got = append(got, r.list("data", "subject")...)
				if r.text("pagination.has_more") != "true" {
					break
				}
				cursor = "&cursor=" + r.text("pagination.cursor")
				b.get("/v1/inbox?limit=1&domain=boxes.test"+q+cursor).fails(400, "invalid_cursor")
			}
			if fmt.Sprint(got) != "[m8 m4 m0]" {
				t.Errorf("pages of %q: %v", q, got)
			}
		}
	}
	other := b.with(b.Account(t, "other@example.test").Token)
	other.get("/v1/inbox?domain="+second).is(200).has("pagination.count", "0")
}
