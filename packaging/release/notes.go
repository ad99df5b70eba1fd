package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// unreleasedFolder is the folder with a file for each change since the last release (see
// changelog/README.md).
const unreleasedFolder = "changelog/unreleased"

// writeNotes writes CHANGELOG.md with this release on top.
func (r *release) writeNotes() error {
	items, err := readChanges(unreleasedFolder)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	text := newChangelog(string(changelog), r.version, r.at.Format("2006-01-02"), items)
	return os.WriteFile(filepath.Join(r.to, "CHANGELOG.md"), []byte(text), 0o644)
}

// readChanges returns the texts of the *.md files in a folder, sorted by file name. If files have
// the wrong form, the error names all of them.
func readChanges(folder string) (changes []string, err error) {
	files, err := os.ReadDir(folder) // sorted by name
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".md" {
			continue
		}
		path := filepath.Join(folder, file.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		problem := formProblem(file.Name(), string(text))
		if problem != "" {
			wrong = append(wrong, fmt.Errorf("%s: %s (changelog/README.md describes the form)", path, problem))
		}
		changes = append(changes, strings.TrimSpace(string(text)))
	}
	return changes, errors.Join(wrong...)
}

// changeFileName matches valid file names of changes.
var changeFileName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*\.md$`)

// formProblem says what is wrong with the file name or text of a change. It returns "" if both are
// right.
func formProblem(name, text string) string {
	problem, _, found := strings.Cut(strings.Join(strings.Fields(text), " "), "Mailstead now ")
	switch {
	case !changeFileName.MatchString(name):
		return "the name must be lower-case words or a number with hyphens between them, such as 41-slow-relays.md"
	case strings.HasPrefix(text, "#") || strings.HasPrefix(text, "- "):
		return "the text must be plain sentences, without a heading or a list item"
	case !found:
		return `the sentence that begins with "Mailstead now" is missing`
	case problem == "":
		return `the problem must come first, before "Mailstead now"`
	}
	return ""
}

// newChangelog returns the changelog with a section for a version on top, which has a list item for
// each change. If the first section is already that of the version, it gets the date, and the
// changes are added at its end. Otherwise, without changes, newChangelog returns the changelog
// unchanged.
func newChangelog(changelog, version, date string, changes []string) string {
	title, sections, _ := strings.Cut(changelog, "\n## ")
	heading, rest, _ := strings.Cut(sections, "\n")
	name, _, _ := strings.Cut(heading, " ")
	own := ""
	if name == version {
		own, sections, _ = strings.Cut(rest, "\n## ")
	}
	if own == "" && len(changes) == 0 {
		return changelog
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n## %s (%s)\n\n", strings.TrimSpace(title), version, date)
	if own != "" {
		fmt.Fprintf(&out, "%s\n", strings.TrimSpace(own))
	}
	if own != "" && len(changes) > 0 {
		out.WriteString("\n### Fixed before the release\n\n")
	}
	for _, change := range changes {
		item := strings.ReplaceAll(change, "\n", "\n  ")
		fmt.Fprintf(&out, "- %s\n", strings.ReplaceAll(item, "\n  \n", "\n\n"))
	}
	if sections != "" {
		fmt.Fprintf(&out, "\n## %s", sections)
	}
	return out.String()
}
