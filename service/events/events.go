// Package events records each event in the transaction of its change, and delivers it to the
// webhook endpoints of the account. It does not know what the events mean: the packages that emit
// them define their data.
//
// The files:
//   - events.go: the types of events, [Service.Emit], the log of events.
//   - webhooks.go: the endpoints of an account, their secrets, and how many failures disable one.
//   - deliveries.go: one delivery (Service.deliverWebhook), when it is tried again, and when an
//     endpoint is disabled (Service.recordDelivery).
//   - operator.go: posting events to the operator's URL.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

// Servers has the functions for external mailboxes that this package needs.
type Servers interface {
	// SwitchInbox starts or stops the background sync of an account's external mailboxes.
	SwitchInbox(tx *store.Tx, who core.Actor, a *store.Account, on bool) error
}

// A Service records and delivers events.
type Service struct {
	*core.Core
	servers Servers
	types   []EventType

	poster *webhooks.Poster
}

// New returns a Service. types lists the event types that endpoints may subscribe to, besides "*";
// the packages that emit the events define their data.
func New(c *core.Core, servers Servers, types []EventType) *Service {
	return &Service{Core: c, servers: servers, types: types, poster: &webhooks.Poster{Guard: c.Guard, Resolver: c.Resolver, RootCAs: c.Config.RootCAs, Now: c.Store.Now}}
}

// Kinds lists the kinds of jobs that this package runs.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.WhileActive(s.deliveryKind()), s.fanOutKind(), s.operatorKind()}
}

// Close closes idle connections to endpoints.
func (s *Service) Close() { s.poster.Close() }

// Event types, as webhooks name them.
const (
	EventMessageRelayed   = "message.relayed"
	EventEmailReceived    = "email.received"
	EventRuleMatched      = "email.rule_matched"
	EventEmailDelivered   = "email.delivered"
	EventEmailDelayed     = "email.delayed"
	EventEmailBounced     = "email.bounced"
	EventEmailComplained  = "email.complained"
	EventEmailHeld        = "email.held"
	EventEmailApproved    = "email.approved"
	EventEmailRejected    = "email.rejected"
	EventDomainCreated    = "domain.created"
	EventDomainReady      = "domain.ready"
	EventDomainDNSFailed  = "domain.dns_failed"
	EventDomainNSChanged  = "domain.nameservers_changed"
	EventZoneScanFinished = "zone.scan_finished"
	EventEmailUserCreated = "email_user.created"
	EventEmailUserDeleted = "email_user.deleted"
	EventHostAlert        = "host.alert"
	EventTestPing         = "test.ping"
)

// An About names the mailbox and the domain that an event is about, by which the filters of
// endpoints select it. The zero About is for events that are about neither.
type About struct {
	MailboxID string // "": no mailbox
	Domain    string // id or name of the domain; "": that of the mailbox, or none
}

// Emit records an event, and queues its delivery to every enabled endpoint that subscribes to it
// and whose filters select it, in the caller's transaction: the event exists if and only if its
// change does.
func (s *Service) Emit(tx *store.Tx, accountID, kind string, about About, data any) (*store.Event, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", kind, err)
	}
	e := &store.Event{ID: tx.NewID("evt"), AccountID: accountID, Type: kind, Created: tx.Now(), Data: raw}
	if err := store.Events.Put(tx, e); err != nil {
		return nil, err
	}
	var ids []string
	for _, id := range store.WebhooksByAccount.Keys(tx, accountID, "") {
		w, err := store.Webhooks.Read(tx, id)
		if err != nil {
			return nil, err
		}
		if w.Status != store.WebhookEnabled || !w.SubscribesTo(kind) {
			continue
		}
		selected, err := about.isSelected(tx, w)
		if err != nil {
			return nil, err
		}
		if selected {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) > 1 && tx.IsLarge() { // let a job add them, since this transaction is near its limits
		_, err := s.Queue.Add(tx, jobs.New{
			AccountID: accountID, Kind: kindWebhookEvents, Lane: "webhook events " + accountID, Args: fanOutArgs{e.ID, ids},
		})
		return e, err
	}
	return e, s.addDeliveries(tx, accountID, e.ID, ids)
}

