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

// HTML returns a document that shows the HTML of a message. raw need not be sanitized.
func HTML(raw string, o Options) *Document {
	r := &renderer{o: o, sheet: readSheets(styleElements(raw)), classes: map[string]string{}}
	r.render(visible.StripHTML(raw))
	var styles []byte
	if len(r.sheet.out) > 0 {
		styles = append(append([]byte("@layer message{\n"), r.sheet.out...), "}\n"...)
	}
	d := newDocument(o, r.out.Bytes(), r.body, append(styles, r.styles.Bytes()...), r.coloured || r.sheet.setsColour)
	d.Remote, d.Held, d.Trackers = r.remote, r.held, r.trackers
	return d
}

// styleElements returns the content of all style elements that apply to screens.
func styleElements(raw string) []string {
	var out []string
	left := maxSheets
	z := html.NewTokenizer(strings.NewReader(raw))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return out
		case html.StartTagToken:
			name, hasAttributes := z.TagName()
			if string(name) != "style" || !forScreens(z, hasAttributes) || z.Next() != html.TextToken {
				continue
			}
			text := z.Raw()
			text = text[:min(left, len(text))]
			left -= len(text)
			out = append(out, string(text))
		}
	}
}

// forScreens reports whether a style element applies to screens, by its media attribute.
func forScreens(z *html.Tokenizer, hasAttributes bool) bool {
	for hasAttributes {
		var key, value []byte
		key, value, hasAttributes = z.TagAttr()
		if string(key) == "media" {
			m := strings.TrimSpace(strings.ToLower(string(value)))
			return m == "" || m == "all" || m == "screen"
		}
	}
	return true
}

// A renderer writes the HTML of a message again, tag by tag. It writes only allowed elements and
// attributes with valid values, and closes every element inside its parent.
type renderer struct {
	o     Options
	sheet *sheet

	out      bytes.Buffer
	open     []string
	link     *link  // the open link, or nil
	body     string // the attributes of the body element
	coloured bool

	styles  bytes.Buffer
	classes map[string]string // the class name for each list of declarations

	images, remote, held, trackers int
}

