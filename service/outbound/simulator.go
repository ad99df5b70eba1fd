package outbound

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// The simulator plays outside recipients: a delivery to one of its addresses asks the simulator
// instead of another host. Retries, rows, events and reports are the same as for other outgoing
// mail; its answers arrive like other mail. It has no effect on reputation and limits.

const (
	slowDelay              = 60 * time.Second // how long the recipient "slow" waits before it accepts a message
	maxSimulatedReferences = 20               // a message with this many references gets no answer: the other side may be a machine
)

// simulatedRecipients is the behaviour for each known local part, without its +tag: a message is
// deferred deferrals times, and then refused, or accepted if there is no refusal.
var simulatedRecipients = map[string]struct {
	deferrals int
	deferral  simulatedReply
	refusal   simulatedReply
}{
	"ok":       {},
	"slow":     {},
	"complain": {},
	"reply":    {},
	"bounce":   {refusal: simulatedReply{550, "5.1.1", "User unknown (simulated)"}},
	"defer3":   {deferrals: 3, deferral: simulatedReply{451, "4.3.0", "Message deferred (simulated)"}},
	"full": {
		deferrals: 1, deferral: simulatedReply{452, "4.2.2", "Mailbox full (simulated)"},
		refusal: simulatedReply{552, "5.2.2", "Mailbox full (simulated)"},
	},
}

type simulatedReply struct {
	code           int
	enhanced, text string
}

// simulatedName returns the local part of an address in lower case, without its +tag.
func simulatedName(address string) string {
	local, _, _ := msg.SplitEmail(address)
	name, _, _ := strings.Cut(strings.ToLower(local), "+")
	return name
}

// CheckSimulated returns an error for an address of the simulator that has no behaviour.
func CheckSimulated(address string) error {
	if _, known := simulatedRecipients[simulatedName(address)]; !known {
		return core.SMTPErrorf(550, "5.1.1", "User unknown: the simulator has ok, bounce, defer3, slow, complain, reply and full")
	}
	return nil
}

// slowAcceptTime returns when the recipient "slow" accepts a message; zero for other recipients.
func (s *Service) slowAcceptTime(d *delivery) time.Time {
	if d.route.Transport != core.ViaSimulator || simulatedName(d.row.Recipient) != "slow" {
		return time.Time{}
	}
	return roundUpToMillis(d.row.Began().Add(slowDelay))
}

// simulate makes an attempt to deliver to a recipient of the simulator. It counts earlier deferrals
// in the row's log, so that a restart between attempts changes nothing.
func (s *Service) simulate(ctx context.Context, d *delivery) (*attemptResult, error) {
	host, name := s.SimulatorDomain(), simulatedName(d.row.Recipient)
	does, known := simulatedRecipients[name]
	deferred := 0
	for _, a := range d.row.Log {
		if a.Host == host && a.Code/100 == 4 {
			deferred++
		}
	}
	status, say := deliver.Delivered, simulatedReply{250, "2.0.0", "Message accepted (simulated)"}
	switch {
	case !known || d.stranger:
		status, say = deliver.Permanent, simulatedRecipients["bounce"].refusal
	case deferred < does.deferrals:
		status, say = deliver.Temporary, does.deferral
	case does.refusal.code != 0:
		status, say = deliver.Permanent, does.refusal
	}
	r := localResult(store.OutgoingSent, status, say.enhanced, fmt.Sprintf("%d %s %s", say.code, say.enhanced, say.text))
	r.result.Code, r.result.Host = say.code, host
	r.result.Attempts = []deliver.Attempt{{Host: host, Code: say.code, Enhanced: say.enhanced, Reply: r.result.Reply, At: d.now}}
	if status != deliver.Delivered || d.sub.Sender == "" { // a message without a sender gets no answer
		return r, nil
	}
	var err error
	switch name {
	case "complain":
		r.answer, err = s.simulatedComplaint(ctx, d)
	case "reply":
		r.answer, err = s.simulatedAnswerTo(ctx, d)
	}
	if errors.Is(err, msg.ErrHeader) || errors.Is(err, msg.ErrAddress) { // a later attempt would fail too
		s.LogOf(ctx).Error("the simulator cannot write an answer", "message_id", d.row.ID, "error", err)
		return r, nil
	}
	return r, err
}

