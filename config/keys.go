package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/mailstead/mailstead/internal/nearest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
)

// A setting is one setting of the file: a field of Settings or of a table in it. The tags of the
// field say what it is:
//   - usage or text: a description for people
//   - change: whether it can change while the server runs: "store" by API too, "file" only in the
//     file, which is read again on SIGHUP
//   - secret: whether it is never shown
type setting struct {
	tables    []string // the tables that it is in, such as registrar, namecom
	name      string   // its key in the table
	list      string   // if it is a setting of the entries of a list: the key of the list
	listIndex []int    // index of the list in Settings
	index     []int    // index of the field in Settings, or in an entry; some tables are pointers
	field     reflect.StructField
	otherKey  string // another key that it has in the file; "" for none
}

// settingsTable returns all settings in the order of the struct.
func settingsTable() []setting {
	var out []setting
	addSettings(&out, setting{}, reflect.TypeFor[Settings]())
	return out
}

// addSettings adds the settings in the table t. in has the place of the table.
func addSettings(out *[]setting, in setting, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		one := in
		one.tables, one.index, one.field = slices.Clone(in.tables), append(slices.Clone(in.index), i), f
		one.name = f.Tag.Get("toml")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch {
		case f.Anonymous:
			addSettings(out, one, kind)
			continue
		case f.Tag.Get("flag") == "dns": // the key dns is an address or a table
			one.name, one.otherKey = "dns", "dns.listen"
		case kind == reflect.TypeFor[dnsSettings]():
			one.name = "dns"
		case one.name == "listen" && slices.Equal(in.tables, []string{"dns"}):
			continue
		}
		switch {
		case one.name == "" || one.name == "-":
		case isTable(kind):
			one.tables = append(one.tables, one.name)
			addSettings(out, one, kind)
		case kind.Kind() == reflect.Slice && isTable(kind.Elem()):
			one.list, one.listIndex, one.index = strings.Join(append(one.tables, one.name), "."), one.index, nil
			addSettings(out, one, kind.Elem())
		default:
			*out = append(*out, one)
		}
	}
}

// isTable reports whether a field of type t is a table in the file.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Tag.Get("toml") != ""
}

// fileKey returns the key in the file with its tables, such as limits.domains. The names of entries
// are not part of it: relay.host.
func (s setting) fileKey() string {
	if s.list != "" {
		return s.list + "." + s.name
	}
	return strings.Join(append(slices.Clone(s.tables), s.name), ".")
}

// A NamedSetting is a key of the settings with what it is for.
type NamedSetting struct{ Key, Text string }

// EditableKeys returns the keys of the settings that the store can have, without those of entries
// of lists.
func EditableKeys() (out []NamedSetting) {
	for _, s := range settingsTable() {
		if s.editable() && s.list == "" {
			out = append(out, NamedSetting{s.key(""), s.description()})
		}
	}
	return out
}

// key returns the key in the API. entry is the name of the entry if the setting is in a list.
func (s setting) key(entry string) string {
	if s.list != "" {
		return entryKey(s.list, entry) + "." + s.name
	}
	if k := s.fileKey(); k != "log_level" {
		return k
	}
	return "log.level"
}

// entryKey returns the key of an entry of a list, or of a registrar, which is no list.
func entryKey(list, entry string) string {
	if list == "registrar" {
		return list + "." + entry
	}
	return settings.EntryKey(list, entry)
}

// entryOf returns the list and the name of the entry that the setting belongs to. list is "" if it
// belongs to none.
func (s setting) entryOf(entry string) (list, name string) {
	if len(s.tables) == 2 && s.tables[0] == "registrar" {
		return "registrar", s.tables[1]
	}
	return s.list, entry
}

// live reports whether the setting can change while the server runs.
func (s setting) live() bool { return s.field.Tag.Get("change") != "" }

// editable reports whether the store can have the setting.
func (s setting) editable() bool { return s.field.Tag.Get("change") == "store" }

func (s setting) secret() bool { return s.field.Tag.Get("secret") != "" }

func (s setting) description() string {
	return s.field.Tag.Get("usage") + s.field.Tag.Get("text") // a field has one of them
}

