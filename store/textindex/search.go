package textindex

import (
	"bytes"
	"fmt"
	"sort"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/postings"
)

// A Term matches messages that have the word or, if Prefix is set, a word that begins with it.
type Term struct {
	Word   string
	Prefix bool
}

// textWords iterates over the words of a run in byte order.
type textWords struct {
	prefix [12]byte
	c      *bolt.Cursor
	k, v   []byte
	block  postings.BlockReader
	err    error // error of opening the current block
	cost   int   // bytes read
}

// wordsFrom returns an iterator over the words of a run. It begins in the block that has the word
// `from` or, if no block has it, the first word after it. nil means the first block.
func wordsFrom(tx *mailindex.Tx, run *textRun, from []byte) *textWords {
	w := &textWords{prefix: run.key(), c: tx.Bucket(mailrow.BucketTextWord).Cursor()}
	w.k, w.v = w.c.Seek(append(w.prefix[:], from...))
	w.open()
	return w
}

// open opens the block at the cursor.
func (w *textWords) open() {
	if !bytes.HasPrefix(w.k, w.prefix[:]) {
		w.k = nil
		w.block.Reset(nil)
		return
	}
	var words []byte
	words, w.err = openWords(w.k, w.v)
	w.block.Reset(words)
	w.cost += len(w.v)
}

// Next moves to the next word; false after the last.
func (w *textWords) Next() (bool, error) {
	for w.k != nil {
		if w.err != nil {
			return false, w.err
		}
		more, err := w.block.Next()
		if err != nil {
			return false, fmt.Errorf("read block %x of the text index: %w", w.k, err)
		}
		if more {
			return true, nil
		}
		w.k, w.v = w.c.Next()
		w.open()
	}
	return false, nil
}

// Entry returns the current word with its messages. It is valid until Next.
func (w *textWords) Entry() *postings.Entry { return w.block.Entry() }

// A Search iterates over the messages that an InboxQuery selects and that match words, newest
// first.
type Search struct {
	// Without has lists of terms: the search leaves out messages that match all terms of a list.
	// Set it before the first call of Next.
	Without [][]Term
	// Watched has lists of terms, too: WatchedMatch reports whether the message that Next has
	// returned matches all terms of a list. Set it before the first call of Next.
	Watched [][]Term

	tx    *mailindex.Tx
	terms [][]Term // each list must match; a list matches if one of its terms does
	walk  *mailindex.InboxWalk
	open  bool // walk is at a message
	runs  []searchRun
	cost  int              // what the search has cost, in bytes of the index read
	most  int              // limit of cost
	cut   bool             // the search has stopped at the limit
	at    mailrow.InboxPos // the last list position examined

	watchedMatch bool
}

// NewSearch returns a search for messages of q that match, for each list in terms, at least one
// term of the list. q.Account is required. The search stops once it has cost about as much time as
// reading `cost` bytes of the index. Messages that UnindexedMessages yields are not in the index
// yet: the search does not find them, or finds them by the words of an earlier message that had the
// same place.
func NewSearch(tx *mailindex.Tx, q mailindex.InboxQuery, terms [][]Term, cost int) (*Search, error) {
	runs, err := textRuns(tx, q.Account)
	if err != nil {
		return nil, err
	}
	s := &Search{tx: tx, walk: mailindex.WalkInbox(tx, q), most: cost, terms: terms}
	s.open = s.walk.Next()
	for _, r := range runs {
		if r.state == textReady {
			s.runs = append(s.runs, searchRun{textRun: r})
		}
	}
	sort.Slice(s.runs, func(i, j int) bool { return bytes.Compare(s.runs[j].newest[:], s.runs[i].newest[:]) < 0 })
	return s, nil
}

// Next returns the next message. ok is false after the last one, and when the limit of cost is
// reached.
func (s *Search) Next() (at mailrow.InboxPos, marks mailindex.Marks, ok bool, err error) {
	for s.open {
		if s.cost > s.most && s.at != (mailrow.InboxPos{}) {
			s.cut = true
			break
		}
		want := s.walk.Pos.Place()
		found, place, err := s.newestMatch(want)
		if err != nil || found == nil || s.cut {
			return mailrow.InboxPos{}, mailindex.Marks{}, false, err
		}
		s.at = s.walk.Pos
		if place == want {
			s.watchedMatch = found.watched != nil && found.watched.Has(found.number)
			marks = s.walk.Marks
			s.open = s.walk.Next()
			return s.at, marks, true, nil
		}
		s.skipTo(place)
	}
	return mailrow.InboxPos{}, mailindex.Marks{}, false, nil
}

// WatchedMatch reports whether the message that Next returned last matches a list of Watched.
func (s *Search) WatchedMatch() bool { return s.watchedMatch }

