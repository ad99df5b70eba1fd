package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// contents names what is below a directory, with the text of its files.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			out.WriteString(path + "\n")
			return err
		}
		text, err := os.ReadFile(path)
		out.WriteString(path + ": " + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// setupArgs are those of a set-up that needs nothing from outside.
func setupArgs(dir string, more ...string) []string {
	return append([]string{
		"setup", "--yes", "--json", "--data", dir, "--hostname", "mail.example.com", "--public-ip", "192.0.2.1", "--tls", "proxy", "--resolver", "127.0.0.1:1",
		"--smtp", "127.0.0.1:0", "--submission", "off", "--submissions", "off", "--imap", "off", "--imaps", "off", "--dns", "off",
	}, more...)
}

// TestRefusedSetupLeavesNothing: setup and init name the wrong flag, and leave all as it was.
func TestRefusedSetupLeavesNothing(t *testing.T) {
	const right = "ops@example.com"
	top := t.TempDir()
	missing := filepath.Join(top, "none", "file")
	for name, c := range map[string]struct {
		args []string
		flag string
	}{
		"an address that is none":         {[]string{"--email", "nobody"}, "--email"},
		"a name with the address":         {[]string{"--email", "Ops <ops@example.com>"}, "--email"},
		"two addresses":                   {[]string{"--email", "ops@example.com,two@example.com"}, "--email"},
		"a blank in it":                   {[]string{"--email", "o ps@example.com"}, "--email"},
		"quotes":                          {[]string{"--email", "\"o ps\"@example.com", "--tls", "acme"}, "--email"},
		"dots that no atom has":           {[]string{"--email", "a..b@example.com"}, "--email"},
		"another's address":               {[]string{"--email", right, "--acme-email", "nobody"}, "--acme-email"},
		"no such place to listen":         {[]string{"--email", right, "--http", "here"}, "--http"},
		"no such way out":                 {[]string{"--email", right, "--outbound", "away"}, "--outbound"},
		"no address":                      {nil, "--email"},
		"a password that is too short":    {[]string{"--email", right, "--owner-password", "short"}, "--owner-password"},
		"a unit in no directory":          {[]string{"--email", right, "--unit", missing}, "--unit"},
		"a unit that is a directory":      {[]string{"--email", right, "--unit", top}, "--unit"},
		"a certificate that is not there": {[]string{"--email", right, "--tls", "files", "--tls-cert", missing, "--tls-key", missing}, "--tls-cert"},
		"authorities that are not there":  {[]string{"--email", right, "--ca-file", missing}, "--ca-file"},
	} {
		for place, before := range map[string]string{"a new directory": "", "one with settings": "# ours\nlog_level = \"debug\"\n"} {
			dir := filepath.Join(t.TempDir(), "a", "data")
			if before != "" {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			was, unit := contents(t, filepath.Dir(dir)), contents(t, top)
			out, err := mailsteadCommand(t, setupArgs(dir, c.args...)...)
			code := exitCode(err, io.Discard)
			if code != 2 || !strings.Contains(err.Error(), c.flag+" ") && !strings.Contains(err.Error(), c.flag+":") || strings.Contains(err.Error(), settingsFile) || out != "" {
				t.Errorf("%s, %s: code %d, %v, %.300s", name, place, code, err, out)
			}
			if now := contents(t, filepath.Dir(dir)); now != was {
				t.Errorf("%s, %s: there is now %.300q, before there was %.300q", name, place, now, was)
			}
			if contents(t, top) != unit {
				t.Errorf("%s: there is now %s", name, contents(t, top))
			}
		}
	}
	for _, args := range [][]string{{"--owner-email", "nobody"}, {"--owner-email", right, "--owner-password", "short"}, {"--owner-email", right, "--plan", "none"}} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, settingsFile), []byte("# ours\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		was := contents(t, dir)
		if out, err := mailsteadCommand(t, append([]string{"init", "--data", dir, "--hostname", "mail.example.com"}, args...)...); !isWrongUse(err) || !strings.Contains(err.Error(), args[len(args)-2]) || out != "" {
			t.Errorf("init %v: %v, %s", args, err, out)
		}
		if now := contents(t, dir); now != was {
			t.Errorf("init %v left %.300q", args, now)
		}
	}
}

// TestSetupAfterOneThatWasEnded: a store whose owner was not made yet gets one, and its secrets are
// shown.
func TestSetupAfterOneThatWasEnded(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mailsteadCommand(t, setupArgs(dir)...); !isWrongUse(err) || !strings.Contains(err.Error(), "--email") {
		t.Errorf("without an address: %v", err)
	}
	unit := filepath.Join(t.TempDir(), "mailstead.service")
	out, err := mailsteadCommand(t, setupArgs(dir, "--email", "ops@example.com", "--unit", unit)...)
	var made struct {
		Email    string `json:"owner_email"`
		Password string `json:"owner_password"`
		Token    string `json:"token"`
	}
	if err != nil || json.Unmarshal([]byte(out), &made) != nil || made.Email != "ops@example.com" || made.Password == "" || made.Token == "" {
		t.Fatalf("%v, %s", err, out)
	}
	if _, err := os.Stat(unit); err != nil {
		t.Error(err)
	}
	out, err = mailsteadCommand(t, setupArgs(dir)...)
	if err != nil || strings.Contains(out, made.Password) || !strings.Contains(out, "ops@example.com") {
		t.Errorf("again: %v, %s", err, out)
	}
}

// TestRefusedRestoreLeavesNothing: neither keys in a directory of its own, nor the directory.
func TestRefusedRestoreLeavesNothing(t *testing.T) {
	data := t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", data, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	backups := t.TempDir()
	archive, target := filepath.Join(backups, "one.tar"), filepath.Join(backups, "many")+"/"
	for _, to := range []string{archive, target} {
		if _, err := mailsteadCommand(t, "backup", "--data", data, "--to", to); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	damaged := filepath.Join(backups, "damaged.tar")
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	hurt := filepath.Join(backups, "hurt")
	if err := os.CopyFS(hurt, os.DirFS(target)); err != nil {
		t.Fatal(err)
	}
	damageLargest(t, hurt)
	for name, args := range map[string][]string{
		"another time of an archive": {"--from", archive, "--at", "2001-01-01T00:00:00Z"},
		"another time of a target":   {"--from", target, "--at", "2001-01-01T00:00:00Z"},
		"a damaged archive":          {"--from", damaged},
		"a damaged target":           {"--from", hurt + "/"},
		"no archive":                 {"--from", filepath.Join(backups, "none.tar")},
		"no identity":                {"--from", archive, "--age-identity", filepath.Join(backups, "none")},
	} {
		for _, there := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "a", "data")
			if there {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			was := contents(t, filepath.Dir(dir))
			if _, err := mailsteadCommand(t, append([]string{"restore", "--data", dir}, args...)...); err == nil {
				t.Errorf("%s is restored", name)
			}
			if now := contents(t, filepath.Dir(dir)); now != was {
				t.Errorf("%s: there is now %.300q, before there was %.300q", name, now, was)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := mailsteadCommand(t, "restore", "--data", dir, "--from", archive); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, store.DatabaseFile)); err != nil {
		t.Error(err)
	}
}

// damageLargest changes a byte of the largest file below a directory.
func damageLargest(t *testing.T, dir string) {
	t.Helper()
	largest, size := "", int64(0)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(largest)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(largest, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWrongPlacesAreToldInSentences: what is named in the place of something else is told in a
// sentence that says what to name, with the code of wrong use.
func TestWrongPlacesAreToldInSentences(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", dir, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	inStore(t, dir, func(tx *store.Tx) error {
		for a := range store.Accounts.All(tx) {
			d := &store.Domain{ID: "dom_1", AccountID: a.ID, Name: "boxes.test", Status: store.DomainComplete, DNSProvider: "builtin"}
			return store.Domains.Put(tx, d)
		}
		return nil
	})
	if _, err := importedAccounts(t, dir, "email,password_hash,name", "ann@boxes.test,$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW,"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(files, "README.md")
	for name, text := range map[string]string{"README.md": "# Title\n", "empty.json": "{}"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bare := t.TempDir()
	for _, c := range []struct{ want, line string }{
		{"README.md has no settings: give --from the account.json", "import settings --from " + file},
		{"empty.json has no settings", "import settings --from " + filepath.Join(files, "empty.json")},
		{"is a directory: give --from the account.json in it", "import settings --from " + files},
		{"is a directory: name one mbox file", "import mbox --to ann@boxes.test --from " + files},
		{"is a file: name the directory of a Maildir", "import maildir --to ann@boxes.test --from " + file},
		{"is a directory: name a CSV file", "import accounts --from " + files},
		{"is a directory: name a CSV file", "import mbox --list " + files},
		{"name the place of the backups with --from", "backup list"},
		{"name the place of the backups with --from", "backup verify"},
		{"there are no backups at " + files + "/x", "backup list --from " + files + "/x"},
		{`backups cannot be at "ftp://x"`, "backup list --from ftp://x"},
		{"there are no backups at " + files + "/x", "restore --data " + bare + " --from " + files + "/x"},
	} {
		args := strings.Fields(c.line)
		if args[0] != "restore" {
			args = append(args, "--data", dir)
		}
		if _, err := mailsteadCommand(t, args...); err == nil || !isWrongUse(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q", c.line, err, c.want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte("[backup]\nto = \""+files+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := mailsteadCommand(t, "backup", "list", "--data", dir); err != nil || !strings.Contains(out, "There is no backup") {
		t.Errorf("the place of the settings: %q, %v", out, err)
	}

	// A store that another process has open.
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = mailsteadCommand(t, "check", "--data", dir)
	var said bytes.Buffer
	if code := exitCode(err, &said); code != 1 || !strings.Contains(said.String(), "the store is in use by another process. That is most likely its server: stop it first") {
		t.Errorf("check beside a server: code %d, %s", code, &said)
	}
}

// TestTextsWithoutWhatIsNotThere: results leave out names that there are none of.
func TestTextsWithoutWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	if _, err := mailsteadCommand(t, "init", "--data", dir, "--owner-email", "ops@example.com"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "accounts.csv")
	if err := os.WriteFile(file, []byte("email,password_hash,name\n,x,\n\"open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := mailsteadCommand(t, "import", "accounts", "--data", dir, "--from", file)
	if err == nil || !strings.Contains(text, "line 2: ") || !strings.Contains(text, "line 3: ") || strings.Contains(text, ": :") {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := mailsteadCommand(t, "job", "resume", "--all", "--data", dir); err != nil || text != "No job was parked.\n" {
		t.Errorf("%q, %v", text, err)
	}
}
