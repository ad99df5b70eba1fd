package msg

import (
	"bytes"
	"io"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/transfer"
	"github.com/mailstead/mailstead/mail/visible"
)

const (
	maxReport           = 256 << 10 // bytes of a delivery status that are parsed
	maxReportRecipients = 1000
	maxReturned         = 64 << 10 // bytes of the returned message's header that are read, or of a report's text
)

// Report is a mail system's report about an earlier message.
type Report struct {
	Kind               ReportKind
	ReportingMTA       string // host name of the reporting server
	OriginalEnvelopeID string
	ArrivalDate        time.Time
	Recipients         []ReportRecipient
	OriginalMessageID  string // Message-ID of the returned message, with brackets, "" if missing
	Returned           []byte // header of the returned message, possibly incomplete; empty if missing
}

// ReportKind is the kind of a report.
type ReportKind string

// DeliveryReport is the kind of a report on failed, delayed or successful deliveries (RFC 3464).
const DeliveryReport ReportKind = "delivery-status"

// ReportRecipient is the result that a delivery report gives for one recipient (RFC 3464 §2.3).
type ReportRecipient struct {
	Final, Original string // email addresses, without the address type
	Actual          string // the address to which the message was forwarded (X-Actual-Recipient)
	Action          string // failed, delayed, delivered, relayed or expanded
	Status          string // status code such as 5.1.1, "" if neither the Status field nor the diagnostic has one
	Diagnostic      string // reply or reason, without the diagnostic type
	RemoteMTA       string
	WillRetryUntil  time.Time
}

// ParseReport parses a delivery report: in the format of RFC 3464, or in one of the older plain
// text formats (see readPlainBounce). It returns false if the message is not a delivery report or
// if r cannot be read.
func ParseReport(r io.ReaderAt, root *Part) (_ *Report, ok bool) {
	var report *Report
	switch status := deliveryStatusPart(root); {
	case status != nil:
		report = readStatus(r, status)
		if report != nil {
			report.fillDiagnostics(r, root)
		}
	case isNonDeliveryReport(root):
		return nil, false
	default:
		report = readPlainBounce(r, root)
	}
	if report == nil || len(report.Recipients) == 0 {
		return nil, false
	}
	report.Returned = returnedHeader(r, root)
	report.OriginalMessageID = messageIDInHeader(report.Returned)
	return report, true
}

// ParseReturned parses a message that came from the null sender to a return path of its own: the
// return path was used for one message to one recipient only, so the report must be about that
// message. It accepts RFC 3464, status fields in the text, and plain words in many languages. A
// status or reply code outside of the copy of the message suffices. Words without a code suffice
// only if no vacation responder could have written them. If the report names no recipient,
// recipient is used. ParseReturned returns false if the message says nothing about delivery, like a
// vacation notice or a complaint, and if r cannot be read.
func ParseReturned(r io.ReaderAt, root *Part, recipient string) (_ *Report, ok bool) {
	report, ok := ParseReport(r, root)
	if isNonDeliveryReport(root) || feedbackPart(root) != nil {
		return report, ok
	}
	text, fields := reportText(r, root)
	if ok {
		rcpt := report.ForRecipient(recipient)
		if rcpt.Action == ActionFailed && rcpt.Diagnostic == "" {
			reason, _ := failureReason(text, recipient)
			rcpt.Diagnostic = oneLine(reason)
			rcpt.correctStatus()
		}
		if rcpt.Action != "" && (rcpt.Action != ActionFailed || rcpt.Status != "") {
			return report, true
		}
	}
	told := recipientInFields(text+"\n\n"+fields, recipient)
	if told == nil && !ok {
		if inside, found := attachedReport(r, root); found {
			return inside, true
		}
	}
	if told == nil {
		told = recipientFromText(r, root, text, recipient)
	}
	if told == nil {
		return report, ok
	}
	if report == nil {
		report = &Report{Kind: DeliveryReport, Returned: returnedHeader(r, root)}
		report.OriginalMessageID = messageIDInHeader(report.Returned)
	}
	report.Recipients = []ReportRecipient{*told}
	return report, true
}

// attachedReport parses a report that a gateway has attached to its own notice.
func attachedReport(r io.ReaderAt, root *Part) (_ *Report, ok bool) {
	for _, p := range root.Children {
		if !p.IsMessage() || len(p.Children) != 1 {
			continue
		}
		if inner := p.Children[0]; inner.IsMultipart() && inner.Subtype == "report" && deliveryStatusPart(inner) != nil {
			return ParseReport(r, inner)
		}
	}
	return nil, false
}

