package imapd

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A slowness is a client that takes its time.
type slowness struct {
	secure   bool // the server has a certificate
	implicit bool
	begin    string        // sent at once
	drip     string        // sent after each pause, repeatedly
	pause    time.Duration // 0: nothing more is sent
	deaf     bool          // the client does not read
	after    time.Duration // when the connection ends
	said     string        // the last reply
}

const (
	logIn   = "a LOGIN ann@example.test \"correct horse\"\r\n"
	tooSlow = "* BYE Idle for too long\r\n"
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
		h.server.TLS = servicetest.Certificate(t, "mail.example.test")
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

// serving counts the goroutines that serve an IMAP connection.
func serving(t *testing.T) int {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, stack := range strings.Split(all.String(), "\n\n") {
		if strings.Contains(stack, "imapd.(*run).serve") {
			n++
		}
	}
	return n
}

// endsServing fails unless all goroutines of connections end in time.
func endsServing(t *testing.T, within time.Duration) {
	t.Helper()
	for until := time.Now().Add(within); serving(t) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d goroutines still serve clients", serving(t))
		}
	}
}

// stopsInTime stops the server, which has its Grace and a little more.
func (h *host) stopsInTime(t *testing.T) {
	t.Helper()
	begin := time.Now()
	if err := h.stop(); err != nil || time.Since(begin) > h.server.Grace+2*time.Second {
		t.Errorf("stop took %v: %v", time.Since(begin), err)
	}
	endsServing(t, time.Second)
}

// deaf are clients that ask for much and read nothing.
var deaf = map[string]struct {
	commands string
	compress bool
	secure   bool
}{
	"FETCH":            {commands: strings.Repeat("b FETCH 1:* BODY.PEEK[]\r\n", 20)},
	"FETCH BINARY":     {commands: strings.Repeat("b FETCH 1:* BINARY.PEEK[1]\r\n", 20)},
	"FETCH, then IDLE": {commands: strings.Repeat("b FETCH 1:* BODY.PEEK[]\r\n", 3) + "c IDLE\r\n"},
	"compressed FETCH": {commands: strings.Repeat("b FETCH 1:* BODY.PEEK[]\r\n", 20), compress: true},
	"FETCH under TLS":  {commands: strings.Repeat("b FETCH 1:* BODY.PEEK[]\r\n", 20), secure: true},
	"short commands":   {commands: strings.Repeat("b FETCH 1:* ENVELOPE\r\nc LIST \"\" *\r\n", 20_000)},
}

func serveDeaf(t *testing.T, kind string) *host {
	t.Helper()
	return serve(t, func(s *Server) {
		s.Grace = 200 * time.Millisecond
		if deaf[kind].secure {
			s.TLS = servicetest.Certificate(t, "mail.example.test")
		}
	})
}

// deafen starts 24 such clients and returns once the server is stuck with them.
func (h *host) deafen(t *testing.T, kind string) (conns []net.Conn) {
	t.Helper()
	h.put(t, "INBOX", letter("large")+noise(6<<20), 0)
	if deaf[kind].secure {
		h.addr, h.stop = h.run(t, true)
	}
	for range 24 {
		c := dial(t, h.addr)
		if err := c.conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c.conn)
		if deaf[kind].secure {
			c = talk(t, tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true}))
		}
		c.line()
		c.ok("LOGIN %s %q", email, password)
		c.ok("SELECT INBOX")
		if deaf[kind].compress {
			c = deflated(t, c)
		}
		go io.WriteString(c.conn, deaf[kind].commands) // the server may take only a part of them
	}
	time.Sleep(300 * time.Millisecond)
	return conns
}

// noise is a text that does not compress well.
func noise(size int) string {
	text := make([]byte, size)
	for i := range text {
		text[i] = byte('!' + rand.IntN(90))
		if i%76 == 75 {
			text[i] = '\n'
		}
	}
	return string(text)
}

// TestDeafClientsLeaveNothing has clients that disconnect while the server writes to them.
func TestDeafClientsLeaveNothing(t *testing.T) {
	for kind := range deaf {
		t.Run(kind, func(t *testing.T) {
			h := serveDeaf(t, kind)
			for _, conn := range h.deafen(t, kind) {
				conn.Close()
			}
			endsServing(t, 10*time.Second)
			h.stopsInTime(t)
		})
	}
}

