package imapd

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/inbox"
)

// variable is a name in the lines of a dialogue. The first answer that has it says which number it
// stands for; {tag} stands for the tag of the command.
var (
	variable       = regexp.MustCompile(`\{([a-z]+)\}`)
	quotedVariable = regexp.MustCompile(`\\\{([a-z]+)\\\}`)
)

// TestDialogues plays the files in testdata/dialogues, each with a mailbox of its own. Of the lines
// of a file, "message FOLDER" adds the lines up to "." to a folder, "C: …" is a command of the
// first client and "2: …" one of the second. Behind a command, "S: …" is a line that the answer
// has; a status need not be whole. "S! …" begins no line of it, or, in quotes, is nowhere in it.
// Quoted lines are Go strings.
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/dialogues/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := &dialogue{t: t, host: serve(t, nil), clients: map[string]*talker{}, values: map[string]string{}}
			lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
			for d.at = 0; d.at < len(lines); d.at++ {
				d.play(lines)
			}
		})
	}
}

type dialogue struct {
	t       *testing.T
	host    *host
	at      int
	clients map[string]*talker
	values  map[string]string
	answer  []string
}

func (d *dialogue) play(lines []string) {
	d.t.Helper()
	line := lines[d.at]
	folder, isMessage := strings.CutPrefix(line, "message ")
	mark, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "" || line[0] == '#':
	case isMessage:
		var message strings.Builder
		for d.at++; lines[d.at] != "."; d.at++ {
			if text := plain(lines[d.at]); text == lines[d.at] {
				message.WriteString(text + "\n")
			} else {
				message.WriteString(text)
			}
		}
		d.host.put(d.t, folder, message.String(), 0)
	case mark == "C:" || mark == "2:":
		if d.clients[mark] == nil {
			d.clients[mark] = d.host.login(d.t)
		}
		c := d.clients[mark]
		d.answer = c.do("%s", strings.ReplaceAll(d.expand(rest), `\r\n`, "\r\n"))
		d.values["tag"] = "a" + strconv.Itoa(c.n)
	case mark == "S:":
		d.want(rest)
	case mark == "S!":
		if text := plain(rest); text != rest && strings.Contains(strings.Join(d.answer, "\n"), text) {
			d.t.Errorf("line %d: %s is in %q", d.at+1, rest, d.answer)
		}
		for _, l := range d.answer {
			if strings.HasPrefix(l, rest) {
				d.t.Errorf("line %d: %q is not to come", d.at+1, l)
			}
		}
	default:
		d.t.Fatalf("line %d: what is %q?", d.at+1, line)
	}
}

// plain is a line without its quotes.
func plain(line string) string {
	if text, err := strconv.Unquote(line); err == nil {
		return text
	}
	return line
}

func (d *dialogue) expand(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := d.values[name[1:len(name)-1]]; ok {
			return value
		}
		return name
	})
}

func (d *dialogue) want(line string) {
	d.t.Helper()
	text := d.expand(plain(line))
	isStatus := strings.HasPrefix(text, "OK") || strings.HasPrefix(text, "NO") || strings.HasPrefix(text, "BAD")
	pattern := "^" + quotedVariable.ReplaceAllString(regexp.QuoteMeta(strings.ToValidUTF8(text, "?")), "(?P<$1>[0-9a-f]+)")
	if !isStatus {
		pattern += "$"
	}
	want := regexp.MustCompile(pattern)
	for i, l := range d.answer {
		if l == text {
			return
		}
		found := want.FindStringSubmatch(l)
		if found == nil || isStatus != (i == len(d.answer)-1) {
			continue
		}
		for j, name := range want.SubexpNames() {
			if name != "" {
				d.values[name] = found[j]
			}
		}
		return
	}
	d.t.Errorf("line %d: no %q in\n%s", d.at+1, text, strings.Join(d.answer, "\n"))
}

func TestSelectTellsTheFolder(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), inbox.FlagSeen)
	h.put(t, "INBOX", letter("two"), 0)
	c := h.login(t)
	lines := c.ok("SELECT inbox")
	c.has(lines, "* 2 EXISTS")
	c.has(lines, "* OK [UNSEEN 2] First unseen message")
	c.has(lines, "* OK [UIDNEXT 3] Predicted next UID")
	c.has(lines, `* FLAGS (\Answered \Flagged \Deleted \Seen \Draft)`)
	c.expect("NO [NONEXISTENT]", "SELECT Nowhere")
	c.expect("BAD", "FETCH 1 FLAGS") // nothing is selected after a SELECT that failed
}

