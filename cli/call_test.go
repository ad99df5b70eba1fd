package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
)

// TestArgumentsFromFiles: key@FILE is the content of a file, as the type of the field has it, and a
// value that begins with "@" names no file.
func TestArgumentsFromFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, content := range map[string]string{"body.txt": "Hello\r\n\n", "a=b.txt": "x", "policy.json": `{"send":"deny"}`, "photo.png": "\x89PNG\xff", "to.json": `["a@b.test","c@d.test"]`} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"send_email text@body.txt":                          `{"text":"Hello"}`,
		"send_email text@-":                                 `{"text":"piped"}`,
		"send_email text@a=b.txt":                           `{"text":"x"}`,
		"send_email to@to.json":                             `{"to":["a@b.test","c@d.test"]}`,
		"send_email attachments@photo.png attachments@-":    `{"attachments":[{"content":"iVBOR/8=","content_type":"image/png","filename":"photo.png"},{"content":"cGlwZWQK","content_type":"application/octet-stream","filename":"attachment"}]}`,
		"update_email_user send_policy@policy.json":         `{"send_policy":{"send":"deny"}}`,
		"list_email_user_inbox q=@example.com":              `{"q":"@example.com"}`,
		"send_email subject=@body.txt text:=\"@-\"":         `{"subject":"@body.txt","text":"@-"}`,
		"send_email to=ann@example.com subject=a@body.txt":  `{"subject":"a@body.txt","to":["ann@example.com"]}`,
		"advance_clock seconds=86400":                       `{"seconds":86400}`,
		`advance_clock {"seconds":5}`:                       `{"seconds":5}`,
		"send_email text=@-":                                "text=@- is the text itself; to read standard input, write text@-",
		"send_email text@none":                              "read text: open none: no such file or directory",
		"send_email text@photo.png":                         "text is a text, and photo.png holds something else",
		"send_email attachments=photo.png":                  "attachments is a list of files: write attachments@FILE for each",
		"send_email ann@example.com":                        `"ann@example.com" is not an argument of send_email; write key=value, key:=JSON, key@FILE, or one JSON object in single quotes`,
		"advance_clock seconds=5s":                          "advance_clock takes one argument, such as seconds=86400",
		"update_email_user send_policy@body.txt":            "send_policy is an object: write its JSON after :=; `mailstead call update_email_user --help` shows the types of all fields",
		"send_email text@body.txt text=more":                "text is given more than once, but is not a list",
		"create_email_user email@body.txt nonsense@policy":  "\"nonsense@policy\" is not an argument of create_email_user; write key=value, key:=JSON, key@FILE, or one JSON object in single quotes",
		"send_email attachments@photo.png attachments:=[]":  "attachments is given more than once",
		"send_email attachments@photo.png attachments@none": "read attachments: open none: no such file or directory",
	} {
		words := strings.Fields(line)
		got, err := callArguments(words[0], words[1:], strings.NewReader("piped\n"))
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", line, got, want)
		}
	}
}

// TestCallTakesNames: a domain may be given by its name, a mailbox and a team user by their
// addresses, in the place of ids.
func TestCallTakesNames(t *testing.T) {
	dir := t.TempDir()
	for _, line := range []string{"init --owner-email ops@example.com", "domain add boxes.test --manual", "domain add else.test --external", "mailbox create ann@boxes.test"} {
		if out, err := mailsteadCommand(t, append(strings.Fields(line), "--data", dir)...); err != nil {
			t.Fatalf("%s: %v %s", line, err, out)
		}
	}
	for line, want := range map[string]string{
		"get_domain domain_id=boxes.test":                     `"domain": "boxes.test"`,
		"get_email_user user_id=ANN@boxes.test":               `"email": "ann@boxes.test"`,
		"update_email_user user_id=ann@boxes.test name=Ann":   `"name": "Ann"`,
		"update_team_user user_id=ops@example.com role=owner": "",
		"get_domain domain_id=box.test":                       "there is no domain box.test: did you mean boxes.test?",
		"get_email_user user_id=anna@boxes.test":              "there is no mailbox anna@boxes.test: did you mean ann@boxes.test?",
		"update_team_user user_id=own@example.com role=admin": "there is no team user own@example.com; `mailstead call list_team_users` lists them",
		"delete_domain domain_id=far.test --json":             "there is no domain far.test",
	} {
		out, err := mailsteadCommand(t, append(append([]string{"call"}, strings.Fields(line)...), "--data", dir)...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) || strings.Contains(out, "Check the id") {
			t.Errorf("%s: %s\nwant %s", line, out, want)
		}
	}
	out, err := mailsteadCommand(t, "domain", "delete", "boxes.test", "--data", dir)
	want := "This deletes the domain boxes.test with 1 mailbox and all their mail, and cannot be undone. Add --yes to do it"
	if err == nil || !isWrongUse(err) || err.Error() != want {
		t.Errorf("without --yes: %s %v", out, err)
	}
	out, err = mailsteadCommand(t, "domain", "delete", "else.test", "--yes", "--data", dir)
	if err != nil || !strings.HasPrefix(out, "else.test is being deleted (job job_") {
		t.Errorf("with --yes: %s %v", out, err)
	}
	if out, err := mailsteadCommand(t, "domain", "list", "--data", dir); err != nil || !strings.Contains(out, "deleting") {
		t.Errorf("afterwards: %s %v", out, err)
	}
}

