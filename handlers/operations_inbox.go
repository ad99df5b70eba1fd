package handlers

import "github.com/mailstead/mailstead/service"

func inboxOps(s *service.Service) []op {
	const one = "/v1/email-users/{user_id}/inbox"
	i := intents{s}
	return []op{
		{name: "list_email_user_inbox", method: "GET", path: one, status: 200, scope: "read", roles: everyone, call: with(s.ListEmailUserInbox)},
		{name: "refresh_email_user_inbox", method: "POST", path: one + "/refresh", status: 200, scope: "write", roles: everyone, call: with(s.RefreshEmailUserInbox)},
		{name: "get_message", method: "GET", path: one + "/{message_id}", status: 200, scope: "read", roles: everyone, call: with(s.GetMessage)},
		{name: "get_message_raw", method: "GET", path: one + "/{message_id}/raw", status: 200, scope: "read", roles: everyone, call: with(s.GetMessageRaw)},
		{name: "get_message_attachment", method: "GET", path: one + "/{message_id}/attachments/{index}", status: 200, scope: "read", roles: everyone, call: with(s.GetMessageAttachment)},
		{name: "mark_message", method: "PATCH", path: one + "/{message_id}", status: 200, scope: "write", roles: everyone, call: with(s.MarkMessage)},
		{name: "delete_message", method: "DELETE", path: one + "/{message_id}", status: 200, scope: "write", roles: everyone, call: with(s.DeleteMessage)},
		{name: "list_inbox", method: "GET", path: "/v1/inbox", status: 200, scope: "read", roles: everyone, call: with(s.ListInbox)},
		{name: "refresh_inbox", method: "POST", path: "/v1/inbox/refresh", status: 200, scope: "write", roles: everyone, call: plain(s.RefreshInbox)},
		{name: "bulk_delete_messages", method: "POST", path: "/v1/inbox/bulk-delete", status: 200, scope: "write", roles: everyone, call: with(s.BulkDeleteMessages), confirm: askFirst(i.deleteMessages)},
		{name: "bulk_mark_messages", method: "POST", path: "/v1/inbox/bulk-mark", status: 200, scope: "write", roles: everyone, call: with(s.BulkMarkMessages)},
		{name: "get_inbox_message", method: "GET", path: "/v1/inbox/{message_id}", status: 200, scope: "read", roles: everyone, call: with(s.GetInboxMessage)},
		{name: "mark_inbox_message", method: "PATCH", path: "/v1/inbox/{message_id}", status: 200, scope: "write", roles: everyone, call: with(s.MarkInboxMessage)},
		{name: "delete_inbox_message", method: "DELETE", path: "/v1/inbox/{message_id}", status: 200, scope: "write", roles: everyone, call: with(s.DeleteInboxMessage)},
	}
}
