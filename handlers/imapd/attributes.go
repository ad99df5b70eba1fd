package imapd

import (
	"bytes"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// attributes are the items of a FETCH reply besides sections of the message. They are written
// straight from the row.
type attributes struct {
	modSeq, uid, flags, internalDate, size, envelope bool
	body, bodyStructure                              bool
	// Is allowed in quoted strings (RFC 9051 section 4.3).
	utf8 bool
	objectItems
}

// rows returns the query for the rows and columns that the items need.
func (a *attributes) rows(changedSince uint64) inbox.RowQuery {
	return inbox.RowQuery{
		Structure: a.structure(), EmailID: a.emailID, ThreadID: a.threadID, Preview: a.preview, ChangedSince: changedSince,
	}
}

// structure reports whether the items need the structure of the message.
func (a *attributes) structure() bool { return a.envelope || a.body || a.bodyStructure }

// An attributeWriter appends FETCH answers to a buffer.
type attributeWriter struct {
	b    []byte
	utf8 bool
	view msg.View // parses the structure that is being written
}

// answer appends a whole FETCH reply.
func (w *attributeWriter) answer(seq uint32, row *inbox.MessageRow, a attributes) error {
	begin := len(w.b)
	w.b = strconv.AppendUint(append(w.b, "* "...), uint64(seq), 10)
	w.b = append(w.b, " FETCH ("...)
	if err := w.items(row, a); err != nil {
		w.b = w.b[:begin]
		return err
	}
	w.end()
	return nil
}

// end ends a reply, replacing the space after its last item.
func (w *attributeWriter) end() { w.b = append(bytes.TrimSuffix(w.b, []byte(" ")), ")\r\n"...) }

// items appends the items of a reply, each followed by a space.
func (w *attributeWriter) items(row *inbox.MessageRow, a attributes) error {
	w.utf8 = a.utf8
	if a.modSeq {
		w.b = append(strconv.AppendUint(append(w.b, "MODSEQ ("...), row.ModSeq, 10), ") "...)
	}
	if a.uid || a.flags {
		w.number("UID ", int64(row.UID), " ")
	}
	if a.flags {
		if err := w.flags(row); err != nil {
			return err
		}
	}
	if a.internalDate {
		w.b = append(row.Received.AppendFormat(append(w.b, `INTERNALDATE "`...), "_2-Jan-2006 15:04:05 -0700"), `" `...)
	}
	if a.size {
		w.number("RFC822.SIZE ", row.Size, " ")
	}
	w.objects(row, a.objectItems)
	switch {
	case a.body || a.bodyStructure:
		parts, err := w.view.Parts(row.Structure)
		if err != nil {
			return err
		}
		if a.envelope {
			w.envelope("ENVELOPE ", parts[0].Envelope, " ")
		}
		if a.body {
			w.part("BODY ", parts, false)
			w.b = append(w.b, ' ')
		}
		if a.bodyStructure {
			w.part("BODYSTRUCTURE ", parts, true)
			w.b = append(w.b, ' ')
		}
	case a.envelope:
		e, err := w.view.Envelope(row.Structure)
		if err != nil {
			return err
		}
		w.envelope("ENVELOPE ", e, " ")
	}
	return nil
}

func (w *attributeWriter) number(before string, n int64, behind string) {
	w.b = append(strconv.AppendInt(append(w.b, before...), n, 10), behind...)
}

func (w *attributeWriter) flags(row *inbox.MessageRow) error {
	names := flagTexts[row.Flags&31]
	w.b = append(append(w.b, "FLAGS ("...), names...)
	for i, k := range row.Keywords {
		if !isFlag(k) {
			return fmt.Errorf("keyword %q of UID %d: not an atom", k, row.UID)
		}
		if i > 0 || names != "" {
			w.b = append(w.b, ' ')
		}
		w.b = append(w.b, k...)
	}
	w.b = append(w.b, ") "...)
	return nil
}

// isFlag reports whether s can be in a list of flags (RFC 9051 section 9, flag).
func isFlag(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f && c < 0xa0 || strings.IndexByte(`(){%*"]`, c) >= 0 || c == '\\' && i > 0 {
			return false
		}
	}
	return s != ""
}

