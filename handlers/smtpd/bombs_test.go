package smtpd_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
)

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

// TestBombs takes every bomb in little time and memory, and goes on as before.
func TestBombs(t *testing.T) {
	h := open(t, nil)
	taken := 0
	for name, text := range mailBombs() {
		c := dial(t, h.addr[smtpd.MX])
		c.ask("EHLO client.test", "250")
		c.rcpt("ana@example.test")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		c.ask("DATA", "354")
		c.send(text + ".\r\n")
		got, err := c.reply()
		took := time.Since(began)
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
