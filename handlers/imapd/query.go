package imapd

import (
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// maxSearchKeys is the maximum number of keys in one search, including those within NOT and OR.
const maxSearchKeys = 500

// A query is the criteria of one SEARCH, SORT or THREAD, ready to match many messages.
type query struct {
	key             searchKey
	messages        view     // of the selected folder
	saved           []uint32 // UIDs of "$"
	keys            int      // number of keys
	structure       bool     // a key needs the structure of the message, since it is about content
	emailID         bool     // a key needs the EMAILID
	threadID        bool     // a key needs the THREADID
	modSeq          bool     // a key is MODSEQ
	ordersByContent bool     // the command is a SORT or THREAD that reads content

	view         msg.View  // parses the structure of the current candidate
	text, folded []byte    // reused buffers
	next         candidate // reused for each candidate
	last         uint32    // sequence number of the previous candidate
}

// A searchKey is a list of search keys, all of which a message must meet. Texts are folded, and
// flags are resolved.
type searchKey struct {
	seqs                  []imap.SeqSet
	uids                  []imap.UIDSet                  // may be "$"
	flags, notFlags       inbox.Flags                    // that the message must have, and must not have
	keywords, without     []string                       // that the message must have, and must not have
	since, before         time.Time                      // of the arrival; zero: no condition
	sentSince, sentBefore time.Time                      // of the Date field; zero: no condition
	larger                int64                          // the size must be larger than this; 0: no condition
	smaller               *int64                         // the size must be smaller than this; nil: no condition
	rows                  []func(*inbox.MessageRow) bool // other conditions on the row
	headers               []headerKey
	body, text            []string // folded
	not                   []searchKey
	or                    [][2]searchKey
}

// A headerKey is a HEADER key, or one with the same meaning, such as FROM.
type headerKey struct {
	name   string
	folded string // the folded name
	value  []byte // folded
}

// parseQuery parses the search keys up to the end of the command.
func parseQuery(p *wire.Command, sel *selectedFolder) *query {
	q := &query{messages: sel.view, saved: sel.saved}
	q.parse(p, &q.key)
	for p.More() {
		p.Space()
		q.parse(p, &q.key)
	}
	return q
}

// parse parses one search key (RFC 9051 section 6.4.4) and adds it to key. Days are in UTC.
func (q *query) parse(p *wire.Command, key *searchKey) {
	if q.keys++; q.keys > maxSearchKeys {
		p.Fail(wire.Bad("A search has at most %d keys", maxSearchKeys))
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
		key.headers = append(key.headers, headerKey{name, foldText(name), []byte(foldText(value))})
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
		p.ReadList(func() { q.parse(p, key) })
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
	case "RECENT", "NEW": // RFC 3501 section 6.4.4; this server never sets \Recent
		row(func(*inbox.MessageRow) bool { return false })
	case "OLD":
	case "BCC", "CC", "FROM", "SUBJECT", "TO":
		header(word, text())
	case "HEADER":
		name := text()
		header(name, text())
	case "BODY":
		key.body = append(key.body, foldText(text()))
		q.structure = true
	case "TEXT":
		key.text = append(key.text, foldText(text()))
		q.structure = true
	case "SINCE":
		key.since = laterTime(key.since, date())
	case "BEFORE":
		key.before = earlierTime(key.before, date())
	case "ON":
		day := date()
		key.since, key.before = laterTime(key.since, day), earlierTime(key.before, day.AddDate(0, 0, 1))
	case "SENTSINCE":
		key.sentSince = laterTime(key.sentSince, date())
		q.structure = true
	case "SENTBEFORE":
		key.sentBefore = earlierTime(key.sentBefore, date())
		q.structure = true
	case "SENTON":
		day := date()
		key.sentSince, key.sentBefore = laterTime(key.sentSince, day), earlierTime(key.sentBefore, day.AddDate(0, 0, 1))
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
		if p.Next('"') { // the name and type of an entry have no effect: a message has only one mod-sequence
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

// parseObjectID parses a space and an object ID.
func parseObjectID(p *wire.Command) string {
	p.Space()
	id := p.Atom()
	if !isObjectID(id) {
		p.Fail(wire.Bad("An object ID has letters, digits, _ and - only"))
	}
	return id
}

// laterTime returns the later of two times. A zero bound is replaced by t.
func laterTime(bound, t time.Time) time.Time {
	if bound.IsZero() || t.After(bound) {
		return t
	}
	return bound
}

// earlierTime returns the earlier of two times. A zero bound is replaced by t.
func earlierTime(bound, t time.Time) time.Time {
	if bound.IsZero() || t.Before(bound) {
		return t
	}
	return bound
}

// candidateUIDs returns the UIDs of the messages that can match. They are those in the first set of
// UIDs or sequence numbers of the criteria, or else all messages of the view.
func (q *query) candidateUIDs() []uint32 {
	switch key := &q.key; {
	case len(key.uids) > 0:
		return q.messages.uidsOf(key.uids[0], q.saved)
	case len(key.seqs) > 0:
		return q.messages.uidsOf(key.seqs[0], q.saved)
	}
	return q.messages
}
