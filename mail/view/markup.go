package view

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/mail/visible"
	"golang.org/x/net/html"
)

// maxClasses is the maximum number of different style attributes in one document.
const maxClasses = 4000

// HTML returns a document with a message's HTML, which need not be sanitized.
func HTML(raw string, o Options) *Document {
	r := &renderer{o: o, sheet: readSheets(styleElements(raw)), classes: map[string]string{}}
	r.render(visible.StripHTML(raw))
	var styles []byte
	if len(r.sheet.out) > 0 {
		styles = append(append([]byte("@layer message{\n"), r.sheet.out...), "}\n"...)
	}
	d := page(o, r.out.Bytes(), r.body, append(styles, r.styles.Bytes()...), r.coloured || r.sheet.paints)
	d.Remote, d.Held, d.Trackers = r.remote, r.held, r.trackers
	return d
}

// styleElements returns the contents of the style elements that apply to screens.
func styleElements(raw string) []string {
	var out []string
	left := maxSheets
	z := html.NewTokenizer(strings.NewReader(raw))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return out
		case html.StartTagToken:
			name, more := z.TagName()
			if string(name) != "style" || !forScreens(z, more) || z.Next() != html.TextToken {
				continue
			}
			text := z.Raw()
			text = text[:min(left, len(text))]
			left -= len(text)
			out = append(out, string(text))
		}
	}
}

// forScreens reports whether the media attribute of a style element includes screens.
func forScreens(z *html.Tokenizer, more bool) bool {
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		if string(key) == "media" {
			m := strings.TrimSpace(strings.ToLower(string(value)))
			return m == "" || m == "all" || m == "screen"
		}
	}
	return true
}

// A renderer writes a message's HTML tag by tag. It writes only allowed elements and attributes
// with valid values, and closes every element within its parent.
type renderer struct {
	o     Options
	sheet *sheet

	out      bytes.Buffer
	open     []string
	link     *link  // the open link, or nil
	body     string // attributes of the body element
	coloured bool

	styles  bytes.Buffer
	classes map[string]string // class names by declarations

	images, remote, held, trackers int
}

