package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// soon is the time in so many hours.
func soon(hours int) string {
	return time.Now().Add(time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
}

// rowsAfter returns the rows of the audit log that are newer than one of an id, newest first, and
// the id of the newest.
func (b *sandbox) rowsAfter(last string) (r *reply, n int, newest string) {
	b.t.Helper()
	r = b.get("/v1/audit").is(200)
	ids := r.list("data", "id")
	n = slices.Index(ids, last)
	if n < 0 {
		n = len(ids)
	}
	if len(ids) > 0 {
		last = ids[0]
	}
	return r, n, last
}

// TestEveryChangeHasOneAuditRow goes through the table of operations: each that changes something
// or shows a secret has exactly one row when it takes effect, and none when it fails. What it was
// given is nowhere in the log.
func TestEveryChangeHasOneAuditRow(t *testing.T) {
	b, world := newWorld(t, servicetest.NewEdge("atedge.test").With(func(c *core.Config) { c.Outbound, c.Scanner = "direct", servicetest.NoServers{} }))
	ids := map[string]string{"builtin": b.complete("builtin.test"), "ann": b.box("ann")}
	ids["manual"] = b.post("/v1/domains/connect", `{"domains":["manual.test"],"manual_dns":true}`).is(200).text("domains.0.domain_id")
	b.until("/v1/domains/"+ids["manual"], "status", "pending_dns_records")
	r := b.get("/v1/domains/" + ids["manual"] + "/dns-records").is(200)
	for i, purpose := range r.list("records", "purpose") {
		at := fmt.Sprintf("records.%d.", i)
		value := r.text(at + "value")
		if purpose == "MX" {
			value = r.text(at+"priority") + " " + value
		}
		world.Tell(r.text(at+"type"), strings.TrimPrefix(r.text(at+"host")+".manual.test", "@."), value)
	}
	for range 4 {
		b.Put(t, "ann@boxes.test", "From: far@far.test\nTo: ann@boxes.test\nSubject: not in the log\n\nhello\n", mail{})
	}
	world.Set(func() { world.Dead = "records" })
	b.post("/v1/email-users/"+ids["ann"]+"/inbox/send", `{"to":"far@far.test","subject":"not in the log","text":"t"}`).is(200)
	ids["sent"] = b.until("/v1/messages", "data.0.status", "deferred").text("data.0.id")
	world.Set(func() { world.Dead = "" })
	ids["scheduled"] = b.post("/v1/email-users/"+ids["ann"]+"/inbox/send", `{"to":"later@far.test","subject":"s","text":"t","send_at":"`+soon(24)+`"}`).is(200).text("recipients.0.id")
	ids["next_day"] = soon(48)
	ids["held0"], ids["held1"] = b.hold(ids["ann"], 1), b.hold(ids["ann"], 1)
	ids["hash0"] = b.get("/v1/approvals/" + ids["held0"]).is(200).text("content_hash")
	web := b.browser().signIn()

	_, _, last := b.rowsAfter("")
	covered := map[string]bool{}
	for _, c := range changes {
		covered[c.method+" "+c.operation] = true
		ask, actor := b.do, []string{"data.0.via", "api", "data.0.actor.type", "token", "data.0.actor.name", "first token"}
		if slices.ContainsFunc(b.server.ops, func(o api.Operation) bool { return o.Name == c.operation && (o.Person || o.OperatorNow) }) {
			ask, actor = web.ask, []string{"data.0.via", "dashboard", "data.0.actor.type", "user", "data.0.actor.name", "owner@example.test"}
		}
		answer := ask(c.method, expand(c.path, ids), expand(c.body, ids))
		if answer.status < 200 || answer.status > 299 {
			t.Fatalf("%s: %d %s", c.operation, answer.status, answer.raw)
		}
		for _, at := range []string{"id", "record.id", "event_id", "account_id"} {
			if id := answer.text(at); id != "" {
				ids[c.operation] = id
			}
		}
		if c.operation == "import_zone" {
			ids["change"] = b.get("/v1/domains/" + ids["builtin"] + "/zone/history").is(200).text("data.0.id")
		}
		rows, n, newest := b.rowsAfter(last)
		if n != 1 {
			t.Errorf("%s has %d rows: %s", c.operation, n, rows.raw)
			continue
		}
		last = newest
		count := counts[c.operation]
		if count == "" {
			count = "1"
		}
		rows.has("data.0.action", c.operation, "data.0.ip", "127.0.0.1", "data.0.count", count, "data.0.request_id", answer.header.Get("X-Request-Id")).has(actor...)
		if got := rows.text("data.0.target.type") + " " + rows.text("data.0.target.name"); got != c.target || rows.text("data.0.target.id") == "" {
			t.Errorf("%s: the target is %q, %s", c.operation, got, rows.text("data.0.target.id"))
		}
		fields, _ := rows.at("data.0.fields")
		if got := strings.Trim(fmt.Sprint(fields), "[]"); got != c.fields {
			t.Errorf("%s: the fields are %q, want %q", c.operation, got, c.fields)
		}
	}
	for _, o := range b.server.ops {
		if changing := o.Method != http.MethodGet || o.Name == "get_webhook_secret"; changing && !slices.Contains(notAudited, o.Name) && !covered[o.Method+" "+o.Name] {
			t.Errorf("%s is neither among the changes nor among those that are not audited", o.Name)
		}
	}

	// What changes nothing again, and what is not audited.
	for _, again := range [][3]string{
		{"DELETE", "/v1/domains/{builtin}", ""}, {"POST", "/v1/email-users/bulk-delete", `{"emails":["eve@boxes.test"]}`},
		{"POST", "/v1/domains/connect", `{"domains":["more.test"]}`}, {"POST", "/v1/account/universal-inbox", `{"enabled":true}`},
		{"DELETE", "/v1/domains/{manual}/redirect", ""},
		{"POST", "/v1/inbox/refresh", ""}, {"POST", "/v1/email-users/{ann}/inbox/send", `{"to":"ann@boxes.test","subject":"s","text":"t"}`},
	} {
		if r := b.do(again[0], expand(again[1], ids), expand(again[2], ids)); r.status > 299 && r.status != 404 { // the domain may be gone
			t.Errorf("%v: %d %s", again, r.status, r.raw)
		}
	}
	if rows, n, _ := b.rowsAfter(last); n != 0 {
		t.Errorf("%d rows of what changed nothing: %s", n, rows.raw)
	}
	parameters := regexp.MustCompile(`\{\w+\}`)
	b.Inbox.EndWaiting() // who waits gets the answer at once
	for _, o := range b.server.ops {
		r := b.do(o.Method, parameters.ReplaceAllString(o.Path, "none"), nil)
		rows, n, newest := b.rowsAfter(last)
		if r.status >= http.StatusBadRequest && n != 0 {
			t.Errorf("%s failed with %d, and has a row: %s", o.Name, r.status, rows.raw)
		}
		last = newest
	}
	for cursor := "?limit=100"; cursor != ""; {
		page := b.get("/v1/audit" + cursor).is(200)
		for _, word := range []string{"not in the log", "not-in-the-log", "mst_", "whsec_"} {
			if strings.Contains(string(page.raw), word) {
				t.Errorf("%q is in the log: %s", word, page.raw)
			}
		}
		cursor = page.text("pagination.cursor")
		if cursor == "<nil>" {
			break
		}
		cursor = "?limit=100&cursor=" + cursor
	}
}

// TestAuditSaysWhoAndHow: a person, an assistant and the operator, each in the account concerned,
// and the operator in the first account too.
func TestAuditSaysWhoAndHow(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	web.ask("PATCH", "/v1/account", `{"name":"Ours"}`).is(200)
	web.ask("PATCH", "/session/profile", `{"password":"another horse","current_password":"correct horse"}`).is(200)
	b.assistant(b.Owner.Token).call("create_suppression", map[string]any{"email": "no@far.test"})
	rows := b.get("/v1/audit").is(200)
	rows.has("data.0.action", "create_suppression", "data.0.via", "mcp", "data.0.actor.type", "token",
		"data.1.action", "update_profile", "data.1.via", "dashboard", "data.1.actor.type", "user", "data.1.actor.name", "owner@example.test", "data.1.fields", "[password]",
		"data.2.action", "update_account", "data.2.via", "dashboard", "data.2.actor.id", b.Owner.UserID,
		"data.3.action", "login", "data.3.via", "dashboard", "data.3.ip", "127.0.0.1", "data.3.target.name", "owner@example.test")

	other := b.Account(t, "other@example.test")
	r := httptest.NewRequest("POST", "/v1/suppressions", strings.NewReader(`{"email":"not@far.test"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Mailstead-Account", other.AccountID)
	if resp := Do(b.server.Local(), r); resp.StatusCode != 201 {
		t.Fatalf("by the operator: %d", resp.StatusCode)
	}
	if _, err := b.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: other.AccountID, Status: "suspended"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: other.AccountID, Status: "active"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{b.client, b.with(other.Token)} {
		c.get("/v1/audit").is(200).has("data.0.action", "account resume", "data.1.action", "account suspend", "data.1.target.id", other.AccountID,
			"data.2.action", "create_suppression", "data.2.via", "command", "data.2.ip", "<nil>", "data.2.actor.type", "operator", "data.2.actor.id", "<nil>")
	}
	b.with(other.Token).get("/v1/audit").has("pagination.count", "4", "data.3.action", "account create")
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).get("/v1/audit").fails(403, "forbidden_role")
}

// TestAuditFilters: each filter, alone and with a cursor, and both bounds in time.
func TestAuditFilters(t *testing.T) {
	b := newSandbox(t, nil)
	for _, email := range []string{"a@far.test", "b@far.test", "c@far.test"} {
		b.post("/v1/suppressions", map[string]string{"email": email}).is(201)
	}
	b.remove("/v1/suppressions/a@far.test").is(200)
	b.browser().signIn()
	all := b.get("/v1/audit").is(200)
	from, to := all.text("data.4.created_at"), all.text("data.1.created_at")
	token := all.text("data.1.actor.id")
	for query, want := range map[string]string{
		"action=create_suppression": "3", "filter[action]=login": "1", "action=none": "0", "target=a@far.test": "2", "target=suppression&action=delete_suppression": "1",
		"actor=" + token: "4", "actor=user": "1", "actor=owner@example.test": "1", "actor=first": "0", "created_before=2020-01-01": "0", "created_after=2020-01-01": "6",
	} {
		if got := b.get("/v1/audit?" + query).is(200).text("pagination.count"); got != want {
			t.Errorf("%s: %s rows, want %s", query, got, want)
		}
	}
	for _, row := range b.get("/v1/audit?created_after="+from+"&created_before="+to).is(200).list("data", "created_at") {
		if row <= from || row >= to {
			t.Errorf("%s is not between %s and %s", row, from, to)
		}
	}
	page := b.get("/v1/audit?action=create_suppression&limit=2").is(200).has("pagination.count", "2")
	next := "&cursor=" + page.text("pagination.cursor")
	b.get("/v1/audit?action=create_suppression&limit=2"+next).is(200).has("pagination.count", "1", "data.0.target.name", "a@far.test")
	b.get("/v1/audit?action=login"+next).fails(400, "invalid_cursor")
	other := b.Account(t, "other@example.test")
	b.with(other.Token).get("/v1/audit?action=create_suppression").is(200).has("pagination.count", "0")
	b.with(other.Token).get("/v1/audit?action=create_suppression"+next).fails(400, "invalid_cursor")
	b.get("/v1/audit?created_after=yesterday").fails(400, "validation_error")
}
