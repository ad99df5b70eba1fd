package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
)

func (p *Program) settingsCommands() []*cli.Command {
	return []*cli.Command{
		p.command("list", "list all settings, or those that begin with PREFIX, and where each comes from", "[PREFIX]", func(c *cli.Context, e *env) error {
			if c.NArg() > 1 {
				return config.Mistake(fmt.Errorf("%q is not expected: %s", c.Args().Get(1), usageLine(c.Command)))
			}
			return runSettingsList(c.Context, e, c.Args().First())
		}, listFlags()...),
		p.command("get", "print one setting", "KEY", func(c *cli.Context, e *env) error {
			if c.NArg() != 1 {
				return config.Mistake(errors.New("name one setting: mailstead settings get KEY"))
			}
			return runSettingsGet(c.Context, e, c.Args().First())
		}, jsonFlag()),
		p.command("set", "change settings, without a restart", "KEY VALUE | KEY=VALUE…", func(c *cli.Context, e *env) error {
			values, err := settingsArguments(c.Args().Slice())
			if err == nil && len(values) == 0 {
				err = errors.New("name what to set: mailstead settings set KEY VALUE, or KEY=VALUE for several at once")
			}
			if err != nil {
				return config.Mistake(err)
			}
			return runSettingsSet(c.Context, e, values)
		}, jsonFlag()),
		p.command("unset", "remove settings from the store, so that the file or the default holds", "KEY…", func(c *cli.Context, e *env) error {
			if !c.Args().Present() {
				return config.Mistake(errors.New("name what to remove: mailstead settings unset KEY…, or a whole entry such as relay.r1"))
			}
			values := map[string]*settings.Value{}
			for _, key := range c.Args().Slice() {
				values[key] = nil
			}
			return runSettingsSet(c.Context, e, values)
		}, jsonFlag()),
		p.command("test", "try a relay, a registrar or the address of alerts", "relay.NAME | registrar.NAME | alerts.url [KEY=VALUE…]", func(c *cli.Context, e *env) error {
			if !c.Args().Present() {
				return config.Mistake(errors.New("name what to try: mailstead settings test relay.NAME, registrar.NAME or alerts.url"))
			}
			values, err := settingsArguments(c.Args().Tail())
			if err != nil {
				return config.Mistake(err)
			}
			return runSettingsTest(c.Context, e, c.Args().First(), values)
		}, jsonFlag()),
	}
}

// settingsArguments returns the values that arguments give to keys: KEY VALUE, or KEY=VALUE several
// times. A value of the form @FILE is read from the file, so that secrets need not stand on the
// command line; @- is the standard input.
func settingsArguments(args []string) (map[string]*settings.Value, error) {
	if len(args) == 2 && !strings.Contains(args[0], "=") {
		args = []string{args[0] + "=" + args[1]}
	}
	out := map[string]*settings.Value{}
	for _, arg := range args {
		key, text, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no value: write KEY=VALUE", arg)
		}
		if file, ok := strings.CutPrefix(text, "@"); ok {
			read := func() ([]byte, error) { return os.ReadFile(file) }
			if file == "-" {
				read = func() ([]byte, error) { return io.ReadAll(os.Stdin) }
			}
			content, err := read()
			if err != nil {
				return nil, fmt.Errorf("read the value of %s: %w", key, err)
			}
			text = strings.TrimRight(string(content), "\r\n")
		}
		value, err := config.ParseValue(key, text)
		if e, ok := core.AsError(err); ok {
			return nil, errors.New(e.Message)
		}
		if err != nil {
			return nil, err
		}
		out[key] = &value
	}
	return out, nil
}

// runSettingsList prints the settings whose key begins with prefix.
func runSettingsList(ctx context.Context, e *env, prefix string) error {
	list, err := callSettings(ctx, e, "list_settings", nil)
	if err != nil {
		return err
	}
	list.Data = slices.DeleteFunc(list.Data, func(row settings.Setting) bool {
		return !strings.HasPrefix(strings.ReplaceAll(row.Key, `"`, ""), strings.ReplaceAll(prefix, `"`, ""))
	})
	list.Count = len(list.Data)
	if list.Count == 0 {
		return config.Mistake(fmt.Errorf("no setting begins with %q; `mailstead settings list` lists all", prefix))
	}
	return e.printTable(list, settingsTable(list.Data))
}

