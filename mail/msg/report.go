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
	maxReport           = 256 << 10 // bytes of a delivery status that are read
	maxReportRecipients = 1000
	maxReturned         = 64 << 10 // bytes of a returned header that are searched
)

// Report is what a machine says about an earlier message of ours. Kind says which sort
// it is; a sort is one reader in readReport.
type Report struct {
	Kind               ReportKind
	ReportingMTA       string // host name
	OriginalEnvelopeID string
	ArrivalDate        time.Time
	Recipients         []ReportRecipient
	OriginalMessageID  string // of the returned message, with brackets, "" if it is not there
	Returned           []byte // header of the returned message, or what there is of it
}

// ReportKind is the sort of a report.
type ReportKind string

// DeliveryReport tells of failed, delayed or successful deliveries (RFC 3464).
const DeliveryReport ReportKind = "delivery-status"

// ReportRecipient is what a delivery report says of one recipient (RFC 3464 §2.3).
type ReportRecipient struct {
	Final, Original string // addresses, without their type
	Actual          string // X-Actual-Recipient: where the address was led to
	Action          string // failed, delayed, delivered, relayed or expanded
	Status          string // such as 5.1.1, "" if neither the field nor the diagnostic tells one
	Diagnostic      string // without its type
	RemoteMTA       string
	WillRetryUntil  time.Time
}

// ParseReport reads a delivery report: RFC 3464, or one of the older forms that are
// text for people (see readPlain). It answers false for other messages, and if r cannot
// be read.
func ParseReport(r io.ReaderAt, root *Part) (*Report, bool) {
	var report *Report
	switch status := deliveryStatus(root); {
	case status != nil:
		report = readStatus(r, status)
		if report != nil {
			report.explain(r, root)
		}
	case otherReport(root):
		return nil, false
	default:
		report = readPlain(r, root)
	}
	if report == nil || len(report.Recipients) == 0 {
		return nil, false
	}
	report.Returned = returnedHeader(r, root)
	report.OriginalMessageID = idInHeader(report.Returned)
	return report, true
}

// ParseReturned reads what came from the null sender to an address that was given to nobody but
// as the return path of one message to recipient: it speaks of that message, in whatever form
// (RFC 3464, status fields as text, or words in any language). A status or a reply code outside
// of the copy of the message suffices; words do where no person's machine writes them. It
// answers false for what says nothing about delivery, such as vacation notices and complaints,
// and if r cannot be read. A recipient that the report does not name has the address that was
// given.
func ParseReturned(r io.ReaderAt, root *Part, recipient string) (*Report, bool) {
	report, ok := ParseReport(r, root)
	if otherReport(root) || feedbackReport(root) != nil {
		return report, ok
	}
	text, fields := saidText(r, root)
	if ok {
		rcpt := report.About(recipient)
		if rcpt.Action == ActionFailed && rcpt.Diagnostic == "" {
			reason, _ := reasonOf(text, recipient)
			rcpt.Diagnostic = oneLine(reason)
			rcpt.refine()
		}
		if rcpt.Action != "" && (rcpt.Action != ActionFailed || rcpt.Status != "") {
			return report, true
		}
	}
	told := toldInFields(text+"\n\n"+fields, recipient)
	if told == nil && !ok {
		if inside, found := insideReport(r, root); found {
			return inside, true
		}
	}
	if told == nil {
		told = readWords(r, root, text, recipient)
	}
	if told == nil {
		return report, ok
	}
	if report == nil {
		report = &Report{Kind: DeliveryReport, Returned: returnedHeader(r, root)}
		report.OriginalMessageID = idInHeader(report.Returned)
	}
	report.Recipients = []ReportRecipient{*told}
	return report, true
}

// insideReport reads a report that a gateway has put whole into a notice of its own.
func insideReport(r io.ReaderAt, root *Part) (*Report, bool) {
	for _, p := range root.Children {
		if !p.IsMessage() || len(p.Children) != 1 {
			continue
		}
		if inner := p.Children[0]; inner.IsMultipart() && inner.Subtype == "report" && deliveryStatus(inner) != nil {
			return ParseReport(r, inner)
		}
	}
	return nil, false
}

