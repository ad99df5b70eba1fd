package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// A flipper changes bytes of the files that a server has open, and looks at what it then answers.
type flipper struct {
	*rig.MailClient
	rnd    *rand.Rand
	sound  string            // the data directory as it was
	bodies map[string]string // what was stored, by subject
	missed int               // answers that something is not there, which is
	ended  int               // servers that ended and said what to do
}

// TestFlips changes one byte of the segments, and one of the database, while the server runs: what
// it serves is what was stored, or an error, or it ends and names the command. The check names the
// damage, and check --rebuild brings the messages back.
func TestFlips(t *testing.T) {
	t.Parallel()
	flips, seed := rig.NumberFrom(t, "MAILSTEAD_FLIPS", 1), uint64(rig.NumberFrom(t, "MAILSTEAD_SEED", 14))
	began := time.Now()
	f := &flipper{MailClient: &rig.MailClient{Instance: rig.Start(t, rig.GenerousLimits)}, rnd: rand.New(rand.NewPCG(seed, 2)), bodies: map[string]string{}}
	f.AddDomain("example.test")
	f.Box = f.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	var subjects []string
	for n := range 8 {
		subjects = append(subjects, fmt.Sprintf("letter%d", n))
	}
	f.Put("INBOX", subjects...)
	f.Put("Work", "work")
	for n := range 4 {
		if err := rig.Transmit(f.Ready.SMTP, rig.AnnsAddress, rig.Letter(fmt.Sprintf("mail%d", n))); err != nil {
			t.Fatal(err)
		}
	}
	f.Until("the mail is there", func() bool { return len(f.Inbox(f.Box)) == 12 })
	far := f.LogIn()
	f.fetch(far, func(subject, body string) { f.bodies[subject] = body })
	far.Close()
	if len(f.bodies) != 12 {
		t.Fatalf("%d messages are there", len(f.bodies))
	}
	f.Stop()
	f.sound = filepath.Join(t.TempDir(), "sound")
	if err := os.CopyFS(f.sound, os.DirFS(f.Dir)); err != nil {
		t.Fatal(err)
	}
	for n := range flips {
		f.round(n, filepath.Join("segments", "00000001.seg"))
		f.round(n, "mailstead.db")
	}
	f.restore()
	f.Start() // for the end of the test
	t.Logf("seed %d: %d flips in each file, %d servers ended, %d answers that something is not there, %s", seed, flips, f.ended, f.missed, time.Since(began).Round(time.Second))
}

// restore puts the data directory back as it was.
func (f *flipper) restore() {
	f.T.Helper()
	list, err := os.ReadDir(f.Dir)
	if err != nil {
		f.T.Fatal(err)
	}
	for _, e := range list {
		os.RemoveAll(filepath.Join(f.Dir, e.Name()))
	}
	if err := os.CopyFS(f.Dir, os.DirFS(f.sound)); err != nil {
		f.T.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(f.Dir, "master.key"), 0o600); err != nil {
		f.T.Fatal(err)
	}
}

// round changes one byte of a file under a server.
func (f *flipper) round(n int, name string) {
	f.T.Helper()
	f.restore()
	f.Start()
	logged, err := f.Log.Seek(0, io.SeekCurrent)
	if err != nil {
		f.T.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(f.Dir, name), os.O_RDWR, 0)
	if err != nil {
		f.T.Fatal(err)
	}
	defer file.Close()
	whole, err := os.ReadFile(filepath.Join(f.sound, name))
	if err != nil {
		f.T.Fatal(err)
	}
	at, bits := f.rnd.Int64N(int64(len(bytes.TrimRight(whole, "\x00")))), byte(1+f.rnd.IntN(255))
	place := fmt.Sprintf("flip %d: %02x at %d of %s", n, bits, at, name)
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		f.T.Fatal(err)
	}
	b[0] ^= bits
	if _, err := file.WriteAt(b[:], at); err != nil {
		f.T.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Cmd.Wait() }()
	served := f.drive(place)
	wait := time.Duration(0)
	if name != "mailstead.db" {
		for way, have := range served { // one byte is in one message at most
			if len(have) < len(f.bodies)-1 {
				f.T.Errorf("%s: of %d messages the %s serves %v", place, len(f.bodies), way, have)
			}
		}
	} else {
		wait = 7 * time.Second // until its pages were verified once more
	}
	select {
	case err := <-ended:
		f.ended++
		if err == nil {
			f.T.Errorf("%s: the server ended by itself, as if all were well", place)
		}
	case <-time.After(wait):
		_ = f.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(40 * time.Second):
			f.T.Errorf("%s: the server does not stop", place)
			_ = f.Cmd.Process.Kill()
			<-ended
		}
	}
	code := f.Cmd.ProcessState.ExitCode()
	f.Cmd = nil
	text, err := os.ReadFile(f.Log.Name())
	if err != nil {
		f.T.Fatal(err)
	}
	text = text[min(int(logged), len(text)):]
	if bytes.Contains(text, []byte("goroutine ")) {
		f.T.Errorf("%s: a trace: %s", place, text[:min(len(text), 4000)])
	}
	if code != 0 && !bytes.Contains(text, []byte("mailstead check --data ")) {
		f.T.Errorf("%s: exit %d, which does not name the command: %s", place, code, text)
	}
	f.mend(place, name)
}

