package imapd

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/inbox"
)

// serving counts the goroutines that serve an IMAP connection or wait within go-imap.
func serving(t *testing.T) int {
	t.Helper()
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, stack := range strings.Split(all.String(), "\n\n") {
		if strings.Contains(stack, "imapserver.(*Conn)") {
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
		if s.Grace = time.Second; deaf[kind].secure {
			s.TLS = certificate(t)
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
		if text[i] = byte('!' + rand.IntN(90)); i%76 == 75 {
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
	folder, err := h.FolderByName(t.Context(), h.user, "INBOX")
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
		if _, err := h.ChangeFlags(t.Context(), h.user, folder.ID, uids, change); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	h.stopsInTime(t)
}
