package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/urfave/cli/v2"
)

// An origin has the texts that settings are made from, so that they can be made again with other
// values in the store.
type origin struct {
	path, text string
	given      []givenFlag
	lines      map[string]int      // line of each key in the file, see findLines
	entries    map[string][]string // names of the entries of each list of the file
	running    *Settings           // the settings of the start, after the file was read again; nil before
}

// A givenFlag is a setting that the command line or the environment has.
type givenFlag struct {
	flagField
	text   string
	source string // flag or environment
}

func newOrigin(path, text string, c *cli.Context) *origin {
	o := &origin{path: path, text: text, lines: findLines(text), entries: map[string][]string{}}
	for _, f := range flagFields() {
		value, ok := flagOrEnv(c, f)
		if !ok {
			continue
		}
		source := "environment"
		if !isFromEnvironment(f.name, value) {
			source = "flag"
		}
		o.given = append(o.given, givenFlag{f, value, source})
	}
	return o
}

// nameEntries notes the names of the entries of lists that the file has. s are the settings without
// the store.
func (o *origin) nameEntries(s *Settings) {
	for i := range s.Relay {
		o.entries["relay"] = append(o.entries["relay"], s.Relay[i].Name)
	}
	for i := range s.Destination {
		o.entries["destination"] = append(o.entries["destination"], s.Destination[i].Operator.text)
	}
	for i := range s.Zones.Secondaries {
		o.entries["dns.secondaries"] = append(o.entries["dns.secondaries"], s.Zones.Secondaries[i].Name)
	}
}

// merge returns the settings of the file, with those of the environment and the flags over them,
// and values of the store under them. The names of relays are not checked, see checkRelayNames.
func (o *origin) merge(store []unit) (*Settings, error) {
	s := o.defaults()
	under, entries := "", ""
	for _, u := range store {
		if u.list != "" {
			entries += u.toml()
			continue
		}
		under += u.toml()
		for _, v := range u.values {
			s.stored[v.setting.key(u.entry)] = true
		}
	}
	if err := s.decode(under); err != nil {
		return nil, err
	}
	err := s.decode(o.text)
	if k, what := findWrongItem(fileKeys(o.text)); what != "" {
		return nil, fmt.Errorf("%s, line %d: %s %s", o.path, k.row, k.name, what)
	}
	if err != nil {
		return nil, fileError(o.path, o.text, err)
	}
	var added Settings
	if err := added.decode(entries); err != nil {
		return nil, err
	}
	for _, r := range added.Relay {
		r.stored = true
		s.Relay = append(s.Relay, r)
	}
	s.Destination = append(s.Destination, added.Destination...)
	for _, f := range o.given {
		if err := setField(reflect.ValueOf(s).Elem().Field(f.index), f.text); err != nil {
			return nil, fmt.Errorf("invalid --%s: %w", f.name, err)
		}
	}
	return s, s.check()
}

// defaults returns the defaults of the sandbox or of production.
func (o *origin) defaults() *Settings {
	var named struct {
		Hostname string `toml:"hostname"`
	}
	_ = toml.Unmarshal([]byte(o.text), &named) // merge reports syntax errors
	for _, f := range o.given {
		if f.name == "hostname" {
			named.Hostname = f.text
		}
	}
	s := productionDefaults()
	if named.Hostname == "" {
		s = sandboxDefaults()
	}
	s.origin, s.stored = o, map[string]bool{}
	return &s
}

// withLine adds the file and the line to an error of check or checkRelayNames, if the error is
// about a table of the file.
func (o *origin) withLine(err error) error {
	if strings.HasPrefix(err.Error(), o.path+", line ") {
		return err
	}
	if row := findTableLine(o.text, err.Error()); row > 0 {
		return fmt.Errorf("%s, line %d: %w", o.path, row, err)
	}
	return err
}

// setBy says what sets a setting outside of the store: "--outbound", "MAILSTEAD_OUTBOUND", or
// "mailstead.toml, line 12". line is that in the file; 0 if the file does not set it. entry is the
// name of the setting's entry. setBy returns "" if nothing sets it.
func (o *origin) setBy(s setting, entry string) (text, source string, line int) {
	for _, f := range o.given {
		if s.list == "" && f.index == s.index[0] && len(s.tables) == 0 {
			if f.source == "flag" {
				return "--" + f.name, f.source, 0
			}
			return envName(f.name), f.source, 0
		}
	}
	name := s.fileKey()
	if s.list != "" {
		i := slices.Index(o.entries[s.list], entry)
		if i < 0 {
			return "", "", 0
		}
		name = s.list + "." + strconv.Itoa(i) + "." + s.name
	}
	for _, key := range []string{name, name + "_file", s.otherKey} {
		line = o.lines[key]
		if line > 0 && key != "" {
			return fmt.Sprintf("%s, line %d", settingsName, line), "file", line
		}
	}
	return "", "", 0
}

