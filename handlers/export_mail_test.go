package handlers

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestExportMessages: a job gives a link to a tar with every message of a mailbox, once, to those
// of its account alone.
func TestExportMessages(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.post("/v1/email-users", `{"email":"ann@boxes.test"}`).is(201).text("user_id")
	for _, subject := range []string{"one", "two"} {
		if err := b.Arrive(t, "x@far.test", "ann@boxes.test", "From: x@far.test\r\nSubject: "+subject+"\r\n\r\nFrom here\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	path := "/v1/email-users/" + ann + "/export"
	b.post(path, `{"format":"zip"}`).fails(400, "validation_error")
	b.with(b.Account(t, "other@example.test").Token).post(path, `{"format":"mbox"}`).fails(404, "not_found")
	b.with(b.Token(t, b.Owner.AccountID, "member", "write")).post(path, `{"format":"mbox"}`).fails(403, "forbidden_role")
	for format, want := range map[string]string{"maildir": "ann@boxes.test/.Junk/cur/", "mbox": "ann@boxes.test/Junk.mbox"} {
		job := b.post(path, `{"format":"`+format+`"}`).is(202).text("job_id")
		link := b.get("/v1/jobs/"+job+"?wait=20").is(200).has("status", "completed").text("result.url")
		at := link[strings.Index(link, "/export/"):]
		got := b.with("").get(at).is(200)
		texts := ""
		for r := tar.NewReader(bytes.NewReader(got.raw)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(h.Name, want) {
				texts += string(text)
			}
		}
		if !strings.Contains(texts, "Subject: one") || !strings.Contains(texts, "Subject: two") || strings.Contains(texts, ">From here") != (format == "mbox") {
			t.Errorf("%s has %q", format, texts)
		}
		b.with("").get(at).fails(404, "not_found")
	}
}