// Spend adds to the cost of the search what the caller reads because of it: the time of reading so
// many bytes of the index.
func (s *Search) Spend(bytes int) { s.cost += bytes }

// Cut reports whether the search stopped at the limit of cost. If so, a search with `before` as
// InboxQuery.Before continues it.
func (s *Search) Cut() (before mailrow.InboxPos, cut bool) { return s.at, s.cut }

// skipTo moves the list to the newest message at or before the place.
func (s *Search) skipTo(place textPlace) {
	moved := s.walk.Skip(append(place[:], 0)) // the extra byte includes the place itself
	s.open = s.walk.Next()
	s.cost += 100 + 30*moved + len(s.walk.Heads) // estimated time, in bytes of the index
}

// newestMatch returns the place of the newest message in all runs that matches and is not newer
// than the place `most`, and the run that has it; nil if there is none.
func (s *Search) newestMatch(most textPlace) (found *searchRun, best textPlace, err error) {
	for i := range s.runs {
		r := &s.runs[i]
		s.cost += 10
		if r.done || found != nil && bytes.Compare(best[:], r.newest[:]) >= 0 {
			continue
		}
		if bytes.Compare(r.oldest[:], most[:]) > 0 {
			r.done = true // the places asked for only get older
			continue
		}
		if r.set == nil {
			if s.cutBefore(r, most) {
				return found, best, nil
			}
			if err := s.findMatches(r); err != nil {
				return nil, best, err
			}
		}
		if err := r.skipTo(s.tx, most); err != nil {
			return nil, best, err
		}
		if !r.done && (found == nil || bytes.Compare(r.place[:], best[:]) > 0) {
			found, best = r, r.place
		}
	}
	return found, best, nil
}

// cutBefore reports whether the search ends before the run r: the limit of cost is reached, and all
// messages of r are older than the place `most`. The search has then examined all messages that are
// newer than those of r. cutBefore records the position at which a further search continues.
func (s *Search) cutBefore(r *searchRun, most textPlace) bool {
	if s.cost <= s.most {
		return false
	}
	at := mailrow.ParsePlace(r.newest[:], 0)
	at.UID, at.Num = at.UID+1, 0 // just above the run's newest message
	if mailrow.ComparePos(at, mailrow.ParsePlace(most[:], 0)) > 0 {
		return false
	}
	s.cut = true
	if s.at == (mailrow.InboxPos{}) || mailrow.ComparePos(at, s.at) < 0 {
		s.at = at
	}
	return true
}

// A searchRun is a run and the matches that a search has found in it.
type searchRun struct {
	textRun
	set     postings.Set // numbers of the matching messages; nil: not evaluated yet
	watched postings.Set // numbers of the messages that match a list of Search.Watched; nil: there are none
	done    bool         // there are no more matches
	begun   bool         // number and place are set
	// number of the current match
	number uint32
	place  textPlace // place of the current match

	row   []byte // row of places, beginning with that of message number `first`
	first int
	rows  map[int][]byte // cache of rows of places, by the number of the first
}

// maxCachedRows is how many rows of places a searchRun caches. They were verified when read.
const maxCachedRows = 64

// findMatches finds the messages of the run that match all terms.
func (s *Search) findMatches(r *searchRun) error {
	r.set = postings.NewSet(r.docs)
	words, err := s.findWords(r)
	if err != nil || r.done {
		return err
	}
	r.set.Fill(r.docs)
	some := postings.NewSet(r.docs)
	for _, e := range words {
		clear(some)
		if err := e.AddTo(some, r.docs); err != nil {
			return err
		}
		s.cost += 8 * len(some)
		if r.set.Intersect(some); r.set.Empty() {
			r.done = true
			return nil
		}
	}
	for _, list := range s.terms {
		if isSingleWord(list) {
			continue
		}
		clear(some)
		for _, term := range list {
			cost, err := addTerm(s.tx, &r.textRun, term, some)
			s.cost += cost
			if err != nil {
				return err
			}
		}
		if r.set.Intersect(some); r.set.Empty() {
			r.done = true
			return nil
		}
	}
	without, err := s.matchesOfAny(r, s.Without)
	if err != nil {
		return err
	}
	if without != nil {
		r.set.Subtract(without)
		r.done = r.set.Empty()
	}
	r.watched, err = s.matchesOfAny(r, s.Watched)
	return err
}

