package imapd

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// readCases reads a file of cases.
func readCases[T any](t *testing.T, name string) (list []T) {
	t.Helper()
	text, err := os.ReadFile("testdata/cases/" + name)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list) == 0 {
		t.Fatal(name, err, len(list))
	}
	return list
}

// TestBadLinesGetBAD sends lines that are no commands, each with and without a log-in.
func TestBadLinesGetBAD(t *testing.T) {
	h := serve(t, nil)
	var lines []string
	for _, row := range readCases[struct{ Send, Expect string }](t, "30-imap-lines-that-close.json") {
		if !strings.HasPrefix(row.Expect, "BAD (tagged where a tag can be read), the connection stays") {
			t.Errorf("%+v", row)
		}
		lines = append(lines, row.Send)
	}
	lines = append(lines, "", "x UID", "x UID ", "x ", "x \"NOOP\"", "+ NOOP", "x LOGIN a {5", "x LOGIN a {5}b", "x LOGIN a {99999999999}", "x NOOP\ry NOOP",
		"x NO)OP", "x {3}")
	for _, text := range lines {
		for _, c := range []*talker{h.login(t), dial(t, h.addr)} {
			if c.n == 0 {
				c.line()
			}
			want := "* BAD "
			if strings.HasPrefix(text, "x") {
				want = "x BAD "
			}
			c.send(text + "\r\n")
			if got := c.line(); !strings.HasPrefix(got, want) {
				t.Errorf("%q: answered %q, want %s", text, got, want)
			}
			c.ok("NOOP")
			c.conn.Close()
		}
	}
}

func TestBadLinesAreBounded(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	for range 20 {
		c.send("x\r\n")
		c.line()
	}
	c.send("x\r\n")
	if got := c.bye(); !strings.Contains(got, "[CLIENTBUG]") {
		t.Error(got)
	}
}

func TestDoneEndsIdleInAnyCase(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("SELECT INBOX")
	for _, row := range readCases[struct {
		Send   []string
		Expect string
	}](t, "31-imap-idle-done-case.json") {
		c.send("i " + row.Send[0] + "\r\n")
		if got := c.line(); !strings.HasPrefix(got, "+ ") {
			t.Fatal(got)
		}
		c.send(row.Send[1] + "\r\n")
		if got := c.until("i"); !strings.HasPrefix(got[0], row.Expect+" ") {
			t.Errorf("%s: %q, want %s", row.Send[1], got, row.Expect)
		}
	}
	c.send("i IDLE\r\n")
	c.line()
	c.send("DO\x00NE\r\n")
	if got := c.until("i"); !strings.HasPrefix(got[0], "BAD") {
		t.Error(got)
	}
	c.ok("NOOP")
}

// TestNamesAreUTF8OnceEnabled is about RFC 6855 section 3 and RFC 9051 section 5.1.
func TestNamesAreUTF8OnceEnabled(t *testing.T) {
	for _, extension := range []string{"UTF8=ACCEPT", "IMAP4rev2"} {
		h := serve(t, nil)
		old := h.login(t)
		old.ok(`CREATE "A&-B"`)
		old.ok(`CREATE "B&APw-"`)
		c := h.login(t)
		c.ok("ENABLE %s", extension)
		c.has(c.ok(`LIST "" A*`), `* LIST (\HasNoChildren \Archive) "/" "Archive"`)
		c.has(c.ok(`LIST "" A&*`), `* LIST (\HasNoChildren) "/" "A&B"`)
		c.has(c.ok(`LIST "" (B* "Bü")`), `* LIST (\HasNoChildren) "/" "Bü"`)
		for i, name := range []string{"Entw&APw-rfe", "R&D", "&", "&-", "ü&ö", "a&b]"} {
			c.ok("CREATE %s", wire.Quote(name))
			c.has(c.ok("LIST \"\" %s", wire.Quote(name)), `* LIST (\HasNoChildren) "/" `+wire.Quote(name))
			c.has(c.ok("STATUS %s (MESSAGES)", wire.Quote(name)), `* STATUS `+wire.Quote(name)+` (MESSAGES 0)`)
			c.ok("SUBSCRIBE %s", wire.Quote(name))
			c.has(c.ok("LSUB \"\" %s", wire.Quote(name)), `* LSUB (\HasNoChildren \Subscribed) "/" `+wire.Quote(name))
			c.has(c.ok("GETQUOTAROOT %s", wire.Quote(name)), `* QUOTAROOT `+wire.Quote(name)+" mailbox")
			c.send(fmt.Sprintf("p APPEND {%d+}\r\n%s {4+}\r\na\r\n\r\n", len(name), name))
			if got := c.until("p"); !strings.HasPrefix(got[len(got)-1], "OK") {
				t.Error(got)
			}
			c.ok("SELECT %s", wire.Quote(name))
			c.ok("RENAME %s %s", wire.Quote(name), wire.Quote(fmt.Sprint("&", i)))
			c.ok("DELETE %s", wire.Quote(fmt.Sprint("&", i)))
		}
		old.has(old.ok(`LIST "" A*`), `* LIST (\HasNoChildren) "/" "A&-B"`)
	}
}

