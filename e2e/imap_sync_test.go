package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	m.must(os.WriteFile(filepath.Join(m.dir, folder, "new", "1."+subject+".host"), []byte(strings.ReplaceAll(imapLetter(subject), "\r", "")), 0o600))
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

// change does on the far side what another client would.
func (c *mailClient) change(folder string, commands ...string) {
	c.t.Helper()
	script := "S: .*\nC: l LOGIN " + annsAddress + " \"" + annsPassword + "\"\nS: l OK .*\nC: s SELECT " + folder + "\nS: s OK .*\n"
	for n, command := range commands {
		script += fmt.Sprintf("C: %d %s\nS: %d OK .*\n", n, command, n)
	}
	c.play(script)
}

// TestIMAPWithMbsync lets isync keep a tree and the mailbox alike through changes on both sides: a
// session of rounds, with compression, as a user has it over days.
func TestIMAPWithMbsync(t *testing.T) {
	t.Parallel()
	mbsync := peer(t, "mbsync")
	c, near := newMailClient(t, "mbsync"), maildir{t, t.TempDir()}
	config := fmt.Sprintf("IMAPAccount a\nHost %s\nPort %s\nUser %s\nPass %q\nSSLType None\nAuthMechs LOGIN\n\nIMAPStore far\nAccount a\n\n"+
		"MaildirStore near\nPath %[5]s/\nInbox %[5]s/INBOX\nSubFolders Verbatim\n\nChannel c\nFar :far:\nNear :near:\nPatterns *\n"+
		"Create Both\nRemove Both\nExpunge Both\nSyncState *\nCopyArrivalDate yes\n", c.host, c.port, annsAddress, annsPassword, near.dir)
	rc := filepath.Join(t.TempDir(), "rc")
	near.must(os.WriteFile(rc, []byte(config), 0o600))
	sync := func() { t.Helper(); c.run(near.dir, mbsync, "-c", rc, "-a") }

	c.put("INBOX", "one", "two", "three", "four")
	c.put("Work/Plans", "plan")
	if out := c.run(near.dir, mbsync, "-D", "-c", rc, "-a"); !strings.Contains(out, " OK COMPRESS completed") {
		t.Errorf("mbsync does not compress: %s", out)
	}
	near.holds("INBOX", "one", "two", "three", "four")
	near.holds("Work/Plans", "plan")
	c.did("log in", "list", "select", "fetch", "compress")

	near.mark("INBOX", "one", "FS")
	near.drop("INBOX", "near")
	near.drop("Fresh", "first")
	c.change("INBOX", `UID STORE 2 +FLAGS (\Answered)`, "UID MOVE 3 Work/Plans")
	sync()
	sync()
	c.holds("INBOX", `one \Flagged \Seen`, `two \Answered`, "four", "near")
	c.holds("Fresh", "first")
	near.holds("INBOX", "one FS", "two R", "four", "near")
	near.holds("Work/Plans", "plan", "three")
	c.did("flags", "append", "folders")

	near.remove("INBOX", "four")
	near.drop("Fresh", "four") // a move, as Maildir has it
	c.change("INBOX", `UID STORE 1 -FLAGS (\Flagged)`, `UID STORE 2 +FLAGS (\Deleted)`, "EXPUNGE")
	sync()
	sync()
	c.holds("INBOX", `one \Seen`, "near")
	c.holds("Fresh", "first", "four")
	near.holds("INBOX", "one S", "near")
	c.did("expunge")

	for round := range 3 {
		near.drop("INBOX", fmt.Sprintf("near%d", round))
		c.put("INBOX", fmt.Sprintf("far%d", round))
		sync()
		near.remove("INBOX", fmt.Sprintf("far%d", round))
		c.change("INBOX", `STORE * +FLAGS (\Seen)`)
		sync()
	}
	sync()
	var subjects []string
	for subject := range near.letters("INBOX") {
		subjects = append(subjects, subject)
	}
	if got := c.mail()["INBOX"]; len(got) != 5 || len(subjects) != 5 {
		t.Errorf("after three rounds far has %q, near %q", got, subjects)
	}
}

// TestIMAPWithOfflineIMAP is the same with offlineimap.
func TestIMAPWithOfflineIMAP(t *testing.T) {
	t.Parallel()
	program := peer(t, "offlineimap")
	c, near := newMailClient(t, "offlineimap"), maildir{t, filepath.Join(t.TempDir(), "mail")}
	home := t.TempDir()
	config := fmt.Sprintf("[general]\naccounts = a\nmetadata = %s/meta\n\n[Account a]\nlocalrepository = near\nremoterepository = far\n\n"+
		"[Repository near]\ntype = Maildir\nlocalfolders = %s\nsep = /\n\n[Repository far]\ntype = IMAP\nremotehost = %s\nremoteport = %s\n"+
		"remoteuser = %s\nremotepass = %s\nssl = no\nstarttls = no\nauth_mechanisms = LOGIN\n",
		home, near.dir, c.host, c.port, annsAddress, annsPassword)
	rc := filepath.Join(home, "rc")
	near.must(os.WriteFile(rc, []byte(config), 0o600))
	sync := func() { t.Helper(); c.run(home, program, "-c", rc, "-o", "-u", "quiet") }

	c.put("INBOX", "one", "two", "three")
	c.put("Work/Plans", "plan")
	sync()
	near.holds("INBOX", "one", "two", "three")
	near.holds("Work/Plans", "plan")
	c.did("log in", "list", "select", "fetch")

	near.mark("INBOX", "one", "FS")
	near.drop("INBOX", "near")
	near.drop("Fresh", "first")
	c.change("INBOX", `UID STORE 2 +FLAGS (\Answered)`, "UID MOVE 3 Work/Plans")
	sync()
	c.holds("INBOX", `one \Flagged \Seen`, `two \Answered`, "near")
	c.holds("Fresh", "first")
	near.holds("Work/Plans", "plan", "three")
	c.did("flags", "append", "folders")

	near.remove("INBOX", "two")
	c.change("Work/Plans", `UID STORE 1 +FLAGS (\Deleted)`, "EXPUNGE")
	sync()
	c.holds("INBOX", `one \Flagged \Seen`, "near")
	near.holds("INBOX", "one FS", "near")
	near.holds("Work/Plans", "three")
	c.did("expunge")
}
