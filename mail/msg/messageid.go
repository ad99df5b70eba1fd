package msg

import (
	"bytes"
	"crypto/rand"
	"strings"
)

// NewMessageID returns a fresh Message-ID at the domain, with its brackets.
func NewMessageID(domain string) string {
	return "<" + strings.ToLower(rand.Text()) + "@" + domain + ">"
}

// messageIDs returns the ids of a Message-ID, In-Reply-To or References field, each in
// brackets: the first one, which names the thread, and the newest up to MaxReferences.
// An id without brackets is taken if it has an @, or if it is all that there is.
func messageIDs(value []byte) []string {
	value = unfold(value)
	var found [][]byte
	add := func(id []byte) {
		if id = stripSpace(id); len(id) > 0 && len(id) <= maxMessageID-2 {
			found = append(found, id)
		}
	}
	for rest := value; len(rest) > 0; {
		open := bytes.IndexByte(rest, '<')
		if open < 0 {
			bareIDs(rest, add)
			break
		}
		bareIDs(rest[:open], add)
		id, after, _ := bytes.Cut(rest[open+1:], []byte(">"))
		add(id)
		rest = after
	}
	if len(found) == 0 && len(value) > 0 && !bytes.ContainsAny(value, " \t<>\"") {
		add(value)
	}
	if over := len(found) - MaxReferences; over > 0 {
		found = append(found[:1], found[1+over:]...)
	}
	out := make([]string, len(found))
	for i, id := range found {
		out[i] = "<" + cleanText(guessUTF8(id), maxMessageID) + ">"
	}
	return out
}

func bareIDs(text []byte, add func([]byte)) {
	if bytes.IndexByte(text, '@') < 0 {
		return
	}
	for word := range bytes.FieldsSeq(text) {
		if bytes.IndexByte(word, '@') > 0 {
			add(bytes.Trim(word, ",;>()\""))
		}
	}
}

func stripSpace(b []byte) []byte {
	if !bytes.ContainsAny(b, " \t") {
		return b
	}
	return bytes.Join(bytes.Fields(b), nil)
}
