package agents

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/policy"
)

// Reasons why a message is held until a person has approved it.
const (
	HeldByPolicy = "policy"
	HeldByTaint  = "tainted"
)

// A Message has what Admit must know about a message that is to be sent. Its addresses are
// normalized.
type Message struct {
	Mailbox *store.Mailbox // the mailbox that sends it; nil: it is sent with the credential of a domain
	Senders []string       // the addresses of its return path and its authors
	To      []string       // the recipients in its envelope, in To and Cc, and in fields for which [IsReplyField] returns true
	// Answers is true if it answers a message that has arrived in the mailbox. Then People are the
	// addresses in the From, Reply-To, To and Cc of the answered message.
	Answers  bool
	People   []string
	ByPerson bool // it is sent by an owner or admin who is signed in, so the policy of the mailbox does not apply

	reached []string          // the addresses that the message reaches; nil before Reach
	via     map[string]string // by reached address that is not in To: the address in To that leads there
}

// Unreadable stands for an address that cannot be parsed. No policy allows it.
const Unreadable = "an address that cannot be read"

// Limits of the search for the addresses that one message reaches.
const (
	maxReached      = 5000   // mailboxes, groups and addresses that are looked at
	maxReachedRules = 20_000 // rules that are read
)

// Reach finds the addresses that a message reaches: those in m.To, the members of groups among
// them, and the addresses to which mailboxes here forward it, always or by a rule. The sending
// mailbox's own addresses do not count. Reach must not be called in a write transaction, because it
// may read very many rows.
func (s *Service) Reach(tx *store.Tx, m *Message) error {
	var own core.Senders
	if m.Mailbox != nil {
		var err error
		own, err = core.OwnAddresses(tx, m.Mailbox)
		if err != nil {
			return err
		}
	}
	m.reached, m.via = []string{}, map[string]string{}
	seen := map[string]bool{}
	from := map[string]string{} // by address or ID: the address in To that leads there
	add := func(email, place string) {
		if !own.Allows(email) && !slices.Contains(m.reached, email) {
			m.reached = append(m.reached, email)
			if by := from[place]; by != "" {
				m.via[email] = by
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

// applyPolicy checks a message against a policy. reading is what the sender has read; nil if
// nothing. elsewhere says that the sender was tainted by a message in another mailbox than the one
// that sends m. held says why a person must approve m; "" if nobody must. The error is an SMTPError
// 550 5.7.1, which wraps the API's error 403 sending_not_allowed, recipient_not_allowed or tainted.
func applyPolicy(p *store.Policy, reading *store.Reading, elsewhere bool, m *Message) (held string, err error) {
	outside := func(people []string) (out []string) { // reached addresses that are not among the people and that the policy does not allow
		for _, email := range m.reached {
			if !policy.ContainsAddress(p.AllowedRecipients, email, core.DomainOfAddress(email)) && !slices.Contains(people, email) {
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
		return "", DeniedError()
	}
	if p.Send == store.SendReplyOnly {
		strangers := m.reached
		if m.Answers {
			strangers = outside(m.People)
		}
		if !m.Answers || len(strangers) > 0 {
			if taint != nil {
				strangers = nil // the error must not repeat texts of the request
			}
			return "", notAllowedError(m.Answers, m.namedAddresses(strangers))
		}
	}
	if taint != nil && (elsewhere || len(outside(reading.People)) > 0) {
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

// namedAddresses replaces each reached address by the address in To that leads there, because the
// sender must not learn where other people forward their mail.
func (m *Message) namedAddresses(reached []string) (out []string) {
	for _, email := range reached {
		if by := m.via[email]; by != "" {
			email = by
		}
		if !slices.Contains(out, email) {
			out = append(out, email)
		}
	}
	return out
}

// DeniedError returns the error for a policy that allows no sending at all.
func DeniedError() error {
	return core.OverSMTP(550, "5.7.1", core.Errorf("sending_not_allowed", "The sending policy lets nothing be sent. An owner or admin of the account can change it."))
}

// notAllowedError returns the error for recipients that the policy does not allow.
func notAllowedError(answers bool, emails []string) error {
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

// TaintedError returns the error for an action that a tainted holder must not do. The error repeats
// no text of the request.
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

// Admit decides whether a holder may send a message. It is the only function that does. It checks
// the message against the policy of the mailbox and against that of the holder. If one of them
// refuses it, the message is refused, even if the other one would hold it. Reach must be called for
// the message first. held says why a person must approve the message; "" if nobody must. tainted
// reports whether the holder is tainted.
func (s *Service) Admit(tx *store.Tx, h Holder, m *Message) (held string, tainted bool, err error) {
	if m.reached == nil {
		return "", false, errors.New("admit message: Reach was not called before")
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
	reading := of.reading.InForce(&of.policy, tx.Now())
	elsewhere := false
	if reading != nil && reading.Taint != nil {
		tainted = true
		elsewhere, err = sentFromElsewhere(tx, reading.Taint.MailboxID, m)
		if err != nil {
			return "", false, err
		}
	}
	why, err := applyPolicy(&of.policy, reading, elsewhere, m)
	if err != nil {
		return "", false, err
	}
	if why == HeldByTaint || held == "" {
		held = why
	}
	return held, tainted, nil
}

// sentFromElsewhere reports whether a message is sent from another mailbox than the given one. A
// message that is sent with the credential of a domain counts as such if the given mailbox may not
// use one of its sender addresses.
func sentFromElsewhere(tx *store.Tx, mailboxID string, m *Message) (bool, error) {
	if m.Mailbox != nil {
		return m.Mailbox.ID != mailboxID, nil
	}
	mb, err := core.LiveMailbox(tx, mailboxID)
	if mb == nil || err != nil {
		return true, err
	}
	senders, err := core.SendersOf(tx, mb)
	return slices.ContainsFunc(m.Senders, func(email string) bool { return !senders.Allows(email) }), err
}

// HasPolicy reports whether there is a policy for what a holder sends from a mailbox. If not, Reach
// and Admit need not be called.
func (s *Service) HasPolicy(tx *store.Tx, mb *store.Mailbox, h Holder) (bool, error) {
	if mb != nil && !mb.SendPolicy.IsDefault() {
		return true, nil
	}
	of, err := h.find(tx)
	return err == nil && of != nil && !of.policy.IsDefault(), err
}

// replyFields are header fields to whose addresses programs send answers. To and Cc, and fields
// that begin with "resent-", are not in this list.
var replyFields = []string{
	"reply-to", "sender", "disposition-notification-to", "return-receipt-to", "errors-to", "mail-followup-to", "mail-reply-to", "x-confirm-reading-to",
}

// IsReplyField reports whether programs send answers to the addresses in a header field. If so,
// these addresses count as recipients. It need not be called for To and Cc, whose addresses always
// count.
func IsReplyField(field string) bool {
	field = strings.ToLower(field)
	return slices.Contains(replyFields, field) || strings.HasPrefix(field, "resent-") && field != "resent-date" && field != "resent-message-id"
}

// IsDroppedWhileTainted reports whether a header field is removed from messages that a tainted
// holder sends.
func IsDroppedWhileTainted(field string) bool {
	field = strings.ToLower(field)
	return IsReplyField(field) || strings.HasPrefix(field, "resent-") || strings.HasPrefix(field, "list-")
}
