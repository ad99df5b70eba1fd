package api

import "github.com/mailstead/mailstead/service"

// teamOperations returns the operations on the people who share the account.
func teamOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_team_users", Route: GET("/v1/account/users"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Access: true},
			Call:  Plain(s.Accounts.ListTeamUsers),
			Group: "Team", Summary: "List the team users",
			Text: "The owner first, then admins, then members, each by address.",
		},
		{
			Name: "invite_team_user", Route: POST("/v1/account/users/invite"), Status: 200,
			May:         May{Scope: Admin, Roles: Managers, Access: true},
			Call:        With(s.Accounts.InviteTeamUser),
			ShowsSecret: true,
			Group:       "Team", Summary: "Invite a team user",
			Text:   "Without a password the answer has a `reset_link` that works once, for 72 hours.",
			Errors: errorCodes("user_limit_reached email_already_exists insufficient_scope forbidden_role"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "update_team_user", Route: PATCH("/v1/account/users/{user_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone, Access: true},
			Call:  With(s.Accounts.UpdateTeamUser),
			Group: "Team", Summary: "Change a team user",
			Text:   "With `write` you may change your own name and, in a session, your own password. A password with a token, and whatever belongs to others, needs the `admin` permission. No token makes a user an operator, or changes the address or the password of one: that needs a session that began within the last 15 minutes.",
			Errors: errorCodes("wrong_password user_not_in_account owner_protected email_already_exists insufficient_scope forbidden_role person_required sign_in_again"),
			Show:   "first_name last_name role",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "delete_team_user", Route: DELETE("/v1/account/users/{user_id}"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, Access: true},
			Call:  With(s.Accounts.DeleteTeamUser),
			Group: "Team", Summary: "Delete a team user",
			Text:   "Their tokens are revoked.",
			Errors: errorCodes("user_not_in_account owner_protected insufficient_scope forbidden_role"),
		},
	}
}
