package imapd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/emersion/go-imap/v2"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

const maxSearchTime = 30 * time.Second

// search answers SEARCH (RFC 9051 section 6.4.4), also with RETURN (RFC 4731) and SAVE (RFC 5182).
func (ss *session) search(p *wire.Command) error {
	returns := map[string]bool{}
	extended := ss.rev2
	p.Space()
	if p.PeekWord() == "RETURN" {
		p.Atom()
		p.Space()
		p.List(func() {
			option := p.Word()
			switch option {
			case "MIN", "MAX", "ALL", "COUNT", "SAVE":
				returns[option] = true
			default:
				p.Fail(wire.Bad("SEARCH does not know that return option"))
			}
		})
		p.Space()
		extended = true
	}
	if p.PeekWord() == "CHARSET" {
		p.Atom()
		p.Space()
		parseCharset(p, "BADCHARSET")
	}
	q := parseQuery(p, ss.selected)
	err := p.End()
	var found []uint32
	var modSeqs []uint64
	if err == nil {
		if q.modSeq {
			ss.enableCondStore()
		}
		found, modSeqs, err = ss.find(q)
	}
	if err != nil {
		// A search that ends in NO empties "$" (RFC 5182 section 2.1).
		if given := new(imap.Error); returns["SAVE"] && (!errors.As(err, &given) || given.Type == imap.StatusResponseTypeNo) {
			ss.selected.saved = nil
		}
		return err
	}

	onlySave := returns["SAVE"] && len(returns) == 1
	if returns["SAVE"] {
		ss.selected.saved = savedResult(found, returns)
	}
	if !returns["MIN"] && !returns["MAX"] && !returns["COUNT"] {
		returns["ALL"] = true
	}
	nums := found
	if !p.UID() {
		nums = make([]uint32, len(found))
		last := uint32(0)
		for i, uid := range found {
			last = ss.selected.view.seqAfter(last, uid)
			nums[i] = last
		}
	}
	if onlySave { // it has no untagged answer (RFC 5182 section 2.1)
		return nil
	}
	if !extended {
		answer := []byte("* SEARCH")
		for _, n := range nums {
			answer = strconv.AppendUint(append(answer, ' '), uint64(n), 10)
		}
		if len(nums) > 0 && q.modSeq { // RFC 7162 section 3.1.5
			answer = fmt.Appendf(answer, " (MODSEQ %d)", reportedModSeq(modSeqs, returns))
		}
		return ss.conn.Answer(append(answer, "\r\n"...))
	}
	answer := fmt.Sprintf("* ESEARCH (TAG %s)", wire.Quote(p.Tag))
	if p.UID() {
		answer += " UID"
	}
	if len(nums) > 0 {
		if returns["ALL"] {
			answer += " ALL " + seqSet(nums).String()
		}
		if returns["MIN"] {
			answer += fmt.Sprintf(" MIN %d", nums[0])
		}
		if returns["MAX"] {
			answer += fmt.Sprintf(" MAX %d", nums[len(nums)-1])
		}
	}
	if returns["COUNT"] {
		answer += fmt.Sprintf(" COUNT %d", len(nums))
	}
	if len(nums) > 0 && q.modSeq { // RFC 7162 section 3.1.10
		answer += fmt.Sprintf(" MODSEQ %d", reportedModSeq(modSeqs, returns))
	}
	return ss.conn.Answer([]byte(answer + "\r\n"))
}

// parseCharset parses the charset of search texts and the space after it. It refuses others with
// the response code.
func parseCharset(p *wire.Command, code imap.ResponseCode) {
	name := p.AString()
	p.Space()
	if !strings.EqualFold(name, "US-ASCII") && !strings.EqualFold(name, "UTF-8") {
		p.Fail(wire.No(code, "Only US-ASCII and UTF-8 are supported"))
	}
}

// savedResult returns the value of "$" after a search: all messages found, unless only MIN or MAX
// was requested (RFC 5182 section 2.1).
func savedResult(found []uint32, returns map[string]bool) []uint32 {
	if returns["ALL"] || returns["COUNT"] || !returns["MIN"] && !returns["MAX"] || len(found) == 0 {
		return found
	}
	var out []uint32
	if returns["MIN"] {
		out = append(out, found[0])
	}
	if returns["MAX"] {
		out = append(out, found[len(found)-1])
	}
	return slices.Compact(out)
}

