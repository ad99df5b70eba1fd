package config

import (
	"encoding"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/urfave/cli/v2"
)

// decode decodes the text of a settings file into s. It does not change fields that the text does
// not set. The key dns may be an address or a table.
func (s *Settings) decode(text string) error {
	var kind struct {
		DNS any `toml:"dns"`
	}
	_ = toml.Unmarshal([]byte(text), &kind) // Decode reports syntax errors below
	d := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields()
	var err error
	if _, table := kind.DNS.(map[string]any); table {
		in := struct {
			*Settings
			DNS *dnsSettings `toml:"dns"`
		}{s, &s.Zones}
		err = d.Decode(&in)
		if s.Zones.Listen.text != "" {
			s.DNS = s.Zones.Listen
		}
	} else {
		in := struct {
			*Settings
			DNS *Address `toml:"dns"`
		}{s, &s.DNS}
		err = d.Decode(&in)
	}
	return err
}

// fileError rewrites an error of decode for people, with the line of the mistake in the settings
// file.
func fileError(path, text string, err error) error {
	row, mistake := describeMistake(text, err)
	if row > 0 {
		return fmt.Errorf("%s, line %d: %w", path, row, mistake)
	}
	return fmt.Errorf("%s: %w", path, mistake)
}

// describeMistake rewrites an error of decode for people. row is the line of the mistake in the
// text, or 0 if it is not known.
func describeMistake(text string, err error) (row int, mistake error) {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		row, _ := unknown.Errors[0].Position()
		key := strings.Join(unknown.Errors[0].Key(), ".")
		return row, fmt.Errorf("there is no setting %q%s; see `mailstead serve --help` for all settings", key, nearestKey(key, setting.fileKey))
	}
	keys := fileKeys(text)
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		row, _ := wrong.Position()
		if k, what := findWrongType(keys, row); what != "" {
			return k.row, fmt.Errorf("%s %s", k.name, what)
		}
		if len(wrong.Key()) > 0 {
			return row, fmt.Errorf("%s: %s", strings.Join(wrong.Key(), "."), withoutGoTypes(wrong.Error()))
		}
		return row, errors.New(withoutGoTypes(wrong.Error()))
	}
	row = findLine(text, err)
	if k, what := findWrongType(keys, row); what != "" {
		return k.row, fmt.Errorf("%s %s", k.name, what)
	}
	if key := lastKeyAt(keys, row); key != "" {
		return row, fmt.Errorf("%s: %w", key, err)
	}
	return row, err
}

// withoutGoTypes removes the names of Go types from a message of the TOML decoder.
func withoutGoTypes(text string) string {
	text = strings.NewReplacer("toml: ", "", "unexpected character U+000A at start of value", "the value is missing",
		reflect.TypeFor[port]().String(), "a port, from 1 to 65535",
		reflect.TypeFor[count]().String(), "a count, a whole number that is not negative").Replace(text)
	if given, _, ok := strings.Cut(text, " into struct field "); ok {
		return "the value has the wrong type: " + strings.TrimPrefix(given, "cannot decode TOML ") + " is not allowed here"
	}
	return text
}

// findLine returns the line of a mistake if the decoder does not report the line, or 0 if it is not
// found. It decodes longer and longer beginnings of the file until one has the same error.
func findLine(text string, mistake error) int {
	end := 0
	for row := 1; end < len(text); row++ {
		if next := strings.IndexByte(text[end:], '\n'); next >= 0 {
			end += next + 1
		} else {
			end = len(text)
		}
		if err := new(Settings).decode(text[:end]); err != nil && err.Error() == mistake.Error() {
			return row
		}
	}
	return 0
}

// tableErrorStart matches the beginning of an error about a table: the name of the table, its
// number if it is in an array of tables, and the key.
var tableErrorStart = regexp.MustCompile(`^\[\[?([a-z0-9_.]+)\]\]?(?: number (\d+):)?(?: ([a-z0-9_]+)(?:[ :]|$))?`)

// findTableLine returns the line of the setting that the beginning of an error names, or else the
// line of its table. It returns 0 if the error names no table, or if the file does not have the
// table.
func findTableLine(text, mistake string) (row int) {
	m := tableErrorStart.FindStringSubmatch(mistake)
	if m == nil {
		return 0
	}
	name, key, in, count := m[1], m[3], false, 0
	number, _ := strconv.Atoi(m[2]) // 0 if the table is not in an array
	p := &unstable.Parser{}
	p.Reset([]byte(text))
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
			continue
		}
		parts, at := keyParts(p, e)
		switch {
		case e.Kind != unstable.KeyValue:
			in = strings.Join(parts, ".") == name
			if in {
				count++
			}
			in = in && (number == 0 || count == number)
			if in {
				row = at
			}
		case in && parts[0] == key:
			return at
		case row == 0 && parts[0] == name: // name = {…}, or name.key = …
			row = at
		}
	}
	return row
}

