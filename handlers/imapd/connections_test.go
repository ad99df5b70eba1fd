package imapd

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

const evil = "x DELETE Archive\r\n"

// refusedLiterals are commands that a server refuses although their literal is on its way.
var refusedLiterals = map[string]struct{ command, status string }{
	"unknown command":    {literal("s FROB {%d+}\r\n%s\r\n", evil), "BAD"},
	"argument not asked": {literal("s NOOP {%d+}\r\n%s\r\n", evil), "BAD"},
	"wrong place":        {literal("s FETCH 1 {%d+}\r\n%s\r\n", evil), "BAD"},
	"two literals":       {literal("s NOOP {%d+}\r\n%s {3+}\r\nabc\r\n", evil), "BAD"},
	"append: large":      {literal("s APPEND Nowhere {%d+}\r\n%s\r\n", strings.Repeat(evil, 300)), "NO [TRYCREATE]"},
	"append: flag":       {literal("s APPEND INBOX (\"a\") {%d+}\r\n%s\r\n", evil), "BAD"},
	"append: date":       {literal("s APPEND INBOX \"yesterday\" {%d+}\r\n%s\r\n", evil), "BAD"},
	"append: argument":   {literal("s APPEND INBOX FROB {%d+}\r\n%s\r\n", evil), "BAD"},
	"list":               {literal("s LIST (FROB) {%d+}\r\n%s *\r\n", evil), "BAD"},
}

// brokenNames are commands that the connection refuses itself, for another literal in them.
var brokenNames = map[string]struct{ command, status string }{
	"append: folder": {literal("s APPEND {3+}\r\na\x00b {%d+}\r\n%s\r\n", evil), "BAD"},
	"append: large":  {literal("s APPEND {3+}\r\na\nb (\\Seen) {%d+}\r\n%s\r\n", strings.Repeat(evil, 300)), "BAD"},
}

func literal(format, content string) string { return fmt.Sprintf(format, len(content), content) }

