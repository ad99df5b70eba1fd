package handlers

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
)

func TestCreateEmailUser(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post("/v1/email-users", map[string]any{"username": "Ann.Lee", "domain": "BOXES.test", "name": "Ann Lee", "footer": "Bye"}).is(201)
	r.has("email", "ann.lee@boxes.test", "username", "ann.lee", "domain", "boxes.test", "domain_id", b.domain, "name", "Ann Lee",
		"status", "active", "error", "<nil>", "type", "hosted", "daily_send_limit", "<nil>", "sent_today", "0",
		"smtp_host", "mail.example.test", "smtp_port", "2587", "smtp_security", "none", "imap_host", "mail.example.test", "imap_port", "2143",
		"imap_security", "none", "footer", "Bye", "forward_to", "<nil>", "quota_bytes", "<nil>", "used_bytes", "0", "unread_count", "0",
		"last_sync_at", "<nil>", "last_login_at", "<nil>", "password_generated", "true", "id", r.text("user_id"))
	if p := r.text("password"); len(p) != 20 || strings.ContainsAny(p[:1], "=+-@") {
		t.Errorf("generated password %q", p)
	}
	if !strings.HasPrefix(r.text("user_id"), "eu_") || len(r.text("user_id")) != 29 {
		t.Errorf("user_id %q", r.text("user_id"))
	}
	again := b.get("/v1/email-users/"+r.text("user_id")).is(200).has("email", "ann.lee@boxes.test", "created_at", r.text("created_at"))
	for _, secret := range []string{"password", "password_generated", "PasswordHash"} {
		if _, there := again.at(secret); there {
			t.Errorf("a mailbox shows %s", secret)
		}
	}
	b.post("/v1/email-users", `{"email":"bob@boxes.test","password":"long enough","daily_send_limit":5,"quota_bytes":1000,"forward_to":"Bob@Else.test"}`).is(201).
		has("password", "long enough", "password_generated", "false", "daily_send_limit", "5", "quota_bytes", "1000", "forward_to", "bob@else.test")
	b.post("/v1/email-users", map[string]any{"username": "id", "domain": b.domain}).is(201).has("email", "id@boxes.test")
	b.get("/v1/events?type=email_user.created").is(200).has("data.2.data.email", "ann.lee@boxes.test", "data.2.data.name", "Ann Lee",
		"data.2.data.domain_id", b.domain, "data.2.data.created_at", r.text("created_at"), "pagination.count", "3")
}

func TestCreateEmailUserRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("taken")
	other := b.Account(t, "other@example.test")
	b.Domain(t, other.AccountID, "foreign.test", "builtin", "complete")
	b.Domain(t, b.Owner.AccountID, "gone.test", "builtin", "deleting")
	b.Domain(t, b.Owner.AccountID, "elsewhere.test", "external", "complete")
	for _, tc := range []struct {
		body   string
		status int
		code   string
		field  string
	}{
		{`{"username":"taken","domain":"boxes.test"}`, 409, "email_user_exists", "username"},
		{`{"username":"TAKEN","domain":"boxes.test"}`, 409, "email_user_exists", "username"},
		{`{"username":"a","domain":"nowhere.test"}`, 400, "validation_error", "domain"},
		{`{"username":"a","domain":"foreign.test"}`, 400, "validation_error", "domain"},
		{`{"username":"a","domain":"gone.test"}`, 409, "domain_busy", ""},
		{`{"username":"a"}`, 400, "validation_error", "domain"},
		{`{"domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"a b","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"a..b","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":".a","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"ä","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"a+b","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"` + strings.Repeat("a", 65) + `","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"Postmaster","domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"email":"abuse@boxes.test"}`, 400, "validation_error", "username"},
		{`{"email":"no-at"}`, 400, "validation_error", "email"},
		{`{"email":"a@boxes.test","username":"a"}`, 400, "validation_error", "email"},
		{`{"username":"a","domain":"boxes.test","password":"short"}`, 400, "validation_error", "password"},
		{`{"username":"a","domain":"boxes.test","password":"` + strings.Repeat("x", 129) + `"}`, 400, "validation_error", "password"},
		{`{"username":"a","domain":"boxes.test","password":"with\ncontrol"}`, 400, "validation_error", "password"},
		{`{"username":"a","domain":"boxes.test","name":"a\r\nBcc: b@c"}`, 400, "validation_error", "name"},
		{`{"username":"a","domain":"boxes.test","forward_to":"b@boxes.test"}`, 400, "validation_error", "forward_to"},
		{`{"username":"a","domain":"boxes.test","forward_to":"nobody"}`, 400, "validation_error", "forward_to"},
		{`{"username":"a","domain":"boxes.test","quota_bytes":-1}`, 400, "validation_error", "quota_bytes"},
		{`{"username":"a","domain":"boxes.test","daily_send_limit":1.5}`, 400, "validation_error", "daily_send_limit"},
		{`{"username":1,"domain":"boxes.test"}`, 400, "validation_error", "username"},
		{`{"username":"a","domain":"boxes.test","type":"odd"}`, 400, "validation_error", "type"},
		{`{"username":"a","domain":"boxes.test","imap":{"host":"h"}}`, 400, "validation_error", "imap"},
		{`{"username":"a","domain":"elsewhere.test"}`, 400, "validation_error", "type"},
		{`{"username":"a","domain":"boxes.test","type":"external","imap":{"host":"imap.test","port":993,"security":"tls","username":"u","password":"p"}}`, 400, "validation_error", "type"},
		{`{"username":"a","domain":"boxes.test",`, 400, "invalid_json", ""},
	} {
		r := b.post("/v1/email-users", tc.body).fails(tc.status, tc.code)
		if tc.field != "" {
			r.has("error.details.0.field", tc.field)
		}
	}
	b.get("/v1/email-users").is(200).has("pagination.count", "1")
}

