package api

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestDailyWork does an operator's daily work in the sandbox by commands alone, without JSON: a
// domain, a mailbox, a message, the log, the queue, a backup.
func TestDailyWork(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	run := func(want int, args ...string) string {
		t.Helper()
		out, code := rig.Run(t, append(args, "--data", i.Dir)...)
		if code != want {
			t.Fatalf("mailstead %s: exit %d, want %d: %s", strings.Join(args, " "), code, want, out)
		}
		return out
	}
	if out := run(0, "domain", "add", "daily.test", "--wait", "--timeout", "1m"); !strings.HasPrefix(out, "daily.test is connected. Set these nameservers") || !strings.HasSuffix(out, "Complete.\n") {
		t.Errorf("domain add: %s", out)
	}
	if out := run(0, "domain", "list"); !strings.HasPrefix(out, "daily.test  complete  ") {
		t.Errorf("domain list: %s", out)
	}
	if out := run(0, "domain", "show", "DAILY.test"); !strings.Contains(out, "Nameservers   ns1.mailstead.test, ns2.mailstead.test\n") || !strings.Contains(out, "MX") {
		t.Errorf("domain show: %s", out)
	}
	if out := run(0, "domain", "add", "manual.test", "--manual"); !strings.Contains(out, "Enter these records at its DNS provider:\n\n") || !strings.Contains(out, "v=spf1") {
		t.Errorf("domain add --manual: %s", out)
	}
	run(1, "domain", "add", "no name")
	made := run(0, "mailbox", "create", "ann@daily.test", "--name", "Ann")
	if !strings.HasPrefix(made, "mailbox   ann@daily.test\npassword  ") || !strings.Contains(made, "\nimap      127.0.0.1 port ") ||
		!strings.Contains(made, ", not encrypted\nsmtp      127.0.0.1 port ") {
		t.Errorf("mailbox create: %s", made)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("blue-kettle-29\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(0, "mailbox", "password", "ann@daily.test", "--password-file", file); out != "mailbox   ann@daily.test\n" {
		t.Errorf("mailbox password of one's own: %s", out)
	}
	if out := run(0, "mailbox", "password", "ann@daily.test"); !strings.HasPrefix(out, "mailbox   ann@daily.test\npassword  ") {
		t.Errorf("mailbox password: %s", out)
	}
	var mailboxes struct {
		Data []struct {
			Email  string
			UserID string `json:"user_id"`
		}
		Count int
	}
	if err := json.Unmarshal([]byte(run(0, "mailbox", "list", "--domain", "daily.test", "--json")), &mailboxes); err != nil || mailboxes.Count != 1 || mailboxes.Data[0].Email != "ann@daily.test" {
		t.Fatalf("mailbox list: %v, %+v", err, mailboxes)
	}
	run(0, "call", "send_email", "user_id="+mailboxes.Data[0].UserID, "to=bob@far.test", "subject=Hello, Bob", "text=It works.")
	run(0, "call", "send_email", "user_id="+mailboxes.Data[0].UserID, "to=bob@far.test", "to=eve@far.test", "subject=Later", "text=x", "send_at="+time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339), "--account", "owner@example.org")
	rows, err := csv.NewReader(strings.NewReader(run(0, "log", "--mailbox", "ann@daily.test", "--since", "1h", "--csv"))).ReadAll()
	if err != nil || len(rows) < 2 || strings.Join(rows[0], " ") != "time status from to subject answer" {
		t.Fatalf("log: %v, %q", err, rows)
	}
	if last := rows[len(rows)-1]; last[3] != "bob@far.test" || last[4] != "Hello, Bob" {
		t.Errorf("log: %q", last)
	}
	if out := run(0, "log", "--mailbox", "ann@daily.test", "--since", "2099-01-01"); out != "" {
		t.Errorf("the log of the future: %s", out)
	}
	if out := run(0, "log", "--limit", "1"); strings.Count(out, "\n") != 1 {
		t.Errorf("one row of the log: %s", out)
	}
	run(1, "log", "--mailbox", "nobody@daily.test")
	waiting := strings.Fields(run(0, "queue", "list"))
	if len(waiting) == 0 || !strings.HasPrefix(waiting[0], "msg_") {
		t.Fatalf("queue list: %q", waiting)
	}
	run(2, "queue", "cancel", "--all") // it would ask
	if out := run(0, "queue", "cancel", waiting[0]); out != waiting[0]+" is cancelled.\n" {
		t.Errorf("queue cancel: %s", out)
	}
	run(0, "queue", "cancel", "--all", "--yes")
	if out := run(0, "queue", "list"); out != "" {
		t.Errorf("the queue after it was emptied: %s", out)
	}
	if out := run(0, "queue", "retry", "--all"); out != "No message waits.\n" {
		t.Errorf("queue retry: %s", out)
	}
	run(1, "queue", "retry", waiting[0])
	status := run(0, "status")
	for _, want := range []string{"is running on mail.mailstead.test for ", "\nListeners  dns ", "\nQueue      empty\n", "\nBackup     not configured", "\nChecks     "} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q: %s", want, status)
		}
	}
	var state struct {
		PID           int
		UptimeSeconds *int64 `json:"uptime_seconds"`
		Listeners     []struct{ Name string }
		Health        struct{ Version string }
	}
	if err := json.Unmarshal([]byte(run(0, "status", "--json")), &state); err != nil || state.PID != i.Ready.PID || state.UptimeSeconds == nil || len(state.Listeners) != 5 || state.Health.Version == "" {
		t.Errorf("status: %v, %+v", err, state)
	}
	backups := t.TempDir() + "/"
	run(0, "backup", backups)
	if out := run(0, "backup", "list", backups); !strings.Contains(out, "  full  ") || !strings.Contains(out, "can be restored") {
		t.Errorf("backup list: %s", out)
	}
	run(2, "mailbox", "delete", "ann@daily.test") // it would ask
	if out := run(0, "mailbox", "delete", "ann@daily.test", "--yes"); out != "ann@daily.test is deleted.\n" {
		t.Errorf("mailbox delete: %s", out)
	}
	run(1, "mailbox", "delete", "ann@daily.test", "--yes")
	job := run(0, "call", "delete_domain", "domain_id="+domainID(t, i, "daily.test"), "--wait", "--timeout", "1m")
	if !strings.Contains(job, `"status": "completed"`) || !strings.Contains(job, `"type": "domain_delete"`) {
		t.Errorf("delete_domain --wait: %s", job)
	}
	i.Stop()
	if out, code := rig.Run(t, "status", "--data", i.Dir); code != 1 || out != "" {
		t.Errorf("status of a stopped server: exit %d, %s", code, out)
	}
	if out, code := rig.Run(t, "mailbox", "create", "eve@manual.test", "--data", i.Dir); code != 0 || !strings.Contains(out, "It can be used once its domain is complete.") {
		t.Errorf("mailbox create without a server: exit %d, %s", code, out)
	}
}

