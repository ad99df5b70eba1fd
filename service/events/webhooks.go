package events

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

// APIVersion is the version of event envelopes for new endpoints. An endpoint keeps the version
// with which it was created.
const APIVersion = "2026-11-01"

const (
	rotationOverlap = 24 * time.Hour // how long the previous secret also signs after a rotation
	maxFailures     = 25             // failed events in a row before an endpoint is disabled
	DeliveryLogTTL  = 30 * 24 * time.Hour
)

// A Webhook is an endpoint as the API shows it, without its secret.
type Webhook struct {
	ID                  string    `json:"id" words:"ours" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	URL                 string    `json:"url" words:"ours"`
	Events              []string  `json:"events" words:"ours"` // Event types, or `*` alone for all.
	Description         *string   `json:"description" words:"ours"`
	Status              string    `json:"status" enum:"enabled|disabled"`
	DisabledReason      *string   `json:"disabled_reason" enum:"manual|consecutive_failures|gone" rare:"true"`
	DisabledAt          core.Time `json:"disabled_at"`
	ConsecutiveFailures int       `json:"consecutive_failures"`
	APIVersion          string    `json:"api_version" words:"ours"` // The version of event envelopes, fixed when an endpoint is created.
	SecretHint          string    `json:"secret_hint" words:"ours"` // The secret's last four characters.
	LastDeliveryAt      core.Time `json:"last_delivery_at"`
	LastSuccessAt       core.Time `json:"last_success_at"`
	CreatedAt           core.Time `json:"created_at"`
	UpdatedAt           core.Time `json:"updated_at"`
}

func webhookOut(w *store.Webhook) Webhook {
	return Webhook{
		ID: w.ID, URL: w.URL, Events: w.Events, Description: core.OrNull(w.Description), Status: w.Status,
		DisabledReason: core.OrNull(w.DisabledReason), DisabledAt: core.Time{Time: w.DisabledAt}, ConsecutiveFailures: w.Failures,
		APIVersion: w.APIVersion, SecretHint: w.SecretHint, LastDeliveryAt: core.Time{Time: w.LastDeliveryAt},
		LastSuccessAt: core.Time{Time: w.LastSuccessAt}, CreatedAt: core.Time{Time: w.CreatedAt}, UpdatedAt: core.Time{Time: w.UpdatedAt},
	}
}

// webhookOf returns an endpoint of the account; 404 for another account's.
func webhookOf(tx *store.Tx, who core.Actor, id string) (*store.Webhook, error) {
	w, err := store.Webhooks.Find(tx, id)
	if err == nil && (w == nil || w.AccountID != who.AccountID) {
		return nil, core.NotFound("webhook")
	}
	return w, err
}

// webhookTarget names an endpoint by its host, since the rest of the URL may contain a secret.
func webhookTarget(w *store.Webhook) store.AuditTarget {
	target := store.AuditTarget{Type: "webhook", ID: w.ID}
	if u, err := url.Parse(w.URL); err == nil {
		target.Name = u.Hostname()
	}
	return target
}

// WebhookList is the list of endpoints, with the limit on their number.
type WebhookList struct {
	core.List[Webhook]
	Limit int `json:"limit" example:"10"` // The account's limit of endpoints.
}

// ListWebhooks lists the account's endpoints, newest first.
func (s *Service) ListWebhooks(_ context.Context, who core.Actor) (*WebhookList, error) {
	var out []Webhook
	err := s.Store.View(func(tx *store.Tx) error {
		for _, w := range store.WebhooksByAccount.Desc(tx, who.AccountID, "") {
			out = append(out, webhookOut(w))
		}
		return nil
	})
	return &WebhookList{*core.ListOf(out), core.WebhookLimit}, err
}

// WebhookIn names one endpoint.
type WebhookIn struct {
	ID string `path:"id"`
}

// GetWebhook returns one endpoint.
func (s *Service) GetWebhook(_ context.Context, who core.Actor, in WebhookIn) (*Webhook, error) {
	var out Webhook
	err := s.Store.View(func(tx *store.Tx) error {
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		out = webhookOut(w)
		return nil
	})
	return &out, err
}

// CreateWebhookIn is the body of create_webhook.
type CreateWebhookIn struct {
	URL         string   `json:"url" required:"true"`
	Events      []string `json:"events" required:"true" log:"true"` // Event types, or `*` alone for all.
	Description string   `json:"description" max:"500"`
}

// WebhookCreated is an endpoint with its secret.
type WebhookCreated struct {
	Webhook
	Secret string `json:"secret" words:"ours"` // Signs every delivery.
}

// CreateWebhook creates an endpoint. Subscribing to email.received turns on the universal
// inbox, which lists the messages of all mailboxes of the account.
func (s *Service) CreateWebhook(ctx context.Context, who core.Actor, in CreateWebhookIn) (*WebhookCreated, error) {
	if err := s.Guard.CheckURL(in.URL); err != nil {
		return nil, core.Invalid("url", "invalid", "%s", err)
	}
	events, err := s.cleanEvents(in.Events)
	if err != nil {
		return nil, err
	}
	id, secret := s.Store.NewID("wh"), webhooks.NewSecret()
	w := &store.Webhook{
		ID: id, AccountID: who.AccountID, URL: in.URL, Events: events, Description: in.Description, Status: store.WebhookEnabled,
		Secret: s.Keys.Seal(store.WebhookBinding(id), []byte(secret)), SecretHint: webhooks.SecretHint(secret), APIVersion: APIVersion,
	}
	var out *WebhookCreated
	err = s.Store.Update(func(tx *store.Tx) error {
		if store.WebhooksByAccount.Count(tx, who.AccountID, core.WebhookLimit) >= core.WebhookLimit {
			return core.Errorf("webhook_limit_reached", "An account is limited to %d webhook endpoints. Delete one first.", core.WebhookLimit)
		}
		w.CreatedAt, w.UpdatedAt = tx.Now(), tx.Now()
		if err := errors.Join(s.putWebhook(tx, w), core.Audit(tx, who, webhookTarget(w))); err != nil {
			return err
		}
		out = &WebhookCreated{webhookOut(w), secret}
		return once.KeepAnswer(ctx, s.Core, tx, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// putWebhook stores an endpoint. If it is enabled and subscribes to email.received, the universal
// inbox is turned on.
func (s *Service) putWebhook(tx *store.Tx, w *store.Webhook) error {
	if w.Status == store.WebhookEnabled && SubscribesTo(w, EventEmailReceived) {
		a, err := store.Accounts.Get(tx, w.AccountID)
		if err != nil {
			return err
		}
		if !a.UniversalInbox {
			if err := s.servers.SwitchInbox(tx, core.Actor{}, a, true); err != nil {
				return err
			}
		}
	}
	return store.Webhooks.Put(tx, w)
}

// cleanEvents returns the event types without repeats, or "*" alone. An unknown type is an error.
func (s *Service) cleanEvents(in []string) ([]string, error) {
	var types, out []string
	for _, t := range s.types {
		types = append(types, t.Name)
	}
	for _, e := range in {
		if e != "*" && !slices.Contains(types, e) {
			return nil, core.Invalid("events", "not_allowed", "%.60q is not an event type; use * or some of %s", e, strings.Join(types, ", "))
		}
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, core.Invalid("events", "too_few_items", `must name at least one event type, or be ["*"]`)
	}
	if len(out) > 1 && slices.Contains(out, "*") {
		return nil, core.Invalid("events", "not_allowed", `"*" means every type, so it stands alone`)
	}
	return out, nil
}

// UpdateWebhookIn is the body of update_webhook.
type UpdateWebhookIn struct {
	ID          string           `path:"id"`
	URL         *string          `json:"url"`
	Events      *[]string        `json:"events" log:"true"` // Event types, or `*` alone for all.
	Description core.Opt[string] `json:"description" max:"500"`
	Status      *string          `json:"status" enum:"enabled|disabled" log:"true"`
}

// UpdateWebhook changes an endpoint. Enabling an endpoint resets its failures.
func (s *Service) UpdateWebhook(_ context.Context, who core.Actor, in UpdateWebhookIn) (*Webhook, error) {
	if in.URL != nil {
		if err := s.Guard.CheckURL(*in.URL); err != nil {
			return nil, core.Invalid("url", "invalid", "%s", err)
		}
	}
	var events []string
	if in.Events != nil {
		var err error
		events, err = s.cleanEvents(*in.Events)
		if err != nil {
			return nil, err
		}
	}
	var out Webhook
	err := s.Store.Update(func(tx *store.Tx) error {
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		in.apply(w, events, tx.Now())
		out = webhookOut(w)
		return errors.Join(s.putWebhook(tx, w), core.Audit(tx, who, webhookTarget(w)))
	})
	return &out, err
}

func (in UpdateWebhookIn) apply(w *store.Webhook, events []string, now time.Time) {
	if in.URL != nil {
		w.URL = *in.URL
	}
	if events != nil {
		w.Events = events
	}
	if in.Description.Set {
		w.Description = in.Description.Value
	}
	if in.Status != nil && *in.Status != w.Status {
		w.Status = *in.Status
		w.DisabledReason, w.DisabledAt, w.Failures = "", time.Time{}, 0
		if w.Status == store.WebhookDisabled {
			w.DisabledReason, w.DisabledAt = store.WebhookDisabledManual, now
		}
	}
	w.UpdatedAt = now
}

// WebhookDeleted confirms that an endpoint was deleted.
type WebhookDeleted struct {
	ID      string `json:"id" words:"ours" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Deleted bool   `json:"deleted"`
	// For people; the text may change.
	Message string `json:"message" words:"ours" example:"The endpoint is deleted. Events that waited for it stay in GET /v1/events."`
}