// ForRecipient returns the entry for the recipient. It compares recipient with all addresses of
// each entry. If no entry matches, it returns the first entry that failed, otherwise the first
// entry. The report must have at least one entry.
func (report *Report) ForRecipient(recipient string) *ReportRecipient {
	failed := 0
	for i, rcpt := range slices.Backward(report.Recipients) {
		if rcpt.Action == ActionFailed {
			failed = i
		}
	}
	for i, rcpt := range report.Recipients {
		for _, a := range []string{rcpt.Final, rcpt.Original, rcpt.Actual} {
			if email, err := NormalizeEmail(a); err == nil && email == recipient {
				return &report.Recipients[i]
			}
		}
	}
	return &report.Recipients[failed]
}

// isNonDeliveryReport reports whether the message is declared as a report, but not on delivery.
func isNonDeliveryReport(root *Part) bool {
	kind := strings.ToLower(root.Params["report-type"])
	return root.IsMultipart() && root.Subtype == "report" && kind != "" && kind != "delivery-status"
}

// deliveryStatusPart returns the machine-readable part of a delivery report (RFC 3464, RFC 6533).
// It returns nil if there is none.
func deliveryStatusPart(root *Part) *Part {
	if !root.IsMultipart() {
		return nil
	}
	for _, p := range root.Children {
		if p.Type == "message" && (p.Subtype == "delivery-status" || p.Subtype == "global-delivery-status") {
			return p
		}
		if found := deliveryStatusPart(p); found != nil {
			return found
		}
	}
	return nil
}

// readStatus parses the machine-readable part of a delivery report.
func readStatus(r io.ReaderAt, status *Part) *Report {
	text, err := io.ReadAll(io.LimitReader(Open(r, status), maxReport))
	if err != nil {
		return nil
	}
	report := &Report{Kind: DeliveryReport}
	for i, block := range fieldBlocks(text) {
		values := statusFields(block)
		if i == 0 {
			report.ReportingMTA = valueWithoutType(values["reporting-mta"])
			report.OriginalEnvelopeID = values["original-envelope-id"]
			report.ArrivalDate = parseDate(values["arrival-date"])
		}
		// Some servers write the fields of the recipient into the first block, without an empty
		// line before them.
		if values["final-recipient"] == "" && values["original-recipient"] == "" {
			continue
		}
		report.Recipients = append(report.Recipients, readRecipient(values))
		if len(report.Recipients) == maxReportRecipients {
			break
		}
	}
	return report
}

// readRecipient returns the result for one recipient. values are the fields about it, by lower-case
// name.
func readRecipient(values map[string]string) ReportRecipient {
	rcpt := ReportRecipient{
		Final:          addressWithoutType(values["final-recipient"]),
		Original:       addressWithoutType(values["original-recipient"]),
		Actual:         addressWithoutType(values["x-actual-recipient"]),
		Action:         strings.ToLower(firstWord(values["action"])),
		Status:         statusCode(values["status"]),
		Diagnostic:     valueWithoutType(values["diagnostic-code"]),
		RemoteMTA:      valueWithoutType(values["remote-mta"]),
		WillRetryUntil: parseDate(values["will-retry-until"]),
	}
	if rcpt.Final == "" {
		rcpt.Final = rcpt.Original
	}
	rcpt.correctStatus()
	return rcpt
}

// fillDiagnostics fills missing diagnostics from the text for people. OpenSMTPD gives the reason
// there only, and so does exim for hosts that it could not reach.
func (report *Report) fillDiagnostics(r io.ReaderAt, root *Part) {
	unexplained := func(rcpt ReportRecipient) bool { return rcpt.Diagnostic == "" }
	if !slices.ContainsFunc(report.Recipients, unexplained) {
		return
	}
	text, err := leadingText(r, root)
	if err != nil {
		return
	}
	reasons := reasonsIn(text)
	for i := range report.Recipients {
		if rcpt := &report.Recipients[i]; unexplained(*rcpt) {
			rcpt.Diagnostic = reasons[strings.ToLower(rcpt.Final)]
			rcpt.correctStatus()
		}
	}
}