// TestCasesOfNames has a row's last command name a folder, or list it.
func TestCasesOfNames(t *testing.T) {
	rows := readCases[struct {
		Before, Send []string
		Expect       string
	}](t, "29-imap-ampersand-utf8-names.json")
	for i, row := range rows {
		h := serve(t, nil)
		before, c := h.login(t), h.login(t)
		for _, command := range row.Before {
			before.ok("%s", command)
		}
		var lines []string
		for _, command := range row.Send {
			lines = c.ok("%s", command)
		}
		if _, name, found := strings.Cut(row.Send[len(row.Send)-1], "CREATE "); found {
			lines = c.ok(`LIST "" %s`, name)
		}
		name := [...]string{"A&B", "Entw&APw-rfe"}[i]
		if !strings.Contains(row.Expect, name) {
			t.Fatalf("%s has no %s", row.Expect, name)
		}
		c.has(lines, `* LIST (\HasNoChildren) "/" `+wire.Quote(name))
	}
	for _, row := range readCases[struct{ Send, Expect string }](t, "43-folder-name-length.json") {
		var size int
		if _, err := fmt.Sscanf(row.Send, "CREATE with a name of %d bytes", &size); err != nil || !strings.HasPrefix(row.Expect, "OK") {
			t.Fatal(row, err)
		}
		serve(t, nil).login(t).ok("CREATE %s", strings.Repeat("n", size))
	}
}

func TestNamesMayHaveBrackets(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	for i, name := range []string{"a[b", "[x]", "BODY[", "[", "x[y]"} {
		c.ok("CREATE %s", name)
		c.has(c.ok("STATUS %s (MESSAGES)", name), `* STATUS `+wire.Quote(name)+` (MESSAGES 0)`)
		c.ok("SELECT %s (CONDSTORE)", name)
		c.has(c.ok(`LIST "" %s RETURN (STATUS (MESSAGES))`, name), `* STATUS `+wire.Quote(name)+` (MESSAGES 0)`)
		h.put(t, name, letter("one"), 0)
		c.ok("NOOP")
		c.ok("COPY 1 %s", name)
		c.send(fmt.Sprintf("r REPLACE 1 %s {4+}\r\na\r\n\r\n", name))
		if got := c.until("r"); !strings.HasPrefix(got[len(got)-1], "OK") {
			t.Errorf("%s: %q", name, got)
		}
		c.ok("RENAME %s r[%d", name, i)
	}
}

func TestNamesHave255Bytes(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	for _, name := range []string{strings.Repeat("x", 255), strings.Repeat("&APw-x", 85)} {
		c.ok("CREATE %s", name)
		c.ok("SELECT %s", name)
		c.has(c.ok(`LIST "" %s`, name), `* LIST (\HasNoChildren) "/" `+wire.Quote(name))
	}
	c.expect("NO [CANNOT]", "CREATE %s", strings.Repeat("x", 256))
}

func TestDeletingTheOpenFolderClosesIt(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("CREATE one")
	h.put(t, "one", letter("one"), 0)
	c.ok("SELECT one")
	c.ok("DELETE one")
	for _, command := range []string{"FETCH 1 FLAGS", "SEARCH ALL", "STORE 1 FLAGS ()", "EXPUNGE", "CLOSE", "UNSELECT", "COPY 1 INBOX", "UID MOVE 1 INBOX", "CHECK"} {
		c.expect("BAD", "%s", command)
	}
	c.ok("NOOP")
	c.ok("SELECT INBOX")
	c.ok("FETCH 1 FLAGS")
}

