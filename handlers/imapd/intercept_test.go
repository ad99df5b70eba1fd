package imapd

import (
	"bufio"
	"compress/flate"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
)

func TestID(t *testing.T) {
	h := serve(t, nil)
	c := dial(t, h.addr)
	if got := c.line(); !strings.Contains(got, " LITERAL+ ID AUTH=PLAIN]") {
		t.Errorf("greeting: %q", got)
	}
	c.has(c.ok("ID NIL"), `* ID ("name" "Mailstead")`)
	c.send("i ID (\"name\" {7+}\r\niPhone \"version\" NIL)\r\n")
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
	if _, err := h.UpdateEmailUser(t.Context(), who, in); err != nil {
		t.Fatal(err)
	}
}

func TestQuota(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.has(c.ok("GETQUOTAROOT INBOX"), `* QUOTAROOT "INBOX"`)
	c.expect("NO [NONEXISTENT]", "GETQUOTA mailbox")
	h.setQuota(t, 10<<10)
	h.put(t, "INBOX", letter("one")+strings.Repeat("x\n", 1000), inbox.FlagDeleted)
	c.ok(`CREATE "Entw&APw-rfe"`)
	lines := c.ok(`GETQUOTAROOT "Entw&APw-rfe"`)
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
