package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A pullFailure is what went wrong with a remote server, in words for the mailbox's owner.
type pullFailure struct {
	text  string
	cause error
}

func (f *pullFailure) Error() string { return f.text + " (" + f.cause.Error() + ")" }

// Unwrap gives the cause.
func (f *pullFailure) Unwrap() error { return f.cause }

// explainPull says what a person can do about a remote server's failure.
func explainPull(host string, err error) *pullFailure {
	say := func(format string, args ...any) *pullFailure {
		return &pullFailure{fmt.Sprintf(format, args...), err}
	}
	var login *pull.LoginError
	switch {
	case errors.As(err, &login):
		return say("%s refused the username or password. Set the mailbox's new password, or refresh it once the server accepts the old one. It said: %q", host, login.Text)
	case errors.Is(err, netguard.ErrBlocked):
		return say("%s is at an address that this server does not connect to.", host)
	case errors.Is(err, netguard.ErrResolve):
		return say("%s has no address in the DNS.", host)
	case errors.Is(err, pull.ErrTLS):
		return say("The TLS connection to %s is not trusted. Check its port, security and certificate.", host)
	case errors.Is(err, pull.ErrStalled), errors.Is(err, context.DeadlineExceeded):
		return say("%s does not answer in time.", host)
	case errors.Is(err, pull.ErrTooMuch), errors.Is(err, pull.ErrProtocol):
		return say("%s does not answer as an IMAP server should.", host)
	case errors.Is(err, pull.ErrRefused):
		_, text, _ := strings.Cut(err.Error(), pull.ErrRefused.Error()+": ")
		return say("%s refused the request. It said: %q", host, text)
	case errors.Is(err, pull.ErrClosed):
		return say("%s ended the connection.", host)
	}
	return say("%s cannot be reached.", host)
}

// loginOf opens the sealed password of the mailbox's server.
func (s *Service) loginOf(mb *store.Mailbox) (pull.Server, error) {
	at := mb.External.IMAP
	password, err := s.Keys.Open(store.ServerPlace(mb.ID, "imap"), at.PasswordSealed)
	if err != nil {
		return pull.Server{}, fmt.Errorf("password of %s: %w", mb.Email, err)
	}
	return pull.Server{Host: at.Host, Port: at.Port, Security: at.Security, Username: at.Username, Password: string(password)}, nil
}

// Connect opens a session with the mailbox's server and notes whether that answers. Errors of the
// server are pullFailures.
func (s *Service) Connect(ctx context.Context, mb *store.Mailbox) (*pull.Session, error) {
	server, err := s.loginOf(mb)
	if err != nil {
		return nil, err
	}
	client := s.externals.client
	if server.Security == "none" {
		client = s.externals.plain
	}
	session, err := client.Connect(ctx, server)
	if ctx.Err() == nil {
		answered := err == nil || errors.Is(err, pull.ErrGreeted)
		s.externals.hosts.record(listenerOf(mb.External.IMAP), answered, s.Now())
	}
	if errors.Is(err, netguard.ErrBlocked) && server.Security == "none" {
		return nil, &pullFailure{server.Host + " is not asked for mail: imap.security " + PlainRefused + ".", err}
	}
	if err != nil {
		return nil, explainPull(server.Host, err)
	}
	return session, nil
}

// syncMailbox brings what is stored of a mailbox in line with its server, over a new connection,
// which the caller closes. A nil state says that the mailbox is gone or closed. progress may be
// nil.
func (s *Service) syncMailbox(ctx context.Context, id string, progress func(done, total int)) (*pull.Session, *store.RemoteBox, error) {
	done, err := s.externals.syncLocks.Lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	v, err := s.newSyncRun(id, progress == nil)
	if v == nil || err != nil {
		return nil, nil, err
	}
	v.progress = progress
	v.session, err = s.Connect(ctx, v.mb)
	if err == nil {
		if err = s.Hooks.ProveByLogin(ctx, v.mb, v.session.RemoteAddr()); err == nil {
			err = v.run(ctx)
		}
	}
	box, kept := s.saveSync(ctx, v, err)
	if kept != nil {
		err = errors.Join(err, kept)
	}
	return v.session, box, err
}

// newSyncRun begins a sync: nil for a mailbox that is gone, closed or, in the background, not
// wanted.
func (s *Service) newSyncRun(id string, background bool) (*syncRun, error) {
	v := &syncRun{s: s, id: id, background: background}
	err := s.Store.View(func(tx *store.Tx) (err error) {
		v.mb, err = v.open(tx)
		if v.mb == nil || err != nil {
			return err
		}
		v.box, err = remoteBox(tx, v.mb)
		return err
	})
	if v.mb == nil || err != nil {
		return nil, err
	}
	return v, nil
}

// open gives the mailbox as it is in tx; nil if it is not to be synced any more.
func (v *syncRun) open(tx *store.Tx) (*store.Mailbox, error) {
	if v.background {
		return inBackground(tx, v.id)
	}
	mb, err := store.Mailboxes.Find(tx, v.id)
	if err != nil {
		return nil, err
	}
	if mb == nil || !mb.MayFetch() {
		return nil, nil
	}
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err != nil || !a.MayAct() {
		return nil, err
	}
	return mb, nil
}