func TestFetchItems(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.has(c.ok("FETCH 1 (UID FLAGS RFC822.SIZE)"), `* 1 FETCH (UID 1 FLAGS () RFC822.SIZE 109)`)
	c.has(c.ok("FETCH 1 ENVELOPE"), `* 1 FETCH (ENVELOPE (NIL "one" (("Bob" NIL "bob" "example.org")) (("Bob" NIL "bob" "example.org")) `+
		`(("Bob" NIL "bob" "example.org")) ((NIL NIL "ann" "example.test")) NIL NIL NIL "<one@example.org>"))`)
	c.has(c.ok("FETCH 1 BODYSTRUCTURE"), `* 1 FETCH (BODYSTRUCTURE ("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 11 1 NIL NIL NIL NIL))`)
	c.has(c.ok("FETCH 1 BODY"), `* 1 FETCH (BODY ("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 11 1))`)
	lines := c.ok("FETCH 1 BODY.PEEK[TEXT]<2.4>")
	if got := strings.Join(lines, "|"); got != "* 1 FETCH (BODY[TEXT]<2> {4}|llo )" {
		t.Errorf("partial: %q", got)
	}
	lines = c.ok("FETCH 1 BODY.PEEK[HEADER.FIELDS (subject)]")
	if got := strings.Join(lines, "|"); got != `* 1 FETCH (BODY[HEADER.FIELDS ("subject")] {16}|Subject: one||)` {
		t.Errorf("header fields: %q", got)
	}
	c.has(c.ok("FETCH 1 FLAGS"), `* 1 FETCH (UID 1 FLAGS ())`) // PEEK leaves it unseen
	lines = c.ok("FETCH 1 BODY[TEXT]")
	if got := strings.Join(lines, "|"); got != `* 1 FETCH (UID 1 FLAGS (\Seen) BODY[TEXT] {11}|Hello one|)` {
		t.Errorf("body: %q", got)
	}
	c.has(c.ok("FETCH 1:4294967295 FLAGS"), `* 1 FETCH (UID 1 FLAGS (\Seen))`)
	c.has(c.ok("UID FETCH 999:* FLAGS"), `* 1 FETCH (UID 1 FLAGS (\Seen))`)
	c.expect("BAD", "FETCH 1 BODY[MIME]")
}

func TestFetchBinaryRange(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", mixed, inbox.FlagSeen)
	c := h.login(t)
	c.ok("SELECT INBOX")
	for command, want := range map[string]string{
		"BINARY.PEEK[2]<1.3>":                    "* 1 FETCH (BINARY[2]<1> ~{3}|\x01\x02\x03 UID 1)",
		"(BINARY.PEEK[2]<3.100> MODSEQ)":         "* 1 FETCH (BINARY[2]<3> ~{2}|\x03\x04 MODSEQ (6) UID 1)",
		"(BINARY[2]<9.9> BINARY.SIZE[2])":        "* 1 FETCH (BINARY[2]<9> ~{0}| UID 1 BINARY.SIZE[2] 5)",
		"BODY.PEEK[HEADER.FIELDS.NOT (TO)]<0.4>": "* 1 FETCH (BODY[HEADER.FIELDS.NOT (\"TO\")]<0> {4}|From)",
	} {
		got := slices.DeleteFunc(c.ok("FETCH 1 %s", command), func(l string) bool { return strings.HasPrefix(l, "* OK [HIGHEST") })
		want = strings.ReplaceAll(want, "(6)", fmt.Sprintf("(%d)", modSeqOf(t, c.ok("STATUS INBOX (HIGHESTMODSEQ)"))))
		if strings.Join(got, "|") != want {
			t.Errorf("FETCH %s: %q, want %q", command, got, want)
		}
	}
}

func TestExamineChangesNothing(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), inbox.FlagDeleted)
	c := h.login(t)
	c.has(c.ok("EXAMINE INBOX"), "* OK [PERMANENTFLAGS ()] Permanent flags")
	for _, command := range []string{`STORE 1 +FLAGS (\Seen)`, "EXPUNGE", "UID EXPUNGE 1", "MOVE 1 Trash"} {
		c.expect("NO [NOPERM]", "%s", command)
	}
	c.ok("FETCH 1 BODY[]")
	c.has(c.ok("FETCH 1 FLAGS"), `* 1 FETCH (UID 1 FLAGS (\Deleted))`)
	c.ok("COPY 1 Trash") // that changes another folder
	c.ok("CLOSE")
	c.has(c.ok("STATUS INBOX (MESSAGES DELETED)"), "* STATUS INBOX (MESSAGES 1 DELETED 1)")
}

