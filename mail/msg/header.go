package msg

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/transfer"
	"golang.org/x/text/unicode/norm"
)

// Header is one header field. In a parsed message, Value is unfolded and decoded to UTF-8.
type Header struct {
	Name, Value string
}

// Limits of Headers: maxHeaders is the number of fields that it returns, maxHeaderValue the length
// of a value in bytes.
const (
	maxHeaders     = 2000
	maxHeaderValue = 16 << 10
)

// field is one raw header field. value is still folded. whole is the entire field with its name and
// line ends.
type field struct {
	name, value, whole []byte
}

// fields yields the header fields of a raw header block with any line ends. It skips lines that
// belong to no field.
func fields(block []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(block) > 0 {
			f, n := firstField(block)
			if n == 0 {
				return
			}
			block = block[n:]
			if f.name != nil && !yield(f) {
				return
			}
		}
	}
}

// firstField parses the field at the start of block with its continuation lines. n is the number of
// bytes read, or 0 at the empty line that ends the header. f is empty if the line is not a header
// field.
func firstField(block []byte) (f field, n int) {
	end, next := lineEnd(block, 0)
	if end == 0 {
		return f, 0
	}
	mark := 0
	if bytes.HasPrefix(block[:end], byteOrderMark) {
		mark = len(byteOrderMark)
	}
	name := fieldNameLength(block[mark:end])
	for next < len(block) && (block[next] == ' ' || block[next] == '\t') {
		end, next = lineEnd(block, next)
	}
	if name == 0 {
		return f, next
	}
	name += mark
	colon := name + bytes.IndexByte(block[name:], ':')
	return field{name: block[mark:name], value: block[colon+1 : end], whole: block[:next]}, next
}

// lineEnd finds the end of the line that begins at from. end is the index of its line break, next
// the index of the next line.
func lineEnd(b []byte, from int) (end, next int) {
	for end = from; end < len(b) && b[end] != '\r' && b[end] != '\n'; end++ {
	}
	if end == len(b) {
		return end, end
	}
	next = end + 1
	if b[end] == '\r' && next < len(b) && b[next] == '\n' {
		next++
	}
	return end, next
}

// fieldNameLength returns the length of the field name at the start of line, or 0 if line is not a
// header field. It accepts space before the colon (RFC 5322 §4.5).
func fieldNameLength(line []byte) int {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return 0
	}
	name := bytes.TrimRight(line[:colon], " \t")
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return 0
		}
	}
	return len(name)
}

// byteOrderMark is the UTF-8 byte order mark, with which some programs begin a message.
var byteOrderMark = []byte("\xef\xbb\xbf")

// isKnownField reports whether the line is a header field with a well-known name, so that it is
// probably not text that happens to have a colon. In a MIME part that is not a message only
// Content-* fields count (RFC 2045 section 9).
func isKnownField(line []byte, inMessage bool) bool {
	line = bytes.TrimPrefix(line, byteOrderMark)
	n := fieldNameLength(line)
	if n == 0 || n > 64 {
		return false
	}
	name := string(appendLower(nil, line[:n]))
	if strings.HasPrefix(name, "content-") || !inMessage {
		return strings.HasPrefix(name, "content-")
	}
	for _, prefix := range [...]string{"x-", "list-", "arc-", "resent-", "dkim-", "received", "return-", "authentication-results"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "from", "sender", "reply-to", "to", "cc", "bcc", "subject", "date", "message-id", "in-reply-to", "references", "mime-version",
		"delivered-to", "auto-submitted", "precedence", "importance", "priority", "organization", "user-agent", "thread-topic", "thread-index", "feedback-id":
		return true
	}
	return false
}

// isMboxLine reports whether the line is a "From " line of mbox, which some messages have above
// their header.
func isMboxLine(line []byte) bool {
	return bytes.HasPrefix(line, []byte("From ")) || bytes.HasPrefix(line, []byte(">From "))
}

// unfold removes the line ends from a folded value (RFC 5322 §2.2.3), and the space around it.
func unfold(value []byte) []byte {
	if bytes.ContainsAny(value, "\r\n") {
		out := make([]byte, 0, len(value))
		for _, c := range value {
			if c != '\r' && c != '\n' {
				out = append(out, c)
			}
		}
		value = out
	}
	return bytes.TrimSpace(value)
}

