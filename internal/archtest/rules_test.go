package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// onceRules lists rules that must have a single implementation, each with a pattern that finds it
// in Go code other than tests, and the folder where it belongs.
var onceRules = []struct{ rule, pattern, folder string }{
	{"the kinds of relays", `"mailgun"[^\n]*\n?[^\n]*"sendgrid"[^\n]*\n?[^\n]*"custom"`, "service"},
	{"the type of a secondary", `(?m)^type Secondary struct`, "dnsprov/builtin"},
	{"the type of a TSIG key", `(?m)^type \w*Key struct \{\n\tName +string[^\n]*\n\tAlgorithm +string`, "dnsprov/builtin"},
	{"the host name of the sandbox", `"mail\.mailstead\.test"`, "config"},
	{"the HTTP status of an error code", `(?m)^\t(?:\{40\d, "not_found"|404: +\{"not_found")`, "service/core/code"},
}

// TestRulesStandOnce fails if one of onceRules is implemented again, or is missing from its folder.
func TestRulesStandOnce(t *testing.T) {
	places := make([][]string, len(onceRules))
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "data", "docs", "bench", "servicetest"}, d.Name()) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, r := range onceRules {
			for range regexp.MustCompile(r.pattern).FindAll(text, -1) {
				places[i] = append(places[i], path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range onceRules {
		if len(places[i]) != 1 || !within(filepath.ToSlash(filepath.Dir(places[i][0])), r.folder) {
			t.Errorf("%s: found in %v, want one place in %s", r.rule, places[i], r.folder)
		}
	}
}

// TestStatesAreNamed fails if code compares or sets the state of a record with a string literal:
// the states are constants beside the record in store, which also has predicates for them.
func TestStatesAreNamed(t *testing.T) {
	raw := regexp.MustCompile(`\.(?:Status|State|Role|DNSProvider|Plan|NSStatus|DNSStatus)\s*[!=]=\s*"\w`)
	for _, folder := range []string{"service", "handlers", "jobs", "webhooks"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "servicetest") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range raw.FindAllString(string(text), -1) {
				t.Errorf("%s: %s…: use the constant of store", path, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
