// Package reply finds what the author of a message wrote: the text without quoted messages, the
// lines that introduce them, signatures and the footers of mailing lists. It does not know how
// messages are stored or decoded, and does not read their headers.
package reply

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/msg"
)

// Limits on the text, in bytes and lines. Text beyond them is ignored.
const (
	maxText  = 1 << 20
	maxLines = 50_000
)

// maxPhrase is the maximum length in bytes of a line that introduces a quote or is a signature.
const maxPhrase = 300

// A lineKind says what kind of text a line is.
type lineKind uint8

const (
	own         lineKind = iota // the author's own text
	quoted                      // another message, or its introduction
	maybeQuoted                 // possibly a quote: markup that programs use for quotes and people for other purposes
	header                      // markup that Outlook uses around the header of a quoted message
	signature                   // a signature by its markup
	signMark                    // marks the start of a signature, which ends at a quote or the end
)

type line struct {
	text  string // without trailing white space
	kind  lineKind
	label label // the header field on the line, 0 if none
}

// Of returns what the author wrote in a body that msg.ReadRawBody returned. It reads the text, or
// the HTML if the text is blank. It returns "" if the author wrote nothing.
func Of(b msg.Body) string {
	if strings.TrimSpace(b.Text) == "" && b.HasHTML {
		return HTML(b.HTML)
	}
	return Text(b.Text)
}

// Text returns what the author wrote in a plain text with LF line ends. It returns "" if the author
// wrote nothing. Where it leaves out a quote, it writes one blank line.
func Text(s string) string {
	s = cutToMaxText(s)
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

func cutToMaxText(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > maxText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// authorText returns the author's own lines as one text.
func authorText(lines []line) string {
	for i := range lines {
		l := &lines[i]
		l.label = labelOf(l.text)
		if isQuoted(l.text) && l.kind != signature && !isEscapedFrom(lines, i) {
			l.kind = quoted
		}
	}
	t := &bodyLines{lines: lines, next: make([]int32, len(lines)+1)}
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

// isEscapedFrom reports whether line i begins with > only because an mbox file needs that before
// "From " (RFC 4155), so that it is not a quote.
func isEscapedFrom(lines []line, i int) bool {
	return strings.HasPrefix(lines[i].text, ">From ") &&
		(i == 0 || !isQuoted(lines[i-1].text)) && (i+1 == len(lines) || !isQuoted(lines[i+1].text))
}

// A bodyLines holds the lines of a message.
type bodyLines struct {
	lines []line
	next  []int32 // for each index, that of the first non-blank line from there on
}

// nextText returns the index of the first non-blank line from i on, or the number of lines if there
// is none.
func (t *bodyLines) nextText(i int) int { return int(t.next[min(i, len(t.lines))]) }

func (t *bodyLines) setKind(from, to int, k lineKind) {
	for i := from; i < to; i++ {
		t.lines[i].kind = k
	}
}

// startsQuote reports whether line i is marked as a quote, or possibly one.
func (t *bodyLines) startsQuote(i int) bool {
	return i < len(t.lines) && (t.lines[i].kind == quoted || t.lines[i].kind == maybeQuoted)
}

// endOfKind returns the index after the last of the lines from i on that have the kind of line i.
func (t *bodyLines) endOfKind(i int) int {
	end := i + 1
	for end < len(t.lines) && t.lines[end].kind == t.lines[i].kind {
		end++
	}
	return end
}

// findQuotes marks quotes that have neither a > prefix nor markup, and the introductions of all
// quotes.
func (t *bodyLines) findQuotes() {
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
				t.setKind(i, all, quoted)
				return
			}
			t.setKind(i, end, own)
		case maybeQuoted:
			k := own
			if end, sure := t.endOfIntroduction(i); seen || end > i && sure || isQuoteMark(t.lines[i].text) || t.endOfHeaderBlock(i) > i {
				k = quoted
			}
			t.setKind(i, t.endOfKind(i), k)
			if k == quoted {
				continue
			}
		}

		block := i
		marked := isQuoteMark(t.lines[i].text)
		if marked {
			block = t.nextText(i + 1)
		}
		if end := t.endOfHeaderBlock(block); end > block || marked {
			end = max(end, i+1)
			next := t.nextText(end)
			introduced, sure := t.endOfIntroduction(next)
			sure = sure || introduced > next && t.startsQuote(t.nextText(introduced))
			t.markSeparator(i)
			if !t.startsQuote(next) && !sure {
				t.setKind(i, all, quoted)
				return
			}
			t.setKind(i, end, quoted)
			if t.startsQuote(next) {
				t.setKind(next, t.endOfKind(next), quoted)
			}
			i = end
			continue
		}
		if end, sure := t.endOfIntroduction(i); end > i {
			next := t.nextText(end)
			switch {
			case t.startsQuote(next):
				t.setKind(i, end, quoted)
				t.setKind(next, t.endOfKind(next), quoted)
				i = end
				continue
			case sure:
				t.setKind(i, all, quoted)
				return
			}
		}
		if all-i <= maxFooter && t.startsFooter(i) {
			t.setKind(i, all, quoted)
			return
		}
		i++
	}
}

