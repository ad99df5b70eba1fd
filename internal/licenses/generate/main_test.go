package main

import (
	"os"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/licenses"
)

// TestNoticesAreComplete: the committed notices name exactly the present parts of the binary, with
// their versions.
func TestNoticesAreComplete(t *testing.T) {
	const root = "../../.."
	parts, err := partsOf(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) < 40 {
		t.Fatalf("only %d parts were found", len(parts))
	}
	named := map[string]bool{}
	for line := range strings.SplitSeq(licenses.Text(), "\n") {
		if name, ok := strings.CutPrefix(line, "=== "); ok {
			named[name] = true
		}
	}
	for _, p := range parts {
		if !named[p.name] {
			t.Errorf("%s is built in and has no notice: run make licenses", p.name)
		}
		delete(named, p.name)
	}
	for name := range named {
		t.Errorf("%s has a notice and is not built in: run make licenses", name)
	}
	own, err := os.ReadFile(root + "/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(licenses.Text(), strings.TrimSpace(string(own))) {
		t.Error("the notices have another licence of Mailstead than LICENSE: run make licenses")
	}
}

// TestPartWithoutNotice: a part without a notice is an error.
func TestPartWithoutNotice(t *testing.T) {
	dir := t.TempDir()
	if _, err := notices([]part{{name: "example.test/m v1.0.0", dirs: []string{dir}}}); err == nil {
		t.Error("a part without a licence file was accepted")
	}
	for _, name := range []string{"LICENSE", "LICENCE.txt", "COPYING", "license-MIT", "LICENSE.md", "NOTICE", "COPYRIGHT"} {
		if !noticeName.MatchString(name) {
			t.Errorf("%s is not taken for a notice", name)
		}
	}
	for _, name := range []string{"license.go", "notice.tsx", "licenses.txt", "copyright_test.go"} {
		if noticeName.MatchString(name) {
			t.Errorf("%s is taken for a notice", name)
		}
	}
}
