package smtpd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestStoredMessage takes a message with everything that a stranger may get wrong, and looks at
// what is kept of it.
func TestStoredMessage(t *testing.T) {
	t.Parallel()
	h := open(t, production(t))
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO [client]\x27<x>;", "250")
	c.startTLS()
	c.ask("EHLO client.test", "250")
	c.rcpt("ana+tag@example.test")
	c.data("Authentication-Results: mail.example.test; spf=pass\r\nAuthentication-Results: other.test; spf=pass\r\n"+
		"From: Pat <pat@sender.test>\r\nSubject: x\r\n\r\n..dots\r\nbare\nlf\rcr\x00nul\r\n", "250")
	got := h.inbox(t, "ana@example.test", "INBOX")
	if len(got) != 1 {
		t.Fatalf("%d messages", len(got))
	}
	want := regexp.MustCompile(`^Return-Path: <pat@sender.test>\r\n` +
		`Delivered-To: ana\+tag@example.test\r\n` +
		`Authentication-Results: mail.example.test;(\r\n\t[^\r\n]+)+\r\n` +
		`Received: from client.test \(\[127.0.0.1\]\)\r\n\tby mail.example.test \(TLS 1.3 TLS_[A-Z0-9_]+\)\r\n\twith ESMTPS id rcv_\w+\r\n\tfor <ana\+tag@example.test>;\r\n\t[^\r\n]+ \+0000\r\n` +
		`Authentication-Results: other.test; spf=pass\r\n` +
		`From: Pat <pat@sender.test>\r\nSubject: x\r\n\r\n\.dots\r\nbare\r\nlf\r\ncrnul\r\n$`)
	if !want.MatchString(got[0]) {
		t.Errorf("stored:\n%q", got[0])
	}
	if n := h.CountEvents(t, "email.received"); n != 1 {
		t.Errorf("%d events", n)
	}
	meta := h.Folder(t, "ana@example.test", "INBOX", 1)[0].Meta
	if meta.SPF != "none" || meta.DKIM != "none" || meta.DMARC != "none" || meta.ReturnPath != "pat@sender.test" {
		t.Errorf("meta %+v", meta)
	}
}

// TestOurOwnFaultIsLogged: where mail is deferred because our disk is at fault, the operator reads
// why.
func TestOurOwnFaultIsLogged(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	segments := filepath.Join(h.Core.Store.Dir(), "segments")
	if err := os.Rename(segments, segments+".gone"); err != nil {
		t.Fatal(err)
	}
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	c.rcpt("ana@example.test")
	c.data("Subject: large\r\n\r\n"+strings.Repeat("a line that fills a segment of its own\r\n", 250_000), "451 4.3.0")
	if text := h.log.String(); !strings.Contains(text, "an internal error deferred a message") || !strings.Contains(text, "segments") || strings.Contains(text, "ana@") {
		t.Errorf("the log says %q", text)
	}
	if err := os.Rename(segments+".gone", segments); err != nil {
		t.Fatal(err)
	}
}

