package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstSignIn: the link that init prints sets address and password on the server that starts
// afterwards; the session works for the API and outlives a restart; the operator's new password
// ends it.
func TestFirstSignIn(t *testing.T) {
	t.Parallel()
	i := newInstance(t, generousLimits)
	var made struct {
		Link string `json:"welcome_link"`
	}
	out, code := mailstead(t, "account", "create", "--data", i.dir, "--owner-email", "made@up.test", "--json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("account create: %d %v %s", code, err, out)
	}
	_, token, ok := strings.Cut(made.Link, "http://"+i.ready.HTTP+"/welcome?token=")
	if !ok {
		t.Fatalf("the link is %q", made.Link)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	ask := func(method, path, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+i.ready.HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := ask("POST", "/session/welcome", `{"token":"`+token+`","email":"ann@up.test","password":"correct horse"}`); got != 200 {
		t.Fatalf("welcome: %d", got)
	}
	i.stop()
	i.start()
	if got := ask("POST", "/v1/auth/tokens", `{}`); got != 201 {
		t.Errorf("with the session after a restart: %d", got)
	}
	if out, code := mailstead(t, "user", "reset-password", "--data", i.dir, "--user", "ann@up.test", "--no-second-factor"); code != 0 {
		t.Fatalf("reset-password: %d %s", code, out)
	}
	if got := ask("GET", "/v1/account", ""); got != 401 {
		t.Errorf("after the operator's new password: %d", got)
	}
}

// TestInitPrintsNoLinkForAGivenPassword: who chose a password needs none.
func TestInitPrintsNoLinkForAGivenPassword(t *testing.T) {
	t.Parallel()
	for password, want := range map[string]bool{"": true, "correct horse": false} {
		out, code := mailstead(t, "init", "--data", filepath.Join(t.TempDir(), "data"), "--owner-email", "a@example.org", "--owner-password", password)
		if code != 0 || strings.Contains(out, "/welcome?token=") != want {
			t.Errorf("init with the password %q: %d %s", password, code, out)
		}
	}
}
