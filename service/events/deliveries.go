package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

// webhookAttempts is how often an event is sent to one endpoint at most: once, and six retries.
const webhookAttempts = 7

// DeliveryArgs are the arguments of the job that delivers one event to one endpoint.
type DeliveryArgs struct {
	WebhookID string `json:"webhook_id"`
	EventID   string `json:"event_id"`
	Trigger   string `json:"trigger"` // event, test or redeliver
}

func (s *Service) deliveryKind() jobs.Kind {
	return jobs.Kind{
		Name: "webhook", Work: s.deliverWebhook, Max: webhookAttempts, Timeout: time.Minute, PerLane: 4, Most: 64, MostEach: 48,
		Backoff: func(attempt int, r float64) time.Duration {
			wait, _ := webhooks.RetryWait(attempt, r)
			return wait
		},
	}
}

// An EventEnvelope is an event as endpoints get it and GET /v1/events shows it.
type EventEnvelope struct {
	ID         string    `json:"id" words:"ours" example:"evt_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same at every attempt, so that you can recognise repeats.
	Object     string    `json:"object" words:"ours"`                                      // Always `event`.
	Type       string    `json:"type" words:"ours" example:"test.ping"`                    // What happened.
	APIVersion string    `json:"api_version" words:"ours"`                                 // The version of event envelopes, fixed when an endpoint is created.
	Created    core.Time `json:"created"`
	AccountID  string    `json:"account_id" words:"ours"`
	// The data of the event; its form depends on the type, see the webhooks.
	Data json.RawMessage `json:"data" example:"{\"message\":\"This is a test event from Mailstead.\",\"sent_at\":\"2026-11-05T09:30:00.000Z\",\"webhook_id\":\"wh_01k9a2b3c4d5e6f7g8h9j0k1m2\"}"`
}

func envelopeOf(e *store.Event, version string) EventEnvelope {
	return EventEnvelope{e.ID, "event", e.Type, version, core.Time{Time: e.Created}, e.AccountID, e.Data}
}

// deliverWebhook makes one attempt to deliver an event.
func (s *Service) deliverWebhook(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[DeliveryArgs](j)
	if err != nil {
		return nil, err
	}
	w, e, err := s.loadDelivery(args)
	if errors.Is(err, store.ErrNotFound) || err == nil && w.Status != store.WebhookEnabled && args.Trigger == "event" {
		return nil, nil // the endpoint was deleted or disabled
	}
	if err != nil {
		return nil, err
	}
	d := webhooks.Delivery{URL: w.URL, EventID: e.ID, EventType: e.Type, DeliveryID: s.Store.NewID("dlv"), Attempt: j.Attempt}
	d.Secrets, err = s.signingSecrets(w)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d.Headers, err = s.openHeaders(w)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	d.Body, err = json.Marshal(envelopeOf(e, w.APIVersion))
	if err != nil {
		return nil, jobs.Permanent(fmt.Errorf("encode event %s: %w", e.ID, err))
	}
	at := s.Now()
	killpoint.At("webhook.post")
	traced, span := s.Tracer.Start(ctx, otlp.Client, "post webhook")
	span.Set("event_id", e.ID)
	span.Set("event_type", e.Type)
	span.Set("webhook_id", w.ID)
	r := s.poster.Post(traced, d)
	span.SetInt("http.response.status_code", r.HTTPStatus)
	if r.Outcome == webhooks.Failed {
		span.Set("error.type", r.ErrorCode)
		span.Fail()
	}
	span.End()
	killpoint.At("webhook.posted")
	if ctx.Err() != nil && r.Outcome == webhooks.Failed {
		return nil, ctx.Err() // this server is stopping: not the receiver's fault
	}
	row := &store.Delivery{
		ID: d.DeliveryID, WebhookID: w.ID, AccountID: w.AccountID, EventID: e.ID, EventType: e.Type, Attempt: j.Attempt,
		Outcome: r.Outcome, HTTPStatus: r.HTTPStatus, Error: r.Error, ErrorCode: r.ErrorCode, URL: w.URL, At: at,
		DurationMS: r.Duration.Milliseconds(), Excerpt: r.Excerpt, Trigger: args.Trigger,
	}
	if j.Attempt > 1 {
		row.Trigger = "retry"
	}
	return s.recordDelivery(row, r.Gone), deliveryError(r)
}

func (s *Service) loadDelivery(args DeliveryArgs) (w *store.Webhook, e *store.Event, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		w, err = store.Webhooks.Get(tx, args.WebhookID)
		if err != nil {
			return err
		}
		e, err = store.Events.Get(tx, args.EventID)
		return err
	})
	return w, e, err
}

func (s *Service) signingSecrets(w *store.Webhook) ([]string, error) {
	current, err := s.Keys.Open(store.WebhookBinding(w.ID), w.Secret)
	if err != nil {
		return nil, err
	}
	secrets := []string{string(current)}
	if s.Now().Before(w.OldSecretEnds) {
		old, err := s.Keys.Open(store.WebhookBinding(w.ID), w.OldSecret)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, string(old))
	}
	return secrets, nil
}

// deliveryError converts the result of a delivery to the error of its job; nil if the delivery
// succeeded.
func deliveryError(r webhooks.Result) error {
	if r.Outcome == webhooks.Success {
		return nil
	}
	err := fmt.Errorf("%s: %s", r.ErrorCode, r.Error)
	if r.Gone {
		return jobs.Permanent(err)
	}
	return err
}

// recordDelivery returns the writes that log an attempt and update its endpoint. They belong to the
// transaction that stores the job's new state. gone says that the endpoint does not exist any more,
// so that it is disabled.
func (s *Service) recordDelivery(row *store.Delivery, gone bool) jobs.Writes {
	return func(tx *store.Tx, j *store.Job) error {
		if j.State == store.JobQueued {
			row.NextAt = j.Due
		}
		if err := store.Deliveries.Put(tx, row); err != nil {
			return err
		}
		tx.After(func() { s.Metrics.Webhooks.Add(row.Outcome) })
		w, err := store.Webhooks.Find(tx, row.WebhookID)
		if w == nil || err != nil {
			return err
		}
		w.LastDeliveryAt = row.At
		switch {
		case row.Outcome == webhooks.Success:
			w.LastSuccessAt, w.Failures = row.At, 0
		case gone:
			disableWebhook(w, store.WebhookDisabledGone, tx.Now())
		case j.State == store.JobError && row.EventType != EventTestPing:
			if w.Failures++; w.Failures >= maxFailures {
				disableWebhook(w, store.WebhookDisabledFailures, tx.Now())
			}
		}
		return store.Webhooks.Put(tx, w)
	}
}

func disableWebhook(w *store.Webhook, reason string, now time.Time) {
	if w.Status == store.WebhookEnabled {
		w.Status, w.DisabledReason, w.DisabledAt, w.UpdatedAt = store.WebhookDisabled, reason, now, now
	}
}

// WebhookTested confirms that a test.ping is queued.
type WebhookTested struct {
	EventID string `json:"event_id" words:"ours"`
	Type    string `json:"type" words:"ours" example:"test.ping"`
	Queued  bool   `json:"queued"`
	Message string `json:"message" words:"ours" example:"A test.ping is on its way."` // For people; the text may change.
}

// TestWebhook sends a test.ping to the endpoint, disabled or not.
func (s *Service) TestWebhook(ctx context.Context, who core.Actor, in WebhookIn) (*WebhookTested, error) {
	out := &WebhookTested{Type: EventTestPing, Queued: true, Message: "A test.ping is on its way. See the endpoint's deliveries for the result."}
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		data, err := json.Marshal(PingData{w.ID, "This is a test event from Mailstead.", core.Time{Time: tx.Now()}})
		if err != nil {
			return err
		}
		e := &store.Event{ID: tx.NewID("evt"), AccountID: w.AccountID, Type: EventTestPing, Created: tx.Now(), Data: data}
		if err := store.Events.Put(tx, e); err != nil {
			return err
		}
		out.EventID = e.ID
		return errors.Join(s.addDelivery(tx, w.AccountID, DeliveryArgs{w.ID, e.ID, "test"}), core.Audit(tx, who, webhookTarget(w)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

type PingData struct {
	WebhookID string    `json:"webhook_id" words:"ours"`
	Message   string    `json:"message" words:"ours" example:"This is a test event from Mailstead."` // For people; the text may change.
	SentAt    core.Time `json:"sent_at"`
}

// A Delivery is one delivery attempt as the API shows it.
type Delivery struct {
	ID              string    `json:"id" words:"ours" example:"dlv_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	EventID         string    `json:"event_id" words:"ours"`
	EventType       string    `json:"event_type" words:"ours"`
	Attempt         int       `json:"attempt"` // From 1 to 7.
	Outcome         string    `json:"outcome" enum:"success|failed|pending"`
	HTTPStatus      *int      `json:"http_status"`
	Error           *string   `json:"error" words:"theirs" rare:"true"`
	ErrorCode       *string   `json:"error_code" enum:"timeout|dns|connect|tls|http_status|blocked_address" rare:"true"`
	DurationMS      int64     `json:"duration_ms"`
	ResponseExcerpt *string   `json:"response_excerpt" words:"theirs"`
	URL             string    `json:"url" words:"ours"` // Where it was sent.
	Trigger         string    `json:"trigger" enum:"event|retry|test|redeliver"`
	AttemptedAt     core.Time `json:"attempted_at"`
	NextAttemptAt   core.Time `json:"next_attempt_at"`
}

