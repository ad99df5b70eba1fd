package smtpd_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/internal/cputime"
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

// TestLogInsCountForTheMailbox: a connection that has logged in counts no longer for its address,
// but for its mailbox, whatever its port.
func TestLogInsCountForTheMailbox(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) {
		s.Limits.Exempt, s.Limits.ConnsPerAddress, s.Limits.ConnsPerMailbox = nil, 2, 3
	})
	first := h.addr[smtpd.Submission]
	second, _ := h.listen(t, smtpd.Submission)
	enter := func(addr string) *client {
		c := dial(t, addr)
		c.ask("EHLO client.test", "250")
		return c
	}
	var anas []*client
	for _, addr := range []string{first, second, first} {
		c := enter(addr)
		c.send(plain())
		c.want("235")
		anas = append(anas, c)
	}
	ben := enter(first)
	ben.ask("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00ben@example.test\x00"+password)), "235")
	fourth := enter(first)
	dial(t, first)
	refused := connect(t, first)
	refused.want("421 4.7.0 mail.example.test Too many connections")
	refused.ended()
	fourth.send(plain())
	fourth.want("421 4.7.0 mail.example.test This mailbox has 3 connections already")
	fourth.ended()
	anas[0].ask("QUIT", "221")
	anas[0].ended()
	for deadline := time.Now().Add(5 * time.Second); ; {
		c := connect(t, second)
		if got, _ := c.reply(); strings.HasPrefix(got, "220") {
			c.ask("EHLO client.test", "250")
			c.send(plain())
			if got, _ := c.reply(); strings.HasPrefix(got, "235") {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a connection that has ended is not free")
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

// mailBombs are messages of about a megabyte that cost a careless server time or memory out of
// proportion.
func mailBombs() map[string]string {
	const size = 1 << 20
	fill := func(head, unit, tail string) string {
		return head + strings.Repeat(unit, (size-len(head)-len(tail))/len(unit)) + tail
	}
	from := "From: Pat <pat@sender.test>\r\nSubject: x\r\n"
	mixed := from + "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
	var deep strings.Builder
	deep.WriteString(from)
	for i := 0; deep.Len() < size; i++ {
		fmt.Fprintf(&deep, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	signature := "DKIM-Signature: v=1; a=rsa-sha256; d=sender.test; s=s; c=relaxed/relaxed; h=From:From:From:From; bh=AAAA; b=AAAA\r\n"
	return map[string]string{
		"parts":                fill(mixed, "--b\r\n\r\n", "--b--\r\n"),
		"depth":                deep.String(),
		"messages in messages": fill(from, "Content-Type: message/rfc822\r\n\r\n", "x\r\n"),
		"forwarded parts":      fill(mixed, "--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: y\r\n\r\nz\r\n", "--b--\r\n"),
		"fields":               fill(from, "X-Field: y\r\n", "\r\nx\r\n"),
		"empty fields":         fill(from, "a:\r\n", "\r\nx\r\n"),
		"authors":              fill("From: ", "a@b.test,\r\n ", "c@d.test\r\n\r\nx\r\n"),
		"author fields":        fill("", "From: a@b.test\r\n", "\r\nx\r\n"),
		"groups":               fill(from+"To: ", "a:b@c.test;\r\n ", "x\r\n\r\nx\r\n"),
		"encoded words":        fill(from+"Subject: ", "=?utf-8?q?=41?=\r\n ", "x\r\n\r\nx\r\n"),
		"references":           fill(from+"References: ", "<a@b>\r\n ", "x\r\n\r\nx\r\n"),
		"parameters":           fill(from+"Content-Type: text/plain", ";\r\n a*1=b", "\r\n\r\nx\r\n"),
		"comments":             fill(from+"Content-Type: text/plain; ", "(\r\n ", "x\r\n\r\nx\r\n"),
		"quoted-printable":     fill(from+"Content-Transfer-Encoding: quoted-printable\r\n\r\n", "=41=42=\r\n", "\r\n"),
		"base64":               fill(from+"Content-Transfer-Encoding: base64\r\n\r\n", "=\r\n", "\r\n"),
		"tags":                 fill(from+"Content-Type: text/html\r\n\r\n", "<b><i>\r\n", "\r\n"),
		"signatures":           fill(signature+from, signature, "\r\nx\r\n"),
		"results of ours":      fill(from, "Authentication-Results: mail.example.test; spf=pass\r\n", "\r\nx\r\n"),
		"open results":         fill(from+"Authentication-Results: ", "(\r\n ", "x\r\n\r\nx\r\n"),
		"chain":                fill(from, "ARC-Seal: i=1; cv=none; a=rsa-sha256; d=x.test; s=s; b=AAAA\r\n", "\r\nx\r\n"),
		"received":             fill(from, "X-Received: from a by b; Fri, 20 Nov 2026 00:00:00 +0000\r\n", "\r\nx\r\n"),
		"failed recipients":    fill("From: mailer-daemon@sender.test\r\n", "X-Failed-Recipients: a@b.test\r\n", "\r\nx\r\n"),
		"status blocks":        fill(mixed+"--b\r\nContent-Type: message/delivery-status\r\n\r\n", "Final-Recipient: rfc822;a@b.test\r\nAction: failed\r\n\r\n", "--b--\r\n"),
		"line feeds":           fill(from+"\r\n", "\n", "\r\n"),
		"returns":              fill(from+"\r\n", "\r", "\r\n"),
		"report of zeros":      reportBomb(mixed, "application/gzip", "xml.gz", "\x00"),
		"report of tags":       reportBomb(mixed, "application/gzip", "xml.gz", "<a/>"),
		"report of braces":     reportBomb(mixed, "application/tlsrpt+gzip", "json.gz", `{"policies":[`),
	}
}

// reportBomb is a report of 64 MiB in a small file.
func reportBomb(head, kind, ending, unit string) string {
	var file bytes.Buffer
	z, _ := gzip.NewWriterLevel(&file, gzip.BestSpeed)
	block := []byte("<feedback>" + strings.Repeat(unit, 1<<16/len(unit)))
	for range 1 << 10 {
		_, _ = z.Write(block)
	}
	_ = z.Close()
	text := base64.StdEncoding.EncodeToString(file.Bytes())
	var lines strings.Builder
	for len(text) > 0 {
		n := min(76, len(text))
		lines.WriteString(text[:n] + "\r\n")
		text = text[n:]
	}
	return head + "--b\r\nContent-Type: " + kind + "; name=\"a!example.test!1!2." + ending + "\"\r\nContent-Transfer-Encoding: base64\r\n\r\n" + lines.String() + "--b--\r\n"
}

// TestBombs takes every bomb in little processor time and memory, and goes on as before.
func TestBombs(t *testing.T) {
	h := open(t, nil)
	taken := 0
	for name, text := range mailBombs() {
		c := dial(t, h.addr[smtpd.MX])
		c.ask("EHLO client.test", "250")
		c.rcpt("ana@example.test")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := cputime.Used(t)
		c.ask("DATA", "354")
		c.send(text + ".\r\n")
		got, err := c.reply()
		took := cputime.Used(t) - began
		runtime.ReadMemStats(&after)
		switch {
		case err != nil || got[:3] != "250" && got[:3] != "550" && got[:3] != "554":
			t.Errorf("%s: %q, %v", name, got, err)
		case got[:3] == "250":
			taken++
		}
		if took > 3*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
			t.Errorf("%s: %d MiB were allocated", name, used>>20)
		}
		t.Logf("%s: %.3s in %v, %d MiB allocated", name, got, took, (after.TotalAlloc-before.TotalAlloc)>>20)
		c.ask("NOOP", "250")
		c.ask("QUIT", "221")
	}
	h.ReportsRead(t)
	in := h.count(t, "ana@example.test") + len(h.inbox(t, "ana@example.test", "Junk"))
	if in != taken {
		t.Errorf("%d messages of %d that were taken", in, taken)
	}
}

// TestEndlessLine hangs up on a message of one line that never ends, long before the gigabyte.
func TestEndlessLine(t *testing.T) {
	t.Parallel()
	h := open(t, func(_ *core.Config, s *smtpd.Server) { s.Limits.Size = 1 << 20 })
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	c.rcpt("ana@example.test")
	c.ask("DATA", "354")
	block := []byte(strings.Repeat("x", 64<<10))
	sent := 0
	for sent < 1<<30 {
		n, err := c.conn.Write(block)
		sent += n
		if err != nil {
			break
		}
	}
	if sent > 64<<20 {
		t.Errorf("%d bytes were taken of a line", sent)
	}
	if n := h.count(t, "ana@example.test"); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// TestInjection keeps what a client says of itself and of its mail from becoming header fields or
// commands of ours.
func TestInjection(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for name, lines := range map[string][]string{
		"greeting":         {"EHLO client.test\rX-Evil: 1", "MAIL FROM:<pat@sender.test>", "RCPT TO:<ana@example.test>"},
		"greeting, LF":     {"EHLO client.test\nX-Evil: 1", "MAIL FROM:<pat@sender.test>", "RCPT TO:<ana@example.test>"},
		"greeting, NUL":    {"EHLO client\x00.test", "MAIL FROM:<pat@sender.test>", "RCPT TO:<ana@example.test>"},
		"greeting, words":  {"EHLO client.test (by mail.example.test with X-Evil:)", "MAIL FROM:<pat@sender.test>", "RCPT TO:<ana@example.test>"},
		"sender":           {"EHLO c.test", "MAIL FROM:<pat@sender.test\rX-Evil: 1>", "RCPT TO:<ana@example.test>"},
		"sender, quoted":   {"EHLO c.test", "MAIL FROM:<\"pat\rX-Evil: 1\"@sender.test>", "RCPT TO:<ana@example.test>"},
		"sender, angle":    {"EHLO c.test", "MAIL FROM:<\"pat>\\r\\nX-Evil: 1<\"@sender.test>", "RCPT TO:<ana@example.test>"},
		"recipient":        {"EHLO c.test", "MAIL FROM:<pat@sender.test>", "RCPT TO:<ana+\rX-Evil@example.test>", "RCPT TO:<ana@example.test>"},
		"recipient, tag":   {"EHLO c.test", "MAIL FROM:<pat@sender.test>", "RCPT TO:<\"ana+x>, X-Evil: 1\"@example.test>", "RCPT TO:<ana@example.test>"},
		"recipient, UTF-8": {"EHLO c.test", "MAIL FROM:<pat@sender.test>", "RCPT TO:<ana+\u2028X-Evil@example.test>", "RCPT TO:<ana@example.test>"},
	} {
		c := dial(t, h.addr[smtpd.MX])
		for _, line := range append(lines, "DATA") {
			c.send(line + "\r\n")
			if _, err := c.reply(); err != nil {
				break // it was hung up on
			}
		}
		c.send("Subject: x\r\n\r\nx\r\n.\r\n")
		_, _ = c.reply()
		c.conn.Close()
		for _, text := range h.inbox(t, "ana@example.test", "INBOX") {
			head, _, _ := strings.Cut(text, "\r\n\r\n")
			for line := range strings.SplitSeq(head, "\r\n") {
				if strings.HasPrefix(line, "X-Evil") || strings.ContainsAny(line, "\r\n\x00\u2028") {
					t.Errorf("%s: the header has %q", name, line)
				}
			}
		}
	}
}

// TestSmuggling puts a second message behind everything that another server may take for the end of
// the first.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	ends := []string{
		"\n.\n", "\n.\r\n", "\r.\r", "\r.\r\n", "\r\n.\n", "\r\n.\r", "\r\n.\r\r\n", "\n.\r", "\r.\n", "\r\n\x00.\r\n", "\r\n.\x00\r\n", "\r\n. \r\n",
		"\r\r\n.\n", "\n\n.\r\n", "\x0b.\r\n", "\x85.\x85", "\u2028.\u2028",
	}
	for _, end := range ends {
		for _, chunked := range []bool{false, true} {
			c := dial(t, h.addr[smtpd.MX])
			c.ask("EHLO client.test", "250")
			c.rcpt("ana@example.test")
			text := "Subject: one\r\n\r\nx" + end + "MAIL FROM:<admin@example.test>\r\nRCPT TO:<ben@example.test>\r\nDATA\r\nSubject: two\r\n\r\nsmuggled\r\n"
			if chunked {
				c.send(fmt.Sprintf("BDAT %d LAST\r\n%s", len(text), text))
				c.want("250")
			} else {
				c.ask("DATA", "354")
				c.send(text + ".\r\n")
				c.want("250")
			}
			c.ask("NOOP", "250 2.0.0")
			c.ask("QUIT", "221")
			c.ended()
		}
	}
	if n := h.count(t, "ana@example.test"); n != 2*len(ends) {
		t.Errorf("%d messages, want %d", n, 2*len(ends))
	}
	if n := h.count(t, "ben@example.test"); n != 0 {
		t.Errorf("%d messages were smuggled", n)
	}
	for _, text := range h.inbox(t, "ana@example.test", "INBOX") {
		if strings.Contains(strings.ReplaceAll(text, "\r\n", ""), "\n") || strings.Contains(strings.ReplaceAll(text, "\r\n", ""), "\r") || strings.Contains(text, "\x00") {
			t.Errorf("what is stored has ends of lines that are none: %q", text)
		}
	}
}
