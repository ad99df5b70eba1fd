package events

import (
	"cmp"
	"context"
	"errors"
	"maps"
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
	// Header fields that are sent with each delivery. A value is shown as `…` and, if it has 16
	// characters or more, its last four.
	Headers map[string]string `json:"headers" words:"ours" example:"{\"X-Api-Key\":\"…a1b2\"}"`
	Filters *WebhookFilters   `json:"filters"` // Null: it gets events about every mailbox and domain.
}

// WebhookFilters limit an endpoint to events about the mailboxes and domains that they list, and to
// events that are about neither.
type WebhookFilters struct {
	Mailboxes []string `json:"mailboxes" words:"ours" max:"500" example:"[\"eu_01k9a2b3c4d5e6f7g8h9j0k1m2\"]"` // Their user_id.
	Domains   []string `json:"domains" words:"ours" max:"500" example:"[]"`                                    // Their domain_id. A listed domain includes its mailboxes.
}

func webhookOut(w *store.Webhook) Webhook {
	headers := map[string]string{}
	for _, h := range w.Headers {
		headers[h.Name] = h.Mask
	}
	var filters *WebhookFilters
	if f := w.Filters; f != nil {
		filters = &WebhookFilters{append([]string{}, f.Mailboxes...), append([]string{}, f.Domains...)}
	}
	return Webhook{
		ID: w.ID, URL: w.URL, Events: w.Events, Description: core.OrNull(w.Description), Status: w.Status,
		DisabledReason: core.OrNull(w.DisabledReason), DisabledAt: core.Time{Time: w.DisabledAt}, ConsecutiveFailures: w.Failures,
		APIVersion: w.APIVersion, SecretHint: w.SecretHint, LastDeliveryAt: core.Time{Time: w.LastDeliveryAt},
		LastSuccessAt: core.Time{Time: w.LastSuccessAt}, CreatedAt: core.Time{Time: w.CreatedAt}, UpdatedAt: core.Time{Time: w.UpdatedAt},
		Headers: headers, Filters: filters,
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
	ID string `path:"id" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
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
	// Header fields to send with each delivery, at most 10, with values of printable ASCII.
	Headers map[string]string `json:"headers" example:"{\"X-Api-Key\":\"0c6b3f5e8a7d4e2fa1b2\"}"`
	Filters *WebhookFilters   `json:"filters"` // Leave it out, or null, for events about every mailbox and domain.
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
	headers, err := s.sealHeaders(&store.Webhook{ID: id}, in.Headers)
	if err != nil {
		return nil, err
	}
	w := &store.Webhook{
		ID: id, AccountID: who.AccountID, URL: in.URL, Events: events, Description: in.Description, Status: store.WebhookEnabled,
		Secret: s.Keys.Seal(store.WebhookBinding(id), []byte(secret)), SecretHint: webhooks.SecretHint(secret), APIVersion: APIVersion,
		Headers: headers,
	}
	var out *WebhookCreated
	err = s.Store.Update(func(tx *store.Tx) error {
		if store.WebhooksByAccount.Count(tx, who.AccountID, core.WebhookLimit) >= core.WebhookLimit {
			return core.Errorf("webhook_limit_reached", "An account is limited to %d webhook endpoints. Delete one first.", core.WebhookLimit)
		}
		w.CreatedAt, w.UpdatedAt = tx.Now(), tx.Now()
		w.Filters, err = cleanFilters(tx, who, in.Filters)
		if err != nil {
			return err
		}
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
	if w.Status == store.WebhookEnabled && w.SubscribesTo(EventEmailReceived) {
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
	ID          string           `path:"id" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	URL         *string          `json:"url"`
	Events      *[]string        `json:"events" log:"true"` // Event types, or `*` alone for all.
	Description core.Opt[string] `json:"description" max:"500"`
	Status      *string          `json:"status" enum:"enabled|disabled" log:"true"`
	// Replaces all header fields. A value as it is shown, such as `…a1b2`, keeps the value that the
	// field has.
	Headers *map[string]string       `json:"headers" example:"{\"X-Api-Key\":\"…a1b2\"}"`
	Filters core.Opt[WebhookFilters] `json:"filters"` // Replaces the filters; null removes them.
}

// UpdateWebhook changes an endpoint. Enabling an endpoint resets its failures. An endpoint that
// moves to another origin loses its header fields and its secret, and gets a new secret: whoever
// may change the URL does not learn what the former receiver was sent.
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
	secret := webhooks.NewSecret() // needed if the endpoint moves
	err := s.Store.Update(func(tx *store.Tx) error {
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		if in.URL != nil && !sameOrigin(w.URL, *in.URL) {
			w.Headers, w.OldSecret, w.OldSecretEnds = nil, nil, time.Time{}
			w.Secret, w.SecretHint = s.Keys.Seal(store.WebhookBinding(w.ID), []byte(secret)), webhooks.SecretHint(secret)
		}
		if in.Headers != nil {
			w.Headers, err = s.sealHeaders(w, *in.Headers)
			if err != nil {
				return err
			}
		}
		if in.Filters.Set {
			w.Filters, err = cleanFilters(tx, who, in.Filters.OrNil())
			if err != nil {
				return err
			}
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

// maxHeaders is how many header fields an endpoint can have.
const maxHeaders = 10

// sealHeaders returns the header fields with sealed values, sorted by name. A value that equals the
// mask of the field that w has is the value of that field.
func (s *Service) sealHeaders(w *store.Webhook, in map[string]string) (out []store.WebhookHeader, err error) {
	if len(in) > maxHeaders {
		return nil, core.Invalid("headers", "too_many_items", "can have at most %d fields", maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		same := func(h store.WebhookHeader) bool { return strings.EqualFold(h.Name, name) }
		if err := webhooks.CheckHeaderName(name); err != nil {
			return nil, core.Invalid("headers", "not_allowed", "%.60q %s", name, err)
		}
		if slices.ContainsFunc(out, same) {
			return nil, core.Invalid("headers", "duplicate", "%s is there twice; upper and lower case do not matter", name)
		}
		value := in[name]
		if i := slices.IndexFunc(w.Headers, same); i >= 0 && value == w.Headers[i].Mask {
			out = append(out, store.WebhookHeader{Name: name, Sealed: w.Headers[i].Sealed, Mask: value})
			continue
		}
		if strings.HasPrefix(value, webhooks.MaskHeader("")) {
			return nil, core.Invalid("headers", "invalid", "%s: the endpoint has no value that is shown so; give the value itself", name)
		}
		if err := webhooks.CheckHeaderValue(value); err != nil {
			return nil, core.Invalid("headers", "invalid", "the value of %s %s", name, err)
		}
		sealed := s.Keys.Seal(store.WebhookHeaderBinding(w.ID, strings.ToLower(name)), []byte(value))
		out = append(out, store.WebhookHeader{Name: name, Sealed: sealed, Mask: webhooks.MaskHeader(value)})
	}
	return out, nil
}

// openHeaders returns the values of an endpoint's header fields by their names.
func (s *Service) openHeaders(w *store.Webhook) (map[string]string, error) {
	out := map[string]string{}
	for _, h := range w.Headers {
		value, err := s.Keys.Open(store.WebhookHeaderBinding(w.ID, strings.ToLower(h.Name)), h.Sealed)
		if err != nil {
			return nil, err
		}
		out[h.Name] = string(value)
	}
	return out, nil
}

// sameOrigin reports whether two https URLs have the same host and port.
func sameOrigin(a, b string) bool {
	one, errOne := url.Parse(a)
	two, errTwo := url.Parse(b)
	if errOne != nil || errTwo != nil {
		return false
	}
	return strings.EqualFold(one.Hostname(), two.Hostname()) && cmp.Or(one.Port(), "443") == cmp.Or(two.Port(), "443")
}

// cleanFilters returns filters without repeats; nil if in is nil. The error names an id that no
// mailbox or domain of the account has.
func cleanFilters(tx *store.Tx, who core.Actor, in *WebhookFilters) (*store.WebhookFilters, error) {
	if in == nil {
		return nil, nil
	}
	out := &store.WebhookFilters{Mailboxes: withoutRepeats(in.Mailboxes), Domains: withoutRepeats(in.Domains)}
	for _, id := range out.Mailboxes {
		mb, err := core.ReadMailbox(tx, who, id)
		if core.IsNotFound(err) || err == nil && mb.Gone() {
			return nil, core.Invalid("filters.mailboxes", "not_allowed", "%.60q is not the user_id of a mailbox of this account", id)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, id := range out.Domains {
		_, err := core.DomainOf(tx, who, id)
		if core.IsNotFound(err) {
			return nil, core.Invalid("filters.domains", "not_allowed", "%.60q is not the domain_id of a domain of this account", id)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func withoutRepeats(list []string) (out []string) {
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// DropFromFilters removes the id of a deleted mailbox or domain from the filters of the account's
// endpoints. Filters that become empty stay, and select no event about a mailbox or domain.
func (s *Service) DropFromFilters(tx *store.Tx, accountID, id string) error {
	var ids []string
	for _, webhookID := range store.WebhooksByAccount.Keys(tx, accountID, "") {
		ids = append(ids, webhookID)
	}
	for _, webhookID := range ids {
		w, err := store.Webhooks.Get(tx, webhookID)
		if err != nil {
			return err
		}
		f := w.Filters
		if f == nil || !slices.Contains(f.Mailboxes, id) && !slices.Contains(f.Domains, id) {
			continue
		}
		isID := func(other string) bool { return other == id }
		w.Filters = &store.WebhookFilters{Mailboxes: slices.DeleteFunc(f.Mailboxes, isID), Domains: slices.DeleteFunc(f.Domains, isID)}
		w.UpdatedAt = tx.Now()
		if err := store.Webhooks.Put(tx, w); err != nil {
			return err
		}
	}
	return nil
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
