package api

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// advance moves the clock of the sandbox on, and gives what it shows then.
func advance(i *rig.Instance, by time.Duration) time.Time {
	i.T.Helper()
	out, code := rig.Run(i.T, "call", "--data", i.Dir, "advance_clock", fmt.Sprintf(`{"seconds":%d}`, int(by.Seconds())))
	var answer struct{ Now time.Time }
	if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil || answer.Now.IsZero() {
		i.T.Fatalf("advance_clock: exit %d, %v, %q", code, err, out)
	}
	return answer.Now
}

const day = 24 * time.Hour

// TestAdvancedClock: what waits for a date comes when the clock is advanced to it, and the clock
// stays so far ahead over a restart.
func TestAdvancedClock(t *testing.T) {
	t.Parallel()
	relay := rig.NewFakeSMTP(t, true, func(n int) string {
		if n == 1 {
			return "451 4.3.0 not now"
		}
		return fmt.Sprintf("250 Ok 0100018f-%d", n)
	})
	host, port, _ := net.SplitHostPort(relay.Addr)
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n[sandbox]\nclock_offset='-26h'\n", host, port)
	i := rig.Start(t, config, "--outbound", "relay")
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "PATCH", "/v1/email-users/"+ann, map[string]any{"daily_send_limit": 1}, nil)
	send := func(status int) {
		t.Helper()
		i.Want(status, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{"x@far.test"}, "subject": "s", "text": "hello"}, nil)
	}
	rows := func(path string) (data []struct {
		Status   string
		QueuedAt time.Time `json:"queued_at"`
	}) {
		t.Helper()
		var page struct {
			Data []struct {
				Status   string
				QueuedAt time.Time `json:"queued_at"`
			}
		}
		i.Want(200, "GET", path, nil, &page)
		return page.Data
	}
	out, code := rig.Run(t, "token", "create", "--data", i.Dir, "--user", "owner@example.org", "--expires-in-days", "2", "--json")
	var short struct{ Token string }
	if err := json.Unmarshal([]byte(out), &short); code != 0 || err != nil {
		t.Fatalf("token create: exit %d, %v, %s", code, err, out)
	}

	send(200)
	i.Until("the delivery is deferred", func() bool { return rows("/v1/messages?recipient=x@far.test")[0].Status == "deferred" })
	if at := rows("/v1/messages?recipient=x@far.test")[0].QueuedAt; time.Since(at) < 25*time.Hour || time.Since(at) > 27*time.Hour {
		t.Errorf("a message was sent at %s by a clock that is 26 h behind %s", at, time.Now())
	}
	send(403) // the second recipient of the day, of which the owner gets a letter
	advance(i, 25*time.Hour)
	i.Until("it is tried again", func() bool { return rows("/v1/messages?recipient=x@far.test")[0].Status == "relayed" })
	send(200)
	use := func() int {
		was := i.Token
		defer func() { i.Token = was }()
		i.Token = short.Token
		return i.Do("GET", "/v1/account", nil, nil)
	}
	if got := use(); got != 200 {
		t.Errorf("the token that lasts two days gives %d after one", got)
	}

	advance(i, day)
	if got := use(); got != 401 {
		t.Errorf("the token that lasts two days gives %d after them", got)
	}
	now := advance(i, 400*day)
	i.Until("the sending log is empty", func() bool {
		if len(rows("/v1/messages?recipient=x@far.test")) == 0 {
			return true
		}
		now = advance(i, time.Hour) // the job that empties it may have begun before
		return false
	})

	for path, want := range map[string]int{"/v1/advance_clock": 404, "/v1/advance-clock": 404, "/local/advance-clock": 405} { // a page, which takes no POST
		i.Want(want, "POST", path, map[string]any{"seconds": 60}, nil)
	}
	for _, bad := range []string{`{"seconds":-1}`, `{"seconds":0}`, `{}`, `{"seconds":315360001}`, `{"seconds":"1"}`, `x`} {
		if out, code := rig.Run(t, "call", "--data", i.Dir, "advance_clock", bad); code != 1 {
			t.Errorf("advance_clock %s: exit %d, %s", bad, code, out)
		}
	}
	if out, _ := rig.Run(t, "call", "--data", i.Dir, "--list"); !strings.Contains(out, "advance_clock") {
		t.Error("the list does not have advance_clock")
	}

	i.Stop()
	while := advance(i, day).Sub(now) // without a server
	if while < day || while > day+10*time.Minute {
		t.Errorf("a day was %s", while)
	}
	i.Start()
	while = advance(i, time.Hour).Sub(now)
	if while < day+time.Hour || while > day+time.Hour+10*time.Minute {
		t.Errorf("after a restart, a day and an hour were %s", while)
	}
	i.Want(200, "GET", "/v1/account", nil, nil)
}

// TestProductionHasNoOtherClock: the setting is refused, and the call does not exist.
func TestProductionHasNoOtherClock(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "", "--hostname", "mail.example.com", "--acme-directory", "off", "--http-tls", "off", "--submissions", "off", "--imaps", "off", "--public-ip", "192.0.2.1")
	if out, code := rig.Run(t, "call", "--data", i.Dir, "advance_clock", `{"seconds":86400}`); code != 1 {
		t.Errorf("advance_clock at a server with a hostname: exit %d, %s", code, out)
	}
	dir := t.TempDir()
	set := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("hostname='mail.example.com'\n")
	if _, code := rig.Run(t, "call", "--data", dir, "advance_clock", `{"seconds":86400}`); code != 2 {
		t.Errorf("advance_clock in production: exit %d, want 2", code)
	}
	if out, _ := rig.Run(t, "call", "--data", dir, "--list"); strings.Contains(out, "advance_clock") {
		t.Error("the list has advance_clock in production")
	}
	set("hostname='mail.example.com'\n[sandbox]\nclock_offset='1h'\n")
	if _, code := rig.Run(t, "serve", "--data", dir); code != 2 {
		t.Errorf("clock_offset in production: exit %d, want 2", code)
	}
}
