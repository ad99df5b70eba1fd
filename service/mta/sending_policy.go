package mta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/reputation"
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

// errHeld says that a message is to be held, which must be made anew for that.
var errHeld = errors.New("a message is to be held")

// admit asks the policies, in the transaction that takes a message. The error is errFacts where
// facts is nil and a policy is to be asked.
func (s *Service) admit(tx *store.Tx, mb *store.Mailbox, l *checkedSubmission, facts *agents.Message) (held string, tainted bool, err error) {
	asks, err := s.agents.Asks(tx, mb, l.by.holder)
	if err != nil || !asks {
		return "", false, err
	}
	if facts == nil {
		return "", false, errFacts
	}
	facts.Mailbox = mb
	held, tainted, err = s.agents.Admit(tx, l.by.holder, facts)
	if tainted && !l.harmless && err == nil {
		err = errReadsOn()
	}
	return held, tainted, err
}

// factsOf finds out what the policies want to know of a message that a mailbox, or for nil a
// domain's program, is about to send. Nothing is looked up but in the store.
func (s *Service) factsOf(mb *store.Mailbox, l *checkedSubmission) (*agents.Message, error) {
	f := &agents.Message{Mailbox: mb, As: append([]string{l.from}, l.authors...), To: l.addresses(), ByPerson: l.by.person}
	root, err := scanHeader(l.body)
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
	if err := s.Store.View(func(tx *store.Tx) error { return s.agents.Reach(tx, f) }); err != nil {
		return nil, err
	}
	if e := root.Envelope; mb != nil && e != nil { // whom it answers
		inReplyTo := ""
		if len(e.InReplyTo) > 0 {
			inReplyTo = e.InReplyTo[0]
		}
		f.People, f.Answers, err = s.inbox.PeopleAnswered(mb, inReplyTo, e.References)
	}
	return f, err
}

// namesNobody tells whether a field of addresses is empty, or has one group without members, such
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

