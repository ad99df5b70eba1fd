package msg

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/charset"
)

// DSN is a delivery status notification to send (RFC 3464). All its recipients have actions of one
// kind: failed, delayed, or delivered/relayed.
type DSN struct {
	ReportingMTA       string  // host name of this server
	From               Address // sender that the notification shows, such as MAILER-DAEMON
	To                 string  // the envelope sender of the original message, who gets the notification
	OriginalEnvelopeID string  // the ENVID that the sender gave (RFC 3461), unchanged
	Recipients         []DSNRecipient
	Original           io.Reader // the original message or only its header
	MessageID          string
	Date               time.Time
	ArrivalDate        time.Time // when the message was accepted, zero if unknown
	Full               bool      // return the whole original (RFC 3461 section 4.3), not only its header
}

// DSNRecipient is the result of the delivery to one recipient.
type DSNRecipient struct {
	Final          string // email address
	Original       string // the ORCPT that the sender gave (RFC 3461), such as "rfc822;a@b", "" if none
	Action         string // one of the Action… constants
	Status         string // status code of RFC 3463, such as 5.1.1
	Diagnostic     string // the reply of the other server, or a text of this server
	Own            bool   // Diagnostic is a text of this server, not a reply of another host
	RemoteMTA      string // host that replied, "" if none did
	WillRetryUntil time.Time
}

// The actions that a DSN can report (RFC 3464 §2.3.3).
const (
	ActionFailed  = "failed"
	ActionDelayed = "delayed"

	ActionDelivered = "delivered"
	ActionRelayed   = "relayed" // to a host that sends no notifications
)

// WriteTo writes the notification as a multipart/report: a text for people, the machine-readable
// part, and the original message or its header. It must be sent with the null return path. Errors
// wrap ErrHeader or ErrAddress, or are those of w and Original.
func (d *DSN) WriteTo(w io.Writer) (int64, error) {
	to, err := ParseAddress(d.To)
	if err != nil {
		return 0, err
	}
	status, err := d.statusPart()
	if err != nil {
		return 0, err
	}
	returned, err := d.originalPart()
	if err != nil {
		return 0, err
	}
	subject, text := d.introduction()
	c := Composer{From: d.From, To: []Address{to}, Subject: subject, MessageID: d.MessageID, Date: d.Date,
		Headers: []Header{{"Auto-Submitted", "auto-replied"}}}
	head, err := c.header()
	if err != nil {
		return 0, err
	}
	root := newMultipart("multipart/report; report-type=delivery-status", textEntity("plain", d.textForPeople(text)), status, returned)
	return writeMessage(w, root, head)
}

// introduction returns the subject and the first paragraph of the text for people.
func (d *DSN) introduction() (subject, text string) {
	actions := map[string]bool{}
	for _, r := range d.Recipients {
		actions[r.Action] = true
	}
	attached := "header"
	if d.Full {
		attached = "text"
	}
	switch {
	case actions[ActionFailed]:
		return "Undelivered mail returned to sender", "Your message could not be delivered to one or more recipients. Its\n" + attached + " is attached.\n"
	case actions[ActionDelayed]:
		return "Delayed mail (still being retried)", "Your message has not been delivered yet. You need not send it again:\nwe keep trying.\n"
	case actions[ActionDelivered]:
		return "Mail delivered", "Your message has been delivered.\n"
	}
	return "Mail relayed", "Your message was handed on to a system that does not report\ndeliveries. There will be no further notice unless it fails.\n"
}

func (d *DSN) textForPeople(firstParagraph string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "This is the mail system at %s.\n\n%s", d.ReportingMTA, firstParagraph)
	for _, r := range d.Recipients {
		fmt.Fprintf(&out, "\n<%s>\n", r.Final)
		if r.Diagnostic != "" {
			fmt.Fprintf(&out, "    %s\n", oneLine(r.Diagnostic))
		}
		if r.RemoteMTA != "" {
			fmt.Fprintf(&out, "    (answer of %s)\n", r.RemoteMTA)
		}
		if r.Action == ActionDelayed && !r.WillRetryUntil.IsZero() {
			fmt.Fprintf(&out, "    We try until %s.\n", r.WillRetryUntil.UTC().Format("2 January 2006, 15:04 MST"))
		}
	}
	return out.String()
}

