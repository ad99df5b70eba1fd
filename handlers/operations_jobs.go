package handlers

import "github.com/mailstead/mailstead/service"

func jobOps(s *service.Service) []op {
	return []op{
		{name: "list_jobs", method: "GET", path: "/v1/jobs", status: 200, scope: "read", roles: everyone, call: with(s.ListJobs)},
		{name: "get_job", method: "GET", path: "/v1/jobs/{job_id}", status: 200, scope: "read", roles: everyone, call: with(s.GetJob)},
	}
}
