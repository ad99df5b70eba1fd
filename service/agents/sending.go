package agents

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Reasons for which a message is held until a person has approved it.
const (
	HeldByPolicy = "policy"
	HeldByTaint  = "tainted"
)

// A Message holds what Admit must know about a message. Addresses are normalized.
type Message struct {
	Mailbox *store.Mailbox // the sending mailbox; nil: the credential of a domain sends
	As      []string       // its return path and its authors
	To      []string       // the recipients it names: those of the envelope, of To and Cc, and of the fields for which [Answering] is true
	// Answers reports whether it answers a message that arrived in the mailbox. People holds the
	// addresses in that message's From, Reply-To, To and Cc.
	Answers  bool
	People   []string
	ByPerson bool // sent by an owner or admin who is signed in; the policy of the mailbox does not apply

	reached []string          // set by Reach
	through map[string]string // for each reached address that the message does not name: the named address that leads there
}

// Unreadable replaces addresses that cannot be parsed. No policy allows it.
const Unreadable = "an address that cannot be read"

// Limits of the search for the recipients that one message reaches.
const (
	maxReached      = 5000 // mailboxes, groups and addresses
	maxReachedRules = 20_000
)

// Reach finds the addresses that a message reaches: those that it names, the members of groups
// among them, here and elsewhere, and the addresses that mailboxes here forward it to, always or by
// a rule. Only the mailbox's own address and aliases do not count as reached. It reads too much for
// a write transaction.
func (s *Service) Reach(tx *store.Tx, m *Message) error {
	var own core.Senders
	if m.Mailbox != nil {
		var err error
		own, err = core.OwnAddresses(tx, m.Mailbox)
		if err != nil {
			return err
		}
	}
	m.reached, m.through = []string{}, map[string]string{}
	seen := map[string]bool{}
	from := map[string]string{} // see through; by place
	add := func(email, place string) {
		if !own.Allow(email) && !slices.Contains(m.reached, email) {
			m.reached = append(m.reached, email)
			if by := from[place]; by != "" {
				m.through[email] = by
			}
		}
	}
	looked, rules := 0, 0
	for open := slices.Clone(m.To); len(open) > 0; {
		to := open[0]
		open = open[1:]
		if seen[to] {
			continue
		}
		seen[to] = true
		if looked++; looked > maxReached || rules > maxReachedRules {
			add(Unreadable, to)
			return nil
		}
		if strings.Contains(to, "@") || to == Unreadable {
			add(to, to)
		} else if email, _, err := addressAndMembers(tx, to); err != nil {
			return err
		} else if email != "" {
			add(email, to)
		}
		next, read, err := s.recipients.SendsOnTo(tx, to)
		if err != nil {
			return err
		}
		looked += len(next)
		rules += read
		for _, place := range next {
			if from[place] == "" && !slices.Contains(m.To, place) {
				from[place] = cmp.Or(from[to], to)
			}
		}
		open = append(open, next...)
	}
	return nil
}

// applyPolicy applies a policy to a message. reading is what the sender has read, nil if it has
// read nothing. A message that tainted the sender is in some mailbox; away reports whether m is
// sent from a different one. held says why m must wait for a person's approval; it is "" if m need
// not wait. The error is an SMTPError 550 5.7.1 that wraps the API's 403 sending_not_allowed,
// recipient_not_allowed or tainted.
func applyPolicy(p *store.Policy, reading *store.Reading, away bool, m *Message) (held string, err error) {
	outside := func(people []string) (out []string) { // recipients that are not among the people
		for _, email := range m.reached {
			if !store.ContainsAddress(p.AllowedRecipients, email, core.DomainOfAddress(email)) && !slices.Contains(people, email) {
				out = append(out, email)
			}
		}
		return out
	}
	var taint *store.Taint
	if reading != nil {
		taint = reading.Taint
	}
	if p.Send == store.SendDeny {
		return "", Denied()
	}
	if p.Send == store.SendReplyOnly {
		strangers := m.reached
		if m.Answers {
			strangers = outside(m.People)
		}
		if !m.Answers || len(strangers) > 0 {
			if taint != nil {
				strangers = nil // so that the error repeats no text of the request
			}
			return "", notAllowed(m.Answers, m.named(strangers))
		}
	}
	if taint != nil && (away || len(outside(reading.People)) > 0) {
		if p.Send != store.SendApproval {
			return "", core.OverSMTP(550, "5.7.1", TaintedError(taint))
		}
		return HeldByTaint, nil
	}
	if p.Send == store.SendApproval && len(outside(nil)) > 0 {
		return HeldByPolicy, nil
	}
	return "", nil
}