// RawHeader returns the raw header block of a part, at most MaxHeader bytes, with the empty line
// after it if there is one. To get the header of the message inside a message/rfc822 part, pass
// that part's child.
func RawHeader(r io.ReaderAt, p *Part) ([]byte, error) {
	b := make([]byte, min(p.BodyOffset-p.HeaderOffset, MaxHeader))
	n, err := r.ReadAt(b, p.HeaderOffset)
	if n < len(b) {
		return nil, fmt.Errorf("read header at offset %d: %w", p.HeaderOffset, err)
	}
	return b, nil
}

// HeaderFields returns the raw header fields of a part whose name is in names (in any letter case),
// in order, and an empty line. If except is set, it returns all other fields. IMAP returns this for
// BODY[HEADER.FIELDS (…)] and BODY[HEADER.FIELDS.NOT (…)].
func HeaderFields(r io.ReaderAt, p *Part, names []string, except bool) ([]byte, error) {
	block, err := RawHeader(r, p)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[string(appendLower(nil, []byte(name)))] = true
	}
	var out, name []byte
	for f := range fields(block) {
		name = appendLower(name[:0], f.name)
		if wanted[string(name)] == except {
			continue
		}
		out = append(out, f.whole...)
		switch {
		case bytes.HasSuffix(f.whole, []byte("\r")): // the field ends in a bare CR; a CRLF after it would make an empty line
			out = append(out, '\n')
		case !bytes.HasSuffix(f.whole, []byte("\n")):
			out = append(out, '\r', '\n')
		}
	}
	return append(out, '\r', '\n'), nil
}

// Headers returns the header fields of a part in order, unfolded and decoded, at most maxHeaders.
func Headers(r io.ReaderAt, p *Part) ([]Header, error) {
	block, err := RawHeader(r, p)
	if err != nil {
		return nil, err
	}
	charset := ""
	if !utf8.Valid(block) {
		charset = headerCharset(p)
	}
	var out []Header
	for f := range fields(block) {
		if len(out) == maxHeaders {
			break
		}
		out = append(out, Header{Name: string(f.name), Value: decodeText(f.value, charset, maxHeaderValue)})
	}
	return out, nil
}

// headerCharset guesses the charset of raw 8-bit text in a part's header that is not UTF-8. It
// returns the first charset other than UTF-8 that the part or a text inside it declares, or "" if
// there is none.
func headerCharset(p *Part) string {
	if p.Type == "text" {
		if name := p.Params["charset"]; charset.Declared(name) && !charset.IsUTF8(name) {
			return name
		}
	}
	for _, c := range p.Children {
		if name := headerCharset(c); name != "" {
			return name
		}
	}
	return ""
}

const defaultEncoding = "7bit" // the Content-Transfer-Encoding of a part without that field (RFC 2045 §6.1)

// textBudget limits the bytes of strings that are stored in one tree.
type textBudget struct {
	left    int
	charset string // charset of raw 8-bit text in the header
}

// keep returns s and takes its length from the budget. It returns "" if s does not fit.
func (t *textBudget) keep(s string) string {
	if len(s) > t.left {
		return ""
	}
	t.left -= len(s)
	return s
}

// The header fields that are parsed for a part and for an envelope, in the order in which they are
// parsed.
var (
	partFieldNames = [...]string{
		"content-type", "content-transfer-encoding", "content-id", "content-description", "content-location", "content-md5", "content-language", "content-disposition",
	}
	envelopeFieldNames = [...]string{"date", "subject", "from", "sender", "reply-to", "to", "cc", "bcc", "message-id", "in-reply-to", "references"}
)

// readHeader fills p, and env unless it is nil, from a header block. If a field is repeated, the
// last one counts: DKIM signs that one (RFC 6376 section 5.4.2), while anybody can add another
// field above it. digest says that the default type is message/rfc822.
func (t *textBudget) readHeader(block []byte, p *Part, env *Envelope, digest bool) {
	hasType := false
	var lists addressFields
	var ofPart [len(partFieldNames)][]byte
	var ofEnvelope [len(envelopeFieldNames)][]byte
	var lower [32]byte
	for f := range fields(block) {
		if len(f.name) > len(lower) {
			continue
		}
		name := lower[:len(f.name)]
		for i, c := range f.name {
			name[i] = lowerByte(c)
		}
		if bytes.HasPrefix(name, []byte("content-")) {
			keepField(partFieldNames[:], ofPart[:], name, f.value)
		} else if env != nil {
			keepField(envelopeFieldNames[:], ofEnvelope[:], name, f.value)
		}
	}
	for i, value := range ofPart {
		switch {
		case value == nil:
		case i == 0:
			hasType = t.setContentType(p, value)
		default:
			t.setContentField(partFieldNames[i], p, value)
		}
	}
	for i, value := range ofEnvelope {
		if value != nil {
			t.setEnvelopeField(envelopeFieldNames[i], env, value, &lists)
		}
	}
	if env != nil {
		t.readAddressLists(env, &lists)
	}
	if !hasType {
		p.Type, p.Subtype, p.Params = "text", "plain", map[string]string{"charset": "us-ascii"}
		if digest {
			p.Type, p.Subtype, p.Params = "message", "rfc822", nil
		}
	}
	if p.Encoding == "" {
		p.Encoding = defaultEncoding
	}
}

