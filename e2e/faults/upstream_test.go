package faults

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/mailstead/mailstead/e2e/rig"
)

// An upstream stands before a server of somebody else: it is silent, refuses connections or resets
// them, until it passes them on.
type upstream struct {
	addr    string
	behind  string
	manner  string
	healthy atomic.Bool
}

func newUpstream(t *testing.T, manner, behind string) *upstream {
	t.Helper()
	u := &upstream{manner: manner, behind: behind}
	if manner == "refusing" {
		u.addr = fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t)) // nobody listens until it is healthy
		return u
	}
	u.addr = rig.Serve(t, u.serve)
	return u
}

func (u *upstream) heal(t *testing.T) {
	t.Helper()
	u.healthy.Store(true)
	if u.manner != "refusing" {
		return
	}
	ln, err := net.Listen("tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go u.serve(c)
		}
	}()
}

func (u *upstream) serve(c net.Conn) {
	defer c.Close()
	if !u.healthy.Load() {
		if u.manner == "resetting" {
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.Copy(io.Discard, c)
		return
	}
	to, err := net.Dial("tcp", u.behind)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, c)
		_ = to.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, to)
}

// TestDeadUpstreams: while the relay, the place of the backups and the receiver of webhooks are
// silent, refuse or reset, mail is taken and served, and what waits for them says so. When they are
// back, all of it goes on.
func TestDeadUpstreams(t *testing.T) {
	t.Parallel()
	for _, manner := range []string{"silent", "refusing", "resetting"} {
		t.Run(manner, func(t *testing.T) {
			t.Parallel()
			deadUpstreams(t, manner)
		})
	}
}

func deadUpstreams(t *testing.T, manner string) {
	relay := rig.NewFakeSMTP(t, true, func(n int) string { return fmt.Sprintf("250 Ok id-%d", n) })
	hook := rig.NewWebhookReceiver(t)
	backend := s3mem.New()
	if err := backend.CreateBucket("mail"); err != nil {
		t.Fatal(err)
	}
	bucket := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(bucket.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("id\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	relayed := newUpstream(t, manner, relay.Addr)
	stored := newUpstream(t, manner, bucket.Listener.Addr().String())
	told := newUpstream(t, manner, hook.Server.Listener.Addr().String())

	host, port, _ := net.SplitHostPort(relayed.addr)
	config := rig.GenerousLimits + fmt.Sprintf(`
[[relay]]
name = "r1"
kind = "custom"
host = %q
port = %s
tls = "none"
[s3]
endpoint = "http://%s"
access_key_file = %q
[backup]
to = "s3://mail/host"
every = "1m"
`, host, port, stored.addr, key)
	i := rig.Start(t, config, "--ca-file", hook.CAFile, "--outbound", "relay")
	i.AddDomain("example.test")
	ann, bob := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "battery staple")
	var made struct{ ID, Secret string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://" + told.addr, "events": []string{"email.received"}}, &made)
	hook.Secret = made.Secret

	start := time.Now()
	for n := range 5 {
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(fmt.Sprint("m", n))); err != nil {
			t.Fatal(err)
		}
	}
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{"bob@example.test", "x@far.test"}, "subject": "near", "text": "t"}, nil)
	i.Until("local mail arrives", func() bool { return subjects(i, bob) == "near" })
	readable(i, ann, "m0")
	i.Want(200, "GET", "/healthz", nil, nil)
	if took := time.Since(start); took > time.Minute { // what waits for a silent server does so for minutes
		t.Errorf("mail was served after %s", took)
	}
	if r := rig.SendingLog(i)["x@far.test"]; r.Status != "queued" && r.Status != "deferred" {
		t.Errorf("what waits for the relay: %+v", r)
	}
	for _, u := range []*upstream{relayed, stored, told} {
		u.heal(t)
	}
	if manner == "silent" { // whoever waits for an answer would do so for minutes
		i.Kill()
		i.Start()
	}
	i.Until("the relay has it", func() bool {
		r := rig.SendingLog(i)["x@far.test"]
		if r.Status == "deferred" {
			i.Do("POST", "/v1/messages/"+r.ID+"/retry", nil, nil)
		}
		return r.Status == "relayed"
	})
	i.Until("everything is told", func() bool { return len(hook.EventIDs("email.received", "subject")) >= 5 })
	if out, code := rig.Run(t, "backup", "--data", i.Dir, "--to", "s3://mail/host"); code != 0 {
		t.Errorf("the next backup: %s", out)
	}
	if n := len(relay.Mails()); n != 1 {
		t.Errorf("the relay took it %d times", n)
	}
	if got := strings.Count(subjects(i, ann), "m"); got != 5 {
		t.Errorf("ann has %d messages", got)
	}
	i.Check()
}
