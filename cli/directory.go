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
	"github.com/mailstead/mailstead/packaging"
	"github.com/mailstead/mailstead/store"
)

// A dataDir is a data directory in which a command makes files. If the command fails, undo
// removes them.
type dataDir struct {
	dir    string
	made   []string        // directories that were made, the innermost first
	before map[string]bool // names of the entries that dir had
	owner  *syscall.Stat_t // the earlier owner of dir; nil: dir did not exist
	wrote  bool            // the settings were written
	text   []byte          // the settings before
}

// openDataDir makes the directory if it does not exist.
func openDataDir(dir string) (*dataDir, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	w := &dataDir{dir: dir, before: map[string]bool{}}
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return nil, config.Mistake(fmt.Errorf("%s is not a directory", dir))
	case err == nil:
		w.owner, _ = info.Sys().(*syscall.Stat_t)
		list, err := os.ReadDir(dir)
		for _, e := range list {
			w.before[e.Name()] = true
		}
		return w, err
	}
	for missing := dir; ; missing = filepath.Dir(missing) {
		_, err := os.Stat(missing)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			break
		}
		w.made = append(w.made, missing)
	}
	err = os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, errors.Join(config.Mistake(fmt.Errorf("create the data directory: %w", err)), w.undo())
	}
	return w, nil
}

const settingsFile = "mailstead.toml"

// writeSettings replaces the settings file atomically. Only its owner can read it, because it has
// passwords.
func (w *dataDir) writeSettings(text string) (err error) {
	if w.before[settingsFile] && !w.wrote {
		w.text, err = os.ReadFile(filepath.Join(w.dir, settingsFile))
		if err != nil {
			return err
		}
	}
	w.wrote = true
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

// undo restores the earlier settings and removes new files. If there was a store before, it leaves
// the files, because a server may use them.
func (w *dataDir) undo() (err error) {
	if w.wrote && w.before[settingsFile] {
		err = w.replaceSettings(string(w.text))
	}
	if w.before[store.DatabaseFile] {
		return err
	}
	list, readErr := os.ReadDir(w.dir)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	for _, e := range list {
		if !w.before[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.dir, e.Name())))
		}
	}
	w.removeMade()
	return err
}

// removeMade removes the directories that were made and are empty.
func (w *dataDir) removeMade() {
	for _, dir := range w.made {
		_ = os.Remove(dir) // a directory that is not empty stays
	}
}

// handOver gives the files that root has made to the earlier owner of the directory, or else to the
// user of the systemd unit. missing reports that this user does not exist yet.
func (w *dataDir) handOver() (missing bool, err error) {
	if os.Geteuid() != 0 {
		return false, nil
	}
	uid, gid := 0, 0
	if w.owner != nil {
		uid, gid = int(w.owner.Uid), int(w.owner.Gid)
	}
	if uid == 0 {
		u, err := user.Lookup(packaging.User)
		if err != nil {
			return true, nil
		}
		uid, _ = strconv.Atoi(u.Uid) // user IDs are numbers on systems with root
		gid, _ = strconv.Atoi(u.Gid)
	}
	return false, filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// A stagedFile is a temporary file that commit moves into its place after everything else has
// succeeded.
type stagedFile struct{ path, temp string }

// stageFile writes the file next to its final place; with an empty path it writes nothing.
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
		err = fmt.Errorf("%s is a directory", path)
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
