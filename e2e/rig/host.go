package rig

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Peer returns the path of a program of others. If it is missing, the test is skipped, or fails
// with CI=true, where .ci/peers has installed it.
func Peer(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if path := filepath.Join(dir, name); IsFile(path) {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing; run .ci/peers", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// IsFile reports whether path is a regular file.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// NumberFrom returns the number in an environment variable, or usual if that is not set.
func NumberFrom(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Glob returns the files that match a pattern.
func Glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
