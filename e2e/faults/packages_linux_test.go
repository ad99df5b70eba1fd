package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/soak"
)

// A system is a view of the file system in which packages are installed: what is written there is
// in memory, and gone with the test.
type system struct {
	t    *testing.T
	root string
	pid  int // of the process that holds the mount namespace
}

// newSystem lays a file system over that of this machine, or over a bare one that debootstrap makes
// (make soak-packages). The folder is in /mnt there.
func newSystem(t *testing.T, folder string) *system {
	t.Helper()
	below := "/"
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		below = bareSystem(t)
	}
	const script = `mount -t tmpfs tmpfs "$1"; mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind "$3" "$1/root/mnt"; mount --rbind /proc "$1/root/proc"; mount --rbind /dev "$1/root/dev"; mount -t tmpfs tmpfs "$1/root/run"
echo ready; read end || true`
	dir := t.TempDir()
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", script, "sh", dir, below, folder)
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Skipf("a mount namespace cannot be had: %v", err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // with it the namespace ends
	})
	ready := make([]byte, 6)
	if n, err := stdout.Read(ready); err != nil || string(ready[:n]) != "ready\n" {
		t.Skipf("a mount namespace cannot be had: %v", said.String())
	}
	return &system{t: t, root: filepath.Join(dir, "root"), pid: cmd.Process.Pid}
}