// TestStopEndsDeafClients has clients that stay.
func TestStopEndsDeafClients(t *testing.T) {
	for kind := range deaf {
		t.Run(kind, func(t *testing.T) {
			h := serveDeaf(t, kind)
			h.deafen(t, kind)
			h.stopsInTime(t)
		})
	}
}

// TestStopEndsDeafIdlers has clients that idle and do not read while the folder changes all the
// time.
func TestStopEndsDeafIdlers(t *testing.T) {
	h := serve(t, func(s *Server) { s.Grace = time.Second })
	var uids []uint32
	for i := range 60 {
		uids = append(uids, h.put(t, "INBOX", letter(fmt.Sprint(i)), 0))
	}
	folder, err := h.Inbox.FolderByName(t.Context(), h.user, "INBOX")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for i := range 50 {
		words = append(words, fmt.Sprintf("k%02d%s", i, strings.Repeat("x", 90)))
	}
	for range 4 {
		c := h.login(t)
		c.ok("SELECT INBOX")
		if err := c.conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		c.send("i IDLE\r\n")
	}
	for i := range 40 { // each time 60 answers of 4.5 KiB
		change := inbox.FlagChange{Op: inbox.AddFlags, Keywords: words}
		if i%2 == 1 {
			change = inbox.FlagChange{Op: inbox.RemoveFlags, Keywords: words[:1]}
		}
		if _, err := h.Inbox.ChangeFlags(t.Context(), h.user, folder.ID, uids, change); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	h.stopsInTime(t)
}

// TestSessionsEndWithTheirAccount ends clients that idle, in a folder and in none, when the account
// is suspended.
func TestSessionsEndWithTheirAccount(t *testing.T) {
	h := serve(t, nil)
	inFolder, inNone, busy := h.login(t), h.login(t), h.login(t)
	inFolder.ok("SELECT INBOX")
	for _, c := range []*talker{inFolder, inNone} {
		c.send("i IDLE\r\n")
		c.line()
	}
	if _, err := h.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: h.Owner.AccountID, Status: "suspended"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*talker{"in a folder": inFolder, "in none": inNone} {
		if got := c.line(); !strings.HasPrefix(got, "* BYE [UNAVAILABLE]") {
			t.Errorf("idle %s: told %q", name, got)
		}
	}
	busy.send("s SELECT INBOX\r\n")
	if got := busy.line(); !strings.HasPrefix(got, "s NO [UNAVAILABLE]") {
		t.Errorf("SELECT: %q", got)
	}
	if got := codeOf(h.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: "imap", Username: "ann@example.test", Password: password, IP: "127.0.0.1"})); got != "mailbox_unavailable" {
		t.Errorf("a new log-in: %q", got)
	}
}

func codeOf(_ core.MailboxUser, err error) string {
	if e, ok := core.AsError(err); ok {
		return e.Code
	}
	return ""
}

// inUse is the memory that the process needs now.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestIdleConnectionsAreCheap measures a thousand clients that idle, the test's own end of each
// included. Their number is bounded, so this bounds what they take.
func TestIdleConnectionsAreCheap(t *testing.T) {
	for name, tc := range map[string]struct {
		compress bool
		clients  int
		most     int64 // bytes for each
	}{
		"plain":      {false, 1000, 64 << 10},
		"compressed": {true, 200, 192 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, func(s *Server) { s.MaxPerAddress, s.MaxPerMailbox = 2000, 2000 })
			before := inUse()
			clients := make([]*talker, tc.clients)
			for i := range clients {
				clients[i] = h.idle(t, tc.compress)
			}
			each := (inUse() - before) / int64(tc.clients)
			t.Logf("%d idle clients: %d bytes each, so %d MB for 5000", tc.clients, each, each*5000>>20)
			if each > tc.most {
				t.Errorf("an idle connection takes %d bytes", each)
			}
			runtime.KeepAlive(clients)
			h.put(t, "INBOX", letter("wake"), 0)
			for _, c := range clients {
				if got := c.line(); got != "* 1 EXISTS" {
					t.Fatalf("told %q", got)
				}
			}
		})
	}
}

// idle logs in, compresses if asked to, and idles in INBOX.
func (h *host) idle(t *testing.T, compress bool) *talker {
	t.Helper()
	c := h.login(t)
	c.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if compress {
		c = deflated(t, c)
	}
	c.ok("SELECT INBOX")
	c.send("i IDLE\r\n")
	c.line()
	if packed, ok := c.conn.(flateConn); ok {
		c.conn = packed.Conn // the test's compressor must not be measured
	}
	return c
}
