package handlers

import "github.com/mailstead/mailstead/service"

func mailboxOps(s *service.Service) []op {
	i := intents{s}
	return []op{
		{name: "list_email_users", method: "GET", path: "/v1/email-users", status: 200, scope: "read", roles: everyone, call: with(s.ListEmailUsers)},
		{name: "create_email_user", method: "POST", path: "/v1/email-users", status: 201, scope: "write", roles: managers, call: with(s.CreateEmailUser), confirm: askFirst(i.createEmailUser)},
		{name: "generate_names", method: "POST", path: "/v1/email-users/generate-names", status: 200, scope: "read", roles: everyone, call: with(s.GenerateNames)},
		{name: "create_email_users_bulk", method: "POST", path: "/v1/email-users/bulk", status: 200, scope: "write", roles: managers, call: with(s.CreateEmailUsersBulk)},
		{name: "delete_email_users_bulk", method: "DELETE", path: "/v1/email-users/bulk", status: 200, scope: "write", roles: managers, call: with(s.DeleteEmailUsersBulk), confirm: askFirst(i.deleteEmailUsers)},
		{name: "delete_email_users_bulk", method: "POST", path: "/v1/email-users/bulk-delete", status: 200, scope: "write", roles: managers, call: with(s.DeleteEmailUsersBulk), alias: true, confirm: askFirst(i.deleteEmailUsers)},
		{name: "get_email_user", method: "GET", path: "/v1/email-users/{user_id}", status: 200, scope: "read", roles: everyone, call: with(s.GetEmailUser)},
		{name: "update_email_user", method: "PATCH", path: "/v1/email-users/{user_id}", status: 200, scope: "write", roles: managers, call: with(s.UpdateEmailUser), confirm: askFirst(i.updateEmailUser)},
		{name: "delete_email_user", method: "DELETE", path: "/v1/email-users/{user_id}", status: 200, scope: "write", roles: managers, call: with(s.DeleteEmailUser)},
		{name: "list_domain_email_users", method: "GET", path: "/v1/domains/{domain_id}/email-users", status: 200, scope: "read", roles: everyone, call: with(s.ListDomainEmailUsers)},
	}
}
