package wire

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"
)

// A Command parses the arguments of one command, one after another. The first argument that cannot
// be parsed sets the error of the command. After that, methods return zero values, and End returns
// the error.
type Command struct {
	Tag  string
	Name string // in capitals, with UID if the command has it, as in "UID FETCH"
	conn *Conn
	err  error
}

// newCommand parses the tag and the name of the command that begins in the current line. Tag is ""
// if the line has no tag with which it could be answered.
func newCommand(c *Conn) *Command {
	p := &Command{conn: c}
	tag := p.Atom()
	if !strings.Contains(tag, "+") {
		p.Tag = tag
	}
	p.Space()
	p.Name = strings.ToUpper(p.Atom())
	if p.Name == "UID" {
		p.Space()
		p.Name += " " + strings.ToUpper(p.Atom())
	}
	if p.Tag == "" || len(p.rest()) > 0 && !p.Next(' ') {
		p.fail("a command")
	}
	return p
}

// UID reports whether the command and its answers name messages by UID.
func (p *Command) UID() bool { return strings.HasPrefix(p.Name, "UID ") }

// Err returns the error of the command so far.
func (p *Command) Err() error { return p.err }

// Fail sets the error of the command, unless it has one.
func (p *Command) Fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// fail sets an error that says which argument was expected.
func (p *Command) fail(expected string) {
	at := "the end of the line"
	if rest := p.rest(); len(rest) > 0 {
		at = fmt.Sprintf("%q", rest[:1])
	}
	p.Fail(Bad("The arguments cannot be read: expected %s, not %s", expected, at))
}

// rest returns the part of the line that is not parsed yet. It returns nothing if the command has
// an error.
func (p *Command) rest() []byte {
	if p.err != nil {
		return nil
	}
	return p.conn.rest
}

// End parses the end of the command. It accepts one space before it. It returns the error of the
// command.
func (p *Command) End() error {
	p.Skip(' ')
	if len(p.rest()) > 0 {
		p.fail("the end of the command")
	}
	return p.err
}

// More reports whether the command has more arguments.
func (p *Command) More() bool {
	rest := p.rest()
	return len(rest) > 0 && (rest[0] != ' ' || len(rest) > 1)
}

// SkipList skips a space and a list that has only the given word, which is in capitals. It reports
// whether the list was there.
func (p *Command) SkipList(word string) bool {
	text := " (" + word + ")"
	rest := p.rest()
	if len(rest) < len(text) || !strings.EqualFold(string(rest[:len(text)]), text) {
		return false
	}
	p.conn.rest = rest[len(text):]
	return true
}

// NextIs reports whether a space and the byte b come next.
func (p *Command) NextIs(b byte) bool {
	rest := p.rest()
	return len(rest) > 1 && rest[0] == ' ' && rest[1] == b
}

// NextIsDigit reports whether a digit comes next. If afterDot is true, a dot must be before the
// digit.
func (p *Command) NextIsDigit(afterDot bool) bool {
	rest := p.rest()
	if afterDot && len(rest) > 0 && rest[0] == '.' {
		rest = rest[1:]
	} else if afterDot {
		return false
	}
	return len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9'
}

// Next reports whether the byte b comes next.
func (p *Command) Next(b byte) bool {
	rest := p.rest()
	return len(rest) > 0 && rest[0] == b
}

// Skip skips the byte b if it comes next, and reports whether it did.
func (p *Command) Skip(b byte) bool {
	if !p.Next(b) {
		return false
	}
	p.conn.rest = p.conn.rest[1:]
	return true
}

// Expect parses the byte b. Any other byte is an error.
func (p *Command) Expect(b byte) {
	if !p.Skip(b) {
		p.fail(fmt.Sprintf("%q", b))
	}
}

// Space parses the space before an argument. The space before a list may be missing, since some
// clients omit it.
func (p *Command) Space() {
	if !p.Skip(' ') && !p.Next('(') {
		p.fail("a space")
	}
}

// ReadList parses a list in parentheses. It calls item to parse each value.
func (p *Command) ReadList(item func()) {
	p.Expect('(')
	if p.Skip(')') {
		return
	}
	for p.err == nil {
		item()
		if p.Skip(')') {
			return
		}
		p.Space()
	}
}

// ReadWhile parses one or more bytes for which accepts returns true. what is what they are, for the
// text of an error.
func (p *Command) ReadWhile(what string, accepts func(byte) bool) string {
	rest := p.rest()
	n := 0
	for n < len(rest) && accepts(rest[n]) {
		n++
	}
	if n == 0 {
		p.fail(what)
		return ""
	}
	p.conn.rest = rest[n:]
	return string(rest[:n])
}

