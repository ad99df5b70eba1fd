package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// A HostedAccount is an account of the installation as its operator sees it.
type HostedAccount struct {
	AccountID  string        `json:"account_id" words:"ours" example:"acc_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name       string        `json:"name" words:"theirs" example:"Example Ltd"`
	OwnerEmail string        `json:"owner_email" words:"ours"`
	Status     string        `json:"status" enum:"active|suspended|deleting"` // deleting: suspended until delete_at, and then deleted.
	Plan       string        `json:"plan" enum:"startup|enterprise"`
	Limits     AccountLimits `json:"limits"` // What was set for this account alone.
	Used       AccountUse    `json:"used"`
	CreatedAt  core.Time     `json:"created_at"`
	DeleteAt   core.Time     `json:"delete_at"` // When it will be deleted; null if it stays, and once the deletion runs.
}

// AccountLimits are the limits of one account. null: the limit of the installation applies.
type AccountLimits struct {
	Domains            *int   `json:"domains" example:"100"` // 0 is unlimited, as for the others; null is the installation's limit.
	EmailUsers         *int   `json:"email_users" example:"1000"`
	MailboxesPerDomain *int   `json:"mailboxes_per_domain" example:"100"`
	TeamUsers          *int   `json:"team_users" example:"25"`
	Recipients         *int   `json:"recipients_per_account_per_day" example:"10000"`
	StorageBytes       *int64 `json:"storage_bytes" example:"100000000000"` // Of all stored messages together.
}

// AccountUse is what an account uses of its limits.
type AccountUse struct {
	Domains      int   `json:"domains" example:"3"`
	EmailUsers   int   `json:"email_users" example:"20"`
	TeamUsers    int   `json:"team_users" example:"2"`
	Recipients   int64 `json:"recipients_today" example:"120"` // To how many recipients it has sent today (UTC).
	StorageBytes int64 `json:"storage_bytes"`
}

func hostedStatus(a *store.Account) string {
	if a.DeletionPlanned() {
		return store.AccountDeleting
	}
	return a.Status
}

func hostedOut(tx *store.Tx, a *store.Account) (HostedAccount, error) {
	stored, err := tx.AccountUsage(a.Num)
	if err != nil {
		return HostedAccount{}, err
	}
	day, err := store.DayStats.FindShared(tx, a.ID+tx.Now().Format(time.DateOnly))
	if err != nil {
		return HostedAccount{}, err
	}
	out := HostedAccount{
		AccountID: a.ID, Name: a.Name, OwnerEmail: a.Email, Status: hostedStatus(a), Plan: a.Plan,
		Limits: AccountLimits{
			Domains: a.Limits.Domains, EmailUsers: a.Limits.Mailboxes, MailboxesPerDomain: a.Limits.MailboxesPerDomain,
			TeamUsers: a.Limits.TeamUsers, Recipients: a.Limits.Recipients, StorageBytes: a.Limits.StorageBytes,
		},
		Used: AccountUse{
			Domains: store.DomainsByAccount.Count(tx, a.ID, 0), EmailUsers: store.MailboxesByAccount.Count(tx, a.ID, 0),
			TeamUsers: store.UsersByAccount.Count(tx, a.ID, 0), StorageBytes: stored.Bytes,
		},
		CreatedAt: core.Time{Time: a.CreatedAt}, DeleteAt: core.Time{Time: a.DeleteAt},
	}
	if day != nil {
		out.Used.Recipients = day.Sent
	}
	return out, nil
}

// HostedAccountOf returns an account of the installation by its id. The error is not_found if there
// is none.
func HostedAccountOf(tx *store.Tx, id string) (*store.Account, error) {
	a, err := store.Accounts.Find(tx, id)
	if err == nil && a == nil {
		err = core.Errorf("not_found", "There is no account with this id.")
	}
	return a, err
}

// ListHostedAccountsIn is the query of list_accounts.
type ListHostedAccountsIn struct {
	page.Query
	Q      string `query:"q" max:"200"` // A part of the account's name or of its owner's address.
	Status string `query:"status" enum:"active|suspended|deleting|"`
}

// ListHostedAccounts lists the accounts of the installation, newest first.
func (s *Service) ListHostedAccounts(_ context.Context, who core.Actor, in ListHostedAccountsIn) (*page.Page[HostedAccount], error) {
	q := strings.ToLower(in.Q)
	l := page.Listing[store.Account, HostedAccount]{
		Operation: "accounts", Index: store.AccountByNum, Filters: []string{q, in.Status}, Prefilter: page.HasFolded(q), Out: hostedOut,
		Keep: func(a *store.Account) bool {
			return (in.Status == "" || hostedStatus(a) == in.Status) && (strings.Contains(strings.ToLower(a.Name), q) || strings.Contains(a.Email, q))
		},
	}
	return l.Page(s.Core, who, in.Query)
}

// HostedAccountIn names one account of the installation.
type HostedAccountIn struct {
	AccountID string `path:"account_id"`
}

// GetHostedAccount returns one account of the installation.
func (s *Service) GetHostedAccount(_ context.Context, _ core.Actor, in HostedAccountIn) (*HostedAccount, error) {
	var out HostedAccount
	err := s.Store.View(func(tx *store.Tx) error {
		a, err := HostedAccountOf(tx, in.AccountID)
		if err != nil {
			return err
		}
		out, err = hostedOut(tx, a)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// AccountLimitsIn changes limits of an account. Absent ones stay as they are. With null, the limit
// of the installation applies again.
type AccountLimitsIn struct {
	Domains            core.Opt[int]   `json:"domains" min:"0" max:"1000000" example:"100"` // 0 is unlimited, as for the others; null is the installation's limit.
	EmailUsers         core.Opt[int]   `json:"email_users" min:"0" max:"100000000" example:"1000"`
	MailboxesPerDomain core.Opt[int]   `json:"mailboxes_per_domain" min:"0" max:"100000000" example:"100"`
	TeamUsers          core.Opt[int]   `json:"team_users" min:"0" max:"1000000" example:"25"`
	Recipients         core.Opt[int]   `json:"recipients_per_account_per_day" min:"0" max:"1000000000" example:"10000"`
	StorageBytes       core.Opt[int64] `json:"storage_bytes" min:"0" max:"1000000000000000" example:"100000000000"` // Of all stored messages together.
}

func (in *AccountLimitsIn) applyTo(l *store.AccountLimits) {
	for _, one := range []struct {
		limit **int
		given core.Opt[int]
	}{
		{&l.Domains, in.Domains}, {&l.Mailboxes, in.EmailUsers}, {&l.MailboxesPerDomain, in.MailboxesPerDomain},
		{&l.TeamUsers, in.TeamUsers}, {&l.Recipients, in.Recipients},
	} {
		if one.given.Set {
			*one.limit = one.given.OrNil()
		}
	}
	if in.StorageBytes.Set {
		l.StorageBytes = in.StorageBytes.OrNil()
	}
}

// CreateHostedAccountIn is the body of create_account.
type CreateHostedAccountIn struct {
	Name          string           `json:"name" required:"true" min:"1" max:"100" example:"Example Ltd"`
	OwnerEmail    string           `json:"owner_email" required:"true" max:"254"`
	OwnerPassword *string          `json:"owner_password"` // The owner chooses another when they sign in. Without it the answer has a reset_link.
	Plan          *string          `json:"plan" enum:"startup|enterprise"`
	Limits        *AccountLimitsIn `json:"limits"` // Limits of this account alone.
}

// HostedAccountCreated is a new account.
type HostedAccountCreated struct {
	HostedAccount
	// A link with which its owner chooses a password, valid once within 72 hours. Only present if
	// no password was given.
	ResetLink string `json:"reset_link,omitempty" words:"ours"`
}

// CreateHostedAccount makes an account with its owner.
func (s *Service) CreateHostedAccount(ctx context.Context, who core.Actor, in CreateHostedAccountIn) (*HostedAccountCreated, error) {
	draft := NewAccount{OwnerEmail: in.OwnerEmail, OwnerPassword: core.NewPassword()}
	if in.OwnerPassword != nil {
		draft.OwnerPassword = *in.OwnerPassword
	}
	if in.Plan != nil {
		draft.Plan = *in.Plan
	}
	if err := core.CheckLine("name", in.Name); err != nil {
		return nil, err
	}
	account, owner, err := s.draftAccount(draft, in.Name)
	if err != nil {
		return nil, err
	}
	out := new(HostedAccountCreated)
	if in.OwnerPassword != nil {
		owner.PasswordGiven = true
	} else {
		owner.Status, out.ResetLink = store.UserInvited, s.NewResetLink(owner)
	}
	if in.Limits != nil {
		in.Limits.applyTo(&account.Limits)
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := putAccount(tx, account, owner); err != nil {
			return err
		}
		out.HostedAccount, err = hostedOut(tx, account)
		if err != nil {
			return err
		}
		return errors.Join(core.AuditHosted(tx, who, account.ID, core.AccountTarget(account)), once.KeepAnswer(ctx, s.Core, tx, out))
	})
	if err != nil {
		return nil, err
	}
	s.LogOf(ctx).Info("account created", "account", account.ID, "by", who.UserID)
	return out, nil
}

// UpdateHostedAccountIn is the body of update_account_by_id.
type UpdateHostedAccountIn struct {
	AccountID string           `path:"account_id"`
	Name      *string          `json:"name" min:"1" max:"100" example:"Example Ltd"`
	Status    *string          `json:"status" enum:"active|suspended"` // active also ends a deletion.
	Plan      *string          `json:"plan" enum:"startup|enterprise"`
	Limits    *AccountLimitsIn `json:"limits"` // Limits of this account alone; those that are left out stay.
}

// UpdateHostedAccount changes an account of the installation, suspends or resumes it, or ends its
// deletion. The error is owner_protected if the first account is to be suspended.
func (s *Service) UpdateHostedAccount(ctx context.Context, who core.Actor, in UpdateHostedAccountIn) (*HostedAccount, error) {
	if in.Name != nil {
		if err := core.CheckLine("name", *in.Name); err != nil {
			return nil, err
		}
	}
	var out HostedAccount
	changed := false
	err := s.Store.Update(func(tx *store.Tx) error {
		changed = false
		a, err := HostedAccountOf(tx, in.AccountID)
		if err != nil {
			return err
		}
		if in.Status != nil {
			first, err := core.IsFirstAccount(tx, a.ID)
			if err == nil && first && *in.Status == store.AccountSuspended {
				err = errFirstAccount("cannot be suspended")
			}
			if err == nil {
				changed, err = s.changeStatus(tx, a, *in.Status)
			}
			if err != nil {
				return err
			}
		}
		if in.Name != nil {
			a.Name = *in.Name
		}
		if in.Plan != nil {
			a.Plan = *in.Plan
		}
		if in.Limits != nil {
			in.Limits.applyTo(&a.Limits)
		}
		a.UpdatedAt = tx.Now()
		if err := errors.Join(store.Accounts.Put(tx, a), core.AuditHosted(tx, who, a.ID, core.AccountTarget(a))); err != nil {
			return err
		}
		out, err = hostedOut(tx, a)
		return err
	})
	if err == nil && changed {
		err = s.applyStatus(ctx, out.AccountID, *in.Status)
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// deletionDelay is how long an account is suspended before it is deleted.
const deletionDelay = 7 * 24 * time.Hour

// DeleteHostedAccountIn is a request to delete an account.
type DeleteHostedAccountIn struct {
	AccountID string `path:"account_id"`
	Confirm   string `query:"confirm" required:"true" max:"300" example:"Example Ltd"` // The name of the account, as it is shown.
}

// HostedAccountDeleted is an account that will be deleted.
type HostedAccountDeleted struct {
	HostedAccount
	Names []string `json:"names" words:"ours" example:"example.com"` // Its domains whose nameservers or records still lead to this server.
	job   string   // the id of the job that deletes it
}

// Location returns the path in the API of the job that deletes the account.
func (d *HostedAccountDeleted) Location() string { return "/v1/jobs/" + d.job }

// DeleteHostedAccount suspends an account, tells its owner by mail, and plans its deletion. Another
// request changes nothing.
func (s *Service) DeleteHostedAccount(ctx context.Context, who core.Actor, in DeleteHostedAccountIn) (*HostedAccountDeleted, error) {
	out := new(HostedAccountDeleted)
	var account *store.Account
	read := func(tx *store.Tx) error {
		a, err := HostedAccountOf(tx, in.AccountID)
		if err != nil {
			return err
		}
		first, err := core.IsFirstAccount(tx, a.ID)
		switch {
		case err != nil:
			return err
		case first:
			return errFirstAccount("cannot be deleted")
		case in.Confirm != a.Name:
			return core.Invalid("confirm", "invalid", "must be the name of the account as it is shown, %q", a.Name)
		}
		account = a
		out.HostedAccount, err = hostedOut(tx, a)
		out.Names, out.job = namesPointingHere(tx, a.ID), a.DeleteJob
		return err
	}
	if err := s.Store.View(read); err != nil {
		return nil, err
	}
	if out.Status == store.AccountDeleting {
		return out, nil
	}
	at := s.Now().Add(deletionDelay).Truncate(time.Second)
	wasActive := false
	_, err := s.outbound.SendHostMail(s.deletionLetter(account, out.Names, at), func(tx *store.Tx) (bool, error) {
		wasActive = false
		if err := read(tx); err != nil || out.Status == store.AccountDeleting {
			return false, err
		}
		if account.Status == store.AccountActive {
			wasActive = true
			if _, err := s.changeStatus(tx, account, store.AccountSuspended); err != nil {
				return false, err
			}
		}
		if err := s.planDeletion(tx, account, at, who.UserID); err != nil {
			return false, err
		}
		account.DeleteAt, account.UpdatedAt, out.job = at, tx.Now(), account.DeleteJob
		err := errors.Join(store.Accounts.Put(tx, account), core.AuditHosted(tx, who, account.ID, core.AccountTarget(account)))
		if err != nil {
			return false, err
		}
		out.HostedAccount, err = hostedOut(tx, account)
		return true, err
	})
	if err == nil && wasActive {
		err = s.applyStatus(ctx, account.ID, store.AccountSuspended)
	}
	if err != nil {
		return nil, alert.Refused(err, s.Now())
	}
	return out, nil
}

// namesPointingHere returns the names of an account's domains that still lead to this server, as
// far as the last look has found.
func namesPointingHere(tx *store.Tx, accountID string) []string {
	names := []string{}
	for _, d := range store.DomainsByAccount.Asc(tx, accountID, "") {
		here := d.NSStatus == store.DomainNSVerified || d.DNSStatus == store.DomainDNSComplete
		if here && d.DNSProvider != store.DomainProviderExternal && !d.ClaimEnded() {
			names = append(names, d.Name)
		}
	}
	return names
}

// maxLetterNames is how many domains the letter about a deletion names.
const maxLetterNames = 50

// deletionLetter returns the message that tells the owner of an account that it will be deleted.
func (s *Service) deletionLetter(a *store.Account, names []string, at time.Time) alert.HostMail {
	text := fmt.Sprintf("The operator of %s will delete your account %q on %s.\n\n"+
		"Until then the account is suspended: nobody can sign in, and no mail is received or sent. After that, its domains, mailboxes and mail are gone and cannot be restored.\n\n",
		s.Hostname(), a.Name, alert.TimeText(at))
	if len(names) > 0 {
		list := strings.Join(names[:min(len(names), maxLetterNames)], ", ")
		if more := len(names) - maxLetterNames; more > 0 {
			list += fmt.Sprintf(" and %d more", more)
		}
		text += fmt.Sprintf("These domains still lead to this server: %s. Change their nameservers or records before that day.\n\n", list)
	}
	text += "If you want to keep the account, answer this email before that day.\n"
	return alert.HostMail{About: a.ID, To: a.Email, Subject: "Your account on " + s.Hostname() + " will be deleted", Text: text}
}
