package mailboxes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/store"
)

// An EmailUser is a mailbox as the API shows it: never with its password.
type EmailUser struct {
	ID             string             `json:"id" words:"ours"`
	UserID         string             `json:"user_id" words:"ours"`
	Email          string             `json:"email" words:"ours"`
	Username       string             `json:"username" words:"ours"`
	Domain         string             `json:"domain" words:"ours"`
	DomainID       string             `json:"domain_id" words:"ours"`
	Name           string             `json:"name" words:"ours"`
	Aliases        []string           `json:"aliases" words:"ours"`
	SendAs         []string           `json:"send_as" words:"ours"`
	Signature      *string            `json:"signature" words:"ours"`
	Status         string             `json:"status" enum:"pending|active|suspended|error|deleting"`
	Error          *core.JobFailure   `json:"error"`
	Type           string             `json:"type" enum:"hosted|external"`
	DailySendLimit *int               `json:"daily_send_limit"`
	SentToday      int                `json:"sent_today"`
	SendingPaused  *core.SendingPause `json:"sending_paused"`
	SMTPHost       string             `json:"smtp_host" words:"ours"`
	SMTPPort       int                `json:"smtp_port"`
	SMTPSecurity   string             `json:"smtp_security" enum:"tls|starttls|none"`
	IMAPHost       string             `json:"imap_host" words:"ours"`
	IMAPPort       int                `json:"imap_port"`
	IMAPSecurity   string             `json:"imap_security" enum:"tls|starttls|none"`
	Footer         *string            `json:"footer" words:"ours"`
	ForwardTo      *string            `json:"forward_to" words:"ours"`
	ForwardKeep    bool               `json:"forward_keep_copy"`
	Relay          *string            `json:"relay" words:"ours"`
	QuotaBytes     *int64             `json:"quota_bytes"`
	UsedBytes      int64              `json:"used_bytes"`
	UnreadCount    int64              `json:"unread_count"`
	LastSyncAt     core.Time          `json:"last_sync_at"`
	LastLoginAt    core.Time          `json:"last_login_at"`
	CreatedAt      core.Time          `json:"created_at"`
	UpdatedAt      core.Time          `json:"updated_at"`
}

// mailboxOut shows a mailbox as it is in tx.
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
	}
	if out.SentToday, err = reputation.SentToday(tx, mb); err != nil {
		return EmailUser{}, err
	}
	for _, a := range aliasesOf(tx, mb.ID) {
		out.Aliases = append(out.Aliases, a.Email)
	}
	slices.Sort(out.Aliases)
	senders, err := core.SendersOf(tx, mb)
	if err != nil {
		return EmailUser{}, err
	}
	out.SendAs = senders.Addresses
	s.addServers(&out, mb.External)
	return out, nil
}

// shownStatus is the status that the API shows. An external mailbox that is in use is pending until
// its first sync, and error after a failed one, whether or not the next look comes by itself.
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

// mailboxFailure says why the newest look at an external mailbox failed; nil if it did not. Rows of
// older releases have no code.
func mailboxFailure(mb *store.Mailbox) *core.JobFailure {
	code := mb.ErrorCode
	switch {
	case mb.ErrorText == "":
		return nil
	case code == "" && mb.ErrorText == inbox.UnreadHere:
		code = "internal_error"
	case code == "":
		code = "upstream_error"
	}
	return &core.JobFailure{Code: code, Message: mb.ErrorText}
}

// addServers says where mail clients connect to: to us, or where an external mailbox lives.
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
	core.PageIn
	Domain string `query:"domain"`
	Status string `query:"status" enum:"pending|active|suspended|error|deleting|"`
	Q      string `query:"q" max:"254"`
}

