package handlers

import "github.com/mailstead/mailstead/service"

func teamOps(s *service.Service) []op {
	const one = "/v1/account/users/{user_id}"
	return []op{
		{name: "list_team_users", method: "GET", path: "/v1/account/users", status: 200, scope: "read", roles: everyone, call: plain(s.ListTeamUsers)},
		{name: "invite_team_user", method: "POST", path: "/v1/account/users/invite", status: 200, scope: "admin", roles: managers, call: with(s.InviteTeamUser)},
		{name: "update_team_user", method: "PATCH", path: one, status: 200, scope: "write", roles: everyone, call: with(s.UpdateTeamUser)},
		{name: "delete_team_user", method: "DELETE", path: one, status: 200, scope: "admin", roles: managers, call: with(s.DeleteTeamUser)},
	}
}
