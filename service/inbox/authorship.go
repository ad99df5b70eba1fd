package inbox

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Prefixes of Meta.Arrived. arrivedProven precedes the verified domain of the author.
// arrivedUnverified precedes the reason why the author is not verified although DMARC passes. A
// domain without a prefix was stored by an older release, which checked less, so it does not count
// as verified.
const (
	arrivedUnverified = "."
	arrivedProven     = "="
)

// arrivedText returns the Meta.Arrived of a message that has arrived.
func arrivedText(verified, reason string) string {
	if verified == "" {
		return arrivedUnverified + reason
	}
	return arrivedProven + verified
}

// verifiedOf returns the verified domain of the message's author; "" if there is none.
func verifiedOf(meta *store.Meta) string {
	domain, ok := strings.CutPrefix(meta.Arrived, arrivedProven)
	if !ok {
		return ""
	}
	return domain
}

// unprovenReason returns why the author of a message is not verified although DMARC passes. It
// returns "" for all other messages.
func unprovenReason(meta *store.Meta) string {
	lacks, ok := strings.CutPrefix(meta.Arrived, arrivedUnverified)
	if !ok {
		return ""
	}
	return lacks
}

// authorship returns the origin and the verified domain of a message. from is the first address of
// its From field.
func authorship(meta *store.Meta, from string) agents.Source {
	w := agents.Source{Origin: meta.Origin, Verified: verifiedOf(meta)}
	if email, err := msg.NormalizeEmail(from); err == nil {
		w.Author = email
	}
	return w
}

// sourceOf describes who wrote a message, and returns its mailbox, its thread and the addresses in
// its header. thread is a result of currentThreadID. If the message is moved to another
// folder, only Folder and UID of the result change.
func sourceOf(mb *store.Mailbox, f *Folder, m *store.Message, meta *store.Meta, thread string, e *msg.EnvelopeView) agents.Source {
	if e == nil {
		e = &msg.EnvelopeView{}
	}
	from := ""
	if i := slices.IndexFunc(e.From, func(a msg.AddressView) bool { return !a.IsGroupMarker() }); i >= 0 {
		from = string(e.From[i].AppendEmail(nil))
	}
	w := authorship(meta, from)
	w.MailboxID, w.ThreadID, w.Folder, w.UID = mb.ID, thread, f.Name, m.UID
	for _, list := range [][]msg.AddressView{e.From, e.ReplyTo, e.To, e.Cc} {
		for i := range list {
			if email, err := msg.NormalizeEmail(string(list[i].AppendEmail(nil))); err == nil {
				w.People = append(w.People, email)
			}
		}
	}
	return w
}

// addressesOf returns the addresses in From, Reply-To, To and Cc, normalized and without
// duplicates.
func addressesOf(e *msg.Envelope) (people []string) {
	for _, a := range slices.Concat(e.From, e.ReplyTo, e.To, e.Cc) {
		email, err := core.NormalizeEmail("to", a.Email())
		if err == nil && !slices.Contains(people, email) {
			people = append(people, email)
		}
	}
	return people
}
