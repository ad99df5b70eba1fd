package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	_ "github.com/oapi-codegen/runtime" // what TestGeneratedClient compiles needs it
)

// An example is one language of docs/examples: the command that runs a program of that name.
type example struct {
	language string
	command  func(t *testing.T, program string) []string
}

var examples = []example{
	{"curl", func(t *testing.T, program string) []string {
		rig.Peer(t, "curl")
		rig.Peer(t, "jq")
		return []string{"sh", rig.FromRoot("docs/examples/curl/" + program + ".sh")}
	}},
	{"go", func(t *testing.T, program string) []string {
		path := filepath.Join(t.TempDir(), program)
		if out, err := exec.Command("go", "build", "-o", path, rig.FromRoot("docs/examples/go/"+program)).CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		return []string{path}
	}},
	{"python", func(t *testing.T, program string) []string {
		return []string{rig.Peer(t, "python3"), rig.FromRoot("docs/examples/python/" + program + ".py")}
	}},
	{"javascript", func(t *testing.T, program string) []string {
		return []string{rig.Peer(t, "node"), rig.FromRoot("docs/examples/javascript/" + program + ".mjs")}
	}},
}

// run runs an example to its end against the instance and gives what it printed.
func (e example) run(t *testing.T, i *rig.Instance, program, arg string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := append(e.command(t, program), arg)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "MAILSTEAD_URL=http://"+i.Ready.HTTP, "MAILSTEAD_TOKEN="+i.Token)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, errs.String())
	}
	return string(out)
}

// TestMailboxExamples runs the way from a domain to a message in every language, and looks at what
// it left.
func TestMailboxExamples(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	for _, e := range examples {
		t.Run(e.language, func(t *testing.T) {
			domain := e.language + ".test"
			out := e.run(t, i, "mailbox", domain)
			want := fmt.Sprintf("domain %s: completed\nmailbox ann@%[1]s\nmessage Hello: It works.\n", domain)
			if out != want {
				t.Errorf("it printed\n%swant\n%s", out, want)
			}
			var boxes struct {
				Data []struct {
					UserID string `json:"user_id"`
					Name   string
				}
			}
			i.Want(200, "GET", "/v1/email-users?domain="+domain, nil, &boxes)
			if len(boxes.Data) != 1 || boxes.Data[0].Name != "Ann" || len(i.Inbox(boxes.Data[0].UserID)) != 0 {
				t.Errorf("it left %+v", boxes)
			}
			if row := rig.WaitUntilSent(i)["ann@"+domain]; row.Status != "delivered" {
				t.Errorf("the sending log has %+v", row)
			}
		})
	}
}

// TestWebhookExamples makes, tests, rotates and deletes an endpoint in every language, and pages
// through the events.
func TestWebhookExamples(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits, "--ca-file", rig.NewWebhookReceiver(t).CAFile)
	i.AddDomain("example.test")
	for n := range 3 {
		i.AddMailbox(fmt.Sprintf("box%d@example.test", n), "correct horse")
	}
	front := newTaker(t)
	for _, e := range examples {
		t.Run(e.language, func(t *testing.T) {
			var before struct{ Data []struct{ Type string } }
			i.Want(200, "GET", "/v1/events?limit=100", nil, &before)
			out := e.run(t, i, "webhooks", front.URL)
			if !strings.HasPrefix(out, "secret whsec_…\ntest success\nrotated, old secret until 2") || !strings.HasSuffix(out, "\ndeleted true\n") {
				t.Errorf("it printed\n%s", out)
			}
			if got := strings.Count(out, "\nevent "); got != len(before.Data)+1 || strings.Count(out, "\nevent email_user.created") != 3 {
				t.Errorf("it listed %d events, want %d and its own:\n%s", got, len(before.Data), out)
			}
			var left struct{ Count int }
			if i.Want(200, "GET", "/v1/webhooks", nil, &left); left.Count != 0 {
				t.Errorf("it left %d endpoints", left.Count)
			}
		})
	}
}

// An exampleServer is a receive example at work, or verify.sh, which is asked for each delivery.
type exampleServer struct {
	url   string // "" for verify.sh
	lines chan string
	taken func(timestamp, signatures string, body []byte) bool
}

// startReceiver runs an example that takes events with the secret.
func (e example) startReceiver(t *testing.T, port int, secret string) *exampleServer {
	t.Helper()
	if e.language == "curl" {
		rig.Peer(t, "openssl")
		return &exampleServer{taken: func(timestamp, signatures string, body []byte) bool {
			cmd := exec.Command("sh", rig.FromRoot("docs/examples/curl/verify.sh"), timestamp, signatures)
			cmd.Env, cmd.Stdin = append(os.Environ(), "MAILSTEAD_SECRET="+secret), bytes.NewReader(body)
			return cmd.Run() == nil
		}}
	}
	command := e.command(t, "receive")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port), "MAILSTEAD_SECRET="+secret)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &exampleServer{url: fmt.Sprintf("http://127.0.0.1:%d/", port), lines: make(chan string, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(out); s.Scan(); {
			r.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	r.taken = func(timestamp, signatures string, body []byte) bool { return r.post(t, timestamp, signatures, body) }
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", strings.Trim(r.url, "htp:/")); err == nil {
			c.Close()
			return r
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%v does not listen", command)
		}
	}
}

func (r *exampleServer) post(t *testing.T, timestamp, signatures string, body []byte) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Service-Timestamp", timestamp)
	req.Header.Set("X-Service-Signature", signatures)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the receiver answered %s", resp.Status)
	}
	return resp.StatusCode == http.StatusNoContent
}

