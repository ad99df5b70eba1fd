package imapd

import (
	"strings"

	"github.com/mailstead/mailstead/service/inbox"
)

// objectItems are FETCH items of newer extensions whose values are in a message's row: EMAILID and
// THREADID (RFC 8474), PREVIEW (RFC 8970) and SAVEDATE (RFC 8514).
type objectItems struct{ emailID, threadID, preview, saveDate bool }

// writeObjectItems appends those of the items that are asked for, each followed by a space.
func (w *attributeWriter) writeObjectItems(row *inbox.MessageRow, a objectItems) {
	if a.emailID {
		w.b = append(append(append(w.b, "EMAILID ("...), row.EmailID...), ") "...)
	}
	switch {
	case !a.threadID:
	case isObjectID(row.ThreadID):
		w.b = append(append(append(w.b, "THREADID ("...), row.ThreadID...), ") "...)
	default:
		w.b = append(w.b, "THREADID NIL "...)
	}
	if a.saveDate {
		w.b = append(row.Saved.AppendFormat(append(w.b, `SAVEDATE "`...), "_2-Jan-2006 15:04:05 -0700"), `" `...)
	}
	if a.preview {
		w.b = append(w.b, "PREVIEW "...)
		w.writeString([]byte(row.Preview))
		w.b = append(w.b, ' ')
	}
}

// isObjectID reports whether s has the form of an object ID (RFC 8474 section 7).
func isObjectID(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}
