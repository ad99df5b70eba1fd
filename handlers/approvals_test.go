package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestOnlyAPersonApproves: a message that an agent sends is held, and no token, member, person of a
// mailbox or command of the operator has it leave; an admin who is signed in does, with the hash of
// what is sent.
func TestOnlyAPersonApproves(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	b.box("bob")
	b.patch("/v1/email-users/"+ann, `{"password":"correct horse"}`).is(200)
	agent := b.with(b.post("/v1/auth/tokens", `{"name":"agent","permissions":["admin"],"policy":{"send":"approval","allowed_recipients":["@far.test"]}}`).is(201).text("token"))
	agent.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"free@far.test","subject":"s","text":"t"}`).is(200).has("status", "queued", "approval_id", "<nil>")
	sent := agent.post("/v1/email-users/"+ann+"/inbox/send", `{"to":["Bob <bob@boxes.test>"],"bcc":"x@other.test","subject":"Hello","html":"<b>Hi</b><script>x()</script>"}`).is(200)
	sent.has("status", "held", "recipients.0.status", "held", "recipients.1.status", "held")
	id := sent.text("approval_id")
	at := "/v1/approvals/" + id
	agent.get("/v1/messages?status=held").is(200).has("pagination.count", "2", "data.0.approval_id", id)

	shown := b.get(at).is(200).has("status", "pending", "reason", "policy", "via", "api", "token.name", "agent", "user_id", ann, "email", "ann@boxes.test",
		"to", "[bob@boxes.test]", "bcc", "[x@other.test]", "subject", "Hello", "html", "<b>Hi</b>\n", "body_complete", "true", "decided_at", "<nil>", "decided_by", "<nil>")
	raw := b.get(at + "/raw").is(200).raw
	sum := sha256.Sum256([]byte("MAIL FROM:<ann@boxes.test>\r\nRCPT TO:<bob@boxes.test>\r\nRCPT TO:<x@other.test>\r\n\r\n" + string(raw)))
	hash := hex.EncodeToString(sum[:])
	if shown.text("content_hash") != hash {
		t.Errorf("content_hash is %s, want %s", shown.text("content_hash"), hash)
	}
	yes := fmt.Sprintf(`{"content_hash":%q}`, hash)
	for name, c := range map[string]*client{
		"person_required": b.client, "forbidden_role": agent, "insufficient_scope": b.with(b.Token(t, b.Owner.AccountID, "admin", "read")),
	} {
		c.post(at+"/approve", yes).fails(403, name)
		c.post(at+"/reject", nil).fails(403, name)
	}
	b.with(b.Token(t, b.Owner.AccountID, "member", "write")).post(at+"/approve", yes).fails(403, "forbidden_role")
	b.with(b.Token(t, b.Owner.AccountID, "member", "write")).get(at).fails(403, "forbidden_role")
	b.browser().signInTo("ann@boxes.test", "correct horse").ask("POST", at+"/approve", yes).fails(403, "forbidden_role")
	local := httptest.NewRequest("POST", at+"/approve", strings.NewReader(yes))
	local.Header.Set("Content-Type", "application/json")
	if resp := Do(b.server.Local(), local); resp.StatusCode != 403 {
		t.Errorf("by the operator: %d", resp.StatusCode)
	}
	b.with(b.Account(t, "other@example.test").Token).get(at).fails(404, "not_found")
	b.get("/v1/approvals?status=pending").is(200).has("pagination.count", "1", "data.0.approval_id", id)
	b.get("/v1/approvals?status=none").fails(400, "validation_error")

	web := b.browser().signIn()
	web.ask("GET", at+"/approve", nil).fails(405, "method_not_allowed")
	web.ask("POST", at+"/approve", nil).fails(400, "validation_error")
	web.ask("POST", at+"/approve", fmt.Sprintf(`{"content_hash":%q}`, strings.Repeat("0", 64))).fails(409, "content_changed")
	web.ask("POST", at+"/approve", fmt.Sprintf(`{"content_hash":%q,"note":%q}`, hash, strings.Repeat("n", 1001))).fails(400, "validation_error")
	web.ask("POST", at+"/approve", fmt.Sprintf(`{"content_hash":%q,"note":"fine"}`, hash)).is(200).has("status", "approved", "note", "fine", "decided_by.id", b.Owner.UserID)
	web.ask("POST", at+"/reject", nil).fails(409, "already_decided")
	b.until("/v1/messages?recipient=bob@boxes.test", "data.0.status", "delivered").has("data.0.approval_id", id)
	b.until("/v1/email-users/"+ann+"/inbox?folder=sent", "pagination.count", "2")
	for kind, count := range map[string]string{"email.held": "1", "email.approved": "1", "email.rejected": "0"} {
		b.get("/v1/events?type="+kind).is(200).has("pagination.count", count)
	}

	// Whoever may cancel it rejects it.
	other := agent.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"a@other.test","cc":"b@other.test","subject":"s","text":"t"}`).is(200)
	row := "/v1/messages/" + other.text("recipients.0.id")
	agent.post(row+"/retry", nil).fails(409, "not_queued")
	agent.patch(row, `{"send_at":"`+soon(1)+`"}`).fails(409, "not_scheduled")
	agent.post(row+"/cancel", nil).is(200).has("status", "rejected")
	b.get("/v1/messages?status=rejected").is(200).has("pagination.count", "2")
	b.get("/v1/approvals/"+other.text("approval_id")).is(200).has("status", "rejected", "decided_by.name", "agent")
}

