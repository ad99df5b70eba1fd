package inbox

import (
	"iter"
	"slices"
	"sort"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/query"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/service/inbox/indexer"
	"github.com/mailstead/mailstead/store"
)

const (
	maxScanned         = 2000     // rows that one request examines; at this limit the page ends, and its cursor continues the list
	maxSkipped         = 2500     // rows of other domains that one request skips; then the page ends, too
	maxMergedFolders   = 500      // folders that a list of an account can merge
	maxMergedMailboxes = 100      // mailboxes that a list of a domain merges; if there are more, the list skips the rows of other domains
	maxSearchExamined  = 200      // messages that one search reads because the index does not suffice
	maxSearchBytes     = 16 << 20 // bytes of messages that one search reads
	maxIndexBytes      = 8 << 20  // bytes of the index that one search reads, approximately
)

// What a search reads of a message besides the text index, as the number of bytes of the index that
// take as long to read.
const (
	listEntryCost = 100  // its entry in the list
	messageCost   = 600  // its row
	metaCost      = 4000 // its Meta, with the header
)

// An inboxSearch finds the messages of an inboxList that match a query, or belong to a given
// thread. It decides by the list's entry and by the message's row what these contain. It finds
// words by the text index, and reads the messages that are not indexed yet. The index does not
// record in which part of a message a word occurs, so the fields of each found message are compared
// separately. A search without words walks through the list.
type inboxSearch struct {
	l       *inboxList
	tx      *store.Tx
	match   *query.Matcher
	threads []string // IDs of the thread; nil: any thread

	byList    bool               // no words and no thread are searched for, so the search walks through the list
	index     *store.InboxSearch // nil if byList is true, or too many messages are not indexed yet: then only unindexed is searched
	result    candidate          // the next result of the index, if hasResult is true
	hasResult bool
	unindexed []candidate // messages that are not in the index, newest first; if index and byList are not set: the newest messages of the list
	bytesRead int64
	examined  int // messages that were read because the index does not suffice, at most maxSearchExamined
	skipped   int // messages of other domains that were skipped, at most maxSkipped
	cost      int // what a search without an index has cost, in bytes of the index
}

// A candidate is a message that may match a search.
type candidate struct {
	at      store.InboxPos
	marks   store.Marks
	indexed bool // the index has found it, or nothing is searched for that the index has
	watched bool // it has all words of something that the query excludes
}

// newSearch starts a search. mayMatch is false if no message can match.
func (l *inboxList) newSearch(tx *store.Tx) (x *inboxSearch, mayMatch bool, err error) {
	q := l.search
	x = &inboxSearch{l: l, tx: tx, match: q.NewMatcher()}
	var terms [][]store.TextTerm
	for _, t := range q.Terms() {
		terms = append(terms, []store.TextTerm{{Word: t.Text, Prefix: t.Prefix}})
	}
	if l.thread != "" {
		x.threads, err = threadAliases(tx, l.query.Account, l.thread)
		if err != nil || len(x.threads) == 0 {
			return nil, false, err
		}
		var any []store.TextTerm
		for _, name := range x.threads {
			any = append(any, store.TextTerm{Word: indexer.ThreadWord(name)})
		}
		terms = append(terms, any)
	}
	x.byList = len(terms) == 0 && len(q.Without) == 0
	if x.byList {
		return x, true, nil
	}
	few := x.findUnindexed()
	if !few { // the mail of an existing store is still being indexed
		x.unindexed = x.unindexed[:0]
		for at, marks := range tx.Inbox(l.query) {
			if len(x.unindexed) > maxSearchExamined {
				break
			}
			x.unindexed = append(x.unindexed, candidate{at: at, marks: marks})
		}
		return x, true, nil
	}
	x.index, err = tx.SearchInbox(l.query, terms, maxIndexBytes)
	if err != nil {
		return nil, false, err
	}
	for _, w := range q.Without {
		// The index decides alone, unless it does not know whether the words follow one another, or
		// whether the reader may see the texts that have them.
		if len(w.Phrases) == 0 && l.shownSources == nil {
			x.index.Without = append(x.index.Without, termsOf(w))
		} else {
			x.index.Watched = append(x.index.Watched, termsOf(w))
		}
	}
	return x, true, x.advance()
}

func termsOf(q tokenize.Query) (terms []store.TextTerm) {
	for _, t := range q.Terms {
		terms = append(terms, store.TextTerm{Word: t.Text, Prefix: t.Prefix})
	}
	return terms
}

// findUnindexed collects the messages that pass the filters and are not indexed yet. few is false
// if there are too many.
func (x *inboxSearch) findUnindexed() (few bool) {
	q, scanned := &x.l.query, 0
	for m := range x.tx.UnindexedMessages(q.Account, q.Folders) {
		if scanned++; scanned > maxScanned {
			return false
		}
		if q.Selects(&m) {
			x.unindexed = append(x.unindexed, candidate{at: positionOf(&m), marks: store.Marks{Flags: m.Flags, Bits: m.Bits}})
		}
	}
	sort.Slice(x.unindexed, func(i, j int) bool { return comparePositions(x.unindexed[j].at, x.unindexed[i].at) < 0 })
	return true
}

// advance reads the next result from the index.
func (x *inboxSearch) advance() (err error) {
	x.result.at, x.result.marks, x.hasResult, err = x.index.Next()
	x.result.indexed, x.result.watched = true, x.index.WatchedMatch()
	return err
}

