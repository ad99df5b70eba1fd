package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/requests"
)

// TestEveryRequestHasARow: requests by token, session and tool, that succeed and that fail, are in
// the log, under an id of the server's own.
func TestEveryRequestHasARow(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	owner := b.get("/v1/requests").is(200)
	owner.has("data.0.operation", "create_email_user", "data.0.status", "201", "data.0.method", "POST", "data.0.path", "/v1/email-users", "data.0.client_request_id", "<nil>",
		"data.0.ip", "127.0.0.1", "data.0.token.name", "first token", "data.0.error_code", "<nil>")

	// An id of the client is not the row's.
	for range 2 {
		b.do("GET", "/v1/email-users/"+ann+"?q=not-in-the-log", nil, "X-Request-Id", "mine").is(200)
	}
	b.do("GET", "/v1/domains/none", nil, "X-Request-Id", "mine").fails(404, "not_found")
	mine := b.get("/v1/requests?request_id=mine").is(200).has("pagination.count", "3", "data.0.error_code", "not_found", "data.1.path", "/v1/email-users/"+ann, "data.1.client_request_id", "mine")
	ids := mine.list("data", "request_id")
	if !regexp.MustCompile(`^\[req_\w{26} req_\w{26} req_\w{26}\]$`).MatchString(fmt.Sprint(ids)) || ids[0] == ids[1] || strings.Contains(string(mine.raw), "not-in-the-log") {
		t.Errorf("%s", mine.raw)
	}
	b.get("/v1/requests?request_id="+ids[2]).is(200).has("pagination.count", "1")
	b.get("/v1/requests/"+ids[0]).is(200).has("operation", "get_domain", "status", "404", "answer.error.code", "not_found", "answer.error.request_id", "mine", "body", "<nil>")
	b.get("/v1/requests/mine").fails(404, "not_found")

	// What audit rows say is the same id.
	b.do("PATCH", "/v1/account", `{"name":"Ours"}`, "X-Request-Id", "change-1").is(200)
	id := b.get("/v1/requests?operation=update_account").is(200).text("data.0.request_id")
	b.get("/v1/audit").has("data.0.action", "update_account", "data.0.request_id", id)

	// The dashboard has no token, and a tool has the name of its operation.
	web := b.browser().signIn()
	web.ask("GET", "/v1/webhooks", nil).is(200)
	b.get("/v1/requests?operation=list_webhooks").is(200).has("pagination.count", "1", "data.0.token", "<nil>")
	a := b.assistant(b.token)
	a.call("get_email_user", map[string]any{"user_id": ann})
	a.call("get_email_user", map[string]any{"user_id": "none"})
	a.call("get_email_user", map[string]any{})
	tools := b.get("/v1/requests?operation=get_email_user&limit=3").is(200)
	tools.has("data.0.status", "400", "data.0.path", "/v1/email-users/{user_id}", "data.1.status", "404", "data.1.path", "/v1/email-users/none",
		"data.2.status", "200", "data.2.path", "/v1/email-users/"+ann, "data.2.request_id", b.get("/v1/requests?operation=get_email_user&status=200").text("data.0.request_id"))
	a.call("delete_domain", map[string]any{"domain_id": b.domain}).is(200)
	b.get("/v1/requests?operation=delete_domain").is(200).has("pagination.count", "0") // it was only described

	// Requests of the operator, of nobody, and those of no operation have no row.
	count := b.get("/v1/requests?limit=100").is(200).text("pagination.count")
	w := httptest.NewRecorder()
	b.server.Local().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/account", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	b.with("mst_bad").get("/v1/account").fails(401, "unauthorized")
	b.get("/v1/nothing").is(404)
	web.ask("GET", "/session", nil).is(200)
	if got := b.get("/v1/requests?limit=100").is(200).text("pagination.count"); got != fmt.Sprint(atoi(count)+1) { // the listing before
		t.Errorf("%s rows, and then %s", count, got)
	}
}

