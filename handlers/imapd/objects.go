package imapd

import (
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/inbox"
)

// objectItems are FETCH items that go-imap does not know and that are in a message's row: EMAILID
// and THREADID (RFC 8474), PREVIEW (RFC 8970) and SAVEDATE (RFC 8514).
type objectItems struct{ emailID, threadID, preview, saveDate bool }

// objectItem records the item at token i, replaces it by UID, which is always allowed, and returns
// the index of its last token. It ignores other items. LAZY has no effect, since previews are made
// on arrival.
func (p *commandEditor) objectItem(i int, a *objectItems) (last int) {
	last = i
	switch p.word(i) {
	case "EMAILID":
		a.emailID = true
	case "THREADID":
		a.threadID = true
	case "SAVEDATE":
		a.saveDate = true
	case "PREVIEW":
		a.preview = true
		if p.is(i+1, '(') && p.word(i+2) == "LAZY" && p.is(i+3, ')') {
			last = i + 3
		}
	default:
		return i
	}
	p.replace(i, last, "UID")
	return last
}

// objects appends the requested items, each followed by a space.
func (w *attributeWriter) objects(row *inbox.MessageRow, a objectItems) {
	if a.emailID {
		w.b = append(append(append(w.b, "EMAILID ("...), row.EmailID...), ") "...)
	}
	switch {
	case !a.threadID:
	case isObjectID(row.ThreadID):
		w.b = append(append(append(w.b, "THREADID ("...), row.ThreadID...), ") "...)
	default:
		w.b = append(w.b, "THREADID NIL "...)
	}
	if a.saveDate {
		w.b = append(row.Saved.AppendFormat(append(w.b, `SAVEDATE "`...), "_2-Jan-2006 15:04:05 -0700"), `" `...)
	}
	if a.preview {
		w.b = append(w.b, "PREVIEW "...)
		w.string([]byte(row.Preview))
		w.b = append(w.b, ' ')
	}
}

// isObjectID reports whether s has the form of an objectid (RFC 8474 section 7).
func isObjectID(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// Each of these replaces a SEARCH key that go-imap does not know, as modSeqKey does.
const (
	emailIDKey     = "EMAILID:"
	threadIDKey    = "THREADID:"
	savedBeforeKey = "SAVEDBEFORE:"
	savedOnKey     = "SAVEDON:"
	savedSinceKey  = "SAVEDSINCE:"
)

var objectKeys = []string{emailIDKey, threadIDKey, savedBeforeKey, savedOnKey, savedSinceKey}

const dateLayout = "2-Jan-2006" // the format of dates in SEARCH (RFC 9051 section 9, date-text)

// objectKey parses a key of RFC 8474 or RFC 8514, replaces it for the parser, and returns the index
// of its last token. SAVEDATESUPPORTED becomes ALL, since all folders have SAVEDATE (RFC 8514
// section 4.3).
func (p *commandEditor) objectKey(i int) (last int, ok bool) {
	word := p.word(i)
	if word == "SAVEDATESUPPORTED" {
		p.replace(i, i, "ALL")
		return i, true
	}
	value, ok := p.value(i + 1)
	switch {
	case !ok:
		return i, false
	case word == "EMAILID" || word == "THREADID":
		ok = p.is(i+1, 'a') && isObjectID(value)
	default:
		_, err := time.Parse(dateLayout, value)
		ok = err == nil
	}
	p.replace(i, i+1, "HEADER "+word+": "+value)
	return i + 1, ok
}

// newObjectKey returns the condition on a message for one of objectKeys, nil for other header
// fields. Days are in UTC, like those of SINCE.
func newObjectKey(name, value string) func(*inbox.MessageRow) bool {
	if !slices.Contains(objectKeys, name) {
		return nil
	}
	switch name {
	case emailIDKey:
		return func(row *inbox.MessageRow) bool { return row.EmailID == value }
	case threadIDKey:
		return func(row *inbox.MessageRow) bool { return row.ThreadID == value && value != "" }
	}
	day, err := time.Parse(dateLayout, value)
	if err != nil { // the client itself has named such a field
		return func(*inbox.MessageRow) bool { return false }
	}
	next := day.AddDate(0, 0, 1)
	switch name {
	case savedBeforeKey:
		return func(row *inbox.MessageRow) bool { return row.Saved.Before(day) }
	case savedSinceKey:
		return func(row *inbox.MessageRow) bool { return !row.Saved.Before(day) }
	}
	return func(row *inbox.MessageRow) bool { return !row.Saved.Before(day) && row.Saved.Before(next) }
}

// needsKey reports whether the criteria contain the key with this name, at any depth.
func needsKey(c *imap.SearchCriteria, name string) bool {
	return slices.ContainsFunc(c.Header, func(h imap.SearchCriteriaHeaderField) bool { return h.Key == name }) ||
		slices.ContainsFunc(c.Not, func(c imap.SearchCriteria) bool { return needsKey(&c, name) }) ||
		slices.ContainsFunc(c.Or, func(c [2]imap.SearchCriteria) bool { return needsKey(&c[0], name) || needsKey(&c[1], name) })
}

// mailboxID returns the MAILBOXID item of a folder for a reply (RFC 8474 section 4).
func mailboxID(f *inbox.Folder) string { return "MAILBOXID (" + inbox.MailboxID(f) + ")" }
