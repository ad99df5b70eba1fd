package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestManualPagesAreCurrent: the pages that the packages have are those of the program. `go run .
// manual packaging/man` writes them anew.
func TestManualPagesAreCurrent(t *testing.T) {
	const folder = "../packaging/man"
	pages := manualPages(rootCommand(testProgram().app(nil, nil)))
	if len(pages) < 25 || pages["mailstead.1"] == "" || pages["mailstead-serve.1"] == "" {
		t.Fatalf("there are %d pages", len(pages))
	}
	for name, want := range pages {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != want {
			t.Errorf("%s is not current, %v: run `go run . manual packaging/man`", name, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pages[e.Name()] == "" {
			t.Errorf("%s is of no command: delete it", e.Name())
		}
	}
}

// TestManualPagesAreRead has man format each page without a warning.
func TestManualPagesAreRead(t *testing.T) {
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("groff is not installed")
	}
	dir := filepath.Join(t.TempDir(), "new")
	said, err := mailsteadCommand(t, "manual", dir)
	if err != nil || !strings.Contains(said, dir) {
		t.Fatalf("%v, %s", err, said)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	for _, file := range files {
		out, err := exec.Command("groff", "-man", "-ww", "-z", "-K", "utf8", "-T", "utf8", file).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s", file, err, out)
		}
	}
}

// TestRoffIsEscaped: texts do not become requests of the language.
func TestRoffIsEscaped(t *testing.T) {
	for text, want := range map[string]string{
		".SH x": `\&.SH x`, "'x": `\&'x`, `a\b`: `a\eb`, "--to": `\-\-to`, "a…": `a\[u2026]`, "two\nlines": "two lines",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
