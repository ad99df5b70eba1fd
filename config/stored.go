package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
)

// A unit is a part of the settings in the store that holds or is ignored as a whole: one setting,
// or an entry of a list with its settings.
type unit struct {
	key    string // a key of the API, or that of an entry
	list   string // the list of the entry; "" if it is in none, as a registrar
	entry  string // the name of the entry
	values []unitValue
}

type unitValue struct {
	setting setting
	stored  settings.Stored
}

// toml returns the unit as text of a settings file.
func (u unit) toml() string {
	out := ""
	if u.list != "" {
		name := map[string]string{"relay": "name", "destination": "operator"}[u.list]
		quoted, _ := settings.NewValue(u.entry) // a text has JSON
		out = "[[" + u.list + "]]\n" + name + " = " + tomlOf(rawOf(quoted)) + "\n"
	}
	for _, v := range u.values {
		value, key := tomlOf(rawOf(v.stored.Value)), v.setting.name
		if u.list == "" {
			key = v.setting.fileKey()
		}
		if v.setting.field.Type == reflect.TypeFor[*struct{}]() { // an empty table turns it on
			switch value {
			case "false":
				continue
			case "true":
				value = "{}"
			default:
				value = "[" + value + "]" // no table, so that it is refused
			}
		}
		out += key + " = " + value + "\n"
	}
	return out
}

func rawOf(v settings.Value) []byte {
	raw, _ := v.MarshalJSON() // returns what it has
	return raw
}

// check returns what is wrong with the unit by itself: with the types of its values, or in their
// texts.
func (u unit) check() error {
	for _, v := range u.values { // deep lists take long to decode
		var items []json.RawMessage
		if json.Unmarshal(rawOf(v.stored.Value), &items) == nil && slices.ContainsFunc(items, func(item json.RawMessage) bool { return item[0] == '[' }) {
			return fmt.Errorf("%s must not have a list within a list", v.setting.fileKey())
		}
	}
	text := u.toml()
	err := new(Settings).decode(text)
	if k, what := findWrongItem(fileKeys(text)); what != "" {
		return fmt.Errorf("%s %s", k.name, what)
	}
	if err != nil {
		_, mistake := describeMistake(text, err)
		return mistake
	}
	for _, v := range u.values { // the decoder takes an empty table for a text
		if rawOf(v.stored.Value)[0] == '{' {
			return fmt.Errorf("%s must be a text, not a table", v.setting.fileKey())
		}
	}
	return nil
}

// Join returns the settings with the values that the store has, in the order in which they were
// added. See settings.File.
func (s *Settings) Join(stored []settings.Stored) (*Settings, *settings.Joined, error) {
	o := s.origin
	units, ignored, lacks := o.units(stored)
	ignore := func(u unit, why string, lack settings.Lack) {
		ignored = append(ignored, core.IgnoredSetting{Key: u.key, Why: why})
		lacks = append(lacks, lack)
	}

	// Leave out what is wrong. If all is right together, there is nothing to find out.
	good := units
	out, err := o.merge(good)
	if err != nil {
		good = nil
		out, err = o.merge(nil)
		if err != nil {
			return nil, nil, Error{o.withLine(err)}
		}
		for _, u := range units {
			with, err := o.merge(append(slices.Clone(good), u))
			if err != nil {
				ignore(u, storedMistake(err), settings.Lack{})
				continue
			}
			good, out = append(good, u), with
		}
	}

	// Relays that the store has but that are ignored count for the file, so that they do not stop a
	// start.
	var known []string
	for _, i := range ignored {
		if u, err := o.unitOf(i.Key); err == nil && u.list == "relay" {
			known = append(known, u.entry)
		}
	}
	for {
		err := out.checkRelayNames(known)
		if err == nil {
			break
		}
		at := o.blamed(good, err)
		if at < 0 {
			return nil, nil, Error{o.withLine(err)}
		}
		ignore(good[at], storedMistake(err), settings.Lack{Relay: true})
		good = slices.Delete(slices.Clone(good), at, at+1)
		out, err = o.merge(good)
		if err != nil {
			return nil, nil, Error{o.withLine(err)}
		}
	}
	if o.running != nil {
		out = o.running.withChanges(out)
	}
	joined := &settings.Joined{Settings: out.Changeable(), Lacks: lacks}
	joined.Settings.Ignored = ignored
	joined.List, err = out.list(stored, good, ignored)
	return out, joined, err
}

// storedMistake returns the text of an error about a value in the store.
func storedMistake(err error) string {
	var of entryError
	if errors.As(err, &of) {
		return of.err.Error() // the number of the entry says nothing
	}
	return err.Error()
}

// blamed returns the index of the unit that an error of checkRelayNames is about; -1 if it is about
// the file. good are the units that hold.
func (o *origin) blamed(good []unit, err error) int {
	var of entryError
	if !errors.As(err, &of) {
		return slices.IndexFunc(good, func(u unit) bool { return u.key == "outbound" })
	}
	n := of.index - len(o.entries[of.list]) // entries of the store come after those of the file
	return slices.IndexFunc(good, func(u unit) bool {
		if u.list == of.list {
			n--
		}
		return n == -1
	})
}

// unitOf returns the unit that a key belongs to, without values.
func (o *origin) unitOf(key string) (unit, error) {
	one, entry, _, err := findSetting(key)
	if err != nil {
		return unit{}, err
	}
	list, name := one.entryOf(entry)
	switch list {
	case "":
		return unit{key: one.key("")}, nil
	case "registrar":
		return unit{key: entryKey(list, name), entry: name}, nil
	}
	return unit{key: entryKey(list, name), list: list, entry: name}, nil
}

