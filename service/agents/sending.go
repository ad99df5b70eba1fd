package agents

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Why a message is held until a person has approved it.
const (
	HeldByPolicy = "policy"
	HeldByTaint  = "tainted"
)

// A Message is what has to be known of a message to say whether it may be sent. Addresses are in
// their one form.
type Message struct {
	Mailbox *store.Mailbox // that sends it; nil: the credential of a domain does
	As      []string       // its return path and its authors
	To      []string       // whom it names: those of the envelope, of To and Cc, and of the fields that [Answering] tells
	// Answers says that it answers a message which arrived in the mailbox, and People who that
	// message's people are: the addresses of its From, Reply-To, To and Cc.
	Answers  bool
	People   []string
	ByPerson bool // an owner or admin, who is signed in, sends it; the policy of the mailbox is not for them

	reached []string          // see Reach
	through map[string]string // of those that the message does not name: which address that it names leads there
}

// Unreadable stands for addresses that cannot be read, and so are nobody's who may get mail.
const Unreadable = "an address that cannot be read"

// Bounds of what is looked at to find whom one message reaches.
const (
	maxReached      = 5000 // places
	maxReachedRules = 20_000
)

// Reach finds out whom a message reaches: the addresses that it names, the members of the groups
// among them, here and elsewhere, and where mailboxes here send it on to, always or by a rule. Of
// all these only the mailbox's own address and its aliases are nobody else's. It looks at too much
// for a transaction that writes.
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
	from := map[string]string{} // of places: see through
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
		} else if email, _, err := placesBehind(tx, to); err != nil {
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

// decide says whether a policy lets a message be sent by one who has read what reading says; nil
// for nothing. away says that it is sent from another mailbox than that whose message tainted the
// sender. held is why it must wait for a person's approval, "" if it need not. The error is an
// SMTPError with the API's Error behind it: 403 sending_not_allowed, recipient_not_allowed or
// tainted, 550 5.7.1.
func decide(p *store.Policy, reading *store.Reading, away bool, m *Message) (held string, err error) {
	outside := func(people []string) (out []string) { // recipients that are none of the people
		for _, email := range m.reached {
			if !store.Names(p.AllowedRecipients, email, core.DomainOfAddress(email)) && !slices.Contains(people, email) {
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
				strangers = nil // no word of the request is repeated
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

// named gives, for addresses that a message reaches, those that it names itself: where others send
// their mail on to is not told to whoever writes to them.
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

// Denied is the error for those who may send nothing.
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

// TaintedError is the error for what a tainted holder may not do. It repeats no word of the
// request.
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

// Admit is the one place that says whether a message may be sent by a holder. The policy of the
// mailbox and that of the holder are asked each by itself: first what refuses, then what holds.
// Reach has been called for the message. held is why it must wait for a person's approval, ""
// if it need not; tainted reports whether the holder is.
func (s *Service) Admit(tx *store.Tx, h Holder, m *Message) (held string, tainted bool, err error) {
	if m.reached == nil {
		return "", false, errors.New("nobody has found out whom a message reaches")
	}
	if m.Mailbox != nil && !m.ByPerson {
		held, err = decide(&m.Mailbox.SendPolicy, nil, false, m)
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
	why, err := decide(&of.policy, reading, away, m)
	if err != nil {
		return "", false, err
	}
	if why == HeldByTaint || held == "" {
		held = why
	}
	return held, tainted, nil
}

// sentFromElsewhere reports whether a message is sent from another mailbox than the one of the id,
// or by the credential of a domain as anybody whom that mailbox may not send as.
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

// Asks reports whether any policy is to be asked about what a holder sends from a mailbox, so that
// what Admit wants to know has to be found out.
func (s *Service) Asks(tx *store.Tx, mb *store.Mailbox, h Holder) (bool, error) {
	if mb != nil && !mb.SendPolicy.IsDefault() {
		return true, nil
	}
	of, err := h.find(tx)
	return err == nil && of != nil && !of.policy.IsDefault(), err
}

// Header fields beside To and Cc that have programs send something to the addresses in them. What
// begins with "resent-" is one too.
var answeringFields = []string{
	"reply-to", "sender", "disposition-notification-to", "return-receipt-to", "errors-to", "mail-followup-to", "mail-reply-to", "x-confirm-reading-to",
}

// Answering reports whether programs send something to the addresses in a header field, beside To
// and Cc, so that they are recipients too.
func Answering(field string) bool {
	field = strings.ToLower(field)
	return slices.Contains(answeringFields, field) || strings.HasPrefix(field, "resent-") && field != "resent-date" && field != "resent-message-id"
}

// DroppedWhileTainted reports whether mail of a tainted holder loses a header field.
func DroppedWhileTainted(field string) bool {
	field = strings.ToLower(field)
	return Answering(field) || strings.HasPrefix(field, "resent-") || strings.HasPrefix(field, "list-")
}