// TestHeldFilesOpenInASandbox: text and pictures are shown, without scripts and without an origin
// of their own; everything is saved as what no browser runs. Nobody else sees them.
func TestHeldFilesOpenInASandbox(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	agent := b.with(b.post("/v1/auth/tokens", `{"name":"agent","policy":{"send":"approval"}}`).is(201).text("token"))
	file := func(name, kind, content string) string {
		return fmt.Sprintf(`{"filename":%q,"content_type":%q,"content":%q}`, name, kind, base64.StdEncoding.EncodeToString([]byte(content)))
	}
	inner := "From: a@far.test\r\nSubject: inside\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nin it\r\n--b\r\nContent-Disposition: attachment; filename=y.csv\r\n\r\n1,2\r\n--b--\r\n"
	files := strings.Join([]string{
		file("x.html", "text/html", "<script>alert(1)</script>z\u200bw"), file("x.png", "image/png", "\x89PNG\x00"), file("x.svg", "image/svg+xml", "<svg onload='x()'/>"),
		file("x.zip", "application/zip", "PK\x00"), file("in.eml", "message/rfc822", inner),
	}, ",")
	id := agent.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"b@far.test","subject":"s","text":"t","attachments":[`+files+`]}`).is(200).has("status", "held").text("approval_id")
	b.get("/v1/approvals/"+id).is(200).has("attachments.0.filename", "x.html", "attachments.4.filename", "in.eml", "attachments.5.filename", "in.eml/y.csv")
	web, at := b.browser().signIn(), "/session/approvals/"+id+"/files/"
	for n, want := range []string{"&lt;script&gt;alert(1)&lt;/script&gt;z[U+200B]w", "\x89PNG\x00", "&lt;svg onload=", "This file is no text", "Subject: inside", "1,2"} {
		r := web.look(fmt.Sprint(at, n)).is(200)
		csp := r.header.Get("Content-Security-Policy")
		if !strings.Contains(string(r.raw), want) || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "sandbox") || strings.Contains(csp, "allow-scripts") || r.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%d: %s, %v", n, r.raw, r.header)
		}
		saved := web.look(fmt.Sprint(at, n, "?save=true")).is(200)
		if h := saved.header; !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("Content-Type") != "application/octet-stream" || len(saved.raw) == 0 {
			t.Errorf("%d is saved as %v", n, h)
		}
	}
	web.look(at+"6").fails(404, "not_found")
	web.look(at+"-1").fails(404, "not_found")
	web.look(at+"x").fails(404, "not_found")
	b.browser().look(at+"0").fails(401, "unauthorized")
	b.get(at+"0").fails(401, "unauthorized") // by a token
	b.Account(t, "else@example.test")
	other := b.browser()
	other.ask("POST", "/session", map[string]string{"email": "else@example.test", "password": "correct horse"}).is(200)
	other.look(at+"0").fails(404, "not_found")
}

// TestReadingAnApprovalNamesItsMailbox: a token that reads a held message has read the mailbox that
// sends it, so that others who act for that mailbox are tainted, and no others.
func TestReadingAnApprovalNamesItsMailbox(t *testing.T) {
	for _, path := range []string{"", "/raw"} {
		b := newSandbox(t, nil)
		ann, bob := b.box("ann"), b.box("bob")
		agent := b.with(b.post("/v1/auth/tokens", `{"name":"agent","policy":{"send":"approval"}}`).is(201).text("token"))
		id := agent.post("/v1/email-users/"+ann+"/inbox/send", `{"to":"b@far.test","subject":"s","text":"t"}`).is(200).text("approval_id")
		reader := b.post("/v1/auth/tokens", `{"name":"reader","policy":{"taint":true}}`).is(201)
		ofAnn := b.post("/v1/auth/tokens", `{"name":"a","mailboxes":["`+ann+`"],"policy":{"taint":true}}`).is(201).text("id")
		ofBob := b.post("/v1/auth/tokens", `{"name":"b","mailboxes":["`+bob+`"],"policy":{"taint":true}}`).is(201).text("id")
		b.with(reader.text("token")).get("/v1/approvals/" + id + path).is(200)
		r := b.get("/v1/auth/tokens").is(200)
		tainted := func(id string) string {
			return r.text(fmt.Sprintf("data.%d.tainted.user_id", slices.Index(r.list("data", "id"), id)))
		}
		if tainted(reader.text("id")) != ann || tainted(ofAnn) != ann || tainted(ofBob) == ann {
			t.Errorf("%q: %s", path, r.raw)
		}
	}
}

// TestDraftThatIsHeldIsMadeAnew, and an answer to an invitation, which cannot be, is refused.
func TestDraftThatIsHeldIsMadeAnew(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.box("ann")
	at := "/v1/email-users/" + ann + "/inbox"
	agent := b.with(b.post("/v1/auth/tokens", `{"name":"agent","policy":{"send":"approval"}}`).is(201).text("token"))
	draft := agent.post("/v1/email-users/"+ann+"/drafts", `{"to":"b@far.test","reply_to":"ann+qx7@boxes.test","subject":"s","html":"<p>words</p><!-- qx7 --><p hidden>qx7</p>"}`).is(201)
	id := agent.post("/v1/email-users/"+ann+"/drafts/"+draft.text("uid")+"/send", nil).is(200).has("status", "held").text("approval_id")
	raw := string(b.get("/v1/approvals/" + id + "/raw").is(200).raw)
	if strings.Contains(raw, "qx7") || !strings.Contains(raw, "<p>words</p>") {
		t.Errorf("held:\n%s", raw)
	}
	b.Put(t, "ann@boxes.test", "From: ines@far.test\nSubject: Berth\nContent-Type: text/calendar; method=REQUEST\n\nBEGIN:VCALENDAR\nMETHOD:REQUEST\nBEGIN:VEVENT\nUID:one\nSUMMARY:Berth\nDTSTART:20361127T130000Z\n"+
		"ORGANIZER:mailto:ines@far.test\nATTENDEE:mailto:ann@boxes.test\nEND:VEVENT\nEND:VCALENDAR\n", mail{})
	uid := b.get(at).is(200).text("data.0.uid")
	agent.post(at+"/"+uid+"/invitation", `{"answer":"accepted"}`).fails(403, "sending_not_allowed")
	b.get(at+"/"+uid).has("invitation.answer", "<nil>")
}
