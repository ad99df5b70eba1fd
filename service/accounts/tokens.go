package accounts

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/store"
)

const (
	tokensPerTx = 300  // tokens that one transaction changes
	maxTokens   = 1000 // for one mailbox, and for one account without the tokens that are limited to one mailbox
)

// Token is a credential as the API shows it, without its value.
type Token struct {
	ID          string    `json:"id" words:"ours" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name        string    `json:"name" words:"theirs" example:"deploy script"`
	TokenPrefix string    `json:"token_prefix" words:"ours"`
	Permissions []string  `json:"permissions" enum:"read|write|purchase|admin"` // Some of read, write, purchase and admin; each includes those before it.
	CreatedBy   string    `json:"created_by" words:"ours"`
	CreatedAt   core.Time `json:"created_at"`
	ExpiresAt   core.Time `json:"expires_at"`
	LastUsedAt  core.Time `json:"last_used_at"`
	LastUsedIP  *string   `json:"last_used_ip" words:"ours"`
	Kind        string    `json:"kind" enum:"api|mcp|oauth|session"`
	// For kind oauth, the client that a person lets act for them, by the name that the client
	// chose; otherwise null.
	ClientName *string `json:"client_name" words:"theirs"`

	// Ids of the only mailboxes that it may act for; null: all mailboxes that its user sees.
	Mailboxes *[]string       `json:"mailboxes" words:"ours" example:"eu_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	OwnWords  bool            `json:"own_words"` // Messages sent with it count as the account's own words, which do not taint agents that read them.
	Policy    agents.Policy   `json:"policy"`
	Tainted   *agents.Tainted `json:"tainted"` // Set after a stranger's text was read with this token, which then restricts what it may send; null otherwise.
}

func tokenOut(t *store.Token, now time.Time) Token {
	out := Token{
		ID: t.ID, Name: t.Name, TokenPrefix: t.Prefix, Permissions: t.Permissions, CreatedBy: t.UserID, Kind: t.Kind,
		CreatedAt: core.Time{Time: t.CreatedAt}, ExpiresAt: core.Time{Time: t.ExpiresAt}, LastUsedAt: core.Time{Time: t.LastUsedAt}, LastUsedIP: core.OrNull(t.LastUsedIP),
		OwnWords: t.OwnWords, Policy: agents.PolicyOut(&t.Policy), Tainted: agents.TaintedOut(t.Reading.TaintInForce(&t.Policy, now)),
	}
	if t.Grant != nil {
		out.ClientName = &t.Grant.ClientName
	}
	if len(t.Mailboxes) > 0 {
		out.Mailboxes = &t.Mailboxes
	}
	return out
}

// ListTokens lists the tokens that the actor may see: the owner sees all, an admin sees all except
// the owner's, and a member sees their own.
func (s *Service) ListTokens(_ context.Context, who core.Actor) (*core.List[Token], error) {
	var out []Token
	err := s.Store.View(func(tx *store.Tx) error {
		for _, t := range store.TokensByAccount.Desc(tx, who.AccountID, "") {
			if t.RevokedAt.IsZero() && t.Kind != core.SessionKind && s.mayManageToken(tx, who, t) {
				out = append(out, tokenOut(t, tx.Now()))
			}
		}
		return nil
	})
	return core.ListOf(out), err
}

// mayManageToken reports whether the actor may see and change a token: the owner may for all
// tokens, an admin for all except the owner's, and a member for their own.
func (s *Service) mayManageToken(tx *store.Tx, who core.Actor, t *store.Token) bool {
	switch {
	case t.UserID == who.UserID, who.Role == store.UserRoleOwner:
		return true
	case who.Role != store.UserRoleAdmin:
		return false
	}
	u, err := store.Users.Get(tx, t.UserID)
	return err == nil && u.Role != store.UserRoleOwner
}

// CreateTokenIn is the body of create_token; all fields are optional.
type CreateTokenIn struct {
	Name string `json:"name" max:"100" example:"deploy script"`
	// Some of read, write, purchase and admin; each includes those before it.
	Permissions   *[]string           `json:"permissions" enum:"read|write|purchase|admin" log:"true"`
	ExpiresAt     core.Opt[time.Time] `json:"expires_at" null:"absent" log:"true"`
	ExpiresInDays core.Opt[int]       `json:"expires_in_days" min:"1" max:"3650" null:"absent" log:"true"` // Alternative to expires_at.
	Kind          string              `json:"kind" enum:"api|mcp|" log:"true"`
	// Ids of the only mailboxes that it may act for; null: all mailboxes that its user sees.
	Mailboxes core.Opt[[]string] `json:"mailboxes" example:"eu_01k9a2b3c4d5e6f7g8h9j0k1m2" log:"true"`
	// Messages sent with it count as the account's own words, which do not taint agents that read
	// them. Only an owner or admin who is signed in may set it, and only for a program that never
	// passes on the words of others, as a web form does.
	OwnWords bool           `json:"own_words" log:"true"`
	Policy   *agents.Policy `json:"policy"` // What it may send, and whether reading mail taints it. By default it may send everything and is not tainted.
}