// TestSaveAloneAnswersNothing is about RFC 5182 section 2.1.
func TestSaveAloneAnswersNothing(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	h.put(t, "INBOX", letter("two"), inbox.FlagSeen)
	c := h.login(t)
	c.ok("SELECT INBOX")
	for _, row := range readCases[struct{ Send, Expect string }](t, "28-imap-searchres.json") {
		if lines := c.ok("%s", row.Send); len(lines) > 0 || row.Expect != "no untagged ESEARCH, only OK" {
			t.Errorf("%s: %q, want %s", row.Send, lines, row.Expect)
		}
	}
	c.ok("SEARCH RETURN (SAVE) SEEN")
	c.has(c.ok("FETCH $ UID"), "* 2 FETCH (UID 2)")
	c.has(c.ok("SEARCH RETURN (SAVE COUNT) SEEN"), fmt.Sprintf(`* ESEARCH (TAG "a%d") COUNT 1`, c.n))
	c.expect("BAD", "SEARCH RETURN (SAVE) NONSENSE")
	c.expect("NO", "SEARCH CHARSET X-UNKNOWN ALL")
	c.has(c.ok("FETCH $ UID"), "* 2 FETCH (UID 2)")
	c.expect("NO", "UID SEARCH RETURN (SAVE MIN) CHARSET X-UNKNOWN ALL")
	if lines := c.ok("FETCH $ UID"); len(lines) > 0 {
		t.Errorf("after NO, $ is %q", lines)
	}
	c.ok("SEARCH RETURN (SAVE) ALL")
	c.send("l SEARCH RETURN (SAVE) SUBJECT {50000}\r\n")
	if got := c.until("l"); !strings.HasPrefix(got[0], "NO") {
		t.Error(got)
	}
	if lines := c.ok("FETCH $ UID"); len(lines) > 0 {
		t.Errorf("after NO [TOOBIG], $ is %q", lines)
	}
}

// TestEnvelopeIsAsItCame has a message of a case and others, and what their envelopes have.
func TestEnvelopeIsAsItCame(t *testing.T) {
	h := serve(t, nil)
	text, err := os.ReadFile("testdata/cases/26-imap-envelope-two-addresses.eml")
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		strings.ReplaceAll(string(text), "\r\n", "\n"):                                                      `((NIL NIL "ann" "here.test")(NIL NIL "bob" "here.test"))`,
		"From: a@b.test\nCc: x@b.test,\n y@b.test, z@b.test\n\na\n":                                         `((NIL NIL "x" "b.test")(NIL NIL "y" "b.test")(NIL NIL "z" "b.test"))`,
		"From: a@b.test\nTo: g: x@b.test, y@b.test;\n\na\n":                                                 `((NIL NIL "g" NIL)(NIL NIL "x" "b.test")(NIL NIL "y" "b.test")(NIL NIL NIL NIL))`,
		"From: a@b.test\nSubject:\n\na\n":                                                                   `ENVELOPE (NIL "" ((NIL`,
		"From: a@b.test\nSubject: \n \n\na\n":                                                               `ENVELOPE (NIL "" ((NIL`,
		"From: a@b.test\n\na\n":                                                                             `ENVELOPE (NIL NIL ((NIL`,
		"From: =?x-nowhere?q?Ann=E9?= <a@b.test>\nSubject: =?x-nowhere?b?Y2Fm6Q==?=\n =?utf-8?b?*?=\n\na\n": `ENVELOPE (NIL "=?x-nowhere?b?Y2Fm6Q==?= =?utf-8?b?*?=" (("=?x-nowhere?q?Ann=E9?=" NIL "a"`,
		"Date: when it rains\nFrom: a@b.test\nSubject: x\n\na\n":                                            `ENVELOPE ("when it rains" "x" ((NIL`,
	} {
		uid := h.put(t, "INBOX", message, 0)
		c := h.login(t)
		c.ok("SELECT INBOX")
		if got := c.ok("UID FETCH %d ENVELOPE", uid); !strings.Contains(got[0], want) {
			t.Errorf("%q:\n%s\nhas no %s", message, got[0], want)
		}
		c.ok("LOGOUT")
	}
}

// TestSearchFindsEitherFormOfAccents is about RFC 5051: subjects, names, headers and bodies.
func TestSearchFindsEitherFormOfAccents(t *testing.T) {
	h := serve(t, nil)
	composed, decomposed := "Caf\u00e9", "Cafe\u0301"
	for _, text := range []string{composed, decomposed} {
		h.put(t, "INBOX", "From: "+text+" <a@b.test>\nSubject: "+text+"\nX-Place: "+text+"\nContent-Type: text/plain; charset=utf-8\n\nto the "+text+"\n", 0)
	}
	c := h.login(t)
	c.ok("SELECT INBOX")
	var rows []struct{ Send string }
	for _, text := range []string{composed, decomposed, strings.ToUpper(decomposed), "\uff23af\u00e9"} {
		for _, key := range []string{"SUBJECT", "FROM", "BODY", "TEXT", "HEADER X-Place"} {
			rows = append(rows, struct{ Send string }{"SEARCH CHARSET UTF-8 " + key + ` "` + text + `"`})
		}
	}
	for _, row := range rows {
		c.has(c.ok("%s", row.Send), "* SEARCH 1 2")
	}
	c.has(c.ok(`SEARCH CHARSET UTF-8 SUBJECT "Cafè"`), "* SEARCH")
}

