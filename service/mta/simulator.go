package mta

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
	"github.com/mailstead/mailstead/store"
)

// The simulator plays recipients elsewhere: an attempt for one of its addresses asks it instead of
// another host. Retries, rows, events and reports are those of all mail that leaves; what it
// answers arrives as other mail does. It counts for nothing that judges or limits a sender.

const (
	simulatedWait  = 60 * time.Second // of slow
	simulatedWords = 20               // messages of a conversation, after which two machines talk
)

// What the simulator does for local parts that it knows, without their +tag. A message is deferred
// so many times first, and then refused for good, or accepted where there is no refusal.
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

// simulatedName is the local part of an address without its +tag.
func simulatedName(address string) string {
	local, _, _ := msg.SplitEmail(address)
	name, _, _ := strings.Cut(strings.ToLower(local), "+")
	return name
}

// knowsSimulated refuses an address of the simulator that plays nobody.
func knowsSimulated(address string) error {
	if _, known := simulatedRecipients[simulatedName(address)]; !known {
		return core.SMTPErrorf(550, "5.1.1", "User unknown: the simulator has ok, bounce, defer3, slow, complain, reply and full")
	}
	return nil
}

// simulatedTime is when the recipient of a message answers: at once, but for one that is slow.
func (s *Service) simulatedTime(d *delivery) time.Time {
	if d.route.transport != core.ViaSimulator || simulatedName(d.row.Recipient) != "slow" {
		return time.Time{}
	}
	return wholeMillis(d.row.Began().Add(simulatedWait))
}

// simulate makes an attempt to deliver a message to a recipient of the simulator. What it did
// before is in the row's log, so that an end of the process between attempts changes nothing.
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
	if status != deliver.Delivered || d.sub.Sender == "" { // nobody is to hear of what has no sender
		return r, nil
	}
	var err error
	switch name {
	case "complain":
		r.answer, err = s.simulatedComplaint(d)
	case "reply":
		r.answer, err = s.simulatedAnswerTo(ctx, d)
	}
	if errors.Is(err, msg.ErrHeader) || errors.Is(err, msg.ErrAddress) { // no later attempt would do better
		s.LogOf(ctx).Error("the simulator cannot answer a message", "message_id", d.row.ID, "error", err)
		return r, nil
	}
	return r, err
}

// A simulatedAnswer is a message of the simulator that arrives once the one that it answers is
// accepted.
type simulatedAnswer struct {
	*inbox.StoredMessage
	from string
	to   string // "": there is no address here that it could come to, so that it is filed at once

	decisions decisions
}

// simulatedComplaint reports a message as spam to the row's own address, which proves what it is
// about.
func (s *Service) simulatedComplaint(d *delivery) (*simulatedAnswer, error) {
	host, path := s.SimulatorDomain(), s.rowAddress(bounceAddress, d.row)
	a := &simulatedAnswer{from: "complaints@" + host, to: path}
	report := msg.FeedbackReport{
		From: msg.Address{Name: "Simulator", Mailbox: "complaints", Host: host}, To: path, ReportingMTA: host, FeedbackType: "abuse", UserAgent: "Mailstead-Simulator",
		MailFrom: path, Recipient: d.row.Recipient, Original: Whole(d.blob), MessageID: msg.NewMessageID(host), Date: d.now, ArrivalDate: d.now,
	}
	if path == "" {
		report.To = d.sub.Sender
	}
	if d.domain == nil || !d.domain.Hosted() {
		a.to = ""
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := report.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write a simulated complaint: %w", err)
	}
	return a, s.storeAnswer(d, a, spool)
}

// simulatedAnswerTo writes what a person might answer, in the conversation. It goes to the
// envelope's sender alone, who is here: the addresses in the header may be anywhere.
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
	if len(sum.References) >= simulatedWords {
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
	if validMessageID(d.sub.MessageID) {
		reply.InReplyTo = d.sub.MessageID
		for _, id := range append(sum.References, d.sub.MessageID) {
			if validMessageID(id) {
				reply.References = append(reply.References, id)
			}
		}
	}
	a := &simulatedAnswer{from: d.row.Recipient, to: d.sub.Sender}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := reply.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write a simulated answer: %w", err)
	}
	if err := s.storeAnswer(d, a, spool); err != nil {
		return nil, err
	}

	// Ask the classifier and the rules of the mailboxes that it goes to, as for other mail. Where
	// it cannot go now it is filed later, or not at all.
	var dest *destination
	refused := new(core.SMTPError)
	err = s.Store.View(func(tx *store.Tx) (err error) {
		dest, err = s.destinationFor(tx, a.from, a.to, int64(a.Blob.Length))
		return err
	})
	if errors.As(err, &refused) {
		if d.domain == nil || !d.domain.Hosted() {
			a.to = ""
		}
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	places, addresses := []*destination{dest}, []string{a.to}
	judged, err := s.judge(places, a.StoredMessage, spool, func(accountID string) bool { return accountID == d.row.AccountID })
	if err != nil {
		return nil, err
	}
	automatic, err := s.automationsOf(a.from, addresses, places, judged, false)
	if err != nil {
		return nil, err
	}
	a.decisions = judged
	if len(automatic) > 0 {
		a.decisions, err = s.decide(ctx, automatic, a.StoredMessage, spool, spool.Size(), a.from, judged)
		if err != nil {
			return nil, err
		}
	}
	if a.decisions.refusal(true, automatic) != nil {
		return nil, nil // the simulator would be told, and has no use for it
	}
	return a, nil
}

// storeAnswer stores an answer of the simulator with what a final delivery puts on top.
func (s *Service) storeAnswer(d *delivery, a *simulatedAnswer, spool *store.Spool) (err error) {
	spool.Prepend(fmt.Appendf(finalFields(a.from, a.to), "Received: by %s (Mailstead simulator) id %s;\r\n\t%s\r\n", s.Hostname(), d.row.ID, d.now.Format(time.RFC1123Z)))
	a.StoredMessage, err = s.inbox.Prepare(spool, inbox.Envelope{From: a.from, To: []string{a.to}, Received: d.now})
	if err != nil {
		return err
	}
	d.stored = append(d.stored, a.StoredMessage)
	a.Meta.SPF, a.Meta.DKIM, a.Meta.DMARC, a.Verified = "pass", "pass", "pass", s.SimulatorDomain() // we know who wrote it
	if !d.sub.Tainted {                                                                             // it repeats the subject
		a.Words = agents.WordsAuthor
	}
	return s.readReport(a.StoredMessage, spool, a.from, []string{a.to})
}

// sendAnswer has an answer of the simulator to a row that is closed arrive. A mailbox that lives
// elsewhere gets it as it gets our reports.
func (s *Service) sendAnswer(tx *store.Tx, d *delivery, row *store.Outgoing, a *simulatedAnswer) error {
	switch {
	case a.to != "":
		return s.fileLater(tx, &store.Arrival{
			Blob: a.Blob, Sender: a.from, Genuine: true, SPF: a.Meta.SPF, DKIM: a.Meta.DKIM, DMARC: a.Meta.DMARC, From: s.SimulatorDomain(), Authentic: true, Proven: s.SimulatorDomain(), Words: a.Words,
			To: []string{a.to}, ReceivedAt: tx.Now(), Decisions: a.decisions.text(),
		})
	case a.Report != nil:
		return s.applyReport(tx, row, a.Report)
	}
	return s.sendReport(tx, d.sub, a.StoredMessage)
}
