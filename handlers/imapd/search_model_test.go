package imapd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// A searchModel compares a message with criteria in the simplest way: it reads all of the message,
// and folds each text each time.
type searchModel struct {
	view    view
	saved   []uint32
	row     *inbox.MessageRow
	root    *msg.Part
	message []byte
}

func (m *searchModel) match(c *imap.SearchCriteria) bool {
	none := func(f imap.Flag) bool { return !m.hasFlag(f) }
	for _, set := range c.SeqNum {
		if !contains(set, m.view.seq(m.row.UID), uint32(len(m.view))) {
			return false
		}
	}
	for _, set := range c.UID {
		if imap.IsSearchRes(set) {
			if !slices.Contains(m.saved, m.row.UID) {
				return false
			}
		} else if !contains(set, imap.UID(m.row.UID), imap.UID(m.view.lastUID())) {
			return false
		}
	}
	for i := range c.Not {
		if m.match(&c.Not[i]) {
			return false
		}
	}
	for i := range c.Or {
		if !m.match(&c.Or[i][0]) && !m.match(&c.Or[i][1]) {
			return false
		}
	}
	if !c.Since.IsZero() && m.row.Received.Before(c.Since) || !c.Before.IsZero() && !m.row.Received.Before(c.Before) ||
		c.Larger > 0 && m.row.Size <= c.Larger || c.Smaller > 0 && m.row.Size >= c.Smaller ||
		slices.ContainsFunc(c.Flag, none) || slices.ContainsFunc(c.NotFlag, m.hasFlag) {
		return false
	}
	return m.sent(c) &&
		!slices.ContainsFunc(c.Header, func(h imap.SearchCriteriaHeaderField) bool { return !m.hasHeader(h.Key, h.Value) }) &&
		!slices.ContainsFunc(c.Body, func(words string) bool { return !holds(m.body(), words) }) &&
		!slices.ContainsFunc(c.Text, func(words string) bool { return !holds(m.header(), words) && !holds(m.body(), words) })
}

// holds compares what the letters mean: ß and ss, and both small sigmas, share their capitals.
func holds(text, part string) bool {
	fold := func(s string) string {
		s = norm.NFKD.String(strings.ToLower(s))
		s = strings.ReplaceAll(s, "ß", "ss")
		return strings.ReplaceAll(s, "ς", "σ")
	}
	return strings.Contains(fold(text), fold(part))
}

func (m *searchModel) hasFlag(f imap.Flag) bool {
	return slices.ContainsFunc(flagsOf(m.row), func(has imap.Flag) bool { return strings.EqualFold(string(has), string(f)) })
}

func (m *searchModel) sent(c *imap.SearchCriteria) bool {
	if c.SentSince.IsZero() && c.SentBefore.IsZero() {
		return true
	}
	sent := m.root.Envelope.Date
	if sent.IsZero() {
		return false
	}
	year, month, d := sent.Date()
	day := time.Date(year, month, d, 0, 0, 0, 0, time.UTC)
	return (c.SentSince.IsZero() || !day.Before(c.SentSince)) && (c.SentBefore.IsZero() || day.Before(c.SentBefore))
}

func (m *searchModel) hasHeader(name, value string) bool {
	if name == modSeq {
		since, err := strconv.ParseUint(value, 10, 64)
		return err == nil && m.row.ModSeq >= since
	}
	e := m.root.Envelope
	if value != "" {
		if strings.EqualFold(name, "subject") {
			return holds(e.Subject, value)
		}
		for _, a := range map[string][]msg.Address{
			"from": e.From, "sender": e.Sender, "reply-to": e.ReplyTo, "to": e.To, "cc": e.Cc, "bcc": e.Bcc,
		}[strings.ToLower(name)] {
			text := a.Name + " <" + a.Email() + ">"
			if a.IsGroupMarker() {
				text = a.Mailbox
			}
			if holds(text, value) {
				return true
			}
		}
	}
	headers, err := msg.Headers(bytes.NewReader(m.message), m.root)
	return err == nil && slices.ContainsFunc(headers, func(h msg.Header) bool {
		return strings.EqualFold(h.Name, name) && holds(h.Value, value)
	})
}

