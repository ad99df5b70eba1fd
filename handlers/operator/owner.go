package operator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/mailstead/mailstead/packaging"
	"github.com/mailstead/mailstead/store"
)

// An owner is the user and the group of a file.
type owner struct{ uid, gid int }

// ownerOf returns the owner of a file. ok is false if it does not exist, or if the system does not
// tell.
func ownerOf(path string) (o owner, ok bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, false, nil
	}
	if err != nil {
		return o, false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return o, false, nil
	}
	return owner{int(stat.Uid), int(stat.Gid)}, true, nil
}

// GiveToOwner gives the files in a data directory that belong to root to the owner of the
// directory, so that the owner's server can read what a command of root has written. It does
// nothing unless this process is root and the directory belongs to another user.
func GiveToOwner(dir string) error {
	o, ok, err := ownerOf(dir)
	if err != nil || !ok || o.uid == 0 || os.Geteuid() != 0 {
		return err
	}
	return GiveFiles(dir, o.uid, o.gid)
}

// GiveFiles gives a directory, and all in it that belongs to root, to a user. It never leaves the
// directory, even if its owner puts symbolic links into it meanwhile. In a directory of another
// user it does not touch a file with several names, since one of them may be elsewhere.
func GiveFiles(dir string, uid, gid int) error {
	before, _, err := ownerOf(dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that the server has removed meanwhile
		}
		if err != nil {
			return err
		}
		info, err := root.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid != 0 || before.uid != 0 && !info.IsDir() && stat.Nlink > 1 {
			return nil
		}
		if err := root.Lchown(path, uid, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("give the files in %s to their user: %w", dir, err)
	}
	return nil
}

// BecomeOwner changes the user of this process from root to the owner of the store in dir, so that
// new files belong to the user of the server. It does nothing for other users.
func BecomeOwner(dir string) error {
	o, ok, err := ownerOf(filepath.Join(dir, store.DatabaseFile))
	if err == nil && !ok {
		o, ok, err = ownerOf(dir)
	}
	if err != nil || !ok || o.uid == 0 || os.Geteuid() != 0 {
		return err
	}
	if err := GiveToOwner(dir); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(o.gid), syscall.Setuid(o.uid)); err != nil {
		return fmt.Errorf("switch to the user who owns the store in %s: %w", dir, err)
	}
	return nil
}

// BecomeServiceUser does what BecomeOwner does if the data directory belongs to the user of the
// package. A server that root has started calls it once its sockets are open: so it can use the low
// ports, and leaves no file that the service cannot read.
func BecomeServiceUser(dir string) error {
	service, err := user.Lookup(packaging.User)
	if err != nil || os.Geteuid() != 0 {
		return nil // there is no such user
	}
	o, ok, err := ownerOf(dir)
	if err != nil || !ok || strconv.Itoa(o.uid) != service.Uid {
		return err
	}
	return BecomeOwner(dir)
}
