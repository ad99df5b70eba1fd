package view

// maxDepth is how many elements lie in one another; the tags of deeper ones are left out. Browsers
// stop at 512.
const maxDepth = 200

// elements are what a document of a message may have, void ones included.
var elements = set("a", "p", "br", "hr", "div", "span", "center", "font", "b", "strong", "i", "em", "u", "s", "strike",
	"del", "ins", "sub", "sup", "small", "big", "code", "pre", "tt", "kbd", "samp", "blockquote", "q", "cite",
	"address", "article", "section", "header", "footer", "main", "h1", "h2", "h3", "h4", "h5", "h6",
	"ul", "ol", "li", "dl", "dt", "dd", "figure", "figcaption", "img",
	"table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "td", "th")

var void = set("br", "hr", "img", "col")

// An ending says which open elements a start tag ends, the outermost of them within the nearest of
// some others.
type ending struct {
	ends   map[string]bool
	within map[string]bool
}

var (
	cells  = set("td", "th", "caption", "table")
	ofRows = ending{set("tr", "td", "th", "caption", "colgroup"), set("table", "tbody", "thead", "tfoot")}
	groups = ending{set("thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup"), set("table")}
	items  = ending{set("li"), set("ul", "ol", "td", "th", "caption", "table")}
	terms  = ending{set("dt", "dd"), set("dl", "td", "th", "caption", "table")}
	blocks = ending{set("p"), cells}

	// implied are the end tags that HTML lets people leave out (HTML Living Standard, 13.1.2.4).
	implied = map[string]ending{
		"li": items, "dt": terms, "dd": terms, "tr": ofRows,
		"td":    {set("td", "th"), set("tr", "table")},
		"th":    {set("td", "th"), set("tr", "table")},
		"thead": groups, "tbody": groups, "tfoot": groups, "caption": groups, "colgroup": groups,
		"a": {set("a"), cells},
		"p": blocks, "div": blocks, "center": blocks, "hr": blocks, "pre": blocks, "blockquote": blocks, "address": blocks,
		"article": blocks, "section": blocks, "header": blocks, "footer": blocks, "main": blocks, "h1": blocks, "h2": blocks,
		"h3": blocks, "h4": blocks, "h5": blocks, "h6": blocks, "ul": blocks, "ol": blocks, "dl": blocks, "figure": blocks,
		"figcaption": blocks, "table": blocks,
	}

	// fences are the elements that no end tag from within reaches over, but those of tables.
	fences  = set("td", "th", "caption", "table")
	ofTable = set("table", "thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup")
)

func set(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// endedBy is how many elements of open stay open when an element of this name starts.
func endedBy(open []string, name string) int {
	stay := len(open)
	e, ok := implied[name]
	if !ok {
		return stay
	}
	for i := len(open) - 1; i >= 0 && !e.within[open[i]]; i-- {
		if e.ends[open[i]] {
			stay = i
		}
	}
	return stay
}

// ended is how many elements of open stay open when an end tag of this name comes; all, if there is
// none that it ends.
func ended(open []string, name string) int {
	for i := len(open) - 1; i >= 0; i-- {
		if open[i] == name {
			return i
		}
		if open[i] == "table" || fences[open[i]] && !ofTable[name] {
			return len(open)
		}
	}
	return len(open)
}
