// Package reply finds what the author of a message wrote: its text without quoted messages, the
// lines that introduce them, signatures and the footers of mailing lists. It does not know how
// messages are stored or decoded, and does not read their headers.
package reply

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/msg"
)

// Limits on the text that is read, in bytes and lines. The rest is ignored.
const (
	maxText  = 1 << 20
	maxLines = 50_000
)

// maxPhrase is the maximum length of a line, in bytes, that introduces a quote or is a signature.
const maxPhrase = 300

// A kind says what a line belongs to.
type kind uint8

const (
	own         kind = iota // the author's own text
	quoted                  // another message, or its introduction
	maybeQuoted             // possibly a quote: markup that programs use for quotes and people for other purposes
	header                  // markup that Outlook uses around the header of a quoted message
	signature               // a signature by its markup
	signMark                // marks the start of a signature, which ends at a quote or the end
)

type line struct {
	text  string // without trailing white space
	kind  kind
	label label // the header field that the line is, if any
}

// Of returns what the author wrote in a body from msg.ReadRawBody: in its text, or in its HTML if
// the text is blank. It returns "" if there is nothing.
func Of(b msg.Body) string {
	if strings.TrimSpace(b.Text) == "" && b.HasHTML {
		return HTML(b.HTML)
	}
	return Text(b.Text)
}

