package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/rules"
)

// An intent is what a call would do, in words that follow "This would", and what it would cost.
type intent struct {
	Would string              `json:"would"`
	Quote *domains.SetupQuote `json:"quote"`
}

func would(format string, args ...any) (*intent, error) {
	return &intent{Would: fmt.Sprintf(format, args...)}, nil
}

// askFirst makes the confirm of a row.
func askFirst[In any](says func(context.Context, core.Actor, In) (*intent, error)) caller {
	return with(says)
}

// unconfirmed is the first answer to a call that needs a person's agreement.
type unconfirmed struct {
	Message   string          `json:"message" words:"ours"`
	Quote     json.RawMessage `json:"quote,omitempty" words:"ours"`
	Token     string          `json:"confirmation_token" words:"ours"`
	ExpiresAt core.Time       `json:"expires_at"`
}

// confirmed tells whether a call may go on, because it needs no agreement or carries one. Otherwise
// it has been answered.
func (a *assistants) confirmed(c *call, answer *bufferedResponse, args []byte, confirmation string) bool {
	s, o := a.server, c.op
	same := canonical(args)
	if confirmation != "" {
		if err := s.svc.Core.Confirmed(c.who, o.name, same, confirmation); err != nil {
			s.fail(c, err)
			return false
		}
		return true
	}
	asked := *o
	asked.call, asked.status = o.confirm, http.StatusOK
	a.handle(c, &asked, args)
	text := bytes.TrimSpace(answer.body.Bytes())
	if answer.status != http.StatusOK {
		return false
	}
	answer.body = bytes.Buffer{}
	var in *struct {
		Would string          `json:"would"`
		Quote json.RawMessage `json:"quote"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		s.fail(c, fmt.Errorf("read what %s would do: %w", o.name, err))
		return false
	}
	if in == nil {
		return true
	}
	if string(in.Quote) == "null" {
		in.Quote = nil
	}
	token, until := s.svc.Core.Confirmation(c.who, o.name, same)
	s.sendJSON(c, http.StatusOK, unconfirmed{
		Message: "Nothing has been done yet. This would " + in.Would + ". Tell the person so; if they agree, call " + o.name +
			" again with the same arguments and this confirmation_token.",
		Quote: in.Quote, Token: token, ExpiresAt: until,
	})
	return false
}

// canonical writes a JSON value in one spelling, so that equal arguments are equal bytes.
func canonical(args []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber() // 1e400 and long numbers stay what they are
	var v any
	if dec.Decode(&v) != nil {
		return args
	}
	out, err := json.Marshal(v)
	if err != nil {
		return args
	}
	return out
}

// intents has a function for each operation that needs agreement. It says what the call would do,
// and changes nothing.
type intents struct{ s *service.Service }

func (i intents) setupDomain(ctx context.Context, who core.Actor, in domains.SetupDomainIn) (*intent, error) {
	quote, err := i.s.Domains.QuoteSetup(ctx, who, in)
	if err != nil {
		return nil, err
	}
	var deeds []string
	if quote != nil {
		deeds = append(deeds, "buy "+quote.Domain)
	}
	if in.ForwardAddress != "" {
		deeds = append(deeds, fmt.Sprintf("forward mail to %s that matches no mailbox to %s", in.Domain, in.ForwardAddress))
	}
	if deeds == nil {
		return nil, nil
	}
	return &intent{Would: strings.Join(deeds, ", and "), Quote: quote}, nil
}

func (i intents) updateDomain(ctx context.Context, who core.Actor, in domains.UpdateDomainIn) (*intent, error) {
	if in.CatchAll.Value == "" {
		return nil, nil
	}
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	return would("deliver mail to %s that matches no mailbox to %s", d.Domain, in.CatchAll.Value)
}

func (i intents) deleteDomain(ctx context.Context, who core.Actor, in domains.DomainIn) (*intent, error) {
	d, err := i.s.Domains.GetDomain(ctx, who, in)
	if err != nil {
		return nil, err
	}
	return would("delete %s for good, with its %s and all mail in them", d.Domain, plural(d.EmailUsersCount, "mailbox", "mailboxes"))
}

func (i intents) setForward(ctx context.Context, who core.Actor, in domains.SetForwardIn) (*intent, error) {
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	return would("forward mail to %s that matches no mailbox to %s", d.Domain, in.ForwardAddress)
}

func (i intents) createEmailUser(_ context.Context, _ core.Actor, in mailboxes.CreateEmailUserIn) (*intent, error) {
	if in.ForwardTo == "" {
		return nil, nil
	}
	address := in.Email
	if address == "" {
		address = in.Username + "@" + in.Domain
	}
	return would("create the mailbox %s and send a copy of all its mail to %s", address, in.ForwardTo)
}

func (i intents) updateEmailUser(ctx context.Context, who core.Actor, in mailboxes.UpdateEmailUserIn) (*intent, error) {
	if in.ForwardTo.Value == "" && in.RecoveryEmail.Value == "" && in.Password == nil {
		return nil, nil
	}
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	return giveAccess(mb.Email, in.ForwardTo.Value, in.RecoveryEmail.Value, in.Password != nil), nil
}

func (i intents) updateMe(_ context.Context, who core.Actor, in accounts.UpdateMeIn) (*intent, error) {
	return giveAccess(who.Email, in.ForwardTo.Value, in.Recovery.Value, false), nil
}

// giveAccess says who would read the mail of a mailbox after a change; nil if it is nobody new.
func giveAccess(email, forwardTo, recovery string, password bool) *intent {
	var deeds []string
	if forwardTo != "" {
		deeds = append(deeds, fmt.Sprintf("send a copy of all mail to %s to %s", email, forwardTo))
	}
	if password {
		deeds = append(deeds, fmt.Sprintf("set a new password for %s, with which all its mail is read and sent", email))
	}
	if recovery != "" {
		deeds = append(deeds, fmt.Sprintf("let %s set the password of %s by a link", recovery, email))
	}
	if deeds == nil {
		return nil
	}
	return &intent{Would: strings.Join(deeds, ", and ")}
}

func (i intents) createCredential(ctx context.Context, who core.Actor, in mailboxes.CreateCredentialIn) (*intent, error) {
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	return would("make a password with which a program reads and sends all mail of %s", mb.Email)
}

func (i intents) createRule(ctx context.Context, who core.Actor, in rules.CreateRuleIn) (*intent, error) {
	return i.ruleForwards(ctx, who, in.UserID, in.Actions)
}

func (i intents) updateRule(ctx context.Context, who core.Actor, in rules.UpdateRuleIn) (*intent, error) {
	if in.Actions == nil {
		return nil, nil
	}
	return i.ruleForwards(ctx, who, in.UserID, *in.Actions)
}

// ruleForwards asks about a rule that sends mail to somebody.
func (i intents) ruleForwards(ctx context.Context, who core.Actor, userID string, actions []rules.Action) (*intent, error) {
	for _, a := range actions {
		if a.Value == nil || a.Type != "forward" && a.Type != "reply" {
			continue
		}
		mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: userID})
		if err != nil {
			return nil, err
		}
		if a.Type == "reply" {
			return would("answer mail that comes to %s automatically", mb.Email)
		}
		return would("forward mail that comes to %s to %s", mb.Email, *a.Value)
	}
	return nil, nil
}

func (i intents) createRecoveryLink(ctx context.Context, who core.Actor, in core.EmailUserIn) (*intent, error) {
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, in)
	if err != nil {
		return nil, err
	}
	return would("make a link with which anybody who has it sets the password of %s", mb.Email)
}

func (i intents) createSMTPCredential(ctx context.Context, who core.Actor, in mailboxes.CreateSMTPCredentialIn) (*intent, error) {
	d, err := i.s.Domains.GetDomain(ctx, who, domains.DomainIn{DomainID: in.DomainID})
	if err != nil {
		return nil, err
	}
	return would("make a password with which a program sends as any address of %s", d.Domain)
}

// createGroup and updateGroup ask where mail would go to addresses elsewhere.
func (i intents) createGroup(_ context.Context, _ core.Actor, in mailboxes.CreateGroupIn) (*intent, error) {
	return i.groupElsewhere(in.Email, in.Members)
}

func (i intents) updateGroup(ctx context.Context, who core.Actor, in mailboxes.UpdateGroupIn) (*intent, error) {
	if in.Members == nil {
		return nil, nil
	}
	g, err := i.s.Mailboxes.GetGroup(ctx, who, mailboxes.GroupIn{GroupID: in.GroupID})
	if err != nil {
		return nil, err
	}
	return i.groupElsewhere(g.Email, *in.Members)
}

func (i intents) groupElsewhere(email string, members []mailboxes.NewMember) (*intent, error) {
	var elsewhere []string
	for _, m := range members {
		if m.Email != "" && core.DomainOfAddress(m.Email) != core.DomainOfAddress(email) {
			elsewhere = append(elsewhere, m.Email)
		}
	}
	if elsewhere == nil {
		return nil, nil
	}
	return would("send all mail to %s on to %s", email, strings.Join(elsewhere, ", "))
}

func (i intents) deleteEmailUsers(ctx context.Context, who core.Actor, in mailboxes.BulkDeleteIn) (*intent, error) {
	var names []string
	if in.Emails != nil {
		names = *in.Emails
	}
	if in.UserIDs != nil {
		for _, id := range *in.UserIDs {
			if mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: id}); err == nil {
				id = mb.Email
			}
			names = append(names, id)
		}
	}
	return would("delete %s for good, with all mail in them: %s", plural(len(names), "mailbox", "mailboxes"), strings.Join(names, ", "))
}

func (i intents) releaseHeld(ctx context.Context, who core.Actor, in mta.ReleaseIn) (*intent, error) {
	name := in.UserID
	if mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID}); err == nil {
		name = mb.Email
	}
	if in.Action == "discard" {
		return would("discard for good all messages of %s that are held", name)
	}
	return would("send all messages of %s that are held", name)
}

func (i intents) sendBatch(ctx context.Context, who core.Actor, in mta.SendBatchIn) (*intent, error) {
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	var to []string
	for _, m := range in.Messages {
		to = append(to, slices.Concat(m.To, m.Cc, m.Bcc)...)
	}
	for _, r := range in.Recipients {
		to = append(to, r.To)
	}
	shown := to[:min(len(to), 10)]
	more := ""
	if len(to) > len(shown) {
		more = ", and others"
	}
	return would("send %s from %s, to %s: %s%s", plural(max(len(in.Messages), len(in.Recipients)), "message", "messages"), mb.Email,
		plural(len(to), "recipient", "recipients"), strings.Join(shown, ", "), more)
}

func (i intents) deleteMessages(_ context.Context, _ core.Actor, in inbox.BulkDeleteMessagesIn) (*intent, error) {
	each := map[string]int{}
	var order []string
	for _, m := range in.Messages {
		if m.Mailbox == "" { // the call itself is refused
			return nil, nil
		}
		if each[m.Mailbox]++; each[m.Mailbox] == 1 {
			order = append(order, m.Mailbox)
		}
	}
	for n, mailbox := range order {
		order[n] = fmt.Sprintf("%d of %s", each[mailbox], mailbox)
	}
	return would("delete %s for good: %s", plural(len(in.Messages), "message", "messages"), strings.Join(order, ", "))
}

func (i intents) deleteMessage(ctx context.Context, who core.Actor, in inbox.DeleteMessageIn) (*intent, error) {
	if forGood, err := i.s.Inbox.DeletesForGood(who, in); err != nil || !forGood {
		return nil, err
	}
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	return would("delete the message %s of %s for good", in.MessageID, mb.Email)
}

func (i intents) deleteInboxMessage(_ context.Context, who core.Actor, in inbox.DeleteInboxMessageIn) (*intent, error) {
	if forGood, err := i.s.Inbox.DeletesInboxMessageForGood(who, in); err != nil || !forGood {
		return nil, err
	}
	return would("delete the message %s of %s for good", in.MessageID, in.Mailbox)
}

func (i intents) createWebhook(_ context.Context, _ core.Actor, in events.CreateWebhookIn) (*intent, error) {
	return would("send events (%s) of this account to %s from now on", strings.Join(in.Events, ", "), in.URL)
}

func (i intents) updateWebhook(ctx context.Context, who core.Actor, in events.UpdateWebhookIn) (*intent, error) {
	w, err := i.s.Events.GetWebhook(ctx, who, events.WebhookIn{ID: in.ID})
	if err != nil {
		return nil, err
	}
	if in.URL != nil {
		w.URL = *in.URL
	}
	if in.Events != nil {
		w.Events = *in.Events
	}
	if in.Status != nil {
		w.Status = *in.Status
	}
	return would("change the webhook endpoint %s to receive events (%s) at %s, with status %s", w.ID, strings.Join(w.Events, ", "), w.URL, w.Status)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
