package peers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/e2e/rig"
)

// newMailClient starts a server with the mailbox ann@example.test, and holds at the test's end what
// the client has done against its row in docs/imap.md.
func newMailClient(t *testing.T, name string) *rig.MailClient {
	t.Helper()
	c := startMailClient(t, name)
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			compareRow(c, t)
		}
	})
	return c
}

// startMailClient is newMailClient for a test of something that is no row of the table.
func startMailClient(t *testing.T, name string) *rig.MailClient {
	t.Helper()
	c := &rig.MailClient{Instance: rig.Start(t, rig.GenerousLimits), Name: name}
	c.AddDomain("example.test")
	c.Box = c.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	c.Host, c.Port, _ = net.SplitHostPort(c.Ready.IMAP)
	return c
}

// compareRow demands that the table in docs/imap.md says of the client what it has done, no more
// and no less.
func compareRow(c *rig.MailClient, t *testing.T) {
	text, err := os.ReadFile(rig.FromRoot("docs/imap.md"))
	if err != nil {
		t.Fatal(err)
	}
	var header []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "client" {
			header = cells
		}
		if cells[0] != c.Name || header == nil {
			continue
		}
		for i, operation := range header[1:] {
			if said, is := cells[i+1] == "✓", slices.Contains(c.Done, operation); said != is {
				t.Errorf("docs/imap.md says of %s and %s %v, the test %v", c.Name, operation, said, is)
			}
		}
		for _, operation := range c.Done {
			if !slices.Contains(header, operation) {
				t.Errorf("docs/imap.md has no column %s", operation)
			}
		}
		return
	}
	t.Errorf("docs/imap.md has no row for %s", c.Name)
}

// mail gives what each folder that is not empty holds: subjects, each with its flags.
func mail(c *rig.MailClient) map[string][]string {
	c.T.Helper()
	far := c.LogIn()
	defer far.Close()
	lists, err := far.List("", "*", nil).Collect()
	if err != nil {
		c.T.Fatal(err)
	}
	out := map[string][]string{}
	for _, l := range lists {
		if _, err := far.Select(l.Mailbox, &imap.SelectOptions{ReadOnly: true}).Wait(); err != nil {
			c.T.Fatal(err)
		}
		messages, err := far.Fetch(imap.SeqSet{{Start: 1}}, &imap.FetchOptions{Envelope: true, Flags: true}).Collect()
		if err != nil {
			c.T.Fatal(err)
		}
		for _, m := range messages {
			text := m.Envelope.Subject
			slices.Sort(m.Flags)
			for _, f := range m.Flags {
				text += " " + string(f)
			}
			out[l.Mailbox] = append(out[l.Mailbox], text)
		}
		slices.Sort(out[l.Mailbox])
	}
	return out
}

// holds demands what a folder has.
func holds(c *rig.MailClient, folder string, want ...string) {
	c.T.Helper()
	slices.Sort(want)
	if got := mail(c)[folder]; !slices.Equal(got, want) {
		c.T.Fatalf("%s has %q, want %q", folder, got, want)
	}
}

// TestIMAPTranscripts plays sessions in the manner of clients that no test can run. A line "C: " is
// sent, several in one go if no "S: " comes between; a line "S: " is a pattern that a line of the
// answer must fit, others before it are passed over.
func TestIMAPTranscripts(t *testing.T) {
	t.Parallel()
	for file, name := range map[string]string{"thunderbird.txt": "Thunderbird (transcript)", "applemail.txt": "Apple Mail (transcript)"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			c := newMailClient(t, name)
			c.Put("INBOX", "one", "two", "three")
			text, err := os.ReadFile(filepath.Join("testdata/imap", file))
			if err != nil {
				t.Fatal(err)
			}
			c.Play(string(text))
		})
	}
}

// TestIMAPTableIsWhole demands a test for every row of the table, whose names are told here.
func TestIMAPTableIsWhole(t *testing.T) {
	text, err := os.ReadFile(rig.FromRoot("docs/imap.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mbsync", "offlineimap", "mutt", "neomutt", "curl", "imaplib", "imapflow", "Thunderbird (transcript)", "Apple Mail (transcript)"} {
		if !strings.Contains(string(text), fmt.Sprintf("\n| %s |", name)) {
			t.Errorf("docs/imap.md has no row for %s", name)
		}
	}
}

// A maildir is a tree of Maildir folders that a synchronising client keeps beside the mailbox.
type maildir struct {
	t   *testing.T
	dir string
}

// letters gives the files of a folder by the subject in them.
func (m maildir) letters(folder string) map[string]string {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, folder, "[cn][ue][rw]", "*"))
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			m.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nSubject: ")
		subject, _, _ := strings.Cut(rest, "\n")
		out[strings.TrimSpace(subject)] = f
	}
	return out
}

