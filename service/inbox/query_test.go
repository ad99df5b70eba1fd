package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// A queryTwin has messages in a store, and knows what they are without it.
type queryTwin struct {
	*waitRig
	rnd      *rand.Rand
	messages []*twinMessage
	searches int
	found    int // searches that have found something, and not everything
}

// A twinMessage is a message as the twin knows it.
type twinMessage struct {
	key                       string // mailbox, folder and UID
	box                       *store.Mailbox
	folder                    string // as lists name it
	folderID, uid             uint32
	from, subject, body, file string
	to, cc                    []string
	received                  time.Time
	size                      int64
	seen, starred, answered   bool
	own                       bool // everybody may read its texts
}

var (
	twinWords   = strings.Fields("apple banana cherry damson elder fennel ginger hazel iris juniper")
	twinPeople  = []string{"Rita Quill <rita.quill@north.test>", "Omar Voss <omar@north.test>", "Uma Yarrow <uma@south.test>", "zed@south.test"}
	twinFolders = []string{"inbox", "inbox", "inbox", "sent", "archive", "junk", "trash"}
	twinNames   = map[string]string{"inbox": "INBOX", "sent": "Sent", "archive": "Archive", "junk": "Junk", "trash": "Trash"}
)

func pick[T any](rnd *rand.Rand, list []T) T { return list[rnd.IntN(len(list))] }

func (w *queryTwin) some(most int) string {
	var words []string
	for range w.rnd.IntN(most + 1) {
		words = append(words, pick(w.rnd, twinWords))
	}
	return strings.Join(words, " ")
}

// add files a random message.
func (w *queryTwin) add() {
	w.T.Helper()
	m := &twinMessage{
		box: pick(w.rnd, []*store.Mailbox{w.ann, w.bob}), folder: pick(w.rnd, twinFolders), from: pick(w.rnd, twinPeople), subject: w.some(3), body: w.some(8),
		received: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(w.rnd.IntN(10*86400))*time.Second + time.Duration(len(w.messages))*time.Millisecond),
		seen:     w.rnd.IntN(2) == 0, starred: w.rnd.IntN(3) == 0, answered: w.rnd.IntN(3) == 0, own: w.rnd.IntN(2) == 0,
	}
	m.to = []string{m.box.Email}
	if w.rnd.IntN(2) == 0 {
		m.to = append(m.to, pick(w.rnd, twinPeople))
	}
	if w.rnd.IntN(3) == 0 {
		m.cc = []string{pick(w.rnd, twinPeople)}
	}
	head := fmt.Sprintf("From: %s\nTo: %s\n", m.from, strings.Join(m.to, ", "))
	if len(m.cc) > 0 {
		head += "Cc: " + m.cc[0] + "\n"
	}
	head += "Subject: " + m.subject + "\nMIME-Version: 1.0\n"
	padding := "X-Padding: " + strings.Repeat("x", w.rnd.IntN(900)) + "\n"
	text := head + padding + "\n" + m.body + "\n"
	if w.rnd.IntN(4) == 0 {
		m.file = pick(w.rnd, twinWords)
		text = head + padding + "Content-Type: multipart/mixed; boundary=b\n\n--b\n\n" + m.body + "\n--b\nContent-Type: application/pdf\nContent-Disposition: attachment; filename=" + m.file + "\n\nx\n--b--\n"
	}
	body := w.Spool(strings.ReplaceAll(text, "\n", "\r\n"))
	defer body.Close()
	d, err := w.Svc.Inbox.Prepare(body, inbox.Envelope{Received: m.received})
	if err != nil {
		w.T.Fatal(err)
	}
	if m.own {
		d.Origin = agents.OriginOwn
	}
	w.Update(func(tx *store.Tx) error {
		f, err := tx.FolderByName(m.box.Num, twinNames[m.folder])
		if err != nil {
			return err
		}
		row, err := w.Svc.Inbox.File(tx, m.box, d, inbox.Filing{Folder: f.ID, Received: m.received})
		if err != nil {
			return err
		}
		var flags store.Flags
		for flag, on := range map[store.Flags]bool{store.FlagSeen: m.seen, store.FlagFlagged: m.starred, store.FlagAnswered: m.answered} {
			if on {
				flags |= flag
			}
		}
		m.size, m.key = int64(row.Blob.Length), fmt.Sprintf("%s %s %d", m.box.ID, f.Name, row.UID)
		m.folderID, m.uid = f.ID, row.UID
		return tx.SetFlags(row, flags, nil)
	})
	w.messages = append(w.messages, m)
}

