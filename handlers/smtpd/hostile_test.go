package smtpd_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// TestCutMessages hangs up in the middle of a message, in each way of sending, over TCP and TLS,
// with and without saying so. Nothing of it is kept.
func TestCutMessages(t *testing.T) {
	t.Parallel()
	h := open(t, production(t))
	addr, stop := h.listen(t, smtpd.MX)
	half := mail("half")
	for name, text := range map[string]string{
		"data":           "DATA\r\n" + half,
		"data, line":     "DATA\r\n" + half + "cut",
		"data, dot":      "DATA\r\n" + half + ".",
		"data, dot cr":   "DATA\r\n" + half + ".\r",
		"data, dot lf":   "DATA\r\n" + half + ".\n",
		"bdat":           fmt.Sprintf("BDAT %d LAST\r\n%s", len(half)+1, half),
		"bdat, none":     "BDAT 100 LAST\r\n",
		"bdat, no last":  fmt.Sprintf("BDAT %d\r\n%s", len(half), half),
		"bdat, command":  fmt.Sprintf("BDAT %d\r\n%sBDAT 0 LAST", len(half), half),
		"data, no reply": "DATA\r\n",
	} {
		for _, over := range []string{"tcp", "tls", "tls, close_notify", "tcp, half closed"} {
			c := dial(t, addr)
			c.ask("EHLO client.test", "250")
			raw := c.conn
			if strings.HasPrefix(over, "tls") {
				c.startTLS()
				c.ask("EHLO client.test", "250")
			}
			c.rcpt("ana@example.test")
			c.send(text)
			switch over {
			case "tls, close_notify":
				c.conn.(*tls.Conn).CloseWrite() // and TCP stays open
			case "tcp, half closed":
				raw.(*net.TCPConn).CloseWrite()
			default:
				raw.Close()
				continue
			}
			for {
				got, err := c.reply()
				if err != nil {
					break
				}
				if strings.HasPrefix(got, "250 2.0.0 OK: queued as") {
					t.Errorf("%s over %s was taken", name, over)
				}
			}
		}
	}
	stop() // until the server has seen that everybody has gone
	if n := h.count(t, "ana@example.test"); n != 0 {
		t.Errorf("%d messages that were cut are kept", n)
	}
}

// TestHalfClosed answers a client that says everything and closes its side.
func TestHalfClosed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := connect(t, h.addr[smtpd.MX])
	c.send("EHLO a.test\r\nMAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n" + mail("one") + ".\r\n")
	c.conn.(*net.TCPConn).CloseWrite()
	for _, want := range []string{"220", "250", "250", "250", "354", "250 2.0.0 OK: queued as"} {
		c.want(want)
	}
	c.ended()
	if n := h.count(t, "ana@example.test"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestSlow ends what is sent too slowly, wherever it stands, and never runs the rest as commands.
func TestSlow(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) {
		s.Limits.Idle = 300 * time.Millisecond
		s.Limits.BodyIdle = 300 * time.Millisecond
		s.Limits.BodyGrace = 600 * time.Millisecond
		s.Limits.Rate = 1 << 20
	})
	for name, tc := range map[string]struct {
		begin, drop string
		taken       int // replies to begin
	}{
		"command":       {"NO", "O", 0},
		"whole":         {"", "", 0},
		"data":          {"MAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n", "Subject: x\r\n", 3},
		"data, nothing": {"MAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n", "", 3},
		"bdat":          {"MAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nBDAT 100000 LAST\r\n", "NOOP\r\n", 2},
		"bdat, nothing": {"MAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nBDAT 100000 LAST\r\n", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, h.addr[smtpd.MX])
			c.ask("EHLO client.test", "250")
			c.send(tc.begin)
			for range tc.taken {
				if _, err := c.reply(); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			ended := make(chan string)
			go func() {
				var all strings.Builder
				for {
					got, err := c.reply()
					all.WriteString(got)
					if err != nil {
						ended <- all.String()
						return
					}
				}
			}()
			for range 100 {
				select {
				case said := <-ended:
					if !strings.Contains(said, "4.4.2") || strings.Contains(said, "250") {
						t.Errorf("it said %q", said)
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("it took %v", took)
					}
					return
				case <-time.After(50 * time.Millisecond):
					c.send(tc.drop)
				}
			}
			t.Error("it never ends")
		})
	}
}

