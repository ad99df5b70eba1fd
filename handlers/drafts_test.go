package handlers

import (
	"strings"
	"testing"
)

// A draft is a message in Drafts with all that it was given, and it goes when it is sent.
func TestDrafts(t *testing.T) {
	b := newSandbox(t, nil)
	boxes := "/v1/email-users/" + b.box("ann")

	// Anything may be missing, but not for long.
	first := b.post(boxes+"/drafts", `{}`).is(201).has("folder", "Drafts", "is_read", "true", "subject", "")
	uid := first.text("uid")
	b.post(boxes+"/drafts/"+uid+"/send", nil).fails(400, "validation_error").has("error.details.0.field", "to")
	b.get(boxes + "/inbox/" + uid + "?folder=drafts").is(200)

	// It is replaced, not added to.
	whole := `{"to":"Bob <bob@far.test>","cc":["c@far.test"],"bcc":"quiet@far.test","subject":"Berth","text":"It is 14.","html":"<p>It is <b>14</b>.</p>",
		"in_reply_to":"<1@far.test>","headers":{"X-Order":"7"},"tags":{"kind":"berth"},"message_id":"<mine@boxes.test>",
		"attachments":[{"filename":"map.txt","content":"aGVsbG8=","content_type":"text/plain"},{"filename":"a.png","content":"aGVsbG8=","content_type":"image/png","content_id":"pic"}]}`
	second := b.do("PUT", boxes+"/drafts/"+uid, whole).is(200)
	second.has("subject", "Berth", "to.0", "Bob <bob@far.test>", "bcc.0", "quiet@far.test", "attachments.1.filename", "map.txt")
	if second.text("uid") == uid {
		t.Error("a replaced draft keeps its UID")
	}
	uid = second.text("uid")
	b.get(boxes+"/inbox?folder=drafts").has("pagination.count", "1", "data.0.uid", uid)
	b.do("PUT", boxes+"/drafts/99", whole).fails(404, "not_found")
	b.get(boxes+"/inbox?folder=drafts").has("pagination.count", "1")

	// It is sent as it stands, and once.
	sent := b.post(boxes+"/drafts/"+uid+"/send", nil).is(200).has("message_id", "<mine@boxes.test>", "recipients.2.email", "quiet@far.test")
	b.post(boxes+"/drafts/"+uid+"/send", nil).fails(404, "not_found")
	b.get(boxes+"/inbox?folder=drafts").has("pagination.count", "0")
	list := b.get(boxes + "/inbox?folder=sent")
	list.has("pagination.count", "1", "data.0.subject", "Berth", "data.0.in_reply_to", "<1@far.test>", "data.0.bcc.0", "quiet@far.test")
	got := b.get(boxes + "/inbox/" + list.text("data.0.uid") + "?folder=sent").is(200)
	got.has("html", "<p>It is <b>14</b>.</p>", "attachments.0.filename", "a.png", "attachments.0.content_id", "pic", "attachments.1.filename", "map.txt")
	b.get("/v1/messages/"+sent.text("recipients.0.id")).has("tags.kind", "berth")
	headers := strings.Join(got.list("headers", "name"), " ")
	if !strings.Contains(headers, "X-Order") || strings.Contains(headers, "Bcc") || strings.Contains(headers, "X-Mailstead") {
		t.Errorf("header fields that are sent: %s", headers)
	}

	// What is wrong is told when it is saved.
	for body, field := range map[string]string{
		`{"to":"bob"}`: "to", `{"from":"eve@far.test"}`: "from", `{"text":"a","colour":"red"}`: "colour", `{"headers":{"Bcc":"x@far.test"}}`: "headers",
	} {
		b.post(boxes+"/drafts", body).fails(400, "validation_error").has("error.details.0.field", field)
	}
}

// A draft of a template is the message that it shows: what the template made of it when it was
// saved is sent, whatever becomes of the template.
func TestADraftOfATemplateShowsWhatIsSent(t *testing.T) {
	b := newSandbox(t, nil)
	boxes := "/v1/email-users/" + b.box("ann")
	template := "/v1/message-templates/" + b.post("/v1/message-templates", `{"name":"t","subject":"Hello {{name}}","text":"Dear {{name}},","html":"<p>Dear {{name}},</p>"}`).is(201).text("id")
	id := strings.TrimPrefix(template, "/v1/message-templates/")
	of := func(rest string) string { return `{"to":"bob@far.test","template_id":"` + id + `"` + rest + `}` }
	text := func(folder, uid string) *reply { return b.get(boxes + "/inbox/" + uid + "?folder=" + folder).is(200) }

	draft := b.post(boxes+"/drafts", of(`,"variables":{"name":"<Bob>"}`)).is(201).has("subject", "Hello <Bob>")
	text("drafts", draft.text("uid")).has("text", "Dear <Bob>,", "html", "<p>Dear &lt;Bob&gt;,</p>")
	b.do("PATCH", template, `{"subject":"Pay {{name}}","text":"Pay me, {{name}}.","html":null}`).is(200)
	b.post(boxes+"/drafts/"+draft.text("uid")+"/send", nil).is(200)
	sent := b.get(boxes+"/inbox?folder=sent").has("pagination.count", "1", "data.0.subject", "Hello <Bob>")
	text("sent", sent.text("data.0.uid")).has("text", "Dear <Bob>,")

	// What cannot be filled yet, or never, is a draft, but nothing that is sent.
	for rest, code := range map[string]string{
		``: "missing_variable", `,"variables":{"name":"Bob"},"text":"innocent"`: "validation_error", `,"variables":{"name":"Bob"},"subject":"innocent"`: "validation_error",
	} {
		uid := b.post(boxes+"/drafts", of(rest)).is(201).text("uid")
		b.post(boxes+"/drafts/"+uid+"/send", nil).fails(400, code)
	}
	late := b.post(boxes+"/drafts", of("")).is(201)
	b.do("PATCH", template, `{"subject":"Pay","text":"Pay me."}`).is(200)
	b.post(boxes+"/drafts/"+late.text("uid")+"/send", nil).fails(400, "validation_error").has("error.details.0.field", "template_id")
	b.get(boxes+"/inbox?folder=sent").has("pagination.count", "1")
	saved := b.do("PUT", boxes+"/drafts/"+late.text("uid"), of("")).is(200).has("subject", "Pay")
	b.post(boxes+"/drafts/"+saved.text("uid")+"/send", nil).is(200)
}
