package handlers

import (
	"fmt"
	"strings"
	"testing"
)

const templates = "/v1/email-user-templates"

func TestTemplates(t *testing.T) {
	b := newSandbox(t, nil)
	b.get(templates).is(200).has("count", "0", "data", "[]")
	r := b.post(templates, `{"name":"Sales","usernames":["Ann.Lee","bob"]}`).is(200).has("name", "Sales", "usernames", "[ann.lee bob]")
	id := r.text("template_id")
	if r.text("id") != id || !strings.HasPrefix(id, "tpl_") || r.text("created_at") == "" || r.text("updated_at") != r.text("created_at") {
		t.Errorf("template %s", r.raw)
	}
	second := b.post(templates, `{"name":"Support","usernames":["help"]}`).is(200).text("id")
	b.get(templates).has("count", "2", "data.0.id", second, "data.1.id", id)
	path := templates + "/" + id
	b.get(path).is(200).has("name", "Sales")
	b.patch(path, `{"name":"Selling"}`).is(200).has("name", "Selling", "usernames", "[ann.lee bob]")
	b.patch(path, `{"usernames":["carl"],"template_id":"ignored"}`).is(200).has("name", "Selling", "usernames", "[carl]", "template_id", id)
	b.post("/v1/email-users/bulk", map[string]any{"domain": "boxes.test", "template_id": id}).is(200).has("users.0.email", "carl@boxes.test")
	b.remove(path).is(200).has("template_id", id)
	for _, method := range []string{"GET", "DELETE"} {
		b.do(method, path, nil).fails(404, "not_found")
	}
	b.patch(path, `{"name":"x"}`).fails(404, "not_found")
	b.get(templates).has("count", "1")
}

func TestTemplatesRefuse(t *testing.T) {
	b := newSandbox(t, nil)
	path := templates + "/" + b.post(templates, `{"name":"Sales","usernames":["ann"]}`).is(200).text("id")
	many := strings.TrimSuffix(strings.Repeat(`"x",`, 51), ",")
	for body, want := range map[string]string{
		`{"name":"","usernames":["a"]}`:                                 "validation_error name",
		`{"name":"` + strings.Repeat("é", 101) + `","usernames":["a"]}`: "validation_error name",
		`{"name":"a\nb","usernames":["a"]}`:                             "validation_error name",
		`{"name":7,"usernames":["a"]}`:                                  "validation_error name",
		`{"name":"n","usernames":[]}`:                                   "validation_error usernames",
		`{"name":"n","usernames":"a"}`:                                  "validation_error usernames",
		`{"name":"n","usernames":["a","A"]}`:                            "validation_error usernames.1",
		`{"name":"n","usernames":["ok","a b","a..b","postmaster"]}`:     "validation_error usernames.1",
		`{"name":"n","usernames":["` + strings.Repeat("a", 65) + `"]}`:  "validation_error usernames.0",
		`{"name":"n","usernames":["a\u0000"]}`:                          "validation_error usernames.0",
		`{"name":"n","usernames":[` + many + `]}`:                       "too_many_items usernames",
		`[]`: "invalid_json ",
	} {
		code, field, _ := strings.Cut(want, " ")
		for _, r := range []*reply{b.post(templates, body), b.patch(path, body)} {
			r.fails(400, code).has("error.details.0.field", field)
		}
	}
	for _, body := range []string{`{}`, `{"name":"n"}`, `{"usernames":["a"]}`, `{"name":null,"usernames":["a"]}`} {
		b.post(templates, body).fails(400, "validation_error")
	}
	b.post(templates, `{"name":"n","usernames":["ok","a b","a..b","postmaster"]}`).has("error.details.2.code", "reserved", "error.details.2.field", "usernames.3")
	for _, body := range []string{`{}`, ``, `{"template_id":"tpl_x"}`} {
		b.patch(path, body).fails(400, "nothing_to_update")
	}
	b.patch(path, `{"name":null}`).fails(400, "validation_error")
	b.get(templates).has("count", "1", "data.0.name", "Sales")
}

func TestTemplatesOfOthers(t *testing.T) {
	b := newSandbox(t, nil)
	path := templates + "/" + b.post(templates, `{"name":"Sales","usernames":["ann"]}`).is(200).text("id")
	other := b.with(b.Account(t, "other@example.test").Token)
	other.get(path).fails(404, "not_found")
	other.patch(path, `{"name":"x"}`).fails(404, "not_found")
	other.remove(path).fails(404, "not_found")
	other.get(templates).has("count", "0")
	member := b.with(b.Token(t, b.Owner.AccountID, "member", "write"))
	member.patch(path, `{"name":"x"}`).is(200)
	reader := b.with(b.Token(t, b.Owner.AccountID, "admin", "read"))
	reader.get(path).is(200)
	reader.post(templates, `{"name":"n","usernames":["a"]}`).fails(403, "insufficient_scope")
	reader.patch(path, `{"name":"y"}`).fails(403, "insufficient_scope")
	reader.remove(path).fails(403, "insufficient_scope")
	member.remove(path).is(200)
}

func TestTemplatesAreBounded(t *testing.T) {
	b := newSandbox(t, nil)
	for i := range 1000 {
		b.Template(t, b.Owner.AccountID, fmt.Sprint(i), "a")
	}
	b.post(templates, `{"name":"n","usernames":["a"]}`).fails(400, "too_many_items")
	b.get(templates).has("count", "1000")
}
