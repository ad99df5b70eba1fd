// Package visible tells what of a text or of HTML a person sees, and makes foreign HTML safe to be
// shown. It does not know messages.
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

// IsInvisible reports characters without width or that turn the reading direction: those that
// Unicode lets a program leave out (Default_Ignorable_Code_Point), and all that only format.
func IsInvisible(r rune) bool {
	if r < 0xad || r >= 0x4e00 && r < 0xd800 { // most texts have no others
		return false
	}
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// isBlankRune reports what shows as an empty place within a line.
func isBlankRune(r rune) bool {
	const brailleBlank = '\u2800'
	return r == brailleBlank || unicode.IsSpace(r)
}

// Bounds of what moves words out of sight.
const (
	maxBlanks     = 80 // in a row
	maxEmptyLines = 2  // in a row
)

// Line gives a text on one line without what nobody sees: characters that are invisible or
// control something, and more than one blank in a row.
func Line(s string) string {
	return strings.Join(strings.FieldsFunc(WithoutInvisible(s), func(r rune) bool { return isBlankRune(r) || IsControl(r) }), " ")
}

// WithoutInvisible leaves out what IsInvisible reports.
func WithoutInvisible(s string) string {
	return strings.Map(func(r rune) rune {
		if IsInvisible(r) {
			return -1
		}
		return r
	}, s)
}

// MarkInvisible writes in the place of each invisible or control character what it is, such as
// [U+200B].
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

// Text gives a text without what nobody sees: characters that are invisible or control
// something, blanks at the end of lines, and so many blanks or empty lines that they move the rest
// out of sight. Lines end in LF.
func Text(s string) string {
	var out strings.Builder
	empty := maxEmptyLines // none at the start
	for line := range strings.SplitSeq(lineEnds.Replace(s), "\n") {
		line = visibleBlanks(line)
		if line != "-- " { // which begins a signature (RFC 3676 section 4.3)
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

// visibleBlanks leaves line ends and tabs as they are.
func visibleBlanks(s string) string {
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

// HTML returns HTML in which all that it says can be seen: what SanitizeHTML lets through
// but hidden elements, comments, images, styles, colours, sizes, and attributes with words in them.
// Each link shows where it leads. What would hide a word in a way that is not known here is left
// out itself, so the word is seen.
func HTML(s string) string {
	if s == "" {
		return ""
	}
	return showLinks(visiblePolicy().Sanitize(seenMarkup(s)))
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

// Elements whose content is not shown, or not as it stands there.
var unseenElements = wordSet("title", "script", "style", "template", "noscript", "noframes", "noembed", "iframe", "frameset", "object", "embed",
	"applet", "textarea", "select", "datalist", "svg", "math", "canvas", "audio", "video", "xmp", "plaintext", "dialog", "rp")

var voidElements = wordSet("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr", "frame")

// shrinking elements make letters smaller, each within another smaller still.
var shrinking = wordSet("sub", "sup", "small", "h5", "h6")

// An unseenEnd says what ends an element whose end tag may be missing (HTML Living Standard,
// 13.1.2.4).
type unseenEnd struct{ starts, ends map[string]bool }

var (
	blockStarts = wordSet("p", "div", "table", "ul", "ol", "dl", "blockquote", "pre", "hr", "section", "article", "header", "footer", "main", "center",
		"address", "figure", "h1", "h2", "h3", "h4", "h5", "h6")
	cellEnd    = unseenEnd{wordSet("td", "th", "tr"), wordSet("tr", "table", "tbody", "thead", "tfoot")}
	termEnd    = unseenEnd{wordSet("dt", "dd"), wordSet("dl")}
	unseenEnds = map[string]unseenEnd{
		"p":  {blockStarts, wordSet("div", "td", "th", "li", "blockquote", "section", "article", "header", "footer", "main", "center", "body")},
		"li": {wordSet("li"), wordSet("ul", "ol")},
		"td": cellEnd,
		"th": cellEnd,
		"tr": {wordSet("tr"), wordSet("table", "tbody", "thead", "tfoot")},
		"dt": termEnd,
		"dd": termEnd,
	}
)

// seenMarkup leaves out comments and elements that are not seen, with all that is in them, and
// characters that are not. It has no element end later than browsers do where the difference would
// hide a word.
func seenMarkup(s string) string {
	z := html.NewTokenizer(strings.NewReader(s))
	var out strings.Builder
	unseen, depth := "", 0 // the element that is not seen, and how many of its name are open
	small := ""            // the shrinking element that is open
	breaks := 0            // without a word in between
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return out.String()
		}
		t := z.Token()
		starts := kind == html.StartTagToken || kind == html.SelfClosingTagToken
		if end := unseenEnds[unseen]; unseen != "" && depth == 1 && (starts && end.starts[t.Data] || kind == html.EndTagToken && end.ends[t.Data]) {
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
			text := visibleBlanks(lineEnds.Replace(t.Data))
			if strings.TrimSpace(text) != "" {
				breaks = 0
			}
			out.WriteString(html.EscapeString(fewEmptyLines(text)))
		case starts && (unseenElements[t.Data] || hides(t.Attr)):
			foreign := t.Data == "svg" || t.Data == "math" // only these can end where they start
			if !voidElements[t.Data] && !(foreign && kind == html.SelfClosingTagToken) {
				unseen, depth = t.Data, 1
			}
		case starts:
			if t.Data == "br" || t.Data == "hr" {
				if breaks++; breaks > maxEmptyLines+1 {
					break
				}
			}
			if shrinking[t.Data] {
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
			if shrinking[t.Data] {
				if small != t.Data {
					break
				}
				small = ""
			}
			out.WriteString(t.String())
		}
	}
}

// fewEmptyLines bounds the empty lines in a row, which count in preformatted text.
func fewEmptyLines(s string) string {
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

// hides reads of the attributes of an element that it is not shown.
func hides(attributes []html.Attribute) bool {
	return slices.ContainsFunc(attributes, func(a html.Attribute) bool {
		return a.Key == "hidden" || a.Key == "style" && hidingStyle(a.Val)
	})
}

// hidingStyle knows the ways in which senders of newsletters hide what previews are to show.
func hidingStyle(style string) bool {
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

// IsControl reports control characters, and those that end lines or paragraphs.
func IsControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}
