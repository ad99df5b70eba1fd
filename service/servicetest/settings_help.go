package servicetest

import (
	"encoding/json"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
)

// A settingsFile is a settings file that knows one key: limits.domains.
type settingsFile struct{ start *core.Settings }

// Key knows only limits.domains.
func (f settingsFile) Key(text string) (settings.Key, error) {
	if text != "limits.domains" {
		return settings.Key{}, core.Errorf("invalid_setting", "There is no setting %q.", text)
	}
	return settings.Key{Text: text, Name: "domains", Editable: true}, nil
}

// Join returns the settings that the service has started with, with the value of limits.domains.
func (f settingsFile) Join(stored []settings.Stored) (*settings.Joined, error) {
	usual, err := settings.NewValue(f.start.Limits.Domains)
	if err != nil {
		return nil, err
	}
	row := settings.Setting{Key: "limits.domains", Value: &usual, Default: &usual, Type: "integer", Source: "default", Editable: true, Description: "domains of an account"}
	out := &settings.Joined{Settings: *f.start}
	for _, v := range stored {
		raw, err := v.Value.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &out.Settings.Limits.Domains); err != nil {
			return nil, err
		}
		row.Value, row.Source = &v.Value, "store"
	}
	out.List = []settings.Setting{row}
	return out, nil
}
