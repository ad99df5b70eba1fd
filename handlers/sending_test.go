package handlers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// result reads the result of a batch's job.
func (r *reply) result(t *testing.T) (out struct {
	Sent, Failed int
	Items        []struct {
		Index     int
		Status    string
		MessageID *string `json:"message_id"`
		IDs       []string
		Error     *struct{ Code, Message string }
	}
}) {
	t.Helper()
	var job struct{ Result json.RawMessage }
	if err := json.Unmarshal(r.raw, &job); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(job.Result, &out); err != nil {
		t.Fatalf("%v: %s", err, job.Result)
	}
	return out
}

// TestBatchOfAThousand: each recipient gets a message of their own, what is bad fails alone and is
// not sent, and the same request again answers the same and sends nothing.
func TestBatchOfAThousand(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	template := b.post("/v1/message-templates", `{"name":"Hello","subject":"Hello {{name}}","text":"Your code is {{code}}.","html":"<p>Your code is {{ code }}, {{name}}.</p>"}`).is(201).
		has("variables.0", "code", "variables.1", "name").text("id")
	const n = 1000
	bad := map[int]string{17: "validation_error", 500: "missing_variable", 999: "validation_error"}
	var recipients []string
	for i := range n {
		to, variables := fmt.Sprintf("r%d@far.test", i), fmt.Sprintf(`{"name":"<R%d> {{code}}","code":%d,"unused":true}`, i, i)
		switch {
		case i == 17:
			to = "not an address"
		case i == 500:
			variables = `{"name":"x"}`
		case i == 999:
			variables = `{"name":"two\nlines","code":1}`
		}
		recipients = append(recipients, fmt.Sprintf(`{"to":%q,"variables":%s}`, to, variables))
	}
	body := `{"template_id":"` + template + `","recipients":[` + strings.Join(recipients, ",") + `]}`
	path := "/v1/email-users/" + ann + "/inbox/send-batch"
	first := b.do("POST", path, body, "Idempotency-Key", "batch-1").is(202).has("type", "send_batch", "resource.type", "batch", "progress.total", "1000")
	job := first.text("job_id")
	var done *reply
	for end := time.Now().Add(2 * time.Minute); ; {
		done = b.get("/v1/jobs/" + job + "?wait=20").is(200)
		if done.text("status") == "completed" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the job is %s", done.raw)
		}
	}
	out := done.result(t)
	if out.Sent != n-len(bad) || out.Failed != len(bad) || len(out.Items) != n {
		t.Fatalf("%d sent, %d failed, %d items", out.Sent, out.Failed, len(out.Items))
	}
	ids := map[string]bool{}
	for i, item := range out.Items {
		switch code := bad[i]; {
		case item.Index != i:
			t.Fatalf("item %d is %d", i, item.Index)
		case code != "" && (item.Status != "failed" || item.Error == nil || item.Error.Code != code || item.MessageID != nil || len(item.IDs) != 0):
			t.Errorf("item %d: %+v %+v, want %s", i, item, item.Error, code)
		case code == "" && (item.Status != "queued" || item.Error != nil || item.MessageID == nil || len(item.IDs) != 1):
			t.Errorf("item %d: %+v", i, item)
		case code == "":
			ids[*item.MessageID] = true
		}
	}
	if len(ids) != n-len(bad) {
		t.Errorf("%d different Message-IDs", len(ids))
	}
	again := b.do("POST", path, body, "Idempotency-Key", "batch-1").is(202)
	if again.text("job_id") != job {
		t.Errorf("the same request again is job %s, not %s", again.text("job_id"), job)
	}
	time.Sleep(300 * time.Millisecond)
	if sent := b.get("/v1/account/usage").is(200).text("messages.sent_today"); sent != fmt.Sprint(n-len(bad)) {
		t.Errorf("%s were sent today", sent)
	}

	// What one of them got.
	raw := string(b.get("/v1/messages?recipient=r7@far.test").is(200).has("pagination.count", "1", "data.0.subject", "Hello <R7> {{code}}").raw)
	if strings.Contains(raw, "r8@far.test") {
		t.Errorf("it names another recipient: %s", raw)
	}
}

