package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
)

// emailUserOperations returns the operations on mailboxes, which the API calls email users.
func emailUserOperations(s *service.Service) []Operation {
	i := intents{s}
	return []Operation{
		{
			Name: "list_email_users", Route: GET("/v1/email-users"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Mailboxes.ListEmailUsers),
			Group: "Email users", Summary: "List the mailboxes",
		},
		{
			Name: "create_email_user", Route: POST("/v1/email-users"), Status: 201,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Mailboxes.CreateEmailUser),
			ShowsSecret: true,
			Group:       "Email users", Summary: "Create a mailbox",
			Text:   "Give `username` and `domain`, or `email`. The answer holds its password; later an export shows it.",
			Errors: errorCodes("email_user_exists email_user_limit_exceeded domain_busy"),
			Show:   "username domain name",
			Tool: Tool{
				Text:    "Give `username` and `domain`, or `email`. Leave the password out to generate one; it is not shown here, see create_export.",
				Secrets: passwordText,
				Confirm: AskFirst(i.createEmailUserIntent),
				Asks:    "A forward_to",
			},
		},
		{
			Name: "generate_names", Route: POST("/v1/email-users/generate-names"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Mailboxes.GenerateNames),
			Group: "Email users", Summary: "Generate names and usernames",
			Text:   "The same request with the same `seed` gives the same answer, except for `available`, which is null unless the domain is yours.",
			Errors: errorCodes("invalid_domain"),
			Show:   "count domain",
		},
		{
			Name: "create_email_users_bulk", Route: POST("/v1/email-users/bulk"), Status: 200,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Mailboxes.CreateEmailUsersBulk),
			ShowsSecret: true,
			Group:       "Email users", Summary: "Create up to 100 mailboxes on one domain",
			Text:   "Give `users` or `template_id`. One that fails does not stop the others.",
			Errors: errorCodes("email_user_limit_exceeded domain_busy"),
			Show:   "domain users",
			Tool: Tool{
				Text:    "Give `users` or `template_id`. One that fails does not stop the others. Passwords are generated unless given, and not shown here; see create_export.",
				Secrets: passwordText,
			},
		},
		{
			Name: "delete_email_users_bulk", Route: DELETE("/v1/email-users/bulk"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Mailboxes.DeleteEmailUsersBulk),
			Group: "Email users", Summary: "Delete up to 100 mailboxes",
			Text: "Give `user_ids` or `emails`.",
			Show: "user_ids",
			Tool: Tool{Confirm: AskFirst(i.deleteEmailUsersIntent), Asks: "It"},
		},
		{
			Name: "delete_email_users_bulk", Route: POST("/v1/email-users/bulk-delete"), Status: 200, Alias: true,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Mailboxes.DeleteEmailUsersBulk),
			Group: "Email users", Summary: "Delete up to 100 mailboxes",
			Text: "Give `user_ids` or `emails`.",
			Show: "user_ids",
			Tool: Tool{Confirm: AskFirst(i.deleteEmailUsersIntent), Asks: "It"},
		},
		{
			Name: "get_email_user", Route: GET("/v1/email-users/{user_id}"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Always},
			Call:  With(s.Mailboxes.GetEmailUser),
			Group: "Email users", Summary: "Show a mailbox",
		},
		{
			Name: "update_email_user", Route: PATCH("/v1/email-users/{user_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers, AccessFields: "password recovery_email send_policy"},
			Call:  With(s.Mailboxes.UpdateEmailUser),
			Group: "Email users", Summary: "Change a mailbox",
			Errors: errorCodes("domain_busy domain_not_ready too_many_items"),
			Show:   "name footer",
			Tool:   Tool{Confirm: AskFirst(i.updateEmailUserIntent), Asks: "A forward_to, a recovery_email or a password"},
		},
		{
			Name: "delete_email_user", Route: DELETE("/v1/email-users/{user_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Mailboxes.DeleteEmailUser),
			Group: "Email users", Summary: "Delete a mailbox with its mail",
		},
		{
			Name: "create_inbox", Route: POST("/v1/inboxes"), Status: 201,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Mailboxes.CreateInbox),
			ShowsSecret: true,
			Group:       "Email users", Summary: "Create a mailbox that is deleted after a time",
			Text:   "For a test or a program: a mailbox, a password for IMAP and submission, and an API token, both good for this mailbox alone. At `expires_at` the mailbox is deleted with all of it; `update_email_user` moves that time.",
			Errors: errorCodes("domain_required domain_not_ready domain_busy email_user_exists email_user_limit_exceeded too_many_items"),
			Show:   "domain ttl_seconds",
			Tool: Tool{
				Text:    "Its password and its token are not shown here. You read it with the other tools. At `expires_at` it is deleted with all its mail; update_email_user moves that time.",
				Secrets: "Password and token are in the answer of the API alone. For another password a person calls create_credential there, or opens the dashboard.",
			},
		},
		{
			Name: "release_held_messages", Route: POST("/v1/email-users/{user_id}/held"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Outbound.ReleaseHeldMessages),
			Group: "Email users", Summary: "Send or discard what a mailbox has held",
			Text: "What waited when the mailbox was suspended, deleted or got a new password with `hold`. It works for a deleted mailbox for 14 days.",
			Show: "action",
			Tool: Tool{Outward: true, Confirm: AskFirst(i.releaseHeldIntent), Asks: "It"},
		},
		{
			Name: "create_recovery_link", Route: POST("/v1/email-users/{user_id}/recovery-link"), Status: 200,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Signin.CreateRecoveryLink),
			ShowsSecret: true,
			Group:       "Email users", Summary: "Make a link to choose a password",
			Text:   "For a holder who has forgotten it. Whoever has the link sets the mailbox's password, once, within 72 hours.",
			Errors: errorCodes("validation_error"),
			Tool:   Tool{Confirm: AskFirst(i.createRecoveryLinkIntent), Asks: "It"},
		},
		{
			Name: "list_domain_email_users", Route: GET("/v1/domains/{domain_id}/email-users"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Mailboxes.ListDomainEmailUsers),
			Group: "Email users", Summary: "List a domain's mailboxes",
		},
	}
}

