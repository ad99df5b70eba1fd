package api

import "github.com/mailstead/mailstead/service"

// jobOperations returns the operations on background work.
func jobOperations(s *service.Service) []Operation {
	return []Operation{
		{
			Name: "list_jobs", Route: GET("/v1/jobs"), Status: 200,
			May:         May{Scope: Read, Roles: People, Bound: Clean, Taints: true},
			Call:        With(s.ListJobs),
			ShowsSecret: true,
			Group:       "Jobs and export", Summary: "List the jobs of the last 30 days",
			Text:   "With `job_id` the answer has only that job.",
			Errors: errorCodes("not_found"),
		},
		{
			Name: "get_job", Route: GET("/v1/jobs/{job_id}"), Status: 200,
			May:         May{Scope: Read, Roles: People, Bound: Clean, Taints: true},
			Call:        With(s.GetJob),
			ShowsSecret: true,
			Group:       "Jobs and export", Summary: "Show a job",
			Text: "With `wait` the answer comes when the job ends, or after that many seconds.",
		},
	}
}
