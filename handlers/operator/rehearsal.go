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

// rehearsedFile, in the data directory, says which rehearsal was the last to pass.
const rehearsedFile = "rehearsed.json"

// A PassedRehearsal says which rehearsal of an upgrade was the last to pass.
type PassedRehearsal struct {
	Version      string    `json:"version"` // of the program that rehearsed
	At           time.Time `json:"at"`
	DigestsEqual bool      `json:"digests_equal"`

	// The formats before and after the migration; 0 where nothing had to be migrated.
	FromFormat uint32 `json:"from_format,omitempty"`
	ToFormat   uint32 `json:"to_format,omitempty"`
}

// Save replaces what the data directory says about rehearsals. What a power cut has spoilt counts
// as none.
func (p PassedRehearsal) Save(dir string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, rehearsedFile)
	if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write down that the rehearsal has passed: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// ForgetRehearsal has the data directory say that no rehearsal has passed.
func ForgetRehearsal(dir string) error {
	if err := os.Remove(filepath.Join(dir, rehearsedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MayMigrate gives what the store in dir asks before it is migrated. In production, an older store
// is migrated only after a rehearsal of this version of the program has passed, so that no upgrade
// that nobody watches begins with one.
func MayMigrate(dir string, s *config.Settings, version string) func(from, to uint32) error {
	if s.Sandbox() || bool(s.Migrate) {
		return nil
	}
	return func(from, to uint32) error {
		var p PassedRehearsal
		text, err := os.ReadFile(filepath.Join(dir, rehearsedFile))
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		// A migration that was interrupted has come some formats further.
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
