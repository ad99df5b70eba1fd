package api

import "github.com/mailstead/mailstead/service"

// settingsOperations returns the operations on the settings of the installation.
func settingsOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_settings", Route: GET("/v1/settings"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Operator: true},
			Call:  Plain(s.Settings.ListSettings),
			Group: "Settings", Summary: "List the settings",
			Text:   "For the operator. Each comes with what holds now and where that comes from: a flag, the environment, mailstead.toml, the store or the default, in this order.",
			Errors: errorCodes("not_configured forbidden_role"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "update_settings", Route: PATCH("/v1/settings"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Settings.UpdateSettings),
			Group: "Settings", Summary: "Change settings",
			Text:   "The values are kept in the store, all or none of them, and hold when the answer comes, without a restart. What a flag, the environment or mailstead.toml sets cannot be changed here.",
			Errors: errorCodes("invalid_setting set_in_file in_use nothing_to_update not_configured person_required sign_in_again forbidden_role"),
			Tool:   Tool{NoTool: true},
		},
		{
			Name: "test_settings", Route: POST("/v1/settings/test"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Settings.TestSettings),
			Group: "Settings", Summary: "Try a relay, a registrar or the address of alerts",
			Text:   "A relay is logged in to, without sending mail; the address of alerts gets a test alert. With `values` it is tried as these would make it. Ten times a minute.",
			Errors: errorCodes("invalid_setting set_in_file in_use not_configured person_required sign_in_again forbidden_role"),
			Tool:   Tool{NoTool: true},
		},
	}
}