// matchesOfAny returns the messages of a run that match all terms of one of the lists; nil if there
// are no lists.
func (s *Search) matchesOfAny(r *searchRun, lists [][]Term) (found postings.Set, err error) {
	if len(lists) == 0 {
		return nil, nil
	}
	found = postings.NewSet(r.docs)
	all, some := postings.NewSet(r.docs), postings.NewSet(r.docs)
	s.cost += 8 * len(found)
	for _, list := range lists {
		if len(list) == 1 {
			cost, err := addTerm(s.tx, &r.textRun, list[0], found)
			s.cost += cost
			if err != nil {
				return nil, err
			}
			continue
		}
		all.Fill(r.docs)
		for _, term := range list {
			clear(some)
			cost, err := addTerm(s.tx, &r.textRun, term, some)
			s.cost += cost + 8*len(some)
			if err != nil {
				return nil, err
			}
			all.Intersect(some)
		}
		found.Union(all)
	}
	return found, nil
}

// isSingleWord reports whether a list of terms is one whole word.
func isSingleWord(list []Term) bool { return len(list) == 1 && !list[0].Prefix }

// findWords finds the words that all messages must have, the rarest first. If the run lacks one,
// the run is done.
func (s *Search) findWords(r *searchRun) (found []postings.Entry, err error) {
	for _, list := range s.terms {
		if !isSingleWord(list) {
			continue
		}
		word := []byte(list[0].Word)
		w := wordsFrom(s.tx, &r.textRun, word)
		more, err := w.seek(word)
		s.cost += w.cost + textSeekCost
		if err != nil {
			return nil, err
		}
		if e := w.Entry(); !more || !bytes.Equal(e.Word, word) {
			r.done = true
			return nil, nil
		}
		found = append(found, *w.Entry())
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Size() < found[j].Size() })
	return found, nil
}

// What an index access costs besides the bytes that it reads, as the number of bytes that take as
// long to read.
const (
	textSeekCost  = 500
	textEntryCost = 20
)

// seek moves to the first word at or after the given one; false if there is none.
func (w *textWords) seek(word []byte) (bool, error) {
	for {
		more, err := w.Next()
		if err != nil || !more || bytes.Compare(w.Entry().Word, word) >= 0 {
			return more, err
		}
	}
}

// addTerm adds to the set the messages of a run that match the term.
func addTerm(tx *mailindex.Tx, r *textRun, term Term, to postings.Set) (cost int, err error) {
	word := []byte(term.Word)
	w := wordsFrom(tx, r, word)
	w.cost += textSeekCost
	more, err := w.seek(word)
	for err == nil && more {
		e := w.Entry()
		if !bytes.Equal(e.Word, word) && !(term.Prefix && bytes.HasPrefix(e.Word, word)) {
			break
		}
		if err := e.AddTo(to, r.docs); err != nil {
			return w.cost, err
		}
		w.cost += textEntryCost
		more, err = w.Next()
	}
	return w.cost, err
}

// skipTo moves to the newest match that is not newer than the place `most`.
func (r *searchRun) skipTo(tx *mailindex.Tx, most textPlace) error {
	if r.done || r.begun && bytes.Compare(r.place[:], most[:]) <= 0 {
		return nil
	}
	n, err := r.numberOf(tx, most[:])
	if err != nil {
		return err
	}
	number, ok := r.set.From(uint32(n))
	if !ok {
		r.done = true
		return nil
	}
	place, err := r.placeOf(tx, int(number))
	if err != nil {
		return err
	}
	r.begun, r.number, r.place = true, number, textPlace(place)
	return nil
}

// numberOf returns the number of the newest message that is not newer than the place; r.docs if
// there is none.
func (r *searchRun) numberOf(tx *mailindex.Tx, most []byte) (n int, err error) {
	from := 0
	if r.begun {
		from = int(r.number)
	}
	// The message is usually the next one, or nearby.
	ahead, end := 1, r.docs
	for r.begun && from+ahead < r.docs {
		place, err := r.placeOf(tx, from+ahead)
		if err != nil {
			return 0, err
		}
		if bytes.Compare(place, most) <= 0 {
			end = from + ahead
			break
		}
		from, ahead = from+ahead+1, 2*ahead
	}
	n = from + sort.Search(end-from, func(i int) bool {
		place, e := r.placeOf(tx, from+i)
		if e != nil {
			err = e
			return true
		}
		return bytes.Compare(place, most) <= 0
	})
	return n, err
}

// placeOf returns the place of the message with the number.
func (r *searchRun) placeOf(tx *mailindex.Tx, number int) ([]byte, error) {
	if first := number - number%placesPerRow; r.row == nil || first != r.first {
		row, ok := r.rows[first]
		if !ok {
			var err error
			row, err = textPlacesFrom(tx, &r.textRun, first)
			if err != nil {
				return nil, err
			}
			if len(r.rows) == maxCachedRows {
				clear(r.rows)
			}
			if r.rows == nil {
				r.rows = map[int][]byte{}
			}
			r.rows[first] = row
		}
		r.row, r.first = row, first
	}
	at := (number - r.first) * mailrow.PlaceSize
	return r.row[at : at+mailrow.PlaceSize], nil
}
