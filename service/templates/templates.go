// Package templates keeps texts with variables that messages are made of, and fills them in. It
// does not know who sends them to whom.
package templates

import (
	"context"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// perAccount is how many templates an account may have.
const perAccount = 10_000

// A Service keeps templates.
type Service struct{ *core.Core }

// New puts the room together.
func New(c *core.Core) *Service { return &Service{Core: c} }

// A MessageTemplate is a subject and a text with variables, such as {{first_name}}.
type MessageTemplate struct {
	ID        string    `json:"id" words:"ours"`
	Name      string    `json:"name" words:"ours"`
	Subject   string    `json:"subject" words:"ours"`
	Text      *string   `json:"text" words:"ours"`
	HTML      *string   `json:"html" words:"ours"`
	Variables []string  `json:"variables" words:"ours"`
	CreatedAt core.Time `json:"created_at"`
	UpdatedAt core.Time `json:"updated_at"`
}

func templateOut(t *store.MessageTemplate) (*MessageTemplate, error) {
	c := Content{t.Subject, t.Text, t.HTML}
	variables, err := c.Variables()
	return &MessageTemplate{
		t.ID, t.Name, t.Subject, core.OrNull(t.Text), core.OrNull(t.HTML), append([]string{}, variables...),
		core.Time{Time: t.CreatedAt}, core.Time{Time: t.UpdatedAt},
	}, err
}

// Find gives a template of the account; nil if there is none.
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

func target(t *store.MessageTemplate) store.AuditTarget {
	return store.AuditTarget{Type: "message_template", ID: t.ID, Name: t.Name}
}

// ListMessageTemplatesIn is the query of list_message_templates.
type ListMessageTemplatesIn struct{ core.PageIn }

// ListMessageTemplates lists the account's message templates, newest first.
func (s *Service) ListMessageTemplates(_ context.Context, who core.Actor, in ListMessageTemplatesIn) (*core.Page[MessageTemplate], error) {
	l := core.Listing[store.MessageTemplate, MessageTemplate]{
		Operation: "message_templates", Index: store.MessageTemplatesByAccount, Prefix: who.AccountID,
		Out: func(_ *store.Tx, t *store.MessageTemplate) (MessageTemplate, error) {
			out, err := templateOut(t)
			return *out, err
		},
	}
	return l.Page(s.Core, who, in.PageIn)
}

// CreateMessageTemplateIn is the body of create_message_template.
type CreateMessageTemplateIn struct {
	Name    string `json:"name" required:"true" min:"1" max:"100"`
	Subject string `json:"subject" required:"true" max:"998"`
	Text    string `json:"text" max:"500000"`
	HTML    string `json:"html" max:"500000"`
}

// CreateMessageTemplate keeps a template. The error is invalid_template for braces that hold no
// variable.
func (s *Service) CreateMessageTemplate(_ context.Context, who core.Actor, in CreateMessageTemplateIn) (*MessageTemplate, error) {
	t := &store.MessageTemplate{AccountID: who.AccountID, Name: in.Name, Subject: in.Subject, Text: in.Text, HTML: in.HTML}
	var out *MessageTemplate
	err := check(t)
	if err == nil {
		err = s.Store.Update(func(tx *store.Tx) (err error) {
			if store.MessageTemplatesByAccount.Count(tx, who.AccountID, perAccount) >= perAccount {
				return core.Errorf("too_many_items", "An account is limited to %d message templates. Delete one first.", perAccount)
			}
			t.ID, t.CreatedAt, t.UpdatedAt = tx.NewID("mtl"), tx.Now(), tx.Now()
			if out, err = templateOut(t); err != nil {
				return err
			}
			return errors.Join(store.MessageTemplates.Put(tx, t), core.Audit(tx, who, target(t)))
		})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// check refuses what no message could be made of.
func check(t *store.MessageTemplate) error {
	if err := core.CheckLine("name", t.Name); err != nil {
		return err
	}
	if strings.ContainsFunc(t.Subject, unicode.IsControl) {
		return core.Invalid("subject", "invalid", "must be one line of text, without control characters")
	}
	if t.Text == "" && t.HTML == "" {
		return core.Invalid("html", "required", "a template must have text, html or both")
	}
	_, err := Content{t.Subject, t.Text, t.HTML}.Variables()
	return err
}

// MessageTemplateIn names one template.
type MessageTemplateIn struct {
	ID string `path:"id"`
}

// GetMessageTemplate shows one template.
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

// UpdateMessageTemplateIn is the body of update_message_template. An empty text takes that part
// away.
type UpdateMessageTemplateIn struct {
	ID      string           `path:"id"`
	Name    *string          `json:"name" min:"1" max:"100"`
	Subject *string          `json:"subject" max:"998"`
	Text    core.Opt[string] `json:"text" max:"500000"`
	HTML    core.Opt[string] `json:"html" max:"500000"`
}

// UpdateMessageTemplate changes a template. Messages that were made of it stay as they are.
func (s *Service) UpdateMessageTemplate(_ context.Context, who core.Actor, in UpdateMessageTemplateIn) (out *MessageTemplate, err error) {
	if in.Name == nil && in.Subject == nil && !in.Text.Set && !in.HTML.Set {
		return nil, core.Errorf("nothing_to_update", "Give name, subject, text or html.")
	}
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
		if err := check(t); err != nil {
			return err
		}
		t.UpdatedAt = tx.Now()
		if out, err = templateOut(t); err != nil {
			return err
		}
		return errors.Join(store.MessageTemplates.Put(tx, t), core.Audit(tx, who, target(t)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// MessageTemplateDeleted says that a template is gone.
type MessageTemplateDeleted struct {
	Message string `json:"message" words:"ours"`
	ID      string `json:"id" words:"ours"`
}

// DeleteMessageTemplate forgets a template. Messages that were made of it stay, and those that are
// scheduled leave as they are.
func (s *Service) DeleteMessageTemplate(_ context.Context, who core.Actor, in MessageTemplateIn) (*MessageTemplateDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		t, err := templateOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		return errors.Join(store.MessageTemplates.Delete(tx, t.ID), core.Audit(tx, who, target(t)))
	})
	if err != nil {
		return nil, err
	}
	return &MessageTemplateDeleted{"The message template is deleted. Messages that were made of it stay.", in.ID}, nil
}

// PreviewMessageTemplateIn is the body of preview_message_template.
type PreviewMessageTemplateIn struct {
	ID        string    `path:"id"`
	Variables Variables `json:"variables"`
}

// A MessagePreview is a message as it would be made of a template.
type MessagePreview struct {
	Subject string  `json:"subject" words:"ours"`
	Text    *string `json:"text" words:"ours"`
	HTML    *string `json:"html" words:"ours"`
}

// PreviewMessageTemplate shows what a message would be with the variables.
func (s *Service) PreviewMessageTemplate(_ context.Context, who core.Actor, in PreviewMessageTemplateIn) (*MessagePreview, error) {
	var t *store.MessageTemplate
	err := s.Store.View(func(tx *store.Tx) (err error) {
		t, err = templateOf(tx, who, in.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	c, err := Content{t.Subject, t.Text, t.HTML}.Fill(in.Variables)
	if err != nil {
		return nil, err
	}
	return &MessagePreview{c.Subject, core.OrNull(c.Text), core.OrNull(c.HTML)}, nil
}

// Content is what a template says, with variables or filled in.
type Content struct{ Subject, Text, HTML string }

// Variables are the names in the content, sorted. The error is invalid_template.
func (c Content) Variables() (names []string, err error) {
	for _, part := range []struct{ field, text string }{{"subject", c.Subject}, {"text", c.Text}, {"html", c.HTML}} {
		_, err := expand(part.field, part.text, func(name string) (string, error) {
			names = append(names, name)
			return "", nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Fill puts values in the place of variables, once: a value that looks like a variable stays as it
// is. In HTML they are escaped. The error is missing_variable, validation_error for a value that is
// no text, number or boolean or breaks the line of the subject, or invalid_template.
func (c Content) Fill(values Variables) (out Content, err error) {
	for name, v := range values {
		if _, ok := v.text(); !ok {
			return out, core.Invalid("variables."+name, "wrong_type", "must be a text, a number or a boolean")
		}
	}
	value := func(name string) (string, error) {
		v, given := values[name]
		if !given {
			text := fmt.Sprintf("the template needs a value for {{%s}}", name)
			return "", core.Errorf("missing_variable", "variables.%s: %s.", name, text).With("variables."+name, "required", text)
		}
		text, _ := v.text()
		return text, nil
	}
	out.Subject, err = expand("subject", c.Subject, func(name string) (string, error) {
		text, err := value(name)
		if err == nil && strings.ContainsAny(text, "\r\n") {
			err = core.Invalid("variables."+name, "invalid", "is part of the subject, which is one line")
		}
		return text, err
	})
	if err == nil {
		out.Text, err = expand("text", c.Text, value)
	}
	if err == nil {
		out.HTML, err = expand("html", c.HTML, func(name string) (string, error) {
			text, err := value(name)
			return html.EscapeString(text), err
		})
	}
	return out, err
}

// expand puts values in the place of variables.
func expand(field, text string, value func(name string) (string, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		inside, after, closed := strings.Cut(rest, "}}")
		name := strings.Trim(inside, " \t\r\n")
		if !closed || !isName(name) {
			shown := "{{" + inside[:min(len(inside), 40)]
			what := fmt.Sprintf("%q begins no variable: one is {{name}}, of letters, digits, _ and ., and begins with a letter or _", strings.ToValidUTF8(shown, "�"))
			return "", core.Errorf("invalid_template", "%s: %s.", field, what).With(field, "invalid", what)
		}
		v, err := value(name)
		if err != nil {
			return "", err
		}
		out.WriteString(v)
		text = after
	}
}

func isName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '.' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != ""
}
