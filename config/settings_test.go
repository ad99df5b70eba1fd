package config

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/service/core"
)

// merged runs the flags through the real parser and merges them with a file.
func merged(t *testing.T, file string, args ...string) (*Settings, error) {
	t.Helper()
	var got *Settings
	var failed error
	app := &cli.App{Flags: append(Flags(), &cli.StringFlag{Name: "data"}), Action: func(c *cli.Context) error {
		got, failed = Merge("mailstead.toml", file, c)
		if failed == nil {
			got, _, failed = got.Join(nil)
		}
		return nil
	}}
	if err := app.Run(append([]string{"mailstead"}, args...)); err != nil {
		t.Fatal(err)
	}
	return got, failed
}

func TestFlagWinsOverEnvironmentOverFile(t *testing.T) {
	s, err := merged(t, `smtp = "127.0.0.1:1"`)
	if err != nil || s.SMTP.text != "127.0.0.1:1" {
		t.Fatalf("file: %v, %v", s, err)
	}
	t.Setenv("MAILSTEAD_SMTP", "127.0.0.1:2")
	s, err = merged(t, `smtp = "127.0.0.1:1"`)
	if err != nil || s.SMTP.text != "127.0.0.1:2" {
		t.Fatalf("environment: %v, %v", s, err)
	}
	s, err = merged(t, `smtp = "127.0.0.1:1"`, "--smtp", "127.0.0.1:3")
	if err != nil || s.SMTP.text != "127.0.0.1:3" {
		t.Fatalf("flag: %v, %v", s, err)
	}
}