func TestCloseExpungesSilently(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), inbox.FlagDeleted)
	h.put(t, "INBOX", letter("two"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	if lines := c.ok("CLOSE"); len(lines) > 0 {
		t.Errorf("CLOSE told %q", lines)
	}
	c.has(c.ok("STATUS INBOX (MESSAGES UNSEEN SIZE)"), "* STATUS INBOX (MESSAGES 1 UNSEEN 1 SIZE 109)")
}

func TestStore(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), 0)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.has(c.ok(`STORE 1 FLAGS (\Flagged Later)`), `* 1 FETCH (UID 1 FLAGS (\Flagged Later))`)
	c.has(c.ok(`STORE 1 +FLAGS (later $Other)`), `* 1 FETCH (UID 1 FLAGS (\Flagged Later $Other))`)
	c.has(c.ok(`STORE 1 -FLAGS (LATER)`), `* 1 FETCH (UID 1 FLAGS (\Flagged $Other))`)
	if lines := c.ok(`STORE 1 FLAGS.SILENT (\Seen)`); len(lines) > 0 {
		t.Errorf("SILENT told %q", lines)
	}
	c.has(c.ok("UID SEARCH SEEN"), "* SEARCH 1")
	c.expect("BAD", `STORE 1 +FLAGS (\Recent)`)
	c.expect("BAD", `STORE 1 +FLAGS (\Wrong)`)
	c.expect("NO [LIMIT]", `STORE 1 +FLAGS (%s)`, strings.Repeat("k", 101))
	many := make([]string, 51)
	for i := range many {
		many[i] = "k" + strings.Repeat("x", i)
	}
	c.expect("NO [LIMIT]", `STORE 1 +FLAGS (%s)`, strings.Join(many, " "))
}

func TestFoldersBySpecialUseAndName(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.has(c.ok(`LIST "" ""`), `* LIST (\Noselect) "/" ""`)
	c.has(c.ok(`LIST (SPECIAL-USE) "" *`), `* LIST (\HasNoChildren \Sent) "/" "Sent"`)
	c.ok("CREATE Work/2026/May")
	lines := c.ok(`LIST "" Work*`)
	want := []string{`* LIST (\HasChildren) "/" "Work"`, `* LIST (\HasChildren) "/" "Work/2026"`, `* LIST (\HasNoChildren) "/" "Work/2026/May"`}
	if !slices.Equal(lines, want) {
		t.Errorf("LIST: %q", lines)
	}
	c.has(c.ok(`LIST "Work/" %%`), `* LIST (\HasChildren) "/" "Work/2026"`)
	c.ok("SUBSCRIBE Work/2026/May")
	lines = c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" W%%`)
	if !slices.Equal(lines, []string{`* LIST (\HasChildren) "/" "Work" (CHILDINFO ("SUBSCRIBED"))`}) {
		t.Errorf("RECURSIVEMATCH: %q", lines)
	}
	c.expect("NO [HASCHILDREN]", "DELETE Work")
	c.expect("NO [ALREADYEXISTS]", "CREATE Work")
	c.expect("NO [CANNOT]", "RENAME Work Work/Old")
	c.ok("RENAME Work Old/Work")
	lines = c.ok(`LIST "" Old*`)
	if len(lines) != 4 || lines[3] != `* LIST (\HasNoChildren) "/" "Old/Work/2026/May"` {
		t.Errorf("after RENAME: %q", lines)
	}
	c.ok("DELETE Old/Work/2026/May")
	c.expect("NO [NONEXISTENT]", "DELETE Old/Work/2026/May")
	c.expect("NO", "DELETE inbox")
	for _, name := range []string{`""`, `"a//b"`, `"/a"`, `"a*"`, `"` + strings.Repeat("x", 256) + `"`, `"#news"`} {
		c.expect("NO [CANNOT]", "CREATE %s", name)
	}
	c.expect("NO [USEATTR]", `CREATE Gone (USE (\Sent))`)
	c.expect("NO [USEATTR]", `CREATE Gone (USE (\All))`)
}

