package handlers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	for end := time.Now().Add(30 * time.Second); uploadsLeft(t, b) > 0; time.Sleep(10 * time.Millisecond) { // the job's state comes first
		if time.Now().After(end) {
			t.Fatalf("%d bytes of files stay", uploadsLeft(t, b))
		}
	}
}

// uploadsLeft is how many bytes the files have that wait to be imported.
func uploadsLeft(t *testing.T, b *sandbox) (size int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(b.Core.Store.Dir(), "uploads"), func(_ string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		info, err := f.Info()
		size += info.Size()
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return size
}

// TestUploadsKeepToTheQuota: a file that is larger than what is left of the mailbox's quota is
// refused before it fills the disk, whether or not its length is told.
func TestUploadsKeepToTheQuota(t *testing.T) {
	b := newSandbox(t, nil)
	ann := b.post("/v1/email-users", `{"email":"ann@boxes.test","quota_bytes":1000000}`).is(201).text("user_id")
	path := "/v1/email-users/" + ann + "/import"
	message := "From a@far.test Mon Nov  2 10:00:00 2026\nSubject: %s\n\n" + strings.Repeat("Hello Hello Hello Hello Hello Hello Hello Hello\n", 12000) + "\n"
	send := func(body io.Reader) *reply {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/mbox")
		r.Header.Set("Authorization", "Bearer "+b.token)
		return b.answer(r)
	}
	big := strings.Repeat(message, 60)
	send(strings.NewReader(big)).fails(507, "quota_exceeded")
	send(struct{ io.Reader }{strings.NewReader(big)}).fails(507, "quota_exceeded")
	if left := uploadsLeft(t, b); left != 0 {
		t.Errorf("%d bytes of files stay", left)
	}
	job := send(strings.NewReader(fmt.Sprintf(message, "one"))).is(202).text("job_id")
	b.get("/v1/jobs/"+job+"?wait=20").is(200).has("status", "completed", "result.imported", "1")
	send(strings.NewReader(fmt.Sprintf(message, "two"))).fails(507, "quota_exceeded")
}
