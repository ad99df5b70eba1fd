package inbound

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/store"
)

// The rules and the automatic reply of a mailbox are evaluated before the transaction that writes a
// message's rows, since evaluating may take long. For mail from outside this is before the reply
// 250. The decisions are stored with the message. The transaction that writes its rows carries them
// out, so that this happens exactly once, even after a crash.

const (
	kindAutoReply       = "auto_reply"
	rejectedText        = "The recipient does not want this message"
	maxWaitingDecisions = 2000 // messages that may wait for their rules to be evaluated

	maxDecisionBytes = 512 << 10 // bytes of decisions about one message
)

// A decision is what a mailbox does automatically with a message.
type decision struct {
	rules.Outcome
	Vacation string            `json:"vacation,omitempty"` // version of the automatic reply to send; "": none
	Replies  bool              `json:"replies,omitempty"`  // an automatic reply may answer the message
	Names    map[string]string `json:"names,omitempty"`    // names of rules whose webhooks are notified, by rule ID

	// For an account: the classifier's result in the form of Meta.Spam, and whether the message is
	// spam.
	Spam string `json:"spam,omitempty"`
	Junk bool   `json:"junk,omitempty"`

	score *float64
}

// decisions holds the decisions about a message by mailbox ID, and the classifier's results by
// account ID.
type decisions map[string]*decision

func (d decisions) encode() []byte {
	if len(d) == 0 {
		return nil
	}
	text, _ := json.Marshal(d) // a map of strings and numbers always marshals
	return text
}

func decodeDecisions(text []byte) (d decisions) {
	if len(text) > 0 && json.Unmarshal(text, &d) != nil {
		return nil
	}
	return d
}

// refusal returns why a message is refused; nil if it is not. A rule can reject a message only if
// its mailbox is the only recipient.
func (d decisions) refusal(onlyRecipient bool, automatic []automation) *core.SMTPError {
	if !onlyRecipient || len(automatic) != 1 || automatic[0].member {
		return nil
	}
	o := d[automatic[0].mailbox.ID]
	if o == nil || o.Gone != "reject" {
		return nil
	}
	return core.SMTPErrorf(550, "5.7.1", "%s", cmp.Or(o.Text, rejectedText))
}

// isOnlyRecipient reports whether a submission has no recipient but the row's.
func (s *Service) isOnlyRecipient(sub *store.Submission, row *store.Outgoing) (alone bool, err error) {
	if sub.Waiting > 1 {
		return false, nil
	}
	err = s.Store.View(func(tx *store.Tx) error {
		alone = true
		for _, other := range store.OutgoingsByMessageID.Desc(tx, sub.AccountID+sub.MessageID+"\x00", "") {
			if other.SubmissionID == sub.ID && other.ID != row.ID {
				alone = false
				break
			}
		}
		return nil
	})
	return alone, err
}

// A mailboxQuery is a message for one recipient, before the recipient's rules are evaluated for it.
type mailboxQuery struct {
	stored  *inbox.StoredMessage
	body    *store.Spool
	sender  string
	to      *recipients.Destination
	address string
	ours    func(accountID string) bool // reports whether the sender belongs to the account
}

// evaluateForRecipient runs classifiers, rules and automatic replies for a message to one
// recipient. It returns the decisions, and the mailboxes with automations.
func (s *Service) evaluateForRecipient(ctx context.Context, m mailboxQuery) (decisions, []automation, error) {
	places, addresses := []*recipients.Destination{m.to}, []string{m.address}
	decided, err := s.classify(places, m.stored, m.body, m.ours)
	if err != nil {
		return nil, nil, err
	}
	automatic, err := s.automationsOf(automationQuery{stored: m.stored, size: m.body.Size(), sender: m.sender, judged: decided}, addresses, places)
	if err != nil || len(automatic) == 0 {
		return decided, nil, err
	}
	decided, err = s.evaluateAutomations(ctx, automatic, m.stored, m.body, m.body.Size(), m.sender, decided)
	return decided, automatic, err
}

