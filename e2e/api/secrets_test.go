package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/otlp/otlptest"
)

// mark stands in every secret, and in every text of people, that TestSecretsStayOutOfLogs uses.
const mark = "MarkZq"

// addresses finds what traces must not have.
var addresses = regexp.MustCompile(`[^"@]*@[^"]*|[a-z]+\.test`)

// TestSecretsStayOutOfLogs: with everything in the log, and with traces, neither of them has a
// password, a token, a secret, a subject, a body or the name of a file, whatever is done with them,
// nor has the audit log; and traces have no address. MAILSTEAD_LOG_LINES is how many lines are to
// be looked at, at least.
func TestSecretsStayOutOfLogs(t *testing.T) {
	t.Parallel()
	want := rig.NumberFrom(t, "MAILSTEAD_LOG_LINES", 500)
	const password, wrong, subject, body, file = "Password" + mark, "Wrong" + mark, "Subject" + mark, "Body" + mark, "File" + mark
	collector := otlptest.New(t)
	relay := rig.NewFakeSMTP(t, true, func(n int) string { // it repeats what it was given
		return []string{"250 Great success " + subject, "550 5.7.1 spam: " + subject + " " + body, "451 4.3.0 busy with " + subject}[n%3]
	})
	host, port, _ := net.SplitHostPort(relay.Addr)
	config := fmt.Sprintf("[otlp]\nendpoint = %q\n[[relay]]\nname='r1'\nkind='mailgun'\nhost=%q\nport=%s\ntls='none'\nwebhook_secret='Relay%s'\n", collector.URL, host, port, mark)
	i := rig.Start(t, rig.GenerousLimits+config, "--outbound", "relay", "--log-level", "debug", "--log-format", "json")
	ann := i.AddMailbox("ann@"+i.AddDomainNamed("boxes.test"), password)
	var endpoint struct{ ID, Secret string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{
		"url": "https://127.0.0.1:" + rig.FreePortOn(t, "127.0.0.1") + "/Url" + mark + "?token=Url" + mark, "events": []string{"*"},
		"headers": map[string]string{"Authorization": "Header" + mark + "-and-more"},
	}, &endpoint)

	plain := base64.StdEncoding.EncodeToString([]byte("\x00ann@boxes.test\x00" + password))
	letter := "From: ann@boxes.test\r\nSubject: " + subject + "\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
		"--b\r\n\r\n" + body + "\r\n--b\r\nContent-Type: application/zip; name=\"a!b!1!2." + file + ".zip\"\r\n" +
		"Content-Disposition: attachment; filename=\"a!b!1!2." + file + ".zip\"\r\n\r\n" + body + "\r\n--b--\r\n"
	outside := strings.Replace(letter, "ann@boxes.test", "bob@far.test", 1)
	quoted, err := json.Marshal(letter)
	if err != nil {
		t.Fatal(err)
	}
	round := func(n int) {
		nobody := wrong + strconv.Itoa(n) // a name of its own each time, whose wrong passwords are not answered late
		guess := base64.StdEncoding.EncodeToString([]byte(nobody))
		// Mail from outside: taken, and refused for its recipient, its lines and a cut.
		if err := rig.Transmit(i.Ready.SMTP, "ann@boxes.test", outside); err != nil {
			t.Fatal(err)
		}
		_ = rig.Transmit(i.Ready.SMTP, body+"@boxes.test", outside)
		_ = rig.Transmit(i.Ready.SMTP, "ann@boxes.test", outside+strings.Repeat(body, 10_000)+"\r\n")
		rig.Speak(t, i.Ready.SMTP, "EHLO x", "MAIL FROM:<"+body+"+"+wrong+"@far.test>", "RCPT TO:<"+wrong+"@boxes.test>", "AUTH PLAIN "+plain, body, "QUIT")

		// Mail of ours, to a relay that answers with what is in it.
		for _, to := range []string{"a", "b", "c"} {
			rig.Submit(t, i, "ann@boxes.test", password, []string{fmt.Sprintf("%s%d@far.test", to, n)}, letter)
		}
		rig.Speak(t, i.Ready.Submission, "EHLO x", "AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00"+nobody+"\x00"+wrong)), "AUTH PLAIN "+wrong, "AUTH LOGIN", guess, guess, "QUIT")
		rig.Speak(t, i.Ready.Submission, "EHLO x", "AUTH PLAIN "+plain, "MAIL FROM:<eve@far.test>", "RCPT TO:<bob@far.test>", "DATA", letter+".", "QUIT")

		// IMAP, also as no client speaks it.
		rig.Speak(t, i.Ready.IMAP, "a LOGIN ann@boxes.test "+password, `b ID ("name" "x")`, "c SELECT INBOX", "d SEARCH SUBJECT "+subject+" BODY "+body,
			"e FETCH 1:* (FLAGS ENVELOPE BODY[])", "f CREATE INBOX", "g X"+body+" "+body, "h SEARCH "+body, "i LOGOUT")
		rig.Speak(t, i.Ready.IMAP, "a LOGIN "+nobody+" "+wrong, "b LOGIN \""+wrong, "c AUTHENTICATE PLAIN "+plain+"!", "d LOGOUT")

		// The API: right, wrong and malformed.
		send := "/v1/email-users/" + ann + "/inbox/send"
		for _, request := range [][3]string{
			{"POST", send, `{"to":["d@far.test"],"subject":"` + subject + `","text":"` + body + `","attachments":[{"filename":"` + file + `","content":"aGk="}]}`},
			{"POST", send, `{"to":["` + body + `"],"subject":"` + subject + `","text":"` + body + `"}`},
			{"POST", send, `{"to":["d@far.test"],"subject":"` + subject + `","` + body + `":1}`},
			{"POST", send, `{"` + body},
			{"PATCH", "/v1/email-users/" + ann, `{"password":"` + password + `"}`},
			{"POST", "/v1/email-users", `{"email":"` + body + `","password":"` + password + `"}`},
			{"POST", "/v1/email-users", `{"email":"u` + strconv.Itoa(n) + `@boxes.test","password":"` + password + `"}`},
			{"GET", "/v1/inbox?search=" + url.QueryEscape(body) + "&" + body + "=" + body, ""},
			{"GET", "/v1/" + body, ""},
			{"POST", "/v1/" + body, body},
			{"GET", "/export/" + body, ""},
			{"GET", "/unsubscribe/" + body, ""},
			{"GET", "/session/image/" + body, ""},
			{"GET", "/reset?token=" + body, ""},
			{"POST", "/reset", "token=" + body + "&password=" + password},
			{"POST", "/session", `{"email":"owner@example.org","password":"` + wrong + `"}`},
			{"POST", "/session", `{"email":"` + password + `","password":"` + wrong + `"}`},
			{"POST", "/session/forgot", `{"email":"` + body + `"}`},
			{"POST", "/hooks/mailgun/r1", body},
			{"GET", "/v1/webhooks/" + endpoint.ID + "/secret", ""},
			{"POST", "/v1/webhooks/" + endpoint.ID + "/test", "{}"},
			{"PATCH", "/v1/webhooks/" + endpoint.ID, `{"headers":{"Authorization":"Header` + mark + `-and-more"}}`},
			{"PATCH", "/v1/webhooks/" + endpoint.ID, `{"headers":{"Host":"Header` + mark + `"}}`},
			{"POST", "/v1/auth/tokens", `{"name":"deploy"}`},
			{"POST", "/v1/export", `{"all":true}`},
			{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_email","arguments":{"user_id":"` + ann + `","to":"d@far.test","subject":"` + subject + `","text":` + string(quoted) + `}}}`},
			{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"` + body + `"}`},
		} {
			ask(i, request[0], request[1], request[2], "Accept", "application/json, text/event-stream")
		}
		ask(i, "GET", "/v1/account", "", "Authorization", "Bearer "+wrong, "X-Request-Id", "", "traceparent", wrong, "Cookie", "mailstead="+wrong)
	}
	for n, lines := 0, 0; lines < want; n++ {
		round(n)
		advance(i, 15*time.Minute) // what was put off is tried again, and wrong passwords are forgotten
		lines = len(logLines(i))
	}
	for _, what := range []string{"message accepted", "message refused", "message delivered", "message deferred", "message bounced", "a job is tried again", "sign-in refused", "request"} {
		awaitLine(i, logLine{"msg": what})
	}
	collector.Await("a delivery", func(s otlptest.Span) bool { return s.Name == "deliver message" && s.Failed })
	var audit strings.Builder
	for cursor := ""; ; {
		var page struct {
			Data       []json.RawMessage
			Pagination struct{ Cursor *string }
		}
		i.Want(200, "GET", "/v1/audit?limit=100&cursor="+url.QueryEscape(cursor), nil, &page)
		for _, row := range page.Data {
			audit.Write(append(row, '\n'))
		}
		if page.Pagination.Cursor == nil {
			break
		}
		cursor = *page.Pagination.Cursor
	}
	i.Stop()

	log, err := os.ReadFile(i.Log.Name())
	if err != nil {
		t.Fatal(err)
	}
	traces := collector.Text()
	t.Logf("%d lines of the log, %d spans, %d rows of the audit log", len(logLines(i)), len(collector.Spans()), strings.Count(audit.String(), "\n"))
	if !strings.Contains(audit.String(), `"update_email_user"`) || !strings.Contains(audit.String(), `"get_webhook_secret"`) {
		t.Error("the audit log lacks what was done")
	}
	for _, secret := range []string{mark, strings.ToLower(mark), plain, base64.StdEncoding.EncodeToString([]byte(password)), i.Token, endpoint.Secret} {
		told := 0
		for line := range strings.SplitSeq(string(log)+audit.String(), "\n") {
			if strings.Contains(line, secret) {
				if told++; told <= 3 {
					t.Errorf("%q is in the log, or in the audit log: %s", secret, line)
				}
			}
		}
		if at := strings.Index(traces, secret); at >= 0 {
			t.Errorf("%q is in a trace: %s", secret, traces[max(0, at-200):min(len(traces), at+100)])
		}
	}
	if found := addresses.FindString(traces); found != "" {
		t.Errorf("a trace has an address: %q", found)
	}
}
