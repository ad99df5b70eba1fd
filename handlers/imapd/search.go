package imapd

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

const searchTime = 30 * time.Second

// Search answers SEARCH (RFC 9051 section 6.4.4).
func (ss *session) Search(kind imapserver.NumKind, criteria *imap.SearchCriteria, options *imap.SearchOptions) (*imap.SearchData, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	found, modSeqs, err := ss.search(criteria)
	if err != nil {
		if options.ReturnSave {
			sel.saved = nil // RFC 5182 section 2.1
		}
		return nil, ss.replyError(err)
	}
	if options.ReturnSave {
		sel.saved = savedResult(found, options)
	}
	nums := found
	if kind == imapserver.NumKindSeq {
		nums = make([]uint32, len(found))
		for i, uid := range found {
			nums[i] = sel.view.seq(uid)
		}
	}
	data := &imap.SearchData{All: seqSet(nums), Count: uint32(len(nums))}
	if kind == imapserver.NumKindUID {
		data.All = uidSet(nums)
	}
	if len(nums) > 0 && ss.extensions.searchModSeq {
		ss.patchSearchModSeq(reportedModSeq(modSeqs, options))
	}
	if len(nums) > 0 {
		data.Min, data.Max = nums[0], nums[len(nums)-1]
	}
	return data, nil
}

// savedResult is what "$" stands for after a search: all, unless only the first or the last were
// asked for (RFC 5182 section 2.1).
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

// reportedModSeq is the MODSEQ in the answer of a search that has found something. If only MIN or
// MAX or both are asked for, it is that of the first or the last message, or the greater of the
// two; else it is the greatest of all (RFC 7162 section 3.1.10, RFC 4731 section 3.2).
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
// each.
func (ss *session) search(criteria *imap.SearchCriteria) (found []uint32, modSeqs []uint64, err error) {
	sel := ss.selected
	q, err := newQuery(criteria, sel.view, sel.saved)
	if err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(searchTime)
	for uids := q.candidates(); len(uids) > 0; {
		rows, rest, err := ss.server.Service.MessageRows(ss.conn.ctx, ss.user, sel.folder, uids, inbox.RowQuery{Structure: q.structure})
		if err != nil {
			return nil, nil, err
		}
		uids = rest
		for i := range rows {
			c := &candidate{row: &rows[i], seq: sel.view.seq(rows[i].UID), open: ss.opener(rows[i].UID)}
			ok, err := q.match(c)
			c.close()
			if err != nil && !inbox.IsNotFound(err) && !inbox.IsDamaged(err) {
				return nil, nil, err
			}
			if ok && err == nil {
				found, modSeqs = append(found, rows[i].UID), append(modSeqs, rows[i].ModSeq)
			}
			if err := ss.conn.ctx.Err(); err != nil {
				return nil, nil, err
			}
			if time.Now().After(until) {
				return nil, nil, refused(imap.ResponseCodeLimit, "The search takes too long; search for less")
			}
		}
	}
	return found, modSeqs, nil
}

// patchSearchModSeq adds the MODSEQ to the answer of a search by MODSEQ (RFC 7162 section 3.1.5).
func (ss *session) patchSearchModSeq(modSeq uint64) {
	if ss.extensions.extendedSearch || ss.imapConn.EnabledCaps().Has(imap.CapIMAP4rev2) {
		ss.conn.patchEnd("* ESEARCH", "\r\n", fmt.Sprintf(" MODSEQ %d", modSeq))
		return
	}
	ss.conn.patchEnd("* SEARCH", "\r\n", fmt.Sprintf(" (MODSEQ %d)", modSeq))
}

// opener gives the function that opens a message if its bytes must be searched.
func (ss *session) opener(uid uint32) func() (blob, error) {
	return func() (blob, error) {
		b, err := ss.server.Service.OpenMessage(ss.conn.ctx, ss.user, ss.selected.folder, uid)
		if err != nil {
			return nil, err // a nil *Blob would be a blob
		}
		return b, nil
	}
}

const (
	maxKeys       = 500     // in one SEARCH, those within NOT and OR included
	maxPartText   = 1 << 20 // bytes of one part that are searched
	maxSearchText = 4 << 20 // bytes of one message that are searched
)

