package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// checkParked names the parked jobs: the server crashed each time that they ran.
func (s *Service) checkParked() (out []Check) {
	const code, subject = "queue", "the queue of jobs"
	var list []*store.Job
	var all int
	err := s.Store.View(func(tx *store.Tx) (err error) {
		list, all, err = jobs.Parked(tx, maxNamed)
		return err
	})
	if err != nil {
		return badResult(code, Error, subject, fmt.Sprintf("Parked jobs cannot be read: %v.", err), "Stop the server and run "+s.commandLine("check")+".")
	}
	for _, j := range list {
		about := ""
		if j.Resource.Name != "" {
			about = " for " + j.Resource.Name
		}
		out = append(out, badResult(code, Error, j.ID,
			fmt.Sprintf("The server ended %d times in a row while the job %s%s ran. It is parked until %s, and the others go on.", j.Crashes, j.Kind, about, j.Due.UTC().Format(time.RFC3339)),
			fmt.Sprintf("Look in the log for why the server ended. %s lets the job go on now; if the server ends again, it is parked again.", s.commandLine("job", "resume", "--job", j.ID)))...)
	}
	if more := all - len(list); more > 0 {
		out = append(out, badResult(code, Error, subject, fmt.Sprintf("%d more jobs are parked.", more), s.commandLine("job", "parked")+" lists them.")...)
	}
	return out
}

// A ParkedJob is a job that does not run because the server crashed while it ran.
type ParkedJob struct {
	JobID    string    `json:"job_id"`
	Type     string    `json:"type"`
	Account  string    `json:"account_id"`
	Resource string    `json:"resource"`
	Crashes  int       `json:"crashes"` // how often in a row the server ended while it ran
	ParkedAt core.Time `json:"parked_at"`
	Until    core.Time `json:"until"`
}

// maxParkedListed is how many parked jobs one command lists or resumes.
const maxParkedListed = 1000

// ListParkedJobs lists the parked jobs for the operator.
func (s *Service) ListParkedJobs(context.Context, struct{}) (*core.List[ParkedJob], error) {
	var out []ParkedJob
	err := s.Store.View(func(tx *store.Tx) error {
		list, _, err := jobs.Parked(tx, maxParkedListed)
		out = nil
		for _, j := range list {
			out = append(out, ParkedJob{j.ID, j.Kind, j.AccountID, j.Resource.Name, j.Crashes, core.Time{Time: j.ParkedAt}, core.Time{Time: j.Due}})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return core.ListOf(out), nil
}

// ResumeJobsIn names the parked jobs to resume: one, or all.
type ResumeJobsIn struct {
	Job string `json:"job"`
	All bool   `json:"all"`
}

// JobsResumed lists the resumed jobs.
type JobsResumed struct {
	Jobs []string `json:"jobs"`
}

// ResumeJobs lets parked jobs run again now, for the operator.
func (s *Service) ResumeJobs(_ context.Context, in ResumeJobsIn) (*JobsResumed, error) {
	ids := []string{in.Job}
	if in.All {
		list, err := s.ListParkedJobs(context.Background(), struct{}{})
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, j := range list.Data {
			ids = append(ids, j.JobID)
		}
	}
	out := &JobsResumed{Jobs: []string{}}
	for _, id := range ids {
		err := s.Store.Update(func(tx *store.Tx) error {
			j, err := s.Queue.Resume(tx, id)
			if err != nil {
				return err
			}
			return core.AuditCommand(tx, "job resume", j.AccountID, store.AuditTarget{Type: "job", ID: j.ID, Name: j.Kind})
		})
		switch {
		case err == nil:
			out.Jobs = append(out.Jobs, id)
		case in.All && (errors.Is(err, jobs.ErrNotParked) || core.IsGone(err)): // it was resumed or deleted in the meantime
		case errors.Is(err, jobs.ErrNotParked):
			return nil, core.Errorf("not_queued", "The job %s is not parked.", id)
		case core.IsGone(err):
			return nil, core.NotFound("job")
		default:
			return nil, err
		}
	}
	return out, nil
}
