package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestSuspendEndsConnections: the operator's command ends what an account's clients have open with
// the running program, over each protocol, and nothing of others.
func TestSuspendEndsConnections(t *testing.T) {
	t.Parallel()
	i, _ := rig.StartWithMailbox(t)
	other := i.SecondAccount()
	other.AddDomain("other.test")
	other.AddMailbox("bob@other.test", "battery staple")
	page, elsewhere := listen(i), listen(other)
	idle, relay := idler(i, "ann@example.test", "correct horse"), submitter(i, "ann@example.test", "correct horse")
	bobs, bobRelay := idler(i, "bob@other.test", "battery staple"), submitter(i, "bob@other.test", "battery staple")
	operate := func(verb string) {
		t.Helper()
		if out, code := rig.Run(t, "account", verb, "--data", i.Dir, "--account", "owner@example.org"); code != 0 {
			t.Fatalf("account %s: %d %s", verb, code, out)
		}
	}
	operate("suspend")
	if line := readLine(idle); !strings.HasPrefix(line, "* BYE [UNAVAILABLE]") {
		t.Errorf("IMAP: %q", line)
	}
	if code, text := relay.Hear(); code != 421 || !strings.Contains(text, "4.2.1") {
		t.Errorf("submission: %d %q", code, text)
	}
	for name, c := range map[string]*rig.Talk{"IMAP": idle, "submission": relay} {
		if b, err := c.Reader.ReadByte(); err == nil {
			t.Errorf("%s goes on with %q", name, b)
		}
	}
	select {
	case <-page.ended:
	case <-time.After(4 * time.Second):
		t.Error("the page is told on and on")
	}
	var refused struct{ Error struct{ Code string } }
	i.Want(403, "GET", "/v1/account", nil, &refused)
	if refused.Error.Code != "account_suspended" {
		t.Errorf("the API: %+v", refused)
	}
	if code, text := bobRelay.Say("NOOP"); code != 250 {
		t.Errorf("bob's submission: %d %s", code, text)
	}
	if err := rig.Transmit(i.Ready.SMTP, "bob@other.test", rig.Letter("news")); err != nil {
		t.Error(err)
	}
	if line := readLine(bobs); !strings.HasSuffix(line, " EXISTS") {
		t.Errorf("bob's IMAP: %q", line)
	}
	select {
	case <-elsewhere.ended:
		t.Error("the page of another account has ended")
	default:
	}
	operate("resume")
	idler(i, "ann@example.test", "correct horse")
	submitter(i, "ann@example.test", "correct horse")
	listen(i)
}

// idler is a client that is logged in over IMAP and idles in INBOX.
func idler(i *rig.Instance, email, password string) *rig.Talk {
	i.T.Helper()
	c := rig.Dial(i.T, i.Ready.IMAP)
	for _, step := range []struct{ say, until string }{
		{"", "* OK"}, {fmt.Sprintf("a LOGIN %s %q\r\n", email, password), "a OK"}, {"b SELECT INBOX\r\n", "b OK"}, {"c IDLE\r\n", "+"},
	} {
		_, _ = c.Write([]byte(step.say)) // what it comes to shows in the answer
		for line := readLine(c); !strings.HasPrefix(line, step.until); line = readLine(c) {
			if !strings.HasPrefix(line, "* ") {
				i.T.Fatalf("%q: %q", step.say, line)
			}
		}
	}
	return c
}

// readLine reads one line, "" at the end of the connection.
func readLine(c *rig.Talk) string {
	line, err := c.Reader.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(line, "\r\n")
}

