package rules

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// repliesEvery is how long a sender gets no second automatic reply (RFC 3834 section 2).
const repliesEvery = 7 * 24 * time.Hour

// robots are the local parts that programs have, without the marks between words; robotWords are
// words, or words in a row, that stand in those of programs alone.
var (
	robots     = strings.Fields("mailerdaemon listserv listserver majordomo mailman listproc bounce bounces")
	robotWords = strings.Fields("noreply no-reply donotreply do-not-reply donot-reply dontreply dont-reply noresponse no-response unattended " +
		"autoreply auto-reply autoresponder auto-responder autoresponse auto-response mailer-daemon")
)

// isRobot tells whether a program has a local part (RFC 3834 section 2), by whole words of it.
func isRobot(local string) bool {
	local, _, _ = strings.Cut(strings.Trim(strings.ToLower(local), `"`), "+")
	if strings.HasPrefix(local, "owner-") || strings.HasSuffix(local, "-owner") || strings.HasPrefix(local, "request-") || strings.HasSuffix(local, "-request") ||
		strings.HasPrefix(local, "bounces-") || strings.HasSuffix(local, "-bounces") || strings.HasPrefix(local, "bounce-") || strings.HasSuffix(local, "-bounce") {
		return true
	}
	words := strings.FieldsFunc(local, func(r rune) bool { return !unicode.IsLetter(r) }) // digits too: noreply2
	if slices.Contains(robots, strings.Join(words, "")) {
		return true
	}
	marked := "-" + strings.Join(words, "-") + "-"
	return slices.ContainsFunc(robotWords, func(word string) bool { return strings.Contains(marked, "-"+word+"-") })
}

// byMachine tells whether the message says that a program wrote it, or asks for no answer by one.
func (m *Message) byMachine() bool {
	for _, value := range m.header("Content-Type") { // of a report without parts the scan knows none
		kind, _, _ := strings.Cut(value, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "multipart/report", "message/disposition-notification", "message/delivery-status":
			return true
		}
	}
	for _, value := range m.header("Auto-Submitted") {
		kind, _, _ := strings.Cut(value, ";")
		kind, _, _ = strings.Cut(kind, "(") // a comment
		if !strings.EqualFold(strings.TrimSpace(kind), "no") {
			return true
		}
	}
	for _, value := range m.header("Precedence") {
		kind, _, _ := strings.Cut(value, "(")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "bulk", "list", "junk", "auto_reply", "auto-reply":
			return true
		}
	}
	for _, value := range m.header("X-Auto-Response-Suppress") { // [MS-OXCMAIL] section 2.1.3.2.20
		for word := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(word)) {
			case "all", "oof", "autoreply":
				return true
			}
		}
	}
	for _, name := range []string{"X-Autoreply", "X-Autorespond", "X-Autoresponder", "X-Loop"} {
		if len(m.header(name)) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(m.headers, func(h msg.Header) bool { // header has read them
		return len(h.Name) > 5 && strings.EqualFold(h.Name[:5], "List-")
	})
}

// MayReply tells whether a message to somebody with these addresses may be answered by a machine
// (RFC 3834 section 2), as far as the message tells. sender is the envelope's; a program that has a
// sender of its own for each message has its name in From.
func (m *Message) MayReply(sender string, as core.Senders) bool {
	local, _, _ := msg.SplitEmail(sender)
	if e := m.root.Envelope; e != nil && slices.ContainsFunc(e.From, func(a msg.Address) bool { return isRobot(a.Mailbox) }) {
		return false
	}
	switch {
	case sender == "", as.Allow(strings.ToLower(sender)):
		return false
	case isRobot(local), m.byMachine():
		return false
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

// A Replier is what answers by itself: the vacation, or a rule by its id. Version is that of its
// text.
type Replier struct{ Of, Version string }

// OfVacation is what answers for a mailbox that is away.
const OfVacation = "vacation"

// RuleReplier is a rule that replies with a text.
func RuleReplier(id, text string) Replier { return Replier{id, core.TextHash(text)[:16]} }

// NoteReply tells whether a mailbox may answer a correspondent now, and notes it if so: once in
// seven days, whatever answers. version is that of the vacation's text, "" where it is off: a new
// text begins anew.
func NoteReply(tx *store.Tx, mailboxID string, by Replier, version, correspondent string) (bool, error) {
	id := store.AutoReplyID(mailboxID, "", "", correspondent)
	before, err := store.AutoReplies.Find(tx, id)
	if err != nil {
		return false, err
	}
	if before != nil && tx.Now().Before(before.Expires) {
		if by.Of != OfVacation || before.Version == version {
			return false, nil
		}
	} else { // who was answered before there was one note for all that answers
		old, err := store.AutoReplies.Find(tx, store.AutoReplyID(mailboxID, by.Of, by.Version, correspondent))
		if err != nil || old != nil && tx.Now().Before(old.Expires) {
			return false, err
		}
	}
	return true, store.AutoReplies.Put(tx, &store.AutoReply{ID: id, Version: version, Expires: tx.Now().Add(repliesEvery)})
}

// PruneReplies deletes what was noted of replies and says nothing any more.
func (s *Service) PruneReplies(tx *store.Tx) (int, error) {
	return core.DeleteExpired(tx, store.AutoReplies, store.AutoRepliesByTime)
}
