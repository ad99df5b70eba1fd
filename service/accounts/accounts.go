package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// planRates holds the request limits of the plans: the steady rate in requests a minute, and the
// burst limit.
var planRates = map[string][2]int{"startup": {300, 500}, "enterprise": {500, 800}}

// RateLimits returns the steady rate and the burst limit of a plan. Limits that the installation
// sets replace those of the plan.
func RateLimits(l core.Limits, plan string) (steady, burst int) {
	r, ok := planRates[plan]
	if !ok {
		r = planRates["startup"]
	}
	if l.RatePerMinute > 0 {
		r[0], r[1] = l.RatePerMinute, max(r[1], l.RatePerMinute)
	}
	if l.BurstPerMinute > 0 {
		r[1] = l.BurstPerMinute
	}
	return r[0], r[1]
}

// An Account is the account as the API shows it.
type Account struct {
	ID                    string         `json:"id" words:"ours" example:"acc_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name                  string         `json:"name" words:"ours" example:"Example Ltd"`
	Email                 string         `json:"email" words:"ours"`
	Plan                  string         `json:"plan" enum:"startup|enterprise"`
	Status                string         `json:"status" enum:"active|suspended"`
	DomainsLimit          int            `json:"domains_limit"`
	DomainsUsed           int            `json:"domains_used"`
	EmailUsersLimit       *int           `json:"email_users_limit"`
	EmailUsersUsed        int            `json:"email_users_used"`
	TeamUsersLimit        int            `json:"team_users_limit"`
	TeamUsersUsed         int            `json:"team_users_used"`
	WebhooksLimit         int            `json:"webhooks_limit"`
	WebhooksUsed          int            `json:"webhooks_used"`
	UniversalInboxEnabled bool           `json:"universal_inbox_enabled"`
	WarmupPhrases         []string       `json:"warmup_phrases" words:"ours"` // Mail that contains one of them is marked as warm-up.
	WarmupHeaders         []WarmupHeader `json:"warmup_headers"`              // Mail with one of these header fields is marked as warm-up.
	WarmupFolder          *string        `json:"warmup_folder" words:"ours"`  // The folder in which proven warm-up mail is filed; null files it as other mail.
	WarmupDays            int            `json:"warmup_days"`                 // How long it is kept there.
	DefaultDMARC          string         `json:"default_dmarc" words:"ours"`
	RateLimit             AccountRate    `json:"rate_limit"`
	Nameservers           []string       `json:"nameservers" words:"ours"`
	Mail                  AccountMail    `json:"mail"`
	Registrars            []string       `json:"registrars" words:"ours"`
	APIToken              AccountToken   `json:"api_token"`
	User                  *AccountUser   `json:"user"`
	Version               string         `json:"version" words:"ours"`
	CreatedAt             core.Time      `json:"created_at"`
}

// A WarmupHeader is a header field by which warm-up mail is recognized.
type WarmupHeader struct {
	Name  string  `json:"name" required:"true" words:"ours" max:"100" example:"X-Warmup-Id"` // Begins with `X-`; upper and lower case are the same.
	Value *string `json:"value" words:"ours" max:"200" example:"7f3a"`                       // The whole value, without blanks around it; null for any.
}

// AccountRate is the account's request limits.
type AccountRate struct {
	PerMinute int `json:"per_minute"`
	Burst     int `json:"burst"`
}

// AccountMail holds the settings for mail clients, and the name of the relay.
type AccountMail struct {
	Hostname string  `json:"hostname" words:"ours"`
	SMTPHost string  `json:"smtp_host" words:"ours"`
	SMTPPort int     `json:"smtp_port"`
	IMAPHost string  `json:"imap_host" words:"ours"`
	IMAPPort int     `json:"imap_port"`
	Relay    *string `json:"relay" words:"ours"` // The name of the relay for this mail; null for the default route.
}

// AccountToken is the token of this request.
type AccountToken struct {
	ID          string    `json:"id" words:"ours" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"` // `local` for the command line on the server itself.
	Name        string    `json:"name" words:"ours" example:"deploy script"`
	Permissions []string  `json:"permissions" enum:"read|write|purchase|admin"` // Some of read, write, purchase and admin; each includes those before it.
	ExpiresAt   core.Time `json:"expires_at"`
}