func TestEmailUserLimits(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.Mailboxes, c.Limits.MailboxesPerDomain = 3, 2 })
	b.box("a")
	b.box("b")
	b.post("/v1/email-users", `{"email":"c@boxes.test"}`).fails(403, "email_user_limit_exceeded")
	b.Domain(t, b.Owner.AccountID, "more.test", "builtin", "complete")
	b.post("/v1/email-users/bulk", `{"domain":"more.test","users":[{"username":"x"},{"username":"y"}]}`).is(200).
		has("created", "1", "failed", "1", "errors.0.index", "1", "errors.0.username", "y", "errors.0.code", "email_user_limit_exceeded")
}

func TestExternalEmailUser(t *testing.T) {
	b := newSandbox(t, nil)
	b.Domain(t, b.Owner.AccountID, "elsewhere.test", "external", "complete")
	body := func(imap string) string {
		return `{"email":"me@elsewhere.test","type":"external","imap":` + imap + `,"smtp":{"host":"smtp.elsewhere.test","port":587,"security":"starttls","username":"me","password":"s3cret"}}`
	}
	good := `{"host":"IMAP.elsewhere.test","port":993,"security":"tls","username":"me","password":"s3cret"}`
	for field, imap := range map[string]string{
		"imap.host":     strings.Replace(good, "IMAP.elsewhere.test", "a b", 1),
		"imap.port":     strings.Replace(good, "993", "70000", 1),
		"imap.security": strings.Replace(good, `"tls"`, `"ssl"`, 1),
		"imap.username": strings.Replace(good, `"me"`, `""`, 1),
		"imap.password": strings.Replace(good, "s3cret", `a\u0007b`, 1),
		"imap":          "null",
	} {
		b.post("/v1/email-users", body(imap)).fails(400, "validation_error").has("error.details.0.field", field)
	}
	b.post("/v1/email-users", `{"email":"me@elsewhere.test","type":"external","password":"long enough","imap":`+good+`}`).
		fails(400, "validation_error").has("error.details.0.field", "password")
	r := b.post("/v1/email-users", body(good)).is(201).has("type", "external", "status", "pending", "imap_host", "imap.elsewhere.test",
		"imap_port", "993", "imap_security", "tls", "smtp_host", "smtp.elsewhere.test", "smtp_port", "587", "smtp_security", "starttls",
		"password", "s3cret", "password_generated", "false")
	b.patch("/v1/email-users/"+r.text("id"), `{"password":"n"}`).is(200)
	b.post("/v1/email-users/"+r.text("id")+"/inbox/refresh", nil).is(200).has("email", "me@elsewhere.test")
	b.get("/v1/jobs?type=inbox_sync").has("data.0.resource.id", r.text("id"), "data.0.resource.type", "email_user")
	if _, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "me@elsewhere.test", Password: "s3cret", IP: "127.0.0.1"}); err == nil {
		t.Error("an external mailbox was logged in to here")
	}
}

