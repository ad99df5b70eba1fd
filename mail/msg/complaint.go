package msg

import (
	"io"
	"strings"
	"time"
)

// Complaint is what a mail system says about a message of ours that its user called spam,
// in the Abuse Reporting Format (RFC 5965).
type Complaint struct {
	FeedbackType string // lower case: abuse, fraud, virus, other, not-spam, auth-failure, …
	UserAgent    string
	ArrivalDate  time.Time // when the message came there, zero if unknown
	MailFrom     string    // its return path
	Recipients   []string  // whom it was for, as far as the report tells
	MessageID    string    // of the message, with brackets, "" if it is not there
	Returned     []byte    // header of the message
}

// ParseComplaint reads a complaint. It answers false for other messages, and if r cannot
// be read.
func ParseComplaint(r io.ReaderAt, root *Part) (*Complaint, bool) {
	part := feedbackReport(root)
	if part == nil {
		return nil, false
	}
	text, err := io.ReadAll(io.LimitReader(Open(r, part), maxReport))
	if err != nil {
		return nil, false
	}
	c := &Complaint{}
	for f := range fields(text) {
		c.read(strings.ToLower(string(f.name)), strings.TrimSpace(decodeText(f.value, MaxText)))
	}
	if c.FeedbackType == "" {
		return nil, false
	}
	c.Returned = returnedHeader(r, root)
	c.MessageID = idInHeader(c.Returned)
	return c, true
}

// read takes one field of the report; of those that may stand once the first counts.
func (c *Complaint) read(name, value string) {
	first := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	switch name {
	case "feedback-type":
		first(&c.FeedbackType, strings.ToLower(cut(firstWord(value), 64)))
	case "user-agent":
		first(&c.UserAgent, value)
	case "original-mail-from":
		first(&c.MailFrom, reportAddress(value))
	case "original-rcpt-to", "removal-recipient":
		if a := reportAddress(value); a != "" && len(c.Recipients) < maxReportRecipients {
			c.Recipients = append(c.Recipients, a)
		}
	case "arrival-date", "received-date":
		if c.ArrivalDate.IsZero() {
			c.ArrivalDate = parseDate(value)
		}
	}
}

// feedbackReport finds the machine's part of a complaint.
func feedbackReport(root *Part) *Part {
	if !root.IsMultipart() {
		return nil
	}
	for _, p := range root.Children {
		if p.MediaType() == "message/feedback-report" {
			return p
		}
		if found := feedbackReport(p); found != nil {
			return found
		}
	}
	return nil
}