// spend adds to the cost of the search.
func (x *inboxSearch) spend(bytes int) {
	if x.index != nil {
		x.index.Spend(bytes)
		return
	}
	x.cost += bytes
}

// candidates yields the messages that may match, newest first.
func (x *inboxSearch) candidates() iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		if x.byList {
			for at, marks := range x.tx.Inbox(x.l.query) {
				x.spend(listEntryCost)
				if !yield(candidate{at: at, marks: marks, indexed: true}, nil) {
					return
				}
			}
			return
		}
		for {
			c, ok, err := x.next()
			if !ok && err == nil || !yield(c, err) {
				return
			}
		}
	}
}

// next returns the newest message of the index and of unindexed that has not been returned yet.
func (x *inboxSearch) next() (c candidate, ok bool, err error) {
	if len(x.unindexed) > 0 && (!x.hasResult || comparePositions(x.unindexed[0].at, x.result.at) >= 0) {
		c, x.unindexed = x.unindexed[0], x.unindexed[1:]
		if x.hasResult && comparePositions(c.at, x.result.at) == 0 { // the index has an earlier message that had the same position
			if err := x.advance(); err != nil {
				return c, false, err
			}
		}
		if end, cut := x.indexStop(); cut && comparePositions(c.at, end) < 0 {
			x.unindexed = nil
			return c, false, nil
		}
		return c, true, nil
	}
	if !x.hasResult {
		return c, false, nil
	}
	c = x.result
	return c, true, x.advance()
}

// indexStop returns the position at which the search of the index stopped because of maxIndexBytes.
// stopped is false if it did not stop.
func (x *inboxSearch) indexStop() (at store.InboxPos, stopped bool) {
	if x.index == nil || x.hasResult {
		return store.InboxPos{}, false
	}
	return x.index.Cut()
}

// fillFromSearch fills the page with the results of a search.
func (l *inboxList) fillFromSearch(tx *store.Tx) error {
	x, mayMatch, err := l.newSearch(tx)
	if err != nil || !mayMatch {
		return err
	}
	p, shown := &l.builder, l.newView(tx)
	defer l.s.freeMessageView(shown)
	for c, err := range x.candidates() {
		if err != nil {
			return err
		}
		if x.examined == maxSearchExamined || x.skipped == maxSkipped || x.bytesRead > maxSearchBytes || x.cost > maxIndexBytes {
			p.More = true
			return nil
		}
		m, ok, err := x.message(shown, c)
		if err != nil {
			return err
		}
		switch {
		case ok:
			if !p.Add(positionText(c.at), m, m.bytes()) {
				return nil
			}
		case len(p.Data) < p.Limit:
			p.Last = positionText(c.at)
		}
	}
	if end, cut := x.indexStop(); cut {
		p.More = true
		if len(p.Data) < p.Limit {
			p.Last = positionText(end)
		}
	}
	return nil
}

// message returns the message of a candidate; ok is false if it does not match the search. It reads
// as little as decides.
func (x *inboxSearch) message(shown *messageView, c candidate) (out InboxMessage, ok bool, err error) {
	if in, err := shown.inDomain(c.at.Num); !in || err != nil {
		x.skipped++
		return out, false, err
	}
	q := x.l.search
	if q.Answered != nil && *q.Answered != (c.marks.Flags&store.FlagAnswered != 0) {
		return out, false, nil
	}
	mailbox, folder := x.tx.FolderOfNum(c.at.Num)
	m, err := x.tx.Message(mailbox, folder, c.at.UID)
	x.spend(messageCost)
	if err != nil || !q.MatchesSize(int64(m.Blob.Length)) {
		return out, false, err
	}
	out, ok, err = shown.row(c.at.Num, m)
	x.spend(metaCost)
	if err != nil || !ok || !x.match.MatchesHeader(&query.Header{From: out.From, To: out.To, Cc: out.CC, Subject: out.Subject}) ||
		!c.indexed && x.threads != nil && !slices.Contains(x.threads, shown.meta.ThreadID) {
		return out, false, err
	}
	if out.Withheld && !x.matchesShown(&out) {
		return out, false, nil
	}
	words := len(q.Words.Terms) > 0 && (!c.indexed || len(q.Words.Phrases) > 0)
	excluded := len(q.Without) > 0 && (!c.indexed || c.watched) && !out.Withheld
	if words || excluded {
		x.examined++
		ok = x.matchesStored(m, &shown.meta, excluded)
	}
	return out, ok, nil
}

// matchesStored reads a message and reports whether its texts have the searched words and, if
// excluded is true, nothing that the query excludes. A message that cannot be read does not match.
func (x *inboxSearch) matchesStored(m *store.Message, meta *store.Meta, excluded bool) bool {
	root, err := msg.DecodePart(meta.Structure)
	if err == nil && !excluded && x.match.HasWords(msg.TextsOutsideBody(root)...) {
		return true
	}
	var texts []string
	if err == nil {
		x.bytesRead += min(int64(m.Blob.Length), indexer.MaxReadWhole)
		texts, err = indexer.Texts(x.l.s.Store, m.Blob, root)
	}
	if err != nil {
		x.l.s.Log.Error("read a message for a search", "mailbox", m.Mailbox, "uid", m.UID, "error", err)
		return false
	}
	return x.match.HasWords(texts...) && !(excluded && x.match.HasExcluded(texts...))
}
