package msg

import (
	"io"
	"strconv"
	"time"
)

// A TLSReport is a report about TLS sessions that is sent as mail (RFC 8460 section 5.3).
type TLSReport struct {
	From      Address // the mail is signed by the domain of this address
	To        string
	Domain    string // the domain that the report is about
	Submitter string // the domain that sends the report
	ID        string // the report-id, without brackets
	Content   []byte // the report as gzip-compressed JSON
	Start     time.Time
	End       time.Time
	MessageID string
	Date      time.Time
}

// WriteTo writes the mail: a multipart/report with a text for people and the report. It returns the
// same errors as Composer.WriteTo.
func (r *TLSReport) WriteTo(w io.Writer) (int64, error) {
	to, err := ParseAddress(r.To)
	if err != nil {
		return 0, err
	}
	c := Composer{
		From: r.From, To: []Address{to}, MessageID: r.MessageID, Date: r.Date,
		Subject: "Report Domain: " + r.Domain + " Submitter: " + r.Submitter + " Report-ID: <" + r.ID + ">",
		Headers: []Header{{"TLS-Report-Domain", r.Domain}, {"TLS-Report-Submitter", r.Submitter}, {"Auto-Submitted", "auto-generated"}, {"TLS-Required", "No"}},
	}
	head, err := c.header()
	if err != nil {
		return 0, err
	}
	name := r.Submitter + "!" + r.Domain + "!" + unixText(r.Start) + "!" + unixText(r.End) + ".json.gz" // section 5.1
	file := AttachedFile{Filename: name, ContentType: "application/tlsrpt+gzip", Content: r.Content}
	part, err := file.entity(false)
	if err != nil {
		return 0, err
	}
	text := textEntity("plain", "This is a report about TLS connections from "+r.Submitter+" to the mail hosts of\n"+r.Domain+
		" on "+r.Start.Format("2 January 2006")+" (UTC), some of which failed. A TXT record at\n_smtp._tls."+r.Domain+" asks for it (RFC 8460).\n")
	return writeMessage(w, newMultipart("multipart/report; report-type=tlsrpt", text, part), head)
}

func unixText(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