func TestPendingEmailUser(t *testing.T) {
	b := newSandbox(t, nil)
	b.Domain(t, b.Owner.AccountID, "slow.test", "builtin", "pending_ns")
	r := b.post("/v1/email-users", `{"email":"a@slow.test","password":"correct horse"}`).is(201).has("status", "pending")
	path := "/v1/email-users/" + r.text("id")
	b.get("/v1/events?type=email_user.created").has("pagination.count", "0")
	b.patch(path, `{"status":"active"}`).fails(409, "domain_not_ready")
	b.patch(path, `{"status":"suspended"}`).is(200).has("status", "suspended")
	b.patch(path, `{"status":"active"}`).is(200).has("status", "pending")
	if _, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "a@slow.test", Password: "correct horse", IP: "127.0.0.1"}); err == nil {
		t.Error("a pending mailbox was logged in to")
	}
}

func TestUpdateEmailUser(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann")
	login := func(password string) error {
		_, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "ann@boxes.test", Password: password, IP: "127.0.0.1"})
		return err
	}
	if err := login("correct horse"); err != nil {
		t.Fatal(err)
	}
	b.patch(path, `{"name":"Ann","footer":"F","daily_send_limit":7,"forward_to":"x@else.test","quota_bytes":99,"email":"ignored@boxes.test"}`).is(200).
		has("name", "Ann", "footer", "F", "daily_send_limit", "7", "forward_to", "x@else.test", "quota_bytes", "99", "email", "ann@boxes.test")
	b.patch(path, `{"footer":null,"daily_send_limit":null,"forward_to":null,"quota_bytes":null}`).is(200).
		has("name", "Ann", "footer", "<nil>", "daily_send_limit", "<nil>", "forward_to", "<nil>", "quota_bytes", "<nil>")
	b.patch(path, `{"daily_send_limit":0}`).is(200).has("daily_send_limit", "0")
	if _, there := b.patch(path, `{"password":"another one"}`).is(200).at("password"); there {
		t.Error("a change shows the password")
	}
	if login("correct horse") == nil || login("another one") != nil {
		t.Error("the old password still works, or the new one does not")
	}
	b.patch(path, `{"status":"suspended"}`).is(200).has("status", "suspended")
	if e, _ := core.AsError(login("another one")); e == nil || e.Code != "mailbox_unavailable" {
		t.Errorf("log-in to a suspended mailbox: %v", e)
	}
	b.patch(path, `{"status":"active"}`).is(200).has("status", "active")
	for body, code := range map[string]string{
		`{}`: "nothing_to_update", `{"email":"x@boxes.test"}`: "nothing_to_update", ``: "nothing_to_update", `[]`: "invalid_json",
		`{"password":"short"}`: "validation_error", `{"forward_to":"b@boxes.test"}`: "validation_error", `{"status":"deleting"}`: "validation_error",
		`{"name":"a\u0007"}`: "validation_error", `{"quota_bytes":"many"}`: "validation_error", `{"quota_bytes":99999999999999999999}`: "validation_error",
	} {
		b.patch(path, body).fails(400, code)
	}
	b.patch("/v1/email-users/eu_none", `{"name":"x"}`).fails(404, "not_found")
}

