package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mailstead/mailstead/store"
)

// becomeOwner gives up root's rights for those of the owner of the store in dir, so that what is
// written there belongs to the user that the server runs as.
func becomeOwner(dir string) error {
	info, err := os.Stat(filepath.Join(dir, store.DatabaseFile))
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(owner.Gid)), syscall.Setuid(int(owner.Uid))); err != nil {
		return fmt.Errorf("become the owner of %s: %w", dir, err)
	}
	return nil
}
