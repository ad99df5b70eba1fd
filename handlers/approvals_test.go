package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
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
