package health

import (
	"strings"
	"testing"
	"time"
)

// TestMovedClock: only a change of the clock of more than a minute since the last check is
// reported, for a day.
func TestMovedClock(t *testing.T) {
	start := time.Now()
	c := clock{start: start}
	for _, tc := range []struct {
		passed, moved time.Duration // since the start
		by            time.Duration
	}{
		{5 * time.Minute, 0, 0},
		{10 * time.Minute, 50 * time.Second, 0},
		{15 * time.Minute, -30 * time.Minute, -30*time.Minute - 50*time.Second},
		{20 * time.Minute, -30 * time.Minute, -30*time.Minute - 50*time.Second},
		{25 * time.Hour, -30 * time.Minute, 0},
	} {
		if at, by := c.check(start.Add(tc.passed+tc.moved), tc.passed); by != tc.by || at.IsZero() != (by == 0) {
			t.Errorf("%s after the start the clock was moved by %s, want %s", tc.passed, by, tc.by)
		}
	}
}

// TestTitlesOfAlerts: the mail of an alert says in its subject what is wrong with what, for each
// check.
func TestTitlesOfAlerts(t *testing.T) {
	for _, one := range (&Service{}).checks() {
		if problems[one.code] == "" {
			t.Errorf("alerts of the check %s have no title", one.code)
		}
	}
	mend := "Change the records."
	bad := Alert{Code: "domain_dns", Status: Warning, Subject: "example.test", Message: "Its DNS records are wrong.", Mend: &mend}
	subject, text := bad.Mail("mail.example.org")
	if subject != "example.test: DNS records are wrong" || !strings.Contains(text, "What to do: "+mend) || !strings.Contains(text, "mail.example.org") {
		t.Errorf("%q\n%s", subject, text)
	}
	bad.Status = OK
	if subject, _ := bad.Mail("mail.example.org"); subject != "Resolved: example.test: DNS records are wrong" {
		t.Error(subject)
	}
}