// string appends a string: quoted if possible, else as a literal.
func (w *attributeWriter) string(s []byte) {
	plain := len(s) <= 4096
	for _, c := range s {
		plain = plain && c != 0 && c != '\r' && c != '\n' && (c < 0x80 || w.utf8)
	}
	if !plain {
		w.number("{", int64(len(s)), "}\r\n")
		w.b = append(w.b, s...)
		return
	}
	w.b = append(w.b, '"')
	for {
		i := bytes.IndexAny(s, `"\`)
		if i < 0 {
			break
		}
		w.b = append(append(append(w.b, s[:i]...), '\\'), s[i])
		s = s[i+1:]
	}
	w.b = append(append(w.b, s...), '"')
}

// nstring is string, but NIL for an empty one.
func (w *attributeWriter) nstring(s []byte) {
	if len(s) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	w.string(s)
}

// encodeHeader returns a text as a header would have it: as encoded words if necessary (RFC 2047).
func encodeHeader(s []byte) []byte {
	for _, c := range s {
		if (c < ' ' || c > '~') && c != '\t' {
			return []byte(mime.QEncoding.Encode("utf-8", string(s)))
		}
	}
	return s
}

// toASCII returns an ASCII text as it is, and any other text as encoded words.
func toASCII(s []byte) []byte {
	if isASCII(s) {
		return s
	}
	return encodeHeader(s)
}

func isASCII(s []byte) bool {
	for _, c := range s {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// envelope appends an envelope (RFC 9051 section 7.5.2).
func (w *attributeWriter) envelope(before string, e *msg.EnvelopeView, behind string) {
	w.b = append(append(w.b, before...), '(')
	w.date(e)
	w.b = append(w.b, ' ')
	if e.EmptySubject {
		w.b = append(w.b, `""`...)
	} else {
		w.nstring(encodeHeader(e.Subject))
	}
	sender, replyTo := e.Sender, e.ReplyTo
	if len(sender) == 0 {
		sender = e.From
	}
	if len(replyTo) == 0 {
		replyTo = e.From
	}
	for _, list := range [...][]msg.AddressView{e.From, sender, replyTo, e.To, e.Cc, e.Bcc} {
		w.b = append(w.b, ' ')
		w.addresses(list)
	}
	w.b = append(w.b, ' ')
	switch ids := e.InReplyTo; len(ids) {
	case 0:
		w.b = append(w.b, "NIL"...)
	case 1:
		w.messageID(ids[0])
	default:
		all := append([]byte("<"), withoutBrackets(ids[0])...)
		for _, id := range ids[1:] {
			all = append(append(all, "> <"...), withoutBrackets(id)...)
		}
		w.string(append(all, '>'))
	}
	w.b = append(w.b, ' ')
	if len(withoutBrackets(e.MessageID)) == 0 {
		w.b = append(w.b, "NIL"...)
	} else {
		w.messageID(e.MessageID)
	}
	w.b = append(append(w.b, ')'), behind...)
}

// messageID appends a message ID in angle brackets, which id may already have.
func (w *attributeWriter) messageID(id []byte) {
	if len(id) < 2 || id[0] != '<' || id[len(id)-1] != '>' {
		id = slices.Concat([]byte("<"), withoutBrackets(id), []byte(">"))
	}
	w.string(id)
}

func withoutBrackets(id []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimPrefix(id, []byte("<")), []byte(">"))
}

func (w *attributeWriter) date(e *msg.EnvelopeView) {
	local := time.Unix(e.Date.Unix+int64(e.Date.Offset), 0).UTC()
	if !e.Date.Known || time.Unix(e.Date.Unix, 0).IsZero() {
		w.nstring(encodeHeader(e.DateText)) // as in the message
		return
	}
	w.b = local.AppendFormat(append(w.b, '"'), "Mon, 02 Jan 2006 15:04:05 ")
	sign, minutes := byte('+'), e.Date.Offset/60
	if minutes < 0 {
		sign, minutes = '-', -minutes
	}
	hours := minutes / 60
	minutes %= 60
	w.b = append(w.b, sign, byte('0'+hours/10), byte('0'+hours%10), byte('0'+minutes/10), byte('0'+minutes%10), '"')
}

func (w *attributeWriter) addresses(list []msg.AddressView) {
	if len(list) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	w.b = append(w.b, '(')
	for i := range list {
		w.b = append(w.b, '(') // with no space before it (RFC 9051 section 9, env-to)
		w.nstring(encodeHeader(list[i].Name))
		w.b = append(w.b, " NIL "...)
		w.nstring(list[i].Mailbox)
		w.b = append(w.b, ' ')
		w.nstring(list[i].Host)
		w.b = append(w.b, ')')
	}
	w.b = append(w.b, ')')
}

// part appends the structure of the first part (RFC 9051 section 7.5.2), and returns the parts
// after it and its children. BODYSTRUCTURE has extension data, BODY does not.
func (w *attributeWriter) part(before string, parts []msg.PartView, extended bool) (rest []msg.PartView) {
	p, rest := &parts[0], parts[1:]
	w.b = append(append(w.b, before...), '(')
	if p.IsMultipart() {
		for range p.Children {
			rest = w.part("", rest, extended)
		}
		w.b = append(w.b, ' ')
		w.string(p.Subtype)
		if extended {
			w.b = append(w.b, ' ')
			w.params(p.Params)
		}
	} else {
		rest = w.singlePart(p, rest, extended)
		if extended {
			w.b = append(w.b, " NIL"...) // MD5
		}
	}
	if extended {
		w.b = append(w.b, ' ')
		w.disposition(p)
		w.b = append(w.b, ' ')
		w.language(p.Language)
		w.b = append(w.b, ' ')
		w.nstring(toASCII(p.Location))
	}
	w.b = append(w.b, ')')
	return rest
}

// singlePart appends the fields of a non-multipart part that BODY has too.
func (w *attributeWriter) singlePart(p *msg.PartView, rest []msg.PartView, extended bool) []msg.PartView {
	w.string(p.Type)
	w.b = append(w.b, ' ')
	w.string(p.Subtype)
	w.b = append(w.b, ' ')
	w.params(p.Params)
	w.b = append(w.b, ' ')
	w.nstring(toASCII(p.ID))
	w.b = append(w.b, ' ')
	w.nstring(toASCII(p.Description))
	w.b = append(w.b, ' ')
	if isASCII(p.Encoding) {
		w.string(p.Encoding) // it is in lower case already
	} else {
		w.string(bytes.ToLower(toASCII(p.Encoding)))
	}
	w.number(" ", int64(uint32(p.Size())), "")
	switch {
	case p.IsMessage():
		w.b = append(w.b, ' ')
		w.envelope("", rest[0].Envelope, " ")
		rest = w.part("", rest, extended)
		w.number(" ", p.Lines, "")
	case string(p.Type) == "text":
		w.number(" ", p.Lines, "")
	}
	return rest
}

func (w *attributeWriter) disposition(p *msg.PartView) {
	if len(p.Disposition) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	w.b = append(w.b, '(')
	w.string(toASCII(p.Disposition))
	w.b = append(w.b, ' ')
	w.params(p.DispositionParams)
	w.b = append(w.b, ')')
}

func (w *attributeWriter) language(list [][]byte) {
	if len(list) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	for i, text := range list {
		w.b = append(w.b, "( "[min(i, 1)])
		w.string(text)
	}
	w.b = append(w.b, ')')
}

func (w *attributeWriter) params(params []msg.ParamView) {
	if len(params) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	for i, p := range asciiParams(params) {
		w.b = append(w.b, "( "[min(i, 1)])
		w.string(p.Name)
		w.b = append(w.b, ' ')
		w.string(p.Value)
	}
	w.b = append(w.b, ')')
}

// asciiParams encodes non-ASCII parameters as in RFC 2231, since clients expect that in a
// structure.
func asciiParams(params []msg.ParamView) []msg.ParamView {
	if !slices.ContainsFunc(params, func(p msg.ParamView) bool { return !isASCII(p.Name) || !isASCII(p.Value) }) {
		return params
	}
	out := make([]msg.ParamView, len(params))
	for i, p := range params {
		out[i] = msg.ParamView{Name: toASCII(p.Name), Value: p.Value}
		if !isASCII(p.Value) {
			out[i].Name = append(bytes.Clone(out[i].Name), '*')
			out[i].Value = appendPercent([]byte("utf-8''"), p.Value)
		}
	}
	slices.SortStableFunc(out, func(a, b msg.ParamView) int { return bytes.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b msg.ParamView) bool { return bytes.Equal(a.Name, b.Name) })
}

// appendPercent appends s with every byte as %XX, except those that RFC 2231 section 7 allows.
func appendPercent(to, s []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range s {
		if c > ' ' && c < 0x7f && strings.IndexByte(`*'%()<>@,;:\"/[]?=`, c) < 0 {
			to = append(to, c)
			continue
		}
		to = append(to, '%', hex[c>>4], hex[c&15])
	}
	return to
}

// fetchBuffer is the size in bytes of the answers at which a batch ends.
const fetchBuffer = 64 << 10
