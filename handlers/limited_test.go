package handlers

import (
	"strings"
	"testing"
)

// A member who is limited to some mailboxes sees them alone, by every way.
func TestLimitedMember(t *testing.T) {
	b := newSandbox(t, nil)
	ann, bob, home := b.box("ann"), b.box("bob"), b.box("home")
	b.Put(t, "ann@boxes.test", "From: far@far.test\nSubject: for ann\n\nhello\n", mail{})
	b.Put(t, "bob@boxes.test", "From: far@far.test\nSubject: secret of bob\n\nhello\n", mail{})
	ofBob := b.post("/v1/email-users/"+bob+"/inbox/send", `{"to":"x@far.test","subject":"bob writes","text":"t"}`).is(200).text("recipients.0.id")
	b.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"x@far.test","subject":"ann writes","text":"t"}`).is(200)
	job := b.post("/v1/email-users/"+bob+"/export", `{"format":"mbox"}`).is(202).text("job_id")

	// The invitation says what they read, and is mailed.
	b.post(users+"/invite", `{"email":"x@team.test","role":"admin","mailboxes":["`+ann+`"]}`).fails(400, "validation_error").has("error.details.0.field", "mailboxes")
	b.post(users+"/invite", `{"email":"x@team.test","mailboxes":["eu_none"]}`).fails(400, "validation_error").has("error.details.0.field", "mailboxes")
	b.post(users+"/invite", `{"email":"x@team.test","password":"secret word","send_email":true}`).fails(400, "validation_error").has("error.details.0.field", "send_email")
	r := b.post(users+"/invite", `{"email":"home@boxes.test","mailboxes":["`+ann+`"],"send_email":true}`).is(200).has("mailboxes.0", ann)
	if text := r.text("message"); !strings.Contains(text, "They can read and send the mail of ann@boxes.test, and no other mail.") {
		t.Errorf("the invitation says %q", text)
	}
	id := r.text("id")
	web := b.browser()
	web.ask("POST", "/session/welcome", map[string]string{"token": b.linkIn(home, "/reset"), "password": "secret word"}).is(200).has("kind", "team")

	// What is of others is not there.
	web.ask("GET", "/v1/me", nil).is(200).has("mailboxes.0", ann)
	web.ask("GET", "/v1/email-users", nil).is(200).has("pagination.count", "1", "data.0.user_id", ann)
	web.ask("GET", "/v1/domains/"+b.domain+"/email-users", nil).is(200).has("pagination.count", "1")
	web.ask("GET", "/v1/inbox", nil).is(200).has("pagination.count", "1", "data.0.subject", "for ann")
	web.ask("GET", "/v1/inbox?folder=all", nil).is(200).has("pagination.count", "2")
	web.ask("GET", "/v1/inbox?mailbox=bob@boxes.test", nil).is(200).has("pagination.count", "0")
	web.ask("GET", "/v1/inbox?q=secret", nil).is(200).has("pagination.count", "0")
	web.ask("GET", "/v1/messages", nil).is(200).has("pagination.count", "1", "data.0.subject", "ann writes")
	web.ask("GET", "/v1/jobs", nil).is(200).has("pagination.count", "0")
	for _, path := range []string{
		"/v1/email-users/" + bob, "/v1/email-users/" + bob + "/inbox", "/v1/email-users/" + bob + "/inbox/1", "/v1/email-users/" + bob + "/folders",
		"/v1/email-users/" + bob + "/addresses", "/v1/inbox/1?mailbox=bob@boxes.test", "/v1/messages/" + ofBob, "/v1/jobs/" + job, "/session/view/" + bob + "/1", "/session/files/" + bob + "/1/0?as=text",
		"/v1/email-users/" + bob + "/inbox/1/attachments",
	} {
		web.ask("GET", path, nil).fails(404, "not_found")
	}
	web.ask("POST", "/v1/email-users/"+bob+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t"}`).fails(404, "not_found")
	web.ask("POST", "/v1/inbox/bulk-mark", `{"is_read":true,"messages":[{"uid":"1","mailbox":"bob@boxes.test"}]}`).is(200).has("failed", "1")
	for _, path := range []string{"/v1/events", "/v1/messages/lookup?original_message_id=x@y", "/v1/reputation", "/v1/webhooks"} {
		web.ask("GET", path, nil).fails(403, "forbidden_role")
	}
	web.ask("POST", "/v1/email-users/"+ann+"/inbox/send", `{"to":"x@far.test","subject":"s","text":"t"}`).is(200)

	// A token of theirs reaches no further, and the limit can be moved.
	mine := b.with(web.ask("POST", "/v1/auth/tokens", `{"name":"mine","permissions":["read"]}`).is(201).text("token"))
	mine.get("/v1/email-users").is(200).has("pagination.count", "1")
	mine.get("/v1/email-users/"+bob).fails(404, "not_found")
	web.ask("PATCH", users+"/"+id, `{"mailboxes":"all"}`).fails(403, "forbidden_role")
	b.patch(users+"/"+id, `{"mailboxes":["`+ann+`","`+bob+`"]}`).is(200).has("mailboxes.1", bob)
	mine.get("/v1/email-users/" + bob).is(200)
	b.patch(users+"/"+id, `{"mailboxes":["`+bob+`"]}`).is(200)
	b.remove("/v1/email-users/" + bob).is(200)
	b.until("/v1/email-users", "pagination.count", "2")
	web.ask("GET", "/v1/email-users", nil).is(200).has("pagination.count", "0")
	web.ask("GET", "/v1/inbox", nil).is(200).has("pagination.count", "0")
	list := b.get(users).is(200)
	if got := string(list.raw); !strings.Contains(got, `"mailboxes":[]`) || !strings.Contains(got, `"mailboxes":"all"`) {
		t.Errorf("the team: %s", got)
	}
	b.patch(users+"/"+id, `{"role":"admin"}`).is(200).has("mailboxes", "all")
	web.ask("GET", "/v1/email-users/"+ann, nil).is(200)
}