// holds demands the subjects in a folder, each with the letters of its flags.
func (m maildir) holds(folder string, want ...string) {
	m.t.Helper()
	var got []string
	for subject, file := range m.letters(folder) {
		if _, flags, _ := strings.Cut(filepath.Base(file), ":2,"); flags != "" {
			subject += " " + flags
		}
		got = append(got, subject)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Fatalf("near, %s has %q, want %q", folder, got, want)
	}
}

// mark gives a letter other flags, as a mail reader does.
func (m maildir) mark(folder, subject, flags string) {
	m.t.Helper()
	file := m.letters(folder)[subject]
	name, _, _ := strings.Cut(filepath.Base(file), ":2,")
	m.must(os.Rename(file, filepath.Join(m.dir, folder, "cur", name+":2,"+flags)))
}

// drop writes a new letter into a folder, which is made if it is missing.
func (m maildir) drop(folder, subject string) {
	m.t.Helper()
	for _, sub := range []string{"cur", "new", "tmp"} {
		m.must(os.MkdirAll(filepath.Join(m.dir, folder, sub), 0o700))
	}
	m.must(os.WriteFile(filepath.Join(m.dir, folder, "new", "1."+subject+".host"), []byte(strings.ReplaceAll(rig.IMAPLetter(subject), "\r", "")), 0o600))
}

func (m maildir) remove(folder, subject string) {
	m.t.Helper()
	m.must(os.Remove(m.letters(folder)[subject]))
}

func (m maildir) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func mbsyncConfig(c *rig.MailClient, near maildir) string {
	return fmt.Sprintf("IMAPAccount a\nHost %s\nPort %s\nUser %s\nPass %q\nSSLType None\nAuthMechs LOGIN\n\nIMAPStore far\nAccount a\n\n"+
		"MaildirStore near\nPath %[5]s/\nInbox %[5]s/INBOX\nSubFolders Verbatim\n\nChannel c\nFar :far:\nNear :near:\nPatterns *\n"+
		"Create Both\nRemove Both\nExpunge Both\nSyncState *\nCopyArrivalDate yes\n", c.Host, c.Port, rig.AnnsAddress, rig.AnnsPassword, near.dir)
}

// TestIMAPWithMbsync lets isync keep a tree and the mailbox alike through changes on both sides: a
// session of rounds, with compression, as a user has it over days.
func TestIMAPWithMbsync(t *testing.T) {
	t.Parallel()
	mbsync := rig.Peer(t, "mbsync")
	c, near := newMailClient(t, "mbsync"), maildir{t, t.TempDir()}
	rc := filepath.Join(t.TempDir(), "rc")
	near.must(os.WriteFile(rc, []byte(mbsyncConfig(c, near)), 0o600))
	sync := func() { t.Helper(); runTool(c, near.dir, mbsync, "-c", rc, "-a") }

	c.Put("INBOX", "one", "two", "three", "four")
	c.Put("Work/Plans", "plan")
	if out := runTool(c, near.dir, mbsync, "-D", "-c", rc, "-a"); !strings.Contains(out, " OK COMPRESS completed") {
		t.Errorf("mbsync does not compress: %s", out)
	}
	near.holds("INBOX", "one", "two", "three", "four")
	near.holds("Work/Plans", "plan")
	c.NoteDone("log in", "list", "select", "fetch", "compress")

	near.mark("INBOX", "one", "FS")
	near.drop("INBOX", "near")
	near.drop("Fresh", "first")
	c.Change("INBOX", `UID STORE 2 +FLAGS (\Answered)`, "UID MOVE 3 Work/Plans")
	sync()
	sync()
	holds(c, "INBOX", `one \Flagged \Seen`, `two \Answered`, "four", "near")
	holds(c, "Fresh", "first")
	near.holds("INBOX", "one FS", "two R", "four", "near")
	near.holds("Work/Plans", "plan", "three")
	c.NoteDone("flags", "append", "folders")

	near.remove("INBOX", "four")
	near.drop("Fresh", "four") // a move, as Maildir has it
	c.Change("INBOX", `UID STORE 1 -FLAGS (\Flagged)`, `UID STORE 2 +FLAGS (\Deleted)`, "EXPUNGE")
	sync()
	sync()
	holds(c, "INBOX", `one \Seen`, "near")
	holds(c, "Fresh", "first", "four")
	near.holds("INBOX", "one S", "near")
	c.NoteDone("expunge")

	for round := range 3 {
		near.drop("INBOX", fmt.Sprintf("near%d", round))
		c.Put("INBOX", fmt.Sprintf("far%d", round))
		sync()
		near.remove("INBOX", fmt.Sprintf("far%d", round))
		c.Change("INBOX", `STORE * +FLAGS (\Seen)`)
		sync()
	}
	sync()
	var subjects []string
	for subject := range near.letters("INBOX") {
		subjects = append(subjects, subject)
	}
	if got := mail(c)["INBOX"]; len(got) != 5 || len(subjects) != 5 {
		t.Errorf("after three rounds far has %q, near %q", got, subjects)
	}
}

