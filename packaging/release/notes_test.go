package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChangesHaveTheForm checks the form of all changes in this repository, including those of
// earlier releases.
func TestChangesHaveTheForm(t *testing.T) {
	if _, err := readChanges("../../" + unreleasedFolder); err != nil {
		t.Error(err)
	}
	released, err := filepath.Glob("../../changelog/*_*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range released {
		if _, err := readChanges(folder); err != nil {
			t.Error(err)
		}
	}
}

func TestChangeWithoutTheFormIsNamed(t *testing.T) {
	const good = "Until now a relay that answered slowly\nheld up all mail.\n\nMailstead\nnow waits for it alone.\n"
	for _, test := range []struct{ name, text, want string }{
		{"41-slow-relays.md", good, ""},
		{"slow-relays.md", good, ""},
		{"Slow_Relays.md", good, "the name must be lower-case words"},
		{"a.md", "Until now a relay that answered slowly held up all mail.\n", `the sentence that begins with "Mailstead now" is missing`},
		{"a.md", "Mailstead now waits for slow relays.\n", "the problem must come first"},
		{"a.md", "# Slow relays\n\n" + good, "plain sentences"},
		{"a.md", "- " + good, "plain sentences"},
		{"a.md", "", `the sentence that begins with "Mailstead now" is missing`},
	} {
		folder := t.TempDir()
		path := filepath.Join(folder, test.name)
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readChanges(folder)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s, %q: the error is %v, want one with %q", test.name, test.text, err, test.want)
		}
	}
}

func TestReleaseNotes(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		".gitkeep":      "",
		"12-relays.md":  "Until now slow relays\nheld up mail.\n\nMailstead now waits\nfor them alone.\n",
		"alias-case.md": "Aliases in capitals were refused. Mailstead now takes them.\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	changes, err := readChanges(folder)
	if err != nil {
		t.Fatal(err)
	}
	const (
		title = "# Changelog\n\nWhat changed.\n\n"
		first = "## 0.1.0 (2026-12-01)\n\n### Operators\n\n- One program.\n"
		items = "- Until now slow relays\n  held up mail.\n\n  Mailstead now waits\n  for them alone.\n- Aliases in capitals were refused. Mailstead now takes them.\n"
	)
	draft := strings.Replace(first, "(2026-12-01)", "(not released yet)", 1)
	for name, test := range map[string]struct {
		version, changelog string
		changes            []string
		want               string
	}{
		"a new section":                   {"0.2.0", title + first, changes, title + "## 0.2.0 (2027-01-05)\n\n" + items + "\n" + first},
		"the first section":               {"0.2.0", title, changes, title + "## 0.2.0 (2027-01-05)\n\n" + items},
		"no changes":                      {"0.2.0", title + first, nil, title + first},
		"the section was written by hand": {"0.1.0", title + draft, nil, title + strings.Replace(first, "2026-12-01", "2027-01-05", 1)},
		"changes of a section written before": {"0.1.0", title + draft + "\n## 0.0.9\n\n- Older.\n", changes,
			title + strings.Replace(first, "2026-12-01", "2027-01-05", 1) + "\n### Fixed before the release\n\n" + items + "\n## 0.0.9\n\n- Older.\n"},
	} {
		if got := newChangelog(test.changelog, test.version, "2027-01-05", test.changes); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
	}
}
