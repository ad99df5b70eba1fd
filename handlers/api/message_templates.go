package api

import "github.com/mailstead/mailstead/service"

// messageTemplateOperations returns the operations on templates of messages.
func messageTemplateOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_message_templates", Route: GET("/v1/message-templates"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Templates.ListMessageTemplates),
			Group: "Message templates", Summary: "List the message templates",
		},
		{
			Name: "create_message_template", Route: POST("/v1/message-templates"), Status: 201,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Templates.CreateMessageTemplate),
			Body:  LargestTemplate,
			Group: "Message templates", Summary: "Create a message template",
			Text:   "`{{name}}` in the subject, text or html is a variable.",
			Errors: errorCodes("invalid_template"),
			Show:   "name subject text html",
		},
		{
			Name: "get_message_template", Route: GET("/v1/message-templates/{id}"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Templates.GetMessageTemplate),
			Group: "Message templates", Summary: "Show a message template",
		},
		{
			Name: "update_message_template", Route: PATCH("/v1/message-templates/{id}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Templates.UpdateMessageTemplate),
			Body:  LargestTemplate,
			Group: "Message templates", Summary: "Change a message template",
			Text:   "Null takes `text` or `html` away. Messages that were made of it stay as they are.",
			Errors: errorCodes("invalid_template"),
			Show:   "subject",
		},
		{
			Name: "delete_message_template", Route: DELETE("/v1/message-templates/{id}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Templates.DeleteMessageTemplate),
			Group: "Message templates", Summary: "Delete a message template",
		},
		{
			Name: "preview_message_template", Route: POST("/v1/message-templates/{id}/preview"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  With(s.Templates.PreviewMessageTemplate),
			Group: "Message templates", Summary: "Show what a message would be with some values",
			Errors: errorCodes("missing_variable"),
			Show:   "variables",
		},
	}
}
