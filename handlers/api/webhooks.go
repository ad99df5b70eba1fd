package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
)

// webhookOperations returns the operations on webhooks and events.
func webhookOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_webhooks", Route: GET("/v1/webhooks"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, WholeAccount: true},
			Call:  Plain(s.Events.ListWebhooks),
			Group: "Webhooks", Summary: "List the endpoints",
		},
		{
			Name: "create_webhook", Route: POST("/v1/webhooks"), Status: 201,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Events.CreateWebhook),
			ShowsSecret: true,
			Group:       "Webhooks", Summary: "Create an endpoint",
			Text:   "One that subscribes to email.received turns the universal inbox on.",
			Errors: errorCodes("webhook_limit_reached"),
			Show:   "url events description",
			Tool: Tool{
				Outward: true,
				Text:    "One that subscribes to email.received turns the universal inbox on. Its signing secret is not shown here; see the dashboard.",
				Secrets: "The signing secret is in the dashboard, and in the API's get_webhook_secret.",
				Confirm: AskFirst(i.createWebhookIntent),
				Asks:    "It",
			},
		},
		{
			Name: "get_webhook", Route: GET("/v1/webhooks/{id}"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, WholeAccount: true},
			Call:  With(s.Events.GetWebhook),
			Group: "Webhooks", Summary: "Show an endpoint",
		},
		{
			Name: "update_webhook", Route: PATCH("/v1/webhooks/{id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Events.UpdateWebhook),
			Group: "Webhooks", Summary: "Change, disable or enable an endpoint",
			Text: "A URL with another host or port removes the header fields and the signing secret: it gets a new secret.",
			Show: "status",
			Tool: Tool{Outward: true, Confirm: AskFirst(i.updateWebhookIntent), Asks: "It"},
		},
		{
			Name: "delete_webhook", Route: DELETE("/v1/webhooks/{id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Events.DeleteWebhook),
			Group: "Webhooks", Summary: "Delete an endpoint",
		},
		{
			Name: "get_webhook_secret", Route: GET("/v1/webhooks/{id}/secret"), Status: 200,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Events.GetWebhookSecret),
			ShowsSecret: true,
			Group:       "Webhooks", Summary: "Show an endpoint's signing secret",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "rotate_webhook_secret", Route: POST("/v1/webhooks/{id}/rotate-secret"), Status: 200,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Events.RotateWebhookSecret),
			ShowsSecret: true,
			Group:       "Webhooks", Summary: "Replace an endpoint's signing secret",
			Text: "The old secret also signs for 24 hours.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "test_webhook", Route: POST("/v1/webhooks/{id}/test"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Events.TestWebhook),
			Group: "Webhooks", Summary: "Send a test.ping to an endpoint",
			Text: "Disabled endpoints get it too.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "list_webhook_deliveries", Route: GET("/v1/webhooks/{id}/deliveries"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, WholeAccount: true, Taints: true},
			Call:  With(s.Events.ListWebhookDeliveries),
			Group: "Webhooks", Summary: "List the attempts of the last 30 days",
			Tool: Tool{Outward: true},
		},
		{
			Name: "redeliver_event", Route: POST("/v1/webhooks/{id}/deliveries/{event_id}/redeliver"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Events.RedeliverEvent),
			Group: "Webhooks", Summary: "Send an event again",
			Tool: Tool{Outward: true},
		},
		{
			Name: "list_events", Route: GET("/v1/events"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, WholeAccount: true, Taints: true},
			Call:  With(s.Events.ListEvents),
			Group: "Webhooks", Summary: "List the events of the last 30 days",
			Text: "Also those that no endpoint received.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "set_universal_inbox", Route: POST("/v1/account/universal-inbox"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.External.SetUniversalInbox),
			Group: "Account", Summary: "Turn the universal inbox on or off",
			Text:   "Without `enabled` it toggles.",
			Errors: errorCodes("universal_inbox_required"),
			Show:   "enabled",
		},
	}
}

func (i intents) createWebhookIntent(_ context.Context, _ core.Actor, in events.CreateWebhookIn) (*Intent, error) {
	return newIntent("send events (%s) %s to %s from now on", strings.Join(in.Events, ", "), selectedBy(in.Filters), in.URL)
}

// selectedBy says which events the filters of an endpoint select.
func selectedBy(f *events.WebhookFilters) string {
	if f == nil {
		return "of this account"
	}
	return fmt.Sprintf("about %s and %s of this account, and those about neither,", plural(len(f.Mailboxes), "mailbox", "mailboxes"), plural(len(f.Domains), "domain", "domains"))
}

func (i intents) updateWebhookIntent(ctx context.Context, who core.Actor, in events.UpdateWebhookIn) (*Intent, error) {
	w, err := i.s.Events.GetWebhook(ctx, who, events.WebhookIn{ID: in.ID})
	if err != nil {
		return nil, err
	}
	if in.URL != nil {
		w.URL = *in.URL
	}
	if in.Events != nil {
		w.Events = *in.Events
	}
	if in.Status != nil {
		w.Status = *in.Status
	}
	if in.Filters.Set {
		w.Filters = in.Filters.OrNil()
	}
	return newIntent("change the webhook endpoint %s to receive events (%s) %s at %s, with status %s", w.ID, strings.Join(w.Events, ", "), selectedBy(w.Filters), w.URL, w.Status)
}
