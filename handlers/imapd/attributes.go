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

// attributes are the items that a FETCH answer is to have, besides sections of the message. Their
// values come from the message's row in the store.
type attributes struct {
	modSeq, uid, flags, internalDate, size, envelope bool
	body, bodyStructure                              bool
	// Texts beyond ASCII are allowed in quoted strings (RFC 9051 section 4.3).
	utf8 bool
	objectItems
}

// rowQuery returns the query for the messages that have changed since the given mod-sequence, with
// the columns that the items need.
func (a *attributes) rowQuery(changedSince uint64) inbox.RowQuery {
	return inbox.RowQuery{
		Structure: a.needsStructure(), EmailID: a.emailID, ThreadID: a.threadID, Preview: a.preview, ChangedSince: changedSince,
	}
}

// needsStructure reports whether an item needs the structure of the message.
func (a *attributes) needsStructure() bool { return a.envelope || a.body || a.bodyStructure }

// An attributeWriter appends FETCH answers to the buffer b.
type attributeWriter struct {
	b    []byte
	utf8 bool     // as in attributes
	view msg.View // parses the structure that is being written
}

// writeAnswer appends a whole FETCH answer for the message with sequence number seq. If it fails,
// it leaves the buffer as it was.
func (w *attributeWriter) writeAnswer(seq uint32, row *inbox.MessageRow, a attributes) error {
	begin := len(w.b)
	w.b = strconv.AppendUint(append(w.b, "* "...), uint64(seq), 10)
	w.b = append(w.b, " FETCH ("...)
	if err := w.writeItems(row, a); err != nil {
		w.b = w.b[:begin]
		return err
	}
	w.writeEnd()
	return nil
}

// writeEnd replaces the space after the last item with the end of the answer.
func (w *attributeWriter) writeEnd() { w.b = append(bytes.TrimSuffix(w.b, []byte(" ")), ")\r\n"...) }

// writeItems appends the items of an answer, each followed by a space.
func (w *attributeWriter) writeItems(row *inbox.MessageRow, a attributes) error {
	w.utf8 = a.utf8
	if a.modSeq {
		w.b = append(strconv.AppendUint(append(w.b, "MODSEQ ("...), row.ModSeq, 10), ") "...)
	}
	if a.uid || a.flags {
		w.writeNumber("UID ", int64(row.UID), " ")
	}
	if a.flags {
		if err := w.writeFlags(row); err != nil {
			return err
		}
	}
	if a.internalDate {
		w.b = append(row.Received.AppendFormat(append(w.b, `INTERNALDATE "`...), "_2-Jan-2006 15:04:05 -0700"), `" `...)
	}
	if a.size {
		w.writeNumber("RFC822.SIZE ", row.Size, " ")
	}
	w.writeObjectItems(row, a.objectItems)
	switch {
	case a.body || a.bodyStructure:
		parts, err := w.view.Parts(row.Structure)
		if err != nil {
			return err
		}
		if a.envelope {
			w.writeEnvelope("ENVELOPE ", parts[0].Envelope, " ")
		}
		if a.body {
			w.writePart("BODY ", parts, false)
			w.b = append(w.b, ' ')
		}
		if a.bodyStructure {
			w.writePart("BODYSTRUCTURE ", parts, true)
			w.b = append(w.b, ' ')
		}
	case a.envelope:
		e, err := w.view.Envelope(row.Structure)
		if err != nil {
			return err
		}
		w.writeEnvelope("ENVELOPE ", e, " ")
	}
	return nil
}

// writeNumber appends n between two texts.
func (w *attributeWriter) writeNumber(before string, n int64, behind string) {
	w.b = append(strconv.AppendInt(append(w.b, before...), n, 10), behind...)
}

// writeFlags appends the system flags and the keywords of a message.
func (w *attributeWriter) writeFlags(row *inbox.MessageRow) error {
	names := flagTexts[row.Flags&31]
	w.b = append(append(w.b, "FLAGS ("...), names...)
	for i, k := range row.Keywords {
		if !isFlag(k) {
			return fmt.Errorf("keyword %q of UID %d is not an atom", k, row.UID)
		}
		if i > 0 || names != "" {
			w.b = append(w.b, ' ')
		}
		w.b = append(w.b, k...)
	}
	w.b = append(w.b, ") "...)
	return nil
}

// isFlag reports whether s is allowed in a list of flags (RFC 9051 section 9, flag).
func isFlag(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f && c < 0xa0 || strings.IndexByte(`(){%*"]`, c) >= 0 || c == '\\' && i > 0 {
			return false
		}
	}
	return s != ""
}

