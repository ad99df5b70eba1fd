package api

import (
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestNewInstallationsHaveLimits: init writes them for a host that is in production, once.
func TestNewInstallationsHaveLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "mailstead.toml")
	for range 2 {
		rig.Run(t, "init", "--data", dir, "--owner-email", "owner@example.org", "--hostname", "mail.example.org")
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "\nnew_recipients_per_mailbox_per_day = 200\n") {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := rig.Run(t, "init", "--data", dir, "--owner-email", "owner@example.org", "--hostname", "mail.example.org"); code == 0 {
		t.Errorf("a second init: %s", out)
	}
	if text, err := os.ReadFile(file); err != nil || len(text) > 0 {
		t.Errorf("with a store, init writes %q, %v", text, err)
	}
}

// TestRecipientsOfADayAreLimited: over SMTP and by API, one limit holds for both, and each says
// when sending goes on.
func TestRecipientsOfADayAreLimited(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits+"recipients_per_mailbox_per_day = 5\nnew_recipients_per_mailbox_per_day = 4\n")
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")

	c, err := smtp.Dial(i.Ready.Submission)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range []error{
		c.Auth(smtp.PlainAuth("", "ann@example.test", "correct horse", "127.0.0.1")), c.Mail("ann@example.test"),
		c.Rcpt("a@far.test"), c.Rcpt("b@far.test"), c.Rcpt("c@far.test"), c.Rcpt("d@far.test"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Rcpt("e@far.test"); err == nil || !strings.HasPrefix(err.Error(), "452 ") || !strings.Contains(err.Error(), "4.5.3 ") || !strings.Contains(err.Error(), "T00:00:00Z") {
		t.Errorf("the fifth new recipient: %v", err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("From: ann@example.test\r\nSubject: s\r\n\r\nhello\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	var refused struct {
		Error struct {
			Code       string
			RetryAfter int `json:"retry_after"`
			Details    []struct{ Field string }
		}
	}
	send := func(status int, to ...string) {
		t.Helper()
		refused.Error.Code = ""
		i.Want(status, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": "hello"}, &refused)
	}
	send(403, "e@far.test")
	if e := refused.Error; e.Code != "new_recipient_limit_reached" || e.RetryAfter < 1 || e.RetryAfter > 24*60*60 || len(e.Details) != 1 || e.Details[0].Field != "mailbox" {
		t.Errorf("a new recipient by API: %+v", e)
	}
	send(200, "a@far.test")
	send(403, "b@far.test")
	if refused.Error.Code != "daily_send_limit_reached" {
		t.Errorf("a sixth recipient: %+v", refused.Error)
	}
	var mb struct {
		SentToday int `json:"sent_today"`
	}
	if i.Want(200, "GET", "/v1/email-users/"+ann, nil, &mb); mb.SentToday != 5 {
		t.Errorf("%d recipients are counted, want 5", mb.SentToday)
	}
}