// bareSystem has Debian's smallest system of this machine's release, adduser and systemd.
var bareSystem = func() func(*testing.T) string {
	var made sync.Once
	var dir string
	var err error
	return func(t *testing.T) string {
		t.Helper()
		debootstrap := rig.Peer(t, "debootstrap")
		made.Do(func() {
			var base string
			base, err = rig.BuildDir()
			if err == nil {
				dir = filepath.Join(base, "bare")
				const script = `. /etc/os-release; exec "$1" --variant=minbase --include=adduser,systemd "$VERSION_CODENAME" "$2"`
				var out []byte
				out, err = exec.Command("sh", "-c", script, "sh", debootstrap, dir).CombinedOutput()
				if err != nil {
					err = fmt.Errorf("debootstrap: %w\n%s", err, out)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
}()

// outside is a program that sees the system below its root, and is not in it.
func (s *system) outside(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", s.pid)}, args...)...)
}

// command is a program in the system.
func (s *system) command(args ...string) *exec.Cmd {
	cmd := s.outside(append([]string{"chroot", s.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	return cmd
}

// run runs a program in the system to its good end, and gives what it writes.
func (s *system) run(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// is wants the owner, the group and the mode of a file.
func (s *system) is(path, want string) {
	s.t.Helper()
	if got := strings.TrimSpace(s.run("stat", "-c", "%U %G %a", path)); got != want {
		s.t.Errorf("%s is of %s, want %s", path, got, want)
	}
}

// asMailstead runs a program as the user that the package makes.
var asMailstead = []string{"setpriv", "--reuid=mailstead", "--regid=mailstead", "--clear-groups"}

// TestPackages makes packages of the program and lives with them: a .deb is installed, upgraded
// while mail comes in, and removed; an .rpm is installed and removed.
func TestPackages(t *testing.T) {
	if !soak.Full() {
		t.Skip("make soak NAME=packages")
	}
	t.Parallel()
	rpm := rig.Peer(t, "rpm")
	dir := t.TempDir()
	deb := func(version string) string {
		return fmt.Sprintf("mailstead_%s_%s.deb", version, runtime.GOARCH)
	}
	program, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	sums := pack(t, rig.FromRoot("."), program, filepath.Join(dir, "old"), "0.9.0-rc1")
	names := regexp.MustCompile(`\S+\n`).FindAllString(sums, -1)
	archs := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	want := []string{"CHANGELOG.md\n", "mailstead-0.9.0-rc1-1." + archs[runtime.GOARCH] + ".rpm\n", "mailstead_0.9.0-rc1.cdx.json\n", deb("0.9.0-rc1") + "\n", "mailstead_0.9.0-rc1_linux_" + runtime.GOARCH + ".tar.gz\n"}
	if !slices.Equal(names, want) {
		t.Errorf("published are %q, want %q", names, want)
	}
	wantBOM(t, filepath.Join(dir, "old", "mailstead_0.9.0-rc1.cdx.json"))
	first := "/mnt/old/" + deb("0.9.0-rc1")
	pack(t, rig.FromRoot("."), program, filepath.Join(dir, "new"), "0.9.0")
	second := "/mnt/new/" + deb("0.9.0")

	t.Run("deb", func(t *testing.T) { debLives(newSystem(t, dir), first, second) })
	t.Run("rpm", func(t *testing.T) {
		s := newSystem(t, dir)
		found, err := filepath.Glob(filepath.Join(dir, "old", "*.rpm"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		install := func(args ...string) string {
			t.Helper()
			out, err := s.outside(append([]string{rpm, "--root", s.root, "--force-debian"}, args...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("rpm %s: %v\n%s", args, err, out)
			}
			return string(out)
		}
		install("--install", found[0])
		s.is("/var/lib/mailstead", "mailstead mailstead 700")
		s.is("/usr/bin/mailstead", "root root 755")
		s.is("/usr/lib/systemd/system/mailstead.service", "root root 644")
		s.run(append(asMailstead, "mailstead", "init", "--data", "/var/lib/mailstead", "--owner-email", "owner@example.org")...)
		for need := range strings.Lines(install("--query", "--requires", "mailstead")) {
			if !strings.HasPrefix(need, "rpmlib(") && !strings.HasPrefix(need, "/bin/sh") {
				t.Errorf("it needs %s", need)
			}
		}
		if out := install("--erase", "mailstead"); !strings.Contains(out, "stay in /var/lib/mailstead") {
			t.Errorf("removal says %s", out)
		}
		s.run("sh", "-c", "! [ -e /usr/bin/mailstead ] && ! [ -e /usr/share/doc/mailstead ]")
		s.is("/var/lib/mailstead/mailstead.db", "mailstead mailstead 600")
	})
}

// TestPackagesAreEqual: packages are equal wherever they are made.
func TestPackagesAreEqual(t *testing.T) {
	t.Parallel()
	small, elsewhere := releaseTool(t), filepath.Join(t.TempDir(), "a longer name")
	for _, part := range []string{"packaging", "changelog", "CHANGELOG.md", "README.md", "LICENSE", "docs", "internal/npmlock", "web/package-lock.json", "go.mod", "go.sum"} {
		copyTree(t, rig.FromRoot(part), filepath.Join(elsewhere, part))
	}
	here := pack(t, rig.FromRoot("."), small, filepath.Join(t.TempDir(), "out"), "1.2.3")
	there := pack(t, elsewhere, small, filepath.Join(t.TempDir(), "out"), "1.2.3", "TZ=Asia/Kathmandu", "GOMAXPROCS=1", "LC_ALL=C", "HOSTNAME=other")
	if here != there {
		t.Errorf("elsewhere the packages are\n%snot\n%s", there, here)
	}
}

// releaseTool is packaging/release, built once.
func releaseTool(t *testing.T) string {
	t.Helper()
	path, err := builtReleaseTool()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var builtReleaseTool = sync.OnceValues(func() (string, error) {
	dir, err := rig.BuildDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "release")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "./packaging/release")
	build.Dir = rig.FromRoot(".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

// pack makes packages of a program for this machine, with the files of a tree, and gives their
// checksums. In a tree elsewhere everything new is hidden from others.
func pack(t *testing.T, tree, program, to, version string, env ...string) (sums string) {
	t.Helper()
	umask := "022"
	if tree != rig.FromRoot(".") {
		umask = "077"
	}
	cmd := exec.Command("sh", "-c", `umask "$1"; shift; exec "$@"`, "sh", umask, releaseTool(t), "-version", version, "-to", to, "-targets", "linux/"+runtime.GOARCH, "-program", program)
	cmd.Dir, cmd.Env = tree, append(append(os.Environ(), "SOURCE_DATE_EPOCH=1760000000"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = to
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("sha256sum: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(to, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// copyTree copies a file or a folder, with the time and the modes of now.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else if err == nil {
		var text []byte
		text, err = os.ReadFile(from)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantBOM compares the list of what is built in with what the program says of itself.
func wantBOM(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b struct {
		BOMFormat   string
		SpecVersion string
		Components  []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &b); err != nil || b.BOMFormat != "CycloneDX" || b.SpecVersion != "1.5" {
		t.Fatalf("%v, %s", err, text)
	}
	var have []string
	packages := 0
	for _, c := range b.Components {
		switch {
		case strings.HasPrefix(c.PURL, "pkg:npm/"):
			packages++
		case c.Name == "std":
			if "go"+c.Version != runtime.Version() {
				t.Errorf("built with Go %s, want %s", c.Version, runtime.Version())
			}
		default:
			have = append(have, c.Name+" "+c.Version)
		}
	}
	program, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[0] == "dep" {
			want = append(want, f[1]+" "+f[2])
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) || len(want) < 20 || packages == 0 {
		t.Errorf("built in are\n%s\nand %d packages; listed are\n%s", want, packages, have)
	}
}

// debLives installs a .deb, runs its program, upgrades it while mail comes in, and removes it.
func debLives(s *system, first, second string) {
	t := s.t
	t.Helper()
	const data = "/var/lib/mailstead"
	s.run("dpkg", "--install", first)
	s.is(data, "mailstead mailstead 700")
	s.is("/usr/bin/mailstead", "root root 755")
	contents := s.run("dpkg", "--contents", first)
	for _, path := range []string{
		"man/man1/mailstead.1.gz", "man/man1/mailstead-serve.1.gz", "bash-completion/completions/mailstead", "zsh/vendor-completions/_mailstead",
		"fish/vendor_completions.d/mailstead.fish",
	} {
		if !regexp.MustCompile(`(?m)^-rw-r--r-- root/root .* \./usr/share/` + regexp.QuoteMeta(path) + "$").MatchString(contents) {
			t.Errorf("the package lacks /usr/share/%s: %s", path, contents)
		}
	}
	if os.Getenv("MAILSTEAD_SOAK") != "" || rig.IsFile("/usr/bin/systemd-analyze") {
		for _, unit := range []string{"mailstead.service", "mailstead.socket"} {
			if out := s.run("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit); strings.Contains(out, "mailstead") {
				t.Errorf("systemd-analyze verify %s: %s", unit, out)
			}
		}
		s.run("systemd-analyze", "security", "--offline=true", "--threshold=20", "/usr/lib/systemd/system/mailstead.service") // 2.0 of 10
	}
	out := s.run(append(asMailstead, "mailstead", "init", "--data", data, "--owner-email", "owner@example.org", "--json")...)
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Token == "" {
		t.Fatalf("init: %v, %s", err, out)
	}
	s.run("mailstead", "token", "create", "--data", data, "--user", "owner@example.org") // by root
	s.run("sh", "-c", "! find "+data+" -not -user mailstead | grep .")

	i, h := rig.Prepare(t, data, made.Token), holdPorts(t)
	start := func() {
		cmd := s.command(slices.Concat(passing, asMailstead, []string{"mailstead", "serve", "--data", data})...)
		h.serve(i, cmd)
	}
	start()
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	flow := startFlow(h.SMTP)
	t.Cleanup(func() { flow.stop() })

	out = s.run("dpkg", "--install", second)
	if !strings.Contains(out, "the copy was migrated and checked in") || !strings.Contains(out, "restart the server") {
		t.Errorf("the upgrade says %s", out)
	}
	s.is(data+"/rehearsed.json", "mailstead mailstead 600")
	s.is(data+"/rehearsal/mailstead.db", "mailstead mailstead 600")
	i.Stop()
	start()
	i.Until("mail comes in again", func() bool { return flow.since() > 5 })
	accepted, refused := flow.stop()
	if refused != nil {
		t.Errorf("nobody listened: %v", refused)
	}
	inbox := strings.Fields(subjects(i, box))
	for _, subject := range accepted {
		if !slices.Contains(inbox, subject) {
			t.Errorf("%s was accepted, and is not in the inbox of %d", subject, len(inbox))
		}
	}
	t.Logf("%d messages came in", len(accepted))
	i.Stop()
	s.run(append(asMailstead, "mailstead", "check", "--data", data)...)

	for _, how := range []string{"--remove", "--purge"} {
		if out := s.run("dpkg", how, "mailstead"); !strings.Contains(out, "stay in "+data) {
			t.Errorf("dpkg %s says %s", how, out)
		}
		s.run("sh", "-c", "! [ -e /usr/bin/mailstead ] && ! [ -e /usr/share/doc/mailstead ]")
		s.is(data+"/mailstead.db", "mailstead mailstead 600")
	}
}

// A mailFlow sends one small message after the other.
type mailFlow struct {
	sync.Mutex
	accepted []string
	asked    int   // how many were accepted when since was called first
	refused  error // the first time that nobody listened
	end      chan struct{}
	ended    sync.WaitGroup
	once     sync.Once
}

func startFlow(addr string) *mailFlow {
	f := &mailFlow{end: make(chan struct{}), asked: -1}
	f.ended.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-f.end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			subject := fmt.Sprint("flow", n)
			err := rig.Transmit(addr, "ann@example.test", rig.Letter(subject))
			f.Lock()
			if dial := new(net.OpError); err == nil {
				f.accepted = append(f.accepted, subject)
			} else if errors.As(err, &dial) && dial.Op == "dial" && f.refused == nil {
				f.refused = err
			} // else a server that stops has put it off, and it would be sent again
			f.Unlock()
		}
	})
	return f
}

// since gives how many messages were accepted since its first call.
func (f *mailFlow) since() int {
	f.Lock()
	defer f.Unlock()
	if f.asked < 0 {
		f.asked = len(f.accepted)
	}
	return len(f.accepted) - f.asked
}

// stop gives the subjects of what was accepted.
func (f *mailFlow) stop() (accepted []string, refused error) {
	f.once.Do(func() { close(f.end) })
	f.ended.Wait()
	return f.accepted, f.refused
}

// TestTwoReleases (make soak-packages): two releases of one commit, made from nothing in different
// places, by different users' habits, are equal byte by byte; and the program is below 50 MiB.
func TestTwoReleases(t *testing.T) {
	if os.Getenv("MAILSTEAD_SOAK") == "" {
		t.Skip("builds everything twice; make soak-packages does it")
	}
	var first string
	for _, c := range []struct{ dir, umask, touch, env string }{
		{"a", "022", "2001-01-01", "TZ=UTC"}, {"b/with a long name", "077", "2030-06-01", "TZ=Asia/Kathmandu"},
	} {
		dir := filepath.Join(t.TempDir(), c.dir)
		const script = `umask "$1"; git clone --quiet "$2" "$3"; cd "$3"
find . -path ./.git -prune -o -exec touch -d "$4" {} +
make release VERSION=1.2.3 >&2 && cat dist/checksums.txt && (cd dist && sha256sum --check --strict checksums.txt >&2) && git status --porcelain`
		cmd := exec.Command("sh", "-ec", script, "sh", c.umask, rig.FromRoot("."), dir, c.touch)
		cmd.Env = append(os.Environ(), c.env, "GOCACHE="+t.TempDir())
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, said.String())
		}
		sums := string(out)
		if first == "" {
			first = sums
		}
		program, err := exec.Command("tar", "xzOf", filepath.Join(dir, "dist", "mailstead_1.2.3_linux_amd64.tar.gz"), "mailstead").Output()
		if err != nil || len(program) == 0 || len(program) >= 50<<20 {
			t.Errorf("the program for linux/amd64 has %d bytes: %v", len(program), err)
		}
		if sums != first || strings.Count(sums, "\n") != 11 {
			t.Errorf("in %s the release is\n%snot\n%s", dir, sums, first)
		}
	}
	t.Log(first)
}

// TestContainerImage (make soak-packages) builds the image with buildah, in the place of whose
// builder there is a bare system with this machine's Go.
func TestContainerImage(t *testing.T) {
	if os.Getenv("MAILSTEAD_SOAK") == "" {
		t.Skip("needs a bare system; make soak-packages makes it")
	}
	buildah := rig.Peer(t, "buildah")
	certificates := "/etc/ssl/certs/ca-certificates.crt"
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	bare, store := bareSystem(t), t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(buildah, append([]string{"--root", store + "/root", "--runroot", store + "/run", "--storage-driver", "vfs"}, args...)...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("buildah %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
		}
		return strings.TrimSpace(string(out))
	}
	builder := run("from", "scratch")
	run("copy", builder, bare, "/")
	run("copy", builder, strings.TrimSpace(string(goroot)), "/usr/local/go")
	run("copy", builder, certificates, certificates)
	run("config", "--env", "PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin", builder)
	run("commit", "--rm", builder, "mailstead-builder")
	run("build", "--isolation", "chroot", "--pull-never", "--build-arg", "GO_IMAGE=localhost/mailstead-builder", "--build-arg", "VERSION=1.2.3", "--tag", "mailstead", rig.FromRoot("."))

	image := run("from", "--pull-never", "localhost/mailstead")
	root := run("mount", image)
	var inspected struct {
		OCIv1 struct{ Config map[string]any }
	}
	if err := json.Unmarshal([]byte(run("inspect", image)), &inspected); err != nil {
		t.Fatal(err)
	}
	if c := inspected.OCIv1.Config; c["User"] != "65532:65532" || fmt.Sprint(c["Volumes"]) != "map[/data:map[]]" || fmt.Sprint(c["Entrypoint"], c["Cmd"]) != "[/mailstead] [serve]" {
		t.Errorf("the image is configured as %v", c)
	}
	want, err := os.ReadFile(certificates)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, certificates)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("certificate authorities: %v, %d bytes", err, len(got))
	}
	// As the image's user, in its root, the program begins a store in the volume.
	for _, args := range [][]string{{"version"}, {"init", "--owner-email", "owner@example.org"}} {
		cmd := exec.Command("chroot", append([]string{"--userspec=65532:65532", root, "/mailstead"}, args...)...)
		cmd.Env = []string{"MAILSTEAD_DATA=/data"}
		out, err := cmd.CombinedOutput()
		if err != nil || args[0] == "version" && !strings.HasPrefix(string(out), "mailstead 1.2.3 linux/") {
			t.Errorf("%s: %v, %s", args, err, out)
		}
	}
}

// TestSetupAsRoot: for a service that it installs, setup makes the user and gives the directory to
// that user; what it prints runs as it stands; and a server that root starts by hand goes on as
// that user, and leaves no file of root.
func TestSetupAsRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	copyTree(t, program, filepath.Join(dir, "mailstead"))
	if err := os.Chmod(filepath.Join(dir, "mailstead"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newSystem(t, dir)
	if err := s.command("id", "mailstead").Run(); err == nil {
		t.Skip("this machine has the user already")
	}
	const data = "/srv/my mail"
	unit := "/etc/systemd/system/mailstead.service"
	s.run("mkdir", "-p", filepath.Dir(unit))
	setup := func(more ...string) string {
		t.Helper()
		return s.run(append([]string{
			"/mnt/mailstead", "setup", "--yes", "--data", data, "--hostname", "mail.example.com", "--email", "ops@example.com", "--public-ip", "192.0.2.1", "--tls", "proxy",
			"--resolver", "127.0.0.1:1", "--smtp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--submission", "off", "--submissions", "off", "--imap", "off", "--imaps", "off", "--dns", "off",
		}, more...)...)
	}
	out := setup("--unit", "/srv/mailstead.service")
	if !strings.Contains(out, "setup makes no user mailstead") || !strings.Contains(out, "\n  useradd --system ") {
		t.Errorf("with a unit that systemd does not read, setup says %s", out)
	}
	s.is(data, "root root 700")
	out = setup("--unit", unit)
	if !strings.Contains(out, "setup has made the user mailstead, who owns "+data) || strings.Contains(out, "useradd") {
		t.Errorf("setup says %s", out)
	}
	s.is(data, "mailstead mailstead 700")
	s.is(unit, "root root 644")
	onlyTheirs := func(after string) {
		t.Helper()
		if out, err := s.command("find", data, "-not", "-user", "mailstead").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("after %s there is %s, %v", after, out, err)
		}
	}
	onlyTheirs("setup")
	s.run("/mnt/mailstead", "mailbox", "list", "--data", data)
	onlyTheirs("mailbox list")

	server := s.command("/mnt/mailstead", "serve", "--data", data, "--ready-file", data+"/ready")
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() { _ = server.Process.Kill() }()
	for deadline := time.Now().Add(30 * time.Second); s.command("test", "-e", data+"/ready").Run() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server is not ready: %s", said.String())
		}
	}
	status := s.run("/mnt/mailstead", "status", "--json", "--data", data)
	var state struct{ PID int }
	if err := json.Unmarshal([]byte(status), &state); err != nil || state.PID == 0 {
		t.Fatalf("status: %v, %s", err, status)
	}
	s.run("/mnt/mailstead", "domain", "add", "example.net", "--manual", "--data", data)
	uid := strings.TrimSpace(s.run("id", "-u", "mailstead"))
	if out := s.run("grep", "^Uid:", fmt.Sprintf("/proc/%d/status", state.PID)); strings.Join(strings.Fields(out)[1:], " ") != strings.TrimSpace(strings.Repeat(uid+" ", 4)) {
		t.Errorf("the server runs as %s", out)
	}
	onlyTheirs("the server of root")
	s.run("kill", fmt.Sprint(state.PID))
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v: %s", err, said.String())
	}
	onlyTheirs("the end of the server")
}
