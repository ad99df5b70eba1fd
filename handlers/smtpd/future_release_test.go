package smtpd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestFutureRelease: submission offers to hold a message back, at most for 30 days, and mail from
// other servers does not (RFC 4865).
func TestFutureRelease(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	mx := dial(t, h.addr[smtpd.MX])
	if hello := mx.ask("EHLO client.test", "250"); strings.Contains(hello, "FUTURERELEASE") {
		t.Errorf("it is offered to other servers: %s", hello)
	}
	mx.ask("MAIL FROM:<x@far.test> HOLDFOR=60", "5")

	c := dial(t, h.addr[smtpd.Submission])
	hello := c.ask("EHLO client.test", "250")
	_, offer, _ := strings.Cut(hello, "FUTURERELEASE 2592000 ")
	if until, err := time.Parse(time.RFC3339, strings.TrimSpace(offer[:min(len(offer), 20)])); err != nil || time.Until(until) < 29*24*time.Hour {
		t.Errorf("EHLO: %s", hello)
	}
	c.ask(strings.TrimSpace(plain()), "235")
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, wrong := range []string{
		"HOLDFOR=2592001", "HOLDFOR=", "HOLDFOR", "HOLDFOR=-1", "HOLDFOR=x", "HOLDFOR=0000000001", "HOLDUNTIL=tomorrow", "HOLDUNTIL=", "HOLDUNTIL=" + in(31*24*time.Hour),
		"HOLDFOR=60 HOLDUNTIL=" + in(time.Hour), "HOLDFOR=60 HOLDFOR=60", "SIZE=100 HOLDFOR=2592001",
	} {
		c.ask("MAIL FROM:<ana@example.test> "+wrong, "501 5.5.4")
	}
	for _, held := range []string{"HOLDFOR=3600", "holdfor=2592000 SIZE=100", "SIZE=100 HOLDUNTIL=" + in(time.Hour)} {
		c.ask("MAIL FROM:<ana@example.test> "+held, "250")
		c.ask("RCPT TO:<later@far.test>", "250")
		c.data("From: ana@example.test\r\nSubject: later\r\n\r\nx\r\n", "250")
	}
	for _, at := range []string{"", " HOLDFOR=0", " HOLDUNTIL=" + in(-time.Hour)} {
		c.ask("MAIL FROM:<ana@example.test>"+at, "250")
		c.ask("RCPT TO:<now@far.test>", "250")
		c.data("From: ana@example.test\r\nSubject: now\r\n\r\nx\r\n", "250")
	}
	page, err := h.Service.Outbound.ListMessages(context.Background(), core.Actor{AccountID: h.Owner.AccountID}, outbound.ListMessagesIn{})
	if err != nil {
		t.Fatal(err)
	}
	scheduled := 0
	for _, m := range page.Data {
		if late := m.Recipient == "later@far.test"; late != !m.SendAt.IsZero() || late != (m.Status == "scheduled") {
			t.Errorf("%s is %s, to be sent at %s", m.Recipient, m.Status, m.SendAt)
		}
		if m.Status == "scheduled" {
			scheduled++
		}
	}
	if scheduled != 3 || len(page.Data) != 6 {
		t.Errorf("%d of %d are scheduled", scheduled, len(page.Data))
	}
}

// TestRequireTLSIsOffered under TLS alone, on every listener (RFC 8689).
func TestRequireTLSIsOffered(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) { s.TLS = servicetest.Certificate(t, "mail.example.test") })
	c := dial(t, h.addr[smtpd.MX])
	if hello := c.ask("EHLO client.test", "250"); strings.Contains(hello, "REQUIRETLS") {
		t.Errorf("it is offered without TLS: %s", hello)
	}
	c.ask("MAIL FROM:<x@far.test> REQUIRETLS", "530 5.7.10")
	c.startTLS()
	if hello := c.ask("EHLO client.test", "250"); !strings.Contains(hello, "REQUIRETLS") {
		t.Errorf("it is not offered with TLS: %s", hello)
	}
	c.ask("MAIL FROM:<x@far.test> SIZE=100 requiretls BODY=8BITMIME", "250")
	c.ask("RCPT TO:<ana@example.test>", "250")
	c.data("From: x@far.test\r\nSubject: s\r\n\r\nx\r\n", "250")
}
