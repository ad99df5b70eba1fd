package rig

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Main runs the tests of a package, as its TestMain. Tests wait for programs more than they work,
// so twice as many run at once as there are processors; more would be too many, since go test runs
// two of these packages beside each other.
func Main(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
	if os.Getenv("MAILSTEAD_STRICT") == "" {
		_ = os.Setenv("MAILSTEAD_STRICT", "1") // the programs that tests start hold transactions to their bounds
	}
	_ = os.Unsetenv("GOGC") // make test sets it; programs have the usual one, since tests look at their memory
	code := m.Run()
	if now := time.Now(); built.Load() {
		_ = os.Chtimes(FromRoot(programs), now, now)
	}
	if dir, err := BuildDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// BuildDir returns a directory for what the tests of a package build for themselves. Main removes
// it.
var BuildDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "mailstead-test") })

// FromRoot returns the path of a file or folder that is named from the top of the repository.
func FromRoot(name string) string { return filepath.Join(root(), name) }

// root returns the top of the module. Tests run in the folder of their package, below it.
var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for !IsFile(filepath.Join(dir, "go.mod")) {
		if dir == filepath.Dir(dir) {
			panic("no go.mod is above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return dir
})

// Binary builds the program, and returns its path.
var Binary = sync.OnceValues(func() (string, error) { return build("mailstead") })

// programs is a folder that stays, as the packages of a test run need the same ones: the first
// links one, and for the others go build finds that nothing changed.
const programs = "e2e/.programs"

// built is whether the tests start a program. Then their result is of this run alone, but go test,
// which does not know of programs, would take it for that of a later one. It does not where a test
// has looked at something that changed within the last two seconds: Main sets the time of the
// folder.
var built atomic.Bool

// build makes a program. Without tables for a debugger it is linked in half of the time.
func build(name string, args ...string) (string, error) {
	dir := FromRoot(programs)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		return "", err
	}
	built.Store(true)
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if Race {
		name += "-race"
	}
	path := filepath.Join(dir, name)
	detector := []string{"-race"}
	if !Race {
		detector = nil
	}
	args = slices.Concat([]string{"build", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", path}, detector, args, []string{FromRoot(".")})
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// BinaryWithKillPoints is Binary for the program with kill points (docs/faults.md).
var BinaryWithKillPoints = sync.OnceValues(func() (string, error) {
	return build("mailstead-killpoints", "-tags", "killpoints")
})