// TestDMARC holds for any domain, hosted ones included; what it sets aside goes to Junk without an
// event.
func TestDMARC(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.zone.set("_dmarc.strict.test", "v=DMARC1; p=reject")
	h.zone.set("_dmarc.example.test", "v=DMARC1; p=reject")
	h.zone.set("_dmarc.wary.test", "v=DMARC1; p=quarantine")
	h.zone.set("good.test", "v=spf1 ip4:127.0.0.1 -all")
	h.zone.set("_dmarc.good.test", "v=DMARC1; p=reject")
	send := func(from, want string) {
		c := dial(t, h.addr[smtpd.MX])
		c.ask("EHLO client.test", "250")
		c.ask("MAIL FROM:<"+from+">", "250")
		c.ask("RCPT TO:<ana@example.test>", "250")
		c.data("From: "+from+"\r\nSubject: x\r\n\r\nx\r\n", want)
		c.ask("QUIT", "221")
	}
	send("pat@strict.test", "550 5.7.1")
	send("ben@example.test", "550 5.7.1")
	send("pat@wary.test", "250")
	send("pat@good.test", "250")
	if n := h.count(t, "ana@example.test"); n != 1 {
		t.Errorf("%d in INBOX", n)
	}
	if n := len(h.inbox(t, "ana@example.test", "Junk")); n != 1 {
		t.Errorf("%d in Junk", n)
	}
	if n := h.CountEvents(t, "email.received"); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestDeadResolver takes mail though no DNS answers.
func TestDeadResolver(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.zone.dead = true
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	c.rcpt("ana@example.test")
	began := time.Now()
	c.data(mail("dead"), "250")
	if took := time.Since(began); took > 5*time.Second { // a second and the two for the resolver to show that it lives
		t.Errorf("took %v", took)
	}
	if got := h.inbox(t, "ana@example.test", "INBOX"); len(got) != 1 || !strings.Contains(got[0], "spf=temperror") {
		t.Errorf("stored %q", got)
	}
}

// TestLoops ends what goes round in circles: by its hops, and by where it has been.
func TestLoops(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	hop := "Received: from a.test by b.test; Fri, 20 Nov 2026 00:00:00 +0000\r\n"
	c.rcpt("ana@example.test")
	c.data(strings.Repeat(hop, 49)+mail("far"), "250")
	c.rcpt("ana@example.test")
	c.data(strings.Repeat(hop, 51)+mail("too far"), "554 5.4.6")
	c.rcpt("fwd@example.test")
	c.data("Delivered-To: fwd@example.test\r\n"+mail("again"), "554 5.4.6")
	c.rcpt("ana@example.test") // she forwards nothing, so it is no loop
	c.data("Delivered-To: ana@example.test\r\n"+mail("again"), "250")
	if n := h.count(t, "fwd@example.test"); n != 0 {
		t.Errorf("%d messages of a loop", n)
	}
}

// TestForward keeps a copy for the mailbox and sends one on, with a return path that comes back to
// us.
func TestForward(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	c.rcpt("fwd@example.test", "anything@forward.test")
	c.data(mail("on"), "250")
	if n := h.count(t, "fwd@example.test"); n != 1 {
		t.Errorf("%d copies kept", n)
	}
	sent := h.Sent(t)
	if len(sent) != 2 || sent[0] != "far@away.test" || sent[1] != "far@away.test" {
		t.Errorf("sent on to %q", sent)
	}
}

// TestManyRecipients takes a thousand and not one more.
func TestManyRecipients(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	c.ask("MAIL FROM:<pat@sender.test>", "250")
	for i := range 1000 {
		c.ask(fmt.Sprintf("RCPT TO:<ana+%d@example.test>", i), "250")
	}
	c.ask("RCPT TO:<ben@example.test>", "452 4.5.3")
	c.data(mail("many"), "250")
	if n := h.count(t, "ana@example.test"); n != 1 {
		t.Errorf("%d copies", n)
	}
}

// TestQuotaFilledMeanwhile takes nothing for anybody when a mailbox has become full since it was
// named.
func TestQuotaFilledMeanwhile(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	small := int64(600)
	h.ChangeMailbox(t, "ben@example.test", func(m *servicetest.Mailbox) { m.QuotaBytes = &small })
	c.ask("MAIL FROM:<pat@sender.test> SIZE=5000", "250")
	c.ask("RCPT TO:<ben@example.test>", "452 4.2.2")
	c.ask("RSET", "250")
	c.rcpt("ana@example.test", "ben@example.test")
	c.data(mail("big")+strings.Repeat("x\r\n", 400), "452 4.2.2")
	if a, b := h.count(t, "ana@example.test"), h.count(t, "ben@example.test"); a != 0 || b != 0 {
		t.Errorf("%d and %d messages of one that was refused", a, b)
	}
	h.ChangeMailbox(t, "ana@example.test", func(m *servicetest.Mailbox) { m.Status = "active" })
	c.rcpt("ana@example.test")
	h.ChangeMailbox(t, "ana@example.test", func(m *servicetest.Mailbox) { m.Status = "suspended" })
	c.data(mail("late"), "550 5.2.1")
}

// TestDeclaredSize refuses every SIZE that is too large as that (RFC 1870 section 6.1), also one of
// 20 digits.
func TestDeclaredSize(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, mode := range []smtpd.Mode{smtpd.MX, smtpd.Submission} {
		c := dial(t, h.addr[mode])
		c.ask("EHLO client.test", "250")
		if mode == smtpd.Submission {
			c.ask(strings.TrimSpace(plain()), "235")
		}
		for _, line := range []string{
			"<ana@example.test> SIZE=99999999999", "<ana@example.test> SIZE=4294967296", "<ana@example.test> BODY=8BITMIME size=18446744073709551616",
			"<ana@example.test> SIZE=99999999999999999999 BODY=7BIT", `<"a SIZE=9999999999 >b"@example.test> SIZE=9999999999`,
		} {
			c.ask("MAIL FROM:"+line, "552 5.3.4")
		}
		for _, line := range []string{"<ana@example.test> SIZE=999999999999999999999", "<ana@example.test> SIZE=-1", "<ana@example.test> SIZE=", "<ana@example.test> SIZE=1x"} {
			c.ask("MAIL FROM:"+line, "501")
		}
		c.ask(`MAIL FROM:<"a SIZE=99999999999 "@example.test> SIZE=10`, "250")
	}
}

// TestSubmissionRefusesUnknownRecipients of domains that are hosted here, at once.
func TestSubmissionRefusesUnknownRecipients(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := dial(t, h.addr[smtpd.Submission])
	c.ask("EHLO client.test", "250")
	c.ask(strings.TrimSpace(plain()), "235")
	c.ask("MAIL FROM:<ana@example.test>", "250")
	c.ask("RCPT TO:<nobody@example.test>", "550 5.1.1")
	for _, to := range []string{"ben+tag@example.test", "anybody@catch.test", "x@far.test", "eve@other.test"} {
		c.ask("RCPT TO:<"+to+">", "250")
	}
}

// TestLargeMessage takes 10 MiB, in both ways of sending, without holding it in memory, and refuses
// what is too large.
func TestLargeMessage(t *testing.T) {
	h := open(t, nil)
	line := strings.Repeat("m", 76) + "\r\n"
	block := strings.Repeat(line, 64<<10/len(line)+1)
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // so that little garbage counts
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := make(chan uint64)
	stop := make(chan struct{})
	go func() {
		var most uint64
		for {
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
				runtime.ReadMemStats(&after)
				most = max(most, after.HeapInuse)
			}
		}
	}()
	const blocks = 10 << 20 >> 16
	c.rcpt("ana@example.test")
	c.ask("DATA", "354")
	c.send("Subject: data\r\n\r\n")
	for range blocks {
		c.send(block)
	}
	c.send(".\r\n")
	c.want("250")
	c.rcpt("ana@example.test")
	c.send("BDAT 17\r\nSubject: bdat\r\n\r\n")
	c.want("250")
	for range blocks {
		c.send(fmt.Sprintf("BDAT %d\r\n%s", len(block), block))
		c.want("250")
	}
	c.ask("BDAT 0 LAST", "250")
	close(stop)
	if most := <-peak; most > before.HeapInuse+8<<20 {
		t.Errorf("heap grew from %d to %d bytes", before.HeapInuse, most)
	}
	for _, text := range h.inbox(t, "ana@example.test", "INBOX") {
		if len(text) < 10<<20 {
			t.Errorf("%d bytes stored", len(text))
		}
	}
	c.rcpt("ana@example.test")
	c.ask("DATA", "354")
	for range 36<<20/len(block) + 1 {
		c.send(block)
	}
	c.send("\r\n.\r\n")
	c.want("552 5.3.4")
	c.ask("NOOP", "250")
	c.rcpt("ana@example.test")
	c.ask("DATA", "354")
	c.send("Subject: x\r\n\r\n" + strings.Repeat("x", 70<<10) + "\r\n.\r\n")
	c.want("554 5.6.0")
	c.ask("NOOP", "250")
	if n := h.count(t, "ana@example.test"); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestSpoolFails refuses a message for now that cannot be spooled, and takes it when it can.
func TestSpoolFails(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := dial(t, h.addr[smtpd.MX])
	c.ask("EHLO client.test", "250")
	spool := filepath.Join(h.Core.Store.Dir(), "spool")
	if err := os.RemoveAll(spool); err != nil {
		t.Fatal(err)
	}
	big := mail("big") + strings.Repeat(strings.Repeat("x", 70)+"\r\n", 8000)
	c.rcpt("ana@example.test")
	c.data(big, "451 4.3.0")
	if err := os.MkdirAll(spool, 0o700); err != nil {
		t.Fatal(err)
	}
	c.rcpt("ana@example.test")
	c.data(big, "250")
	if n := h.count(t, "ana@example.test"); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestManyConnections sends from 64 connections at once: every message that got 250 is there, once.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	people := []string{"ana@example.test", "ben@example.test", "fwd@example.test", "eve@other.test"}
	const conns, each = 64, 4
	var wg sync.WaitGroup
	for i := range conns {
		c := dial(t, h.addr[smtpd.MX])
		wg.Go(func() {
			c.send("EHLO client.test\r\n")
			if _, err := c.reply(); err != nil {
				t.Error(err)
				return
			}
			for j := range each {
				c.send("MAIL FROM:<pat@sender.test>\r\nRCPT TO:<" + people[i%4] + ">\r\nDATA\r\n" + mail(fmt.Sprintf("no %d %d", i, j)) + ".\r\n")
				for k := range 4 {
					if got, err := c.reply(); err != nil || got[:3] != []string{"250", "250", "354", "250"}[k] {
						t.Error(got, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, email := range people {
		seen := map[string]bool{}
		for _, text := range h.inbox(t, email, "INBOX") {
			_, rest, _ := strings.Cut(text, "Message-ID: <")
			id, _, _ := strings.Cut(rest, ">")
			if seen[id] {
				t.Errorf("%s has %s twice", email, id)
			}
			seen[id] = true
		}
		if len(seen) != conns/4*each {
			t.Errorf("%s has %d messages", email, len(seen))
		}
	}
	if n := h.CountEvents(t, "email.received"); n != conns*each {
		t.Errorf("%d events", n)
	}
}

// TestSwaks lets another program send: plain, UTF-8, SMTPUTF8, an attachment, over TLS with a
// log-in.
func TestSwaks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("swaks"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	h := open(t, func(c *core.Config, s *smtpd.Server) { s.TLS = servicetest.Certificate(t, "mail.example.test") })
	file := filepath.Join(t.TempDir(), "bericht.pdf")
	if err := os.WriteFile(file, []byte(strings.Repeat("%PDF", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"plain":      {"--server", h.addr[smtpd.MX], "--to", "ana@example.test", "--from", "pat@sender.test"},
		"utf8":       {"--server", h.addr[smtpd.MX], "--to", "ana@example.test", "--from", "pat@sender.test", "--body", "Grüße aus Köln", "--header", "Subject: Grüße"},
		"smtputf8":   {"--server", h.addr[smtpd.MX], "--to", "müller@example.test", "--from", "pöt@sender.test"},
		"attachment": {"--server", h.addr[smtpd.MX], "--to", "ana@example.test", "--from", "pat@sender.test", "--attach", "@" + file, "--tls"},
		"pipeline":   {"--server", h.addr[smtpd.MX], "--to", "ana@example.test", "--from", "pat@sender.test", "--pipeline"},
		"submission": {"--server", h.addr[smtpd.Submission], "--to", "ben@example.test", "--from", "ana@example.test", "--auth", "LOGIN", "--auth-user", "ana@example.test", "--auth-password", password, "--tls"},
		"tls":        {"--server", h.addr[smtpd.Submissions], "--to", "ben@example.test", "--from", "ana@example.test", "--auth", "PLAIN", "--auth-user", "ana@example.test", "--auth-password", password, "--tls-on-connect"},
	} {
		out, err := exec.Command("swaks", append(args, "--helo", "client.test", "--timeout", "20")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if a, m := h.count(t, "ana@example.test"), h.count(t, "müller@example.test"); a != 4 || m != 1 {
		t.Errorf("%d and %d messages", a, m)
	}
}
