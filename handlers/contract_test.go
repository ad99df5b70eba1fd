package handlers

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestAnswersHaveTheContractsFields sends a request to every operation and finds fields that are
// missing, extra, or null where the contract has no null.
func TestAnswersHaveTheContractsFields(t *testing.T) {
	b, ids := newContractWorld(t)
	for _, a := range answers {
		r := b.do(a.method, expand(a.path, ids), expand(a.body, ids))
		if r.status != a.status {
			t.Errorf("%s %s: status %d, want %d: %.300s", a.method, a.path, r.status, a.status, r.raw)
			continue
		}
		for _, problem := range compare("", r.json, parseShape(a.shape)) {
			t.Errorf("%s %s: %s", a.method, a.path, problem)
		}
		switch id := r.text("id"); {
		case a.method == "POST" && a.path == "/v1/webhooks":
			ids["hook"] = id
		case strings.HasSuffix(a.path, "{hook}/test"):
			ids["ping"] = r.text("event_id")
			b.until("/v1/webhooks/"+ids["hook"]+"/deliveries", "pagination.count", "1")
		case strings.HasSuffix(a.path, "/zone/history"):
			ids["change"] = r.text("data.0.id")
		case a.path == "/v1/messages":
			ids["sent"] = r.text("data.0.id")
		case strings.HasSuffix(a.path, "/held"):
			ids["held"] = b.hold(ids["ann"], 1)
		case strings.HasSuffix(a.path, "/send"):
			b.until("/v1/email-users/"+ids["ann"]+"/inbox", "pagination.count", "4")
		case strings.HasPrefix(id, "dnsc_"):
			ids["dns_credential"] = id
		case strings.HasPrefix(id, "job_"):
			ids["job"] = id
		case a.path == "/v1/email-users/{ben}":
			b.until("/v1/jobs/"+r.text("job_id"), "status", "completed")
		}
	}
}