// drop deletes a random message.
func (w *queryTwin) drop() {
	n := w.rnd.IntN(len(w.messages))
	m := w.messages[n]
	w.Update(func(tx *store.Tx) error { return tx.DeleteMessage(m.box.Num, m.folderID, m.uid) })
	w.messages = slices.Delete(w.messages, n, n+1)
}

// bare returns the addresses of people without their names.
func bare(people ...string) (out []string) {
	for _, p := range people {
		if _, address, named := strings.Cut(p, "<"); named {
			p = strings.TrimSuffix(address, ">")
		}
		out = append(out, p)
	}
	return out
}

// view returns the texts of a message that a reader may see. To a reader who is tainted by
// strangers only addresses are shown of what is not the account's own.
func (m *twinMessage) view(careful bool) (from string, to, cc []string, subject string, all []string) {
	from, to, cc, subject = m.from, m.to, m.cc, m.subject
	all = []string{m.body, m.file}
	if careful && !m.own {
		from, to, cc, subject, all = bare(m.from)[0], bare(m.to...), bare(m.cc...), "", nil
	}
	return from, to, cc, subject, append(append(append(all, from, subject), to...), cc...)
}

// has reports whether one of the texts has a word or an address, or one that begins so.
func (w *queryTwin) has(word string, beginning bool, texts ...string) bool {
	for _, text := range texts {
		for _, token := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return unicode.IsSpace(r) || r == '<' || r == '>' }) {
			_, domain, _ := strings.Cut(token, "@")
			for _, t := range append(strings.FieldsFunc(token, func(r rune) bool { return r == '.' || r == '@' }), token, "@"+domain) {
				if t == word || beginning && strings.HasPrefix(t, word) {
					return true
				}
			}
		}
	}
	return false
}

func (w *queryTwin) hasPhrase(phrase string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(" "+text+" ", " "+phrase+" ") })
}

// A twinCondition is a part of a search, and says which messages satisfy it.
type twinCondition struct {
	text   string
	folder string // of in:
	not    bool
	holds  func(m *twinMessage, careful bool) bool
}