// AccountUser is the team user that the token acts for.
type AccountUser struct {
	ID    string `json:"id" words:"ours" example:"usr_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Email string `json:"email" words:"ours"`
	Role  string `json:"role" enum:"owner|admin|member"`
}

// GetAccount returns the caller's account.
func (s *Service) GetAccount(_ context.Context, who core.Actor) (*Account, error) {
	var out *Account
	err := s.Store.View(func(tx *store.Tx) (err error) {
		out, err = s.accountOut(tx, who)
		return err
	})
	return out, err
}

func (s *Service) accountOut(tx *store.Tx, who core.Actor) (*Account, error) {
	a, err := store.Accounts.Get(tx, who.AccountID)
	if err != nil {
		return nil, err
	}
	l := s.LimitsOf(a)
	steady, burst := RateLimits(l, a.Plan)
	out := &Account{
		ID: a.ID, Name: a.Name, Email: a.Email, Plan: a.Plan, Status: a.Status,
		DomainsLimit: l.Domains, DomainsUsed: store.DomainsByAccount.Count(tx, a.ID, 0),
		EmailUsersLimit: core.LimitOrNil(l.Mailboxes), EmailUsersUsed: store.MailboxesByAccount.Count(tx, a.ID, 0),
		TeamUsersLimit: l.TeamUsers, TeamUsersUsed: store.UsersByAccount.Count(tx, a.ID, 0),
		WebhooksLimit: core.WebhookLimit, WebhooksUsed: store.WebhooksByAccount.Count(tx, a.ID, 0),
		UniversalInboxEnabled: a.UniversalInbox, WarmupPhrases: append([]string{}, a.WarmupPhrases...),
		WarmupHeaders: []WarmupHeader{}, WarmupFolder: core.OrNull(a.WarmupFolder), WarmupDays: cmp.Or(a.WarmupDays, core.DefaultWarmupDays),
		DefaultDMARC: dmarc.Default, RateLimit: AccountRate{steady, burst},
		Nameservers: append([]string{}, s.Config.Nameservers...), Registrars: []string{},
		Mail:     AccountMail{Hostname: s.Config.Hostname, SMTPHost: s.Config.ClientName(), SMTPPort: s.Config.SubmissionPort, IMAPHost: s.Config.ClientName(), IMAPPort: s.Config.IMAPPort},
		APIToken: AccountToken{ID: who.TokenID, Permissions: who.Permissions},
		User:     &AccountUser{who.UserID, who.Email, who.Role},
		Version:  s.Config.Version, CreatedAt: core.Time{Time: a.CreatedAt},
	}
	for _, h := range a.WarmupHeaders {
		out.WarmupHeaders = append(out.WarmupHeaders, WarmupHeader{h.Name, h.Value})
	}
	for _, shop := range s.Settings().Registrars {
		out.Registrars = append(out.Registrars, shop.Name())
	}
	if relays := s.Settings().Relays; len(relays) > 0 {
		out.Mail.Relay = &relays[0].Name
	}
	t, err := store.Tokens.Find(tx, who.TokenID)
	if t != nil { // requests on the local socket have no token
		out.APIToken.Name, out.APIToken.ExpiresAt = t.Name, core.Time{Time: t.ExpiresAt}
	}
	return out, err
}

// UpdateAccountIn is the body of update_account.
type UpdateAccountIn struct {
	Name          *string          `json:"name" min:"1" max:"100" example:"Example Ltd"`
	WarmupPhrases *[]string        `json:"warmup_phrases" max:"100"`                 // Mail that contains one of them is marked as warm-up.
	WarmupHeaders *[]WarmupHeader  `json:"warmup_headers" max:"20"`                  // Mail that arrives with one of these header fields is marked as warm-up.
	WarmupFolder  core.Opt[string] `json:"warmup_folder"`                            // The folder for warm-up mail whose author DMARC proves; it is made when it is first needed, and is no standard folder.
	WarmupDays    *int             `json:"warmup_days" min:"1" max:"365" log:"true"` // How long warm-up mail is kept in that folder; 7 by default.
}

// UpdateAccount changes the account's name, and what is warm-up mail and what becomes of it. New
// phrases also mark the mail that is already stored.
func (s *Service) UpdateAccount(_ context.Context, who core.Actor, in UpdateAccountIn) (*Account, error) {
	var phrases []string
	var headers []store.WarmupHeader
	folder := ""
	var err error
	if in.WarmupPhrases != nil {
		phrases, err = cleanPhrases(*in.WarmupPhrases)
		if err != nil {
			return nil, err
		}
	}
	if in.WarmupHeaders != nil {
		headers, err = cleanHeaders(*in.WarmupHeaders)
		if err != nil {
			return nil, err
		}
	}
	if in.WarmupFolder.Set && !in.WarmupFolder.Null {
		folder, err = s.inbox.CleanWarmupFolder(in.WarmupFolder.Value)
		if err != nil {
			return nil, err
		}
	}
	var out *Account
	err = s.Store.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, who.AccountID)
		if err != nil {
			return err
		}
		if in.Name != nil {
			a.Name = *in.Name
		}
		marks := false // whether other mail is marked as warm-up from now on
		if in.WarmupPhrases != nil && !slices.Equal(a.WarmupPhrases, phrases) {
			a.WarmupPhrases, marks = phrases, true
		}
		if in.WarmupHeaders != nil && !slices.EqualFunc(a.WarmupHeaders, headers, sameHeader) {
			a.WarmupHeaders, marks = headers, true
		}
		if marks {
			if err := s.inbox.PlanWarmup(tx, a.ID); err != nil {
				return err
			}
		}
		if in.WarmupFolder.Set {
			a.WarmupFolder = folder
		}
		if in.WarmupDays != nil {
			a.WarmupDays = *in.WarmupDays
		}
		a.UpdatedAt = tx.Now()
		if err := store.Accounts.Put(tx, a); err != nil {
			return err
		}
		return core.Audit(tx, who, core.AccountTarget(a))
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.View(func(tx *store.Tx) (err error) {
		out, err = s.accountOut(tx, who)
		return err
	})
	return out, err
}

func cleanPhrases(in []string) ([]string, error) {
	out := []string{}
	for _, p := range in {
		p = strings.TrimSpace(p)
		if p == "" || utf8.RuneCountInString(p) > 200 {
			return nil, core.Invalid("warmup_phrases", "out_of_range", "each phrase must have 1 to 200 characters")
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// cleanHeaders checks header fields of warm-up mail, and returns them without blanks around the
// values and without duplicates.
func cleanHeaders(in []WarmupHeader) (out []store.WarmupHeader, err error) {
	for i, h := range in {
		name := strings.ToLower(h.Name)
		if !strings.HasPrefix(name, "x-") || len(name) < 3 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
			return nil, core.Invalid(fmt.Sprintf("warmup_headers.%d.name", i), "invalid", "must be the name of a header field that begins with X-")
		}
		one := store.WarmupHeader{Name: h.Name}
		if h.Value != nil {
			value := strings.TrimSpace(*h.Value)
			if strings.ContainsFunc(value, unicode.IsControl) {
				return nil, core.Invalid(fmt.Sprintf("warmup_headers.%d.value", i), "invalid", "must not contain control characters")
			}
			one.Value = &value
		}
		if !slices.ContainsFunc(out, func(o store.WarmupHeader) bool { return sameHeader(o, one) }) {
			out = append(out, one)
		}
	}
	return out, nil
}

// sameHeader reports whether two header fields match the same mail.
func sameHeader(a, b store.WarmupHeader) bool {
	sameValue := a.Value == nil && b.Value == nil || a.Value != nil && b.Value != nil && *a.Value == *b.Value
	return strings.EqualFold(a.Name, b.Name) && sameValue
}

// Usage is the account's use of its limits.
type Usage struct {
	Domains    Used           `json:"domains"`
	EmailUsers Used           `json:"email_users"`
	TeamUsers  Used           `json:"team_users"`
	Webhooks   Used           `json:"webhooks"`
	APITokens  Used           `json:"api_tokens"`
	Storage    StorageUsage   `json:"storage"`
	Messages   MessageUsage   `json:"messages"`
	RateLimit  core.RateUsage `json:"rate_limit"`
	Daily      []DayUsage     `json:"daily"`
	AsOf       core.Time      `json:"as_of"`
}

// Used is a count with its limit; a limit of null means unlimited.
type Used struct {
	Used  int  `json:"used" example:"3"`
	Limit *int `json:"limit" example:"500"` // The limit; null is unlimited.
}

// StorageUsage counts stored mail.
type StorageUsage struct {
	UsedBytes  int64  `json:"used_bytes"`
	LimitBytes *int64 `json:"limit_bytes"`
	Messages   int64  `json:"messages"`
}

// MessageUsage counts traffic.
type MessageUsage struct {
	SentToday     int64 `json:"sent_today"`
	Sent30d       int64 `json:"sent_30d"`
	Received30d   int64 `json:"received_30d"`
	Bounced30d    int64 `json:"bounced_30d"`
	Complained30d int64 `json:"complained_30d"`
	Queued        int64 `json:"queued"`
}

// DayUsage is one UTC day's traffic.
type DayUsage struct {
	Date       string `json:"date" words:"ours"`
	Sent       int64  `json:"sent"`
	Received   int64  `json:"received"`
	Bounced    int64  `json:"bounced"`
	Complained int64  `json:"complained"`
}

// GetUsage returns how much of each limit the account has used.
func (s *Service) GetUsage(_ context.Context, who core.Actor) (*Usage, error) {
	var out *Usage
	err := s.Store.View(func(tx *store.Tx) (err error) {
		out, err = s.usageOut(tx, who)
		return err
	})
	return out, err
}

func (s *Service) usageOut(tx *store.Tx, who core.Actor) (*Usage, error) {
	a, err := store.Accounts.Read(tx, who.AccountID)
	if err != nil {
		return nil, err
	}
	l := s.LimitsOf(a)
	stored, err := tx.AccountUsage(who.AccountNum)
	if err != nil {
		return nil, err
	}
	out := &Usage{
		Domains:    Used{store.DomainsByAccount.Count(tx, who.AccountID, 0), core.LimitOrNil(l.Domains)},
		EmailUsers: Used{store.MailboxesByAccount.Count(tx, who.AccountID, 0), core.LimitOrNil(l.Mailboxes)},
		TeamUsers:  Used{store.UsersByAccount.Count(tx, who.AccountID, 0), core.LimitOrNil(l.TeamUsers)},
		Webhooks:   Used{store.WebhooksByAccount.Count(tx, who.AccountID, 0), core.LimitOrNil(core.WebhookLimit)},
		Storage:    StorageUsage{UsedBytes: stored.Bytes, Messages: stored.Messages},
		RateLimit:  who.Rate,
		AsOf:       core.Time{Time: tx.Now()},
	}
	if most := a.Limits.StorageBytes; most != nil && *most > 0 {
		out.Storage.LimitBytes = most
	}
	for _, t := range store.TokensByAccount.Asc(tx, who.AccountID, "") {
		if t.RevokedAt.IsZero() && t.Kind != core.SessionKind {
			out.APITokens.Used++
		}
	}
	out.Messages.Queued = int64(store.OutgoingsWaiting.Count(tx, who.AccountID, 0))
	return out, s.addDays(tx, who.AccountID, out)
}

// addDays adds the traffic of the last thirty days, including days without any.
func (s *Service) addDays(tx *store.Tx, accountID string, out *Usage) error {
	today := tx.Now().Truncate(24 * time.Hour)
	for day := today.AddDate(0, 0, -29); !day.After(today); day = day.AddDate(0, 0, 1) {
		date := day.Format(time.DateOnly)
		d, err := store.DayStats.Find(tx, accountID+date)
		if err != nil {
			return err
		}
		if d == nil {
			d = &store.DayStat{}
		}
		out.Daily = append(out.Daily, DayUsage{date, d.Sent, d.Received, d.Bounced, d.Complained})
		m := &out.Messages
		m.SentToday = d.Sent
		m.Sent30d += d.Sent
		m.Received30d += d.Received
		m.Bounced30d += d.Bounced
		m.Complained30d += d.Complained
	}
	return nil
}

// NewAccount describes an account to create.
type NewAccount struct {
	OwnerEmail    string
	OwnerPassword string // "": generated
	Plan          string // "": the installation's default
	First         bool   // refuse if an account exists already
}

// AccountCreated is a new account with its secrets, which are shown only once.
type AccountCreated struct {
	AccountID     string `json:"account_id"`
	UserID        string `json:"user_id"`
	OwnerEmail    string `json:"owner_email"`
	OwnerPassword string `json:"owner_password"`
	Token         string `json:"token"`
	WelcomeLink   string `json:"welcome_link,omitempty"` // where the owner chooses address and password, once, within 72 hours; only a path if the server's host name is not known; "" if the password was given
}

// CreateAccount makes an account with its owner and an admin token. It is for the operator on the
// server itself.
func (s *Service) CreateAccount(_ context.Context, in NewAccount) (*AccountCreated, error) {
	given := in.OwnerPassword != ""
	if !given {
		in.OwnerPassword = core.NewPassword()
	}
	if in.First { // only the command that has the store to itself asks for the first one
		err := s.Store.View(func(tx *store.Tx) error {
			if _, err := core.FindAccount(tx, ""); err == nil {
				return core.Errorf("already_initialised", "This data directory has an account already. Use `mailstead account create` for another one.")
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	account, owner, err := s.draftAccount(in, "")
	if err != nil {
		return nil, err
	}
	owner.PasswordGiven = !given // a generated password was printed somewhere
	out := &AccountCreated{OwnerEmail: owner.Email, OwnerPassword: in.OwnerPassword, Token: core.NewToken()}
	if !given {
		out.WelcomeLink = s.Config.BaseURL + "/welcome?token=" + s.newResetToken(owner)
	}
	command := "account create"
	if in.First {
		command = "init"
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := putAccount(tx, account, owner); err != nil {
			return err
		}
		if err := core.AuditCommand(tx, command, account.ID, core.AccountTarget(account)); err != nil {
			return err
		}
		out.AccountID, out.UserID = account.ID, owner.ID
		return store.Tokens.Put(tx, &store.Token{
			ID: tx.NewID("tok"), AccountID: out.AccountID, UserID: out.UserID, Name: "first token", Hash: core.TokenHash(out.Token),
			Prefix: out.Token[:12], Permissions: []string{"admin"}, Kind: "api", CreatedAt: tx.Now(),
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// draftAccount checks what is given for a new account, and returns it with its owner, for
// putAccount. Without a name it is named like its owner's address.
func (s *Service) draftAccount(in NewAccount, name string) (*store.Account, *store.User, error) {
	email, err := core.NormalizeEmail("owner_email", in.OwnerEmail)
	if err != nil {
		return nil, nil, err
	}
	if err := core.CheckPassword("owner_password", in.OwnerPassword, core.LeastPassword); err != nil {
		return nil, nil, err
	}
	plan := cmp.Or(in.Plan, s.Settings().Limits.Plan)
	if _, ok := planRates[plan]; !ok {
		return nil, nil, core.Invalid("plan", "not_allowed", "must be startup or enterprise")
	}
	err = s.Store.View(func(tx *store.Tx) error { return checkAddressFree(tx, email, "") })
	if err != nil {
		return nil, nil, err // before the slow hash
	}
	account := &store.Account{Name: cmp.Or(name, email), Email: email, Plan: plan, Status: store.AccountActive}
	owner := &store.User{Email: email, Role: store.UserRoleOwner, Status: store.UserActive, PasswordHash: s.Logins.Hash(in.OwnerPassword)}
	return account, owner, nil
}

// putAccount writes a new account and its owner, and gives them their ids.
func putAccount(tx *store.Tx, a *store.Account, owner *store.User) (err error) {
	if err := checkAddressFree(tx, owner.Email, ""); err != nil {
		return err
	}
	a.Num, err = tx.NextAccountNum()
	if err != nil {
		return err
	}
	a.ID, a.CreatedAt, a.UpdatedAt = tx.NewID("acc"), tx.Now(), tx.Now()
	owner.ID, owner.AccountID, owner.CreatedAt, owner.UpdatedAt = tx.NewID("usr"), a.ID, tx.Now(), tx.Now()
	return errors.Join(store.Accounts.Put(tx, a), store.Users.Put(tx, owner))
}

// AccountIn names an account, by its id or its owner's address, and the status to set.
type AccountIn struct {
	Account string `json:"account"`
	Status  string `json:"status"`
}

// AccountStatus is the state of an account.
type AccountStatus struct {
	AccountID string `json:"account_id"`
	Status    string `json:"status"`
}

// SetAccountStatus suspends an account or resumes it. While an account is suspended, its outgoing
// mail and its notifications stay queued: nothing leaves after this call has returned. Its open
// connections end. Setting the same status again changes nothing. An account that waits for its
// deletion stays when it is resumed.
func (s *Service) SetAccountStatus(ctx context.Context, in AccountIn) (*AccountStatus, error) {
	if in.Status != store.AccountActive && in.Status != store.AccountSuspended {
		return nil, core.Invalid("status", "not_allowed", "must be active or suspended")
	}
	if in.Account == "" {
		return nil, core.Invalid("account", "required", "name the account, by its id or its owner's address")
	}
	out := &AccountStatus{Status: in.Status}
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := core.FindAccount(tx, in.Account)
		if err != nil {
			return err
		}
		out.AccountID = a.ID
		changed, err := s.changeStatus(tx, a, in.Status)
		if err != nil || !changed {
			return err
		}
		command := "account resume"
		if !a.MayAct() {
			command = "account suspend"
		}
		return errors.Join(store.Accounts.Put(tx, a), core.AuditCommand(tx, command, a.ID, core.AccountTarget(a)))
	})
	if err != nil {
		return nil, err
	}
	return out, s.applyStatus(ctx, out.AccountID, in.Status)
}

// changeStatus suspends or resumes an account, and reports whether that changes anything. It ends a
// planned deletion of an account that is resumed. The caller writes the account, and calls
// applyStatus after the transaction.
func (s *Service) changeStatus(tx *store.Tx, a *store.Account, status string) (changed bool, err error) {
	switch {
	case a.Gone():
		return false, core.Invalid("status", "not_allowed", "%s is being deleted", a.ID)
	case a.DeletionPlanned() && status != store.AccountActive:
		return false, core.Invalid("status", "not_allowed", "%s is suspended until it is deleted; active ends the deletion", a.ID)
	case a.Status == status:
		return false, nil
	}
	if a.DeletionPlanned() {
		if err := s.Queue.Cancel(tx, a.DeleteJob); err != nil && !core.IsGone(err) {
			return false, err
		}
		a.DeleteJob, a.DeleteAt = "", time.Time{}
	}
	a.Status, a.UpdatedAt = status, tx.Now()
	if !a.MayAct() {
		tx.After(func() { s.servers.StopIdling(a.ID) })
		return true, nil
	}
	if err := s.servers.BeginExternals(tx, a.ID, ""); err != nil { // syncs ended while the account was suspended
		return false, err
	}
	_, err = s.Queue.Add(tx, jobs.New{Kind: kindAccountWake, Key: a.ID, Args: wakeArgs{AccountID: a.ID}})
	return true, err
}

// applyStatus ends what runs for an account that was suspended, and makes open sessions check
// whether they may go on.
func (s *Service) applyStatus(ctx context.Context, accountID, status string) error {
	s.LogOf(ctx).Info("account "+map[string]string{store.AccountActive: "resumed", store.AccountSuspended: "suspended"}[status], "account", accountID)
	if status == store.AccountSuspended {
		s.StopAttempts(accountID)
	}
	return s.recheckSessions(accountID)
}

// recheckSessions makes the open sessions of mail clients in an account check whether they may go
// on.
func (s *Service) recheckSessions(accountID string) error {
	return s.Store.View(func(tx *store.Tx) error {
		for _, mb := range store.MailboxesByAccount.Asc(tx, accountID, "") {
			s.Hub.Changed(mb.Num)
		}
		return nil
	})
}

// CheckMailboxOpen returns an error if a mailbox that somebody has logged in to may no longer be
// used.
func (s *Service) CheckMailboxOpen(_ context.Context, u core.MailboxUser) error {
	return s.Store.View(func(tx *store.Tx) (err error) {
		if u.MailboxID == "" {
			_, err = core.OpenDomain(tx, u)
		} else {
			_, err = core.OpenMailbox(tx, u)
		}
		return err
	})
}

// An AccountRow is an account as the operator sees it.
type AccountRow struct {
	AccountID  string    `json:"account_id"`
	Name       string    `json:"name"`
	OwnerEmail string    `json:"owner_email"`
	Plan       string    `json:"plan"`
	Status     string    `json:"status"`
	Domains    int       `json:"domains"`
	EmailUsers int       `json:"email_users"`
	CreatedAt  core.Time `json:"created_at"`
}

// ListAccounts lists the accounts of the installation, oldest first.
func (s *Service) ListAccounts(context.Context, struct{}) (*core.List[AccountRow], error) {
	var out []AccountRow
	err := s.Store.View(func(tx *store.Tx) error {
		for a := range store.Accounts.All(tx) {
			out = append(out, AccountRow{
				AccountID: a.ID, Name: a.Name, OwnerEmail: a.Email, Plan: a.Plan, Status: hostedStatus(a), CreatedAt: core.Time{Time: a.CreatedAt},
				Domains: store.DomainsByAccount.Count(tx, a.ID, 0), EmailUsers: store.MailboxesByAccount.Count(tx, a.ID, 0),
			})
		}
		return nil
	})
	return core.ListOf(out), err
}

const (
	kindAccountWake = "account_wake"
	jobsPerTx       = 500 // jobs in one transaction
)

// wakeArgs are the arguments of the job that makes an account's jobs due again after a suspension.
type wakeArgs struct {
	AccountID string `json:"account_id"`
	After     string `json:"after"` // the last job that was examined
}

func (s *Service) wakeKind() jobs.Kind {
	return jobs.Kind{Name: kindAccountWake, Work: s.wakeJobs, Timeout: time.Hour}
}

// wakeJobs makes the waiting jobs of an account due now. It walks all jobs by due time, since no
// index has them by account. A job may be made due twice without harm.
func (s *Service) wakeJobs(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[wakeArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	for ctx.Err() == nil {
		var ids []string
		more := false
		err := s.Store.View(func(tx *store.Tx) error {
			for key, id := range store.JobsDue.Keys(tx, "", args.After) {
				if len(ids) == jobsPerTx {
					more = true
					break
				}
				args.After = key
				waiting, err := store.Jobs.Read(tx, id)
				if err != nil {
					continue // the queue logs that the job cannot be read
				}
				if waiting.AccountID == args.AccountID && waiting.State == store.JobQueued && waiting.Due.After(tx.Now()) && waiting.Due.Sub(tx.Now()) <= core.SuspendedRecheck {
					ids = append(ids, waiting.ID)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			for _, id := range ids {
				if err := s.Queue.Wake(tx, id, time.Time{}); err != nil && !errors.Is(err, store.ErrNotFound) {
					return err
				}
			}
			return nil
		})
		if err != nil || !more {
			return nil, err
		}
	}
	return nil, ctx.Err()
}