func atoi(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

// TestRequestsAreForThoseWhoMayReadThem: only owner and admins, an admin without the owner's, and
// nobody of another account.
func TestRequestsAreForThoseWhoMayReadThem(t *testing.T) {
	b := newSandbox(t, nil)
	admin := b.with(b.Token(t, b.Owner.AccountID, "admin", "admin"))
	b.get("/v1/account").is(200)
	admin.get("/v1/webhooks").is(200)
	owners := b.get("/v1/requests?operation=get_account").is(200).text("data.0.request_id")
	admins := b.get("/v1/requests?operation=list_webhooks").is(200).text("data.0.request_id")
	if owners == "" || admins == "" {
		t.Fatal("no rows")
	}
	admin.get("/v1/requests?operation=get_account").is(200).has("pagination.count", "0")
	admin.get("/v1/requests/"+owners).fails(404, "not_found")
	admin.get("/v1/requests/" + admins).is(200)
	admin.get("/v1/requests?token_id="+b.get("/v1/requests/"+owners).text("token.id")).is(200).has("pagination.count", "0")
	stranger := b.with(b.Account(t, "other@example.test").Token)
	stranger.get("/v1/requests").is(200).has("pagination.count", "0")
	stranger.get("/v1/requests/"+admins).fails(404, "not_found")
	stranger.get("/v1/requests?request_id="+admins).is(200).has("pagination.count", "0")
	cursor := b.get("/v1/requests?limit=1").is(200).text("pagination.cursor")
	stranger.get("/v1/requests?limit=1&cursor="+cursor).fails(400, "invalid_cursor")
	for _, c := range []struct{ role, scope, code string }{{"admin", "write", "insufficient_scope"}, {"member", "admin", "forbidden_role"}} {
		other := b.with(b.Token(t, b.Owner.AccountID, c.role, c.scope))
		other.get("/v1/requests").fails(403, c.code)
		other.get("/v1/requests/"+admins).fails(403, c.code)
	}
	agent := b.with(b.post("/v1/auth/tokens", `{"permissions":["admin"],"policy":{"taint":true}}`).is(201).text("token"))
	agent.get("/v1/requests").fails(403, "forbidden_role")
}

// TestPagesOfRequests have the size of other long lists.
func TestPagesOfRequests(t *testing.T) {
	b := newSandbox(t, nil)
	for range 120 {
		b.get("/v1/account").is(200)
	}
	b.get("/v1/requests").is(200).has("pagination.limit", "25", "pagination.count", "25", "pagination.has_more", "true")
	first := b.get("/v1/requests?operation=get_account&limit=1000").is(200).has("pagination.limit", "100", "pagination.count", "100", "pagination.has_more", "true")
	b.get("/v1/requests?operation=get_account&limit=100&cursor="+first.text("pagination.cursor")).is(200).has("pagination.count", "20", "pagination.has_more", "false", "pagination.cursor", "<nil>")
	for query, field := range map[string]string{"limit=0": "limit", "limit=x": "limit", "status=99": "status", "status=x": "status", "status_class=6": "status_class", "method=get": "method", "via=x": "via"} {
		b.get("/v1/requests?"+query).fails(400, "validation_error").has("error.details.0.field", field)
	}
	b.get("/v1/requests?cursor=AAAA").fails(400, "invalid_cursor")
}

// TestPeopleOfMailboxesHaveNoBody: their requests have a row, but neither body nor answer.
func TestPeopleOfMailboxesHaveNoBody(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	web := b.browser()
	web.ask("POST", "/session", `{"email":"ann@boxes.test","password":"correct horse"}`).is(200)
	web.ask("PATCH", "/v1/me", `{"forward_keep_copy":true}`).is(200)
	web.ask("PATCH", "/v1/me", `{"forward_keep_copy":"secret"}`).is(400)
	for i, status := range []string{"400", "200"} {
		id := b.get("/v1/requests?operation=update_me").is(200).has(fmt.Sprintf("data.%d.status", i), status).text(fmt.Sprintf("data.%d.request_id", i))
		b.get("/v1/requests/"+id).is(200).has("body", "<nil>", "answer", "<nil>")
	}
}

// TestSentMessagesNameTheirRequest, at once, by a batch and after an approval; those that came over
// SMTP name none.
func TestSentMessagesNameTheirRequest(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	requestOf := func(to string) string {
		t.Helper()
		return b.until("/v1/messages?recipient="+to, "pagination.count", "1").text("data.0.request_id")
	}
	b.do("POST", "/v1/email-users/"+ann+"/inbox/send", `{"to":"one@far.test","subject":"s","text":"t"}`, "X-Request-Id", "mine").is(200)
	id := b.get("/v1/requests?operation=send_email").text("data.0.request_id")
	row := b.get("/v1/messages?recipient=one@far.test").has("data.0.request_id", id)
	b.get("/v1/messages/"+row.text("data.0.id")).is(200).has("request_id", id)
	sent := b.post("/v1/email-users/"+ann+"/inbox/send-batch", `{"messages":[{"to":"two@far.test","subject":"s","text":"t"}]}`).is(202)
	if got := requestOf("two@far.test"); got != sent.header.Get("X-Request-Id") {
		t.Errorf("a batch has %s", got)
	}
	held := b.hold(ann, 1)
	asked := requestOf("held@far.test")
	b.browser().signIn().ask("POST", "/v1/approvals/"+held+"/approve", `{"content_hash":"`+b.get("/v1/approvals/"+held).text("content_hash")+`"}`).is(200)
	if got := requestOf("held@far.test"); got != asked || !strings.HasPrefix(got, "req_") {
		t.Errorf("before the approval %s, after it %s", asked, got)
	}
	b.patch("/v1/email-users/"+ann, `{"forward_to":"three@far.test"}`).is(200)
	if err := b.Arrive(t, "far@far.test", "ann@boxes.test", "From: far@far.test\nSubject: s\n\nhello\n"); err != nil {
		t.Fatal(err)
	}
	if got := requestOf("three@far.test"); got != "<nil>" {
		t.Errorf("a forward has %s", got)
	}
}

// goldenLoggable are all fields whose values the request log may show, by operation. What is added
// here must be neither a text of people, nor an address of others, nor a secret.
const goldenLoggable = "testdata/loggable.txt"

// TestLoggableFields compares the fields with the tag log with the list that somebody has read.
func TestLoggableFields(t *testing.T) {
	b := newSandbox(t, nil)
	var out strings.Builder
	seen := map[string]bool{}
	for _, o := range b.server.ops {
		list := namesOf(b.server.loggable()[o.Call.In], "")
		if len(list) > 0 && !seen[o.Name] {
			fmt.Fprintf(&out, "%s: %s\n", o.Name, strings.Join(list, " "))
		}
		seen[o.Name] = true
	}
	fmt.Fprintf(&out, "errors: %s\n", strings.Join(namesOf(loggableError(), ""), " "))
	if *update {
		if err := os.WriteFile(goldenLoggable, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenLoggable)
	if err != nil || out.String() != string(want) {
		t.Errorf("%v: the loggable fields are not those of %s; read the new ones, then run this test with -update:\n%s", err, goldenLoggable, &out)
	}
}

// namesOf returns the names of the fields that are shown of an object.
func namesOf(l *loggable, prefix string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(l.fields)) {
		switch f := l.fields[name]; {
		case f == nil:
		case f.fields != nil:
			out = append(out, namesOf(f, prefix+name+".")...)
		default:
			out = append(out, prefix+name)
		}
	}
	return out
}

// TestLogTagsAreShown: a tag at a field that cannot be shown would promise too much in the
// description.
func TestLogTagsAreShown(t *testing.T) {
	b := newSandbox(t, nil)
	for _, o := range b.server.ops {
		for _, f := range openapi.Fields(o.Call.In) {
			if f.Tag.Get("log") != "" && (openapi.JSONName(f.StructField) == "" || loggableField(f.StructField) == nil || loggableField(f.StructField).fields != nil) {
				t.Errorf("%s: the field %s has the tag log, but is not shown", o.Name, f.Name)
			}
		}
	}
}

// secretMark stands in every value that the request log must not have.
const secretMark = "MarkZq"

// TestNoSecretIsInTheRequestLog sends every operation bodies with marked values in all fields that
// are not loggable, in unknown fields, in wrong places and in wrong types, and looks for the mark
// in the files of the log.
func TestNoSecretIsInTheRequestLog(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Scanner = nil })
	ann := b.box("ann")
	hole := regexp.MustCompile(`\{\w+\}`)
	b.Inbox.EndWaiting()
	sent := 0
	for i := range b.server.ops {
		o := &b.server.ops[i]
		path := hole.ReplaceAllString(strings.Replace(o.Path, "{user_id}", ann, 1), "none")
		if o.Method == http.MethodGet {
			b.do(o.Method, path+"?q="+secretMark+"&"+secretMark+"="+secretMark, nil)
			continue
		}
		plan := b.server.loggable()[o.Call.In]
		for _, body := range []any{
			markedObject(o.Call.In, plan, false), markedObject(o.Call.In, plan, true), map[string]any{"unknown": map[string]any{"x": secretMark}},
			`{"name":"` + secretMark + `"`, secretMark, `["` + secretMark + `"]`, `{"a":"` + secretMark + `","a":1}`, "",
		} {
			b.do(o.Method, path, body)
			sent++
		}
		b.do(o.Method, path, secretMark, "Content-Type", "text/plain")
		b.do(o.Method, path, secretMark, "Content-Type", "text/csv")
	}
	b.get("/v1/requests").is(200) // writes what waits
	rows := 0
	err := filepath.WalkDir(filepath.Join(b.Core.Store.Dir(), "requests"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if at := bytes.Index(content, []byte(secretMark)); at >= 0 {
			t.Errorf("%q is in the log: %q", secretMark, content[max(at-300, 0):min(at+50, len(content))])
		}
		rows += bytes.Count(content, []byte("req_"))
		return err
	})
	if err != nil || rows < sent {
		t.Errorf("%d requests have left %d ids in the log, %v", sent, rows, err)
	}
}