// classify runs the classifiers of the accounts that a message goes to, and returns their results.
// ours reports whether the sender belongs to an account.
func (s *Service) classify(to []*recipients.Destination, stored *inbox.StoredMessage, body io.ReaderAt, ours func(accountID string) bool) (decisions, error) {
	if !s.rooms.Classifier.On() {
		return nil, nil
	}
	var accounts []string
	for _, d := range to {
		into := d.Group != nil || d.Mailbox != nil && d.Mailbox.External == nil
		if into && !d.Reports && !d.SRS && !slices.Contains(accounts, d.Domain.AccountID) {
			accounts = append(accounts, d.Domain.AccountID)
		}
	}
	out := decisions{}
	for _, accountID := range accounts {
		known := ours(accountID)
		if !known && stored.DMARC == "pass" && (stored.Summary.InReplyTo != "" || len(stored.Summary.References) > 0) {
			err := s.Store.View(func(tx *store.Tx) (err error) {
				known, err = s.rooms.Inbox.RepliesToSent(tx, accountID, stored.Summary)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		v, err := s.rooms.Classifier.Classify(accountID, body, stored.Root, &stored.Facts, known)
		if err != nil {
			return nil, err
		}
		out[accountID] = &decision{Spam: v.Form, Junk: v.Verdict == spam.IsSpam, score: &v.Score}
	}
	return out, nil
}

// An automation is a mailbox with rules or an automatic reply for a message.
type automation struct {
	mailbox  *store.Mailbox
	rules    []*store.Rule
	vacation *store.Vacation
	as       core.Senders
	folder   string // the folder of the message if no rule moves it
	junk     bool   // it goes to Junk whatever the rules say
	spam     bool   // it goes to Junk unless a rule moves it
	member   bool   // the mailbox gets the message as a member of a group
}

// An automationQuery is a message whose automations are to be found.
type automationQuery struct {
	stored *inbox.StoredMessage
	size   int64 // in bytes
	sender string
	judged decisions // the results of the classifiers
	junk   bool      // it goes to Junk whatever the rules say
}

// automationsOf returns the mailboxes with rules or automatic replies among the destinations of a
// message. addresses[i] leads to to[i].
func (s *Service) automationsOf(q automationQuery, addresses []string, to []*recipients.Destination) (list []automation, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		list = nil
		a := &store.Arrival{Sender: q.sender, Placed: map[string]bool{}}
		for i := range to {
			if to[i].Group == nil {
				list, err = s.appendAutomation(tx, list, q, to[i], false)
				if err != nil {
					return err
				}
			} else if err := recipients.ExpandGroup(tx, a, to[i].Group, addresses[i]); err != nil {
				return err
			}
		}
		for len(a.To) > 0 && len(a.Placed) <= recipients.MaxPlaces {
			entry := a.To[0]
			a.To = a.To[1:]
			to, err := s.rooms.Recipients.ResolveArrivalEntry(tx, q.sender, entry, 0)
			if refused := new(core.SMTPError); errors.As(err, &refused) || err == nil && (to == nil || a.Placed[to.PlaceKey()]) {
				continue
			}
			if err != nil {
				return err
			}
			a.Placed[to.PlaceKey()] = true
			if to.Group != nil {
				err = recipients.ExpandGroup(tx, a, to.Group, recipients.EntryAddress(entry))
			} else {
				list, err = s.appendAutomation(tx, list, q, to, true)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// appendAutomation appends the automation of a destination, if it has one for the message. member
// says that it gets the message as a member of a group.
func (s *Service) appendAutomation(tx *store.Tx, list []automation, q automationQuery, to *recipients.Destination, member bool) ([]automation, error) {
	mb := to.Mailbox
	if mb == nil || mb.External != nil || to.Reports || to.SRS {
		return list, nil
	}
	v, err := store.Vacations.FindShared(tx, mb.ID)
	if err != nil {
		return nil, err
	}
	if !rules.IsVacationActive(v, tx.Now()) {
		v = nil
	}
	if v == nil && !store.RulesByMailbox.Has(tx, mb.ID) {
		return list, nil
	}
	out := automation{mailbox: mb, vacation: v, folder: inbox.InboxName, junk: q.junk, member: member}
	if v := q.judged[mb.AccountID]; v != nil {
		out.spam = v.Junk
	}
	if q.junk || out.spam {
		out.folder, err = inbox.FolderName(tx, mb, "junk")
		if err != nil {
			return nil, err
		}
	} else {
		warmup, err := s.rooms.Inbox.IsFiledAsWarmup(tx, mb, q.stored, q.size)
		if warmup || err != nil {
			return list, err
		}
	}
	out.rules, err = rules.Load(tx, mb)
	if err != nil {
		return nil, err
	}
	out.as, err = core.SendersOf(tx, mb)
	if err != nil {
		return nil, err
	}
	return append(list, out), nil
}

// newRuleSlots returns the semaphore that limits how many messages are evaluated at a time, in all
// and for one account, so that an account's rules do not delay the mail of others.
func newRuleSlots() *limit.Semaphore[string] {
	d := limit.NewSemaphore[string](max(2, runtime.GOMAXPROCS(0)), 1)
	d.MaxWaiting = maxWaitingDecisions
	return d
}

// evaluateAutomations evaluates rules and automatic replies for a message, and returns the
// decisions. judged has the results of the classifiers, which are among the returned decisions.
func (s *Service) evaluateAutomations(ctx context.Context, list []automation, stored *inbox.StoredMessage, body io.ReaderAt, size int64, sender string, judged decisions) (decisions, error) {
	m := rules.NewMessage(body, stored.Root, size)
	out := decisions{}
	maps.Copy(out, judged)
	byAccount := map[string][]*rules.Outcome{} // outcomes by account ID
	for i := range list {
		a := &list[i]
		if out[a.mailbox.ID] != nil {
			continue
		}
		d := &decision{}
		if len(a.rules) > 0 {
			release, err := s.ruleSlots.Acquire(ctx, a.mailbox.AccountID)
			if err != nil {
				return nil, core.SMTPErrorf(451, "4.3.2", "Server busy, try again later")
			}
			m.SpamScore = nil
			if v := judged[a.mailbox.AccountID]; v != nil {
				m.SpamScore = v.score
			}
			d.Outcome = *rules.Evaluate(a.rules, m, a.folder)
			release()
			if len(d.Skipped) > 0 {
				s.LogOf(ctx).Warn("rules took too long, and some were skipped", "mailbox_id", a.mailbox.ID, "rules", d.Skipped)
			}
			byAccount[a.mailbox.AccountID] = append(byAccount[a.mailbox.AccountID], &d.Outcome)
		}
		if a.vacation != nil {
			d.Vacation = a.vacation.Version
		}
		d.Replies = !a.junk && !(a.spam && d.Folder == "") && m.MayReply(sender, a.as)
		out[a.mailbox.ID] = d
	}
	for _, outcomes := range byAccount {
		rules.ApplyLimits(outcomes)
	}
	kept := 0
	for i := range list {
		a := &list[i]
		d := out[a.mailbox.ID]
		if d.Left > 0 {
			s.LogOf(ctx).Warn("rules exceed the limits for one message, and some of their actions were left out", "mailbox_id", a.mailbox.ID, "left_out", d.Left)
		}
		if d.trim(a.rules, len(list) == 1); len(a.rules) == 0 {
			continue
		}
		kept += len(decisions{a.mailbox.ID: d}.encode())
		if kept > maxDecisionBytes { // the decisions are rewritten with each transaction that files the message
			s.LogOf(ctx).Warn("the rules of all recipients of a message exceed its limits, and those of a mailbox were left out", "mailbox_id", a.mailbox.ID)
			d.Outcome = rules.Outcome{}
		}
	}
	return out, m.Err()
}

// trim removes from a decision what filing does not need. mayRefuse says that the mailbox may
// refuse the message.
func (d *decision) trim(list []*store.Rule, mayRefuse bool) {
	d.Matched, d.Skipped = nil, nil
	if !mayRefuse {
		d.Text = ""
	}
	d.Actions = slices.DeleteFunc(d.Actions, func(e rules.Effect) bool { return !rules.HasOutsideEffect(e.Type) })
	for i := range d.Actions {
		switch e := &d.Actions[i]; e.Type {
		case "reply":
			if e.Value != nil { // the job reads the text of the reply; keep only its version
				version := rules.RuleReplier(e.RuleID, *e.Value).Version
				e.Value = &version
			}
		case "webhook":
			if d.Names == nil {
				d.Names = map[string]string{}
			}
			for _, r := range list {
				if r.ID == e.RuleID {
					d.Names[r.ID] = r.Name
				}
			}
		}
	}
}

// fileWithRules files an arriving message as its mailbox's rules say, and carries out their other
// actions. f says how the message is filed if there are no rules. junk says that rules may neither
// move nor forward the message.
func (s *Service) fileWithRules(tx *store.Tx, a arrival, f inbox.Filing, junk bool) error {
	mb, d := a.to.Mailbox, a.decisions[a.to.Mailbox.ID]
	if d == nil {
		_, err := s.rooms.Inbox.File(tx, mb, a.stored, f)
		return err
	}

	// File the message and its copies in other folders.
	if d.Read {
		f.Flags |= store.FlagSeen
	}
	for _, flag := range d.Flags {
		if flag == `\Flagged` {
			f.Flags |= store.FlagFlagged
		} else {
			f.Keywords = append(f.Keywords, flag)
		}
	}
	var err error
	switch {
	case d.Gone == "reject":
		f.Folder, err = inbox.FolderID(tx, mb, "trash")
		if err != nil {
			return err
		}
	case d.Folder != "" && !junk:
		f.Folder, err = inbox.FolderID(tx, mb, d.Folder)
		if err != nil {
			return err
		}
		f.Moved = true
	}
	var m *store.Message
	placed := map[uint32]bool{}
	c := f // copies emit no event, and have the time of the message
	c.Arrived, c.Copied = false, true
	if d.Gone != "discard" {
		m, err = s.rooms.Inbox.File(tx, mb, a.stored, f)
		if err != nil {
			return err
		}
		placed[f.Folder], c.Received = true, m.Received
	}
	for _, name := range d.Copies {
		c.Folder, err = inbox.FolderID(tx, mb, name)
		if err != nil {
			return err
		}
		if placed[c.Folder] {
			continue
		}
		placed[c.Folder] = true
		copied, err := s.rooms.Inbox.File(tx, mb, a.stored, c)
		if err != nil {
			return err
		}
		c.Received = copied.Received
	}

	// Carry out the other actions.
	var forwards []string
	var replies []rules.Replier
	if d.Vacation != "" && d.Gone == "" {
		replies = append(replies, rules.Replier{ID: rules.VacationReplier, Version: d.Vacation})
	}
	for _, e := range d.Actions {
		value := ""
		if e.Value != nil {
			value = *e.Value
		}
		switch e.Type {
		case "webhook":
			if err := s.rooms.Inbox.EmitRuleMatched(tx, mb, a.stored, m, a.address, inbox.RuleMatchedData{RuleID: e.RuleID, RuleName: d.Names[e.RuleID], Value: e.Value}); err != nil {
				return err
			}
		case "forward":
			if !junk {
				forwards = append(forwards, value)
			}
		case "reply":
			replies = append(replies, rules.Replier{ID: e.RuleID, Version: value})
		}
	}
	if err := s.planForwards(tx, a, forwards); err != nil {
		return err
	}
	if !d.Replies || !a.stored.Genuine {
		return nil
	}
	correspondent := rules.Correspondent(a.sender, a.stored.Summary.From)
	for _, by := range replies {
		may, err := rules.RecordReply(tx, mb.ID, by, d.Vacation, correspondent)
		if err != nil {
			return err
		}
		if !may {
			continue
		}
		sum := a.stored.Summary
		_, err = s.Queue.Add(tx, jobs.New{AccountID: mb.AccountID, Kind: kindAutoReply, Lane: "auto_reply " + mb.AccountID, Args: autoReplyArgs{
			UserID: mb.ID, Of: by.ID, To: a.sender, Subject: sum.Subject, MessageID: sum.MessageID, References: lastN(sum.References, 20),
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

func lastN(list []string, n int) []string { return list[max(0, len(list)-n):] }

// autoReplyArgs are the arguments of a job that writes one automatic reply.
type autoReplyArgs struct {
	UserID     string   `json:"user_id"`
	Of         string   `json:"of"` // "vacation", or the ID of a rule
	To         string   `json:"to"`
	Subject    string   `json:"subject"`
	MessageID  string   `json:"message_id"`
	References []string `json:"references,omitempty"`
}

func (s *Service) autoReplyKind() jobs.Kind {
	return jobs.Kind{Name: kindAutoReply, Work: s.writeAutoReply, Max: 5, Timeout: time.Minute, PerLane: 4}
}

// writeAutoReply writes an automatic reply (RFC 3834 section 3) and queues it.
func (s *Service) writeAutoReply(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[autoReplyArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var mb *store.Mailbox
	var d *store.Domain
	var as core.Senders
	text, subject, from := "", "", ""
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, err = core.LiveMailbox(tx, args.UserID)
		if err != nil || mb == nil {
			return err
		}
		d, err = store.Domains.Read(tx, mb.DomainID)
		if err != nil {
			return err
		}
		as, err = core.SendersOf(tx, mb)
		if err != nil {
			return err
		}
		if args.Of == rules.VacationReplier {
			v, err := store.Vacations.Find(tx, mb.ID)
			if v != nil && v.Enabled {
				text, subject, from = v.Text, v.Subject, v.From
			}
			return err
		}
		r, err := store.Rules.Find(tx, args.Of)
		if r != nil {
			for _, a := range r.Actions {
				if a.Type == "reply" {
					text = a.Value
				}
			}
		}
		return err
	})
	if err != nil || mb == nil || text == "" || !mb.MaySend() {
		return nil, err
	}
	author, err := as.Author(mb, from)
	if err != nil {
		author, _ = as.Author(mb, "")
	}
	local, domain, ok := msg.SplitEmail(args.To)
	if !ok {
		return nil, jobs.Permanent(fmt.Errorf("the recipient %q of an automatic reply is not an address", args.To))
	}
	if subject == "" {
		subject = "Auto: " + args.Subject
	}
	reply := &msg.Composer{
		From: author, To: []msg.Address{{Mailbox: local, Host: domain}}, Subject: subject, Text: text, MessageID: msg.NewMessageID(core.DomainOfAddress(author.Email())),
		Date: s.Now(), Headers: []msg.Header{{Name: "Auto-Submitted", Value: "auto-replied"}},
	}
	if core.IsValidMessageID(args.MessageID) {
		reply.InReplyTo = args.MessageID
		for _, id := range append(args.References, args.MessageID) {
			if core.IsValidMessageID(id) {
				reply.References = append(reply.References, id)
			}
		}
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := reply.WriteTo(spool); err != nil {
		return nil, jobs.Permanent(fmt.Errorf("write the automatic reply of %s: %w", mb.Email, err))
	}
	stored, err := s.rooms.Inbox.Prepare(spool, inbox.Envelope{To: []string{args.To}, Received: s.Now(), Outgoing: true})
	if err != nil {
		return nil, err
	}
	jobs.Finally(ctx, func() { s.rooms.Inbox.Release(stored) }) // no effect if the reply was queued
	people, answers, err := s.rooms.Inbox.PeopleAnswered(mb, args.MessageID, nil)
	if err != nil {
		return nil, err
	}
	var facts *agents.Message
	if err := s.Store.View(func(tx *store.Tx) (err error) {
		facts, err = s.rooms.Sender.CollectFacts(tx, mb, args.To, answers, people)
		return err
	}); err != nil {
		return nil, err
	}
	return func(tx *store.Tx, _ *store.Job) error {
		mb, err := core.LiveMailbox(tx, mb.ID)
		if mb == nil || err != nil {
			return err
		}
		return s.rooms.Sender.SendAutoMessage(tx, mb, outbound.AutoMessage{Sub: &store.Submission{
			AccountID: mb.AccountID, DomainID: d.ID, MailboxID: mb.ID, MessageID: stored.Summary.MessageID, Subject: stored.Summary.Subject, Blob: stored.Blob, Checked: true,
		}, Domain: d, To: outbound.Rcpt{Address: args.To, Notify: "NEVER"}, Facts: facts})
	}, nil
}

// planForwards queues a job that forwards a message to the addresses that its mailbox's rules name.
func (s *Service) planForwards(tx *store.Tx, a arrival, to []string) error {
	if len(to) == 0 {
		return nil
	}
	sum := a.stored.Summary
	sub := &store.Submission{
		AccountID: a.to.Mailbox.AccountID, DomainID: a.to.Domain.ID, MailboxID: a.to.Mailbox.ID, MessageID: sum.MessageID, Sender: a.sender,
		Subject: sum.Subject, Blob: a.stored.Blob, Forward: true, EightBit: true, RequireTLS: a.requireTLS,
	}
	if a.stored.Genuine {
		sub.ReportTo = a.sender
	}
	return s.rooms.Outbound.PlanForward(tx, sub, outbound.ForwardArgs{To: to, Once: true}, time.Time{})
}
