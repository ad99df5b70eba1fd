package handlers

import (
	"fmt"
	"strings"
	"testing"
)

func TestCreateEmailUsersBulk(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("taken")
	r := b.post("/v1/email-users/bulk", `{"domain":"boxes.test","users":[
		{"username":"one","name":"One","footer":"F"},
		{"username":"taken"},
		{"username":"Two","password":"long enough"},
		{"username":"a b"},
		{"username":"one"},
		{"username":"three","password":"short"},
		{}
	]}`).is(200)
	r.has("domain", "boxes.test", "created", "2", "failed", "5", "job_id", "<nil>",
		"users.0.email", "one@boxes.test", "users.0.name", "One", "users.0.footer", "F", "users.0.password_generated", "true", "users.0.status", "active",
		"users.1.email", "two@boxes.test", "users.1.password", "long enough")
	want := "[1 taken email_user_exists] [3 a b validation_error] [4 one email_user_exists] [5 three validation_error] [6  validation_error]"
	var got []string
	for i := range 5 {
		p := fmt.Sprintf("errors.%d.", i)
		got = append(got, fmt.Sprint([]string{r.text(p + "index"), r.text(p + "username"), r.text(p + "code")}))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("errors %s, want %s", strings.Join(got, " "), want)
	}
	if _, err := b.LoginMailbox(t.Context(), "one@boxes.test", r.text("users.0.password"), "127.0.0.1"); err != nil {
		t.Errorf("log-in with the password that was shown: %v", err)
	}
	b.get("/v1/events?type=email_user.created").has("pagination.count", "3")
}

func TestCreateEmailUsersBulkRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	many := strings.Repeat(`{"username":"x"},`, 100) + `{"username":"x"}`
	for body, code := range map[string]string{
		`{"users":[{"username":"a"}]}`:                                              "validation_error",
		`{"domain":"nowhere.test","users":[{"username":"a"}]}`:                      "validation_error",
		`{"domain":"boxes.test"}`:                                                   "validation_error",
		`{"domain":"boxes.test","users":[]}`:                                        "validation_error",
		`{"domain":"boxes.test","users":[{"username":"a"}],"template_id":"tpl_x"}`:  "validation_error",
		`{"domain":"boxes.test","template_id":"tpl_x"}`:                             "validation_error",
		`{"domain":"boxes.test","users":{"username":"a"}}`:                          "validation_error",
		`{"domain":"boxes.test","users":[{"username":5}]}`:                          "validation_error",
		`{"domain":"boxes.test","users":[` + many + `]}`:                            "too_many_items",
		`{"domain":"boxes.test","users":[{"username":"a"}]}{"domain":"boxes.test"}`: "invalid_json",
	} {
		b.post("/v1/email-users/bulk", body).fails(400, code)
	}
	b.get("/v1/email-users").has("pagination.count", "0")
}

func TestCreateEmailUsersFromTemplate(t *testing.T) {
	b := newSandbox(t, nil)
	tpl := b.Template(t, b.Owner.AccountID, "Ann Lee", "ann", "a.lee")
	b.post("/v1/email-users/bulk", map[string]any{"domain": b.domain, "template_id": tpl}).is(200).
		has("created", "2", "users.0.email", "ann@boxes.test", "users.0.name", "Ann Lee", "users.1.email", "a.lee@boxes.test")
	other := b.Account(t, "other@example.test")
	b.Domain(t, other.AccountID, "foreign.test", "builtin", "complete")
	b.with(other.Token).post("/v1/email-users/bulk", map[string]any{"domain": "foreign.test", "template_id": tpl}).
		fails(400, "validation_error").has("error.details.0.field", "template_id")
}

func TestDeleteEmailUsersBulk(t *testing.T) {
	b := newSandbox(t, nil)
	var ids []string
	for i := range 4 {
		ids = append(ids, b.box(fmt.Sprintf("u%d", i)))
	}
	r := b.do("DELETE", "/v1/email-users/bulk", map[string]any{"user_ids": []string{ids[0], ids[1], ids[0], "eu_none"}}).is(200).
		has("queued", "2", "failed", "1", "errors.0.user_id", "eu_none", "errors.0.code", "not_found")
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").has("status", "completed", "type", "email_users_bulk_delete", "progress.completed", "2")
	b.get("/v1/email-users").has("pagination.count", "2")
	b.get("/v1/events?type=email_user.deleted").has("pagination.count", "2")
	r = b.post("/v1/email-users/bulk-delete", `{"emails":["U2@boxes.test","u3@boxes.test","nobody@boxes.test","no address"]}`).is(200).
		has("queued", "2", "failed", "2", "errors.0.user_id", "<nil>", "errors.1.code", "not_found")
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").has("status", "completed")
	b.get("/v1/email-users").has("pagination.count", "0")
	b.post("/v1/email-users/bulk-delete", `{"user_ids":["eu_none"]}`).is(200).has("queued", "0", "job_id", "<nil>")
	for body, code := range map[string]string{
		`{}`: "validation_error", `{"user_ids":[]}`: "validation_error", `{"user_ids":["a"],"emails":["b"]}`: "validation_error",
		`{"user_ids":[1]}`: "validation_error", `{"user_ids":["` + strings.Repeat(`a","`, 100) + `a"]}`: "too_many_items",
	} {
		b.post("/v1/email-users/bulk-delete", body).fails(400, code)
	}
}