// render writes the tags and texts of safe, which is sanitized HTML.
func (r *renderer) render(safe string) {
	z := html.NewTokenizer(strings.NewReader(safe))
	for {
		switch z.Next() {
		case html.ErrorToken:
			r.closeElements(0)
			return
		case html.TextToken:
			r.writeText(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			r.startElement(z.Token())
		case html.EndTagToken:
			name, _ := z.TagName()
			r.closeElements(openAfterEnd(r.open, string(name)))
		}
	}
}

// output returns the buffer to write to: that of the open link, or that of the document if no link
// is open.
func (r *renderer) output() *bytes.Buffer {
	if r.link != nil {
		return &r.link.content
	}
	return &r.out
}

func (r *renderer) writeText(s string) {
	if r.link != nil {
		s = withoutDirection.Replace(s)
		r.link.addText(s)
	} else {
		s = withoutOverrides.Replace(s)
	}
	r.output().WriteString(html.EscapeString(s))
}

// closeElements closes open elements until only the first kept ones are open.
func (r *renderer) closeElements(kept int) {
	for i := len(r.open) - 1; i >= kept; i-- {
		name := r.open[i]
		if name == "a" {
			r.endLink()
		} else {
			r.output().WriteString("</" + name + ">")
		}
	}
	r.open = r.open[:kept]
}

func (r *renderer) startElement(t html.Token) {
	switch {
	case t.Data == "body":
		if r.body == "" {
			r.body = r.attributes(t, nil)
		}
		return
	case !elements[t.Data] || len(r.open) >= maxDepth && !voidElements[t.Data]:
		return
	}
	r.closeElements(openAfterStart(r.open, t.Data))
	switch t.Data {
	case "a":
		r.startLink(t)
		return
	case "img":
		r.writeImage(t)
		return
	}
	r.output().WriteString("<" + t.Data + r.attributes(t, nil) + ">")
	if !voidElements[t.Data] {
		r.open = append(r.open, t.Data)
	}
}

var (
	numberValue = lazyregexp.New(`^[0-9]{1,4}$`)
	sizeValue   = lazyregexp.New(`^[0-9]{1,4}(?:px)?$|^[0-9]{1,3}(?:\.[0-9]{1,4})?%$`)
	colourValue = lazyregexp.New(`^#?[0-9a-zA-Z]{1,20}$`)
	fontFace    = lazyregexp.New(`^[\p{L}\p{N} ,'_-]+$`) // without a length limit, which would take megabytes once compiled for these classes
	fontSize    = lazyregexp.New(`^[+-]?[0-9]$`)
	alignment   = lazyregexp.New(`^(?i:left|right|center|justify|top|middle|bottom|baseline)$`)
	dirValue    = lazyregexp.New(`^(?i:ltr|rtl|auto)$`)
	langValue   = lazyregexp.New(`^[a-zA-Z0-9-]{1,20}$`)
	anyText     = lazyregexp.New(`^[^\x00]*$`)

	// The attributes that are written, with their valid values: globalAttributes on every element,
	// plain on certain elements. Links, images and the class attribute are written separately.
	globalAttributes  = map[string]func() *regexp.Regexp{"align": alignment, "valign": alignment, "dir": dirValue, "lang": langValue, "title": anyText}
	tableAttributes   = map[string]func() *regexp.Regexp{"width": sizeValue, "height": sizeValue, "bgcolor": colourValue, "border": numberValue, "cellpadding": numberValue, "cellspacing": numberValue, "span": numberValue}
	cellAttributes    = map[string]func() *regexp.Regexp{"width": sizeValue, "height": sizeValue, "bgcolor": colourValue, "colspan": lazyregexp.New(`^[0-9]{1,2}$`), "rowspan": lazyregexp.New(`^[0-9]{1,3}$`)}
	elementAttributes = map[string]map[string]func() *regexp.Regexp{
		"table": tableAttributes, "tr": tableAttributes, "thead": tableAttributes, "tbody": tableAttributes, "tfoot": tableAttributes, "col": tableAttributes, "colgroup": tableAttributes, "td": cellAttributes, "th": cellAttributes,
		"hr":   {"width": sizeValue},
		"ol":   {"start": numberValue},
		"body": {"bgcolor": colourValue},
		"font": {"color": colourValue, "face": fontFace, "size": fontSize},
		"img":  {"width": sizeValue, "height": sizeValue, "border": numberValue},
	}
)

// attributes returns the allowed attributes of a tag. The class attribute among them has a class
// for the style attribute, those classes and ids that the message's style sheets use, and the
// classes in more.
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
			if name := r.styleClass(parseStyleAttribute(a.Val)); name != "" {
				classes = append(classes, name)
			}
		default:
			r.writeAttribute(&out, t.Data, a)
		}
	}
	if len(classes) > 0 {
		out.WriteString(` class="` + strings.Join(classes, " ") + `"`)
	}
	return out.String()
}

// maxAttribute is the maximum length of the value of an attribute, in characters.
const maxAttribute = 300

// writeAttribute writes an attribute if it is allowed for the element and has a valid value.
func (r *renderer) writeAttribute(out *strings.Builder, element string, a html.Attribute) {
	form := elementAttributes[element][a.Key]
	if form == nil && (a.Key != "title" || element != "a") {
		form = globalAttributes[a.Key]
	}
	if form == nil || utf8.RuneCountInString(a.Val) > maxAttribute || !form().MatchString(a.Val) {
		return
	}
	r.coloured = r.coloured || a.Key == "bgcolor" || a.Key == "color"
	out.WriteString(" " + a.Key + `="` + html.EscapeString(withoutDirection.Replace(a.Val)) + `"`)
}

// addUsedClass appends a class if the style sheets of the message use it.
func (r *renderer) addUsedClass(classes []string, name string) []string {
	if !r.sheet.names[name] || len(classes) > 20 {
		return classes
	}
	return append(classes, name)
}

