package api

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/submit"
)

// sendingOperations returns the operations on sending mail, and the log of what was sent.
func sendingOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "send_email", Route: POST("/v1/email-users/{user_id}/inbox/send"), Status: 200,
			May:  May{Scope: Write, Roles: People, Bound: Always},
			Call: With(s.Submit.SendEmail),
			Body: LargestSend, Strict: true,
			Group: "Inbox", Summary: "Send a message from a mailbox",
			Text:   "With `send_at` it waits until then, at most 30 days, and its copy in Sent comes when it leaves. With `template_id` and `variables` it is made of a message template.",
			Errors: errorCodes("sending_not_allowed recipient_not_allowed tainted domain_not_ready daily_send_limit_reached new_recipient_limit_reached sending_paused missing_variable invalid_template quota_exceeded"),
			Show:   "to subject text",
			Tool: Tool{
				Outward:     true,
				Destructive: true,
				Text:        "It is sent at once and cannot be undone, unless send_at says when, or a person has to approve it first (`status` is held); until then cancel_message takes it back.",
			},
		},
		{
			Name: "create_draft", Route: POST("/v1/email-users/{user_id}/drafts"), Status: 201,
			May:  May{Scope: Write, Roles: People, Bound: Always},
			Call: With(s.Submit.CreateDraft),
			Body: LargestSend, Strict: true,
			Group: "Inbox", Summary: "Save a draft",
			Text:   "It takes what `send_email` takes, and requires nothing. The draft is a message of the folder Drafts, so mail clients see it: read and delete it with `folder=drafts`.",
			Errors: errorCodes("quota_exceeded tainted"),
			Show:   "to subject text",
		},
		{
			Name: "update_draft", Route: PUT("/v1/email-users/{user_id}/drafts/{message_id}"), Status: 200,
			May:  May{Scope: Write, Roles: People, Bound: Always},
			Call: With(s.Submit.UpdateDraft),
			Body: LargestSend, Strict: true,
			Group: "Inbox", Summary: "Replace a draft",
			Text:   "Give the whole draft. It gets a new `uid`.",
			Errors: errorCodes("quota_exceeded tainted"),
			Show:   "to subject text",
		},
		{
			Name: "send_draft", Route: POST("/v1/email-users/{user_id}/drafts/{message_id}/send"), Status: 200,
			May:    May{Scope: Write, Roles: People, Bound: Always},
			Call:   With(s.Submit.SendDraft),
			Strict: true,
			Group:  "Inbox", Summary: "Send a draft",
			Text:   "It goes out as `send_email` would send it, and leaves Drafts at the same moment. A draft that cannot be sent stays.",
			Errors: errorCodes("sending_not_allowed recipient_not_allowed tainted domain_not_ready daily_send_limit_reached new_recipient_limit_reached sending_paused missing_variable invalid_template quota_exceeded"),
			Tool: Tool{
				Outward:     true,
				Destructive: true,
				Text:        "It is sent at once and cannot be undone, unless a person has to approve it first: then `status` is held.",
			},
		},
		{
			Name: "lookup_message", Route: GET("/v1/messages/lookup"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, WholeAccount: true, Taints: true},
			Call:  With(s.Outbound.LookupMessage),
			Group: "Sending log", Summary: "Find the Message-ID that a relay gave, or the one that it replaced",
			Errors: errorCodes("exactly_one_parameter"),
		},
		{
			Name: "list_messages", Route: GET("/v1/messages"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Always},
			Call:  With(s.Outbound.ListMessages),
			Group: "Sending log", Summary: "List sent messages, one row for each recipient",
			Tool: Tool{Outward: true},
		},
		{
			Name: "get_sent_message", Route: GET("/v1/messages/{id}"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Always},
			Call:  With(s.Outbound.GetSentMessage),
			Group: "Sending log", Summary: "Show a sent message with its newest attempts",
			Text: "Up to 30 attempts, the newest last: the host, its TLS, how it was authenticated, and its reply.",
		},
		{
			Name: "send_email_batch", Route: POST("/v1/email-users/{user_id}/inbox/send-batch"), Status: 202,
			May:  May{Scope: Write, Roles: People, Bound: Always},
			Call: With(s.Submit.SendEmailBatch),
			Body: LargestSend, Strict: true,
			Group: "Inbox", Summary: "Send up to 1 000 messages at once",
			Text:   "Give `messages`, each with its own recipients, or `recipients` with `template_id` or `message`: then each recipient gets a message of their own. A job sends them; its `result` is `{sent, failed, items}`, and one that cannot be sent fails alone.",
			Errors: errorCodes("sending_not_allowed domain_not_ready sending_paused invalid_template"),
			Show:   "template_id recipients",
			Tool:   Tool{Outward: true, Destructive: true, Confirm: AskFirst(i.sendBatchIntent), Asks: "It"},
		},
		{
			Name: "get_reputation", Route: GET("/v1/reputation"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, WholeAccount: true, Taints: true},
			Call:  With(s.Reputation.GetReputation),
			Group: "Sending log", Summary: "Show what became of the account's mail",
			Text: "Counted by recipients over 1, 7 and 30 days, for the account, its domains and mailboxes, and those who take the mail. Sending pauses by itself above 10 % of hard bounces or 0.3 % of complaints in a day.",
		},
		{
			Name: "update_scheduled_message", Route: PATCH("/v1/messages/{id}"), Status: 200,
			May:    May{Scope: Write, Roles: People, Bound: Clean, BoundFields: "send_at"},
			Call:   With(s.Outbound.UpdateScheduledMessage),
			Strict: true,
			Group:  "Sending log", Summary: "Change when a scheduled message is sent",
			Errors: errorCodes("not_scheduled"),
			Show:   "send_at",
		},
		{
			Name: "retry_message", Route: POST("/v1/messages/{id}/retry"), Status: 200,
			May:   May{Scope: Write, Roles: People, Bound: Clean},
			Call:  With(s.Outbound.RetryMessage),
			Group: "Sending log", Summary: "Retry a waiting message now",
			Errors: errorCodes("not_queued"),
			Tool:   Tool{Outward: true},
		},
		{
			Name: "cancel_message", Route: POST("/v1/messages/{id}/cancel"), Status: 200,
			May:   May{Scope: Write, Roles: People, Bound: Clean},
			Call:  With(s.Submit.CancelMessage),
			Group: "Sending log", Summary: "Cancel a message that is still queued",
			Text: "One that is being delivered at this moment ends as it ends: it is sent, or cancelled if no host took it. One that is held for approval is rejected, for all of its recipients.",
			Tool: Tool{Destructive: true},
		},
	}
}

func (i intents) sendBatchIntent(ctx context.Context, who core.Actor, in submit.SendBatchIn) (*Intent, error) {
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	var to []string
	for _, m := range in.Messages {
		to = append(to, slices.Concat(m.To, m.Cc, m.Bcc)...)
	}
	for _, r := range in.Recipients {
		to = append(to, r.To)
	}
	shown := to[:min(len(to), 10)]
	more := ""
	if len(to) > len(shown) {
		more = ", and others"
	}
	return newIntent("send %s from %s, to %s: %s%s", plural(max(len(in.Messages), len(in.Recipients)), "message", "messages"), mb.Email,
		plural(len(to), "recipient", "recipients"), strings.Join(shown, ", "), more)
}
