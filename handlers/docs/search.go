package docs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/markup"
)

const (
	maxQuery   = 200 // characters of a query that count
	maxWords   = 8   // words of a query that count
	maxFound   = 30  // results of a search
	excerptLen = 200 // bytes of the text that a result shows
)

// The weights of the places in which a word is found.
const (
	inText = 1 << iota
	inTitle
	inID // in the anchor, which is the name of an operation or of an error
	inHeading
	isID // all words together are the anchor
)

// An index finds the sections of all pages by the beginnings of words.
type index struct {
	sections []indexed
	words    []string            // sorted
	places   map[string][]weight // by word
}

// An indexed section is a section with its page.
type indexed struct {
	section
	path  string // with the anchor
	title string // of the page
	about string // the text that counts as its title
}

// A weight says how much a word counts for a section.
type weight struct {
	section int // in index.sections
	weight  int
}

// makeIndex reads all pages.
func (s *Site) makeIndex() *index {
	x := &index{places: map[string][]weight{}}
	for _, g := range s.groups {
		for _, p := range g.pages {
			doc, source := s.parse(p)
			sections := sectionsOf(doc, source, g.name != referenceOf)
			for i, section := range sections {
				at := indexed{section, p.path, sections[0].heading, p.title + " " + p.summary}
				if i > 0 {
					at.path, at.about = at.path+"#"+section.id, at.title
				}
				x.add(at)
			}
		}
	}
	for word := range x.places {
		x.words = append(x.words, word)
	}
	slices.Sort(x.words)
	return x
}

// add adds a section.
func (x *index) add(one indexed) {
	weights := map[string]int{}
	for _, part := range []struct {
		text   string
		weight int
	}{{one.text, inText}, {one.about, inTitle}, {one.id, inID}, {one.heading, inHeading}} {
		for _, word := range wordsOf(part.text) {
			weights[word] = max(weights[word], part.weight)
		}
	}
	for word, n := range weights {
		x.places[word] = append(x.places[word], weight{len(x.sections), n})
	}
	x.sections = append(x.sections, one)
}

// wordsOf returns the words of a text in lower case.
func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// find returns the sections that have all words, or words that begin with them: those first in
// which the words stand at better places, and whole.
func (x *index) find(words []string) []indexed {
	total := map[int]int{} // by section
	for i, word := range words {
		best := map[int]int{}
		at, _ := slices.BinarySearch(x.words, word)
		for ; at < len(x.words) && strings.HasPrefix(x.words[at], word); at++ {
			for _, place := range x.places[x.words[at]] {
				n := 2 * place.weight
				if x.words[at] == word {
					n++
				}
				best[place.section] = max(best[place.section], n)
			}
		}
		for section, n := range best {
			if _, before := total[section]; before || i == 0 {
				best[section] = n + total[section]
			} else {
				delete(best, section)
			}
		}
		total = best
	}
	var found []int
	for section := range total {
		found = append(found, section)
		if slices.Equal(wordsOf(x.sections[section].id), words) {
			total[section] += isID * len(words)
		}
	}
	slices.SortFunc(found, func(a, b int) int { return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a, b)) })
	var out []indexed
	for _, section := range found[:min(len(found), maxFound)] {
		out = append(out, x.sections[section])
	}
	return out
}

// Search returns the page with what is found for a query. All words must occur, each as the
// beginning of a word.
func (s *Site) Search(query string) File {
	if runes := []rune(query); len(runes) > maxQuery {
		query = string(runes[:maxQuery])
	}
	query = strings.ToValidUTF8(query, "")
	words := wordsOf(query)
	words = words[:min(len(words), maxWords)]
	f := frame{title: "Search", query: query}
	if len(words) == 0 {
		f.main = "<h1>Search</h1>\n<p>Enter a word, such as the name of an operation, of a setting or of an error.</p>\n"
		return File{Type: "text/html; charset=utf-8", Body: s.frame(f)}
	}
	found := s.index().find(words)
	f.title = "Search: " + query
	count := fmt.Sprintf("%d results", len(found))
	switch len(found) {
	case 0:
		count = "No results"
	case 1:
		count = "1 result"
	case maxFound:
		count = fmt.Sprintf("The best %d results", maxFound)
	}
	f.main = markup.Format("<h1>Search</h1>\n"+`<p class="count">%s for <strong>%s</strong></p>`+"\n"+`<ol class="results">`+"\n", count, query)
	// The words consist of letters and digits, so nothing in them means something in an expression.
	mark := regexp.MustCompile(`(?i)(^|[^\pL\pN])(` + strings.Join(words, "|") + `)`)
	for _, one := range found {
		f.main += markup.Format(`<li><a href="%s"><strong>%s</strong> <span>%s</span></a><p>%s</p></li>`+"\n", one.path, one.heading, one.title, excerpt(one.text, mark))
	}
	f.main += "</ol>\n"
	if len(found) == 0 {
		f.main += "<p>Try fewer or other words, or choose a page from the contents.</p>\n"
	}
	return File{Type: "text/html; charset=utf-8", Body: s.frame(f)}
}

// excerpt returns the part of a text around the first word that is searched for, with all of them
// marked.
func excerpt(text string, mark *regexp.Regexp) (out markup.HTML) {
	text = strings.TrimSpace(text)
	from := 0
	if at := mark.FindStringIndex(text); at != nil && at[1] > excerptLen {
		from = max(0, at[0]-excerptLen/4)
		from += strings.IndexByte(text[from:at[0]], ' ') + 1 // to the beginning of a word
	}
	to := min(from+excerptLen, len(text))
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	before, after := "", ""
	if from > 0 {
		before = "…"
	}
	if to < len(text) {
		after = "…"
	}
	text = text[from:to]
	out = markup.Format("%s", before)
	last := 0
	for _, at := range mark.FindAllStringSubmatchIndex(text, -1) {
		out += markup.Format("%s<mark>%s</mark>", text[last:at[4]], text[at[4]:at[5]])
		last = at[5]
	}
	return out + markup.Format("%s%s", text[last:], after)
}
