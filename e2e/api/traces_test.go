package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/otlp/otlptest"
)

// A logLine is a line of the server's log in JSON.
type logLine map[string]any

// logLines reads the log so far.
func logLines(i *rig.Instance) (out []logLine) {
	i.T.Helper()
	file, err := os.Open(i.Log.Name())
	if err != nil {
		i.T.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line logLine
		if json.Unmarshal(lines.Bytes(), &line) == nil { // the rest is what the program prints for people
			out = append(out, line)
		}
	}
	if err := lines.Err(); err != nil {
		i.T.Fatal(err)
	}
	return out
}

// awaitLine waits for a line with these values.
func awaitLine(i *rig.Instance, want logLine) (found logLine) {
	i.T.Helper()
	i.Until(fmt.Sprintf("the log has %v", want), func() bool {
	lines:
		for _, line := range logLines(i) {
			for key, value := range want {
				if line[key] != value {
					continue lines
				}
			}
			found = line
			return true
		}
		return false
	})
	return found
}

// ask makes a request and gives its answer, without its body.
func ask(i *rig.Instance, method, path, body string, header ...string) *http.Response {
	i.T.Helper()
	req, err := http.NewRequest(method, "http://"+i.Ready.HTTP+path, strings.NewReader(body))
	if err != nil {
		i.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.Token)
	req.Header.Set("Content-Type", "application/json")
	for n := 0; n+1 < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	resp, err := i.HTTP.Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// TestTraces: a collector sees the requests, messages, deliveries, webhooks and jobs, each below
// what has caused it; the log has the same ids.
func TestTraces(t *testing.T) {
	t.Parallel()
	collector, hook := otlptest.New(t), rig.NewWebhookReceiver(t)
	i := rig.Start(t, rig.GenerousLimits+"[otlp]\nendpoint = \""+collector.URL+"/\"\n", "--ca-file", hook.CAFile, "--log-format", "json", "--log-level", "debug")
	ann := i.AddMailbox("ann@"+i.AddDomainNamed("boxes.test"), "correct horse")
	hook.Subscribe(i, "email.received")

	// A message from outside, and the webhook that tells of it.
	if err := rig.Transmit(i.Ready.SMTP, "ann@boxes.test", rig.Letter("traced")); err != nil {
		t.Fatal(err)
	}
	received := collector.Await("a received message", func(s otlptest.Span) bool { return s.Name == "receive message" && !s.Failed })
	job := collector.Await("its webhook's job", func(s otlptest.Span) bool { return s.Name == "job webhook" && s.ParentID == received.SpanID })
	post := collector.Await("its webhook", func(s otlptest.Span) bool { return s.Name == "post webhook" && s.ParentID == job.SpanID })
	if received.Kind != 2 || job.Kind != 5 || post.Kind != 3 || received.ParentID != "" || job.TraceID != received.TraceID || post.TraceID != received.TraceID ||
		received.Attributes["smtp.code"] != "250" || post.Attributes["http.response.status_code"] != "204" && post.Attributes["http.response.status_code"] != "200" {
		t.Errorf("%+v\n%+v\n%+v", received, job, post)
	}
	line := awaitLine(i, logLine{"msg": "message accepted", "message_id": received.Attributes["message_id"]})
	if line["from"] != "elsewhere.test" || line["recipients"] != 1.0 || line["level"] != "INFO" {
		t.Errorf("%v", line)
	}
	awaitLine(i, logLine{"msg": "a job has ended", "job_id": job.Attributes["job_id"], "kind": "webhook", "level": "INFO"})

	// A refused one.
	if err := rig.Transmit(i.Ready.SMTP, "nobody@boxes.test", rig.Letter("refused")); err == nil {
		t.Fatal("mail to nobody was taken")
	}
	refused := collector.Await("a refused message", func(s otlptest.Span) bool { return s.Name == "receive message" && s.Failed })
	if refused.Attributes["smtp.code"] != "550" || refused.TraceID == received.TraceID {
		t.Errorf("%+v", refused)
	}
	awaitLine(i, logLine{"msg": "message refused", "code": 550.0, "enhanced": "5.1.1", "level": "INFO"})

	// A request that goes on with the client's trace, and what it causes.
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	resp := ask(i, "POST", "/v1/email-users/"+ann+"/inbox/send", `{"to":["bob@far.test"],"subject":"out","text":"x"}`, "traceparent", "00-"+trace+"-"+parent+"-01")
	id := resp.Header.Get("X-Request-Id")
	request := collector.Await("a request", func(s otlptest.Span) bool { return s.Name == "send_email" })
	job = collector.Await("the delivery's job", func(s otlptest.Span) bool { return s.Name == "job deliver" && s.ParentID == request.SpanID })
	delivery := collector.Await("the delivery", func(s otlptest.Span) bool { return s.Name == "deliver message" && s.ParentID == job.SpanID })
	if resp.StatusCode != 200 || request.TraceID != trace || request.ParentID != parent || request.Attributes["request_id"] != id || request.Attributes["http.response.status_code"] != "200" ||
		delivery.TraceID != trace || delivery.Attributes["result"] != "delivered" || delivery.Attributes["route"] != "capture" ||
		delivery.Attributes["submission_id"] != request.Attributes["message_id"] {
		t.Errorf("%d\n%+v\n%+v\n%+v", resp.StatusCode, request, job, delivery)
	}
	awaitLine(i, logLine{"msg": "request", "request_id": id, "operation": "send_email", "status": 200.0, "level": "INFO"})
	awaitLine(i, logLine{"msg": "message accepted", "request_id": id, "message_id": request.Attributes["message_id"]})
	awaitLine(i, logLine{"msg": "message delivered", "message_id": delivery.Attributes["message_id"], "job_id": job.Attributes["job_id"], "route": "capture"})

	// Other requests: what only reads is for debugging, and one without an operation has no path.
	id = ask(i, "GET", "/v1/email-users/eu_none", "").Header.Get("X-Request-Id")
	awaitLine(i, logLine{"msg": "request", "request_id": id, "operation": "get_email_user", "status": 404.0, "level": "DEBUG"})
	id = ask(i, "POST", "/v1/nothing", "{}", "X-Request-Id", "mine-1").Header.Get("X-Request-Id")
	awaitLine(i, logLine{"msg": "request", "client_request_id": "mine-1", "operation": "other", "status": 404.0})
	if id != "mine-1" {
		t.Errorf("the request is called %q", id)
	}

	// A tool of an assistant.
	resp = ask(i, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_webhooks","arguments":{}}}`, "Accept", "application/json, text/event-stream")
	tool := collector.Await("a tool", func(s otlptest.Span) bool {
		return s.Name == "list_webhooks" && s.Attributes["request_id"] == resp.Header.Get("X-Request-Id")
	})
	around := collector.Await("its request", func(s otlptest.Span) bool { return s.Name == "mcp" && s.SpanID == tool.ParentID })
	if tool.TraceID != around.TraceID || resp.StatusCode != 200 {
		t.Errorf("%d\n%+v\n%+v", resp.StatusCode, tool, around)
	}

	// The end sends what is left.
	id = ask(i, "GET", "/v1/account", "").Header.Get("X-Request-Id")
	i.Stop()
	collector.Await("the last request", func(s otlptest.Span) bool { return s.Attributes["request_id"] == id })
	if found := addresses.FindString(collector.Text()); found != "" {
		t.Errorf("a trace has %q", found)
	}
}

// TestCollectorIsNotWaitedFor: a collector that hangs, refuses or is not there slows nobody down.
func TestCollectorIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	hanging := otlptest.New(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hanging.Refuse(func(http.ResponseWriter, *http.Request) { <-release })
	refusing := otlptest.New(t)
	refusing.Refuse(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	for name, endpoint := range map[string]string{
		"hangs": hanging.URL, "refuses": refusing.URL, "is away": "http://" + net.JoinHostPort("127.0.0.1", rig.FreePortOn(t, "127.0.0.1")),
	} {
		t.Run(name, func(t *testing.T) {
			i := rig.Start(t, rig.GenerousLimits+"[otlp]\nendpoint = \""+endpoint+"\"\n")
			ann := i.AddMailbox("ann@"+i.AddDomainNamed("boxes.test"), "correct horse")
			began := time.Now()
			for n := range 100 {
				i.Want(200, "GET", "/v1/account", nil, nil)
				if err := rig.Transmit(i.Ready.SMTP, "ann@boxes.test", rig.Letter(fmt.Sprint(n))); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("100 requests and messages took %s", took)
			}
			i.Until("all are there", func() bool { return len(i.Inbox(ann)) == 100 })
			time.Sleep(1500 * time.Millisecond) // so that a request to the collector has begun: they begin each second
			began = time.Now()
			i.Stop()
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("the end took %s", took)
			}
		})
	}
}
