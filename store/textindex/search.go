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

// A Term is a word that messages have, or, with Prefix, how a word of theirs begins.
type Term struct {
	Word   string
	Prefix bool
}

// textWords walks the words of a run in their order.
type textWords struct {
	prefix [12]byte
	c      *bolt.Cursor
	k, v   []byte
	block  postings.BlockReader
	err    error // of the block's row
	cost   int   // bytes read
}

// textWords begins at the block that has from, or the first word after it.
func wordsFrom(tx *mailindex.Tx, run *textRun, from []byte) *textWords {
	w := &textWords{prefix: run.key(), c: tx.Bucket(mailrow.BucketTextWord).Cursor()}
	w.k, w.v = w.c.Seek(append(w.prefix[:], from...))
	w.open()
	return w
}

// open begins the block that the cursor is at.
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

// Next moves to the next word; false behind the last.
func (w *textWords) Next() (bool, error) {
	for w.k != nil {
		if w.err != nil {
			return false, w.err
		}
		more, err := w.block.Next()
		if err != nil {
			return false, fmt.Errorf("block %x of the text index: %w", w.k, err)
		}
		if more {
			return true, nil
		}
		w.k, w.v = w.c.Next()
		w.open()
	}
	return false, nil
}

// Entry is the word that Next has moved to.
func (w *textWords) Entry() *postings.Entry { return w.block.Entry() }

// An Search walks the messages that an InboxQuery selects and that have words, newest first.
type Search struct {
	tx    *mailindex.Tx
	terms [][]Term
	walk  *mailindex.InboxWalk
	open  bool // walk has a message
	runs  []searchRun
	cost  int
	most  int
	cut   bool
	at    mailrow.InboxPos // of the inbox's messages the last that was looked at
}

// NewSearch begins a search in the text index for messages of q that have, for each list of
// terms, one of the list; q.Account is given always. It takes time for about cost bytes of the
// index. Messages that TextWaiting tells of are not found, or by the words of others that were in
// their places.
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

// Next gives the next message. Behind the last one, and where the search has cost what it may, ok
// is false.
func (s *Search) Next() (at mailrow.InboxPos, marks mailindex.Marks, ok bool, err error) {
	for s.open {
		if s.cost > s.most && s.at != (mailrow.InboxPos{}) {
			s.cut = true
			break
		}
		want := s.walk.Pos.Place()
		found, place, err := s.candidate(want)
		if err != nil || !found || s.cut {
			return mailrow.InboxPos{}, mailindex.Marks{}, false, err
		}
		s.at = s.walk.Pos
		if place == want {
			marks = s.walk.Marks
			s.open = s.walk.Next()
			return s.at, marks, true, nil
		}
		s.skipTo(place)
	}
	return mailrow.InboxPos{}, mailindex.Marks{}, false, nil
}

// Cut tells whether the search ended because it had cost what it may, and the place that is the
// Before of the query that goes on.
func (s *Search) Cut() (mailrow.InboxPos, bool) { return s.at, s.cut }

// skipTo moves the inbox to the newest message that is not newer than the place.
func (s *Search) skipTo(place textPlace) {
	moved := s.walk.Skip(append(place[:], 0)) // the place itself counts
	s.open = s.walk.Next()
	s.cost += 100 + 30*moved + len(s.walk.Heads) // what it takes, as bytes of the index
}

// candidate gives the newest message of all runs that has the words and is not newer than the
// place.
func (s *Search) candidate(most textPlace) (found bool, best textPlace, err error) {
	for i := range s.runs {
		r := &s.runs[i]
		s.cost += 10
		if r.done || found && bytes.Compare(best[:], r.newest[:]) >= 0 {
			continue
		}
		if bytes.Compare(r.oldest[:], most[:]) > 0 {
			r.done = true // and from now on, since places only get older
			continue
		}
		if r.set == nil {
			if s.cutBefore(r, most) {
				return found, best, nil
			}
			if err := s.evaluate(r); err != nil {
				return false, best, err
			}
		}
		if err := r.skip(s.tx, most); err != nil {
			return false, best, err
		}
		if !r.done && (!found || bytes.Compare(r.place[:], best[:]) > 0) {
			found, best = true, r.place
		}
	}
	return found, best, nil
}

// cutBefore ends the search, if it has cost what it may, before a run is looked at all of whose
// messages are older than the place: what is newer than they has been looked at.
func (s *Search) cutBefore(r *searchRun, most textPlace) bool {
	if s.cost <= s.most {
		return false
	}
	at := mailrow.ParsePlace(r.newest[:], 0)
	at.UID, at.Num = at.UID+1, 0 // what comes behind has the run's newest message
	if mailrow.ComparePos(at, mailrow.ParsePlace(most[:], 0)) > 0 {
		return false
	}
	s.cut = true
	if s.at == (mailrow.InboxPos{}) || mailrow.ComparePos(at, s.at) < 0 {
		s.at = at
	}
	return true
}

// A searchRun is a run and what a search has found in it.
type searchRun struct {
	textRun
	set    postings.Set // messages that have the words; nil: not looked up yet
	done   bool         // there are no more
	begun  bool
	number uint32
	place  textPlace // of number

	row   []byte // places from first on
	first int
	rows  map[int][]byte // places that were read, by the number of the first
}

// keptRows is how many rows of places are kept in a search, each of which has been verified.
const keptRows = 64

// evaluate looks up which messages of the run have the words.
func (s *Search) evaluate(r *searchRun) error {
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
		if isWord(list) {
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
	return nil
}

// isWord tells whether a list of terms is one whole word.
func isWord(list []Term) bool { return len(list) == 1 && !list[0].Prefix }

// findWords finds the words that all messages must have, the rarest first. A run that lacks one is
// done.
func (s *Search) findWords(r *searchRun) (found []postings.Entry, err error) {
	for _, list := range s.terms {
		if !isWord(list) {
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

// What reading the index costs besides its bytes, in bytes of it that take as long.
const (
	textSeekCost  = 500
	textEntryCost = 20
)

// seek moves to the first word that is not before the given one; false if there is none.
func (w *textWords) seek(word []byte) (bool, error) {
	for {
		more, err := w.Next()
		if err != nil || !more || bytes.Compare(w.Entry().Word, word) >= 0 {
			return more, err
		}
	}
}

// addTerm adds the messages of a run that have the term.
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

// skip moves to the newest message that is not newer than the place.
func (r *searchRun) skip(tx *mailindex.Tx, most textPlace) error {
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

// numberOf gives the number of the newest message that is not newer than the place.
func (r *searchRun) numberOf(tx *mailindex.Tx, most []byte) (n int, err error) {
	from := 0
	if r.begun {
		from = int(r.number)
	}
	// Most often it is the next one, or not far from here.
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

// placeOf gives the place of a message of the run.
func (r *searchRun) placeOf(tx *mailindex.Tx, number int) ([]byte, error) {
	if first := number - number%textPlaces; r.row == nil || first != r.first {
		row, ok := r.rows[first]
		if !ok {
			var err error
			row, err = textPlacesFrom(tx, &r.textRun, first)
			if err != nil {
				return nil, err
			}
			if len(r.rows) == keptRows {
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
