package mailboxes

import (
	"net/netip"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
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
func (s *Service) draftExternal(b *NewMailbox, in CreateEmailUserIn) error {
	if in.Password != nil {
		return core.Invalid("password", "not_allowed", "the password of an external mailbox belongs in imap.password")
	}
	if in.IMAP == nil {
		return core.Invalid("imap", "required", "is required for mailboxes of type external: host, port, security, username, password")
	}
	b.Mb.Type, b.password = "external", in.IMAP.Password
	imap, err := s.sealServer("imap", b.Mb.ID, in.IMAP)
	if err != nil {
		return err
	}
	b.Mb.External = &store.External{IMAP: imap}
	if in.SMTP == nil {
		return nil
	}
	smtp, err := s.sealServer("smtp", b.Mb.ID, in.SMTP)
	b.Mb.External.SMTP = &smtp
	return err
}

// sealServer checks a server and seals its password under the mailbox's id.
func (s *Service) sealServer(field, id string, in *MailServerLogin) (store.Server, error) {
	out := store.Server{Host: strings.TrimSuffix(strings.ToLower(in.Host), "."), Port: in.Port, Security: in.Security, Username: in.Username}
	if _, err := netip.ParseAddr(out.Host); err != nil {
		if _, err := msg.NormalizeDomain(out.Host); err != nil || strings.HasPrefix(out.Host, "[") {
			return out, core.Invalid(field+".host", "invalid", "must be the server's name or IP address")
		}
	}
	if in.Port < 1 || in.Port > 65535 {
		return out, core.Invalid(field+".port", "out_of_range", "must be from 1 to 65535")
	}
	if in.Security != "tls" && in.Security != "starttls" && in.Security != "none" {
		return out, core.Invalid(field+".security", "not_allowed", "must be one of tls, starttls, none")
	}
	if ip, err := netip.ParseAddr(out.Host); in.Security == "none" && (!s.inbox.PlainAllowed() || err == nil && !s.inbox.PlainGuard().Allowed(ip)) {
		return out, core.Invalid(field+".security", "not_allowed", "%s", inbox.PlainRefused)
	}
	if !credential(in.Username) {
		return out, core.Invalid(field+".username", "invalid", "must have 1 to 1024 characters and no control characters")
	}
	if !credential(in.Password) {
		return out, core.Invalid(field+".password", "invalid", "must have 1 to 1024 characters and no control characters")
	}
	out.PasswordSealed = s.Keys.Seal(core.ServerPlace(id, field), []byte(in.Password))
	return out, nil
}

func credential(text string) bool {
	return text != "" && len(text) <= 1024 && !strings.ContainsFunc(text, unicode.IsControl)
}

// replacePassword puts a new password of an external mailbox in the place of the old one, for both
// servers.
func (s *Service) replacePassword(mb *store.Mailbox, password string) {
	e := *mb.External
	e.IMAP.PasswordSealed = s.Keys.Seal(core.ServerPlace(mb.ID, "imap"), []byte(password))
	if e.SMTP != nil {
		smtp := *e.SMTP
		smtp.PasswordSealed = s.Keys.Seal(core.ServerPlace(mb.ID, "smtp"), []byte(password))
		e.SMTP = &smtp
	}
	mb.External = &e
}
