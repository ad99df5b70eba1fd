package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// hostMailKind is the kind of jobs that send host mail. Only older releases queued such jobs;
// alerts have replaced them.
func (s *Service) hostMailKind() jobs.Kind {
	return jobs.Kind{Name: "letter", Work: s.sendHostMail, Max: 5, Timeout: time.Minute}
}

func (s *Service) sendHostMail(_ context.Context, j *store.Job) (jobs.Writes, error) {
	l, err := jobs.Args[alert.HostMail](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	_, err = s.SendHostMail(l, func(*store.Tx) (bool, error) { return true, nil })
	return nil, err
}

// alertKind is the kind of jobs that send alerts. They are retried until they succeed, since
// nothing else notifies the recipient.
func (s *Service) alertKind() jobs.Kind {
	return jobs.Kind{Name: alert.Kind, Work: s.sendAlerts, Timeout: time.Minute}
}

func (s *Service) sendAlerts(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[alert.Args](j)
	if err != nil || len(args.Alerts) == 0 {
		return nil, jobs.Permanent(cmp.Or(err, errors.New("send alerts: the job has no alerts")))
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
	d, err := s.composeHostMail(from, l)
	if err != nil {
		return nil, err
	}
	defer s.inbox.Release(d) // no effect if the message was queued
	return nil, s.Store.Update(func(tx *store.Tx) error {
		return s.SendSystemMail(tx, s.hostMail(from, account, d, l, reputation.AutomaticAlert))
	})
}

// composeHostMail composes a message from the postmaster of a domain, see Reporter. The caller
// releases it.
func (s *Service) composeHostMail(from *store.Domain, l alert.HostMail) (*inbox.StoredMessage, error) {
	local, domain, ok := msg.SplitEmail(l.To)
	if !ok {
		return nil, jobs.Permanent(fmt.Errorf("compose host mail: the recipient %q is not an address", l.To))
	}
	composer := &msg.Composer{
		From: msg.Address{Name: "Mailstead", Mailbox: "postmaster", Host: from.Name}, To: []msg.Address{{Mailbox: local, Host: domain}},
		Subject: l.Subject, MessageID: msg.NewMessageID(from.Name), Date: s.Now(),
		Headers: []msg.Header{{Name: "Auto-Submitted", Value: "auto-generated"}}, Text: l.Text,
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := composer.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write host mail to %s: %w", l.To, err)
	}
	return s.inbox.Prepare(spool, inbox.Envelope{To: []string{l.To}, Received: s.Now(), Outgoing: true})
}

// SendHostMail composes a message and queues it in the transaction in which put writes the rows
// that the message is about. If put returns false, nothing is sent. If the account or the recipient
// has reached the limit of such messages, SendHostMail returns an error and put's rows are rolled
// back, so that an earlier message stays valid.
func (s *Service) SendHostMail(l alert.HostMail, put func(*store.Tx) (send bool, err error)) (sent bool, err error) {
	from, account, err := s.Reporter()
	if err != nil {
		return false, err
	}
	d, err := s.composeHostMail(from, l)
	if err != nil {
		return false, err
	}
	defer s.inbox.Release(d) // no effect if the message was queued
	err = s.Store.Update(func(tx *store.Tx) error {
		sent, err = put(tx)
		if err != nil || !sent {
			return err
		}
		return s.SendSystemMail(tx, s.hostMail(from, account, d, l, reputation.AutomaticHostMail))
	})
	return sent && err == nil, err
}

func (s *Service) hostMail(from *store.Domain, account string, d *inbox.StoredMessage, l alert.HostMail, kind reputation.Automatic) SystemMail {
	return SystemMail{StoredMessage: d, AccountID: account, From: from, To: []Rcpt{{Address: l.To, Notify: "NEVER"}}, Kind: kind, About: l.About}
}

// An Rcpt is one recipient of a submission, with its options of RFC 3461.
type Rcpt struct {
	Address string
	Notify  string // "NEVER", or some of "SUCCESS,FAILURE,DELAY"; "" if NOTIFY was not given
	ORCPT   string // such as "rfc822;user@example.com", decoded
}

// SystemMail is a message that the server itself sends: a report, or mail of the host to a person.
type SystemMail struct {
	*inbox.StoredMessage
	AccountID string
	From      *store.Domain // the domain that signs it; see Reporter
	To        []Rcpt
	TLSReport bool // a TLS report, which is sent even if TLS fails (RFC 8460 section 5.3)
	Kind      reputation.Automatic
	About     string // the account that host mail is about; "" if none
}

// SendSystemMail queues a message of the server itself, within the limits of its kind.
func (s *Service) SendSystemMail(tx *store.Tx, m SystemMail) error {
	return s.SendAutomatic(tx, AutomaticMail{Kind: m.Kind, Domain: m.From, account: m.About, To: m.To, Sub: &store.Submission{
		AccountID: m.AccountID, DomainID: m.From.ID, MessageID: m.Summary.MessageID, Subject: m.Summary.Subject, Blob: m.Blob, TLSReport: m.TLSReport,
		SMTPUTF8: slices.ContainsFunc(m.To, func(r Rcpt) bool {
			return strings.ContainsFunc(r.Address, func(c rune) bool { return c >= utf8.RuneSelf })
		}),
	}})
}

// Reporter returns the domain whose postmaster sends reports, and its account. It is the domain of
// the host's own name if that is hosted here, else the oldest hosted domain of the first account:
// the domain of a report must sign it (RFC 9990 section 3.5.2, RFC 8460 section 3). If there is
// none, it returns the bare host name.
func (s *Service) Reporter() (from *store.Domain, account string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		for name := s.Config.Hostname; name != ""; _, name, _ = strings.Cut(name, ".") {
			d, err := store.DomainByName.Get(tx, name)
			if core.IsGone(err) || err == nil && (!d.Hosted() || len(d.DKIM) == 0) {
				continue
			}
			if err != nil {
				return err
			}
			a, err := store.Accounts.Read(tx, d.AccountID)
			if err != nil {
				return err
			}
			if a.MayAct() {
				from, account = d, d.AccountID
				return nil
			}
		}
		from = &store.Domain{Name: s.Config.Hostname}
		a, err := core.FindAccount(tx, "")
		if err != nil {
			return err
		}
		account = a.ID
		for _, d := range store.DomainsByAccount.Asc(tx, a.ID, "") {
			if d.Hosted() && len(d.DKIM) > 0 {
				from = d
				break
			}
		}
		return nil
	})
	return from, account, err
}