// TestRefusedLiteralsDoNotRun proves that the bytes of a literal are never commands, whatever is
// wrong with the command that announces it (RFC 7888 section 4).
func TestRefusedLiteralsDoNotRun(t *testing.T) {
	for _, table := range []map[string]struct{ command, status string }{refusedLiterals, brokenNames} {
		for name, tc := range table {
			t.Run(name, func(t *testing.T) {
				c := serve(t, nil).login(t)
				c.send(tc.command)
				if got := c.until("s"); !strings.HasPrefix(got[len(got)-1], tc.status) {
					t.Errorf("answered %q, want %s", got, tc.status)
				}
				c.has(c.ok(`LIST "" Archive`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
			})
		}
	}
}

// TestConnectionEndsWithBye sends input after which the server cannot know where the next command
// begins.
func TestConnectionEndsWithBye(t *testing.T) {
	for name, text := range map[string]string{
		"absurd literal":        fmt.Sprintf("s SELECT {%d+}\r\n", 2*AppendLimit+1),
		"absurd message":        fmt.Sprintf("s APPEND INBOX {%d+}\r\n", 2*AppendLimit+1),
		"absurd second message": fmt.Sprintf("s APPEND INBOX {1+}\r\na {%d+}\r\n", 2*AppendLimit+1),
		"literal while idle":    "s IDLE\r\n{18+}\r\nx DELETE Archive\r\n\r\n",
		"long line":             "s SEARCH SUBJECT " + strings.Repeat("a", 60_000) + "x DELETE Archive\r\n",
		"no end of line":        strings.Repeat("a", 60_000),
		"NUL before a literal":  "s NOOP \x00{19+}\r\nx DELETE Archive\r\n\r\n",
		"quote before one":      "s NOOP \"{19+}\r\nx DELETE Archive\r\n\r\n",
		"huge number":           "s SELECT {99999999999999999999+}\r\n",
		"absurd after refusal":  fmt.Sprintf("s NOOP {3+}\r\nabc {%d+}\r\n", 2*AppendLimit+1),
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, nil)
			c := h.login(t)
			c.send(text)
			c.bye()
			c = h.login(t)
			c.has(c.ok(`LIST "" Archive`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
		})
	}
}

// tooLarge are commands whose literals are refused for their size, and passed over (RFC 7888
// section 4).
var tooLarge = map[string]struct{ command, status string }{
	"string":              {literal("s SEARCH SUBJECT {%d+}\r\n%s\r\n", strings.Repeat(evil, 3000)), "NO [TOOBIG]"},
	"string, synchronous": {"s SEARCH SUBJECT {60000}\r\n", "NO [TOOBIG]"},
	"many strings": {"s SEARCH" + strings.Repeat(" SUBJECT "+literal("{%d+}\r\n%s", strings.Repeat("x DELETE Archive ", 240)), 17) + "\r\n",
		"NO [TOOBIG]"},
	"first of two":         {literal("s RENAME {%d+}\r\n%s {3+}\r\nabc\r\n", strings.Repeat(evil, 3000)), "NO [TOOBIG]"},
	"last of two":          {literal("s RENAME {3+}\r\nabc {%d+}\r\n%s\r\n", strings.Repeat(evil, 3000)), "NO [TOOBIG]"},
	"after NUL":            {literal("s RENAME {3+}\r\na\x00c {%d+}\r\n%s\r\n", strings.Repeat(evil, 3000)), "BAD"},
	"message":              {literal("s APPEND INBOX {%d+}\r\n%s\r\n", strings.Repeat(evil, AppendLimit/len(evil)+1)), "NO [TOOBIG]"},
	"message, synchronous": {fmt.Sprintf("s APPEND INBOX {%d}\r\n", AppendLimit+1), "NO [TOOBIG]"},
	"two large messages":   {literal("s APPEND INBOX {%d+}\r\n%[2]s {%[1]d+}\r\n%[2]s\r\n", strings.Repeat(evil, AppendLimit/len(evil)+1)), "NO [TOOBIG]"},
	"argument of ID":       {literal("s ID (\"name\" {%d+}\r\n%s)\r\n", strings.Repeat(evil, 3000)), "NO [TOOBIG]"},
}

// TestLargeLiteralsAreRefused pipelines a command behind each: the connection goes on, and nothing
// of the literal runs.
func TestLargeLiteralsAreRefused(t *testing.T) {
	h := serve(t, nil)
	for name, tc := range tooLarge {
		t.Run(name, func(t *testing.T) {
			c := h.login(t)
			c.ok("SELECT INBOX")
			c.send(tc.command + "t NOOP\r\n")
			if got := c.until("s"); len(got) != 1 || !strings.HasPrefix(got[0], tc.status) {
				t.Errorf("answered %q, want %s", got, tc.status)
			}
			if got := c.until("t"); len(got) != 1 || !strings.HasPrefix(got[0], "OK") {
				t.Errorf("then %q", got)
			}
			c.has(c.ok(`LIST "" Archive`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
			c.has(c.ok("STATUS INBOX (MESSAGES)"), "* STATUS INBOX (MESSAGES 0)")
		})
	}
}

// TestStrangersLiteralsAreSmall: who has not logged in has a password to send and nothing else.
func TestStrangersLiteralsAreSmall(t *testing.T) {
	h := serve(t, nil)
	c := dial(t, h.addr)
	c.line()
	c.send(literal("s LOGIN {%d+}\r\n%s x\r\n", strings.Repeat("a", 4096+1)))
	if got := c.until("s"); !strings.HasPrefix(got[0], "NO [TOOBIG]") {
		t.Errorf("a name of %d bytes: %q", 4096+1, got)
	}
	c.send(literal("s LOGIN {%d+}\r\n%s", email) + literal(" {%d+}\r\n%s\r\n", password))
	c.until("s")
	c = dial(t, h.addr)
	c.line()
	c.send(fmt.Sprintf("s LOGIN {%d+}\r\n", wire.MaxCommandBytes+1))
	c.bye()
}

// TestLiteralPlusIsOffered: in place of LITERAL-, in every state (RFC 7888 section 5).
func TestLiteralPlusIsOffered(t *testing.T) {
	h := serve(t, nil)
	c := dial(t, h.addr)
	told := []string{c.line()}
	told = append(told, c.ok("CAPABILITY")...)
	c.n++
	told = append(told, c.do("LOGIN %s %q", email, password)...)
	told = append(told, c.ok("CAPABILITY")...)
	for _, line := range told {
		if !strings.Contains(line, " LITERAL+ ") || strings.Contains(line, "LITERAL-") {
			t.Errorf("told %q", line)
		}
	}
	long := strings.Repeat("a", 40_000)
	c.ok("SELECT INBOX")
	c.send(literal("s SEARCH TEXT {%d+}\r\n%s\r\n", long))
	if got := c.until("s"); got[0] != "* SEARCH" {
		t.Errorf("a search for 40 000 bytes: %q", got)
	}
}

func TestLiteralsThatAreTaken(t *testing.T) {
	c := serve(t, nil).login(t)
	c.send("s CREATE {3+}\r\none\r\nt CREATE {3}\r\n")
	c.until("s")
	if got := c.line(); got != "+ Ready for literal data" {
		t.Fatalf("asked for a literal: %q", got)
	}
	c.send("two\r\n")
	c.until("t")
	// Longer than LITERAL- has it, yet taken whole.
	message := "Subject: x\r\n\r\n" + strings.Repeat("x DELETE one\r\n", 1000)
	c.send(fmt.Sprintf("u APPEND {3+}\r\ntwo (\\Seen) \"17-Jul-1996 02:44:25 -0700\" {%d+}\r\n%s\r\n", len(message), message))
	if got := c.until("u"); !strings.HasPrefix(got[0], "OK [APPENDUID ") {
		t.Fatalf("APPEND: %q", got)
	}
	c.ok("SELECT two")
	c.has(c.ok("FETCH 1 (INTERNALDATE FLAGS)"), `* 1 FETCH (UID 1 FLAGS (\Seen) INTERNALDATE "17-Jul-1996 09:44:25 +0000")`)
	c.expect("NO [CANNOT]", "APPEND two {0+}\r\n")
	c.send(fmt.Sprintf("v APPEND two UTF8 (~{%d+}\r\n%s)\r\n", len(message), message))
	if got := c.until("v"); !strings.HasPrefix(got[len(got)-1], "OK [APPENDUID ") {
		t.Fatalf("APPEND UTF8: %q", got)
	}
	c.expect("NO [TOOBIG]", "APPEND two {%d}", AppendLimit+1)
	c.ok("NOOP")
}

func TestLoginIsBounded(t *testing.T) {
	h := serve(t, func(s *Server) { s.MaxPerMailbox = 2 })
	c := dial(t, h.addr)
	c.line()
	for range maxFailedLogins {
		c.expect("NO [AUTHENTICATIONFAILED]", "LOGIN nobody%d@example.test wrong", c.n)
	}
	c.bye()
	h.login(t)
	second := h.login(t)
	third := dial(t, h.addr)
	third.line()
	third.expect("NO [LIMIT]", "LOGIN %s %q", email, password)
	second.ok("LOGOUT")
	if _, err := io.ReadAll(second.in); err != nil {
		t.Fatal(err)
	}
	third.ok("AUTHENTICATE PLAIN AGFubkBleGFtcGxlLnRlc3QAY29ycmVjdCBob3JzZQ==")
}

func TestConnectionsAreBounded(t *testing.T) {
	h := serve(t, func(s *Server) { s.MaxPerAddress = 2 })
	for range 4 { // after log-in the address does not count
		h.login(t)
	}
	first, second := dial(t, h.addr), dial(t, h.addr)
	first.line()
	second.line()
	if got := dial(t, h.addr).bye(); got != "* BYE [LIMIT] Too many connections" {
		t.Errorf("third connection before log-in: %q", got)
	}
	other, _ := h.run(t, false)
	if got := dial(t, other).line(); !strings.HasPrefix(got, "* OK") {
		t.Errorf("on another listener: %q", got)
	}
	first.ok("LOGIN %s %q", email, password)
	third := dial(t, h.addr)
	if got := third.line(); !strings.HasPrefix(got, "* OK") {
		t.Errorf("after a log-in: %q", got)
	}
	second.ok("LOGOUT")
	for {
		c := dial(t, h.addr)
		if strings.HasPrefix(c.line(), "* OK") {
			break
		}
	}
}

// TestConnectionsOfAnAccountAreBounded: over all of its mailboxes. A token that was right is not
// called wrong.
func TestConnectionsOfAnAccountAreBounded(t *testing.T) {
	h := serve(t, func(s *Server) { s.Logins = connlimit.NewLogins(2) })
	h.mailbox(t, "ben")
	first := h.login(t)
	h.login(t)
	third := dial(t, h.addr)
	third.line()
	third.expect("NO [LIMIT] This account has 2 connections already", "LOGIN ben@example.test %q", password)
	who := core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
	device, err := h.Mailboxes.CreateCredential(t.Context(), who, mailboxes.CreateCredentialIn{UserID: h.user.MailboxID, Name: "phone"})
	if err != nil {
		t.Fatal(err)
	}
	token := base64.StdEncoding.EncodeToString([]byte("user=" + device.Username + "\x01auth=Bearer " + device.Password + "\x01\x01"))
	third.expect("NO [LIMIT]", "AUTHENTICATE XOAUTH2 %s", token)
	first.ok("LOGOUT")
	for deadline := time.Now().Add(10 * time.Second); ; {
		got := third.do("AUTHENTICATE XOAUTH2 %s", token)
		if strings.HasPrefix(got[len(got)-1], "OK") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a log-out: %q", got)
		}
	}
}

func TestStopLetsCommandsEnd(t *testing.T) {
	h := serve(t, nil)
	idle, between := h.login(t), h.login(t)
	between.ok("SELECT INBOX")
	idle.send("i IDLE\r\n")
	idle.line()
	during := h.login(t)
	message := letter("late")
	during.send(fmt.Sprintf("s APPEND INBOX {%d}\r\n", len(message)))
	during.line()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*talker{"idle": idle, "between commands": between} {
		if got := c.bye(); got != "* BYE [UNAVAILABLE] The server is stopping" {
			t.Errorf("%s: %q", name, got)
		}
	}
	during.bye()
	if _, err := net.Dial("tcp", h.addr); err == nil {
		t.Error("the server still listens")
	}
}

// TestPanicEndsOneSession has a service without keys, so that every log-in by SCRAM panics.
func TestPanicEndsOneSession(t *testing.T) {
	h := serve(t, nil)
	var log bytes.Buffer
	h.server = New(h.WithoutKeys())
	h.server.Log = slog.New(slog.NewTextHandler(&log, nil))
	addr, stop := h.run(t, false)
	other, broken := dial(t, addr), dial(t, addr)
	other.line()
	broken.line()
	broken.send("s AUTHENTICATE SCRAM-SHA-256 " + base64.StdEncoding.EncodeToString([]byte("n,,n=a,r=nonce")) + "\r\n")
	if rest, err := io.ReadAll(broken.in); err != nil || len(rest) > 0 {
		t.Errorf("after the panic: %q, %v", rest, err)
	}
	other.ok("NOOP")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "panic") {
		t.Errorf("log: %s", log.String())
	}
}

func TestStartTLS(t *testing.T) {
	h := serve(t, func(s *Server) { s.TLS = servicetest.Certificate(t, "mail.example.test") })
	c := dial(t, h.addr)
	if got := c.line(); got != "* OK [CAPABILITY IMAP4rev2 IMAP4rev1 ID STARTTLS LOGINDISABLED] Mailstead is ready" {
		t.Errorf("greeting: %q", got)
	}
	c.has(c.ok("CAPABILITY"), "* CAPABILITY IMAP4rev2 IMAP4rev1 ID STARTTLS LOGINDISABLED")
	c.expect("NO [PRIVACYREQUIRED]", "LOGIN %s %q", email, password)
	c.expect("BAD", "SELECT INBOX")
	c.has(c.ok(`ID ("name" "iPhone Mail")`), `* ID ("name" "Mailstead")`)
	c.ok("STARTTLS")
	secure := talk(t, tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true}))
	lines := secure.ok("CAPABILITY")
	if !strings.Contains(lines[0], "AUTH=PLAIN") || strings.Contains(lines[0], "STARTTLS") {
		t.Errorf("capabilities under TLS: %q", lines)
	}
	secure.expect("NO", "STARTTLS")
	secure.ok("LOGIN %s %q", email, password)
	secure.ok("SELECT INBOX")
}