// TestBatchShapes: what cannot be meant is refused as a whole, and sends nothing.
func TestBatchShapes(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	path := "/v1/email-users/" + ann + "/inbox/send-batch"
	for _, body := range []string{
		`{}`, `{"messages":[]}`, `{"recipients":[]}`, `{"recipients":[{"to":"a@far.test"}]}`,
		`{"recipients":[{"to":"a@far.test"}],"template_id":"mtl_none"}`,
		`{"recipients":[{"to":"a@far.test"}],"message":{"subject":"s"}}`,
		`{"recipients":[{"to":"a@far.test"}],"message":{"subject":"s","text":"t"},"template_id":"x"}`,
		`{"recipients":[{"to":"a@far.test"}],"message":{"subject":"s","text":"t"},"from":"bob@boxes.test"}`,
		`{"recipients":[{"to":"a@far.test"}],"message":{"subject":"s","text":"t"},"send_at":"2020-01-01T00:00:00Z"}`,
		`{"messages":[{"to":"a@far.test","subject":"s","text":"t"}],"from":"ann@boxes.test"}`,
		`{"messages":[{"to":"a@far.test","subject":"s","text":"t","nonsense":1}]}`,
		`{"recipients":[{"to":"a@far.test","nonsense":1}],"message":{"subject":"s","text":"t"}}`,
		`{"messages":"x"}`, `{"nonsense":1,"messages":[{"to":"a@far.test","subject":"s"}]}`,
	} {
		b.post(path, body).fails(400, "validation_error")
	}
	b.post(path, `{"recipients":[{"to":"a@far.test"}],"message":{"subject":"{{x","text":"t"}}`).fails(400, "invalid_template")
	many := strings.TrimSuffix(strings.Repeat(`{"to":"a@far.test","subject":"s"},`, 101), ",")
	b.post(path, `{"messages":[`+many+`]}`).fails(400, "too_many_items")
	var named []string
	for range 9 {
		id := b.post("/v1/message-templates", map[string]any{"name": "t", "subject": "s", "text": strings.Repeat("t", 500_000), "html": strings.Repeat("h", 500_000)}).is(201).text("id")
		named = append(named, `{"to":"a@far.test","template_id":"`+id+`"}`)
	}
	b.post(path, `{"messages":[`+strings.Join(named, ",")+`]}`).fails(413, "payload_too_large")
	b.with(b.Account(t, "other@example.test").Token).post(path, `{"messages":[{"to":"a@far.test","subject":"s"}]}`).fails(404, "not_found")
	b.get("/v1/messages").is(200).has("pagination.count", "0")

	// Whole messages, each with its own recipients, one of them scheduled.
	b.post("/v1/suppressions", `{"email":"no@far.test"}`).is(201)
	job := b.post(path, `{"messages":[{"to":["a@far.test","b@far.test"],"subject":"one","text":"t","tags":{"k":"v"}},{"to":"no@far.test","subject":"two"},
		{"to":"c@far.test","subject":"three","html":"<p>x</p>","send_at":"`+soon(3)+`"},{"to":"d@far.test","subject":"four","headers":{"From":"x"}}]}`).is(202).text("job_id")
	out := b.get("/v1/jobs/"+job+"?wait=20").is(200).has("status", "completed").result(t)
	got := ""
	for _, item := range out.Items {
		got += fmt.Sprint(item.Status, len(item.IDs), " ")
	}
	if got != "queued 2 suppressed 1 scheduled 1 failed 0 " && got != "queued2 suppressed1 scheduled1 failed0 " || out.Sent != 2 || out.Failed != 1 {
		t.Errorf("%s, %d sent, %d failed", got, out.Sent, out.Failed)
	}
	b.get("/v1/messages?tag=k:v").is(200).has("pagination.count", "2", "data.0.tags.k", "v")
	b.get("/v1/messages?tag=k:other").is(200).has("pagination.count", "0")
	b.get("/v1/messages?tag=k").fails(400, "validation_error")
}

