package feedback

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

// A Suppression is an address that the account does not send to.
type Suppression struct {
	Email     string    `json:"email" words:"theirs"`
	Reason    string    `json:"reason" enum:"bounce|complaint|manual"`
	MessageID *string   `json:"message_id" words:"theirs"` // The Message-ID header of the message that led to it, with brackets; null if none did.
	CreatedAt core.Time `json:"created_at"`
}

func suppressionOut(r *store.Suppression) Suppression {
	return Suppression{r.Email, r.Reason, core.OrNull(r.MessageID), core.Time{Time: r.CreatedAt}}
}

// ListSuppressionsIn is the request of list_suppressions.
type ListSuppressionsIn struct {
	page.Query
	Reason string `query:"reason" enum:"bounce|complaint|manual|"`
}

// ListSuppressions lists the account's suppressed addresses, newest first.
func (s *Service) ListSuppressions(_ context.Context, who core.Actor, in ListSuppressionsIn) (*page.Page[Suppression], error) {
	l := page.Listing[store.Suppression, Suppression]{
		Operation: "suppressions", Index: store.SuppressionsByAccount, Prefix: who.AccountID, Filters: []string{in.Reason},
		Prefilter: page.HasTexts(in.Reason),
		Keep:      func(r *store.Suppression) bool { return in.Reason == "" || r.Reason == in.Reason },
		Out:       func(_ *store.Tx, r *store.Suppression) (Suppression, error) { return suppressionOut(r), nil },
	}
	return l.Page(s.Core, who, in.Query)
}

func suppressionTarget(email string) store.AuditTarget {
	return store.AuditTarget{Type: "suppression", ID: email, Name: email}
}

// CreateSuppressionIn is the request of create_suppression.
type CreateSuppressionIn struct {
	Email string `json:"email" required:"true" max:"254"`
}

// CreateSuppression suppresses an address for the account. If it is suppressed already, it returns
// the existing entry.
func (s *Service) CreateSuppression(_ context.Context, who core.Actor, in CreateSuppressionIn) (*Suppression, error) {
	email, err := core.NormalizeEmail("email", in.Email)
	if err != nil {
		return nil, err
	}
	var out Suppression
	err = s.Store.Update(func(tx *store.Tx) error {
		known, err := core.IsSuppressed(tx, who.AccountID, email)
		if err == nil && !known {
			err = errors.Join(core.Suppress(tx, who.AccountID, email, "manual", ""), core.Audit(tx, who, suppressionTarget(email)))
		}
		if err != nil {
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

// DeleteSuppressionIn is the request of delete_suppression.
type DeleteSuppressionIn struct {
	Email string `path:"email"`
}

// SuppressionDeleted says that an address may get mail again.
type SuppressionDeleted struct {
	Email   string `json:"email" words:"ours"`
	Deleted bool   `json:"deleted"`
	Message string `json:"message" words:"ours" example:"The address gets mail again."` // For people; the text may change.
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
		return errors.Join(store.Suppressions.Delete(tx, who.AccountID+email), core.Audit(tx, who, suppressionTarget(email)))
	})
	if err != nil {
		return nil, err
	}
	return &SuppressionDeleted{email, true, email + " can get mail from this account again."}, nil
}
