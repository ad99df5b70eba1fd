package mailboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// templateLimit is how many templates an account may have, since their list is not paged.
const templateLimit = 1000

// A Template is a named list of usernames from which mailboxes can be created.
type Template struct {
	ID         string    `json:"id" words:"ours" example:"tpl_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same as template_id.
	TemplateID string    `json:"template_id" words:"ours"`
	Name       string    `json:"name" words:"ours" example:"Sales"`
	Usernames  []string  `json:"usernames" words:"ours"`
	CreatedAt  core.Time `json:"created_at"`
	UpdatedAt  core.Time `json:"updated_at"`
}

func templateOut(t *store.Template) *Template {
	return &Template{t.ID, t.ID, t.Name, append([]string{}, t.Usernames...), core.Time{Time: t.CreatedAt}, core.Time{Time: t.UpdatedAt}}
}

// templateOf returns a template of the account.
func templateOf(tx *store.Tx, who core.Actor, id string) (*store.Template, error) {
	t, err := store.Templates.Find(tx, id)
	if err == nil && (t == nil || t.AccountID != who.AccountID) {
		return nil, core.NotFound("template")
	}
	return t, err
}

func templateTarget(t *store.Template) store.AuditTarget {
	return store.AuditTarget{Type: "template", ID: t.ID, Name: t.Name}
}

// ListTemplates lists the account's templates, newest first.
func (s *Service) ListTemplates(_ context.Context, who core.Actor) (*core.List[Template], error) {
	var out []Template
	err := s.Store.View(func(tx *store.Tx) error {
		for _, t := range store.TemplatesByAccount.Desc(tx, who.AccountID, "") {
			out = append(out, *templateOut(t))
		}
		return nil
	})
	return core.ListOf(out), err
}

// CreateTemplateIn is the body of create_template.
type CreateTemplateIn struct {
	Name      string   `json:"name" required:"true" min:"1" max:"100" example:"Sales"`
	Usernames []string `json:"usernames" required:"true" min:"1" max:"50" log:"true"`
}

// CreateTemplate stores a named list of usernames.
func (s *Service) CreateTemplate(_ context.Context, who core.Actor, in CreateTemplateIn) (*Template, error) {
	usernames, err := cleanUsernames(in.Usernames)
	if err != nil {
		return nil, err
	}
	if err := core.CheckLine("name", in.Name); err != nil {
		return nil, err
	}
	t := &store.Template{AccountID: who.AccountID, Name: in.Name, Usernames: usernames}
	err = s.Store.Update(func(tx *store.Tx) error {
		if store.TemplatesByAccount.Count(tx, who.AccountID, templateLimit) >= templateLimit {
			return core.Errorf("too_many_items", "An account is limited to %d templates. Delete one first.", templateLimit)
		}
		t.ID, t.CreatedAt, t.UpdatedAt = tx.NewID("tpl"), tx.Now(), tx.Now()
		return errors.Join(store.Templates.Put(tx, t), core.Audit(tx, who, templateTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	return templateOut(t), nil
}

// cleanUsernames normalizes usernames. The error lists every one that is not valid.
func cleanUsernames(in []string) ([]string, error) {
	bad := core.Errorf("validation_error", "Some usernames are not valid; see details.")
	out := make([]string, 0, len(in))
	for i, given := range in {
		field := fmt.Sprintf("usernames.%d", i)
		name, err := cleanUsername(given)
		if e, ours := core.AsError(err); ours {
			bad = bad.With(field, e.Details[0].Code, e.Details[0].Message)
			continue
		}
		if slices.Contains(out, name) {
			bad = bad.With(field, "duplicate", name+" is given twice")
		}
		out = append(out, name)
	}
	if len(bad.Details) > 0 {
		return nil, bad
	}
	return out, nil
}

// TemplateIn is a request that names one template.
type TemplateIn struct {
	TemplateID string `path:"template_id"`
}

// GetTemplate returns one template.
func (s *Service) GetTemplate(_ context.Context, who core.Actor, in TemplateIn) (*Template, error) {
	var out *Template
	err := s.Store.View(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.TemplateID)
		if err == nil {
			out = templateOut(t)
		}
		return err
	})
	return out, err
}

// UpdateTemplateIn is the body of update_template.
type UpdateTemplateIn struct {
	TemplateID string    `path:"template_id"`
	Name       *string   `json:"name" min:"1" max:"100" example:"Sales"`
	Usernames  *[]string `json:"usernames" min:"1" max:"50" log:"true"`
}

// UpdateTemplate changes a template's name, its usernames or both. Mailboxes that were created
// from it are not changed.
func (s *Service) UpdateTemplate(_ context.Context, who core.Actor, in UpdateTemplateIn) (*Template, error) {
	var usernames []string
	if in.Usernames != nil {
		var err error
		usernames, err = cleanUsernames(*in.Usernames)
		if err != nil {
			return nil, err
		}
	}
	if in.Name != nil {
		if err := core.CheckLine("name", *in.Name); err != nil {
			return nil, err
		}
	}
	var out *Template
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.TemplateID)
		if err != nil {
			return err
		}
		if in.Name != nil {
			t.Name = *in.Name
		}
		if usernames != nil {
			t.Usernames = usernames
		}
		t.UpdatedAt = tx.Now()
		out = templateOut(t)
		return errors.Join(store.Templates.Put(tx, t), core.Audit(tx, who, templateTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// TemplateDeleted is the answer after a template was deleted.
type TemplateDeleted struct {
	Message    string `json:"message" words:"ours" example:"The template is deleted."` // For people; the text may change.
	TemplateID string `json:"template_id" words:"ours"`
}

// DeleteTemplate deletes a template. Mailboxes that were created from it stay.
func (s *Service) DeleteTemplate(_ context.Context, who core.Actor, in TemplateIn) (*TemplateDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.TemplateID)
		if err != nil {
			return err
		}
		return errors.Join(store.Templates.Delete(tx, t.ID), core.Audit(tx, who, templateTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	return &TemplateDeleted{"The template is deleted. Mailboxes that were created from it stay.", in.TemplateID}, nil
}
