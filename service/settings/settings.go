// Package settings keeps the settings that the operator changes while the server runs: their values
// are in the store, sealed, and hold under those of the settings file, flags and the environment.
// It does not know which settings there are, nor what they mean: a File does.
//
// Where things are:
//   - settings.go: the setting as the API shows it, and what a File knows.
//   - service.go: the room, and the list of settings. stored.go: the values in the store.
//   - change.go: changes by API ([Service.UpdateSettings]), and of the file ([Service.UseFile]).
//   - try.go: trying a relay, a registrar or the address of alerts ([Service.TestSettings]).
package settings

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/mailstead/mailstead/service/core"
)

// A Setting is one setting of this installation.
type Setting struct {
	// The key, as in mailstead.toml; the name of an entry of a list stands in double quotes. The
	// level of the log is log.level, which is log_level in the file.
	Key string `json:"key" words:"ours" example:"limits.domains"`
	// What holds now. A secret is true if there is one, and URLs are without user and query.
	Value   *Value `json:"value" words:"ours" example:"500"`
	Default *Value `json:"default" words:"ours" example:"500"` // What holds without any value.
	// One of text, integer, number, boolean, duration and list, or the words that are allowed, with
	// a bar between them. A duration is a text such as 7d, 1h or 30m.
	Type   string `json:"type" words:"ours" example:"integer"`
	Source string `json:"source" enum:"flag|environment|file|store|default"` // Where the value comes from. What update_settings sets is in the store.
	Line   *int   `json:"line"`                                              // The line in mailstead.toml; null if the value is not from the file.
	// Whether update_settings can set it. While a flag, the environment or the file sets it, it can
	// be changed only there.
	Editable    bool   `json:"editable"`
	Restart     bool   `json:"restart"` // Whether a change takes effect only after a restart.
	Secret      bool   `json:"secret"`
	Description string `json:"description" words:"ours" example:"domains of an account"` // For people; the text may change.
	// Why the value in the store does not hold; null if it does, or if there is none.
	Ignored *string `json:"ignored" words:"ours" example:"mailstead.toml, line 12, sets it" rare:"true"`
}

// A Value is the value of a setting.
type Value struct{ raw json.RawMessage }

// NewValue returns the value whose JSON is that of v.
func NewValue(v any) (Value, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return Value{bytes.TrimSpace(text.Bytes())}, err
}

// Damaged reports whether the value was in the store, but no master key opens it.
func (v Value) Damaged() bool { return v.raw == nil }

// UnmarshalJSON keeps the JSON, whose type is checked when the key is known.
func (v *Value) UnmarshalJSON(data []byte) error {
	var text bytes.Buffer
	if err := json.Compact(&text, data); err != nil {
		return err
	}
	v.raw = text.Bytes()
	return nil
}

// MarshalJSON writes the value as it was given.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.raw == nil {
		return []byte("null"), nil
	}
	return v.raw, nil
}

// Forms returns examples of the types that a value may have in JSON.
func (Value) Forms() []any { return []any{"", 0.5, true, []string{}} }

// EntryKey returns the key of an entry of a list, such as relay."r1".
func EntryKey(list, name string) string {
	quoted, _ := NewValue(name) // a text has JSON
	return list + "." + string(quoted.raw)
}

// A Stored is a value in the store.
type Stored struct {
	Key   string // in the form of Key.Text
	Value Value
}

// A Key is a key that a File knows.
type Key struct {
	Text  string // the key in its one form
	Entry string // the entry of a list that it belongs to, such as relay."r1"; "" for none
	Name  string // the last part, such as host
	Whole bool   // it stands for the whole entry
	// Editable says that the store may have a value for it. If not, Why says where it is set.
	Editable bool
	Why      string
	Secret   bool
	SetBy    string // what sets it outside of the store, such as "mailstead.toml, line 12"; "" for nothing
}

// A Joined has the settings that hold, with the values of the store.
type Joined struct {
	Settings core.Settings
	List     []Setting // all settings, in the order in which they are shown
	Lacks    []Lack    // for each of Settings.Ignored, what it lacks
}

// A Lack says what an ignored setting lacks.
type Lack struct {
	Overridden bool // nothing: another source sets it
	Relay      bool // a relay that it names
}

// ErrNoRelay is wrapped by the error of File.Join if the settings file needs a relay that there is
// not.
var ErrNoRelay = errors.New("there is no such relay")

// A File is what the operator has set outside of the store: the settings file, with flags and the
// environment.
type File interface {
	// Key returns what a key means. The error is a core.Error with the code invalid_setting, which
	// names the nearest key.
	Key(text string) (Key, error)
	// Join returns the settings that hold if the store has these values. The first ones were added
	// first. A value that cannot hold is in Settings.Ignored. Join fails only if the settings are
	// invalid without the store.
	Join(stored []Stored) (*Joined, error)
}