// TestCommandLimits ends a connection in which nothing is achieved, one with endless lines, and one
// that has sent enough.
func TestCommandLimits(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) {
		s.Limits.Commands = 20
		s.Limits.Messages = 2
	})
	c := dial(t, h.addr[smtpd.MX])
	for range 20 {
		c.ask("NOOP", "250")
	}
	c.ask("NOOP", "421 4.7.0 mail.example.test Too many commands")
	c.ended()
	c = dial(t, h.addr[smtpd.MX])
	go c.send("NOOP " + strings.Repeat("x", 1<<20))
	c.want("421 4.5.2")
	c = dial(t, h.addr[smtpd.MX])
	c.ask("EHLO "+strings.Repeat("x", 300), "501")
	c.ask("EHLO client.test", "250")
	for range 2 {
		c.rcpt("ana@example.test")
		c.data(mail("x"), "250")
	}
	c.ask("MAIL FROM:<pat@sender.test>", "421 4.7.0")
	c.ended()
}

// TestTooManyConnections refuses what is over the bound of all, and takes the next when one has
// gone.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) { s.Limits.Conns = 2 })
	first := dial(t, h.addr[smtpd.MX])
	dial(t, h.addr[smtpd.MX])
	refused := connect(t, h.addr[smtpd.MX])
	refused.want("421 4.7.0 mail.example.test Too many connections")
	refused.ended()
	first.ask("QUIT", "221")
	first.ended()
	for deadline := time.Now().Add(5 * time.Second); ; {
		c := connect(t, h.addr[smtpd.MX])
		if got, _ := c.reply(); strings.HasPrefix(got, "220") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody is let in any more")
		}
	}
}

// TestStop lets a message end that is being received, tells the idle, and cuts what does not end.
func TestStop(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) { s.Limits.Grace = 2 * time.Second })
	addr, stop := h.listen(t, smtpd.MX)
	idle, busy, stuck := dial(t, addr), dial(t, addr), dial(t, addr)
	for _, c := range []*client{busy, stuck} {
		c.ask("EHLO client.test", "250")
		c.rcpt("ana@example.test")
		c.ask("DATA", "354")
		c.send("Subject: x\r\n")
	}
	time.Sleep(100 * time.Millisecond) // until the server has read that
	stopped := make(chan struct{})
	began := time.Now()
	go func() {
		stop()
		close(stopped)
	}()
	idle.want("421 4.3.2 mail.example.test Server shutting down")
	idle.ended()
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("it still listens")
	}
	busy.send("\r\nthe rest\r\n.\r\n")
	busy.want("250 2.0.0 OK")
	busy.want("421 4.3.2")
	busy.ended()
	<-stopped
	if took := time.Since(began); took < 1900*time.Millisecond || took > 8*time.Second {
		t.Errorf("stopped after %v", took)
	}
	stuck.ended()
	if n := h.count(t, "ana@example.test"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestPanic ends the session that it happens in, and no other.
func TestPanic(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) {
		s.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { panic("no certificate at all") }}
	})
	other := dial(t, h.addr[smtpd.MX])
	c := dial(t, h.addr[smtpd.MX])
	c.ask("STARTTLS", "220")
	conn := tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true})
	if err := conn.HandshakeContext(context.Background()); err == nil {
		t.Error("hands were shaken")
	}
	other.ask("NOOP", "250")
	if !strings.Contains(h.log.String(), "no certificate at all") {
		t.Errorf("log: %s", h.log)
	}
	// A server whose service is not there panics in the middle of a command.
	broken := smtpd.New(&service.Service{Core: &core.Core{}})
	broken.Log = h.server.Log
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- broken.Run(ctx, ln, smtpd.MX) }()
	c = connect(t, ln.Addr().String())
	c.want("220 localhost")
	c.ask("EHLO client.test", "250")
	c.ask("MAIL FROM:<pat@sender.test>", "421 4.0.0 localhost")
	c.ended()
	c = connect(t, ln.Addr().String())
	c.want("220")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRunEnds says so when its socket fails, and wants a certificate for TLS.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- h.server.Run(t.Context(), ln, smtpd.MX) }()
	c := connect(t, ln.Addr().String())
	c.want("220")
	ln.Close()
	if err := <-ended; err == nil {
		t.Error("no error for a socket that was closed")
	}
	ln, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.server.Run(t.Context(), ln, smtpd.Submissions); err == nil {
		t.Error("TLS without a certificate")
	}
}
