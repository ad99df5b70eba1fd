package imapd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

var errTooLong = errors.New("[TOOBIG] The command is too long")

// nextCommand waits for the client's next command, or for the line that the parser has asked for,
// and lets the session intercept a command.
func (w *protocolConn) nextCommand() error {
	for {
		w.mu.Lock()
		prompted := w.continuationAsked
		w.continuationAsked = false
		w.mu.Unlock()
		w.command.continuation = prompted
		if err := w.readCommand(); err != nil {
			return err
		}
		if prompted {
			w.line = w.continuationLine()
			return nil
		}
		if w.command.malformed {
			if err := w.refuseLine(); err != nil {
				return err
			}
			continue
		}
		w.line = w.prepareCommand()
		if w.line != nil {
			return nil
		}
		w.command = command{}
		if w.ending != nil {
			return w.ending
		}
	}
}

// maxBadLines is how many lines without a command a client may send in a row; a mail client sends
// fewer.
const maxBadLines = 20

// refuseLine answers a line that is not a command. The parser must not see it: it would end the
// connection without a reply. If the line has a tag, the answer has the same tag (RFC 9051 section
// 7.1.3).
func (w *protocolConn) refuseLine() error {
	if w.badLines++; w.badLines > maxBadLines {
		return w.closeWith("[CLIENTBUG] Too many lines that are no commands")
	}
	tag, _ := commandName(w.text)
	if !isTag(tag) {
		tag = "*"
	}
	why := w.command.refused
	if why == "" {
		why = "BAD [CLIENTBUG] A command has a tag, a space and a name"
	}
	w.writeReply("%s %s", tag, why)
	w.skipLiteral()
	w.command = command{}
	return w.ending
}

// isTag reports whether s can be the tag of an answer (RFC 9051 section 9, tag).
func isTag(s string) bool { return isAtom(s) && !strings.Contains(s, "+") }

