package imapd

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/submit"
)

// An agent is a log-in of ann's that strangers' words taint.
type agent struct {
	*host
	who core.Actor
	id  string // of its credential
	*talker
	username, password string
}

func (h *host) agent(t testing.TB, p agents.Policy) *agent {
	t.Helper()
	a := &agent{host: h, who: core.Actor{AccountID: h.Owner.AccountID, UserID: h.Owner.UserID, Role: "owner", Permissions: []string{"admin"}}}
	p.Send = "allow"
	c, err := h.Mailboxes.CreateCredential(t.Context(), a.who, mailboxes.CreateCredentialIn{UserID: h.user.MailboxID, Name: "agent", Policy: &p})
	if err != nil {
		t.Fatal(err)
	}
	a.id, a.username, a.password = c.ID, c.Username, c.Password
	a.connect(t)
	return a
}

func (a *agent) connect(t testing.TB) {
	t.Helper()
	a.talker = dial(t, a.addr)
	a.line()
	a.ok("LOGIN %s %q", a.username, a.password)
	a.ok("ENABLE CONDSTORE")
	a.ok("SELECT INBOX")
}

// taint returns the taint of the agent, as ann's credentials show it.
func (a *agent) taint(t testing.TB) *agents.Tainted {
	t.Helper()
	list, err := a.Mailboxes.ListCredentials(t.Context(), a.who, core.EmailUserIn{UserID: a.user.MailboxID})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Data {
		if c.ID == a.id {
			return c.Tainted
		}
	}
	t.Fatal("the credential is gone")
	return nil
}

func (a *agent) end(t testing.TB) {
	t.Helper()
	a.conn.Close()
	if _, err := a.Mailboxes.DeleteCredential(t.Context(), a.who, mailboxes.CredentialIn{UserID: a.user.MailboxID, CredentialID: a.id}); err != nil {
		t.Fatal(err)
	}
}

// A taintSample is a command, and its expected result.
type taintSample struct {
	command string
	taints  bool // a log-in that is not tainted
	closed  bool // to one that is
}

