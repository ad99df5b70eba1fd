package faults

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/e2e/rig"
)

// TestDamagedDisk: one byte of a message has changed on the disk. The others are served, that one
// is not, and the check says whose it is. Then pages of the database are damaged, which it names
// too.
func TestDamagedDisk(t *testing.T) {
	t.Parallel()
	c := &rig.MailClient{Instance: rig.Start(t, rig.GenerousLimits)}
	c.AddDomain("example.test")
	c.Box = c.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	c.Put("INBOX", "one", "two", "three")
	segment, database := filepath.Join(c.Dir, "segments", "00000001.seg"), filepath.Join(c.Dir, "mailstead.db")
	replaceIn(t, segment, "Hello two", "Hullo two")

	far := c.LogIn()
	defer far.Close()
	if _, err := far.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	text := &imap.FetchItemBodySection{Peek: true}
	got, err := far.Fetch(imap.SeqSet{{Start: 1, Stop: 3}}, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{text}}).Collect()
	if no := new(imap.Error); len(got) != 2 || !errors.As(err, &no) || no.Code != imap.ResponseCodeCorruption || !strings.HasSuffix(no.Text, "UID 2") {
		t.Errorf("FETCH gave %d messages and %v", len(got), err)
	}
	for i, subject := range []string{"one", "three"} {
		if i < len(got) && string(got[i].FindBodySection(text)) != rig.IMAPLetter(subject) {
			t.Errorf("FETCH of %s: %q", subject, got[i].FindBodySection(text))
		}
	}
	_, _ = far.Fetch(imap.SeqSet{{Start: 1, Stop: 3}}, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{{}}}).Collect()
	marked, err := far.Fetch(imap.SeqSet{{Start: 1, Stop: 3}}, &imap.FetchOptions{Flags: true}).Collect()
	if err != nil || len(marked) != 3 {
		t.Errorf("FETCH of flags gave %d messages and %v", len(marked), err)
	}
	for _, m := range marked {
		if seen := slices.Contains(m.Flags, imap.FlagSeen); seen != (m.SeqNum != 2) { // nobody has seen the damaged one
			t.Errorf("message %d: seen is %v", m.SeqNum, seen)
		}
	}
	inbox := "/v1/email-users/" + c.Box + "/inbox/"
	for path, status := range map[string]int{"1": 200, "2": 500, "2/raw": 500, "3/raw": 200} {
		if got := c.Do("GET", inbox+path, nil, nil); got != status {
			t.Errorf("GET %s: status %d, want %d", path, got, status)
		}
	}
	far.Close()
	c.Stop()
	checkFinds(c.Instance, `message at \d+ in segment 00000001: body checksum: .* message 2 in folder 1 of ann@example.test`)

	replaceIn(t, segment, "Hullo two", "Hello two")
	if out, code := rig.Run(t, "check", "--data", c.Dir); code != 0 {
		t.Errorf("the check of a mended store: %s", out)
	}
	data, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	for page := 0; page < len(data); page += os.Getpagesize() {
		if bytes.Contains(data[page:page+os.Getpagesize()], []byte(`"Email":"owner@example.org"`)) {
			data[page+8] ^= 0x40 // the kind of the page
		}
	}
	if err := os.WriteFile(database, data, 0o600); err != nil {
		t.Fatal(err)
	}
	checkFinds(c.Instance, `page \d+ of the list of buckets is damaged`)
}

// checkFinds demands that the check fails and says something.
func checkFinds(i *rig.Instance, pattern string) {
	i.T.Helper()
	path, err := rig.Binary()
	if err != nil {
		i.T.Fatal(err)
	}
	cmd := exec.Command(path, "check", "--data", i.Dir)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !regexp.MustCompile(pattern).Match(out) || bytes.Contains(out, []byte("goroutine ")) {
		i.T.Errorf("check: exit %d, %s\nwant %s", cmd.ProcessState.ExitCode(), out, pattern)
	}
}

// replaceIn changes a text that a file has once.
func replaceIn(t *testing.T, file, from, to string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil || bytes.Count(data, []byte(from)) != 1 || len(from) != len(to) {
		t.Fatalf("%s: %q is not there once, %v", file, from, err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(to), int64(bytes.Index(data, []byte(from)))); err != nil {
		t.Fatal(err)
	}
}
