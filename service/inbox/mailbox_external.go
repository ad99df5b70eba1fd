package inbox

import (
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// PlainRefused is why a password is not sent without TLS.
const PlainRefused = "must be tls or starttls: with none the password would cross the internet as plain text. " +
	"Only servers at private addresses may go without TLS, and only where the operator sets allow_private_destinations"

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
	if mb.Status != "active" && mb.Status != "error" {
		return core.Invalid("user_id", mb.Status, "the mailbox %s is %s, so its mail is not fetched", mb.Email, mb.Status)
	}
	tx.After(func() { s.externals.hosts.retry(listenerOf(mb.External.IMAP)) })
	return s.addSync(tx, mb, who.UserID)
}

// ResumeExternal has an external mailbox looked at again after a new password or the end of a
// suspension, with what was refused before forgotten. The caller writes mb.
func (s *Service) ResumeExternal(tx *store.Tx, mb *store.Mailbox) error {
	tx.After(func() { s.externals.Idle.cancel(mb.ID) })
	if mb.Status == "suspended" {
		return nil
	}
	if mb.Status == "error" {
		mb.Status = "active"
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
	if err != nil || !a.UniversalInbox || mb.Status != "active" {
		return err
	}
	return s.addSync(tx, mb, "")
}