func TestListEmailUsers(t *testing.T) {
	b := newSandbox(t, nil)
	b.Domain(t, b.Owner.AccountID, "second.test", "builtin", "complete")
	for _, email := range []string{"a@boxes.test", "b@second.test", "c@boxes.test"} {
		b.post("/v1/email-users", map[string]any{"email": email, "name": "Name of " + email}).is(201)
	}
	for query, want := range map[string]string{
		"":                               "[c@boxes.test b@second.test a@boxes.test]",
		"?domain=second.test":            "[b@second.test]",
		"?filter[domain]=Second.TEST":    "[b@second.test]",
		"?domain=" + b.domain:            "[c@boxes.test a@boxes.test]",
		"?domain=unknown.test":           "[]",
		"?domain=%00":                    "",
		"?q=SECOND":                      "[b@second.test]",
		"?q=of+a":                        "[a@boxes.test]",
		"?status=suspended":              "[]",
		"?status=active&q=c@":            "[c@boxes.test]",
		"?status=odd":                    "",
		"?limit=2":                       "[c@boxes.test b@second.test]",
		"?limit=0":                       "",
		"?limit=x":                       "",
		"?limit=1000&domain=second.test": "[b@second.test]",
	} {
		r := b.get("/v1/email-users" + query)
		if want == "" {
			r.fails(400, "validation_error")
		} else if got := fmt.Sprint(r.is(200).list("data", "email")); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	b.get("/v1/email-users?limit=1000").has("pagination.limit", "100", "pagination.has_more", "false", "pagination.cursor", "<nil>", "pagination.count", "3")
	r := b.get("/v1/email-users?limit=2").has("pagination.has_more", "true")
	cursor := r.text("pagination.cursor")
	b.get("/v1/email-users?limit=2&cursor="+cursor).is(200).has("data.0.email", "a@boxes.test", "pagination.has_more", "false")
	b.get("/v1/email-users?q=a&cursor="+cursor).fails(400, "invalid_cursor")
	b.get("/v1/events?cursor="+cursor).fails(400, "invalid_cursor")
	b.get("/v1/email-users?cursor=AAAA").fails(400, "invalid_cursor")
	other := b.with(b.Account(t, "other@example.test").Token)
	other.get("/v1/email-users?cursor="+cursor).fails(400, "invalid_cursor")
	if got := fmt.Sprint(b.get("/v1/domains/"+b.domain+"/email-users").is(200).list("data", "email")); got != "[c@boxes.test a@boxes.test]" {
		t.Errorf("mailboxes of the domain: %s", got)
	}
	b.get("/v1/domains/dom_none/email-users").fails(404, "not_found")
	other.get("/v1/domains/"+b.domain+"/email-users").fails(404, "not_found")
	if got := other.get("/v1/email-users?domain=boxes.test").is(200).list("data", "email"); len(got) != 0 {
		t.Errorf("another account sees %v", got)
	}
}

// TestPagesKeepWhatStays walks pages while rows come and go: nothing that stays is skipped or
// repeated.
func TestPagesKeepWhatStays(t *testing.T) {
	b := newSandbox(t, nil)
	var stay, leave []string
	for i := range 30 {
		id := b.box(fmt.Sprintf("u%d", i))
		if i%3 == 0 {
			leave = append(leave, id)
		} else {
			stay = append(stay, id)
		}
	}
	var seen []string
	for cursor, page := "", 0; ; page++ {
		r := b.get("/v1/email-users?limit=4&cursor=" + cursor).is(200)
		seen = append(seen, r.list("data", "user_id")...)
		if r.text("pagination.has_more") != "true" {
			break
		}
		cursor = r.text("pagination.cursor")
		b.box(fmt.Sprintf("new%d", page))
		if page < len(leave) {
			job := b.remove("/v1/email-users/" + leave[page]).is(200).text("job_id")
			b.get("/v1/jobs/"+job+"?wait=10").has("status", "completed")
		}
	}
	seen = slices.DeleteFunc(seen, func(id string) bool { return !slices.Contains(stay, id) })
	slices.Reverse(seen)
	if !slices.Equal(seen, stay) {
		t.Errorf("saw %d of %d that stayed: %v", len(seen), len(stay), seen)
	}
}

func TestDeleteEmailUser(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	b.PutCopies(t, 450, "ann@boxes.test", "Subject: s\n\nbody\n", mail{})
	r := b.remove("/v1/email-users/"+id).is(200).has("user_id", id)
	if _, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "ann@boxes.test", Password: "correct horse", IP: "127.0.0.1"}); err == nil {
		t.Error("a deleted mailbox was logged in to")
	}
	b.get("/v1/inbox?mailbox=ann@boxes.test").is(200).has("pagination.count", "0")
	job := b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").is(200).has("status", "completed", "type", "email_user_delete",
		"resource.id", id, "resource.name", "ann@boxes.test", "progress.percent", "100")
	b.get("/v1/email-users/"+id).fails(404, "not_found")
	b.remove("/v1/email-users/"+id).fails(404, "not_found")
	b.get("/v1/events?type=email_user.deleted").has("pagination.count", "1", "data.0.data.user_id", id, "data.0.data.email", "ann@boxes.test")
	if b.get("/v1/events?type=email_user.deleted").text("data.0.data.deleted_at") == "" {
		t.Error("the event does not say when")
	}
	b.get("/v1/account/usage").is(200).has("storage.messages", "0", "storage.used_bytes", "0")
	b.get("/v1/jobs/" + job.text("job_id")).is(200)
	if b.box("ann") == id {
		t.Error("the id was used again")
	}
}

