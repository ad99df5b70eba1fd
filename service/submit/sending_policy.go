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

// A senderInfo says who sends a message, and how.
type senderInfo struct {
	holder    agents.Holder
	tokenName string
	via       string
	person    bool   // an owner or admin who is signed in
	ownWords  bool   // the sender is a person, or a program that speaks for the account
	rewrite   bool   // a tainted sender wrote the message, so it is rewritten whoever sends it
	requestID string // of the request to the API; "" over SMTP
}

// sentByActor returns the sender for a request by the API or MCP.
func sentByActor(who core.Actor) senderInfo {
	by := senderInfo{holder: agents.HolderOf(who), tokenName: who.TokenName, via: store.ApprovalViaAPI}
	if who.Request != nil {
		by.requestID = who.Request.ID
		if who.Request.Via == core.AuditMCP {
			by.via = store.ApprovalViaMCP
		}
	}
	by.person, by.ownWords = who.IsPerson() && who.Manages(), who.SpeaksForAccount()
	return by
}

// sentByLogin returns the sender for a submission by SMTP. A login counts as a person if it used
// the password of a mailbox, or an app password without a policy; otherwise as a program.
func sentByLogin(u core.MailboxUser) senderInfo {
	return senderInfo{holder: agents.HolderOfLogin(u), via: store.ApprovalViaSMTP, ownWords: u.OwnWords || u.MailboxID != "" && u.Policy.IsDefault()}
}

// errNeedFacts is returned if a policy applies and the facts about the message are missing.
var errNeedFacts = errors.New("a sending policy applies, and the facts about the message are missing")

// errTaintedMeanwhile returns the error for a sender that has been tainted since the message was
// written.
func errTaintedMeanwhile() error {
	return core.OverSMTP(451, "4.3.2", core.Errorf("rate_limited", "The sender has read other mail while it sent this. Try again in a moment."))
}

// errNeedContent is returned if a message must be held and its content for approval is missing.
var errNeedContent = errors.New("the message must be held, and its content for approval is missing")

// applyPolicies checks a message against the sending policies, in the transaction that accepts it.
// held is the reason why a person must approve the message, "" if none; tainted says that the
// sender is tainted. The error is errNeedFacts if a policy applies and facts is nil.
func (s *Service) applyPolicies(tx *store.Tx, mb *store.Mailbox, l *checkedSubmission, facts *agents.Message) (held string, tainted bool, err error) {
	asks, err := s.rooms.Policies.HasPolicy(tx, mb, l.by.holder)
	if err != nil || !asks {
		return "", false, err
	}
	if facts == nil {
		return "", false, errNeedFacts
	}
	facts.Mailbox = mb
	held, tainted, err = s.rooms.Policies.Admit(tx, l.by.holder, facts)
	if tainted && !l.rewritten && err == nil {
		err = errTaintedMeanwhile()
	}
	return held, tainted, err
}

// factsOf collects the facts that policies need about a message. mb is nil for the message of a
// domain's program. factsOf reads only the store and the message.
func (s *Service) factsOf(mb *store.Mailbox, l *checkedSubmission) (*agents.Message, error) {
	f := &agents.Message{Mailbox: mb, Senders: append([]string{l.Sender}, l.authors...), To: l.addresses(), ByPerson: l.by.person}
	root, err := msg.ScanHeader(l.body)
	if err != nil {
		return nil, err
	}
	headers, err := msg.Headers(l.body, root)
	if err != nil {
		return nil, fmt.Errorf("read message header: %w", err)
	}
	for _, h := range headers {
		if name := strings.ToLower(h.Name); name == "to" || name == "cc" || agents.IsReplyField(name) {
			f.To = append(f.To, addressesIn(h.Value)...)
		}
	}
	if err := s.Store.View(func(tx *store.Tx) error { return s.rooms.Policies.Reach(tx, f) }); err != nil {
		return nil, err
	}
	if e := root.Envelope; mb != nil && e != nil { // the people of the message that it replies to
		inReplyTo := ""
		if len(e.InReplyTo) > 0 {
			inReplyTo = e.InReplyTo[0]
		}
		f.People, f.Answers, err = s.rooms.Inbox.PeopleAnswered(mb, inReplyTo, e.References)
	}
	return f, err
}

// hasNoAddress reports whether an address field is empty or has only one group without members,
// such as undisclosed-recipients (RFC 5322 section 3.4).
func hasNoAddress(field string) bool {
	field = strings.TrimSpace(field)
	name, members, group := strings.Cut(field, ":")
	return field == "" || group && strings.TrimSpace(members) == ";" && !strings.ContainsAny(name, "<>@,;\"(")
}

// addressesIn returns the addresses of a header field, normalized. An unreadable address is
// agents.Unreadable.
func addressesIn(field string) (out []string) {
	if hasNoAddress(field) {
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

// checkSendDenied returns an error if a policy denies all sending by the login.
func checkSendDenied(mb *store.Mailbox, u core.MailboxUser) error {
	if mb != nil && mb.SendPolicy.Send == store.SendDeny || u.Policy.Send == store.SendDeny {
		return agents.DeniedError()
	}
	return nil
}

// checkUnrestricted returns an error if the policy of the mailbox or of the token restricts
// sending, or the sender is tainted. It guards actions that can be neither held nor checked for
// each message.
func checkUnrestricted(tx *store.Tx, mb *store.Mailbox, who core.Actor) error {
	if err := agents.CheckUntainted(tx, agents.HolderOf(who)); err != nil {
		if _, refused := core.AsError(err); refused {
			return agents.DeniedError()
		}
		return err
	}
	bound := func(p *store.Policy) bool { return p.Send != "" && p.Send != store.SendAllow }
	if bound(&who.Policy) || bound(&mb.SendPolicy) && !sentByActor(who).person {
		return agents.DeniedError()
	}
	return nil
}
