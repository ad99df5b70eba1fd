package servicetest

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/keyfile"
	"github.com/mailstead/mailstead/store/objects"
)

// AddBackups makes the settings ask for backups, to a directory. No schedule runs.
func (b *Sandbox) AddBackups(t testing.TB) {
	t.Helper()
	place, err := objects.At(filepath.Join(t.TempDir(), "backups"), objects.S3{})
	if err != nil {
		t.Fatal(err)
	}
	b.Backups.Schedule = &backup.Schedule{
		Target: &backup.Target{Place: place, Temp: b.Core.Store.Dir(), Program: "test"},
		Source: backup.Source{Store: b.Core.Store, Files: []string{keyfile.NextName, keyfile.Name}, Program: "test", Log: slog.New(slog.DiscardHandler)},
		Every:  time.Hour, FullEvery: 24 * time.Hour, Keep: 24 * time.Hour,
	}
	b.Health.Backups = b.Backups.Schedule
}
