package mailboxes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/scram"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/store"
)

const (
	maxCredentials = 25 // per mailbox or domain
	maxNetworks    = 50 // that one credential is limited to
)

// A Credential is a password for one device or program. The API never shows its value.
type Credential struct {
	ID              string    `json:"id" words:"ours" example:"cred_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name            string    `json:"name" words:"ours" example:"Anna's phone"`
	Protocols       []string  `json:"protocols" enum:"imap|smtp|api"` // The protocols that it is valid for.
	AllowedNetworks *[]string `json:"allowed_networks" words:"ours"`  // Addresses and networks that it may be used from; null means everywhere.
	ExpiresAt       core.Time `json:"expires_at"`
	LastUsedAt      core.Time `json:"last_used_at"`
	LastUsedIP      *string   `json:"last_used_ip" words:"ours"`
	CreatedAt       core.Time `json:"created_at"`

	OwnWords bool            `json:"own_words"` // For a credential of a domain: what is sent with it counts as written by the account itself, so that reading it taints nothing.
	Policy   agents.Policy   `json:"policy"`
	Tainted  *agents.Tainted `json:"tainted"` // Mail from a stranger was read with it, which limits it; null if not.
}

func credentialOut(c *store.Credential, now time.Time) Credential {
	out := Credential{
		OwnWords: c.OwnWords, Policy: agents.PolicyOut(&c.Policy), Tainted: agents.TaintedOut(c.Reading.TaintInForce(&c.Policy, now)),
		ID: c.ID, Name: c.Name, Protocols: c.Protocols, ExpiresAt: core.Time{Time: c.ExpiresAt},
		LastUsedAt: core.Time{Time: c.LastUsedAt}, LastUsedIP: core.OrNull(c.LastUsedIP), CreatedAt: core.Time{Time: c.CreatedAt},
	}
	if len(c.Networks) > 0 {
		out.AllowedNetworks = &c.Networks
	}
	return out
}

// A CredentialCreated is a new credential with its password. The password is shown only this once.
type CredentialCreated struct {
	Credential
	// The username for the login: the mailbox's address, or the id of a domain's credential.
	Username string `json:"username" words:"ours" example:"anna@example.com"`
	Password string `json:"password" words:"ours" example:"abcd-efgh-jkmn-pqrs-tuvw-xyz2"` // Shown only this once.
	// With the protocol `api`: a token with the rights of the mailbox's user. Shown only this once.
	Token *string `json:"token,omitempty" words:"ours" example:"mst_4mVQ2XfS0dPq9bB7nLwKzR3tYhJgC8aE5uXoN1iDkP6sTvWy"`
}

// NewCredentialPassword returns a random password of 118 bits, in groups that are easy to type.
func NewCredentialPassword() string {
	const alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
	var groups []string
	for range 6 {
		groups = append(groups, core.RandomText(4, alphabet))
	}
	return strings.Join(groups, "-")
}

// CreateCredentialIn is the request of create_credential.
type CreateCredentialIn struct {
	UserID          string              `path:"user_id"`
	Name            string              `json:"name" required:"true" min:"1" max:"100" example:"Anna's phone"`
	Protocols       *[]string           `json:"protocols" enum:"imap|smtp|api" log:"true"` // The protocols that it is valid for.
	AllowedNetworks []string            `json:"allowed_networks" log:"true"`               // Addresses and networks that it may be used from; null means everywhere.
	ExpiresAt       core.Opt[time.Time] `json:"expires_at" null:"absent" log:"true"`
	ExpiresInDays   core.Opt[int]       `json:"expires_in_days" min:"1" max:"3650" null:"absent" log:"true"` // Alternative to expires_at.
	// What may be sent with it, and whether reading mail taints it. By default everything may be
	// sent, and reading does not taint.
	Policy *agents.Policy `json:"policy"`
}

// CreateSMTPCredentialIn is the request of create_smtp_credential.
type CreateSMTPCredentialIn struct {
	DomainID string `path:"domain_id"`
	Name     string `json:"name" required:"true" min:"1" max:"100" example:"Shop"`
	// What is sent with it counts as written by the account itself, so that reading it taints
	// nothing. Only an owner or admin who is signed in may give true, and only for a program that
	// does not send texts of others, as a web form does.
	OwnWords        bool                `json:"own_words" log:"true"`
	Protocols       *[]string           `json:"protocols" enum:"smtp" log:"true"` // The protocols that it is valid for.
	AllowedNetworks []string            `json:"allowed_networks" log:"true"`      // Addresses and networks that it may be used from; null means everywhere.
	ExpiresAt       core.Opt[time.Time] `json:"expires_at" null:"absent" log:"true"`
	ExpiresInDays   core.Opt[int]       `json:"expires_in_days" min:"1" max:"3650" null:"absent" log:"true"` // Alternative to expires_at.
	// What may be sent with it, and whether reading mail taints it. By default everything may be
	// sent, and reading does not taint.
	Policy *agents.Policy `json:"policy"`
}

// CreateCredential adds a password for a device or program to a mailbox. The error is
// credential_limit_reached above 25.
func (s *Service) CreateCredential(ctx context.Context, who core.Actor, in CreateCredentialIn) (*CredentialCreated, error) {
	protocols := []string{store.ProtocolIMAP, store.ProtocolSMTP}
	if in.Protocols != nil {
		protocols = *in.Protocols
	}
	c := &store.Credential{Name: in.Name, Protocols: protocols}
	if err := s.checkCredential(c, []string{store.ProtocolIMAP, store.ProtocolSMTP, store.ProtocolAPI}, in.AllowedNetworks, in.ExpiresAt, in.ExpiresInDays, in.Policy); err != nil {
		return nil, err
	}
	var before store.Mailbox
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err == nil {
			before = *mb
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &CredentialCreated{Username: before.Email, Password: NewCredentialPassword()}
	salt := s.saltOf(&before, before.Email)
	s.hashCredential(c, out.Password, salt)
	err = s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if mb.Gone() {
			return core.Errorf("not_found", "%s is being deleted, so it cannot be changed.", mb.Email)
		}
		if mb.Salt == nil {
			mb.Salt = salt
			if err := store.Mailboxes.Put(tx, mb); err != nil {
				return err
			}
		}
		c.AccountID, c.MailboxID, c.CreatedBy = mb.AccountID, mb.ID, who.UserID
		if slices.Contains(c.Protocols, store.ProtocolAPI) {
			if err := s.addToken(tx, mb, c, out); err != nil {
				return err
			}
		}
		return s.putCredential(ctx, tx, who, c, store.CredentialsByMailbox, mb.ID, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// CreateSMTPCredential adds a password to a domain. With it, a program can send as any address of
// the domain. The username is the credential's id.
func (s *Service) CreateSMTPCredential(ctx context.Context, who core.Actor, in CreateSMTPCredentialIn) (*CredentialCreated, error) {
	if err := agents.CheckOwnWords(who, in.OwnWords); err != nil {
		return nil, err
	}
	c := &store.Credential{Name: in.Name, OwnWords: in.OwnWords, Protocols: []string{store.ProtocolSMTP}, Salt: []byte(core.RandomText(saltSize, core.Base62))}
	if in.Protocols != nil {
		c.Protocols = *in.Protocols
	}
	if err := s.checkCredential(c, []string{store.ProtocolSMTP}, in.AllowedNetworks, in.ExpiresAt, in.ExpiresInDays, in.Policy); err != nil {
		return nil, err
	}
	out := &CredentialCreated{Password: NewCredentialPassword()}
	s.hashCredential(c, out.Password, c.Salt)
	err := s.Store.Update(func(tx *store.Tx) error {
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		switch {
		case d.Gone():
			return core.Errorf("domain_busy", "%s is being deleted.", d.Name).With(d.JobID, "domain_busy", "deletes the domain")
		case d.DNSProvider == store.DomainProviderExternal:
			return core.Invalid("domain_id", "not_allowed", "the mail of %s is hosted elsewhere, so nothing can send for it here", d.Name)
		}
		c.AccountID, c.DomainID, c.CreatedBy = d.AccountID, d.ID, who.UserID
		return s.putCredential(ctx, tx, who, c, store.CredentialsByDomain, d.ID, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// checkCredential validates the fields of a new credential and sets them in c.
func (s *Service) checkCredential(c *store.Credential, allowed, networks []string, expiresAt core.Opt[time.Time], expiresInDays core.Opt[int], policy *agents.Policy) (err error) {
	if err := core.CheckLine("name", c.Name); err != nil {
		return err
	}
	if len(c.Protocols) == 0 {
		return core.Invalid("protocols", "too_few_items", "must name at least one of %s", strings.Join(allowed, ", "))
	}
	for _, p := range c.Protocols {
		if !slices.Contains(allowed, p) {
			return core.Invalid("protocols", "not_allowed", "%.40q is not one of %s", p, strings.Join(allowed, ", "))
		}
	}
	slices.Sort(c.Protocols)
	c.Protocols = slices.Compact(c.Protocols)
	if len(networks) > maxNetworks {
		return core.Invalid("allowed_networks", "too_many_items", "must name at most %d", maxNetworks)
	}
	for _, text := range networks {
		network, err := netip.ParsePrefix(text)
		if ip, bad := netip.ParseAddr(text); err != nil && bad == nil && ip.Zone() == "" {
			network, err = ip.Unmap().Prefix(ip.Unmap().BitLen())
		}
		if err != nil {
			return core.Invalid("allowed_networks", "invalid", "%.80q is no IP address and no network such as 192.0.2.0/24", text)
		}
		c.Networks = append(c.Networks, network.Masked().String())
	}
	if policy != nil {
		c.Policy, err = policy.StoredForm("policy")
		if err != nil {
			return err
		}
	}
	c.ExpiresAt, err = s.Expiry(expiresAt, expiresInDays)
	return err
}

// hashCredential sets the id of a credential, and the hash and the SCRAM keys of its password.
func (s *Service) hashCredential(c *store.Credential, password string, salt []byte) {
	c.ID, c.Hash = s.Store.NewID("cred"), core.TokenHash(password)
	keys := scram.KeysOf(password, salt)
	c.SCRAM = s.Keys.Seal(store.CredentialBinding(c.ID), keys[:])
}

func (s *Service) putCredential(ctx context.Context, tx *store.Tx, who core.Actor, c *store.Credential, index *store.Index[store.Credential], owner string, out *CredentialCreated) error {
	if index.Count(tx, owner, maxCredentials) >= maxCredentials {
		return core.Errorf("credential_limit_reached", "There are %d passwords already, which is the limit. Delete one that is not used any more.", maxCredentials)
	}
	c.CreatedAt = tx.Now()
	if out.Username == "" {
		out.Username = c.ID
	}
	out.Credential = credentialOut(c, tx.Now())
	return errors.Join(store.Credentials.Put(tx, c), core.Audit(tx, who, credentialTarget(c)), once.KeepAnswer(ctx, s.Core, tx, out))
}

// addToken adds the API token of a credential, which has the rights of the mailbox's user.
func (s *Service) addToken(tx *store.Tx, mb *store.Mailbox, c *store.Credential, out *CredentialCreated) error {
	person, err := core.UserOfMailbox(tx, mb)
	if err != nil {
		return err
	}
	value := core.NewToken()
	t := &store.Token{
		ID: tx.NewID("tok"), AccountID: mb.AccountID, UserID: person.ID, CredentialID: c.ID, Name: c.Name, Hash: core.TokenHash(value), Prefix: value[:12],
		Permissions: []string{"read", "write"}, Kind: store.TokenKindAPI, CreatedAt: tx.Now(), ExpiresAt: c.ExpiresAt, Policy: c.Policy,
	}
	c.TokenID, out.Token = t.ID, &value
	return store.Tokens.Put(tx, t)
}

func credentialTarget(c *store.Credential) store.AuditTarget {
	return store.AuditTarget{Type: "credential", ID: c.ID, Name: c.Name}
}

// ListCredentials lists the additional passwords of a mailbox, newest first.
func (s *Service) ListCredentials(_ context.Context, who core.Actor, in core.EmailUserIn) (*core.List[Credential], error) {
	return s.listCredentials(store.CredentialsByMailbox, in.UserID, func(tx *store.Tx) error {
		_, err := core.ReadMailbox(tx, who, in.UserID)
		return err
	})
}

// SMTPCredentialsIn is a request that names the domain of credentials.
type SMTPCredentialsIn struct {
	DomainID string `path:"domain_id"`
}

// ListSMTPCredentials lists the passwords by which programs send for a domain, newest first.
func (s *Service) ListSMTPCredentials(_ context.Context, who core.Actor, in SMTPCredentialsIn) (*core.List[Credential], error) {
	return s.listCredentials(store.CredentialsByDomain, in.DomainID, func(tx *store.Tx) error {
		_, err := core.DomainOf(tx, who, in.DomainID)
		return err
	})
}

func (s *Service) listCredentials(index *store.Index[store.Credential], owner string, mayRead func(*store.Tx) error) (*core.List[Credential], error) {
	var out []Credential
	err := s.Store.View(func(tx *store.Tx) error {
		if err := mayRead(tx); err != nil {
			return err
		}
		for _, c := range index.Desc(tx, owner, "") {
			out = append(out, credentialOut(c, tx.Now()))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return core.ListOf(out), nil
}

// CredentialIn is a request that names a credential of a mailbox.
type CredentialIn struct {
	UserID       string `path:"user_id"`
	CredentialID string `path:"credential_id"`
}

// SMTPCredentialIn is a request that names a credential of a domain.
type SMTPCredentialIn struct {
	DomainID     string `path:"domain_id"`
	CredentialID string `path:"credential_id"`
}

// CredentialDeleted is the answer after a credential was deleted.
type CredentialDeleted struct {
	Message string `json:"message" words:"ours" example:"The password is revoked."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"cred_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// DeleteCredential revokes a password of a mailbox. Connections that logged in with it are closed.
func (s *Service) DeleteCredential(_ context.Context, who core.Actor, in CredentialIn) (*CredentialDeleted, error) {
	return s.deleteCredential(who, in.CredentialID, func(tx *store.Tx, c *store.Credential) (uint32, error) {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return 0, err
		}
		if c == nil || c.MailboxID != mb.ID {
			err = core.NotFound("credential")
		}
		return mb.Num, err
	})
}

