package handlers

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

// hostileValues are put in the place of every field of every body, one at a time.
var hostileValues = []string{
	`null`, `true`, `-1`, `0.5`, `1e400`, `123456789012345678901234567890`, `""`, `"\u0000"`, `"\ud800"`, `"` + strings.Repeat("x", 10_000) + `"`,
	`[]`, `{}`, `[null]`, `[{}]`, `[[1]]`, `{"a":{"b":[1]}}`, strings.Repeat("[", 500) + strings.Repeat("]", 500), `"'; -- <script>"`, `"../../etc"`,
}

// hostileBodies stand in the place of a whole body.
var hostileBodies = []string{
	`{`, `[]`, `null`, `"x"`, `1`, `{}{}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":1`, `{"a"}`, `{,}`, "\x00",
	strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat("}", 20_000),
}

// TestHostileBodies: whatever stands in a body, the answer is the operation's own or an error of
// the client's, as it is described, and an error has changed nothing.
func TestHostileBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("it does one thing after the other, many times")
	}
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 1_000_000, 1_000_000 })
	box := b.post("/v1/email-users", `{"email":"ann@boxes.test"}`).is(201).text("user_id")
	ids := map[string]string{"{domain_id}": b.domain, "{user_id}": box}
	for _, o := range b.server.ops {
		if o.method == http.MethodGet {
			continue
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(o.path, func(hole string) string {
			if o.method == http.MethodDelete || ids[hole] == "" || strings.Contains(o.path, "/account/users") {
				return "none"
			}
			return ids[hole]
		})
		before := b.everything()
		for _, body := range hostileBodies {
			r := b.do(o.method, path, body)
			if o.name == "delete_inbox_message" || r.status != 404 {
				r.fails(r.status, r.text("error.code"))
			}
			if r.status < 400 || r.status >= 500 {
				t.Errorf("%s with the body %.40q: %d %s", o.name, body, r.status, r.raw)
			}
		}
		if after := b.everything(); after != before {
			t.Errorf("%s was refused and changed something:\n%s\n%s", o.name, before, after)
		}
		b.hostileFields(t, &o, path)
	}
}

// hostileFields puts every hostile value into every field of the operation's example.
func (b *sandbox) hostileFields(t *testing.T, o *op, path string) {
	c := theContract()
	described := c.doc.Paths.Get(o.path).Get(strings.ToLower(o.method))
	if described.RequestBody == nil {
		return
	}
	text, err := json.Marshal(described.RequestBody.Content.Get(jsonMedia).Example)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		for _, value := range hostileValues {
			body := maps.Clone(fields)
			body[name] = json.RawMessage(value)
			before := b.everything()
			r := b.do(o.method, path, rawObject(body))
			if r.status < 400 {
				continue // it is what the operation takes, such as an empty description
			}
			if r.status == 500 || r.text("error.code") == "internal_error" {
				t.Errorf("%s with %s = %.40q: %d %s", o.name, name, value, r.status, r.raw)
			}
			if after := b.everything(); after != before {
				t.Errorf("%s with %s = %.40q was refused and changed something", o.name, name, value)
			}
		}
	}
}

// rawObject writes an object whose values may be no JSON that Go would write.
func rawObject(fields map[string]json.RawMessage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, fmt.Sprintf("%q:%s", name, fields[name]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// everything is what the account has, as its lists show it.
func (b *sandbox) everything() string {
	b.t.Helper()
	var all strings.Builder
	for _, path := range []string{
		"/v1/domains", "/v1/email-users", "/v1/webhooks", "/v1/email-user-templates", "/v1/account/users", "/v1/auth/tokens",
		"/v1/inbox", "/v1/messages", "/v1/suppressions", "/v1/domains/" + b.domain + "/custom-dns-records",
	} {
		all.Write(volatile.ReplaceAll(b.get(path).is(200).raw, nil))
	}
	return all.String()
}

// volatile are times that reading and work in the background change.
var volatile = regexp.MustCompile(`"(last_used_at|last_used_ip|updated_at|checked_at|next_attempt_at|attempts|last_response)":[^,}]*`)
