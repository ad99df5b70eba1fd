package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/service/core"
)

// Edit returns the text of a settings file after setting the keys of all flags that were given on
// the command line or in the environment. The rest of the text, such as comments, stays.
func Edit(text string, c *cli.Context) string {
	for _, f := range flagFields() {
		if !c.IsSet(f.name) || f.name == "migrate" { // --migrate is only for one start
			continue
		}
		key, table := strings.ReplaceAll(f.name, "-", "_"), ""
		if key == "dns" && hasTable(text, "dns") {
			key, table = "listen", "dns"
		}
		text = setKey(text, table, key, tomlValue(c, f))
	}
	return text
}

// AddSendingLimits returns the text of a settings file after adding the limits on recipients that
// new installations have. It does not change limits that are set.
func AddSendingLimits(text string) string {
	var have struct {
		Limits map[string]any `toml:"limits"`
	}
	if err := toml.Unmarshal([]byte(text), &have); err != nil {
		return text // Load reports the syntax error
	}
	l := core.SendingLimits()
	for _, one := range []struct {
		key   string
		limit int
	}{
		{"recipients_per_mailbox_per_day", l.RecipientsPerMailbox}, {"recipients_per_domain_per_day", l.RecipientsPerDomain},
		{"recipients_per_account_per_day", l.RecipientsPerAccount}, {"new_recipients_per_mailbox_per_day", l.NewRecipientsPerMailbox},
		{"new_recipients_per_domain_per_day", l.NewRecipientsPerDomain}, {"new_recipients_per_account_per_day", l.NewRecipientsPerAccount},
	} {
		if _, ok := have.Limits[one.key]; ok {
			continue
		}
		if !hasTable(text, "limits") {
			if text != "" {
				text = strings.TrimRight(text, "\n") + "\n\n"
			}
			text += "[limits]\n"
		}
		text = setKey(text, "limits", one.key, strconv.Itoa(one.limit))
	}
	return text
}

// tomlValue returns the value of a flag in TOML.
func tomlValue(c *cli.Context, f flagField) string {
	var value any = c.String(f.name)
	switch f.kind {
	case reflect.TypeFor[toggle]():
		value = c.Bool(f.name)
	case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
		var list []string
		for _, given := range c.StringSlice(f.name) {
			for one := range strings.SplitSeq(given, ",") {
				list = append(list, strings.TrimSpace(one))
			}
		}
		value = list
	case reflect.TypeFor[port]():
		return c.String(f.name)
	}
	// Strings, booleans and lists of strings are the same in JSON and TOML.
	out, _ := json.Marshal(value)
	return string(out)
}

// tableName returns the name of the table that a line begins; ok is false if it begins none. The
// name of an array of tables, which Edit does not change, is "".
func tableName(line string) (name string, ok bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "[") {
		return "", false
	}
	name, _, ok = strings.Cut(strings.TrimPrefix(line, "["), "]")
	if !ok || strings.HasPrefix(name, "[") {
		return "", true
	}
	return strings.TrimSpace(name), true
}

func hasTable(text, name string) bool {
	for line := range strings.Lines(text) {
		if table, ok := tableName(line); ok && table == name {
			return true
		}
	}
	return false
}

// setKey sets a key of a table to a value, which is in TOML. table is "" for keys outside of
// tables. If the key is missing, setKey adds it after the last line of the table.
func setKey(text, table, key, value string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	set := key + " = " + value + "\n"
	// inTable is true if line i is in the table; end is the index after the table's last line.
	inTable, end := table == "", 0
	for i := 0; i < len(lines); {
		after := i + 1
		if name, ok := tableName(lines[i]); ok {
			if inTable && table == "" {
				break
			}
			inTable = name == table
		} else if name, _, ok := strings.Cut(lines[i], "="); ok && !strings.HasPrefix(strings.TrimSpace(name), "#") {
			// The value may span several lines.
			for after < len(lines) && toml.Unmarshal([]byte(strings.Join(lines[i:after], "")), new(map[string]any)) != nil {
				after++
			}
			if inTable && strings.TrimSpace(name) == key {
				return strings.Join(lines[:i], "") + set + strings.Join(lines[after:], "")
			}
		}
		if inTable && strings.TrimSpace(lines[after-1]) != "" {
			end = after
		}
		i = after
	}
	return strings.Join(lines[:end], "") + set + strings.Join(lines[end:], "")
}
