package handlers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportMessages: an mbox file is sent as it is, and a job brings its messages in, once; files
// that are refused leave nothing.
func TestImportMessages(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.post("/v1/email-users", `{"email":"ann@boxes.test"}`).is(201).text("user_id")
	path := "/v1/email-users/" + ann + "/import"
	file := "From a@far.test Mon Nov  2 10:00:00 2026\nSubject: one\nStatus: RO\n\nHello\n>From here\n\nFrom a@far.test Mon Nov  2 10:00:01 2026\nSubject: two\n\nHello\n"
	send := func(c *client, body string) *reply {
		t.Helper()
		return c.do("POST", path, body, "Content-Type", "application/mbox")
	}
	send(b.with(b.Account(t, "other@example.test").Token), file).fails(404, "not_found")
	send(b.with(b.Token(t, b.Owner.AccountID, "member", "write")), file).fails(403, "forbidden_role")
	for _, want := range []string{"2", "0"} {
		job := send(b.client, file).is(202).text("job_id")
		b.get("/v1/jobs/"+job+"?wait=20").is(200).has("status", "completed", "result.messages", "2", "result.imported", want, "result.failed", "0")
	}
	rows := b.get("/v1/email-users/"+ann+"/inbox").is(200).list("data", "subject")
	if strings.Join(rows, " ") != "two one" {
		t.Errorf("in the inbox: %v", rows)
	}
	job := send(b.client, "no mbox").is(202).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=20").is(200).has("status", "error", "error.code", "validation_error")
	b.post(path, `{"imap":{"host":"127.0.0.1","port":0,"security":"tls","username":"a","password":"b"}}`).fails(400, "validation_error")
	left, err := os.ReadDir(filepath.Join(b.Store.Dir(), "uploads"))
	if err != nil || len(left) > 0 {
		t.Errorf("files that stay: %v %v", left, err)
	}
}
