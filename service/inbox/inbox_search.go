package inbox

import (
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/store"
)

const (
	maxScanned         = 2000     // rows that one request examines; at this limit the page ends, and its cursor continues the list
	maxSkipped         = 2500     // rows of other domains that one request skips; then the page ends, too
	maxMergedFolders   = 500      // folders that a list of an account can merge
	maxMergedMailboxes = 100      // mailboxes that a list of a domain merges; if there are more, the list skips the rows of other domains
	maxSearchExamined  = 200      // messages that one search reads because the index does not suffice
	maxSearchBytes     = 16 << 20 // bytes of messages that one search reads
	maxIndexBytes      = 8 << 20  // bytes of the text index that one search reads, approximately
)

// An inboxSearch finds the messages of an inboxList that contain given words, are by a given
// author, or belong to a given thread. It uses the text index, and reads the messages that are not
// indexed yet. The index does not record in which part of a message a word occurs, so the author of
// each found message is compared separately.
type inboxSearch struct {
	l       *inboxList
	tx      *store.Tx
	matcher *tokenize.Matcher // matches the searched words; nil if there are none
	phrases bool              // a phrase is searched for, which the index cannot find alone
	threads []string          // IDs of the thread; nil: any thread

	index     *store.InboxSearch // nil if too many messages are not indexed yet: then only unindexed is searched
	result    store.InboxPos     // the next result of the index, if hasResult is true
	hasResult bool
	unindexed []store.InboxPos // messages that are not in the index, newest first; if index is nil: the newest messages of the list
	bytesRead int64
	examined  int // messages that were read because the index does not suffice, at most maxSearchExamined
	skipped   int // messages of other domains that were skipped, at most maxSkipped
}

// newSearch starts a search. mayMatch is false if no message can match.
func (l *inboxList) newSearch(tx *store.Tx) (x *inboxSearch, mayMatch bool, err error) {
	x = &inboxSearch{l: l, tx: tx}
	var terms [][]store.TextTerm
	if l.q != "" {
		q := tokenize.Parse(l.q)
		if len(q.Terms) == 0 {
			return nil, false, nil
		}
		x.matcher, x.phrases = tokenize.NewMatcher(q), len(q.Phrases) > 0
		terms = append(terms, termsOf(q)...)
	}
	if l.from != "" {
		q := tokenize.Parse(l.from)
		if len(q.Terms) == 0 {
			return nil, false, nil
		}
		l.author = tokenize.NewMatcher(q)
		terms = append(terms, termsOf(q)...)
	}
	if l.thread != "" {
		x.threads, err = threadAliases(tx, l.query.Account, l.thread)
		if err != nil || len(x.threads) == 0 {
			return nil, false, err
		}
		var any []store.TextTerm
		for _, name := range x.threads {
			any = append(any, store.TextTerm{Word: threadWord(name)})
		}
		terms = append(terms, any)
	}
	few, err := x.findUnindexed()
	if err != nil {
		return nil, false, err
	}
	if !few { // the mail of an existing store is still being indexed
		x.unindexed = x.unindexed[:0]
		for at := range tx.Inbox(l.query) {
			if len(x.unindexed) > maxSearchExamined {
				break
			}
			x.unindexed = append(x.unindexed, at)
		}
		return x, true, nil
	}
	x.index, err = tx.SearchInbox(l.query, terms, maxIndexBytes)
	if err != nil {
		return nil, false, err
	}
	return x, true, x.advance()
}

func termsOf(q tokenize.Query) (terms [][]store.TextTerm) {
	for _, t := range q.Terms {
		terms = append(terms, []store.TextTerm{{Word: t.Text, Prefix: t.Prefix}})
	}
	return terms
}

// findUnindexed collects the messages that pass the filters and are not indexed yet. few is false
// if there are too many.
func (x *inboxSearch) findUnindexed() (few bool, err error) {
	q, scanned := &x.l.query, 0
	for m := range x.tx.UnindexedMessages(q.Account, q.Folders) {
		if scanned++; scanned > maxScanned {
			return false, nil
		}
		if q.Selects(&m) {
			x.unindexed = append(x.unindexed, positionOf(&m))
		}
	}
	sortNewestFirst(x.unindexed)
	return true, nil
}

// advance reads the next result from the index.
func (x *inboxSearch) advance() (err error) {
	x.result, _, x.hasResult, err = x.index.Next()
	return err
}