// simulatedComplaint sends a spam complaint about a message to the row's return path, which proves
// which message it is about.
func (s *Service) simulatedComplaint(ctx context.Context, d *delivery) (*simulatedAnswer, error) {
	host, path := s.SimulatorDomain(), s.recipients.RowAddress(recipients.BounceAddress, d.row)
	if path == "" || d.domain == nil || !d.domain.Hosted() {
		return &simulatedAnswer{complaint: true}, nil
	}
	report := msg.FeedbackReport{
		From: msg.Address{Name: "Simulator", Mailbox: "complaints", Host: host}, To: path, ReportingMTA: host, FeedbackType: "abuse", UserAgent: simulatorAgent,
		MailFrom: path, Recipient: d.row.Recipient, Original: msg.Whole(d.blob), MessageID: msg.NewMessageID(host), Date: d.now, ArrivalDate: d.now,
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := report.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write a simulated complaint: %w", err)
	}
	return s.deliverAnswer(ctx, d, "complaints@"+host, path, spool)
}

// simulatorAgent is the User-Agent of simulated complaints.
const simulatorAgent = "Mailstead-Simulator"

// simulatedAnswerTo writes a reply in the message's thread. The reply goes only to the envelope
// sender, which is here: the addresses in the header may be anywhere.
func (s *Service) simulatedAnswerTo(ctx context.Context, d *delivery) (*simulatedAnswer, error) {
	to, err := msg.ParseAddress(d.sub.Sender)
	if err != nil {
		return nil, err
	}
	original, err := inbox.ReadMessage(d.blob, d.blob.Size(), d.sub.Sender)
	if err != nil {
		return nil, err
	}
	sum := original.Summary
	if len(sum.References) >= maxSimulatedReferences {
		return nil, nil
	}
	local, host, _ := msg.SplitEmail(d.row.Recipient)
	reply := &msg.Composer{
		From: msg.Address{Name: "Simulator", Mailbox: local, Host: host}, To: []msg.Address{to}, Subject: sum.Subject,
		Text:      "Thank you for your message. I have received it.\n\nThe simulator of recipients has written this answer.\n",
		MessageID: msg.NewMessageID(host), Date: d.now,
	}
	if _, answer := msg.BaseSubject(sum.Subject); !answer {
		reply.Subject = "Re: " + sum.Subject
	}
	if core.IsValidMessageID(d.sub.MessageID) {
		reply.InReplyTo = d.sub.MessageID
		for _, id := range append(sum.References, d.sub.MessageID) {
			if core.IsValidMessageID(id) {
				reply.References = append(reply.References, id)
			}
		}
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := reply.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write a simulated answer: %w", err)
	}
	if d.domain == nil || !d.domain.Hosted() {
		report, err := s.inbox.Prepare(spool, inbox.Envelope{From: d.row.Recipient, To: []string{d.sub.Sender}, Received: d.now})
		if err != nil {
			return nil, err
		}
		d.stored = append(d.stored, report)
		return &simulatedAnswer{report: report}, nil
	}
	return s.deliverAnswer(ctx, d, d.row.Recipient, d.sub.Sender, spool)
}

// deliverAnswer delivers a message of the simulator to a mailbox here. If a rule rejects the
// message, it is dropped: the simulator needs no bounce.
func (s *Service) deliverAnswer(ctx context.Context, d *delivery, from, to string, body *store.Spool) (*simulatedAnswer, error) {
	m := SimulatedMail{From: from, To: to, AccountID: d.row.AccountID, RowID: d.row.ID, Body: body, Now: d.now}
	if !d.sub.Tainted { // the answer repeats the subject
		m.Origin = agents.OriginAuthor
	}
	arrived, err := d.local.Answer(ctx, m)
	if arrived != nil {
		d.stored = append(d.stored, arrived.Message)
	}
	if err != nil || arrived.Refusal != nil {
		return nil, err
	}
	return &simulatedAnswer{arrived: arrived}, nil
}

// sendAnswer delivers the simulator's answer to a message whose row was closed.
func (s *Service) sendAnswer(tx *store.Tx, d *delivery, row *store.Outgoing, a *simulatedAnswer) error {
	switch {
	case a.complaint:
		return s.RecordComplaint(tx, row, Complaint{Kind: "abuse", Agent: simulatorAgent, Arrived: d.now})
	case a.arrived != nil:
		return a.arrived.File(tx)
	}
	return s.SendReport(tx, d.sub, a.report)
}