// A fileKey is a key in the settings file, or an item of a list, with its line and type.
type fileKey struct {
	row  int
	name string        // name with its tables, such as backup.to
	kind unstable.Kind // type of the value
	item int           // number of the item in the list, from 1; 0 for the value of the key itself
}

// fileKeys returns the keys of the settings file in order, up to the first syntax error.
func fileKeys(text string) (out []fileKey) {
	p := &unstable.Parser{}
	p.Reset([]byte(text))
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, _ = keyParts(p, e)
		case unstable.KeyValue:
			out = addKey(out, p, e, table)
		}
	}
	return out
}

// keyParts returns the parts of a node's key, such as "backup" and "to", and the line of the key.
func keyParts(p *unstable.Parser, n *unstable.Node) (parts []string, row int) {
	for it := n.Key(); it.Next(); {
		part := it.Node()
		if row == 0 {
			row = p.Shape(part.Raw).Start.Line
		}
		parts = append(parts, string(part.Data))
	}
	return parts, row
}

// addKey appends the key of node n, which is in the table that tables names. It also appends the
// keys of an inline table and the items of a list.
func addKey(out []fileKey, p *unstable.Parser, n *unstable.Node, tables []string) []fileKey {
	parts, row := keyParts(p, n)
	parts = append(append([]string{}, tables...), parts...)
	value := n.Value()
	name := strings.Join(parts, ".")
	out = append(out, fileKey{row: row, name: name, kind: value.Kind})
	switch value.Kind {
	case unstable.InlineTable:
		for it := value.Children(); it.Next(); {
			out = addKey(out, p, it.Node(), parts)
		}
	case unstable.Array:
		n := 0
		for it := value.Children(); it.Next(); {
			n++
			item := it.Node()
			first := item // a list has no position, so use that of its first item
			for first.Kind == unstable.Array {
				inner := first.Children()
				if !inner.Next() {
					break
				}
				first = inner.Node()
			}
			if first.Raw.Length > 0 {
				row = p.Shape(first.Raw).Start.Line
			}
			out = append(out, fileKey{row, name, item.Kind, n})
		}
	}
	return out
}

// lastKeyAt returns the name of the last key that begins on line row or before it, or "" if there
// is none.
func lastKeyAt(keys []fileKey, row int) (name string) {
	for _, k := range keys {
		if k.row <= row {
			name = k.name
		}
	}
	return name
}

// findWrongType returns the first key whose value has the wrong type, and a message about the right
// type. The message is "" if there is no such key. It looks only up to line row, or at all lines if
// row is 0.
func findWrongType(keys []fileKey, row int) (at fileKey, message string) {
	for _, k := range keys {
		t := settingType(k.name)
		if t == nil || row > 0 && k.row > row {
			continue
		}
		if want := describeWantedType(t, k.kind); want != "" && k.item == 0 {
			return k, fmt.Sprintf("must be %s, not %s", want, kindName(k.kind))
		}
	}
	return fileKey{}, ""
}

// findWrongItem returns the first list item that has the wrong type, and a message about the right
// type. The message is "" if there is no such item. The decoder would accept a number instead of a
// string in a list.
func findWrongItem(keys []fileKey) (at fileKey, message string) {
	for _, k := range keys {
		t := settingType(k.name)
		if k.item == 0 || t == nil || t.Kind() != reflect.Slice {
			continue
		}
		t = t.Elem()
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			t = reflect.TypeFor[string]()
		}
		if want := describeWantedType(t, k.kind); want != "" {
			return k, fmt.Sprintf("must be a list in which each item is %s, and item %d is %s", want, k.item, kindName(k.kind))
		}
	}
	return fileKey{}, ""
}

// settingType returns the Go type of the setting with this name, or nil if there is none.
func settingType(name string) reflect.Type {
	t := reflect.TypeFor[Settings]()
	for i, part := range strings.Split(name, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if i == 0 && part == "dns" {
			t = reflect.TypeFor[dnsSettings]()
			continue
		}
		if t.Kind() != reflect.Struct {
			return nil
		}
		var found reflect.Type
		for j := range t.NumField() {
			if t.Field(j).Tag.Get("toml") == part {
				found = t.Field(j).Type
			}
		}
		if found == nil {
			return nil
		}
		t = found
	}
	if name == "dns" {
		return nil // dns may be an address or a table
	}
	return t
}