// TestMessageTemplates: the limits of templates, and the messages made from them.
func TestMessageTemplates(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	const templates = "/v1/message-templates"
	for _, text := range []string{"{{", "{{}}", "{{1a}}", "{{a b}}", "{{a-b}}", "{{{a}}}", "{{a}", "x {{a"} {
		for _, field := range []string{"subject", "text", "html"} {
			body := map[string]string{"name": "n", "subject": "s", "text": "t"}
			body[field] = text
			raw, _ := json.Marshal(body)
			b.post(templates, string(raw)).fails(400, "invalid_template").has("error.details.0.field", field)
		}
	}
	b.post(templates, `{"name":"n","subject":"s"}`).fails(400, "validation_error")
	b.post(templates, `{"name":"","subject":"s","text":"t"}`).fails(400, "validation_error")
	id := b.post(templates, `{"name":"n","subject":"Hi {{ a.b }}","html":"<b>{{_x}}</b> {{a.b}} }}"}`).is(201).has("variables.0", "_x", "variables.1", "a.b", "text", "<nil>").text("id")
	other := b.with(b.Account(t, "other@example.test").Token)
	for _, r := range []*reply{other.get(templates + "/" + id), other.patch(templates+"/"+id, `{"name":"x"}`), other.do("DELETE", templates+"/"+id, nil), other.post(templates+"/"+id+"/preview", `{}`)} {
		r.fails(404, "not_found")
	}
	other.get(templates).is(200).has("pagination.count", "0")
	b.post(templates+"/"+id+"/preview", `{"variables":{"_x":"<&>\"'","a.b":"{{_x}}"}}`).is(200).
		has("subject", "Hi {{_x}}", "html", "<b>&lt;&amp;&gt;&#34;&#39;</b> {{_x}} }}", "text", "<nil>")
	b.post(templates+"/"+id+"/preview", `{"variables":{"_x":1.50,"a.b":true}}`).is(200).has("subject", "Hi true", "html", "<b>1.50</b> true }}")
	b.post(templates+"/"+id+"/preview", `{"variables":{"_x":"x"}}`).fails(400, "missing_variable").has("error.details.0.field", "variables.a.b")
	for _, wrong := range []string{`{"_x":"x","a.b":null}`, `{"_x":"x","a.b":[]}`, `{"_x":{},"a.b":"x"}`} {
		b.post(templates+"/"+id+"/preview", `{"variables":`+wrong+`}`).fails(400, "validation_error")
	}
	b.post(templates+"/"+id+"/preview", `{"variables":{"_x":"x","a.b":"two\r\nlines"}}`).fails(400, "validation_error").has("error.details.0.field", "variables.a.b")

	send := "/v1/email-users/" + ann + "/inbox/send"
	b.post(send, `{"to":"x@far.test","template_id":"`+id+`","subject":"s"}`).fails(400, "validation_error")
	b.post(send, `{"to":"x@far.test","template_id":"mtl_none"}`).fails(400, "validation_error")
	b.post(send, `{"to":"x@far.test","template_id":"`+id+`"}`).fails(400, "missing_variable")
	b.post(send, `{"to":"x@far.test","text":"t"}`).fails(400, "validation_error").has("error.details.0.field", "subject")
	b.post(send, `{"to":"x@far.test","template_id":"`+id+`","variables":{"_x":"x","a.b":"Bob"}}`).is(200)
	b.get("/v1/messages?recipient=x@far.test").is(200).has("data.0.subject", "Hi Bob")
	b.patch(templates+"/"+id, `{"html":null,"text":"plain {{c}}"}`).is(200).has("variables.0", "a.b", "variables.1", "c", "html", "<nil>")
	b.patch(templates+"/"+id, `{"text":null}`).fails(400, "validation_error")
	b.patch(templates+"/"+id, `{}`).fails(400, "nothing_to_update")
	b.do("DELETE", templates+"/"+id, nil).is(200).has("id", id)
	b.get(templates+"/"+id).fails(404, "not_found")
}

