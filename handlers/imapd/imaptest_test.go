package imapd

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// unmet are scripts that want what we do not have: \Recent, which RFC 9051 has dropped, and the
// source route of an address in ENVELOPE, which is obsolete (RFC 5322 section 4.4).
var unmet = map[string]bool{"copy": true, "search-flags": true, "select": true, "fetch-envelope": true}

// imaptestLine is how imaptest begins a line about a test that failed.
var imaptestLine = regexp.MustCompile(`(?m)^\*\*\* Test (\S+)`)

// TestScriptsOfImaptest runs Dovecot's imaptest where the variable IMAPTEST names that program. Its
// scripts are in the directory that IMAPTEST_SCRIPTS names, else in "tests" beside the program.
func TestScriptsOfImaptest(t *testing.T) {
	program := os.Getenv("IMAPTEST")
	if program == "" {
		t.Skip("IMAPTEST names no program")
	}
	scripts := os.Getenv("IMAPTEST_SCRIPTS")
	if scripts == "" {
		scripts = filepath.Join(filepath.Dir(program), "tests")
	}
	h := serve(t, func(s *Server) { s.MaxPerMailbox = 200 })
	host, port, err := net.SplitHostPort(h.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "host="+host, "port="+port, "user="+email, "pass="+password, "test="+scripts)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	t.Logf("%s: %v\n%s", program, err, out)
	if !strings.Contains(string(out), " test groups: ") || strings.Contains(string(out), "\nError: ") {
		t.Errorf("%s: %v", program, err)
	}
	failed := map[string]bool{}
	for _, m := range imaptestLine.FindAllStringSubmatch(string(out), -1) {
		failed[m[1]] = true
		if !unmet[m[1]] {
			t.Errorf("script %s fails", m[1])
		}
	}
	for name := range unmet {
		if !failed[name] {
			t.Errorf("script %s passes; take it out of the list", name)
		}
	}
}
