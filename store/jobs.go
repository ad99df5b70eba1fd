package store

import (
	"encoding/json"
	"time"
)

// A Job is one piece of work that the queue does, now or later.
type Job struct {
	ID        string // job_…
	AccountID string // "" for the installation's own
	Kind      string
	Key       string // folds waiting duplicates of one kind; "" folds nothing
	Lane      string // jobs of one lane run a bounded number at a time; "" is unbounded
	Args      json.RawMessage
	State     string    // queued in_progress completed error cancelled
	Due       time.Time // when it may be claimed; while it runs, when its claim ends
	Attempt   int       // claims so far
	Max       int       // attempts before it is given up; 0 = no limit
	Err       string    // of the newest attempt
	ErrCode   string
	Detail    string // status_detail
	Result    json.RawMessage
	Steps     []JobStep
	Completed int // progress
	Total     int // progress; 0 = none shown
	Visible   bool
	Resource  JobResource
	CreatedBy string // a user id, or ""
	CreatedAt time.Time
	StartedAt time.Time
	UpdatedAt time.Time
	EndedAt   time.Time
}

// A JobStep is one named part of a job.
type JobStep struct {
	Name   string
	Status string // queued in_progress completed error skipped
	Error  string
	At     time.Time
}

// A JobResource is the thing that a job is about.
type JobResource struct{ Type, ID, Name string }

// Jobs keeps waiting, running and ended jobs.
var (
	Jobs    = newTable("job", func(j *Job) string { return j.ID })
	JobsDue = Jobs.index("due", func(j *Job) string {
		if j.State != "queued" && j.State != "in_progress" {
			return ""
		}
		return TimeKey(j.Due)
	})
	JobByKey = Jobs.unique("key", func(j *Job) string {
		if j.Key == "" || j.State != "queued" {
			return ""
		}
		return j.Kind + "\x00" + j.Key
	})
	JobsByAccount = Jobs.index("account", func(j *Job) string {
		if !j.Visible {
			return ""
		}
		return j.AccountID
	})
	JobsEnded = Jobs.index("ended", func(j *Job) string {
		if j.EndedAt.IsZero() {
			return ""
		}
		return TimeKey(j.EndedAt)
	})
)
