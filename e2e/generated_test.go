package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // what TestGeneratedClient compiles needs it
)

// TestGeneratedClient has a stock generator make a client of the description that the program
// serves, compiles it, and makes a mailbox with it.
func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	i := newInstance(t, generousLimits)
	dir := t.TempDir()
	// A module of its own, with our requirements: nothing is written into the tree.
	for _, file := range []string{"../go.mod", "../go.sum", "testdata/generated/main.go", "testdata/generated/oapi-codegen.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), description(t, i), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "client"), 0o700); err != nil {
		t.Fatal(err)
	}
	inDir(t, dir, nil, "go", "tool", "oapi-codegen", "-config", "oapi-codegen.yaml", "openapi.json")
	inDir(t, dir, nil, "go", "build", "-o", "program", ".")
	out := inDir(t, dir, []string{"MAILSTEAD_URL=http://" + i.ready.HTTP, "MAILSTEAD_TOKEN=" + i.token}, filepath.Join(dir, "program"))
	var result struct {
		Made struct {
			Email, Status, Password string
			SMTPPort                int `json:"smtp_port"`
			IMAPPort                int `json:"imap_port"`
		}
		Refused string
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if m := result.Made; m.Email != "ann@generated.test" || m.Status != "active" || m.Password == "" || result.Refused != "validation_error" {
		t.Errorf("the program got %s", out)
	}
	if m := result.Made; m.SMTPPort != portIn(i.ready.Submission) || m.IMAPPort != portIn(i.ready.IMAP) {
		t.Errorf("a mail client is told of the ports %d and %d, but they are %+v", m.SMTPPort, m.IMAPPort, i.ready)
	}
	var boxes struct{ Data []struct{ Email string } }
	if i.want(200, "GET", "/v1/email-users", nil, &boxes); len(boxes.Data) != 1 || boxes.Data[0].Email != result.Made.Email {
		t.Errorf("the mailboxes are %+v", boxes)
	}
}

func portIn(addr string) int { return int(netip.MustParseAddrPort(addr).Port()) }

// description gets the OpenAPI document, which needs no token.
func description(t *testing.T, i *instance) []byte {
	t.Helper()
	resp, err := http.Get("http://" + i.ready.HTTP + "/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("openapi.json: %s, %v", resp.Status, err)
	}
	return text
}

// inDir runs a command there to its good end and gives its standard output.
func inDir(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	began := time.Now()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, errs.String())
	}
	t.Logf("%s %v took %s", filepath.Base(name), args, time.Since(began).Round(10*time.Millisecond))
	return out
}