// entrySetBy says where the file has an entry. It returns "" if the file does not have it.
func (o *origin) entrySetBy(list, entry string) string {
	at := list + "." + entry // the table of a registrar
	if i := slices.Index(o.entries[list], entry); i >= 0 {
		at = list + "." + strconv.Itoa(i)
	}
	if line := o.lines[at]; line > 0 {
		return fmt.Sprintf("%s, line %d", settingsName, line)
	}
	return ""
}

// settingsName is the name of the settings file in texts for people.
const settingsName = "mailstead.toml"

// findLines returns the line of each key in the text of a settings file, and of each table within a
// table, up to the first syntax error. An entry of a list has its number in its name, from 0:
// relay.0.host.
func findLines(text string) map[string]int {
	out, counts := map[string]int{}, map[string]int{}
	p := &unstable.Parser{}
	p.Reset([]byte(text))
	var table []string
	note := func(parts []string, row int) {
		if name := strings.Join(parts, "."); out[name] == 0 {
			out[name] = row
		}
	}
	noteTables := func(parts []string, row int) {
		for i := 2; i <= len(parts); i++ {
			note(parts[:i], row)
		}
	}
	var value func(parts []string, row int, n *unstable.Node)
	value = func(parts []string, row int, n *unstable.Node) {
		noteTables(parts, row) // a.b.c = 1 sets a key of the table a.b
		if n.Kind != unstable.InlineTable {
			note(parts, row)
		}
		switch n.Kind {
		case unstable.InlineTable:
			for it := n.Children(); it.Next(); {
				inner, at := keyParts(p, it.Node())
				value(slices.Concat(parts, inner), at, it.Node().Value())
			}
		case unstable.Array:
			i := 0
			for it := n.Children(); it.Next(); i++ {
				if it.Node().Kind == unstable.InlineTable {
					value(slices.Concat(parts, []string{strconv.Itoa(i)}), row, it.Node())
				}
			}
		}
	}
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			parts, row := keyParts(p, e)
			table = parts
			noteTables(parts, row)
		case unstable.ArrayTable:
			parts, row := keyParts(p, e)
			name := strings.Join(parts, ".")
			table = append(slices.Clone(parts), strconv.Itoa(counts[name]))
			counts[name]++
			noteTables(table, row)
		case unstable.KeyValue:
			parts, row := keyParts(p, e)
			value(slices.Concat(table, parts), row, e.Value())
		}
	}
	return out
}

// NeedRestart returns the names of the settings that differ between s and fresh and take effect
// only after a restart.
func (s *Settings) NeedRestart(fresh *Settings) []string {
	var out []string
	for _, one := range settingsTable() {
		was, is := reflect.ValueOf(s).Elem(), reflect.ValueOf(fresh).Elem()
		name := one.fileKey()
		if one.list != "" {
			name = one.list
			was, is = was.FieldByIndex(one.listIndex), is.FieldByIndex(one.listIndex)
		} else {
			was, is = one.valueIn(was), one.valueIn(is)
		}
		differs := !reflect.DeepEqual(was.Interface(), is.Interface())
		switch {
		case slices.Contains(out, name) || !differs:
		case name == "tls_cert" || name == "tls_key":
			if was.IsZero() != is.IsZero() { // a change between certificate files and ACME
				out = append(out, name)
			}
		case !one.live():
			out = append(out, name)
		}
	}
	return out
}

// Refreshed returns the settings of a running server after its file was read again: those of s,
// with those of fresh that can change while the server runs.
func (s *Settings) Refreshed(fresh *Settings) *Settings {
	out := s.withChanges(fresh)
	o := *fresh.origin
	o.running = s
	out.origin = &o
	return out
}

// withChanges returns a copy of s that has the settings of fresh that can change while the server
// runs.
func (s *Settings) withChanges(fresh *Settings) *Settings {
	out := *s
	out.stored, out.origin = maps.Clone(fresh.stored), fresh.origin
	to, from := reflect.ValueOf(&out).Elem(), reflect.ValueOf(fresh).Elem()
	for i := range to.NumField() {
		f := to.Type().Field(i)
		switch {
		case f.Tag.Get("change") != "":
			to.Field(i).Set(from.Field(i))
		case f.IsExported() && isTable(f.Type):
			for j := range f.Type.NumField() {
				if f.Type.Field(j).Tag.Get("change") != "" {
					to.Field(i).Field(j).Set(from.Field(i).Field(j))
				}
			}
		}
	}
	return &out
}

// isFromEnvironment reports whether a flag has its value from its environment variable. If the
// command line gives the same value, that makes no difference.
func isFromEnvironment(flag, value string) bool {
	text := os.Getenv(envName(flag))
	yes, err := strconv.ParseBool(text)
	return text != "" && (text == value || err == nil && strconv.FormatBool(yes) == value)
}