// TestImportSuppressions: a list and a CSV file, and mistakes in them.
func TestImportSuppressions(t *testing.T) {
	b := newSandbox(t, nil)
	const path = "/v1/suppressions/import"
	b.post("/v1/suppressions", `{"email":"old@far.test"}`).is(201)
	b.post(path, `{"emails":["old@far.test","A@Far.test","a@far.test","nobody","b@far.test"],"reason":"complaint"}`).is(200).
		has("added", "2", "already", "1", "invalid.0", "nobody")
	b.get("/v1/suppressions?reason=complaint").is(200).has("pagination.count", "2")
	b.do("POST", path, "Reason,Email\r\nbounce,c@far.test\r\n,\"d@far.test\"\r\nMANUAL,e@far.test\r\nbounce,x y\r\n", "Content-Type", "text/csv").is(200).
		has("added", "3", "already", "0", "invalid.0", "x y")
	b.get("/v1/suppressions?reason=bounce").is(200).has("pagination.count", "1", "data.0.email", "c@far.test")
	b.do("POST", path, "address\r\nc@far.test\r\n", "Content-Type", "text/csv").fails(400, "validation_error")
	b.do("POST", path, "email,reason\r\nz@far.test,because\r\n", "Content-Type", "text/csv").fails(400, "validation_error")
	b.do("POST", path, "email\r\n\"", "Content-Type", "text/csv").fails(400, "validation_error")
	b.do("POST", path, "email\n"+strings.Repeat("a\n", 500_001), "Content-Type", "text/csv").fails(400, "too_many_items")
	b.post(path, `{}`).fails(400, "validation_error")
	b.post(path, `{"emails":["a@far.test"],"csv":"email\n"}`).fails(400, "validation_error")
	b.do("POST", "/v1/suppressions", "email\r\nx@far.test\r\n", "Content-Type", "text/csv").fails(415, "unsupported_media_type")
	b.with(b.Token(t, b.Owner.AccountID, "member", "write")).post(path, `{"emails":["f@far.test"]}`).fails(403, "forbidden_role")
}

// TestScheduleOverHTTP: the bounds of send_at, and what can be done with a row in each state.
func TestScheduleOverHTTP(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	send := "/v1/email-users/" + ann + "/inbox/send"
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, wrong := range []string{at(-time.Minute), at(31 * 24 * time.Hour)} {
		b.post(send, `{"to":"x@far.test","subject":"s","send_at":"`+wrong+`"}`).fails(400, "validation_error").has("error.details.0.field", "send_at")
	}
	later := at(time.Hour)
	id := b.post(send, `{"to":"x@far.test","subject":"s","send_at":"`+later+`"}`).is(200).has("status", "scheduled", "recipients.0.status", "scheduled").text("recipients.0.id")
	row := "/v1/messages/" + id
	b.get(row).is(200).has("status", "scheduled", "transport", "capture")
	b.post(row+"/retry", ``).fails(409, "not_queued")
	for _, wrong := range []string{`{}`, `{"send_at":null}`, `{"send_at":"` + at(-time.Minute) + `"}`, `{"send_at":"` + at(31*24*time.Hour) + `"}`} {
		b.patch(row, wrong).fails(400, "validation_error")
	}
	moved := at(2 * time.Hour)
	b.patch(row, `{"send_at":"`+moved+`"}`).is(200).has("status", "scheduled")
	if got, err := time.Parse(time.RFC3339, b.get(row).is(200).text("send_at")); err != nil || got.UTC().Format(time.RFC3339) != moved {
		t.Errorf("send_at is %s, want %s: %v", got, moved, err)
	}
	other := b.with(b.Account(t, "other@example.test").Token)
	other.patch(row, `{"send_at":"`+moved+`"}`).fails(404, "not_found")
	b.post(row+"/cancel", ``).is(200).has("status", "cancelled")
	b.post(row+"/cancel", ``).fails(400, "validation_error")
	b.post(row+"/retry", ``).fails(409, "not_queued")
	b.patch(row, `{"send_at":"`+moved+`"}`).fails(409, "not_scheduled")

	// One that has gone.
	id = b.post(send, `{"to":"y@far.test","subject":"s"}`).is(200).has("send_at", "<nil>").text("recipients.0.id")
	for end := time.Now().Add(10 * time.Second); b.get("/v1/messages/"+id).text("status") != "captured" && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	b.patch("/v1/messages/"+id, `{"send_at":"`+moved+`"}`).fails(409, "not_scheduled")
	b.post("/v1/messages/"+id+"/retry", ``).fails(400, "validation_error")
}