// TestReceiveExamples has the example receivers take real deliveries, also while the secret changes
// over, and refuse what is not genuine.
func TestReceiveExamples(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits, "--ca-file", rig.NewWebhookReceiver(t).CAFile)
	for _, e := range examples {
		t.Run(e.language, func(t *testing.T) {
			port := rig.FreePort(t)
			behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)})
			front := newTaker(t)
			if e.language != "curl" {
				front.Config.Handler = behind
			}
			endpoint := newEndpoint(i, front.URL)
			r := e.startReceiver(t, port, endpoint.Secret)
			takesReal(t, endpoint, front, r)
			endpoint.rotate()
			takesReal(t, endpoint, front, r)
			refusesForged(t, endpoint.old, r)
		})
	}
}

// takesReal has the endpoint sent a test event, which the receiver must take.
func takesReal(t *testing.T, e *endpoint, front *taker, r *exampleServer) {
	t.Helper()
	id := e.ping()
	if r.lines == nil {
		d := front.next()
		if !r.taken(d.header.Get("X-Service-Timestamp"), d.header.Get("X-Service-Signature"), d.body) {
			t.Errorf("a genuine delivery was refused: %v %s", d.header, d.body)
		}
		return
	}
	select {
	case line := <-r.lines:
		if line != "test.ping "+id {
			t.Errorf("the receiver printed %q, want test.ping %s", line, id)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the receiver took nothing")
	}
}

func refusesForged(t *testing.T, secret string, r *exampleServer) {
	t.Helper()
	body := []byte(`{"id": "evt_1", "type": "test.ping", "data": {"text": "Grüße"}}`)
	at := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	now, stale, ahead := at(0), at(-310*time.Second), at(310*time.Second)
	for name, tc := range map[string]struct {
		timestamp, signatures string
		body                  []byte
		want                  bool
	}{
		"genuine":                {now, sign(secret, now, body), body, true},
		"one of two":             {now, sign("whsec_other", now, body) + "," + sign(secret, now, body), body, true},
		"almost stale":           {at(-280 * time.Second), sign(secret, at(-280*time.Second), body), body, true},
		"stale":                  {stale, sign(secret, stale, body), body, false},
		"from the future":        {ahead, sign(secret, ahead, body), body, false},
		"of another secret":      {now, sign("whsec_other", now, body), body, false},
		"other bytes":            {now, sign(secret, now, body), append([]byte(" "), body...), false},
		"with another timestamp": {at(-5 * time.Second), sign(secret, now, body), body, false},
		"without signature":      {now, "", body, false},
		"without timestamp":      {"", sign(secret, "", body), body, false},
		"odd timestamp":          {"now", sign(secret, "now", body), body, false},
	} {
		if got := r.taken(tc.timestamp, tc.signatures, tc.body); got != tc.want {
			t.Errorf("a delivery %s is taken: %v, want %v", name, got, tc.want)
		}
	}
}

// TestGeneratedClient has a stock generator make a client of the description that the program
// serves, compiles it, and makes a mailbox with it.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	dir := t.TempDir()
	// A module of its own, with our requirements: nothing is written into the tree.
	for _, file := range []string{rig.FromRoot("go.mod"), rig.FromRoot("go.sum"), "testdata/generated/main.go", "testdata/generated/oapi-codegen.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), description(t, i), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "client"), 0o700); err != nil {
		t.Fatal(err)
	}
	inDir(t, dir, nil, "go", "tool", "oapi-codegen", "-config", "oapi-codegen.yaml", "openapi.json")
	inDir(t, dir, nil, "go", "build", "-o", "program", ".")
	out := inDir(t, dir, []string{"MAILSTEAD_URL=http://" + i.Ready.HTTP, "MAILSTEAD_TOKEN=" + i.Token}, filepath.Join(dir, "program"))
	var result struct {
		Made struct {
			Email, Status, Password string
			SMTPPort                int `json:"smtp_port"`
			IMAPPort                int `json:"imap_port"`
		}
		Refused string
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if m := result.Made; m.Email != "ann@generated.test" || m.Status != "active" || m.Password == "" || result.Refused != "validation_error" {
		t.Errorf("the program got %s", out)
	}
	if m := result.Made; m.SMTPPort != portIn(i.Ready.Submission) || m.IMAPPort != portIn(i.Ready.IMAP) {
		t.Errorf("a mail client is told of the ports %d and %d, but they are %+v", m.SMTPPort, m.IMAPPort, i.Ready)
	}
	var boxes struct{ Data []struct{ Email string } }
	if i.Want(200, "GET", "/v1/email-users", nil, &boxes); len(boxes.Data) != 1 || boxes.Data[0].Email != result.Made.Email {
		t.Errorf("the mailboxes are %+v", boxes)
	}
}

func portIn(addr string) int { return int(netip.MustParseAddrPort(addr).Port()) }

// description gets the OpenAPI document, which needs no token.
func description(t *testing.T, i *rig.Instance) []byte {
	t.Helper()
	resp, err := http.Get("http://" + i.Ready.HTTP + "/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("openapi.json: %s, %v", resp.Status, err)
	}
	return text
}

// inDir runs a command there to its good end and gives its standard output.
func inDir(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	began := time.Now()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, errs.String())
	}
	t.Logf("%s %v took %s", filepath.Base(name), args, time.Since(began).Round(10*time.Millisecond))
	return out
}
