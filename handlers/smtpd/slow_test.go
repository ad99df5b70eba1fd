package smtpd_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A slowness is a client that takes its time.
type slowness struct {
	mode  smtpd.Mode
	begin string        // is said at once
	drip  string        // comes after each pause, again and again
	pause time.Duration // 0: nothing more comes
	deaf  bool          // it does not read
	after time.Duration // when the connection ends
	said  string        // what it is told last
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
	if _, err := box.CreateEmailUser(t.Context(), owner, mailboxes.CreateEmailUserIn{Email: "ana@example.test", Password: &pw}); err != nil {
		t.Fatal(err)
	}
	server := smtpd.New(box.Service)
	server.Log, server.TLS = slog.New(slog.DiscardHandler), certificate(t)
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
