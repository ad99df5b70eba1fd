package inbox

import (
	"cmp"
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/store"
)

const (
	inboxScan     = 2000     // rows that one request looks at one by one. A page that this cuts short says where to go on
	inboxPass     = 2500     // rows of other domains that one request passes over
	foldersMerged = 500      // folders of an account whose lists are merged
	inboxMerged   = 100      // mailboxes of a domain whose lists are merged; where it has more, others are passed over
	searchLook    = 200      // messages that one search looks at one by one
	searchRead    = 16 << 20 // bytes of messages that one request reads
	searchCost    = 8 << 20  // bytes of the text index that one request reads, about
)

// threadWord is how the text index has a thread: words of texts hold no such character.
func threadWord(id string) string { return "\x01" + id }

// An inboxSearch finds the messages of an inboxList that have words, are of an author or of a
// thread: those in the text index there, and those that are not in it yet by reading them. The
// index does not know where in a message a word stands: whether it is the author's is seen in each
// that it finds.
type inboxSearch struct {
	l       *inboxList
	tx      *store.Tx
	matcher *tokenize.Matcher // nil: only the thread counts
	phrases bool
	threads []string // nil: any

	index   *store.InboxSearch // nil: nothing is looked up in it
	at      store.InboxPos     // what the index has found and was not taken yet
	found   bool
	waiting []store.InboxPos // not in the index, newest first; of the whole inbox if index is nil
	read    int64
	looked  int
	passed  int // messages of other domains
}

// newSearch begins the search; some is false if nothing can be found.
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
	if !few { // while an old store is indexed
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

// findWaiting gathers what is not in the index and passes the filters; few is false if that is too
// much.
func (x *inboxSearch) findWaiting() (few bool, err error) {
	q, scanned := &x.l.query, 0
	for m := range x.tx.TextWaiting(q.Account, q.Folders) {
		if scanned++; scanned > inboxScan {
			return false, nil
		}
		if q.Selects(&m) {
			x.waiting = append(x.waiting, placeOf(&m))
		}
	}
	newestFirst(x.waiting)
	return true, nil
}

func comparePlaces(a, b store.InboxPos) int {
	return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Num, b.Num))
}

// advance takes the next message from the index.
func (x *inboxSearch) advance() (err error) {
	x.at, _, x.found, err = x.index.Next()
	return err
}

// next gives the newest message that is left, and whether the index vouches for it.
func (x *inboxSearch) next() (at store.InboxPos, indexed, ok bool, err error) {
	if len(x.waiting) > 0 && (!x.found || comparePlaces(x.waiting[0], x.at) >= 0) {
		at, x.waiting = x.waiting[0], x.waiting[1:]
		if x.found && comparePlaces(at, x.at) == 0 { // it came to the place of one that was indexed
			if err := x.advance(); err != nil {
				return at, false, false, err
			}
		}
		if end, cut := x.end(); cut && comparePlaces(at, end) < 0 {
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

// end is where the index stopped although there may be more behind.
func (x *inboxSearch) end() (store.InboxPos, bool) {
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
		if x.looked == searchLook || x.passed == inboxPass || x.read > searchRead {
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

// close ends a page behind which nothing more was found.
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

// message gives a message if it is one that is searched for.
func (x *inboxSearch) message(shown *messageView, at store.InboxPos, indexed bool) (out InboxMessage, ok bool, err error) {
	if in, err := shown.covers(at.Num); !in || err != nil {
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
		ok, err = x.reads(m, indexed)
		if err != nil || !ok {
			return out, false, err
		}
	}
	out, ok, err = shown.row(at.Num, m)
	return out, ok && x.finds(&out) && (x.l.author == nil || x.l.author.Matches(out.From)), err
}

// reads tells from the message itself whether it is one. What cannot be read is none.
func (x *inboxSearch) reads(m *store.Message, indexed bool) (bool, error) {
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
		x.read += min(int64(m.Blob.Length), readWhole)
		texts, err = x.l.s.searchTexts(m.Blob, root)
	}
	if err != nil {
		x.l.s.Log.Error("read a message for a search", "mailbox", m.Mailbox, "uid", m.UID, "error", err)
		return false, nil
	}
	return x.matcher.Matches(texts...), nil
}