func TestDeletedAddressIsFreeAtOnce(t *testing.T) {
	b := newSandbox(t, nil)
	first := b.box("ann")
	b.Put(t, "ann@boxes.test", "Subject: old\n\nbody\n", mail{})
	r := b.remove("/v1/email-users/" + first).is(200)
	second := b.box("ann")
	b.Put(t, "ann@boxes.test", "Subject: new\n\nbody\n", mail{})
	b.get("/v1/jobs/"+r.text("job_id")+"?wait=10").has("status", "completed")
	b.get("/v1/email-users/"+second).is(200).has("unread_count", "1", "status", "active")
	b.get("/v1/inbox?mailbox=ann@boxes.test").has("pagination.count", "1", "data.0.subject", "new", "data.0.user_id", second)
}

func TestMailboxesOfOthersAreNotThere(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	b.Put(t, "ann@boxes.test", letter, mail{})
	other := b.with(b.Account(t, "other@example.test").Token)
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/v1/email-users/" + id, ""},
		{"PATCH", "/v1/email-users/" + id, `{"name":"mine","password":"12345678"}`},
		{"DELETE", "/v1/email-users/" + id, ""},
		{"GET", "/v1/email-users/" + id + "/inbox", ""},
		{"POST", "/v1/email-users/" + id + "/inbox/refresh", ""},
		{"GET", "/v1/email-users/" + id + "/inbox/1", ""},
		{"GET", "/v1/email-users/" + id + "/inbox/1/raw", ""},
		{"GET", "/v1/email-users/" + id + "/inbox/1/attachments/0", ""},
		{"GET", "/v1/email-users/" + id + "/inbox/1/attachments", ""},
		{"PATCH", "/v1/email-users/" + id + "/inbox/1", `{"is_read":true}`},
		{"DELETE", "/v1/email-users/" + id + "/inbox/1", ""},
		{"GET", "/v1/inbox/1?mailbox=ann@boxes.test", ""},
		{"PATCH", "/v1/inbox/1?mailbox=ann@boxes.test", `{"is_read":true}`},
		{"DELETE", "/v1/inbox/1?mailbox=ann@boxes.test", ""},
	} {
		other.do(tc.method, tc.path, tc.body).fails(404, "not_found")
	}
	other.get("/v1/inbox").is(200).has("pagination.count", "0")
	other.get("/v1/inbox?mailbox=ann@boxes.test").is(200).has("pagination.count", "0")
	other.post("/v1/inbox/bulk-delete", `{"messages":[{"uid":"1","mailbox":"ann@boxes.test"}]}`).is(200).has("deleted", "0", "failed", "1")
	other.post("/v1/email-users/bulk-delete", map[string]any{"user_ids": []string{id}}).is(200).has("queued", "0", "failed", "1", "errors.0.user_id", id)
	b.get("/v1/inbox").has("pagination.count", "1", "data.0.is_read", "false")
	b.get("/v1/email-users/" + id + "/inbox/1/attachments").is(200)
}

