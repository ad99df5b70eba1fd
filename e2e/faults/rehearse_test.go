package faults

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store/rowform"
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
	out, code := rig.Run(t, append([]string{"rehearse", "--data", dir, "--json"}, more...)...)
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
	unzip(t, rig.FromRoot("store/testdata/before_formats.zip"), dir)
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
	if out, code := rig.Run(t, "check", "--data", dir); code != 0 {
		t.Errorf("check: %s", out)
	}
}

// TestOlderStoreInProduction: a server with a hostname leaves a store of an older format as it is,
// unless this version has rehearsed the migration, or is told to do without.
func TestOlderStoreInProduction(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "", "--hostname", "mail.example.com", "--acme-directory", "off", "--http-tls", "off", "--submissions", "off", "--imaps", "off", "--public-ip", "192.0.2.1")
	i.Stop()
	args := append([]string{"serve", "--data", i.Dir, "--http", "127.0.0.1:0", "--smtp", "127.0.0.1:0",
		"--submission", "127.0.0.1:0", "--imap", "127.0.0.1:0", "--dns", "127.0.0.1:0"}, i.Args...)
	refused := func(when string) {
		t.Helper()
		before := sums(t, i.Dir)
		path, err := rig.Binary()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "mailstead rehearse --swap --data "+i.Dir) {
			t.Fatalf("%s: exit %d, %s", when, code, out)
		}
		if sums(t, i.Dir) != before {
			t.Errorf("%s: the store was changed", when)
		}
	}
	runs := func(more ...string) {
		t.Helper()
		was := i.Args
		i.Args = append(slices.Clone(was), more...)
		i.Start()
		i.Want(200, "GET", "/v1/account", nil, nil)
		i.Stop()
		i.Args = was
	}
	older := func() { setFormat(t, i.Dir, 3) }
	record := filepath.Join(i.Dir, "rehearsed.json")

	older()
	refused("without a rehearsal")
	runs("--migrate")

	rehearse(t, i.Dir) // nothing was migrated there
	older()
	refused("after a rehearsal of a store of today's format")

	rehearse(t, i.Dir)
	passed, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string][2]string{
		"of another version":        {`"version":"dev"`, `"version":"0.9"`},
		"that has not passed":       {`"digests_equal":true`, `"digests_equal":false`},
		"to another format":         {`"to_format":`, `"to_format":9`},
		"of a store of a later one": {`"from_format":3`, `"from_format":4`},
		"cut short":                 {`}`, ``},
	} {
		text := strings.Replace(string(passed), change[0], change[1], 1)
		if text == string(passed) {
			t.Fatalf("%s has no %s", passed, change[0])
		}
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused("after a rehearsal " + what)
	}
	if err := os.WriteFile(record, passed, 0o600); err != nil {
		t.Fatal(err)
	}
	runs()
	older()
	rehearse(t, i.Dir, "--swap")
	runs()
}

// setFormat has a store say that it is of an older format. Between 3 and 4 no row has to change.
func setFormat(t *testing.T, dir string, format byte) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "mailstead.db"), 0o600, &bolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		key := []byte("format")
		return tx.Bucket([]byte("meta")).Put(key, rowform.SumOf("meta").Seal(key, append([]byte{0, 0, 0, format}, "0.9"...)))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
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
	i, box := rig.StartWithMailbox(t)
	var want []string
	for round := range rig.NumberFrom(t, "MAILSTEAD_ROUNDS", 1) {
		for n := range 3 {
			subject := fmt.Sprintf("r%d-%d", round, n)
			if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(subject)); err != nil {
				t.Fatal(err)
			}
			want = append([]string{subject}, want...)
		}
		if got := subjects(i, box); got != strings.Join(want, " ") { // what was accepted is in the rehearsal as rows
			t.Fatalf("the inbox has %q", got)
		}
		if r := rehearse(t, i.Dir); r.FromVersion == "" || r.FromVersion != r.ToVersion {
			t.Errorf("from %q to %q", r.FromVersion, r.ToVersion)
		}
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("still there")); err != nil { // the server runs on
			t.Fatal(err)
		}
		want = append([]string{"still there"}, want...)
		r := rehearse(t, i.Dir, "--swap")
		if err := i.Cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		i.Cmd = nil

		// The old store runs, beside the new one.
		back := rig.StartExisting(t, copyOf(t, r.Path), i.Token)
		if got := subjects(back, box); got != strings.Join(want, " ") {
			t.Errorf("round %d: the old store has %q", round, got)
		}
		if err := rig.Transmit(back.Ready.SMTP, "ann@example.test", rig.Letter("elsewhere")); err != nil {
			t.Fatal(err)
		}
		back.Check()
		i.Start()
		if got := subjects(i, box); got != strings.Join(want, " ") {
			t.Errorf("round %d: the inbox has %q", round, got)
		}
	}
	i.Check()
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}