func deliveryOut(d *store.Delivery) Delivery {
	return Delivery{
		ID: d.ID, EventID: d.EventID, EventType: d.EventType, Attempt: d.Attempt, Outcome: d.Outcome,
		HTTPStatus: core.LimitOrNil(d.HTTPStatus), Error: core.OrNull(d.Error), ErrorCode: core.OrNull(d.ErrorCode), DurationMS: d.DurationMS,
		ResponseExcerpt: core.OrNull(d.Excerpt), URL: d.URL, Trigger: d.Trigger, AttemptedAt: core.Time{Time: d.At}, NextAttemptAt: core.Time{Time: d.NextAt},
	}
}

// ListDeliveriesIn is the query of list_webhook_deliveries.
type ListDeliveriesIn struct {
	page.Query
	ID        string `path:"id" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	EventType string `query:"event_type"`
	Outcome   string `query:"outcome" enum:"success|failed|pending|"`
	EventID   string `query:"event_id"`
}

// ListWebhookDeliveries lists an endpoint's attempts of the last 30 days, newest first.
func (s *Service) ListWebhookDeliveries(_ context.Context, who core.Actor, in ListDeliveriesIn) (*page.Page[Delivery], error) {
	l := page.Listing[store.Delivery, Delivery]{
		Operation: "deliveries", Index: store.DeliveriesByWebhook, Prefix: in.ID, Filters: []string{in.ID, in.EventType, in.Outcome, in.EventID},
		Prefilter: page.HasTexts(in.EventType, in.Outcome, in.EventID),
		Keep: func(d *store.Delivery) bool {
			return (in.EventType == "" || d.EventType == in.EventType) && (in.Outcome == "" || d.Outcome == in.Outcome) &&
				(in.EventID == "" || d.EventID == in.EventID)
		},
		Out: func(_ *store.Tx, d *store.Delivery) (Delivery, error) { return deliveryOut(d), nil },
		First: func(tx *store.Tx) error {
			_, err := webhookOf(tx, who, in.ID)
			return err
		},
	}
	return l.Page(s.Core, who, in.Query)
}

// RedeliverIn names one event in an endpoint's log.
type RedeliverIn struct {
	ID      string `path:"id" example:"wh_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	EventID string `path:"event_id"`
}

