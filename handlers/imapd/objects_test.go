package imapd

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
)

// asOwner is the owner of the mailbox's account.
func (h *host) asOwner() core.Actor {
	return core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
}

// TestExtensionsOfAttributesAreOffered after log-in alone.
func TestExtensionsOfAttributesAreOffered(t *testing.T) {
	c := dial(t, serve(t, nil).addr)
	if got := c.line(); strings.Contains(got, "OBJECTID") {
		t.Errorf("greeting: %q", got)
	}
	c.ok("LOGIN %s %q", email, password)
	told := strings.Fields(c.ok("CAPABILITY")[0])
	for _, name := range []string{"OBJECTID", "PREVIEW", "SAVEDATE", "REPLACE", "CONDSTORE"} {
		if !slices.Contains(told, name) {
			t.Errorf("%s is not in %q", name, told)
		}
	}
}

// TestObjectsAreThoseOfTheAPI: ids and previews are the same there and here, in every folder.
func TestObjectsAreThoseOfTheAPI(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	h.put(t, "INBOX", strings.Replace(letter("two"), "Subject:", "In-Reply-To: <one@example.org>\nSubject:", 1), inbox.FlagSeen)
	c := h.login(t)
	c.ok("CREATE Work")
	c.ok("SELECT INBOX")
	c.ok("COPY 1:2 Work")
	folders, err := h.Inbox.ListFolders(t.Context(), h.asOwner(), core.EmailUserIn{UserID: h.user.MailboxID})
	if err != nil || len(folders.Data) != 7 {
		t.Fatal(folders, err)
	}
	for _, f := range folders.Data {
		c.has(c.ok("SELECT %q", f.Name), "* OK [MAILBOXID ("+f.ID+")] Ok")
		page, err := h.Inbox.ListEmailUserInbox(t.Context(), h.asOwner(), inbox.ListEmailUserInboxIn{UserID: h.user.MailboxID, InboxFilter: inbox.InboxFilter{Folder: f.Name}})
		if err != nil || len(page.Data) != int(f.Messages) {
			t.Fatal(page, err)
		}
		for _, m := range page.Data {
			c.has(c.ok("UID FETCH %s (THREADID PREVIEW EMAILID)", m.UID), fmt.Sprintf("* %s FETCH (UID %[1]s EMAILID (%s) THREADID (%s) PREVIEW %q)",
				m.UID, m.EmailID, m.ThreadID, m.BodyPreview))
			c.has(c.ok("UID SEARCH EMAILID %s", m.EmailID), "* SEARCH "+m.UID)
			c.has(c.ok("UID SEARCH THREADID %s", m.ThreadID), "* SEARCH 1 2")
		}
	}
}

// TestSaveDate: SAVEDATE is the time when a message was added to its folder, whatever INTERNALDATE
// is (RFC 8514).
func TestSaveDate(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.send("s APPEND INBOX \"17-Jul-1996 02:44:25 -0700\" {1+}\r\na\r\n")
	c.until("s")
	first := h.Core.Now()
	if _, err := h.AdvanceClock(t.Context(), service.AdvanceIn{Seconds: 40 * 86400}); err != nil {
		t.Fatal(err)
	}
	c.ok("COPY 1 INBOX")
	second := h.Core.Now()
	if _, err := h.AdvanceClock(t.Context(), service.AdvanceIn{Seconds: 86400}); err != nil {
		t.Fatal(err)
	}
	c.ok(`STORE 2 +FLAGS (\Seen)`) // changes no SAVEDATE
	saved := func(line string) time.Time {
		_, rest, _ := strings.Cut(line, ` SAVEDATE "`)
		text, _, _ := strings.Cut(rest, `"`)
		at, err := time.Parse("_2-Jan-2006 15:04:05 -0700", text)
		if err != nil {
			t.Fatal(line, err)
		}
		return at
	}
	lines := c.ok("FETCH 1:2 (SAVEDATE INTERNALDATE)")
	for i, want := range []time.Time{first, second} {
		if d := want.Sub(saved(lines[i])); d < 0 || d > 5*time.Second {
			t.Errorf("%q was saved at %s", lines[i], want)
		}
		if !strings.Contains(lines[i], `INTERNALDATE "17-Jul-1996 09:44:25 +0000" SAVEDATE`) {
			t.Errorf("INTERNALDATE of %q", lines[i])
		}
	}
	day := func(add int) string { return saved(lines[1]).UTC().AddDate(0, 0, add).Format("2-Jan-2006") }
	old := saved(lines[0]).UTC().Format("2-Jan-2006")
	for keys, want := range map[string]string{
		"SAVEDATESUPPORTED":                        " 1 2",
		"NOT SAVEDATESUPPORTED":                    "",
		"SAVEDON " + day(0):                        " 2",
		"savedon " + old:                           " 1",
		"SAVEDBEFORE " + day(0):                    " 1",
		"SAVEDBEFORE " + day(1):                    " 1 2",
		"SAVEDSINCE " + day(0):                     " 2",
		"SAVEDSINCE \"" + day(-1) + "\"":           " 2",
		"SAVEDSINCE " + day(1):                     "",
		"SAVEDON " + day(1):                        "",
		"NOT SAVEDON " + day(0):                    " 1",
		"OR SAVEDON " + old + " SAVEDON " + day(0): " 1 2",
		"OR SEEN (SAVEDBEFORE " + day(0) + " SAVEDON " + old + ")": " 1 2",
		"BEFORE 1-Jan-2000 SAVEDSINCE 1-jan-2000":                  " 1 2",
		"SAVEDBEFORE 01-Jan-2000":                                  "",
		"HEADER SAVEDON: yesterday":                                "",
	} {
		if got := c.ok("SEARCH %s", keys); len(got) != 1 || got[0] != "* SEARCH"+want {
			t.Errorf("%s: %q, want%s", keys, got, want)
		}
	}
	for _, bad := range []string{"SAVEDON", "SAVEDON yesterday", "SAVEDSINCE 31-Feb-2026", "SAVEDBEFORE (1-Jan-2026)", "SAVEDBEFORE 2026-01-01", "OR SAVEDATESUPPORTED", "SAVEDATE 1-Jan-2026"} {
		c.expect("BAD", "SEARCH %s", bad)
	}
}