// drive asks for all kinds of things, and gives which messages it got as they were, by way.
func (f *flipper) drive(place string) (served map[string]map[string]bool) {
	f.T.Helper()
	served = map[string]map[string]bool{"IMAP": {}, "API": {}}
	compare := func(way, subject, body string) {
		if want, ok := f.bodies[subject]; ok && body != want {
			f.T.Errorf("%s: by %s %s reads %q, it was %q", place, way, subject, body, want)
		} else if ok {
			served[way][subject] = true
		} else if strings.Contains(body, "Undelivered") && strings.Contains(body, "Subject: flipped") && strings.Contains(place, "mailstead.db") {
			f.missed++ // the address was not found when the message to it was sent
			f.T.Logf("%s: by %s a bounce", place, way)
		} else if !strings.HasPrefix(subject, "flipped") {
			f.T.Errorf("%s: by %s a message %q that nobody sent", place, way, subject)
		}
	}
	for n := range 2 {
		if err := rig.Transmit(f.Ready.SMTP, rig.AnnsAddress, rig.Letter(fmt.Sprintf("flipped%d", n))); err != nil && strings.Contains(err.Error(), ": 5") {
			f.missed++
			f.T.Logf("%s: SMTP: %v", place, err)
		}
		if far, err := imapclient.DialInsecure(f.Ready.IMAP, nil); err == nil {
			if err := far.Login(rig.AnnsAddress, rig.AnnsPassword).Wait(); err != nil {
				f.T.Logf("%s: LOGIN: %v", place, err)
			} else {
				f.fetch(far, func(subject, body string) { compare("IMAP", subject, body) })
			}
			far.Close()
		}
		inbox := "/v1/email-users/" + f.Box + "/inbox"
		f.ask("POST", inbox+"/send", fmt.Sprintf(`{"to": [%q], "subject": "flipped%d", "text": "hello"}`, rig.AnnsAddress, n), func([]byte) error { return nil })
		var list struct{ Data []rig.InboxRow }
		f.ask("GET", inbox+"?limit=50", "", func(text []byte) error { return json.Unmarshal(text, &list) })
		for _, r := range list.Data {
			f.ask("GET", inbox+"/"+r.UID+"/raw", "", func(text []byte) error {
				compare("API", r.Subject, string(text))
				return nil
			})
		}
	}
	return served
}

// ask reads what the API answers.
func (f *flipper) ask(method, path, body string, read func([]byte) error) {
	f.T.Helper()
	req, err := http.NewRequest(method, "http://"+f.Ready.HTTP+path, strings.NewReader(body))
	if err != nil {
		f.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.HTTP.Do(req)
	if err != nil {
		return // it has ended
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil || resp.StatusCode >= 500:
	case resp.StatusCode >= 400:
		f.missed++
		f.T.Logf("%s %s: %d %s", method, path, resp.StatusCode, text)
	default:
		if err := read(text); err != nil {
			f.T.Errorf("%s %s: %v", method, path, err)
		}
	}
	if bytes.Contains(text, []byte("goroutine ")) {
		f.T.Errorf("%s %s gives a trace: %s", method, path, text)
	}
}

// fetch reads what INBOX has.
func (f *flipper) fetch(far *imapclient.Client, show func(subject, body string)) {
	if _, err := far.Select("INBOX", &imap.SelectOptions{ReadOnly: true}).Wait(); err != nil {
		return
	}
	text := &imap.FetchItemBodySection{Peek: true}
	got, _ := far.Fetch(imap.SeqSet{{Start: 1}}, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{text}}).Collect()
	for _, m := range got {
		body := string(m.FindBodySection(text))
		_, subject, _ := strings.Cut(body, "Subject: ")
		subject, _, _ = strings.Cut(subject, "\r\n")
		show(subject, body)
	}
}

