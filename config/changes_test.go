package config

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/settings"
)

// A settingsWorld is a service whose settings change.
type settingsWorld struct {
	*servicetest.Sandbox
	t    *testing.T
	dir  string
	file shopFile
	end  func() // closes the service
	log  bytes.Buffer
}

// A shopFile is a settings file that makes registrars without their connections.
type shopFile struct{ *Settings }

// Join returns the settings that hold with the values in the store.
func (f shopFile) Join(stored []settings.Stored) (*settings.Joined, error) {
	s, joined, err := f.Settings.Join(stored)
	if err != nil {
		return nil, err
	}
	out := &joined.Settings.Registrars
	if n := s.Registrar.NameCom; n != nil {
		shop, err := registrar.NewNameCom(registrar.NameComConfig{Username: n.Username, Token: n.Token})
		if err != nil {
			return nil, err
		}
		*out = append(*out, shop)
	}
	if c := s.Registrar.Cloudflare; c != nil {
		*out = append(*out, registrar.NewCloudflare(registrar.CloudflareConfig{AccountID: c.AccountID, Token: c.Token}))
	}
	if s.Registrar.Sandbox != nil {
		*out = append(*out, registrar.NewSandbox(time.Now, nil, nil))
	}
	return joined, nil
}

// loaded returns the settings of a file with this text.
func loaded(t *testing.T, file string) (s *Settings) {
	t.Helper()
	app := &cli.App{Flags: append(Flags(), &cli.StringFlag{Name: "data"}), Action: func(c *cli.Context) (err error) {
		s, err = Merge("mailstead.toml", file, c)
		return err
	}}
	if err := app.Run([]string{"mailstead"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// newSettingsWorld makes a service whose settings file has this text.
func newSettingsWorld(t *testing.T, file string) *settingsWorld {
	t.Helper()
	w := &settingsWorld{t: t, dir: t.TempDir()}
	w.open(file)
	t.Cleanup(func() { w.end() })
	w.Account(t, "owner@example.test")
	return w
}

func (w *settingsWorld) open(file string) {
	w.t.Helper()
	w.file = shopFile{loaded(w.t, file)}
	c := w.file.Service()
	c.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	w.Sandbox, w.end = servicetest.OpenSettings(w.t, w.dir, c, w.file)
}

// restart opens the service again, with this settings file.
func (w *settingsWorld) restart(file string) {
	w.t.Helper()
	w.end()
	w.open(file)
}

// reload does what SIGHUP does.
func (w *settingsWorld) reload(file string) error {
	return w.Settings.UseFile(shopFile{w.file.Refreshed(loaded(w.t, file))})
}

// patch changes settings. values is a JSON object.
func (w *settingsWorld) patch(values string) error {
	w.t.Helper()
	var in settings.UpdateSettingsIn
	if err := json.Unmarshal([]byte(`{"values":`+values+`}`), &in); err != nil {
		w.t.Fatalf("%s: %v", values, err)
	}
	who := core.Actor{TokenID: core.LocalToken, TokenKind: core.SessionKind, Operator: true, Request: &core.Request{Action: "update_settings", Via: core.AuditCommands, Fields: []string{"values"}}}
	_, err := w.Settings.UpdateSettings(w.t.Context(), who, in)
	return err
}

// must changes settings.
func (w *settingsWorld) must(values string) {
	w.t.Helper()
	if err := w.patch(values); err != nil {
		w.t.Fatalf("%s: %v", values, err)
	}
}

// refuses checks the error of a change, which then has no effect.
func (w *settingsWorld) refuses(values, code string, texts ...string) {
	w.t.Helper()
	before, stored := w.Core.Settings(), w.rows()
	err := w.patch(values)
	e, _ := core.AsError(err)
	if e == nil || e.Code != code {
		w.t.Errorf("%s: %v, want %s", values, err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(e.Message, text) {
			w.t.Errorf("%s: %q does not say %q", values, e.Message, text)
		}
	}
	if w.Core.Settings() != before || w.rows() != stored {
		w.t.Errorf("%s was refused, but has an effect", values)
	}
}

// rows returns the number of values in the store.
func (w *settingsWorld) rows() int {
	w.t.Helper()
	return w.StoredSettings(w.t)
}

// list returns the settings by key.
func (w *settingsWorld) list() map[string]settings.Setting {
	w.t.Helper()
	got, err := w.Settings.ListSettings(w.t.Context(), core.Actor{})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]settings.Setting{}
	for _, row := range got.Data {
		if _, twice := out[row.Key]; twice {
			w.t.Errorf("%s is listed twice", row.Key)
		}
		out[row.Key] = row
	}
	return out
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text.String())
}

// oneRelay is what a relay needs beside the setting that is tried.
const oneRelay = `"relay.r1.kind":"custom","relay.r1.host":"relay.example.com"`

// aSetting is a setting with a value that is not its default.
type aSetting struct {
	key, value string
	with       string // what must be set with it
	file       string // text of a file that sets it
	holds      func(*core.Settings) any
	want       any
}

// eachSetting has every editable setting.
func eachSetting() []aSetting {
	out := []aSetting{
		{key: "outbound", value: `"direct"`, holds: func(s *core.Settings) any { return s.Outbound }, want: "direct"},
		{key: "log.level", value: `"warn"`, file: "log_level = 'debug'", holds: func(s *core.Settings) any { return s.LogLevel }, want: slog.LevelWarn},
		{key: "sending.source_ipv4", value: `"192.0.2.9"`, holds: func(s *core.Settings) any { return s.Sending.IPv4.String() }, want: "192.0.2.9"},
		{key: "sending.source_ipv6", value: `"2001:db8::9"`, holds: func(s *core.Settings) any { return s.Sending.IPv6.String() }, want: "2001:db8::9"},
		{key: "sending.helo", value: `"out.example.com"`, holds: func(s *core.Settings) any { return s.Sending.Helo }, want: "out.example.com"},
		{key: "limits.plan", value: `"enterprise"`, holds: func(s *core.Settings) any { return s.Limits.Plan }, want: "enterprise"},
		{key: "spam.trusted_sealers", value: `["lists.example"]`, holds: func(s *core.Settings) any { return strings.Join(s.Spam.TrustedSealers, " ") }, want: "lists.example"},
		{key: "spam.dmarc_reports", value: `true`, holds: func(s *core.Settings) any { return s.Spam.Reports }, want: true},
		{key: "spam.milter_timeout", value: `"3s"`, holds: func(*core.Settings) any { return nil }},
		{key: "spam.dnsbl", value: `["zen.example"]`, holds: func(s *core.Settings) any { return strings.Join(s.Spam.DNSBL, " ") }, want: "zen.example"},
		{key: "spam.dnsbl_action", value: `"junk"`, holds: func(s *core.Settings) any { return s.Spam.DNSBLJunk }, want: true},
		{key: "spam.greylisting", value: `true`, holds: func(s *core.Settings) any { return s.Spam.Greylisting }, want: true},
		{key: "spam.first_sender_delay", value: `"10s"`, holds: func(s *core.Settings) any { return s.Spam.FirstDelay.String() }, want: "10s"},
		{key: "spam.classifier", value: `false`, holds: func(s *core.Settings) any { return s.Spam.Classifier }, want: false},
		{key: "spam.junk_score", value: `0.5`, holds: func(s *core.Settings) any { return s.Spam.JunkScore }, want: 0.5},
		{key: "retention.trash_days", value: `2`, holds: func(s *core.Settings) any { return s.Retention.Trash.Hours() }, want: 48.0},
		{key: "retention.junk_days", value: `0`, holds: func(s *core.Settings) any { return s.Retention.Junk.Hours() }, want: 0.0},
		{key: "retention.request_days", value: `3`, holds: func(s *core.Settings) any { return s.Retention.Requests.Hours() }, want: 72.0},
		{key: "alerts.url", value: `"https://alerts.example.com/x"`, holds: func(s *core.Settings) any { return fmt.Sprint(s.AlertURL, s.AlertGuarded) }, want: "https://alerts.example.com/xtrue"},
		{key: "doctor.blocklists", value: `["zen.example"]`, holds: func(s *core.Settings) any { return strings.Join(s.Doctor.Blocklists, " ") }, want: "zen.example"},
		{key: "doctor.port25_targets", value: `["mx.example.net:25"]`, holds: func(s *core.Settings) any { return fmt.Sprint(s.Doctor.Port25Targets, s.Doctor.Guarded) }, want: "[mx.example.net:25] true"},
		{key: "backup.every", value: `"2h"`, holds: func(s *core.Settings) any { return s.BackupEvery.Hours() }, want: 2.0},
		{key: "backup.full_every", value: `"3d"`, holds: func(s *core.Settings) any { return s.FullBackupEvery.Hours() }, want: 72.0},
		{key: "backup.drill", value: `"7d"`, file: "backup.drill = '9d'", holds: func(s *core.Settings) any { return s.DrillEvery.Hours() }, want: 168.0},
		{key: "simulator.enabled", value: `false`, holds: func(s *core.Settings) any { return s.Simulator }, want: false},
		{key: "registrar.sandbox", value: `true`, file: "[registrar.sandbox]", holds: registrarNames, want: "sandbox"},
		{key: "registrar.namecom.username", value: `"us"`, with: `"registrar.namecom.token":"nc"`, file: "[registrar.namecom]\nusername = 'x'\ntoken = 't'", holds: registrarNames, want: "namecom"},
		{key: "registrar.namecom.token", value: `"nc"`, with: `"registrar.namecom.username":"us"`, file: "[registrar.namecom]\nusername = 'x'\ntoken = 't'", holds: registrarNames, want: "namecom"},
		{key: "registrar.cloudflare.account_id", value: `"us"`, with: `"registrar.cloudflare.token":"cf"`, file: "[registrar.cloudflare]\naccount_id = 'x'\ntoken = 't'", holds: registrarNames, want: "cloudflare"},
		{key: "registrar.cloudflare.token", value: `"cf"`, with: `"registrar.cloudflare.account_id":"us"`, file: "[registrar.cloudflare]\naccount_id = 'x'\ntoken = 't'", holds: registrarNames, want: "cloudflare"},
	}
	for n, of := range []struct {
		key   string
		holds func(*core.Settings) int
	}{
		{"domains", func(s *core.Settings) int { return s.Limits.Domains }}, {"team_users", func(s *core.Settings) int { return s.Limits.TeamUsers }},
		{"mailboxes", func(s *core.Settings) int { return s.Limits.Mailboxes }}, {"mailboxes_per_domain", func(s *core.Settings) int { return s.Limits.MailboxesPerDomain }},
		{"rate_per_minute", func(s *core.Settings) int { return s.Limits.RatePerMinute }}, {"burst_per_minute", func(s *core.Settings) int { return s.Limits.BurstPerMinute }},
		{"recipients_per_mailbox_per_day", func(s *core.Settings) int { return s.Limits.RecipientsPerMailbox }},
		{"recipients_per_domain_per_day", func(s *core.Settings) int { return s.Limits.RecipientsPerDomain }},
		{"recipients_per_account_per_day", func(s *core.Settings) int { return s.Limits.RecipientsPerAccount }},
		{"new_recipients_per_mailbox_per_day", func(s *core.Settings) int { return s.Limits.NewRecipientsPerMailbox }},
		{"new_recipients_per_domain_per_day", func(s *core.Settings) int { return s.Limits.NewRecipientsPerDomain }},
		{"new_recipients_per_account_per_day", func(s *core.Settings) int { return s.Limits.NewRecipientsPerAccount }},
		{"connections_per_address", func(s *core.Settings) int { return s.Connections.PerAddress }},
		{"connections_per_mailbox_imap", func(s *core.Settings) int { return s.Connections.PerMailboxIMAP }},
		{"connections_per_mailbox_smtp", func(s *core.Settings) int { return s.Connections.PerMailboxSMTP }},
		{"connections_per_account", func(s *core.Settings) int { return s.Connections.PerAccount }},
	} {
		out = append(out, aSetting{key: "limits." + of.key, value: strconv.Itoa(1001 + n), holds: func(s *core.Settings) any { return of.holds(s) }, want: 1001 + n})
	}
	relay := func(s *core.Settings) *core.Relay {
		if len(s.Relays) == 0 {
			return &core.Relay{}
		}
		return &s.Relays[0]
	}
	relayFile := "[[relay]]\nname = 'r1'\nkind = 'custom'\nhost = 'other.example.com'"
	for _, of := range []struct {
		key, value, with string
		holds            func(*core.Relay) any
		want             any
	}{
		{"kind", `"custom"`, `"relay.r1.host":"relay.example.com"`, func(r *core.Relay) any { return r.Kind }, "custom"},
		{"host", `"relay.example.com"`, `"relay.r1.kind":"custom"`, func(r *core.Relay) any { return r.Host }, "relay.example.com"},
		{"port", `2525`, oneRelay, func(r *core.Relay) any { return r.Port }, 2525},
		{"tls", `"tls"`, oneRelay, func(r *core.Relay) any { return r.TLS }, "tls"},
		{"username", `"us"`, oneRelay + `,"relay.r1.password":"pw"`, func(r *core.Relay) any { return r.Username }, "us"},
		{"password", `"pw"`, oneRelay + `,"relay.r1.username":"us"`, func(r *core.Relay) any { return r.Password }, "pw"},
		{"region", `"eu-west-1"`, oneRelay, func(r *core.Relay) any { return r.Region }, "eu-west-1"},
		{"topic_arn", `"arn:aws:sns:x:1:t"`, oneRelay, func(r *core.Relay) any { return r.TopicARN }, "arn:aws:sns:x:1:t"},
		{"webhook_secret", `"ws"`, oneRelay, func(r *core.Relay) any { return r.WebhookSecret }, "ws"},
		{"id_pattern", `"Ok (\\S+)"`, oneRelay + `,"relay.r1.id_template":"<{1}@x>"`, func(r *core.Relay) any { return r.IDPattern }, `Ok (\S+)`},
		{"id_template", `"<{1}@x>"`, oneRelay + `,"relay.r1.id_pattern":"Ok (\\S+)"`, func(r *core.Relay) any { return r.IDTemplate }, "<{1}@x>"},
		{"dkim", `false`, oneRelay, func(r *core.Relay) any { return r.NoDKIM }, true},
		{"return_path", `"sender"`, oneRelay, func(r *core.Relay) any { return r.ReturnPath }, "sender"},
		{"sns_url", `"https://sns.example.com/"`, oneRelay, func(r *core.Relay) any { return r.SNSURL }, "https://sns.example.com/"},
		{"ses_url", `"https://ses.example.com/"`, oneRelay, func(r *core.Relay) any { return r.SESURL }, "https://ses.example.com/"},
		{"control_headers", `["X-MC-"]`, oneRelay, func(r *core.Relay) any { return strings.Join(r.ControlHeaders, " ") }, "X-MC-"},
	} {
		out = append(out, aSetting{key: `relay."r1".` + of.key, value: of.value, with: of.with, file: relayFile, holds: func(s *core.Settings) any { return of.holds(relay(s)) }, want: of.want})
	}
	destination := func(s *core.Settings) core.Destination {
		if len(s.Destinations) == 0 {
			return core.Destination{}
		}
		return s.Destinations[0]
	}
	destinationFile := "[[destination]]\noperator = 'google.com'\nconnections = 3"
	for _, of := range []struct {
		key, value, with string
		holds            func(core.Destination) any
		want             any
	}{
		{"connections", `7`, "", func(d core.Destination) any { return fmt.Sprint(d.Connections != nil && *d.Connections == 7) }, "true"},
		{"per_minute", `8`, "", func(d core.Destination) any { return fmt.Sprint(d.PerMinute != nil && *d.PerMinute == 8) }, "true"},
		{"pause", `"5m"`, "", func(d core.Destination) any { return fmt.Sprint(d.Pause != nil && d.Pause.Minutes() == 5) }, "true"},
		{"relay", `"r1"`, oneRelay, func(d core.Destination) any { return d.Relay }, "r1"},
	} {
		out = append(out, aSetting{key: `destination."google.com".` + of.key, value: of.value, with: of.with, file: destinationFile, holds: func(s *core.Settings) any { return of.holds(destination(s)) }, want: of.want})
	}
	return out
}

func registrarNames(s *core.Settings) any {
	var names []string
	for _, r := range s.Registrars {
		names = append(names, r.Name())
	}
	return strings.Join(names, " ")
}

// TestEverySettingHoldsWithoutARestart changes each editable setting. It holds at once and after a
// restart, the file overrides it, and it holds again when the file drops it.
func TestEverySettingHoldsWithoutARestart(t *testing.T) {
	all := eachSetting()
	listed := map[string]bool{}
	for _, c := range all {
		listed[c.key] = true
		t.Run(c.key, func(t *testing.T) {
			base := ""
			if c.key == "backup.drill" { // which needs a target
				base = "backup.to = '" + t.TempDir() + "'\n"
			}
			w := newSettingsWorld(t, base)
			change := `{"` + strings.ReplaceAll(c.key, `"`, `\"`) + `":` + c.value
			if c.with != "" {
				change += "," + c.with
			}
			if c.want != nil && reflect.DeepEqual(c.holds(w.Core.Settings()), c.want) {
				t.Fatal("the value is the default")
			}
			w.must(change + "}")
			check := func(when, source string) {
				t.Helper()
				row := w.list()[c.key]
				value := jsonText(t, row.Value)
				if row.Source != source || !row.Editable || row.Restart || row.Ignored != nil {
					t.Errorf("%s: %s", when, jsonText(t, row))
				}
				if source != "store" {
					return
				}
				if got := c.holds(w.Core.Settings()); !reflect.DeepEqual(got, c.want) {
					t.Errorf("%s: %v holds, want %v", when, got, c.want)
				}
				if row.Secret && value != "true" || !row.Secret && value != c.value {
					t.Errorf("%s: the value is %s", when, value)
				}
			}
			check("at once", "store")
			w.restart(base)
			check("after a restart", "store")

			file := c.file
			if file == "" {
				other := map[string]string{"true": "false", "false": "true"}[c.value]
				switch {
				case strings.HasPrefix(c.value, "["):
					other = "[]"
				case c.key == "outbound":
					other = "'capture'"
				case c.key == "limits.plan":
					other = "'startup'"
				case c.key == "spam.dnsbl_action":
					other = "'reject'"
				case c.key == "sending.source_ipv6":
					other = "'2001:db8::1'"
				case strings.HasPrefix(c.key, "sending.source"):
					other = "'192.0.2.1'"
				case strings.HasPrefix(c.key, "backup."):
					other = "'9h'"
				case strings.HasPrefix(c.key, "spam.") && strings.HasPrefix(c.value, `"`):
					other = "'5s'"
				case other == "" && strings.HasPrefix(c.value, `"`):
					other = `"https://other.example.com"`
					if c.key == "sending.helo" {
						other = `"other.example.com"`
					}
				case other == "":
					other = "1"
				}
				file = c.key + " = " + other
			}
			if err := w.reload("# a comment\n" + file + "\n" + base); err != nil {
				t.Fatal(err)
			}
			row := w.list()[c.key]
			if got := c.holds(w.Core.Settings()); c.want != nil && reflect.DeepEqual(got, c.want) && c.file == "" {
				t.Errorf("the file does not override it: %v", got)
			}
			if row.Ignored == nil || !strings.Contains(*row.Ignored, "mailstead.toml, line 2") {
				t.Errorf("under the file: %s", jsonText(t, row))
			}
			w.refuses(change+"}", "set_in_file", "mailstead.toml, line 2")
			if len(w.Core.Settings().Ignored) == 0 {
				t.Error("nobody is told that the value in the store is ignored")
			}
			if err := w.reload(base); err != nil {
				t.Fatal(err)
			}
			check("without the file", "store")
			w.restart("# a comment\n" + file + "\n" + base)
			if got := w.list()[c.key]; got.Ignored == nil {
				t.Errorf("after a restart under the file: %s", jsonText(t, got))
			}
		})
	}
	w := newSettingsWorld(t, "")
	w.must(`{` + oneRelay + `,"destination.\"google.com\".connections":1}`)
	editable := 0
	for key, row := range w.list() {
		if row.Description == "" || row.Type == "" {
			t.Errorf("%s lacks a description or a type", key)
		}
		if row.Editable {
			editable++
			if !listed[key] {
				t.Errorf("%s is editable, and no test changes it", key)
			}
		}
	}
	if editable != len(all) {
		t.Errorf("%d editable settings, want %d", editable, len(all))
	}
}

// TestWhatSettingsRefuse goes through the rules of update_settings.
func TestWhatSettingsRefuse(t *testing.T) {
	t.Setenv("MAILSTEAD_LOG_LEVEL", "info")
	w := newSettingsWorld(t, "allow_private_destinations = false\n[[relay]]\nname = 'filed'\nkind = 'custom'\nhost = '127.0.0.1'\n")
	if row := w.list()["log.level"]; row.Source != "environment" || row.Line != nil {
		t.Errorf("log.level: %s", jsonText(t, row))
	}
	for _, c := range []struct {
		values, code string
		texts        []string
	}{
		{`{}`, "nothing_to_update", nil},
		{`{"limits.domain":3}`, "invalid_setting", []string{`"limits.domain"`, "limits.domains"}},
		{`{"relay.r1.hots":"x"}`, "invalid_setting", []string{`relay."r1".host`}},
		{`{"nothing at all":3}`, "invalid_setting", []string{"There is no setting"}},
		{`{"a = 1\nb":3}`, "invalid_setting", []string{"There is no setting"}},
		{`{"hostname":"mail.example.com"}`, "invalid_setting", []string{"mailstead.toml, and restart"}},
		{`{"limits.exempt_networks":["10.0.0.0/8"]}`, "invalid_setting", []string{"mailstead.toml"}},
		{`{"spam.milter":"inet:127.0.0.1:1"}`, "invalid_setting", []string{"mailstead.toml"}},
		{`{"backup.to":"/x"}`, "invalid_setting", nil},
		{`{"backup.keep":"9d"}`, "invalid_setting", nil},
		{`{"s3.endpoint":"https://x"}`, "invalid_setting", nil},
		{`{"metrics.token":"x"}`, "invalid_setting", nil},
		{`{"relay.r1.password_file":"/etc/passwd"}`, "invalid_setting", []string{"mailstead.toml"}},
		{`{"registrar.namecom.base_url":"https://x"}`, "invalid_setting", nil},
		{`{"registrar.namecom.token_file":"/etc/passwd"}`, "invalid_setting", nil},
		{`{"limits.domains":"many"}`, "invalid_setting", []string{"limits.domains must be a whole number, not a text"}},
		{`{"limits.domains":2.5}`, "invalid_setting", []string{"must be a whole number"}},
		{`{"limits.domains":-1}`, "invalid_setting", []string{"not negative"}},
		{`{"limits.domains":{"x":1}}`, "invalid_setting", []string{"must be a whole number, not a table"}},
		{`{"limits.domains":[1]}`, "invalid_setting", []string{"not a list"}},
		{`{"outbound":{}}`, "invalid_setting", []string{"outbound must be a text, not a table"}},
		{`{"alerts.url":{"x":1}}`, "invalid_setting", []string{"alerts.url must be a text, not a table"}},
		{`{` + oneRelay + `,"relay.r1.tls":{}}`, "invalid_setting", []string{"relay.tls must be a text, not a table"}},
		{`{"spam.dnsbl":` + strings.Repeat("[", 7000) + strings.Repeat("]", 7000) + `}`, "invalid_setting", []string{"spam.dnsbl must not have a list within a list"}},
		{`{"spam.junk_score":2}`, "invalid_setting", []string{"from 0 to 1"}},
		{`{"spam.dnsbl":"zen.example"}`, "invalid_setting", []string{"must be a list"}},
		{`{"spam.dnsbl":[5]}`, "invalid_setting", []string{"item 1"}},
		{`{"spam.dnsbl":["a b"]}`, "invalid_setting", []string{"is not a domain name"}},
		{`{"spam.greylisting":1}`, "invalid_setting", []string{"true or false"}},
		{`{"backup.every":"soon"}`, "invalid_setting", []string{"is not a duration"}},
		{`{"outbound":"maybe"}`, "invalid_setting", []string{"capture, direct, relay"}},
		{`{"registrar.sandbox":"x"}`, "invalid_setting", nil},
		{`{"limits.domains":3,"limits.team_users":"x"}`, "invalid_setting", nil}, // all or nothing
		{`{"alerts.url":"ftp://x"}`, "invalid_setting", nil},
		{`{"log.level":"debug"}`, "set_in_file", []string{"MAILSTEAD_LOG_LEVEL"}},
		{`{"relay.filed.host":"x.example.com"}`, "set_in_file", []string{"mailstead.toml, line 2"}},
		{`{"relay.filed":null}`, "set_in_file", nil},
		{`{"relay.r1":{}}`, "invalid_setting", nil},
		{`{"relay.r1":null,` + oneRelay + `}`, "invalid_setting", []string{"at once"}},
		{`{"relay.r1.host":"relay.example.com","relay.\"r1\".host":"relay.example.com"}`, "invalid_setting", []string{"twice"}},
		{`{"relay.r1.host":"relay.example.com"}`, "invalid_setting", []string{"name, kind and host are required"}},
		{`{"relay.\"a/b\".kind":"custom"}`, "invalid_setting", []string{"letters, digits"}},
		{`{` + oneRelay + `,"relay.r1.username":"u"}`, "invalid_setting", []string{"password"}},
		{`{` + oneRelay + `,"relay.r1.password":"p","relay.r1.tls":"none"}`, "invalid_setting", []string{"in the clear"}},
		{`{"relay.r1.kind":"custom","relay.r1.host":"127.0.0.1"}`, "invalid_setting", []string{"no public address"}},
		{`{"alerts.url":"http://10.1.2.3/x"}`, "invalid_setting", []string{"no public address"}},
		{`{"alerts.url":"http://169.254.169.254/latest"}`, "invalid_setting", []string{"no public address"}},
		{`{"doctor.port25_targets":["[::1]:25"]}`, "invalid_setting", []string{"no public address"}},
		{`{` + oneRelay + `,"relay.r1.sns_url":"https://127.0.0.1/"}`, "invalid_setting", []string{"no public address"}},
		{`{"destination.\"google.com\".relay":"none"}`, "invalid_setting", []string{`"none" is not the name of a [[relay]]`}},
		{`{"destination.google.com.connections":1}`, "invalid_setting", []string{"There is no setting"}},
		{`{"destination.\"mx.google.com\".connections":1}`, "invalid_setting", []string{"google.com"}},
		{`{"registrar.namecom.username":"u"}`, "invalid_setting", []string{"required"}},
		{`{"sending.helo":"` + strings.Repeat("x", 17<<10) + `"}`, "invalid_setting", []string{"bytes"}},
	} {
		w.refuses(c.values, c.code, c.texts...)
	}
	if n := w.rows(); n != 0 {
		t.Errorf("the store has %d values", n)
	}
}

// TestEntriesOfSettings: the secrets of a relay that moves are removed, and what is needed stays.
func TestEntriesOfSettings(t *testing.T) {
	w := newSettingsWorld(t, "")
	w.must(`{` + oneRelay + `,"relay.r1.password":"pw","relay.r1.username":"us","relay.r1.webhook_secret":"ws"}`)
	for _, move := range []string{`"relay.r1.host":"new.example.com"`, `"relay.r1.port":2525`, `"relay.r1.kind":"mailgun"`, `"relay.r1.tls":"tls"`} {
		w.refuses(`{`+move+`}`, "invalid_setting", "password")
	}
	w.must(`{"relay.r1.port":587}`) // the default: it does not move
	w.must(`{"relay.r1.port":2525,"relay.r1.password":"pw"}`)
	w.refuses(`{"relay.r1.port":null}`, "invalid_setting", "password") // it moves to the default
	w.must(`{"relay.r1.port":null,"relay.r1.password":"pw","relay.r1.webhook_secret":"ws"}`)
	w.must(`{"relay.r1.host":"new.example.com","relay.r1.password":"other"}`)
	if r := w.Core.Settings().Relays[0]; r.Password != "other" || r.Host != "new.example.com" || r.WebhookSecret != "" || !r.Guarded {
		t.Errorf("%+v", r)
	}
	w.must(`{"relay.r1.region":"eu-west-1"}`)
	if r := w.Core.Settings().Relays[0]; r.Password != "other" {
		t.Error("the password is gone, though the relay did not move")
	}

	w.must(`{"destination.\"Google.com.\".relay":"r1"}`)
	w.refuses(`{"relay.r1":null}`, "in_use", "destination")
	w.must(`{"destination.\"google.com\"":null,"outbound":"relay"}`)
	w.refuses(`{"relay.r1":null}`, "in_use", "outbound")
	w.must(`{"relay.r2.kind":"custom","relay.r2.host":"second.example.com"}`)
	if names := []string{w.Core.Settings().Relays[0].Name, w.Core.Settings().Relays[1].Name}; !slices.Equal(names, []string{"r1", "r2"}) {
		t.Errorf("relays %v", names)
	}
	w.must(`{"relay.a.kind":"custom","relay.a.host":"third.example.com"}`)
	w.restart("")
	if got := w.Core.Settings().Relays; got[0].Name != "r1" || got[2].Name != "a" {
		t.Errorf("the relay that was added last is not the last: %+v", got)
	}
	dropMailbox := w.AddBareMailbox(t, "ann@x.test", "r1")
	w.refuses(`{"relay.r1":null}`, "in_use", "the mailbox ann@x.test")
	w.must(`{"relay.r2":null,"relay.a":null,"outbound":null}`)
	if got := w.list(); got[`relay."r2".host`].Key != "" || got["outbound"].Source != "default" {
		t.Error("null does not remove")
	}

	// The file may use relays of the store, which then stay.
	if err := w.reload("outbound = 'relay'\n[[destination]]\noperator = 'example.com'\nrelay = 'r1'\n"); err != nil {
		t.Fatal(err)
	}
	dropMailbox()
	w.refuses(`{"relay.r1":null}`, "in_use")
	if err := w.reload("[[destination]]\noperator = 'example.com'\nrelay = 'none'\n"); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a relay that nobody has: %v", err)
	}
	if len(w.Core.Settings().Destinations) != 1 {
		t.Error("a file that is refused has an effect")
	}
}

// TestInvalidValuesInTheStoreStopNoStart: a store of another version may have anything.
func TestInvalidValuesInTheStoreStopNoStart(t *testing.T) {
	w := newSettingsWorld(t, "")
	w.must(`{` + oneRelay + `,"outbound":"relay","limits.domains":7}`)
	put := func(key, value string) {
		t.Helper()
		w.PutSetting(t, key, value)
	}
	put(`relay."r1".kind`, `"pigeon"`)
	put("spam.junk_score", "7")
	put("future.setting", `"secret of the future"`)
	put("hostname", `"mail.example.com"`)
	put(`destination."x.com".relay`, `"none"`)
	put("sending.helo", `"out.example.com"`)
	w.DamageSetting(t, "sending.helo")
	w.restart("[[destination]]\noperator = 'example.com'\nrelay = 'r1'\n")
	now := w.Core.Settings()
	if now.Limits.Domains != 7 || now.Spam.JunkScore != 0.9 || len(now.Relays) != 0 || len(now.Destinations) != 1 {
		t.Errorf("%+v", now)
	}
	list := w.list()
	for _, key := range []string{`relay."r1".kind`, "spam.junk_score", "future.setting", "hostname", `destination."x.com".relay`, "sending.helo"} {
		if row := list[key]; row.Ignored == nil {
			t.Errorf("%s: %s", key, jsonText(t, row))
		}
	}
	if text := jsonText(t, list); strings.Contains(text, "secret of the future") {
		t.Error("a value of an unknown key is shown")
	}
	found := 0
	report, err := w.Health.Doctor(t.Context(), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Code == "settings" && c.Status == "warning" {
			found++
		}
	}
	if found != 6 {
		t.Errorf("%d warnings: %+v", found, now.Ignored)
	}
	w.must(`{"future.setting":null,"hostname":null,"sending.helo":null}`)
	if now := w.Core.Settings(); len(now.Ignored) != 3 {
		t.Errorf("ignored are still %+v", now.Ignored)
	}
}

// TestNoSecretOfSettingsIsShown looks for secrets in answers, the audit log, the log, and the
// database. They hold after a change of the master key.
func TestNoSecretOfSettingsIsShown(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil { // nothing listens there
		t.Fatal(err)
	}
	w := newSettingsWorld(t, "[metrics]\ntoken = 'hidden-metrics'\n")
	w.must(`{` + oneRelay + `,"relay.r1.username":"us","relay.r1.password":"hidden-password","relay.r1.webhook_secret":"hidden-webhook",
		"registrar.namecom.username":"us","registrar.namecom.token":"hidden-namecom","alerts.url":"http://hidden-user:hidden-pass@` + ln.Addr().String() + `/x?key=hidden-query"}`)
	for _, refused := range []string{`{"relay.r1.password":["hidden-list"]}`, `{"relay.r1.tls":"none"}`, `{"relay.r1.webhook_secret":5}`} {
		err := w.patch(refused)
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", refused, err)
		}
	}
	list := w.list()
	if string(jsonText(t, list["alerts.url"].Value)) != `"http://`+ln.Addr().String()+`/x"` || jsonText(t, list["metrics.token"].Value) != "true" {
		t.Errorf("%s %s", jsonText(t, list["alerts.url"]), jsonText(t, list["metrics.token"]))
	}
	texts := map[string]string{"list": jsonText(t, list), "log": w.log.String()}
	for _, key := range []string{"alerts.url"} {
		out, err := w.Settings.TestSettings(t.Context(), core.Actor{}, settings.TestSettingsIn{Key: key})
		if err != nil || out.OK || out.Mend == nil || out.Code != "no_connection" {
			t.Errorf("%s: %+v, %v", key, out, err)
		}
		texts["test of "+key] = jsonText(t, out)
	}
	for _, row := range w.Audits(t) {
		texts["audit "+row.ID] = jsonText(t, row)
		if row.Action == "update_settings" && !slices.Contains(row.Fields, `relay."r1".password`) {
			t.Errorf("audited are %v", row.Fields)
		}
	}
	if len(texts) < 4 {
		t.Errorf("only %d texts", len(texts))
	}
	if _, err := w.Core.RotateKey(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	w.restart("")
	if now := w.Core.Settings(); len(now.Relays) != 1 || now.Relays[0].Password != "hidden-password" || len(now.Ignored) != 0 {
		t.Errorf("after a change of the master key: %+v", now)
	}
	raw, err := os.ReadFile(filepath.Join(w.dir, "mailstead.db"))
	if err != nil {
		t.Fatal(err)
	}
	texts["database"] = string(raw)
	for where, text := range texts {
		if at := strings.Index(text, "hidden-"); at >= 0 {
			t.Errorf("%s: %.40q", where, text[at:])
		}
	}
}

// TestSilentResolverHoldsNoSettings: names that cannot be looked up are accepted after seconds,
// however many there are. Others wait for the change.
func TestSilentResolverHoldsNoSettings(t *testing.T) {
	w := newSettingsWorld(t, "")
	w.Core.Resolver = &servicetest.World{Late: time.Hour}
	began := time.Now()
	w.must(`{"relay.a.kind":"custom","relay.a.host":"a.example.com","relay.b.kind":"custom","relay.b.host":"b.example.com","alerts.url":"https://c.example.com/"}`)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestARefusedLogInIsNamed: what is wrong is the log-in and not the connection, and the answer does
// not have a password that the relay repeats.
func TestARefusedLogInIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			lines := bufio.NewScanner(c)
			fmt.Fprint(c, "220 relay.example\r\n")
			for lines.Scan() {
				switch verb, _, _ := strings.Cut(lines.Text(), " "); verb {
				case "EHLO":
					fmt.Fprint(c, "250-relay.example\r\n250 AUTH PLAIN\r\n")
				case "AUTH":
					fmt.Fprint(c, "334 \r\n")
				default:
					fmt.Fprintf(c, "535 5.7.8 hidden-password is wrong: %s\r\n", lines.Text())
				}
			}
			c.Close()
		}
	}()
	host, port, _ := net.SplitHostPort(ln.Addr().String()) // an address has both
	w := newSettingsWorld(t, "[[relay]]\nname = 'r1'\nkind = 'custom'\nhost = '"+host+"'\nport = "+port+"\ntls = 'none'\nusername = 'us'\npassword = 'hidden-password'\n")
	out, err := w.Settings.TestSettings(t.Context(), core.Actor{}, settings.TestSettingsIn{Key: "relay.r1"})
	if err != nil || out.OK || out.Code != "login_refused" || out.Message != "The relay r1 refuses the log-in of us: 535 5.7.8 … is wrong: …." {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestTestSettingsIsLimited: ten tries a minute.
func TestTestSettingsIsLimited(t *testing.T) {
	w := newSettingsWorld(t, "[registrar.sandbox]\n")
	limited := 0
	for range 12 {
		out, err := w.Settings.TestSettings(t.Context(), core.Actor{}, settings.TestSettingsIn{Key: "registrar.sandbox"})
		if e, _ := core.AsError(err); e != nil && e.Code == "rate_limited" && e.RetryAfter > 0 {
			limited++
		} else if err != nil || !out.OK {
			t.Errorf("%+v, %v", out, err)
		}
	}
	if limited < 2 || limited > 2 && limited < 12 { // a minute may end meanwhile
		t.Logf("%d of 12 tries were refused", limited)
	}
	if limited == 0 {
		t.Error("nothing was refused")
	}
}