// valueIn returns the setting's value in Settings, or in an entry. It is zero if the table is
// missing.
func (s setting) valueIn(v reflect.Value) reflect.Value {
	for _, i := range s.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Zero(s.field.Type)
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// typeName returns the type of the setting in the API.
func (s setting) typeName() string {
	t := s.field.Type
	if t == reflect.TypeFor[*struct{}]() {
		return "boolean"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if w, ok := reflect.New(t).Interface().(interface{ words() []string }); ok {
		return strings.Join(w.words(), "|")
	}
	switch {
	case t == reflect.TypeFor[duration]() || t == reflect.TypeFor[clockOffset]():
		return "duration"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Uint16 || t.Kind() == reflect.Uint32:
		return "integer"
	}
	return "text"
}

// shown returns a value of the setting as the API shows it; nil if it is not set.
func (s setting) shown(v reflect.Value) (*settings.Value, error) {
	if s.secret() {
		if v.IsZero() {
			return nil, nil
		}
		out, err := settings.NewValue(true)
		return &out, err
	}
	if v.Type() == reflect.TypeFor[*struct{}]() {
		out, err := settings.NewValue(!v.IsNil())
		return &out, err
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil, nil
		}
		v = v.Elem()
	}
	var value any
	switch v.Kind() {
	case reflect.Bool:
		value = v.Bool()
	case reflect.Float64:
		value = v.Float()
	case reflect.Uint16, reflect.Uint32:
		value = v.Uint()
		if v.IsZero() && v.Kind() == reflect.Uint16 { // no port
			return nil, nil
		}
	case reflect.Slice:
		list := []string{}
		for i := range v.Len() {
			list = append(list, textOf(v.Index(i)))
		}
		value = list
	default:
		text := textOf(v)
		if text == "" {
			return nil, nil
		}
		value = withoutURLSecrets(text)
	}
	out, err := settings.NewValue(value)
	return &out, err
}

// textOf returns the text of a value that is a text in the file.
func textOf(v reflect.Value) string {
	switch one := v.Interface().(type) {
	case string:
		return one
	case duration:
		return durationText(one.d)
	case clockOffset:
		if one.d < 0 {
			return "-" + durationText(-one.d)
		}
		return durationText(one.d)
	case network:
		if one.Prefix.IsSingleIP() {
			return one.Addr().String()
		}
		return one.Prefix.String()
	case milterAddr:
		if one.network == "tcp" {
			return "inet:" + one.address
		}
		return strings.TrimPrefix(one.network+":"+one.address, ":")
	case serverAddress:
		return one.at.String()
	case ageRecipient:
		return fmt.Sprint(one.key)
	case interface{ IsValid() bool }: // an IP address
		if !one.IsValid() {
			return ""
		}
		return fmt.Sprint(one)
	case fmt.Stringer:
		return one.String()
	}
	return ""
}

// durationText returns a duration as people write it in the file, such as 7d, 1h, 90m or 10s; ""
// for 0.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return ""
	case d%day == 0:
		return strconv.Itoa(int(d/day)) + "d"
	case d%time.Hour == 0:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d%time.Minute == 0:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	}
	return d.String()
}

// withoutURLSecrets returns a text without user and query if it is a URL. Some have a password or
// token there.
func withoutURLSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return text
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// maxKey is the maximum length of a key in bytes.
const maxKey = 300

// splitKey splits a key into its parts. Quotes around a part may be left out if it has no dot.
func splitKey(text string) ([]string, error) {
	if len(text) > maxKey || strings.ContainsAny(text, "\r\n=") {
		return nil, errors.New("not a key")
	}
	p := &unstable.Parser{}
	p.Reset([]byte(text + " = 0"))
	if !p.NextExpression() || p.Expression().Kind != unstable.KeyValue {
		return nil, errors.New("not a key")
	}
	parts, _ := keyParts(p, p.Expression())
	if p.NextExpression() || p.Error() != nil {
		return nil, errors.New("not a key")
	}
	return parts, nil
}

// relayName matches the names that relays in the store may have: they are in the path of the
// relay's notices.
var relayName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// findSetting returns the setting that a key names, and the name of its entry. If the key names a
// whole entry, whole is true, and the setting is the first one of it.
func findSetting(text string) (found setting, entry string, whole bool, err error) {
	parts, splitErr := splitKey(text)
	if splitErr == nil {
		if slices.Equal(parts, []string{"log", "level"}) {
			parts = []string{"log_level"}
		}
		for _, s := range settingsTable() {
			path := append(slices.Clone(s.tables), s.name)
			if s.list != "" {
				head := strings.Split(s.list, ".")
				if len(parts) > len(head) && slices.Equal(parts[:len(head)], head) {
					entry = parts[len(head)]
					whole = len(parts) == len(head)+1
					if whole || slices.Equal(parts[len(head)+1:], []string{s.name}) {
						return s, entry, whole, nil
					}
				}
				continue
			}
			if list, name := s.entryOf(""); list != "" && slices.Equal(parts, []string{list, name}) {
				return s, name, true, nil
			}
			if slices.Equal(parts, path) {
				_, entry = s.entryOf("")
				return s, entry, false, nil
			}
		}
	}
	near := nearestKey(text, func(s setting) string {
		if head := strings.Count(s.list, ".") + 1; s.list != "" && len(parts) > head {
			return s.key(parts[head])
		}
		return s.key("NAME")
	})
	return setting{}, "", false, core.Errorf("invalid_setting", "There is no setting %.100q%s.", text, near)
}

