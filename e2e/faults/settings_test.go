package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestSettingsHoldOverKills changes settings of a running server with the command line, sees what
// they do without a restart, kills the server, and sees the same.
func TestSettingsHoldOverKills(t *testing.T) {
	t.Parallel()
	const base = "[limits]\nexempt_networks = []\n"
	i := rig.Start(t, base)
	set := func(code int, args ...string) string {
		t.Helper()
		out, got := rig.Run(t, append([]string{"settings", args[0], "--data", i.Dir}, args[1:]...)...)
		if got != code {
			t.Fatalf("settings %s: code %d, want %d: %s", strings.Join(args, " "), got, code, out)
		}
		return out
	}
	relay := rig.NewFakeSMTP(t, false, nil)
	host, port, _ := strings.Cut(relay.Addr, ":")
	for _, change := range [][]string{
		{"set", "limits.domains", "77"},
		{"set", "limits.rate_per_minute=555", "limits.burst_per_minute=999"},
		{"set", "relay.r1.kind=custom", "relay.r1.host=" + host, "relay.r1.port=" + port, "relay.r1.tls=none"},
		{"set", "registrar.sandbox", "true"},
		{"set", "log.level", "debug"},
		{"set", "limits.connections_per_address", "1"},
		{"set", "outbound", "relay"},
	} {
		set(0, change...)
	}
	set(0, "test", "relay.r1")
	set(2, "set", "limits.domain", "3")
	set(1, "set", "limits.domains", "many")
	set(1, "set", "limits.exempt_networks", "127.0.0.1")
	if out := set(0, "get", "limits.domains"); out != "77\n" {
		t.Errorf("get: %q", out)
	}
	check := func(when string) {
		t.Helper()
		var account struct {
			DomainsLimit int `json:"domains_limit"`
			Registrars   []string
			Mail         struct{ Relay *string }
		}
		i.Want(http.StatusOK, "GET", "/v1/account", nil, &account)
		if account.DomainsLimit != 77 || fmt.Sprint(account.Registrars) != "[sandbox]" || account.Mail.Relay == nil || *account.Mail.Relay != "r1" {
			t.Errorf("%s: %+v", when, account)
		}
		var usage struct {
			RateLimit struct{ Limit int } `json:"rate_limit"`
		}
		i.Want(http.StatusOK, "GET", "/v1/account/usage", nil, &usage)
		if usage.RateLimit.Limit != 555 {
			t.Errorf("%s: %d requests a minute", when, usage.RateLimit.Limit)
		}
		first := rig.Dial(t, i.Ready.SMTP)
		if code, _ := first.Hear(); code != 220 {
			t.Errorf("%s: the first connection gets %d", when, code)
		}
		if code, text := rig.Dial(t, i.Ready.SMTP).Hear(); code != 421 {
			t.Errorf("%s: the second connection gets %d %s", when, code, text)
		}
		first.Say("QUIT")
		text, err := os.ReadFile(i.Log.Name())
		if err != nil || !strings.Contains(string(text), "level=DEBUG") {
			t.Errorf("%s: the log has no level debug, %v", when, err)
		}
	}
	check("without a restart")
	i.Kill()
	if err := os.Truncate(i.Log.Name(), 0); err != nil {
		t.Fatal(err)
	}
	if out := set(0, "get", "relay.r1.host"); out != host+"\n" { // no server runs
		t.Errorf("get without a server: %q", out)
	}
	i.Start()
	check("after a kill")

	// The file wins, without a restart too, and what it hid comes back.
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(i.Dir, "mailstead.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := i.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	source := func(want string) func() bool {
		return func() bool {
			var row struct {
				Source  string
				Line    *int
				Ignored *string
			}
			if err := json.Unmarshal([]byte(set(0, "get", "--json", "limits.domains")), &row); err != nil {
				t.Fatal(err)
			}
			return row.Source == want && (row.Line != nil) == (want == "file") && (row.Ignored != nil) == (want == "file")
		}
	}
	write(base + "domains = 5\n")
	i.Until("the file holds", source("file"))
	set(1, "set", "limits.domains", "6")
	if out, code := rig.Run(t, "doctor", "--data", i.Dir); !strings.Contains(out, "limits.domains") {
		t.Errorf("doctor, code %d, does not tell of the value that is ignored: %s", code, out)
	}
	write(base)
	i.Until("the store holds", source("store"))
	set(0, "unset", "limits.domains", "limits.connections_per_address", "outbound")
	i.Until("the default holds", source("default"))
	set(0, "unset", "relay.r1")
	i.Check()
}