// named returns, for reached addresses, the ones that the message itself names: a sender is not
// told where others forward their mail.
func (m *Message) named(reached []string) (out []string) {
	for _, email := range reached {
		if by := m.through[email]; by != "" {
			email = by
		}
		if !slices.Contains(out, email) {
			out = append(out, email)
		}
	}
	return out
}

// Denied is the error if a policy allows no sending at all.
func Denied() error {
	return core.OverSMTP(550, "5.7.1", core.Errorf("sending_not_allowed", "The sending policy lets nothing be sent. An owner or admin of the account can change it."))
}

func notAllowed(answers bool, emails []string) error {
	text := "The sending policy allows only answers, to the people of the message that is answered."
	if !answers {
		text = "The sending policy allows only answers, and this message answers none that has arrived in the mailbox."
	}
	e := core.Errorf("recipient_not_allowed", "%s Leave the others out, or have an owner or admin allow them.", text)
	for _, email := range emails[:min(len(emails), 50)] {
		e = e.With("to", "recipient_not_allowed", email)
	}
	return core.OverSMTP(550, "5.7.1", e)
}

// TaintedError is the error for an action that a tainted holder may not do. It repeats no text of
// the request.
func TaintedError(t *store.Taint) *core.Error {
	e := core.Errorf("tainted", "A message that a stranger wrote was read with this token or password, so it may not do this. A person can clear it, or send this by the dashboard.")
	if t.MailboxID != "" {
		e = e.With("user_id", "tainted", t.MailboxID)
	}
	if t.UID != 0 {
		e = e.With("folder", "tainted", t.Folder).With("message_id", "tainted", core.UIDText(t.UID))
	}
	return e
}

// Admit is the only function that decides whether a holder may send a message. It checks the policy
// of the mailbox and that of the holder separately; a refusal by one prevails over a hold by the
// other. Call Reach for the message first. held is why the message must wait for a person's
// approval, "" if it need not; tainted reports whether the holder is tainted.
func (s *Service) Admit(tx *store.Tx, h Holder, m *Message) (held string, tainted bool, err error) {
	if m.reached == nil {
		return "", false, errors.New("Admit was called for a message without Reach")
	}
	if m.Mailbox != nil && !m.ByPerson {
		held, err = applyPolicy(&m.Mailbox.SendPolicy, nil, false, m)
		if err != nil {
			return "", false, err
		}
	}
	of, err := h.find(tx)
	if of == nil || err != nil {
		return held, false, err
	}
	reading := of.reading.Lasting(&of.policy, tx.Now())
	away := false
	if reading != nil && reading.Taint != nil {
		tainted = true
		away, err = sentFromElsewhere(tx, reading.Taint.MailboxID, m)
		if err != nil {
			return "", false, err
		}
	}
	why, err := applyPolicy(&of.policy, reading, away, m)
	if err != nil {
		return "", false, err
	}
	if why == HeldByTaint || held == "" {
		held = why
	}
	return held, tainted, nil
}

// sentFromElsewhere reports whether a message is sent from another mailbox than the given one, or
// by the credential of a domain with a sender address that this mailbox may not use.
func sentFromElsewhere(tx *store.Tx, mailboxID string, m *Message) (bool, error) {
	if m.Mailbox != nil {
		return m.Mailbox.ID != mailboxID, nil
	}
	mb, err := core.LiveMailbox(tx, mailboxID)
	if mb == nil || err != nil {
		return true, err
	}
	as, err := core.SendersOf(tx, mb)
	return slices.ContainsFunc(m.As, func(email string) bool { return !as.Allow(email) }), err
}

// Asks reports whether any policy applies to what a holder sends from a mailbox, so that Reach and
// Admit are needed.
func (s *Service) Asks(tx *store.Tx, mb *store.Mailbox, h Holder) (bool, error) {
	if mb != nil && !mb.SendPolicy.IsDefault() {
		return true, nil
	}
	of, err := h.find(tx)
	return err == nil && of != nil && !of.policy.IsDefault(), err
}

// answeringFields lists header fields, besides To and Cc, whose addresses receive answers from
// programs. Fields that begin with "resent-" are included too.
var answeringFields = []string{
	"reply-to", "sender", "disposition-notification-to", "return-receipt-to", "errors-to", "mail-followup-to", "mail-reply-to", "x-confirm-reading-to",
}

// Answering reports whether programs send answers to the addresses in a header field other than To
// and Cc, so that they count as recipients.
func Answering(field string) bool {
	field = strings.ToLower(field)
	return slices.Contains(answeringFields, field) || strings.HasPrefix(field, "resent-") && field != "resent-date" && field != "resent-message-id"
}

// DroppedWhileTainted reports whether a header field is removed from mail of a tainted holder.
func DroppedWhileTainted(field string) bool {
	field = strings.ToLower(field)
	return Answering(field) || strings.HasPrefix(field, "resent-") || strings.HasPrefix(field, "list-")
}
