package rules

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// repliesEvery is how long a sender gets no second automatic reply (RFC 3834 section 2).
const repliesEvery = 7 * 24 * time.Hour

// MayReply tells whether a message to somebody with these addresses may be answered by a machine
// (RFC 3834 section 2), as far as the message tells. sender is the envelope's.
func (m *Message) MayReply(sender string, as core.Senders) bool {
	local, _, _ := msg.SplitEmail(sender)
	local = strings.ToLower(local)
	switch {
	case sender == "", as.Allow(strings.ToLower(sender)):
		return false
	case local == "mailer-daemon", strings.HasPrefix(local, "owner-"), strings.HasSuffix(local, "-request"):
		return false
	}
	for _, value := range m.header("Auto-Submitted") {
		kind, _, _ := strings.Cut(value, ";")
		if !strings.EqualFold(strings.TrimSpace(kind), "no") {
			return false
		}
	}
	for _, value := range m.header("Precedence") {
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "bulk", "list", "junk":
			return false
		}
	}
	for _, h := range m.headers { // header has read them
		if len(h.Name) > 5 && strings.EqualFold(h.Name[:5], "List-") {
			return false
		}
	}
	if e := m.root.Envelope; e != nil {
		for _, list := range [][]msg.Address{e.To, e.Cc} {
			for _, a := range list {
				if !a.IsGroupMarker() && as.Allow(strings.ToLower(a.Email())) {
					return true
				}
			}
		}
	}
	return false
}

// Correspondent is whom the sender of a message is remembered as by who answers: its address, or,
// where that was made for the one message (VERP, BATV), the address of the author, if it is of the
// same domain or of one above it.
func Correspondent(sender string, from []msg.Address) string {
	sender = strings.ToLower(sender)
	local, domain, _ := msg.SplitEmail(sender)
	if len(from) != 1 || !madeForOneMessage(local) {
		return sender
	}
	author := strings.ToLower(from[0].Email())
	if of := core.DomainOfAddress(author); domain == of || strings.HasSuffix(domain, "."+of) {
		return author
	}
	return sender
}

// madeForOneMessage tells whether a local part has a "=", or twelve letters and digits in a row, at
// least two of them digits.
func madeForOneMessage(local string) bool {
	run, digits := 0, 0
	for _, c := range []byte(local) {
		switch {
		case c == '=':
			return true
		case c >= '0' && c <= '9':
			run, digits = run+1, digits+1
		case c >= 'a' && c <= 'z':
			run++
		default:
			run, digits = 0, 0
		}
		if run >= 12 && digits >= 2 {
			return true
		}
	}
	return false
}

// NoteReply tells whether a mailbox may answer a correspondent now, and notes it if so: once in
// seven days. of is what answers, "vacation" or the id of a rule; another version of its text
// begins anew.
func NoteReply(tx *store.Tx, mailboxID, of, version, correspondent string) (bool, error) {
	id := store.AutoReplyID(mailboxID, of, version, correspondent)
	before, err := store.AutoReplies.Find(tx, id)
	if err != nil || before != nil && tx.Now().Before(before.Expires) {
		return false, err
	}
	return true, store.AutoReplies.Put(tx, &store.AutoReply{ID: id, Expires: tx.Now().Add(repliesEvery)})
}

// PruneReplies deletes what was noted of replies and says nothing any more.
func (s *Service) PruneReplies(tx *store.Tx) (int, error) {
	return core.DeleteExpired(tx, store.AutoReplies, store.AutoRepliesByTime)
}