// condition returns a random part of a search.
func (w *queryTwin) condition() twinCondition {
	rnd := w.rnd
	not := rnd.IntN(3) == 0
	c := twinCondition{not: not}
	word, second := pick(rnd, twinWords), pick(rnd, twinWords)
	day := time.Date(2026, 1, 1+rnd.IntN(10), 0, 0, 0, 0, time.UTC)
	bytes := int64(rnd.IntN(3) * 500)
	switch rnd.IntN(11) {
	case 0:
		c.text = word
		c.holds = func(m *twinMessage, careful bool) bool {
			_, _, _, _, all := m.view(careful)
			return w.has(word, false, all...)
		}
	case 1:
		c.text = `"` + word + " " + second + `"`
		c.holds = func(m *twinMessage, careful bool) bool {
			_, _, _, _, all := m.view(careful)
			return w.hasPhrase(word+" "+second, all...)
		}
	case 2, 3:
		value := pick(rnd, []string{"rita", "voss", "uma@south.test", "@north.test", "rita.quill@", "south", "zed@south.test", "Yarrow", "ann@example.test", "nobody"})
		operator := pick(rnd, []string{"from", "to", "cc", "TO"})
		c.text = operator + ":" + value
		c.holds = func(m *twinMessage, careful bool) bool {
			from, to, cc, _, _ := m.view(careful)
			texts := map[string][]string{"from": {from}, "to": to, "cc": cc}[strings.ToLower(operator)]
			return w.has(strings.ToLower(value), !not || strings.HasSuffix(value, "@"), texts...)
		}
	case 4:
		c.text = "subject:" + word
		c.holds = func(m *twinMessage, careful bool) bool {
			_, _, _, subject, _ := m.view(careful)
			return w.has(word, false, subject)
		}
	case 5:
		c.text = `subject:"` + word + " " + second + `"`
		c.holds = func(m *twinMessage, careful bool) bool {
			_, _, _, subject, _ := m.view(careful)
			return w.hasPhrase(word+" "+second, subject)
		}
	case 6:
		state := pick(rnd, []string{"is:unread", "is:read", "is:starred", "is:answered", "has:attachment", "IS:Read"})
		c.text = state
		c.holds = func(m *twinMessage, _ bool) bool {
			return map[string]bool{"is:unread": !m.seen, "is:read": m.seen, "is:starred": m.starred, "is:answered": m.answered, "has:attachment": m.file != ""}[strings.ToLower(state)]
		}
	case 7:
		c.text = "before:" + day.Format(time.DateOnly)
		c.holds = func(m *twinMessage, _ bool) bool { return m.received.Before(day) }
	case 8:
		c.text = "after:" + day.Format(time.DateOnly)
		c.holds = func(m *twinMessage, _ bool) bool { return !m.received.Before(day) }
	case 9:
		c.text = "larger:" + strconv.FormatInt(bytes, 10)
		c.holds = func(m *twinMessage, _ bool) bool { return m.size > bytes }
		if rnd.IntN(2) == 0 {
			c.text = "smaller:1kb"
			c.holds = func(m *twinMessage, _ bool) bool { return m.size < 1000 }
		}
	case 10:
		folder := pick(rnd, []string{"inbox", "sent", "archive", "junk", "all", "INBOX", "Trash"})
		c.text, c.folder = "in:"+folder, strings.ToLower(folder)
		c.holds = func(m *twinMessage, _ bool) bool { return inTwinFolder(m, c.folder) }
	}
	if not {
		holds := c.holds
		c.text, c.holds = "-"+c.text, func(m *twinMessage, careful bool) bool { return !holds(m, careful) }
	}
	return c
}

func inTwinFolder(m *twinMessage, folder string) bool {
	return m.folder == folder || folder == "" && m.folder == "inbox" || folder == "all" && m.folder != "junk" && m.folder != "trash"
}

// search compares a random search with what the twin finds.
func (w *queryTwin) search(who core.Actor, careful bool) {
	w.T.Helper()
	var conditions []twinCondition
	var texts []string
	folder := pick(w.rnd, []string{"", "", "all", "sent", "archive"})
	f := inbox.InboxFilter{Folder: folder}
	for range 1 + w.rnd.IntN(4) {
		c := w.condition()
		conditions, texts = append(conditions, c), append(texts, c.text)
		if c.folder != "" && !c.not {
			folder = "anywhere"
		}
	}
	f.Q = strings.Join(texts, " ")
	if yes := w.rnd.IntN(2) == 0; w.rnd.IntN(4) == 0 {
		f.IsRead = &yes
	}
	if w.rnd.IntN(5) == 0 {
		f.DateFrom, f.DateTo = "2026-01-03", "2026-01-08"
	}
	if len(f.Q) > 200 {
		return
	}
	var found []*twinMessage
	for _, m := range w.messages {
		if careful && m.box != w.ann || folder != "anywhere" && !inTwinFolder(m, folder) || f.IsRead != nil && *f.IsRead != m.seen ||
			f.DateFrom != "" && (m.received.Day() < 3 || m.received.Day() > 8) {
			continue
		}
		if !slices.ContainsFunc(conditions, func(c twinCondition) bool { return !c.holds(m, careful) }) {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *twinMessage) int { return b.received.Compare(a.received) })
	var want, got []string
	for _, m := range found {
		want = append(want, m.key)
	}
	limit := 1 + w.rnd.IntN(20)
	in := inbox.ListInboxIn{InboxFilter: f, Limit: &limit}
	for rounds := 0; ; rounds++ {
		page, err := w.Svc.Inbox.ListInbox(w.T.Context(), who, in)
		if err != nil || rounds > 1000 {
			w.T.Fatalf("%s: %v", f.Q, err)
		}
		for _, m := range page.Data {
			got = append(got, m.UserID+" "+m.Folder+" "+m.UID)
		}
		if !page.Pagination.HasMore {
			break
		}
		in.Cursor = *page.Pagination.Cursor
	}
	if !slices.Equal(got, want) {
		w.T.Fatalf("%+v (careful %t) finds\n%q, want\n%q", f, careful, got, want)
	}
	w.searches++
	if len(want) > 0 && len(want) < len(w.messages)/2 {
		w.found++
	}
}

