package msg

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// BaseSubject takes off a subject what mail programs and mailing lists put around it (RFC 5256
// section 2.1, in the languages of many programs), folds case and space, and says whether that was
// the mark of an answer.
func BaseSubject(subject string) (base string, answer bool) {
	base = strings.Join(strings.Fields(strings.ToLower(norm.NFKC.String(cut(subject, MaxText)))), " ")
	for {
		rest, mark := cutMark(base)
		if mark == "" {
			return base, answer
		}
		answer = answer || answerMarks[mark]
		base = rest
	}
}

// cutMark takes one mark off the front: a word with a colon, or a list's name in brackets with more
// behind it.
func cutMark(s string) (rest, mark string) {
	if strings.HasPrefix(s, "[") {
		name, after, ok := strings.Cut(s[1:], "]")
		if after = strings.TrimSpace(after); ok && after != "" && len(name) <= 60 {
			return after, "[]"
		}
		return s, ""
	}
	head, after, ok := strings.Cut(s, ":")
	if !ok || len(head) > 24 {
		return s, ""
	}
	word := strings.TrimFunc(head, func(r rune) bool { return unicode.IsDigit(r) || strings.ContainsRune(" []()^*", r) })
	if !answerMarks[word] && !forwardMarks[word] {
		return s, ""
	}
	return strings.TrimSpace(after), word
}

var (
	answerMarks = map[string]bool{
		"re": true, "r": true, "aw": true, "antw": true, "antwort": true, "sv": true, "vs": true, "vá": true, "odp": true, "rif": true,
		"res": true, "rsp": true, "resp": true, "ynt": true, "yanıt": true, "bls": true, "atb": true, "απ": true, "σχετ": true, "ha": true,
		"на": true, "отв": true, "ответ": true, "rép": true, "rep": true, "回复": true, "回覆": true, "答复": true, "返信": true, "답장": true, "رد": true, "תגובה": true,
	}
	forwardMarks = map[string]bool{
		"fw": true, "fwd": true, "wg": true, "tr": true, "rv": true, "enc": true, "i": true, "fs": true, "vb": true, "vl": true, "pd": true,
		"doorst": true, "ilt": true, "továbbítás": true, "trs": true, "πρθ": true, "пер": true, "转发": true, "轉寄": true, "転送": true, "전달": true,
	}
)
