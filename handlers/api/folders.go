package api

import "github.com/mailstead/mailstead/service"

// folderOperations returns the operations on folders of mailboxes.
func folderOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_folders", Route: GET("/v1/email-users/{user_id}/folders"), Status: 200,
			May:   May{Scope: Read, Roles: People, Bound: Always},
			Call:  With(s.Inbox.ListFolders),
			Group: "Folders", Summary: "List the folders of a mailbox",
			Text: "Inbox, Drafts, Sent, Archive, Junk and Trash, then the others by name. Operations on messages take a folder by its role or its name as `folder`.",
		},
		{
			Name: "create_folder", Route: POST("/v1/email-users/{user_id}/folders"), Status: 201,
			May:   May{Scope: Write, Roles: People},
			Call:  With(s.Inbox.CreateMailFolder),
			Group: "Folders", Summary: "Create a folder",
			Text:   "`/` stands between levels; folders above it that are missing are made.",
			Errors: errorCodes("folder_exists too_many_items"),
			Show:   "name",
		},
		{
			Name: "update_folder", Route: PATCH("/v1/email-users/{user_id}/folders/{folder_id}"), Status: 200,
			May:   May{Scope: Write, Roles: People},
			Call:  With(s.Inbox.UpdateMailFolder),
			Group: "Folders", Summary: "Rename a folder",
			Text:   "With all below it.",
			Errors: errorCodes("folder_exists folder_protected"),
			Show:   "name",
		},
		{
			Name: "delete_folder", Route: DELETE("/v1/email-users/{user_id}/folders/{folder_id}"), Status: 200,
			May:   May{Scope: Write, Roles: People},
			Call:  With(s.Inbox.DeleteMailFolder),
			Group: "Folders", Summary: "Delete a folder",
			Text:   "Its messages go to Trash.",
			Errors: errorCodes("folder_protected folder_has_children"),
		},
	}
}
