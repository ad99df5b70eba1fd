package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
)

// joined returns the settings of a file with values of the store: pairs of key and JSON.
func joined(t *testing.T, file string, args []string, stored ...string) (*Settings, map[string]settings.Setting, error) {
	t.Helper()
	s, err := merged(t, file, args...)
	if err != nil {
		t.Fatal(err)
	}
	var list []settings.Stored
	for i := 0; i+1 < len(stored); i += 2 {
		list = append(list, settings.Stored{Key: stored[i], Value: valueOf(t, stored[i+1])})
	}
	out, all, err := s.Join(list)
	if err != nil {
		return nil, nil, err
	}
	rows := map[string]settings.Setting{}
	for _, row := range all.List {
		rows[row.Key] = row
	}
	return out, rows, nil
}

func valueOf(t testing.TB, text string) (v settings.Value) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func shownIn(t *testing.T, row settings.Setting) string {
	t.Helper()
	text, err := json.Marshal(row.Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOrderOfSources: a flag, the environment, the file, the store, the default.
func TestOrderOfSources(t *testing.T) {
	const file = "# ours\nlog_level = 'warn'\n"
	for _, c := range []struct {
		file, env    string
		args, stored []string
		value        string
		source       string
		line         int
	}{
		{value: `"info"`, source: "default"},
		{stored: []string{"log.level", `"error"`}, value: `"error"`, source: "store"},
		{file: file, stored: []string{"log.level", `"error"`}, value: `"warn"`, source: "file", line: 2},
		{file: file, env: "debug", stored: []string{"log.level", `"error"`}, value: `"debug"`, source: "environment"},
		{file: file, env: "debug", args: []string{"--log-level", "info"}, stored: []string{"log.level", `"error"`}, value: `"info"`, source: "flag"},
	} {
		if c.env != "" {
			t.Setenv("MAILSTEAD_LOG_LEVEL", c.env)
		}
		s, rows, err := joined(t, c.file, c.args, c.stored...)
		if err != nil {
			t.Fatal(err)
		}
		row := rows["log.level"]
		line := 0
		if row.Line != nil {
			line = *row.Line
		}
		if shownIn(t, row) != c.value || row.Source != c.source || line != c.line || `"`+s.LogLevel.text+`"` != c.value {
			t.Errorf("%+v: %+v", c, row)
		}
		if overridden := len(c.stored) > 0 && c.source != "store"; (row.Ignored != nil) != overridden {
			t.Errorf("%+v: ignored %v", c, row.Ignored)
		}
	}
}

// TestDefaultsAreShown: the defaults of tables that few files have are shown like others.
func TestDefaultsAreShown(t *testing.T) {
	_, rows, err := joined(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"dns.check_interval": `"1h"`, "spam.milter_timeout": `"10s"`, "spam.dnsbl_action": `"reject"`} {
		row := rows[key]
		text, _ := json.Marshal(row.Default)
		if shownIn(t, row) != want || string(text) != want || row.Source != "default" {
			t.Errorf("%s is %s, by default %s, from %s; want %s", key, shownIn(t, row), text, row.Source, want)
		}
	}
}

// TestLinesOfTheFile: the line is found in each form that a table may have.
func TestLinesOfTheFile(t *testing.T) {
	for file, want := range map[string]map[string]int{
		"[limits]\nplan = 'startup'\ndomains = 3": {"limits.domains": 3, "limits.plan": 2},
		"\nlimits.domains = 3":                    {"limits.domains": 2},
		"\nlimits = {domains = 3}":                {"limits.domains": 2},
		"dns = ':5'":                              {"dns": 1},
		"[dns]\ncatalog = 'c.example'\n[[dns.secondaries]]\naddress = '192.0.2.1'\nname = 'b'": {"dns": 0, "dns.catalog": 2, `dns.secondaries."b".address`: 4},
		"[dns]\nlisten = ':5'": {"dns": 2},
		"[[relay]]\nname = 'a'\nkind = 'custom'\nhost = 'h'\n[[relay]]\nname = 'b.c'\nkind = 'custom'\nhost = 'h'": {`relay."a".host`: 4, `relay."b.c".host`: 8, `relay."b.c".port`: 0},
		"relay = [{name = 'a', kind = 'custom', host = 'h'}]":                                                      {`relay."a".host`: 1},
		"[registrar.cloudflare]\naccount_id = 'a'\ntoken = 't'":                                                    {"registrar.cloudflare.token": 3, "registrar.namecom.token": 0},
		"registrar.sandbox = {}": {"registrar.sandbox": 1},
		"\n[registrar.sandbox]":  {"registrar.sandbox": 2},
	} {
		_, rows, err := joined(t, file, nil)
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		for key, line := range want {
			row, ok := rows[key]
			got := 0
			if row.Line != nil {
				got = *row.Line
			}
			if !ok || got != line || (row.Source == "file") != (line > 0) {
				t.Errorf("%q: %s: line %d, want %d: %+v", file, key, got, line, row)
			}
		}
	}
}

// TestShownValuesCanBeSet: what is shown of an editable setting is a value that it takes.
func TestShownValuesCanBeSet(t *testing.T) {
	for _, args := range [][]string{nil, {"--hostname", "mail.example.com"}} {
		s, err := merged(t, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		_, all, err := s.Join(nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, row := range all.List {
			if row.Value == nil || !row.Editable {
				continue
			}
			n++
			_, again, err := s.Join([]settings.Stored{{Key: row.Key, Value: *row.Value}})
			if err != nil || len(again.Settings.Ignored) != 0 {
				t.Errorf("%s = %s: %+v, %v", row.Key, shownIn(t, row), again, err)
			}
		}
		if n < 30 {
			t.Errorf("only %d values", n)
		}
	}
}

// TestTagsOfSettings: each setting says what it is.
func TestTagsOfSettings(t *testing.T) {
	keys := map[string]bool{}
	for _, s := range settingsTable() {
		key := s.key("NAME")
		if s.description() == "" || keys[key] {
			t.Errorf("%s has the description %q, listed before: %v", key, s.description(), keys[key])
		}
		keys[key] = true
		if c := s.field.Tag.Get("change"); c != "" && c != "store" && c != "file" {
			t.Errorf("%s: change is %q", key, c)
		}
		if name := s.name; s.editable() && (strings.HasSuffix(name, "_file") || name == "base_url" || name == "endpoint" || name == "to") {
			t.Errorf("%s names a file, an endpoint or a place", key)
		}
	}
	if len(keys) < 110 {
		t.Errorf("only %d settings", len(keys))
	}
}

// TestNearestKey: a mistake in a key gets a suggestion, and something else does not.
func TestNearestKey(t *testing.T) {
	s, err := merged(t, "")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"limits.domain": "limits.domains", "loglevel": "log.level", "relay.r1.pasword": `relay."r1".password`, "outbond": "outbound",
		`destination."google.com".conections`: `destination."google.com".connections`, "spam.dnsble": "spam.dnsbl", "completely different": "",
	} {
		_, err := s.Key(given)
		e, _ := core.AsError(err)
		if e == nil || e.Code != "invalid_setting" || want == "" && strings.Contains(e.Message, "nearest") || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
	if _, err := merged(t, "[limits]\ndomain = 3"); err == nil || !strings.Contains(err.Error(), "the nearest is limits.domains") {
		t.Errorf("in the file: %v", err)
	}
}

// FuzzSettingKey parses keys of the API.
func FuzzSettingKey(f *testing.F) {
	for _, key := range []string{"limits.domains", `relay."r1".host`, "relay.r1", `destination."google.com".relay`, "log.level", "a.\"b", "a = 1\nb", "'x'.y", "", "registrar.namecom", "\x00"} {
		f.Add(key)
	}
	s := &Settings{origin: &origin{entries: map[string][]string{}}}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := s.Key(text)
		if err != nil {
			return
		}
		again, err := s.Key(k.Text)
		if err != nil || again.Text != k.Text || again.Entry != k.Entry {
			t.Errorf("%q is %q, which is %q, %v", text, k.Text, again.Text, err)
		}
	})
}

// FuzzStoredValue makes a settings file of a value of the API: it must set that key and no other.
func FuzzStoredValue(f *testing.F) {
	for _, value := range []string{`"x"`, `"\"\nhostname = 1"`, `5`, `1e400`, `[1,"a",null]`, `{"a":1}`, `true`, `"\u007f\u0000\u2028\ud800"`, `-0`, `[[]]`, `""`} {
		for _, key := range []string{"sending.helo", `relay."r1".host`, "registrar.sandbox", "spam.dnsbl", `destination."x.com".relay`} {
			f.Add(key, value)
		}
	}
	s := &Settings{origin: &origin{entries: map[string][]string{}, lines: map[string]int{}}}
	f.Fuzz(func(t *testing.T, key, text string) {
		var value settings.Value
		if json.Unmarshal([]byte(text), &value) != nil || text == "null" {
			return
		}
		k, err := s.Key(key)
		if err != nil || k.Whole || !k.Editable {
			return
		}
		units, _, _ := s.origin.units([]settings.Stored{{Key: k.Text, Value: value}})
		if len(units) == 0 {
			return // it is refused
		}
		var file map[string]any
		if err := toml.Unmarshal([]byte(units[0].toml()), &file); err != nil {
			t.Fatalf("%s = %s was taken, but is not TOML: %v", k.Text, text, err)
		}
		leaves := 0
		var count func(v any)
		count = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				for _, inner := range v {
					count(inner)
				}
				if len(v) == 0 {
					leaves++
				}
			case []any:
				if len(v) == 1 && reflect.TypeOf(v[0]) == reflect.TypeFor[map[string]any]() {
					count(v[0])
					leaves-- // the name of the entry
					return
				}
				leaves++
			default:
				leaves++
			}
		}
		count(file)
		if leaves > 1 {
			t.Errorf("%s = %s sets %d keys: %v", k.Text, text, leaves, file)
		}
	})
}
