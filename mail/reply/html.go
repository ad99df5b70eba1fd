package reply

import (
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// HTML returns what the author of a message wrote, as plain text without quotes. s is the message's
// HTML. It must not be sanitized, since mail programs mark quotes by classes and ids. HTML returns
// "" if the author wrote nothing.
func HTML(s string) string {
	z := html.NewTokenizer(strings.NewReader(cutToMaxText(s)))
	w := &lineWriter{count: map[atom.Atom]int{}}
	for len(w.lines) < maxLines {
		switch z.Next() {
		case html.ErrorToken:
			w.endLine()
			return authorText(w.lines)
		case html.TextToken:
			if w.hidden == 0 {
				w.writeText(string(z.Text()))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			w.startElement(z)
		case html.EndTagToken:
			name, _ := z.TagName()
			w.endElement(atom.Lookup(name))
		}
	}
	return authorText(w.lines)
}

// An element is an open element that may contain a quote.
type element struct {
	tag   atom.Atom
	kind  lineKind // the kind of the lines in the element
	gmail bool     // Gmail's element for a quote or for the line that introduces it
}

// A lineWriter converts HTML to the lines of text that a browser displays.
type lineWriter struct {
	lines      []line
	open       []element
	count      map[atom.Atom]int // how many elements of each tag are open
	hidden     atom.Atom         // the open element whose text is not displayed; 0 if none
	restQuoted bool              // everything from here on is quoted

	text    strings.Builder
	kind    lineKind // the kind of the current line
	space   bool     // a space precedes the next word
	visible bool     // the line is displayed even if it is blank
	margin  bool     // a blank line precedes the next word
	spaced  bool     // the current paragraph has a blank line before and after it
}

// currentKind returns the kind of text that is written next.
func (w *lineWriter) currentKind() lineKind {
	switch {
	case w.restQuoted:
		return quoted
	case len(w.open) == 0:
		return own
	}
	return w.open[len(w.open)-1].kind
}

func (w *lineWriter) startElement(z *html.Tokenizer) {
	name, hasAttributes := z.TagName()
	tag := atom.Lookup(name)
	switch tag {
	case atom.Script, atom.Style, atom.Title, atom.Template:
		if w.hidden == 0 {
			w.hidden = tag
		}
	case atom.Br:
		w.visible = true
		id, _, _, _ := attributes(z, hasAttributes)
		w.endLine()
		w.markSignature(id)
	case atom.Td, atom.Th:
		w.space = true
	case atom.P:
		_, class, style, _ := attributes(z, hasAttributes)
		w.endLine()
		w.spaced = !strings.Contains(class, "msonormal") && !strings.Contains(style, "margin:0") && !strings.Contains(style, "margin-top:0")
		w.margin = w.margin || w.spaced
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.endLine()
		w.margin = true
	case atom.Tr, atom.Li, atom.Ul, atom.Ol, atom.Hr, atom.Header, atom.Footer:
		w.endLine()
	case atom.Div, atom.Blockquote, atom.Section, atom.Article, atom.Pre, atom.Table, atom.Span:
		id, class, style, other := attributes(z, hasAttributes)
		if tag != atom.Span {
			w.endLine()
		}
		e := element{tag: tag, kind: w.currentKind()}
		if k := kindOf(tag, id, class, style, other); k != own && e.kind != quoted && (k == quoted || e.kind != signature) {
			w.endLine()
			e.kind = k
		}
		e.gmail = strings.HasPrefix(class, "gmail_quote") || strings.HasPrefix(class, "gmail_attr")
		if id == "divrplyfwdmsg" || class == "outlookmessageheader" {
			w.restQuoted = true // the quote follows this element and has no element around it
		}
		w.markSignature(id)
		if class == "gmail_signature_prefix" {
			w.markSignature(signatureStartID)
		}
		w.open = append(w.open, e)
		w.count[tag]++
	}
}

// signatureStartID is the id of the element that Apple's programs write before a signature.
const signatureStartID = "linebreakatbeginningofsignature"

// markSignature adds a line that marks the start of a signature, if id is signatureStartID.
func (w *lineWriter) markSignature(id string) {
	if id == signatureStartID && w.currentKind() == own {
		w.endLine()
		w.lines = append(w.lines, line{kind: signMark})
	}
}

func (w *lineWriter) endElement(tag atom.Atom) {
	switch tag {
	case w.hidden, atom.Head:
		w.hidden = 0
	case atom.P:
		w.endLine()
		w.margin = w.margin || w.spaced
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.endLine()
		w.margin = true
	case atom.Tr, atom.Li, atom.Ul, atom.Ol, atom.Header, atom.Footer:
		w.endLine()
	}
	if w.count[tag] == 0 {
		return
	}
	for closed := false; !closed; { // also closes the open elements inside the element
		e := w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
		w.count[e.tag]--
		closed = e.tag == tag
		if e.tag != atom.Span || e.kind != w.currentKind() {
			w.endLine()
		}
	}
}

// attributes returns the attributes that may say what an element is for, in lower case. other has
// the values of name, type and data-marker.
func attributes(z *html.Tokenizer, hasAttributes bool) (id, class, style, other string) {
	const maxRead = 1000
	for hasAttributes {
		var name, value []byte
		name, value, hasAttributes = z.TagAttr()
		if len(value) > maxRead {
			continue
		}
		switch text := strings.ToLower(string(value)); string(name) {
		case "id":
			id = text
		case "class":
			class = text
		case "style":
			style = strings.ReplaceAll(text, " ", "")
		case "name", "type", "data-marker":
			other += text + " "
		}
	}
	return id, class, style, other
}

// kindOf returns the kind of text in an element, judged by its attributes.
func kindOf(tag atom.Atom, id, class, style, other string) lineKind {
	if id == "" && class == "" && style == "" && other == "" {
		if tag == atom.Blockquote {
			return maybeQuoted
		}
		return own
	}
	for c := range strings.FieldsSeq(class) {
		if k := classKinds[c]; k != own {
			return k
		}
		switch { // Yahoo prefixes its classes with random letters
		case strings.HasPrefix(c, "ydp") && strings.HasSuffix(c, "yahoo_quoted"):
			return quoted
		case strings.HasPrefix(c, "ydp") && strings.HasSuffix(c, "signature"):
			return signature
		case c == "gmail_quote" && tag == atom.Blockquote:
			return quoted
		}
	}
	for o := range strings.FieldsSeq(other) {
		if k := otherKinds[o]; k != own {
			return k
		}
	}
	if k := idKinds[id]; k != own {
		return k
	}
	if strings.HasPrefix(id, "yahoo_quoted") {
		return quoted
	}
	switch {
	case tag == atom.Blockquote && strings.Contains(other, "cite"):
		return quoted
	case tag == atom.Blockquote && strings.Contains(style, "border:none") && !strings.Contains(style, "border-left:"):
		return own // Gmail's indented text
	case tag == atom.Blockquote, tag == atom.Div && strings.Contains(style, "border-left:") && !strings.Contains(style, "border-left:none"):
		return maybeQuoted
	case tag == atom.Div && strings.Contains(style, "border-top:") && (strings.Contains(style, "padding:3pt") || strings.Contains(style, "padding:3.0pt")):
		return header
	}
	return own
}

var classKinds = map[string]lineKind{
	"gmail_attr": quoted, "moz-cite-prefix": quoted, "moz-forward-container": quoted, "moz-email-headers-table": quoted,
	"yahoo_quoted": quoted, "protonmail_quote": quoted, "tutanota_quote": quoted, "outlookmessageheader": quoted,
	"ms-outlook-mobile-reference-message": quoted, "zmail_extra": quoted, "front-blockquote": quoted,
	"gmail_signature": signature, "moz-signature": signature, "applemailsignature": signature,
	"protonmail_signature_block": signature, "tutanotasignature": signature, "sh-signature": signature, "zmail_signature": signature,
}

var idKinds = map[string]lineKind{
	"divrplyfwdmsg": quoted, "mail-editor-reference-message-container": quoted, "olk_src_body_section": quoted, "isforwardcontent": quoted,
	"reply-intro": quoted, "ymail_android_signature": signature, "signature": signature, "_rc_sig": signature, "applemailsignature": signature,
	"ms-outlook-mobile-signature": signature, "composer_signature": signature, "outlooksignature": signature,
}

// otherKinds has values of the attributes name, type and data-marker, with the kind of text in the
// element.
var otherKinds = map[string]lineKind{
	"quote": quoted, "messagereplysection": quoted, "messagesignaturesection": signature,
	"__quoted_text__": quoted, "__sig_post__": signature, "__sig_pre__": signature,
}

// writeText adds text to the current line.
func (w *lineWriter) writeText(s string) {
	kind := w.currentKind()
	if w.count[atom.Pre] > 0 {
		for i, text := range strings.Split(s, "\n") {
			if i > 0 {
				w.visible = true
				w.endLine()
			}
			if text != "" {
				w.writeWord(text, kind)
			}
		}
		return
	}
	if s == "" {
		return
	}
	w.space = w.space || isBlank(s[0])
	for i, text := range strings.FieldsFunc(s, func(r rune) bool { return r < 0x80 && isBlank(byte(r)) }) {
		w.space = w.space || i > 0
		w.writeWord(strings.ReplaceAll(text, "\u00a0", " "), kind)
	}
	w.space = w.space || isBlank(s[len(s)-1])
	if kind == quoted {
		w.markGmailForward(s)
	}
}

// markGmailForward marks all of Gmail's outer element as quoted if s begins a forwarded message. In
// a reply, that element also contains what the author wrote between the quotes.
func (w *lineWriter) markGmailForward(s string) {
	n := len(w.open)
	if n < 2 || !w.open[n-1].gmail || !w.open[n-2].gmail || !strings.HasPrefix(strings.TrimSpace(s), "-----") {
		return
	}
	w.open[n-2].kind = quoted
}

// writeWord adds a word to the current line, or begins a line with it.
func (w *lineWriter) writeWord(text string, kind lineKind) {
	if w.text.Len() == 0 {
		if w.margin && len(w.lines) > 0 {
			w.addBlankLine(kind)
		}
		w.margin, w.kind = false, kind
	} else if w.space && w.count[atom.Pre] == 0 {
		w.text.WriteByte(' ')
	}
	w.space = false
	w.visible = true
	w.text.WriteString(text)
}

// addBlankLine adds a blank line, unless the last line is a blank line of the same kind.
func (w *lineWriter) addBlankLine(k lineKind) {
	if n := len(w.lines); n == 0 || w.lines[n-1].text != "" || w.lines[n-1].kind != k {
		w.lines = append(w.lines, line{kind: k})
	}
}

func (w *lineWriter) endLine() {
	text := strings.TrimRightFunc(w.text.String(), unicode.IsSpace)
	switch {
	case text != "":
		w.lines = append(w.lines, line{text: text, kind: w.kind})
	case w.visible:
		w.addBlankLine(w.currentKind())
	}
	w.text.Reset()
	w.space, w.visible = false, false
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\f' }
