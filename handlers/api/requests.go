package api

import "github.com/mailstead/mailstead/service"

// requestOperations returns the operations on the log of requests to the API.
func requestOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_requests", Route: GET("/v1/requests"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, WholeAccount: true},
			Call:  With(s.Requests.ListRequests),
			Group: "Account", Summary: "List the requests to the API",
			Text: "Newest first. Requests of the last 7 days are kept, at most 100 000, unless the operator has set another time; those with a `client_request_id` are found by that too. Requests of the owner are shown to the owner alone. After a crash, those of the last seconds may be missing.",
			Tool: Tool{NoTool: true},
		},
		{
			Name: "get_request", Route: GET("/v1/requests/{request_id}"), Status: 200,
			May:   May{Scope: Admin, Roles: Managers, WholeAccount: true},
			Call:  With(s.Requests.GetRequest),
			Group: "Account", Summary: "Show a request to the API",
			Text: "`request_id` is the server's own id. `body` and `answer` have the values of the fields with `x-loggable` in this description, and only the lengths of others, in at most 8 KiB each.",
			Tool: Tool{NoTool: true},
		},
	}
}
