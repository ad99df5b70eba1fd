package faults

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/e2e/rig"
)

// A bareMachine has the program, an empty home and environment, and one directory.
type bareMachine struct {
	t    *testing.T
	dir  string
	home string
}

// run runs a command there.
func (b *bareMachine) run(args ...string) (out string, err error) {
	b.t.Helper()
	path, err := rig.Binary()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = b.dir, []string{"HOME=" + b.home}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// refused runs a command that must fail, and say so with a part.
func (b *bareMachine) refused(part string, args ...string) {
	b.t.Helper()
	if out, err := b.run(args...); err == nil || !strings.Contains(out, part) {
		b.t.Errorf("%v: %v, %q, which should say %q", args, err, out, part)
	}
}

// TestRestoreOnABareMachine: an archive and its age identity are all that is needed. The restored
// server lets people and programs log in, opens what is sealed, signs with keys that its zone has,
// and has every body. make soak-bare reads 1 000 of them.
func TestRestoreOnABareMachine(t *testing.T) {
	t.Parallel()
	python := rig.Peer(t, "python3")
	bodies, rnd := sizeAndSeed(t, "MAILSTEAD_MESSAGES", 30)
	relay := rig.NewFakeSMTP(t, true, func(n int) string { return fmt.Sprintf("250 Ok %d", n) })
	host, port, _ := net.SplitHostPort(relay.Addr)
	config := "outbound = 'relay'\n" + rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n", host, port)
	i := rig.Start(t, config)
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	var hook struct{ ID, Secret string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://127.0.0.1:1/", "events": []string{"domain.created"}}, &hook)
	want := map[string]string{} // bodies by subject
	for n := range bodies {
		subject := fmt.Sprint("m", n)
		want[subject] = noise(rnd, subject, 200+rnd.IntN(4000)*(n%7))
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", want[subject]); err != nil {
			t.Fatal(err)
		}
	}
	sends := func(i *rig.Instance) []byte {
		t.Helper()
		before := len(relay.Mails())
		i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{"x@far.test"}, "subject": "s", "text": "hello"}, nil)
		i.Until("the relay has the message", func() bool { return len(relay.Mails()) > before })
		return relay.Mails()[before].Data
	}
	early := sends(i)
	i.Until("every message has its rows", func() bool { return i.HasAll("mailbox=ann@example.test", bodies) })

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	b := &bareMachine{t, t.TempDir(), t.TempDir()}
	archive, identity, other, data := filepath.Join(b.dir, "mail.age"), filepath.Join(b.dir, "identity"), filepath.Join(b.dir, "other"), filepath.Join(b.dir, "data")
	if out, code := rig.Run(t, "backup", "--data", i.Dir, "--to", archive, "--age-recipient", id.Recipient().String()); code != 0 {
		t.Fatal(out)
	}
	stranger, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for path, key := range map[string]*age.X25519Identity{identity: id, other: stranger} {
		if err := os.WriteFile(path, []byte(key.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i.Stop()
	if err := os.RemoveAll(i.Dir); err != nil { // the machine of before is gone
		t.Fatal(err)
	}

	b.refused("--age-identity", "restore", "--from", archive, "--data", data)
	b.refused("--age-identity", "restore", "--from", archive, "--data", data, "--age-identity", other)
	b.refused("--age-identity", "backup", "verify", "--from", archive)
	if out, err := b.run("restore", "--from", archive, "--data", data, "--age-identity", identity); err != nil {
		t.Fatalf("restore: %v, %s", err, out)
	}
	if out, err := b.run("check", "--data", data); err != nil {
		t.Errorf("check: %v, %s", err, out)
	}
	key := filepath.Join(data, "master.key")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	b.refused("master.key", "serve", "--data", data, "--http", "127.0.0.1:0", "--smtp", "off", "--submission", "off", "--imap", "off", "--dns", "off")
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}

	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	j := &rig.Instance{T: t, Dir: data, Token: i.Token, Log: log, HTTP: &http.Client{Timeout: time.Minute}, Wrapper: []string{"/usr/bin/env", "-i", "HOME=" + b.home}}
	j.Start()
	t.Cleanup(j.Stop)
	c := j.ReadMail("ann@example.test", "correct horse")
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	section := &imap.FetchItemBodySection{Peek: true}
	got, err := c.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}, Envelope: true}).Collect()
	if err != nil || len(got) != bodies {
		t.Fatalf("%d messages of %d, %v", len(got), bodies, err)
	}
	for _, m := range got {
		if text := string(m.FindBodySection(section)); !strings.HasSuffix(text, want[m.Envelope.Subject]) || want[m.Envelope.Subject] == "" {
			t.Errorf("the body of %s differs", m.Envelope.Subject)
		}
		delete(want, m.Envelope.Subject)
	}
	if len(want) > 0 {
		t.Errorf("%d messages are missing", len(want))
	}
	var secret struct{ Secret string }
	j.Want(200, "GET", "/v1/webhooks/"+hook.ID+"/secret", nil, &secret)
	if secret.Secret != hook.Secret || secret.Secret == "" {
		t.Errorf("the webhook's secret is %q, it was %q", secret.Secret, hook.Secret)
	}
	var link struct {
		URL string `json:"download_url"`
	}
	j.Want(200, "POST", "/v1/export", map[string]any{"all": true}, &link)
	_, path, _ := strings.Cut(link.URL, "/export/")
	if text := j.GetText("/export/" + path); !strings.Contains(text, "correct horse") {
		t.Errorf("the export has %q", text)
	}
	rig.VerifyDKIM(t, python, j, early)
	rig.VerifyDKIM(t, python, j, sends(j))
	j.Check()
	if left, err := os.ReadDir(b.home); err != nil || len(left) > 0 {
		t.Errorf("the home has %v, %v", left, err)
	}
	t.Logf("%d bodies read", len(got))
}