// IsAtomByte reports whether b is allowed in an atom (RFC 9051 section 9, ATOM-CHAR). Bytes beyond
// ASCII are allowed too, since some clients send UTF-8 in atoms.
func IsAtomByte(b byte) bool {
	return b > ' ' && (b < 0x7f || b >= 0xa0) && strings.IndexByte(`(){%*"\]`, b) < 0
}

// isAStringByte reports whether b is allowed in an astring without quotes.
func isAStringByte(b byte) bool { return b == ']' || IsAtomByte(b) }

// isPatternByte reports whether b is allowed in a pattern without quotes.
func isPatternByte(b byte) bool { return b == '%' || b == '*' || isAStringByte(b) }

// Atom parses an atom.
func (p *Command) Atom() string { return p.ReadWhile("an atom", IsAtomByte) }

// Word parses an atom and returns it in capitals.
func (p *Command) Word() string { return strings.ToUpper(p.Atom()) }

// PeekWord returns the next atom in capitals, without parsing it. It returns "" if no atom comes
// next.
func (p *Command) PeekWord() string {
	rest := p.rest()
	n := 0
	for n < len(rest) && IsAtomByte(rest[n]) {
		n++
	}
	return strings.ToUpper(string(rest[:n]))
}

// Text parses a string: a quoted string or a literal (RFC 9051 section 4.3).
func (p *Command) Text() string {
	switch {
	case p.Next('{') && p.conn.marker.found:
		s, err := p.conn.readString()
		if err != nil {
			p.Fail(err)
		}
		return s
	case !p.Skip('"'):
		p.fail("a string")
		return ""
	}
	var out strings.Builder
	for i, rest := 0, p.rest(); i < len(rest); i++ {
		switch rest[i] {
		case '"':
			p.conn.rest = rest[i+1:]
			return out.String()
		case '\\':
			if i++; i == len(rest) {
				continue
			}
		}
		out.WriteByte(rest[i])
	}
	p.conn.rest = nil
	p.fail("the end of a string")
	return ""
}

func (p *Command) nextIsString() bool { return p.Next('"') || p.Next('{') }

// AString parses an atom or a string (RFC 9051 section 9, astring).
func (p *Command) AString() string {
	if p.nextIsString() {
		return p.Text()
	}
	return p.ReadWhile("an atom or a string", isAStringByte)
}

// unreadableFolder is returned for a folder name that cannot be decoded. No folder can have this
// name, so the answer is NO. It must not be BAD, because the command is well formed.
const unreadableFolder = "#unreadable"

// Folder parses the name of a folder.
func (p *Command) Folder() string {
	text := p.AString()
	name, ok := p.decodeName(text)
	switch {
	case strings.EqualFold(text, "INBOX"):
		return "INBOX"
	case !ok:
		return unreadableFolder
	}
	return name
}

// Pattern parses a pattern of folder names, as in LIST. If the pattern cannot be decoded, it
// returns one that is longer than any folder name.
func (p *Command) Pattern() string {
	text := ""
	if p.nextIsString() {
		text = p.Text()
	} else {
		text = p.ReadWhile("a pattern", isPatternByte)
	}
	pattern, ok := p.decodeName(text)
	if !ok {
		return strings.Repeat("#", 256)
	}
	return pattern
}

// decodeName decodes a folder name, from modified UTF-7 unless the client uses UTF-8. ok is false
// if it cannot be decoded.
func (p *Command) decodeName(text string) (name string, ok bool) {
	if p.conn.utf8 {
		return text, isValidName(text)
	}
	return decodeName(text)
}

// Number parses a number of 32 bits.
func (p *Command) Number() uint32 { return uint32(p.number(math.MaxUint32)) }

// Number64 parses a number of 63 bits (RFC 9051 section 9, number64).
func (p *Command) Number64() int64 { return int64(p.number(math.MaxInt64)) }

// ModSeq parses a mod-sequence, which has 63 bits (RFC 7162 section 7).
func (p *Command) ModSeq() uint64 { return p.number(math.MaxInt64) }

// number parses a number up to largest.
func (p *Command) number(largest uint64) uint64 {
	rest := p.rest()
	n := 0
	for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
		n++
	}
	value, err := strconv.ParseUint(string(rest[:n]), 10, 64)
	if err != nil || value > largest {
		p.fail("a number")
		return 0
	}
	p.conn.rest = rest[n:]
	return value
}

