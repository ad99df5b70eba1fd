package inbox

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Meta.Arrived of an arrived message is arrivedProven and the author's proven domain, or
// arrivedUnverified and the reason why the author is not proven although DMARC passes. A domain
// without either prefix was written before proofs covered everything that is shown.
const (
	arrivedUnverified = "."
	arrivedProven     = "="
)

func arrivedText(verified, lacks string) string {
	if verified == "" {
		return arrivedUnverified + lacks
	}
	return arrivedProven + verified
}

// verifiedOf returns the proven domain of the message's author; "" if none is proven.
func verifiedOf(meta *store.Meta) string {
	domain, ok := strings.CutPrefix(meta.Arrived, arrivedProven)
	if !ok {
		return ""
	}
	return domain
}

// unprovenReason returns why the author of a message that passes DMARC is not proven; "" for other
// messages.
func unprovenReason(meta *store.Meta) string {
	lacks, ok := strings.CutPrefix(meta.Arrived, arrivedUnverified)
	if !ok {
		return ""
	}
	return lacks
}

// authorship returns who wrote a message, given the first address of its From.
func authorship(meta *store.Meta, from string) agents.Source {
	w := agents.Source{Origin: meta.Origin, Verified: verifiedOf(meta)}
	if email, err := msg.NormalizeEmail(from); err == nil {
		w.Author = email
	}
	return w
}

// sourceOf returns the author of a message, its mailbox, its thread and the addresses in its
// header. thread is the result of threadNow. Moving the message changes only Folder and UID of the
// result.
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

// peopleOf returns the distinct addresses of From, Reply-To, To and Cc, normalized.
func peopleOf(e *msg.Envelope) (people []string) {
	for _, a := range slices.Concat(e.From, e.ReplyTo, e.To, e.Cc) {
		email, err := core.NormalizeEmail("to", a.Email())
		if err == nil && !slices.Contains(people, email) {
			people = append(people, email)
		}
	}
	return people
}
