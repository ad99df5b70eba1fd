package cli

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/packaging"
	"github.com/mailstead/mailstead/store"
)

// A dataDir is a data directory in which a command creates files. If the command fails, undo
// removes the new files.
type dataDir struct {
	dir             string
	createdDirs     []string        // directories that openDataDir created, the innermost first
	filesBefore     map[string]bool // names of the files that dir had when it was opened
	ownerBefore     *syscall.Stat_t // owner of dir when it was opened; nil if dir did not exist
	settingsWritten bool            // whether writeSettings was called
	settingsBefore  []byte          // content of the settings file before writeSettings
}

// openDataDir creates the directory if it does not exist, and records its owner and its files.
func openDataDir(dir string) (*dataDir, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	w := &dataDir{dir: dir, filesBefore: map[string]bool{}}
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return nil, config.Mistake(fmt.Errorf("%s is not a directory", dir))
	case err == nil:
		w.ownerBefore, _ = info.Sys().(*syscall.Stat_t)
		list, err := os.ReadDir(dir)
		for _, e := range list {
			w.filesBefore[e.Name()] = true
		}
		return w, err
	}
	for missing := dir; ; missing = filepath.Dir(missing) {
		_, err := os.Stat(missing)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			break
		}
		w.createdDirs = append(w.createdDirs, missing)
	}
	err = os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, errors.Join(config.Mistake(fmt.Errorf("create the data directory: %w", err)), w.undo())
	}
	return w, nil
}

const settingsFile = "mailstead.toml"

// writeSettings replaces the settings file atomically. Only the owner of the file can read it,
// because it contains passwords.
func (w *dataDir) writeSettings(text string) (err error) {
	if w.filesBefore[settingsFile] && !w.settingsWritten {
		w.settingsBefore, err = os.ReadFile(filepath.Join(w.dir, settingsFile))
		if err != nil {
			return err
		}
	}
	w.settingsWritten = true
	return w.replaceSettings(text)
}

func (w *dataDir) replaceSettings(text string) error {
	file := filepath.Join(w.dir, settingsFile)
	d, err := stageFile(file, text, 0o600)
	if err == nil {
		defer d.discard()
		err = d.commit()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// undo restores the earlier settings file and removes new files. If the directory already had a
// store, undo leaves the new files, because a server may use them.
func (w *dataDir) undo() (err error) {
	if w.settingsWritten && w.filesBefore[settingsFile] {
		err = w.replaceSettings(string(w.settingsBefore))
	}
	if w.filesBefore[store.DatabaseFile] {
		return err
	}
	list, readErr := os.ReadDir(w.dir)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	for _, e := range list {
		if !w.filesBefore[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.dir, e.Name())))
		}
	}
	w.removeCreatedDirs()
	return err
}

// removeCreatedDirs removes those directories that openDataDir created and that are empty.
func (w *dataDir) removeCreatedDirs() {
	for _, dir := range w.createdDirs {
		_ = os.Remove(dir) // fails if the directory is not empty
	}
}

// giveToServer gives the files of root to the user of the server: the owner that the directory had
// before, or else the user of the systemd unit. It does nothing unless the process runs as root.
// userMissing reports whether the user of the unit does not exist.
func (w *dataDir) giveToServer() (userMissing bool, err error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	uid, gid := 0, 0
	if w.ownerBefore != nil {
		uid, gid = int(w.ownerBefore.Uid), int(w.ownerBefore.Gid)
	}
	if uid == 0 {
		u, err := user.Lookup(packaging.User)
		if err != nil {
			return true, nil
		}
		uid, _ = strconv.Atoi(u.Uid) // user IDs are numbers on every system that has root
		gid, _ = strconv.Atoi(u.Gid)
	}
	return false, operator.GiveFiles(w.dir, uid, gid)
}

// A stagedFile is a complete temporary file. commit renames it to its final path, and discard
// removes it.
type stagedFile struct{ path, temp string }

// stageFile writes text to a temporary file in the directory of path. If path is "", it writes
// nothing, and commit does nothing.
func stageFile(path, text string, mode os.FileMode) (*stagedFile, error) {
	if path == "" {
		return new(stagedFile), nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	d := &stagedFile{path, f.Name()}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if info, statErr := os.Stat(path); err == nil && statErr == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory, not a file", path)
	}
	if err != nil {
		d.discard()
		return nil, err
	}
	return d, nil
}

func (d *stagedFile) commit() error {
	if d.temp == "" {
		return nil
	}
	err := os.Rename(d.temp, d.path)
	if err == nil {
		d.temp = ""
	}
	return err
}

func (d *stagedFile) discard() {
	if d.temp != "" {
		_ = os.Remove(d.temp) // a leftover file does no harm
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
