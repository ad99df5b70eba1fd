package mailboxes

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// newMailboxFolders are the folders of every new mailbox. INBOX is first, so that its id is
// store.InboxID.
var newMailboxFolders = []struct{ name, use string }{
	{"INBOX", ""}, {"Sent", `\Sent`}, {"Drafts", `\Drafts`}, {"Junk", `\Junk`}, {"Trash", `\Trash`}, {"Archive", `\Archive`},
}

// reservedNames are local parts that mailboxes must not have: they belong to whoever runs the
// domain's mail (RFC 2142, RFC 5321 section 4.5.1), or receive reports.
var reservedNames = []string{"postmaster", "abuse", "mailer-daemon", dnsprov.ReportsLocal}

// CreateEmailUserIn is the body of create_email_user.
type CreateEmailUserIn struct {
	Username       string           `json:"username" log:"true"`
	Domain         string           `json:"domain" alias:"domain_id" log:"true"`
	Email          string           `json:"email" log:"true"`
	Name           string           `json:"name" max:"200"`
	Password       *string          `json:"password"`
	Footer         string           `json:"footer" max:"10000"`
	DailySendLimit *int             `json:"daily_send_limit" min:"0" max:"10000000" log:"true"` // Recipients per UTC day; null is unlimited.
	ForwardTo      string           `json:"forward_to"`                                         // Incoming mail is also sent here.
	ForwardKeep    *bool            `json:"forward_keep_copy" log:"true"`                       // Whether forwarded mail is kept in the mailbox too.
	Aliases        []string         `json:"aliases" log:"true"`                                 // More addresses of the mailbox, which it may send as; at most 50.
	Signature      string           `json:"signature" max:"10000"`                              // A text that the dashboard adds to new messages.
	QuotaBytes     *int64           `json:"quota_bytes" min:"0" max:"1000000000000000" log:"true"`
	Type           string           `json:"type" enum:"hosted|external|" log:"true"`
	IMAP           *MailServerLogin `json:"imap"`
	SMTP           *MailServerLogin `json:"smtp"`
}

// EmailUserCreated is a mailbox with its password, which is shown only this once.
type EmailUserCreated struct {
	EmailUser
	Password          string `json:"password" words:"ours"`
	PasswordGenerated bool   `json:"password_generated"`
}

