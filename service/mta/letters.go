package mta

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// A Letter is what this host writes to a person.
type Letter struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	About   string `json:"about,omitempty"` // the id of an account
}

// PlanLetter has a job write and send a letter, in the transaction of what it tells of.
func (s *Service) PlanLetter(tx *store.Tx, l Letter) error {
	_, err := s.Queue.Add(tx, jobs.New{Kind: "letter", Lane: "letters", Args: l})
	return err
}

func (s *Service) letterKind() jobs.Kind {
	return jobs.Kind{Name: "letter", Work: s.sendLetter, Max: 5, Timeout: time.Minute}
}

func (s *Service) sendLetter(_ context.Context, j *store.Job) (jobs.Writes, error) {
	l, err := jobs.Args[Letter](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	from, account, err := s.Reporter()
	if err != nil {
		return nil, err
	}
	d, err := s.ComposeLetter(from, l)
	if err != nil {
		return nil, err
	}
	defer s.inbox.Release(d) // does nothing where it is referred to
	return nil, s.Store.Update(func(tx *store.Tx) error { return s.SendLetter(tx, from, account, d, l) })
}

// ComposeLetter writes a letter from the postmaster of a domain, see Reporter. The caller releases
// it.
func (s *Service) ComposeLetter(from *store.Domain, l Letter) (*inbox.StoredMessage, error) {
	local, domain, ok := msg.SplitEmail(l.To)
	if !ok {
		return nil, jobs.Permanent(fmt.Errorf("%q is no address", l.To))
	}
	letter := &msg.Composer{
		From: msg.Address{Name: "Mailstead", Mailbox: "postmaster", Host: from.Name}, To: []msg.Address{{Mailbox: local, Host: domain}},
		Subject: l.Subject, MessageID: msg.NewMessageID(from.Name), Date: s.Now(),
		Headers: []msg.Header{{Name: "Auto-Submitted", Value: "auto-generated"}}, Text: l.Text,
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := letter.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write the letter to %s: %w", l.To, err)
	}
	return s.inbox.Prepare(spool, inbox.Envelope{To: []string{l.To}, Received: s.Now(), Outgoing: true})
}

// SendLetter queues what ComposeLetter wrote. Where an account or a person has too many letters it
// fails, so that the transaction leaves what was sent before as it is.
func (s *Service) SendLetter(tx *store.Tx, from *store.Domain, account string, d *inbox.StoredMessage, l Letter) error {
	return s.SendSystemMail(tx, SystemMail{StoredMessage: d, AccountID: account, From: from, To: []Rcpt{{Address: l.To, Notify: "NEVER"}}, Kind: reputation.AutomaticLetter, About: l.About})
}
