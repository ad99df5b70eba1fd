package service

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/backups"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// ListJobsIn is the query of list_jobs.
type ListJobsIn struct {
	page.Query
	JobID        string     `query:"job_id"`
	Status       string     `query:"status" enum:"queued|in_progress|completed|error|cancelled|"`
	Type         string     `query:"type" example:"domain_setup"`
	Domain       string     `query:"domain"`
	CreatedAfter *core.Time `query:"created_after"` // Only newer rows; an RFC 3339 time or a date.
}

// JobsOut is one page of jobs, or the one job with the given job_id.
type JobsOut struct {
	Page *page.Page[core.JobResponse]
	Job  *core.JobResponse
}

// MarshalJSON writes the page or the job.
func (o JobsOut) MarshalJSON() ([]byte, error) {
	if o.Job != nil {
		return json.Marshal(o.Job)
	}
	return json.Marshal(o.Page)
}

// Forms lists the types that the answer may have.
func (JobsOut) Forms() []any { return []any{page.Page[core.JobResponse]{}, core.JobResponse{}} }

// ListJobs lists the jobs that the account's users started in the last 30 days, newest first. With
// a job_id it returns that job.
func (s *Service) ListJobs(ctx context.Context, who core.Actor, in ListJobsIn) (*JobsOut, error) {
	if in.JobID != "" {
		j, err := s.GetJob(ctx, who, GetJobIn{ID: in.JobID})
		return &JobsOut{Job: j}, err
	}
	var since time.Time
	if in.CreatedAfter != nil {
		since = in.CreatedAfter.Time
	}
	domain := strings.ToLower(strings.TrimSuffix(in.Domain, "."))
	l := page.Listing[store.Job, core.JobResponse]{
		Operation: "jobs", Index: store.JobsByAccount, Prefix: who.AccountID,
		Filters:   []string{in.Status, in.Type, domain, since.String()},
		Prefilter: page.HasTexts(in.Status, in.Type, domain),
		Keep: func(j *store.Job) bool {
			return maySeeJob(who, j) && (in.Status == "" || j.State == in.Status) && (in.Type == "" || j.Kind == in.Type) &&
				(domain == "" || isAboutDomain(j.Resource, domain))
		},
		Until: func(j *store.Job) bool { return !since.IsZero() && !j.CreatedAt.After(since) },
		Out:   jobOut,
	}
	page, err := l.Page(s.Core, who, in.Query)
	return &JobsOut{Page: page}, err
}

// maySeeJob reports whether the actor may see a job. An actor with access to some mailboxes sees
// the jobs about these mailboxes and the jobs that it has started. A token that is limited to
// mailboxes sees only the jobs about these mailboxes. Jobs about the installation and its accounts
// are shown to its operator alone, since their results may name mailboxes of any account. In a
// session that began with the operator's link, jobs whose result is a link to mail are not shown.
func maySeeJob(who core.Actor, j *store.Job) bool {
	switch {
	case j.Resource.Type == core.ResourceHost || j.Kind == accounts.KindDelete:
		return who.Operator && !who.Bound && !who.MailboxToken
	case j.Kind == mailboxes.KindExport && who.LinkedBy != "":
		return false
	}
	return j.CreatedBy == who.UserID && !who.MailboxToken || who.Sees(j.Resource.ID)
}

// isAboutDomain reports whether a job's resource is the domain with this name or id, or a mailbox
// in the domain of this name.
func isAboutDomain(r store.JobResource, domain string) bool {
	if r.Type == "domain" {
		return r.Name == domain || r.ID == domain
	}
	return strings.HasSuffix(r.Name, "@"+domain)
}

// jobOut returns a job in the form of the API.
func jobOut(tx *store.Tx, j *store.Job) (core.JobResponse, error) {
	out := core.JobOut(j)
	if out.NextAttemptAt.IsZero() {
		return out, nil
	}
	next, err := domains.NextAttempt(tx, j)
	out.NextAttemptAt = core.Time{Time: next}
	return out, err
}

// GetJobIn names a job, and how many seconds the request may wait for its end.
type GetJobIn struct {
	ID   string `path:"job_id"`
	Wait *int   `query:"wait" min:"1" max:"30" example:"30"` // Seconds to wait for the job's end.
}

// GetJob returns one job. With wait it returns when the job has ended, or after wait seconds.
func (s *Service) GetJob(ctx context.Context, who core.Actor, in GetJobIn) (*core.JobResponse, error) {
	var j *store.Job
	err := s.Core.Store.View(func(tx *store.Tx) (err error) {
		j, err = store.Jobs.Get(tx, in.ID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && (j.AccountID != who.AccountID || !j.Visible || !maySeeJob(who, j)) {
		return nil, core.NotFound("job")
	}
	if err == nil && in.Wait != nil && !j.Ended() {
		j, err = s.waitForJob(ctx, in.ID, time.Duration(*in.Wait)*time.Second)
	}
	if err != nil {
		return nil, err
	}
	var out core.JobResponse
	err = s.Core.Store.View(func(tx *store.Tx) (err error) {
		out, err = jobOut(tx, j)
		if err == nil && j.Kind == zones.KindScan && j.State == store.JobCompleted {
			out.Result, err = s.Scans.Result(tx, j)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (s *Service) waitForJob(ctx context.Context, id string, maxWait time.Duration) (*store.Job, error) {
	if maxWait < time.Second || maxWait > 30*time.Second {
		return nil, core.Invalid("wait", "out_of_range", "must be a whole number from 1 to 30")
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	j, err := s.Core.Queue.Wait(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, core.NotFound("job")
	}
	return j, err
}

// JobResult returns a value of the type of a job kind's results; nil for kinds without results.
func JobResult(kind string) any {
	switch kind {
	case domains.KindSetup:
		return domains.SetupResult{}
	case zones.KindScan:
		return zones.ScanResult{}
	case backups.KindBackup:
		return backups.BackupResult{}
	case backups.KindDrill:
		return backups.DrillResult{}
	}
	return nil
}