// TestRolesOfMailboxesAndInbox holds the contract's matrix for the operations of this file's noun.
func TestRolesOfMailboxesAndInbox(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	b.Put(t, "ann@boxes.test", "Subject: s\n\nbody\n", mail{})
	tokens := map[string]string{
		"member": b.Token(t, b.Owner.AccountID, "member", "read", "write"), "admin": b.Token(t, b.Owner.AccountID, "admin", "read", "write"),
		"reader": b.Token(t, b.Owner.AccountID, "admin", "read"),
	}
	for _, tc := range []struct {
		method, path, body string
		managers           bool // refused to members
	}{
		{"GET", "/v1/email-users", "", false},
		{"GET", "/v1/email-users/" + id, "", false},
		{"GET", "/v1/domains/" + b.domain + "/email-users", "", false},
		{"GET", "/v1/inbox", "", false},
		{"GET", "/v1/email-users/" + id + "/inbox", "", false},
		{"GET", "/v1/email-users/" + id + "/inbox/1", "", false},
		{"GET", "/v1/email-users/" + id + "/inbox/1/raw", "", false},
		{"GET", "/v1/inbox/1?mailbox=ann@boxes.test", "", false},
		{"POST", "/v1/email-users", `{"username":"ROLE","domain":"boxes.test"}`, true},
		{"PATCH", "/v1/email-users/" + id, `{"name":"x"}`, true},
		{"POST", "/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"bulk"}]}`, true},
		{"DELETE", "/v1/email-users/bulk", `{"user_ids":["eu_x"]}`, true},
		{"POST", "/v1/email-users/bulk-delete", `{"user_ids":["eu_x"]}`, true},
		{"POST", "/v1/email-users/" + id + "/inbox/refresh", "", false},
		{"PATCH", "/v1/email-users/" + id + "/inbox/1", `{"is_read":true}`, false},
		{"PATCH", "/v1/inbox/1?mailbox=ann@boxes.test", `{"is_read":false}`, false},
		{"POST", "/v1/inbox/bulk-delete", `{"messages":[{"uid":"9","mailbox":"ann@boxes.test"}]}`, false},
	} {
		for role, token := range tokens {
			r := b.with(token).do(tc.method, tc.path, strings.Replace(tc.body, "ROLE", role, 1))
			switch {
			case role == "reader" && tc.method != "GET":
				r.fails(403, "insufficient_scope")
			case role == "member" && tc.managers:
				r.fails(403, "forbidden_role")
			case r.status >= 300:
				t.Errorf("%s as %s: %d %s", tc.path, role, r.status, r.raw)
			}
		}
	}
	b.with(tokens["member"]).remove("/v1/email-users/"+id).fails(403, "forbidden_role")
	b.with(tokens["admin"]).remove("/v1/email-users/" + id).is(200)
}

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
	if _, err := b.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "one@boxes.test", Password: r.text("users.0.password"), IP: "127.0.0.1"}); err != nil {
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

const generateNames = "/v1/email-users/generate-names"

func TestGenerateNames(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post(generateNames, nil).is(200).has("count", "10", "data.0.email", "<nil>", "data.0.available", "<nil>")
	for i := range 10 {
		item := fmt.Sprintf("data.%d.", i)
		if r.text(item+"name") != r.text(item+"first_name")+" "+r.text(item+"last_name") {
			t.Errorf("item %d of %s", i, r.raw)
		}
	}
	seeded := b.post(generateNames, `{"count":100,"seed":42,"locale":"de-AT"}`).is(200).has("count", "100")
	if again := b.post(generateNames, `{"seed":42,"locale":"DE","count":100}`); string(again.raw) != string(seeded.raw) {
		t.Error("the same seed has another answer")
	}
	if other := b.post(generateNames, `{"count":100,"seed":43,"locale":"de"}`); string(other.raw) == string(seeded.raw) {
		t.Error("another seed has the same answer")
	}
	seen := map[string]bool{}
	for _, name := range seeded.list("data", "username") {
		if seen[name] || !regexp.MustCompile(`^[a-z][a-z0-9.]{0,63}$`).MatchString(name) {
			t.Errorf("username %q is there twice, or is none", name)
		}
		seen[name] = true
	}
}

func TestGenerateNamesOfADomain(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann.lee")
	ask := `{"domain":"%s","first_name":"Ann","last_name":"Lee","styles":["first.last","f.last"],"count":2,"seed":1}`
	for _, domain := range []string{"BOXES.test", b.domain} {
		r := b.post(generateNames, fmt.Sprintf(ask, domain)).is(200).has("count", "2", "data.0.name", "Ann Lee")
		for i := range 2 {
			item := fmt.Sprintf("data.%d.", i)
			username := r.text(item + "username")
			r.has(item+"email", username+"@boxes.test", item+"available", fmt.Sprint(username != "ann.lee"))
		}
	}
	foreign := b.Account(t, "other@example.test")
	b.Domain(t, foreign.AccountID, "foreign.test", "builtin", "complete")
	for _, domain := range []string{"unheard.test", "foreign.test"} {
		b.post(generateNames, fmt.Sprintf(ask, domain)).is(200).has("data.0.available", "<nil>", "data.0.email", "ann.lee@"+domain, "data.1.email", "a.lee@"+domain)
	}
	for _, domain := range []string{"no domain", "dom_none", "a..b"} {
		b.post(generateNames, fmt.Sprintf(ask, domain)).fails(400, "invalid_domain")
	}
}

func TestGenerateNamesOfOnePerson(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post(generateNames, `{"first_name":"Zoë","last_name":"O'Neil","styles":["firstlast"],"count":100,"exclude":["ZOEONEIL"]}`).is(200).has("count", "100", "data.0.first_name", "Zoë")
	for _, name := range r.list("data", "username") {
		if !regexp.MustCompile(`^zoeoneil\d+$`).MatchString(name) {
			t.Errorf("username %q", name)
		}
	}
	r = b.post(generateNames, `{"first_name":"Zoë","styles":["first.l"],"locale":"sv"}`).is(200)
	for _, name := range r.list("data", "username") {
		if !regexp.MustCompile(`^zoe\.[a-z]\d*$`).MatchString(name) {
			t.Errorf("username %q", name)
		}
	}
	long := strings.Repeat("x", 100)
	r = b.post(generateNames, map[string]any{"first_name": long, "last_name": long, "styles": []string{"first.last"}, "count": 3}).is(200).has("count", "3")
	for _, name := range r.list("data", "username") {
		b.post("/v1/email-users", map[string]any{"username": name, "domain": "boxes.test"}).is(201)
	}
}

func TestGenerateNamesRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	for body, field := range map[string]string{
		`{"count":0}`: "count", `{"count":101}`: "count", `{"count":"ten"}`: "count", `{"count":1.5}`: "count",
		`{"locale":"tlh"}`: "locale", `{"locale":7}`: "locale", `{"styles":[]}`: "styles", `{"styles":["odd"]}`: "styles",
		`{"styles":"first"}`: "styles", `{"seed":"x"}`: "seed", `{"seed":99999999999999999999}`: "seed", `{"exclude":"x"}`: "exclude",
		`{"first_name":"李"}`: "first_name", `{"last_name":"..."}`: "last_name", `{"last_name":"a\u0001"}`: "last_name",
		`{"first_name":"` + strings.Repeat("x", 101) + `"}`: "first_name",
	} {
		b.post(generateNames, body).fails(400, "validation_error").has("error.details.0.field", field)
	}
	b.post(generateNames, `{"exclude":["`+strings.Repeat(`a","`, 10_000)+`a"]}`).fails(400, "too_many_items")
	b.post(generateNames, `{"count":1}x`).fails(400, "invalid_json")
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).post(generateNames, nil).is(200)
}

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