// TestSendingBounds: as much as is allowed, and one more.
func TestSendingBounds(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	batch := "/v1/email-users/" + ann + "/inbox/send-batch"
	list := func(n int, one func(int) string) string {
		var out []string
		for i := range n {
			out = append(out, one(i))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	message := func(i int) string { return fmt.Sprintf(`{"to":"m%d@far.test","subject":"s"}`, i) }
	job := b.post(batch, `{"messages":`+list(100, message)+`}`).is(202).text("job_id")
	if out := b.get("/v1/jobs/"+job+"?wait=20").is(200).has("status", "completed").result(t); out.Sent != 100 {
		t.Errorf("%d of 100 were sent", out.Sent)
	}
	b.post(batch, `{"messages":`+list(101, message)+`}`).fails(400, "too_many_items")
	recipient := func(i int) string { return fmt.Sprintf(`{"to":"r%d@far.test"}`, i) }
	b.post(batch, `{"message":{"subject":"s","text":"t"},"recipients":`+list(1001, recipient)+`}`).fails(400, "too_many_items")
	b.post(batch, `{"message":{"subject":"s","text":"`+strings.Repeat("x", 36<<20)+`"},"recipients":`+list(1, recipient)+`}`).fails(413, "payload_too_large")
	address := func(i int) string { return fmt.Sprintf(`"s%d@far.test"`, i) }
	b.post("/v1/suppressions/import", `{"emails":`+list(10001, address)+`}`).fails(400, "too_many_items")
	b.post("/v1/suppressions/import", `{"emails":`+list(10000, address)+`}`).is(200).has("added", "10000")

	// Tags.
	send := "/v1/email-users/" + ann + "/inbox/send"
	tags := func(n int, name, value string) string {
		return `{"to":"t@far.test","subject":"s","tags":{` + strings.Trim(list(n, func(i int) string { return fmt.Sprintf(`"%s%d":%q`, name, i, value) }), "[]") + `}}`
	}
	b.post(send, tags(20, strings.Repeat("n", 62), strings.Repeat("é", 200))).is(200)
	for what, body := range map[string]string{
		"21 tags": tags(21, "n", "v"), "201 characters": tags(1, "n", strings.Repeat("v", 201)), "a name of 65 letters": tags(1, strings.Repeat("n", 64), "v"),
		"a dot in the name": tags(1, "a.b", "v"), "an empty name": `{"to":"t@far.test","subject":"s","tags":{"":"v"}}`, "a number": `{"to":"t@far.test","subject":"s","tags":{"n":1}}`,
	} {
		if r := b.post(send, body); r.status != 400 {
			t.Errorf("%s: %d %s", what, r.status, r.raw)
		}
	}
}
