package tokenize

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const (
	maxTerms   = 32 // of a query; what is over does not narrow it
	maxPhrases = 8
)

// A Term is a word that a text must have, or, with Prefix, that a word of the text must begin with.
type Term struct {
	Text   string
	Prefix bool
}

// A Query is what a text is searched for: all of Terms, and the words of each phrase one after the
// other. The words of phrases are among Terms.
type Query struct {
	Terms   []Term
	Phrases [][]string
}

// Parse reads a query: words, all of which must be there, in any order; the last may be the
// beginning of a word. Between quotation marks stand phrases. name@domain is an address, name@ the
// beginning of one and @domain everybody there. A query without any word matches nothing: its Terms
// are empty.
func Parse(text string) Query {
	var q Query
	for i, piece := range strings.Split(straightQuotes.Replace(text), `"`) {
		if i%2 == 1 {
			q.phrase(piece)
			continue
		}
		q.words(piece)
	}
	return q
}

// straightQuotes makes one kind of quotation marks of those that people's keyboards and pages have.
var straightQuotes = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`, "«", `"`, "»", `"`)

// words adds what stands outside of quotation marks. Its last word may be the beginning of one.
func (q *Query) words(text string) {
	fields := strings.Fields(text)
	for i, field := range fields {
		last := i == len(fields)-1
		if strings.Contains(field, "@") && q.address(field, last) {
			continue
		}
		var s Splitter
		n := len(q.Terms)
		s.Split(field, func(word []byte, whole bool) {
			if !whole {
				q.add(Term{Text: string(word)})
			}
		})
		if last && len(q.Terms) > n {
			q.open(&q.Terms[len(q.Terms)-1])
		}
	}
}

// open lets a term be the beginning of a word. Pairs are whole.
func (q *Query) open(t *Term) {
	r, _ := utf8.DecodeRuneInString(t.Text)
	t.Prefix = t.Prefix || !dense(r)
}

// address adds an address, its beginning, or a domain.
func (q *Query) address(field string, last bool) bool {
	field = strings.Trim(field, "<>(),;:")
	local, domain, _ := strings.Cut(field, "@")
	if strings.Contains(domain, "@") || local == "" && domain == "" || len(field) > MaxAddress {
		return false
	}
	text := string(AppendLower(nil, local)) + "@" + string(AppendLower(nil, strings.TrimRight(domain, ".-")))
	q.add(Term{text, last || domain == ""})
	return true
}

func (q *Query) phrase(text string) {
	var s Splitter
	var phrase []string
	s.Split(text, func(word []byte, whole bool) {
		if whole || len(phrase) == maxTerms {
			return
		}
		phrase = append(phrase, string(word))
		q.add(Term{Text: string(word)})
	})
	if len(phrase) > 1 && len(q.Phrases) < maxPhrases {
		q.Phrases = append(q.Phrases, phrase)
	}
}

func (q *Query) add(t Term) {
	if len(q.Terms) == maxTerms {
		return
	}
	if alone(t.Text) {
		t.Prefix = true
		if n := len(q.Terms); n > 0 && strings.HasSuffix(q.Terms[n-1].Text, t.Text) {
			return // the pair before it says more
		}
	}
	q.Terms = append(q.Terms, t)
}

// alone reports whether a word is one character of a script without spaces, with which pairs begin
// in texts.
func alone(word string) bool {
	r, size := utf8.DecodeRuneInString(word)
	return dense(r) && len(word) == size
}

// A Matcher tells of one text after the other whether it answers a query. It is for one goroutine.
type Matcher struct {
	q        Query
	splitter Splitter
	missing  []bool

	// For phrases: the words of all texts, one behind the other, where each ends, and after how
	// many words each text does.
	words []byte
	ends  []int
	texts []int
}

// NewMatcher makes a matcher of a query.
func NewMatcher(q Query) *Matcher { return &Matcher{q: q, missing: make([]bool, len(q.Terms))} }

// Matches reports whether the texts of one message answer the query together; each phrase must
// stand in one of them.
func (m *Matcher) Matches(texts ...string) bool {
	if len(m.q.Terms) == 0 {
		return false
	}
	for i := range m.missing {
		m.missing[i] = true
	}
	m.words, m.ends, m.texts = m.words[:0], m.ends[:0], m.texts[:0]
	for _, text := range texts {
		m.read(text)
	}
	for _, missing := range m.missing {
		if missing {
			return false
		}
	}
	for _, phrase := range m.q.Phrases {
		if !m.hasPhrase(phrase) {
			return false
		}
	}
	return true
}

func (m *Matcher) read(text string) {
	m.splitter.Split(text, func(word []byte, whole bool) {
		for i, t := range m.q.Terms {
			if m.missing[i] && (string(word) == t.Text || t.Prefix && bytes.HasPrefix(word, []byte(t.Text))) {
				m.missing[i] = false
			}
		}
		if !whole && len(m.q.Phrases) > 0 {
			m.words = append(m.words, word...)
			m.ends = append(m.ends, len(m.words))
		}
	})
	m.texts = append(m.texts, len(m.ends))
}

// word gives the i-th word of all texts.
func (m *Matcher) word(i int) []byte {
	if i == 0 {
		return m.words[:m.ends[0]]
	}
	return m.words[m.ends[i-1]:m.ends[i]]
}

func (m *Matcher) hasPhrase(phrase []string) bool {
	i := 0
	for _, end := range m.texts {
		for ; i+len(phrase) <= end; i++ {
			if m.phraseAt(i, phrase) {
				return true
			}
		}
		i = end
	}
	return false
}

// phraseAt compares the words from the i-th on. The last character of a phrase in a script without
// spaces stands alone there, and begins a pair in the text.
func (m *Matcher) phraseAt(i int, phrase []string) bool {
	for n, word := range phrase {
		if has := m.word(i + n); string(has) != word && (!alone(word) || !bytes.HasPrefix(has, []byte(word))) {
			return false
		}
	}
	return true
}