// talkFrom is dial from an address of this host.
func talkFrom(t *testing.T, from, addr string) *rig.Talk {
	t.Helper()
	conn, err := rig.DialFrom(t.Context(), from, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return rig.NewTalk(conn)
}

// plainSecret is what AUTH PLAIN sends (RFC 4616).
func plainSecret(email, password string) string {
	return base64.StdEncoding.EncodeToString([]byte("\x00" + email + "\x00" + password))
}

// submitter is a client that is logged in to send mail.
func submitter(i *rig.Instance, email, password string) *rig.Talk {
	i.T.Helper()
	c := rig.TalkTo(i.T, i.Ready.Submission)
	if code, text := c.Say("AUTH PLAIN " + plainSecret(email, password)); code != 235 {
		i.T.Fatalf("AUTH: %d %s", code, text)
	}
	return c
}

// TestBusyLogins: where too many log-ins of one network wait, the next is told so at once, over
// each protocol in its own words, and whoever comes from elsewhere gets in.
func TestBusyLogins(t *testing.T) {
	t.Parallel()
	if rig.Race {
		t.Skip("hashing passwords takes too long with the race detector")
	}
	const flooder = "127.66.7.7"
	i, _ := rig.StartWithMailbox(t)
	var mail, boxes []*rig.Talk // enough, since a place may become free between two
	for range 8 {
		mail, boxes = append(mail, talkFrom(t, flooder, i.Ready.Submission)), append(boxes, talkFrom(t, flooder, i.Ready.IMAP))
	}
	for n := range mail {
		mail[n].Hear()
		readLine(boxes[n])
		if code, text := mail[n].Say("EHLO client.elsewhere.test"); code != 250 {
			t.Fatalf("EHLO: %d %s", code, text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// One address may not try so many sign-ins in a minute, but three of its network may.
	clients := make([]*http.Client, 3)
	for n := range clients {
		from := fmt.Sprintf("127.66.7.%d", 8+n)
		clients[n] = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return rig.DialFrom(ctx, from, addr)
		}}}
	}
	full, once := make(chan struct{}), sync.Once{}
	var wg sync.WaitGroup
	for n := range 260 { // more than may wait
		wg.Go(func() {
			code, retry := signIn(ctx, clients[n%len(clients)], i.Ready.HTTP, fmt.Sprintf("user%d@example.test", n))
			if code != "busy" {
				return
			}
			if retry == "" {
				t.Error("a 503 without Retry-After")
			}
			once.Do(func() { close(full) })
		})
	}
	select {
	case <-full:
	case <-time.After(20 * time.Second):
		t.Fatal("over HTTP no log-in is told 503 busy")
	}
	for n := range mail {
		_, _ = fmt.Fprintf(mail[n], "AUTH PLAIN %s\r\n", plainSecret("ann@example.test", "wrong"))
		_, _ = fmt.Fprintf(boxes[n], "a LOGIN user%d@example.test wrong\r\n", n)
	}
	told := make(chan string, 2*len(mail))
	for n := range mail {
		go func() { code, text := mail[n].Hear(); told <- fmt.Sprint(code, " ", text) }()
		go func() { told <- readLine(boxes[n]) }()
	}
	wantBy := time.After(20 * time.Second)
	for smtp, imap := false, false; !smtp || !imap; {
		select {
		case text := <-told:
			smtp = smtp || strings.HasPrefix(text, "454 ") && strings.Contains(text, "4.7.0")
			imap = imap || strings.HasPrefix(text, "a NO [UNAVAILABLE]") && strings.Contains(text, "Too many log-ins are waiting")
		case <-wantBy:
			t.Fatalf("told over SMTP: %t, over IMAP: %t", smtp, imap)
		}
	}
	began := time.Now()
	idler(i, "ann@example.test", "correct horse") // from elsewhere
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a log-in from elsewhere took %v", took)
	}
	cancel()
	wg.Wait()
}

// signIn gives the code of the error that a sign-in with a wrong password comes to.
func signIn(ctx context.Context, c *http.Client, addr, email string) (code, retry string) {
	body := fmt.Sprintf(`{"email":%q,"password":"wrong"}`, email)
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/session", bytes.NewReader([]byte(body)))
	if err != nil {
		return err.Error(), ""
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := c.Do(req)
	if err != nil {
		return err.Error(), ""
	}
	defer resp.Body.Close()
	var out struct{ Error struct{ Code string } }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 503 {
		return fmt.Sprint(resp.StatusCode, out.Error.Code), ""
	}
	return out.Error.Code, resp.Header.Get("Retry-After")
}
