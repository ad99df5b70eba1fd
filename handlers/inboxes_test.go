package handlers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// pass advances the clock.
func (b *sandbox) pass(by time.Duration) {
	b.t.Helper()
	if _, err := b.AdvanceClock(b.t.Context(), service.AdvanceIn{Seconds: int64(by / time.Second)}); err != nil {
		b.t.Fatal(err)
	}
}

// logsIn reports whether a mail client logs in.
func (b *sandbox) logsIn(email, password string) bool {
	b.t.Helper()
	for _, protocol := range []string{core.ProtocolIMAP, core.ProtocolSMTP} {
		if _, err := b.Mailboxes.LoginMailbox(b.t.Context(), core.MailLogin{Protocol: protocol, Username: email, Password: password, IP: "198.51.100.7"}); err != nil {
			return false
		}
	}
	return true
}

// TestInboxIsDeletedAtItsTime: an inbox works with its password and its token until its time, and
// then nothing of it is left.
func TestInboxIsDeletedAtItsTime(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	r := b.post("/v1/inboxes", nil).is(201)
	if !regexp.MustCompile(`^[a-z0-9]{10}$`).MatchString(r.text("inbox.username")) {
		t.Errorf("the username is %q", r.text("inbox.username"))
	}
	id, email := r.text("inbox.user_id"), r.text("inbox.email")
	r.has("inbox.domain", "boxes.test", "inbox.status", "active", "inbox.send_policy.send", "allow", "credential.protocols", "[imap smtp]", "inbox.expires_at", r.text("expires_at"),
		"mcp_url", "http://127.0.0.1/mcp", "imap.port", "2143", "smtp.port", "2587", "imap.security", "none", "smtp.host", r.text("inbox.smtp_host"))
	left, err := time.Parse(time.RFC3339, r.text("expires_at"))
	if d := left.Sub(b.Core.Now()); err != nil || d > time.Hour || d < 59*time.Minute {
		t.Errorf("it has %s left, %v", d, err)
	}
	if !b.logsIn(email, r.text("password")) {
		t.Error("its password does not log in")
	}
	agent := b.with(r.text("token"))
	if err := b.Arrive(t, "a@far.test", email, strings.ReplaceAll(waitedFor, "%", "welcome")); err != nil {
		t.Fatal(err)
	}
	agent.get("/v1/email-users/"+id+"/inbox/wait?since=2001-02-03").is(200).has("message.subject", "welcome", "code", "482913")
	agent.post("/v1/email-users/"+id+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t"}`).is(200)
	agent.get("/v1/email-users/"+ann).fails(404, "not_found")
	b.get("/v1/auth/tokens").is(200).has("data.0.mailboxes.0", id, "data.0.permissions", "[read write]", "data.0.name", "inbox "+r.text("inbox.username"))

	short := b.post("/v1/inboxes", `{"username":"Short","name":"A test","ttl_seconds":60,"policy":{"send":"reply_only","allowed_recipients":["A@Far.test","@far.test","a@far.test"],"taint":true}}`).is(201)
	short.has("inbox.email", "short@boxes.test", "inbox.name", "A test", "inbox.send_policy.send", "reply_only", "inbox.send_policy.allowed_recipients", "[a@far.test @far.test]",
		"credential.policy.send", "reply_only", "credential.policy.taint", "true", "credential.policy.taint_seconds", "<nil>")
	b.get("/v1/auth/tokens").is(200).has("data.0.policy.taint", "true", "data.0.policy.allowed_recipients", "[a@far.test @far.test]", "data.1.policy.taint", "false")
	kept := b.post("/v1/inboxes", `{"username":"kept","ttl_seconds":60}`).is(201)
	b.patch("/v1/email-users/"+kept.text("inbox.user_id"), `{"expires_at":null}`).is(200).has("expires_at", "<nil>")
	b.patch("/v1/email-users/"+id, `{"expires_at":"2020-01-01T00:00:00Z"}`).fails(400, "validation_error").has("error.details.0.field", "expires_at")
	b.patch("/v1/email-users/"+id, `{"expires_at":"soon"}`).fails(400, "validation_error").has("error.details.0.field", "expires_at")
	b.patch("/v1/email-users/"+ann, `{"expires_at":"`+b.Core.Now().Add(90*time.Minute).Format(time.RFC3339)+`"}`).is(200)
	b.patch("/v1/email-users/"+id, `{"expires_at":"`+b.Core.Now().Add(2*time.Hour).Format(time.RFC3339)+`"}`).is(200)

	b.pass(61 * time.Second)
	b.until("/v1/events?type=email_user.deleted", "pagination.count", "1").has("data.0.data.email", "short@boxes.test")
	b.get("/v1/email-users/"+short.text("inbox.user_id")).fails(404, "not_found")
	b.with(short.text("token")).get("/v1/inbox").fails(401, "token_revoked")
	if b.logsIn("short@boxes.test", short.text("password")) {
		t.Error("the password of a deleted inbox logs in")
	}
	b.get("/v1/jobs").is(200).has("data.0.type", "email_user_delete", "data.0.resource.name", "short@boxes.test")
	b.post("/v1/inboxes", `{"username":"short","ttl_seconds":60}`).is(201) // its address is free

	b.pass(time.Hour) // the first one's time was moved
	b.until("/v1/events?type=email_user.deleted", "pagination.count", "2").has("data.0.data.email", "short@boxes.test")
	agent.get("/v1/inbox").is(200).has("pagination.count", "1")
	b.pass(time.Hour)
	b.until("/v1/events?type=email_user.deleted", "pagination.count", "4")
	agent.get("/v1/inbox").fails(401, "token_revoked")
	for _, gone := range []string{id, ann} { // ann was no inbox, and got a time
		b.get("/v1/email-users/"+gone).fails(404, "not_found")
	}
	b.with(kept.text("token")).get("/v1/inbox").is(200)
	if !b.logsIn("kept@boxes.test", kept.text("password")) {
		t.Error("an inbox that was kept does not log in")
	}
	if n := b.Access(t, id); n != 0 {
		t.Errorf("%d credentials and tokens of a deleted inbox are left", n)
	}
	b.pass(8 * 24 * time.Hour)
	if _, err := b.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	agent.get("/v1/inbox").fails(401, "unauthorized") // no trace of it is left
	b.with(kept.text("token")).get("/v1/inbox").is(200)
}

// TestInboxThatCannotBe: a refused create_inbox leaves no rows.
func TestInboxThatCannotBe(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.Limits.MailboxesPerDomain = 2 })
	b.post("/v1/domains/connect", `{"domains":["outside.test"],"external":true}`).is(200)
	b.post("/v1/domains/connect", `{"domains":["later.test"],"manual_dns":true}`).is(200)
	b.post("/v1/inboxes", `{"username":"taken"}`).is(201) // the external one and the one that is not set up do not count
	long := `["` + strings.Repeat(`a@far.test","`, 100) + `b@far.test"]`
	for _, c := range []struct{ body, code, field string }{
		{`{"ttl_seconds":59}`, "validation_error", "ttl_seconds"}, {`{"ttl_seconds":2592001}`, "validation_error", "ttl_seconds"}, {`{"ttl_seconds":100.5}`, "validation_error", "ttl_seconds"},
		{`{"username":"a b"}`, "validation_error", "username"}, {`{"username":"postmaster"}`, "validation_error", "username"}, {`{"name":"a\nb"}`, "validation_error", "name"},
		{`{"domain":"none.test"}`, "validation_error", "domain"}, {`{"domain":"outside.test"}`, "validation_error", "domain"},
		{`{"policy":{"send":"most"}}`, "validation_error", "policy.send"}, {`{"policy":{"send":"deny","taint_seconds":3599}}`, "validation_error", "policy.taint_seconds"}, {`{"policy":{"taint":true,"taint_seconds":3600}}`, "validation_error", "policy.taint_seconds"},
		{`{"policy":{"send":"deny","taint_seconds":31536001}}`, "validation_error", "policy.taint_seconds"}, {`{"policy":{"allowed_recipients":["@"]}}`, "validation_error", "policy.allowed_recipients"},
		{`{"policy":{"trusted_senders":["far.test"]}}`, "validation_error", "policy.trusted_senders"}, {`{"policy":{"trusted_senders":` + long + `}}`, "too_many_items", "policy.trusted_senders"},
		{`{"policy":{"allowed_recipients":` + long + `}}`, "too_many_items", "policy.allowed_recipients"},
	} {
		b.post("/v1/inboxes", c.body).fails(400, c.code).has("error.details.0.field", c.field)
	}
	b.post("/v1/inboxes", `{"username":"taken"}`).fails(409, "email_user_exists")
	b.post("/v1/inboxes", `{"domain":"later.test"}`).fails(409, "domain_not_ready")
	b.with(b.Token(t, b.Owner.AccountID, "member", "write")).post("/v1/inboxes", nil).fails(403, "forbidden_role")
	b.with(b.Token(t, b.Owner.AccountID, "owner", "read")).post("/v1/inboxes", nil).fails(403, "insufficient_scope")
	b.get("/v1/email-users").is(200).has("pagination.count", "1")
	b.post("/v1/inboxes", nil).is(201)
	b.post("/v1/inboxes", nil).fails(403, "email_user_limit_exceeded")
	b.Domain(t, b.Owner.AccountID, "second.test", "builtin", "complete")
	b.post("/v1/inboxes", nil).fails(400, "domain_required").has("error.details.0.field", "domain")
	b.post("/v1/inboxes", `{"domain":"second.test"}`).is(201)
	b.with(b.Account(t, "other@example.test").Token).post("/v1/inboxes", nil).fails(400, "domain_required")
	b.get("/v1/auth/tokens").is(200).has("count", "6") // the account's, two of members, and three of inboxes
}

