package visible

import (
	"regexp"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// SanitizeHTML returns HTML that is safe to show within the dashboard's pages: without scripts,
// forms, frames, event handlers, style sheets and anything else that loads or runs. Images stay if
// their URL is https: or cid:. Links stay if they are http, https or mailto, and get
// rel="noopener".
func SanitizeHTML(s string) string {
	if s == "" {
		return ""
	}
	return mailPolicy().Sanitize(s)
}

// StripHTML keeps the elements and attributes that SanitizeHTML keeps, and the element body. But it
// does not check the attributes style, class and id. It is for callers that check these themselves.
// The result must not be shown unchecked.
func StripHTML(s string) string {
	if s == "" {
		return ""
	}
	return bodyPolicy().Sanitize(s)
}

// Policies of the sanitizer. They are slow to build, so each is built at its first use.
var (
	mailPolicy = sync.OnceValue(func() *bluemonday.Policy {
		p := newPolicy()
		p.AllowStyles("color", "background-color", "font-family", "font-size", "font-style", "font-weight", "line-height",
			"text-align", "text-decoration", "vertical-align", "white-space", "width", "height", "max-width",
			"padding", "padding-top", "padding-right", "padding-bottom", "padding-left",
			"margin", "margin-top", "margin-right", "margin-bottom", "margin-left",
			"border", "border-top", "border-right", "border-bottom", "border-left", "border-radius", "border-collapse").
			Matching(styleValue()).Globally()
		return p
	})
	bodyPolicy = sync.OnceValue(func() *bluemonday.Policy {
		p := newPolicy()
		p.AllowElements("body")
		p.AllowAttrs("bgcolor").Matching(simpleValue()).OnElements("body")
		p.AllowAttrs("style", "class", "id").Globally()
		return p
	})
)

func newPolicy() *bluemonday.Policy { return policyWithImages(imageSource()) }

func policyWithImages(source *regexp.Regexp) *bluemonday.Policy {
	p := linkPolicy()
	p.AllowElements("font", "big")
	p.AllowAttrs("align", "valign", "dir", "lang", "title").Globally()
	p.AllowAttrs("width", "height", "bgcolor", "border", "cellpadding", "cellspacing").Matching(simpleValue()).
		OnElements("table", "tr", "td", "th", "col", "colgroup", "tbody", "thead", "tfoot", "hr", "img")
	p.AllowAttrs("colspan", "rowspan", "span", "start").Matching(bluemonday.Integer).OnElements("td", "th", "col", "colgroup", "ol")
	p.AllowAttrs("color", "face", "size").Matching(fontValue()).OnElements("font")
	p.AllowAttrs("src").Matching(source).OnElements("img")
	p.AllowAttrs("alt").OnElements("img")
	return p
}

// linkPolicy allows the elements of text and tables. It allows no attributes except the targets of
// links.
func linkPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "div", "span", "center", "b", "strong", "i", "em", "u", "s", "strike",
		"del", "ins", "sub", "sup", "small", "code", "pre", "tt", "kbd", "samp", "blockquote", "q", "cite",
		"address", "article", "section", "header", "footer", "main", "h1", "h2", "h3", "h4", "h5", "h6",
		"ul", "ol", "li", "dl", "dt", "dd", "figure", "figcaption",
		"table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "td", "th")
	p.AllowAttrs("href").Matching(linkTarget()).OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto", "cid")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	p.SkipElementsContent("title")
	return p
}

var (
	simpleValue = lazyregexp.New(`^#?[a-zA-Z0-9.]{1,20}%?$`)
	fontValue   = lazyregexp.New(`^[#+a-zA-Z0-9 ,'-]{1,80}$`)
	styleValue  = lazyregexp.New(`^(?:[#%.,'"a-zA-Z0-9 !-]|rgba?\([0-9., %]{1,40}\))+$`)
	linkTarget  = lazyregexp.New(`(?i)^(?:https?://|mailto:)`)
	imageSource = lazyregexp.New(`(?i)^(?:https://|cid:)`)
)

// HTMLText returns the text of HTML as plain text, with each block on a line of its own. It leaves
// out scripts, styles and the title.
func HTMLText(s string) string {
	return HTMLWords(s, len(s)+1)
}

// HTMLWords is like HTMLText, but stops after about limit bytes.
func HTMLWords(s string, limit int) string {
	z := html.NewTokenizer(strings.NewReader(s))
	var w textWriter
	hidden := ""
	for w.out.Len() < limit {
		switch z.Next() {
		case html.ErrorToken:
			return strings.TrimSpace(w.out.String())
		case html.TextToken:
			if hidden == "" {
				w.writeText(string(z.Text()))
			}
		case html.StartTagToken:
			name, _ := z.TagName()
			if tag := string(name); hidden == "" && hiddenTags[tag] {
				hidden = tag
			}
			w.startBlock(blockTags[string(name)])
		case html.EndTagToken:
			name, _ := z.TagName()
			if string(name) == hidden || string(name) == "head" {
				hidden = ""
			}
			w.startBlock(blockTags[string(name)])
		case html.SelfClosingTagToken:
			name, _ := z.TagName()
			w.startBlock(blockTags[string(name)])
		}
	}
	return strings.TrimSpace(w.out.String())
}

var hiddenTags = map[string]bool{"script": true, "style": true, "title": true, "template": true}

// blockTags has the number of line ends before and after an element; -1 means a space.
var blockTags = map[string]int{"br": 1, "p": 2, "div": 1, "tr": 1, "li": 1, "ul": 1, "ol": 1, "table": 1, "blockquote": 1, "hr": 1,
	"h1": 2, "h2": 2, "h3": 2, "h4": 2, "h5": 2, "h6": 2, "pre": 1, "section": 1, "article": 1, "header": 1, "footer": 1, "td": -1, "th": -1}

// textWriter writes text in which white space is collapsed as in HTML.
type textWriter struct {
	out   strings.Builder
	lines int // line ends that precede the next word
	space bool
}

func (w *textWriter) writeText(s string) {
	if s == "" {
		return
	}
	w.space = w.space || isBlank(s[0])
	for word := range strings.FieldsSeq(s) {
		switch {
		case w.out.Len() == 0:
		case w.lines > 0:
			w.out.WriteString("\n\n"[:w.lines])
		case w.space:
			w.out.WriteByte(' ')
		}
		w.out.WriteString(word)
		w.lines, w.space = 0, true
	}
	w.space = isBlank(s[len(s)-1])
}

func (w *textWriter) startBlock(lines int) {
	if lines < 0 {
		w.space = true
		return
	}
	w.lines = max(w.lines, lines)
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
