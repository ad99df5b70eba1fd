package mailboxes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// An EmailUser is a mailbox. The API never shows its password.
type EmailUser struct {
	ID       string   `json:"id" words:"ours" example:"eu_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same as user_id.
	UserID   string   `json:"user_id" words:"ours"`
	Email    string   `json:"email" words:"ours"`
	Username string   `json:"username" words:"ours"`
	Domain   string   `json:"domain" words:"ours"`
	DomainID string   `json:"domain_id" words:"ours"`
	Name     string   `json:"name" words:"ours"`
	Aliases  []string `json:"aliases" words:"ours"` // More addresses of the mailbox, which it may send as; at most 50.
	// The addresses that it may send as: its own, its aliases, and groups that allow this to their
	// members.
	SendAs    []string `json:"send_as" words:"ours"`
	Signature *string  `json:"signature" words:"ours"` // A text that the dashboard adds to new messages.
	// An external mailbox is `pending` until its first sync, and `error` after a failed one.
	Status         string             `json:"status" enum:"pending|active|suspended|error|deleting"`
	Error          *core.JobFailure   `json:"error" rare:"true"` // Why the last sync of an external mailbox failed.
	Type           string             `json:"type" enum:"hosted|external"`
	DailySendLimit *int               `json:"daily_send_limit"` // Recipients per UTC day; null is unlimited.
	SentToday      int                `json:"sent_today"`
	SendingPaused  *core.SendingPause `json:"sending_paused" rare:"true"` // Why and since when it cannot send; null if it can. PATCH with null resumes sending.
	SMTPHost       string             `json:"smtp_host" words:"ours"`
	SMTPPort       int                `json:"smtp_port"`
	SMTPSecurity   string             `json:"smtp_security" enum:"tls|starttls|none"`
	IMAPHost       string             `json:"imap_host" words:"ours"`
	IMAPPort       int                `json:"imap_port"`
	IMAPSecurity   string             `json:"imap_security" enum:"tls|starttls|none"`
	RecoveryEmail  *string            `json:"recovery_email" words:"ours"` // The address that gets a link if the password is forgotten.
	RecoveryOK     bool               `json:"recovery_confirmed"`
	Footer         *string            `json:"footer" words:"ours"`
	ForwardTo      *string            `json:"forward_to" words:"ours"` // Incoming mail is also sent here.
	ForwardKeep    bool               `json:"forward_keep_copy"`       // Whether forwarded mail is kept in the mailbox too.
	Relay          *string            `json:"relay" words:"ours"`      // The name of the relay for this mail; null for the default route.
	QuotaBytes     *int64             `json:"quota_bytes"`
	UsedBytes      int64              `json:"used_bytes"`
	UnreadCount    int64              `json:"unread_count"`
	SendPolicy     agents.SendPolicy  `json:"send_policy"` // What may be sent from it. It does not apply to an owner or admin who is signed in.
	ExpiresAt      core.Time          `json:"expires_at"`  // When it is deleted with all its mail; null means never.
	LastSyncAt     core.Time          `json:"last_sync_at"`
	LastLoginAt    core.Time          `json:"last_login_at"`
	CreatedAt      core.Time          `json:"created_at"`
	UpdatedAt      core.Time          `json:"updated_at"`
}

// mailboxOut returns a mailbox in the form of the API.
func (s *Service) mailboxOut(tx *store.Tx, mb *store.Mailbox) (EmailUser, error) {
	used, err := tx.MailboxUsage(mb.Num)
	if err != nil {
		return EmailUser{}, err
	}
	username, domain, _ := msg.SplitEmail(mb.Email)
	out := EmailUser{
		ID: mb.ID, UserID: mb.ID, Email: mb.Email, Username: username, Domain: domain, DomainID: mb.DomainID, Name: mb.Name,
		Status: shownStatus(mb), Error: mailboxFailure(mb), Type: mb.Type, DailySendLimit: mb.DailySendLimit,
		SendingPaused: core.PauseOut(mb.SendingPaused),
		Footer:        core.OrNull(mb.Footer), ForwardTo: core.OrNull(mb.ForwardTo), ForwardKeep: !mb.ForwardOnly,
		Aliases: []string{}, Signature: core.OrNull(mb.Signature), Relay: core.OrNull(mb.Relay), QuotaBytes: mb.QuotaBytes,
		UsedBytes: used.Bytes, UnreadCount: used.Unseen, LastSyncAt: core.Time{Time: mb.LastSyncAt}, LastLoginAt: core.Time{Time: mb.LastLoginAt},
		CreatedAt: core.Time{Time: mb.CreatedAt}, UpdatedAt: core.Time{Time: mb.UpdatedAt},
		SendPolicy: agents.SendPolicyOut(&mb.SendPolicy), ExpiresAt: core.Time{Time: mb.ExpiresAt},
	}
	out.SentToday, err = reputation.SentToday(tx, mb)
	if err != nil {
		return EmailUser{}, err
	}
	for _, a := range aliasesOf(tx, mb.ID) {
		out.Aliases = append(out.Aliases, a.Email)
	}
	slices.Sort(out.Aliases)
	if mb.Recovery != nil {
		out.RecoveryEmail, out.RecoveryOK = &mb.Recovery.Email, mb.Recovery.Confirmed
	}
	senders, err := core.SendersOf(tx, mb)
	if err != nil {
		return EmailUser{}, err
	}
	out.SendAs = senders.Addresses
	s.addServers(&out, mb.External)
	return out, nil
}

// shownStatus returns the status that the API shows. An active external mailbox is shown as pending
// until its first sync, and as error after a failed one, even if the next sync is scheduled.
func shownStatus(mb *store.Mailbox) string {
	switch {
	case mb.External == nil || mb.Status != store.MailboxActive:
		return mb.Status
	case mb.ErrorText != "":
		return "error"
	case mb.LastSyncAt.IsZero():
		return "pending"
	}
	return "active"
}

// mailboxFailure returns why the last sync of an external mailbox failed; nil if it did not. Rows
// of older releases have no code.
func mailboxFailure(mb *store.Mailbox) *core.JobFailure {
	code := mb.ErrorCode
	switch {
	case mb.ErrorText == "":
		return nil
	case code == "" && mb.ErrorText == external.SyncFailedText:
		code = "internal_error"
	case code == "":
		code = "upstream_error"
	}
	return &core.JobFailure{Code: code, Message: mb.ErrorText}
}

// addServers sets the servers that mail clients connect to: ours, or those of the external mailbox.
func (s *Service) addServers(out *EmailUser, e *store.External) {
	c := s.Config
	imap := store.Server{Host: c.ClientName(), Port: c.IMAPPort, Security: c.IMAPSecurity}
	smtp := store.Server{Host: c.ClientName(), Port: c.SubmissionPort, Security: c.SMTPSecurity}
	if e != nil {
		imap, smtp = e.IMAP, store.Server{Security: "none"}
		if e.SMTP != nil {
			smtp = *e.SMTP
		}
	}
	out.IMAPHost, out.IMAPPort, out.IMAPSecurity = imap.Host, imap.Port, imap.Security
	out.SMTPHost, out.SMTPPort, out.SMTPSecurity = smtp.Host, smtp.Port, smtp.Security
}

// ListEmailUsersIn is the query of list_email_users.
type ListEmailUsersIn struct {
	page.Query
	Domain string `query:"domain"`
	Status string `query:"status" enum:"pending|active|suspended|error|deleting|"`
	Q      string `query:"q" max:"254"` // Text to search for.
	// The order: by creation, newest first unless given, or by address; `-` is descending. By
	// address, the list of one domain leaves out mailboxes that are being deleted.
	Sort string `query:"sort" enum:"-created_at|created_at|email|-email|"`
}

// ListEmailUsers lists the account's mailboxes. q is searched in address and name.
func (s *Service) ListEmailUsers(_ context.Context, who core.Actor, in ListEmailUsersIn) (*page.Page[EmailUser], error) {
	l := s.mailboxList(who, "email_users", store.MailboxesByAccount, who.AccountID, in.Domain, in.Status, in.Q)
	byEmail := strings.TrimPrefix(in.Sort, "-") == "email"
	if byEmail {
		l.Index = store.MailboxesOfAccount
	}
	l.SortBy(in.Sort)
	if in.Domain == "" {
		return l.Page(s.Core, who, in.Query)
	}
	l.Index, l.Prefix = store.MailboxesByDomain, "none"
	err := s.Store.View(func(tx *store.Tx) error {
		d, err := core.FindDomain(tx, who, in.Domain)
		if err == nil {
			l.Prefix = d.ID
		}
		if err == nil && byEmail {
			l.Index, l.Prefix = store.MailboxByAddress, store.AddressKey(d.ID, "")
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil // no mailbox matches the filter
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.Page(s.Core, who, in.Query)
}

// ListDomainEmailUsersIn is the query of list_domain_email_users.
type ListDomainEmailUsersIn struct {
	page.Query
	DomainID string `path:"domain_id"`
	Status   string `query:"status" enum:"pending|active|suspended|error|deleting|"`
	Q        string `query:"q" max:"254"` // Text to search for.
}

// ListDomainEmailUsers lists the mailboxes of one domain, newest first.
func (s *Service) ListDomainEmailUsers(_ context.Context, who core.Actor, in ListDomainEmailUsersIn) (*page.Page[EmailUser], error) {
	l := s.mailboxList(who, "domain_email_users", store.MailboxesByDomain, in.DomainID, in.DomainID, in.Status, in.Q)
	l.First = func(tx *store.Tx) error {
		_, err := core.DomainOf(tx, who, in.DomainID)
		return err
	}
	return l.Page(s.Core, who, in.Query)
}

func (s *Service) mailboxList(who core.Actor, operation string, index *store.Index[store.Mailbox], prefix, domain, status, q string) page.Listing[store.Mailbox, EmailUser] {
	lower := strings.ToLower(q)
	prefilter := page.HasFolded(lower)
	if status == store.MailboxSuspended || status == store.MailboxDeleting { // these statuses are stored as they are shown
		prefilter = page.HasTexts(status)
	}
	return page.Listing[store.Mailbox, EmailUser]{
		Operation: operation, Index: index, Prefix: prefix, Filters: []string{domain, status, q}, Prefilter: prefilter,
		Keep: func(mb *store.Mailbox) bool {
			return who.Sees(mb.ID) && (status == "" || shownStatus(mb) == status) &&
				(q == "" || strings.Contains(mb.Email, lower) || strings.Contains(strings.ToLower(mb.Name), lower))
		},
		Out: s.mailboxOut,
	}
}

// GetEmailUser returns one mailbox.
func (s *Service) GetEmailUser(_ context.Context, who core.Actor, in core.EmailUserIn) (*EmailUser, error) {
	var out EmailUser
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		out, err = s.mailboxOut(tx, mb)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// MailboxEvent is the data of email_user.created and email_user.deleted. The first has only
// created_at, the second only deleted_at.
type MailboxEvent struct {
	UserID    string     `json:"user_id" words:"ours"`
	Email     string     `json:"email" words:"ours"`
	Username  string     `json:"username" words:"ours"`
	Domain    string     `json:"domain" words:"ours"`
	DomainID  string     `json:"domain_id" words:"ours"`
	Name      string     `json:"name" words:"ours"`
	CreatedAt *core.Time `json:"created_at,omitempty"`
	DeletedAt *core.Time `json:"deleted_at,omitempty"`
}

func (s *Service) emitMailbox(tx *store.Tx, kind string, mb *store.Mailbox) error {
	username, domain, _ := msg.SplitEmail(mb.Email)
	data := MailboxEvent{UserID: mb.ID, Email: mb.Email, Username: username, Domain: domain, DomainID: mb.DomainID, Name: mb.Name}
	if kind == events.EventEmailUserDeleted {
		data.DeletedAt = &core.Time{Time: tx.Now()}
	} else {
		data.CreatedAt = &core.Time{Time: mb.CreatedAt}
	}
	_, err := s.events.Emit(tx, mb.AccountID, kind, events.About{MailboxID: mb.ID, Domain: mb.DomainID}, data)
	return err
}

// MailServerLogin is another mail server and the login to it, as given to create_email_user.
type MailServerLogin struct {
	Host     string `json:"host" example:"imap.example.net" log:"true"`
	Port     int    `json:"port" log:"true"`
	Security string `json:"security" enum:"tls|starttls|none" log:"true"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// draftExternal sets the servers of a new external mailbox.
func (s *Service) draftExternal(b *NewMailbox, in CreateEmailUserIn) error {
	if in.Password != nil {
		return core.Invalid("password", "not_allowed", "the password of an external mailbox belongs in imap.password")
	}
	if in.IMAP == nil {
		return core.Invalid("imap", "required", "is required for external mailboxes: host, port, security, username, password")
	}
	b.Mb.Type, b.password = store.MailboxTypeExternal, in.IMAP.Password
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

// sealServer validates a server and seals its password under the mailbox's id.
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
	if ip, err := netip.ParseAddr(out.Host); in.Security == "none" && (!s.servers.PlainAllowed() || err == nil && !s.servers.PlainGuard().Allowed(ip)) {
		return out, core.Invalid(field+".security", "not_allowed", "%s", external.PlainRefused)
	}
	if !isLoginText(in.Username) {
		return out, core.Invalid(field+".username", "invalid", "must have 1 to 1024 characters and no control characters")
	}
	if !isLoginText(in.Password) {
		return out, core.Invalid(field+".password", "invalid", "must have 1 to 1024 characters and no control characters")
	}
	out.PasswordSealed = s.Keys.Seal(store.ServerBinding(id, field), []byte(in.Password))
	return out, nil
}

func isLoginText(text string) bool {
	return text != "" && len(text) <= 1024 && !strings.ContainsFunc(text, unicode.IsControl)
}

// replacePassword replaces the password of an external mailbox for both servers.
func (s *Service) replacePassword(mb *store.Mailbox, password string) {
	e := *mb.External
	e.IMAP.PasswordSealed = s.Keys.Seal(store.ServerBinding(mb.ID, "imap"), []byte(password))
	if e.SMTP != nil {
		smtp := *e.SMTP
		smtp.PasswordSealed = s.Keys.Seal(store.ServerBinding(mb.ID, "smtp"), []byte(password))
		e.SMTP = &smtp
	}
	mb.External = &e
}
