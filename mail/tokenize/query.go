package tokenize

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

const (
	maxTerms   = 32 // terms in a query; further ones are ignored
	maxPhrases = 8
)

// A Term is a word that a text must contain. If Prefix is set, the text must contain a word that
// begins with Text.
type Term struct {
	Text   string
	Prefix bool
}

// A Query matches a text that contains all Terms, and for each phrase its words one after the
// other. The words of the phrases are among the Terms.
type Query struct {
	Terms   []Term
	Phrases [][]string
}

// Parse parses a query. It consists of words that must all occur, in any order; the last one may be
// the beginning of a word. Text in quotation marks is a phrase. name@domain is an address, name@
// the beginning of an address, and @domain any address at the domain. A query without words has no
// Terms and matches nothing.
func Parse(text string) Query { return parse(text, true) }

// ParseWhole is like Parse, but the last word must be whole, too.
func ParseWhole(text string) Query { return parse(text, false) }

// parse parses a query. beginning says that the last word may be the beginning of a word.
func parse(text string, beginning bool) (q Query) {
	for i, piece := range strings.Split(StraightQuotes(text), `"`) {
		if i%2 == 1 {
			q.addPhrase(piece)
			continue
		}
		q.addWords(piece, beginning)
	}
	return q
}

// StraightQuotes replaces typographic quotation marks by straight ones.
func StraightQuotes(text string) string { return straightQuotes.Replace(text) }

var straightQuotes = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`, "«", `"`, "»", `"`)

// addWords adds the words of a text that is not in quotation marks. beginning says that the last
// word may be the beginning of a word.
func (q *Query) addWords(text string, beginning bool) {
	fields := strings.Fields(text)
	for i, field := range fields {
		last := beginning && i == len(fields)-1
		if strings.Contains(field, "@") && q.addAddress(field, last) {
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
			q.makePrefix(&q.Terms[len(q.Terms)-1])
		}
	}
}

// makePrefix makes the term a prefix. It does not do so for pairs of characters of a script without
// spaces, which are complete.
func (q *Query) makePrefix(t *Term) {
	r, _ := utf8.DecodeRuneInString(t.Text)
	t.Prefix = t.Prefix || !isSpaceless(r)
}

// addAddress adds an email address, the beginning of one, or "@" and a domain. It returns false if
// field is none of these.
func (q *Query) addAddress(field string, last bool) (isAddress bool) {
	field = strings.Trim(field, "<>(),;:")
	local, domain, _ := strings.Cut(field, "@")
	if strings.Contains(domain, "@") || local == "" && domain == "" || len(field) > MaxAddress {
		return false
	}
	text := string(AppendLower(nil, local)) + "@" + string(AppendLower(nil, strings.TrimRight(domain, ".-")))
	q.add(Term{text, last || domain == ""})
	return true
}

// addPhrase adds a phrase and its words.
func (q *Query) addPhrase(text string) {
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

// add adds a term, unless there are too many.
func (q *Query) add(t Term) {
	if len(q.Terms) == maxTerms {
		return
	}
	if isLoneCharacter(t.Text) {
		t.Prefix = true
		if n := len(q.Terms); n > 0 && strings.HasSuffix(q.Terms[n-1].Text, t.Text) {
			return // the previous term is a pair that ends in this character, so it is more specific
		}
	}
	q.Terms = append(q.Terms, t)
}

// isLoneCharacter reports whether a word is one character of a script without spaces. As a term, it
// matches the pairs that begin with it.
func isLoneCharacter(word string) bool {
	r, size := utf8.DecodeRuneInString(word)
	return isSpaceless(r) && len(word) == size
}

// A Matcher tells whether texts match a query. Only one goroutine may use it at a time.
type Matcher struct {
	q        Query
	splitter Splitter
	missing  []bool

	// For phrases: words has the words of all texts without gaps, ends the index in words at which
	// each word ends, and texts for each text the number of words up to its end.
	words []byte
	ends  []int
	texts []int
}

// NewMatcher returns a matcher for a query.
func NewMatcher(q Query) *Matcher { return &Matcher{q: q, missing: make([]bool, len(q.Terms))} }

// Matches reports whether the texts of one message match the query together. Each phrase must occur
// in one of the texts.
func (m *Matcher) Matches(texts ...string) bool {
	if len(m.q.Terms) == 0 {
		return false
	}
	for i := range m.missing {
		m.missing[i] = true
	}
	m.words, m.ends, m.texts = m.words[:0], m.ends[:0], m.texts[:0]
	for _, text := range texts {
		m.readText(text)
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

// readText records which terms the text contains. If the query has phrases, it also records the
// words.
func (m *Matcher) readText(text string) {
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

// word returns the word with index i among the words of all texts.
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
			if m.hasPhraseAt(i, phrase) {
				return true
			}
		}
		i = end
	}
	return false
}

// hasPhraseAt reports whether the phrase occurs at the word with index i. In a script without
// spaces, a phrase ends in a single character. That matches a pair that begins with it.
func (m *Matcher) hasPhraseAt(i int, phrase []string) bool {
	for n, word := range phrase {
		if has := m.word(i + n); string(has) != word && (!isLoneCharacter(word) || !bytes.HasPrefix(has, []byte(word))) {
			return false
		}
	}
	return true
}