// saveSync writes what a sync came to into the mailbox and its state.
func (s *Service) saveSync(ctx context.Context, v *syncRun, cause error) (box *store.RemoteBox, err error) {
	if errors.Is(cause, errUnwanted) || ctx.Err() != nil && cause != nil {
		return nil, nil
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Find(tx, v.id)
		if err != nil {
			return err
		}
		if mb == nil || mb.External == nil {
			box = nil
			return nil
		}
		state := *v.box
		box = &state
		if cause == nil {
			return s.syncDone(tx, mb, box, v)
		}
		return s.syncFailed(tx, mb, box, cause)
	})
	return box, err
}

func (s *Service) syncDone(tx *store.Tx, mb *store.Mailbox, box *store.RemoteBox, v *syncRun) error {
	box.Fails, box.Refusals = 0, 0
	box.Wait = min(max(box.Wait+box.Wait/2, pollSoonest), pollLatest)
	if v.found > 0 {
		box.ActiveAt, box.Wait = tx.Now(), pollSoonest
	}
	if err := store.RemoteBoxes.Put(tx, box); err != nil {
		return err
	}
	if mb.Status == store.MailboxError {
		mb.Status = store.MailboxActive
	}
	mb.ErrorCode, mb.ErrorText, mb.LastSyncAt = "", "", tx.Now()
	if err := store.Mailboxes.Put(tx, mb); err != nil {
		return err
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil {
		return err
	}
	a.SyncedAt = tx.Now()
	return store.Accounts.Put(tx, a)
}

// UnreadHere is the error of a sync that failed by a fault of this installation.
const UnreadHere = "The mailbox could not be read. See the log of this installation."

// syncFailed notes a failure. After a log-in that is refused for good nobody tries again before
// somebody asks for it: servers lock those out who do.
func (s *Service) syncFailed(tx *store.Tx, mb *store.Mailbox, box *store.RemoteBox, cause error) error {
	box.Fails++
	mb.ErrorCode, mb.ErrorText = "internal_error", UnreadHere
	var f *pullFailure
	if errors.As(cause, &f) {
		mb.ErrorCode, mb.ErrorText = "upstream_error", f.text
	} else if e, ok := core.AsError(cause); ok {
		mb.ErrorCode, mb.ErrorText = e.Code, e.Message
	}
	var login *pull.LoginError
	if errors.As(cause, &login) {
		box.Refusals++
		if mb.Status == store.MailboxActive && (login.Final || box.Refusals >= refusalsAllowed) {
			mb.Status = store.MailboxError
		}
	}
	if err := store.RemoteBoxes.Put(tx, box); err != nil {
		return err
	}
	return store.Mailboxes.Put(tx, mb)
}

// PlainRefused is why a password is not sent without TLS.
const PlainRefused = "must be tls or starttls: with none the password would cross the internet as plain text. " +
	"TLS is optional only for servers at private addresses, and only where the operator sets allow_private_destinations"

// PlainGuard decides which servers of tenants may be logged in to without TLS: in production those
// at private addresses that the operator allows, in a sandbox all that may be dialled.
func (s *Service) PlainGuard() *netguard.Guard {
	return &netguard.Guard{AllowPrivate: s.Config.AllowPrivate, OnlyPrivate: !s.Config.Sandbox}
}

// PlainAllowed tells whether there are any such servers. Those with a name are judged when they are
// dialled.
func (s *Service) PlainAllowed() bool { return s.Config.Sandbox || s.Config.AllowPrivate }

// refreshExternal has an external mailbox looked at now, whatever failed before.
func (s *Service) refreshExternal(tx *store.Tx, who core.Actor, mb *store.Mailbox) error {
	if !mb.MayFetch() {
		return core.Invalid("user_id", mb.Status, "the mailbox %s is %s, so its mail is not fetched", mb.Email, mb.Status)
	}
	tx.After(func() { s.externals.hosts.retry(listenerOf(mb.External.IMAP)) })
	return s.addSync(tx, mb, who.UserID)
}

// ResumeExternal has an external mailbox looked at again after a new password or the end of a
// suspension, with what was refused before forgotten. The caller writes mb.
func (s *Service) ResumeExternal(tx *store.Tx, mb *store.Mailbox) error {
	tx.After(func() { s.externals.Idle.cancel(mb.ID) })
	if mb.Status == store.MailboxSuspended {
		return nil
	}
	if mb.Status == store.MailboxError {
		mb.Status = store.MailboxActive
		mb.ErrorCode, mb.ErrorText = "", ""
	}
	box, err := remoteBox(tx, mb)
	if err != nil {
		return err
	}
	box.Fails, box.Refusals = 0, 0
	if err := store.RemoteBoxes.Put(tx, box); err != nil {
		return err
	}
	a, err := store.Accounts.Get(tx, mb.AccountID)
	if err != nil || !a.UniversalInbox || mb.Status != store.MailboxActive {
		return err
	}
	return s.addSync(tx, mb, "")
}
