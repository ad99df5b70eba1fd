package config

import "testing"

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
