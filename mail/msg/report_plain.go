package msg

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/mail/charset"
)

const (
	maxPlainLines = 2000 // lines of a bounce that are read
	maxReason     = 12   // lines of a reason that are kept
)

// readPlainBounce parses a bounce in plain text, as written by qmail, older exim, sendmail and
// Exchange, Lotus Notes, Gmail and Yahoo. A message counts as a bounce if it comes from a mail
// system, says in a known phrase that a message was not delivered, and names addresses on lines of
// their own.
func readPlainBounce(r io.ReaderAt, root *Part) *Report {
	header, err := RawHeader(r, root)
	if err != nil {
		return nil
	}
	failed := failedRecipients(header)
	null := slices.ContainsFunc(FieldValues(header, "Return-Path"), func(path string) bool { return strings.ReplaceAll(path, " ", "") == "<>" })
	if len(failed) == 0 && !isFromMailSystem(root, null) {
		return nil
	}
	text, err := leadingText(r, root)
	if err != nil {
		return nil
	}
	text, _ = cutCopy(text)
	report := &Report{Kind: DeliveryReport}
	for _, email := range failed {
		reason := reasonFor(email, text)
		report.Recipients = append(report.Recipients, ReportRecipient{
			Final: email, Action: ActionFailed, Status: StatusIn(reason), Diagnostic: reason})
	}
	if action := actionInText(text); len(failed) == 0 && action != "" {
		report.Recipients = plainRecipients(text, action)
	}
	if len(report.Recipients) == 1 && report.Recipients[0].Status == "" { // with one recipient the whole text is about it
		_, after, _ := strings.Cut(text, report.Recipients[0].Final)
		report.Recipients[0].Status = StatusIn(after)
	}
	return report
}

// failedRecipients returns the addresses in X-Failed-Recipients, a field that exim and Gmail add.
func failedRecipients(header []byte) []string {
	var out []string
	for f := range fields(header) {
		if !strings.EqualFold(string(f.name), "X-Failed-Recipients") {
			continue
		}
		for _, a := range parseAddresses(charset.Guess(unfold(f.value)), maxReportRecipients-len(out)) {
			if email := a.Email(); email != "" {
				out = append(out, email)
			}
		}
	}
	return out
}

// isFromMailSystem reports whether a mail system wrote the message. It did if the author's address
// is one of mailSystems, or if the return path is null and the author's name contains one of
// mailSystemWords. For a message with an author, a null return path alone does not suffice, since
// automatic replies have it too.
func isFromMailSystem(root *Part, null bool) bool {
	if root.Envelope == nil || len(root.Envelope.From) == 0 {
		return null
	}
	from := root.Envelope.From[0]
	if slices.Contains(mailSystems, strings.ToLower(from.Mailbox)) {
		return true
	}
	name := strings.ToLower(from.Mailbox + " " + from.Name)
	return null && slices.ContainsFunc(mailSystemWords, func(word string) bool { return strings.Contains(name, word) })
}

var (
	mailSystems     = []string{"mailer-daemon", "postmaster", "mail-daemon", "mailerdaemon", "maildaemon", "mdaemon"}
	mailSystemWords = []string{"daemon", "postmaster", "mailer", "deliver", "administrator", "mail system", "bounce", "mail.system"}
)

// Phrases with which mail systems report failures and delays, in lower case. A text with phrases of
// both lists reports a failure only if it also has one of permanentPhrases.
var (
	failurePhrases = []string{
		"could not be delivered", "couldn't be delivered", "cannot be delivered", "can't be delivered", "was not delivered",
		"wasn't able to deliver", "not able to deliver", "unable to deliver", "could not deliver", "cannot deliver", "undeliverable",
		"did not reach the following", "recipient failed", "recipients failed", "delivery has failed", "delivery failed",
		"delivery failure", "failed permanently", "permanent fatal errors", "returned to sender", "addresses failed", "address(es) failed",
		"permanent error",
		"konnte nicht zugestellt", "unzustellbar", "n'a pas pu être", "n’a pas pu être", "n'a pu être", "no se pudo entregar", "no pudo ser entregad", "no se ha podido entregar",
		"non è stato possibile recapitare", "impossibile recapitare", "não pôde ser entregue", "nie została dostarczona", "nie można dostarczyć", "не может быть доставлено", "не было доставлено", "не доставлено", "не удалось доставить",
		"无法投递", "無法投遞", "无法送达", "無法送達", "被退回", "投递失败", "投遞失敗", "配信できません", "配信されません", "送信できません", "送達できません", "届けることができません", "전송되지 않았습니다", "전송하지 못했습니다",
	}
	// Phrases in the subjects of reports of failures, in lower case.
	subjectFailurePhrases = []string{
		"undeliver", "returned mail", "returned to sender", "failure notice", "notification (failure)", "delivery failure", "delivery failed", "delivery has failed", "delivery error",
		"mail delivery failed", "could not be delivered", "unzustellbar", "non remis", "échec de la remise", "退信", "不能投递", "配信エラー", "配信不能", "недоставленн", "не доставлено",
	}
	subjectDelayPhrases = []string{"delay", "warning", "still being retried"}
	delayPhrases        = []string{
		"has not yet been delivered", "not been delivered yet", "warning message only", "do not need to resend", "will be retried",
		"attempts will continue", "will continue to be attempted", "will keep trying", "keep trying", "still being retried",
		"delivery delayed", "is delayed", "has been delayed", "transient non-fatal errors",
	}
	permanentPhrases = []string{"permanent error", "permanent fatal", "given up", "giving up", "failed permanently", "permanent failure"}
)