// TestSubscriptionsOutliveFolders: a name stays subscribed until its owner takes that back (RFC
// 3501 section 6.3.6).
func TestSubscriptionsOutliveFolders(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	for _, name := range []string{"INBOX", "Sent", "Drafts", "Junk", "Trash", "Archive"} {
		c.ok("UNSUBSCRIBE %s", name)
	}
	if got := c.ok(`LSUB "" *`); len(got) > 0 {
		t.Fatalf("LSUB: %q", got)
	}
	c.ok("SUBSCRIBE Lists/Go")
	c.ok("SUBSCRIBE Lists/Go")
	if got := c.ok(`LSUB "" *`); !slices.Equal(got, []string{`* LSUB (\Noselect) "/" "Lists/Go"`}) {
		t.Errorf("a name without a folder: %q", got)
	}
	if got := c.ok(`LIST (SUBSCRIBED) "" *`); !slices.Equal(got, []string{`* LIST (\NonExistent \Subscribed) "/" "Lists/Go"`}) {
		t.Errorf("LIST (SUBSCRIBED): %q", got)
	}
	c.ok("CREATE Lists/Go")
	c.has(c.ok(`LIST (SUBSCRIBED) "" *`), `* LIST (\HasNoChildren \Subscribed) "/" "Lists/Go"`)
	if got := c.ok(`LSUB "" %%`); !slices.Equal(got, []string{`* LSUB (\Noselect) "/" "Lists"`}) {
		t.Errorf("LSUB of a level: %q", got)
	}
	if got := c.ok(`LSUB "" *`); !slices.Equal(got, []string{`* LSUB (\HasNoChildren \Subscribed) "/" "Lists/Go"`}) {
		t.Errorf("LSUB: %q", got)
	}
	c.ok("SUBSCRIBE Other")
	c.ok("RENAME Lists/Go Other")
	c.ok("DELETE Other")
	c.has(c.ok(`LIST (SUBSCRIBED) "" *`), `* LIST (\NonExistent \Subscribed) "/" "Other"`)
	c.ok("UNSUBSCRIBE Other")
	if got := c.ok(`LIST (SUBSCRIBED) "" *`); len(got) > 0 {
		t.Errorf("after UNSUBSCRIBE: %q", got)
	}
	c.expect("NO [CANNOT]", `SUBSCRIBE "a*"`)
}

// TestRenameKeepsRoles: what a folder is for goes with it, UIDs and all.
func TestRenameKeepsRoles(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "Sent", letter("one"), inbox.FlagSeen)
	c := h.login(t)
	c.ok("RENAME Sent Old/Gesendet")
	c.has(c.ok(`LIST "" Old/*`), `* LIST (\HasNoChildren \Sent) "/" "Old/Gesendet"`)
	c.has(c.ok("STATUS Old/Gesendet (MESSAGES UIDNEXT)"), "* STATUS \"Old/Gesendet\" (MESSAGES 1 UIDNEXT 2)")
	c.ok("CREATE INBOX/Below")
	c.ok("RENAME INBOX Before")
	c.ok("STATUS INBOX/Below (MESSAGES)") // stays where it is
}

func TestRenameInboxMovesItsMessages(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", letter("one"), inbox.FlagFlagged)
	c := h.login(t)
	c.ok("RENAME INBOX Before")
	c.has(c.ok("STATUS INBOX (MESSAGES UIDNEXT)"), "* STATUS INBOX (MESSAGES 0 UIDNEXT 2)")
	c.ok("SELECT Before")
	c.has(c.ok("FETCH 1 FLAGS"), `* 1 FETCH (UID 1 FLAGS (\Flagged))`)
}

func TestFolderNamesInUTF7AndUTF8(t *testing.T) {
	h := serve(t, nil)
	c := h.login(t)
	c.ok(`CREATE "Entw&APw-rfe"`)
	c.has(c.ok(`LIST "" Entw*`), `* LIST (\HasNoChildren) "/" "Entw&APw-rfe"`)
	c.ok("ENABLE IMAP4rev2")
	c.has(c.ok(`LIST "" Entw*`), `* LIST (\HasNoChildren) "/" "Entwürfe"`)
	c.ok(`SELECT "Entwürfe"`)
}