// In INBOX are two messages of strangers; \Deleted is on the second.
var taintSamples = []taintSample{
	{command: "CAPABILITY"}, {command: "NOOP"}, {command: "CHECK"}, {command: "LOGOUT"}, {command: `ID ("name" "x")`}, {command: "STARTTLS"},
	{command: "AUTHENTICATE PLAIN AGEAYg=="}, {command: "LOGIN a b"}, {command: "ENABLE QRESYNC"},
	{command: "COMPRESS DEFLATE"}, {command: "IDLE"}, {command: "NAMESPACE"}, {command: "GETQUOTA mailbox"}, {command: "GETQUOTAROOT INBOX"},
	{command: "SELECT INBOX"}, {command: "EXAMINE Sent"}, {command: "UNSELECT"}, {command: "CLOSE", closed: true},
	{command: "STATUS INBOX (MESSAGES UNSEEN SIZE HIGHESTMODSEQ MAILBOXID)"}, {command: `LIST "" *`}, {command: `LSUB "" *`},
	{command: "SUBSCRIBE INBOX"}, {command: "SUBSCRIBE pay-the-invoice", closed: true}, {command: "UNSUBSCRIBE INBOX"},
	{command: "CREATE Made", closed: true}, {command: "DELETE Archive", closed: true}, {command: "RENAME Archive Past", closed: true},

	{command: "FETCH 1 (FLAGS UID INTERNALDATE RFC822.SIZE MODSEQ SAVEDATE EMAILID THREADID)"}, {command: "FETCH 1 FAST"},
	{command: "UID FETCH 1:* (FLAGS) (CHANGEDSINCE 1)"}, {command: "FETCH 1 ALL", taints: true}, {command: "FETCH 1 FULL", taints: true},
	{command: "FETCH 1 ENVELOPE", taints: true}, {command: "FETCH 1 BODYSTRUCTURE", taints: true}, {command: "FETCH 1 BODY", taints: true},
	{command: "FETCH 1 (FLAGS BODY)", taints: true}, {command: "FETCH 1 BODY.PEEK[]", taints: true}, {command: "FETCH 1 BODY[HEADER.FIELDS (DATE)]", taints: true},
	{command: "FETCH 1 BODY.PEEK[TEXT]<0.1>", taints: true}, {command: "FETCH 1 BODY.PEEK[1.MIME]", taints: true}, {command: "FETCH 1 BINARY.PEEK[1]", taints: true},
	{command: "FETCH 1 BINARY.SIZE[1]", taints: true}, {command: "FETCH 1 RFC822", taints: true}, {command: "FETCH 1 RFC822.HEADER", taints: true},
	{command: "FETCH 1 RFC822.TEXT", taints: true}, {command: "FETCH 1 PREVIEW", taints: true}, {command: "FETCH 1 (PREVIEW (LAZY))", taints: true},
	{command: "UID FETCH 1:* (UID PREVIEW)", taints: true}, {command: "UID FETCH 1:* (ENVELOPE) (CHANGEDSINCE 999999)", taints: true},

	{command: "SEARCH UNSEEN SINCE 1-Jan-2020 LARGER 1 SMALLER 99999 NOT DELETED"}, {command: "SEARCH MODSEQ 1 SAVEDSINCE 1-Jan-2020 EMAILID em_x"},
	{command: "UID SEARCH UID 1:* OR KEYWORD x FLAGGED"}, {command: "SEARCH TEXT x", taints: true}, {command: "SEARCH BODY x", taints: true},
	{command: "SEARCH SUBJECT x", taints: true}, {command: "SEARCH FROM x", taints: true}, {command: "SEARCH TO x", taints: true},
	{command: "SEARCH CC x", taints: true}, {command: "SEARCH BCC x", taints: true}, {command: "SEARCH HEADER X-Any x", taints: true},
	{command: `SEARCH HEADER X-Any ""`, taints: true}, {command: "UID SEARCH OR SEEN NOT (SUBJECT x)", taints: true}, {command: "SEARCH SENTSINCE 1-Jan-2020", taints: true},
	{command: "UID SEARCH RETURN (COUNT) TEXT x", taints: true}, {command: "SEARCH RETURN (SAVE) TEXT x", taints: true},
	{command: "SORT (REVERSE ARRIVAL SIZE) UTF-8 ALL"}, {command: "UID SORT (SIZE) UTF-8 UNSEEN"}, {command: "SORT (ARRIVAL) UTF-8 TEXT x", taints: true},
	{command: "SORT (SUBJECT) UTF-8 ALL", taints: true}, {command: "UID SORT (FROM) UTF-8 ALL", taints: true}, {command: "SORT (ARRIVAL DATE) UTF-8 ALL", taints: true},
	{command: "THREAD REFERENCES UTF-8 ALL", taints: true}, {command: "UID THREAD ORDEREDSUBJECT UTF-8 ALL", taints: true},

	{command: `STORE 1 +FLAGS (\Flagged)`}, {command: "STORE 1 +FLAGS ($Forwarded $label1 NonJunk)"}, {command: "STORE 1 -FLAGS (pay-the-invoice)"},
	{command: "STORE 1 +FLAGS (pay-the-invoice)", closed: true}, {command: `UID STORE 1 FLAGS.SILENT (\Seen $pay)`, closed: true}, {command: `UID STORE 1 FLAGS.SILENT (\Seen)`}, {command: "COPY 1 Archive"}, {command: "UID COPY 1 Trash"},
	{command: "MOVE 1 Trash"}, {command: "UID MOVE * Junk"},
	{command: "APPEND INBOX {7+}\r\nA: b\r\n\r", closed: true}, {command: "APPEND Sent {7+}\r\nA: b\r\n\r", closed: true}, {command: "APPEND Drafts {7+}\r\nA: b\r\n\r"},
	{command: "APPEND Drafts (pay-the-invoice) {7+}\r\nA: b\r\n\r", closed: true},
	{command: "REPLACE 1 INBOX {7+}\r\nA: b\r\n\r", closed: true}, {command: "REPLACE 1 Drafts {7+}\r\nA: b\r\n\r", closed: true},
	{command: "UID REPLACE * Drafts {7+}\r\nA: b\r\n\r", closed: true},
	{command: "EXPUNGE", closed: true}, {command: "UID EXPUNGE 1:*", closed: true},
}

// run sends the command and returns the reply's last line.
func (a *agent) run(command string) string {
	a.t.Helper()
	if command == "IDLE" {
		a.send("i IDLE\r\n")
		for line := a.line(); !strings.HasPrefix(line, "+"); line = a.line() {
		}
		a.send("DONE\r\n")
		lines := a.until("i")
		return lines[len(lines)-1]
	}
	lines := a.do("%s", command)
	return lines[len(lines)-1]
}

// verbOf returns the name of a command, of which UID is a part.
func verbOf(command string) string {
	words := strings.Fields(command)
	if words[0] == "UID" {
		return words[0] + " " + words[1]
	}
	return words[0]
}