// actionInText returns the action (failed or delayed) that the text reports, "" if it reports none.
func actionInText(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	switch {
	case containsPhrase(text, delayPhrases) && !containsPhrase(text, permanentPhrases):
		return ActionDelayed
	case containsPhrase(text, failurePhrases):
		return ActionFailed
	}
	return ""
}

// actionInSubject returns the action (failed or delayed) that the subject of a report names, "" if
// it names none.
func actionInSubject(root *Part) string {
	if root.Envelope == nil {
		return ""
	}
	switch subject := strings.ToLower(root.Envelope.Subject); {
	case containsPhrase(subject, subjectDelayPhrases):
		return ActionDelayed
	case containsPhrase(subject, subjectFailurePhrases):
		return ActionFailed
	}
	return ""
}

func containsPhrase(text string, list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(text, s) })
}

// plainRecipients returns the addresses in a text, each with the reason that follows it.
func plainRecipients(text, action string) []ReportRecipient {
	var out []ReportRecipient
	var reasons [][]string
	ended := false // the reason of the last recipient is complete
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		if n++; n > maxPlainLines {
			break
		}
		line = strings.TrimSpace(line)
		if email, rest := cutLineAddress(line); email != "" {
			if len(out) == maxReportRecipients {
				break
			}
			out, reasons, ended = append(out, ReportRecipient{Final: email, Action: action}), append(reasons, nil), false
			line = rest
		}
		last := len(out) - 1
		switch {
		case last < 0 || ended:
		case line != "" && len(reasons[last]) < maxReason:
			reasons[last] = append(reasons[last], line)
		case line == "" && len(reasons[last]) > 0:
			ended = StatusIn(strings.Join(reasons[last], " ")) != ""
		}
	}
	for i := range out {
		out[i].Diagnostic = cut(strings.Join(strings.Fields(strings.Join(reasons[i], " ")), " "), MaxText)
		out[i].Status = StatusIn(out[i].Diagnostic)
	}
	return out
}

// cutLineAddress splits off the address at the start of a line such as "<a@b>: why", "a@b", or "a@b
// on Friday".
func cutLineAddress(line string) (email, rest string) {
	if inner, ok := strings.CutPrefix(line, "<"); ok {
		email, rest, ok = strings.Cut(inner, ">")
		if !ok {
			return "", ""
		}
	} else {
		email, rest, _ = strings.Cut(line, " ")
		email = strings.TrimRight(email, ":,;")
		rest = strings.TrimSpace(rest)
		if rest != "" && !strings.HasPrefix(rest, "on ") && !strings.HasPrefix(rest, "(") {
			return "", ""
		}
	}
	email, err := NormalizeEmail(email)
	if err != nil {
		return "", ""
	}
	return email, strings.TrimLeft(rest, ": ")
}

// leadingText returns the beginning of the first plain text of a message.
func leadingText(r io.ReaderAt, root *Part) (string, error) {
	for _, p := range bodyPieces(root) {
		if plain := p.plainPart(); plain != nil {
			text, _, err := readText(r, plain, maxReturned)
			return text, err
		}
	}
	return "", nil
}

// reasonFor returns the paragraph after the line with the address, as one line.
func reasonFor(email, text string) string {
	_, rest, ok := strings.Cut(text, email)
	if !ok {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "\n")
	reason, more, _ := strings.Cut(rest, "\n\n")
	if strings.TrimSpace(reason) == "" {
		reason, _, _ = strings.Cut(more, "\n\n")
	}
	return cut(strings.Join(strings.Fields(reason), " "), MaxText)
}

// reasonsIn returns the reasons that a text gives, by email address in lower case. A reason is the
// rest of a line "a@b: why", or the lines below a line "a@b" that are indented more.
func reasonsIn(text string) map[string]string {
	out := map[string]string{}
	above, depth := "", 0
	for line := range strings.Lines(text) {
		said := strings.TrimSpace(line)
		indent := strings.Index(line, said)
		if above != "" && said != "" && indent > depth {
			out[above] = cut(strings.TrimSpace(out[above]+" "+said), MaxText)
			continue
		}
		email, why, _ := strings.Cut(said, ": ")
		email = strings.ToLower(strings.Trim(email, "<>"))
		above = ""
		if !strings.Contains(email, "@") || strings.Contains(email, " ") || out[email] != "" || len(out) == maxReportRecipients {
			continue
		}
		out[email] = cut(strings.TrimSpace(why), MaxText)
		if why == "" {
			above, depth = email, indent
		}
	}
	return out
}