// TestNothingIsCarriedIntoTLS: a command sent in the clear with STARTTLS must not run as if it had
// come under TLS.
func TestNothingIsCarriedIntoTLS(t *testing.T) {
	h := serve(t, func(s *Server) { s.TLS = servicetest.Certificate(t, "mail.example.test") })
	c := dial(t, h.addr)
	c.line()
	c.send("s STARTTLS\r\nt NOOP\r\n")
	c.bye()
	c = dial(t, h.addr)
	c.line()
	c.send("s LOGIN {3+}\r\nx NOOP\r\n")
	c.bye()
}

func TestNoLoginWithoutCertificate(t *testing.T) {
	h := serve(t, func(s *Server) { s.Service = &service.Service{Core: &core.Core{}} })
	c := dial(t, h.addr)
	if got := c.line(); got != "* OK [CAPABILITY IMAP4rev2 IMAP4rev1 ID LOGINDISABLED] Mailstead is ready" {
		t.Errorf("greeting: %q", got)
	}
	c.expect("NO", "STARTTLS")
	c.expect("NO [PRIVACYREQUIRED]", "AUTHENTICATE PLAIN")
	c.ok("NOOP")
	c.send("s LOGOUT\r\n")
	c.until("s")
}

func TestImplicitTLS(t *testing.T) {
	h := serve(t, func(s *Server) { s.TLS = servicetest.Certificate(t, "mail.example.test") })
	addr, _ := h.run(t, true)
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := talk(t, conn)
	if got := c.line(); !strings.Contains(got, "AUTH=PLAIN") {
		t.Errorf("greeting: %q", got)
	}
	c.ok("LOGIN %s %q", email, password)
	if New(h.Service).Run(t.Context(), nil, true) == nil {
		t.Error("TLS without a certificate is served")
	}
}

