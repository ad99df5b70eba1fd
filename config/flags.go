package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// A flagField is a field of Settings that is a flag.
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

// Flags are the flags of the command that Load is called from: one for each plain setting, which
// may also come from the environment, as MAILSTEAD_ and the name in capitals.
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

func flagValues(c *cli.Context, f flagField) []string {
	switch f.kind {
	case reflect.TypeFor[toggle]():
		return []string{strconv.FormatBool(c.Bool(f.name))}
	case reflect.TypeFor[ipList](), reflect.TypeFor[netList]():
		return []string{strings.Join(c.StringSlice(f.name), ",")}
	}
	return []string{c.String(f.name)}
}

// setField sets a field from a flag's text.
func setField(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(text == "true")
	default:
		v.SetString(text)
	}
	return nil
}

// setFlags applies the command line and the environment.
func (s *Settings) setFlags(c *cli.Context) error {
	for _, f := range flagFields() {
		if !c.IsSet(f.name) {
			continue
		}
		for _, value := range flagValues(c, f) {
			if err := setField(reflect.ValueOf(s).Elem().Field(f.index), value); err != nil {
				return fmt.Errorf("--%s: %w", f.name, err)
			}
		}
	}
	return nil
}