// Text returns what the author wrote in a plain text with LF line ends, "" if there is nothing.
// Parts that a quote separated are separated by one blank line.
func Text(s string) string {
	s = cut(s)
	lines := make([]line, 0, min(strings.Count(s, "\n")+1, maxLines))
	for text := range strings.SplitSeq(s, "\n") {
		l := line{text: strings.TrimRightFunc(text, unicode.IsSpace)}
		if strings.TrimSuffix(text, "\r") == "-- " { // RFC 3676 §4.3
			l.kind = signMark
		}
		lines = append(lines, l)
		if len(lines) == maxLines {
			break
		}
	}
	return authorText(lines)
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > maxText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// authorText returns the lines that the author wrote.
func authorText(lines []line) string {
	for i := range lines {
		l := &lines[i]
		l.label = labelOf(l.text)
		if isQuoted(l.text) && l.kind != signature && !isEscapedFrom(lines, i) {
			l.kind = quoted
		}
	}
	t := &thread{lines: lines, next: make([]int32, len(lines)+1)}
	t.next[len(lines)] = int32(len(lines))
	for i := len(lines) - 1; i >= 0; i-- {
		t.next[i] = t.next[i+1]
		if lines[i].text != "" {
			t.next[i] = int32(i)
		}
	}
	t.findQuotes()
	t.findSignatures()

	var out strings.Builder
	gap, blank := false, 0 // since the last written line: whether lines were skipped, and the number of blank lines
	for _, l := range lines {
		switch {
		case l.kind != own:
			gap = true
		case l.text == "":
			blank++
		default:
			if gap {
				blank = 1
			}
			if out.Len() > 0 {
				for range blank + 1 {
					out.WriteByte('\n')
				}
			}
			out.WriteString(l.text)
			gap, blank = false, 0
		}
	}
	return out.String()
}

func isQuoted(text string) bool {
	return strings.HasPrefix(strings.TrimLeft(text, " "), ">") && text != ">:" // ">:" is the end of an introduction
}

// isEscapedFrom reports whether line i is not a quote but was escaped with > by an mbox file (RFC
// 4155).
func isEscapedFrom(lines []line, i int) bool {
	return strings.HasPrefix(lines[i].text, ">From ") &&
		(i == 0 || !isQuoted(lines[i-1].text)) && (i+1 == len(lines) || !isQuoted(lines[i+1].text))
}

// A thread holds the lines of a message.
type thread struct {
	lines []line
	next  []int32 // for each line, the first non-blank line from there on
}

// nextText returns the first non-blank line from i on, or the number of lines if there is none.
func (t *thread) nextText(i int) int { return int(t.next[min(i, len(t.lines))]) }

func (t *thread) mark(from, to int, k kind) {
	for i := from; i < to; i++ {
		t.lines[i].kind = k
	}
}

// startsQuote reports whether line i is the beginning of a quote.
func (t *thread) startsQuote(i int) bool {
	return i < len(t.lines) && (t.lines[i].kind == quoted || t.lines[i].kind == maybeQuoted)
}

// endOfKind returns the end of the consecutive lines from i on with the kind of line i.
func (t *thread) endOfKind(i int) int {
	end := i + 1
	for end < len(t.lines) && t.lines[end].kind == t.lines[i].kind {
		end++
	}
	return end
}

// findQuotes marks the quotes without a > prefix or markup, and the introductions of quotes.
func (t *thread) findQuotes() {
	all := len(t.lines)
	seen := false // a quote was found
	for i := t.nextText(0); i < all; i = t.nextText(i) {
		switch t.lines[i].kind {
		case quoted:
			seen = true
			i++
			continue
		case signature, signMark:
			i++
			continue
		case header:
			end := t.endOfKind(i)
			if t.countLabels(i, end) >= 3 {
				t.markSeparator(i)
				t.mark(i, all, quoted)
				return
			}
			t.mark(i, end, own)
		case maybeQuoted:
			k := own
			if end, sure := t.introduction(i); seen || end > i && sure || isMark(t.lines[i].text) || t.headerBlock(i) > i {
				k = quoted
			}
			t.mark(i, t.endOfKind(i), k)
			if k == quoted {
				continue
			}
		}

		block := i
		marked := isMark(t.lines[i].text)
		if marked {
			block = t.nextText(i + 1)
		}
		if end := t.headerBlock(block); end > block || marked {
			end = max(end, i+1)
			next := t.nextText(end)
			introduced, sure := t.introduction(next)
			sure = sure || introduced > next && t.startsQuote(t.nextText(introduced))
			t.markSeparator(i)
			if !t.startsQuote(next) && !sure {
				t.mark(i, all, quoted)
				return
			}
			t.mark(i, end, quoted)
			if t.startsQuote(next) {
				t.mark(next, t.endOfKind(next), quoted)
			}
			i = end
			continue
		}
		if end, sure := t.introduction(i); end > i {
			next := t.nextText(end)
			switch {
			case t.startsQuote(next):
				t.mark(i, end, quoted)
				t.mark(next, t.endOfKind(next), quoted)
				i = end
				continue
			case sure:
				t.mark(i, all, quoted)
				return
			}
		}
		if all-i <= maxFooter && t.isFooter(i) {
			t.mark(i, all, quoted)
			return
		}
		i++
	}
}

// markSeparator marks a line of dashes before line i as quoted.
func (t *thread) markSeparator(i int) {
	for k := i - 1; k >= max(0, i-3); k-- {
		if t.lines[k].text == "" {
			continue
		}
		if t.lines[k].kind == own && isSeparator(t.lines[k].text) {
			t.lines[k].kind = quoted
		}
		return
	}
}

// isSeparator reports whether a line consists of dashes or similar characters.
func isSeparator(text string) bool {
	return len(text) >= 5 && strings.Trim(text, "-_=*#~ –—‐") == ""
}

// isMark reports whether a line announces a quoted or forwarded message.
func isMark(text string) bool {
	if len(text) > maxPhrase || len(text) < 8 {
		return false
	}
	start := text
	for start != "" && (start[0] == ' ' || start[0] == '\t' || start[0] == '*') {
		start = start[1:]
	}
	dashed := strings.HasPrefix(start, "--") || strings.HasPrefix(start, "‐‐") || strings.HasPrefix(start, "__")
	if !dashed && !strings.HasSuffix(text, ":") {
		return false
	}
	bare := strings.Trim(text, "-_=*#~ –—‐\t:\u00a0")
	bare = strings.ToLower(strings.ReplaceAll(bare, "\u00a0", " "))
	return dashed && originalMarks[bare] || !dashed && forwardMarks[bare]
}

// headerBlock returns the end of a quoted message's header that begins at line i, in the style of
// Outlook, phones and forwarding programs. It returns i if there is none.
func (t *thread) headerBlock(i int) int {
	if i >= len(t.lines) || t.lines[i].label == 0 {
		return i
	}
	marked := false
	for k := i - 1; k >= max(0, i-3) && !marked; k-- {
		marked = isMark(t.lines[k].text)
	}
	const all = fromField | dateField | toField | subjectField
	begin := t.lines[i].label
	once := fromField | subjectField
	if begin != fromField {
		once = all
	}
	var seen label
	at, end, kind := i, i, t.lines[i].kind
	for range 20 {
		if at >= len(t.lines) || t.lines[at].kind != kind && t.lines[at].kind != own {
			break
		}
		l := t.lines[at].label
		if at > end && l == 0 {
			break // a blank line ends the block unless a field follows
		}
		if l&seen&once != 0 {
			break // a field of the next header
		}
		seen |= l
		end = at + 1
		at = t.nextText(end)
	}
	switch {
	case seen&all == all,
		seen&fromField != 0 && seen&subjectField != 0 && seen&(dateField|toField) != 0 && (marked || begin == fromField),
		seen&fromField != 0 && seen&sentField != 0 && seen&toField != 0 && begin == fromField: // Windows writes no subject
		return end
	}
	return i
}

// countLabels counts the lines from i to end that begin like a header field, in any language.
func (t *thread) countLabels(i, end int) int {
	n := 0
	for ; i < end; i++ {
		if name, _, ok := strings.Cut(t.lines[i].text, ":"); ok && name != "" && len(name) <= maxLabel {
			n++
		}
	}
	return n
}

// labelOf returns the header field that a line is, 0 if it is none.
func labelOf(text string) label {
	at := strings.IndexByte(text[:min(len(text), maxLabel)], ':')
	if at < 1 {
		return 0
	}
	name := strings.ToLower(strings.Trim(text[:at], " \t*\u00a0\u202f"))
	return labels[name]
}

// introduction returns the end of the lines from i on that introduce a quote, such as "On …
// wrote:", or i if they do not. sure reports that this is certain even if no marked quote follows.
func (t *thread) introduction(i int) (end int, sure bool) {
	const maxWrapped = 4
	if i >= len(t.lines) {
		return i, false
	}
	first := t.lines[i].text
	head, more, _ := strings.Cut(first[:min(len(first), maxPhrase)], ":  ")
	if bare := strings.TrimRight(head, " -"); more != "" || strings.HasSuffix(bare, " wrote") {
		// Yahoo's app for Android writes the quote on the same line. Zoho writes dashes and no
		// colon.
		low := strings.ToLower(strings.Trim(bare, " -"))
		if beginsIntroduction(low+" ") && strings.Contains(low, "@") && hasTime(low) && hasVerb(low) {
			return i + 1, true
		}
	}
	end, size := i, 0
	for {
		if end == len(t.lines) || end == i+maxWrapped || t.lines[end].kind != t.lines[i].kind {
			return i, false
		}
		text := t.lines[end].text
		size += len(text) + 1
		if text == "" || size > 2*maxPhrase {
			return i, false
		}
		end++
		if strings.HasSuffix(text, ":") || strings.HasSuffix(text, "：") {
			break
		}
		if c := text[len(text)-1]; (c == '.' || c == '!' || c == '?') && !hasTime(text) && !strings.HasSuffix(text, "m.") {
			return i, false // the end of a sentence
		}
	}
	if size < 9 {
		return i, false
	}
	joined := strings.TrimSpace(first)
	if end > i+1 {
		for _, l := range t.lines[i+1 : end] {
			joined += " " + l.text
		}
		joined = strings.Join(strings.Fields(joined), " ")
	}
	joined = strings.ToLower(joined)

	dated := strings.ContainsAny(first, "0123456789")
	verb := hasVerb(joined)
	address := strings.Contains(joined, "@")
	timed := hasTime(joined)
	began := dated && beginsIntroduction(joined)
	switch {
	case verb && began:
		return end, address || timed && countDigits(joined) >= 6
	case verb && beginsWithAddress(joined): // "Bob <bob@far.test> wrote:", sometimes with the date after it
		return end, timed
	case timed && address && strings.Contains(joined, "<") && (verb || strings.HasSuffix(joined, ">:")) && (end == i+1 || hasTime(first)):
		return end, true // in any language
	case verb && (end == i+1 || timed && hasVerb(strings.ToLower(first))), began && (address || timed):
		return end, false
	}
	return i, false
}

// beginsWithAddress reports whether a text begins with a name of at most six words and an address.
func beginsWithAddress(text string) bool {
	name, rest, ok := strings.Cut(text, "<")
	if !ok || strings.Count(name, " ") > 5 {
		return false
	}
	address, _, ok := strings.Cut(rest, ">")
	return ok && strings.Contains(address, "@")
}

// hasTime reports whether a text contains a time of day, such as 9:30 or 09.30.
func hasTime(text string) bool {
	digit := func(i int) bool { return i >= 0 && i < len(text) && text[i] >= '0' && text[i] <= '9' }
	for i := range len(text) {
		if (text[i] == ':' || text[i] == '.' || text[i] == 'h') && digit(i-1) && digit(i+1) && digit(i+2) && !digit(i+3) {
			return true
		}
	}
	return false
}

func countDigits(text string) (n int) {
	for i := range len(text) {
		if text[i] >= '0' && text[i] <= '9' {
			n++
		}
	}
	return n
}

func beginsIntroduction(text string) bool {
	if text[0] >= '0' && text[0] <= '9' {
		return true
	}
	for _, start := range introductionStarts {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

// hasVerb reports whether a lower-case text contains one of verbs.
func hasVerb(text string) bool {
	for word := range strings.FieldsSeq(text) {
		if verbs[strings.Trim(word, ":,;()\u00a0")] || verbs[strings.TrimRight(word, ":")] {
			return true
		}
	}
	return false
}

// maxFooter is the maximum length of a mailing list's footer, which is at the end of a message.
const maxFooter = 40 // lines

// isFooter reports whether a mailing list's footer begins at line i: a line of dashes, and a phrase
// about the list in the next lines.
func (t *thread) isFooter(i int) bool {
	text := t.lines[i].text
	if len(text) < 2 || !isSeparator(text) && strings.Trim(text, "-=") != "" && strings.Trim(text, "_") != "" {
		return false
	}
	at := i
	for range 4 {
		at = t.nextText(at + 1)
		if at >= len(t.lines) || len(t.lines[at].text) > maxPhrase || isSeparator(t.lines[at].text) {
			return false
		}
		low := strings.ToLower(t.lines[at].text)
		for _, phrase := range listPhrases {
			if strings.Contains(low, phrase) {
				return true
			}
		}
	}
	return false
}

// findSignatures marks the signature at the end of each section that the author wrote.
func (t *thread) findSignatures() {
	for i := 0; i < len(t.lines); {
		if k := t.lines[i].kind; k != own && k != signMark {
			i++
			continue
		}
		end := i
		for end < len(t.lines) && (t.lines[end].kind == own || t.lines[end].kind == signMark) {
			end++
		}
		t.signatureIn(i, end)
		i = end
	}
}

func (t *thread) signatureIn(from, end int) {
	const maxAfter = 12 // maximum lines of a signature after "--" without a space
	for i := from; i < end; i++ {
		l := t.lines[i]
		isMark := l.kind == signMark
		if !isMark && (l.text == "--" || l.text == "—") {
			at := i
			for range maxAfter {
				at = t.nextText(at + 1)
			}
			isMark = at >= end
		}
		if isMark {
			t.mark(i, end, signature)
			end = i
		}
	}
	// A phone's signature is the last paragraph or the end of it, or a paragraph of one line.
	const maxPhone = 5 // maximum lines at a paragraph's end
	last := true
	for to := end; to > from; {
		if t.lines[to-1].text == "" {
			to--
			continue
		}
		begin := to - 1
		for begin > from && t.lines[begin-1].text != "" {
			begin--
		}
		phone := begin
		if last && !isPhoneSignature(t.lines[begin].text) {
			phone = max(begin+1, to-maxPhone)
			for phone < to && !isPhoneSignature(t.lines[phone].text) {
				phone++
			}
		}
		switch {
		case last && phone < to:
			t.mark(phone, to, signature)
			last = phone == begin
		case !last && to-begin == 1 && isPhoneSignature(t.lines[begin].text):
			t.mark(begin, to, signature)
		default:
			last = false
		}
		to = begin
	}
}

// isPhoneSignature reports whether a line is one that a mail program adds by itself, such as "Sent
// from my iPhone".
func isPhoneSignature(text string) bool {
	if len(text) > maxPhrase {
		return false
	}
	text = strings.TrimLeft(text, " \t*_[(<")
	if r, _ := utf8.DecodeRuneInString(text); !unicode.IsUpper(r) {
		return false
	}
	low := strings.ToLower(text)
	word, rest, _ := strings.Cut(low, " ")
	for _, start := range phoneStarts[word] {
		if strings.HasPrefix(low, start) {
			return true
		}
	}
	by, rest, _ := strings.Cut(rest, " ")
	if !sentWords[word] || !sentBy[by] {
		return false
	}
	if word == "von" && strings.HasSuffix(strings.TrimRight(rest, ". "), "gesendet") {
		return true
	}
	if strings.Contains(rest, "<http") {
		return true
	}
	for name := range strings.FieldsFuncSeq(rest, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if devices[name] {
			return true
		}
	}
	return false
}