// correctStatus corrects status and action by the text of the diagnostic. exim and OpenSMTPD report
// the status 5.0.0 whatever the other server replied; exim does so also for a message that expired
// after deferrals. sendmail reports 5.1.1 for every 550 reply without a status. Some servers omit
// required fields.
func (rcpt *ReportRecipient) correctStatus() {
	class, rest, _ := strings.Cut(rcpt.Status, ".")
	if rest == "" || rest == "0.0" {
		told := StatusIn(rcpt.Diagnostic)
		switch {
		case told == "":
		case class == "4": // deferred until the time limit
			rcpt.Status = class + told[1:]
		case class == "" || told == statusExpired || strings.HasPrefix(told, class+".") || strings.HasPrefix(told, replyClass(rcpt.Diagnostic)+"."):
			rcpt.Status = told
		}
	}
	if rcpt.Status == statusNoSuchMailbox && replyClass(rcpt.Diagnostic) == "5" {
		rcpt.Status = correctMailboxStatus(rcpt.Diagnostic)
	}
	if rcpt.Action == ActionDelayed && rcpt.Diagnostic == "Envelope expired" { // how OpenSMTPD says that it gave up
		rcpt.Action = ActionFailed
	}
	if rcpt.Action == "" && strings.HasPrefix(rcpt.Status, "5.") {
		rcpt.Action = ActionFailed
	}
}

// statusNoSuchMailbox is the status of an address that does not exist (RFC 3463 section 3.2).
const statusNoSuchMailbox = "5.1.1"

// correctMailboxStatus returns the right status for a reply that was reported as
// statusNoSuchMailbox. That status is right if the reply itself contains a status or is about the
// mailbox. Otherwise the result is the permanent status that the words of the reply mean.
func correctMailboxStatus(reply string) string {
	told := StatusIn(reply)
	_, about, _ := strings.Cut(told, ".")
	switch {
	case enhancedCode().MatchString(reply), strings.HasPrefix(about, "1."), about == "2.1":
		return statusNoSuchMailbox
	case strings.Contains(strings.ToLower(reply), "mailbox unavailable"): // the wording of RFC 5321 section 4.2.2
		return statusNoSuchMailbox
	}
	return "5." + about
}

// fieldBlocks splits text at empty lines.
func fieldBlocks(text []byte) [][]byte {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	var out [][]byte
	for block := range bytes.SplitSeq(text, []byte("\n\n")) {
		block = bytes.Trim(block, "\n")
		if len(block) > 0 {
			out = append(out, block)
		}
	}
	return out
}

// statusFields returns the first value of each field, by field name in lower case.
func statusFields(block []byte) map[string]string {
	out := make(map[string]string)
	for f := range fields(block) {
		name := strings.ToLower(string(f.name))
		if _, twice := out[name]; !twice && len(out) < MaxParams {
			out[name] = strings.Join(strings.Fields(decodeText(f.value, "", MaxText)), " ")
		}
	}
	return out
}

// valueWithoutType removes the type from a value such as "dns; host" or "smtp; 550 no".
func valueWithoutType(s string) string {
	kind, value, ok := strings.Cut(s, ";")
	if !ok || !isToken(strings.TrimSpace(kind)) {
		return strings.TrimSpace(s)
	}
	return strings.TrimSpace(value)
}

func addressWithoutType(s string) string {
	s = strings.Trim(valueWithoutType(s), "<> ")
	return decodeUnitext(cut(s, 512))
}

// decodeUnitext decodes the \x{…} escapes of an internationalised address (RFC 6533 §3).
func decodeUnitext(s string) string {
	if !strings.Contains(s, `\x{`) {
		return s
	}
	var out strings.Builder
	for s != "" {
		before, rest, found := strings.Cut(s, `\x{`)
		out.WriteString(before)
		hex, after, closed := strings.Cut(rest, "}")
		if !found || !closed || len(hex) > 6 {
			out.WriteString(rest)
			break
		}
		r := rune(0)
		for i := range len(hex) {
			if transfer.IsHex(hex[i]) {
				r = r<<4 | rune(transfer.Unhex(hex[i]))
			}
		}
		if !visible.IsControl(r) {
			out.WriteRune(r)
		}
		s = after
	}
	return out.String()
}

// statusCode returns the status code at the start of s: "5.1.1" for "5.1.1 (no such user)". It
// returns "" if there is none.
func statusCode(s string) string {
	s = firstWord(s)
	class, rest, ok := strings.Cut(s, ".")
	subject, detail, both := strings.Cut(rest, ".")
	if !ok || !both || len(class) != 1 || class[0] < '2' || class[0] > '5' || !isNumber(subject) || !isNumber(detail) {
		return ""
	}
	return s
}