func runSettingsGet(ctx context.Context, e *env, key string) error {
	list, err := callSettings(ctx, e, "list_settings", nil)
	if err != nil {
		return err
	}
	for _, row := range list.Data {
		if bareKey(row.Key) == bareKey(key) {
			return e.print(row, valueText(row)+"\n")
		}
	}
	_, err = config.ParseValue(key, "")
	if refused, ok := core.AsError(err); ok {
		return config.Mistake(errors.New(refused.Message))
	}
	return fmt.Errorf("%s is not set", key)
}

// bareKey returns a key without quotes around its parts.
func bareKey(key string) string { return strings.ReplaceAll(key, `"`, "") }

// runSettingsSet sets values, or removes those that are nil, and prints what holds then.
func runSettingsSet(ctx context.Context, e *env, values map[string]*settings.Value) error {
	list, err := callSettings(ctx, e, "update_settings", jsonObject{"values": values})
	if err != nil {
		return err
	}
	var rows []settings.Setting
	for _, row := range list.Data {
		for given := range values {
			if bare, key := bareKey(row.Key), bareKey(given); bare == key || strings.HasPrefix(bare, key+".") {
				rows = append(rows, row)
			}
		}
	}
	out := core.List[settings.Setting]{Data: rows, Count: len(rows)}
	if len(rows) == 0 {
		return e.print(out, "Removed.\n")
	}
	return e.printTable(out, settingsTable(rows))
}

func runSettingsTest(ctx context.Context, e *env, key string, values map[string]*settings.Value) error {
	body, err := askAPI(ctx, e, "test_settings", jsonObject{"key": key, "values": values})
	if err != nil {
		return err
	}
	var out settings.TestResult
	if err := json.Unmarshal(body, &out); err != nil {
		return err
	}
	text := out.Message + "\n"
	if out.Mend != nil {
		text += *out.Mend + "\n"
	}
	if err := e.print(out, text); err != nil {
		return err
	}
	if !out.OK {
		return fmt.Errorf("%s does not work (%s)", key, out.Code)
	}
	return nil
}

// callSettings calls an operation that answers with settings.
func callSettings(ctx context.Context, e *env, operation string, args jsonObject) (*core.List[settings.Setting], error) {
	body, err := askAPI(ctx, e, operation, args)
	if err != nil {
		return nil, err
	}
	out := new(core.List[settings.Setting])
	return out, json.Unmarshal(body, out)
}

// askAPI calls an operation as the operator, and returns the body of the answer.
func askAPI(ctx context.Context, e *env, operation string, args jsonObject) ([]byte, error) {
	a := &apiCaller{ctx: ctx, send: e.send}
	body, err := a.call(operation, args)
	return body, e.printAPIError(err)
}

// settingsTable returns settings as a table.
func settingsTable(rows []settings.Setting) *table {
	t := &table{heads: []string{"Setting", "Value", "Source"}, wide: []int{1, 2}}
	for _, row := range rows {
		source := row.Source
		if row.Line != nil {
			source = fmt.Sprintf("%s, line %d", source, *row.Line)
		}
		if row.Ignored != nil {
			source += "; the store's value is ignored: " + *row.Ignored
		}
		t.add(row.Key, valueText(row), source)
	}
	return t
}

// valueText returns the value of a setting for people: "-" if there is none.
func valueText(row settings.Setting) string {
	if row.Value == nil {
		return "-"
	}
	if row.Secret {
		return "(secret)"
	}
	raw, _ := row.Value.MarshalJSON() // returns what it has
	var text string
	var list []string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &list) == nil:
		return cmp.Or(strings.Join(list, ","), "-")
	}
	return string(raw)
}
