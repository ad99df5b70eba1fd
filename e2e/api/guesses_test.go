package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/smtp"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// A guesser tries passwords over one protocol, with as many on a connection as it lets him.
type guesser struct {
	t    *testing.T
	i    *rig.Instance
	from string
	imap *imapclient.Client
	smtp *smtp.Client
}

func (g *guesser) dial(addr string) net.Conn {
	g.t.Helper()
	conn, err := rig.DialFrom(g.t.Context(), g.from, addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// overIMAP gives the response code that a log-in is refused with, "" if it is taken, "BYE" if the
// connection has ended.
func (g *guesser) overIMAP(email, password string) string {
	g.t.Helper()
	if g.imap == nil {
		g.imap = imapclient.New(g.dial(g.i.Ready.IMAP), nil)
	}
	err := g.imap.Login(email, password).Wait()
	var no *imap.Error
	switch {
	case err == nil:
		g.imap.Close()
		g.imap = nil
		return ""
	case errors.As(err, &no) && no.Type == imap.StatusResponseTypeNo:
		return string(no.Code)
	}
	g.imap.Close()
	g.imap = nil
	return "BYE"
}

// bySubmission gives the code that a log-in is refused with, 0 if it is taken, 421 if the
// connection has ended.
func (g *guesser) bySubmission(email, password string) int {
	g.t.Helper()
	if g.smtp == nil {
		c, err := smtp.NewClient(g.dial(g.i.Ready.Submission), "mail.mailstead.test")
		if err != nil {
			g.t.Fatal(err)
		}
		g.smtp = c
	}
	err := g.smtp.Auth(rig.PlainAuth{User: email, Password: password})
	var no *textproto.Error
	switch {
	case err == nil:
		g.smtp.Close()
		g.smtp = nil
		return 0
	case errors.As(err, &no) && no.Code != 421:
		return no.Code
	}
	g.smtp.Close()
	g.smtp = nil
	return 421
}

// guess tries wrong passwords, in turn over IMAP and by submission, until so many were looked at.
func (g *guesser) guess(n int, email func(int) string) {
	g.t.Helper()
	byes := 0
	for looked := 0; looked < n; {
		var refused, ended bool
		if looked%2 == 0 {
			code := g.overIMAP(email(looked), "wrong")
			refused, ended = code == "AUTHENTICATIONFAILED", code == "BYE"
		} else {
			code := g.bySubmission(email(looked), "wrong")
			refused, ended = code == 535, code == 421
		}
		switch {
		case refused:
			looked++
		case ended:
			byes++
		default:
			g.t.Fatalf("guess %d is neither refused nor the last on its connection", looked)
		}
	}
	if n >= 10 && byes < n/10 {
		g.t.Errorf("%d guesses took %d connections", n, byes)
	}
}

// TestLoginGuessing: who guesses over IMAP and by submission is sent away after some tries, and
// shut out after more, which count together; an honest user gets in, from where the guesser is if
// that is where the user has been before.
func TestLoginGuessing(t *testing.T) {
	t.Parallel()
	if rig.Race {
		t.Skip("hashing passwords takes too long with the race detector")
	}
	i, _ := rig.StartWithMailbox(t)
	i.AddMailbox("bob@example.test", "battery staple")
	at := func(from string) *guesser { return &guesser{t: t, i: i, from: from} }
	const home, villain = "127.10.0.1", "127.66.6.6"
	for _, from := range []string{home, villain} { // where bob has been
		if code := at(from).overIMAP("bob@example.test", "battery staple"); code != "" {
			t.Fatalf("bob's first log-in: %s", code)
		}
	}
	at(villain).guess(100, func(n int) string { return fmt.Sprintf("user%d@example.test", n) })
	t.Run("the guesser is shut out", func(t *testing.T) {
		if code := at(villain).overIMAP("ann@example.test", "correct horse"); code != "UNAVAILABLE" {
			t.Errorf("IMAP: %q", code)
		}
		if code := at(villain).bySubmission("ann@example.test", "correct horse"); code != 454 {
			t.Errorf("submission: %d", code)
		}
	})
	t.Run("honest users get in", func(t *testing.T) {
		for _, user := range []struct{ email, password, from string }{
			{"ann@example.test", "correct horse", home}, {"bob@example.test", "battery staple", villain},
		} {
			start := time.Now()
			if code := at(user.from).overIMAP(user.email, user.password); code != "" {
				t.Errorf("%s over IMAP: %s", user.email, code)
			}
			if code := at(user.from).bySubmission(user.email, user.password); code != 0 {
				t.Errorf("%s by submission: %d", user.email, code)
			}
			t.Logf("%s took %s for both", user.email, time.Since(start).Round(time.Millisecond))
		}
	})
	t.Run("many guess at one mailbox", func(t *testing.T) {
		for n := range 12 {
			at(fmt.Sprintf("127.67.%d.1", n)).guess(2, func(int) string { return "bob@example.test" })
		}
		const elsewhere = "127.10.0.9"
		if code := at(elsewhere).overIMAP("bob@example.test", "battery staple"); code != "UNAVAILABLE" {
			t.Errorf("from an unknown network: %q", code)
		}
		if code := at(home).bySubmission("bob@example.test", "battery staple"); code != 0 {
			t.Errorf("from home: %d", code)
		}
		if code := at(elsewhere).bySubmission("ann@example.test", "correct horse"); code != 0 {
			t.Errorf("another mailbox: %d", code)
		}
	})
	text, err := os.ReadFile(i.Log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("too many wrong passwords")); n != 2 {
		t.Errorf("%d lines of the log tell of it, want 2", n)
	}
	i.Check()
}

// TestFirstSignIn: the link that init prints sets address and password on the server that starts
// afterwards; the session works for the API and outlives a restart; the operator's new password
// ends it.
func TestFirstSignIn(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	var made struct {
		Link string `json:"welcome_link"`
	}
	out, code := rig.Run(t, "account", "create", "--data", i.Dir, "--owner-email", "made@up.test", "--json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("account create: %d %v %s", code, err, out)
	}
	_, token, ok := strings.Cut(made.Link, "http://"+i.Ready.HTTP+"/welcome?token=")
	if !ok {
		t.Fatalf("the link is %q", made.Link)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	ask := func(method, path, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+i.Ready.HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := ask("POST", "/session/welcome", `{"token":"`+token+`","email":"ann@up.test","password":"correct horse"}`); got != 200 {
		t.Fatalf("welcome: %d", got)
	}
	i.Stop()
	i.Start()
	if got := ask("POST", "/v1/auth/tokens", `{}`); got != 201 {
		t.Errorf("with the session after a restart: %d", got)
	}
	if out, code := rig.Run(t, "user", "reset-password", "--data", i.Dir, "--user", "ann@up.test", "--no-second-factor"); code != 0 {
		t.Fatalf("reset-password: %d %s", code, out)
	}
	if got := ask("GET", "/v1/account", ""); got != 401 {
		t.Errorf("after the operator's new password: %d", got)
	}
}

// TestInitPrintsNoLinkForAGivenPassword: who chose a password needs none.
func TestInitPrintsNoLinkForAGivenPassword(t *testing.T) {
	t.Parallel()
	for password, want := range map[string]bool{"": true, "correct horse": false} {
		out, code := rig.Run(t, "init", "--data", filepath.Join(t.TempDir(), "data"), "--owner-email", "a@example.org", "--owner-password", password)
		if code != 0 || strings.Contains(out, "/welcome?token=") != want {
			t.Errorf("init with the password %q: %d %s", password, code, out)
		}
	}
}