func offlineimapConfig(c *rig.MailClient, near maildir, home string) string {
	return fmt.Sprintf("[general]\naccounts = a\nmetadata = %s/meta\n\n[Account a]\nlocalrepository = near\nremoterepository = far\n\n"+
		"[Repository near]\ntype = Maildir\nlocalfolders = %s\nsep = /\n\n[Repository far]\ntype = IMAP\nremotehost = %s\nremoteport = %s\n"+
		"remoteuser = %s\nremotepass = %s\nssl = no\nstarttls = no\nauth_mechanisms = LOGIN\n",
		home, near.dir, c.Host, c.Port, rig.AnnsAddress, rig.AnnsPassword)
}

// TestIMAPWithOfflineIMAP is the same with offlineimap.
func TestIMAPWithOfflineIMAP(t *testing.T) {
	t.Parallel()
	program := rig.Peer(t, "offlineimap")
	c, near := newMailClient(t, "offlineimap"), maildir{t, filepath.Join(t.TempDir(), "mail")}
	home := t.TempDir()
	rc := filepath.Join(home, "rc")
	near.must(os.WriteFile(rc, []byte(offlineimapConfig(c, near, home)), 0o600))
	sync := func() { t.Helper(); runTool(c, home, program, "-c", rc, "-o", "-u", "quiet") }

	c.Put("INBOX", "one", "two", "three")
	c.Put("Work/Plans", "plan")
	sync()
	near.holds("INBOX", "one", "two", "three")
	near.holds("Work/Plans", "plan")
	c.NoteDone("log in", "list", "select", "fetch")

	near.mark("INBOX", "one", "FS")
	near.drop("INBOX", "near")
	near.drop("Fresh", "first")
	c.Change("INBOX", `UID STORE 2 +FLAGS (\Answered)`, "UID MOVE 3 Work/Plans")
	sync()
	holds(c, "INBOX", `one \Flagged \Seen`, `two \Answered`, "near")
	holds(c, "Fresh", "first")
	near.holds("Work/Plans", "plan", "three")
	c.NoteDone("flags", "append", "folders")

	near.remove("INBOX", "two")
	c.Change("Work/Plans", `UID STORE 1 +FLAGS (\Deleted)`, "EXPUNGE")
	sync()
	holds(c, "INBOX", `one \Flagged \Seen`, "near")
	near.holds("INBOX", "one FS", "near")
	near.holds("Work/Plans", "three")
	c.NoteDone("expunge")
}

// runTool runs a client to its end within a minute and gives what it printed.
func runTool(c *rig.MailClient, dir string, command ...string) string {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "TERM=xterm")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.T.Fatalf("%s: %v\n%s\n%s", strings.Join(command, " "), err, out, errs.String())
	}
	return string(out)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestIMAPWithImaplib walks through everything that Python's own client has a method for.
func TestIMAPWithImaplib(t *testing.T) {
	t.Parallel()
	python := rig.Peer(t, "python3")
	c := newMailClient(t, "imaplib")
	c.Put("INBOX", "one", "two", "three")
	out := runTool(c, t.TempDir(), python, absolute(t, "testdata/imap/with_imaplib.py"), c.Host, c.Port, rig.AnnsAddress, rig.AnnsPassword)
	c.NoteDone(strings.Split(strings.TrimSpace(out), "\n")...)
	holds(c, "INBOX", `one \Seen`)
	holds(c, "Archive", `one \Seen`)
	holds(c, "Work/Done", `two Later \Flagged`)
	holds(c, "Drafts", `draft \Draft`)
}