// next returns the newest message that has not been returned yet. indexed is false if it does not
// come from the index: then the caller must read the message to find out whether it matches.
func (x *inboxSearch) next() (at store.InboxPos, indexed, ok bool, err error) {
	if len(x.unindexed) > 0 && (!x.hasResult || comparePositions(x.unindexed[0], x.result) >= 0) {
		at, x.unindexed = x.unindexed[0], x.unindexed[1:]
		if x.hasResult && comparePositions(at, x.result) == 0 { // the index has an earlier message that had the same position
			if err := x.advance(); err != nil {
				return at, false, false, err
			}
		}
		if end, cut := x.indexStop(); cut && comparePositions(at, end) < 0 {
			x.unindexed = nil
			return end, false, false, nil
		}
		return at, false, true, nil
	}
	if !x.hasResult {
		return at, false, false, nil
	}
	at = x.result
	return at, true, true, x.advance()
}

// indexStop returns the position at which the search of the index stopped because of maxIndexBytes.
// stopped is false if it did not stop.
func (x *inboxSearch) indexStop() (at store.InboxPos, stopped bool) {
	if x.index == nil || x.hasResult {
		return store.InboxPos{}, false
	}
	return x.index.Cut()
}

// search fills the page with the results of a search.
func (l *inboxList) search(tx *store.Tx) error {
	x, mayMatch, err := l.newSearch(tx)
	if err != nil || !mayMatch {
		return err
	}
	c, shown := &l.builder, l.newView(tx)
	defer l.s.freeMessageView(shown)
	for {
		at, indexed, ok, err := x.next()
		if err != nil {
			return err
		}
		if !ok {
			return x.close()
		}
		if x.examined == maxSearchExamined || x.skipped == maxSkipped || x.bytesRead > maxSearchBytes {
			c.More = true
			return nil
		}
		m, ok, err := x.message(shown, at, indexed)
		if err != nil {
			return err
		}
		switch {
		case ok:
			if !c.Add(positionText(at), m, m.bytes()) {
				return nil
			}
		case len(c.Data) < c.Limit:
			c.Last = positionText(at)
		}
	}
}

// close completes the page after the last result. If the search of the index stopped early, the
// page gets a cursor.
func (x *inboxSearch) close() error {
	c := &x.l.builder
	if end, cut := x.indexStop(); cut {
		c.More = true
		if len(c.Data) < c.Limit {
			c.Last = positionText(end)
		}
	}
	return nil
}

// message returns the message at a position; ok is false if it does not match the search.
func (x *inboxSearch) message(shown *messageView, at store.InboxPos, indexed bool) (out InboxMessage, ok bool, err error) {
	if in, err := shown.inDomain(at.Num); !in || err != nil {
		x.skipped++
		return out, false, err
	}
	mailbox, folder := x.tx.FolderOfNum(at.Num)
	m, err := x.tx.Message(mailbox, folder, at.UID)
	if err != nil {
		return out, false, err
	}
	if !indexed || x.phrases || x.l.from != "" {
		x.examined++
	}
	if !indexed || x.phrases {
		ok, err = x.matchesStored(m, indexed)
		if err != nil || !ok {
			return out, false, err
		}
	}
	out, ok, err = shown.row(at.Num, m)
	return out, ok && x.matchesShown(&out) && (x.l.author == nil || x.l.author.Matches(out.From)), err
}

// matchesStored reads a message and reports whether it matches the search. If indexed is true, the
// index has compared its thread already. A message that cannot be read does not match.
func (x *inboxSearch) matchesStored(m *store.Message, indexed bool) (bool, error) {
	meta, err := x.tx.Meta(m.Mailbox, m.Folder, m.UID)
	if err != nil {
		return false, err
	}
	if !indexed && x.threads != nil && !slices.Contains(x.threads, meta.ThreadID) {
		return false, nil
	}
	if x.matcher == nil {
		return true, nil
	}
	root, err := msg.DecodePart(meta.Structure)
	if err == nil && x.matcher.Matches(msg.TextsOutsideBody(root)...) {
		return true, nil
	}
	var texts []string
	if err == nil {
		x.bytesRead += min(int64(m.Blob.Length), maxReadWhole)
		texts, err = x.l.s.searchTexts(m.Blob, root)
	}
	if err != nil {
		x.l.s.Log.Error("read a message for a search", "mailbox", m.Mailbox, "uid", m.UID, "error", err)
		return false, nil
	}
	return x.matcher.Matches(texts...), nil
}