// TestExternalInbox: a mailbox that lives elsewhere answers as one that lives here, is changed
// where it lives first, and a server that is down is a 502 that names it.
func TestExternalInbox(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remote := pulltest.Serve(t, ln)
	remote.Change(func() {
		for n := range 4 {
			remote.Add(fmt.Sprintf("From: A <a@far.test>\r\nTo: me@away.test\r\nSubject: m%d\r\n\r\nhello\r\n", n))
		}
	})
	b := newSandbox(t, nil)
	b.Domain(t, b.Owner.AccountID, "away.test", "external", "complete")
	imap := fmt.Sprintf(`"imap":{"host":"127.0.0.1","port":%d,"security":"none","username":"me","password":"s3cret"}`, remote.Port)
	id := b.post("/v1/email-users", `{"email":"me@away.test","type":"external",`+imap+`}`).is(201).text("id")
	inbox := "/v1/email-users/" + id + "/inbox"
	b.get(inbox).is(200).has("pagination.count", "0", "synced_at", "<nil>")
	b.post(inbox+"/refresh", nil).is(200).has("email", "me@away.test")
	b.until("/v1/jobs?type=inbox_sync", "data.0.status", "completed")
	b.get("/v1/jobs?type=inbox_sync").has("data.0.progress.completed", "4", "data.0.progress.percent", "100")
	list := b.get(inbox).is(200)
	list.has("pagination.count", "4", "data.0.subject", "m3", "data.0.uid", "4", "data.0.uid_validity", "7")
	for _, problem := range compare("external inbox", list.json, parseShape(long(messageShape)+" synced_at|null")) {
		t.Error(problem)
	}
	if list.text("synced_at") == "<nil>" {
		t.Error("synced_at is null after a sync")
	}
	b.get("/v1/events?type=email.received").has("pagination.count", "0")

	b.patch(inbox+"/4", `{"is_read":true}`).is(200).has("is_read", "true", "uid", "4", "mailbox", "me@away.test")
	if m := remote.Find(4); strings.Join(m.Flags, " ") != `\Seen` {
		t.Errorf("flags there: %q", m.Flags)
	}
	b.get(inbox+"/4").has("is_read", "true")
	b.patch(inbox+"/4", `{"is_flagged":true}`).is(200).has("is_flagged", "true", "is_read", "true")
	b.post("/v1/inbox/bulk-mark", `{"is_read":true,"messages":[{"uid":"1","mailbox":"me@away.test"},{"uid":"2","mailbox":"me@away.test"},
		{"uid":"2","mailbox":"me@away.test"},{"uid":"9","mailbox":"me@away.test"}]}`).is(200).has("marked", "3", "failed", "1", "errors.0.uid", "9")
	if got := fmt.Sprint(remote.Find(1).Flags, remote.Find(2).Flags, remote.Find(4).Flags); got != `[\Seen] [\Seen] [\Seen \Flagged]` {
		t.Errorf("flags there: %s", got)
	}
	if n := remote.Count("UID STORE 1:2"); n != 1 {
		t.Errorf("%d commands marked two messages", n)
	}
	remote.Change(func() {
		remote.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
			if verb == "UID STORE" { // and changes nothing
				fmt.Fprintf(w, "%s OK done\r\n", tag)
			}
			return verb == "UID STORE"
		}
	})
	b.patch(inbox+"/4", `{"is_flagged":false}`).fails(502, "upstream_error")
	b.post("/v1/inbox/bulk-mark", `{"is_read":false,"messages":[{"uid":"4","mailbox":"me@away.test"}]}`).is(200).has("marked", "0", "failed", "1")
	remote.Change(func() { remote.Manners = nil })
	b.get(inbox+"/4").has("is_flagged", "true", "is_read", "true")
	b.remove("/v1/inbox/3?mailbox=me@away.test").is(200).has("uid", "3")
	b.post("/v1/inbox/bulk-delete", `{"messages":[{"uid":"2","mailbox":"me@away.test"},{"uid":"2","mailbox":"me@away.test"},{"uid":"3","mailbox":"me@away.test"}]}`).
		is(200).has("deleted", "1", "failed", "2")
	if remote.Find(3) != nil || remote.Find(2) != nil {
		t.Error("what was deleted is still there")
	}
	b.get(inbox).has("pagination.count", "2")

	ln.Close()
	b.patch(inbox+"/4", `{"is_read":false}`).fails(502, "upstream_error").has("error.details.0.field", "127.0.0.1")
	b.remove(inbox+"/4").fails(502, "upstream_error")
	b.post("/v1/inbox/bulk-delete", `{"messages":[{"uid":"4","mailbox":"me@away.test"}]}`).is(200).has("deleted", "0", "failed", "1")
	b.post("/v1/inbox/bulk-mark", `{"is_read":false,"messages":[{"uid":"4","mailbox":"me@away.test"}]}`).is(200).has("marked", "0", "failed", "1")
	b.get(inbox).has("pagination.count", "2", "data.0.is_read", "true")
	b.post("/v1/email-users/"+id+"/inbox/send", `{"to":"a@far.test","subject":"s","text":"t"}`).fails(400, "validation_error")
}
