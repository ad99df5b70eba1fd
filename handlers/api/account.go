package api

import "github.com/mailstead/mailstead/service"

// accountOperations returns the operations on the account, its tokens and the audit log.
func accountOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "get_account", Route: GET("/v1/account"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  Plain(s.Accounts.GetAccount),
			Group: "Account", Summary: "Show the account",
			Text: "Its plan, limits and mail servers, and the caller's token.",
		},
		{
			Name: "update_account", Route: PATCH("/v1/account"), Status: 200,
			May:   May{Scope: Write, Roles: Managers},
			Call:  With(s.Accounts.UpdateAccount),
			Group: "Account", Summary: "Change the account's name or warm-up settings",
			Text: "Mail with a phrase or header field of yours is marked as warm-up. With `warmup_folder`, such mail is filed there without rules, automatic replies, forwards and `email.received`, and deleted after `warmup_days`, if DMARC proves its author, the spam filter lets it pass, and it does not answer your own mail. It takes at most a tenth of a mailbox's quota; the oldest goes first.",
			Show: "name warmup_phrases",
		},
		{
			Name: "get_usage", Route: GET("/v1/account/usage"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  Plain(s.Accounts.GetUsage),
			Group: "Account", Summary: "Show the usage of limits, storage and traffic",
		},
		{
			Name: "list_tokens", Route: GET("/v1/auth/tokens"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Access: true},
			Call:  Plain(s.Accounts.ListTokens),
			Group: "Tokens", Summary: "List the API tokens",
			Text: "The owner sees all, an admin all but the owner's, a member their own.",
		},
		{
			Name: "create_token", Route: POST("/v1/auth/tokens"), Status: 201,
			May:         May{Scope: Write, Roles: Everyone, Access: true},
			Call:        With(s.Accounts.CreateToken),
			ShowsSecret: true,
			Group:       "Tokens", Summary: "Create an API token",
			Text:   "Its value is shown only once. With `mailboxes` or a `policy` it is bound: it can give nobody access, and change nothing that happens by itself; what it may call has `x-bound`.",
			Errors: errorCodes("insufficient_scope forbidden_role person_required too_many_items"),
			Show:   "name permissions expires_in_days",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "delete_token", Route: DELETE("/v1/auth/tokens/{token_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone, Access: true},
			Call:  With(s.Accounts.DeleteToken),
			Group: "Tokens", Summary: "Revoke an API token",
			Text:   "This cannot be undone.",
			Errors: errorCodes("insufficient_scope"),
		},
		{
			Name: "clear_token_taint", Route: POST("/v1/auth/tokens/{token_id}/clear-taint"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, Person: true, Access: true},
			Call:  With(s.Accounts.ClearTokenTaint),
			Group: "Tokens", Summary: "End the taint of an API token",
			Text:   "As if nothing had been read with it. Only for a person who is signed in to the dashboard.",
			Errors: errorCodes("person_required"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "list_audit", Route: GET("/v1/audit"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Bound: Clean, Taints: true},
			Call:  With(s.Accounts.ListAudit),
			Group: "Account", Summary: "List what was changed, by whom",
			Text: "Newest first; kept for 400 days. One row for each change that took effect and each read of a secret, but not for sending, marking or refreshing; `fields` are names, never values. `login` and `login_failed` are sign-ins to the dashboard. What the operator does on the server has the actor `operator`.",
			Tool: Tool{NoTool: true},
		},
	}
}