// TestInboxOnce: a key makes one inbox, whose secrets the second answer has too; an assistant gets
// none of them.
func TestInboxOnce(t *testing.T) {
	b := newSandbox(t, nil)
	first := b.do("POST", "/v1/inboxes", `{}`, "Idempotency-Key", "k").is(201)
	again := b.do("POST", "/v1/inboxes", `{}`, "Idempotency-Key", "k").is(201)
	if string(first.raw) != string(again.raw) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the answers are %s and %s", first.raw, again.raw)
	}
	b.get("/v1/email-users").is(200).has("pagination.count", "1")

	a := b.assistant(b.token)
	made := a.call("create_inbox", map[string]any{"username": "tool"}).is(200).has("inbox.email", "tool@boxes.test")
	if _, ok := made.at("token"); ok || made.text("password") != "" || !strings.HasPrefix(made.text("_notice"), "Secrets are left out here.") {
		t.Errorf("the tool says %s", made.raw)
	}
	if regexp.MustCompile(`mst_[0-9A-Za-z]{46}`).MatchString(a.everything()) {
		t.Error("an assistant got a token")
	}
	b.with(first.text("token")).post("/v1/inboxes", nil).fails(403, "forbidden_role")
	if tools := b.assistant(first.text("token")).tools(); tools["create_inbox"] != nil || tools["wait_for_any_message"] == nil || tools["list_inbox"] == nil || tools["list_domains"] != nil {
		t.Error("the tools of an inbox's token are others")
	}
}

