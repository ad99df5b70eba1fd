package cli

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestVersionCommand: one line, or with --licenses the notices of what is built in.
func TestVersionCommand(t *testing.T) {
	run := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if err := runCommand(t.Context(), testProgram().app(&stdout, &stderr), append([]string{"mailstead", "version"}, args...)); err != nil || stderr.Len() > 0 {
			t.Fatalf("%v, %s", err, &stderr)
		}
		return stdout.String()
	}
	if got, want := run(), fmt.Sprintf("mailstead %s %s/%s %s\n", "test", runtime.GOOS, runtime.GOARCH, runtime.Version()); got != want {
		t.Errorf("version prints %q, want %q", got, want)
	}
	text := run("--licenses")
	for _, want := range []string{
		"the Mailstead authors", "=== The Go standard library and runtime\n", "=== go.etcd.io/bbolt v", "=== preact ", "=== The Public Suffix List\n", "Redistribution and use",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("version --licenses does not have %q", want)
		}
	}
}
