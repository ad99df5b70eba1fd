package mail

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A thiefsTargets is the MX of all whom a thief writes to: it knows two of three recipients, and
// takes no recipient before it is opened.
type thiefsTargets struct {
	addr    string
	open    chan struct{}
	tried   atomic.Int64
	mu      sync.Mutex
	letters []string
}

func newThiefsTargets(t *testing.T) *thiefsTargets {
	f := &thiefsTargets{open: make(chan struct{})}
	f.addr = rig.Serve(t, f.serve)
	return f
}

func (f *thiefsTargets) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	say := func(text string) { fmt.Fprintf(c, "%s\r\n", text) }
	say("220 mx.far.test")
	owner := false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(line[:min(4, len(line))]); verb {
		case "EHLO", "HELO", "MAIL", "RSET", "NOOP":
			say("250 ok")
		case "RCPT":
			owner = strings.Contains(line, "owner@")
			if !owner && !strings.Contains(line, "honest") {
				f.tried.Add(1)
				<-f.open
			}
			if strings.Contains(line, "<bad") {
				say("550 5.1.1 no such user")
				continue
			}
			say("250 2.1.5 ok")
		case "DATA":
			say("354 go on")
			text, err := rig.ReadDots(r)
			if err != nil {
				return
			}
			if owner {
				f.mu.Lock()
				f.letters = append(f.letters, string(text))
				f.mu.Unlock()
			}
			say("250 2.0.0 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("500 what")
		}
	}
}

