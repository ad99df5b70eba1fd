package api

import "github.com/mailstead/mailstead/service"

// templateOperations returns the operations on templates of mailboxes.
func templateOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_templates", Route: GET("/v1/email-user-templates"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  Plain(s.Mailboxes.ListTemplates),
			Group: "Templates", Summary: "List the templates",
		},
		{
			Name: "create_template", Route: POST("/v1/email-user-templates"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Mailboxes.CreateTemplate),
			Group: "Templates", Summary: "Create a template",
		},
		{
			Name: "get_template", Route: GET("/v1/email-user-templates/{template_id}"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Mailboxes.GetTemplate),
			Group: "Templates", Summary: "Show a template",
		},
		{
			Name: "update_template", Route: PATCH("/v1/email-user-templates/{template_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Mailboxes.UpdateTemplate),
			Group: "Templates", Summary: "Change a template",
			Show: "usernames",
		},
		{
			Name: "delete_template", Route: DELETE("/v1/email-user-templates/{template_id}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Mailboxes.DeleteTemplate),
			Group: "Templates", Summary: "Delete a template",
		},
	}
}