// ListEmailUsers lists the account's mailboxes, newest first. q is looked for in address and name.
func (s *Service) ListEmailUsers(_ context.Context, who core.Actor, in ListEmailUsersIn) (*core.Page[EmailUser], error) {
	l := s.mailboxList("email_users", store.MailboxesByAccount, who.AccountID, in.Domain, in.Status, in.Q)
	if in.Domain == "" {
		return l.Page(s.Core, who, in.PageIn)
	}
	l.Index, l.Prefix = store.MailboxesByDomain, "none"
	err := s.Store.View(func(tx *store.Tx) error {
		d, err := core.FindDomain(tx, who, in.Domain)
		if err == nil {
			l.Prefix = d.ID
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil // a filter that nothing passes
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.Page(s.Core, who, in.PageIn)
}

// ListDomainEmailUsersIn is the query of list_domain_email_users.
type ListDomainEmailUsersIn struct {
	core.PageIn
	DomainID string `path:"domain_id"`
	Status   string `query:"status" enum:"pending|active|suspended|error|deleting|"`
	Q        string `query:"q" max:"254"`
}

// ListDomainEmailUsers lists the mailboxes of one domain, newest first.
func (s *Service) ListDomainEmailUsers(_ context.Context, who core.Actor, in ListDomainEmailUsersIn) (*core.Page[EmailUser], error) {
	l := s.mailboxList("domain_email_users", store.MailboxesByDomain, in.DomainID, in.DomainID, in.Status, in.Q)
	l.First = func(tx *store.Tx) error {
		_, err := core.DomainOf(tx, who, in.DomainID)
		return err
	}
	return l.Page(s.Core, who, in.PageIn)
}

func (s *Service) mailboxList(operation string, index *store.Index[store.Mailbox], prefix, domain, status, q string) core.Listing[store.Mailbox, EmailUser] {
	lower := strings.ToLower(q)
	prefilter := core.HasFolded(lower)
	if status == store.MailboxSuspended || status == store.MailboxDeleting { // rows have these as they are shown
		prefilter = core.HasTexts(status)
	}
	return core.Listing[store.Mailbox, EmailUser]{
		Operation: operation, Index: index, Prefix: prefix, Filters: []string{domain, status, q}, Prefilter: prefilter,
		Keep: func(mb *store.Mailbox) bool {
			return (status == "" || shownStatus(mb) == status) &&
				(q == "" || strings.Contains(mb.Email, lower) || strings.Contains(strings.ToLower(mb.Name), lower))
		},
		Out: s.mailboxOut,
	}
}

// GetEmailUser shows one mailbox.
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

// MailboxEvent is the data of email_user.created and email_user.deleted; the time that is not told
// of is absent.
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
	_, err := s.events.Emit(tx, mb.AccountID, kind, data)
	return err
}

// LoginMailbox checks the log-in of a mail client from the address ip. The error is an *Error: 401
// for a wrong address or password, which take the same time, 403 for a mailbox that may not be
// used, 429 after too many wrong ones, 503 busy where too many wait.
func (s *Service) LoginMailbox(ctx context.Context, email, password, ip string) (core.MailboxUser, error) {
	address, err := core.NormalizeEmail("username", email)
	if err != nil {
		address = email[:min(len(email), 254)] // nobody's, but it is counted and takes its time like any other
	}
	mb, _, err := s.loginRecords(address)
	if err != nil {
		return core.MailboxUser{}, err
	}
	from := core.Origin{Network: core.Network(ip)}
	from.Known = core.IsKnown(mb.Seen, from.Network, s.Now())
	done, err := s.LoginAttempts.Begin(ctx, address, from, s.Now)
	if err != nil {
		return core.MailboxUser{}, err
	}
	defer done()
	mb, account, err := s.loginRecords(address) // as they are after the wait
	if err != nil {
		return core.MailboxUser{}, err
	}
	right, err := s.Logins.Verify(ctx, mb.PasswordHash, password, from, s.Now())
	if err != nil {
		return core.MailboxUser{}, err
	}
	if !right {
		s.RecordWrongPassword(address, from.Network)
		return core.MailboxUser{}, core.Errorf("unauthorized", "The address or the password is wrong.")
	}
	if mb.Status != store.MailboxActive || !account.MayAct() {
		return core.MailboxUser{}, core.Errorf("mailbox_unavailable", "%s cannot be used now: it is %s.", mb.Email, unusable(mb, account))
	}
	s.LoginAttempts.RecordSuccess(address, from.Network)
	if core.IsForeignHash(mb.PasswordHash) {
		s.replaceHash(mb, password)
	}
	s.recordLogin(mb, from.Network)
	return core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email, IP: ip}, nil
}

func unusable(mb *store.Mailbox, a *store.Account) string {
	if mb.Status == store.MailboxActive {
		return a.Status
	}
	return mb.Status
}

// loginRecords gives empty records for an address that is nobody's, whose password is then never
// right.
func (s *Service) loginRecords(email string) (mb *store.Mailbox, a *store.Account, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if mb, err = store.MailboxByEmail.Get(tx, email); errors.Is(err, store.ErrNotFound) {
			mb, err = unprovenMailbox(tx, email)
		}
		if err != nil {
			return err
		}
		a, err = store.Accounts.Get(tx, mb.AccountID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return &store.Mailbox{}, &store.Account{}, nil
	}
	return mb, a, err
}

// unprovenMailbox gives the mailbox of an address whose domain nobody has proven to hold, if there
// is just one.
func unprovenMailbox(tx *store.Tx, email string) (mb *store.Mailbox, err error) {
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(core.DomainOfAddress(email)), "") {
		if d.ClaimEnded() {
			continue
		}
		of, err := store.MailboxByAddress.Get(tx, store.AddressKey(d.ID, email))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil || mb != nil {
			return nil, errors.Join(err, store.ErrNotFound)
		}
		mb = of
	}
	if mb == nil {
		return nil, store.ErrNotFound
	}
	return mb, nil
}

