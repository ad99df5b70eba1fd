package handlers

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofMailboxes are the operations that the person of a mailbox may call, as the contract has them.
const ofMailboxes = `list_rules create_rule update_rule delete_rule test_rules get_vacation set_vacation delete_vacation suggest_addresses unsubscribe_message answer_invitation create_draft update_draft send_draft list_folders create_folder update_folder delete_folder bulk_move_messages list_credentials create_credential delete_credential
	get_me update_me change_my_password send_email_batch update_scheduled_message import_messages export_messages
	get_email_user wait_for_message list_email_user_inbox refresh_email_user_inbox get_message get_message_raw get_message_attachment get_message_attachments mark_message delete_message
	list_inbox get_inbox_message mark_inbox_message delete_inbox_message bulk_mark_messages bulk_delete_messages send_email list_messages get_sent_message
	retry_message cancel_message list_jobs get_job`

// signInTo signs in to a mailbox.
func (b *browser) signInTo(email, password string) *browser {
	b.t.Helper()
	b.ask("POST", "/session", map[string]string{"email": email, "password": password}).is(200)
	return b
}

// TestMailboxSession: the person of a mailbox signs in with its password and reaches that mailbox:
// every other operation is 403, everything of a neighbour 404, and no answer holds a word of either
// the account or the neighbour.
func TestMailboxSession(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.post("/v1/email-users", `{"email":"ann@boxes.test","password":"correct horse","name":"Ann"}`).is(201).text("user_id")
	bob := b.post("/v1/email-users", `{"email":"bob@boxes.test","password":"battery staple","name":"Secretive Bob"}`).is(201).text("user_id")
	b.Put(t, "ann@boxes.test", "From: far@far.test\nSubject: for ann\n\nhello\n", mail{})
	b.Put(t, "bob@boxes.test", "From: far@far.test\nSubject: secret of bob\n\nhello\n", mail{})
	ofBob := b.post("/v1/email-users/"+bob+"/inbox/send", `{"to":"x@far.test","subject":"bob writes","text":"t"}`).is(200).text("recipients.0.id")
	ofAnn := b.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"x@far.test","subject":"ann writes","text":"t"}`).is(200).text("recipients.0.id")
	job := b.post("/v1/email-users/"+bob+"/export", `{"format":"mbox"}`).is(202).text("job_id")
	folder := b.post("/v1/email-users/"+bob+"/folders", `{"name":"Hidden"}`).is(201).text("id")
	credential := b.post("/v1/email-users/"+bob+"/credentials", `{"name":"Bob's phone"}`).is(201).text("id")

	web := b.browser()
	web.ask("POST", "/session", map[string]string{"email": "ann@boxes.test", "password": "wrong"}).fails(401, "invalid_credentials")
	web.ask("POST", "/session", map[string]string{"email": "ann@boxes.test", "password": "correct horse", "as": "team"}).fails(401, "invalid_credentials")
	in := web.ask("POST", "/session", map[string]string{"email": "Ann@Boxes.test", "password": "correct horse"}).is(200)
	in.has("kind", "mailbox").has("mailbox.user_id", ann).has("mailbox.email", "ann@boxes.test").has("user", "<nil>").has("account", "<nil>")
	web.ask("GET", "/session", nil).is(200).has("kind", "mailbox").has("user", "<nil>")
	web.ask("GET", "/v1/me", nil).is(200).has("kind", "mailbox").has("mailbox.email", "ann@boxes.test").has("mailboxes.0", ann).has("user", "<nil>")
	b.get("/v1/me").is(200).has("kind", "team").has("mailboxes", "all").has("mailbox", "<nil>")
	web.ask("PATCH", "/session/profile", map[string]string{"name": "x"}).fails(403, "forbidden_role")

	// Each operation, about the neighbour's things, or about none where there are none.
	ids := strings.NewReplacer("{user_id}", bob, "{job_id}", job, "{folder_id}", folder, "{credential_id}", credential, "{message_id}", "1", "{index}", "0", "{id}", ofBob)
	other := regexp.MustCompile(`\{\w+\}`)
	allowed := strings.Fields(ofMailboxes)
	bodies := map[string]string{
		"answer_invitation": `{"answer":"accepted"}`, "create_draft": `{"subject":"s"}`, "create_rule": `{"name":"x","actions":[{"type":"stop"}]}`, "update_rule": `{"name":"x"}`, "test_rules": `{"message_id":"1"}`, "set_vacation": `{"enabled":false}`, "update_draft": `{"subject":"s"}`,
		"send_email": `{"to":"x@far.test","subject":"s","text":"t"}`, "send_email_batch": `{"messages":[{"to":"x@far.test","subject":"s","text":"t"}]}`,
		"create_folder": `{"name":"x"}`, "update_folder": `{"name":"x"}`, "create_credential": `{"name":"x"}`, "mark_message": `{"is_read":true}`, "mark_inbox_message": `{"is_read":true}`,
		"export_messages": `{"format":"mbox"}`, "update_scheduled_message": `{"send_at":"` + soon(1) + `"}`,
		"import_messages":      `{"imap":{"host":"far.test","port":993,"security":"tls","username":"a","password":"b"}}`,
		"bulk_mark_messages":   `{"is_read":true,"messages":[{"uid":"1","mailbox":"bob@boxes.test"}]}`,
		"bulk_delete_messages": `{"messages":[{"uid":"1","mailbox":"bob@boxes.test"}]}`, "bulk_move_messages": `{"to":"trash","messages":[{"uid":"1","mailbox":"bob@boxes.test"}]}`,
	}
	own := []string{"get_me", "update_me", "change_my_password", "list_inbox", "list_messages", "list_jobs"} // which name nobody
	for _, o := range b.server.ops {
		path := other.ReplaceAllString(ids.Replace(o.Path), "none")
		if strings.HasPrefix(o.Path, "/v1/inbox/{") {
			path += "?mailbox=bob@boxes.test"
		}
		var body any
		if text := bodies[o.Name]; text != "" {
			body = text
		}
		r := web.ask(o.Method, path, body)
		text := string(r.raw)
		for _, word := range []string{"secret of bob", "Secretive", "bob writes", "Hidden", "Bob's phone", "owner@example.test", b.Owner.AccountID} {
			if strings.Contains(text, word) {
				t.Errorf("%s tells of %s: %s", o.Name, word, text)
			}
		}
		switch {
		case !slices.Contains(allowed, o.Name):
			r.fails(403, "forbidden_role")
		case slices.Contains(own, o.Name):
			if r.status == 403 || r.status == 404 || r.status >= 500 {
				t.Errorf("%s: %d %s", o.Name, r.status, text)
			}
		case strings.HasPrefix(o.Name, "bulk_"):
			r.is(200).has("failed", "1")
		default:
			r.fails(404, "not_found")
		}
	}
	for _, o := range b.server.ops {
		if got := slices.Contains(o.Roles, "mailbox"); got != slices.Contains(allowed, o.Name) {
			t.Errorf("%s names the role mailbox: %v", o.Name, got)
		}
	}

	// Lists hold the own mailbox alone, also where another one is asked for.
	web.ask("GET", "/v1/inbox", nil).is(200).has("pagination.count", "1").has("data.0.subject", "for ann")
	web.ask("GET", "/v1/inbox?mailbox=bob@boxes.test", nil).is(200).has("pagination.count", "0")
	web.ask("GET", "/v1/messages", nil).is(200).has("pagination.count", "1").has("data.0.id", ofAnn)
	web.ask("GET", "/v1/jobs", nil).is(200).has("pagination.count", "0")
	web.ask("GET", "/v1/jobs?job_id="+job, nil).fails(404, "not_found")
	web.ask("GET", "/v1/email-users/"+ann, nil).is(200)

	// What it may do to itself.
	web.ask("PATCH", "/v1/me", `{"name":"Ann Smith","signature":"-- Ann"}`).is(200).has("mailbox.name", "Ann Smith").has("mailbox.signature", "-- Ann")
	web.ask("PATCH", "/v1/me", `{"aliases":["x@boxes.test"]}`).fails(400, "nothing_to_update")
	made := web.ask("POST", "/v1/email-users/"+ann+"/credentials", `{"name":"Script","protocols":["api"]}`).is(201)
	script := b.with(made.text("token"))
	script.get("/v1/inbox").is(200).has("data.0.subject", "for ann")
	script.get("/v1/me").fails(403, "forbidden_role")
	script.get("/v1/email-users/"+ann+"/credentials").fails(403, "forbidden_role")
	script.get("/v1/email-users/"+bob+"/inbox").fails(404, "not_found")
	script.get("/v1/domains").fails(403, "forbidden_role")
	web.ask("DELETE", "/v1/email-users/"+ann+"/credentials/"+made.text("id"), nil).is(200)
	script.get("/v1/inbox").fails(401, "unauthorized")

	// The password: the right old one, another session ends, nobody can read the new one.
	second := b.browser().signInTo("ann@boxes.test", "correct horse")
	web.ask("POST", "/v1/me/password", `{"current_password":"wrong","new_password":"new correct horse"}`).fails(403, "wrong_password")
	web.ask("POST", "/v1/me/password", `{"current_password":"correct horse","new_password":"short"}`).fails(400, "validation_error").has("error.details.0.field", "new_password", "error.details.0.code", "out_of_range")
	web.ask("POST", "/v1/me/password", `{"current_password":"correct horse","new_password":"password1"}`).fails(400, "validation_error").has("error.details.0.code", "too_common")
	web.ask("POST", "/v1/me/password", `{"current_password":"correct horse","new_password":"new correct horse"}`).is(200).has("sessions_ended", "1")
	web.ask("GET", "/v1/me", nil).is(200)
	second.ask("GET", "/v1/me", nil).fails(401, "unauthorized")
	second.ask("POST", "/session", map[string]string{"email": "ann@boxes.test", "password": "correct horse"}).fails(401, "invalid_credentials")
	second.signInTo("ann@boxes.test", "new correct horse")

	// A suspended mailbox, and one that is deleted.
	b.patch("/v1/email-users/"+ann, `{"status":"suspended"}`).is(200)
	web.ask("GET", "/v1/me", nil).fails(401, "unauthorized")
	b.patch("/v1/email-users/"+ann, `{"status":"active"}`).is(200)
	web.ask("GET", "/v1/me", nil).is(200)
	b.remove("/v1/email-users/" + ann).is(200)
	web.ask("GET", "/v1/me", nil).fails(401, "unauthorized")
	if r := web.ask("POST", "/session", map[string]string{"email": "ann@boxes.test", "password": "new correct horse"}); r.status != http.StatusUnauthorized {
		t.Errorf("a deleted mailbox signs in: %d", r.status)
	}
	b.get("/v1/account/users").is(200).has("total", "1") // people of mailboxes are none of the team
}

// TestAddressThatIsBoth: one address of a team user and of a mailbox: the password decides, the
// team first, unless the request says which.
func TestAddressThatIsBoth(t *testing.T) {
	b := newSandbox(t, nil)
	b.post(users+"/invite", `{"email":"both@boxes.test","password":"of the team"}`).is(200)
	b.post("/v1/email-users", `{"email":"both@boxes.test","password":"of the mailbox"}`).is(201)
	for _, c := range []struct{ password, as, kind string }{
		{"of the team", "", "team"}, {"of the mailbox", "", "mailbox"}, {"of the team", "team", "team"}, {"of the mailbox", "mailbox", "mailbox"},
		{"of the team", "mailbox", ""}, {"of the mailbox", "team", ""}, {"of nobody", "", ""},
	} {
		r := b.browser().ask("POST", "/session", map[string]string{"email": "both@boxes.test", "password": c.password, "as": c.as})
		if c.kind == "" {
			r.fails(401, "invalid_credentials")
			continue
		}
		r.is(200).has("kind", c.kind)
	}
}

// TestMailboxesAreAuditedAsMailboxes: what the person of a mailbox does in the dashboard, and wrong
// passwords there, are the mailbox's in the audit log.
func TestMailboxesAreAuditedAsMailboxes(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.post("/v1/email-users", `{"email":"ann@boxes.test","password":"correct horse"}`).is(201).text("user_id")
	web := b.browser()
	web.ask("POST", "/session", map[string]string{"email": "ann@boxes.test", "password": "wrong horse"}).is(401)
	web.signInTo("ann@boxes.test", "correct horse")
	web.ask("PATCH", "/v1/me", map[string]string{"name": "Ann"}).is(200)
	for _, action := range []string{"login_failed", "login", "update_me"} {
		b.get("/v1/audit?action="+action).is(200).has("data.0.actor.type", "mailbox", "data.0.actor.id", ann, "data.0.actor.name", "ann@boxes.test",
			"data.0.target.type", "email_user", "data.0.target.id", ann)
	}
}