// nearestKey returns "; the nearest is KEY" with the key of the setting that a text was probably
// meant to be, or "" if none is near.
func nearestKey(text string, keyOf func(setting) string) string {
	bare := func(key string) string { return strings.ReplaceAll(key, `"`, "") }
	var names []string
	keys := map[string]string{} // by name
	for _, s := range settingsTable() {
		key := keyOf(s)
		names, keys[bare(key)] = append(names, bare(key)), key
	}
	if near := nearest.Name(bare(text), names); near != "" {
		return "; the nearest is " + keys[near]
	}
	return ""
}

// Key returns what a key of the API means. The error is a core.Error with the code invalid_setting.
func (s *Settings) Key(text string) (settings.Key, error) {
	one, entry, whole, err := findSetting(text)
	if err != nil {
		return settings.Key{}, err
	}
	list, name := one.entryOf(entry)
	if list != "" && !slices.Contains(s.origin.entries[list], name) {
		name, err = entryName(list, name)
		if err != nil {
			return settings.Key{}, core.Errorf("invalid_setting", "%s: %s.", text, err)
		}
	}
	k := settings.Key{Text: one.key(name), Name: one.name, Whole: whole, Editable: one.editable(), Secret: one.secret()}
	if list != "" {
		k.Entry, k.SetBy = entryKey(list, name), s.origin.entrySetBy(list, name)
	}
	if whole {
		k.Text, k.Name, k.Secret, k.Editable = k.Entry, "", false, list != "dns.secondaries"
	}
	if k.SetBy == "" {
		k.SetBy, _, _ = s.origin.setBy(one, name)
	}
	if !k.Editable {
		k.Why = "set it in " + settingsName
		if !one.live() {
			k.Why += ", and restart the server"
		}
	}
	return k, nil
}

// entryName checks and normalizes the name of an entry of a list.
func entryName(list, name string) (string, error) {
	switch list {
	case "relay":
		if !relayName.MatchString(name) {
			return "", errors.New("the name of a relay has 1 to 64 letters, digits, dots, hyphens and underscores")
		}
	case "destination":
		var d dnsName
		err := d.UnmarshalText([]byte(name))
		return d.text, err
	}
	return name, nil
}

// tomlOf returns a JSON value in TOML. An object becomes an empty table, which unit.check refuses.
func tomlOf(raw json.RawMessage) string {
	var list []json.RawMessage
	switch {
	case len(raw) == 0:
		return `""`
	case raw[0] == '{':
		return "{}"
	case raw[0] == '[' && json.Unmarshal(raw, &list) == nil:
		items := make([]string, len(list))
		for i, item := range list {
			items[i] = tomlOf(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case raw[0] == '"':
		var text string
		_ = json.Unmarshal(raw, &text) // the JSON is valid
		// What JSON escapes is TOML too, except for one character that TOML wants escaped.
		quoted, _ := json.Marshal(text)
		return strings.ReplaceAll(string(quoted), "\x7f", `\u007F`)
	case string(raw) == "null":
		return "{}" // within a list
	}
	return string(raw) // a number, true or false
}

// ParseValue returns the value that a text of the command line gives to a setting: true or false, a
// number, a list of texts with commas between them, or the text itself. It does not check the
// value. The error is that of Key.
func ParseValue(key, text string) (settings.Value, error) {
	one, _, _, err := findSetting(key)
	if err != nil {
		return settings.Value{}, err
	}
	var value any = text
	switch one.typeName() {
	case "boolean":
		if yes, err := strconv.ParseBool(text); err == nil {
			value = yes
		}
	case "integer", "number":
		if json.Valid([]byte(text)) {
			value = json.RawMessage(text)
		}
	case "list":
		list := []string{}
		for item := range strings.SplitSeq(text, ",") {
			item = strings.TrimSpace(item)
			if item != "" {
				list = append(list, item)
			}
		}
		value = list
	}
	return settings.NewValue(value)
}