func (r *renderer) render(safe string) {
	z := html.NewTokenizer(strings.NewReader(safe))
	for {
		switch z.Next() {
		case html.ErrorToken:
			r.close(0)
			return
		case html.TextToken:
			r.text(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			r.start(z.Token())
		case html.EndTagToken:
			name, _ := z.TagName()
			r.close(openAfterEnd(r.open, string(name)))
		}
	}
}

// output returns the buffer for content: that of the open link if there is one, else the output.
func (r *renderer) output() *bytes.Buffer {
	if r.link != nil {
		return &r.link.content
	}
	return &r.out
}

func (r *renderer) text(s string) {
	if r.link != nil {
		s = withoutDirection.Replace(s)
		r.link.addText(s)
	} else {
		s = withoutOverrides.Replace(s)
	}
	r.output().WriteString(html.EscapeString(s))
}

// close closes all open elements except the first stay ones.
func (r *renderer) close(stay int) {
	for i := len(r.open) - 1; i >= stay; i-- {
		name := r.open[i]
		if name == "a" {
			r.endLink()
		} else {
			r.output().WriteString("</" + name + ">")
		}
	}
	r.open = r.open[:stay]
}

func (r *renderer) start(t html.Token) {
	switch {
	case t.Data == "body":
		if r.body == "" {
			r.body = r.attributes(t, nil)
		}
		return
	case !elements[t.Data] || len(r.open) >= maxDepth && !void[t.Data]:
		return
	}
	r.close(openAfterStart(r.open, t.Data))
	switch t.Data {
	case "a":
		r.startLink(t)
		return
	case "img":
		r.image(t)
		return
	}
	r.output().WriteString("<" + t.Data + r.attributes(t, nil) + ">")
	if !void[t.Data] {
		r.open = append(r.open, t.Data)
	}
}

var (
	number   = lazyregexp.New(`^[0-9]{1,4}$`)
	size     = lazyregexp.New(`^[0-9]{1,4}(?:px)?$|^[0-9]{1,3}(?:\.[0-9]{1,4})?%$`)
	colour   = lazyregexp.New(`^#?[0-9a-zA-Z]{1,20}$`)
	face     = lazyregexp.New(`^[\p{L}\p{N} ,'_-]+$`) // no limit on the length here: compiled for these classes it would take megabytes
	fontSize = lazyregexp.New(`^[+-]?[0-9]$`)
	side     = lazyregexp.New(`^(?i:left|right|center|justify|top|middle|bottom|baseline)$`)
	dir      = lazyregexp.New(`^(?i:ltr|rtl|auto)$`)
	lang     = lazyregexp.New(`^[a-zA-Z0-9-]{1,20}$`)
	anyText  = lazyregexp.New(`^[^\x00]*$`)

	// anywhere are attributes allowed on every element, plain those allowed on certain elements. No
	// others are written, except those of links and images, and class.
	anywhere = map[string]func() *regexp.Regexp{"align": side, "valign": side, "dir": dir, "lang": lang, "title": anyText}
	boxes    = map[string]func() *regexp.Regexp{"width": size, "height": size, "bgcolor": colour, "border": number, "cellpadding": number, "cellspacing": number, "span": number}
	cellsOf  = map[string]func() *regexp.Regexp{"width": size, "height": size, "bgcolor": colour, "colspan": lazyregexp.New(`^[0-9]{1,2}$`), "rowspan": lazyregexp.New(`^[0-9]{1,3}$`)}
	plain    = map[string]map[string]func() *regexp.Regexp{
		"table": boxes, "tr": boxes, "thead": boxes, "tbody": boxes, "tfoot": boxes, "col": boxes, "colgroup": boxes, "td": cellsOf, "th": cellsOf,
		"hr":   {"width": size},
		"ol":   {"start": number},
		"body": {"bgcolor": colour},
		"font": {"color": colour, "face": face, "size": fontSize},
		"img":  {"width": size, "height": size, "border": number},
	}
)

// attributes returns the allowed attributes of a tag. class has a class for the style attribute,
// and the classes and ids that the message's style sheets use. more are additional classes of ours.
func (r *renderer) attributes(t html.Token, more []string) string {
	var out strings.Builder
	classes := more
	for _, a := range t.Attr {
		switch a.Key {
		case "class":
			for name := range strings.FieldsSeq(a.Val) {
				classes = r.addUsedClass(classes, classOf(name))
			}
		case "id":
			classes = r.addUsedClass(classes, idOf(strings.TrimSpace(a.Val)))
		case "style":
			if name := r.style(styleAttribute(a.Val)); name != "" {
				classes = append(classes, name)
			}
		default:
			r.attribute(&out, t.Data, a)
		}
	}
	if len(classes) > 0 {
		out.WriteString(` class="` + strings.Join(classes, " ") + `"`)
	}
	return out.String()
}

// maxAttribute is the longest value of an attribute, in characters.
const maxAttribute = 300

func (r *renderer) attribute(out *strings.Builder, element string, a html.Attribute) {
	form := plain[element][a.Key]
	if form == nil && (a.Key != "title" || element != "a") {
		form = anywhere[a.Key]
	}
	if form == nil || utf8.RuneCountInString(a.Val) > maxAttribute || !form().MatchString(a.Val) {
		return
	}
	r.coloured = r.coloured || a.Key == "bgcolor" || a.Key == "color"
	out.WriteString(" " + a.Key + `="` + html.EscapeString(withoutDirection.Replace(a.Val)) + `"`)
}

// addUsedClass appends a class if the message's style sheets use it.
func (r *renderer) addUsedClass(classes []string, name string) []string {
	if !r.sheet.names[name] || len(classes) > 20 {
		return classes
	}
	return append(classes, name)
}

// style returns the class for the declarations of a style attribute, and defines it if it is new.
// It returns "" without declarations, or if there are too many classes.
func (r *renderer) style(all []declaration) string {
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	for _, d := range all {
		out.WriteString(d.String() + ";")
		r.coloured = r.coloured || d.paints()
	}
	text := out.String()
	if name, ok := r.classes[text]; ok {
		return name
	}
	if len(r.classes) >= maxClasses {
		return ""
	}
	name := "s" + strconv.Itoa(len(r.classes))
	r.classes[text] = name
	r.styles.WriteString("." + name + "{" + text + "}\n")
	return name
}

// maxDepth is the maximum nesting of elements. The tags of deeper elements are removed. The limit
// of browsers is 512.
const maxDepth = 200

// elements are the allowed elements, including void ones.
var elements = set("a", "p", "br", "hr", "div", "span", "center", "font", "b", "strong", "i", "em", "u", "s", "strike",
	"del", "ins", "sub", "sup", "small", "big", "code", "pre", "tt", "kbd", "samp", "blockquote", "q", "cite",
	"address", "article", "section", "header", "footer", "main", "h1", "h2", "h3", "h4", "h5", "h6",
	"ul", "ol", "li", "dl", "dt", "dd", "figure", "figcaption", "img",
	"table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "td", "th")

var void = set("br", "hr", "img", "col")

// An ending says which open elements a start tag implicitly closes: the outermost element in ends
// that is inside the nearest element in within.
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

	// implied maps a start tag to the end tags that it implies, and that HTML therefore lets
	// authors omit (HTML Living Standard, 13.1.2.4).
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

	// fences are elements that an end tag inside them cannot close beyond, except end tags in
	// ofTable.
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

// openAfterStart returns the number of open elements that stay open when an element with the name
// starts.
func openAfterStart(open []string, name string) int {
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

// openAfterEnd returns the number of open elements that stay open after an end tag with the name:
// all if it closes none.
func openAfterEnd(open []string, name string) int {
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
