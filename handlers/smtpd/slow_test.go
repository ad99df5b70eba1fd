package smtpd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A slowness is a slow SMTP client.
type slowness struct {
	mode  smtpd.Mode
	begin string        // sent at once
	drip  string        // sent after each pause, repeatedly
	pause time.Duration // 0: nothing more is sent
	deaf  bool          // the client does not read
	after time.Duration // when the connection ends
	said  string        // the last reply
}

const (
	greet    = "EHLO client.test\r\n"
	envelope = greet + "MAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\n"
	tooSlow  = "421 4.4.2 mail.example.test Timeout exceeded\r\n"
)

var slow = map[string]slowness{
	"says nothing":             {mode: smtpd.MX, after: 5 * time.Minute, said: tooSlow},
	"says nothing to log in":   {mode: smtpd.Submission, after: 5 * time.Minute, said: tooSlow},
	"greets":                   {mode: smtpd.MX, begin: greet, after: 5 * time.Minute, said: tooSlow},
	"drips a command":          {mode: smtpd.MX, begin: greet, drip: "x", pause: time.Second, after: 5 * time.Minute, said: tooSlow},
	"drips a log-in":           {mode: smtpd.Submission, begin: greet + "AUTH LOGIN\r\n", drip: "x", pause: 10 * time.Second, after: 5 * time.Minute, said: tooSlow},
	"logs in":                  {mode: smtpd.Submission, begin: greet + plain(), after: 5 * time.Minute, said: tooSlow},
	"drips commands":           {mode: smtpd.MX, begin: greet, drip: "NOOP\r\n", pause: 4 * time.Minute, after: 4 * time.Hour, said: tooSlow},
	"drips recipients":         {mode: smtpd.MX, begin: greet, drip: envelope + "RSET\r\n", pause: 3 * time.Minute, after: 4 * time.Hour, said: tooSlow},
	"no message after DATA":    {mode: smtpd.MX, begin: envelope + "DATA\r\n", after: time.Minute, said: tooSlow},
	"drips a message":          {mode: smtpd.MX, begin: envelope + "DATA\r\n", drip: "a\r\n", pause: time.Second, after: time.Minute, said: tooSlow},
	"no chunk after BDAT":      {mode: smtpd.MX, begin: envelope + "BDAT 1000000\r\n", after: time.Minute, said: tooSlow},
	"drips a chunk":            {mode: smtpd.MX, begin: envelope + "BDAT 1000000\r\n", drip: "a\r\n", pause: time.Second, after: time.Minute, said: tooSlow},
	"no handshake":             {mode: smtpd.Submissions, after: 30 * time.Second},
	"drips a handshake":        {mode: smtpd.Submissions, begin: "\x16\x03\x01\x02\x00", drip: "\x01", pause: time.Second, after: 30 * time.Second},
	"no handshake at STARTTLS": {mode: smtpd.Submission, begin: greet + "STARTTLS\r\n", after: 30 * time.Second, said: "220 2.0.0 Ready to start TLS\r\n"},
	"drips one at STARTTLS":    {mode: smtpd.MX, begin: greet + "STARTTLS\r\n", drip: "\x16\x03\x01\x02\x00\x01", pause: time.Second, after: 30 * time.Second, said: "220 2.0.0 Ready to start TLS\r\n"},
	"never reads":              {mode: smtpd.MX, begin: greet, deaf: true, after: time.Minute},
	"never reads, nor greets":  {mode: smtpd.Submission, deaf: true, after: time.Minute},
}

func plain() string {
	return "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00ana@example.test\x00"+password)) + "\r\n"
}

// TestSlowClientsAreSentAway holds the limits of a public server to the second, in false time: no
// way to be slow keeps a connection longer than they say.
func TestSlowClientsAreSentAway(t *testing.T) {
	for name, s := range slow {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.test(t) })
		})
	}
}

func (s slowness) test(t *testing.T) {
	box := servicetest.New(t, func(c *core.Config) { c.Resolver = &zone{} })
	owner := core.Actor{AccountID: box.Owner.AccountID, Role: "owner", Permissions: []string{"admin"}}
	box.Domain(t, owner.AccountID, "example.test", "builtin", "complete")
	pw := password
	if _, err := box.Mailboxes.CreateEmailUser(t.Context(), owner, mailboxes.CreateEmailUserIn{Email: "ana@example.test", Password: &pw}); err != nil {
		t.Fatal(err)
	}
	server := smtpd.New(box.Service)
	server.Log, server.TLS = slog.New(slog.DiscardHandler), servicetest.Certificate(t, "mail.example.test")
	ln := servicetest.NewPipes()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, ln, s.mode) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := ln.Dial()
	defer client.Close()
	s.play(t, client)
}