func (i intents) createEmailUserIntent(_ context.Context, _ core.Actor, in mailboxes.CreateEmailUserIn) (*Intent, error) {
	if in.ForwardTo == "" {
		return nil, nil
	}
	address := in.Email
	if address == "" {
		address = in.Username + "@" + in.Domain
	}
	return newIntent("create the mailbox %s and send a copy of all its mail to %s", address, in.ForwardTo)
}

func (i intents) updateEmailUserIntent(ctx context.Context, who core.Actor, in mailboxes.UpdateEmailUserIn) (*Intent, error) {
	if in.ForwardTo.Value == "" && in.RecoveryEmail.Value == "" && in.Password == nil {
		return nil, nil
	}
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID})
	if err != nil {
		return nil, err
	}
	return accessIntent(mb.Email, in.ForwardTo.Value, in.RecoveryEmail.Value, in.Password != nil), nil
}

// accessIntent returns the Intent of a change that lets others read the mail of a mailbox. It
// returns nil if the change does not.
func accessIntent(email, forwardTo, recovery string, newPassword bool) *Intent {
	var actions []string
	if forwardTo != "" {
		actions = append(actions, fmt.Sprintf("send a copy of all mail to %s to %s", email, forwardTo))
	}
	if newPassword {
		actions = append(actions, fmt.Sprintf("set a new password for %s, with which all its mail is read and sent", email))
	}
	if recovery != "" {
		actions = append(actions, fmt.Sprintf("let %s set the password of %s by a link", recovery, email))
	}
	if actions == nil {
		return nil
	}
	return &Intent{Would: strings.Join(actions, ", and ")}
}

func (i intents) createRecoveryLinkIntent(ctx context.Context, who core.Actor, in core.EmailUserIn) (*Intent, error) {
	mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, in)
	if err != nil {
		return nil, err
	}
	return newIntent("make a link with which anybody who has it sets the password of %s", mb.Email)
}

func (i intents) deleteEmailUsersIntent(ctx context.Context, who core.Actor, in mailboxes.BulkDeleteIn) (*Intent, error) {
	var names []string
	if in.Emails != nil {
		names = *in.Emails
	}
	if in.UserIDs != nil {
		for _, id := range *in.UserIDs {
			if mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: id}); err == nil {
				id = mb.Email
			}
			names = append(names, id)
		}
	}
	return newIntent("delete %s for good, with all mail in them: %s", plural(len(names), "mailbox", "mailboxes"), strings.Join(names, ", "))
}

func (i intents) releaseHeldIntent(ctx context.Context, who core.Actor, in outbound.ReleaseIn) (*Intent, error) {
	name := in.UserID
	if mb, err := i.s.Mailboxes.GetEmailUser(ctx, who, core.EmailUserIn{UserID: in.UserID}); err == nil {
		name = mb.Email
	}
	if in.Action == "discard" {
		return newIntent("discard for good all messages of %s that are held", name)
	}
	return newIntent("send all messages of %s that are held", name)
}

const passwordText = "The password is in the file behind create_export's link, and in the dashboard."
