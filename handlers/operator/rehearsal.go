package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mailstead/mailstead/config"
)

// rehearsalFile is the file in the data directory that records the last rehearsal that passed.
const rehearsalFile = "rehearsed.json"

// A RehearsalRecord says that the rehearsal of an upgrade has passed. In a rehearsal, the new
// program migrates a copy of the store.
type RehearsalRecord struct {
	Version      string    `json:"version"` // of the program that made the rehearsal
	At           time.Time `json:"at"`
	DigestsEqual bool      `json:"digests_equal"`

	// The store formats before and after the migration; 0 if no migration was needed.
	FromFormat uint32 `json:"from_format,omitempty"`
	ToFormat   uint32 `json:"to_format,omitempty"`
}

// Save writes the record into the data directory, in place of an older one. If a power cut damages
// it, the record counts as missing.
func (p RehearsalRecord) Save(dir string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, rehearsalFile)
	if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record that the rehearsal has passed: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// ForgetRehearsal removes the record from the data directory.
func ForgetRehearsal(dir string) error {
	if err := os.Remove(filepath.Join(dir, rehearsalFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MigrationGuard returns the function that the store in dir calls before it migrates; nil allows
// every migration. In production, the function returns an error unless a rehearsal by this version
// of the program has passed. So an unattended upgrade does not migrate the store.
func MigrationGuard(dir string, s *config.Settings, version string) func(from, to uint32) error {
	if s.Sandbox() || bool(s.Migrate) {
		return nil
	}
	return func(from, to uint32) error {
		var p RehearsalRecord
		text, err := os.ReadFile(filepath.Join(dir, rehearsalFile))
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		// After an interrupted migration, the store has a later format than at the rehearsal.
		if err == nil && p.DigestsEqual && p.Version == version && p.ToFormat == to && p.FromFormat > 0 && p.FromFormat <= from {
			return nil
		}
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return config.Mistake(fmt.Errorf("the store in %s is of the older format %d, and no rehearsal of its migration by mailstead %s has passed: "+
			"run `mailstead rehearse --swap --data %[1]s`, which tries it on a copy first; `mailstead serve --migrate` goes on without", dir, from, version))
	}
}