// play is the client; it demands that the server ends the connection in time.
func (s slowness) play(t *testing.T, conn net.Conn) {
	client := servicetest.Sluggard{Begin: s.begin, Drip: s.drip, Pause: s.pause, After: s.after}
	if s.deaf {
		client.Deaf = "x"
	}
	if told := client.Play(t, conn); !strings.HasSuffix(told, s.said) {
		t.Errorf("it was told %.300q", told)
	}
}

// TestDeafClientsHoldNothing has 24 clients in each mode that send without end, read nothing, and
// then disconnect or stay: a stop ends the server within its grace period, and no goroutine waits
// for them.
func TestDeafClientsHoldNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   smtpd.Mode
		begin  string
		leaves bool
	}{
		"MX, leaves":          {smtpd.MX, "", true},
		"MX, stays":           {smtpd.MX, "", false},
		"STARTTLS, leaves":    {smtpd.Submission, "STARTTLS\r\n", true},
		"STARTTLS, stays":     {smtpd.Submission, "STARTTLS\r\n", false},
		"TLS, leaves":         {smtpd.Submissions, "", true},
		"TLS, stays":          {smtpd.Submissions, "", false},
		"in a message, stays": {smtpd.MX, "EHLO c.test\r\nMAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, func(_ *core.Config, s *smtpd.Server) {
				s.Log, s.TLS, s.Limits.Grace, s.Limits.Commands = slog.New(slog.DiscardHandler), servicetest.Certificate(t, "mail.example.test"), 200*time.Millisecond, 1<<30
			})
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- h.server.Run(ctx, ln, tc.mode) }()
			var conns []net.Conn
			for range 24 {
				raw, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				conns = append(conns, raw)
				go deafen(raw, tc.mode, tc.begin)
			}
			time.Sleep(500 * time.Millisecond)
			for _, conn := range conns {
				if tc.leaves {
					conn.Close()
				}
			}
			if tc.leaves {
				endsServing(t, 5*time.Second)
			}
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(h.server.Limits.Grace + 5*time.Second):
				t.Fatal("Run does not end")
			}
			endsServing(t, time.Second)
		})
	}
}

// deafen reads only what it must for a handshake.
func deafen(raw net.Conn, mode smtpd.Mode, begin string) {
	conn := raw
	if mode == smtpd.Submissions {
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	_, _ = io.WriteString(conn, begin) // the server may have had enough, here and below
	if strings.HasPrefix(begin, "STARTTLS") {
		seen := make([]byte, 4096)
		for all := ""; !strings.Contains(all, "Ready to start TLS"); {
			n, err := raw.Read(seen)
			if err != nil {
				return
			}
			all += string(seen[:n])
		}
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	_, _ = io.WriteString(conn, strings.Repeat("EHLO client.test\r\n", 100_000))
}

// endsServing fails unless all goroutines of sessions end in time.
func endsServing(t *testing.T, within time.Duration) {
	t.Helper()
	for until := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, stack := range strings.Split(all.String(), "\n\n") {
			if strings.Contains(stack, "smtpd.(*run).serve") || strings.Contains(stack, "go-smtp.(*Conn)") {
				n++
			}
		}
		if n == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d goroutines still serve clients", n)
		}
	}
}

// TestSubmissionEndsWithItsAccount ends connections that are logged in, and takes no mail, when the
// account is suspended.
func TestSubmissionEndsWithItsAccount(t *testing.T) {
	h := open(t, func(c *core.Config, _ *smtpd.Server) { c.Sandbox = true })
	c := dial(t, h.addr[smtpd.Submission])
	c.ask("EHLO x", "250")
	c.ask(strings.TrimSpace(plain()), "235")
	if _, err := h.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: h.Owner.AccountID, Status: "suspended"}); err != nil {
		t.Fatal(err)
	}
	c.want("421 4.2.1")
	c.ended()
	again := dial(t, h.addr[smtpd.Submission])
	again.ask("EHLO x", "250")
	again.ask(strings.TrimSpace(plain()), "535 5.7.13")
	in := dial(t, h.addr[smtpd.MX])
	in.ask("EHLO x", "250")
	in.ask("MAIL FROM:<pat@sender.test>", "250")
	in.ask("RCPT TO:<ana@example.test>", "550 5.2.1")
	if _, err := h.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: h.Owner.AccountID, Status: "active"}); err != nil {
		t.Fatal(err)
	}
	in.ask("RCPT TO:<ana@example.test>", "250")
	last := dial(t, h.addr[smtpd.Submission])
	last.ask("EHLO x", "250")
	last.ask(strings.TrimSpace(plain()), "235")
}
