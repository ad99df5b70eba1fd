package mta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

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

// letterKind sends the letters that older releases planned, which alerts are now.
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

const (
	kindAlert   = "alert"
	alertsInOne = 50       // in one letter
	alertsBytes = 64 << 10 // of their texts
)

// alertArgs is the job of writing to one address what an account is to know: each alert that came
// while the letter waited.
type alertArgs struct {
	Alerts  []Letter `json:"alerts"`             // to the same address, about the same account
	LeftOut int      `json:"left_out,omitempty"` // alerts that the letter has no room for
}

// PlanAlert has a job send a letter that must not be lost. Past the limits of its kind it is late,
// and the alerts that come meanwhile go with it.
func (s *Service) PlanAlert(tx *store.Tx, l Letter) error {
	lane := "alerts " + strings.ToLower(l.To) + " " + l.About
	for _, id := range store.JobsByLane.Keys(tx, store.LaneKey(lane)+"\x00", "") {
		waits, err := store.Jobs.Get(tx, id)
		if err != nil {
			return err
		}
		args, err := jobs.Args[alertArgs](waits)
		if err != nil {
			break // a newer version wrote it
		}
		size := len(l.Subject) + len(l.Text)
		for _, a := range args.Alerts {
			size += len(a.Subject) + len(a.Text)
		}
		if len(args.Alerts) < alertsInOne && size <= alertsBytes {
			args.Alerts = append(args.Alerts, l)
		} else {
			args.LeftOut++
			tx.After(func() {
				s.Log.Warn("an alert has no room in the letter that waits", "account_id", l.About, "subject", l.Subject)
			})
		}
		if err := jobs.SetArgs(waits, args); err != nil {
			return err
		}
		return store.Jobs.Put(tx, waits)
	}
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindAlert, Lane: lane, Args: alertArgs{Alerts: []Letter{l}}})
	return err
}

// alertKind is tried until it has succeeded: nobody else tells of what an alert tells of.
func (s *Service) alertKind() jobs.Kind {
	return jobs.Kind{Name: kindAlert, Work: s.sendAlerts, Timeout: time.Minute}
}

func (s *Service) sendAlerts(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[alertArgs](j)
	if err != nil || len(args.Alerts) == 0 {
		return nil, jobs.Permanent(cmp.Or(err, errors.New("no alerts")))
	}
	from, account, err := s.Reporter()
	if err != nil {
		return nil, err
	}
	l := args.Alerts[0]
	if more := len(args.Alerts) - 1 + args.LeftOut; more > 0 {
		l.Subject += fmt.Sprintf(" (and %d more)", more)
		var text strings.Builder
		for _, a := range args.Alerts {
			fmt.Fprintf(&text, "%s\n%s\n\n%s\n\n", a.Subject, strings.Repeat("=", min(utf8.RuneCountInString(a.Subject), 72)), a.Text)
		}
		if args.LeftOut > 0 {
			fmt.Fprintf(&text, "This letter has no room for %d more. The log of the host has their subjects.\n", args.LeftOut)
		}
		l.Text = text.String()
	}
	d, err := s.ComposeLetter(from, l)
	if err != nil {
		return nil, err
	}
	defer s.inbox.Release(d) // does nothing where it is referred to
	return nil, s.Store.Update(func(tx *store.Tx) error {
		return s.SendSystemMail(tx, s.asMail(from, account, d, l, reputation.AutomaticAlert))
	})
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
	return s.SendSystemMail(tx, s.asMail(from, account, d, l, reputation.AutomaticLetter))
}

func (s *Service) asMail(from *store.Domain, account string, d *inbox.StoredMessage, l Letter, kind reputation.Automatic) SystemMail {
	return SystemMail{StoredMessage: d, AccountID: account, From: from, To: []Rcpt{{Address: l.To, Notify: "NEVER"}}, Kind: kind, About: l.About}
}
