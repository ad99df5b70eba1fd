package servicetest

import (
	"encoding/json"
	"testing"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
	"github.com/mailstead/mailstead/store"
)

// OpenSettings opens a service over the store in dir, with the settings of a file and of the store,
// as the program does. c has the rest of its configuration. Its queue does not run. end closes the
// service and the store.
func OpenSettings(t testing.TB, dir string, c core.Config, file settings.File) (b *Sandbox, end func()) {
	t.Helper()
	st, err := store.Open(dir, store.Options{Log: c.Log})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := settings.Read(st, keys)
	if err != nil {
		t.Fatal(err)
	}
	joined, err := file.Join(stored)
	if err != nil {
		t.Fatal(err)
	}
	c.Settings = joined.Settings
	b = &Sandbox{Service: service.New(st, jobs.NewQueue(st), keys, c)}
	b.Settings.Begin(file, stored, joined)
	CheapSecrets(b.Core)
	return b, func() {
		t.Helper()
		b.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// StoredSettings returns the number of settings in the store.
func (b *Sandbox) StoredSettings(t testing.TB) (n int) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		n = 0
		for range store.Settings.All(tx) {
			n++
		}
		return nil
	})
	return n
}

// PutSetting writes a setting into the store as another version might have left it: nothing checks
// the key or the value, which is JSON.
func (b *Sandbox) PutSetting(t testing.TB, key, value string) {
	t.Helper()
	sealed := b.Core.Keys.Seal(store.SettingBinding(key), []byte(value))
	b.update(t, func(tx *store.Tx) error {
		return store.Settings.Put(tx, &store.Setting{Key: key, Sealed: sealed, CreatedAt: tx.Now(), UpdatedAt: tx.Now()})
	})
}

// DamageSetting makes the value of a setting in the store one that no key opens.
func (b *Sandbox) DamageSetting(t testing.TB, key string) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		s, err := store.Settings.Get(tx, key)
		if err != nil {
			return err
		}
		s.Sealed = []byte("damaged")
		return store.Settings.Put(tx, s)
	})
}

// AddBareMailbox adds the record of a mailbox that names a relay, and returns what deletes it.
func (b *Sandbox) AddBareMailbox(t testing.TB, email, relay string) (drop func()) {
	t.Helper()
	b.update(t, func(tx *store.Tx) error {
		return store.Mailboxes.Put(tx, &store.Mailbox{ID: "eu_1", Num: 1, Email: email, Relay: relay})
	})
	return func() {
		t.Helper()
		b.update(t, func(tx *store.Tx) error { return store.Mailboxes.Delete(tx, "eu_1") })
	}
}

// Audits returns the rows of the audit log, oldest first.
func (b *Sandbox) Audits(t testing.TB) (out []store.Audit) {
	t.Helper()
	b.view(t, func(tx *store.Tx) error {
		out = nil
		for row := range store.Audits.All(tx) {
			out = append(out, *row)
		}
		return nil
	})
	return out
}

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