// markedObject returns a body with a value in every field of a struct: marked ones in the fields
// that are not loggable. If wrong is true, loggable fields get marked values too, of a type that
// they do not have.
func markedObject(t reflect.Type, plan *loggable, wrong bool) map[string]any {
	out := map[string]any{}
	for _, f := range openapi.Fields(t) {
		name := openapi.JSONName(f.StructField)
		if name == "" {
			continue
		}
		out[name] = markedValue(f.Type, plan.field(name), wrong)
	}
	return out
}

func markedValue(t reflect.Type, plan *loggable, wrong bool) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if o, ok := reflect.New(t).Interface().(nullable); ok {
		return markedValue(reflect.TypeOf(o.OptOf()), plan, wrong)
	}
	list := t.Kind() == reflect.Slice
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var one any
	switch {
	case plan != nil && plan.fields != nil:
		one = markedObject(t, plan, wrong)
	case plan == nil && t.Kind() == reflect.Map:
		return map[string]any{secretMark: secretMark}
	case plan == nil && t.Kind() == reflect.Struct && isCheckedStruct(t):
		one = map[string]any{"x": secretMark}
	case plan == nil:
		one = secretMark
	case wrong:
		return map[string]any{"x": secretMark, "y": []string{secretMark}}
	case plan.kind == reflect.Bool:
		one = true
	case plan.kind == reflect.Float64:
		one = 1
	case plan.isTime:
		one = "2026-12-01T12:00:00Z"
	default:
		one = "a.test"
	}
	if list {
		return []any{one}
	}
	return one
}

