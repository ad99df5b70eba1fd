package smtpd

import (
	"bytes"
	"cmp"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/maillogin"
	"github.com/mailstead/mailstead/service/core"
)

// AuthMechanisms returns the mechanisms for the reply to EHLO. It returns none if passwords must
// not be sent on this connection.
func (s loginSession) AuthMechanisms() []string {
	if !s.authAllowed() {
		return nil
	}
	return append(maillogin.Mechanisms(s.service.Mailboxes, s.conn.tls != ""), sasl.Login)
}

// authAllowed reports whether passwords may be sent: under TLS, or in the sandbox, which runs on
// this host and may have no certificate.
func (s loginSession) authAllowed() bool {
	return s.conn.tls != "" || s.service.Core.Config.Sandbox
}

// Auth begins a log-in (RFC 4954).
func (s loginSession) Auth(mechanism string) (sasl.Server, error) {
	switch {
	case !s.authAllowed():
		return nil, newReply(538, "5.7.11", "Encryption required, send STARTTLS first")
	case s.currentEnvelope() != nil:
		return nil, newReply(503, "5.5.1", "AUTH not permitted during a mail transaction")
	}
	l := &maillogin.Login{
		Service: s.service.Mailboxes, Context: s.ctx, Protocol: core.ProtocolSMTP, IP: s.ip.String(), TLS: s.conn.tlsState(), Config: s.tls,
		Done:      s.finishLogin,
		Malformed: func(why error) error { return newReply(535, "5.7.8", "Authentication failed: "+why.Error()) },
	}
	if mechanism == sasl.Login {
		return &loginServer{logIn: l.Password}, nil
	}
	if server := l.Server(mechanism); server != nil {
		return server, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

// finishLogin ends a log-in with its result, the user or an error. It returns nil if the client is
// logged in, or else the reply.
func (s loginSession) finishLogin(u core.MailboxUser, err error) error {
	s.service.Core.Metrics.CountLogin("smtp", err)
	if err == nil {
		if refusal := s.conn.slot.LogIn(s.logins, loginOf(u)); refusal != "" {
			return s.replyAndClose("4.7.0", refusal)
		}
		s.user = &u
		s.conn.resetIdleCommands()
		s.closeWithLogin(u)
		return nil
	}
	e := loginError(err)
	s.failedLogins++
	if known := s.allow(failureEvent); s.failedLogins >= s.limits.Logins || !known {
		s.conn.closeAfterReply()
	}
	return e
}

// loginOf returns whose connection one is that u has logged in to. The credential of a domain
// counts as a mailbox.
func loginOf(u core.MailboxUser) connlimit.Login {
	return connlimit.Login{Protocol: core.ProtocolSMTP, Mailbox: cmp.Or(u.MailboxID, u.DomainID), Account: u.AccountID}
}

// closeWithLogin ends the connection as soon as its log-in is no longer valid, because the mailbox
// or its domain is disabled, or the password expires or is revoked. A message that is being
// received may finish first.
func (s loginSession) closeWithLogin(u core.MailboxUser) {
	changes, end := s.service.Inbox.Watch(s.ctx, u.Mailbox)
	var expired <-chan time.Time
	if !u.Expires.IsZero() {
		expired = time.After(u.Expires.Sub(s.service.Core.Now()))
	}
	go func() {
		defer end()
		for {
			select {
			case <-changes:
			case <-expired:
			case <-s.ctx.Done():
				return
			}
			if e, ok := core.AsError(s.service.Accounts.CheckMailboxOpen(s.ctx, u)); ok && (e.Code == core.CodeMailboxClosed || e.Code == "account_suspended") {
				s.conn.stop(errMailboxClosed)
				return
			}
		}
	}()
}

// loginError returns the reply to a failed log-in.
func loginError(err error) *smtp.SMTPError {
	e, ok := core.AsError(err)
	if !ok {
		return newReply(454, "4.7.0", "Temporary authentication failure")
	}
	switch e.Code {
	case "unauthorized":
		return newReply(535, "5.7.8", "Authentication failed")
	case "mailbox_unavailable", "account_suspended", core.CodeMailboxClosed:
		return newReply(535, "5.7.13", "User account disabled")
	}
	return newReply(454, "4.7.0", "Temporary authentication failure")
}

// A loginServer is the server side of the mechanism LOGIN, which go-sasl does not have. It asks for
// the user name and then for the password.
type loginServer struct {
	logIn    func(username, password string) error
	username []byte
	asked    int // 1: for the user name; 2: for the password
}

// Next handles a response of the client. If the response is nil, it returns the first challenge.
func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	if response == nil && l.asked == 0 {
		l.asked = 1
		return []byte("Username:"), false, nil
	}
	if l.username == nil {
		l.username, l.asked = append([]byte{}, bytes.TrimSpace(response)...), 2
		return []byte("Password:"), false, nil
	}
	return nil, true, l.logIn(string(l.username), string(response))
}
