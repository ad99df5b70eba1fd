package core

import (
	"cmp"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// rowsAtATime is how many records EachRow reads in one transaction.
const rowsAtATime = 5000

// EachRow calls see for each record of a table, in transactions of limited length. id returns the
// key of a record.
func EachRow[T any](st *store.Store, table *store.Table[T], id func(*T) string, see func(*T)) error {
	for after, more := "", true; more; {
		err := st.View(func(tx *store.Tx) error {
			more = false
			looked := 0
			for rec := range table.After(tx, after) {
				see(rec)
				after, looked = id(rec), looked+1
				if looked == rowsAtATime {
					more = true
					break
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// LiveMailbox returns a mailbox that can receive mail; nil if it does not exist or is being
// deleted.
func LiveMailbox(tx *store.Tx, id string) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.Find(tx, id)
	if mb != nil && mb.Gone() {
		return nil, nil
	}
	return mb, err
}

// MailboxOf returns a mailbox that the actor may see. For any other id the error is not_found.
func MailboxOf(tx *store.Tx, who Actor, id string) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.Find(tx, id)
	return requireVisible(mb, err, who)
}

// ReadMailbox is like MailboxOf, for a caller that only reads: the record is shared and must not be
// changed.
func ReadMailbox(tx *store.Tx, who Actor, id string) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.FindShared(tx, id)
	return requireVisible(mb, err, who)
}

func requireVisible(mb *store.Mailbox, err error, who Actor) (*store.Mailbox, error) {
	if err == nil && (mb == nil || mb.AccountID != who.AccountID || !who.Sees(mb.ID)) {
		return nil, NotFound("email user")
	}
	return mb, err
}

// DomainOf returns a domain of the actor's account. For any other id the error is not_found.
func DomainOf(tx *store.Tx, who Actor, id string) (*store.Domain, error) {
	d, err := store.Domains.Find(tx, id)
	if err == nil && (d == nil || d.AccountID != who.AccountID) {
		return nil, NotFound("domain")
	}
	return d, err
}

// OpenMailbox returns the mailbox of a logged-in user. It returns an error if the mailbox was
// closed, or if the password or credential is no longer valid. The record is shared and must not be
// changed.
func OpenMailbox(tx *store.Tx, u MailboxUser) (*store.Mailbox, error) {
	mb, err := store.Mailboxes.FindShared(tx, u.MailboxID)
	if err != nil {
		return nil, err
	}
	if mb == nil || mb.Status == store.MailboxSuspended || mb.Gone() {
		return nil, Errorf(CodeMailboxClosed, "This mailbox is closed.")
	}
	if u.Own && !u.PasswordAt.Equal(mb.PasswordAt) {
		return nil, Errorf(CodeMailboxClosed, "The password was changed. Log in again.")
	}
	if err := checkCredential(tx, u); err != nil {
		return nil, err
	}
	a, err := store.Accounts.Read(tx, mb.AccountID)
	if err == nil && !a.MayAct() {
		return nil, Errorf(CodeMailboxClosed, "This mailbox is closed.")
	}
	return mb, err
}

func checkCredential(tx *store.Tx, u MailboxUser) error {
	if u.CredentialID == "" {
		return nil
	}
	c, err := store.Credentials.FindShared(tx, u.CredentialID)
	if err == nil && (c == nil || c.Expired(tx.Now())) {
		err = Errorf(CodeMailboxClosed, "This password was revoked or has expired.")
	}
	return err
}

// OpenDomain returns the domain that a logged-in user sends for. The record is shared and must not
// be changed.
func OpenDomain(tx *store.Tx, u MailboxUser) (*store.Domain, error) {
	d, err := store.Domains.FindShared(tx, u.DomainID)
	if err != nil {
		return nil, err
	}
	if d == nil || d.Gone() {
		return nil, Errorf(CodeMailboxClosed, "This domain is closed.")
	}
	if err := checkCredential(tx, u); err != nil {
		return nil, err
	}
	a, err := store.Accounts.Read(tx, d.AccountID)
	if err == nil && !a.MayAct() {
		return nil, Errorf(CodeMailboxClosed, "This account is suspended or closed. Ask its owner.")
	}
	return d, err
}

// MailboxByEmail returns the account's mailbox with an address, which it normalizes, or
// store.ErrNotFound.
func MailboxByEmail(tx *store.Tx, who Actor, email string) (*store.Mailbox, error) {
	email, err := NormalizeEmail("email", email)
	if err != nil {
		return nil, store.ErrNotFound
	}
	mb, err := store.MailboxByEmail.OfAccount(tx, who.AccountID, email)
	if err == nil && !who.Sees(mb.ID) {
		return nil, store.ErrNotFound
	}
	return mb, err
}

// FindDomain returns a domain of the account by id or name, or store.ErrNotFound.
func FindDomain(tx *store.Tx, who Actor, nameOrID string) (*store.Domain, error) {
	d, err := store.Domains.Get(tx, nameOrID)
	if errors.Is(err, store.ErrNotFound) {
		name, bad := msg.NormalizeDomain(nameOrID)
		if bad != nil {
			return nil, store.ErrNotFound
		}
		d, err = store.DomainOfAccount.Get(tx, store.AccountDomainKey(who.AccountID, name))
	}
	if err == nil && d.AccountID != who.AccountID {
		return nil, store.ErrNotFound
	}
	return d, err
}

// EmailUserIn is a request that names one mailbox.
type EmailUserIn struct {
	UserID string `path:"user_id"`
}

// IsGone reports whether the error means that a record does not exist. If the id came from another
// record, the missing record was deleted in the meantime.
func IsGone(err error) bool { return errors.Is(err, store.ErrNotFound) }

// DomainOfAddress returns the part of an address after the @.
func DomainOfAddress(email string) string {
	_, domain, _ := msg.SplitEmail(email)
	return domain
}

// IsHosted reports whether mail to an address is delivered on this server.
func IsHosted(tx *store.Tx, email string) (bool, error) {
	d, err := store.DomainByName.Read(tx, DomainOfAddress(email))
	if IsGone(err) {
		return false, nil
	}
	return err == nil && d.Hosted(), err
}

// IsReadable reports whether mail to an address can be read in an account here: the address is
// hosted on this server, or it is that of a mailbox elsewhere which the account has connected.
// Programs and colleagues may read such mail, so that no secret may go there. In the sandbox, where
// all mail stays and nobody is a stranger, no address counts as readable.
func (s *Core) IsReadable(tx *store.Tx, accountID, email string) (bool, error) {
	if s.Config.Sandbox {
		return false, nil
	}
	hosted, err := IsHosted(tx, email)
	if hosted || err != nil {
		return hosted, err
	}
	local, domain, _ := msg.SplitEmail(email)
	base, _, _ := strings.Cut(local, "+")
	for _, address := range []string{email, base + "@" + domain} {
		_, err := store.MailboxByEmail.OfAccount(tx, accountID, address)
		if !IsGone(err) {
			return err == nil, err
		}
	}
	return false, nil
}

// UnprovenMailbox returns the mailbox with an address in a domain that no account has proven yet.
// It ignores domains whose claim has ended. The error wraps store.ErrNotFound if there is no such
// mailbox, and also if several accounts have one.
func UnprovenMailbox(tx *store.Tx, email string) (found *store.Mailbox, err error) {
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(DomainOfAddress(email)), "") {
		if d.ClaimEnded() {
			continue
		}
		mb, err := store.MailboxByAddress.Find(tx, store.AddressKey(d.ID, email))
		switch {
		case err != nil:
			return nil, err
		case mb == nil:
		case found != nil:
			several := Errorf("not_found", "Several accounts have a mailbox %s and claim its domain; decide with `mailstead domain claim` which has it.", email)
			return nil, several.Because(store.ErrNotFound)
		default:
			found = mb
		}
	}
	if found == nil {
		return nil, store.ErrNotFound
	}
	return found, nil
}

// IsSuppressed reports whether the account must not send to an address.
func IsSuppressed(tx *store.Tx, accountID, email string) (bool, error) {
	found, err := store.Suppressions.FindShared(tx, accountID+email)
	return found != nil, err
}

// Suppress stops the account from sending to an address. An existing suppression stays as it is.
func Suppress(tx *store.Tx, accountID, email, reason, messageID string) error {
	if known, err := IsSuppressed(tx, accountID, email); known || err != nil {
		return err
	}
	return store.Suppressions.Put(tx, &store.Suppression{AccountID: accountID, Email: email, Reason: reason, MessageID: messageID, CreatedAt: tx.Now()})
}

// CodeQuota is the code of errors of a full mailbox, and of an account whose storage is full.
// StorageFull is the message of the latter.
const (
	CodeQuota   = "quota_exceeded"
	StorageFull = "The storage of this account is full. Delete messages of any of its mailboxes, or ask the operator of this server for more."
)

// LimitsOf returns the limits of an account: its own where the operator has set them, else those of
// the installation.
func (s *Core) LimitsOf(a *store.Account) Limits {
	out := s.Settings().Limits
	for _, one := range []struct {
		limit *int
		own   *int
	}{
		{&out.Domains, a.Limits.Domains}, {&out.TeamUsers, a.Limits.TeamUsers}, {&out.Mailboxes, a.Limits.Mailboxes},
		{&out.MailboxesPerDomain, a.Limits.MailboxesPerDomain}, {&out.RecipientsPerAccount, a.Limits.Recipients},
	} {
		if one.own != nil {
			*one.limit = *one.own
		}
	}
	return out
}

// QuotaLeft returns how many bytes can still be stored in a mailbox: what its quota leaves, or the
// storage_bytes of its account if that is less. A negative number means no limit.
func QuotaLeft(tx *store.Tx, mb *store.Mailbox) (int64, error) {
	left, err := tx.StorageLeft(mb.AccountID)
	if err == nil && mb.QuotaBytes != nil {
		var used store.Usage
		used, err = tx.MailboxUsage(mb.Num)
		left = min(left, *mb.QuotaBytes-used.Bytes)
	}
	if left == math.MaxInt64 {
		return -1, err
	}
	return max(left, 0), err
}

// CheckQuota returns the error quota_exceeded if a message of the given size, in bytes, would
// exceed the quota of the mailbox or the storage_bytes of its account.
func CheckQuota(tx *store.Tx, mb *store.Mailbox, size int64) error {
	return CheckQuotaAfter(tx, mb, size, 0)
}

// CheckQuotaAfter is like CheckQuota, for a message that replaces others: their size, freed, does
// not count.
func CheckQuotaAfter(tx *store.Tx, mb *store.Mailbox, size, freed int64) error {
	if mb.QuotaBytes != nil {
		used, err := tx.MailboxUsage(mb.Num)
		if err != nil {
			return err
		}
		if size > max(*mb.QuotaBytes-used.Bytes+freed, 0) {
			return Errorf(CodeQuota, "The mailbox is full. Delete messages, or have its quota_bytes raised.")
		}
	}
	left, err := tx.StorageLeft(mb.AccountID)
	if err == nil && size-freed > left {
		err = Errorf(CodeQuota, StorageFull)
	}
	return err
}

// LiftSuppression removes the suppression of an address, if there is one. It is called when a
// mailbox gets the address.
func LiftSuppression(tx *store.Tx, accountID, email string) error {
	known, err := IsSuppressed(tx, accountID, email)
	if !known || err != nil {
		return err
	}
	return store.Suppressions.Delete(tx, accountID+email)
}

// FindAccount returns an account by its id or its owner's address; for "" it returns the first
// account. The error is not_found.
func FindAccount(tx *store.Tx, name string) (*store.Account, error) {
	for a := range store.Accounts.All(tx) {
		if name == "" || a.ID == name || a.Email == name {
			return a, nil
		}
	}
	if name == "" {
		return nil, Errorf("not_found", "There is no account yet.")
	}
	return nil, Errorf("not_found", "There is no account %.80q: `mailstead account list` shows those that there are.", name)
}

// IsOperator reports whether a user runs the installation: the owner of its first account, and
// admins of that account whom the owner allows it.
func IsOperator(tx *store.Tx, u *store.User) (bool, error) {
	if u.Role != store.UserRoleOwner && (u.Role != store.UserRoleAdmin || !u.Operator) {
		return false, nil
	}
	return IsFirstAccount(tx, u.AccountID)
}

// IsFirstAccount reports whether an account is the first one, which is the operator's own.
func IsFirstAccount(tx *store.Tx, id string) (bool, error) {
	first, err := FindAccount(tx, "")
	return err == nil && id == first.ID, err
}

// Hop returns what is needed to send through the relay.
func (r *Relay) Hop() deliver.Relay {
	return deliver.Relay{Host: r.Host, Port: r.Port, TLS: cmp.Or(r.TLS, "starttls"), Username: r.Username, Password: r.Password}
}

// Routes of a message to a recipient.
const (
	ViaLocal   = "local"   // into a mailbox on this server
	ViaCapture = "capture" // not delivered, only stored
	ViaRelay   = "relay"
	ViaDirect  = "direct" // to the MX hosts of the recipient's domain

	ViaSimulator = "simulator" // to a simulated recipient
)

// CheckNotSuspended returns an error if the user's account is suspended.
func CheckNotSuspended(tx *store.Tx, u *store.User) error {
	a, err := store.Accounts.Get(tx, u.AccountID)
	if err == nil && !a.MayAct() {
		return ErrSuspended()
	}
	return err
}

func ErrSuspended() *Error {
	return Errorf("account_suspended", "This account is suspended. Ask the operator of this server.")
}

// ErrLinked is the error for what a session that began with the operator's link must not do.
func ErrLinked(what string) *Error {
	return Errorf("forbidden_role", "%s is not for the operator, who has signed in to this account with a link: it makes, shows or changes access. The owner can do it.", what)
}

// ErrSignedOut is the error for a session that has ended.
func ErrSignedOut() *Error {
	return Errorf("unauthorized", "You are not signed in, or your session has ended. Sign in again.")
}

const WebhookLimit = 10

// LimitOrNil returns a limit in the form of the API: null for 0, which means no limit.
func LimitOrNil(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// Count calls add to change the account's statistics of today (UTC), and stores them.
func (s *Core) Count(tx *store.Tx, accountID string, add func(*store.DayStat)) error {
	date := tx.Now().Format(time.DateOnly)
	d, err := store.DayStats.Find(tx, accountID+date)
	if err != nil {
		return err
	}
	if d == nil {
		d = &store.DayStat{AccountID: accountID, Date: date}
	}
	add(d)
	return store.DayStats.Put(tx, d)
}

// UserOfMailbox returns the user record of a mailbox. It creates the record if there is none.
func UserOfMailbox(tx *store.Tx, mb *store.Mailbox) (*store.User, error) {
	u, err := store.UserByMailbox.Find(tx, mb.ID)
	if u != nil || err != nil {
		return u, err
	}
	u = &store.User{
		ID: tx.NewID("usr"), AccountID: mb.AccountID, MailboxID: mb.ID, Email: mb.Email, Role: store.UserRoleMailbox, Status: store.UserActive,
		CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
	}
	return u, store.Users.Put(tx, u)
}

// RemoteBox returns the sync state of an external mailbox; an empty one if it was never synced.
func RemoteBox(tx *store.Tx, mb *store.Mailbox) (*store.RemoteBox, error) {
	box, err := store.RemoteBoxes.Find(tx, mb.ID)
	if box == nil && err == nil {
		return &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID}, nil
	}
	return box, err
}

// IsStoreError reports whether the store is full, has failed or is closed.
func IsStoreError(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed)
}

// DomainByID returns a domain of any account.
func (c *Core) DomainByID(id string) (*store.Domain, error) {
	var d *store.Domain
	err := c.Store.View(func(tx *store.Tx) (err error) {
		d, err = store.Domains.Get(tx, id)
		return err
	})
	return d, err
}

// DomainBusy returns the error for a request that must wait for the job that works on the domain.
// It names the job.
func DomainBusy(d *store.Domain, why string) *Error {
	return Errorf("domain_busy", "%s %s. Wait for the job %s.", d.Name, why, d.JobID).With(d.JobID, "domain_busy", "works on the domain")
}