// Redelivered confirms that an event is queued to be sent again.
type Redelivered struct {
	EventID   string `json:"event_id" words:"ours"`
	WebhookID string `json:"webhook_id" words:"ours"`
	Queued    bool   `json:"queued"`
	Message   string `json:"message" words:"ours" example:"The event is on its way again, with the same id."` // For people; the text may change.
}

// RedeliverEvent sends an event of the endpoint's log again.
func (s *Service) RedeliverEvent(ctx context.Context, who core.Actor, in RedeliverIn) (*Redelivered, error) {
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		w, err := webhookOf(tx, who, in.ID)
		if err != nil {
			return err
		}
		e, err := store.Events.Find(tx, in.EventID)
		if err != nil {
			return err
		}
		if e == nil || e.AccountID != who.AccountID || !inLog(tx, w, e) {
			return core.NotFound("event in this endpoint's log")
		}
		return errors.Join(s.addDelivery(tx, w.AccountID, DeliveryArgs{w.ID, e.ID, "redeliver"}), core.Audit(tx, who, webhookTarget(w)))
	})
	if err != nil {
		return nil, err
	}
	return &Redelivered{in.EventID, in.ID, true, "The event is on its way again, with the same id."}, nil
}

// inLog reports whether the event was sent to the endpoint, or will be: the first attempt may still
// be queued.
func inLog(tx *store.Tx, w *store.Webhook, e *store.Event) bool {
	if store.DeliveriesByEvent.Has(tx, w.ID+e.ID) {
		return true
	}
	if e.Type == EventTestPing {
		var ping PingData
		return json.Unmarshal(e.Data, &ping) == nil && ping.WebhookID == w.ID
	}
	// The event was fanned out to the endpoint if the endpoint has not changed since the event, and
	// has no filters.
	return w.Filters == nil && w.Status == store.WebhookEnabled && w.SubscribesTo(e.Type) && !w.UpdatedAt.After(e.Created)
}
