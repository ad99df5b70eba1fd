package handlers

import "github.com/mailstead/mailstead/service"

func templateOps(s *service.Service) []op {
	const all, one = "/v1/email-user-templates", "/v1/email-user-templates/{template_id}"
	return []op{
		{name: "list_templates", method: "GET", path: all, status: 200, scope: "read", roles: everyone, call: plain(s.ListTemplates)},
		{name: "create_template", method: "POST", path: all, status: 200, scope: "write", roles: everyone, call: with(s.CreateTemplate)},
		{name: "get_template", method: "GET", path: one, status: 200, scope: "read", roles: everyone, call: with(s.GetTemplate)},
		{name: "update_template", method: "PATCH", path: one, status: 200, scope: "write", roles: everyone, call: with(s.UpdateTemplate)},
		{name: "delete_template", method: "DELETE", path: one, status: 200, scope: "write", roles: everyone, call: with(s.DeleteTemplate)},
	}
}
