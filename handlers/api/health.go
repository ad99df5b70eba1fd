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
	}
}
