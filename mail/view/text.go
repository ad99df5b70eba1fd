package view

import (
	"bytes"
	"strings"

	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

const (
	maxQuote    = 6    // levels of quotation that look different
	maxTextLink = 2048 // bytes of one link; a longer one is written as text
)

// Text returns a document that shows a plain text. It has links, it has blocks in place of the >
// marks of quotations, and the signature is dimmed.
func Text(text string, o Options) *Document {
	w := textWriter{}
	for line := range strings.Lines(withoutOverrides.Replace(text)) {
		w.writeLine(strings.TrimSuffix(line, "\n"))
	}
	w.setDepth(0)
	if w.signature {
		w.out.WriteString("</div>")
	}
	class := ` class="plain"`
	if strings.TrimSpace(text) == "" {
		w.out.Reset()
	}
	return newDocument(o, w.out.Bytes(), class, nil, false)
}

// Source returns a document that shows a text as it is.
func Source(text string, o Options) *Document {
	return newDocument(o, []byte(html.EscapeString(text)), ` class="plain"`, nil, false)
}

// A textWriter writes plain text as HTML, line by line.
type textWriter struct {
	out       bytes.Buffer
	depth     int
	signature bool
}

func (w *textWriter) writeLine(line string) {
	depth, rest := cutQuoteMarks(line)
	if depth == 0 && !w.signature && (line == "-- " || line == "--") {
		w.setDepth(0)
		w.out.WriteString(`<div class="signature">`)
		w.signature = true
	}
	w.setDepth(depth)
	w.writeLinked(rest)
	w.out.WriteByte('\n')
}

// setDepth opens or closes blocks until the quotation depth is depth.
func (w *textWriter) setDepth(depth int) {
	for ; w.depth < depth; w.depth++ {
		w.out.WriteString(`<div class="quote">`)
	}
	for ; w.depth > depth; w.depth-- {
		w.out.WriteString(`</div>`)
	}
}

// cutQuoteMarks returns the number of > marks at the start of a line, at most maxQuote, and the
// rest of the line.
func cutQuoteMarks(line string) (depth int, rest string) {
	rest = line
	for depth < maxQuote && strings.HasPrefix(rest, ">") {
		rest = rest[1:]
		depth++
		if next := strings.TrimPrefix(rest, " "); strings.HasPrefix(next, ">") {
			rest = next
		}
	}
	if depth > 0 {
		rest = strings.TrimPrefix(rest, " ")
	}
	return depth, rest
}

var textLinkPattern = lazyregexp.New(`(?i)\b(?:https?://|www\.)[^\s<>"\x60]+|\b[a-z0-9._%+-]+@(?:[a-z0-9-]+\.)+[a-z]+\b`)

// writeLinked writes a line. It makes links of the URLs and email addresses in it.
func (w *textWriter) writeLinked(line string) {
	at := 0
	for _, m := range textLinkPattern().FindAllStringIndex(line, -1) {
		if m[1]-m[0] > maxTextLink {
			continue
		}
		shown := trimLink(line[m[0]:m[1]])
		target, host := linkTarget(withScheme(shown))
		if target == "" {
			continue
		}
		w.out.WriteString(html.EscapeString(line[at:m[0]]))
		attributes := targetAttributes(target, host)
		if host != "" && isDeceptive(shown, target, host) {
			attributes += ` class="odd"`
		}
		w.out.WriteString("<a" + attributes + ">" + html.EscapeString(withoutDirection.Replace(shown)) + "</a>")
		at = m[0] + len(shown)
	}
	w.out.WriteString(html.EscapeString(line[at:]))
}

func withScheme(shown string) string {
	switch low := strings.ToLower(shown); {
	case strings.HasPrefix(low, "http://"), strings.HasPrefix(low, "https://"):
		return shown
	case strings.HasPrefix(low, "www."):
		return "https://" + shown
	}
	return "mailto:" + shown
}

// trimLink removes punctuation at the end that belongs to the sentence around a link. A closing
// bracket stays if the link has the opening one.
func trimLink(s string) string {
	for s != "" {
		last := s[len(s)-1]
		open, closing := "([{", ")]}"
		if i := strings.IndexByte(closing, last); i >= 0 {
			if strings.Count(s, open[i:i+1]) >= strings.Count(s, closing[i:i+1]) {
				return s
			}
		} else if !strings.ContainsRune(".,;:!?'*_", rune(last)) {
			return s
		}
		s = s[:len(s)-1]
	}
	return s
}