// FuzzSession gives a real session any bytes: it must end, and leave the server and Archive alone.
func FuzzSession(f *testing.F) {
	f.Add([]byte("a SELECT INBOX\r\nb FETCH 1 (BODY[1.2.HEADER]<1.2> ENVELOPE)\r\n"))
	f.Add([]byte("a SEARCH RETURN (SAVE) OR NOT 1:* TEXT {1+}\r\nx\r\nb LIST (SUBSCRIBED) \"\" (% *)\r\n"))
	f.Add([]byte("a APPEND INBOX (\\Seen) {12+}\r\nSubject: x\r\n\r\nb STORE 1 +FLAGS (x)\r\nc COPY 1:* Sent\r\nd EXPUNGE\r\n"))
	h := serve(f, func(s *Server) { s.MaxPerAddress, s.MaxPerMailbox = 1000, 1000 })
	h.put(f, "INBOX", letter("one"), 0)
	f.Fuzz(func(t *testing.T, input []byte) {
		if strings.Contains(strings.ToLower(string(input)), "archive") {
			return
		}
		c := h.login(t)
		c.ok("SELECT INBOX")
		go func(conn *net.TCPConn) {
			_, _ = conn.Write(input) // the server may have had enough
			_ = conn.CloseWrite()
		}(c.conn.(*net.TCPConn))
		if _, err := io.Copy(io.Discard, c.in); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		c = h.login(t)
		c.ok("STATUS Archive (MESSAGES)")
		c.ok("LOGOUT")
	})
}

