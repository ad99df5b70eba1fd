package smtpd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

// TestSubmissionEndsWithItsAccount ends connections that are logged in, and takes no mail, when the
// account is suspended.
func TestSubmissionEndsWithItsAccount(t *testing.T) {
	h := open(t, func(c *core.Config, _ *smtpd.Server) { c.Sandbox = true })
	c := dial(t, h.addr[smtpd.Submission])
	c.ask("EHLO x", "250")
	c.ask(strings.TrimSpace(plain()), "235")
	if _, err := h.SetAccountStatus(t.Context(), accounts.AccountIn{Account: h.Owner.AccountID, Status: "suspended"}); err != nil {
		t.Fatal(err)
	}
	c.want("421 4.2.1")
	c.ended()
	again := dial(t, h.addr[smtpd.Submission])
	again.ask("EHLO x", "250")
	again.ask(strings.TrimSpace(plain()), "535 5.7.13")
	in := dial(t, h.addr[smtpd.MX])
	in.ask("EHLO x", "250")
	in.ask("MAIL FROM:<pat@sender.test>", "250")
	in.ask("RCPT TO:<ana@example.test>", "550 5.2.1")
	if _, err := h.SetAccountStatus(t.Context(), accounts.AccountIn{Account: h.Owner.AccountID, Status: "active"}); err != nil {
		t.Fatal(err)
	}
	in.ask("RCPT TO:<ana@example.test>", "250")
	last := dial(t, h.addr[smtpd.Submission])
	last.ask("EHLO x", "250")
	last.ask(strings.TrimSpace(plain()), "235")
}
