package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestDashboard walks through the dashboard with a real browser on the real program; the walks are web/test/*.test.mjs.
// MAILSTEAD_SHOTS names a folder for pictures of its pages, MAILSTEAD_WALK a pattern of the files to run.
func TestDashboard(t *testing.T) {
	node, chromium := peer(t, "node"), peer(t, "chromium")
	if !isFile("web/node_modules/.made") {
		install := exec.Command(peer(t, "sh"), ".ci/web", "modules")
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("install what the walks need: %v\n%s", err, out)
		}
	}
	const password = "the cat sat on the mat"
	i := newDashboardInstance(t, password)
	walks := os.Getenv("MAILSTEAD_WALK")
	if walks == "" {
		walks = "*"
	}
	files, err := filepath.Glob("web/test/" + walks + ".test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("no walks: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, node, append([]string{"--test", "--test-concurrency=2", "--test-reporter=spec"}, files...)...)
	cmd.Env = append(os.Environ(), "MAILSTEAD_URL=http://"+i.ready.HTTP, "MAILSTEAD_SMTP="+i.ready.SMTP, "MAILSTEAD_TOKEN="+i.token,
		"MAILSTEAD_OWNER=owner@example.org", "MAILSTEAD_PASSWORD="+password, "MAILSTEAD_CHROMIUM="+chromium)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// newDashboardInstance is a sandbox whose owner has a password.
func newDashboardInstance(t *testing.T, password string) *instance {
	i := newInstance(t, "[limits]\nrate_per_minute = 100000\nburst_per_minute = 100000\n")
	if _, code := mailstead(t, "user", "reset-password", "--data", i.dir, "--user", "owner@example.org", "--password", password); code != 0 {
		t.Fatal("the owner's password could not be set")
	}
	return i
}
