package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// How long a load may take to come to its point: for the first time, and more often.
const (
	killWait      = 40 * time.Second
	killAgainWait = 10 * time.Second
)

// A killLoad is everything that a server does at once until it dies, and what it has acknowledged.
type killLoad struct {
	*killWorld
	i       *rig.Instance
	t       *testing.T
	backups string
	ctx     context.Context

	mu      sync.Mutex
	arrived map[string]bool   // subjects that ann must have in INBOX
	local   map[string]bool   // that bob must have
	relayed map[string]bool   // recipients far away
	kept    map[string]string // subjects of messages by IMAP → where they must be, with flags; "" is nowhere
	swept   map[string]string // subjects of cam → "there" or "gone"
	deleted bool              // the domain
	open    map[string]bool   // kept that are unknown: the last answer did not come
}

// load kills a server that does everything at once.
func (w *killWorld) load(t *testing.T, name string, n int) bool {
	w.prepare(t)
	dir, backups := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	for to, from := range map[string]string{dir: w.base, backups: w.backups} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(w.config(backups)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(backups, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(backups, "db", "left"), []byte("by a backup that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	wait := killWait
	if n > 1 {
		wait = killAgainWait
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	l := &killLoad{
		killWorld: w, i: w.instance(t, dir), t: t, backups: backups, ctx: ctx,
		arrived: map[string]bool{}, local: map[string]bool{}, relayed: map[string]bool{}, kept: map[string]string{}, swept: map[string]string{}, open: map[string]bool{},
	}
	l.i.Env = []string{fmt.Sprintf("MAILSTEAD_KILL_AT=%s:%d", name, n)}
	if n > 1 { // not before the load runs
		after := filepath.Join(t.TempDir(), "after")
		l.i.Env = append(l.i.Env, "MAILSTEAD_KILL_AFTER="+after)
		time.AfterFunc(time.Second, func() { _ = os.WriteFile(after, nil, 0o600) })
	}
	if l.i.Launch() {
		l.all(strings.HasPrefix(name, "copy."))
	}
	for !l.i.Died() {
		if ctx.Err() != nil {
			l.i.Kill()
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = l.i.Cmd.Wait() // by the signal
	signal := l.i.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
	l.i.Cmd = nil
	log, err := os.ReadFile(l.i.Log.Name())
	if err != nil || signal != syscall.SIGKILL || !strings.Contains(string(log), "killed at "+name) {
		t.Fatalf("the server ended with %v, %v", signal, err)
	}
	l.i.Env = nil
	l.i.Start()
	l.verify()
	return true
}

// all runs the load until the server dies, or time is over.
func (l *killLoad) all(copies bool) {
	var load sync.WaitGroup
	for n := range 3 {
		load.Go(func() { l.receive(n) })
	}
	load.Go(l.submit)
	load.Go(l.send)
	load.Go(l.change)
	load.Go(l.sweep)
	load.Go(func() { l.backUp(copies) })
	load.Go(l.deleteDomain)
	load.Wait()
}

// id is the start of the subjects of this load alone.
func (l *killLoad) id() string { return filepath.Base(filepath.Dir(l.i.Dir)) + l.t.Name() }

func (l *killLoad) note(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// receive brings mail from outside: small, of some pages, with a segment of its own, and beyond
// what is held in memory.
func (l *killLoad) receive(conn int) {
	for n := 0; l.ctx.Err() == nil; n++ {
		subject := fmt.Sprintf("%s in %d %d", l.id(), conn, n)
		if rig.Transmit(l.i.Ready.SMTP, "ann@example.test", bulk(subject, []int{300, 5000, 300, 50_000, 400, 600_000}[(n+conn)%6])) != nil {
			return
		}
		l.note(func() { l.arrived[subject] = true })
		time.Sleep(10 * time.Millisecond) // the pace of this load
	}
}

// submit sends mail by submission, to a mailbox here and to the relay.
func (l *killLoad) submit() {
	for n := 0; l.ctx.Err() == nil; n++ {
		subject, far := fmt.Sprintf("%s submitted %d", l.id(), n), fmt.Sprintf("s%d@%s.test", n, l.host())
		err := func() error {
			c, err := smtp.Dial(l.i.Ready.Submission)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Auth(rig.PlainAuth{User: "ann@example.test", Password: "correct horse"}); err != nil {
				return err
			}
			if err := c.Mail("ann@example.test"); err != nil {
				return err
			}
			for _, to := range []string{"bob@example.test", far} {
				if err := c.Rcpt(to); err != nil {
					return err
				}
			}
			w, err := c.Data()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "From: ann@example.test\r\nTo: bob@example.test\r\nSubject: %s\r\n\r\n%s\r\n", subject, strings.Repeat("text ", 200))
			return w.Close()
		}()
		if err != nil {
			return
		}
		l.note(func() { l.local[subject], l.relayed[far] = true, true })
		time.Sleep(30 * time.Millisecond) // the pace of this load
	}
}

// host names the far domain of this load alone.
func (l *killLoad) host() string { return fmt.Sprintf("h%08x", crc32.ChecksumIEEE([]byte(l.id()))) }

// send sends mail by the API.
func (l *killLoad) send() {
	for n := 0; l.ctx.Err() == nil; n++ {
		subject, far := fmt.Sprintf("%s sent %d", l.id(), n), fmt.Sprintf("a%d@%s.test", n, l.host())
		body := map[string]any{"to": []string{"bob@example.test", far}, "subject": subject, "text": "hello"}
		if l.call("POST", "/v1/email-users/"+l.ann+"/inbox/send", body) != 200 {
			return
		}
		l.note(func() { l.local[subject], l.relayed[far] = true, true })
		time.Sleep(30 * time.Millisecond) // the pace of this load
	}
}

// call calls the API of a server that may die; the status is 0 then.
func (l *killLoad) call(method, path string, body any) int {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(l.ctx, method, "http://"+l.i.Ready.HTTP+path, bytes.NewReader(text))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.i.HTTP.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// change appends messages by IMAP, and then leaves, copies, flags or expunges them.
func (l *killLoad) change() {
	c, err := imapclient.DialInsecure(l.i.Ready.IMAP, nil)
	if err != nil {
		return
	}
	defer c.Close()
	if c.Login("ann@example.test", "correct horse").Wait() != nil {
		return
	}
	if _, err := c.Select("Archive", nil).Wait(); err != nil {
		return
	}
	for n := 0; l.ctx.Err() == nil; n++ {
		subject := fmt.Sprintf("%s kept %d", l.id(), n)
		l.note(func() { l.open[subject] = true })
		text := bulk(subject, 1500)
		a := c.Append("Archive", int64(len(text)), nil)
		_, _ = a.Write([]byte(text))
		_ = a.Close()
		data, err := a.Wait()
		if err != nil {
			return
		}
		uid, where := imap.UIDSetNum(data.UID), "Archive"
		l.note(func() { l.kept[subject] = where })
		switch n % 4 {
		case 1:
			_, err = c.Copy(uid, "Drafts").Wait()
			where = "Archive Drafts"
		case 2:
			err = c.Store(uid, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagFlagged}}, nil).Close()
			where = "Archive flagged"
		case 3:
			if err = c.Store(uid, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagDeleted}}, nil).Close(); err == nil {
				err = c.UIDExpunge(uid).Close()
			}
			where = ""
		}
		if err != nil {
			return
		}
		l.note(func() {
			l.kept[subject] = where
			delete(l.open, subject)
		})
		time.Sleep(10 * time.Millisecond) // the pace of this load
	}
}

// sweep fills a mailbox and empties it again, so that segments die.
func (l *killLoad) sweep() {
	c, err := imapclient.DialInsecure(l.i.Ready.IMAP, nil)
	if err != nil {
		return
	}
	defer c.Close()
	if c.Login("cam@example.test", "correct horse").Wait() != nil {
		return
	}
	for round := 0; l.ctx.Err() == nil; round++ {
		for n := range 20 {
			subject := fmt.Sprintf("%s swept %d %d", l.id(), round, n)
			if rig.Transmit(l.i.Ready.SMTP, "cam@example.test", bulk(subject, 20_000)) != nil {
				return
			}
			l.note(func() { l.swept[subject] = "there" })
			time.Sleep(2 * time.Millisecond) // the pace of this load
		}
		s, err := c.Select("INBOX", nil).Wait()
		if err != nil || s.NumMessages == 0 {
			return
		}
		all := imap.SeqSet{{Start: 1, Stop: 0}}
		list, err := c.Fetch(all, &imap.FetchOptions{Envelope: true, UID: true}).Collect()
		if err != nil {
			return
		}
		var listed imap.UIDSet // and no message that comes only now
		l.note(func() {
			for _, m := range list {
				l.swept[m.Envelope.Subject] = "unknown"
				listed.AddNum(m.UID)
			}
		})
		if c.Store(listed, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagDeleted}, Silent: true}, nil).Close() != nil || c.UIDExpunge(listed).Close() != nil {
			return
		}
		l.note(func() {
			for _, m := range list {
				l.swept[m.Envelope.Subject] = "gone"
			}
		})
	}
}

// backUp makes backups one after the other, or copies for rehearsals.
func (l *killLoad) backUp(copies bool) {
	for n := 0; l.ctx.Err() == nil; n++ {
		args := []string{"backup", "--data", l.i.Dir, "--to", l.backups + "/"}
		if n%3 == 1 {
			args = append(args, "--full")
		}
		if copies {
			args = []string{"rehearse", "--data", l.i.Dir}
		}
		if out, err := exec.CommandContext(l.ctx, l.path, args...).CombinedOutput(); err != nil {
			if l.ctx.Err() == nil && !strings.Contains(string(out), "ended before it answered") && !strings.Contains(string(out), "EOF") && !strings.Contains(string(out), "connect") {
				l.t.Errorf("%v: %s", args, out)
			}
			return
		}
		time.Sleep(200 * time.Millisecond) // the pace of this load
	}
}

// deleteDomain deletes a domain with its mailboxes.
func (l *killLoad) deleteDomain() {
	time.Sleep(300 * time.Millisecond) // the other loads have begun
	switch status := l.call("DELETE", "/v1/domains/"+l.doomed, nil); status {
	case 202:
		l.note(func() { l.deleted = true })
	case 0: // it is dead
	default:
		l.t.Errorf("the domain is not deleted: %d", status)
	}
}

// verify compares a server that was started again with what the one before has acknowledged.
func (l *killLoad) verify() {
	t, i := l.t, l.i
	t.Helper()
	log := map[string]rig.LogRow{}
	i.Until("no recipient waits", func() bool {
		clear(log)
		for _, r := range i.SendingRows() {
			log[r.Recipient] = r
			if r.Status == "queued" || r.Status == "deferred" {
				return false
			}
		}
		return true
	})

	// What came in is there once, and was told of under one id.
	ann, bob := count(i.Inbox(l.ann)), count(i.Inbox(l.bob))
	for what, boxes := range map[string]struct {
		acked map[string]bool
		have  map[string]int
	}{"ann": {l.arrived, ann}, "bob": {l.local, bob}} {
		for subject := range boxes.acked {
			if boxes.have[subject] != 1 {
				t.Errorf("%s was acknowledged, and %s has it %d times", subject, what, boxes.have[subject])
			}
		}
		for subject, n := range boxes.have {
			if n != 1 {
				t.Errorf("%s has %s %d times", what, subject, n)
			}
		}
	}
	i.Until("everything is told", func() bool {
		told := l.hook.EventIDs("email.received", "subject")
		for subject := range ann {
			if strings.HasPrefix(subject, l.id()) && len(told[subject]) == 0 {
				return false
			}
		}
		return true
	})
	for subject, ids := range l.hook.EventIDs("email.received", "subject") {
		if strings.HasPrefix(subject, l.id()) && len(ids) != 1 {
			t.Errorf("%s was told as %v", subject, ids)
		}
	}

	// What went out has left once; twice only where the answer to the first was not kept.
	took := map[string]int{}
	for _, m := range l.relay.Mails() {
		took[m.To[0]]++
	}
	twice := 0
	for to := range l.relayed {
		r := log[to]
		switch n := took[to]; {
		case r.Status != "relayed":
			t.Errorf("the message to %s was acknowledged and is %q", to, r.Status)
		case n == 2 && r.Attempts == 1:
			twice++
		case n != 1:
			t.Errorf("the relay took the message to %s %d times, in %d attempts that were kept", to, n, r.Attempts)
		}
	}

	l.verifyFolders()
	if l.deleted {
		i.Until("the domain is deleted", func() bool { return i.Do("GET", "/v1/domains/"+l.doomed, nil, nil) == 404 })
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("served")); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	l.verifyBackup()
	t.Logf("acknowledged: %d arrived, %d local, %d relayed (%d twice), %d kept, %d swept; the domain deleted: %v",
		len(l.arrived), len(l.local), len(l.relayed), twice, len(l.kept), len(l.swept), l.deleted)
}

// verifyFolders compares what was done over IMAP.
func (l *killLoad) verifyFolders() {
	l.t.Helper()
	found := map[string]string{}
	for _, user := range []struct {
		email   string
		folders []string
	}{{"ann@example.test", []string{"Archive", "Drafts"}}, {"cam@example.test", []string{"INBOX"}}} {
		c := l.i.ReadMail(user.email, "correct horse")
		for _, folder := range user.folders {
			s, err := c.Select(folder, nil).Wait()
			if err != nil {
				l.t.Fatal(err)
			}
			if s.NumMessages == 0 {
				continue
			}
			list, err := c.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{Envelope: true, Flags: true, BodySection: []*imap.FetchItemBodySection{{Peek: true}}}).Collect()
			if err != nil {
				l.t.Fatalf("%s: %v", folder, err)
			}
			for _, m := range list {
				at := " " + folder
				for _, flag := range m.Flags {
					if flag == imap.FlagFlagged {
						at += " flagged"
					}
				}
				if body := m.FindBodySection(&imap.FetchItemBodySection{Peek: true}); !bytes.Contains(body, []byte("Subject: "+m.Envelope.Subject+"\r\n")) {
					l.t.Errorf("%s has another text: %.100q", m.Envelope.Subject, body)
				}
				found[m.Envelope.Subject] += at
			}
		}
		c.Close()
	}
	for subject, where := range l.kept {
		got := strings.TrimSpace(found[subject])
		if got != where && (!l.open[subject] || got != "" && !strings.HasPrefix(got, "Archive")) {
			l.t.Errorf("%s is in %q, want %q", subject, got, where)
		}
	}
	for subject, where := range l.swept {
		if got := strings.TrimSpace(found[subject]); where == "there" && got != "INBOX" || where == "gone" && got != "" || got != "" && got != "INBOX" {
			l.t.Errorf("%s of cam is in %q, want %s", subject, got, where)
		}
	}
}