// TestShownBodies: values of the type of a loggable field are shown, of all others the length.
func TestShownBodies(t *testing.T) {
	type inner struct {
		ID     string `json:"id" log:"true"`
		Secret string `json:"secret"`
	}
	type in struct {
		Name    string               `json:"name" alias:"title" log:"true"`
		Kind    *string              `json:"kind" enum:"a|b|" log:"true"`
		On      bool                 `json:"on" log:"true"`
		N       core.Opt[int]        `json:"n" log:"true"`
		At      *core.Time           `json:"at" log:"true"`
		Ends    core.Opt[time.Time]  `json:"ends" log:"true"`
		List    core.Opt[[]string]   `json:"list" log:"true"`
		One     *inner               `json:"one"`
		Many    []inner              `json:"many"`
		Maybe   core.Opt[inner]      `json:"maybe"`
		Secret  string               `json:"secret"`
		Secrets map[string]string    `json:"secrets"`
		Wrong   map[string]string    `json:"wrong" log:"true"`
		Pause   core.Opt[core.Quota] `json:"pause"`
	}
	plan := loggableObject(reflect.TypeFor[in]())
	long := strings.Repeat("x", maxLoggedText)
	for body, want := range map[string]string{
		`{}`:                                    `{}`,
		`{"name":"n","secret":"12345"}`:         `{"name":"n","secret":{"length":5}}`,
		`{"title":"n\"ä\u0041"}`:                `{"title":"n\"ä\u0041"}`,
		`{"name":5}`:                            `{"name":{"length":1}}`,
		`{"name":["a","b"]}`:                    `{"name":["a","b"]}`,
		`{"name":[["a"]]}`:                      `{"name":{"length":7}}`,
		`{"name":{"a":"b"}}`:                    `{"name":{"length":9}}`,
		`{"name":null,"secret":null,"x":null}`:  `{"name":null,"secret":null,"x":null}`,
		`{"name":"` + long + `"}`:               `{"name":{"length":1000}}`,
		`{"kind":"a"}`:                          `{"kind":"a"}`,
		`{"kind":"c"}`:                          `{"kind":{"length":1}}`,
		`{"kind":"a|b"}`:                        `{"kind":{"length":3}}`,
		`{"kind":""}`:                           `{"kind":{"length":0}}`,
		`{"on":true,"n":-12.5e3}`:               `{"n":-12.5e3,"on":true}`,
		`{"on":"true","n":"1"}`:                 `{"n":{"length":1},"on":{"length":4}}`,
		`{"n":` + strings.Repeat("1", 41) + `}`: `{"n":{"length":41}}`,
		`{"at":"2026-12-01T12:00:00.5+01:00","ends":"2026-12-01T12:00:00Z"}`: `{"at":"2026-12-01T12:00:00.5+01:00","ends":"2026-12-01T12:00:00Z"}`,
		`{"at":"noon","ends":5}`:                                       `{"at":{"length":4},"ends":{"length":1}}`,
		`{"list":["a","b"]}`:                                           `{"list":["a","b"]}`,
		`{"list":[]}`:                                                  `{"list":[]}`,
		`{"list":["a",5]}`:                                             `{"list":{"length":7}}`,
		`{"one":{"id":"i","secret":"s","more":[1]}}`:                   `{"one":{"id":"i","secret":{"length":1},"more":{"length":3}}}`,
		`{"one":{"ID":"i","id":{"id":"x"}}}`:                           `{"one":{"ID":{"length":1},"id":{"length":10}}}`,
		`{"many":[ {"id": "i"} , {} ]}`:                                `{"many":[{"id":"i"},{}]}`,
		`{"many":[{"id":"i"},"s"]}`:                                    `{"many":{"length":16}}`,
		`{"many":[[{"id":"i"}]]}`:                                      `{"many":{"length":14}}`,
		`{"maybe":{"id":"i"}}`:                                         `{"maybe":{"id":"i"}}`,
		`{"secrets":{"a":"b"},"wrong":{"a":"b"}}`:                      `{"secrets":{"length":9},"wrong":{"length":9}}`,
		`{"pause":{"Used":5}}`:                                         `{"pause":{"Used":{"length":1}}}`,
		`{"a\"b\\cä":1}`:                                               `{"a\"b\\cä":{"length":1}}`,
		`{"` + strings.Repeat("ä", 60) + `":1}`:                        `{"` + strings.Repeat("ä", 50) + `…":{"length":1}}`,
		`{"secret":"` + strings.Repeat("s", 1<<20) + `"}`:              `{"secret":{"length":1048576}}`,
		`{"list":["` + strings.Repeat(`a","`, 4000) + `a"],"on":true}`: `{"list":{"length":16005},"on":true}`,
	} {
		if got := shown(t, plan, body); got != want {
			t.Errorf("%.200s\n shows %.200s\n want  %.200s", body, got, want)
		}
	}
	if got := string(shownLength(1234)); got != `{"length":1234}` {
		t.Error(got)
	}
	many := map[string]any{}
	for i := range 2000 {
		many[fmt.Sprintf("field%04d", i)] = i
	}
	text, _ := json.Marshal(many)
	got := shown(t, plan, string(text))
	if len(got) > requests.MaxShown || len(got) < requests.MaxShown-200 || !regexp.MustCompile(`^\{"field0000":\{"length":1\},.*,"…":\{"length":\d{4}\}\}$`).MatchString(got) {
		t.Errorf("%d bytes: …%s", len(got), got[len(got)-200:])
	}
}

