package imapd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
)

func TestIdleTellsOfNewMail(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.send("i IDLE\r\n")
	c.line()
	uid := h.put(t, "INBOX", letter("one"), 0)
	if got := c.line(); got != "* 1 EXISTS" {
		t.Errorf("new mail: %q", got)
	}
	// The API's way of marking and deleting.
	who := core.Actor{AccountID: h.Owner.AccountID, AccountNum: h.user.AccountNum, Permissions: []string{"admin"}}
	read := true
	_, err := h.Inbox.MarkMessage(t.Context(), who, inbox.MarkMessageIn{MessageIn: inbox.MessageIn{UserID: h.user.MailboxID, MessageID: strconv.Itoa(int(uid))}, MessageMarks: inbox.MessageMarks{IsRead: &read}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.line(); got != `* 1 FETCH (UID 1 FLAGS (\Seen))` {
		t.Errorf("marked: %q", got)
	}
	some := []inbox.MessageRef{{UID: strconv.Itoa(int(uid)), Mailbox: h.user.Email}}
	marked, err := h.Inbox.BulkMarkMessages(t.Context(), who, inbox.BulkMarkMessagesIn{Messages: some, MessageMarks: inbox.MessageMarks{IsFlagged: &read}})
	if err != nil || marked.Marked != 1 {
		t.Fatalf("%+v, %v", marked, err)
	}
	if got := c.line(); got != `* 1 FETCH (UID 1 FLAGS (\Flagged \Seen))` {
		t.Errorf("flagged: %q", got)
	}
	other := h.login(t)
	other.ok("SELECT INBOX")
	other.ok(`STORE 1 -FLAGS (\Flagged)`)
	m, err := h.Inbox.GetMessage(t.Context(), who, inbox.MessageIn{UserID: h.user.MailboxID, MessageID: some[0].UID})
	if err != nil || m.IsFlagged || !m.IsRead {
		t.Errorf("the flag that a client took away: %v, %v", m.IsFlagged, err)
	}
	if got := c.line(); got != `* 1 FETCH (UID 1 FLAGS (\Seen))` {
		t.Errorf("not flagged any more: %q", got)
	}
	if _, err := h.Inbox.DeleteMessage(t.Context(), who, inbox.DeleteMessageIn{MessageIn: inbox.MessageIn{UserID: h.user.MailboxID, MessageID: strconv.Itoa(int(uid))}}); err != nil {
		t.Fatal(err)
	}
	if got := c.line(); got != "* 1 EXPUNGE" {
		t.Errorf("deleted: %q", got)
	}
	c.send("DONE\r\n")
	c.until("i")
}

func TestIdleWithoutDoneIsAnError(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.send("i IDLE\r\n")
	c.line()
	c.send("x NOOP\r\n")
	if got := c.until("i"); !strings.HasPrefix(got[0], "BAD") {
		t.Errorf("IDLE ended by a command: %q", got)
	}
	h.put(t, "INBOX", letter("one"), 0)
	c.has(c.ok("NOOP"), "* 1 EXISTS")
}

// TestExpungesWaitForTheirTime: no number may change under FETCH, STORE and SEARCH (RFC 3501
// section 7.4.1).
func TestExpungesWaitForTheirTime(t *testing.T) {
	h := serve(t, nil)
	for _, s := range []string{"one", "two", "three"} {
		h.put(t, "INBOX", letter(s), 0)
	}
	c, other := h.login(t), h.login(t)
	c.ok("SELECT INBOX")
	other.ok("SELECT INBOX")
	other.ok(`STORE 1 +FLAGS.SILENT (\Deleted)`)
	other.ok("EXPUNGE")
	h.put(t, "INBOX", letter("four"), 0)
	lines := c.ok("FETCH 1:3 FLAGS") // one is gone, two and three still have their numbers
	if want := []string{`* 2 FETCH (UID 2 FLAGS ())`, `* 3 FETCH (UID 3 FLAGS ())`, "* 4 EXISTS"}; !slices.Equal(lines, want) {
		t.Errorf("FETCH: %q", lines)
	}
	c.has(c.ok("SEARCH ALL"), "* SEARCH 2 3 4")
	if lines := c.ok(`STORE 1:4 +FLAGS.SILENT (\Answered)`); len(lines) > 0 {
		t.Errorf("STORE: %q", lines)
	}
	if lines := c.ok("NOOP"); !slices.Equal(lines, []string{"* 1 EXPUNGE"}) {
		t.Errorf("NOOP: %q", lines)
	}
	c.has(c.ok("SEARCH ANSWERED"), "* SEARCH 1 2 3")
	lines = other.ok("NOOP")
	other.has(lines, "* 3 EXISTS")
	other.has(lines, `* 1 FETCH (UID 2 FLAGS (\Answered))`)
}

func TestNewKeywordsAreTold(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c, other := h.login(t), h.login(t)
	c.ok("SELECT INBOX")
	other.ok("SELECT INBOX")
	other.ok(`STORE 1 +FLAGS (Mine)`)
	lines := c.ok("NOOP")
	if want := []string{`* FLAGS (\Answered \Flagged \Deleted \Seen \Draft Mine)`, `* 1 FETCH (UID 1 FLAGS (Mine))`}; !slices.Equal(lines, want) {
		t.Errorf("NOOP: %q", lines)
	}
}

// TestSilentStoreStillTellsOthersChanges: a client that asked for silence knows only its own
// change.
func TestSilentStoreStillTellsOthersChanges(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c, other := h.login(t), h.login(t)
	c.ok("SELECT INBOX")
	other.ok("SELECT INBOX")
	other.ok(`STORE 1 +FLAGS (\Flagged)`)
	lines := c.ok(`STORE 1 +FLAGS.SILENT (\Seen)`)
	c.has(lines, `* 1 FETCH (UID 1 FLAGS (\Flagged \Seen))`)
}

func TestFolderThatGoesEndsItsSessions(t *testing.T) {
	h := serve(t, nil)
	c, other := h.login(t), h.login(t)
	c.ok("CREATE Brief")
	other.ok("SELECT Brief")
	c.ok("DELETE Brief")
	other.send("s NOOP\r\n")
	other.bye()
}

func TestSuspendedMailboxEndsItsSessions(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("SELECT INBOX")
	who := core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}
	status := "suspended"
	if _, err := h.Mailboxes.UpdateEmailUser(t.Context(), who, mailboxes.UpdateEmailUserIn{UserID: h.user.MailboxID, Status: &status}); err != nil {
		t.Fatal(err)
	}
	if got := c.bye(); got != "* BYE [UNAVAILABLE] This mailbox is closed." { // unasked
		t.Errorf("told %q", got)
	}
}

// A model is the state that a client knows from the replies that it has read.
type model struct {
	c    *talker
	uids []uint32 // 0 where the client has not asked yet
	t    *testing.T
}

func (m *model) read(lines []string) {
	m.t.Helper()
	for _, l := range lines {
		var n, uid int
		switch {
		case scan(l, "* %d EXISTS", &n):
			if n < len(m.uids) {
				m.t.Fatalf("EXISTS %d, but there were %d", n, len(m.uids))
			}
			m.uids = append(m.uids, make([]uint32, n-len(m.uids))...)
		case scan(l, "* %d EXPUNGE", &n):
			if n < 1 || n > len(m.uids) {
				m.t.Fatalf("EXPUNGE %d of %d", n, len(m.uids))
			}
			m.uids = slices.Delete(m.uids, n-1, n)
		case scan(l, "* %d FETCH (UID %d", &n, &uid):
			if n < 1 || n > len(m.uids) || m.uids[n-1] != 0 && m.uids[n-1] != uint32(uid) {
				m.t.Fatalf("%q, but the client knows %v", l, m.uids)
			}
			m.uids[n-1] = uint32(uid)
		}
	}
}

// scan reads the numbers of a line that has the form.
func scan(line, form string, to ...any) bool {
	if word := form[strings.LastIndexByte(form, ' ')+1:]; word != "%d" && !strings.HasSuffix(line, word) {
		return false
	}
	n, err := fmt.Sscanf(line, form, to...)
	return err == nil && n == len(to)
}

// TestSequenceNumbersAgainstModel has three sessions do what they like to one folder. Each must be
// able to follow by the answers alone, and at the end all must see what is stored.
func TestSequenceNumbersAgainstModel(t *testing.T) {
	h := serve(t, nil)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var models []*model
	for range 3 {
		m := &model{c: h.login(t), t: t}
		m.read(m.c.ok("SELECT INBOX"))
		models = append(models, m)
	}
	for range 400 {
		models[rnd.IntN(len(models))].step(h, rnd)
	}
	stored, err := h.Inbox.SelectFolder(context.Background(), h.user, "INBOX")
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range models {
		m.read(m.c.ok("NOOP"))
		m.read(m.c.ok("FETCH 1:* UID"))
		if !slices.Equal(m.uids, stored.UIDs) {
			t.Errorf("session %d knows %v, stored is %v", i, m.uids, stored.UIDs)
		}
	}
}

func (m *model) step(h *host, rnd *rand.Rand) {
	m.t.Helper()
	n := len(m.uids)
	one := rnd.IntN(n+1) + 1 // now and then one that is not there
	switch rnd.IntN(10) {
	case 0, 1:
		h.put(m.t, "INBOX", letter("x"), 0)
	case 2:
		m.read(m.c.ok("FETCH %d:* FLAGS", one))
	case 3:
		m.read(m.c.ok("UID FETCH %d:* FLAGS", one))
	case 4:
		m.read(m.c.ok(`STORE %d,%d +FLAGS (\Deleted)`, one, rnd.IntN(n+1)+1))
	case 5:
		m.read(m.c.ok(`UID STORE 1:* -FLAGS.SILENT (\Deleted)`))
	case 6:
		m.read(m.c.ok("EXPUNGE"))
	case 7:
		m.read(m.c.ok("NOOP"))
	case 8:
		m.read(m.c.ok("COPY %d INBOX", one))
	case 9:
		m.read(m.c.ok("MOVE %d Archive", one))
	}
}