// TestSearchFindsEitherSmallLetter has letters that share their capitals, as q= finds them.
func TestSearchFindsEitherSmallLetter(t *testing.T) {
	h := serve(t, nil)
	for _, text := range []string{"Straße", "STRASSE", "Σίσυφος", "ΣΊΣΥΦΟΣ"} {
		h.put(t, "INBOX", "From: "+text+" <a@b.test>\nSubject: "+text+"\nContent-Type: text/plain; charset=utf-8\n\nto "+text+"\n", 0)
	}
	c := h.login(t)
	c.ok("SELECT INBOX")
	for text, want := range map[string]string{"straße": "1 2", "strasse": "1 2", "STRAẞE": "1 2", "σίσυφος": "3 4", "σίσυφοσ": "3 4", "ΣΊΣΥΦΟΣ": "3 4"} {
		for _, key := range []string{"SUBJECT", "FROM", "BODY"} {
			c.has(c.ok(`SEARCH CHARSET UTF-8 %s "%s"`, key, text), "* SEARCH "+want)
		}
	}
}

// TestPatternsAreNamesInEitherForm lists a folder by the form of its name that is not kept.
func TestPatternsAreNamesInEitherForm(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok("ENABLE IMAP4rev2")
	c.ok("CREATE \"Cafe\u0301\"")
	for _, pattern := range []string{"Cafe\u0301", "Caf\u00e9", "Cafe\u0301*", "%e\u0301"} {
		c.has(c.ok("LIST \"\" \"%s\"", pattern), "* LIST (\\HasNoChildren) \"/\" \"Caf\u00e9\"")
	}
}

// TestPartZeroIsNoPart is about nz-number of RFC 9051 section 9.
func TestPartZeroIsNoPart(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	for _, item := range []string{"BODY[0]", "BODY.PEEK[0.1]", "BODY[1.0.TEXT]", "BINARY[0]", "BINARY.SIZE[1.0]"} {
		c.expect("BAD", "FETCH 1 %s", item)
	}
}

// TestCasesOfAccents searches for each subject where no other message has it.
func TestCasesOfAccents(t *testing.T) {
	for _, row := range readCases[struct {
		Subject string `json:"message_subject"`
		Send    string
		Expect  string
	}](t, "32-imap-search-nfc-nfd.json") {
		h := serve(t, nil)
		h.put(t, "INBOX", letter("another"), 0)
		h.put(t, "INBOX", "From: a@b.test\nSubject: "+row.Subject+"\n\nx\n", 0)
		c := h.login(t)
		c.ok("SELECT INBOX")
		lines := strings.Join(c.ok("%s", row.Send), "\n")
		if hits := strings.Fields(strings.TrimPrefix(lines, "* SEARCH")); fmt.Sprintf("%d hit", len(hits)) != row.Expect || hits[0] != "2" {
			t.Errorf("%+v finds %s", row, lines)
		}
	}
}

// TestMessagesThatOthersExpunged is about RFC 5530 section 3.
func TestMessagesThatOthersExpunged(t *testing.T) {
	h := serve(t, nil)
	for i := range 3 {
		h.put(t, "INBOX", letter(fmt.Sprint("m", i)), 0)
	}
	c, other := h.login(t), h.login(t)
	c.ok("SELECT INBOX")
	other.ok("SELECT INBOX")
	other.ok(`STORE 2 +FLAGS (\Deleted)`)
	other.ok("EXPUNGE")
	for command, answers := range map[string]int{"FETCH 1:3 UID": 2, "FETCH 1:3 (BODY.PEEK[])": 2, `STORE 1:3 FLAGS (\Seen)`: 2} {
		if n := strings.Count(strings.Join(c.expect("OK [EXPUNGEISSUED] ", "%s", command), "\n"), " FETCH ("); n < answers {
			t.Errorf("%s: %d answers", command, n)
		}
	}
	c.expect("OK UID FETCH", "UID FETCH 1:3 UID")
}