// styleClass returns the class for the declarations of a style attribute, and defines the class if
// it is new. It returns "" if there are no declarations or too many classes.
func (r *renderer) styleClass(all []declaration) string {
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	for _, d := range all {
		out.WriteString(d.String() + ";")
		r.coloured = r.coloured || d.setsColour()
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

// maxDepth is the maximum nesting of elements; browsers allow 512. The tags of deeper elements are
// removed.
const maxDepth = 200

// elements are the allowed elements, including those that have no content (voidElements).
var elements = setOf("a", "p", "br", "hr", "div", "span", "center", "font", "b", "strong", "i", "em", "u", "s", "strike",
	"del", "ins", "sub", "sup", "small", "big", "code", "pre", "tt", "kbd", "samp", "blockquote", "q", "cite",
	"address", "article", "section", "header", "footer", "main", "h1", "h2", "h3", "h4", "h5", "h6",
	"ul", "ol", "li", "dl", "dt", "dd", "figure", "figcaption", "img",
	"table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "td", "th")

// voidElements are the elements that have no content and no end tag.
var voidElements = setOf("br", "hr", "img", "col")

// An impliedEnding says which open elements a start tag closes without an end tag. The start tag
// closes the outermost open element that is in ends, but only inside of the nearest element that is
// in within.
type impliedEnding struct {
	ends   map[string]bool
	within map[string]bool
}

var (
	cellElements    = setOf("td", "th", "caption", "table")
	rowEnding       = impliedEnding{setOf("tr", "td", "th", "caption", "colgroup"), setOf("table", "tbody", "thead", "tfoot")}
	rowGroupEnding  = impliedEnding{setOf("thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup"), setOf("table")}
	itemEnding      = impliedEnding{setOf("li"), setOf("ul", "ol", "td", "th", "caption", "table")}
	termEnding      = impliedEnding{setOf("dt", "dd"), setOf("dl", "td", "th", "caption", "table")}
	paragraphEnding = impliedEnding{setOf("p"), cellElements}

	// impliedEndings has, for a start tag, the end tags that it implies and that HTML lets authors
	// omit (HTML Living Standard, 13.1.2.4).
	impliedEndings = map[string]impliedEnding{
		"li": itemEnding, "dt": termEnding, "dd": termEnding, "tr": rowEnding,
		"td":    {setOf("td", "th"), setOf("tr", "table")},
		"th":    {setOf("td", "th"), setOf("tr", "table")},
		"thead": rowGroupEnding, "tbody": rowGroupEnding, "tfoot": rowGroupEnding, "caption": rowGroupEnding, "colgroup": rowGroupEnding,
		"a": {setOf("a"), cellElements},
		"p": paragraphEnding, "div": paragraphEnding, "center": paragraphEnding, "hr": paragraphEnding, "pre": paragraphEnding, "blockquote": paragraphEnding, "address": paragraphEnding,
		"article": paragraphEnding, "section": paragraphEnding, "header": paragraphEnding, "footer": paragraphEnding, "main": paragraphEnding, "h1": paragraphEnding, "h2": paragraphEnding,
		"h3": paragraphEnding, "h4": paragraphEnding, "h5": paragraphEnding, "h6": paragraphEnding, "ul": paragraphEnding, "ol": paragraphEnding, "dl": paragraphEnding, "figure": paragraphEnding,
		"figcaption": paragraphEnding, "table": paragraphEnding,
	}

	// scopeElements confine end tags: an end tag inside such an element closes nothing outside of
	// it, unless the tag is in tableElements. A table confines those too.
	scopeElements = setOf("td", "th", "caption", "table")
	tableElements = setOf("table", "thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup")
)

func setOf(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// openAfterStart returns how many of the open elements stay open when an element with the name
// begins.
func openAfterStart(open []string, name string) int {
	kept := len(open)
	e, ok := impliedEndings[name]
	if !ok {
		return kept
	}
	for i := len(open) - 1; i >= 0 && !e.within[open[i]]; i-- {
		if e.ends[open[i]] {
			kept = i
		}
	}
	return kept
}

// openAfterEnd returns how many of the open elements stay open after an end tag with the name. It
// returns their number if the tag closes none.
func openAfterEnd(open []string, name string) int {
	for i := len(open) - 1; i >= 0; i-- {
		if open[i] == name {
			return i
		}
		if open[i] == "table" || scopeElements[open[i]] && !tableElements[name] {
			return len(open)
		}
	}
	return len(open)
}