// TokenCreated is a new token with its value, which is shown only this once.
type TokenCreated struct {
	Token
	Value string `json:"token" words:"ours"` // The token itself, shown only once.
}

// CreateToken makes a token that acts as its creator. A member's token has at most read and write.
// A token cannot get permissions that the creating token lacks.
func (s *Service) CreateToken(ctx context.Context, who core.Actor, in CreateTokenIn) (*TokenCreated, error) {
	t, err := s.draftToken(who, in)
	if err != nil {
		return nil, err
	}
	return s.putToken(ctx, t, func(tx *store.Tx) error {
		if err := CheckMailboxes(tx, who, t.Mailboxes); err != nil {
			return err
		}
		return core.Audit(tx, who, core.TokenTarget(t))
	})
}

// CheckMailboxes returns an error if the actor does not see one of the mailboxes.
func CheckMailboxes(tx *store.Tx, who core.Actor, ids []string) error {
	for _, id := range ids {
		mb, err := core.LiveMailbox(tx, id)
		if err != nil {
			return err
		}
		if mb == nil || mb.AccountID != who.AccountID || !who.Sees(id) {
			return core.Invalid("mailboxes", "not_found", "%.80q is not the id of a mailbox of this account", id)
		}
	}
	return nil
}

// CleanMailboxIDs validates the ids of the mailboxes that a token is to be limited to, and returns
// them without duplicates.
func CleanMailboxIDs(ids []string) (out []string, err error) {
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	switch {
	case len(out) == 0:
		return nil, core.Invalid("mailboxes", "too_few_items", "must name at least one mailbox, or be null for all")
	case len(out) > maxScopeMailboxes:
		return nil, core.Errorf("too_many_items", "A token can be limited to at most %d mailboxes, not %d.", maxScopeMailboxes, len(out)).With("mailboxes", "too_many_items", "has too many entries")
	}
	return out, nil
}

func (s *Service) draftToken(who core.Actor, in CreateTokenIn) (*store.Token, error) {
	t := &store.Token{AccountID: who.AccountID, UserID: who.UserID, Name: in.Name, Kind: "api", Permissions: []string{"read", "write"}}
	if in.Kind != "" {
		t.Kind = in.Kind
	}
	if in.Permissions != nil {
		t.Permissions = *in.Permissions
	}
	if err := CheckPermissions(who, t.Permissions); err != nil {
		return nil, err
	}
	err := agents.CheckOwnWords(who, in.OwnWords)
	if err != nil {
		return nil, err
	}
	t.OwnWords = in.OwnWords
	if in.Mailboxes.Set && !in.Mailboxes.Null {
		t.Mailboxes, err = CleanMailboxIDs(in.Mailboxes.Value)
		if err != nil {
			return nil, err
		}
	}
	if in.Policy != nil {
		t.Policy, err = in.Policy.StoredForm("policy")
		if err != nil {
			return nil, err
		}
	}
	t.ExpiresAt, err = s.Expiry(in.ExpiresAt, in.ExpiresInDays)
	return t, err
}

// CheckPermissions returns an error if the actor lacks one of the permissions, or may not give it
// to a token.
func CheckPermissions(who core.Actor, permissions []string) error {
	if len(permissions) == 0 {
		return core.Invalid("permissions", "too_few_items", "must name at least one of %s", strings.Join(core.Scopes, ", "))
	}
	for _, p := range permissions {
		if !slices.Contains(core.Scopes, p) {
			return core.Invalid("permissions", "not_allowed", "%.40q is not one of %s", p, strings.Join(core.Scopes, ", "))
		}
		if who.Role == store.UserRoleMember && p != "read" && p != "write" {
			return core.Errorf("forbidden_role", "A member's tokens can have only the read and write permissions.")
		}
		if !who.Can(p) {
			return core.Errorf("insufficient_scope", "This token lacks the %q permission, so it cannot grant it to another token.", p)
		}
	}
	return nil
}