func TestFileSettings(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := merged(t, `
public_ip = ["192.0.2.1", "2001:db8::1"]
mx_port = 2526
allow_private_destinations = false
[dns]
listen = "127.0.0.1:5300"
check_interval = "30m"
[registrar]
sandbox = {}
[cloudflare]
base_url = "https://edge.example/client/v4"
[route53]
base_url = "https://route53.example"
[hetzner]
base_url = "https://hetzner.example/v1"
[desec]
base_url = "https://desec.example/api/v1"
[registrar.namecom]
username = "us"
token_file = "`+token+`"
base_url = "https://api.dev.name.com"
[registrar.cloudflare]
account_id = "acc"
token = "cf"
[rdap]
bootstrap_url = "https://mirror.example/dns.json"
[limits]
domains = 3
plan = "enterprise"
[[relay]]
name = "r1"
kind = "custom"
host = "relay.example"
id_pattern = '250 Ok (\S+)'
id_template = '<{1}@relay.example>'
dkim = false
control_headers = ["X-MC-"]
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.PublicIP) != 2 || s.MXPort != 2526 || bool(s.Private) || s.DNS.text != "127.0.0.1:5300" || s.Registrar.Sandbox == nil || s.RDAP.BootstrapURL.text != "https://mirror.example/dns.json" || s.Zones.CheckInterval.d == 0 ||
		s.Edge.BaseURL.text != "https://edge.example/client/v4" || s.Route53.BaseURL.text != "https://route53.example" ||
		s.Hetzner.BaseURL.text != "https://hetzner.example/v1" || s.DeSEC.BaseURL.text != "https://desec.example/api/v1" || s.Limits.Domains != 3 || s.Limits.Plan.text != "enterprise" || s.Relay[0].Port != 587 || s.Relay[0].TLS.text != "starttls" {
		t.Fatalf("got %+v", s)
	}
	if c := s.Service(); !c.Relays[0].NoDKIM || len(c.Relays[0].ControlHeaders) != 1 {
		t.Errorf("relay %+v", c.Relays)
	}
	if n, c := s.Registrar.NameCom, s.Registrar.Cloudflare; n.Username != "us" || n.Token != "nc" || n.BaseURL.text == "" || c.AccountID != "acc" || c.Token != "cf" {
		t.Errorf("registrars %+v, %+v", n, c)
	}
	for _, file := range []string{"[registrar.namecom]\nusername='u'\ntoken='t'\n[registrar.sandbox]", "registrar.sandbox = {}\n[registrar.namecom]\nusername='u'\ntoken='t'"} {
		s, err = merged(t, file)
		if err != nil || s.Registrar.Sandbox == nil || s.Registrar.NameCom == nil {
			t.Errorf("%s: %+v, %v", file, s, err)
		}
	}
	s, err = merged(t, `dns = "127.0.0.1:5301"`)
	if err != nil || s.DNS.text != "127.0.0.1:5301" {
		t.Fatalf("dns as an address: %v, %v", s, err)
	}
}

func TestLimitsOfConnections(t *testing.T) {
	for file, want := range map[string]core.ConnectionLimits{
		"":                                      {PerAddress: 50, PerMailboxIMAP: 50, PerMailboxSMTP: 20, PerAccount: 2000},
		"[limits]\nconnections_per_address = 0": {PerAddress: 0, PerMailboxIMAP: 50, PerMailboxSMTP: 20, PerAccount: 2000},
		"[limits]\nconnections_per_address = 9\nconnections_per_mailbox_imap = 8\nconnections_per_mailbox_smtp = 7\nconnections_per_account = 6": {PerAddress: 9, PerMailboxIMAP: 8, PerMailboxSMTP: 7, PerAccount: 6},
	} {
		if s, err := merged(t, file); err != nil || s.Service().Connections != want {
			t.Errorf("%q: %+v, %v", file, s, err)
		}
	}
}

func TestTrustedProxies(t *testing.T) {
	for _, tc := range []struct {
		file string
		args []string
		want string
	}{
		{"", nil, "[]"},
		{`trusted_proxy = ["127.0.0.1", "10.1.2.3/8", "2001:db8::1"]`, nil, "[127.0.0.1/32 10.0.0.0/8 2001:db8::1/128]"},
		{`trusted_proxy = "::ffff:192.0.2.1"`, nil, "[192.0.2.1/32]"},
		{`trusted_proxy = ["127.0.0.1"]`, []string{"--trusted-proxy", "10.0.0.1", "--trusted-proxy", "::1/128"}, "[10.0.0.1/32 ::1/128]"},
	} {
		s, err := merged(t, tc.file, tc.args...)
		if err != nil || fmt.Sprint(s.Proxies.Prefixes()) != tc.want {
			t.Errorf("%s %v: %v, %v", tc.file, tc.args, s, err)
		}
	}
	for _, bad := range []string{"here", "10.0.0.0/33", "0.0.0.0/0", "::/0", "", "10.0.0.1:80", "::ffff:10.0.0.0/104"} {
		if s, err := merged(t, fmt.Sprintf("trusted_proxy = [%q]", bad)); err == nil {
			t.Errorf("%q: %v", bad, s.Proxies)
		}
		if s, err := merged(t, "", "--trusted-proxy", bad); err == nil {
			t.Errorf("--trusted-proxy %q: %v", bad, s.Proxies)
		}
	}
	for hostname, want := range map[string]string{"": "", "mail.example.com": "https://mail.example.com"} {
		s, err := merged(t, "", "--hostname", hostname, "--http", "127.0.0.1:8025", "--http-tls", "off", "--trusted-proxy", "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.PlannedURL(); got != want {
			t.Errorf("%q is reached at %s, want %s", hostname, got, want)
		}
	}
}

func TestHostnameHasOneForm(t *testing.T) {
	for given, want := range map[string]string{"Mail.Example.COM.": "mail.example.com", "mail.bücher.example": "mail.xn--bcher-kva.example"} {
		s, err := merged(t, "", "--hostname", given)
		if err != nil || s.Hostname.text != want {
			t.Errorf("%s: %+v, %v", given, s.Hostname, err)
		}
	}
}

// TestWrongTypesNameKeyAndLine puts a value of every wrong type into every list of the file: the
// error has the key and the line.
func TestWrongTypesNameKeyAndLine(t *testing.T) {
	values := []string{"7", "1.5", "true", "['a']", "{a = 1}", "2026-01-01"}
	lists := 0
	var walk func(s reflect.Type, table string, inList bool)
	walk = func(s reflect.Type, table string, inList bool) {
		for i := range s.NumField() {
			f := s.Field(i)
			name, kind := f.Tag.Get("toml"), f.Type
			if f.Name == "Zones" {
				name = "dns"
			}
			if name == "" || name == "-" {
				continue
			}
			for kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			switch {
			case kind.Kind() == reflect.Struct && kind.NumField() > 0 && kind.Field(0).Tag.Get("toml") != "":
				walk(kind, strings.TrimPrefix(table+"."+name, "."), inList)
			case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct && kind.Elem().Field(0).Tag.Get("toml") != "":
				walk(kind.Elem(), strings.TrimPrefix(table+"."+name, "."), true)
			case kind.Kind() == reflect.Slice:
				lists++
				head := "\n\n"
				if table != "" && inList {
					head = "\n[[" + table + "]]\n"
				} else if table != "" {
					head = "\n[" + table + "]\n"
				}
				key := strings.TrimPrefix(table+"."+name, ".")
				for _, value := range values {
					for text, row := range map[string]string{head + name + " = [" + value + "]": "line 3", head + name + " = [\n" + value + "]": "line 4", head + name + " = " + value: "line 3"} {
						if value == "['a']" && !strings.Contains(text, "[['a']") && !strings.Contains(text, "[\n") {
							continue // a list of texts, whose form is another matter
						}
						if _, err := merged(t, text); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), row) {
							t.Errorf("%q: %v", text, err)
						}
					}
				}
			}
		}
	}
	walk(reflect.TypeFor[Settings](), "", false)
	if lists < 8 {
		t.Errorf("%d lists were found", lists)
	}
}

func TestBadSettingsNameTheirPlace(t *testing.T) {
	for _, tc := range []struct {
		file string
		args []string
		want []string
	}{
		{file: "[limits]\ndomains = 3\n\n[spam]\ngreylisting = true\njunk_score = 2", want: []string{"line 6: [spam] junk_score: from 0 to 1"}},
		{file: "\nspam = {junk_score = 2}", want: []string{"line 2: [spam] junk_score"}},
		{file: "spam.junk_score = 2", want: []string{"line 1: [spam] junk_score"}},
		{file: "[[destination]]\noperator = 'google.com'\n[[destination]]\noperator = 'mx.google.com'", want: []string{"line 4: [[destination]] number 2: operator"}},
		{file: "[[destination]]\noperator = 'google.com'\n\n[[destination]]\nconnections = 2", want: []string{"line 4: [[destination]] number 2: operator is required"}},
		{file: "\n[[relay]]\nname = 'r'", want: []string{"line 2: [[relay]] number 1: name, kind and host are required"}},
		{file: "[[relay]]\nname = 'r'\nkind = 'custom'\nhost = 'h'\n[[relay]]\nname = 'r'\nkind = 'custom'\nhost = 'h'", want: []string{"line 5: [[relay]] number 2: another relay already has the name"}},
		{file: "[dns]\n[[dns.secondaries]]\nname = 'x'", want: []string{"line 2: [[dns.secondaries]] number 1: address is required"}},
		{file: "[backup]\nevery = '1h'\nsync = true", want: []string{"line 3: [backup] sync"}},
		{file: "http = \n", want: []string{"line 1: the value is missing"}},
		{file: "smtpp = 'x'", want: []string{"line 1", `"smtpp"`}},
		{file: "\n[limits]\ndomain = 3", want: []string{"line 3", `"limits.domain"`}},
		{file: "\n\nsmtp = 'here'", want: []string{"line 3", "HOST:PORT"}},
		{file: "outbound = 'maybe'", want: []string{"line 1", "capture, direct, relay"}},
		{file: "mx_port = 70000", want: []string{"line 1", "65535"}},
		{file: "mx_port = 'x'", want: []string{"line 1", "65535"}},
		{file: "[limits]\ndomains = -1", want: []string{"line 2", "not negative"}},
		{file: "hostname = 3", want: []string{"line 1"}},
		{file: "[dns]\ncheck_interval = 'soon'", want: []string{"line 2", "1h"}},
		{file: "[dns]\nsecondaries = ['192.0.2.53', 'ns.example']", want: []string{"line 2", "192.0.2.53"}},
		{file: "[spam]\ndnsbl = [\n'zen.example',\n5]", want: []string{"line 4: spam.dnsbl must be a list in which each item is a text, and item 2 is a whole number"}},
		{file: "[backup]\nage_recipients = [['age1']]", want: []string{"line 2: backup.age_recipients must be a list in which each item is a text, and item 1 is a list"}},
		{file: "[metrics]\nallowed_networks = [true]", want: []string{"line 2: metrics.allowed_networks must be a list in which each item is a text, and item 1 is true or false"}},
		{file: "public_ip = [5]", want: []string{"line 1: public_ip must be a list in which each item is a text, and item 1 is a whole number"}},
		{file: "[dns]\nsecondaries = ['192.0.2.1', 7]", want: []string{"line 2: dns.secondaries must be a list in which each item is a text, and item 2 is a whole number"}},
		{file: "[dns]\nsecondaries = 3", want: []string{"line 2"}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53'\ntsig_key = 'x'", want: []string{"line 3", `"dns.secondaries.tsig_key"`}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53:0'", want: []string{"line 2", "not an IP address"}},
		{file: "[[dns.secondaries]]\nname = 'b'", want: []string{"number 1", "address is required"}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53'\ntsig_name = 'k'", want: []string{"number 1", "go together"}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53'\ntsig_algorithm = 'hmac-sha256'", want: []string{"number 1", "tsig_name"}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53'\ntsig_algorithm = 'hmac-md5'", want: []string{"line 3", "hmac-sha256"}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53'\ntsig_secret = 'c2hvcnQ='", want: []string{"line 3", "16 bytes"}},
		{file: "[[dns.secondaries]]\naddress = '192.0.2.53'\ntsig_name = 'k'\ntsig_secret_file = '/no/such'", want: []string{"number 1", "/no/such"}},
		{file: "[dns]\nsecondaries = ['192.0.2.53', '192.0.2.53:53']", want: []string{"number 2", "already"}},
		{file: twoKeys, want: []string{"number 2", "another name"}},
		{file: "[dns]\ncatalog = 'catalog.example'", want: []string{"catalog", "secondaries"}},
		{file: "[dns]\ncatalog = 'a catalog'", want: []string{"line 2", "domain name"}},
		{file: "[registrar]\nsandbx = {}", want: []string{"line 2", `"registrar.sandbx"`}},
		{file: "[registrar]\nsandbox = {price = 3}", want: []string{"line 2", `price"`}},
		{file: "[cloudflare]\nbase_url = 'edge.example'", want: []string{"line 2", "https://"}},
		{file: "[cloudflare]\ntoken = 'x'", want: []string{"line 2", `"cloudflare.token"`}},
		{file: "[registrar.namecom]\nuser = 'u'", want: []string{"line 2", `"registrar.namecom.user"`}},
		{file: "[registrar.namecom]\nusername = 'u'", want: []string{"[registrar.namecom]", "username", "token_file"}},
		{file: "[registrar.namecom]\nusername = 'u'\ntoken = 't'\ntoken_file = 'f'", want: []string{"[registrar.namecom]", "not both"}},
		{file: "[registrar.namecom]\nusername = 'u'\ntoken_file = '/nowhere/token'", want: []string{"[registrar.namecom]", "/nowhere/token"}},
		{file: "[registrar.namecom]\nusername = 'u'\ntoken = 't'\nbase_url = 'api.name.com'", want: []string{"line 4", "https://"}},
		{file: "[registrar.cloudflare]\ntoken = 't'", want: []string{"[registrar.cloudflare]", "account_id"}},
		{file: "[rdap]\nbootstrap_url = 'dns.json'", want: []string{"line 2", "https://", "off"}},
		{file: "[rdap]\nbootstrap_url = 'https://u:p@x/'", want: []string{"line 2"}},
		{file: "[rdap]\nbootstrap_url = 5", want: []string{"line 2", "https://"}},
		{file: "smtp = 'off'\ndns = 5\n[limits]\ndomains = 3", want: []string{"line 2", "HOST:PORT"}},
		{file: "\n[dns]\nlisten = 7\ncheck_interval = '1h'", want: []string{"line 3", "HOST:PORT"}},
		{file: "[registrar]\nsandbox = 1", want: []string{"line 2: registrar.sandbox must be a table, not a whole number"}},
		{file: "\n[limits]\nplan = 'startup'\ndomains = 'many'", want: []string{"line 4: limits.domains must be a whole number, not a text"}},
		{file: "[limits]\ndomains = 2.5", want: []string{"line 2: limits.domains must be a whole number, not a number"}},
		{file: "tls_cert = 5", want: []string{"line 1: tls_cert must be a text, not a whole number"}},
		{file: "allow_private_destinations = 'yes'", want: []string{"line 1: allow_private_destinations must be true or false, not a text"}},
		{file: "[spam]\ngreylisting = 1", want: []string{"line 2: spam.greylisting must be true or false, not a whole number"}},
		{file: "[spam]\ndnsbl = 'zen.example'", want: []string{"line 2: spam.dnsbl must be a list, not a text"}},
		{file: "[[relay]]\nname = 'r'\n[[relay]]\nname = ['r']", want: []string{"line 4: relay.name must be a text, not a list"}},
		{file: "[[relay]]\nname = 'r'\ndkim = 'no'", want: []string{"line 3: relay.dkim must be true or false, not a text"}},
		{file: "limits = {domains = 3, team_users = true}", want: []string{"line 1: limits.team_users must be a whole number, not true or false"}},
		{file: "[s3]\nendpoint = 'mail'", want: []string{"[s3] endpoint", "https://HOST"}},
		{file: "[backup]\nto = 'gs://mail'", want: []string{"[backup] to", "s3://BUCKET/PREFIX"}},
		{file: "[backup]\nto = 'x'\nevery = '1s'", want: []string{"[backup] every", "1m"}},
		{file: "[backup]\nsync = true", want: []string{"[backup] sync", "set the key to"}},
		{file: "[backup]\ndrill = '59m'", want: []string{"[backup] drill", "1h"}},
		{file: "[backup]\nkeep = '3 days'", want: []string{"line 2", "7d"}},
		{file: "[backup]\nage_recipients = ['ssh-x']", want: []string{"line 2", "age1"}},
		{file: "[backup]\nage_recipients = 'age1'", want: []string{"line 2: backup.age_recipients must be a list, not a text"}},
		{file: "limits = 3", want: []string{"line 1: limits must be a table, not a whole number"}},
		{file: "relay = 'r'", want: []string{"line 1: relay must be a list, not a text"}},
		{file: "smtp = ['here']", want: []string{"line 1: smtp must be a text, not a list"}},
		{file: "smtp = true", want: []string{"line 1: smtp must be a text, not true or false"}},
		{file: "smtp = 25", want: []string{"line 1: smtp:", "HOST:PORT"}},
		{file: "mx_port = 'x'", want: []string{"line 1: mx_port:", "65535"}},
		{file: "public_ip = 5", want: []string{"line 1: public_ip must be a list, not a whole number"}},
		{file: "[dns]\nsecondaries = 3", want: []string{"line 2: dns.secondaries must be a list, not a whole number"}},
		{file: "[dns]\ncheck_interval = 60", want: []string{"line 2: dns.check_interval:", "1h"}},
		{file: "[dns]\ntrust_resolver = 2026-11-05", want: []string{"line 2: dns.trust_resolver must be true or false, not a date or a time"}},
		{file: "http_tls = 'off'\nhostname = 'not a name'", want: []string{"line 2", "mail.example.com"}},
		{file: "hostname = 'mail'", want: []string{"line 1", "mail.example.com"}},
		{file: "hostname = '192.0.2.1'", want: []string{"line 1", "mail.example.com"}},
		{args: []string{"--hostname", "*.example.com"}, want: []string{"--hostname", "mail.example.com"}},
		{file: "acme_email = 'x'", want: []string{"line 1", "email address"}},
		{file: "hostname = ", want: []string{"line 1"}},
		{file: "[[relay]]\nname = 'r'", want: []string{"relay", "required"}},
		{file: "[[relay]]\nname='r'\nkind='pigeon'", want: []string{"line 3", "ses"}},
		{args: []string{"--outbound", "relay"}, want: []string{"[[relay]]"}},
		{file: "[[relay]]\nname='r'\nkind='custom'\nhost='h'\naccess_key_file='x'", want: []string{"number 1", "access_key_file", "ses"}},
		{file: "[[relay]]\nname='r'\nkind='ses'\nhost='h'\nregion='x'\ntopic_arn='arn:aws:sns:x:1:t'\naccess_key_file='x'", want: []string{"topic_arn or access_key_file"}},
		{file: "[[destination]]\nconnections = 5", want: []string{"number 1", "operator", "google.com"}},
		{file: "[[destination]]\noperator = 'mx.google.com'", want: []string{"registrable", "google.com"}},
		{file: "[[destination]]\noperator = 'google.com'\n[[destination]]\noperator = 'Google.com'", want: []string{"number 2", "another entry already has"}},
		{file: "[[destination]]\noperator = 'google.com'\nrelay = 'r'", want: []string{"number 1", "\"r\"", "[[relay]]"}},
		{file: "[[destination]]\noperator = 'google.com'\npause = '48h'", want: []string{"pause", "24h"}},
		{file: "[[destination]]\noperator = 'google.com'\nconnections = -1", want: []string{"line 3", "connections"}},
		{args: []string{"--mx-port", "0"}, want: []string{"--mx-port", "65535"}},
		{args: []string{"--public-ip", "here"}, want: []string{"--public-ip", "IP address"}},
		{args: []string{"--tls-cert", "x"}, want: []string{"--tls-key"}},
		{args: []string{"--hostname", "mail.example.com", "--acme-directory", "off"}, want: []string{"certificate", "--acme-directory"}},
		{args: []string{"--hostname", "mail.example.com", "--http", "off"}, want: []string{"certificate", "--http"}},
		{args: []string{"--http-tls", ":0"}, want: []string{"certificate"}},
		{args: []string{"--acme-directory", "ca.example"}, want: []string{"--acme-directory", "https"}},
		{args: []string{"--acme-directory", "http://ca.example/"}, want: []string{"--acme-directory", "https"}},
		{file: "acme_directory = 'on'", want: []string{"line 1", "https"}},
		{file: "acme_eab_kid = 'k'", want: []string{"acme_eab_hmac"}},
		{file: "acme_eab_hmac = '*'", want: []string{"line 1", "base64url"}},
		{file: "[otlp]\nendpoint = 'collector:4318'", want: []string{"line 2", "http://"}},
		{file: "[otlp]\nendpoint = 'http://collector:4318/v1/traces'", want: []string{"line 2", "without /v1/traces"}},
	} {
		_, err := merged(t, tc.file, tc.args...)
		if err == nil {
			t.Errorf("%q %v: no error", tc.file, tc.args)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q %v: %q does not say %q", tc.file, tc.args, err, want)
			}
		}
	}
}

