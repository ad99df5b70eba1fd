package faults

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/netip"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/auth"
)

// A keyBase is an installation that has secrets of many kinds under its master key. It is copied
// before the key is changed.
type keyBase struct {
	hook         *rig.WebhookReceiver
	dir, backups string

	once       sync.Once
	key        []byte // the file
	token      string
	box, hookN string   // ids
	totp       string   // what the authenticator app knows
	recovery   []string // the codes in its place
	leave      string   // whom to write to for no more mail
	answer     string   // to the request with the Idempotency-Key "k1"
	ready      bool
}

// TestRotateKeyKilled changes the master key and is killed in the middle, on a stopped store and in
// a server. Run again it succeeds, and everything that was sealed or handed out before works, also
// from the backups. make soak-rotate kills 50 times.
func TestRotateKeyKilled(t *testing.T) {
	t.Parallel()
	kills, rnd := sizeAndSeed(t, "MAILSTEAD_KILLS", 2)
	most := []struct {
		name string
		n    int // passings from which one is chosen
	}{
		{"rotate.some", 3}, {"rotate.done", 1}, {"rotate.noted", 1}, {"commit.done", 8}, {"rotate.all", 1}, {"rotate.shared", 1}, {"key.named", 1},
		{"rotate.made", 1}, {"commit.pages", 8}, {"rotate.replaced", 1}, {"entry.write", 5}, {"rotate.begin", 1}, {"key.written", 1}, {"commit.segments_synced", 8},
	}
	w := newKillWorld(t)
	t.Run("at", func(t *testing.T) {
		for k := range kills {
			at := most[k%len(most)]
			n, served := 1+rnd.IntN(at.n), (k/2)%2 == 0
			t.Run(fmt.Sprintf("%s:%d served %v", at.name, n, served), func(t *testing.T) {
				t.Parallel()
				if !w.rotateKilled(t, at.name, n, served) && (n == 1 || !w.rotateKilled(t, at.name, 1, served)) {
					t.Fatal("the program never came there")
				}
			})
		}
	})
}

// rotate kills a change of the master key at a point of it.
func (w *killWorld) rotate(t *testing.T, name string, n int) bool {
	return w.rotateKilled(t, name, n, n%2 == 0)
}

// rotateKilled kills a change of the master key in a server, or on a stopped store. Another one
// succeeds.
func (w *killWorld) rotateKilled(t *testing.T, name string, n int, served bool) bool {
	w.prepareKeys(t)
	dir, backups := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	for to, from := range map[string]string{dir: w.keys.dir, backups: w.keys.backups} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "master.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(w.config(backups)), 0o600); err != nil {
		t.Fatal(err)
	}
	i := w.keyInstance(t, dir)
	if served {
		after := filepath.Join(t.TempDir(), "after")
		i.Env = []string{fmt.Sprintf("MAILSTEAD_KILL_AT=%s:%d", name, n), "MAILSTEAD_KILL_AFTER=" + after}
		i.Start()
		if err := os.WriteFile(after, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = rig.Run(t, "rotate-key", "--data", dir, "--json")
		for end := time.Now().Add(5 * time.Second); !i.Died(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				i.Kill()
				return false
			}
		}
		_ = i.Cmd.Wait() // by the signal
		if i.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the server ended with %v", i.Cmd.ProcessState)
		}
		i.Cmd, i.Env = nil, nil
		i.Start()
	} else if !w.run(t, name, n, "rotate-key", "--data", dir, "--json") {
		return false
	}
	var out struct {
		KeyID   string `json:"key_id"`
		Records int
	}
	text, code := rig.Run(t, "rotate-key", "--data", dir, "--json")
	if err := json.Unmarshal([]byte(text), &out); err != nil || code != 0 || len(out.KeyID) != 32 || out.Records < 400 {
		t.Fatalf("again: %d %s", code, text)
	}
	if i.Cmd == nil {
		i.Start()
	}
	w.keysHold(t, i)
	w.keysRestore(t, dir, backups)
	return true
}

// keyInstance is the program with kill points on a data directory of the keyBase, not started.
func (w *killWorld) keyInstance(t *testing.T, dir string) *rig.Instance {
	t.Helper()
	i := rig.Prepare(t, dir, w.keys.token, "--ca-file", w.keys.hook.CAFile, "--outbound", "relay")
	i.Program = w.path
	return i
}

