package api

import "github.com/mailstead/mailstead/service"

// backupOperations returns the operations on backups.
func backupOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_backups", Route: GET("/v1/backups"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Operator: true},
			Call:  Plain(s.Backups.ListBackups),
			Group: "Health", Summary: "List the backups, and the times that can be restored",
			Text: "For the operator. These are the backups at the place that the settings name; the list is empty if they name none.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "create_backup", Route: POST("/v1/backups"), Status: 202,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  Plain(s.Backups.CreateBackup),
			Group: "Health", Summary: "Make a backup now",
			Text:   "As a job of type `backup`. The backup goes to the place that the settings name, has what is new since the last one, and is read back.",
			Errors: errorCodes("backup_running not_configured"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "drill_backup", Route: POST("/v1/backups/drill"), Status: 202,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  Plain(s.Backups.DrillBackup),
			Group: "Health", Summary: "Restore the newest backup for a trial",
			Text:   "As a job of type `backup_drill`. It restores the newest backup into a directory beside the store, makes every check of `mailstead check` on it, reads 1 000 messages, and removes the directory. The server goes on as before. The job's `result` has `ok`, and `problems` if there are some; a damaged backup is a `completed` job with `ok` false. If the backup is encrypted, the host cannot read it: then only its checksums are verified, and `decrypted` is false.",
			Errors: errorCodes("backup_running not_configured not_found"),
			Tool:   Tool{NoTool: true},
		},
	}
}