// replaceHash keeps a password in our own form, in the place of a hash that came from another mail
// server.
func (s *Service) replaceHash(mb *store.Mailbox, password string) {
	hash := s.Logins.Hash(password)
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil || now.PasswordHash != mb.PasswordHash { // it was changed meanwhile
			return err
		}
		now.PasswordHash = hash
		return store.Mailboxes.Put(tx, now)
	})
	if err != nil {
		s.Log.Warn("replace the password hash of another server", "mailbox", mb.Email, "error", err)
	}
}

// recordLogin keeps the time of a log-in, once a minute, and where it came from, once a day. A
// store that takes no writes is no reason to turn a reader away.
func (s *Service) recordLogin(mb *store.Mailbox, network string) {
	if _, fresh := core.RecordNetwork(mb.Seen, network, s.Now()); !fresh && s.Now().Sub(mb.LastLoginAt) < time.Minute {
		return
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil {
			return err
		}
		now.Seen, _ = core.RecordNetwork(now.Seen, network, tx.Now())
		if tx.Now().Sub(now.LastLoginAt) >= time.Minute {
			now.LastLoginAt = tx.Now()
		}
		return store.Mailboxes.Put(tx, now)
	})
	if err != nil {
		s.Log.Warn("note the time of a log-in", "mailbox", mb.Email, "error", err)
	}
}

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
	out.PasswordSealed = s.Keys.Seal(store.ServerPlace(id, field), []byte(in.Password))
	return out, nil
}

func credential(text string) bool {
	return text != "" && len(text) <= 1024 && !strings.ContainsFunc(text, unicode.IsControl)
}

// replacePassword puts a new password of an external mailbox in the place of the old one, for both
// servers.
func (s *Service) replacePassword(mb *store.Mailbox, password string) {
	e := *mb.External
	e.IMAP.PasswordSealed = s.Keys.Seal(store.ServerPlace(mb.ID, "imap"), []byte(password))
	if e.SMTP != nil {
		smtp := *e.SMTP
		smtp.PasswordSealed = s.Keys.Seal(store.ServerPlace(mb.ID, "smtp"), []byte(password))
		e.SMTP = &smtp
	}
	mb.External = &e
}