// reportedModSeq returns the MODSEQ for the answer to a search that has found something. If only
// MIN, MAX or both are requested, it is that of the first message, of the last, or the greater of
// the two; else it is the greatest of all (RFC 7162 section 3.1.10, RFC 4731 section 3.2).
func reportedModSeq(modSeqs []uint64, returns map[string]bool) uint64 {
	first, last := modSeqs[0], modSeqs[len(modSeqs)-1]
	switch {
	case returns["ALL"] || returns["COUNT"]:
		return slices.Max(modSeqs)
	case !returns["MAX"]:
		return first
	case !returns["MIN"]:
		return last
	}
	return max(first, last)
}

// find returns the UIDs of the messages that meet the criteria, ascending, and the MODSEQ of each.
// It matches messages within the store's transaction; messages of which it must read the bytes are
// kept and matched after the transaction.
func (ss *session) find(q *query) (found []uint32, modSeqs []uint64, err error) {
	if err := ss.taintBySearch(q.candidates(), q.structure || q.ordersByContent); err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(maxSearchTime)
	add := func(row *inbox.MessageRow) { found, modSeqs = append(found, row.UID), append(modSeqs, row.ModSeq) }
	for uids := q.candidates(); len(uids) > 0; {
		if err := ss.ctx.Err(); err != nil {
			return nil, nil, err
		}
		if time.Now().After(until) {
			return nil, nil, errSearchTime
		}
		var kept []keptRow
		var failed error
		rest, err := ss.server.Service.Inbox.EachRow(ss.ctx, ss.user, ss.selected.folder, uids, inbox.RowQuery{Structure: q.structure, EmailID: q.emailID, ThreadID: q.threadID}, func(row *inbox.MessageRow) bool {
			ok, err := q.match(q.candidate(row, nil))
			switch {
			case errors.Is(err, errNeedsBytes):
				one := keptRow{MessageRow: *row}
				one.Structure = bytes.Clone(row.Structure)
				kept = append(kept, one)
			case err != nil:
				failed = err
			case ok && len(kept) > 0:
				kept = append(kept, keptRow{inbox.MessageRow{UID: row.UID, ModSeq: row.ModSeq}, true})
			case ok:
				add(row)
			}
			return failed == nil
		})
		q.view.Clear()
		if err := cmp.Or(err, failed); err != nil {
			return nil, nil, err
		}
		uids = rest
		for i := range kept {
			row := &kept[i]
			if !row.matches {
				row.matches, err = ss.matchBytes(q, &row.MessageRow)
				if err != nil {
					return nil, nil, err
				}
			}
			if row.matches {
				add(&row.MessageRow)
			}
			if err := ss.ctx.Err(); err != nil {
				return nil, nil, err
			}
			if time.Now().After(until) {
				return nil, nil, errSearchTime
			}
		}
	}
	return found, modSeqs, nil
}

// A keptRow is kept until the transaction has ended: its bytes are needed, or it matches and an
// earlier row is kept.
type keptRow struct {
	inbox.MessageRow
	matches bool
}

var errSearchTime = wire.No(imap.ResponseCodeLimit, "The search takes too long; search for less")

// matchBytes reports whether a message meets the criteria; it reads as much of the message as they
// need. An expunged or damaged message does not match.
func (ss *session) matchBytes(q *query, row *inbox.MessageRow) (bool, error) {
	c := q.candidate(row, ss.opener(row.UID))
	defer c.close()
	ok, err := q.match(c)
	if inbox.IsNotFound(err) || inbox.IsDamaged(err) {
		return false, nil
	}
	return ok, err
}

// opener returns a function that opens the message, for when its bytes must be searched.
func (ss *session) opener(uid uint32) func() (blob, error) {
	return func() (blob, error) {
		b, err := ss.server.Service.Inbox.OpenMessage(ss.ctx, ss.user, ss.selected.folder, uid)
		if err != nil {
			return nil, err // a nil *Blob would be a non-nil blob
		}
		return b, nil
	}
}

const (
	maxKeys       = 500     // in one SEARCH, including those within NOT and OR
	maxPartText   = 1 << 20 // bytes of one part that are searched
	maxSearchText = 4 << 20 // bytes of one message that are searched
)

type blob interface {
	io.ReaderAt
	io.Closer
}

// errNeedsBytes means that the criteria cannot be decided without the bytes of the message.
var errNeedsBytes = errors.New("the bytes of the message are needed")