// newContractWorld makes something of everything that the answers are about.
func newContractWorld(t *testing.T) (*sandbox, map[string]string) {
	b, world := newWorld(t, servicetest.NewEdge("atedge.test").With(nil))
	ids := map[string]string{"hosted": b.domain, "builtin": b.complete("builtin.test"), "ann": b.box("ann"), "ben": b.box("ben"), "cat": b.box("cat")}
	if err := b.Arrive(t, "a@far.test", "cat@boxes.test", strings.ReplaceAll(waitedFor, "%", "s")); err != nil {
		t.Fatal(err)
	}
	ids["spare"] = b.post("/v1/auth/tokens", nil).is(201).text("id")
	ids["edge"] = b.post("/v1/domains/connect", `{"domains":["atedge.test"],"edge_api_token":"edge-token"}`).is(200).text("domains.0.domain_id")
	b.until("/v1/domains/"+ids["edge"], "status", "complete")
	ids["manual"] = b.post("/v1/domains/connect", `{"domains":["manual.test"],"manual_dns":true}`).is(200).text("domains.0.domain_id")
	b.until("/v1/domains/"+ids["manual"], "status", "pending_dns_records")
	world.Tell("MX", "builtin.test", "10 elsewhere.test")
	for range 2 {
		b.get("/v1/domains/"+ids["builtin"]+"/dns-status?refresh=true").is(200).has("records.1.error", "mismatch")
	}
	for range 3 {
		b.Put(t, "ann@boxes.test", "From: Far <far@far.test>\nTo: ann@boxes.test\nContent-Type: multipart/mixed; boundary=b\n\n"+
			"--b\n\nhello\n--b\nContent-Disposition: attachment; filename=a.txt\n\nfile\n--b--\n", mail{})
	}
	b.Map(t, b.Owner.AccountID, "<one@boxes.test>", "<two@far.test>")
	for _, name := range []string{"ben", "ann"} {
		ids["rule"] = b.post("/v1/email-users/"+ids[name]+"/rules", `{"name":"Tell","actions":[{"type":"webhook","value":"arrived"}]}`).is(201).text("id")
	}
	b.patch("/v1/domains/"+ids["builtin"], `{"catch_all":"ben@boxes.test"}`).is(200)
	for _, file := range []string{servicetest.DMARCFile, servicetest.TLSFile} {
		for _, id := range []string{"one", "two"} {
			if err := b.Arrive(t, "", "postmaster@builtin.test", servicetest.ReportMail("noreply@far.test", file, "builtin.test", id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.ReportsRead(t)
	b.patch("/v1/domains/"+ids["builtin"], `{"catch_all":null}`).is(200)
	return b, ids
}

// hold has messages of a mailbox wait for approval, and gives the approval of the last one.
func (b *sandbox) hold(userID string, messages int) (id string) {
	agent := b.with(b.post("/v1/auth/tokens", `{"name":"agent","policy":{"send":"approval"}}`).is(201).text("token"))
	for range messages {
		id = agent.post("/v1/email-users/"+userID+"/inbox/send", `{"to":"held@far.test","subject":"not in the log","text":"t"}`).is(200).text("approval_id")
	}
	return id
}

func expand(text string, ids map[string]string) string {
	for name, id := range ids {
		text = strings.ReplaceAll(text, "{"+name+"}", id)
	}
	return text
}

// A shape is one field as the contract writes it.
type shape struct {
	name                 string
	optional, null, list bool
	values               []string
	fields               []shape
}

// parseShape reads fields that spaces or commas part, outside brackets.
func parseShape(text string) (out []shape) {
	depth, start := 0, 0
	for i, r := range text + " " {
		switch {
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth--
		case depth == 0 && strings.ContainsRune(", \n\t", r):
			if i > start {
				out = append(out, parseField(text[start:i]))
			}
			start = i + 1
		}
	}
	return out
}

func parseField(text string) shape {
	text, null := strings.CutSuffix(text, "|null")
	end := strings.IndexAny(text+"(", "?([{")
	s := shape{name: text[:end], null: null}
	rest := text[end:]
	rest, s.optional = strings.CutPrefix(rest, "?")
	s.list = strings.HasPrefix(rest, "[")
	if open := strings.IndexByte(rest, '{'); open >= 0 {
		s.fields = parseShape(rest[open+1 : strings.LastIndexByte(rest, '}')])
	} else if open := strings.IndexByte(rest, '('); open >= 0 {
		s.values = strings.Split(rest[open+1:strings.LastIndexByte(rest, ')')], "|")
		s.null = s.null || slices.Contains(s.values, "null")
	}
	return s
}

// compare says how a value differs from the fields of an object.
func compare(at string, v any, fields []shape) (problems []string) {
	object, ok := v.(map[string]any)
	if !ok {
		return []string{at + " is no object"}
	}
	unknown := maps.Clone(object)
	for _, f := range fields {
		delete(unknown, f.name)
		here := strings.TrimPrefix(at+"."+f.name, ".")
		switch value, there := object[f.name]; {
		case !there && !f.optional:
			problems = append(problems, here+" is missing")
		case there && value == nil && !f.null:
			problems = append(problems, here+" is null")
		case value != nil:
			problems = append(problems, f.compare(here, value)...)
		}
	}
	for name := range unknown {
		problems = append(problems, strings.TrimPrefix(at+"."+name, ".")+" is extra")
	}
	return problems
}

var wireTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

func (f shape) compare(at string, value any) (problems []string) {
	items, isList := value.([]any)
	if isList != f.list {
		return []string{at + " is a list, or ought to be one"}
	}
	if !isList {
		items = []any{value}
	}
	if len(items) == 0 && f.fields != nil && f.name == "data" {
		return []string{at + " is empty, so that nothing is compared"}
	}
	for _, item := range items {
		switch {
		case f.fields != nil:
			problems = append(problems, compare(at, item, f.fields)...)
		case f.values != nil && !slices.Contains(f.values, fmt.Sprint(item)):
			problems = append(problems, fmt.Sprintf("%s is %v, none of %v", at, item, f.values))
		case (strings.HasSuffix(f.name, "_at") || f.name == "as_of" || f.name == "created") && !isNumber(item) && !wireTime.MatchString(fmt.Sprint(item)):
			problems = append(problems, fmt.Sprintf("%s is %v, no time", at, item))
		}
	}
	return problems
}

func isNumber(v any) bool { _, ok := v.(float64); return ok }

// holds are the scopes that a token's one permission gives.
var holds = map[string]string{"read": "read", "write": "read write", "purchase": "read write purchase", "admin": "read write purchase admin"}

// TestWhoMayDoWhat sends every operation of the table, about things that there are not, with every
// sort of token of every role.
func TestWhoMayDoWhat(t *testing.T) {
	b := newSandbox(t, nil)
	dead := b.Account(t, "expired@example.test").AccountID
	tokens := map[string]string{}
	for _, role := range api.Everyone {
		for scope := range holds {
			tokens[role+" "+scope] = b.Token(t, b.Owner.AccountID, role, scope)
		}
		revoked := b.Token(t, b.Owner.AccountID, role, "write")
		id := b.with(revoked).get("/v1/account").is(200).text("api_token.id")
		b.with(revoked).remove("/v1/auth/tokens/" + id).is(200)
		tokens[role+" revoked"], tokens[role+" expired"] = revoked, b.Token(t, dead, role, "admin")
	}
	b.ExpireTokens(t, dead)
	b.Inbox.EndWaiting() // those who may wait get their answer at once
	for i, o := range b.server.ops {
		if i%50 == 49 {
			b.pass(time.Minute) // in which so many bad tokens are too many
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(o.Path, "none")
		b.with("").do(o.Method, path, nil).fails(401, "unauthorized")
		b.with("mst_none").do(o.Method, path, nil).fails(401, "unauthorized")
		found := false
		for _, row := range permitted {
			if slices.Contains(strings.Fields(row.operations), o.Name) {
				found = true
				for who, token := range tokens {
					mayDo(t, b.with(token).do(o.Method, path, nil), o, who, row.scope, row.roles)
				}
			}
		}
		if !found && !slices.Contains(ownRules, o.Name) {
			t.Errorf("%s is in none of the contract's matrices", o.Name)
		}
	}
}

// mayDo checks an answer to a token of who: a role and a permission, or what is wrong with it.
// Scope comes before role.
func mayDo(t *testing.T, r *reply, o api.Operation, who, scope, roles string) {
	t.Helper()
	role, kind, _ := strings.Cut(who, " ")
	status, code := 0, ""
	switch {
	case kind == "revoked" || kind == "expired":
		status, code = http.StatusUnauthorized, "token_"+kind
	case !slices.Contains(strings.Fields(holds[kind]), scope):
		status, code = http.StatusForbidden, "insufficient_scope"
	case !slices.Contains(strings.Fields(roles), role):
		status, code = http.StatusForbidden, "forbidden_role"
	case o.Person || o.OperatorNow: // no token is one
		status, code = http.StatusForbidden, "person_required"
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || r.status >= 500:
		t.Errorf("%s by %s: %d %s, though the contract allows it", o.Name, who, r.status, r.raw)
	}
	if status != 0 && (r.status != status || r.text("error.code") != code) {
		t.Errorf("%s by %s: %d %s, want %d %s", o.Name, who, r.status, r.text("error.code"), status, code)
	}
	if limited := r.header.Get("X-RateLimit-Limit") != ""; limited != (status != http.StatusUnauthorized) || r.header.Get("X-Request-Id") == "" {
		t.Errorf("%s by %s: %d with the headers %v", o.Name, who, r.status, r.header)
	}
}

// TestPagesOfLongLists walks every long list by ones, and shows its cursors to lists that they are
// not of.
func TestPagesOfLongLists(t *testing.T) {
	b, ids := newContractWorld(t)
	ids["hook"] = b.post("/v1/webhooks", `{"url":"https://127.0.0.1:1/h","events":["domain.ready"]}`).is(201).text("id")
	for range 2 {
		b.post("/v1/webhooks/"+ids["hook"]+"/test", nil).is(200)
		b.post("/v1/email-users/"+ids["ann"]+"/inbox/send", `{"to":"far@far.test","subject":"s","text":"t"}`).is(200)
	}
	b.until("/v1/webhooks/"+ids["hook"]+"/deliveries", "pagination.count", "2")
	b.post("/v1/suppressions", `{"email":"a@far.test"}`).is(201)
	b.post("/v1/suppressions", `{"email":"b@far.test"}`).is(201)
	b.hold(ids["ann"], 2)
	for _, name := range []string{"a", "b"} {
		b.do("PUT", "/v1/domains/"+ids["builtin"]+"/zone/"+name+"/A", `{"values":["192.0.2.1"]}`).is(200)
	}
	other := b.with(b.Account(t, "other@example.test").Token)
	foreign := ""
	for _, l := range longLists {
		path := expand(l.path, ids)
		whole := b.get(path).is(200).has("pagination.limit", l.byDefault, "pagination.has_more", "false", "pagination.cursor", "<nil>")
		for _, clamped := range []string{l.most, "201", "99999999999999999999"} {
			b.get(path+"?limit="+clamped).is(200).has("pagination.limit", l.most)
		}
		for _, limit := range []string{"0", "-1", "x", "", "1.0", "1e1", "%201"} {
			b.get(path+"?limit="+limit).fails(400, "validation_error").has("error.details.0.field", "limit")
		}
		for _, cursor := range []string{"x", "%00", "%ff", "AAAA", strings.Repeat("A", 5000), foreign} {
			if cursor != "" {
				b.get(path+"?cursor="+cursor).fails(400, "invalid_cursor")
			}
		}
		first := b.get(path + "?limit=1").is(200)
		next := first.text("pagination.cursor")
		bent := "A" + next[1:]
		if bent == next {
			bent = "B" + next[1:]
		}
		b.get(path+"?limit=1&cursor="+bent).fails(400, "invalid_cursor")
		if !strings.Contains(path, "_") && path != "/v1/accounts" { // of things that the other account has too
			other.get(path+"?cursor="+next).fails(400, "invalid_cursor")
		}
		field := "id"
		switch l.path {
		case "/v1/suppressions":
			field = "email"
		case "/v1/approvals":
			field = "approval_id"
		case "/v1/accounts":
			field = "account_id"
		}
		walked := first.list("data", field)
		for next != "<nil>" {
			page := b.get(path+"?limit=1&cursor="+next).is(200).has("pagination.count", "1")
			walked, next = append(walked, page.list("data", field)...), page.text("pagination.cursor")
		}
		if want := whole.list("data", field); len(want) < 2 || !slices.Equal(walked, want) {
			t.Errorf("%s by ones %q, at once %q", l.path, walked, want)
		}
		foreign = first.text("pagination.cursor")
	}
}
