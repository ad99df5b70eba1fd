package core

import (
	"encoding/json"

	"github.com/mailstead/mailstead/store"
)

// Location returns the path of the job in the API.
func (j *JobResponse) Location() string { return "/v1/jobs/" + j.JobID }

// A JobResponse is a job as the API shows it.
type JobResponse struct {
	ID           string       `json:"id" words:"ours" example:"job_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same as job_id.
	JobID        string       `json:"job_id" words:"ours"`
	Type         string       `json:"type" words:"ours" example:"domain_setup"`
	Status       string       `json:"status" enum:"queued|in_progress|completed|error|cancelled"`
	StatusDetail *string      `json:"status_detail" words:"theirs" rare:"true"`
	Progress     *JobProgress `json:"progress"`
	Steps        []JobStep    `json:"steps"`
	Resource     *JobResource `json:"resource"`
	// The job's result; null until it has ended, and for kinds that have no result.
	Result        json.RawMessage `json:"result" null:"true" example:"{\"domain_id\":\"dom_01k9a2b3c4d5e6f7g8h9j0k1m2\"}"`
	Error         *JobFailure     `json:"error" rare:"true"`
	Attempts      int             `json:"attempts"`
	NextAttemptAt Time            `json:"next_attempt_at"`
	CreatedBy     string          `json:"created_by" words:"ours"`
	CreatedAt     Time            `json:"created_at"`
	StartedAt     Time            `json:"started_at"`
	UpdatedAt     Time            `json:"updated_at"`
	CompletedAt   Time            `json:"completed_at"`
}

// JobProgress counts the parts of a job.
type JobProgress struct {
	Completed int `json:"completed"`
	Total     int `json:"total"`
	Percent   int `json:"percent"`
}

// A JobStep is one named part of a job.
type JobStep struct {
	Name   string  `json:"name" words:"ours" example:"verify"`
	Status string  `json:"status" enum:"queued|in_progress|completed|error|skipped"`
	Error  *string `json:"error" words:"theirs" rare:"true"`
	At     Time    `json:"at"`
}

// A JobResource is the thing that a job is about.
type JobResource struct {
	Type string `json:"type" words:"ours" example:"domain"`
	ID   string `json:"id" words:"ours" example:"dom_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name string `json:"name" words:"ours" example:"example.com"`
}

// ResourceHost is the type of a job's resource for jobs about the whole installation. Only its
// operator sees them.
const ResourceHost = "host"

// A JobFailure says why a job's last attempt failed.
type JobFailure struct {
	Code    string `json:"code" words:"ours" example:"registrar_error"`
	Message string `json:"message" words:"theirs" example:"The registrar did not answer. Mailstead will try again."` // For people; the text may change.
}

// JobOut returns a job in the form of the API.
func JobOut(j *store.Job) JobResponse {
	out := JobResponse{
		ID: j.ID, JobID: j.ID, Type: j.Kind, Status: j.State, StatusDetail: OrNull(j.Detail), Steps: []JobStep{},
		Result: j.Result, Attempts: j.Attempt, CreatedBy: j.CreatedBy, CreatedAt: Time{j.CreatedAt},
		StartedAt: Time{j.StartedAt}, UpdatedAt: Time{j.UpdatedAt}, CompletedAt: Time{j.EndedAt},
		Error: jobFailure(j),
	}
	if j.Total > 0 {
		done := min(max(j.Completed, 0), j.Total)
		out.Progress = &JobProgress{done, j.Total, done * 100 / j.Total}
	}
	for _, s := range j.Steps {
		out.Steps = append(out.Steps, JobStep{s.Name, s.Status, OrNull(s.Error), Time{s.At}})
	}
	if j.Resource != (store.JobResource{}) {
		out.Resource = &JobResource{j.Resource.Type, j.Resource.ID, j.Resource.Name}
	}
	if j.State == store.JobQueued {
		out.NextAttemptAt = Time{j.Due}
	}
	return out
}

// jobFailure returns why the last attempt of a job failed. It returns the text of the error only if
// the error has a code, since only such texts are written for people.
func jobFailure(j *store.Job) *JobFailure {
	switch {
	case j.Err == "":
		return nil
	case j.ErrCode == "":
		return &JobFailure{"internal_error", "The attempt failed. See the log of this installation."}
	}
	return &JobFailure{j.ErrCode, j.Err}
}