// About is what a report says of a recipient, by any of the addresses it names; of one that it
// does not name, what it says first of a failure, else of anybody. The report has a recipient.
func (report *Report) About(recipient string) *ReportRecipient {
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

// otherReport tells that a message says to be a report on something else than delivery.
func otherReport(root *Part) bool {
	kind := strings.ToLower(root.Params["report-type"])
	return root.IsMultipart() && root.Subtype == "report" && kind != "" && kind != "delivery-status"
}

// deliveryStatus finds the machine's part of a delivery report (RFC 3464, RFC 6533).
func deliveryStatus(root *Part) *Part {
	if !root.IsMultipart() {
		return nil
	}
	for _, p := range root.Children {
		if p.Type == "message" && (p.Subtype == "delivery-status" || p.Subtype == "global-delivery-status") {
			return p
		}
		if found := deliveryStatus(p); found != nil {
			return found
		}
	}
	return nil
}

func readStatus(r io.ReaderAt, status *Part) *Report {
	text, err := io.ReadAll(io.LimitReader(Open(r, status), maxReport))
	if err != nil {
		return nil
	}
	report := &Report{Kind: DeliveryReport}
	for i, block := range fieldBlocks(text) {
		values := statusFields(block)
		if i == 0 {
			report.ReportingMTA = typedValue(values["reporting-mta"])
			report.OriginalEnvelopeID = values["original-envelope-id"]
			report.ArrivalDate = parseDate(values["arrival-date"])
		}
		// Some send the recipient's fields with the message's, without an empty line.
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

func readRecipient(values map[string]string) ReportRecipient {
	rcpt := ReportRecipient{
		Final:          reportAddress(values["final-recipient"]),
		Original:       reportAddress(values["original-recipient"]),
		Actual:         reportAddress(values["x-actual-recipient"]),
		Action:         strings.ToLower(firstWord(values["action"])),
		Status:         statusCode(values["status"]),
		Diagnostic:     typedValue(values["diagnostic-code"]),
		RemoteMTA:      typedValue(values["remote-mta"]),
		WillRetryUntil: parseDate(values["will-retry-until"]),
	}
	if rcpt.Final == "" {
		rcpt.Final = rcpt.Original
	}
	rcpt.refine()
	return rcpt
}

// explain takes from the part for people why there was a failure, where the part for
// machines does not say: OpenSMTPD writes it there only, and exim of hosts that it could
// not reach.
func (report *Report) explain(r io.ReaderAt, root *Part) {
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
			rcpt.refine()
		}
	}
}

// refine takes from the diagnostic what the fields leave out: exim and OpenSMTPD say 5.0.0
// whatever the other server said, exim also of what was put off until it gave up, and
// some leave out what is required. sendmail says 5.1.1 of any 550 that has no status.
func (rcpt *ReportRecipient) refine() {
	class, rest, _ := strings.Cut(rcpt.Status, ".")
	if rest == "" || rest == "0.0" {
		told := StatusIn(rcpt.Diagnostic)
		switch {
		case told == "":
		case class == "4": // it was put off until it was given up
			rcpt.Status = class + told[1:]
		case class == "" || told == expired || strings.HasPrefix(told, class+".") || strings.HasPrefix(told, replyClass(rcpt.Diagnostic)+"."):
			rcpt.Status = told
		}
	}
	if rcpt.Status == noSuchMailbox && replyClass(rcpt.Diagnostic) == "5" {
		rcpt.Status = saidOfMailbox(rcpt.Diagnostic)
	}
	if rcpt.Action == ActionDelayed && rcpt.Diagnostic == "Envelope expired" { // OpenSMTPD has given up
		rcpt.Action = ActionFailed
	}
	if rcpt.Action == "" && strings.HasPrefix(rcpt.Status, "5.") {
		rcpt.Action = ActionFailed
	}
}

// noSuchMailbox is the status of an address that does not exist (RFC 3463 section 3.2).
const noSuchMailbox = "5.1.1"

// saidOfMailbox is the status of a reply that was reported as noSuchMailbox: that, if the reply
// has a status of its own that begins so, or its words are about the mailbox; else what they
// are about, for good.
func saidOfMailbox(reply string) string {
	told := StatusIn(reply)
	_, about, _ := strings.Cut(told, ".")
	switch {
	case enhancedCode().MatchString(reply), strings.HasPrefix(about, "1."), about == "2.1":
		return noSuchMailbox
	case strings.Contains(strings.ToLower(reply), "mailbox unavailable"): // RFC 5321 section 4.2.2 calls it so
		return noSuchMailbox
	}
	return "5." + about
}

// fieldBlocks divides text at its empty lines.
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

// statusFields keeps the first value of each field, names in lower case.
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

// typedValue takes the type off "dns; host" and "smtp; 550 no".
func typedValue(s string) string {
	kind, value, ok := strings.Cut(s, ";")
	if !ok || !isToken(strings.TrimSpace(kind)) {
		return strings.TrimSpace(s)
	}
	return strings.TrimSpace(value)
}

func reportAddress(s string) string {
	s = strings.Trim(typedValue(s), "<> ")
	return decodeUnitext(cut(s, 512))
}

// decodeUnitext undoes the \x{…} of an internationalised address (RFC 6533 §3).
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

// statusCode takes "5.1.1" off "5.1.1 (no such user)".
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

// returnedHeader finds the header of the message that a report is about.
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

// isReturnedHeader tells what holds a header alone, or a message that came encoded.
func isReturnedHeader(p *Part) bool {
	switch p.MediaType() {
	case "text/rfc822-headers", "text/rfc822-header", "message/rfc822-headers", "message/global-headers", "application/octet-stream":
		return true
	}
	return false
}

func idInHeader(block []byte) string {
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

// FieldValues returns the values of the fields of a header block that bear the name, in
// any letter case, unfolded and decoded, at most 20 of them.
func FieldValues(block []byte, name string) []string {
	var out []string
	for f := range fields(block) {
		if strings.EqualFold(string(f.name), name) && len(out) < 20 {
			out = append(out, decodeText(f.value, "", MaxText))
		}
	}
	return out
}

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
		c.read(strings.ToLower(string(f.name)), strings.TrimSpace(decodeText(f.value, "", MaxText)))
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