func TestCopyAndMoveTellUIDs(t *testing.T) {
	h := serve(t, nil)
	for _, s := range []string{"one", "two", "three"} {
		h.put(t, "INBOX", letter(s), 0)
	}
	c := h.login(t)
	c.ok("SELECT INBOX")
	lines := c.do("COPY 1:2 Archive")
	if got := lines[len(lines)-1]; !strings.Contains(got, " 1:2 1:2] COPY completed") {
		t.Errorf("COPY: %q", got)
	}
	lines = c.ok("MOVE 1,3 Archive")
	if len(lines) != 3 || !strings.Contains(lines[0], " 1,3 3:4]") || lines[1] != "* 3 EXPUNGE" || lines[2] != "* 1 EXPUNGE" {
		t.Errorf("MOVE: %q", lines)
	}
	c.has(c.ok("UID SEARCH ALL"), "* SEARCH 2")
	c.expect("NO [TRYCREATE]", "COPY 1 Nowhere")
	c.expect("NO [TRYCREATE]", "MOVE 1 Nowhere")
	c.ok("UID COPY 77 Archive") // nothing there is no error (RFC 3501 section 6.4.8)
}

func TestSearchKeys(t *testing.T) {
	h := serve(t, nil)
	h.put(t, "INBOX", "From: Bob <bob@example.org>\nTo: ann@example.test\nCc: carl@example.net\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n"+
		"Date: Mon, 5 Jan 2026 23:30:00 -0800\nX-Mark: blue whale\nMIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n"+
		"Content-Transfer-Encoding: quoted-printable\n\n<p>The <b>quick</b> f=C3=B6x</p>\n", inbox.FlagSeen)
	h.put(t, "INBOX", letter("plain")+strings.Repeat("long text ", 300), inbox.FlagFlagged)
	h.put(t, "INBOX", letter("third"), inbox.FlagDeleted|inbox.FlagAnswered)
	c := h.login(t)
	c.ok("SELECT INBOX")
	c.ok("STORE 2 +FLAGS (Mine)")
	for key, want := range map[string]string{
		"ALL": " 1 2 3", "SEEN": " 1", "UNSEEN": " 2 3", "FLAGGED": " 2", "DELETED": " 3", "UNDELETED": " 1 2", "ANSWERED": " 3",
		"KEYWORD mine": " 2", "UNKEYWORD Mine": " 1 3", "RECENT": "", "OLD": " 1 2 3", "NEW": "", "DRAFT": "",
		"FROM BOB@example": " 1 2 3", "CC carl": " 1", "TO ann": " 1 2 3", "BCC x": "", "SUBJECT plain": " 2",
		`HEADER X-Mark "WHALE"`: " 1", `HEADER X-Mark ""`: " 1", `HEADER Cc ""`: " 1", "HEADER Message-ID third@": " 3",
		"LARGER 1000": " 2", "SMALLER 1000": " 1 3", "BODY quick": " 1", `BODY "the quick"`: " 1", "BODY whale": "", "TEXT whale": " 1",
		"SENTON 5-Jan-2026": " 1", "SENTBEFORE 5-Jan-2026": "", "SENTSINCE 5-Jan-2026": " 1", "SINCE 1-Jan-2000": " 1 2 3", "BEFORE 1-Jan-2000": "",
		"2:*": " 2 3", "UID 3": " 3", "99:*": " 3", "NOT SEEN": " 2 3", "OR SEEN DELETED": " 1 3", "(SEEN) FROM bob": " 1",
		"NOT (OR SEEN DELETED)": " 2", "1:4294967295": " 1 2 3",
	} {
		if got := c.ok("SEARCH %s", key); len(got) != 1 || got[0] != "* SEARCH"+want {
			t.Errorf("SEARCH %s: %q, want %q", key, got, want)
		}
	}
	c.send("s SEARCH CHARSET UTF-8 OR SUBJECT {7+}\r\ngrÜßE BODY {4+}\r\nfÖx\r\n")
	if got := c.until("s"); got[0] != "* SEARCH 1" {
		t.Errorf("UTF-8 search: %q", got)
	}
	c.expect("NO [BADCHARSET]", "SEARCH CHARSET KOI8-R ALL")
	c.has(c.ok("SEARCH RETURN (MIN MAX COUNT) ALL"), `* ESEARCH (TAG "a`+itoa(c.n)+`") MIN 1 MAX 3 COUNT 3`)
	c.ok("SEARCH RETURN (SAVE) UNSEEN")
	if got := c.ok("FETCH $ FLAGS"); len(got) != 2 || !strings.HasPrefix(got[0], "* 2 FETCH") {
		t.Errorf("FETCH $: %q", got)
	}
	c.has(c.ok("UID SEARCH UID $ DELETED"), "* SEARCH 3")
	c.expect("BAD", "SEARCH %s ALL", strings.Repeat("NOT ", 600))
}

func itoa(n int) string { return strconv.Itoa(n) }