// NumberOrStar parses the number of one message. It returns 0 for "*", the last message.
func (p *Command) NumberOrStar() uint32 {
	if p.Skip('*') {
		return 0
	}
	if p.Next('0') {
		p.fail("the number of a message")
	}
	return p.Number()
}

// Set parses a set of messages (RFC 9051 section 9, sequence-set). It is a set of UIDs if the name
// of the command begins with UID, or else of sequence numbers. "$" is the result of a search.
func (p *Command) Set() imap.NumSet {
	if p.UID() {
		return p.UIDSet()
	}
	if p.Skip('$') {
		return imap.SearchRes()
	}
	return p.SeqSet()
}

// UIDSet parses a set of UIDs, or "$".
func (p *Command) UIDSet() imap.UIDSet {
	if p.Skip('$') {
		return imap.SearchRes()
	}
	return uidSet(p.set())
}

// SeqSet parses a set of sequence numbers.
func (p *Command) SeqSet() imap.SeqSet { return seqSet(p.set()) }

func (p *Command) set() []numberRange {
	list, ok := parseSet(p.SetText())
	if !ok {
		p.fail("a set of numbers")
	}
	return list
}

// SetText parses a set and returns its text, without checking it.
func (p *Command) SetText() string {
	return p.ReadWhile("a set of numbers", func(b byte) bool { return b == '*' || IsAtomByte(b) })
}

// knownFlags has the standard spelling of flags (RFC 9051 section 2.3.2) by their names in lower
// case.
var knownFlags = func() map[string]imap.Flag {
	flags := map[string]imap.Flag{}
	for _, f := range []imap.Flag{
		imap.FlagSeen, imap.FlagAnswered, imap.FlagFlagged, imap.FlagDeleted, imap.FlagDraft, imap.FlagForwarded, imap.FlagMDNSent,
		imap.FlagJunk, imap.FlagNotJunk, imap.FlagPhishing, imap.FlagImportant,
	} {
		flags[strings.ToLower(string(f))] = f
	}
	return flags
}()

// Flag parses a flag or a keyword.
func (p *Command) Flag() imap.Flag {
	system := p.Skip('\\')
	if system && p.Skip('*') {
		return imap.FlagWildcard
	}
	name := p.ReadWhile("a flag", IsAtomByte)
	if system {
		name = `\` + name
	}
	if known, ok := knownFlags[strings.ToLower(name)]; ok {
		return known
	}
	return imap.Flag(name)
}

// Flags parses a list of flags in parentheses.
func (p *Command) Flags() (list []imap.Flag) {
	p.ReadList(func() { list = append(list, p.Flag()) })
	return list
}

// Date parses a day, such as 1-Feb-2026 (RFC 9051 section 9, date). Its time zone is UTC.
func (p *Command) Date() time.Time {
	day, err := time.Parse("2-Jan-2006", p.AString())
	if err != nil {
		p.fail("a date such as 1-Feb-2026")
	}
	return day
}

// DateTime parses a time, such as "01-Feb-2026 12:30:00 +0000" (RFC 9051 section 9, date-time).
func (p *Command) DateTime() time.Time {
	at, err := time.Parse("_2-Jan-2006 15:04:05 -0700", p.Text())
	if err != nil {
		p.fail(`a time such as "01-Feb-2026 12:30:00 +0000"`)
	}
	return at
}

// MessageSize parses the marker of a literal with a message, and returns the message's size in
// bytes. The caller then calls ReadMessage, or refuses the command without reading the message.
func (p *Command) MessageSize() int64 {
	if !p.Next('{') || !p.conn.marker.found {
		p.fail("a message as a literal")
		return 0
	}
	size := p.conn.marker.size
	if size > MaxMessageBytes {
		p.Fail(No(imap.ResponseCodeTooBig, "The message is too large"))
	}
	return size
}

// ReadMessage asks the client for the message that MessageSize has announced, and returns a reader
// of its bytes. The reader fails if the message does not arrive completely.
func (p *Command) ReadMessage() (io.Reader, error) {
	if p.err != nil {
		return nil, p.err
	}
	return p.conn.readMessage()
}

// EndOfMessage reads the next line of the command. The caller must have read the whole message.
func (p *Command) EndOfMessage() {
	if p.err == nil {
		p.err = p.conn.endMessage()
	}
}