func isNumber(s string) bool {
	return s != "" && len(s) <= 3 && strings.Trim(s, "0123456789") == ""
}

// returnedHeader returns the header of the message that the report is about. It is empty if the
// report does not contain it.
func returnedHeader(r io.ReaderAt, root *Part) []byte {
	if !root.IsMultipart() {
		text, _ := leadingText(r, root)
		_, copied := cutCopy(text)
		return []byte(copied)
	}
	var header []byte
	walkContent(root, nil, nil, func(p, _ *Part, _ *branch) {
		if header != nil {
			return
		}
		var err error
		switch {
		case p.IsMessage() && len(p.Children) == 1:
			header, err = RawHeader(r, p.Children[0])
		case isReturnedHeader(p):
			header, err = io.ReadAll(io.LimitReader(Open(r, p), maxReturned))
		}
		if err != nil {
			header = nil
		}
	})
	if header == nil {
		text, _ := leadingText(r, root)
		_, copied := cutCopy(text)
		header = []byte(copied)
	}
	return header
}

// isReturnedHeader reports whether the part holds only a header, or a message with a transfer
// encoding.
func isReturnedHeader(p *Part) bool {
	switch p.MediaType() {
	case "text/rfc822-headers", "text/rfc822-header", "message/rfc822-headers", "message/global-headers", "application/octet-stream":
		return true
	}
	return false
}

func messageIDInHeader(block []byte) string {
	for f := range fields(block) {
		if textproto.CanonicalMIMEHeaderKey(string(f.name)) != "Message-Id" {
			continue
		}
		if ids := messageIDs(f.value); len(ids) > 0 {
			return ids[0]
		}
	}
	return ""
}

// FieldValues returns the values of the fields with the given name (in any letter case) in a header
// block, unfolded and decoded. It returns at most 20.
func FieldValues(block []byte, name string) []string {
	var out []string
	for f := range fields(block) {
		if strings.EqualFold(string(f.name), name) && len(out) < 20 {
			out = append(out, decodeText(f.value, "", MaxText))
		}
	}
	return out
}

// Complaint is another mail system's report that its user marked a message as spam, in the Abuse
// Reporting Format (RFC 5965).
type Complaint struct {
	FeedbackType string // in lower case: abuse, fraud, virus, other, not-spam, auth-failure, …
	UserAgent    string
	ArrivalDate  time.Time // when the message arrived at the reporting system, zero if unknown
	MailFrom     string    // the return path of the message that was marked as spam
	Recipients   []string  // recipients of that message, if the report names them
	MessageID    string    // Message-ID of that message, with brackets, "" if missing
	Returned     []byte    // header of that message
}

// ParseComplaint parses a complaint. It returns false if the message is not a complaint or if r
// cannot be read.
func ParseComplaint(r io.ReaderAt, root *Part) (_ *Complaint, ok bool) {
	part := feedbackPart(root)
	if part == nil {
		return nil, false
	}
	text, err := io.ReadAll(io.LimitReader(Open(r, part), maxReport))
	if err != nil {
		return nil, false
	}
	c := &Complaint{}
	for f := range fields(text) {
		c.readField(strings.ToLower(string(f.name)), strings.TrimSpace(decodeText(f.value, "", MaxText)))
	}
	if c.FeedbackType == "" {
		return nil, false
	}
	c.Returned = returnedHeader(r, root)
	c.MessageID = messageIDInHeader(c.Returned)
	return c, true
}

// readField stores one field of the report. If a field is repeated, the first one counts; but all
// recipients are stored.
func (c *Complaint) readField(name, value string) {
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
		first(&c.MailFrom, addressWithoutType(value))
	case "original-rcpt-to", "removal-recipient":
		if a := addressWithoutType(value); a != "" && len(c.Recipients) < maxReportRecipients {
			c.Recipients = append(c.Recipients, a)
		}
	case "arrival-date", "received-date":
		if c.ArrivalDate.IsZero() {
			c.ArrivalDate = parseDate(value)
		}
	}
}

// feedbackPart returns the machine-readable part of a complaint, nil if there is none.
func feedbackPart(root *Part) *Part {
	if !root.IsMultipart() {
		return nil
	}
	for _, p := range root.Children {
		if p.MediaType() == "message/feedback-report" {
			return p
		}
		if found := feedbackPart(p); found != nil {
			return found
		}
	}
	return nil
}