// copyPhrases are phrases that occur in the line before the copy of a message.
var copyPhrases = []string{"copy of", "original message", "original mail", "original header", "unsent message", "returned message", "message header", "message follows", "message text follows"}

// cutCopy splits the text of a bounce at the line that introduces the copy of the message. That
// line begins with dashes, or a header follows it. copied is "" if there is no copy.
func cutCopy(text string) (said, copied string) {
	for at := 0; at < len(text); {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			break
		}
		line := strings.ToLower(strings.TrimSpace(text[at : at+end]))
		next := at + end + 1
		dashes := strings.HasPrefix(strings.TrimPrefix(line, "|"), "---")
		marked := slices.ContainsFunc(copyPhrases, func(m string) bool { return strings.Contains(line, m) })
		if marked && (dashes || beginsWithField(text[next:], messageFields)) || dashes && beginsWithField(text[next:], traceFields) {
			return text[:at], strings.TrimLeft(text[next:], "\n")
		}
		at = next
	}
	return text, ""
}

// beginsWithField reports whether a text begins with a header field that has one of the names. It
// skips empty lines.
func beginsWithField(text string, names map[string]bool) bool {
	name, _, ok := strings.Cut(strings.TrimLeft(text[:min(len(text), 1024)], " \t\n"), ":")
	return ok && names[strings.ToLower(name)]
}

var (
	traceFields   = wordSet("received", "return-path", "message-id", "mime-version", "dkim-signature", "delivered-to")
	messageFields = wordSet("received", "return-path", "message-id", "mime-version", "dkim-signature", "delivered-to", "from", "to", "subject", "date", "content-type", "reply-to", "sender")
)

var (
	enhancedCode = lazyregexp.New(`(?:^|[^0-9.])([245]\.[0-9]{1,3}\.[0-9]{1,3})(?:[^0-9.]|\.?$|\.[^0-9])`)
	replyCode    = lazyregexp.New(`(?:^|[\s:>('"])(42[0-9]|45[0-9]|50[0-4]|51[0-3]|52[0-9]|53[0-9]|54[01]|55[0-7]|571)(?:[^0-9A-Za-z.:/@]|:? |\.?$|\. )`)
)

// statusWords maps phrases, in lower case, to the status that they mean in a text without a status
// code. The first match counts.
var statusWords = []struct{ status, words string }{
	{"4.2.2", fullPhrases},
	{"4.4.3", lookupPhrases},
	{"5.1.1", unknownPhrases + "|does not exist|doesn't exist|n'existe pas|no existe|não existe|не существует|nie istnieje"},
	{"5.1.2", domainPhrases},
	{"5.1.10", "no smtp service|does not accept mail"},
	{"5.1.3", "malformed address|bad address syntax|address syntax error"},
	{"5.2.1", disabledPhrases + "|has been suspended"},
	{"5.3.4", "message too large|message is too large|message too big|message size exceeds|exceeds the maximum|size limit"},
	{"4.4.7", "retry timeout exceeded|message expired|envelope expired|too long in the queue|in the queue too long|delivery time expired|not delivered within|could not be delivered for|after multiple retries|failing for a long time"},
	{"4.4.1", "connection timed out|connection refused|operation timed out|no route to host|not responding|host not reachable|network unreachable|network error|did not accept our requests to connect"},
	{"5.7.1", "spam|blacklist|blocklist|blocked|policy|access denied|not authorized|dmarc|rejected due"},
}

// statusExpired is the status of a message that was deferred until the time limit (RFC 3463 section
// 3.5).
const statusExpired = "4.4.7"

// replyClass returns the first digit (4 or 5) of the SMTP reply code at the start of a text. It
// returns "" for a text without such a code, or with a code of success.
func replyClass(text string) string {
	if m := replyCode().FindStringIndex(text); m == nil || m[0] > 0 {
		return ""
	}
	return text[:1]
}

// StatusIn finds a status code (RFC 3463) in the text of a server. If the text has none, StatusIn
// returns the status that the words mean, with 4 or 5 as in the SMTP reply code if there is one.
// For a text with only a reply code it returns 4.0.0 or 5.0.0. It returns "" if it finds nothing.
func StatusIn(text string) string {
	if m := enhancedCode().FindStringSubmatch(text); m != nil && m[1][0] != '2' {
		return m[1]
	}
	class := ""
	if m := replyCode().FindStringSubmatch(text); m != nil {
		class = m[1][:1]
	}
	lower := strings.ToLower(text)
	for _, s := range statusWords {
		if containsAnyPhrase(lower, s.words) {
			return cmp.Or(class, s.status[:1]) + s.status[1:]
		}
	}
	switch {
	case absentAddress().MatchString(withoutAddresses(text)):
		return cmp.Or(class, "5") + ".1.0"
	case class != "":
		return class + ".0.0"
	}
	return ""
}