// A query is the criteria of one SEARCH, prepared for matching many messages.
type query struct {
	key             searchKey
	messages        view
	saved           []uint32
	keys            int  // how many keys it has
	structure       bool // a key needs the structure of the message: it is about its content
	emailID         bool // a key needs the EMAILID
	threadID        bool
	modSeq          bool // a key is MODSEQ
	ordersByContent bool // the search is a SORT or THREAD that reads content

	view         msg.View  // parses the structure of the current candidate
	text, folded []byte    // reused buffers
	next         candidate // reused for each candidate
	last         uint32    // the sequence number of the previous candidate
}

// A searchKey is search keys of which all must hold, with texts folded and flags resolved.
type searchKey struct {
	seqs                  []imap.SeqSet
	uids                  []imap.UIDSet // may be "$"
	flags, notFlags       inbox.Flags
	keywords, without     []string
	since, before         time.Time // of the arrival; zero: no bound
	sentSince, sentBefore time.Time // of the Date field; zero: no bound
	larger                int64     // the size must be larger; 0 excludes no message
	smaller               *int64    // the size must be smaller
	rows                  []func(*inbox.MessageRow) bool
	headers               []headerKey
	body, text            []string // folded
	not                   []searchKey
	or                    [][2]searchKey
}

// A headerKey is a HEADER key, or a key that is short for one.
type headerKey struct {
	name   string
	folded string // the folded name
	value  []byte // folded
}

// parseQuery parses the search keys up to the end of the command.
func parseQuery(p *wire.Command, sel *selected) *query {
	q := &query{messages: sel.view, saved: sel.saved}
	q.parse(p, &q.key)
	for p.More() {
		p.Space()
		q.parse(p, &q.key)
	}
	return q
}