func TestID(t *testing.T) {
	h := serve(t, nil)
	c := dial(t, h.addr)
	if got := c.line(); !strings.Contains(got, " LITERAL+ ID AUTH=SCRAM-SHA-256 AUTH=PLAIN AUTH=OAUTHBEARER AUTH=XOAUTH2]") {
		t.Errorf("greeting: %q", got)
	}
	c.has(c.ok("ID NIL"), `* ID ("name" "Mailstead")`)
	c.send("i ID (\"name\" {6+}\r\niPhone \"version\" NIL)\r\n")
	if got := c.until("i"); got[len(got)-1] != "OK ID completed" {
		t.Errorf("ID with a literal: %q", got)
	}
	for _, bad := range []string{"ID", `ID ("name")`, "ID (", `ID ("a" ("b" "c"))`, "ID (" + strings.Repeat(`"k" "v" `, 31) + ")"} {
		c.expect("BAD", "%s", bad)
	}
	c.expect("BAD", "GETQUOTA mailbox")
	c.expect("BAD", "COMPRESS DEFLATE")
	c.ok("LOGIN %s %q", email, password)
	c.ok(`ID ()`)
}

func (h *host) setQuota(t testing.TB, bytes int64) {
	t.Helper()
	who := core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
	in := mailboxes.UpdateEmailUserIn{UserID: h.user.MailboxID, QuotaBytes: core.Opt[int64]{Set: true, Value: bytes}}
	if _, err := h.Mailboxes.UpdateEmailUser(t.Context(), who, in); err != nil {
		t.Fatal(err)
	}
}

