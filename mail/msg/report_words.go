package msg

import (
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/charset"
)

// recipientFromText finds the result of a delivery in the text of a report, which is known to be
// about a message to recipient. It looks near the recipient's address, then anywhere outside of the
// copy of that message. It returns nil if the text gives no result.
func recipientFromText(r io.ReaderAt, root *Part, text, recipient string) *ReportRecipient {
	header, err := RawHeader(r, root)
	if err != nil {
		return nil
	}
	machine := isFromMailSystem(root, true)
	if !machine && isAutoReply(header) {
		return nil
	}
	action := actionInText(text)
	if action == "" && machine {
		action = actionInSubject(root)
	}
	reason, coded := failureReason(text, recipient)
	switch {
	case reason == "" && (action == "" || !machine):
		return nil
	case !coded && !machine && action == "":
		return nil
	}
	told := &ReportRecipient{Final: recipient, Action: ActionFailed, Status: StatusIn(reason), Diagnostic: oneLine(reason)}
	if action == ActionDelayed {
		told.Action = ActionDelayed
	}
	return told
}

// isAutoReply reports whether a header is that of an automatic reply, such as a vacation notice.
func isAutoReply(header []byte) bool {
	for f := range fields(header) {
		switch strings.ToLower(string(f.name)) {
		case "auto-submitted", "x-autoreply", "x-autorespond", "x-auto-response-suppress":
			if v := strings.ToLower(decodeText(f.value, "", 256)); !strings.HasPrefix(v, "no") && !strings.HasPrefix(v, "auto-generated") {
				return true
			}
		case "subject":
			if isAwaySubject(decodeText(f.value, "", MaxText)) {
				return true
			}
		}
	}
	return false
}

// reportText returns the text of a report without the copy of the message, and the fields of its
// machine-readable part. Each has at most maxReturned bytes.
func reportText(r io.ReaderAt, root *Part) (text, fields string) {
	if status := deliveryStatusPart(root); status != nil {
		if raw, err := io.ReadAll(io.LimitReader(Open(r, status), maxReturned)); err == nil {
			fields = charset.Body(raw, status.Params["charset"], status.Subtype == "html")
		}
	}
	var said []string
	left := int64(maxReturned)
	for _, p := range bodyPieces(root) {
		part := p.plainPart()
		if part == nil && len(p.html) > 0 {
			part = p.html[0]
		}
		if part == nil || left <= 0 || len(said) == 3 {
			continue
		}
		text, err := Text(r, part, left)
		if err != nil {
			continue
		}
		left -= int64(len(text))
		text, copied := cutCopy(text)
		said = append(said, text)
		if copied != "" {
			break
		}
	}
	return strings.ReplaceAll(strings.Join(said, "\n\n"), "(expanded from\n", "(expanded from "), fields
}

// recipientInFields finds fields of RFC 3464 within a text: those of the recipient, otherwise the
// first that have an action. It returns nil if there are none.
func recipientInFields(text, recipient string) *ReportRecipient {
	var found *ReportRecipient
	for _, block := range fieldBlocks([]byte(text)) {
		values := statusFields(block)
		if values["action"] == "" && values["status"] == "" || values["final-recipient"] == "" && values["original-recipient"] == "" && values["diagnostic-code"] == "" {
			continue
		}
		told := readRecipient(values)
		if told.Action == "" {
			continue
		}
		if strings.EqualFold(told.Final, recipient) {
			return &told
		}
		if found == nil {
			found = &told
		}
	}
	if found != nil && found.Final == "" {
		found.Final = recipient
	}
	return found
}

// failureReason returns the reason that a text gives for the failure to deliver to recipient: the
// lines after the address, otherwise the first paragraph with a status or reply code, otherwise the
// first with words that mean a status. coded reports whether the reason contains such a code.
func failureReason(text, recipient string) (reason string, coded bool) {
	paragraphs := strings.SplitN(text, "\n\n", maxPlainLines)
	var near []string
	lower := strings.ToLower(recipient)
	for i, p := range paragraphs {
		at := strings.Index(strings.ToLower(p), lower)
		if at < 0 || at > len(p) || len(near) == maxReason {
			continue
		}
		lines := linesAbout(p[strings.LastIndexByte(p[:at], '\n')+1:], lower)
		for next := i + 1; StatusIn(lines) == "" && next < len(paragraphs) && next <= i+2; next++ {
			lines += "\n" + linesAbout(paragraphs[next], lower)
		}
		if hasCode(lines) {
			return lines, true
		}
		near = append(near, lines)
	}
	if i := slices.IndexFunc(paragraphs, hasCode); i >= 0 {
		return linesAbout(paragraphs[i], lower), true
	}
	if i := slices.IndexFunc(near, func(p string) bool { return StatusIn(p) != "" }); i >= 0 {
		return near[i], false
	}
	if i := slices.IndexFunc(paragraphs, func(p string) bool { return StatusIn(p) != "" }); i >= 0 {
		return linesAbout(paragraphs[i], lower), false
	}
	return "", false
}

// linesAbout returns the lines of a paragraph that are about recipient, up to a line that begins
// with another address. If there are more than maxReason lines, it returns those around the first
// line with a status code.
func linesAbout(paragraph, recipient string) string {
	lines := strings.SplitN(strings.TrimSpace(paragraph), "\n", maxPlainLines)
	for i, line := range lines {
		if first := strings.ToLower(firstWord(line)); i > 0 && strings.Contains(first, "@") && !strings.Contains(first, recipient) {
			lines = lines[:i]
			break
		}
	}
	first := max(0, slices.IndexFunc(lines, hasCode)-maxReason/2)
	lines = lines[first:]
	return strings.Join(lines[:min(len(lines), maxReason)], "\n")
}

// hasCode reports whether a text contains a status code or an SMTP reply code of a failure.
func hasCode(text string) bool {
	m := enhancedCode().FindStringSubmatch(text)
	return m != nil && m[1][0] != '2' || replyCode().MatchString(text)
}
