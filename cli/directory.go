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

// A workplace is a data directory in which a command makes files. A command that is refused takes
// away what it has made.
type workplace struct {
	dir    string
	made   []string        // directories that were made, the innermost first
	before map[string]bool // what dir held
	owner  *syscall.Stat_t // of dir before; nil: it was not there
	wrote  bool            // the settings
	text   []byte          // of the settings before
}

// openWorkplace makes the directory, unless it is there.
func openWorkplace(dir string) (*workplace, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	w := &workplace{dir: dir, before: map[string]bool{}}
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
		return nil, errors.Join(config.Mistake(fmt.Errorf("make the data directory: %w", err)), w.undo())
	}
	return w, nil
}

const settingsFile = "mailstead.toml"

// writeSettings replaces the settings at once. They hold passwords, so that their owner alone reads
// them.
func (w *workplace) writeSettings(text string) (err error) {
	if w.before[settingsFile] && !w.wrote {
		w.text, err = os.ReadFile(filepath.Join(w.dir, settingsFile))
		if err != nil {
			return err
		}
	}
	w.wrote = true
	return w.replaceSettings(text)
}

func (w *workplace) replaceSettings(text string) error {
	file := filepath.Join(w.dir, settingsFile)
	d, err := newDraft(file, text, 0o600)
	if err == nil {
		defer d.discard()
		err = d.commit()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// undo puts the settings of before back and removes what was made since, unless there was a store,
// which a server may be at work on.
func (w *workplace) undo() (err error) {
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
	w.undoMade()
	return err
}

// undoMade removes the directories that were made, if they are empty.
func (w *workplace) undoMade() {
	for _, dir := range w.made {
		_ = os.Remove(dir) // it stays where something is in it
	}
}

// handOver gives what root has made to whoever the directory belongs to, or else to the user that
// the systemd unit names. missing tells that there is no such user yet.
func (w *workplace) handOver() (missing bool, err error) {
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
		uid, _ = strconv.Atoi(u.Uid) // numbers, on systems that have root
		gid, _ = strconv.Atoi(u.Gid)
	}
	return false, filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// A draft is a file that takes its place when all else has succeeded.
type draft struct{ path, temp string }

// newDraft writes the file beside its place; nothing for the path "".
func newDraft(path, text string, mode os.FileMode) (*draft, error) {
	if path == "" {
		return new(draft), nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	d := &draft{path, f.Name()}
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

func (d *draft) commit() error {
	if d.temp == "" {
		return nil
	}
	err := os.Rename(d.temp, d.path)
	if err == nil {
		d.temp = ""
	}
	return err
}

func (d *draft) discard() {
	if d.temp != "" {
		_ = os.Remove(d.temp) // it is of no use to anybody
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
