package handlers

import (
	"slices"

	"github.com/mailstead/mailstead/service"
)

// operations is the table: every operation of the interface, one row each, by noun.
func operations(s *service.Service) []op {
	return slices.Concat(
		accountOps(s),
		teamOps(s),
		domainOps(s),
		dnsOps(s),
		webhookOps(s),
		jobOps(s),
		mailboxOps(s),
		templateOps(s),
		exportOps(s),
		inboxOps(s),
		outboundOps(s),
	)
}

func accountOps(s *service.Service) []op {
	return []op{
		{name: "get_account", method: "GET", path: "/v1/account", status: 200, scope: "read", roles: everyone, call: plain(s.GetAccount)},
		{name: "update_account", method: "PATCH", path: "/v1/account", status: 200, scope: "write", roles: managers, call: with(s.UpdateAccount)},
		{name: "get_usage", method: "GET", path: "/v1/account/usage", status: 200, scope: "read", roles: everyone, call: plain(s.GetUsage)},
		{name: "list_tokens", method: "GET", path: "/v1/auth/tokens", status: 200, scope: "read", roles: everyone, call: plain(s.ListTokens)},
		{name: "create_token", method: "POST", path: "/v1/auth/tokens", status: 201, scope: "write", roles: everyone, call: with(s.CreateToken)},
		{name: "delete_token", method: "DELETE", path: "/v1/auth/tokens/{token_id}", status: 200, scope: "write", roles: everyone, call: with(s.DeleteToken)},
	}
}
