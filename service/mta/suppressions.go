package mta

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// hosted tells whether mail to an address stays on this server.
func hosted(tx *store.Tx, email string) (bool, error) {
	d, err := store.DomainByName.Read(tx, core.DomainOfAddress(email))
	if core.IsGone(err) {
		return false, nil
	}
	return err == nil && d.Status == "complete" && d.DNSProvider != core.ProviderExternal, err
}

// suppress keeps the account from sending to an address. One that is suppressed already stays as it
// is.
func suppress(tx *store.Tx, accountID, email, reason, messageID string) error {
	if known, err := core.IsSuppressed(tx, accountID, email); known || err != nil {
		return err
	}
	return store.Suppressions.Put(tx, &store.Suppression{AccountID: accountID, Email: email, Reason: reason, MessageID: messageID, CreatedAt: tx.Now()})
}

// A Suppression is an address that the account does not send to.
type Suppression struct {
	Email     string    `json:"email" words:"theirs"`
	Reason    string    `json:"reason" enum:"bounce|complaint|manual"`
	MessageID *string   `json:"message_id" words:"theirs"`
	CreatedAt core.Time `json:"created_at"`
}

func suppressionOut(r *store.Suppression) Suppression {
	return Suppression{r.Email, r.Reason, core.OrNull(r.MessageID), core.Time{Time: r.CreatedAt}}
}

// ListSuppressionsIn is the query of list_suppressions.
type ListSuppressionsIn struct {
	core.PageIn
	Reason string `query:"reason" enum:"bounce|complaint|manual|"`
}

// ListSuppressions lists the account's suppressed addresses, newest first.
func (s *Service) ListSuppressions(_ context.Context, who core.Actor, in ListSuppressionsIn) (*core.Page[Suppression], error) {
	l := core.Listing[store.Suppression, Suppression]{
		Operation: "suppressions", Index: store.SuppressionsByAccount, Prefix: who.AccountID, Filters: []string{in.Reason},
		Keep: func(r *store.Suppression) bool { return in.Reason == "" || r.Reason == in.Reason },
		Out:  func(_ *store.Tx, r *store.Suppression) (Suppression, error) { return suppressionOut(r), nil },
	}
	return l.Page(s.Core, who, in.PageIn)
}

// CreateSuppressionIn is the body of create_suppression.
type CreateSuppressionIn struct {
	Email string `json:"email" required:"true" max:"254"`
}

// CreateSuppression keeps the account from sending to an address. For one that is suppressed
// already it answers that.
func (s *Service) CreateSuppression(_ context.Context, who core.Actor, in CreateSuppressionIn) (*Suppression, error) {
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, err
	}
	var out Suppression
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := suppress(tx, who.AccountID, email, "manual", ""); err != nil {
			return err
		}
		r, err := store.Suppressions.Get(tx, who.AccountID+email)
		if err != nil {
			return err
		}
		out = suppressionOut(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteSuppressionIn names one address.
type DeleteSuppressionIn struct {
	Email string `path:"email"`
}

// SuppressionDeleted says that an address may get mail again.
type SuppressionDeleted struct {
	Email   string `json:"email" words:"ours"`
	Deleted bool   `json:"deleted"`
	Message string `json:"message" words:"ours"`
}

// DeleteSuppression lets the account send to an address again.
func (s *Service) DeleteSuppression(_ context.Context, who core.Actor, in DeleteSuppressionIn) (*SuppressionDeleted, error) {
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, core.NotFound("suppressed address")
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		_, err := store.Suppressions.Get(tx, who.AccountID+email)
		if errors.Is(err, store.ErrNotFound) {
			return core.NotFound("suppressed address")
		}
		if err != nil {
			return err
		}
		return store.Suppressions.Delete(tx, who.AccountID+email)
	})
	if err != nil {
		return nil, err
	}
	return &SuppressionDeleted{email, true, email + " may get mail of this account again."}, nil
}