// describeWantedType describes the TOML type that a setting of Go type t needs. It returns "" if
// kind is right.
func describeWantedType(t reflect.Type, kind unstable.Kind) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	checksText := reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	switch t.Kind() {
	case reflect.Bool:
		return emptyIf(kind == unstable.Bool, "true or false")
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32:
		return emptyIf(kind == unstable.Integer || checksText && kind == unstable.String, "a whole number")
	case reflect.Float64:
		return emptyIf(kind == unstable.Float || kind == unstable.Integer, "a number")
	case reflect.String:
		return emptyIf(kind == unstable.String, "a text")
	case reflect.Slice:
		return emptyIf(kind == unstable.Array || checksText && kind == unstable.String, "a list")
	case reflect.Struct:
		if checksText {
			return emptyIf(kind != unstable.Array && kind != unstable.InlineTable && kind != unstable.Bool, "a text")
		}
		return emptyIf(kind == unstable.InlineTable, "a table")
	}
	return ""
}

// emptyIf returns "" if empty is true, else text.
func emptyIf(empty bool, text string) string {
	if empty {
		return ""
	}
	return text
}

func kindName(k unstable.Kind) string {
	switch k {
	case unstable.String:
		return "a text"
	case unstable.Bool:
		return "true or false"
	case unstable.Integer:
		return "a whole number"
	case unstable.Float:
		return "a number"
	case unstable.Array:
		return "a list"
	case unstable.InlineTable:
		return "a table"
	}
	return "a date or a time"
}

// A flagField is a field of Settings that has a command-line flag.
type flagField struct {
	index       int // index of the field in Settings
	name, usage string
	kind        reflect.Type // type of the field
}

func flagFields() []flagField {
	var out []flagField
	t := reflect.TypeFor[Settings]()
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("flag")
		if name == "" {
			name = strings.ReplaceAll(f.Tag.Get("toml"), "_", "-")
		}
		if usage := f.Tag.Get("usage"); usage != "" {
			out = append(out, flagField{i, name, usage, f.Type})
		}
	}
	return out
}

// WordsOf returns the words of which the value of a flag of Flags must be one; nil if it may be
// another text.
func WordsOf(flag string) []string {
	for _, f := range flagFields() {
		if w, ok := reflect.Zero(f.kind).Interface().(interface{ words() []string }); ok && f.name == flag {
			return w.words()
		}
	}
	return nil
}

// Flags returns the flags of a command that calls Load: one for each setting outside of tables.
// Each flag can also be set by an environment variable, such as MAILSTEAD_HOSTNAME.
func Flags() []cli.Flag {
	var out []cli.Flag
	sandbox, production := reflect.ValueOf(sandboxDefaults()), reflect.ValueOf(productionDefaults())
	for _, f := range flagFields() {
		env := []string{envName(f.name)}
		switch f.kind {
		case reflect.TypeFor[toggle]():
			out = append(out, &cli.BoolFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
			out = append(out, &cli.StringSliceFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		case reflect.TypeFor[Address]():
			text := fmt.Sprintf("%v; %v with a hostname", sandbox.Field(f.index), production.Field(f.index))
			if sandbox.Field(f.index).IsZero() {
				text = ""
			}
			out = append(out, &cli.StringFlag{Name: f.name, Usage: f.usage, EnvVars: env, DefaultText: text})
		default:
			out = append(out, &cli.StringFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		}
	}
	return out
}

func envName(flag string) string {
	return "MAILSTEAD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flagOrEnv returns the value of a setting from the command line or the environment. ok is false if
// neither has it. It reads the environment even for commands that do not have the flag, so that
// they use the settings of the server.
func flagOrEnv(c *cli.Context, f flagField) (text string, ok bool) {
	if !c.IsSet(f.name) {
		text = os.Getenv(envName(f.name))
		return text, text != ""
	}
	switch f.kind {
	case reflect.TypeFor[toggle]():
		return strconv.FormatBool(c.Bool(f.name)), true
	case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
		return strings.Join(c.StringSlice(f.name), ","), true
	}
	return c.String(f.name), true
}

// setField sets a field of Settings to the text of a flag.
func setField(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Bool:
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("the value must be true or false")
		}
		v.SetBool(yes)
	default:
		v.SetString(text)
	}
	return nil
}
