package agents

import (
	"slices"

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
	// Recipients are whom it reaches: those of the envelope and of the header, those of fields to
	// which programs send something, members of groups elsewhere and addresses that it is forwarded
	// to, but for those that the mailbox may send as.
	Recipients []string
	// Answers says that it answers a message which arrived in the mailbox, and People who that
	// message's people are: the addresses of its From, Reply-To, To and Cc.
	Answers bool
	People  []string
	// Conversation has the people of the messages that arrived in the conversation which tainted
	// its sender, as long as that is the only one which the sender has read.
	Conversation []string
	ByPerson     bool // an owner or admin, who is signed in, sends it; the policy of the mailbox is not for them
}

// Decide is the one place that says whether a policy lets a message be sent by one who is tainted
// or not. held is why it must wait for a person's approval, "" if it need not. The error is an
// SMTPError with the API's Error behind it: 403 sending_not_allowed, recipient_not_allowed or
// tainted, 550 5.7.1.
func Decide(p *store.Policy, taint *store.Taint, m *Message) (held string, err error) {
	outside := func(lists ...[]string) (out []string) { // recipients that are in none of the lists
		for _, email := range m.Recipients {
			in := store.Names(p.AllowedRecipients, email, core.DomainOfAddress(email))
			for _, list := range lists {
				in = in || slices.Contains(list, email)
			}
			if !in {
				out = append(out, email)
			}
		}
		return out
	}
	if p.Send == store.SendDeny {
		return "", Denied()
	}
	if p.Send == store.SendReplyOnly {
		strangers := m.Recipients
		if m.Answers {
			strangers = outside(m.People)
		}
		if !m.Answers || len(strangers) > 0 {
			if taint != nil {
				strangers = nil // no word of the request is repeated
			}
			return "", notAllowed(m.Answers, strangers)
		}
	}
	if taint != nil && len(outside(m.Conversation)) > 0 {
		if p.Send != store.SendApproval {
			return "", core.OverSMTP(550, "5.7.1", TaintedError(taint))
		}
		return HeldByTaint, nil
	}
	if p.Send == store.SendApproval && len(outside()) > 0 {
		return HeldByPolicy, nil
	}
	return "", nil
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

// Admit says whether a message may be sent from a mailbox, nil for a domain's credential, by a
// holder. Each of their policies is asked by itself. The result is that of Decide, and whether the
// holder is tainted.
func (s *Service) Admit(tx *store.Tx, mb *store.Mailbox, h Holder, m *Message) (held string, tainted bool, err error) {
	if mb != nil && !m.ByPerson {
		if held, err = Decide(&mb.SendPolicy, nil, m); err != nil {
			return "", false, err
		}
	}
	of, err := h.find(tx)
	if of == nil || err != nil {
		return held, false, err
	}
	taint := of.reading.Tainted(&of.policy, tx.Now())
	why, err := Decide(&of.policy, taint, m)
	if err != nil {
		return "", false, err
	}
	if why == HeldByTaint || held == "" {
		held = why
	}
	return held, taint != nil, nil
}

// Asks tells whether any policy is to be asked about what a holder sends from a mailbox, so that
// what Admit wants to know has to be found out.
func (s *Service) Asks(tx *store.Tx, mb *store.Mailbox, h Holder) (bool, error) {
	if mb != nil && !mb.SendPolicy.IsDefault() {
		return true, nil
	}
	of, err := h.find(tx)
	return err == nil && of != nil && !of.policy.IsDefault(), err
}

// Conversation gives the one conversation that a tainted holder may write to: that which tainted
// it, if it has read no other.
func (s *Service) Conversation(tx *store.Tx, h Holder) (mailboxID, threadID string, err error) {
	of, err := h.find(tx)
	if of == nil || err != nil {
		return "", "", err
	}
	if of.reading.Tainted(&of.policy, tx.Now()) == nil || of.reading.Several {
		return "", "", nil
	}
	return of.reading.MailboxID, of.reading.ThreadID, nil
}
