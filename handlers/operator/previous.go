package operator

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// PreviousDir is the directory, in the data directory, of stores from before an upgrade. Each is in
// a directory named after the version that wrote it.
const PreviousDir = "previous"

const previousKept = 14 * 24 * time.Hour

// RemovePrevious deletes stores that are older than previousKept.
func RemovePrevious(dir string, now time.Time, log *slog.Logger) {
	list, err := os.ReadDir(filepath.Join(dir, PreviousDir))
	if err != nil {
		return // the directory does not exist
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < previousKept {
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
