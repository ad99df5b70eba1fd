package api

import "github.com/mailstead/mailstead/service"

// suppressionOperations returns the operations on addresses that get no mail.
func suppressionOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_suppressions", Route: GET("/v1/suppressions"), Status: 200,
			May:   May{Scope: Read, Roles: Everyone, Bound: Clean, Taints: true},
			Call:  With(s.Feedback.ListSuppressions),
			Group: "Sending log", Summary: "List the suppressed addresses",
		},
		{
			Name: "create_suppression", Route: POST("/v1/suppressions"), Status: 201,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Feedback.CreateSuppression),
			Group: "Sending log", Summary: "Suppress an address",
		},
		{
			Name: "import_suppressions", Route: POST("/v1/suppressions/import"), Status: 200,
			May:  May{Scope: Write, Roles: Managers},
			Call: With(s.Feedback.ImportSuppressions),
			Body: LargestList, File: &TextBody{"text/csv", "csv"}, Strict: true,
			Group: "Sending log", Summary: "Suppress many addresses",
			Text: "Give `emails`, or a CSV file with a header line (`email`, and `reason` if you like) as the body with `Content-Type: text/csv`. An address that is suppressed already stays as it is.",
			Show: "emails reason",
		},
		{
			Name: "delete_suppression", Route: DELETE("/v1/suppressions/{email}"), Status: 200,
			May:   May{Scope: Write, Roles: Everyone},
			Call:  With(s.Feedback.DeleteSuppression),
			Group: "Sending log", Summary: "Remove an address from the suppression list",
		},
	}
}
