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
	"testing"
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
	if dir, err := BuildDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// BuildDir returns a directory for programs that tests run. Main removes it.
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

// Binary builds the program once for all tests of a package, and returns its path. Each package
// links it for itself, which takes half as long without tables for a debugger.
var Binary = sync.OnceValues(func() (string, error) { return build("mailstead") })

func build(name string, args ...string) (string, error) {
	dir, err := BuildDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	detector := []string{"-race"}
	if !Race {
		detector = nil
	}
	args = slices.Concat([]string{"build", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", path}, detector, args, []string{FromRoot(".")})
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