// shown returns what is shown of a body, and checks that it is one JSON object of a bounded size.
func shown(t testing.TB, plan *loggable, body string) string {
	t.Helper()
	fields, err := splitObject([]byte(body))
	if err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}
	out := shownObject(plan, fields)
	var object map[string]json.RawMessage
	if err := json.Unmarshal(out, &object); err != nil || len(out) > requests.MaxShown {
		t.Errorf("%.200s shows %.200s of %d bytes: %v", body, out, len(out), err)
	}
	return string(out)
}

// FuzzShownBodies: of any body that can be read, an object of a bounded size is shown.
func FuzzShownBodies(f *testing.F) {
	b := newSandbox(f, nil)
	plans := slices.Collect(maps.Values(b.server.loggable()))
	f.Add(`{"domains":["a.test"],"policy":{"send":"allow"},"users":[{"username":"a","password":"b"}]}`, 7)
	f.Add(`{"a\"":[{},[null]],"\u00e4":1e5}`, 3)
	f.Fuzz(func(t *testing.T, body string, n int) {
		if _, err := splitObject([]byte(body)); err != nil || !utf8.ValidString(body) {
			return
		}
		for _, plan := range plans {
			shown(t, plan, body)
		}
	})
}

// BenchmarkRecord is what the request log costs a request: one without a body, and one with.
func BenchmarkRecord(b *testing.B) {
	s := newSandbox(b, nil)
	o := slices.IndexFunc(s.server.ops, func(o api.Operation) bool { return o.Name == "create_email_user" })
	fields, err := splitObject([]byte(`{"username":"ann","domain":"boxes.test","name":"Ann","password":"correct horse","daily_send_limit":50}`))
	if err != nil {
		b.Fatal(err)
	}
	for name, length := range map[string]int64{"get": 0, "post": 100} {
		b.Run(name, func(b *testing.B) {
			c := newCall(b.Context(), nil, httptest.NewRequest(http.MethodPost, "/v1/email-users", nil), "req_01k9a2b3c4d5e6f7g8h9j0k1m2")
			c.op, c.who = &s.server.ops[o], core.Actor{AccountID: s.Owner.AccountID, Role: "owner", TokenID: "tok_1", TokenName: "first", IP: "192.0.2.7"}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				s.server.startRecording(c, c.r.URL.Path)
				c.rec.fields = fields
				s.server.recordBody(c, length)
				s.server.record(c, 200, time.Now())
				if i%1000 == 0 { // as many as are written at once
					b.StopTimer()
					_, _ = s.Requests.ListRequests(b.Context(), c.who, requests.ListRequestsIn{}) // writes them
					b.StartTimer()
				}
			}
		})
	}
}
