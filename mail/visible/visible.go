// Package visible extracts the visible content of a text or HTML, and makes HTML from others safe
// to show. Which elements and attributes stay is in sanitize.go. The dashboard shows documents that
// package view makes, which keeps some more (see its markup.go). Package visible does not know
// messages.
package visible

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// IsInvisible reports whether r has no width or changes the reading direction. Such characters are
// ignorable in display (Default_Ignorable_Code_Point) or format characters.
func IsInvisible(r rune) bool {
	if r < 0xad || r >= 0x4e00 && r < 0xd800 { // fast path for most texts
		return false
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// isBlankRune reports whether r is shown as blank space.
func isBlankRune(r rune) bool {
	const brailleBlank = '\u2800'
	return r == brailleBlank || unicode.IsSpace(r)
}

// Limits on blank space, since more could move text out of sight.
const (
	maxBlanks     = 80 // blanks in a row
	maxEmptyLines = 2  // empty lines in a row
)

// Line returns a text as one line, without invisible and control characters, and with one blank for
// each run of white space.
func Line(s string) string {
	return strings.Join(strings.FieldsFunc(WithoutInvisible(s), func(r rune) bool { return isBlankRune(r) || IsControl(r) }), " ")
}

// WithoutInvisible returns s without invisible characters (see IsInvisible).
func WithoutInvisible(s string) string {
	return strings.Map(func(r rune) rune {
		if IsInvisible(r) {
			return -1
		}
		return r
	}, s)
}

// MarkInvisible replaces each invisible or control character by its code, such as [U+200B]. Line
// ends become LF and stay, like tabs.
func MarkInvisible(s string) string {
	var out strings.Builder
	for _, r := range strings.ToValidUTF8(lineEnds.Replace(s), "\ufffd") {
		if IsInvisible(r) || IsControl(r) && r != '\n' && r != '\t' {
			fmt.Fprintf(&out, "[U+%04X]", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// Text returns a text without invisible and control characters and without blanks at line ends. It
// shortens long runs of blanks and of empty lines, which would move the text after them out of
// sight. Lines end in LF.
func Text(s string) string {
	var out strings.Builder
	empty := maxEmptyLines // so that there are no empty lines at the start
	for line := range strings.SplitSeq(lineEnds.Replace(s), "\n") {
		line = cleanBlanks(line)
		if line != "-- " { // keep the start of a signature (RFC 3676 section 4.3)
			line = strings.TrimRight(line, " \t")
		}
		if line != "" {
			empty = 0
		} else if empty++; empty > maxEmptyLines {
			continue
		}
		out.WriteString(line)
		out.WriteByte('\n')
	}
	text := strings.TrimRight(out.String(), "\n")
	if text == "" {
		return ""
	}
	return text + "\n"
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// cleanBlanks removes invisible and control characters, and shortens runs of blanks. It keeps
// line ends and tabs.
func cleanBlanks(s string) string {
	run := 0
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			run = 0
			return r
		case IsInvisible(r):
			return -1
		case !isBlankRune(r):
			run = 0
			if IsControl(r) {
				return -1
			}
			return r
		}
		if run++; run > maxBlanks {
			return -1
		}
		if r == '\t' || r == '\u00a0' {
			return r
		}
		return ' '
	}, s)
}

// HTML returns HTML in which all text is visible: the result of SanitizeHTML without hidden
// elements, comments, images, styles, colours, sizes, and attributes that hold text. After each
// link, its target is shown. All styling is removed, so text cannot be hidden in a way that this
// package does not know.
func HTML(s string) string {
	if s == "" {
		return ""
	}
	return showLinks(visiblePolicy().Sanitize(visibleMarkup(s)))
}

var (
	alignment = lazyregexp.New(`(?i)^(?:left|right|center|justify|top|middle|bottom|baseline)$`)
	direction = lazyregexp.New(`(?i)^(?:ltr|rtl|auto)$`)
	smallInt  = lazyregexp.New(`^[0-9]{1,3}$`)

	visiblePolicy = sync.OnceValue(func() *bluemonday.Policy {
		p := linkPolicy()
		p.AllowAttrs("align", "valign").Matching(alignment()).Globally()
		p.AllowAttrs("dir").Matching(direction()).Globally()
		p.AllowAttrs("colspan", "rowspan").Matching(smallInt()).OnElements("td", "th")
		p.AllowAttrs("start").Matching(smallInt()).OnElements("ol")
		return p
	})
)

// invisibleElements are elements whose content browsers do not show, or do not show as text.
var invisibleElements = wordSet("title", "script", "style", "template", "noscript", "noframes", "noembed", "iframe", "frameset", "object", "embed",
	"applet", "textarea", "select", "datalist", "svg", "math", "canvas", "audio", "video", "xmp", "plaintext", "dialog", "rp")

// voidElements are the elements that have no content and no end tag.
var voidElements = wordSet("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr", "frame")

// shrinkingElements make the font smaller. Nested, they could make it too small to read.
var shrinkingElements = wordSet("sub", "sup", "small", "h5", "h6")

// An implicitEnd holds the tags that close an element without its end tag, because HTML lets
// authors omit it (HTML Living Standard, 13.1.2.4).
type implicitEnd struct{ starts, ends map[string]bool }

var (
	blockStarts = wordSet("p", "div", "table", "ul", "ol", "dl", "blockquote", "pre", "hr", "section", "article", "header", "footer", "main", "center",
		"address", "figure", "h1", "h2", "h3", "h4", "h5", "h6")
	cellEnd      = implicitEnd{wordSet("td", "th", "tr"), wordSet("tr", "table", "tbody", "thead", "tfoot")}
	termEnd      = implicitEnd{wordSet("dt", "dd"), wordSet("dl")}
	implicitEnds = map[string]implicitEnd{
		"p":  {blockStarts, wordSet("div", "td", "th", "li", "blockquote", "section", "article", "header", "footer", "main", "center", "body")},
		"li": {wordSet("li"), wordSet("ul", "ol")},
		"td": cellEnd,
		"th": cellEnd,
		"tr": {wordSet("tr"), wordSet("table", "tbody", "thead", "tfoot")},
		"dt": termEnd,
		"dd": termEnd,
	}
)

// visibleMarkup removes comments, invisible elements with their content, and invisible characters.
// It must not take an invisible element to end later than browsers do, since it would then remove
// visible text.
func visibleMarkup(s string) string {
	z := html.NewTokenizer(strings.NewReader(s))
	var out strings.Builder
	unseen, depth := "", 0 // unseen: the open invisible element; depth: the number of open elements with its name
	small := ""            // the shrinking element that is open
	breaks := 0            // breaks in a row, without text between them
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return out.String()
		}
		t := z.Token()
		starts := kind == html.StartTagToken || kind == html.SelfClosingTagToken
		if end := implicitEnds[unseen]; unseen != "" && depth == 1 && (starts && end.starts[t.Data] || kind == html.EndTagToken && end.ends[t.Data]) {
			unseen, depth = "", 0
		}
		switch {
		case unseen != "":
			if t.Data != unseen {
				break
			}
			if starts && !voidElements[unseen] {
				depth++
			} else if kind == html.EndTagToken {
				depth--
			}
			if depth == 0 {
				unseen = ""
			}
		case kind == html.TextToken:
			text := cleanBlanks(lineEnds.Replace(t.Data))
			if strings.TrimSpace(text) != "" {
				breaks = 0
			}
			out.WriteString(html.EscapeString(limitEmptyLines(text)))
		case starts && (invisibleElements[t.Data] || isHidden(t.Attr)):
			foreign := t.Data == "svg" || t.Data == "math" // only svg and math can be self-closing
			if !voidElements[t.Data] && !(foreign && kind == html.SelfClosingTagToken) {
				unseen, depth = t.Data, 1
			}
		case starts:
			if t.Data == "br" || t.Data == "hr" {
				if breaks++; breaks > maxEmptyLines+1 {
					break
				}
			}
			if shrinkingElements[t.Data] {
				if small != "" {
					break
				}
				small = t.Data
			}
			for i := range t.Attr {
				t.Attr[i].Val = WithoutInvisible(t.Attr[i].Val)
			}
			out.WriteString(t.String())
		case kind == html.EndTagToken:
			if shrinkingElements[t.Data] {
				if small != t.Data {
					break
				}
				small = ""
			}
			out.WriteString(t.String())
		}
	}
}

// limitEmptyLines shortens runs of empty lines, since preformatted text would show all of them.
func limitEmptyLines(s string) string {
	if !strings.Contains(s, "\n\n\n\n") {
		return s
	}
	lines := 0
	return strings.Map(func(r rune) rune {
		if r != '\n' {
			lines = 0
		} else if lines++; lines > maxEmptyLines+1 {
			return -1
		}
		return r
	}, s)
}

// isHidden reports whether an element is hidden by its attributes.
func isHidden(attributes []html.Attribute) bool {
	return slices.ContainsFunc(attributes, func(a html.Attribute) bool {
		return a.Key == "hidden" || a.Key == "style" && isHidingStyle(a.Val)
	})
}

// isHidingStyle reports whether a style hides its element in one of the ways by which newsletters
// hide their preview text.
func isHidingStyle(style string) bool {
	said := map[string]string{}
	for declaration := range strings.SplitSeq(strings.ToLower(style), ";") {
		property, value, _ := strings.Cut(declaration, ":")
		value, _, _ = strings.Cut(value, "!")
		said[strings.TrimSpace(property)] = strings.TrimSpace(value)
	}
	none := func(property string) bool {
		value, found := said[property]
		number := strings.TrimRight(value, "abcdefghijklmnopqrstuvwxyz%")
		return found && number != "" && strings.Trim(number, "0.") == ""
	}
	clipped := said["overflow"] == "hidden"
	return said["display"] == "none" || said["visibility"] == "hidden" || said["visibility"] == "collapse" || said["mso-hide"] == "all" ||
		said["color"] == "transparent" || none("opacity") || none("font-size") || none("max-height") || none("max-width") ||
		clipped && (none("height") || none("width"))
}

// IsControl reports whether r is a control character, or a character that ends a line or paragraph.
func IsControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

// wordSet returns a set of the words.
func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}