func TestQuota(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	lines := c.ok("GETQUOTAROOT INBOX")
	c.has(lines, `* QUOTAROOT "INBOX" mailbox`)
	c.has(lines, "* QUOTA mailbox ()")
	c.has(c.ok("GETQUOTA mailbox"), "* QUOTA mailbox ()")
	c.has(c.ok(`GETQUOTA "mailbox"`), "* QUOTA mailbox ()")
	c.expect("NO [NONEXISTENT]", `GETQUOTA ""`)
	h.setQuota(t, 10<<10)
	h.put(t, "INBOX", letter("one")+strings.Repeat("x\n", 1000), inbox.FlagDeleted)
	c.ok(`CREATE "Entw&APw-rfe"`)
	lines = c.ok(`GETQUOTAROOT "Entw&APw-rfe"`)
	c.has(lines, `* QUOTAROOT "Entw&APw-rfe" mailbox`)
	c.has(lines, `* QUOTA mailbox (STORAGE 4 10)`)
	c.has(c.ok("GETQUOTA mailbox"), `* QUOTA mailbox (STORAGE 4 10)`)
	c.expect("NO [NONEXISTENT]", "GETQUOTAROOT Nowhere")
	c.expect("NO [NONEXISTENT]", `GETQUOTA ""`)
	c.has(c.ok("STATUS INBOX (DELETED DELETED-STORAGE)"), "* STATUS INBOX (DELETED 1 DELETED-STORAGE 3109)")
	c.expect("BAD", "SETQUOTA mailbox (STORAGE 5)")
	c.expect("NO [NONEXISTENT]", `GETQUOTAROOT "Entw&APw"`)
	c.ok("SELECT INBOX")
	c.ok("COPY 1 INBOX")
	c.ok("COPY 1 INBOX")
	c.expect("NO [OVERQUOTA]", "COPY 1:3 INBOX")
}

// deflated is the client's end of a compressed connection.
func deflated(t *testing.T, c *talker) *talker {
	t.Helper()
	c.ok("COMPRESS DEFLATE")
	w, err := flate.NewWriter(c.conn, 6)
	if err != nil {
		t.Fatal(err)
	}
	return &talker{t: t, conn: flateConn{c.conn, w}, in: bufio.NewReader(flate.NewReader(c.in)), n: c.n}
}

