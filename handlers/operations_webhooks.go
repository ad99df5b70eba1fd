package handlers

import "github.com/mailstead/mailstead/service"

func webhookOps(s *service.Service) []op {
	i := intents{s}
	return []op{
		{name: "list_webhooks", method: "GET", path: "/v1/webhooks", status: 200, scope: "read", roles: everyone, call: plain(s.ListWebhooks)},
		{name: "create_webhook", method: "POST", path: "/v1/webhooks", status: 201, scope: "write", roles: managers, call: with(s.CreateWebhook), confirm: askFirst(i.createWebhook)},
		{name: "get_webhook", method: "GET", path: "/v1/webhooks/{id}", status: 200, scope: "read", roles: everyone, call: with(s.GetWebhook)},
		{name: "update_webhook", method: "PATCH", path: "/v1/webhooks/{id}", status: 200, scope: "write", roles: managers, call: with(s.UpdateWebhook), confirm: askFirst(i.updateWebhook)},
		{name: "delete_webhook", method: "DELETE", path: "/v1/webhooks/{id}", status: 200, scope: "write", roles: managers, call: with(s.DeleteWebhook)},
		{name: "get_webhook_secret", method: "GET", path: "/v1/webhooks/{id}/secret", status: 200, scope: "write", roles: managers, call: with(s.GetWebhookSecret)},
		{name: "rotate_webhook_secret", method: "POST", path: "/v1/webhooks/{id}/rotate-secret", status: 200, scope: "write", roles: managers, call: with(s.RotateWebhookSecret)},
		{name: "test_webhook", method: "POST", path: "/v1/webhooks/{id}/test", status: 200, scope: "write", roles: managers, call: with(s.TestWebhook)},
		{name: "list_webhook_deliveries", method: "GET", path: "/v1/webhooks/{id}/deliveries", status: 200, scope: "read", roles: everyone, call: with(s.ListWebhookDeliveries)},
		{name: "redeliver_event", method: "POST", path: "/v1/webhooks/{id}/deliveries/{event_id}/redeliver", status: 200, scope: "write", roles: managers, call: with(s.RedeliverEvent)},
		{name: "list_events", method: "GET", path: "/v1/events", status: 200, scope: "read", roles: everyone, call: with(s.ListEvents)},
		{name: "set_universal_inbox", method: "POST", path: "/v1/account/universal-inbox", status: 200, scope: "write", roles: managers, call: with(s.SetUniversalInbox)},
	}
}
