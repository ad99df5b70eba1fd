package submit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A sentBy is who sends a message, and how.
type sentBy struct {
	holder    agents.Holder
	tokenName string
	via       string
	person    bool // an owner or admin, who is signed in
	ownWords  bool // a person, or a program that speaks for the account
	anew      bool // somebody tainted wrote it, so that it is made anew whoever sends it
}

// sentByActor is who sends by the API or MCP.
func sentByActor(who core.Actor) sentBy {
	by := sentBy{holder: agents.HolderOf(who), tokenName: who.TokenName, via: store.ApprovalViaAPI}
	if who.Request != nil && who.Request.Via == core.AuditMCP {
		by.via = store.ApprovalViaMCP
	}
	by.person, by.ownWords = who.IsPerson() && who.Manages(), who.SpeaksForAccount()
	return by
}

// sentByLogin is who sends by SMTP: a person, with the password of a mailbox or with an app
// password that no policy bounds, or a program.
func sentByLogin(u core.MailboxUser) sentBy {
	return sentBy{holder: agents.HolderOfLogin(u), via: store.ApprovalViaSMTP, ownWords: u.OwnWords || u.MailboxID != "" && u.Policy.IsDefault()}
}

// errFacts says that a policy is to be asked, for which facts about the message are missing.
var errFacts = errors.New("a sending policy is to be asked")

// errReadsOn says that whoever sends has been tainted since the message was written.
func errReadsOn() error {
	return core.OverSMTP(451, "4.3.2", core.Errorf("rate_limited", "The sender has read other mail while it sent this. Try again in a moment."))
}

// errHeld says that a message is to be held, which must be made again for that.
var errHeld = errors.New("a message is to be held")

// admit asks the policies, in the transaction that takes a message. The error is errFacts where
// facts is nil and a policy is to be asked.
func (s *Service) admit(tx *store.Tx, mb *store.Mailbox, l *checkedSubmission, facts *agents.Message) (held string, tainted bool, err error) {
	asks, err := s.rooms.Policies.Asks(tx, mb, l.by.holder)
	if err != nil || !asks {
		return "", false, err
	}
	if facts == nil {
		return "", false, errFacts
	}
	facts.Mailbox = mb
	held, tainted, err = s.rooms.Policies.Admit(tx, l.by.holder, facts)
	if tainted && !l.harmless && err == nil {
		err = errReadsOn()
	}
	return held, tainted, err
}

// factsOf finds out what the policies want to know of a message that a mailbox, or for nil a
// domain's program, is about to send. Nothing is looked up but in the store.
func (s *Service) factsOf(mb *store.Mailbox, l *checkedSubmission) (*agents.Message, error) {
	f := &agents.Message{Mailbox: mb, As: append([]string{l.Sender}, l.authors...), To: l.addresses(), ByPerson: l.by.person}
	root, err := msg.ScanHeader(l.body)
	if err != nil {
		return nil, err
	}
	headers, err := msg.Headers(l.body, root)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	for _, h := range headers {
		if name := strings.ToLower(h.Name); name == "to" || name == "cc" || agents.Answering(name) {
			f.To = append(f.To, addressesIn(h.Value)...)
		}
	}
	if err := s.Store.View(func(tx *store.Tx) error { return s.rooms.Policies.Reach(tx, f) }); err != nil {
		return nil, err
	}
	if e := root.Envelope; mb != nil && e != nil { // whom it answers
		inReplyTo := ""
		if len(e.InReplyTo) > 0 {
			inReplyTo = e.InReplyTo[0]
		}
		f.People, f.Answers, err = s.rooms.Inbox.PeopleAnswered(mb, inReplyTo, e.References)
	}
	return f, err
}

// namesNobody reports whether a field of addresses is empty, or has one group without members, such
// as undisclosed-recipients (RFC 5322 section 3.4).
func namesNobody(field string) bool {
	field = strings.TrimSpace(field)
	name, members, group := strings.Cut(field, ":")
	return field == "" || group && strings.TrimSpace(members) == ";" && !strings.ContainsAny(name, "<>@,;\"(")
}

// addressesIn gives the addresses of a header field in their one form.
func addressesIn(field string) (out []string) {
	if namesNobody(field) {
		return nil
	}
	list, err := msg.ParseAddressList(field)
	if err != nil {
		return []string{agents.Unreadable}
	}
	for _, a := range list {
		if a.IsGroupMarker() {
			continue
		}
		email, err := msg.NormalizeEmail(a.Email())
		if err != nil {
			email = agents.Unreadable
		}
		out = append(out, email)
	}
	return out
}

// refusesAll says whether whoever is logged in may send nothing.
func refusesAll(mb *store.Mailbox, u core.MailboxUser) error {
	if mb != nil && mb.SendPolicy.Send == store.SendDeny || u.Policy.Send == store.SendDeny {
		return agents.Denied()
	}
	return nil
}

// allowsUnasked says that neither the policy of a mailbox nor that of a token bounds what it sends,
// so that it may do what can neither be held nor looked at message by message.
func allowsUnasked(tx *store.Tx, mb *store.Mailbox, who core.Actor) error {
	if err := agents.CheckUntainted(tx, agents.HolderOf(who)); err != nil {
		if _, refused := core.AsError(err); refused {
			return agents.Denied()
		}
		return err
	}
	bound := func(p *store.Policy) bool { return p.Send != "" && p.Send != store.SendAllow }
	if bound(&who.Policy) || bound(&mb.SendPolicy) && !sentByActor(who).person {
		return agents.Denied()
	}
	return nil
}