type blob interface {
	io.ReaderAt
	io.Closer
}

// A query is the criteria of one SEARCH.
type query struct {
	criteria  *imap.SearchCriteria
	view      view
	saved     []uint32
	structure bool // some key needs it
}

func newQuery(c *imap.SearchCriteria, v view, saved []uint32) (*query, error) {
	if countKeys(c) > maxKeys {
		return nil, badCommand("A search has at most %d keys", maxKeys)
	}
	return &query{criteria: c, view: v, saved: saved, structure: needsParts(c)}, nil
}

// countKeys counts without going deeper than it must.
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
	fields := slices.ContainsFunc(c.Header, func(h imap.SearchCriteriaHeaderField) bool { return h.Key != modSeqKey })
	if fields || len(c.Body)+len(c.Text) > 0 || !c.SentSince.IsZero() || !c.SentBefore.IsZero() {
		return true
	}
	return slices.ContainsFunc(c.Not, func(c imap.SearchCriteria) bool { return needsParts(&c) }) ||
		slices.ContainsFunc(c.Or, func(c [2]imap.SearchCriteria) bool { return needsParts(&c[0]) || needsParts(&c[1]) })
}

// candidates are the messages of the view that can meet the criteria at all, by the first set of
// numbers.
func (q *query) candidates() []uint32 {
	switch c := q.criteria; {
	case len(c.UID) > 0:
		return q.view.uidsOf(c.UID[0], q.saved)
	case len(c.SeqNum) > 0:
		return q.view.uidsOf(c.SeqNum[0], q.saved)
	}
	return q.view
}

// A candidate is a message that may meet the criteria; more of it is read as keys ask for it.
type candidate struct {
	row  *inbox.MessageRow
	seq  uint32
	open func() (blob, error)

	root    *msg.Part
	bytes   blob
	headers []msg.Header
	header  string // all fields, folded
	body    string // all texts, folded
	read    struct{ headers, header, body bool }
}

func (c *candidate) close() {
	if c.bytes != nil {
		c.bytes.Close()
	}
}

// match reports whether a message meets the criteria.
func (q *query) match(c *candidate) (bool, error) { return q.matchKey(c, q.criteria) }