// TestThief: somebody who has a mailbox's password and a token writes to very many strangers over
// SMTP, the API and MCP at once, from fifty networks. The limit of new recipients stops it; once
// fifty were tried and more than a tenth of them do not exist, the mailbox sends nothing more; its
// owner hears of both; others of the same domain go on.
func TestThief(t *testing.T) {
	t.Parallel()
	total := 900
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		total = 10_000
	}
	const networks, domains, limit = 50, 20, 200
	mx, world := newThiefsTargets(t), rig.NewFakeResolver(t)
	i := rig.StartOutgoing(t, world, mx.addr, rig.GenerousLimits+fmt.Sprintf("new_recipients_per_mailbox_per_day = %d\nrecipients_per_mailbox_per_day = 1000\n", limit), "--proxy-protocol", theProxy)
	for n := range domains {
		world.Set(t, fmt.Sprintf("far%d.test", n), "MX", "10 mx.far.test.")
	}
	world.Set(t, "example.org", "MX", "10 mx.far.test.")
	proxied := func(n int) *http.Client {
		return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(theProxy)}}
			c, err := d.DialContext(ctx, "tcp", i.Ready.HTTP)
			if err == nil {
				_, err = io.WriteString(c, headerOf(fmt.Sprintf("198.18.%d.7", n)))
			}
			return c, err
		}}}
	}
	ann, bob := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "battery staple")

	var accepted, limited, paused, other atomic.Int64
	opened := sync.OnceFunc(func() { close(mx.open) })
	defer opened()
	outcome := func(text string) {
		switch {
		case strings.Contains(text, "new_recipient_limit_reached"), strings.Contains(text, "4.5.3"):
			limited.Add(1)
			opened()
		case strings.Contains(text, "sending_paused"), strings.Contains(text, "4.7.1"):
			paused.Add(1)
		case text == "":
			accepted.Add(1)
		default:
			if other.Add(1) < 5 {
				t.Errorf("an answer: %s", text)
			}
		}
	}
	recipient := func(n int) string {
		name := fmt.Sprintf("good%d", n)
		if n%3 == 0 {
			name = fmt.Sprintf("bad%d", n)
		}
		return fmt.Sprintf("%s@far%d.test", name, n%domains)
	}
	var next atomic.Int64
	next.Store(-1)
	var thieves sync.WaitGroup
	for n := range networks {
		thieves.Go(func() {
			client := proxied(n)
			for k := int(next.Add(1)); k < total; k = int(next.Add(1)) {
				to := recipient(k)
				switch n % 3 {
				case 0:
					answer := overSMTP(t, i, fmt.Sprintf("198.18.%d.7", n), to)
					for strings.Contains(answer, "AUTH: 454") { // too many passwords are checked at once
						answer = overSMTP(t, i, fmt.Sprintf("198.18.%d.7", n), to)
					}
					outcome(answer)
				case 1:
					outcome(overHTTP(t, i, client, "/v1/email-users/"+ann+"/inbox/send", `{"to":"`+to+`","subject":"you have won","text":"click"}`))
				default:
					outcome(overHTTP(t, i, client, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_email","arguments":{"user_id":"`+ann+`","to":"`+to+`","subject":"you have won","text":"click"}}}`))
				}
			}
		})
	}
	thieves.Wait()
	t.Logf("%d accepted, %d past the limit, %d while paused, %d others; %d were tried", accepted.Load(), limited.Load(), paused.Load(), other.Load(), mx.tried.Load())
	if n := accepted.Load(); n < 150 || n > limit {
		t.Errorf("%d recipients were accepted, and the limit is %d", n, limit)
	}
	if limited.Load() == 0 {
		t.Error("the limit was never reached")
	}
	i.Until("the mailbox is paused", func() bool {
		var mb struct {
			SendingPaused *struct{ Reason string } `json:"sending_paused"`
		}
		i.Want(200, "GET", "/v1/email-users/"+ann, nil, &mb)
		return mb.SendingPaused != nil && mb.SendingPaused.Reason == "bounces"
	})
	time.Sleep(time.Second) // too many would be tried in this time
	tried := mx.tried.Load()
	if tried > 50+64+10 { // what was on its way when it was paused is at most 64 messages
		t.Errorf("%d were tried", tried)
	}
	if answer := overSMTP(t, i, "198.18.99.7", "good@far1.test"); !strings.HasPrefix(answer, "MAIL: 452 \"4.7.1 ") && !strings.HasPrefix(answer, "MAIL: 452 4.7.1 ") {
		t.Errorf("over SMTP: %s", answer)
	}

	// The owner hears of both, once.
	var events struct {
		Data []struct {
			Type string
			Data map[string]any
		}
	}
	told := map[string]int{}
	for _, kind := range []string{"sending.alert", "email_user.paused"} {
		i.Want(200, "GET", "/v1/events?limit=100&type="+kind, nil, &events)
		for _, e := range events.Data {
			switch {
			case e.Type == "sending.alert" && e.Data["kind"] == "limit" && e.Data["subject"] == "ann@example.test":
				told["limit"]++
			case e.Type == "email_user.paused" && e.Data["email"] == "ann@example.test":
				told["paused"]++
				if e.Data["sent"].(float64) < 50 {
					t.Errorf("paused too early: %v", e.Data)
				}
			}
		}
	}
	if told["limit"] != 1 || told["paused"] != 1 {
		t.Errorf("events: %v", told)
	}
	i.Until("the owner gets both letters", func() bool {
		mx.mu.Lock()
		defer mx.mu.Unlock()
		all := strings.Join(mx.letters, "\n")
		return strings.Contains(all, "ann@example.test is paused") && strings.Contains(all, "has reached its limit")
	})

	// Others go on, and so does the mailbox when somebody lets it.
	honest := overHTTP(t, i, i.HTTP, "/v1/email-users/"+bob+"/inbox/send", `{"to":"honest@far1.test","subject":"s","text":"t"}`)
	if honest != "" {
		t.Errorf("another mailbox: %s", honest)
	}
	i.Until("it is sent", func() bool { return rig.SendingLog(i)["honest@far1.test"].Status == "sent" })
	i.Want(200, "POST", "/v1/email-users/"+ann+"/held", map[string]any{"action": "discard"}, nil)
	i.Want(200, "PATCH", "/v1/email-users/"+ann, map[string]any{"sending_paused": nil}, nil)
	i.Until("what waited is tried", func() bool { return mx.tried.Load() > tried })
}

// overSMTP sends a message from a network, and says what it was refused with.
func overSMTP(t *testing.T, i *rig.Instance, network, to string) string {
	t.Helper()
	conn := viaProxy(t, i.Ready.Submission, headerOf(network))
	defer conn.Close()
	c, err := smtp.NewClient(conn, "127.0.0.1")
	if err != nil {
		return "greeting: " + err.Error()
	}
	if err := c.Auth(smtp.PlainAuth("", "ann@example.test", "correct horse", "127.0.0.1")); err != nil {
		return "AUTH: " + err.Error()
	}
	if err := c.Mail("ann@example.test"); err != nil {
		return "MAIL: " + err.Error()
	}
	if err := c.Rcpt(to); err != nil {
		return "RCPT: " + err.Error()
	}
	w, err := c.Data()
	if err != nil {
		return "DATA: " + err.Error()
	}
	if _, err := io.WriteString(w, "From: ann@example.test\r\nSubject: you have won\r\n\r\nclick\r\n"); err != nil {
		return err.Error()
	}
	if err := w.Close(); err != nil {
		return "end: " + err.Error()
	}
	return ""
}

// overHTTP posts a request, and says what it was refused with.
func overHTTP(t *testing.T, i *rig.Instance, client *http.Client, path, body string) string {
	t.Helper()
	req, err := http.NewRequest("POST", "http://"+i.Ready.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode == 200 && !strings.Contains(string(text), `"isError":true`) {
		return ""
	}
	return string(text)
}