func (m *searchModel) header() string {
	var text strings.Builder
	_ = eachPart(m.root, func(p *msg.Part) error {
		headers, _ := msg.Headers(bytes.NewReader(m.message), p)
		for _, h := range headers {
			text.WriteString(h.Name + ": " + h.Value + "\n")
		}
		return nil
	})
	return text.String()
}

func (m *searchModel) body() string {
	var text strings.Builder
	_ = eachPart(m.root, func(p *msg.Part) error {
		part, _ := msg.Text(bytes.NewReader(m.message), p, maxPartText)
		text.WriteString(part + "\n")
		return nil
	})
	return text.String()
}

// modSeq is the header that stands for the key MODSEQ in criteria.
const modSeq = "MODSEQ:"

// inCommand is a text as a string in a command can have it.
func inCommand(text string) string {
	return strings.NewReplacer("\x00", "?", "\r", "?", "\n", "?").Replace(text)
}

// queryOf writes the criteria as a command, which it parses; nil if they are too many.
func queryOf(t testing.TB, criteria *imap.SearchCriteria, v view, saved []uint32) *query {
	t.Helper()
	p := parse(t, "a SEARCH"+keysOf(criteria))
	p.Space()
	q := parseQuery(p, &selectedFolder{view: v, saved: saved})
	if err := p.End(); err != nil {
		if q.keys > maxSearchKeys {
			return nil
		}
		t.Fatalf("%s: %v", keysOf(criteria), err)
	}
	return q
}

// keysOf writes the criteria, each key after a space.
func keysOf(c *imap.SearchCriteria) string {
	out := " ALL"
	add := func(format string, args ...any) { out += " " + fmt.Sprintf(format, args...) }
	literal := func(s string) string { return fmt.Sprintf("{%d+}\r\n%s", len(s), s) }
	for _, set := range c.SeqNum {
		add("%s", set)
	}
	for _, set := range c.UID {
		if imap.IsSearchRes(set) {
			add("$")
		} else {
			add("UID %s", set)
		}
	}
	for _, f := range c.Flag {
		add("KEYWORD %s", f)
	}
	for _, f := range c.NotFlag {
		add("UNKEYWORD %s", f)
	}
	for _, h := range c.Header {
		if h.Key == modSeq {
			add("MODSEQ %s", h.Value)
		} else {
			add("HEADER %s %s", h.Key, literal(h.Value))
		}
	}
	for _, s := range c.Body {
		add("BODY %s", literal(s))
	}
	for _, s := range c.Text {
		add("TEXT %s", literal(s))
	}
	for name, day := range map[string]time.Time{"SINCE": c.Since, "BEFORE": c.Before, "SENTSINCE": c.SentSince, "SENTBEFORE": c.SentBefore} {
		if !day.IsZero() {
			add("%s %s", name, day.Format("2-Jan-2006"))
		}
	}
	if c.Larger > 0 {
		add("LARGER %d", c.Larger)
	}
	if c.Smaller > 0 {
		add("SMALLER %d", c.Smaller)
	}
	for i := range c.Not {
		add("NOT (%s)", strings.TrimPrefix(keysOf(&c.Not[i]), " "))
	}
	for i := range c.Or {
		add("OR (%s) (%s)", strings.TrimPrefix(keysOf(&c.Or[i][0]), " "), strings.TrimPrefix(keysOf(&c.Or[i][1]), " "))
	}
	return out
}

