// Package templates stores message templates, and fills in their variables. It does not know who
// sends messages to whom.
package templates

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
)

const (
	maxTemplates = 10_000  // templates of one account
	maxPreview   = 4 << 20 // bytes of a filled template that is shown
)

// A Service manages message templates.
type Service struct{ *core.Core }

// New returns a Service.
func New(c *core.Core) *Service { return &Service{Core: c} }

// A MessageTemplate is a subject and a text with variables, such as {{first_name}}.
type MessageTemplate struct {
	ID        string    `json:"id" words:"ours" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name      string    `json:"name" words:"ours"`
	Subject   string    `json:"subject" words:"ours" example:"Welcome, {{first_name}}"`
	Text      *string   `json:"text" words:"ours" example:"Hello {{first_name}}, nice to meet you."`
	HTML      *string   `json:"html" words:"ours" example:"<p>Hello {{first_name}}, nice to meet you.</p>"`
	Variables []string  `json:"variables" words:"ours" example:"first_name"` // The names of its variables, sorted.
	CreatedAt core.Time `json:"created_at"`
	UpdatedAt core.Time `json:"updated_at"`
}

func templateOut(t *store.MessageTemplate) (*MessageTemplate, error) {
	c := Content{t.Subject, t.Text, t.HTML}
	form, err := c.Form()
	if err != nil {
		return nil, err
	}
	return &MessageTemplate{
		t.ID, t.Name, t.Subject, core.OrNull(t.Text), core.OrNull(t.HTML), form.Variables(),
		core.Time{Time: t.CreatedAt}, core.Time{Time: t.UpdatedAt},
	}, nil
}

// Find returns a template of the account; nil if the account has no such template.
func Find(tx *store.Tx, accountID, id string) (*store.MessageTemplate, error) {
	t, err := store.MessageTemplates.Find(tx, id)
	if err != nil || t == nil || t.AccountID != accountID {
		return nil, err
	}
	return t, nil
}

func templateOf(tx *store.Tx, who core.Actor, id string) (*store.MessageTemplate, error) {
	t, err := Find(tx, who.AccountID, id)
	if err == nil && t == nil {
		return nil, core.NotFound("message template")
	}
	return t, err
}

func templateTarget(t *store.MessageTemplate) store.AuditTarget {
	return store.AuditTarget{Type: "message_template", ID: t.ID, Name: t.Name}
}

// ListMessageTemplatesIn is the query of list_message_templates.
type ListMessageTemplatesIn struct{ page.Query }

// ListMessageTemplates lists the account's message templates, newest first.
func (s *Service) ListMessageTemplates(_ context.Context, who core.Actor, in ListMessageTemplatesIn) (*page.Page[MessageTemplate], error) {
	l := page.Listing[store.MessageTemplate, MessageTemplate]{
		Operation: "message_templates", Index: store.MessageTemplatesByAccount, Prefix: who.AccountID,
		Out: func(_ *store.Tx, t *store.MessageTemplate) (MessageTemplate, error) {
			out, err := templateOut(t)
			if err != nil {
				return MessageTemplate{}, err
			}
			return *out, nil
		},
	}
	return l.Page(s.Core, who, in.Query)
}

// CreateMessageTemplateIn is the body of create_message_template.
type CreateMessageTemplateIn struct {
	Name    string `json:"name" required:"true" min:"1" max:"100"`
	Subject string `json:"subject" required:"true" max:"998" example:"Welcome, {{first_name}}"`
	Text    string `json:"text" max:"500000" example:"Hello {{first_name}}, nice to meet you."`
	HTML    string `json:"html" max:"500000" example:"<p>Hello {{first_name}}, nice to meet you.</p>"`
}

// CreateMessageTemplate stores a template. The error is invalid_template if it has double braces
// without a valid variable.
func (s *Service) CreateMessageTemplate(_ context.Context, who core.Actor, in CreateMessageTemplateIn) (*MessageTemplate, error) {
	t := &store.MessageTemplate{AccountID: who.AccountID, Name: in.Name, Subject: in.Subject, Text: in.Text, HTML: in.HTML}
	var out *MessageTemplate
	err := checkTemplate(t)
	if err == nil {
		err = s.Store.Update(func(tx *store.Tx) (err error) {
			if store.MessageTemplatesByAccount.Count(tx, who.AccountID, maxTemplates) >= maxTemplates {
				return core.Errorf("too_many_items", "An account is limited to %d message templates. Delete one first.", maxTemplates)
			}
			t.ID, t.CreatedAt, t.UpdatedAt = tx.NewID("mtl"), tx.Now(), tx.Now()
			out, err = templateOut(t)
			if err != nil {
				return err
			}
			return errors.Join(store.MessageTemplates.Put(tx, t), core.Audit(tx, who, templateTarget(t)))
		})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// checkTemplate validates a template.
func checkTemplate(t *store.MessageTemplate) error {
	if err := core.CheckLine("name", t.Name); err != nil {
		return err
	}
	if strings.ContainsFunc(t.Subject, unicode.IsControl) {
		return core.Invalid("subject", "invalid", "must be one line of text, without control characters")
	}
	if t.Text == "" && t.HTML == "" {
		return core.Invalid("html", "required", "a template must have text, html or both")
	}
	_, err := Content{t.Subject, t.Text, t.HTML}.Form()
	return err
}

// MessageTemplateIn is a request that names one template.
type MessageTemplateIn struct {
	ID string `path:"id" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// GetMessageTemplate returns one template.
func (s *Service) GetMessageTemplate(_ context.Context, who core.Actor, in MessageTemplateIn) (out *MessageTemplate, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.ID)
		if err == nil {
			out, err = templateOut(t)
		}
		return err
	})
	return out, err
}