func TestCompress(t *testing.T) {
	h := serve(t, func(s *Server) { s.MaxCompressed = 1 })
	h.put(t, "INBOX", mixed, 0)
	c := deflated(t, h.login(t))
	if got := c.ok("CAPABILITY"); strings.Contains(got[0], "COMPRESS") || !strings.Contains(got[0], "CONDSTORE") {
		t.Errorf("capabilities: %q", got)
	}
	c.ok("SELECT INBOX")
	c.expect("NO [COMPRESSIONACTIVE]", "COMPRESS DEFLATE")
	if got := strings.Join(c.ok("FETCH 1 BODY.PEEK[]"), "\n"); !strings.Contains(got, mixed) {
		t.Errorf("message: %q", got)
	}
	large := "Subject: large\r\n\r\n" + strings.Repeat("0123456789\r\n", 100_000)
	c.send(fmt.Sprintf("l APPEND INBOX {%d}\r\n", len(large)))
	c.line()
	c.send(large + "\r\n")
	if got := c.until("l"); !strings.HasPrefix(got[len(got)-1], "OK [APPENDUID") {
		t.Errorf("APPEND: %q", got)
	}
	h.login(t).expect("NO [LIMIT]", "COMPRESS DEFLATE")
	c.send("q LOGOUT\r\n")
	c.until("q")
	for range 100 {
		other := h.login(t)
		other.expect("BAD", "COMPRESS GZIP")
		if lines := other.do("COMPRESS DEFLATE"); strings.HasPrefix(lines[0], "OK") {
			return
		}
	}
	t.Error("a place that a client left is never free again")
}

// TestBombsAreBounded sends what inflates a thousandfold: a line that does not end, and a message
// over the limit.
func TestBombsAreBounded(t *testing.T) {
	for name, begin := range map[string]string{
		"line":    "s SEARCH SUBJECT ",
		"message": fmt.Sprintf("s APPEND INBOX {%d+}\r\n", AppendLimit+1),
		"literal": "s LOGIN {1000000000+}\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := deflated(t, serve(t, nil).login(t))
			c.conn.Write([]byte(begin))
			go func() {
				zeros := make([]byte, 1<<20)
				for range 1000 {
					if _, err := c.conn.Write(zeros); err != nil {
						return
					}
				}
			}()
			if text, _ := io.ReadAll(io.LimitReader(c.in, 1000)); !strings.Contains(string(text), "* BYE [TOOBIG]") {
				t.Errorf("answered %q", text)
			}
		})
	}
}

// TestWaitingLoginsAreEvicted: a stranger who begins to log in and then is silent does not keep
// others out.
func TestWaitingLoginsAreEvicted(t *testing.T) {
	h := serve(t, func(s *Server) { s.MaxConnections = 2 })
	var strangers []*talker
	for range 2 {
		c := dial(t, h.addr)
		c.line()
		c.send("a AUTHENTICATE PLAIN\r\n")
		c.line()
		strangers = append(strangers, c)
	}
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 5, 1)}}).Dial("tcp", h.addr)
	if err != nil {
		t.Skip(err) // not every system has more than one loopback address
	}
	defer conn.Close()
	c := talk(t, conn)
	if got := c.line(); !strings.HasPrefix(got, "* OK ") {
		t.Errorf("another client is greeted with %q", got)
	}
	if got := strangers[0].bye(); !strings.Contains(got, evictedReply) {
		t.Errorf("the first stranger is told %q", got)
	}
}

// TestClientsThatLeaveAreNoErrors: a lost connection is no error of the server, wherever in a
// command it is lost.
func TestClientsThatLeaveAreNoErrors(t *testing.T) {
	var log bytes.Buffer
	h := serve(t, func(s *Server) {
		s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	for _, begin := range []string{
		"a AUTHENTICATE PLAIN\r\n", "a LOGIN {5+}\r\nab", "a LOGIN {2+}\r\nab", "a LOGIN {5}\r\n", "a AUTHENTICATE PLAIN\r\n{3+}\r\nabc\r\n", "a NOOP {3+}\r\n",
	} {
		c := dial(t, h.addr)
		c.line()
		c.send(begin)
		c.conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c.in)
	}
	for _, begin := range []string{"a IDLE\r\n", "a SEARCH TEXT {5}\r\n", "a APPEND INBOX {5+}\r\nab", "a APPEND INBOX {5+}\r\nabcde", "a IDLE\r\n{3+}\r\n"} {
		c := h.login(t)
		c.ok("SELECT INBOX")
		c.send(begin)
		c.conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c.in)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if log.Len() > 0 {
		t.Errorf("logged\n%s", log.String())
	}
}
