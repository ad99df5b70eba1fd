package accounts

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/store"
)

// Bounds on what is sent to those who forgot a password.
const (
	forgotFor     = 2 * time.Hour // that a link lives
	forgotWindow  = time.Hour
	forgotAddress = 3  // letters to one address in the window
	forgotNetwork = 20 // questions from one network
)

// ForgotIn says who forgot a password.
type ForgotIn struct {
	Email string `json:"email" required:"true" max:"254"`
}

// ForgotPassword has a link that sets a password sent to the address, if it is a team user's. What
// it answers, and how long it takes, is the same for every address: a job finds out whose it is.
func (s *Service) ForgotPassword(_ context.Context, v Visitor, in ForgotIn) (*Said, error) {
	out := &Said{"If somebody here has this address, a letter with a link is on its way to it. The link works once, within two hours."}
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, err
	}
	if !s.mayForget("net "+core.Network(v.IP), forgotNetwork) || !s.mayForget("box "+email, forgotAddress) {
		return out, nil // a network that asks too often does not use up what others may for the address
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		_, err := s.Queue.Add(tx, jobs.New{Kind: "password_mail", Lane: "password_mail", Key: email, Args: forgotArgs{email, v.IP}})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// mayForget counts one question, and tells whether it is one of the first most ones in the window.
func (s *Service) mayForget(key string, most int) bool {
	return s.forgotRequests.Add(key, s.Now()) <= most
}

// forgotArgs is the job of sending one link.
type forgotArgs struct {
	Email string `json:"email"`
	IP    string `json:"ip"`
}

func (s *Service) forgotKind() jobs.Kind {
	return jobs.Kind{Name: "password_mail", Work: s.sendForgot, Max: 5, Timeout: time.Minute}
}

// sendForgot makes the link and queues the letter with it. Each attempt makes a link of its own:
// none is kept that could be sent again.
func (s *Service) sendForgot(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[forgotArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	u, err := s.userToSignIn(args.Email)
	if err != nil || u.ID == "" {
		return nil, err
	}
	from, account, err := s.mta.Reporter()
	if err != nil {
		return nil, err
	}
	token := core.RandomText(43, core.Base62)
	d, err := s.composeForgot(from, args, token)
	if err != nil {
		return nil, err
	}
	defer s.inbox.Release(d) // does nothing where it is referred to
	err = s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Users.Find(tx, u.ID)
		if err != nil {
			return err
		}
		if now == nil || now.Email != args.Email {
			return nil
		}
		now.Forgot = &store.Forgot{Hash: core.TokenHash(token), Expires: tx.Now().Add(forgotFor)}
		if err := store.Users.Put(tx, now); err != nil {
			return err
		}
		_, err = s.mta.Enqueue(tx, &store.Submission{
			AccountID: account, DomainID: from.ID, MessageID: d.Summary.MessageID, Subject: d.Summary.Subject, Blob: d.Blob,
			SMTPUTF8: strings.ContainsFunc(args.Email, func(r rune) bool { return r >= utf8.RuneSelf }),
		}, from, []mta.Rcpt{{Address: args.Email, Notify: "NEVER"}})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.Log.Info("password link sent", "user", u.ID, "ip", args.IP)
	return nil, nil
}

// composeForgot writes the letter with the link, from the postmaster of the domain that speaks for
// this host.
func (s *Service) composeForgot(from *store.Domain, args forgotArgs, token string) (*inbox.StoredMessage, error) {
	local, domain, ok := msg.SplitEmail(args.Email)
	if !ok {
		return nil, jobs.Permanent(fmt.Errorf("%q is no address", args.Email))
	}
	letter := &msg.Composer{
		From: msg.Address{Name: "Mailstead", Mailbox: "postmaster", Host: from.Name}, To: []msg.Address{{Mailbox: local, Host: domain}},
		Subject: "Choose a new password", MessageID: msg.NewMessageID(from.Name), Date: s.Now(),
		Headers: []msg.Header{{Name: "Auto-Submitted", Value: "auto-generated"}},
		Text: fmt.Sprintf("Somebody at %s asked for a new password for %s on %s.\n\n"+
			"If that was you, choose one here within two hours:\n\n%s\n\n"+
			"If it was not, do nothing: your password stays as it is.\n",
			args.IP, args.Email, s.Hostname(), s.Config.BaseURL+"/reset?token="+url.QueryEscape(token)),
	}
	spool := s.Store.NewSpool(core.MaxMessage)
	defer spool.Close()
	if _, err := letter.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write the letter to %s: %w", args.Email, err)
	}
	return s.inbox.Prepare(spool, inbox.Envelope{To: []string{args.Email}, Received: s.Now()})
}