// DeleteWebhook deletes an endpoint; queued events for it are not delivered.
func (s *Service) DeleteWebhook(_ context.Context, who core.Actor, in WebhookIn) (*WebhookDeleted, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		return errors.Join(store.Webhooks.Delete(tx, w.ID), core.Audit(tx, who, webhookTarget(w)))
	})
	if err != nil {
		return nil, err
	}
	return &WebhookDeleted{in.ID, true, "The endpoint is deleted. Events that waited for it stay in GET /v1/events."}, nil
}

// A WebhookSecret is an endpoint's signing secret.
type WebhookSecret struct {
	ID                      string    `json:"id" words:"ours" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Secret                  string    `json:"secret" words:"ours"`        // Signs every delivery.
	PreviousSecretExpiresAt core.Time `json:"previous_secret_expires_at"` // Until then the previous secret also signs.
}

// GetWebhookSecret returns the signing secret. Before that, it records in the audit log who reads
// it.
func (s *Service) GetWebhookSecret(_ context.Context, who core.Actor, in WebhookIn) (*WebhookSecret, error) {
	var out *WebhookSecret
	err := s.Store.Update(func(tx *store.Tx) error {
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		secret, err := s.Keys.Open(store.WebhookBinding(w.ID), w.Secret)
		if err != nil {
			return err
		}
		out = &WebhookSecret{ID: w.ID, Secret: string(secret)}
		if tx.Now().Before(w.OldSecretEnds) {
			out.PreviousSecretExpiresAt = core.Time{Time: w.OldSecretEnds}
		}
		return core.Audit(tx, who, webhookTarget(w))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RotateWebhookSecret makes a new secret; the previous secret also signs for 24 hours.
func (s *Service) RotateWebhookSecret(ctx context.Context, who core.Actor, in WebhookIn) (*WebhookSecret, error) {
	secret := webhooks.NewSecret()
	out := &WebhookSecret{ID: in.ID, Secret: secret}
	err := s.Store.Update(func(tx *store.Tx) error {
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		w.OldSecret, w.OldSecretEnds = w.Secret, tx.Now().Add(rotationOverlap)
		w.Secret, w.SecretHint = s.Keys.Seal(store.WebhookBinding(w.ID), []byte(secret)), webhooks.SecretHint(secret)
		w.UpdatedAt = tx.Now()
		out.PreviousSecretExpiresAt = core.Time{Time: w.OldSecretEnds}
		if err := errors.Join(store.Webhooks.Put(tx, w), core.Audit(tx, who, webhookTarget(w))); err != nil {
			return err
		}
		return once.KeepAnswer(ctx, s.Core, tx, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