// TestAttributesNeedNoBytes: what the rows have is told of a message whose bytes are damaged on the
// disk, and of 5 000 in batches.
func TestAttributesNeedNoBytes(t *testing.T) {
	const many = 5000
	h := serve(t, nil)
	h.PutCopies(t, many, email, letter("one"), servicetest.Mail{Received: time.Unix(1e9, 0)})
	c := h.login(t)
	c.ok("SELECT INBOX")
	rot(t, h.Core.Store.Dir(), "Hello one")
	defer rot(t, h.Core.Store.Dir(), "hello one") // for the check when the store is closed
	begin := time.Now()
	lines := c.ok("UID FETCH 1:* (EMAILID THREADID PREVIEW SAVEDATE)")
	t.Logf("%d answers in %s", len(lines), time.Since(begin))
	if len(lines) != many {
		t.Fatalf("%d answers", len(lines))
	}
	for i, l := range lines {
		if !strings.HasPrefix(l, fmt.Sprintf("* %d FETCH (UID %[1]d EMAILID (em_", i+1)) || !strings.HasSuffix(l, ` PREVIEW "Hello one")`) {
			t.Fatalf("answer %d: %q", i, l)
		}
	}
	begin = time.Now()
	id, _, _ := strings.Cut(strings.SplitN(lines[0], "EMAILID (", 2)[1], ")")
	if got := strings.Fields(c.ok("SEARCH EMAILID %s", id)[0]); len(got) != 2+many {
		t.Errorf("SEARCH EMAILID finds %d", len(got)-2)
	}
	t.Logf("SEARCH EMAILID takes %s", time.Since(begin))
	c.expect("NO [CORRUPTION]", "FETCH 1 (EMAILID BODY[])")
}

// TestCodesOfTaggedAnswers: the changes of others that come before the end of a command do not take
// the response code from it.
func TestCodesOfTaggedAnswers(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c, other := h.login(t), h.login(t)
	c.ok("SELECT INBOX (CONDSTORE)")
	other.ok("SELECT INBOX")
	for i, command := range []string{"CREATE Work", "APPEND INBOX {1+}\r\na {1+}\r\nb", "REPLACE 2 INBOX {1+}\r\nc"} {
		other.ok("STORE 1 FLAGS (k%d)", i)
		lines := c.do("%s", command)
		if !strings.Contains(lines[len(lines)-1], []string{"[MAILBOXID (fld_", "[APPENDUID ", "REPLACE completed"}[i]) ||
			!slices.ContainsFunc(lines, func(l string) bool {
				return strings.HasPrefix(l, "* 1 FETCH (MODSEQ (") && strings.HasSuffix(l, "UID 1 FLAGS (k"+strconv.Itoa(i)+"))")
			}) {
			t.Errorf("%s: %q", command, lines)
		}
	}
}

// FuzzObjects gives the new items and keys, with anything in their places, to a real session: it
// must go on, and answer of each message once.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{"FETCH 1 (EMAILID PREVIEW (LAZY) THREADID SAVEDATE BODY[HEADER.FIELDS (PREVIEW)])", "UID FETCH 1 PREVIEW (LAZY) (CHANGEDSINCE 1)",
		"SEARCH OR NOT EMAILID a_b-c SAVEDON 1-Jan-2026 SAVEDATESUPPORTED", `UID SEARCH RETURN (MIN) SAVEDSINCE "1-Jan-2026" THREADID x MODSEQ 1`,
		"STATUS INBOX (HIGHESTMODSEQ MAILBOXID MESSAGES)", `LIST "" % RETURN (STATUS (MAILBOXID) CHILDREN)`, "REPLACE 1 INBOX (\\Seen) ~{3+}\r\nabc",
		"UID REPLACE * {5+}\r\nINBOX UTF8 (~{1+}\r\na)", "REPLACE 1 INBOX {2}"} {
		f.Add(seed)
	}
	h := serve(f, func(s *Server) { s.MaxPerAddress, s.MaxPerMailbox = 1000, 1000 })
	f.Fuzz(func(t *testing.T, command string) {
		if strings.Contains(strings.ToLower(command), "archive") {
			return
		}
		h.put(t, "INBOX", letter("one"), 0)
		c := h.login(t)
		c.ok("SELECT INBOX")
		go func(conn *net.TCPConn) {
			_, _ = io.WriteString(conn, "f "+command+"\r\n\r\nl LOGOUT\r\n") // the server may have had enough
			_ = conn.CloseWrite()
		}(c.conn.(*net.TCPConn))
		_, _ = io.Copy(io.Discard, c.in) // or reset the connection
		c = h.login(t)
		c.ok("STATUS Archive (MESSAGES)")
		told, all := c.ok("SELECT INBOX"), c.ok("UID FETCH 1:* (EMAILID THREADID)")
		c.has(told, fmt.Sprintf("* %d EXISTS", len(all)))
		c.ok(`STORE 1:* +FLAGS.SILENT (\Deleted)`)
		c.ok("EXPUNGE")
		c.ok("LOGOUT")
	})
}