// DeleteSMTPCredential revokes a password of a domain.
func (s *Service) DeleteSMTPCredential(_ context.Context, who core.Actor, in SMTPCredentialIn) (*CredentialDeleted, error) {
	return s.deleteCredential(who, in.CredentialID, func(tx *store.Tx, c *store.Credential) (uint32, error) {
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err == nil && (c == nil || c.DomainID != d.ID) {
			err = core.NotFound("credential")
		}
		return core.AllLogins, err
	})
}

func (s *Service) deleteCredential(who core.Actor, id string, owner func(*store.Tx, *store.Credential) (uint32, error)) (*CredentialDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		c, err := store.Credentials.Find(tx, id)
		if err != nil {
			return err
		}
		mailbox, err := owner(tx, c)
		if err != nil {
			return err
		}
		tx.After(func() { s.RecheckLogins(mailbox) })
		if c.TokenID != "" {
			if err := store.Tokens.Delete(tx, c.TokenID); err != nil {
				return err
			}
		}
		return errors.Join(store.Credentials.Delete(tx, c.ID), core.Audit(tx, who, credentialTarget(c)))
	})
	if err != nil {
		return nil, err
	}
	return &CredentialDeleted{"The password is revoked. What is connected with it is cut off.", id}, nil
}

// ClearCredentialTaint removes the taint of a mailbox's credential, as if no mail had been read
// with it.
func (s *Service) ClearCredentialTaint(_ context.Context, who core.Actor, in CredentialIn) (*Credential, error) {
	return s.clearTaint(who, in.CredentialID, func(tx *store.Tx, c *store.Credential) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err == nil && (c == nil || c.MailboxID != mb.ID) {
			err = core.NotFound("credential")
		}
		return err
	})
}

