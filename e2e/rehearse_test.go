package e2e

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rehearsal is what `mailstead rehearse --json` prints.
type rehearsal struct {
	FromVersion  string `json:"from_version"`
	ToVersion    string `json:"to_version"`
	DigestsEqual bool   `json:"digests_equal"`
	Path         string
	Checks       []struct{ Code, Status, Message string }
}

func rehearse(t *testing.T, dir string, more ...string) (r rehearsal) {
	t.Helper()
	out, code := mailstead(t, append([]string{"rehearse", "--data", dir, "--json"}, more...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || !r.DigestsEqual || len(r.Checks) != 5 {
		t.Fatalf("rehearse: exit %d, %s", code, out)
	}
	for _, c := range r.Checks {
		if c.Status != "ok" {
			t.Errorf("%s: %s", c.Code, c.Message)
		}
	}
	return r
}

// TestRehearseAnOldStore migrates a copy of a store of an older format: the store itself stays as
// it was, byte by byte, until the swap.
func TestRehearseAnOldStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unzip(t, "../store/testdata/before_formats.zip", dir)
	before := sums(t, dir)
	r := rehearse(t, dir)
	if r.Path != filepath.Join(dir, "rehearsal") {
		t.Errorf("the copy is in %s", r.Path)
	}
	if got := sums(t, dir); got != before {
		t.Error("the rehearsal has changed the store")
	}
	r = rehearse(t, dir, "--swap")
	if got := sums(t, r.Path); got != before {
		t.Errorf("what was kept in %s is not the store of before", r.Path)
	}
	if got := sums(t, dir); got == before {
		t.Error("the swap has changed nothing")
	}
	if out, code := mailstead(t, "check", "--data", dir); code != 0 {
		t.Errorf("check: %s", out)
	}
}

// sums are those of the database and the segments.
func sums(t *testing.T, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range append(list, filepath.Join(dir, "mailstead.db")) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %x\n", filepath.Base(path), sha256.Sum256(data))
	}
	return all.String()
}

func unzip(t *testing.T, archive, dir string) {
	t.Helper()
	z, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSwapAndBack: a running server is rehearsed, swapped and started again, some times over; the
// store that was kept each time has what there was before, and runs. make soak-swaps does 20
// rounds.
func TestSwapAndBack(t *testing.T) {
	t.Parallel()
	i, box := alone(t)
	var want []string
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_ROUNDS")); err == nil {
		rounds = n
	}
	for round := range rounds {
		for n := range 3 {
			subject := fmt.Sprintf("r%d-%d", round, n)
			if err := transmit(i.ready.SMTP, "ann@example.test", letter(subject)); err != nil {
				t.Fatal(err)
			}
			want = append([]string{subject}, want...)
		}
		if got := i.subjects(box); got != strings.Join(want, " ") { // what was accepted is in the rehearsal as rows
			t.Fatalf("the inbox has %q", got)
		}
		if r := rehearse(t, i.dir); r.FromVersion == "" || r.FromVersion != r.ToVersion {
			t.Errorf("from %q to %q", r.FromVersion, r.ToVersion)
		}
		if err := transmit(i.ready.SMTP, "ann@example.test", letter("still there")); err != nil { // the server runs on
			t.Fatal(err)
		}
		want = append([]string{"still there"}, want...)
		r := rehearse(t, i.dir, "--swap")
		if err := i.cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		i.cmd = nil

		// The old store runs, beside the new one.
		back := startInstance(t, copyOf(t, r.Path), i.token)
		if got := back.subjects(box); got != strings.Join(want, " ") {
			t.Errorf("round %d: the old store has %q", round, got)
		}
		if err := transmit(back.ready.SMTP, "ann@example.test", letter("elsewhere")); err != nil {
			t.Fatal(err)
		}
		back.check()
		i.start()
		if got := i.subjects(box); got != strings.Join(want, " ") {
			t.Errorf("round %d: the inbox has %q", round, got)
		}
	}
	i.check()
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}