// CreateEmailUser creates a mailbox. If its domain is not complete, the mailbox is pending. Without
// a password it gets a generated one.
func (s *Service) CreateEmailUser(ctx context.Context, who core.Actor, in CreateEmailUserIn) (*EmailUserCreated, error) {
	b, err := s.DraftMailbox(in)
	if err != nil {
		return nil, err
	}
	check := func(tx *store.Tx) error {
		if err := b.resolve(tx, who); err != nil {
			return err
		}
		return s.checkRoomForMailbox(tx, b.Domain)
	}
	if err := s.Store.View(check); err != nil {
		return nil, err // checked before the password is hashed, which is slow
	}
	b.HashPassword(s)
	out := EmailUserCreated{Password: b.password, PasswordGenerated: b.generated}
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		if err := check(tx); err != nil {
			return err
		}
		mb, err := s.CreateMailbox(tx, b)
		if err != nil {
			return err
		}
		out.EmailUser, err = s.mailboxOut(tx, mb)
		if err != nil {
			return err
		}
		if err := core.Audit(tx, who, core.MailboxTarget(mb)); err != nil {
			return err
		}
		return once.KeepAnswer(ctx, s.Core, tx, &out)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// A NewMailbox is a mailbox to be created. Its fields are valid, but are not checked against the
// store yet.
type NewMailbox struct {
	Mb         store.Mailbox // without the fields that are set in the transaction
	Username   string
	domainName string // as given: a name or an id
	password   string
	generated  bool // the password was generated
	aliases    []string
	Domain     *store.Domain // set by resolve
}

// DraftMailbox validates the request for a new mailbox without the store.
func (s *Service) DraftMailbox(in CreateEmailUserIn) (*NewMailbox, error) {
	b := &NewMailbox{Username: in.Username, domainName: in.Domain}
	if in.Email != "" {
		if in.Username != "" || in.Domain != "" {
			return nil, core.Invalid("email", "not_allowed", "give email, or username and domain, not both")
		}
		var ok bool
		b.Username, b.domainName, ok = msg.SplitEmail(in.Email)
		if !ok {
			return nil, core.Invalid("email", "invalid", "must be of the form name@domain")
		}
	}
	if b.domainName == "" {
		return nil, core.Invalid("domain", "required", "is required, unless email is given")
	}
	var err error
	b.Username, err = cleanUsername(b.Username)
	if err != nil {
		return nil, err
	}
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	b.Mb = store.Mailbox{
		ID: s.Store.NewID("eu"), Type: store.MailboxTypeHosted, Name: in.Name, Footer: in.Footer, DailySendLimit: in.DailySendLimit, QuotaBytes: in.QuotaBytes,
	}
	if in.ForwardTo != "" {
		b.Mb.ForwardTo, err = core.NormalizeEmail("forward_to", in.ForwardTo)
		if err != nil {
			return nil, err
		}
	}
	b.Mb.ForwardOnly, b.Mb.Signature = in.ForwardKeep != nil && !*in.ForwardKeep, in.Signature
	b.aliases, err = cleanAliases(in.Aliases)
	if err != nil {
		return nil, err
	}
	if in.Type == store.MailboxTypeExternal {
		return b, s.draftExternal(b, in)
	}
	if in.IMAP != nil || in.SMTP != nil {
		return nil, core.Invalid("imap", "not_allowed", "imap and smtp are only for external mailboxes")
	}
	return b, b.choosePassword(in.Password)
}

// choosePassword sets the given password, or a generated one.
func (b *NewMailbox) choosePassword(given *string) error {
	if given == nil {
		b.password, b.generated = core.NewPassword(), true
		return nil
	}
	b.password = *given
	return core.CheckPassword("password", *given, core.LeastPassword)
}

// HashPassword sets the hash and the other stored forms of the password.
func (b *NewMailbox) HashPassword(s *Service) {
	if b.Mb.Type == store.MailboxTypeHosted {
		b.Mb.Salt = make([]byte, saltSize)
		rand.Read(b.Mb.Salt)
		s.hashPassword(b.Mb, b.password, false)(&b.Mb)
	}
}

// checkName returns an error for a name that would break a From header field.
func checkName(name string) error {
	if utf8.RuneCountInString(name) > 200 || strings.ContainsFunc(name, unicode.IsControl) {
		return core.Invalid("name", "invalid", "must have at most 200 characters and no control characters")
	}
	return nil
}

// cleanUsername normalizes the local part of a mailbox.
func cleanUsername(name string) (string, error) {
	if name == "" {
		return "", core.Invalid("username", "required", "is required")
	}
	name = strings.ToLower(name)
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}
	if len(name) > 64 || strings.ContainsFunc(name, odd) {
		return "", core.Invalid("username", "invalid", "must have 1 to 64 of the characters a-z, 0-9, dot, underscore and hyphen")
	}
	if strings.Contains(name, "..") || name[0] == '.' || name[len(name)-1] == '.' {
		return "", core.Invalid("username", "invalid", "must not begin or end with a dot, nor have two in a row")
	}
	if name == dnsprov.ReportsLocal {
		return "", core.Invalid("username", "reserved", "%s is reserved: reports on DMARC that come to it are read", name)
	}
	if slices.Contains(reservedNames, name) {
		return "", core.Invalid("username", "reserved", "%s is reserved: its mail goes to the domain's catch-all, or to the account's owner", name)
	}
	return name, nil
}

// resolve finds the domain, and checks the mailbox against the domain and other addresses.
func (b *NewMailbox) resolve(tx *store.Tx, who core.Actor) error {
	d, err := core.FindDomain(tx, who, b.domainName)
	if errors.Is(err, store.ErrNotFound) {
		return core.Invalid("domain", "not_found", "%.80q is not a domain of this account; connect it first", b.domainName)
	}
	if err != nil {
		return err
	}
	if d.Gone() {
		return core.Errorf("domain_busy", "%s is being deleted, so no mailboxes can be added.", d.Name).With(d.JobID, "domain_busy", "deletes the domain")
	}
	if err := b.checkDomain(d); err != nil {
		return err
	}
	b.Domain, b.Mb.Email = d, b.Username+"@"+d.Name
	if store.AddressTaken(tx, d.ID, b.Mb.Email) {
		return errAddressExists(b.Mb.Email)
	}
	return nil
}

func errAddressExists(email string) *core.Error {
	return core.Errorf("email_user_exists", "%s exists already. Choose another username.", email).With("username", "email_user_exists", "is taken")
}

// checkDomain checks whether the mailbox's type and forward are allowed on the domain.
func (b *NewMailbox) checkDomain(d *store.Domain) error {
	if external := d.DNSProvider == store.DomainProviderExternal; external != (b.Mb.Type == store.MailboxTypeExternal) {
		if external {
			return core.Invalid("type", "required", "the mail of %s is hosted elsewhere: give its mailboxes type external, with imap", d.Name)
		}
		return core.Invalid("type", "not_allowed", "external mailboxes need a domain that was connected as external; %s is hosted here", d.Name)
	}
	return checkForward(b.Mb.ForwardTo, d.Name)
}

