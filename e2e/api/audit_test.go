package api

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestAuditOfCommands: what the operator does, while the server runs and while it does not, is in
// the log of the first account and in that of the account concerned; and a wrong password at the
// dashboard is in its account's.
func TestAuditOfCommands(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	other := i.SecondAccount()
	var account struct{ ID string }
	other.Want(200, "GET", "/v1/account", nil, &account)
	command := func(args ...string) {
		t.Helper()
		if out, code := rig.Run(t, append(args, "--data", i.Dir)...); code != 0 {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
	command("token", "create", "--user", "second@example.org")
	command("backup", "--to", filepath.Join(t.TempDir(), "archive"))
	if out, code := rig.Run(t, "call", "--data", i.Dir, "--account", account.ID, "create_suppression", `{"email":"no@far.test"}`); code != 0 {
		t.Errorf("call: exit %d, %s", code, out)
	}
	body := []byte(`{"email":"second@example.org","password":"marked-secret"}`)
	for range 2 {
		resp, err := i.HTTP.Post("http://"+i.Ready.HTTP+"/session", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a wrong password: %d", resp.StatusCode)
		}
	}
	i.Stop()
	command("account", "suspend", "--account", account.ID)
	command("account", "resume", "--account", account.ID)
	i.Start()

	rows := func(i *rig.Instance) string {
		var page struct {
			Data []struct {
				Action string
				Via    string
				IP     *string
				Count  int
				Actor  struct{ Type string }
				Target *struct{ ID string }
			}
		}
		i.Want(200, "GET", "/v1/audit?limit=100", nil, &page)
		var out []string
		for _, r := range page.Data {
			out = append(out, fmt.Sprint(r.Action, " ", r.Actor.Type, " ", r.Via, " ", r.IP != nil, " ", r.Count))
		}
		return strings.Join(out, "\n")
	}
	both := []string{"account resume operator command false 1", "account suspend operator command false 1"}
	called := []string{"create_suppression operator command false 1"}
	made := []string{"token create operator command false 1", "account create operator command false 1"}
	own := strings.Join(append(append(append(append([]string{}, both...), called...), "backup operator command false 1"), append(made, "init operator command false 1")...), "\n")
	if got := rows(i); got != own {
		t.Errorf("the first account's log:\n%s\nwant:\n%s", got, own)
	}
	got := rows(i.As(other.Token))
	for _, want := range append(append(both, called...), made...) {
		if !strings.Contains(got, want) {
			t.Errorf("the other account's log lacks %s:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "login_failed user dashboard true"); n < 1 || strings.Contains(got, "backup") {
		t.Errorf("the other account's log:\n%s", got)
	}
	if text := i.As(other.Token).GetText("/v1/audit?limit=100"); strings.Contains(text, "marked-secret") || strings.Contains(text, "mst_") {
		t.Errorf("a secret is in the log: %s", text)
	}
}
