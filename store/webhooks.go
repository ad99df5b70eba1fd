package store

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Webhook is an endpoint that events are sent to.
type Webhook struct {
	ID             string // wh_…
	AccountID      string
	URL            string
	Events         []string
	Description    string
	Status         string // one of the Webhook… constants
	DisabledReason string // one of the WebhookDisabled… constants; "" while it is enabled
	DisabledAt     time.Time
	Failures       int    // number of events in a row that could not be delivered
	Secret         []byte // sealed
	SecretHint     string
	OldSecret      []byte // sealed; also used for signatures until OldSecretEnds
	OldSecretEnds  time.Time
	APIVersion     string
	LastDeliveryAt time.Time
	LastSuccessAt  time.Time
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Headers        []WebhookHeader `json:",omitempty"` // sent with each delivery
	Filters        *WebhookFilters `json:",omitempty"` // nil: the endpoint gets events about every mailbox and domain
}

// SubscribesTo reports whether the endpoint subscribes to a type of event.
func (w *Webhook) SubscribesTo(kind string) bool {
	return slices.Contains(w.Events, "*") || slices.Contains(w.Events, kind)
}

// A WebhookHeader is a header field that is sent with each delivery.
type WebhookHeader struct {
	Name   string
	Sealed []byte // the value
	Mask   string // what is shown instead of the value
}

// WebhookFilters limit an endpoint to events about some mailboxes and domains, by their ids.
type WebhookFilters struct {
	Mailboxes, Domains []string `json:",omitempty"`
}

// Values of Webhook.Status.
const (
	WebhookEnabled  = "enabled"
	WebhookDisabled = "disabled"
)

// Values of Webhook.DisabledReason.
const (
	WebhookDisabledManual   = "manual"
	WebhookDisabledFailures = "consecutive_failures"
	WebhookDisabledGone     = "gone" // the endpoint answered 410
)

// Webhooks keeps the endpoints of every account.
var (
	Webhooks = engine.NewTable("webhook", func(w *Webhook) string { return w.ID }).
			Watched(func(_ *engine.Tx, w *Webhook) Change { return Change{Account: w.AccountID, ID: w.ID} }).Sealed((*Webhook).visitSecrets)
	WebhooksByAccount = Webhooks.Index("account", func(w *Webhook) string { return w.AccountID })
)

// An Event is something that happened in an account. It is written in the transaction that makes it
// happen, and kept for 30 days whether or not an endpoint wants it. Each endpoint gets it by
// Deliveries of its own.
type Event struct {
	ID        string // evt_…
	AccountID string
	Type      string
	Created   time.Time
	Data      json.RawMessage
}

func (e *Event) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&e.ID)
	c.String(&e.AccountID)
	c.String(&e.Type)
	c.Time(&e.Created)
	c.Bytes((*[]byte)(&e.Data))
}

// Events keeps the events. Ids increase with time, so that pruning deletes the first rows.
var (
	Events = engine.NewTable("event", func(e *Event) string { return e.ID }).
		Binary((*Event).codeFields).Watched(func(_ *engine.Tx, e *Event) Change { return Change{Account: e.AccountID, ID: e.ID} })
	EventsByAccount = Events.Index("account", func(e *Event) string { return e.AccountID })
)

// A Delivery is one attempt to send an Event to the endpoint of a webhook, with its outcome. If the
// endpoint does not accept the event, a later attempt is another Delivery.
type Delivery struct {
	ID         string // dlv_…
	WebhookID  string
	AccountID  string
	EventID    string
	EventType  string
	Attempt    int
	Outcome    string // one of the Delivery… constants
	HTTPStatus int
	Error      string
	ErrorCode  string
	DurationMS int64
	Excerpt    string
	URL        string
	Trigger    string // one of the DeliveryTrigger… constants
	At         time.Time
	NextAt     time.Time
}

func (d *Delivery) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&d.ID)
	c.String(&d.WebhookID)
	c.String(&d.AccountID)
	c.String(&d.EventID)
	c.String(&d.EventType)
	rowform.Int(c, &d.Attempt)
	c.String(&d.Outcome)
	rowform.Int(c, &d.HTTPStatus)
	c.String(&d.Error)
	c.String(&d.ErrorCode)
	rowform.Int(c, &d.DurationMS)
	c.String(&d.Excerpt)
	c.String(&d.URL)
	c.String(&d.Trigger)
	c.Time(&d.At)
	c.Time(&d.NextAt)
}

// Values of Delivery.Outcome.
const (
	DeliverySuccess = "success"
	DeliveryFailed  = "failed"
)

// Values of Delivery.Trigger: why the delivery was attempted.
const (
	DeliveryTriggerEvent     = "event"
	DeliveryTriggerRetry     = "retry"
	DeliveryTriggerTest      = "test"      // somebody tests the endpoint
	DeliveryTriggerRedeliver = "redeliver" // somebody requested it again
)

// Deliveries keeps the log of attempts for 30 days.
var (
	Deliveries = engine.NewTable("delivery", func(d *Delivery) string { return d.ID }).
			Binary((*Delivery).codeFields).Watched(func(_ *engine.Tx, d *Delivery) Change { return Change{Account: d.AccountID, ID: d.ID} })
	DeliveriesByWebhook = Deliveries.Index("webhook", func(d *Delivery) string { return d.WebhookID })
	DeliveriesByEvent   = Deliveries.Index("event", func(d *Delivery) string { return d.WebhookID + d.EventID })
)
