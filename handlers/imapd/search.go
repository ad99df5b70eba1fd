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
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
	"golang.org/x/text/unicode/norm"
)

const maxSearchTime = 30 * time.Second

// Search answers SEARCH (RFC 9051 section 6.4.4).
func (ss *session) Search(kind imapserver.NumKind, criteria *imap.SearchCriteria, options *imap.SearchOptions) (*imap.SearchData, error) {
	if ss.extensions.ordering != nil {
		return ss.answerOrdering(kind, criteria)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	found, modSeqs, err := ss.search(criteria)
	if err != nil {
		return nil, ss.replyError(err)
	}
	if options.ReturnSave {
		sel.saved = savedResult(found, options)
	}
	nums := found
	if kind == imapserver.NumKindSeq {
		nums = make([]uint32, len(found))
		last := uint32(0)
		for i, uid := range found {
			last = sel.view.seqAfter(last, uid)
			nums[i] = last
		}
	}
	data := &imap.SearchData{All: seqSet(nums), Count: uint32(len(nums))}
	if kind == imapserver.NumKindUID {
		data.All = uidSet(nums)
	}
	if ss.conn.savesAlone {
		ss.conn.dropReply("* ESEARCH", "\r\n")
		return data, nil
	}
	if len(nums) > 0 && ss.extensions.searchModSeq {
		ss.patchSearchModSeq(reportedModSeq(modSeqs, options))
	}
	if len(nums) > 0 {
		data.Min, data.Max = nums[0], nums[len(nums)-1]
	}
	return data, nil
}

// savedResult returns the value of "$" after a search: all messages found, unless only MIN or MAX
// was requested (RFC 5182 section 2.1).
func savedResult(found []uint32, o *imap.SearchOptions) []uint32 {
	if o.ReturnAll || o.ReturnCount || len(found) == 0 {
		return found
	}
	var out []uint32
	if o.ReturnMin {
		out = append(out, found[0])
	}
	if o.ReturnMax {
		out = append(out, found[len(found)-1])
	}
	return slices.Compact(out)
}

// reportedModSeq returns the MODSEQ for the reply to a search that has found something. If only
// MIN, MAX or both are requested, it is that of the first message, of the last, or the greater of
// the two; else it is the greatest of all (RFC 7162 section 3.1.10, RFC 4731 section 3.2).
func reportedModSeq(modSeqs []uint64, o *imap.SearchOptions) uint64 {
	first, last := modSeqs[0], modSeqs[len(modSeqs)-1]
	switch {
	case o.ReturnAll || o.ReturnCount:
		return slices.Max(modSeqs)
	case !o.ReturnMax:
		return first
	case !o.ReturnMin:
		return last
	}
	return max(first, last)
}

// search returns the UIDs of the messages that meet the criteria, ascending, and the MODSEQ of
// each. It matches messages within the store's transaction; messages of which it must read the
// bytes are kept and matched after the transaction.
func (ss *session) search(criteria *imap.SearchCriteria) (found []uint32, modSeqs []uint64, err error) {
	q, err := newQuery(criteria, ss.selected.view, ss.selected.saved)
	if err != nil {
		return nil, nil, err
	}
	if err := ss.taintBySearch(q.candidates(), criteria); err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(maxSearchTime)
	add := func(row *inbox.MessageRow) { found, modSeqs = append(found, row.UID), append(modSeqs, row.ModSeq) }
	for uids := q.candidates(); len(uids) > 0; {
		if err := ss.conn.ctx.Err(); err != nil {
			return nil, nil, err
		}
		if time.Now().After(until) {
			return nil, nil, errSearchTime
		}
		var kept []keptRow
		var failed error
		rest, err := ss.server.Service.Inbox.EachRow(ss.conn.ctx, ss.user, ss.selected.folder, uids, inbox.RowQuery{Structure: q.structure, EmailID: q.emailID, ThreadID: q.threadID}, func(row *inbox.MessageRow) bool {
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
			if err := ss.conn.ctx.Err(); err != nil {
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

var errSearchTime = refusal(imap.ResponseCodeLimit, "The search takes too long; search for less")

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

// patchSearchModSeq adds the MODSEQ to the answer of a search by MODSEQ (RFC 7162 section 3.1.5).
func (ss *session) patchSearchModSeq(modSeq uint64) {
	if ss.extensions.extendedSearch || ss.imapConn.EnabledCaps().Has(imap.CapIMAP4rev2) {
		ss.conn.patchEnd("* ESEARCH", "\r\n", fmt.Sprintf(" MODSEQ %d", modSeq))
		return
	}
	ss.conn.patchEnd("* SEARCH", "\r\n", fmt.Sprintf(" (MODSEQ %d)", modSeq))
}

// opener returns a function that opens the message, for when its bytes must be searched.
func (ss *session) opener(uid uint32) func() (blob, error) {
	return func() (blob, error) {
		b, err := ss.server.Service.Inbox.OpenMessage(ss.conn.ctx, ss.user, ss.selected.folder, uid)
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
	key       searchKey
	messages  view
	saved     []uint32
	structure bool // a key needs the structure of the message
	emailID   bool // a key needs the EMAILID
	threadID  bool

	view         msg.View  // parses the structure of the current candidate
	text, folded []byte    // reused buffers
	next         candidate // reused for each candidate
	last         uint32    // the sequence number of the previous candidate
}

// A searchKey is one SearchCriteria with its texts folded and its flags resolved.
type searchKey struct {
	criteria          *imap.SearchCriteria
	flags, notFlags   inbox.Flags
	keywords, without []string
	headers           []headerKey
	body, text        []string // folded
	not               []searchKey
	or                [][2]searchKey
	sent              bool // a key compares the Date field
}

// A headerKey is a HEADER key, a key that is short for one, or a key that go-imap does not know.
type headerKey struct {
	name        string
	folded      string // the folded name
	value       []byte // folded
	modSeq      uint64 // for MODSEQ
	matchesNone bool   // a MODSEQ that no message meets
	object      func(*inbox.MessageRow) bool
}

func newQuery(c *imap.SearchCriteria, v view, saved []uint32) (*query, error) {
	if countKeys(c) > maxKeys {
		return nil, badCommand("A search has at most %d keys", maxKeys)
	}
	return &query{key: newSearchKey(c), messages: v, saved: saved,
		structure: needsParts(c), emailID: needsKey(c, emailIDKey), threadID: needsKey(c, threadIDKey)}, nil
}

func newSearchKey(c *imap.SearchCriteria) searchKey {
	key := searchKey{criteria: c, sent: !c.SentSince.IsZero() || !c.SentBefore.IsZero()}
	for _, f := range c.Flag {
		if bit := systemBit(f); bit != 0 {
			key.flags |= bit
		} else {
			key.keywords = append(key.keywords, string(f))
		}
	}
	for _, f := range c.NotFlag {
		if bit := systemBit(f); bit != 0 {
			key.notFlags |= bit
		} else {
			key.without = append(key.without, string(f))
		}
	}
	for _, h := range c.Header {
		one := headerKey{name: h.Key, folded: fold(h.Key), value: []byte(fold(h.Value)), object: newObjectKey(h.Key, h.Value)}
		if h.Key == modSeqKey {
			n, err := strconv.ParseUint(h.Value, 10, 64)
			one = headerKey{name: modSeqKey, modSeq: n, matchesNone: err != nil}
		}
		key.headers = append(key.headers, one)
	}
	for _, words := range c.Body {
		key.body = append(key.body, fold(words))
	}
	for _, words := range c.Text {
		key.text = append(key.text, fold(words))
	}
	for i := range c.Not {
		key.not = append(key.not, newSearchKey(&c.Not[i]))
	}
	for i := range c.Or {
		key.or = append(key.or, [2]searchKey{newSearchKey(&c.Or[i][0]), newSearchKey(&c.Or[i][1])})
	}
	return key
}

// countKeys counts the keys of a search; it stops soon after maxKeys.
func countKeys(c *imap.SearchCriteria) int {
	n := 1 + len(c.SeqNum) + len(c.UID) + len(c.Header) + len(c.Body) + len(c.Text) + len(c.Flag) + len(c.NotFlag)
	for i := range c.Not {
		if n <= maxKeys {
			n += countKeys(&c.Not[i])
		}
	}
	for i := range c.Or {
		if n <= maxKeys {
			n += countKeys(&c.Or[i][0]) + countKeys(&c.Or[i][1])
		}
	}
	return n
}

func needsParts(c *imap.SearchCriteria) bool {
	fields := slices.ContainsFunc(c.Header, func(h imap.SearchCriteriaHeaderField) bool {
		return h.Key != modSeqKey && !slices.Contains(objectKeys, h.Key)
	})
	if fields || len(c.Body)+len(c.Text) > 0 || !c.SentSince.IsZero() || !c.SentBefore.IsZero() {
		return true
	}
	return slices.ContainsFunc(c.Not, func(c imap.SearchCriteria) bool { return needsParts(&c) }) ||
		slices.ContainsFunc(c.Or, func(c [2]imap.SearchCriteria) bool { return needsParts(&c[0]) || needsParts(&c[1]) })
}

// candidates returns the messages that are in the first set of numbers of the criteria; all
// messages of the view if the criteria have no set. Others cannot match.
func (q *query) candidates() []uint32 {
	switch c := q.key.criteria; {
	case len(c.UID) > 0:
		return q.messages.uidsOf(c.UID[0], q.saved)
	case len(c.SeqNum) > 0:
		return q.messages.uidsOf(c.SeqNum[0], q.saved)
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
	if !q.matchSets(c, key.criteria) || !matchRow(c.row, key) {
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

func (q *query) matchSets(c *candidate, key *imap.SearchCriteria) bool {
	for _, set := range key.SeqNum {
		if !contains(set, q.seq(c.row.UID), uint32(len(q.messages))) {
			return false
		}
	}
	for _, set := range key.UID {
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
	switch c := key.criteria; {
	case row.Flags&key.flags != key.flags,
		row.Flags&key.notFlags != 0,
		!c.Since.IsZero() && row.Received.Before(c.Since),
		!c.Before.IsZero() && !row.Received.Before(c.Before),
		c.Larger > 0 && row.Size <= c.Larger,
		c.Smaller > 0 && row.Size >= c.Smaller:
		return false
	}
	return !slices.ContainsFunc(key.keywords, func(k string) bool { return !inbox.HasKeyword(row.Keywords, k) }) &&
		!slices.ContainsFunc(key.without, func(k string) bool { return inbox.HasKeyword(row.Keywords, k) })
}

// matchSent compares the day in the Date field, without regard to its time zone (RFC 9051 section
// 6.4.4).
func (q *query) matchSent(c *candidate, key *searchKey) (bool, error) {
	if !key.sent {
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
	since, before := key.criteria.SentSince, key.criteria.SentBefore
	return (since.IsZero() || !day.Before(since)) && (before.IsZero() || day.Before(before)), nil
}

func (q *query) matchHeader(c *candidate, key *searchKey) (bool, error) {
	for i := range key.headers {
		h := &key.headers[i]
		if h.name == modSeqKey {
			if h.matchesNone || c.row.ModSeq < h.modSeq {
				return false, nil
			}
			continue
		}
		if h.object != nil {
			if !h.object(c.row) {
				return false, nil
			}
			continue
		}
		if ok, err := q.hasHeader(c, h); !ok || err != nil {
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