// TestOperationsByWords: those that have a word in their name come before those that have it in
// their summary alone.
func TestOperationsByWords(t *testing.T) {
	var names []string
	for _, o := range handlers.Operations("revoke", "TOKEN") {
		names = append(names, o.Name)
	}
	if !slices.Equal(names, []string{"delete_token"}) {
		t.Errorf("%q", names)
	}
	out, err := mailsteadCommand(t, "call", "--list", "send", "--data", t.TempDir())
	if err != nil || !strings.HasPrefix(out, "send_email ") || !strings.Contains(out, "test_webhook") || strings.Contains(out, "list_domains") {
		t.Errorf("%s %v", out, err)
	}
}

// TestHelpShowsInnerFields: the fields of objects, and what a list of files takes, are shown too.
func TestHelpShowsInnerFields(t *testing.T) {
	out, err := mailsteadCommand(t, "help", "call", "send_email")
	for _, want := range []string{"list of files, attachments@FILE for each", "\n  attachments.filename ", "The mailbox's id or address.", "user_id=anna@example.com"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is not there: %s %v", want, out, err)
		}
	}
	out, err = mailsteadCommand(t, "help", "call", "update_email_user")
	if err != nil || !strings.Contains(out, "  send_policy.send                allow | reply_only | approval | deny. ") {
		t.Errorf("%s %v", out, err)
	}
}

// TestLogFollows: rows come in the order of time, then what is new, and what has another status;
// older rows that were not printed do not come.
func TestLogFollows(t *testing.T) {
	row := func(id, at, status string) string {
		return `{"id":"` + id + `","queued_at":"2026-11-30T12:00:0` + at + `Z","status":"` + status + `","sender":"a@b.test","recipient":"` + id + `@d.test","subject":"` + id + `"}`
	}
	page := func(rows ...string) string {
		return `{"data":[` + strings.Join(rows, ",") + `],"pagination":{"has_more":false}}`
	}
	s := &script{answers: map[string][]string{}}
	for _, asJSON := range []bool{false, true} {
		s.answers["GET /v1/messages"] = []string{
			page(row("m3", "3", "queued"), row("m2", "2", "sent"), row("m1", "1", "sent")),
			page(row("m4", "4", "queued"), row("m3", "3", "delivered"), row("m2", "2", "sent"), row("m1", "1", "sent")),
		}
		ctx, cancel := context.WithCancel(t.Context())
		a := &s.waiter(t, new(bytes.Buffer)).apiCaller
		a.ctx = ctx
		asked := 0
		answer := a.send
		a.send = func(r *http.Request) (*http.Response, error) {
			asked++
			if asked == 2 {
				cancel()
			}
			return answer(r)
		}
		var first []jsonObject
		for _, text := range []string{row("m3", "3", "queued"), row("m2", "2", "sent")} {
			var one jsonObject
			if err := json.Unmarshal([]byte(text), &one); err != nil {
				t.Fatal(err)
			}
			first = append(first, one)
		}
		var out bytes.Buffer
		if err := (&env{stdout: &out, json: asJSON}).followLog(a, jsonObject{}, time.Time{}, first); err != nil {
			t.Fatal(err)
		}
		cancel()
		var got []string
		for line := range strings.Lines(out.String()) {
			one := jsonObject{}
			if fields := strings.Fields(line); !asJSON {
				one = jsonObject{"subject": fields[4], "status": fields[1]}
			} else if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			got = append(got, one.stringField("subject")+" "+one.stringField("status"))
		}
		want := []string{"m2 sent", "m3 queued", "m3 delivered", "m4 queued"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestNamesAreCompleted: the addresses and domains that the running server has complete arguments,
// flags and fields, but not names of what is to be made.
func TestNamesAreCompleted(t *testing.T) {
	dir, err := os.MkdirTemp("", "m") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, operator.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/v1/email-users": `{"users":[{"email":"ann@boxes.test"},{"email":"bob@boxes.test"}]}`, "/v1/domains": `{"data":[{"domain":"boxes.test"}]}`,
			"/v1/accounts": `{"data":[{"owner_email":"ops@example.com"}]}`,
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	})}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	t.Setenv("MAILSTEAD_DATA", dir)
	for line, want := range map[string]string{
		"mailbox delete a": "ann@boxes.test", "mailbox password ": "ann@boxes.test bob@boxes.test", "log --mailbox=bob": "--mailbox=bob@boxes.test",
		"domain show ": "boxes.test", "domain delete b": "boxes.test", "mailbox list --domain ": "boxes.test", "account suspend ": "ops@example.com",
		"call get_email_user user_id=a": "user_id=ann@boxes.test", "call get_domain domain_id=": "domain_id=boxes.test", "queue list --account ": "ops@example.com",
		"mailbox create ": "", "domain add ": "", "call update_team_user user_id=": "", "help mailbox delete ": "", "--data /nowhere mailbox delete ": "",
		"mailbox delete ann@boxes.test ": "",
	} {
		if got := strings.Join(completed(t, strings.Split(line, " ")...), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