// matchKey looks at what costs little first.
func (q *query) matchKey(c *candidate, key *imap.SearchCriteria) (bool, error) {
	if !q.matchSets(c, key) || !matchRow(c.row, key) {
		return false, nil
	}
	for _, step := range []func(*candidate, *imap.SearchCriteria) (bool, error){matchSent, matchHeader, q.matchNot, q.matchOr, matchText} {
		if ok, err := step(c, key); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (q *query) matchSets(c *candidate, key *imap.SearchCriteria) bool {
	for _, set := range key.SeqNum {
		if !contains(set, c.seq, uint32(len(q.view))) {
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
		if !contains(set, imap.UID(c.row.UID), imap.UID(q.view.last())) {
			return false
		}
	}
	return true
}

// contains is a set's own Contains, but knows what "*" stands for.
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

func matchRow(row *inbox.MessageRow, key *imap.SearchCriteria) bool {
	switch {
	case !key.Since.IsZero() && row.Received.Before(key.Since),
		!key.Before.IsZero() && !row.Received.Before(key.Before),
		key.Larger > 0 && row.Size <= key.Larger,
		key.Smaller > 0 && row.Size >= key.Smaller:
		return false
	}
	return !slices.ContainsFunc(key.Flag, func(f imap.Flag) bool { return !hasFlag(row, f) }) &&
		!slices.ContainsFunc(key.NotFlag, func(f imap.Flag) bool { return hasFlag(row, f) })
}

func hasFlag(row *inbox.MessageRow, f imap.Flag) bool {
	if bit := systemBit(f); bit != 0 {
		return row.Flags&bit != 0
	}
	return inbox.HasKeyword(row.Keywords, string(f))
}

// matchSent compares the day that the Date field names, whatever its zone (RFC 9051 section 6.4.4).
func matchSent(c *candidate, key *imap.SearchCriteria) (bool, error) {
	if key.SentSince.IsZero() && key.SentBefore.IsZero() {
		return true, nil
	}
	if err := c.parse(); err != nil {
		return false, err
	}
	sent := c.root.Envelope.Date
	if sent.IsZero() {
		return false, nil
	}
	y, m, d := sent.Date()
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	return (key.SentSince.IsZero() || !day.Before(key.SentSince)) && (key.SentBefore.IsZero() || day.Before(key.SentBefore)), nil
}

func matchHeader(c *candidate, key *imap.SearchCriteria) (bool, error) {
	for _, h := range key.Header {
		if h.Key == modSeqKey {
			if since, err := strconv.ParseUint(h.Value, 10, 64); err != nil || c.row.ModSeq < since {
				return false, nil
			}
			continue
		}
		if ok, err := c.hasHeader(h.Key, h.Value); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasHeader looks in the envelope, which is at hand, and then in the header, which has the comments
// too. An empty value asks only whether there is such a field.
func (c *candidate) hasHeader(name, value string) (bool, error) {
	if err := c.parse(); err != nil {
		return false, err
	}
	if value != "" {
		texts, whole := envelopeTexts(c.root.Envelope, strings.ToLower(name))
		if found := slices.ContainsFunc(texts, func(text string) bool { return containsFold(text, value) }); found || whole {
			return found, nil
		}
	}
	headers, err := c.fields()
	return slices.ContainsFunc(headers, func(h msg.Header) bool {
		return strings.EqualFold(h.Name, name) && containsFold(h.Value, value)
	}), err
}

// envelopeTexts gives what the envelope has of a field; whole says that the field has no more than
// that to search.
func envelopeTexts(e *msg.Envelope, name string) (texts []string, whole bool) {
	lists := map[string][]msg.Address{"from": e.From, "sender": e.Sender, "reply-to": e.ReplyTo, "to": e.To, "cc": e.Cc, "bcc": e.Bcc}
	for _, a := range lists[name] {
		if a.IsGroupMarker() {
			texts = append(texts, a.Mailbox) // the group's name
		} else {
			texts = append(texts, a.Name+" <"+a.Email()+">")
		}
	}
	if name == "subject" {
		return []string{e.Subject}, true
	}
	return texts, false
}

// containsFold reports whether a text contains a part, in any case.
func containsFold(text, part string) bool { return strings.Contains(fold(text), fold(part)) }

func fold(s string) string { return strings.ToLower(s) }

func (q *query) matchNot(c *candidate, key *imap.SearchCriteria) (bool, error) {
	for i := range key.Not {
		if ok, err := q.matchKey(c, &key.Not[i]); ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (q *query) matchOr(c *candidate, key *imap.SearchCriteria) (bool, error) {
	for i := range key.Or {
		ok, err := q.matchKey(c, &key.Or[i][0])
		if !ok && err == nil {
			ok, err = q.matchKey(c, &key.Or[i][1])
		}
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// matchText searches the text that people read for the words of BODY and TEXT.
func matchText(c *candidate, key *imap.SearchCriteria) (bool, error) {
	for _, words := range key.Body {
		if err := c.readBody(); err != nil || !strings.Contains(c.body, fold(words)) {
			return false, err
		}
	}
	for _, words := range key.Text {
		if err := c.readHeader(); err != nil {
			return false, err
		}
		if strings.Contains(c.header, fold(words)) {
			continue
		}
		if err := c.readBody(); err != nil || !strings.Contains(c.body, fold(words)) {
			return false, err
		}
	}
	return true, nil
}

func (c *candidate) parse() (err error) {
	if c.root == nil {
		c.root, err = msg.DecodePart(c.row.Structure)
	}
	return err
}

func (c *candidate) load() (err error) {
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

// readHeader reads the fields of the message and of all its parts.
func (c *candidate) readHeader() error {
	if c.read.header {
		return nil
	}
	if err := c.parse(); err != nil {
		return err
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
	if err := c.parse(); err != nil {
		return err
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

// eachPart visits a part and all parts within it; Scan bounds how many there are.
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
