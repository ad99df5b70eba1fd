package inbox

import (
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/store"
)

const (
	maxScanned    = 2000     // rows that one request examines one by one; a page that ends at this limit has a cursor to continue from
	maxSkipped    = 2500     // rows of other domains that one request skips
	foldersMerged = 500      // folders of an account that one list merges
	inboxMerged   = 100      // mailboxes of a domain that one list merges; for more, the list skips rows of other domains
	searchLook    = 200      // messages that one search examines one by one
	searchRead    = 16 << 20 // bytes of messages that one request reads
	searchCost    = 8 << 20  // bytes of the text index that one request reads, approximately
)

// An inboxSearch finds the messages of an inboxList that contain words, are by an author, or belong
// to a thread. It looks up indexed messages in the text index and reads the others. The index does
// not record where in a message a word occurs, so that an author is checked in each message found.
type inboxSearch struct {
	l       *inboxList
	tx      *store.Tx
	matcher *tokenize.Matcher // nil: the search has no words
	phrases bool
	threads []string // nil: any

	index   *store.InboxSearch // nil: the search does not use the index
	at      store.InboxPos     // the next result of the index, valid if found is true
	found   bool
	waiting []store.InboxPos // messages not in the index, newest first; of the whole inbox if index is nil
	read    int64
	looked  int
	passed  int // messages of other domains that were skipped
}

// newSearch begins the search; some is false if it cannot find anything.
func (l *inboxList) newSearch(tx *store.Tx) (x *inboxSearch, some bool, err error) {
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
		x.threads, err = threadNames(tx, l.query.Account, l.thread)
		if err != nil || len(x.threads) == 0 {
			return nil, false, err
		}
		var any []store.TextTerm
		for _, name := range x.threads {
			any = append(any, store.TextTerm{Word: threadWord(name)})
		}
		terms = append(terms, any)
	}
	few, err := x.findWaiting()
	if err != nil {
		return nil, false, err
	}
	if !few { // while the mail of an existing store is being indexed
		x.waiting = x.waiting[:0]
		for at := range tx.Inbox(l.query) {
			if len(x.waiting) > searchLook {
				break
			}
			x.waiting = append(x.waiting, at)
		}
		return x, true, nil
	}
	x.index, err = tx.SearchInbox(l.query, terms, searchCost)
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

// findWaiting collects the messages that are not indexed yet and pass the filters; few is false if
// there are too many.
func (x *inboxSearch) findWaiting() (few bool, err error) {
	q, scanned := &x.l.query, 0
	for m := range x.tx.TextWaiting(q.Account, q.Folders) {
		if scanned++; scanned > maxScanned {
			return false, nil
		}
		if q.Selects(&m) {
			x.waiting = append(x.waiting, positionOf(&m))
		}
	}
	newestFirst(x.waiting)
	return true, nil
}

// advance reads the next result of the index.
func (x *inboxSearch) advance() (err error) {
	x.at, _, x.found, err = x.index.Next()
	return err
}

// next returns the newest remaining message; indexed is false if the index did not find it, so that
// the message must be read.
func (x *inboxSearch) next() (at store.InboxPos, indexed, ok bool, err error) {
	if len(x.waiting) > 0 && (!x.found || comparePositions(x.waiting[0], x.at) >= 0) {
		at, x.waiting = x.waiting[0], x.waiting[1:]
		if x.found && comparePositions(at, x.at) == 0 { // its place was reused: the index has the earlier message
			if err := x.advance(); err != nil {
				return at, false, false, err
			}
		}
		if end, cut := x.end(); cut && comparePositions(at, end) < 0 {
			x.waiting = nil
			return end, false, false, nil
		}
		return at, false, true, nil
	}
	if !x.found {
		return at, false, false, nil
	}
	at = x.at
	return at, true, true, x.advance()
}

// end returns where the index stopped at its cost limit; cut is false if it did not.
func (x *inboxSearch) end() (at store.InboxPos, cut bool) {
	if x.index == nil || x.found {
		return store.InboxPos{}, false
	}
	return x.index.Cut()
}

// search fills the page.
func (l *inboxList) search(tx *store.Tx) error {
	x, some, err := l.newSearch(tx)
	if err != nil || !some {
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
		if x.looked == searchLook || x.passed == maxSkipped || x.read > searchRead {
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

// close ends a page that reached the end of the results. If the index stopped early, the page gets
// a cursor.
func (x *inboxSearch) close() error {
	c := &x.l.builder
	if end, cut := x.end(); cut {
		c.More = true
		if len(c.Data) < c.Limit {
			c.Last = positionText(end)
		}
	}
	return nil
}

// message returns a message if it matches the search.
func (x *inboxSearch) message(shown *messageView, at store.InboxPos, indexed bool) (out InboxMessage, ok bool, err error) {
	if in, err := shown.inDomain(at.Num); !in || err != nil {
		x.passed++
		return out, false, err
	}
	mailbox, folder := x.tx.FolderOfNum(at.Num)
	m, err := x.tx.Message(mailbox, folder, at.UID)
	if err != nil {
		return out, false, err
	}
	if !indexed || x.phrases || x.l.from != "" {
		x.looked++
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

// matchesStored reports whether a message matches, by reading it. A message that cannot be read
// does not match.
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
	if err == nil && x.matcher.Matches(msg.HeadTexts(root)...) {
		return true, nil
	}
	var texts []string
	if err == nil {
		x.read += min(int64(m.Blob.Length), maxReadWhole)
		texts, err = x.l.s.searchTexts(m.Blob, root)
	}
	if err != nil {
		x.l.s.Log.Error("read a message for a search", "mailbox", m.Mailbox, "uid", m.UID, "error", err)
		return false, nil
	}
	return x.matcher.Matches(texts...), nil
}
