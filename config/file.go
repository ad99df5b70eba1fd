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

// decode decodes text into s; it does not change fields that text does not set. `dns` may be an
// address or a table.
func (s *Settings) decode(text string) error {
	var kind struct {
		DNS any `toml:"dns"`
	}
	_ = toml.Unmarshal([]byte(text), &kind) // the decoding below reports mistakes
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

// fileError adds the line of the mistake in the file to an error.
func fileError(path, text string, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		row, _ := unknown.Errors[0].Position()
		return fmt.Errorf("%s, line %d: there is no setting %q; see `mailstead serve --help` for all settings", path, row, strings.Join(unknown.Errors[0].Key(), "."))
	}
	keys := fileKeys(text)
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		row, _ := wrong.Position()
		if k, what := wrongType(keys, row); what != "" {
			return fmt.Errorf("%s, line %d: %s %s", path, k.row, k.name, what)
		}
		if len(wrong.Key()) > 0 {
			return fmt.Errorf("%s, line %d: %s: %s", path, row, strings.Join(wrong.Key(), "."), withoutTypes(wrong.Error()))
		}
		return fmt.Errorf("%s, line %d: %s", path, row, withoutTypes(wrong.Error()))
	}
	row := lineOf(text, err)
	if k, what := wrongType(keys, row); what != "" {
		return fmt.Errorf("%s, line %d: %s %s", path, k.row, k.name, what)
	}
	if key := keyAt(keys, row); key != "" {
		return fmt.Errorf("%s, line %d: %s: %w", path, row, key, err)
	}
	if row > 0 {
		return fmt.Errorf("%s, line %d: %w", path, row, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// withoutTypes returns the decoder's message without the names of Go types.
func withoutTypes(text string) string {
	text = strings.NewReplacer("toml: ", "",
		reflect.TypeFor[port]().String(), "a port, from 1 to 65535",
		reflect.TypeFor[count]().String(), "a count, a whole number that is not negative").Replace(text)
	if given, _, ok := strings.Cut(text, " into struct field "); ok {
		return "it has the wrong type: " + strings.TrimPrefix(given, "cannot decode TOML ") + " is not possible here"
	}
	return text
}

// lineOf returns the line of a mistake for which the decoder reports none, such as a number instead
// of a text; 0 if it is not found. It finds the shortest beginning of the file that has the
// mistake.
func lineOf(text string, mistake error) int {
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

// tableError matches the beginning of an error about a table: the table's name, its number in a
// list of tables, and the key.
var tableError = regexp.MustCompile(`^\[\[?([a-z0-9_.]+)\]\]?(?: number (\d+):)?(?: ([a-z0-9_]+)(?:[ :]|$))?`)

// rowOf returns the line of the setting that an error begins with, or else of its table; 0 if the
// error is not about a table, or the file does not have the table.
func rowOf(text, mistake string) (row int) {
	m := tableError.FindStringSubmatch(mistake)
	if m == nil {
		return 0
	}
	name, key, in, count := m[1], m[3], false, 0
	number, _ := strconv.Atoi(m[2]) // 0: the table is not in a list
	p := &unstable.Parser{}
	p.Reset([]byte(text))
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
			continue
		}
		parts, at := keyOf(p, e)
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

// A fileKey is a key of the file with its line and the type of its value.
type fileKey struct {
	row  int
	name string // with the names of its tables
	kind unstable.Kind
	item int // number of the item in the list of that name, from 1; 0: the value itself
}

// fileKeys returns the keys in the order of the file, up to the first syntax error.
func fileKeys(text string) (out []fileKey) {
	p := &unstable.Parser{}
	p.Reset([]byte(text))
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, _ = keyOf(p, e)
		case unstable.KeyValue:
			out = addKey(out, p, e, table)
		}
	}
	return out
}

// keyOf returns the parts of a node's key, and its line.
func keyOf(p *unstable.Parser, n *unstable.Node) (parts []string, row int) {
	for it := n.Key(); it.Next(); {
		part := it.Node()
		if row == 0 {
			row = p.Shape(part.Raw).Start.Line
		}
		parts = append(parts, string(part.Data))
	}
	return parts, row
}

// addKey appends a key, and the keys of an inline table that is its value.
func addKey(out []fileKey, p *unstable.Parser, n *unstable.Node, around []string) []fileKey {
	parts, row := keyOf(p, n)
	parts = append(append([]string{}, around...), parts...)
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
			first := item // the parser has no position of a list, only of its items
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

// keyAt returns the last key that begins on or before the line; "" if there is none.
func keyAt(keys []fileKey, row int) (name string) {
	for _, k := range keys {
		if k.row <= row {
			name = k.name
		}
	}
	return name
}

// wrongType returns the first key, up to the line, with a value of the wrong type, and what the
// value must be; "" if there is none. Values with their own check report mistakes themselves.
func wrongType(keys []fileKey, row int) (at fileKey, what string) {
	for _, k := range keys {
		t := settingType(k.name)
		if t == nil || row > 0 && k.row > row {
			continue
		}
		if want := wantedKind(t, k.kind); want != "" && k.item == 0 {
			return k, fmt.Sprintf("must be %s, not %s", want, kindName(k.kind))
		}
	}
	return fileKey{}, ""
}

// wrongItem returns the first list item of the wrong type, and a message; "" if there is none. The
// decoder would accept a number as a text there.
func wrongItem(keys []fileKey) (at fileKey, what string) {
	for _, k := range keys {
		t := settingType(k.name)
		if k.item == 0 || t == nil || t.Kind() != reflect.Slice {
			continue
		}
		t = t.Elem()
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			t = reflect.TypeFor[string]()
		}
		if want := wantedKind(t, k.kind); want != "" {
			return k, fmt.Sprintf("must be a list in which each item is %s, and item %d is %s", want, k.item, kindName(k.kind))
		}
	}
	return fileKey{}, ""
}

// settingType returns the type of the named setting; nil if there is none.
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
		return nil // an address or a table
	}
	return t
}