// verifyBackup demands that the next backup succeeds unaided, and that it has everything.
func (l *killLoad) verifyBackup() {
	l.t.Helper()
	if out, code := rig.Run(l.t, "backup", "--data", l.i.Dir, "--to", l.backups+"/"); code != 0 {
		l.t.Errorf("the next backup: %s", out)
	}
	l.i.Check()
	if area, _, _ := strings.Cut(filepath.Base(l.t.Name()), "."); !slices.Contains([]string{"backup", "commit", "copy", "entry", "object", "segment"}, area) {
		return
	}
	dir := filepath.Join(l.t.TempDir(), "restored")
	if out, code := rig.Run(l.t, "restore", "--data", dir, "--from", l.backups); code != 0 {
		l.t.Errorf("restore: %s", out)
		return
	}
	if out, code := rig.Run(l.t, "check", "--data", dir); code != 0 {
		l.t.Errorf("check of what was restored: %s", out)
	}
	want, got := digestsOf(l.t, l.i.Dir), digestsOf(l.t, dir)
	if want["messages"] != got["messages"] || want["folders"] != got["folders"] {
		l.t.Error("what was restored has other messages")
	}
}

func count(rows []rig.InboxRow) map[string]int {
	have := map[string]int{}
	for _, r := range rows {
		have[r.Subject]++
	}
	return have
}
