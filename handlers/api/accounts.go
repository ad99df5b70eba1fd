package api

import "github.com/mailstead/mailstead/service"

// hostedOperations returns the operator's operations on the accounts of the installation.
func hostedOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_accounts", Route: GET("/v1/accounts"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Operator: true},
			Call:  With(s.Accounts.ListHostedAccounts),
			Group: "Accounts", Summary: "List the accounts of the installation",
			Text: "Newest first.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "create_account", Route: POST("/v1/accounts"), Status: 201,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Accounts.CreateHostedAccount),
			Group: "Accounts", Summary: "Create an account",
			Text:        "Without a password the answer has a `reset_link` for its owner, which works once, for 72 hours.",
			Errors:      errorCodes("email_already_exists"),
			Show:        "name owner_email limits",
			ShowsSecret: true,
			Tool:        Tool{NoTool: true},
		},
		{
			Name: "get_account_by_id", Route: GET("/v1/accounts/{account_id}"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Operator: true},
			Call:  With(s.Accounts.GetHostedAccount),
			Group: "Accounts", Summary: "Show an account of the installation",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "update_account_by_id", Route: PATCH("/v1/accounts/{account_id}"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Accounts.UpdateHostedAccount),
			Group: "Accounts", Summary: "Change an account, or suspend or resume it",
			Text:   "The status `active` also ends a deletion. The first account cannot be suspended.",
			Errors: errorCodes("owner_protected"),
			Show:   "status limits",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "delete_account", Route: DELETE("/v1/accounts/{account_id}"), Status: 202,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Accounts.DeleteHostedAccount),
			Group: "Accounts", Summary: "Delete an account after seven days",
			Text:   "It is suspended at once, and its owner is told by mail. The job `account_delete` deletes it with its domains, mailboxes and mail at `delete_at`; until then the status `active` keeps it. `names` are its domains that still lead to this server. The first account cannot be deleted.",
			Errors: errorCodes("owner_protected"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "get_account_usage", Route: GET("/v1/accounts/{account_id}/usage"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Operator: true},
			Call:  With(s.Accounts.GetHostedUsage),
			Group: "Accounts", Summary: "Show what an account used, day by day",
			Text: "The oldest day first; kept for 400 days. Days of which nothing is known are left out.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "create_sign_in_link", Route: POST("/v1/accounts/{account_id}/sign-in-link"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Signin.CreateSignInLink),
			Group: "Accounts", Summary: "Make a link that signs the operator in to an account",
			Text:   "It works once; its session ends 15 minutes after the link was made. The session reads and changes settings, but it can neither see nor change access: tokens, credentials, passwords, second factors, the team, secrets of webhooks, exports, approvals and taint. Its owner is told by mail, and the account's audit log has the link and every change. The first account has none, nor an installation with `sign_in_links = false`.",
			Errors: errorCodes("owner_protected"),
			Tool:   Tool{NoTool: true},
		},
	}
}
