package handlers

import "github.com/mailstead/mailstead/service"

// sendBody is the most bytes of a request that sends a message, whose files are in base64.
const sendBody = 35 << 20

func outboundOps(s *service.Service) []op {
	return []op{
		{name: "send_email", method: "POST", path: "/v1/email-users/{user_id}/inbox/send", status: 200, scope: "write", roles: everyone, call: with(s.SendEmail), body: sendBody, strict: true},
		{name: "lookup_message", method: "GET", path: "/v1/messages/lookup", status: 200, scope: "read", roles: everyone, call: with(s.LookupMessage)},
		{name: "list_messages", method: "GET", path: "/v1/messages", status: 200, scope: "read", roles: everyone, call: with(s.ListMessages)},
		{name: "get_sent_message", method: "GET", path: "/v1/messages/{id}", status: 200, scope: "read", roles: everyone, call: with(s.GetSentMessage)},
		{name: "retry_message", method: "POST", path: "/v1/messages/{id}/retry", status: 200, scope: "write", roles: everyone, call: with(s.RetryMessage)},
		{name: "cancel_message", method: "POST", path: "/v1/messages/{id}/cancel", status: 200, scope: "write", roles: everyone, call: with(s.CancelMessage)},
		{name: "list_suppressions", method: "GET", path: "/v1/suppressions", status: 200, scope: "read", roles: everyone, call: with(s.ListSuppressions)},
		{name: "create_suppression", method: "POST", path: "/v1/suppressions", status: 201, scope: "write", roles: everyone, call: with(s.CreateSuppression)},
		{name: "delete_suppression", method: "DELETE", path: "/v1/suppressions/{email}", status: 200, scope: "write", roles: everyone, call: with(s.DeleteSuppression)},
	}
}
