package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestFirstStart: `serve` in an empty directory makes an account and prints a curl command that works.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	curl := peer(t, "curl")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	readyFile := filepath.Join(dir, "ready")
	cmd := exec.Command(path, "serve", "--data", filepath.Join(dir, "data"), "--ready-file", readyFile, "--http", "127.0.0.1:0",
		"--smtp", "127.0.0.1:0", "--submission", "127.0.0.1:0", "--imap", "127.0.0.1:0", "--dns", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	for !isFile(readyFile) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("it did not become ready")
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("ready after %s", time.Since(start))
	printed := make([]byte, 4096)
	n, err := stdout.Read(printed)
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^\s+(curl .*)$`).FindSubmatch(printed[:n])
	if command == nil || !strings.Contains(string(printed[:n]), "owner@mailstead.test") {
		t.Fatalf("the first start printed %q", printed[:n])
	}
	answer, err := exec.Command("sh", "-c", strings.Replace(string(command[1]), "curl", curl+" -sS", 1)).CombinedOutput()
	if err != nil || !strings.Contains(string(answer), `"owner@mailstead.test"`) {
		t.Errorf("the printed curl answered %s, %v", answer, err)
	}
}

// TestCommandsWithAndWithoutAServer: tokens and calls work over the socket of a running server and on a stopped one.
func TestCommandsWithAndWithoutAServer(t *testing.T) {
	t.Parallel()
	i := newInstance(t, generousLimits)
	commands := func(when string) {
		out, code := mailstead(t, "token", "create", "--data", i.dir, "--user", "owner@example.org", "--permissions", "read", "--json")
		var token struct{ ID, Token string }
		if err := json.Unmarshal([]byte(out), &token); err != nil || code != 0 || !strings.HasPrefix(token.Token, "mst_") {
			t.Fatalf("%s: token create: %d %v %s", when, code, err, out)
		}
		var account struct{ Email string }
		out, code = mailstead(t, "call", "--data", i.dir, "get_account")
		if err := json.Unmarshal([]byte(out), &account); err != nil || code != 0 || account.Email != "owner@example.org" {
			t.Errorf("%s: call get_account: %d %v %s", when, code, err, out)
		}
		if _, code = mailstead(t, "call", "--data", i.dir, "get_domain", `{"domain_id":"dom_x"}`); code != 1 {
			t.Errorf("%s: call of what is not there: exit %d, want 1", when, code)
		}
		if _, code = mailstead(t, "call", "--data", i.dir, "no_such_operation"); code != 2 {
			t.Errorf("%s: call of no operation: exit %d, want 2", when, code)
		}
		email := strings.ReplaceAll(when, " ", "") + "@example.net"
		if out, code = mailstead(t, "account", "create", "--data", i.dir, "--owner-email", email, "--json"); code != 0 {
			t.Errorf("%s: account create: %d %s", when, code, out)
		}
		if out, code = mailstead(t, "user", "reset-password", "--data", i.dir, "--user", email, "--json"); code != 0 || !strings.Contains(out, "password") {
			t.Errorf("%s: user reset-password: %d %s", when, code, out)
		}
		for _, to := range []struct{ verb, status string }{{"suspend", "suspended"}, {"resume", "active"}} {
			var account struct {
				AccountID string `json:"account_id"`
				Status    string
			}
			out, code = mailstead(t, "account", to.verb, "--data", i.dir, "--account", email, "--json")
			if err := json.Unmarshal([]byte(out), &account); err != nil || code != 0 || account.Status != to.status || !strings.HasPrefix(account.AccountID, "acc_") {
				t.Errorf("%s: account %s: %d %v %s", when, to.verb, code, err, out)
			}
			if out, code = mailstead(t, "account", "list", "--data", i.dir); code != 0 || !strings.Contains(out, account.AccountID+"  "+to.status) {
				t.Errorf("%s: account list: %d %s", when, code, out)
			}
		}
		if _, code = mailstead(t, "account", "suspend", "--data", i.dir); code != 2 {
			t.Errorf("%s: account suspend of none: exit %d, want 2", when, code)
		}
		if _, code = mailstead(t, "account", "suspend", "--data", i.dir, "--account", "nobody@example.net"); code != 1 {
			t.Errorf("%s: account suspend of nobody: exit %d, want 1", when, code)
		}
	}
	commands("with a server")
	if _, code := mailstead(t, "check", "--data", i.dir); code != 1 {
		t.Errorf("check of a store in use: exit %d, want 1", code)
	}
	i.stop()
	commands("without a server")
	if _, code := mailstead(t, "init", "--data", i.dir, "--owner-email", "again@example.org"); code != 1 {
		t.Errorf("a second init: exit %d, want 1", code)
	}
	if out, code := mailstead(t, "check", "--data", i.dir); code != 0 || out != "ok\n" {
		t.Errorf("check: %d %q", code, out)
	}
	for _, wrong := range [][]string{{"serve", "--data", i.dir, "--outbound", "pigeon"}, {"serve", "extra"}, {"nothing"}, {"serve", "--no-such-flag"}} {
		if _, code := mailstead(t, wrong...); code != 2 {
			t.Errorf("%v: exit %d, want 2", wrong, code)
		}
	}
	if info, err := os.Stat(filepath.Join(i.dir, "master.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("master.key: %v, %v", info, err)
	}
}

// TestHealth needs no token.
func TestHealth(t *testing.T) {
	t.Parallel()
	i := newInstance(t, "")
	resp, err := http.Get("http://" + i.ready.HTTP + "/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("healthz: %v, %v", resp, err)
	}
	resp.Body.Close()
	if resp, err = http.Get("http://" + i.ready.HTTP + "/"); err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Security-Policy") == "" {
		t.Fatalf("the page: %v, %v", resp, err)
	}
	resp.Body.Close()
}
