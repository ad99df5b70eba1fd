package operator

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// PreviousDir is the name of the directory in the data directory that has the stores from before
// upgrades. Each is in a directory named after the version of the program that wrote it.
const PreviousDir = "previous"

// keepPreviousFor is how long a store from before an upgrade is kept.
const keepPreviousFor = 14 * 24 * time.Hour

// RemovePrevious deletes the stores from before upgrades that are older than keepPreviousFor.
func RemovePrevious(dir string, now time.Time, log *slog.Logger) {
	list, err := os.ReadDir(filepath.Join(dir, PreviousDir))
	if err != nil {
		return // the directory does not exist
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < keepPreviousFor {
			continue
		}
		path := filepath.Join(dir, PreviousDir, e.Name())
		if err := os.RemoveAll(path); err != nil {
			log.Error("delete a store from before an upgrade", "path", path, "error", err)
			continue
		}
		log.Info("deleted a store from before an upgrade after 14 days", "path", path)
	}
}
