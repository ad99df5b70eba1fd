package e2e

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
)

// A flipper changes bytes of the files that a server has open, and looks at what it then answers.
type flipper struct {
	*mailClient
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
	flips, seed := numberFrom(t, "MAILSTEAD_FLIPS", 1), uint64(numberFrom(t, "MAILSTEAD_SEED", 14))
	began := time.Now()
	f := &flipper{mailClient: &mailClient{instance: newInstance(t, generousLimits)}, rnd: rand.New(rand.NewPCG(seed, 2)), bodies: map[string]string{}}
	f.addDomain("example.test")
	f.box = f.addMailbox(annsAddress, annsPassword)
	var subjects []string
	for n := range 8 {
		subjects = append(subjects, fmt.Sprintf("letter%d", n))
	}
	f.put("INBOX", subjects...)
	f.put("Work", "work")
	for n := range 4 {
		if err := transmit(f.ready.SMTP, annsAddress, letter(fmt.Sprintf("mail%d", n))); err != nil {
			t.Fatal(err)
		}
	}
	f.until("the mail is there", func() bool { return len(f.inbox(f.box)) == 12 })
	far := f.far()
	f.fetch(far, func(subject, body string) { f.bodies[subject] = body })
	far.Close()
	if len(f.bodies) != 12 {
		t.Fatalf("%d messages are there", len(f.bodies))
	}
	f.stop()
	f.sound = filepath.Join(t.TempDir(), "sound")
	if err := os.CopyFS(f.sound, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	for n := range flips {
		f.round(n, filepath.Join("segments", "00000001.seg"))
		f.round(n, "mailstead.db")
	}
	f.restore()
	f.start() // for the end of the test
	t.Logf("seed %d: %d flips in each file, %d servers ended, %d answers that something is not there, %s", seed, flips, f.ended, f.missed, time.Since(began).Round(time.Second))
}

// restore puts the data directory back as it was.
func (f *flipper) restore() {
	f.t.Helper()
	list, err := os.ReadDir(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range list {
		os.RemoveAll(filepath.Join(f.dir, e.Name()))
	}
	if err := os.CopyFS(f.dir, os.DirFS(f.sound)); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(f.dir, "master.key"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// round changes one byte of a file under a server.
func (f *flipper) round(n int, name string) {
	f.t.Helper()
	f.restore()
	f.start()
	logged, err := f.log.Seek(0, io.SeekCurrent)
	if err != nil {
		f.t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_RDWR, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	whole, err := os.ReadFile(filepath.Join(f.sound, name))
	if err != nil {
		f.t.Fatal(err)
	}
	at, bits := f.rnd.Int64N(int64(len(bytes.TrimRight(whole, "\x00")))), byte(1+f.rnd.IntN(255))
	place := fmt.Sprintf("flip %d: %02x at %d of %s", n, bits, at, name)
	var b [1]byte
	if _, err := file.ReadAt(b[:], at); err != nil {
		f.t.Fatal(err)
	}
	b[0] ^= bits
	if _, err := file.WriteAt(b[:], at); err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.cmd.Wait() }()
	served := f.drive(place)
	wait := time.Duration(0)
	if name != "mailstead.db" {
		for way, have := range served { // one byte is in one message at most
			if len(have) < len(f.bodies)-1 {
				f.t.Errorf("%s: of %d messages the %s serves %v", place, len(f.bodies), way, have)
			}
		}
	} else {
		wait = 7 * time.Second // until its pages were verified once more
	}
	select {
	case err := <-ended:
		f.ended++
		if err == nil {
			f.t.Errorf("%s: the server ended by itself, as if all were well", place)
		}
	case <-time.After(wait):
		_ = f.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(40 * time.Second):
			f.t.Errorf("%s: the server does not stop", place)
			_ = f.cmd.Process.Kill()
			<-ended
		}
	}
	code := f.cmd.ProcessState.ExitCode()
	f.cmd = nil
	text, err := os.ReadFile(f.log.Name())
	if err != nil {
		f.t.Fatal(err)
	}
	text = text[min(int(logged), len(text)):]
	if bytes.Contains(text, []byte("goroutine ")) {
		f.t.Errorf("%s: a trace: %s", place, text[:min(len(text), 4000)])
	}
	if code != 0 && !bytes.Contains(text, []byte("mailstead check --data ")) {
		f.t.Errorf("%s: exit %d, which does not name the command: %s", place, code, text)
	}
	f.mend(place, name)
}

// drive asks for all kinds of things, and gives which messages it got as they were, by way.
func (f *flipper) drive(place string) (served map[string]map[string]bool) {
	f.t.Helper()
	served = map[string]map[string]bool{"IMAP": {}, "API": {}}
	compare := func(way, subject, body string) {
		if want, ok := f.bodies[subject]; ok && body != want {
			f.t.Errorf("%s: by %s %s reads %q, it was %q", place, way, subject, body, want)
		} else if ok {
			served[way][subject] = true
		} else if strings.Contains(body, "Undelivered") && strings.Contains(body, "Subject: flipped") && strings.Contains(place, "mailstead.db") {
			f.missed++ // the address was not found when the message to it was sent
			f.t.Logf("%s: by %s a bounce", place, way)
		} else if !strings.HasPrefix(subject, "flipped") {
			f.t.Errorf("%s: by %s a message %q that nobody sent", place, way, subject)
		}
	}
	for n := range 2 {
		if err := transmit(f.ready.SMTP, annsAddress, letter(fmt.Sprintf("flipped%d", n))); err != nil && strings.Contains(err.Error(), ": 5") {
			f.missed++
			f.t.Logf("%s: SMTP: %v", place, err)
		}
		if far, err := imapclient.DialInsecure(f.ready.IMAP, nil); err == nil {
			if err := far.Login(annsAddress, annsPassword).Wait(); err != nil {
				f.t.Logf("%s: LOGIN: %v", place, err)
			} else {
				f.fetch(far, func(subject, body string) { compare("IMAP", subject, body) })
			}
			far.Close()
		}
		inbox := "/v1/email-users/" + f.box + "/inbox"
		f.ask("POST", inbox+"/send", fmt.Sprintf(`{"to": [%q], "subject": "flipped%d", "text": "hello"}`, annsAddress, n), func([]byte) error { return nil })
		var list struct{ Data []row }
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
	f.t.Helper()
	req, err := http.NewRequest(method, "http://"+f.ready.HTTP+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(req)
	if err != nil {
		return // it has ended
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil || resp.StatusCode >= 500:
	case resp.StatusCode >= 400:
		f.missed++
		f.t.Logf("%s %s: %d %s", method, path, resp.StatusCode, text)
	default:
		if err := read(text); err != nil {
			f.t.Errorf("%s %s: %v", method, path, err)
		}
	}
	if bytes.Contains(text, []byte("goroutine ")) {
		f.t.Errorf("%s %s gives a trace: %s", method, path, text)
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
	f.t.Helper()
	out, code := mailstead(f.t, "check", "--data", f.dir, "--json")
	var found struct {
		Status   string
		Problems []string
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || (code == 0) != (found.Status == "ok") || (code == 0) != (len(found.Problems) == 0) {
		f.t.Errorf("%s: check: exit %d, %v, %s", place, code, err, out)
	}
	if code == 0 || name != "mailstead.db" {
		return
	}
	out, code = mailstead(f.t, "check", "--rebuild", "--data", f.dir, "--json")
	var mended struct{ Rebuild struct{ Lost []string } }
	if err := json.Unmarshal([]byte(out), &mended); err != nil || code != 0 {
		f.t.Errorf("%s: check --rebuild: exit %d, %v, %s", place, code, err, out)
		return
	}
	f.t.Logf("%s: lost %q", place, mended.Rebuild.Lost)
	if slices.ContainsFunc(mended.Rebuild.Lost, func(what string) bool { return strings.HasPrefix(what, "account ") }) {
		path, err := binary()
		if err != nil {
			f.t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(f.t.Context(), time.Minute)
		defer stop()
		out, err := exec.CommandContext(ctx, path, "serve", "--data", f.dir, "--sandbox").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the account's row was lost") {
			f.t.Errorf("%s: a start without the account: %v, %s", place, err, out)
		}
		return
	}
	f.start()
	defer f.stop()
	far, err := imapclient.DialInsecure(f.ready.IMAP, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer far.Close()
	if err := far.Login(annsAddress, annsPassword).Wait(); err != nil {
		f.t.Logf("%s: after the rebuild: LOGIN: %v", place, err) // its row comes from the backup
		return
	}
	have := map[string]bool{}
	f.fetch(far, func(subject, body string) {
		have[subject] = true
		if want := f.bodies[subject]; want != "" && want != body {
			f.t.Errorf("%s: after the rebuild %s reads %q", place, subject, body)
		}
	})
	for subject := range f.bodies {
		if !have[subject] {
			f.t.Errorf("%s: after the rebuild %s is not there", place, subject)
		}
	}
}

// TestRebuildAfterRestore: the database is an older copy; mail that came since is made anew, flags
// and what was deleted stay as the copy has them.
func TestRebuildAfterRestore(t *testing.T) {
	t.Parallel()
	c := &mailClient{instance: newInstance(t, generousLimits)}
	c.addDomain("example.test")
	c.box = c.addMailbox(annsAddress, annsPassword)
	c.put("INBOX", "one", "two", "three")
	c.change("INBOX", `STORE 1 +FLAGS (\Flagged)`, `STORE 2 +FLAGS (\Deleted)`, "EXPUNGE")
	c.stop()
	database := filepath.Join(c.dir, "mailstead.db")
	older, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	c.start()
	c.put("INBOX", "four")
	if err := transmit(c.ready.SMTP, annsAddress, letter("five")); err != nil {
		t.Fatal(err)
	}
	c.until("the mail is there", func() bool { return len(c.inbox(c.box)) == 4 })
	c.stop()
	if err := os.WriteFile(database, older, 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := mailstead(t, "check", "--rebuild", "--data", c.dir, "--json")
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
	c.start()
	var subjects []string
	for _, row := range c.inbox(c.box) {
		subjects = append(subjects, row.Subject)
	}
	if len(subjects) != 4 || !strings.Contains(fmt.Sprint(subjects), "four") || !strings.Contains(fmt.Sprint(subjects), "five") {
		t.Errorf("INBOX has %q", subjects)
	}
	c.stop()
	if out, code := mailstead(t, "check", "--rebuild", "--data", c.dir); code != 0 || !strings.Contains(out, "0 in their places, 0 in INBOX") {
		t.Errorf("the second time: exit %d, %s", code, out)
	}
}