// keepField stores value in values, at the index that the field name has in names. It ignores other
// names.
func keepField(names []string, values [][]byte, name, value []byte) {
	for i, one := range names {
		if one == string(name) {
			values[i] = value[:len(value):len(value)]
			return
		}
	}
}

// reparseHeader parses a header again and replaces the strings of its part and envelope. It is
// called when the charset of the 8-bit text in the header is known.
func (t *textBudget) reparseHeader(h rawHeader, charset string) {
	t.left += h.used
	t.charset = charset
	var again Part
	var env *Envelope
	if h.envelope != nil {
		env = &Envelope{}
	}
	t.readHeader(h.block, &again, env, h.digest)
	p := h.part
	p.ID, p.Description, p.Location, p.MD5, p.Language = again.ID, again.Description, again.Location, again.MD5, again.Language
	p.DispositionParams = again.DispositionParams
	if p.Type == again.Type && p.Subtype == again.Subtype {
		p.Params = again.Params
	}
	if env != nil {
		*h.envelope = *env
	}
}

func (t *textBudget) setContentField(name string, p *Part, value []byte) {
	switch name {
	case "content-transfer-encoding":
		if p.Encoding == "" {
			p.Encoding = t.keep(encodingName(value))
		}
	case "content-id":
		t.keepFirst(&p.ID, value, maxMessageID)
	case "content-description":
		t.keepFirst(&p.Description, value, MaxText)
	case "content-location":
		t.keepFirst(&p.Location, value, MaxText)
	case "content-md5":
		t.keepFirst(&p.MD5, value, 64)
	case "content-language":
		if p.Language == nil {
			p.Language = t.languages(value)
		}
	case "content-disposition":
		if p.Disposition == "" {
			head, params := parseParams(value, t.charset)
			p.Disposition = t.keep(strings.ToLower(cut(head, 64)))
			p.DispositionParams = t.keepParams(params)
		}
	}
}

// keepFirst stores the decoded value in *to unless *to is already set.
func (t *textBudget) keepFirst(to *string, value []byte, limit int) {
	if *to == "" {
		*to = t.keep(decodeText(value, t.charset, limit))
	}
}

// languages returns the language tags of a Content-Language value.
func (t *textBudget) languages(value []byte) []string {
	var out []string
	for tag := range strings.SplitSeq(cut(decodeText(value, t.charset, MaxText), 512), ",") {
		tag = strings.TrimSpace(tag)
		if tag != "" {
			out = append(out, t.keep(tag))
		}
	}
	return out
}

// setContentType sets the part's type. It returns false if the value is invalid, which counts as
// absent (RFC 2045 §5.2).
func (t *textBudget) setContentType(p *Part, value []byte) (valid bool) {
	head, params := parseParams(value, t.charset)
	typ, subtype, _ := strings.Cut(strings.ToLower(head), "/")
	if head == "" && params["charset"] != "" {
		typ = "text"
	}
	if subtype == "" && len(params) > 0 {
		switch typ {
		case "text":
			subtype = "plain"
		case "multipart":
			subtype = "mixed"
		}
	}
	if !isToken(typ) || !isToken(subtype) || len(typ)+len(subtype) > 127 {
		return false
	}
	p.Type, p.Subtype = t.keep(typ), t.keep(subtype)
	if p.Type == "" || p.Subtype == "" {
		p.makeLeaf()
	}
	p.Params = t.keepParams(params)
	return true
}

func (t *textBudget) keepParams(params map[string]string) map[string]string {
	for k, v := range params {
		if t.keep(k+v) == "" {
			delete(params, k)
		}
	}
	if len(params) == 0 {
		return nil
	}
	return params
}