const twoKeys = `[[dns.secondaries]]
address = '192.0.2.53'
tsig_name = 'k'
tsig_secret = 'MDEyMzQ1Njc4OWFiY2RlZg=='
[[dns.secondaries]]
address = '192.0.2.54'
tsig_name = 'K.'
tsig_secret = 'QUJDREVGR0hJSktMTU5PUA=='
`

func TestSecondaries(t *testing.T) {
	s, err := merged(t, "[dns]\nsecondaries = ['192.0.2.53', '[2001:db8::53]:5353']")
	if err != nil {
		t.Fatal(err)
	}
	c := s.Service()
	if len(c.Secondaries) != 2 || c.Secondaries[0].Addr.String() != "192.0.2.53:53" || c.Secondaries[1].Addr.String() != "[2001:db8::53]:5353" ||
		c.Secondaries[0].Name != "192.0.2.53:53" || c.Secondaries[0].Key != nil || !slices.Equal(c.Nameservers, []string{"ns1.mailstead.test", "ns2.mailstead.test"}) {
		t.Fatalf("addresses: %+v", c)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("MDEyMzQ1Njc4OWFiY2RlZg==\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = merged(t, `hostname = "mail.example.com"
dns.catalog = "Catalog.example."
[[dns.secondaries]]
name = "b"
address = "192.0.2.53"
nameserver = "NS3.other.example"
tsig_name = "key.example."
tsig_secret_file = "`+file+`"
`)
	if err != nil {
		t.Fatal(err)
	}
	c = s.Service()
	one := c.Secondaries[0]
	if c.Catalog != "catalog.example" || one.Name != "b" || one.Key.Name != "key.example" || one.Key.Algorithm != "hmac-sha256" ||
		string(one.Key.Secret) != "0123456789abcdef" || !slices.Equal(c.Nameservers, []string{"ns1.example.com", "ns2.example.com", "ns3.other.example"}) {
		t.Fatalf("got %+v", c)
	}
}

// A host's name is enough to run: its certificate comes from an authority. The sandbox asks nobody
// unasked.
func TestCertificatesWithoutFiles(t *testing.T) {
	s, err := merged(t, "", "--hostname", "mail.example.com")
	if err != nil || s.Directory.text != ca.LetsEncrypt {
		t.Fatalf("production: %v, %v", s, err)
	}
	if acme := s.Service().ACME; acme == nil || !acme.Host {
		t.Errorf("production: %+v", acme)
	}
	s, err = merged(t, "tls_cert = 'a'\ntls_key = 'b'", "--hostname", "mail.example.com")
	if err != nil || s.Service().ACME == nil || s.Service().ACME.Host {
		t.Errorf("with a file for the host's name: %v, %v", s, err)
	}
	s, err = merged(t, "")
	if err != nil || s.Service().ACME != nil || s.TLS() {
		t.Errorf("sandbox: %v, %v", s, err)
	}
	s, err = merged(t, "acme_directory = 'https://127.0.0.1/dir'\nacme_eab_kid = 'k'\nacme_eab_hmac = 'AQID'", "--http-tls", ":0")
	if err != nil || s.Service().ACME == nil || !s.TLS() || !bytes.Equal(s.Service().ACME.EABKey, []byte{1, 2, 3}) {
		t.Errorf("sandbox with an authority: %v, %v", s, err)
	}
}

func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	was, err := merged(t, "log_level = 'info'\nsmtp = ':25'\n[limits]\ndomains = 3\n[dns]\nlisten = ':1'")
	if err != nil {
		t.Fatal(err)
	}
	is, err := merged(t, "log_level = 'debug'\nsmtp = ':26'\ntls_cert = 'a'\ntls_key = 'b'\n[limits]\ndomains = 4\nexempt_networks = ['10.0.0.1']\n[dns]\nlisten = ':2'\n[backup]\nevery = '2h'\nkeep = '9d'")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := was.NeedRestart(is), []string{"smtp", "dns", "tls_cert", "tls_key", "limits.exempt_networks", "backup.keep"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := was.NeedRestart(was); len(got) != 0 {
		t.Errorf("the same settings differ in %v", got)
	}
}

func TestSpamSettings(t *testing.T) {
	s, err := merged(t, `
[spam]
trusted_sealers = ["Lists.Example.org."]
milter = "inet:127.0.0.1:11332"
milter_timeout = "3s"
dnsbl = ["zen.example", "bl.example"]
dnsbl_action = "junk"
greylisting = true
first_sender_delay = "10s"
`)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Service().Spam
	if got.Reports || !got.DNSBLJunk || !got.Greylisting || got.FirstDelay != 10*time.Second || !slices.Equal(got.DNSBL, []string{"zen.example", "bl.example"}) ||
		!slices.Equal(got.TrustedSealers, []string{"lists.example.org"}) || got.Milter.Network != "tcp" || got.Milter.Address != "127.0.0.1:11332" || got.Milter.Timeout != 3*time.Second {
		t.Errorf("%+v", got)
	}
	s, err = merged(t, `hostname = "mail.example.com"`)
	if err != nil || !s.Service().Spam.Reports || s.Service().Spam.Milter != nil {
		t.Errorf("production: %+v, %v", s.Spam, err)
	}
	s, err = merged(t, "hostname = \"mail.example.com\"\n[spam]\ndmarc_reports = false")
	if err != nil || s.Service().Spam.Reports {
		t.Errorf("switched off: %+v, %v", s.Spam, err)
	}
	for file, want := range map[string]core.Spam{
		"": {Classifier: true, JunkScore: 0.9}, "[spam]\nclassifier = false": {JunkScore: 0.9}, "[spam]\njunk_score = 1": {Classifier: true, JunkScore: 1},
	} {
		s, err = merged(t, file)
		if err != nil || s.Service().Spam.Classifier != want.Classifier || s.Service().Spam.JunkScore != want.JunkScore {
			t.Errorf("%s: %+v, %v", file, s.Spam, err)
		}
	}
	for file, want := range map[string]string{
		`junk_score = 1.1`: "junk_score: from 0 to 1", `junk_score = -0.1`: "junk_score: from 0 to 1", `junk_score = nan`: "junk_score: from 0 to 1",
		`milter = "127.0.0.1:11332"`: "line 2: spam.milter: \"127.0.0.1:11332\" is not a filter",
		`milter = "unix:relative"`:   "line 2",
		`dnsbl = ["not a name"]`:     "is not a domain name",
		`dnsbl_action = "drop"`:      "line 2",
		`first_sender_delay = "1h"`:  "from 0s to 1m",
		`greylist = true`:            "there is no setting \"spam.greylist\"",
		`milter_timeout = "1h"`:      "milter_timeout",
		`dnsbl = ["a.b","a.b","a.b","a.b","a.b","a.b","a.b","a.b","a.b","a.b","a.b"]`: "at most 10 lists",
	} {
		if _, err := merged(t, "[spam]\n"+file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// Whoever configures reads docs/configuration.md: every key of the file stands there.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := keysOf(reflect.TypeFor[Settings](), "")
	keys = append(keys, "dns")
	keys = append(keys, keysOf(reflect.TypeFor[dnsSettings](), "dns.")...)
	if len(keys) < 70 {
		t.Fatalf("only %d keys: %v", len(keys), keys)
	}
	for _, key := range keys {
		name := key[strings.LastIndexByte(key, '.')+1:]
		table := strings.TrimSuffix(key, "."+name)
		known := regexp.MustCompile(`(?m)(^|\W)` + name + `\b`).MatchString(string(text))
		if strings.Contains(string(text), "["+key+"]") {
			continue // a table without keys
		}
		if !known || table != key && !strings.Contains(string(text), "["+table+"]") {
			t.Errorf("docs/configuration.md does not have %s", key)
		}
	}
}

// What the examples of docs/configuration.md say is taken as it stands.
func TestExamplesOfTheFileAreTaken(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"ses": "", "namecom": "", "cloudflare": "", "tsig": "", "s3": "", "aws": "AKIDEXAMPLE\ns3cret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(cmp.Or(text, "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 16 {
		t.Errorf("%d examples", len(blocks))
	}
	for _, b := range blocks {
		file := strings.ReplaceAll(b[1], "/etc/mailstead", dir)
		for _, args := range [][]string{nil, {"--hostname", "mail.example.com"}} {
			if args != nil && strings.Contains(file, "[sandbox]") {
				continue // it is for the sandbox alone
			}
			if _, err := merged(t, file, args...); err != nil {
				t.Errorf("%v: %v in\n%s", args, err, file)
			}
		}
	}
}

// keysOf returns the keys of a table and of those in it.
func keysOf(of reflect.Type, under string) (out []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, kind := field.Tag.Get("toml"), field.Type
		if name == "" || name == "-" {
			continue
		}
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		inner := []string{under + name}
		if kind.Kind() == reflect.Struct && kind.NumField() > 0 && kind.Field(0).Tag.Get("toml") != "" {
			inner = keysOf(kind, under+name+".")
		}
		out = append(out, inner...)
	}
	return out
}

// TestEnvironmentOfOtherCommands: a command without the flags of the settings has them from the
// environment too, so that it does not take the host for a sandbox.
func TestEnvironmentOfOtherCommands(t *testing.T) {
	load := func() (got *Settings, failed error) {
		app := &cli.App{Action: func(c *cli.Context) error {
			got, failed = Merge("mailstead.toml", `smtp = "127.0.0.1:1"`, c)
			return nil
		}}
		if err := app.Run([]string{"mailstead"}); err != nil {
			t.Fatal(err)
		}
		return got, failed
	}
	if s, err := load(); err != nil || !s.Sandbox() {
		t.Fatalf("%v, %v", s, err)
	}
	t.Setenv("MAILSTEAD_HOSTNAME", "mail.example.com")
	t.Setenv("MAILSTEAD_PUBLIC_IP", "192.0.2.1,192.0.2.2")
	t.Setenv("MAILSTEAD_MIGRATE", "1")
	s, err := load()
	if err != nil || s.Sandbox() || len(s.PublicIP) != 2 || !bool(s.Migrate) || s.SMTP.text != "127.0.0.1:1" {
		t.Fatalf("%+v, %v", s, err)
	}
	t.Setenv("MAILSTEAD_MIGRATE", "perhaps")
	if _, err := load(); err == nil || !strings.Contains(err.Error(), "--migrate") {
		t.Errorf("a wrong value: %v", err)
	}
}

// TestEditKeepsTheFile: what a command line sets is put into the text of a file, the rest stays,
// and what holds for one start is left out.
func TestEditKeepsTheFile(t *testing.T) {
	var got string
	app := &cli.App{Flags: Flags(), Action: func(c *cli.Context) error {
		got = Edit("# ours\nsmtp = \":25\"\n\n[doctor]\nblocklists = []\n", c)
		return nil
	}}
	if err := app.Run([]string{"mailstead", "--hostname", "mail.example.com", "--smtp", ":26", "--migrate"}); err != nil {
		t.Fatal(err)
	}
	if want := "# ours\nsmtp = \":26\"\nhostname = \"mail.example.com\"\n\n[doctor]\nblocklists = []\n"; got != want {
		t.Errorf("%s", got)
	}
}

// TestSimulatorSettings: the sandbox has the simulator, production only where it is asked for.
func TestSimulatorSettings(t *testing.T) {
	for file, want := range map[string]bool{
		"": true, "[simulator]\nenabled = false": false,
		"hostname = 'mail.example.com'": false, "hostname = 'mail.example.com'\n[simulator]\nenabled = true": true,
	} {
		if s, err := merged(t, file); err != nil || s.Service().Simulator != want {
			t.Errorf("%q: %v, want %v; %v", file, s.Service().Simulator, want, err)
		}
	}
	if _, err := merged(t, "[simulator]\nenabled = 1"); err == nil || !strings.Contains(err.Error(), "line 2: simulator.enabled must be true or false") {
		t.Errorf("a number: %v", err)
	}
}