// units puts values of the store together to units. It leaves out those that are wrong by
// themselves, or that something else sets, and says why.
func (o *origin) units(stored []settings.Stored) (out []unit, ignored []core.IgnoredSetting, lacks []settings.Lack) {
	ignore := func(key, why string, overridden bool) {
		ignored = append(ignored, core.IgnoredSetting{Key: key, Why: why})
		lacks = append(lacks, settings.Lack{Overridden: overridden})
	}
	var all []unit
	for _, v := range stored {
		one, _, whole, err := findSetting(v.Key)
		if err != nil || whole || !one.editable() {
			ignore(v.Key, "this version of Mailstead does not take it from the store", false)
			continue
		}
		if v.Value.Damaged() {
			ignore(v.Key, "no master key opens its value; set it again, or remove it", false)
			continue
		}
		u, err := o.unitOf(v.Key)
		if err != nil {
			ignore(v.Key, err.Error(), false)
			continue
		}
		at := slices.IndexFunc(all, func(other unit) bool { return other.key == u.key })
		if at < 0 {
			at, all = len(all), append(all, u)
		}
		all[at].values = append(all[at].values, unitValue{one, v})
	}
	for _, u := range all {
		by := ""
		switch {
		case u.list != "":
			by = o.entrySetBy(u.list, u.entry)
		case u.entry != "":
			by = o.entrySetBy("registrar", u.entry)
		default:
			by, _, _ = o.setBy(u.values[0].setting, "")
		}
		if by != "" {
			ignore(u.key, by+" sets it", true)
			continue
		}
		if err := u.check(); err != nil {
			ignore(u.key, err.Error(), false)
			continue
		}
		out = append(out, u)
	}
	// What other settings need comes first, so that it is there when they are checked.
	slices.SortStableFunc(out, func(a, b unit) int { return rankOf(a) - rankOf(b) })
	return out, ignored, lacks
}

// rankOf orders units: relays come before what may name them.
func rankOf(u unit) int {
	if u.list == "relay" {
		return 0
	}
	return 1
}

// list returns all settings as the API shows them. stored are the values in the store; of these,
// good hold, and ignored do not.
func (s *Settings) list(stored []settings.Stored, good []unit, ignored []core.IgnoredSetting) (out []settings.Setting, err error) {
	o, usual := s.origin, s.origin.defaults()
	inStore := map[string]bool{}
	for _, u := range good {
		for _, v := range u.values {
			inStore[v.stored.Key] = true
		}
	}
	why := func(key string) *string {
		for _, i := range ignored {
			if u, err := o.unitOf(key); i.Key == key || err == nil && i.Key == u.key {
				return &i.Why
			}
		}
		return nil
	}
	add := func(one setting, entry string, value, byDefault reflect.Value) error {
		row := settings.Setting{
			Key: one.key(entry), Type: one.typeName(), Source: "default", Editable: one.editable(), Restart: !one.live(), Secret: one.secret(), Description: one.description(),
		}
		var err error
		row.Value, err = one.shown(value)
		if err == nil {
			row.Default, err = one.shown(byDefault)
		}
		_, source, line := o.setBy(one, entry)
		switch {
		case source != "":
			row.Source = source
		case inStore[row.Key]:
			row.Source = "store"
		}
		if line > 0 {
			row.Line = &line
		}
		if has := func(v settings.Stored) bool { return v.Key == row.Key }; slices.ContainsFunc(stored, has) && !inStore[row.Key] {
			row.Ignored = why(row.Key)
		}
		out = append(out, row)
		return err
	}

	all, defaults := reflect.ValueOf(s).Elem(), reflect.ValueOf(usual).Elem()
	table := settingsTable()
	for i, one := range table {
		if one.list == "" {
			if err := add(one, "", one.valueIn(all), one.valueIn(defaults)); err != nil {
				return nil, err
			}
			continue
		}
		if i > 0 && table[i-1].list == one.list {
			continue // all settings of a list are added with the first one
		}
		entries := all.FieldByIndex(one.listIndex)
		for n := range entries.Len() {
			entry := entries.Index(n)
			name := ""
			for _, field := range table {
				if field.list != one.list {
					continue
				}
				if name == "" { // the first field is the name
					name = textOf(field.valueIn(entry))
					continue
				}
				if err := add(field, name, field.valueIn(entry), field.valueIn(reflect.ValueOf(usualEntry(one.list)))); err != nil {
					return nil, err
				}
			}
		}
	}

	// Values of the store whose row is missing: of entries that are ignored, and of keys that this
	// version does not know.
	for _, v := range stored {
		if slices.ContainsFunc(out, func(row settings.Setting) bool { return row.Key == v.Key }) {
			continue
		}
		row := settings.Setting{Key: v.Key, Type: "text", Source: "store", Secret: true, Ignored: why(v.Key)}
		if one, _, _, err := findSetting(v.Key); err == nil {
			row.Type, row.Editable, row.Restart, row.Secret, row.Description = one.typeName(), one.editable(), !one.live(), one.secret(), one.description()
		}
		value := v.Value
		if row.Secret {
			value, err = settings.NewValue(true)
			if err != nil {
				return nil, err
			}
		}
		row.Value = &value
		out = append(out, row)
	}
	return out, nil
}

// usualEntry returns an entry of a list that has only defaults.
func usualEntry(list string) any {
	switch list {
	case "relay":
		var r relaySettings
		r.fillDefaults()
		return r
	case "destination":
		return destinationSettings{}
	}
	return secondarySettings{Algorithm: tsigAlgorithm{checkedText{defaultTSIGAlgorithm}}}
}
