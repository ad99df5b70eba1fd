package nearest

import (
	"strings"
	"testing"
)

// TestNameIsWhatWasMeant: a slip of the fingers finds the name, and another word finds none.
func TestNameIsWhatWasMeant(t *testing.T) {
	names := []string{"serve", "status", "setup", "domain", "mailbox", "list_domains", "list_email_users", "log-level", "log-format"}
	for word, want := range map[string]string{
		"serv": "serve", "SERVE": "serve", "sevre": "serve", "stauts": "status", "mailboxes": "mailbox", "domains": "domain", "dom": "domain",
		"list_domain": "list_domains", "list-domains": "list_domains", "log_level": "log-level", "lst_email_user": "list_email_users",
		"": "", "x": "", "bogus": "", "log": "", "se": "", "frobnicate": "", "list_webhooks": "",
	} {
		if got := Name(word, names); got != want {
			t.Errorf("%q is %q, want %q", word, got, want)
		}
	}
	if got := Name(strings.Repeat("x", 1<<20), []string{strings.Repeat("x", 1<<20)}); got != "" {
		t.Error("a word of a mebibyte is compared")
	}
	if got := Name("anything", nil); got != "" {
		t.Errorf("without names: %q", got)
	}
}