// CheckRoomForToken returns too_many_items if there are maxTokens already: for a token that is
// limited to one mailbox, such tokens of this mailbox; for another token, other tokens of the
// account. Sessions, revoked tokens, and tokens that belong to an app password do not count.
func CheckRoomForToken(tx *store.Tx, t *store.Token) error {
	if len(t.Mailboxes) == 1 {
		if store.TokensLimited.Count(tx, t.Mailboxes[0], maxTokens) >= maxTokens {
			return core.Errorf("too_many_items", "A mailbox can have at most %d tokens that are limited to it. Delete one that is not used any more.", maxTokens)
		}
		return nil
	}
	if store.TokensByAccount.Count(tx, t.AccountID, maxTokens) < maxTokens { // all tokens, of any kind
		return nil
	}
	n := 0
	for _, one := range store.TokensByAccount.Asc(tx, t.AccountID, "") {
		if !one.RevokedAt.IsZero() || one.Kind == core.SessionKind || one.CredentialID != "" || len(one.Mailboxes) == 1 {
			continue
		}
		if n++; n >= maxTokens {
			return core.Errorf("too_many_items", "An account can have at most %d tokens, beside those that are limited to one mailbox. Delete one that is not used any more.", maxTokens)
		}
	}
	return nil
}

// putToken gives the token its value and stores it, with a row of the audit log. The error is
// too_many_items if CheckRoomForToken refuses it.
func (s *Service) putToken(ctx context.Context, t *store.Token, audit func(*store.Tx) error) (*TokenCreated, error) {
	// Check this in a read transaction, since an account may have many tokens that do not count.
	if err := s.Store.View(func(tx *store.Tx) error { return CheckRoomForToken(tx, t) }); err != nil {
		return nil, err
	}
	value := core.NewToken()
	t.Hash, t.Prefix = core.TokenHash(value), value[:12]
	var out *TokenCreated
	err := s.Store.Update(func(tx *store.Tx) error {
		u, err := store.Users.Find(tx, t.UserID)
		if err != nil {
			return err
		}
		if u == nil { // deleted after the request was authenticated
			return errTokenRevoked()
		}
		t.ID, t.CreatedAt = tx.NewID("tok"), tx.Now()
		if err := errors.Join(store.Tokens.Put(tx, t), audit(tx)); err != nil {
			return err
		}
		out = &TokenCreated{tokenOut(t, tx.Now()), value}
		return once.KeepAnswer(ctx, s.Core, tx, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// TokenIn names one token.
type TokenIn struct {
	TokenID string `path:"token_id"`
}

// Deleted confirms that the object with this id was deleted.
type Deleted struct {
	Message string `json:"message" words:"ours" example:"The token is revoked."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// tokenOf returns a token that the actor may see; 404 for any other.
func (s *Service) tokenOf(tx *store.Tx, who core.Actor, id string) (*store.Token, error) {
	t, err := store.Tokens.Find(tx, id)
	if err == nil && (t == nil || t.AccountID != who.AccountID || t.Kind == core.SessionKind || !t.RevokedAt.IsZero() || !s.mayManageToken(tx, who, t)) {
		return nil, core.NotFound("token")
	}
	return t, err
}

// ClearTokenTaint makes a token untainted, as if nothing had been read with it.
func (s *Service) ClearTokenTaint(_ context.Context, who core.Actor, in TokenIn) (*Token, error) {
	var out Token
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := s.tokenOf(tx, who, in.TokenID)
		if err != nil {
			return err
		}
		if err := (agents.Holder{TokenID: t.ID}).ClearReading(tx); err != nil {
			return err
		}
		t, err = store.Tokens.Get(tx, t.ID)
		if err != nil {
			return err
		}
		out = tokenOut(t, tx.Now())
		return core.Audit(tx, who, core.TokenTarget(t))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteToken revokes a token permanently. Revoking another user's token needs admin.
func (s *Service) DeleteToken(_ context.Context, who core.Actor, in TokenIn) (*Deleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := s.tokenOf(tx, who, in.TokenID)
		if err != nil {
			return err
		}
		if t.UserID != who.UserID && !who.Can("admin") {
			return core.Errorf("insufficient_scope", "Revoking another user's token needs the \"admin\" permission.")
		}
		t.RevokedAt = tx.Now()
		return errors.Join(store.Tokens.Put(tx, t), core.Audit(tx, who, core.TokenTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	return &Deleted{"The token is revoked. Requests with it now get 401.", in.TokenID}, nil
}
