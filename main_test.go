package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/cli"
	"github.com/mailstead/mailstead/store"
)

// A container has no time zones of its own, and invitations are in zones.
func TestTimeZonesAreInTheProgram(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Error("the program does not contain time/tzdata")
	}
}

// TestServeBesideAServer: a second server on a data directory says who most likely has it.
func TestServeBesideAServer(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	program := cli.Program{Version: version, Serve: serve, Open: withInstallation}
	var stdout, stderr bytes.Buffer
	code := program.Main(t.Context(), []string{"mailstead", "serve", "--data", dir, "--http", "127.0.0.1:0"}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "the store is in use by another process. That is most likely its server: stop it first") {
		t.Errorf("code %d, %s", code, &stderr)
	}
}
