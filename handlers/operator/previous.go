package operator

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// PreviousDir, in the data directory, has stores of before a swap, by the version that wrote them.
const PreviousDir = "previous"

const previousKept = 14 * 24 * time.Hour

// RemovePrevious deletes stores that were kept long enough.
func RemovePrevious(dir string, now time.Time, log *slog.Logger) {
	list, err := os.ReadDir(filepath.Join(dir, PreviousDir))
	if err != nil {
		return // there are none
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < previousKept {
			continue
		}
		path := filepath.Join(dir, PreviousDir, e.Name())
		if err := os.RemoveAll(path); err != nil {
			log.Error("an old store could not be deleted", "path", path, "error", err)
			continue
		}
		log.Info("an old store that was kept for 14 days is deleted", "path", path)
	}
}
