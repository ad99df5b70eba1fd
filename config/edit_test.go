package config

import (
	"strings"
	"testing"
)

// TestSetKey: a key is replaced where it stands, over several lines too, and is else added to its
// own table.
func TestSetKey(t *testing.T) {
	for _, c := range []struct{ was, table, key, is string }{
		{"", "", "smtp", "smtp = 1\n"},
		{"hostname = 'a'", "", "smtp", "hostname = 'a'\nsmtp = 1\n"},
		{"smtp = 'a'\nhttp = 'b'\n", "", "smtp", "smtp = 1\nhttp = 'b'\n"},
		{"# smtp = 'a'\n\n[limits]\nsmtp = 2\n", "", "smtp", "# smtp = 'a'\nsmtp = 1\n\n[limits]\nsmtp = 2\n"},
		{"ips = [\n '1', # one\n '2',\n]\nhttp = 'b'\n", "", "ips", "ips = 1\nhttp = 'b'\n"},
		{"a = '''\nips = 5\n'''\nips = 2\n", "", "ips", "a = '''\nips = 5\n'''\nips = 1\n"},
		{"[dns]\ncatalog = 'c'\n\n[limits]\nlisten = 3\n", "dns", "listen", "[dns]\ncatalog = 'c'\nlisten = 1\n\n[limits]\nlisten = 3\n"},
		{"[[relay]]\nhost = 'r'\n", "", "host", "host = 1\n[[relay]]\nhost = 'r'\n"},
		{"[dns] # ours\nlisten = 'x'\n", "dns", "listen", "[dns] # ours\nlisten = 1\n"},
	} {
		if got := setKey(c.was, c.table, c.key, "1"); got != c.is {
			t.Errorf("%s of %q in\n%s\ngives\n%s\nwant\n%s", c.key, c.table, c.was, got, c.is)
		}
	}
}

// TestSendingLimitsAreAdded: what is set stays, what is not gets its value, and a second time
// changes nothing.
func TestSendingLimitsAreAdded(t *testing.T) {
	all := "recipients_per_mailbox_per_day = 1000\nrecipients_per_domain_per_day = 10000\nrecipients_per_account_per_day = 10000\n" +
		"new_recipients_per_mailbox_per_day = 200\nnew_recipients_per_domain_per_day = 2000\nnew_recipients_per_account_per_day = 2000\n"
	for _, c := range [][2]string{
		{"", "[limits]\n" + all},
		{"smtp = ':26'", "smtp = ':26'\n\n[limits]\n" + all},
		{"[limits]\ndomains = 3\n\n[dns]\nlisten = ':1'\n", "[limits]\ndomains = 3\n" + all + "\n[dns]\nlisten = ':1'\n"},
		{"[limits]\nrecipients_per_mailbox_per_day = 0\n", "[limits]\nrecipients_per_mailbox_per_day = 0\n" + strings.SplitN(all, "\n", 2)[1]},
		{"no toml", "no toml"},
	} {
		got := AddSendingLimits(c[0])
		if got != c[1] {
			t.Errorf("%q becomes\n%s\nwant\n%s", c[0], got, c[1])
		}
		if again := AddSendingLimits(got); again != got {
			t.Errorf("a second time %q becomes %q", got, again)
		}
	}
}
