package api

import "github.com/mailstead/mailstead/service"

// healthOperations returns the operations on the installation.
func healthOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "get_health", Route: GET("/v1/health"), Status: 200,
			May:   May{Scope: Read, Roles: Managers, Operator: true},
			Call:  Plain(s.Health.GetHealth),
			Group: "Health", Summary: "Show how the installation is",
			Text: "For its operator. The checks are at most 15 minutes old; every warning and error says in `mend` what to do.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "check_health", Route: POST("/v1/health/check"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, OperatorNow: true},
			Call:  With(s.Health.CheckHealth),
			Group: "Health", Summary: "Make the checks of the installation now",
			Text: "It takes up to 20 seconds. With `code` it makes one check. The answer is that of `get_health`.",
			Show: "code",
			Tool: Tool{NoTool: true},
		},
	}
}