// writeString appends a string: quoted if that is possible, or else as a literal.
func (w *attributeWriter) writeString(s []byte) {
	plain := len(s) <= 4096
	for _, c := range s {
		plain = plain && c != 0 && c != '\r' && c != '\n' && (c < 0x80 || w.utf8)
	}
	if !plain {
		w.writeNumber("{", int64(len(s)), "}\r\n")
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

// writeNString appends a string, or NIL if it is empty.
func (w *attributeWriter) writeNString(s []byte) {
	if len(s) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	w.writeString(s)
}

// encodeHeader returns a text as a header field has it: as encoded words (RFC 2047) unless it is
// printable ASCII.
func encodeHeader(s []byte) []byte {
	for _, c := range s {
		if (c < ' ' || c > '~') && c != '\t' {
			return []byte(mime.QEncoding.Encode("utf-8", string(s)))
		}
	}
	return s
}

// toASCII returns an ASCII text unchanged, and any other text as encoded words.
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

// writeEnvelope appends an envelope (RFC 9051 section 7.5.2) between two texts.
func (w *attributeWriter) writeEnvelope(before string, e *msg.EnvelopeView, behind string) {
	w.b = append(append(w.b, before...), '(')
	w.writeDate(e)
	w.b = append(w.b, ' ')
	if e.EmptySubject {
		w.b = append(w.b, `""`...)
	} else {
		w.writeNString(encodeHeader(e.Subject))
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
		w.writeAddresses(list)
	}
	w.b = append(w.b, ' ')
	switch ids := e.InReplyTo; len(ids) {
	case 0:
		w.b = append(w.b, "NIL"...)
	case 1:
		w.writeMessageID(ids[0])
	default:
		all := append([]byte("<"), withoutBrackets(ids[0])...)
		for _, id := range ids[1:] {
			all = append(append(all, "> <"...), withoutBrackets(id)...)
		}
		w.writeString(append(all, '>'))
	}
	w.b = append(w.b, ' ')
	if len(withoutBrackets(e.MessageID)) == 0 {
		w.b = append(w.b, "NIL"...)
	} else {
		w.writeMessageID(e.MessageID)
	}
	w.b = append(append(w.b, ')'), behind...)
}

// writeMessageID appends a message ID in angle brackets. id may already have them.
func (w *attributeWriter) writeMessageID(id []byte) {
	if len(id) < 2 || id[0] != '<' || id[len(id)-1] != '>' {
		id = slices.Concat([]byte("<"), withoutBrackets(id), []byte(">"))
	}
	w.writeString(id)
}

func withoutBrackets(id []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimPrefix(id, []byte("<")), []byte(">"))
}

// writeDate appends the date of an envelope. If the date could not be parsed, it is written as the
// message has it.
func (w *attributeWriter) writeDate(e *msg.EnvelopeView) {
	local := time.Unix(e.Date.Unix+int64(e.Date.Offset), 0).UTC()
	if !e.Date.Known || time.Unix(e.Date.Unix, 0).IsZero() {
		w.writeNString(encodeHeader(e.DateText))
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

// writeAddresses appends a list of addresses, or NIL if it is empty.
func (w *attributeWriter) writeAddresses(list []msg.AddressView) {
	if len(list) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	w.b = append(w.b, '(')
	for i := range list {
		w.b = append(w.b, '(') // no space between addresses (RFC 9051 section 9, env-to)
		w.writeNString(encodeHeader(list[i].Name))
		w.b = append(w.b, " NIL "...)
		w.writeNString(list[i].Mailbox)
		w.b = append(w.b, ' ')
		w.writeNString(list[i].Host)
		w.b = append(w.b, ')')
	}
	w.b = append(w.b, ')')
}

// writePart appends the structure of parts[0] (RFC 9051 section 7.5.2). It returns the parts that
// come after it and its children. If extended is true, the structure has extension data, as in
// BODYSTRUCTURE; BODY has none.
func (w *attributeWriter) writePart(before string, parts []msg.PartView, extended bool) (rest []msg.PartView) {
	p, rest := &parts[0], parts[1:]
	w.b = append(append(w.b, before...), '(')
	if p.IsMultipart() {
		for range p.Children {
			rest = w.writePart("", rest, extended)
		}
		w.b = append(w.b, ' ')
		w.writeString(p.Subtype)
		if extended {
			w.b = append(w.b, ' ')
			w.writeParams(p.Params)
		}
	} else {
		rest = w.writeSinglePart(p, rest, extended)
		if extended {
			w.b = append(w.b, " NIL"...) // MD5
		}
	}
	if extended {
		w.b = append(w.b, ' ')
		w.writeDisposition(p)
		w.b = append(w.b, ' ')
		w.writeLanguage(p.Language)
		w.b = append(w.b, ' ')
		w.writeNString(toASCII(p.Location))
	}
	w.b = append(w.b, ')')
	return rest
}

// writeSinglePart appends the fields of p, a part that is not multipart, which BODY and
// BODYSTRUCTURE have in common. rest are the parts after p. If p is a message, it also appends the
// parts inside p, and returns those after them.
func (w *attributeWriter) writeSinglePart(p *msg.PartView, rest []msg.PartView, extended bool) (after []msg.PartView) {
	w.writeString(p.Type)
	w.b = append(w.b, ' ')
	w.writeString(p.Subtype)
	w.b = append(w.b, ' ')
	w.writeParams(p.Params)
	w.b = append(w.b, ' ')
	w.writeNString(toASCII(p.ID))
	w.b = append(w.b, ' ')
	w.writeNString(toASCII(p.Description))
	w.b = append(w.b, ' ')
	if isASCII(p.Encoding) {
		w.writeString(p.Encoding) // already in lower case
	} else {
		w.writeString(bytes.ToLower(toASCII(p.Encoding)))
	}
	w.writeNumber(" ", int64(uint32(p.Size())), "")
	switch {
	case p.IsMessage():
		w.b = append(w.b, ' ')
		w.writeEnvelope("", rest[0].Envelope, " ")
		rest = w.writePart("", rest, extended)
		w.writeNumber(" ", p.Lines, "")
	case string(p.Type) == "text":
		w.writeNumber(" ", p.Lines, "")
	}
	return rest
}

// writeDisposition appends the Content-Disposition of a part, or NIL if it has none.
func (w *attributeWriter) writeDisposition(p *msg.PartView) {
	if len(p.Disposition) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	w.b = append(w.b, '(')
	w.writeString(toASCII(p.Disposition))
	w.b = append(w.b, ' ')
	w.writeParams(p.DispositionParams)
	w.b = append(w.b, ')')
}

// writeLanguage appends a list of languages, or NIL if it is empty.
func (w *attributeWriter) writeLanguage(list [][]byte) {
	if len(list) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	for i, text := range list {
		w.b = append(w.b, "( "[min(i, 1)])
		w.writeString(text)
	}
	w.b = append(w.b, ')')
}

// writeParams appends the parameters of a media type or disposition, or NIL if there are none.
func (w *attributeWriter) writeParams(params []msg.ParamView) {
	if len(params) == 0 {
		w.b = append(w.b, "NIL"...)
		return
	}
	for i, p := range asciiParams(params) {
		w.b = append(w.b, "( "[min(i, 1)])
		w.writeString(p.Name)
		w.b = append(w.b, ' ')
		w.writeString(p.Value)
	}
	w.b = append(w.b, ')')
}

// asciiParams encodes parameters that are not ASCII as RFC 2231 says, since clients expect that
// form in a structure.
func asciiParams(params []msg.ParamView) []msg.ParamView {
	if !slices.ContainsFunc(params, func(p msg.ParamView) bool { return !isASCII(p.Name) || !isASCII(p.Value) }) {
		return params
	}
	out := make([]msg.ParamView, len(params))
	for i, p := range params {
		out[i] = msg.ParamView{Name: toASCII(p.Name), Value: p.Value}
		if !isASCII(p.Value) {
			out[i].Name = append(bytes.Clone(out[i].Name), '*')
			out[i].Value = appendPercentEncoded([]byte("utf-8''"), p.Value)
		}
	}
	slices.SortStableFunc(out, func(a, b msg.ParamView) int { return bytes.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b msg.ParamView) bool { return bytes.Equal(a.Name, b.Name) })
}

// appendPercentEncoded appends the bytes of s to dst, each as %XX except those that RFC 2231
// section 7 allows.
func appendPercentEncoded(dst, s []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range s {
		if c > ' ' && c < 0x7f && strings.IndexByte(`*'%()<>@,;:\"/[]?=`, c) < 0 {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

// fetchBufferSize is how many bytes of answers are collected before they are sent to the client.
const fetchBufferSize = 64 << 10
