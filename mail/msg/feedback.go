package msg

import (
	"io"
	"time"
)

// A FeedbackReport is a complaint to send: a recipient marked a message as spam. WriteTo writes it
// in the Abuse Reporting Format (RFC 5965), which ParseComplaint reads.
type FeedbackReport struct {
	From         Address
	To           string
	ReportingMTA string
	FeedbackType string // "abuse" or another feedback type of RFC 5965
	UserAgent    string // name of the reporting program
	MailFrom     string // the return path of the message that was marked as spam
	Recipient    string // the recipient of the message that was marked as spam
	Original     io.Reader
	MessageID    string // Message-ID of the report
	Date         time.Time
	ArrivalDate  time.Time // when the message arrived, zero if unknown
}

// WriteTo writes the report as a multipart/report: a text for people, the machine-readable part,
// and the header of the message that was marked as spam. It returns the same errors as
// Composer.WriteTo.
func (f *FeedbackReport) WriteTo(w io.Writer) (int64, error) {
	to, err := ParseAddress(f.To)
	if err != nil {
		return 0, err
	}
	c := Composer{
		From: f.From, To: []Address{to}, Subject: "Complaint about a message", MessageID: f.MessageID, Date: f.Date,
		Headers: []Header{{"Auto-Submitted", "auto-generated"}},
	}
	head, err := c.header()
	if err != nil {
		return 0, err
	}
	block := statusBlock{}
	block.add("Feedback-Type", f.FeedbackType)
	block.add("User-Agent", f.UserAgent)
	block.add("Version", "1")
	if f.MailFrom != "" {
		block.add("Original-Mail-From", "<"+f.MailFrom+">")
	}
	block.add("Original-Rcpt-To", "<"+f.Recipient+">")
	block.add("Reporting-MTA", "dns; "+f.ReportingMTA)
	block.addDate("Arrival-Date", f.ArrivalDate)
	if block.err != nil {
		return 0, block.err
	}
	returned, err := (&DSN{Original: f.Original}).originalPart()
	if err != nil {
		return 0, err
	}
	text := textEntity("plain", "The recipient of a message from you says that it is spam. Its header is\nattached.\n")
	report := &entity{ctype: "message/feedback-report", encoding: "7bit", content: block.b}
	return writeMessage(w, newMultipart("multipart/report; report-type=feedback-report", text, report, returned), head)
}