// TestSearchesAgreeWithTwin compares random searches of random mailboxes, some of whose mail is not
// indexed yet, with a slow reference. A reader from whom texts are withheld is compared with the
// same reference without these texts.
func TestSearchesAgreeWithTwin(t *testing.T) {
	seeds, searches := uint64(2), 400
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		seeds, searches = 20, 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &queryTwin{waitRig: newWaitRig(t, core.Config{}), rnd: rand.New(rand.NewPCG(seed, 7))}
			careful := w.agent(agents.Policy{Taint: true})
			for range 120 {
				w.add()
			}
			index(w.Installation)
			for range 30 {
				w.add()
			}
			for range 20 {
				w.drop()
			}
			for n := range searches {
				if n == searches/2 {
					index(w.Installation)
				}
				w.search(w.who, false)
				w.search(careful, true)
			}
			if w.found < w.searches/5 {
				t.Errorf("%d of %d searches have found something", w.found, w.searches)
			}
		})
	}
}

// TestOperatorsOfSearches: what the operators mean at their bounds, and how wrong values are
// refused.
func TestOperatorsOfSearches(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	at := func(day string) time.Time {
		out, err := time.Parse(time.RFC3339, day)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	servicetest.KeepIn(i, ann, "INBOX", inbox.Filing{Received: at("2026-03-01T00:00:00Z")}, letterOf("first", "1@far"))
	servicetest.KeepIn(i, ann, "INBOX", inbox.Filing{Received: at("2026-02-28T23:59:59Z")}, letterOf("second note: ok", "2@far"))
	servicetest.KeepIn(i, ann, "My Bills", inbox.Filing{Received: at("2026-02-01T00:00:00Z")}, letterOf("third", "3@far"))
	for q, want := range map[string][]string{
		"after:2026-03-01":           {"first"},
		"before:2026-03-01":          {"second note: ok"},
		"-after:2026-03-01":          {"second note: ok"},
		"-before:2026-03-01":         {"first"},
		`in:"My Bills"`:              {"third"},
		`in:"my bills" in:inbox`:     nil,
		"-in:inbox":                  nil,
		"in:all -in:inbox":           {"third"},
		"-in:nowhere first":          {"first"},
		"is:important":               nil, // text
		"note:ok":                    {"second note: ok"},
		"has:":                       nil, // text
		"subject:":                   nil, // text
		"subject:sec":                {"second note: ok"},
		"-subject:sec":               {"first", "second note: ok"}, // a word that is negated must be whole
		"-subject:second":            {"first"},
		`subject:"note ok"`:          {"second note: ok"},
		`subject:"ok note"`:          nil,
		"-first":                     {"second note: ok"},
		"-fred@far.test":             nil,
		`-"note ok"`:                 {"first"},
		"hello -":                    {"first", "second note: ok"},
		"-":                          nil,
		"is:read is:unread":          nil,
		"larger:1":                   {"first", "second note: ok"},
		"smaller:1":                  nil,
		"smaller:0":                  nil,
		"larger:1GB":                 nil,
		"smaller:1mb":                {"first", "second note: ok"},
		"-larger:1KB -smaller:1":     {"first", "second note: ok"},
		"from:!!!":                   nil,
		"-from:!!!":                  {"first", "second note: ok"},
		"after:2026-03-02 is:unread": nil,
	} {
		if strings.Contains(q, `"my bills"`) { // names of folders but INBOX are case-sensitive
			if _, err := i.Svc.Inbox.ListInbox(t.Context(), servicetest.ActorNum(i.Account, 1), inbox.ListInboxIn{InboxFilter: inbox.InboxFilter{Q: q}}); !servicetest.HasCode(err, "not_found") {
				t.Errorf("%s: %v", q, err)
			}
			continue
		}
		for _, indexed := range []bool{false, true} {
			if indexed {
				index(i)
			}
			if got, _ := listed(i, inbox.InboxFilter{Q: q}); !slices.Equal(got, want) {
				t.Errorf("%s (indexed %t): %q, want %q", q, indexed, got, want)
			}
		}
	}
	for _, q := range []string{"before:tomorrow", "after:2026-02-30", "before:2026-1-1", "-after:1969-12-31", "larger:big", "larger:10TB", "smaller:-1", "larger:1.5MB", "smaller:99999999999GB", `before:"2026-01-01 x"`} {
		_, err := i.Svc.Inbox.ListInbox(t.Context(), servicetest.ActorNum(i.Account, 1), inbox.ListInboxIn{InboxFilter: inbox.InboxFilter{Q: "first " + q}})
		if e, ours := core.AsError(err); !ours || e.Code != "validation_error" || len(e.Details) != 1 || e.Details[0].Field != "q" {
			t.Errorf("%s: %v", q, err)
		}
	}
	// The operator goes before the parameter.
	if got, _ := listed(i, inbox.InboxFilter{Q: `in:"My Bills"`, Folder: "inbox"}); !slices.Equal(got, []string{"third"}) {
		t.Errorf("in: and folder: %q", got)
	}
	if got, _ := listed(i, inbox.InboxFilter{Q: "is:unread", Folder: "My Bills"}); !slices.Equal(got, []string{"third"}) {
		t.Errorf("the folder alone: %q", got)
	}
}

// TestSearchesStayInTheAccount: no operator finds mail of another account, or of a mailbox that the
// actor does not see, also where it leaves no folder of the actor's own.
func TestSearchesStayInTheAccount(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	other := r.AddAccount("owner@other.test")
	theirs := r.AddMailbox(r.AddDomain(other, "other.test", nil), "eve", nil)
	for _, mb := range []*store.Mailbox{r.ann, r.bob, theirs} {
		servicetest.Keep(r.Installation, mb, "INBOX", letterOf("of "+mb.Email, mb.ID+"@far"))
	}
	bound := r.agent(agents.Policy{})
	for _, indexed := range []bool{false, true} {
		if indexed {
			index(r.Installation)
		}
		for _, q := range []string{"hello", "-nothing", "is:unread", "from:fred", "-from:nobody", "larger:1", "after:2000-01-01", "in:all", "in:inbox", "-in:inbox", "in:inbox in:sent", "to:eve@other.test -zebra"} {
			for who, sees := range map[string]core.Actor{"account": r.who, "mailbox": bound} {
				page, err := r.Svc.Inbox.ListInbox(t.Context(), sees, inbox.ListInboxIn{InboxFilter: inbox.InboxFilter{Q: q}})
				if err != nil {
					t.Fatalf("%s: %v", q, err)
				}
				for _, m := range page.Data {
					if m.UserID == theirs.ID || who == "mailbox" && m.UserID != r.ann.ID {
						t.Errorf("%s by %s finds mail of %s", q, who, m.Mailbox)
					}
				}
				if none := strings.Contains(q, "-in:") || strings.Contains(q, "sent"); none && len(page.Data) > 0 {
					t.Errorf("%s by %s finds %d messages", q, who, len(page.Data))
				}
			}
		}
	}
	if _, err := r.Svc.Inbox.ListEmailUserInbox(t.Context(), r.who, inbox.ListEmailUserInboxIn{UserID: theirs.ID, InboxFilter: inbox.InboxFilter{Q: "-nothing"}}); !servicetest.HasCode(err, "not_found") {
		t.Errorf("a mailbox of others: %v", err)
	}
}

// TestSearchEndsItsPages: a search that finds nothing in what one request reads ends the page, and
// its cursor goes on until the message is found.
func TestSearchEndsItsPages(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	servicetest.Keep(i, ann, "INBOX", "From: Rare Bird <rare@bird.test>\nTo: Fred\nSubject: found\n\nhello\n")
	body := i.Spool("From: Fred <fred@far.test>\r\nSubject: rare\r\n\r\nhello\r\n")
	defer body.Close()
	d, err := i.Svc.Inbox.Prepare(body, inbox.Envelope{})
	if err != nil {
		t.Fatal(err)
	}
	for left := 3000; left > 0; left -= 500 {
		i.Update(func(tx *store.Tx) error {
			for range 500 {
				if _, err := i.Svc.Inbox.File(tx, ann, d, inbox.Filing{Folder: store.InboxID, Received: tx.Now()}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	index(i)
	for _, q := range []string{"-from:fred", "to:fred", "-from:fred -nothing"} {
		in, pages, found := inbox.ListInboxIn{InboxFilter: inbox.InboxFilter{Q: q}}, 0, []string(nil)
		for {
			page, err := i.Svc.Inbox.ListInbox(t.Context(), servicetest.ActorNum(i.Account, 1), in)
			if err != nil || pages > 20 {
				t.Fatalf("%s: page %d: %v", q, pages, err)
			}
			pages++
			found = append(found, subjects(page.Data)...)
			if !page.Pagination.HasMore {
				break
			}
			in.Cursor = *page.Pagination.Cursor
		}
		if !slices.Equal(found, []string{"found"}) || pages < 2 {
			t.Errorf("%s: %q on %d pages", q, found, pages)
		}
	}
}

// BenchmarkOperators searches 20 000 messages, or MAILSTEAD_BENCH_ROWS, for first pages of 100.
func BenchmarkOperators(b *testing.B) {
	rows := 20_000
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_BENCH_ROWS")); err == nil {
		rows = n
	}
	i := servicetest.InstallWith(b, core.Config{}, store.Options{Unsynced: true})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	rnd := rand.New(rand.NewPCG(1, 2))
	var letters []*inbox.StoredMessage
	for n := range 200 {
		text := fmt.Sprintf("From: %s\r\nTo: ann@example.test\r\nSubject: %s %s\r\n\r\n", pick(rnd, twinPeople), pick(rnd, twinWords), pick(rnd, twinWords))
		for range 150 {
			text += fmt.Sprintf("w%d ", int(rnd.ExpFloat64()*2000))
		}
		if n == 0 {
			text = "From: Rare Bird <rare@bird.test>\r\nTo: ann@example.test\r\nSubject: needle\r\n\r\nhay\r\n"
		}
		body := i.Spool(text)
		d, err := i.Svc.Inbox.Prepare(body, inbox.Envelope{})
		if err != nil {
			b.Fatal(err)
		}
		letters = append(letters, d)
		defer body.Close()
	}
	begin := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for from := 0; from < rows; from += 250 {
		i.Update(func(tx *store.Tx) error {
			for n := from; n < from+250; n++ {
				letter := letters[1+n%(len(letters)-1)]
				if n == 0 {
					letter = letters[0]
				}
				m, err := i.Svc.Inbox.File(tx, ann, letter, inbox.Filing{Folder: store.InboxID, Received: begin.Add(time.Duration(n) * time.Minute)})
				if err != nil {
					return err
				}
				if n%3 > 0 {
					if err := tx.SetFlags(m, store.FlagSeen, nil); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	x := i.Svc.Inbox.Indexer()
	for {
		pause, err := x.IndexRound(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if pause == 0 {
			break
		}
	}
	who := servicetest.ActorNum(i.Account, 1)
	middle := begin.Add(time.Duration(rows/2) * time.Minute).Format(time.DateOnly)
	for _, q := range []string{
		"apple", "from:rita", "from:rare@bird.test", "from:nobody", "to:ann", "to:rita", "subject:apple", `subject:"apple banana"`, "is:unread", "is:answered", "has:attachment", "larger:100",
		"larger:1GB", "before:" + middle + " apple", "after:" + middle + " -apple", "-apple", "-from:rita", "-apple -banana -cherry -damson", `-"apple banana"`, "in:all is:unread from:@north.test larger:100",
	} {
		b.Run(q, func(b *testing.B) {
			slowest, cuts := time.Duration(0), 0
			for b.Loop() {
				began := time.Now()
				page, err := i.Svc.Inbox.ListInbox(b.Context(), who, inbox.ListInboxIn{InboxFilter: inbox.InboxFilter{Q: q}})
				if err != nil {
					b.Fatal(err)
				}
				slowest = max(slowest, time.Since(began))
				if page.Pagination.HasMore && len(page.Data) < 100 {
					cuts++
				}
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(cuts)/float64(b.N), "cut")
		})
	}
}