func (d *DSN) statusPart() (*entity, error) {
	block := statusBlock{}
	block.add("Reporting-MTA", "dns; "+d.ReportingMTA)
	if d.OriginalEnvelopeID != "" {
		block.add("Original-Envelope-Id", d.OriginalEnvelopeID)
	}
	block.addDate("Arrival-Date", d.ArrivalDate)
	for _, r := range d.Recipients {
		if !slices.Contains([]string{ActionFailed, ActionDelayed, ActionDelivered, ActionRelayed}, r.Action) {
			return nil, fmt.Errorf("%w: invalid Action %q in a delivery report", ErrHeader, r.Action)
		}
		if statusCode(r.Status) == "" {
			return nil, fmt.Errorf("%w: invalid Status %q in a delivery report", ErrHeader, r.Status)
		}
		block.b = append(block.b, "\r\n"...)
		if r.Original != "" {
			block.add("Original-Recipient", r.Original)
		}
		block.add("Final-Recipient", typedAddress(r.Final))
		block.add("Action", r.Action)
		block.add("Status", r.Status)
		if r.RemoteMTA != "" {
			block.add("Remote-MTA", "dns; "+r.RemoteMTA)
		}
		if r.Diagnostic != "" {
			kind := "smtp; "
			if r.Own {
				kind = "x-mailstead; " // a text of this server, which is no SMTP reply (RFC 3464 section 2.3.6)
			}
			block.add("Diagnostic-Code", kind+toASCII(oneLine(r.Diagnostic)))
		}
		block.addDate("Will-Retry-Until", r.WillRetryUntil)
	}
	return &entity{ctype: "message/delivery-status", encoding: "7bit", content: block.b}, block.err
}

// statusBlock collects header fields and keeps the first error.
type statusBlock struct {
	b   []byte
	err error
}

func (s *statusBlock) add(name, value string) {
	if s.err != nil {
		return
	}
	if !charset.IsASCII(value) {
		value = toASCII(value)
	}
	s.b, s.err = appendField(s.b, name, value)
}

func (s *statusBlock) addDate(name string, t time.Time) {
	if !t.IsZero() {
		s.add(name, t.Format(time.RFC1123Z))
	}
}

// typedAddress returns an address after its type, such as "rfc822; a@b". It escapes non-ASCII
// characters, so that the report needs no SMTPUTF8 (RFC 6533 §3).
func typedAddress(s string) string {
	if charset.IsASCII(s) {
		return "rfc822; " + s
	}
	var out strings.Builder
	for _, r := range s {
		if r < 0x80 && r != '\\' {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\x{%X}`, r)
		}
	}
	return "utf-8; " + out.String()
}

// oneLine returns s as one line without control characters, at most MaxText bytes long.
func oneLine(s string) string {
	return cut(strings.Join(strings.Fields(cleanText(strings.ToValidUTF8(s, "?"), MaxText)), " "), MaxText)
}

func toASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 0x80 {
			return '?'
		}
		return r
	}, s)
}

// originalPart returns the part that holds the original message or its header.
func (d *DSN) originalPart() (*entity, error) {
	if d.Full && d.Original != nil {
		return wholeMessagePart(d.Original)
	}
	var raw []byte
	if d.Original != nil {
		var err error
		raw, err = io.ReadAll(io.LimitReader(d.Original, maxReturned))
		if err != nil {
			return nil, fmt.Errorf("read original message: %w", err)
		}
	}
	var header []byte
	for f := range fields(raw) {
		header = append(header, f.whole...)
	}
	e := &entity{ctype: "text/rfc822-headers; charset=utf-8", content: withCRLF(header)}
	e.encoding = textEncoding(e.content)
	if e.encoding == "base64" || longestLine(e.content) > maxLine {
		e.encoding = "quoted-printable"
	}
	return e, nil
}

// wholeMessagePart returns the message as a message/rfc822 part. It has no transfer encoding, which
// RFC 2046 section 5.2.1 forbids.
func wholeMessagePart(r io.Reader) (*entity, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read original message: %w", err)
	}
	e := &entity{ctype: "message/rfc822", encoding: "7bit", content: withCRLF(raw)}
	if !charset.IsASCII(string(raw)) {
		e.encoding = "8bit"
	}
	return e, nil
}
