package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A jail is a view of the file system that some programs have and nobody else: packages of Debian's
// that are not installed lie over /usr, and files and directories of the test's in the place of the
// machine's.
type jail struct {
	t        *testing.T
	packages []string
	over     map[string]string // what lies there, by path
}

// newJail skips the test where there can be none.
func newJail(t *testing.T, packages ...string) *jail {
	t.Helper()
	j := &jail{t: t, over: map[string]string{}}
	for _, name := range packages {
		j.packages = append(j.packages, unpacked(t, name))
	}
	if out, err := j.command("true").CombinedOutput(); err != nil {
		t.Skipf("a mount namespace cannot be had: %v: %s", err, out)
	}
	return j
}

// unpacked is where .ci/peers has laid a package that would not stand beside the installed ones.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(cache, "mailstead-peers", name)
	if info, err := os.Stat(filepath.Join(dir, "usr")); err == nil && info.IsDir() {
		return dir
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing; run .ci/peers", name)
	}
	t.Skipf("%s is not unpacked", name)
	return ""
}

// file lays a file over one of the machine's that exists.
func (j *jail) file(path, text string) {
	j.t.Helper()
	own := filepath.Join(j.dir(), filepath.Base(path))
	if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
	if err := os.Chmod(own, 0o644); err != nil {
		j.t.Fatal(err)
	}
	j.over[path] = own
}

// dir is a new directory that every user may enter.
func (j *jail) dir() string {
	j.t.Helper()
	dir, err := os.MkdirTemp("", "mailstead-jail")
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		j.t.Fatal(err)
	}
	return dir
}

// users adds system users, each with a group of its name, to those of the machine.
func (j *jail) users(names ...string) {
	j.t.Helper()
	for path, form := range map[string]string{"/etc/passwd": "%s:x:%d:%[2]d::/nonexistent:/usr/sbin/nologin\n", "/etc/group": "%s:x:%d:\n"} {
		text, err := os.ReadFile(path)
		if err != nil {
			j.t.Fatal(err)
		}
		all := string(text)
		for n, name := range names {
			if !strings.Contains("\n"+all, "\n"+name+":") {
				all += fmt.Sprintf(form, name, 64700+n)
			}
		}
		j.file(path, all)
	}
}

// command is a program in the jail.
func (j *jail) command(args ...string) *exec.Cmd {
	var script strings.Builder
	if len(j.packages) > 0 {
		var layers []string
		for _, dir := range j.packages {
			layers = append(layers, filepath.Join(dir, "usr"))
		}
		fmt.Fprintf(&script, "mount -t overlay overlay -o 'lowerdir=%s:/usr' /usr\n", strings.Join(layers, ":"))
	}
	var paths []string
	for path := range j.over {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprintf(&script, "mount --bind '%s' '%s'\n", j.over[path], path)
	}
	script.WriteString(`exec "$@"`)
	return exec.Command("unshare", append([]string{"--mount", "sh", "-ec", script.String(), "jail"}, args...)...)
}

// run runs a program to its end, and gives what it writes.
func (j *jail) run(args ...string) string {
	j.t.Helper()
	out, err := j.command(args...).Output()
	if err != nil {
		j.t.Fatalf("%s: %v", args[0], err)
	}
	return string(out)
}

// start runs a program that stays in the foreground, and its children, until the test ends.
func (j *jail) start(args ...string) {
	j.t.Helper()
	cmd := j.command(args...)
	log, err := os.Create(filepath.Join(j.dir(), "log"))
	if err != nil {
		j.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		done := time.AfterFunc(3*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait() // it was ended
		done.Stop()
		if text, err := os.ReadFile(log.Name()); err == nil && j.t.Failed() {
			j.t.Logf("%s says:\n%s", args[0], text[max(0, len(text)-6000):])
		}
		log.Close()
	})
}
