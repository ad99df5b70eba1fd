package imapd

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/emersion/go-imap/v2"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

const (
	maxPartText   = 1 << 20 // bytes of one part that are searched
	maxSearchText = 4 << 20 // bytes of one message that are searched
)

// storedBytes are the bytes of a message in the store.
type storedBytes interface {
	io.ReaderAt
	io.Closer
}

// errNeedsBytes means that a search cannot decide about a message without its bytes.
var errNeedsBytes = errors.New("the search needs the bytes of the message")

// A candidate is a message that may meet the criteria of a search. More of the message is read only
// if a search key needs it.
type candidate struct {
	row  *inbox.MessageRow
	open func() (storedBytes, error) // nil: the bytes cannot be read now

	// What was read so far.
	envelope *msg.EnvelopeView
	root     *msg.Part
	bytes    storedBytes
	headers  []msg.Header
	header   string // all header fields, folded
	body     string // texts of all parts, folded
	read     struct{ headers, header, body bool }
}

// newCandidate returns the candidate for a row. It is valid until the next call.
func (q *query) newCandidate(row *inbox.MessageRow, open func() (storedBytes, error)) *candidate {
	q.next = candidate{row: row, open: open}
	return &q.next
}

func (c *candidate) close() {
	if c.bytes != nil {
		c.bytes.Close()
	}
}

// match reports whether a message meets the criteria. It returns errNeedsBytes if the criteria need
// the bytes of the message and c.open is nil.
func (q *query) match(c *candidate) (bool, error) { return q.matchKey(c, &q.key) }

// matchKey reports whether a message meets a search key. It checks conditions that take little time
// first.
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

// matchSets reports whether a message is in the sets of sequence numbers and UIDs of a key.
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
		if !contains(set, imap.UID(c.row.UID), imap.UID(q.messages.lastUID())) {
			return false
		}
	}
	return true
}

// contains reports whether the set contains n. "*" in the set stands for last.
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

// matchRow reports whether a row meets the conditions of a key that need only the row.
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

// matchSent reports whether the day of the Date field meets the conditions of a key. The time zone
// of the field is ignored (RFC 9051 section 6.4.4).
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

// matchHeader reports whether a message has all header fields that a key asks for.
func (q *query) matchHeader(c *candidate, key *searchKey) (bool, error) {
	for i := range key.headers {
		if ok, err := q.hasHeader(c, &key.headers[i]); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasHeader reports whether a message has a header field with the given name and text. An empty
// text matches every message that has the field.
//
// It looks in the envelope first, for which it needs no bytes of the message. Then it looks in the
// header fields themselves, since the envelope leaves out comments.
func (q *query) hasHeader(c *candidate, key *headerKey) (bool, error) {
	if len(key.value) > 0 {
		e, err := q.envelope(c)
		if err != nil {
			return false, err
		}
		if key.folded == "subject" { // the envelope has the whole subject
			return q.contains(e.Subject, key.value), nil
		}
		for _, a := range addressesOf(e, key.folded) {
			q.text = q.text[:0]
			if a.IsGroupMarker() {
				q.text = append(q.text, a.Mailbox...) // the name of the group
			} else {
				q.text = append(a.AppendEmail(append(append(q.text, a.Name...), " <"...)), '>')
			}
			if q.contains(q.text, key.value) {
				return true, nil
			}
		}
	}
	headers, err := c.headerFields()
	return slices.ContainsFunc(headers, func(h msg.Header) bool {
		return strings.EqualFold(h.Name, key.name) && strings.Contains(foldText(h.Value), string(key.value))
	}), err
}

// addressesOf returns the addresses of the field with the lower-case name.
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

// contains reports whether text contains part in any case. part must be folded.
func (q *query) contains(text, part []byte) bool {
	q.folded = slices.Grow(q.folded[:0], len(text))[:len(text)]
	for i, c := range text {
		switch {
		case c >= 0x80:
			return strings.Contains(foldText(string(text)), string(part))
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		q.folded[i] = c
	}
	return bytes.Contains(q.folded, part)
}

// foldText returns a text in the form in which texts are compared, which is that of
// i;unicode-casemap (RFC 5051): in lower case and decomposed, so that a letter with an accent is
// found in both of its encodings. In addition it folds "ß" to "ss".
func foldText(s string) string {
	s = strings.ToLower(s)
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return capitalVariants.Replace(norm.NFKD.String(s))
		}
	}
	return s
}

// capitalVariants replaces lower-case letters by others that have the same capital letter.
var capitalVariants = strings.NewReplacer("ß", "ss", "ς", "σ")

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

// matchText looks for the texts of the keys BODY and TEXT in the decoded text of the message.
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

// envelope returns the candidate's envelope. It parses it at the first call.
func (q *query) envelope(c *candidate) (_ *msg.EnvelopeView, err error) {
	if c.envelope == nil {
		c.envelope, err = q.view.Envelope(c.row.Structure)
	}
	return c.envelope, err
}

// load opens the message and parses its structure at the first call.
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

// headerFields returns the header fields of the message. It reads them at the first call.
func (c *candidate) headerFields() ([]msg.Header, error) {
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

// readHeader sets c.header to the header fields of the message and of all its parts.
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
	c.header = foldText(text.String())
	return err
}

// readBody sets c.body to the texts of all parts of the message.
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
	c.body = foldText(text.String())
	return err
}

// eachPart calls visit with a part and with all parts inside it. msg.Scan limits their number.
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