// checkForward refuses a forward into the mailbox's own domain, which could loop.
func checkForward(to, domain string) error {
	if _, at, _ := msg.SplitEmail(to); to != "" && at == domain {
		return core.Invalid("forward_to", "not_allowed", "must not be in the mailbox's own domain")
	}
	return nil
}

// MailboxesLeft returns how many more mailboxes the limits of the account and the domain allow, and
// the error that the first mailbox beyond them gets.
func (s *Service) MailboxesLeft(tx *store.Tx, d *store.Domain) (left int, full *core.Error, err error) {
	a, err := store.Accounts.Read(tx, d.AccountID)
	if err != nil {
		return 0, nil, err
	}
	left = math.MaxInt
	limits := s.LimitsOf(a)
	if n := limits.Mailboxes; n > 0 {
		left = n - store.MailboxesByAccount.Count(tx, d.AccountID, n)
		full = core.Errorf("email_user_limit_exceeded", "This account is limited to %d mailboxes. Delete one first.", n)
	}
	n := limits.MailboxesPerDomain
	if n == 0 {
		return left, full, nil
	}
	if here := n - store.MailboxesByDomain.Count(tx, d.ID, n); here < left {
		left = here
		full = core.Errorf("email_user_limit_exceeded", "%s is limited to %d mailboxes. Delete one first, or use another domain.", d.Name, n)
	}
	return left, full, nil
}

// checkRoomForMailbox returns the error of MailboxesLeft if no mailbox is left.
func (s *Service) checkRoomForMailbox(tx *store.Tx, d *store.Domain) error {
	left, full, err := s.MailboxesLeft(tx, d)
	if err == nil && left == 0 {
		err = full
	}
	return err
}

// CreateMailbox writes a new mailbox with its folders. resolve must have been called. On a complete
// domain the mailbox becomes active at once.
func (s *Service) CreateMailbox(tx *store.Tx, b *NewMailbox) (*store.Mailbox, error) {
	a, err := store.Accounts.Get(tx, b.Domain.AccountID)
	if err != nil {
		return nil, err
	}
	mb := b.Mb // a copy, since the transaction may run twice
	mb.Num, err = tx.NextMailboxNum()
	if err != nil {
		return nil, err
	}
	mb.AccountID, mb.AccountNum, mb.DomainID = a.ID, a.Num, b.Domain.ID
	mb.Status, mb.CreatedAt, mb.UpdatedAt = store.MailboxPending, tx.Now(), tx.Now()
	for _, f := range newMailboxFolders {
		if err := tx.CreateFolder(&store.Folder{Mailbox: mb.Num, Name: f.name, SpecialUse: f.use, Subscribed: true}); err != nil {
			return nil, err
		}
	}
	if err := setAliases(tx, &mb, b.aliases); err != nil {
		return nil, err
	}
	if b.Domain.Status == store.DomainComplete {
		return &mb, s.activate(tx, &mb)
	}
	if err := core.LiftSuppression(tx, mb.AccountID, mb.Email); err != nil {
		return nil, err
	}
	return &mb, store.Mailboxes.Put(tx, &mb)
}

// activate makes a mailbox active, and emits email_user.created. A suspended mailbox stays
// suspended, and becomes active when it is resumed.
func (s *Service) activate(tx *store.Tx, mb *store.Mailbox) error {
	mb.Ready, mb.UpdatedAt = true, tx.Now()
	if mb.Status == store.MailboxPending {
		mb.Status = store.MailboxActive
	}
	if err := store.Mailboxes.Put(tx, mb); err != nil {
		return err
	}
	if err := core.LiftSuppression(tx, mb.AccountID, mb.Email); err != nil {
		return err
	}
	if err := s.servers.BeginExternal(tx, mb); err != nil {
		return err
	}
	return s.emitMailbox(tx, events.EventEmailUserCreated, mb)
}

// ActivateMailboxes activates up to limit mailboxes of a domain that has become complete. more is
// true if some are left for another transaction.
func (s *Service) ActivateMailboxes(tx *store.Tx, domainID string, limit int) (more bool, err error) {
	var waiting []*store.Mailbox
	for _, mb := range store.MailboxesWaiting.Asc(tx, domainID, "") {
		if len(waiting) == limit {
			more = true
			break
		}
		waiting = append(waiting, mb)
	}
	for _, mb := range waiting {
		if err := s.activate(tx, mb); err != nil {
			return false, err
		}
	}
	return more, nil
}