// ClearSMTPCredentialTaint is ClearCredentialTaint for a credential of a domain.
func (s *Service) ClearSMTPCredentialTaint(_ context.Context, who core.Actor, in SMTPCredentialIn) (*Credential, error) {
	return s.clearTaint(who, in.CredentialID, func(tx *store.Tx, c *store.Credential) error {
		d, err := core.DomainOf(tx, who, in.DomainID)
		if err == nil && (c == nil || c.DomainID != d.ID) {
			err = core.NotFound("credential")
		}
		return err
	})
}

func (s *Service) clearTaint(who core.Actor, id string, check func(*store.Tx, *store.Credential) error) (*Credential, error) {
	var out Credential
	err := s.Store.Update(func(tx *store.Tx) error {
		c, err := store.Credentials.FindShared(tx, id)
		if err != nil {
			return err
		}
		if err := check(tx, c); err != nil {
			return err
		}
		if err := (agents.Holder{CredentialID: id}).ClearReading(tx); err != nil {
			return err
		}
		c, err = store.Credentials.Get(tx, id)
		if err != nil {
			return err
		}
		out = credentialOut(c, tx.Now())
		return core.Audit(tx, who, credentialTarget(c))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// dropCredentials revokes all credentials of a mailbox or a domain.
func dropCredentials(tx *store.Tx, index *store.Index[store.Credential], owner string) error {
	var ids []string
	for _, id := range index.Keys(tx, owner, "") {
		ids = append(ids, id)
	}
	return core.DeleteAll(tx, store.Credentials, ids)
}

// FlushUses stores when credentials were last used.
func (s *Service) FlushUses() error {
	return s.uses.Flush(s.Store, func(tx *store.Tx, id string, use core.Use) error {
		c, err := store.Credentials.Find(tx, id)
		if c == nil || err != nil {
			return err
		}
		c.LastUsedAt, c.LastUsedIP = use.At, use.IP
		return store.Credentials.Put(tx, c)
	})
}