// prepareKeys makes the keyBase.
func (w *killWorld) prepareKeys(t *testing.T) {
	t.Helper()
	b := &w.keys
	b.once.Do(func() {
		if err := os.WriteFile(filepath.Join(b.dir, "mailstead.toml"), []byte(w.config(b.backups)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(w.path, "init", "--data", b.dir, "--owner-email", "owner@example.org", "--owner-password", "correct horse", "--json").Output()
		var made struct{ Token string }
		if err != nil || json.Unmarshal(out, &made) != nil {
			t.Fatalf("init: %v, %s", err, out)
		}
		b.token = made.Token
		i := w.keyInstance(t, b.dir)
		i.Start()
		i.AddDomain("example.test")
		b.box = i.AddMailbox("ann@example.test", "battery staple")
		i.Want(200, "PATCH", "/v1/domains/"+i.FirstID("/v1/domains"), map[string]any{"list_unsubscribe": true}, nil)
		i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"away.test"}, "external": true}, nil)
		away := map[string]any{"host": "127.0.0.1", "port": 9, "security": "none", "username": "away", "password": "a password elsewhere"}
		i.Want(201, "POST", "/v1/email-users", map[string]any{"email": "away@away.test", "type": "external", "imap": away, "smtp": away}, nil)
		b.hookN = b.hook.Subscribe(i, "email.received")
		for n := range 450 { // answers that are kept
			status, _, text := i.Post("/v1/auth/tokens", map[string]any{"name": fmt.Sprint("n", n)}, "Idempotency-Key", fmt.Sprint("k", n))
			if status != 201 {
				t.Fatalf("a token: %d %s", status, text)
			}
			if n == 1 {
				b.answer = text
			}
		}
		b.secondFactor(t, i)
		i.Want(200, "POST", "/v1/email-users/"+b.box+"/inbox/send", map[string]any{"to": "leave@far.test", "subject": "s", "text": "hello"}, nil)
		_, way, _ := strings.Cut(string(w.relayed(t, i, "leave@far.test")), "List-Unsubscribe: <mailto:")
		b.leave, _, _ = strings.Cut(way, "?")
		if !strings.HasSuffix(b.leave, "@example.test") {
			t.Fatalf("the message offers %q", b.leave)
		}
		i.Until("there is a backup", func() bool {
			list, err := os.ReadDir(filepath.Join(b.backups, "manifests"))
			return err == nil && len(list) > 0
		})
		i.Stop()
		b.key, err = os.ReadFile(filepath.Join(b.dir, "master.key"))
		if err != nil {
			t.Fatal(err)
		}
		b.ready = true
	})
	if !b.ready {
		t.Fatal("there is no installation to begin with")
	}
}

// relayed waits for what the relay took for a recipient.
func (w *killWorld) relayed(t *testing.T, i *rig.Instance, to string) (message []byte) {
	t.Helper()
	i.Until("the relay has it", func() bool {
		for _, m := range w.relay.Mails() {
			if m.To[0] == to {
				message = m.Data
			}
		}
		return message != nil
	})
	return message
}

// secondFactor switches the owner's second factor on.
func (b *keyBase) secondFactor(t *testing.T, i *rig.Instance) {
	t.Helper()
	_, cookie, _ := i.SignIn("")
	var begun struct{ Secret string }
	status, _, text := i.Post("/session/totp", map[string]string{"password": "correct horse"}, "Cookie", cookie)
	if err := json.Unmarshal([]byte(text), &begun); err != nil || status != 200 {
		t.Fatalf("a second factor: %d %s", status, text)
	}
	b.totp = begun.Secret
	var codes struct {
		Codes []string `json:"recovery_codes"`
	}
	status, _, text = i.Post("/session/totp/confirm", map[string]string{"code": b.code(t, 0)}, "Cookie", cookie)
	if err := json.Unmarshal([]byte(text), &codes); err != nil || status != 200 || len(codes.Codes) == 0 {
		t.Fatalf("its first code: %d %s", status, text)
	}
	b.recovery = codes.Codes
}