// TestTokenOfMailboxes: a token that is limited to mailboxes reaches these alone, by every way, and
// goes with the last of them.
func TestTokenOfMailboxes(t *testing.T) {
	b := newSandbox(t, nil)
	ann, bob, cat := b.box("ann"), b.box("bob"), b.box("cat")
	for _, c := range []struct{ body, code string }{
		{`{"mailboxes":[]}`, "validation_error"}, {`{"mailboxes":["eu_none"]}`, "validation_error"}, {`{"mailboxes":[null]}`, "validation_error"}, {`{"mailboxes":"all"}`, "validation_error"},
		{`{"mailboxes":["` + ann + `","eu_none"]}`, "validation_error"},
		{`{"mailboxes":["eu_` + strings.Join(numbers(201), `","eu_`) + `"]}`, "too_many_items"},
	} {
		b.post("/v1/auth/tokens", c.body).fails(400, c.code).has("error.details.0.field", "mailboxes")
	}
	b.post("/v1/auth/tokens", `{"policy":{"send":"none"}}`).fails(400, "validation_error").has("error.details.0.field", "policy.send")
	foreign := b.with(b.Account(t, "other@example.test").Token)
	foreign.post("/v1/auth/tokens", `{"mailboxes":["`+ann+`"]}`).fails(400, "validation_error")
	b.post("/v1/auth/tokens", `{"mailboxes":null}`).is(201).has("mailboxes", "<nil>", "policy.send", "allow", "tainted", "<nil>")
	made := b.post("/v1/auth/tokens", `{"name":"two","mailboxes":["`+ann+`","`+bob+`","`+ann+`"]}`).is(201).has("mailboxes", "["+ann+" "+bob+"]")
	two, one := b.with(made.text("token")), b.with(b.post("/v1/auth/tokens", `{"name":"one","mailboxes":["`+ann+`"]}`).is(201).text("token"))

	for _, name := range []string{"ann", "bob", "cat"} {
		if err := b.Arrive(t, "a@far.test", name+"@boxes.test", strings.ReplaceAll(waitedFor, "%", "for "+name)); err != nil {
			t.Fatal(err)
		}
	}
	ofCat := b.post("/v1/email-users/"+cat+"/inbox/send", `{"to":"x@far.test","subject":"cat writes","text":"t"}`).is(200).text("recipients.0.id")
	two.post("/v1/email-users/"+bob+"/inbox/send", `{"to":"x@far.test","subject":"bob writes","text":"t"}`).is(200)
	jobOfCat := b.post("/v1/email-users/"+cat+"/export", `{"format":"mbox"}`).is(202).text("job_id")
	jobOfBob := b.post("/v1/email-users/"+bob+"/export", `{"format":"mbox"}`).is(202).text("job_id")
	jobOfDomain := b.post("/v1/domains/setup", `{"domain":"more.test"}`).is(202).text("job_id") // by the token's own user

	two.get("/v1/me").is(200).has("mailboxes", "["+ann+" "+bob+"]")
	if got := two.get("/v1/inbox").is(200).list("data", "mailbox"); slices.Contains(got, "cat@boxes.test") || len(got) != 2 {
		t.Errorf("the inbox is of %q", got)
	}
	if got := two.get("/v1/inbox?folder=all&q=for").is(200).list("data", "mailbox"); len(got) != 2 {
		t.Errorf("the search finds mail of %q", got)
	}
	two.get("/v1/messages").is(200).has("pagination.count", "1", "data.0.subject", "bob writes")
	if got := two.get("/v1/jobs").is(200).list("data", "id"); !slices.Equal(got, []string{jobOfBob}) {
		t.Errorf("the jobs are %q", got)
	}
	two.get("/v1/jobs/" + jobOfBob).is(200)
	for _, path := range []string{
		"/v1/email-users/" + cat, "/v1/email-users/" + cat + "/inbox", "/v1/email-users/" + cat + "/inbox/1", "/v1/email-users/" + cat + "/inbox/wait", "/v1/email-users/" + cat + "/folders",
		"/v1/email-users/" + cat + "/rules", "/v1/email-users/" + cat + "/credentials", "/v1/inbox/1?mailbox=cat@boxes.test", "/v1/messages/" + ofCat, "/v1/jobs/" + jobOfCat, "/v1/jobs/" + jobOfDomain,
	} {
		two.get(path).fails(404, "not_found")
	}
	for _, path := range []string{"/v1/domains", "/v1/email-users", "/v1/account", "/v1/events", "/v1/webhooks", "/v1/auth/tokens", "/v1/groups", "/v1/message-templates", "/v1/audit", "/v1/reputation"} {
		two.get(path).fails(403, "forbidden_role")
	}
	for _, c := range [][2]string{
		{"POST", "/v1/auth/tokens"}, {"POST", "/v1/inboxes"}, {"POST", "/v1/email-users"}, {"PATCH", "/v1/email-users/" + ann}, {"DELETE", "/v1/email-users/" + ann}, {"POST", "/v1/email-users/" + ann + "/credentials"},
		{"POST", "/v1/email-users/" + ann + "/rules"}, {"PUT", "/v1/email-users/" + ann + "/vacation"}, {"POST", "/v1/email-users/" + ann + "/export"}, {"POST", "/v1/auth/tokens/x/clear-taint"},
	} {
		two.do(c[0], c[1], `{"name":"x","expires_at":null}`).fails(403, "forbidden_role")
	}
	// The order of a walk is that of arrival; cat's message is not in it.
	got := two.get("/v1/inbox/wait?since=2001-02-03").is(200).has("message.subject", "for ann")
	got = two.get("/v1/inbox/wait?since="+got.text("now")).is(200).has("message.subject", "for bob")
	two.get("/v1/inbox/wait?timeout=1&since="+got.text("now")).is(200).has("message", "<nil>")
	one.get("/v1/inbox/wait?timeout=1&subject=bob&since=2001-02-03").is(200).has("message", "<nil>")

	heard := two.listen()
	b.patch("/v1/email-users/"+cat, `{"name":"Cat"}`).is(200)
	b.patch("/v1/domains/"+b.domain, `{"notes":"n"}`).is(200)
	b.patch("/v1/email-users/"+ann, `{"name":"Ann"}`).is(200)
	if changes := heard.hears("mailbox", ann); len(changes) != 1 {
		t.Errorf("the stream tells of %v", changes)
	}
	heard.body.Close()
	tainted := b.post("/v1/auth/tokens", `{"mailboxes":["`+ann+`"],"policy":{"taint":true}}`).is(201)
	b.Taint(t, tainted.text("id"), ann, "thread")
	b.with(tainted.text("token")).get(streamPath).fails(403, "tainted")

	// It may do what its permissions and its creator's role allow.
	b.with(b.post("/v1/auth/tokens", `{"permissions":["read"],"mailboxes":["`+ann+`"]}`).is(201).text("token")).
		post("/v1/email-users/"+ann+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t"}`).fails(403, "insufficient_scope")
	member := b.with(b.Token(t, b.Owner.AccountID, "member", "write"))
	ofMember := b.with(member.post("/v1/auth/tokens", `{"mailboxes":["`+ann+`"]}`).is(201).text("token"))
	ofMember.get("/v1/email-users/" + ann + "/inbox").is(200)
	ofMember.get("/v1/email-users/"+ann+"/credentials").fails(403, "forbidden_role")

	// A deleted mailbox leaves the list at once, and who waits for mail of others goes on.
	go func() {
		time.Sleep(100 * time.Millisecond)
		b.do("DELETE", "/v1/email-users/"+ann, nil)
		if err := b.Arrive(t, "a@far.test", "bob@boxes.test", strings.ReplaceAll(waitedFor, "%", "later")); err != nil {
			t.Error(err)
		}
	}()
	two.get("/v1/inbox/wait?timeout=20&subject=later").is(200).has("message.subject", "later")
	one.get("/v1/inbox").fails(401, "token_revoked")
	ofMember.get("/v1/inbox").fails(401, "token_revoked")
	two.get("/v1/me").is(200).has("mailboxes", "["+bob+"]")
	list := b.get("/v1/auth/tokens").is(200)
	if names := list.list("data", "name"); slices.Contains(names, "one") || !slices.Contains(names, "two") {
		t.Errorf("the tokens are %q", names)
	}
	list.has(fmt.Sprintf("data.%d.mailboxes", slices.Index(list.list("data", "name"), "two")), "["+bob+"]")
	b.post("/v1/auth/tokens", `{"mailboxes":["`+ann+`"]}`).fails(400, "validation_error") // while it is deleted, too
	b.post("/v1/email-users/bulk-delete", `{"user_ids":["`+bob+`"]}`).is(200)
	two.get("/v1/inbox").fails(401, "token_revoked")
}

// numbers are so many texts.
func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// TestTaintIsClearedByAPerson: tokens and credentials that are tainted show it, and a person who is
// signed in ends it.
func TestTaintIsClearedByAPerson(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	policy := `"policy":{"taint":true}`
	made := b.post("/v1/auth/tokens", `{"name":"agent",`+policy+`}`).is(201)
	token := made.text("id")
	ofAnn := b.post("/v1/email-users/"+ann+"/credentials", `{"name":"phone","protocols":["imap","api"],`+policy+`}`).is(201)
	ofDomain := b.post("/v1/domains/"+b.domain+"/smtp-credentials", `{"name":"shop",`+policy+`}`).is(201)
	paths := map[string]string{
		"/v1/auth/tokens":                               "/v1/auth/tokens/" + token,
		"/v1/email-users/" + ann + "/credentials":       "/v1/email-users/" + ann + "/credentials/" + ofAnn.text("id"),
		"/v1/domains/" + b.domain + "/smtp-credentials": "/v1/domains/" + b.domain + "/smtp-credentials/" + ofDomain.text("id"),
	}
	b.Taint(t, token, ann, "thread")
	b.Taint(t, ofAnn.text("id"), ann, "thread")
	b.Taint(t, ofDomain.text("id"), "", "")
	member, web := b.browser(), b.browser().signIn()
	b.post(users+"/invite", `{"email":"m@team.test","password":"of the team"}`).is(200)
	member.ask("POST", "/session", map[string]string{"email": "m@team.test", "password": "of the team"}).is(200)
	row := func(list, id string) *reply {
		t.Helper()
		r := b.get(list).is(200)
		at := slices.Index(r.list("data", "id"), id)
		r.json, _ = r.at(fmt.Sprintf("data.%d", at))
		return r
	}
	for list, path := range paths {
		id := path[strings.LastIndexByte(path, '/')+1:]
		if since, err := time.Parse(time.RFC3339, row(list, id).text("tainted.since")); err != nil || b.Core.Now().Sub(since) > time.Minute {
			t.Errorf("%s is tainted since %s", list, since)
		}
		if list != "/v1/domains/"+b.domain+"/smtp-credentials" {
			row(list, id).has("tainted.user_id", ann, "tainted.thread_id", "thread")
		}
		clear := path + "/clear-taint"
		b.post(clear, nil).fails(403, "person_required")
		b.with(b.Token(t, b.Owner.AccountID, "admin", "admin")).post(clear, nil).fails(403, "person_required")
		b.with(b.Token(t, b.Owner.AccountID, "owner", "write")).post(clear, nil).fails(403, "insufficient_scope")
		member.ask("POST", clear, nil).fails(403, "insufficient_scope")
		b.browser().signInTo("ann@boxes.test", "correct horse").ask("POST", clear, nil).fails(403, "forbidden_role")
		b.do("POST", clear, nil, "Cookie", "x=y").fails(403, "person_required")
		web.ask("POST", strings.Replace(path, id, "none", 1)+"/clear-taint", nil).fails(404, "not_found")
		web.ask("GET", clear, nil).fails(405, "method_not_allowed")
		web.ask("POST", clear, nil).is(200).has("id", id, "tainted", "<nil>", "policy.taint", "true")
		row(list, id).has("tainted", "<nil>")
		action := map[bool]string{true: "clear_token_taint", false: "clear_credential_taint"}[list == "/v1/auth/tokens"]
		if strings.Contains(list, "smtp") {
			action = "clear_smtp_credential_taint"
		}
		b.get("/v1/audit?action="+action).is(200).has("pagination.count", "1", "data.0.via", "dashboard", "data.0.target.id", id, "data.0.actor.type", "user")
	}
	web.ask("POST", "/v1/auth/tokens/"+token+"/clear-taint", nil).is(200) // again does no harm
}

// TestSendPolicyOfAMailbox: owner and admin set and take away what may be sent from a mailbox, and
// when it is deleted; a token that is bound does neither.
func TestSendPolicyOfAMailbox(t *testing.T) {
	b := newSandbox(t, nil)
	path, later := "/v1/email-users/"+b.box("ann"), soon(2)
	b.get(path).is(200).has("send_policy.send", "allow", "send_policy.allowed_recipients", "[]", "expires_at", "<nil>")
	b.patch(path, `{"send_policy":{"send":"approval","allowed_recipients":[" X@Far.test ","@FAR.test"]}}`).is(200).has("send_policy.send", "approval", "send_policy.allowed_recipients", "[x@far.test @far.test]")
	b.patch(path, `{"name":"Ann"}`).is(200).has("send_policy.send", "approval")
	for _, c := range [][2]string{
		{`{"send_policy":{"send":"some"}}`, "send_policy.send"}, {`{"send_policy":{"allowed_recipients":["far"]}}`, "send_policy.allowed_recipients"}, {`{"send_policy":"deny"}`, "send_policy"},
		{`{"send_policy":{"send":1}}`, "send_policy.send"}, {`{"expires_at":"` + soon(-1) + `"}`, "expires_at"}, {`{"expires_at":7}`, "expires_at"},
	} {
		b.patch(path, c[0]).fails(400, "validation_error").has("error.details.0.field", c[1])
	}
	b.patch(path, `{"send_policy":{"allowed_recipients":["@`+strings.Join(numbers(101), `.test","@`)+`.test"]}}`).fails(400, "too_many_items").has("error.details.0.field", "send_policy.allowed_recipients")
	b.with(b.Token(t, b.Owner.AccountID, "admin", "write")).patch(path, `{"send_policy":{"send":"deny"},"expires_at":"`+later+`"}`).is(200).has("send_policy.send", "deny", "send_policy.allowed_recipients", "[]")
	b.with(b.Token(t, b.Owner.AccountID, "member", "write")).patch(path, `{"send_policy":null}`).fails(403, "forbidden_role")
	bound := b.with(b.post("/v1/auth/tokens", `{"policy":{"send":"reply_only"}}`).is(201).text("token"))
	for _, body := range []string{`{"name":"Anna"}`, `{"footer":"x"}`, `{"signature":"x"}`, `{"quota_bytes":null}`, `{"send_policy":null}`, `{"expires_at":null}`, `{"name":"Ann","expires_at":"` + later + `"}`, `{"send_policy":{"send":"deny"}}`} {
		bound.patch(path, body).fails(403, "forbidden_role")
	}
	b.browser().signInTo("ann@boxes.test", "correct horse").ask("GET", "/v1/me", nil).is(200).has("mailbox.send_policy.send", "deny")
	b.patch(path, `{"send_policy":null,"expires_at":null}`).is(200).has("send_policy.send", "allow", "expires_at", "<nil>", "name", "Ann")
	b.get("/v1/audit?action=update_email_user").is(200).has("data.0.fields", "[send_policy expires_at]")
	b.post("/v1/auth/tokens", `{"kind":"oauth"}`).fails(400, "validation_error").has("error.details.0.field", "kind")
}
