package service

import (
	"net/netip"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// MailServerLogin is a mail server elsewhere and the log-in to it, as create_email_user takes it.
type MailServerLogin struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Security string `json:"security"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// draftExternal takes the servers of a mailbox that lives elsewhere.
func (s *Service) draftExternal(b *birth, in CreateEmailUserIn) error {
	if in.Password != nil {
		return Invalid("password", "not_allowed", "the password of an external mailbox belongs in imap.password")
	}
	if in.IMAP == nil {
		return Invalid("imap", "required", "is required for mailboxes of type external: host, port, security, username, password")
	}
	b.mb.Type, b.password = "external", in.IMAP.Password
	imap, err := s.sealServer("imap", b.mb.ID, in.IMAP)
	if err != nil {
		return err
	}
	b.mb.External = &store.External{IMAP: imap}
	if in.SMTP == nil {
		return nil
	}
	smtp, err := s.sealServer("smtp", b.mb.ID, in.SMTP)
	b.mb.External.SMTP = &smtp
	return err
}

// sealServer checks a server and seals its password under the mailbox's id.
func (s *Service) sealServer(field, id string, in *MailServerLogin) (store.Server, error) {
	out := store.Server{Host: strings.TrimSuffix(strings.ToLower(in.Host), "."), Port: in.Port, Security: in.Security, Username: in.Username}
	if _, err := netip.ParseAddr(out.Host); err != nil {
		if _, err := msg.NormalizeDomain(out.Host); err != nil || strings.HasPrefix(out.Host, "[") {
			return out, Invalid(field+".host", "invalid", "must be the server's name or IP address")
		}
	}
	if in.Port < 1 || in.Port > 65535 {
		return out, Invalid(field+".port", "out_of_range", "must be from 1 to 65535")
	}
	if in.Security != "tls" && in.Security != "starttls" && in.Security != "none" {
		return out, Invalid(field+".security", "not_allowed", "must be one of tls, starttls, none")
	}
	if ip, err := netip.ParseAddr(out.Host); in.Security == "none" && (!s.plainAllowed() || err == nil && !s.plainGuard().Allowed(ip)) {
		return out, Invalid(field+".security", "not_allowed", "%s", plainRefused)
	}
	if !credential(in.Username) {
		return out, Invalid(field+".username", "invalid", "must have 1 to 1024 characters and no control characters")
	}
	if !credential(in.Password) {
		return out, Invalid(field+".password", "invalid", "must have 1 to 1024 characters and no control characters")
	}
	out.PasswordSealed = s.keys.Seal(serverPlace(id, field), []byte(in.Password))
	return out, nil
}

// plainRefused is why a password is not sent without TLS.
const plainRefused = "must be tls or starttls: with none the password would cross the internet as plain text. " +
	"Only servers at private addresses may go without TLS, and only where the operator sets allow_private_destinations"

// plainGuard decides which servers of tenants may be logged in to without TLS: in production those
// at private addresses that the operator allows, in a sandbox all that may be dialled.
func (s *Service) plainGuard() *netguard.Guard {
	return &netguard.Guard{AllowPrivate: s.Config.AllowPrivate, OnlyPrivate: !s.Config.Sandbox}
}

// plainAllowed tells whether there are any such servers. Those with a name are judged when they are
// dialled.
func (s *Service) plainAllowed() bool { return s.Config.Sandbox || s.Config.AllowPrivate }

// serverPlace is what the password of an external mailbox's server, imap or smtp, is sealed for.
func serverPlace(id, field string) string { return "mailbox " + id + " " + field }

func credential(text string) bool {
	return text != "" && len(text) <= 1024 && !strings.ContainsFunc(text, unicode.IsControl)
}

// replacePassword puts a new password of an external mailbox in the place of the old one, for both
// servers.
func (s *Service) replacePassword(mb *store.Mailbox, password string) {
	e := *mb.External
	e.IMAP.PasswordSealed = s.keys.Seal(serverPlace(mb.ID, "imap"), []byte(password))
	if e.SMTP != nil {
		smtp := *e.SMTP
		smtp.PasswordSealed = s.keys.Seal(serverPlace(mb.ID, "smtp"), []byte(password))
		e.SMTP = &smtp
	}
	mb.External = &e
}

// refreshExternal has an external mailbox looked at now, whatever failed before.
func (s *Service) refreshExternal(tx *store.Tx, who Actor, mb *store.Mailbox) error {
	if mb.Status != "active" && mb.Status != "error" {
		return Invalid("user_id", mb.Status, "the mailbox %s is %s, so its mail is not fetched", mb.Email, mb.Status)
	}
	tx.After(func() { s.externals.hosts.retry(listenerOf(mb.External.IMAP)) })
	return s.addSync(tx, mb, who.UserID)
}

// resumeExternal has an external mailbox looked at again after a new password or the end of a
// suspension, with what was refused before forgotten. The caller writes mb.
func (s *Service) resumeExternal(tx *store.Tx, mb *store.Mailbox) error {
	tx.After(func() { s.externals.idle.drop(mb.ID) })
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
