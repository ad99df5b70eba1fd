package api

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestNoStoreByAccident: in production serve makes no store, and no other command does anywhere;
// what they refuse stays as it was. Messages without their database are never the place for one.
func TestNoStoreByAccident(t *testing.T) {
	t.Parallel()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	quiet := []string{"--http", "127.0.0.1:0", "--http-tls", "off", "--smtp", "off", "--submission", "off", "--submissions", "off",
		"--imap", "off", "--imaps", "off", "--dns", "off", "--acme-directory", "off", "--public-ip", "192.0.2.1"}
	production := append([]string{"serve", "--hostname", "mail.example.com"}, quiet...)
	empty := func(string) {}
	file := func(name, text string) func(dir string) {
		return func(dir string) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		make func(dir string)
		args []string
		want string
	}{
		"serve in production":                {empty, production, "mailstead setup"},
		"serve with settings alone":          {file("mailstead.toml", "hostname = 'mail.example.com'\n"), append([]string{"serve"}, quiet...), "mailstead setup"},
		"serve with an empty database":       {file("mailstead.db", ""), production, "mailstead setup"},
		"serve on messages":                  {file("segments/00000001.seg", "x"), production, "no database"},
		"the sandbox on messages":            {file("segments/00000001.seg", "x"), append([]string{"serve"}, quiet[:len(quiet)-2]...), "no database"},
		"init on messages":                   {file("segments/00000001.seg", "x"), []string{"init", "--owner-email", "a@example.org"}, "no database"},
		"serve on a restore that was killed": {file("restore.part/mailstead.db", "x"), append([]string{"serve"}, quiet[:len(quiet)-2]...), "restore"},
		"call":                               {empty, []string{"call", "get_account"}, "mailstead init"},
		"account list":                       {empty, []string{"account", "list"}, "mailstead init"},
		"token create":                       {empty, []string{"token", "create", "--user", "a@example.org"}, "mailstead init"},
		"backup":                             {empty, []string{"backup", "--to", filepath.Join(t.TempDir(), "b")}, "mailstead init"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		test.make(dir)
		before := listing(t, dir)
		cmd := exec.Command(path, test.args...)
		cmd.Env = append(os.Environ(), "MAILSTEAD_DATA="+dir)
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Run()
		if e := new(exec.ExitError); !errors.As(err, &e) || e.ExitCode() != 2 {
			t.Errorf("%s: %v, %s", name, err, said.String())
		}
		if !strings.Contains(said.String(), test.want) || !strings.Contains(said.String(), dir) {
			t.Errorf("%s should name %s and %q: %s", name, dir, test.want, said.String())
		}
		if after := listing(t, dir); after != before {
			t.Errorf("%s left %q, before there was %q", name, after, before)
		}
	}
}

// listing names everything below a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		names = append(names, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}