// wantedKind returns what a value of type t must be; "" if kind is right.
func wantedKind(t reflect.Type, kind unstable.Kind) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	checksText := reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	switch t.Kind() {
	case reflect.Bool:
		return unless(kind == unstable.Bool, "true or false")
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32:
		return unless(kind == unstable.Integer || checksText && kind == unstable.String, "a whole number")
	case reflect.Float64:
		return unless(kind == unstable.Float || kind == unstable.Integer, "a number")
	case reflect.String:
		return unless(kind == unstable.String, "a text")
	case reflect.Slice:
		return unless(kind == unstable.Array || checksText && kind == unstable.String, "a list")
	case reflect.Struct:
		if checksText {
			return unless(kind != unstable.Array && kind != unstable.InlineTable && kind != unstable.Bool, "a text")
		}
		return unless(kind == unstable.InlineTable, "a table")
	}
	return ""
}

func unless(fits bool, want string) string {
	if fits {
		return ""
	}
	return want
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

// A flagField is a field of Settings that has a flag.
type flagField struct {
	index       int
	name, usage string
	kind        reflect.Type
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

// Flags returns the flags of a command that calls Load: one for each plain setting. A setting may
// also come from the environment, as MAILSTEAD_ and its name in capitals.
func Flags() []cli.Flag {
	var out []cli.Flag
	for _, f := range flagFields() {
		env := []string{envName(f.name)}
		switch f.kind {
		case reflect.TypeFor[toggle]():
			out = append(out, &cli.BoolFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
			out = append(out, &cli.StringSliceFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		default:
			out = append(out, &cli.StringFlag{Name: f.name, Usage: f.usage, EnvVars: env})
		}
	}
	return out
}

func envName(flag string) string {
	return "MAILSTEAD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flagOrEnv returns the value of a setting from the command line or the environment; ok is false if
// neither has it. A command without the flag also uses the environment, so that every command has
// the settings of the server.
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

// setField sets a field from the text of a flag.
func setField(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Bool:
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("it is true or false")
		}
		v.SetBool(yes)
	default:
		v.SetString(text)
	}
	return nil
}

// setFlags applies the command line and the environment.
func (s *Settings) setFlags(c *cli.Context) error {
	for _, f := range flagFields() {
		text, ok := flagOrEnv(c, f)
		if !ok {
			continue
		}
		if err := setField(reflect.ValueOf(s).Elem().Field(f.index), text); err != nil {
			return fmt.Errorf("--%s: %w", f.name, err)
		}
	}
	return nil
}