// checkSearch compares the answer for a message with that of the model, and holds the first look,
// without the bytes, to the same answer wherever it gives one.
func checkSearch(t testing.TB, criteria *imap.SearchCriteria, row *inbox.MessageRow, message []byte) (matches bool) {
	t.Helper()
	v, saved := view{3, 7, 9}, []uint32{7}
	root, err := msg.DecodePart(row.Structure)
	if err != nil {
		t.Fatal(err)
	}
	want := (&searchModel{v, saved, row, root, message}).match(criteria)
	q := queryOf(t, criteria, v, saved)
	if q == nil {
		t.Fatalf("%+v cannot be parsed", criteria)
	}
	if !q.structure {
		one := *row
		one.Structure = nil // as search reads it
		row = &one
	}
	got, err := q.match(q.newCandidate(row, func() (storedBytes, error) { return bytesBlob{bytes.NewReader(message)}, nil }))
	if err != nil || got != want {
		t.Fatalf("%v, %v; the model says %v: %+v in %q", got, err, want, criteria, message)
	}
	got, err = q.match(q.newCandidate(row, nil))
	if !errors.Is(err, errNeedsBytes) && (err != nil || got != want) {
		t.Fatalf("without the bytes %v, %v; the model says %v: %+v in %q", got, err, want, criteria, message)
	}
	return want
}

// TestSearchEqualsModel compares any criteria over the messages of the parser's corpus.
func TestSearchEqualsModel(t *testing.T) {
	messages := corpus(t)
	const rounds = 4000 // FuzzSearch does more
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("MAILSTEAD_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	found := 0
	for range rounds {
		message := messages[rnd.IntN(len(messages))]
		if rnd.IntN(4) == 0 {
			message = messages[1]
		}
		row := candidateOf(t, message).row
		row.Flags, row.ModSeq = inbox.Flags(rnd.IntN(32)), rnd.Uint64N(3)
		keys := make([]byte, rnd.IntN(12))
		for i := range keys {
			keys[i] = byte(rnd.Uint32())
		}
		criteria := someCriteria(bytes.NewReader(keys), inCommand(someText(rnd, message)), 0)
		if rnd.IntN(3) == 0 { // nothing else decides
			name := []string{"Subject", "FROM", "to", "Date", "Message-ID"}[rnd.IntN(5)]
			criteria = imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: name, Value: inCommand(someText(rnd, message))}}}
		}
		if rnd.IntN(8) == 0 {
			criteria.Header = append(criteria.Header, imap.SearchCriteriaHeaderField{Key: modSeq, Value: strconv.Itoa(rnd.IntN(3))})
		}
		if checkSearch(t, &criteria, row, message) {
			found++
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("seed %d: %d searches, %d found the message", seed, rounds, found)
	if found < rounds/20 || found > rounds*19/20 {
		t.Error("the criteria say little")
	}
}

// someText is a piece of the message, or of what its fields say, in some case.
func someText(rnd *rand.Rand, message []byte) string {
	from := rnd.IntN(len(message))
	text := string(message[from:min(from+1+rnd.IntN(6), len(message))])
	if rnd.IntN(3) == 0 {
		root, err := msg.Scan(bytes.NewReader(message))
		if err == nil {
			all := root.Envelope.Subject + fmt.Sprint(root.Envelope.From, root.Envelope.To)
			from := rnd.IntN(len(all))
			text = all[from : from+1+rnd.IntN(min(len(all)-from, 6))]
		}
	}
	switch rnd.IntN(4) {
	case 0:
		return strings.ToUpper(text)
	case 1:
		return ""
	}
	return text
}

// corpus reads the parser's messages, and two of our own.
func corpus(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("../../mail/msg/testdata/*.eml")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	messages := [][]byte{
		[]byte(strings.ReplaceAll(mixed, "\n", "\r\n")),
		[]byte("From: ÉMILE Ünal <EMILE.Ü@example.org>\r\nTo: Team: a.b@example.org, \"c d\"@example.org;\r\nSubject: ÜBER İK ΣΑΣ\r\n\r\nÄ\r\n"),
	}
	for _, file := range files {
		message, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(message) > 0 {
			messages = append(messages, message)
		}
	}
	return messages
}