// TestIMAPWithImapflow is the same with imapflow, which npm installs from the lock file in
// testdata/imap, and an app password.
func TestIMAPWithImapflow(t *testing.T) {
	t.Parallel()
	node, dir := imapflow(t)
	t.Run("operations", func(t *testing.T) {
		c := newMailClient(t, "imapflow")
		c.Put("INBOX", "one", "two", "three")
		c.Want(200, "PATCH", "/v1/email-users/"+c.Box, map[string]any{"quota_bytes": 10 << 20}, nil)
		out := runTool(c, dir, node, "imapflow.mjs", c.Host, c.Port, rig.AnnsAddress, c.AppPassword(c.Box, nil).Password)
		c.NoteDone(strings.Split(strings.TrimSpace(out), "\n")...)
		holds(c, "INBOX", `one \Answered`, "new")
		holds(c, "Archive", `one \Answered`)
		holds(c, "Work/Done", `two $Later \Flagged`)
	})
	t.Run("objects", func(t *testing.T) { objectsWithImapflow(t, node, dir) })
}

// imapflow gives a directory with imapflow and the scripts for it, and what runs them.
func imapflow(t *testing.T) (node, dir string) {
	t.Helper()
	node, npm := rig.Peer(t, "node"), rig.Peer(t, "npm")
	dir = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "imapflow.mjs", "imapflow_objects.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata/imap", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("npm ci: %v\n%s", err, out)
	} else if err != nil {
		t.Skipf("npm cannot install imapflow: %v", err)
	}
	return node, dir
}

// TestIMAPWithCurl has what people do from a shell.
func TestIMAPWithCurl(t *testing.T) {
	t.Parallel()
	curl := rig.Peer(t, "curl")
	c := newMailClient(t, "curl")
	c.Put("INBOX", "one", "two", "three")
	dir := t.TempDir()
	ask := func(want, path string, args ...string) {
		t.Helper()
		url := "imap://" + c.Ready.IMAP + "/" + path
		out := runTool(c, dir, append([]string{curl, "--silent", "--show-error", "--user", rig.AnnsAddress + ":" + rig.AnnsPassword, url}, args...)...)
		if !strings.Contains(out, want) {
			t.Errorf("curl %s %v: %q, want %q", path, args, out, want)
		}
	}
	ask(`"Sent"`, "")
	c.NoteDone("log in", "list")
	ask("Hello two", "INBOX;UID=2")
	ask("FLAGS", "INBOX", "-X", "FETCH 1:* (FLAGS)")
	c.NoteDone("select", "fetch")
	ask("Subject: two", "INBOX;UID=2;SECTION=HEADER.FIELDS%20(SUBJECT)")
	ask("lo two", "INBOX;UID=2;SECTION=TEXT;PARTIAL=3.20")
	c.NoteDone("parts")
	ask("* SEARCH 3", "INBOX?SUBJECT%20three")
	c.NoteDone("search")
	letter := filepath.Join(dir, "letter")
	if err := os.WriteFile(letter, []byte(rig.IMAPLetter("sent")), 0o600); err != nil {
		t.Fatal(err)
	}
	ask("", "Sent", "--upload-file", letter)
	holds(c, "Sent", `sent \Seen`)
	c.NoteDone("append")
	ask("", "INBOX", "-X", "UID STORE 3 +FLAGS.SILENT (\\Deleted)")
	ask("* 3 EXPUNGE", "INBOX", "-X", "EXPUNGE")
	c.NoteDone("flags", "expunge")
	ask("", "INBOX", "-X", "UID COPY 1 Archive")
	ask("", "INBOX", "-X", "UID MOVE 2 Archive")
	c.NoteDone("copy", "move")
	ask("", "", "-X", "CREATE Work")
	ask("", "", "-X", "RENAME Work Done")
	ask("", "", "-X", "SUBSCRIBE Done")
	ask("Done", "", "-X", `LSUB "" *`)
	ask("", "", "-X", "DELETE Done")
	c.NoteDone("folders", "subscribe")
	ask("QUOTAROOT", "", "-X", "GETQUOTAROOT INBOX")
	c.NoteDone("quota")
	holds(c, "INBOX", "one")
	holds(c, "Archive", "one", `two \Seen`)
}
