package service

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A JobResponse is a job as the API shows it.
type JobResponse struct {
	ID            string          `json:"id" words:"ours"`
	JobID         string          `json:"job_id" words:"ours"`
	Type          string          `json:"type" words:"ours"`
	Status        string          `json:"status" enum:"queued|in_progress|completed|error|cancelled"`
	StatusDetail  *string         `json:"status_detail" words:"theirs"`
	Progress      *JobProgress    `json:"progress"`
	Steps         []JobStep       `json:"steps"`
	Resource      *JobResource    `json:"resource"`
	Result        json.RawMessage `json:"result"`
	Error         *JobFailure     `json:"error"`
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
	Name   string  `json:"name" words:"ours"`
	Status string  `json:"status" enum:"queued|in_progress|completed|error|skipped"`
	Error  *string `json:"error" words:"theirs"`
	At     Time    `json:"at"`
}

// A JobResource is the thing that a job is about.
type JobResource struct {
	Type string `json:"type" words:"ours"`
	ID   string `json:"id" words:"ours"`
	Name string `json:"name" words:"ours"`
}

// A JobFailure says why a job's newest attempt did not succeed.
type JobFailure struct {
	Code    string `json:"code" words:"ours"`
	Message string `json:"message" words:"theirs"`
}

func jobOut(j *store.Job) JobResponse {
	out := JobResponse{
		ID: j.ID, JobID: j.ID, Type: j.Kind, Status: j.State, StatusDetail: orNull(j.Detail), Steps: []JobStep{},
		Result: j.Result, Attempts: j.Attempt, CreatedBy: j.CreatedBy, CreatedAt: Time{j.CreatedAt},
		StartedAt: Time{j.StartedAt}, UpdatedAt: Time{j.UpdatedAt}, CompletedAt: Time{j.EndedAt},
		Error: jobFailure(j),
	}
	if j.Total > 0 {
		done := min(max(j.Completed, 0), j.Total)
		out.Progress = &JobProgress{done, j.Total, done * 100 / j.Total}
	}
	for _, s := range j.Steps {
		out.Steps = append(out.Steps, JobStep{s.Name, s.Status, orNull(s.Error), Time{s.At}})
	}
	if j.Resource != (store.JobResource{}) {
		out.Resource = &JobResource{j.Resource.Type, j.Resource.ID, j.Resource.Name}
	}
	if j.State == store.JobQueued {
		out.NextAttemptAt = Time{j.Due}
	}
	return out
}

// jobFailure shows the text of an error that carries a code, which was written for people, and
// hides that of any other.
func jobFailure(j *store.Job) *JobFailure {
	switch {
	case j.Err == "":
		return nil
	case j.ErrCode == "":
		return &JobFailure{"internal_error", "The attempt did not succeed. The log of this installation says why."}
	}
	return &JobFailure{j.ErrCode, j.Err}
}

// ListJobsIn is the query of list_jobs.
type ListJobsIn struct {
	PageIn
	JobID        string `query:"job_id"`
	Status       string `query:"status" enum:"queued|in_progress|completed|error|cancelled|"`
	Type         string `query:"type"`
	Domain       string `query:"domain"`
	CreatedAfter *Time  `query:"created_after"`
}

// JobsOut is one page of jobs, or the one job that was asked for.
type JobsOut struct {
	Page *Page[JobResponse]
	Job  *JobResponse
}

// MarshalJSON writes the one that is there.
func (o JobsOut) MarshalJSON() ([]byte, error) {
	if o.Job != nil {
		return json.Marshal(o.Job)
	}
	return json.Marshal(o.Page)
}

// Forms says which forms it has on the wire.
func (JobsOut) Forms() []any { return []any{Page[JobResponse]{}, JobResponse{}} }

// ListJobs lists the jobs that the account's people started in the last 30 days, newest first; with
// a job_id it answers that job.
func (s *Service) ListJobs(ctx context.Context, who Actor, in ListJobsIn) (*JobsOut, error) {
	if in.JobID != "" {
		j, err := s.GetJob(ctx, who, GetJobIn{ID: in.JobID})
		return &JobsOut{Job: j}, err
	}
	var since time.Time
	if in.CreatedAfter != nil {
		since = in.CreatedAfter.Time
	}
	domain := strings.ToLower(strings.TrimSuffix(in.Domain, "."))
	l := list[store.Job, JobResponse]{
		operation: "jobs", index: store.JobsByAccount, prefix: who.AccountID,
		filters: []string{in.Status, in.Type, domain, since.String()},
		keep: func(j *store.Job) bool {
			return (in.Status == "" || j.State == in.Status) && (in.Type == "" || j.Kind == in.Type) &&
				(domain == "" || aboutDomain(j.Resource, domain))
		},
		until: func(j *store.Job) bool { return !since.IsZero() && !j.CreatedAt.After(since) },
		out:   func(_ *store.Tx, j *store.Job) (JobResponse, error) { return jobOut(j), nil },
	}
	page, err := l.page(s, who, in.PageIn)
	return &JobsOut{Page: page}, err
}

// aboutDomain tells whether a job's resource is the domain of the name or id, or a mailbox of that
// name.
func aboutDomain(r store.JobResource, domain string) bool {
	if r.Type == "domain" {
		return r.Name == domain || r.ID == domain
	}
	return strings.HasSuffix(r.Name, "@"+domain)
}

// GetJobIn names a job, and how many seconds the answer may wait for its end.
type GetJobIn struct {
	ID   string `path:"job_id"`
	Wait *int   `query:"wait" min:"1" max:"30"`
}

// GetJob answers one job: at once, or when it has ended or the wait is over.
func (s *Service) GetJob(ctx context.Context, who Actor, in GetJobIn) (*JobResponse, error) {
	var j *store.Job
	err := s.Store.View(func(tx *store.Tx) (err error) {
		j, err = store.Jobs.Get(tx, in.ID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.AccountID != who.AccountID || !j.Visible) {
		return nil, NotFound("job")
	}
	if err == nil && in.Wait != nil && !j.Ended() {
		j, err = s.waitForJob(ctx, in.ID, time.Duration(*in.Wait)*time.Second)
	}
	if err != nil {
		return nil, err
	}
	out := jobOut(j)
	return &out, nil
}

func (s *Service) waitForJob(ctx context.Context, id string, most time.Duration) (*store.Job, error) {
	if most < time.Second || most > 30*time.Second {
		return nil, Invalid("wait", "out_of_range", "must be a whole number from 1 to 30")
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	j, err := s.Queue.Wait(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, NotFound("job")
	}
	return j, err
}

// JobResult is a value of the type that the results of a kind of jobs have; nil for kinds that have
// none.
func JobResult(kind string) any {
	if kind == "domain_setup" {
		return setupResult{}
	}
	return nil
}
