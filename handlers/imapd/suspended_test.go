package imapd

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
)

// TestSessionsEndWithTheirAccount ends clients that idle, in a folder and in none, when the account
// is suspended.
func TestSessionsEndWithTheirAccount(t *testing.T) {
	h := serve(t, nil)
	inFolder, inNone, busy := h.login(t), h.login(t), h.login(t)
	inFolder.ok("SELECT INBOX")
	for _, c := range []*talker{inFolder, inNone} {
		c.send("i IDLE\r\n")
		c.line()
	}
	if _, err := h.SetAccountStatus(t.Context(), accounts.AccountIn{Account: h.Owner.AccountID, Status: "suspended"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*talker{"in a folder": inFolder, "in none": inNone} {
		if got := c.line(); !strings.HasPrefix(got, "* BYE [UNAVAILABLE]") {
			t.Errorf("idle %s: told %q", name, got)
		}
	}
	busy.send("s SELECT INBOX\r\n")
	if got := busy.line(); !strings.HasPrefix(got, "s NO [UNAVAILABLE]") {
		t.Errorf("SELECT: %q", got)
	}
	if got := codeOf(h.LoginMailbox(t.Context(), "ann@example.test", password, "127.0.0.1")); got != "mailbox_unavailable" {
		t.Errorf("a new log-in: %q", got)
	}
}

func codeOf(_ core.MailboxUser, err error) string {
	if e, ok := core.AsError(err); ok {
		return e.Code
	}
	return ""
}