// markSeparator marks a line of dashes just before line i as quoted.
func (t *bodyLines) markSeparator(i int) {
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

// isQuoteMark reports whether a line announces a quoted or forwarded message.
func isQuoteMark(text string) bool {
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

// endOfHeaderBlock returns the index after the header of a quoted message that begins at line i.
// Outlook, phones and forwarding programs write such headers. It returns i if there is none.
func (t *bodyLines) endOfHeaderBlock(i int) int {
	if i >= len(t.lines) || t.lines[i].label == 0 {
		return i
	}
	marked := false
	for k := i - 1; k >= max(0, i-3) && !marked; k-- {
		marked = isQuoteMark(t.lines[k].text)
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

// countLabels returns how many lines from i to end begin like a header field, in any language.
func (t *bodyLines) countLabels(i, end int) int {
	n := 0
	for ; i < end; i++ {
		if name, _, ok := strings.Cut(t.lines[i].text, ":"); ok && name != "" && len(name) <= maxLabel {
			n++
		}
	}
	return n
}

// labelOf returns the header field on a line, 0 if there is none.
func labelOf(text string) label {
	at := strings.IndexByte(text[:min(len(text), maxLabel)], ':')
	if at < 1 {
		return 0
	}
	name := strings.ToLower(strings.Trim(text[:at], " \t*\u00a0\u202f"))
	return labelsByName[name]
}

// endOfIntroduction returns the index after the lines from i on that introduce a quote, such as "On
// … wrote:". It returns i if they do not introduce one. sure reports that they do even if no marked
// quote follows.
func (t *bodyLines) endOfIntroduction(i int) (end int, sure bool) {
	const maxWrapped = 4
	if i >= len(t.lines) {
		return i, false
	}
	first := t.lines[i].text
	head, more, _ := strings.Cut(first[:min(len(first), maxPhrase)], ":  ")
	if bare := strings.TrimRight(head, " -"); more != "" || strings.HasSuffix(bare, " wrote") {
		// Yahoo's app for Android puts the quote on the same line. Zoho writes dashes and no colon.
		low := strings.ToLower(strings.Trim(bare, " -"))
		if beginsIntroduction(low+" ") && strings.Contains(low, "@") && hasTime(low) && hasWroteVerb(low) {
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
	verb := hasWroteVerb(joined)
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
	case verb && (end == i+1 || timed && hasWroteVerb(strings.ToLower(first))), began && (address || timed):
		return end, false
	}
	return i, false
}

// beginsWithAddress reports whether a text begins with a name of at most six words and an address
// in angle brackets.
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

// beginsIntroduction reports whether a text in lower case begins like an introduction: with a digit
// or one of introductionStarts.
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

// hasWroteVerb reports whether a text in lower case contains a form of "wrote".
func hasWroteVerb(text string) bool {
	for word := range strings.FieldsSeq(text) {
		if wroteVerbs[strings.Trim(word, ":,;()\u00a0")] || wroteVerbs[strings.TrimRight(word, ":")] {
			return true
		}
	}
	return false
}

// maxFooter is the maximum length of the footer that a mailing list adds at the end of a message.
const maxFooter = 40 // lines

// startsFooter reports whether the footer of a mailing list begins at line i: a line of dashes,
// with a phrase about the list in the lines after it.
func (t *bodyLines) startsFooter(i int) bool {
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
func (t *bodyLines) findSignatures() {
	for i := 0; i < len(t.lines); {
		if k := t.lines[i].kind; k != own && k != signMark {
			i++
			continue
		}
		end := i
		for end < len(t.lines) && (t.lines[end].kind == own || t.lines[end].kind == signMark) {
			end++
		}
		t.markSignaturesIn(i, end)
		i = end
	}
}

// markSignaturesIn finds the signatures in the lines [start, end) and gives their lines the kind
// signature.
func (t *bodyLines) markSignaturesIn(start, end int) {
	const maxAfter = 12 // maximum lines of a signature after "--" without a space
	for i := start; i < end; i++ {
		l := t.lines[i]
		isStart := l.kind == signMark
		if !isStart && (l.text == "--" || l.text == "—") {
			at := i
			for range maxAfter {
				at = t.nextText(at + 1)
			}
			isStart = at >= end
		}
		if isStart {
			t.setKind(i, end, signature)
			end = i
		}
	}
	// A phone's signature is the last paragraph, the end of it, or a paragraph of one line before
	// it.
	const maxPhone = 5 // maximum lines at a paragraph's end
	last := true
	for to := end; to > start; {
		if t.lines[to-1].text == "" {
			to--
			continue
		}
		begin := to - 1
		for begin > start && t.lines[begin-1].text != "" {
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
			t.setKind(phone, to, signature)
			last = phone == begin
		case !last && to-begin == 1 && isPhoneSignature(t.lines[begin].text):
			t.setKind(begin, to, signature)
		default:
			last = false
		}
		to = begin
	}
}

// isPhoneSignature reports whether a line is one that mail programs add, such as "Sent from my
// iPhone".
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
	if !sentWords[word] || !sentByWords[by] {
		return false
	}
	if word == "von" && strings.HasSuffix(strings.TrimRight(rest, ". "), "gesendet") {
		return true
	}
	if strings.Contains(rest, "<http") {
		return true
	}
	for name := range strings.FieldsFuncSeq(rest, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if deviceWords[name] {
			return true
		}
	}
	return false
}