// code is what the authenticator app shows so many steps from now.
func (b *keyBase) code(t *testing.T, ahead int64) string {
	t.Helper()
	key, err := base32.StdEncoding.DecodeString(b.totp)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha1.New, key)
	step := time.Now().Unix()/30 + ahead
	for shift := 56; shift >= 0; shift -= 8 {
		h.Write([]byte{byte(step >> shift)})
	}
	sum := h.Sum(nil)
	at := sum[19] & 15
	var digits uint32
	for _, b := range sum[at : at+4] {
		digits = digits<<8 | uint32(b)
	}
	return fmt.Sprintf("%06d", (digits&0x7fffffff)%1_000_000)
}

// keysHold demands of a running server, whose key was changed, that everything of before works, and
// that nothing of the key before is left. It stops the server.
func (w *killWorld) keysHold(t *testing.T, i *rig.Instance) {
	t.Helper()
	b := &w.keys
	for what, code := range map[string]string{"the app's code": b.code(t, 1), "a recovery code": b.recovery[3]} {
		if status, _, text := i.SignIn(code); status != 200 {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	if status, fields, text := i.Post("/v1/auth/tokens", map[string]any{"name": "n1"}, "Idempotency-Key", "k1"); status != 201 || text != b.answer || fields.Get("Idempotent-Replayed") == "" {
		t.Errorf("a repeated request: %d %v %s, not %s", status, fields, text, b.answer)
	}
	_, _, passwords := i.Post("/v1/export", map[string]any{"format": "json", "all": true, "inline": true})
	for _, want := range []string{`"battery staple"`, `"a password elsewhere"`} {
		if !strings.Contains(passwords, want) {
			t.Errorf("the export lacks %s: %s", want, passwords)
		}
	}
	var tested struct {
		EventID string `json:"event_id"`
	}
	i.Want(200, "POST", "/v1/webhooks/"+b.hookN+"/test", nil, &tested)
	i.Until("the webhook is told", func() bool {
		b.hook.Mu.Lock()
		defer b.hook.Mu.Unlock()
		for _, e := range b.hook.Events {
			if e.ID == tested.EventID {
				return true
			}
		}
		return len(b.hook.Bad) > 0
	})
	b.hook.EventIDs("", "")

	to := fmt.Sprintf("d%08x@far.test", crc32.ChecksumIEEE([]byte(i.Dir)))
	i.Want(200, "POST", "/v1/email-users/"+b.box+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": "hello"}, nil)
	message := w.relayed(t, i, to)
	v := auth.Verifier{Resolver: lookup.New(lookup.Options{Servers: []string{i.Ready.DNS}})}
	verdict, err := v.Verify(t.Context(), auth.Request{IP: netip.MustParseAddr("127.0.0.1"), Helo: "x.test", MailFrom: "ann@example.test", AuthservID: "us.test", Message: bytes.NewReader(message), Size: int64(len(message))})
	if err != nil || verdict.DKIM != auth.Pass {
		t.Errorf("DKIM: %+v, %v", verdict, err)
	}

	c, err := smtp.Dial(i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	rig.Deliver(t, c, "leave@far.test", b.leave, "From: leave@far.test\r\nSubject: unsubscribe\r\n\r\n")
	_ = c.Quit()
	i.Until("who wanted no more mail gets none", func() bool { return i.Suppressions()["leave@far.test"] == "manual" })
	i.Check()

	if key, err := os.ReadFile(filepath.Join(i.Dir, "master.key")); err != nil || bytes.Equal(key, b.key) {
		t.Errorf("the key has not changed (%v)", err)
	}
	if rig.IsFile(filepath.Join(i.Dir, "master.key.next")) {
		t.Error("the key that takes over is still beside it")
	}
	err = filepath.WalkDir(i.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, b.key) {
			t.Errorf("%s has the key of before", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// keysRestore demands that the newest second of the backups can be restored with its key.
func (w *killWorld) keysRestore(t *testing.T, dir, backups string) {
	t.Helper()
	restored := filepath.Join(t.TempDir(), "restored")
	if out, code := rig.Run(t, "restore", "--from", backups, "--data", restored); code != 0 {
		t.Fatal(out)
	}
	want, err := os.ReadFile(filepath.Join(dir, "master.key"))
	if err != nil {
		t.Fatal(err)
	}
	if have, err := os.ReadFile(filepath.Join(restored, "master.key")); err != nil || !bytes.Equal(have, want) {
		t.Errorf("the restored key is another one (%v)", err)
	}
	if out, code := rig.Run(t, "call", "--data", restored, "get_account"); code != 0 {
		t.Errorf("the restored store: %s", out)
	}
}
