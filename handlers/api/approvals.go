package api

import "github.com/mailstead/mailstead/service"

// approvalOperations returns the operations on messages that wait for a person's approval.
func approvalOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_approvals", Route: GET("/v1/approvals"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Bound: Clean, Taints: true, Access: true},
			Call:  With(s.Submit.ListApprovals),
			Group: "Approvals", Summary: "List the messages that are held for approval",
			Text: "Newest first, with those that were decided in the last 30 days.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "get_approval", Route: GET("/v1/approvals/{approval_id}"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Bound: Clean, Access: true},
			Call:  With(s.Submit.GetApproval),
			Group: "Approvals", Summary: "Show a held message with all that it says",
			Text: "The recipients are those of the envelope: `to` and `cc` are those that these header fields name, `bcc` all others. Text and HTML are cut at 1 MiB each; `body_complete` is false then. The message was made anew when it was held, from its text, subject, recipients and files alone; files in an attached message are listed after it as `message.eml/file.pdf`. A token with `taint` has read the mailbox that sends it.",
			Tool: Tool{Outward: true},
		},
		{
			Name: "get_approval_raw", Route: GET("/v1/approvals/{approval_id}/raw"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Bound: Clean, Access: true},
			Call:  With(s.Submit.GetApprovalRaw),
			Group: "Approvals", Summary: "Get the bytes that are sent once the message is approved",
			Text:  "Signatures and trace fields are added when it is sent.",
			Media: "message/rfc822",
			Tool:  Tool{NoTool: true},
		},
		{
			Name: "approve_message", Route: POST("/v1/approvals/{approval_id}/approve"), Status: 200,
			May:    May{Scope: Write, Roles: Managers, Person: true, Access: true},
			Call:   With(s.Submit.ApproveMessage),
			Strict: true,
			Group:  "Approvals", Summary: "Approve a held message",
			Text:   "`content_hash` is that of the approval that the person has read; another one is 409 `content_changed`. Limits and suppression are judged now; where a limit is passed the message stays held.",
			Errors: errorCodes("person_required content_changed already_decided approval_expired daily_send_limit_reached new_recipient_limit_reached"),
			Show:   "content_hash",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "reject_message", Route: POST("/v1/approvals/{approval_id}/reject"), Status: 200,
			May:    May{Scope: Write, Roles: Managers, Person: true, Access: true},
			Call:   With(s.Submit.RejectMessage),
			Strict: true,
			Group:  "Approvals", Summary: "Reject a held message",
			Text:   "It is never sent. Whoever sent it by SMTP gets a delivery report with 5.7.1.",
			Errors: errorCodes("person_required already_decided approval_expired"),
			Show:   "note",
			Tool:   Tool{NoTool: true},
		},
	}
}