// UpdateMessageTemplateIn is the body of update_message_template. If text or html is empty, this
// part is removed.
type UpdateMessageTemplateIn struct {
	ID      string           `path:"id" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name    *string          `json:"name" min:"1" max:"100"`
	Subject *string          `json:"subject" max:"998"`
	Text    core.Opt[string] `json:"text" max:"500000"`
	HTML    core.Opt[string] `json:"html" max:"500000"`
}

// UpdateMessageTemplate changes a template. It does not change messages that were made from the
// template before.
func (s *Service) UpdateMessageTemplate(_ context.Context, who core.Actor, in UpdateMessageTemplateIn) (out *MessageTemplate, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		if in.Name != nil {
			t.Name = *in.Name
		}
		if in.Subject != nil {
			t.Subject = *in.Subject
		}
		if in.Text.Set {
			t.Text = in.Text.Value
		}
		if in.HTML.Set {
			t.HTML = in.HTML.Value
		}
		if err := checkTemplate(t); err != nil {
			return err
		}
		t.UpdatedAt = tx.Now()
		out, err = templateOut(t)
		if err != nil {
			return err
		}
		return errors.Join(store.MessageTemplates.Put(tx, t), core.Audit(tx, who, templateTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// MessageTemplateDeleted is the answer after a template was deleted.
type MessageTemplateDeleted struct {
	Message string `json:"message" words:"ours" example:"The message template is deleted."` // For people; the text may change.
	ID      string `json:"id" words:"ours" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// DeleteMessageTemplate deletes a template. Messages that were made from it remain, and scheduled
// ones are sent unchanged.
func (s *Service) DeleteMessageTemplate(_ context.Context, who core.Actor, in MessageTemplateIn) (*MessageTemplateDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		return errors.Join(store.MessageTemplates.Delete(tx, t.ID), core.Audit(tx, who, templateTarget(t)))
	})
	if err != nil {
		return nil, err
	}
	return &MessageTemplateDeleted{"The message template is deleted. Messages that were made of it stay.", in.ID}, nil
}

// PreviewMessageTemplateIn is the body of preview_message_template.
type PreviewMessageTemplateIn struct {
	ID        string    `path:"id" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Variables Variables `json:"variables"` // Values by the names of the variables: texts, numbers or booleans.
}

// A MessagePreview is a message made from a template.
type MessagePreview struct {
	Subject string  `json:"subject" words:"ours"`
	Text    *string `json:"text" words:"ours"`
	HTML    *string `json:"html" words:"ours"` // As it would be sent; it is not sanitised.
}

// PreviewMessageTemplate returns the message that a template makes with the given variables.
func (s *Service) PreviewMessageTemplate(_ context.Context, who core.Actor, in PreviewMessageTemplateIn) (*MessagePreview, error) {
	var t *store.MessageTemplate
	err := s.Store.View(func(tx *store.Tx) (err error) {
		t, err = templateOf(tx, who, in.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	form, err := Content{t.Subject, t.Text, t.HTML}.Form()
	if err != nil {
		return nil, err
	}
	size, err := form.Size(in.Variables)
	if err == nil && size > maxPreview {
		err = core.Errorf("payload_too_large", "With these variables the message has %d bytes, and a preview can have at most %d MiB. Use shorter values.", size, maxPreview>>20)
	}
	if err != nil {
		return nil, err
	}
	c, err := form.Fill(in.Variables)
	if err != nil {
		return nil, err
	}
	return &MessagePreview{c.Subject, core.OrNull(c.Text), core.OrNull(c.HTML)}, nil
}