func domainID(t *testing.T, i *rig.Instance, name string) string {
	t.Helper()
	var d struct {
		DomainID string `json:"domain_id"`
	}
	out, _ := rig.Run(t, "domain", "show", name, "--json", "--data", i.Dir)
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.DomainID == "" {
		t.Fatalf("domain show: %v, %s", err, out)
	}
	return d.DomainID
}

// TestOnATerminal: on a terminal, which `script` makes, tables have heads and colours, unless
// NO_COLOR is set, deletions ask, and long work shows how far it is.
func TestOnATerminal(t *testing.T) {
	t.Parallel()
	script := rig.Peer(t, "script")
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	i := rig.Start(t, rig.GenerousLimits)
	i.AddDomain("terminal.test")
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": "ann@terminal.test"}, nil)
	on := func(answer, command string, env ...string) string {
		t.Helper()
		cmd := exec.Command(script, "-q", "-e", "-c", fmt.Sprintf("stty columns 120; '%s' %s --data '%s'", path, command, i.Dir), "/dev/null")
		cmd.Env = append(append(os.Environ(), "TERM=xterm"), env...)
		cmd.Stdin = strings.NewReader(answer)
		out, _ := cmd.CombinedOutput() // the exit code is that of the command
		return strings.ReplaceAll(string(out), "\r\n", "\n")
	}
	if out := on("", "mailbox list"); !strings.Contains(out, "\x1b[1mAddress\x1b[0m") || !strings.Contains(out, "\x1b[32mactive\x1b[0m") {
		t.Errorf("a table: %q", out)
	}
	if out := on("", "mailbox list", "NO_COLOR=1"); !strings.Contains(out, "Address ") || strings.Contains(out, "\x1b[") {
		t.Errorf("a table without colours: %q", out)
	}
	if out := on("", "queue list"); !strings.Contains(out, "No message waits.\n") {
		t.Errorf("an empty table: %q", out)
	}
	if out := on("n\n", "mailbox delete ann@terminal.test"); !strings.Contains(out, "cannot be undone.\nGo on? [y/N] ") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a deletion that is not confirmed: %q", out)
	}
	if out := on("y\n", "mailbox delete ann@terminal.test"); !strings.Contains(out, "ann@terminal.test is deleted.\n") {
		t.Errorf("a deletion: %q", out)
	}
	if out := on("", "backup '"+t.TempDir()+"/'"); !strings.Contains(out, "the backup: ") || !strings.Contains(out, " %)") || !strings.Contains(out, "full backup") {
		t.Errorf("the progress of a backup: %q", out)
	}
}
