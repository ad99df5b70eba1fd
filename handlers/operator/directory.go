package operator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/packaging"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
)

// SocketName is the name of the socket of a running server, in the data directory.
const SocketName = "mailstead.sock"

// RequireStore returns an error if the directory has no store, unless mayMake allows a new one to
// be made. A server that made a new store by mistake would accept mail that nobody finds.
// RequireStore never allows a new store in a directory that has messages but no database.
func RequireStore(dir string, s *config.Settings, mayMake bool) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(path, store.DatabaseFile))
	if err == nil && info.Size() > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return config.Mistake(fmt.Errorf("open the data directory: %w", err))
	}
	unfinished, _ := os.Stat(filepath.Join(path, backup.WorkDir)) // nil if it does not exist
	segments, err := filepath.Glob(filepath.Join(path, store.SegmentDir, "*"))
	switch {
	case err != nil:
		return err
	case unfinished != nil && unfinished.IsDir():
		return config.Mistake(fmt.Errorf("a restore to %s was not finished: run `mailstead restore` again", path))
	case len(segments) > 0:
		return config.Mistake(fmt.Errorf("%s has messages but no database (%s): put the database back, or restore a backup to another directory with `mailstead restore`", path, store.DatabaseFile))
	case !mayMake:
		hint := ""
		if info, err := os.Stat(packaging.DataDir); err == nil && info.IsDir() && path != packaging.DataDir {
			hint = ", which is " + packaging.DataDir + " with a package"
		}
		return config.Mistake(fmt.Errorf("there is no store in %s: run `%s` to create one, or give the right --data%s", path, FirstCommand(path, s), hint))
	}
	return nil
}

// FirstCommand returns the command that makes the store in a data directory, and the account of its
// owner.
func FirstCommand(dir string, s *config.Settings) string {
	if s.Sandbox() {
		return "mailstead init --data " + health.ShellWord(dir) + " --owner-email YOU@example.com"
	}
	return "mailstead setup --data " + health.ShellWord(dir) + " --hostname " + s.Hostname.String() + " --email YOU@example.com"
}