// mend checks the store, has it made anew if its database is damaged, and looks for its messages.
func (f *flipper) mend(place, name string) {
	f.T.Helper()
	out, code := rig.Run(f.T, "check", "--data", f.Dir, "--json")
	var found struct {
		Status   string
		Problems []string
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || (code == 0) != (found.Status == "ok") || (code == 0) != (len(found.Problems) == 0) {
		f.T.Errorf("%s: check: exit %d, %v, %s", place, code, err, out)
	}
	if code == 0 || name != "mailstead.db" {
		return
	}
	out, code = rig.Run(f.T, "check", "--rebuild", "--data", f.Dir, "--json")
	var mended struct{ Rebuild struct{ Lost []string } }
	if err := json.Unmarshal([]byte(out), &mended); err != nil || code != 0 {
		f.T.Errorf("%s: check --rebuild: exit %d, %v, %s", place, code, err, out)
		return
	}
	f.T.Logf("%s: lost %q", place, mended.Rebuild.Lost)
	if slices.ContainsFunc(mended.Rebuild.Lost, func(what string) bool { return strings.HasPrefix(what, "account ") }) {
		path, err := rig.Binary()
		if err != nil {
			f.T.Fatal(err)
		}
		ctx, stop := context.WithTimeout(f.T.Context(), time.Minute)
		defer stop()
		out, err := exec.CommandContext(ctx, path, "serve", "--data", f.Dir, "--sandbox").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the account's row was lost") {
			f.T.Errorf("%s: a start without the account: %v, %s", place, err, out)
		}
		return
	}
	f.Start()
	defer f.Stop()
	far, err := imapclient.DialInsecure(f.Ready.IMAP, nil)
	if err != nil {
		f.T.Fatal(err)
	}
	defer far.Close()
	if err := far.Login(rig.AnnsAddress, rig.AnnsPassword).Wait(); err != nil {
		f.T.Logf("%s: after the rebuild: LOGIN: %v", place, err) // its row comes from the backup
		return
	}
	have := map[string]bool{}
	f.fetch(far, func(subject, body string) {
		have[subject] = true
		if want := f.bodies[subject]; want != "" && want != body {
			f.T.Errorf("%s: after the rebuild %s reads %q", place, subject, body)
		}
	})
	for subject := range f.bodies {
		if !have[subject] {
			f.T.Errorf("%s: after the rebuild %s is not there", place, subject)
		}
	}
}

// TestRebuildAfterRestore: the database is an older copy; mail that came since is made anew, flags
// and what was deleted stay as the copy has them.
func TestRebuildAfterRestore(t *testing.T) {
	t.Parallel()
	c := &rig.MailClient{Instance: rig.Start(t, rig.GenerousLimits)}
	c.AddDomain("example.test")
	c.Box = c.AddMailbox(rig.AnnsAddress, rig.AnnsPassword)
	c.Put("INBOX", "one", "two", "three")
	c.Change("INBOX", `STORE 1 +FLAGS (\Flagged)`, `STORE 2 +FLAGS (\Deleted)`, "EXPUNGE")
	c.Stop()
	database := filepath.Join(c.Dir, "mailstead.db")
	older, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	c.Start()
	c.Put("INBOX", "four")
	if err := rig.Transmit(c.Ready.SMTP, rig.AnnsAddress, rig.Letter("five")); err != nil {
		t.Fatal(err)
	}
	c.Until("the mail is there", func() bool { return len(c.Inbox(c.Box)) == 4 })
	c.Stop()
	if err := os.WriteFile(database, older, 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := rig.Run(t, "check", "--rebuild", "--data", c.Dir, "--json")
	var r struct {
		Status  string
		Rebuild struct {
			Database string
			Waiting  int
			Made     struct{ Inbox int }
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Status != "ok" || r.Rebuild.Database != "" || r.Rebuild.Waiting+r.Rebuild.Made.Inbox != 2 {
		t.Errorf("check --rebuild: exit %d, %v, %s", code, err, out)
	}
	c.Start()
	var subjects []string
	for _, row := range c.Inbox(c.Box) {
		subjects = append(subjects, row.Subject)
	}
	if len(subjects) != 4 || !strings.Contains(fmt.Sprint(subjects), "four") || !strings.Contains(fmt.Sprint(subjects), "five") {
		t.Errorf("INBOX has %q", subjects)
	}
	c.Stop()
	if out, code := rig.Run(t, "check", "--rebuild", "--data", c.Dir); code != 0 || !strings.Contains(out, "0 in their places, 0 in INBOX") {
		t.Errorf("the second time: exit %d, %s", code, out)
	}
}
