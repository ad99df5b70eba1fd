package imapd

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/servicetest"
)

// A slowness is a client that takes its time.
type slowness struct {
	secure   bool // the server has a certificate
	implicit bool
	begin    string        // is said at once
	drip     string        // comes after each pause, again and again
	pause    time.Duration // 0: nothing more comes
	deaf     bool          // it does not read
	after    time.Duration // when the connection ends
	said     string        // what it is told last
}

const (
	logIn   = "a LOGIN ann@example.test \"correct horse\"\r\n"
	tooSlow = "* BYE Nothing came for too long\r\n"
	hello   = "\x16\x03\x01\x02\x00\x01" // how a handshake begins
)

var slow = map[string]slowness{
	"says nothing":               {after: time.Minute, said: tooSlow},
	"says nothing before TLS":    {secure: true, after: time.Minute, said: tooSlow},
	"drips before TLS":           {secure: true, drip: "a", pause: time.Second, after: time.Minute, said: tooSlow},
	"no handshake":               {secure: true, implicit: true, after: time.Minute},
	"drips a handshake":          {secure: true, implicit: true, drip: hello, pause: time.Second, after: time.Minute},
	"no handshake at STARTTLS":   {secure: true, begin: "a STARTTLS\r\n", after: time.Minute, said: "a OK Begin TLS negotiation now\r\n"},
	"drips one at STARTTLS":      {secure: true, begin: "a STARTTLS\r\n", drip: hello, pause: time.Second, after: time.Minute},
	"drips a log-in":             {begin: "a LOGIN ", drip: "x", pause: time.Second, after: time.Minute, said: tooSlow},
	"drips AUTHENTICATE":         {begin: "a AUTHENTICATE PLAIN\r\n", drip: "x", pause: time.Second, after: time.Minute, said: tooSlow},
	"drips commands, no log-in":  {drip: "a NOOP\r\n", pause: 7 * time.Second, after: time.Minute, said: tooSlow},
	"logs in":                    {begin: logIn, after: 30 * time.Minute, said: tooSlow},
	"idles":                      {begin: logIn + "b SELECT INBOX\r\nc IDLE\r\n", after: 30 * time.Minute, said: tooSlow},
	"drips a command":            {begin: logIn + "b", drip: "x", pause: time.Second, after: time.Minute, said: tooSlow},
	"no literal":                 {begin: logIn + "b SELECT {5}\r\n", after: time.Minute, said: tooSlow},
	"no message after APPEND":    {begin: logIn + "b APPEND INBOX {819200}\r\n", after: 160 * time.Second, said: tooSlow},
	"drips a message":            {begin: logIn + "b APPEND INBOX {819200}\r\n", drip: strings.Repeat("x", 100), pause: time.Second, after: 160 * time.Second, said: tooSlow},
	"drips one that is too long": {begin: logIn + "b APPEND Nowhere {8192+}\r\n", drip: "x", pause: time.Second, after: 61 * time.Second},
	"never reads":                {begin: logIn + strings.Repeat("b LIST \"\" *\r\n", 1000), deaf: true, after: time.Minute},
	"never reads before TLS":     {secure: true, deaf: true, after: time.Minute},
}

// TestSlowClientsAreSentAway holds the usual limits to the second, in false time: no way to be slow
// keeps a connection longer than they say.
func TestSlowClientsAreSentAway(t *testing.T) {
	for name, s := range slow {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.test(t) })
		})
	}
}

func (s slowness) test(t *testing.T) {
	box := servicetest.New(t, nil)
	box.Domain(t, box.Owner.AccountID, "example.test", "manual", "complete")
	h := &host{Sandbox: box, server: New(box.Service)}
	h.user = h.mailbox(t, "ann")
	h.server.Log = slog.New(slog.DiscardHandler)
	if s.secure {
		h.server.TLS = certificate(t)
	}
	ln := servicetest.NewPipes()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.server.Run(ctx, ln, s.implicit) }()
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
		client.Deaf = "d NOOP\r\n"
	}
	if told := client.Play(t, conn); !strings.HasSuffix(told, s.said) {
		t.Errorf("it was told %.300q", told)
	}
}