// isAtom reports whether the parser accepts s as an atom.
func isAtom(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f && c < 0xa0 || strings.IndexByte(`(){%*"\]`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// hasCommand reports whether a line begins with a tag and a command name. The name has two words if
// the first is UID.
func hasCommand(line []byte) bool {
	fields := bytes.SplitN(bytes.TrimRight(line, "\r\n"), []byte(" "), 4)
	words := 2
	if len(fields) > 1 && bytes.EqualFold(fields[1], []byte("UID")) {
		words = 3
	}
	if len(fields) < words {
		return false
	}
	for _, f := range fields[:words] {
		if !isAtom(string(f)) {
			return false
		}
	}
	return isTag(string(fields[0]))
}

// continuationLine returns the line that the parser has asked for, in the form that the parser
// needs. A line that cannot be parsed becomes "*": that cancels AUTHENTICATE (RFC 9051 section
// 6.2.2) and ends IDLE with a BAD.
func (w *protocolConn) continuationLine() []byte {
	switch line := bytes.TrimRight(w.text, "\r\n"); {
	case w.command.malformed:
		w.command = command{}
		return []byte("*\r\n")
	case w.verb == "IDLE" && bytes.EqualFold(line, []byte("DONE")): // RFC 5234 section 2.3
		return []byte("DONE\r\n")
	}
	return w.text
}

// prepareCommand records the tag and verb of the command and returns the text for the parser, nil
// if the command has been answered.
func (w *protocolConn) prepareCommand() []byte {
	tag, verb := commandName(w.text)
	w.tag, w.badLines = tag, 0
	w.mu.Lock()
	w.verb, w.patch, w.patchOfFetch = verb, nil, ""
	utf8Names := w.utf8Names
	w.saves, w.savesAlone = savesResult(verb, w.text)
	w.mu.Unlock()
	if w.command.refused == "" {
		w.text = replaceNames(verb, w.text, utf8Names)
		if len(w.text) > maxCommand {
			w.command.refused = "BAD [CLIENTBUG] The command is too long"
		}
	}
	if w.command.refused != "" {
		w.writeReply("%s %s", plainText(tag), w.command.refused)
		w.saveRefused = w.saveRefused || w.saves && strings.HasPrefix(w.command.refused, "NO ")
		w.skipLiteral()
		return nil
	}
	if w.intercept == nil {
		return w.text
	}
	text := w.intercept(w.text)
	if text == nil {
		w.skipLiteral()
	}
	return text
}

// savesResult reports whether a command is a SEARCH that saves its result as "$", and whether SAVE
// is its only RETURN option (RFC 5182 section 2.1).
func savesResult(verb string, text []byte) (saves, alone bool) {
	if verb != "SEARCH" && verb != "UID SEARCH" || !mentions(text, []string{"SAVE"}) {
		return false, false
	}
	p, at := newCommandEditor(text), 2+strings.Count(verb, "UID ")
	if p.word(at) != "RETURN" || !p.is(at+1, '(') {
		return false, false
	}
	alone = true
	for i := at + 2; i < len(p.tokens) && !p.is(i, ')'); i++ {
		is := p.word(i) == "SAVE"
		saves, alone = saves || is, alone && is
	}
	return saves, saves && alone
}

// skipLiteral skips the last literal of a command that the parser does not get. A client sends a
// non-synchronizing literal without waiting for an answer.
func (w *protocolConn) skipLiteral() {
	w.mu.Lock()
	a := w.announced
	w.announced = announcedLiteral{}
	w.mu.Unlock()
	if !a.nonSync {
		return
	}
	err := w.flush() // a client may wait for our answer before it sends a long message
	if err == nil {
		err = w.skip(a.size)
	}
	w.ending = err
}

// commandName returns the tag and, in capitals, the verb; UID is part of the verb.
func commandName(text []byte) (tag, verb string) {
	fields := bytes.SplitN(bytes.TrimRight(text, "\r\n"), []byte(" "), 4)
	tag = string(fields[0])
	if len(fields) > 1 {
		verb = strings.ToUpper(string(fields[1]))
	}
	if verb == "UID" && len(fields) > 2 {
		verb += " " + strings.ToUpper(string(fields[2]))
	}
	return tag, verb
}

// readCommand reads a command into w.text, up to its end or to the message of an APPEND. Other
// literals become quoted strings.
func (w *protocolConn) readCommand() error {
	if err := w.awaitLine(); err != nil {
		return w.readError(err)
	}
	if cap(w.text) > 8<<10 {
		w.text = nil
	}
	w.text = w.text[:0]
	for {
		from := len(w.text)
		if err := w.readLine(); err != nil {
			return w.readError(err)
		}
		m, err := scanLine(w.text[from:])
		switch {
		case errors.Is(err, errLostLiteral):
			return w.closeWith("[CLIENTBUG] " + err.Error())
		case err != nil:
			w.command.malformed, w.command.refused = true, "BAD [CLIENTBUG] "+err.Error()
			return nil
		}
		m.at += from
		if from == 0 && !w.command.continuation && !hasCommand(w.text) {
			w.command.malformed = true
			if m.found {
				return w.refuseLiteral(m, "The literal belongs to no command")
			}
			return nil
		}
		w.command.recordLine(w.text, from, m)
		switch {
		case !m.found:
			return nil
		case w.command.continuation:
			return w.closeWith("[CLIENTBUG] No literal is expected")
		case w.command.message:
			return w.passLiteral(m)
		case m.size > w.maxString() || int64(len(w.text))+m.size > maxCommand:
			return w.refuseLiteral(m, "The literal is too large for this command")
		}
		if err := w.readString(m); err != nil {
			return w.readError(err)
		}
	}
}

// passLiteral keeps the literal marker of a message in the command, so that the parser can accept
// or refuse the literal.
func (w *protocolConn) passLiteral(m literalMarker) error {
	if m.size > AppendLimit {
		return w.refuseLiteral(m, "The message is too large")
	}
	w.announce(m)
	if m.nonSync {
		w.text = append(w.text[:m.at], "{"+m.digits+"}\r\n"...)
	}
	return nil
}

func (w *protocolConn) announce(m literalMarker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.announced = announcedLiteral{pending: true, nonSync: m.nonSync, size: m.size}
}

// maxString is the size in bytes of the largest literal in a command that is not a message.
func (w *protocolConn) maxString() int64 {
	if w.loginBy.IsZero() {
		return maxCommand
	}
	return maxLiteral
}

// refuseLiteral refuses a command because of its literal. A non-synchronizing literal is skipped,
// unless it is so large that closing the connection costs less (RFC 7888 section 4).
func (w *protocolConn) refuseLiteral(m literalMarker, why string) error {
	if m.nonSync && m.size > w.maxSkip() {
		return w.closeWith("[TOOBIG] " + why)
	}
	w.command.refused = "NO [TOOBIG] " + why
	w.announce(m)
	return nil
}

// readString replaces the marker of a literal by its content as a quoted string. A line end or a
// NUL in the content makes the command invalid: a parser that stops within a command would run the
// text after the line end as the next one.
func (w *protocolConn) readString(m literalMarker) error {
	if !m.nonSync {
		w.mu.Lock()
		w.out = append(w.out, continuation...)
		err := w.flushLocked()
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	w.text = append(w.text[:m.at], '"')
	var piece [512]byte
	for left := m.size; left > 0; {
		n, err := io.ReadFull(w.in, piece[:min(left, int64(len(piece)))])
		if err != nil {
			return err
		}
		if bytes.ContainsAny(piece[:n], "\x00\r\n") {
			w.command.refused = "BAD [CLIENTBUG] A string in a command cannot have a line end or NUL"
		}
		w.text = appendEscaped(w.text, piece[:n])
		left -= int64(n)
	}
	w.text = append(w.text, '"')
	if len(w.text) > maxCommand {
		return errTooLong
	}
	return nil
}

func appendQuoted(to, content []byte) []byte {
	return append(appendEscaped(append(to, '"'), content), '"')
}

func appendEscaped(to, content []byte) []byte {
	for _, c := range content {
		if c == '"' || c == '\\' {
			to = append(to, '\\')
		}
		to = append(to, c)
	}
	return to
}

// readLine adds a line with its line end to w.text.
func (w *protocolConn) readLine() error {
	for {
		part, err := w.in.ReadSlice('\n')
		w.text = append(w.text, part...)
		switch {
		case len(w.text) > maxCommand:
			return errTooLong
		case err == nil:
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// recordLine records what the line that begins at from says about the command and its literal m.
func (c *command) recordLine(text []byte, from int, m literalMarker) {
	if !c.afterLiteral && from == 0 {
		_, verb := commandName(text) // a marker right after the verb is not an argument
		c.append, c.single = verb == "APPEND", isReplace(verb)
	}
	if m.found && (c.append && hasArgument(string(text[:m.at])) || c.single && hasReplaceArguments(text[:m.at])) {
		c.message = true
		if bytes.HasSuffix(text[:m.at], []byte("(~")) { // UTF8 (~{…} (RFC 6855 section 4)
			c.end, c.parserEnd = ")", ")"
		}
	}
}

// hasArgument reports whether a command has text after its verb.
func hasArgument(text string) bool {
	_, rest, _ := strings.Cut(text, " ")
	_, args, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(args) != ""
}

// A token is a word of a command: an atom, a quoted string, or a parenthesis.
type token struct {
	kind     byte // 'a', 'q', '(' or ')'
	from, to int
}

// tokenize divides a command without literals into tokens. In a FETCH, the text between brackets is
// part of an atom, spaces included, so BODY[HEADER.FIELDS (TO)] is one token.
func tokenize(text []byte) []token {
	_, verb := commandName(text)
	brackets := strings.HasSuffix(verb, "FETCH")
	end := len(bytes.TrimRight(text, "\r\n"))
	var list []token
	for i := 0; i < end; {
		switch c := text[i]; c {
		case ' ':
			i++
		case '(', ')':
			list = append(list, token{c, i, i + 1})
			i++
		case '"':
			to := endOfQuoted(text[:end], i)
			list = append(list, token{'q', i, to})
			i = to
		default:
			to := endOfAtom(text[:end], i, brackets)
			list = append(list, token{'a', i, to})
			i = to
		}
	}
	return list
}

func endOfQuoted(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func endOfAtom(text []byte, i int, brackets bool) int {
	bracket := false
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && bracket:
			i = endOfQuoted(text, i) - 1
		case c == '[':
			bracket = brackets
		case c == ']':
			bracket = false
		case !bracket && (c == ' ' || c == '(' || c == ')' || c == '"'):
			return i
		}
	}
	return len(text)
}

// A commandEditor holds a command as tokens, and the edits to make to it.
type commandEditor struct {
	text   []byte
	tokens []token
	edits  []edit
}

type edit struct {
	from, to int
	text     string
}

func newCommandEditor(text []byte) *commandEditor {
	return &commandEditor{text: text, tokens: tokenize(text)}
}

// word returns the atom at i in capitals, "" if token i is no atom.
func (p *commandEditor) word(i int) string {
	if i < 0 || i >= len(p.tokens) || p.tokens[i].kind != 'a' {
		return ""
	}
	return strings.ToUpper(p.raw(i))
}

func (p *commandEditor) raw(i int) string { return string(p.text[p.tokens[i].from:p.tokens[i].to]) }

// value returns the string or atom at i; false if there is none.
func (p *commandEditor) value(i int) (string, bool) {
	switch {
	case i >= len(p.tokens) || p.tokens[i].kind == '(' || p.tokens[i].kind == ')':
		return "", false
	case p.tokens[i].kind == 'a':
		return p.raw(i), true
	}
	raw := p.raw(i)
	if len(raw) < 2 || raw[len(raw)-1] != '"' {
		return "", false
	}
	var out strings.Builder
	for j := 1; j < len(raw)-1; j++ {
		if raw[j] == '\\' {
			j++
		}
		out.WriteByte(raw[j])
	}
	return out.String(), true
}

func (p *commandEditor) is(i int, kind byte) bool {
	return i < len(p.tokens) && p.tokens[i].kind == kind
}

// closing returns the index of the parenthesis that closes the one at i; false if there is none.
func (p *commandEditor) closing(i int) (int, bool) {
	for depth := 0; i < len(p.tokens); i++ {
		switch p.tokens[i].kind {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i, true
			}
		}
	}
	return 0, false
}

// replace replaces the tokens from i to j, both inclusive, by text.
func (p *commandEditor) replace(i, j int, text string) {
	p.edits = append(p.edits, edit{p.tokens[i].from, p.tokens[j].to, text})
}

// remove removes the tokens from i to j, both inclusive, and the spaces before them.
func (p *commandEditor) remove(i, j int) {
	from := p.tokens[i].from
	for from > 0 && p.text[from-1] == ' ' {
		from--
	}
	p.edits = append(p.edits, edit{from, p.tokens[j].to, ""})
}

// result returns the text with all edits, which must have been added in order.
func (p *commandEditor) result() []byte {
	var out []byte
	at := 0
	for _, e := range p.edits {
		if e.from < at {
			e.from = at
		}
		out = append(append(out, p.text[at:e.from]...), e.text...)
		at = max(e.to, at)
	}
	return append(out, p.text[at:]...)
}

// A literalMarker is the "{123}" or "{123+}" at the end of a line that announces a literal (RFC
// 3501 section 4.3, RFC 7888).
type literalMarker struct {
	found   bool
	at      int // index where the marker begins; the line's length if there is none
	digits  string
	size    int64
	nonSync bool
}

// errLostLiteral means that bytes of a literal may follow that cannot be distinguished from
// commands.
var errLostLiteral = errors.New("the size of a literal cannot be read")

// scanLine is findMarker, but returns errLostLiteral for an invalid line that may announce a
// non-synchronizing literal at its end.
func scanLine(line []byte) (literalMarker, error) {
	m, err := findMarker(line)
	if err != nil && bytes.HasSuffix(bytes.TrimRight(line, " \t\r\n\x00"), []byte("+}")) {
		err = errLostLiteral
	}
	return m, err
}

// findMarker checks one line of a command and finds the literal marker at its end. It refuses every
// line whose command go-imap's parser could end at another place than we do: that parser reads
// quoted strings across line ends, ends a line at a bare CR, and continues after a malformed
// marker.
func findMarker(line []byte) (literalMarker, error) {
	end := len(line)
	if end > 0 && line[end-1] == '\n' {
		end--
	}
	if end > 0 && line[end-1] == '\r' {
		end--
	}
	if bytes.ContainsAny(line[:end], "\x00\r\n") {
		return literalMarker{}, errors.New("a command has no NUL and no line end within a line")
	}
	quoted := false
	for i := 0; i < end; i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			return parseMarker(line[:end], i)
		}
	}
	if quoted {
		return literalMarker{}, errors.New("a line ends within a quoted string")
	}
	return literalMarker{at: len(line)}, nil
}

func parseMarker(line []byte, at int) (literalMarker, error) {
	m := literalMarker{found: true, at: at}
	i := at + 1
	for i < len(line) && line[i] >= '0' && line[i] <= '9' {
		i++
	}
	m.digits = string(line[at+1 : i])
	if i < len(line) && line[i] == '+' {
		m.nonSync = true
		i++
	}
	size, err := strconv.ParseUint(m.digits, 10, 32)
	if err != nil || i != len(line)-1 || line[i] != '}' {
		return literalMarker{}, errors.New("a brace begins no literal")
	}
	m.size = int64(size)
	return m, nil
}
