package msg

import (
	"bytes"
	"io"
	"net/textproto"
	"strings"
	"time"
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
}

// ReportKind is the sort of a report.
type ReportKind string

// DeliveryReport tells of failed, delayed or successful deliveries (RFC 3464).
const DeliveryReport ReportKind = "delivery-status"

// ReportRecipient is what a delivery report says of one recipient (RFC 3464 §2.3).
type ReportRecipient struct {
	Final, Original string // addresses, without their type
	Action          string // failed, delayed, delivered, relayed or expanded
	Status          string // such as 5.1.1, "" if unreadable
	Diagnostic      string // without its type
	RemoteMTA       string
	WillRetryUntil  time.Time
}

// ParseReport reads a delivery report: RFC 3464, or the older form of exim with
// X-Failed-Recipients. It answers false for other messages, and if r cannot be read.
func ParseReport(r io.ReaderAt, root *Part) (*Report, bool) {
	var report *Report
	if status := deliveryStatus(root); status != nil {
		report = readStatus(r, status)
	} else {
		report = readFailedRecipients(r, root)
	}
	if report == nil || len(report.Recipients) == 0 {
		return nil, false
	}
	report.OriginalMessageID = returnedID(r, root)
	return report, true
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
		Action:         strings.ToLower(firstWord(values["action"])),
		Status:         statusCode(values["status"]),
		Diagnostic:     typedValue(values["diagnostic-code"]),
		RemoteMTA:      typedValue(values["remote-mta"]),
		WillRetryUntil: parseDate(values["will-retry-until"]),
	}
	if rcpt.Final == "" {
		rcpt.Final = rcpt.Original
	}
	return rcpt
}

// fieldBlocks divides text at its empty lines.
func fieldBlocks(text []byte) [][]byte {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	var out [][]byte
	for block := range bytes.SplitSeq(text, []byte("\n\n")) {
		if block = bytes.Trim(block, "\n"); len(block) > 0 {
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
			out[name] = strings.Join(strings.Fields(decodeText(f.value, MaxText)), " ")
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
			if isHex(hex[i]) {
				r = r<<4 | rune(unhex(hex[i]))
			}
		}
		if !isControl(r) {
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

// readFailedRecipients reads exim's plain bounce, whose header names the recipients and
// whose text says why.
func readFailedRecipients(r io.ReaderAt, root *Part) *Report {
	header, err := RawHeader(r, root)
	if err != nil {
		return nil
	}
	report := &Report{Kind: DeliveryReport}
	text := ""
	for f := range fields(header) {
		if !strings.EqualFold(string(f.name), "X-Failed-Recipients") {
			continue
		}
		if text == "" {
			text, _ = leadingText(r, root)
		}
		for _, a := range parseAddresses(guessUTF8(unfold(f.value)), maxReportRecipients-len(report.Recipients)) {
			if email := a.Email(); email != "" {
				report.Recipients = append(report.Recipients, ReportRecipient{
					Final: email, Action: "failed", Status: "5.0.0", Diagnostic: reasonFor(email, text)})
			}
		}
	}
	return report
}

func leadingText(r io.ReaderAt, root *Part) (string, error) {
	for _, p := range bodyPieces(root) {
		if p.text != nil {
			text, _, err := readText(r, p.text, maxReturned)
			return text, err
		}
	}
	return "", nil
}

// reasonFor returns the indented lines that follow the address.
func reasonFor(email, text string) string {
	_, rest, ok := strings.Cut(text, email)
	if !ok {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "\n")
	reason, _, _ := strings.Cut(rest, "\n\n")
	return cut(strings.Join(strings.Fields(reason), " "), MaxText)
}

// returnedID finds the Message-ID of the message that the report is about.
func returnedID(r io.ReaderAt, root *Part) string {
	if !root.IsMultipart() {
		text, _ := leadingText(r, root)
		return idInHeader([]byte(afterMarker(text)))
	}
	id := ""
	walkContent(root, nil, func(p, _ *Part) {
		switch {
		case id != "":
		case p.IsMessage():
			id = p.Envelope.MessageID
		case p.MediaType() == "text/rfc822-headers" || p.MediaType() == "message/global-headers" || p.MediaType() == "application/octet-stream":
			// The last is a returned message that came encoded.
			b, err := io.ReadAll(io.LimitReader(Open(r, p), maxReturned))
			if err == nil {
				id = idInHeader(b)
			}
		}
	})
	return id
}

// afterMarker returns what follows exim's and others' line of dashes before the copy.
func afterMarker(text string) string {
	if i := strings.Index(text, "\n------"); i >= 0 {
		_, after, _ := strings.Cut(text[i+1:], "\n")
		return strings.TrimLeft(after, "\n")
	}
	return ""
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