// parse parses a search key and adds it to others (RFC 9051 section 6.4.4). Days are in UTC.
func (q *query) parse(p *wire.Command, key *searchKey) {
	if q.keys++; q.keys > maxKeys {
		p.Fail(wire.Bad("A search has at most %d keys", maxKeys))
		return
	}
	text := func() string {
		p.Space()
		return p.AString()
	}
	date := func() time.Time {
		p.Space()
		return p.Date()
	}
	header := func(name, value string) {
		key.headers = append(key.headers, headerKey{name, fold(name), []byte(fold(value))})
		q.structure = true
	}
	row := func(holds func(*inbox.MessageRow) bool) { key.rows = append(key.rows, holds) }
	flag := func(f imap.Flag, set bool) {
		bit := systemBit(f)
		switch {
		case bit != 0 && set:
			key.flags |= bit
		case bit != 0:
			key.notFlags |= bit
		case set:
			key.keywords = append(key.keywords, string(f))
		default:
			key.without = append(key.without, string(f))
		}
	}
	if p.Next('(') {
		p.List(func() { q.parse(p, key) })
		return
	}
	if p.Next('*') || p.NextIsDigit(false) {
		key.seqs = append(key.seqs, p.SeqSet())
		return
	}
	switch word := p.Word(); word {
	case "ALL":
	case "$":
		key.uids = append(key.uids, imap.SearchRes())
	case "UID":
		p.Space()
		key.uids = append(key.uids, p.UIDSet())
	case "ANSWERED", "DELETED", "DRAFT", "FLAGGED", "SEEN":
		flag(imap.Flag(`\`+word), true)
	case "UNANSWERED", "UNDELETED", "UNDRAFT", "UNFLAGGED", "UNSEEN":
		flag(imap.Flag(`\`+strings.TrimPrefix(word, "UN")), false)
	case "KEYWORD", "UNKEYWORD":
		p.Space()
		flag(p.Flag(), word == "KEYWORD")
	case "RECENT", "NEW": // RFC 3501 section 6.4.4; no message is recent to anybody
		row(func(*inbox.MessageRow) bool { return false })
	case "OLD":
	case "BCC", "CC", "FROM", "SUBJECT", "TO":
		header(word, text())
	case "HEADER":
		name := text()
		header(name, text())
	case "BODY":
		key.body = append(key.body, fold(text()))
		q.structure = true
	case "TEXT":
		key.text = append(key.text, fold(text()))
		q.structure = true
	case "SINCE":
		key.since = later(key.since, date())
	case "BEFORE":
		key.before = earlier(key.before, date())
	case "ON":
		day := date()
		key.since, key.before = later(key.since, day), earlier(key.before, day.AddDate(0, 0, 1))
	case "SENTSINCE":
		key.sentSince = later(key.sentSince, date())
		q.structure = true
	case "SENTBEFORE":
		key.sentBefore = earlier(key.sentBefore, date())
		q.structure = true
	case "SENTON":
		day := date()
		key.sentSince, key.sentBefore = later(key.sentSince, day), earlier(key.sentBefore, day.AddDate(0, 0, 1))
		q.structure = true
	case "LARGER":
		p.Space()
		key.larger = max(key.larger, p.Number64())
	case "SMALLER":
		p.Space()
		n := p.Number64()
		if key.smaller == nil || n < *key.smaller {
			key.smaller = &n
		}
	case "MODSEQ": // RFC 7162 section 3.1.5
		p.Space()
		if p.Next('"') { // a flag and its kind have no effect: a message has only one mod-sequence
			p.Text()
			p.Space()
			if kind := p.Word(); kind != "PRIV" && kind != "SHARED" && kind != "ALL" {
				p.Fail(wire.Bad("MODSEQ does not know that kind of entry"))
			}
			p.Space()
		}
		n := p.ModSeq()
		row(func(row *inbox.MessageRow) bool { return row.ModSeq >= n })
		q.modSeq = true
	case "EMAILID": // RFC 8474 section 5.4
		id := parseObjectID(p)
		row(func(row *inbox.MessageRow) bool { return row.EmailID == id })
		q.emailID = true
	case "THREADID":
		id := parseObjectID(p)
		row(func(row *inbox.MessageRow) bool { return row.ThreadID == id })
		q.threadID = true
	case "SAVEDBEFORE": // RFC 8514 section 4.3
		day := date()
		row(func(row *inbox.MessageRow) bool { return row.Saved.Before(day) })
	case "SAVEDSINCE":
		day := date()
		row(func(row *inbox.MessageRow) bool { return !row.Saved.Before(day) })
	case "SAVEDON":
		day := date()
		next := day.AddDate(0, 0, 1)
		row(func(row *inbox.MessageRow) bool { return !row.Saved.Before(day) && row.Saved.Before(next) })
	case "SAVEDATESUPPORTED": // all folders have SAVEDATE
	case "NOT":
		var not searchKey
		p.Space()
		q.parse(p, &not)
		key.not = append(key.not, not)
	case "OR":
		var or [2]searchKey
		for i := range or {
			p.Space()
			q.parse(p, &or[i])
		}
		key.or = append(key.or, or)
	default:
		p.Fail(wire.Bad("SEARCH does not know that key"))
	}
}

func parseObjectID(p *wire.Command) string {
	p.Space()
	id := p.Atom()
	if !isObjectID(id) {
		p.Fail(wire.Bad("An object ID has letters, digits, _ and - only"))
	}
	return id
}

// later returns the later of two times; a zero bound is no bound.
func later(bound, t time.Time) time.Time {
	if bound.IsZero() || t.After(bound) {
		return t
	}
	return bound
}

// earlier returns the earlier of two times; a zero bound is no bound.
func earlier(bound, t time.Time) time.Time {
	if bound.IsZero() || t.Before(bound) {
		return t
	}
	return bound
}

// candidates returns the messages that are in the first set of numbers of the criteria; all
// messages of the view if the criteria have no set. Others cannot match.
func (q *query) candidates() []uint32 {
	switch key := &q.key; {
	case len(key.uids) > 0:
		return q.messages.uidsOf(key.uids[0], q.saved)
	case len(key.seqs) > 0:
		return q.messages.uidsOf(key.seqs[0], q.saved)
	}
	return q.messages
}

// A candidate is a message that may meet the criteria. More of it is read only if a key needs it.
type candidate struct {
	row  *inbox.MessageRow
	open func() (blob, error) // nil: the bytes cannot be read now

	envelope *msg.EnvelopeView
	root     *msg.Part
	bytes    blob
	headers  []msg.Header
	header   string // all fields, folded
	body     string // all texts, folded
	read     struct{ headers, header, body bool }
}

// candidate returns the candidate for a row. It is valid until the next call.
func (q *query) candidate(row *inbox.MessageRow, open func() (blob, error)) *candidate {
	q.next = candidate{row: row, open: open}
	return &q.next
}

func (c *candidate) close() {
	if c.bytes != nil {
		c.bytes.Close()
	}
}

// match reports whether a message meets the criteria. It returns errNeedsBytes if it needs the
// bytes of the message and cannot read them now.
func (q *query) match(c *candidate) (bool, error) { return q.matchKey(c, &q.key) }

// matchKey checks the cheap conditions first.
func (q *query) matchKey(c *candidate, key *searchKey) (bool, error) {
	if !q.matchSets(c, key) || !matchRow(c.row, key) {
		return false, nil
	}
	if ok, err := q.matchSent(c, key); !ok || err != nil {
		return false, err
	}
	if ok, err := q.matchHeader(c, key); !ok || err != nil {
		return false, err
	}
	if ok, err := q.matchNot(c, key); !ok || err != nil {
		return false, err
	}
	if ok, err := q.matchOr(c, key); !ok || err != nil {
		return false, err
	}
	return matchText(c, key)
}

// seq returns the sequence number of a message.
func (q *query) seq(uid uint32) uint32 {
	q.last = q.messages.seqAfter(q.last, uid)
	return q.last
}

func (q *query) matchSets(c *candidate, key *searchKey) bool {
	for _, set := range key.seqs {
		if !contains(set, q.seq(c.row.UID), uint32(len(q.messages))) {
			return false
		}
	}
	for _, set := range key.uids {
		if imap.IsSearchRes(set) {
			if _, found := slices.BinarySearch(q.saved, c.row.UID); !found {
				return false
			}
			continue
		}
		if !contains(set, imap.UID(c.row.UID), imap.UID(q.messages.last())) {
			return false
		}
	}
	return true
}

// contains is the set's own Contains, but "*" matches last.
func contains[N imap.UID | uint32, S interface {
	imap.UIDSet | imap.SeqSet
}](set S, n, last N) bool {
	switch set := any(set).(type) {
	case imap.SeqSet:
		return set.Contains(uint32(n)) || n == last && set.Dynamic()
	case imap.UIDSet:
		return set.Contains(imap.UID(n)) || n == last && set.Dynamic()
	}
	return false
}

func matchRow(row *inbox.MessageRow, key *searchKey) bool {
	switch {
	case row.Flags&key.flags != key.flags,
		row.Flags&key.notFlags != 0,
		!key.since.IsZero() && row.Received.Before(key.since),
		!key.before.IsZero() && !row.Received.Before(key.before),
		key.larger > 0 && row.Size <= key.larger,
		key.smaller != nil && row.Size >= *key.smaller,
		slices.ContainsFunc(key.rows, func(holds func(*inbox.MessageRow) bool) bool { return !holds(row) }):
		return false
	}
	return !slices.ContainsFunc(key.keywords, func(k string) bool { return !inbox.HasKeyword(row.Keywords, k) }) &&
		!slices.ContainsFunc(key.without, func(k string) bool { return inbox.HasKeyword(row.Keywords, k) })
}

// matchSent compares the day in the Date field, without regard to its time zone (RFC 9051 section
// 6.4.4).
func (q *query) matchSent(c *candidate, key *searchKey) (bool, error) {
	if key.sentSince.IsZero() && key.sentBefore.IsZero() {
		return true, nil
	}
	e, err := q.envelope(c)
	if err != nil {
		return false, err
	}
	if !e.Date.Known || time.Unix(e.Date.Unix, 0).IsZero() {
		return false, nil
	}
	y, m, d := time.Unix(e.Date.Unix+int64(e.Date.Offset), 0).UTC().Date()
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	return (key.sentSince.IsZero() || !day.Before(key.sentSince)) && (key.sentBefore.IsZero() || day.Before(key.sentBefore)), nil
}

func (q *query) matchHeader(c *candidate, key *searchKey) (bool, error) {
	for i := range key.headers {
		if ok, err := q.hasHeader(c, &key.headers[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasHeader searches the envelope first, which needs no bytes of the message, and then the header
// fields, which include comments. An empty value matches every message that has the field.
func (q *query) hasHeader(c *candidate, key *headerKey) (bool, error) {
	if len(key.value) > 0 {
		e, err := q.envelope(c)
		if err != nil {
			return false, err
		}
		if key.folded == "subject" { // the header holds no more of the subject than the envelope
			return q.contains(e.Subject, key.value), nil
		}
		for _, a := range addressesOf(e, key.folded) {
			q.text = q.text[:0]
			if a.IsGroupMarker() {
				q.text = append(q.text, a.Mailbox...) // the group's name
			} else {
				q.text = append(a.AppendEmail(append(append(q.text, a.Name...), " <"...)), '>')
			}
			if q.contains(q.text, key.value) {
				return true, nil
			}
		}
	}
	headers, err := c.fields()
	return slices.ContainsFunc(headers, func(h msg.Header) bool {
		return strings.EqualFold(h.Name, key.name) && strings.Contains(fold(h.Value), string(key.value))
	}), err
}

func addressesOf(e *msg.EnvelopeView, name string) []msg.AddressView {
	switch name {
	case "from":
		return e.From
	case "sender":
		return e.Sender
	case "reply-to":
		return e.ReplyTo
	case "to":
		return e.To
	case "cc":
		return e.Cc
	case "bcc":
		return e.Bcc
	}
	return nil
}

// contains reports whether text contains part, ignoring case. part must be folded.
func (q *query) contains(text, part []byte) bool {
	q.folded = slices.Grow(q.folded[:0], len(text))[:len(text)]
	for i, c := range text {
		switch {
		case c >= 0x80:
			return strings.Contains(fold(string(text)), string(part))
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		q.folded[i] = c
	}
	return bytes.Contains(q.folded, part)
}

// fold returns a text in the form in which i;unicode-casemap (RFC 5051) compares it: lower case and
// decomposed, so that a letter with an accent is found in either of its forms. Unlike that, it also
// folds "ß" to "ss".
func fold(s string) string {
	s = strings.ToLower(s)
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return otherCapitals.Replace(norm.NFKD.String(s))
		}
	}
	return s
}

// otherCapitals replaces lower-case letters that share their capitals with other letters by those
// letters.
var otherCapitals = strings.NewReplacer("ß", "ss", "ς", "σ")

func (q *query) matchNot(c *candidate, key *searchKey) (bool, error) {
	for i := range key.not {
		if ok, err := q.matchKey(c, &key.not[i]); ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (q *query) matchOr(c *candidate, key *searchKey) (bool, error) {
	for i := range key.or {
		ok, err := q.matchKey(c, &key.or[i][0])
		if !ok && err == nil {
			ok, err = q.matchKey(c, &key.or[i][1])
		}
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// matchText searches the decoded text of the message for the words of BODY and TEXT.
func matchText(c *candidate, key *searchKey) (bool, error) {
	for _, words := range key.body {
		if err := c.readBody(); err != nil || !strings.Contains(c.body, words) {
			return false, err
		}
	}
	for _, words := range key.text {
		if err := c.readHeader(); err != nil {
			return false, err
		}
		if strings.Contains(c.header, words) {
			continue
		}
		if err := c.readBody(); err != nil || !strings.Contains(c.body, words) {
			return false, err
		}
	}
	return true, nil
}

// envelope parses the candidate's envelope, once.
func (q *query) envelope(c *candidate) (_ *msg.EnvelopeView, err error) {
	if c.envelope == nil {
		c.envelope, err = q.view.Envelope(c.row.Structure)
	}
	return c.envelope, err
}

// load opens the message and parses its structure, once.
func (c *candidate) load() (err error) {
	if c.open == nil {
		return errNeedsBytes
	}
	if c.root == nil {
		c.root, err = msg.DecodePart(c.row.Structure)
		if err != nil {
			return err
		}
	}
	if c.bytes == nil {
		c.bytes, err = c.open()
	}
	return err
}

func (c *candidate) fields() ([]msg.Header, error) {
	if c.read.headers {
		return c.headers, nil
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.read.headers = true
	var err error
	c.headers, err = msg.Headers(c.bytes, c.root)
	return c.headers, err
}

// readHeader reads the header fields of the message and of all its parts.
func (c *candidate) readHeader() error {
	if c.read.header {
		return nil
	}
	if err := c.load(); err != nil {
		return err
	}
	c.read.header = true
	var text strings.Builder
	err := eachPart(c.root, func(p *msg.Part) error {
		if text.Len() > maxSearchText {
			return nil
		}
		headers, err := msg.Headers(c.bytes, p)
		for _, h := range headers {
			text.WriteString(h.Name + ": " + h.Value + "\n")
		}
		return err
	})
	c.header = fold(text.String())
	return err
}

func (c *candidate) readBody() error {
	if c.read.body {
		return nil
	}
	if err := c.load(); err != nil {
		return err
	}
	c.read.body = true
	var text strings.Builder
	err := eachPart(c.root, func(p *msg.Part) error {
		if text.Len() > maxSearchText {
			return nil
		}
		part, err := msg.Text(c.bytes, p, maxPartText)
		text.WriteString(part + "\n")
		return err
	})
	c.body = fold(text.String())
	return err
}

// eachPart visits a part and all parts within it. msg.Scan limits their number.
func eachPart(p *msg.Part, visit func(*msg.Part) error) error {
	if err := visit(p); err != nil {
		return err
	}
	for _, child := range p.Children {
		if err := eachPart(child, visit); err != nil {
			return err
		}
	}
	return nil
}
