package cli

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/handlers/operator"
)

func lookupUser(name string) (*user.User, bool) {
	u, err := user.Lookup(name)
	return u, err == nil
}

// filesOfRoot lists what belongs to root at and below a directory.
func filesOfRoot(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil && info.Sys().(*syscall.Stat_t).Uid == 0 {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRootLeavesNoFileBehind: a command of root on the directory of another user works, and all
// that it makes belongs to that user, also what a killed command has left.
func TestRootLeavesNoFileBehind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is about root")
	}
	const uid, gid = 54321, 54322
	dir := filepath.Join(t.TempDir(), "data")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, gid)); err != nil {
		t.Fatal(err)
	}
	backups := t.TempDir()
	if err := os.Chown(backups, uid, gid); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"init --owner-email ops@example.com", "token create --user ops@example.com", "call get_account", "account list", "domain add boxes.test --external",
		"domain list", "rotate-key", "backup " + backups, "check", "job parked", "user reset-password --user ops@example.com", "queue list",
	} {
		if err := os.WriteFile(filepath.Join(dir, "left"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := mailsteadCommand(t, append(strings.Fields(line), "--data", dir)...); err != nil {
			t.Errorf("%s: %v %s", line, err, out)
		}
		if left := append(filesOfRoot(t, dir), filesOfRoot(t, backups)...); len(left) > 0 {
			t.Errorf("%s left files of root: %q", line, left)
		}
	}
	restored := filepath.Join(t.TempDir(), "restored")
	if err := errors.Join(os.Mkdir(restored, 0o700), os.Chown(restored, uid, gid)); err != nil {
		t.Fatal(err)
	}
	if out, err := mailsteadCommand(t, "restore", backups, "--data", restored); err != nil || len(filesOfRoot(t, restored)) > 0 {
		t.Errorf("restore: %v %s, %q", err, out, filesOfRoot(t, restored))
	}
	again := filepath.Join(t.TempDir(), "again")
	if err := errors.Join(os.Mkdir(again, 0o700), os.Chown(again, uid, gid)); err != nil {
		t.Fatal(err)
	}
	if out, err := mailsteadCommand(t, setupArgs(again, "--email", "ops@example.com")...); err != nil || len(filesOfRoot(t, again)) > 0 {
		t.Errorf("setup: %v %s, %q", err, out, filesOfRoot(t, again))
	}
}

// TestGiveFilesStaysInside: the owner of a directory cannot have root give away files elsewhere.
func TestGiveFilesStaysInside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is about root")
	}
	const uid, gid = 54321, 54322
	outside := t.TempDir()
	secret, linked := filepath.Join(outside, "secret"), filepath.Join(outside, "linked")
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(secret, nil, 0o600), os.WriteFile(linked, nil, 0o600), os.WriteFile(filepath.Join(dir, "own"), nil, 0o600),
		os.Symlink(outside, filepath.Join(dir, "away")), os.Link(linked, filepath.Join(dir, "second")), os.Chown(dir, uid, gid))
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.GiveToOwner(dir); err != nil {
		t.Fatal(err)
	}
	if got := filesOfRoot(t, outside); len(got) != 3 {
		t.Errorf("outside, root has only %q", got)
	}
	if got := filesOfRoot(t, dir); len(got) != 1 || got[0] != filepath.Join(dir, "second") {
		t.Errorf("inside, root still has %q", got)
	}
	for _, path := range []string{filepath.Join(dir, "none"), outside} { // nothing there, and one of root's own
		if err := operator.GiveToOwner(path); err != nil || path == outside && len(filesOfRoot(t, outside)) != 3 {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestMakeUser: setup makes the user of a service that it installs, and says so.
func TestMakeUser(t *testing.T) {
	if _, known := lookupUser("mailstead"); known || os.Geteuid() != 0 {
		t.Skip("the user is there already, or cannot be made")
	}
	if _, err := exec.LookPath("useradd"); err != nil {
		t.Skip("useradd is not installed")
	}
	d := &setupResult{Data: "/srv/my mail"}
	fake := t.TempDir()
	script := "#!/bin/sh\nprintf '%s|' \"$@\" > " + fake + "/asked\nexit ${FAKE_EXIT:-0}\n"
	if err := os.WriteFile(filepath.Join(fake, "useradd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", fake+":"+os.Getenv("PATH"))
	note := d.makeUser("/etc/systemd/system/mailstead.service")
	asked, err := os.ReadFile(filepath.Join(fake, "asked"))
	if want := "--system|--user-group|--no-create-home|--home-dir|/srv/my mail|--shell|/usr/sbin/nologin|mailstead|"; err != nil || string(asked) != want || !strings.HasPrefix(note, "setup has made the user mailstead") {
		t.Errorf("%v, %q, %s", err, asked, note)
	}
	t.Setenv("FAKE_EXIT", "9")
	if note := d.makeUser("/etc/systemd/system/mailstead.service"); !strings.HasPrefix(note, "The user mailstead could not be made: exit status 9.") {
		t.Errorf("%s", note)
	}
	if note := d.makeUser("here.service"); !strings.HasPrefix(note, "setup makes no user mailstead") {
		t.Errorf("%s", note)
	}
}