func (t *textBudget) setEnvelopeField(name string, env *Envelope, value []byte, lists *addressFields) {
	switch name {
	case "date":
		if env.DateText == "" {
			env.DateText = t.keep(decodeText(value, t.charset, 128))
			env.Date = parseDate(env.DateText)
		}
	case "subject":
		t.keepFirst(&env.Subject, value, MaxText)
		env.EmptySubject = env.Subject == ""
	case "from":
		lists.from = append(lists.from, value)
	case "sender":
		lists.sender = append(lists.sender, value)
	case "reply-to":
		lists.replyTo = append(lists.replyTo, value)
	case "to", "cc", "bcc":
		lists.others = append(lists.others, recipientField{name[0], value})
	case "message-id":
		if ids := messageIDs(value); env.MessageID == "" && len(ids) > 0 {
			env.MessageID = t.keep(ids[0])
		}
	case "in-reply-to":
		t.ids(&env.InReplyTo, value)
	case "references":
		t.ids(&env.References, value)
	}
}

// addressFields collects the address fields of a header, so that readAddressLists can choose their
// order.
type addressFields struct {
	from, sender, replyTo [][]byte
	others                []recipientField
}

// recipientField is the value of a To, Cc or Bcc field.
type recipientField struct {
	initial byte // t, c or b for To, Cc or Bcc
	value   []byte
}

// readAddressLists parses the address fields. The authors come before the recipients, so that many
// recipients cannot use up MaxAddresses and push out an author.
func (t *textBudget) readAddressLists(env *Envelope, lists *addressFields) {
	room := MaxAddresses
	for _, value := range lists.from {
		if env.From == nil {
			t.readAddresses(&env.From, value, &room)
		}
	}
	for _, value := range lists.sender {
		if env.Sender == nil {
			t.readAddresses(&env.Sender, value, &room)
		}
	}
	for _, value := range lists.replyTo {
		t.readAddresses(&env.ReplyTo, value, &room)
	}
	for _, f := range lists.others {
		switch f.initial {
		case 't':
			t.readAddresses(&env.To, f.value, &room)
		case 'c':
			t.readAddresses(&env.Cc, f.value, &room)
		case 'b':
			t.readAddresses(&env.Bcc, f.value, &room)
		}
	}
}

func (t *textBudget) readAddresses(to *[]Address, value []byte, room *int) {
	for _, a := range parseAddresses(charset.DecodeRaw(unfold(value), t.charset), *room) {
		size := len(a.Name) + len(a.Mailbox) + len(a.Host)
		if size > t.left {
			return
		}
		t.left -= size
		*room--
		*to = append(*to, a)
	}
}

func (t *textBudget) ids(to *[]string, value []byte) {
	if *to != nil {
		return
	}
	for _, id := range messageIDs(value) {
		id = t.keep(id)
		if id != "" {
			*to = append(*to, id)
		}
	}
}