// isSelected reports whether the filters of an endpoint select events about a mailbox and a domain:
// one of both must be listed. Events about neither are always selected.
func (about About) isSelected(tx *store.Tx, w *store.Webhook) (bool, error) {
	if w.Filters == nil || about == (About{}) || slices.Contains(w.Filters.Mailboxes, about.MailboxID) {
		return true, nil
	}
	domain := about.Domain
	if domain == "" {
		mb, err := store.Mailboxes.FindShared(tx, about.MailboxID)
		if mb == nil || err != nil {
			return false, err
		}
		domain = mb.DomainID
	}
	if slices.Contains(w.Filters.Domains, domain) {
		return true, nil
	}
	d, err := store.DomainOfAccount.Find(tx, store.AccountDomainKey(w.AccountID, domain))
	return d != nil && slices.Contains(w.Filters.Domains, d.ID), err
}

// addDeliveries queues the delivery of an event to each endpoint.
func (s *Service) addDeliveries(tx *store.Tx, accountID, eventID string, webhookIDs []string) error {
	for _, id := range webhookIDs {
		if err := s.addDelivery(tx, accountID, DeliveryArgs{id, eventID, "event"}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) addDelivery(tx *store.Tx, accountID string, args DeliveryArgs) error {
	_, err := s.Queue.Add(tx, jobs.New{AccountID: accountID, Kind: "webhook", Lane: args.WebhookID, Args: args})
	return err
}

const kindWebhookEvents = "webhook_events"

// fanOutArgs are the arguments of the job that queues an event's deliveries.
type fanOutArgs struct {
	EventID    string   `json:"event_id"`
	WebhookIDs []string `json:"webhook_ids"`
}

// fanOutKind returns the kind of job that queues the deliveries of an event that was emitted in a
// large transaction. The transaction that ends the job adds them, so that each is added once.
func (s *Service) fanOutKind() jobs.Kind {
	return jobs.Kind{Name: kindWebhookEvents, PerLane: 4, Work: func(_ context.Context, j *store.Job) (jobs.Writes, error) {
		args, err := jobs.Args[fanOutArgs](j)
		if err != nil {
			return nil, jobs.Permanent(err)
		}
		return func(tx *store.Tx, j *store.Job) error {
			return s.addDeliveries(tx, j.AccountID, args.EventID, args.WebhookIDs)
		}, nil
	}}
}

// ListEventsIn is the query of list_events.
type ListEventsIn struct {
	page.Query
	Type         string     `query:"type" example:"email.received"`
	CreatedAfter *core.Time `query:"created_after"` // Only newer rows; an RFC 3339 time or a date.
	EventID      string     `query:"event_id" max:"40"`
}

// ListEvents lists the account's events of the last 30 days, newest first, whether or not an
// endpoint got them. With an event's id the list holds only this event, or nothing if another
// filter excludes it.
func (s *Service) ListEvents(_ context.Context, who core.Actor, in ListEventsIn) (*page.Page[EventEnvelope], error) {
	var since time.Time
	if in.CreatedAfter != nil {
		since = in.CreatedAfter.Time
	}
	l := page.Listing[store.Event, EventEnvelope]{
		Operation: "events", Index: store.EventsByAccount, Prefix: who.AccountID, Filters: []string{in.Type, since.String(), in.EventID},
		Prefilter: page.HasTexts(in.Type),
		Keep:      func(e *store.Event) bool { return in.Type == "" || e.Type == in.Type },
		Until:     func(e *store.Event) bool { return !since.IsZero() && !e.Created.After(since) },
		Out:       func(_ *store.Tx, e *store.Event) (EventEnvelope, error) { return envelopeOf(e, APIVersion), nil },
	}
	if in.EventID != "" { // all ids have the same length, so no other id has this prefix
		l.Prefix += in.EventID
		l.Keep = func(e *store.Event) bool { return e.ID == in.EventID && (in.Type == "" || e.Type == in.Type) }
	}
	return l.Page(s.Core, who, in.Query)
}

// An EventType describes a type of event: its name, when it happens, and a value of the type of its
// data.
type EventType struct {
	Name  string
	About string
	Data  any
}