// SendsOnTo gives where mail to an address, a group or a mailbox here goes besides: addresses, and
// ids of groups and mailboxes. rules is how many rules were looked at for that.
func (s *Service) SendsOnTo(tx *store.Tx, to string) (out []string, rules int, err error) {
	var mb *store.Mailbox
	var g *store.Group
	switch {
	case strings.Contains(to, "@"):
		d, err := s.findDestination(tx, to)
		if refused := new(core.SMTPError); errors.Is(err, errNotHosted) || errors.As(err, &refused) {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		mb, g = d.Mailbox, d.group
		if d.Forward != "" {
			out = append(out, d.Forward)
		}
	case strings.HasPrefix(to, "grp_"):
		g, err = store.Groups.FindShared(tx, to)
		if err != nil {
			return nil, 0, err
		}
	default:
		mb, err = core.LiveMailbox(tx, to)
		if err != nil {
			return nil, 0, err
		}
	}
	if g != nil {
		for _, m := range store.MembersOfGroup.Asc(tx, g.ID, "") {
			out = append(out, m.MailboxID+m.MemberID+m.Email) // one of these
		}
	}
	if mb == nil {
		return out, 0, nil
	}
	if mb.ForwardTo != "" {
		out = append(out, mb.ForwardTo)
	}
	for _, r := range store.DescSome(tx, store.RulesByMailbox, mb.ID, "", core.HasTexts("forward")) {
		if rules++; r == nil {
			continue
		}
		for _, a := range r.Actions {
			if r.Enabled && a.Type == "forward" {
				out = append(out, a.Value)
			}
		}
	}
	return out, rules, nil
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

// A byItself is a message that a mailbox sends by itself.
type byItself struct {
	sub    *store.Submission
	domain *store.Domain
	to     Rcpt
	since  time.Time       // when a forward began to wait for a limit
	once   bool            // see forwardArgs
	asked  *agents.Message // what the policy of the mailbox is asked; nil: nobody has found out
}

// askAbout finds out what the policy of a mailbox wants to know of what it sends by itself; nil
// where there is none. It is no work for a transaction that writes.
func (s *Service) askAbout(tx *store.Tx, mb *store.Mailbox, to string, answers bool, people []string) (*agents.Message, error) {
	if mb == nil || mb.SendPolicy.IsDefault() {
		return nil, nil
	}
	email, err := msg.NormalizeEmail(to)
	if err != nil {
		email = agents.Unreadable
	}
	m := &agents.Message{Mailbox: mb, To: []string{email}, Answers: answers, People: people}
	return m, s.agents.Reach(tx, m)
}

// sendByItself queues what a mailbox sends by itself, nil for none, if its policy lets it. What
// must be approved is held; what is refused is not sent, which the log tells. Where a policy is to
// be asked and nobody has found out about what, a job does that for a forward; else it is errFacts.
func (s *Service) sendByItself(tx *store.Tx, mb *store.Mailbox, m byItself) error {
	held := ""
	if mb != nil && !mb.SendPolicy.IsDefault() {
		switch {
		case m.asked == nil && m.sub.Forward:
			return s.planForward(tx, m.sub, forwardArgs{To: []string{m.to.Address}, Since: m.since, Once: m.once}, time.Time{})
		case m.asked == nil:
			return errFacts
		}
		m.asked.Mailbox = mb
		var err error
		held, _, err = s.agents.Admit(tx, agents.Holder{}, m.asked)
		if err != nil {
			s.Log.Info("a mailbox does not send by itself what its sending policy refuses", "mailbox_id", mb.ID)
			return nil
		}
	}
	if held != "" {
		return s.holdByItself(tx, m)
	}
	kind := reputation.AutomaticReply
	switch {
	case m.sub.Required:
		kind = reputation.AutomaticRequired
	case m.sub.Forward:
		kind = reputation.AutomaticForward
	}
	return s.start(tx, startedMail{kind: kind, mailbox: mb, domain: m.domain, sub: m.sub, to: []Rcpt{m.to}, since: m.since, once: m.once})
}

const kindHoldByItself = "hold_by_itself"

// holdByItselfArgs is the job of holding a message that a mailbox sends by itself until a person
// approves it.
type holdByItselfArgs struct {
	SubmissionID string `json:"submission_id"`
	To           Rcpt   `json:"to"`
}

// holdByItself has a job hold a message, which is read for that, and so not in tx. Until then its
// submission has no rows.
func (s *Service) holdByItself(tx *store.Tx, m byItself) error {
	m.sub.ID, m.sub.CreatedAt, m.sub.Waiting = tx.NewID("sub"), tx.Now(), 1
	if err := errors.Join(tx.RefBlob(m.sub.Blob, m.sub.ID), store.Submissions.Put(tx, m.sub)); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{AccountID: m.sub.AccountID, Kind: kindHoldByItself, Lane: "hold " + m.sub.AccountID, Args: holdByItselfArgs{m.sub.ID, m.to}})
	return err
}

func (s *Service) holdByItselfKind() jobs.Kind {
	return jobs.Kind{Name: kindHoldByItself, Work: s.readByItself, Timeout: 10 * time.Minute}
}

func (s *Service) readByItself(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[holdByItselfArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var sub *store.Submission
	err = s.Store.View(func(tx *store.Tx) (err error) {
		sub, err = store.Submissions.Find(tx, args.SubmissionID)
		return err
	})
	if sub == nil || err != nil {
		return nil, err
	}
	blob, err := s.Store.OpenBlob(sub.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	content, err := s.makeHeldByItself(ctx, sub, args.To, blob)
	if refused := new(core.SMTPError); errors.As(err, &refused) && refused.Code >= 500 {
		s.Log.Info("a mailbox does not send by itself what nobody can be shown for approval", "mailbox_id", sub.MailboxID, "error", err)
		return func(tx *store.Tx, _ *store.Job) error { return dropByItself(tx, args.SubmissionID) }, nil
	}
	if err != nil {
		return nil, err
	}
	jobs.Finally(ctx, func() { s.Store.Release(content.blob) }) // does nothing for what is held
	return func(tx *store.Tx, _ *store.Job) error {
		sub, err := store.Submissions.Find(tx, args.SubmissionID)
		if sub == nil || err != nil {
			return err
		}
		d, err := store.Domains.Find(tx, sub.DomainID)
		if err != nil {
			return err
		}
		full := mayHold(tx, sub.AccountID) // whoever writes to the mailbox has it hold something
		if full != nil {
			tx.After(func() {
				s.Log.Warn(pastLimit, "kind", "held", "account_id", sub.AccountID, "mailbox_id", sub.MailboxID, "waits", false, "limit", full.Error())
			})
		}
		if d != nil && full == nil {
			held := *sub
			if _, _, err := s.holdForApproval(tx, &held, d, []Rcpt{args.To}, WhyHeld{Reason: agents.HeldByPolicy, Via: store.ApprovalViaRule, Content: content}); err != nil {
				return err
			}
		}
		return dropByItself(tx, sub.ID)
	}, nil
}

// dropByItself ends a submission that has no rows.
func dropByItself(tx *store.Tx, id string) error {
	sub, err := store.Submissions.Find(tx, id)
	if sub == nil || err != nil {
		return err
	}
	return errors.Join(tx.UnrefBlob(sub.Blob, sub.ID), store.Submissions.Delete(tx, sub.ID))
}

// makeHeldByItself makes a message anew that a mailbox sends by itself. What it passes on becomes
// its own, since the author's signature does not hold for the new one.
func (s *Service) makeHeldByItself(ctx context.Context, sub *store.Submission, to Rcpt, blob content) (*heldContent, error) {
	w := rewriting{byItself: true}
	if sub.Forward {
		var mb *store.Mailbox
		if err := s.Store.View(func(tx *store.Tx) (err error) {
			mb, err = store.Mailboxes.Find(tx, sub.MailboxID)
			return err
		}); err != nil {
			return nil, err
		}
		if mb == nil {
			return nil, unshowable()
		}
		local, domain, _ := msg.SplitEmail(mb.Email)
		w.forwarding = msg.Address{Mailbox: local, Host: domain}
	}
	return s.makeHeld(ctx, inbox.Envelope{From: sub.Sender}, []Rcpt{to}, blob, w)
}
