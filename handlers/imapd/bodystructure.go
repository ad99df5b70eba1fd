package imapd

import (
	"mime"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/mail/msg"
)

// envelopeOf writes an envelope in go-imap's form, in which message ids have no brackets.
func envelopeOf(e *msg.Envelope) *imap.Envelope {
	out := &imap.Envelope{
		Date: e.Date, Subject: e.Subject, MessageID: bare(e.MessageID),
		From: addressesOf(e.From), Sender: addressesOf(e.Sender), ReplyTo: addressesOf(e.ReplyTo),
		To: addressesOf(e.To), Cc: addressesOf(e.Cc), Bcc: addressesOf(e.Bcc),
	}
	for _, id := range e.InReplyTo {
		out.InReplyTo = append(out.InReplyTo, bare(id))
	}
	return out
}

func bare(id string) string {
	return strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
}

func addressesOf(list []msg.Address) []imap.Address {
	if len(list) == 0 {
		return nil
	}
	out := make([]imap.Address, len(list))
	for i, a := range list {
		out[i] = imap.Address{Name: a.Name, Mailbox: a.Mailbox, Host: a.Host}
	}
	return out
}

// structureOf writes a part in go-imap's form, with the extension data that BODYSTRUCTURE has and
// BODY leaves out.
func structureOf(p *msg.Part) imap.BodyStructure {
	if p.IsMultipart() {
		out := &imap.BodyStructureMultiPart{Subtype: p.Subtype, Extended: &imap.BodyStructureMultiPartExt{
			Params: paramsOf(p.Params), Disposition: dispositionOf(p), Language: p.Language, Location: asciiText(p.Location),
		}}
		for _, c := range p.Children {
			out.Children = append(out.Children, structureOf(c))
		}
		return out
	}
	out := &imap.BodyStructureSinglePart{
		Type: p.Type, Subtype: p.Subtype, Params: paramsOf(p.Params), ID: asciiText(p.ID),
		Description: asciiText(p.Description), Encoding: asciiText(p.Encoding), Size: uint32(p.Size()),
		Extended: &imap.BodyStructureSinglePartExt{
			Disposition: dispositionOf(p), Language: p.Language, Location: asciiText(p.Location),
		},
	}
	switch child := innerMessage(p); {
	case child != nil:
		out.MessageRFC822 = &imap.BodyStructureMessageRFC822{
			Envelope: envelopeOf(child.Envelope), BodyStructure: structureOf(child), NumLines: p.Lines,
		}
	case p.Type == "text":
		out.Text = &imap.BodyStructureText{NumLines: p.Lines}
	}
	return out
}

func dispositionOf(p *msg.Part) *imap.BodyStructureDisposition {
	if p.Disposition == "" {
		return nil
	}
	return &imap.BodyStructureDisposition{Value: asciiText(p.Disposition), Params: paramsOf(p.DispositionParams)}
}

// paramsOf writes parameters that are not ASCII as RFC 2231 does, since that is what clients expect
// in a structure.
func paramsOf(params map[string]string) map[string]string {
	plain := true
	for k, v := range params {
		plain = plain && isASCII(k) && isASCII(v)
	}
	if plain {
		return params
	}
	out := make(map[string]string, len(params))
	for k, v := range params {
		if isASCII(v) {
			out[asciiText(k)] = v
			continue
		}
		out[asciiText(k)+"*"] = "utf-8''" + percent(v)
	}
	return out
}

// percent writes every byte but those that RFC 2231 section 7 allows as %XX.
func percent(s string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for _, c := range []byte(s) {
		if c > ' ' && c < 0x7f && strings.IndexByte(`*'%()<>@,;:\"/[]?=`, c) < 0 {
			out.WriteByte(c)
			continue
		}
		out.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return out.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// asciiText writes a text that is not ASCII as encoded words (RFC 2047).
func asciiText(s string) string {
	if isASCII(s) {
		return s
	}
	return mime.QEncoding.Encode("utf-8", s)
}