// encodingName returns the Content-Transfer-Encoding in lower case. It recognizes misspelled names
// such as "quoted_printable".
func encodingName(value []byte) string {
	value = bytes.TrimSpace(value)
	for _, name := range [...]string{defaultEncoding, "8bit", "base64", "quoted-printable"} {
		if string(value) == name { // avoids an allocation in the common case
			return name
		}
	}
	s := strings.TrimLeft(dropComments(cut(string(unfold(value)), 256)), `"' `)
	s, _, _ = strings.Cut(s, ";")
	s = strings.ToLower(cut(strings.Trim(s, "\"' \t"), 64))
	letters := strings.Map(func(r rune) rune { // only letters and digits, without the prefix "x-"
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, strings.TrimPrefix(s, "x-"))
	switch {
	case strings.HasPrefix(letters, "base64") || letters == "b64":
		return "base64"
	case strings.HasPrefix(letters, "quoted") || letters == "qp":
		return "quoted-printable"
	case strings.HasPrefix(letters, "uue") || letters == "uu":
		return transfer.UUEncode
	case strings.HasPrefix(letters, "8bit"):
		return "8bit"
	case strings.HasPrefix(letters, "7bit"):
		return "7bit"
	}
	s, _, _ = strings.Cut(s, " ")
	return strings.TrimRight(s, ",")
}

// appendLower appends text to b with its ASCII letters in lower case.
func appendLower(b, text []byte) []byte {
	for _, c := range text {
		b = append(b, lowerByte(c))
	}
	return b
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// BaseSubject removes the prefixes that mail programs and mailing lists add to a subject (RFC 5256
// section 2.1), in many languages. It returns the rest in lower case, with one space for each run
// of white space. isReply reports whether one of the prefixes was that of a reply, such as "Re:".
func BaseSubject(subject string) (base string, isReply bool) {
	base = strings.Join(strings.Fields(strings.ToLower(norm.NFKC.String(cut(subject, MaxText)))), " ")
	for {
		rest, mark := cutSubjectPrefix(base)
		if mark == "" {
			return base, isReply
		}
		isReply = isReply || replyPrefixes[mark]
		base = rest
	}
}

// cutSubjectPrefix removes one prefix from a subject: a known word with a colon, or a list name in
// brackets that is followed by text. It returns the word, or "[]", as mark. mark is "" if there is
// no prefix.
func cutSubjectPrefix(s string) (rest, mark string) {
	if strings.HasPrefix(s, "[") {
		name, after, ok := strings.Cut(s[1:], "]")
		after = strings.TrimSpace(after)
		if ok && after != "" && len(name) <= 60 {
			return after, "[]"
		}
		return s, ""
	}
	head, after, ok := strings.Cut(s, ":")
	if !ok || len(head) > 24 {
		return s, ""
	}
	word := strings.TrimFunc(head, func(r rune) bool { return unicode.IsDigit(r) || strings.ContainsRune(" []()^*", r) })
	if !replyPrefixes[word] && !forwardPrefixes[word] {
		return s, ""
	}
	return strings.TrimSpace(after), word
}

var (
	replyPrefixes = map[string]bool{
		"re": true, "r": true, "aw": true, "antw": true, "antwort": true, "sv": true, "vs": true, "vá": true, "odp": true, "rif": true,
		"res": true, "rsp": true, "resp": true, "ynt": true, "yanıt": true, "bls": true, "atb": true, "απ": true, "σχετ": true, "ha": true,
		"на": true, "отв": true, "ответ": true, "rép": true, "rep": true, "回复": true, "回覆": true, "答复": true, "返信": true, "답장": true, "رد": true, "תגובה": true,
	}
	forwardPrefixes = map[string]bool{
		"fw": true, "fwd": true, "wg": true, "tr": true, "rv": true, "enc": true, "i": true, "fs": true, "vb": true, "vl": true, "pd": true,
		"doorst": true, "ilt": true, "továbbítás": true, "trs": true, "πρθ": true, "пер": true, "转发": true, "轉寄": true, "転送": true, "전달": true,
	}
)

// NewMessageID returns a new random Message-ID at the domain, in angle brackets.
func NewMessageID(domain string) string {
	return "<" + strings.ToLower(rand.Text()) + "@" + domain + ">"
}

// messageIDs returns the ids of a Message-ID, In-Reply-To or References field, each in angle
// brackets. If there are more than MaxReferences, it keeps the first, which identifies the thread,
// and the newest. It accepts an id without brackets if the id has an @ or is the whole value.
func messageIDs(value []byte) []string {
	value = unfold(value)
	var found [][]byte
	add := func(id []byte) {
		id = stripSpace(id)
		if len(id) > 0 && len(id) <= maxMessageID-2 {
			found = append(found, id)
		}
	}
	for rest := value; len(rest) > 0; {
		open := bytes.IndexByte(rest, '<')
		if open < 0 {
			addBareIDs(rest, add)
			break
		}
		addBareIDs(rest[:open], add)
		id, after, _ := bytes.Cut(rest[open+1:], []byte(">"))
		add(id)
		rest = after
	}
	if len(found) == 0 && len(value) > 0 && !bytes.ContainsAny(value, " \t<>\"") {
		add(value)
	}
	if over := len(found) - MaxReferences; over > 0 {
		found = append(found[:1], found[1+over:]...)
	}
	out := make([]string, len(found))
	for i, id := range found {
		out[i] = "<" + cleanText(charset.Guess(id), maxMessageID) + ">"
	}
	return out
}

func addBareIDs(text []byte, add func([]byte)) {
	if bytes.IndexByte(text, '@') < 0 {
		return
	}
	for word := range bytes.FieldsSeq(text) {
		if bytes.IndexByte(word, '@') > 0 {
			add(bytes.Trim(word, ",;>()\""))
		}
	}
}

func stripSpace(b []byte) []byte {
	if !bytes.ContainsAny(b, " \t") {
		return b
	}
	return bytes.Join(bytes.Fields(b), nil)
}
