package api

import "github.com/mailstead/mailstead/service"

// exportOperations returns the operations on exports and imports.
func exportOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "create_export", Route: POST("/v1/export"), Status: 200,
			May:         May{Scope: Write, Roles: Managers, Access: true},
			Call:        With(s.Mailboxes.CreateExport),
			ShowsSecret: true,
			Group:       "Jobs and export", Summary: "Export mailboxes with their passwords",
			Text:   "Give exactly one of `domains`, `emails`, `user_ids` and `all`. The link works once, for 15 minutes, and needs no token. With `inline`, or `Accept: text/csv`, the answer is the file itself. With the format `columns` the file has the `columns` that you give: the value `{smtp_username}` stands for that field, and list_export_formats names the fields. One export every five seconds.",
			Errors: errorCodes("export_rate_limited exactly_one_parameter credential_limit_reached"),
			Show:   "format all",
			Media:  "text/csv",
			Tool: Tool{
				Hidden: "inline",
				Text: "Give exactly one of `domains`, `emails`, `user_ids` and `all`. The answer is a link that works once, for 15 minutes, and leads " +
					"to a file with passwords: give it to the person, and do not open it yourself. One export every five seconds.",
			},
		},
		{
			Name: "import_messages", Route: POST("/v1/email-users/{user_id}/import"), Status: 202,
			May:    May{Scope: Write, Roles: Holders},
			Call:   With(s.Mailboxes.ImportMail),
			Upload: &Uploader{s.Mailboxes.MayImport, s.Mailboxes.ImportUpload},
			Group:  "Jobs and export", Summary: "Import mail into a mailbox",
			Text:   "From the folders of a mailbox on another server, or from an mbox file, which is sent as the body with `Content-Type: application/mbox` and may be as long as the mailbox's quota has room for. The job's `result` counts messages and names those that failed. What came with an import before is left out, so that an import can be begun again.",
			Errors: errorCodes("quota_exceeded"),
			Show:   "imap",
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "export_messages", Route: POST("/v1/email-users/{user_id}/export"), Status: 202,
			May:   May{Scope: Write, Roles: Holders, Access: true},
			Call:  With(s.Mailboxes.ExportMail),
			Group: "Jobs and export", Summary: "Export all mail of a mailbox",
			Text: "A tar with a Maildir, or with an mbox file for each folder. The job's `result` is `{url, expires_at}`: the link works once, for 15 minutes, and needs no token.",
			Show: "format",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "list_export_formats", Route: GET("/v1/export/formats"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean},
			Call:  Plain(s.Mailboxes.ListExportFormats),
			Group: "Jobs and export", Summary: "List the formats of exports",
		},
	}
}