func TestTaintOfEveryCommand(t *testing.T) {
	h := serve(t, nil)
	for range 2 {
		h.put(t, "INBOX", letter("x"), 0)
	}
	owner := h.login(t)
	owner.ok("SELECT INBOX")
	owner.ok(`STORE 2 +FLAGS (\Deleted)`)
	told := map[string][]taintSample{}
	for _, s := range taintSamples {
		verb := verbOf(s.command)
		told[verb] = append(told[verb], s)
		a := h.agent(t, agents.Policy{Taint: true})
		if !s.closed && !strings.Contains(verb, "MOVE") && verb != "APPEND" {
			answer := a.run(s.command)
			if got := a.taint(t) != nil; got != s.taints || strings.Contains(answer, "NOPERM") {
				t.Errorf("%s: tainted %v, %q", s.command, got, answer)
			}
			a.conn.Close()
			a.connect(t)
		}
		a.ok("FETCH 1 BODY.PEEK[]")
		if a.taint(t) == nil {
			t.Fatal("not tainted by a whole message")
		}
		if answer := a.run(s.command); strings.HasPrefix(answer, "NO [NOPERM] ") != s.closed {
			t.Errorf("%s once tainted: %q", s.command, answer)
		}
		a.end(t)
		if strings.Contains(verb, "MOVE") {
			h.put(t, "INBOX", letter("x"), 0)
			owner.ok("NOOP")
			owner.ok(`STORE 1:* +FLAGS (\Deleted)`)
		}
	}

	// Each command has a rule, and samples that show it.
	for verb, c := range commands {
		has := func(f func(s taintSample) bool) bool { return slices.ContainsFunc(told[verb], f) }
		closed, taints := has(func(s taintSample) bool { return s.closed }), has(func(s taintSample) bool { return s.taints })
		rule, ok := c.taint, len(told[verb]) > 0
		switch rule {
		case refusedIfTainted:
			ok = ok && !taints && !has(func(s taintSample) bool { return !s.closed })
			fallthrough
		default:
			if !ok || closed != (rule == refusedIfTainted || rule == dependsOnArguments) || taints != (rule == hasMessageText) {
				t.Errorf("the samples of %s do not show its rule", verb)
			}
		}
	}
}

// TestTaintByIMAP: words of the account do not taint, a stranger's do; those who have no such
// policy are free; CLOSE and REPLACE are so far as they harm nothing.
func TestTaintByIMAP(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("stranger"), 0)
	a, other := h.agent(t, agents.Policy{Taint: true}), h.agent(t, agents.Policy{Taint: true})
	person := a.who
	person.TokenKind = core.SessionKind
	draft, err := h.Submit.CreateDraft(t.Context(), person, submit.CreateDraftIn{SendEmailIn: submit.SendEmailIn{UserID: h.user.MailboxID, Subject: "of a person", Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	a.ok("SELECT Drafts")
	a.ok("FETCH 1:* (ENVELOPE BODY[])")
	a.ok("SEARCH SUBJECT person")
	a.ok("UID COPY %s Archive", draft.UID)
	a.ok("SELECT Archive")
	a.ok("FETCH 1:* BODY[]")
	if got := a.taint(t); got != nil {
		t.Fatalf("a person's words taint: %+v", got)
	}
	a.ok("CREATE Made")
	a.ok("SELECT INBOX")
	a.ok("SEARCH SUBJECT person") // which no message here has
	got := a.taint(t)
	if got == nil || got.UserID == nil || *got.UserID != h.user.MailboxID {
		t.Fatalf("a stranger's words do not taint: %+v", got)
	}
	a.expect("NO [NOPERM]", "DELETE Made")
	a.ok("CLOSE") // there is nothing to expunge
	a.ok("SELECT INBOX")
	a.ok(`STORE 1 +FLAGS (\Deleted)`)
	a.expect("NO [NOPERM]", "CLOSE")
	a.ok("UNSELECT")
	a.ok("EXAMINE INBOX")
	a.ok("CLOSE")
	a.ok("SELECT Drafts")
	a.ok("REPLACE 1 Drafts {7+}\r\nA: b\r\n\r")
	a.expect("NO [NOPERM]", "REPLACE 1 INBOX {7+}\r\nA: b\r\n\r")

	// A log-in that shares the mailbox is tainted with it; one without such a policy, and the
	// person, are not.
	if other.taint(t) == nil {
		t.Error("the other log-in is not tainted")
	}
	other.expect("NO [NOPERM]", "CREATE Other")
	free := h.agent(t, agents.Policy{})
	for _, c := range []*talker{free.talker, h.login(t)} {
		c.ok("SELECT INBOX")
		c.ok("FETCH 1 BODY[]")
		c.ok("CREATE %q", "Free"+strconv.Itoa(c.n)+c.conn.LocalAddr().String())
	}
	if free.taint(t) != nil {
		t.Error("a log-in without such a policy is tainted")
	}
}
