// Package backups lists the backups that the settings ask for, makes one at the operator's request,
// and restores the newest one for a trial, which is called a drill. It does not know how a backup
// is stored, nor when the next one is due: see store/backup.
//
// Where things are:
//   - service.go: the operations, and the job that makes a backup.
//   - drill.go: the job that makes a drill, and when it is due.
package backups

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
)

// Kinds of jobs.
const (
	KindBackup = "backup"
	KindDrill  = "backup_drill"
)

const (
	lane       = "backups"        // of both kinds, so that one job runs at a time
	jobTimeout = 24 * time.Hour   // of one attempt
	listWait   = 30 * time.Second // how long a request waits for the place of the backups
)

// A Service lists and makes backups, and makes drills.
type Service struct {
	*core.Core
	// Schedule makes the backups that the settings ask for; nil: they ask for none. It is set
	// before use.
	Schedule *backup.Schedule
}

// New returns a Service.
func New(c *core.Core) *Service { return &Service{Core: c} }

// Kinds returns the kinds of jobs. A job that was killed runs again from its beginning; one that
// fails is not repeated, since the operator sees why.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{
		{Name: KindBackup, Work: s.backUp, Max: 1, Timeout: jobTimeout, Visible: true},
		{Name: KindDrill, Work: s.drill, Max: 1, Timeout: jobTimeout, Visible: true, Failed: s.recordFailedDrill},
	}
}

// A Backup is one backup in the list.
type Backup struct {
	ID       string    `json:"id" words:"ours" example:"20261124T120000.000Z-000000000000bc53-full"`
	Kind     string    `json:"kind" enum:"full|incremental"`
	At       core.Time `json:"at"`                       // The time that it ends with: that of its last change.
	Number   int64     `json:"number" example:"48211"`   // The number of that change.
	Bytes    int64     `json:"bytes" example:"73400320"` // Size of everything that it needs; several backups may share it.
	Verified bool      `json:"verified"`                 // Whether it was read back when it was made.
}

// BackupList lists the backups at the place that the settings name.
type BackupList struct {
	Data    []Backup  `json:"data"`     // Newest first.
	FirstAt core.Time `json:"first_at"` // The first time that can be restored.
	LastAt  core.Time `json:"last_at"`  // The last time that can be restored.
	Count   int       `json:"count"`    // How many rows are in `data`.
}

// ListBackups lists the backups. The list is empty if the settings ask for none.
func (s *Service) ListBackups(ctx context.Context, _ core.Actor) (*BackupList, error) {
	out := &BackupList{Data: []Backup{}}
	if s.Schedule == nil {
		return out, nil
	}
	limited, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	list, err := s.Schedule.Target.List(limited)
	if err != nil {
		return nil, s.placeError(err)
	}
	for _, b := range slices.Backward(list.Data) {
		out.Data = append(out.Data, Backup{b.ID, b.Kind, core.Time{Time: b.At}, int64(b.Number), b.Bytes, b.Verified})
	}
	out.Count = len(out.Data)
	if list.FirstAt != nil {
		out.FirstAt.Time, out.LastAt.Time = *list.FirstAt, *list.LastAt
	}
	return out, nil
}

// placeError returns the error for a place of backups that cannot be read.
func (s *Service) placeError(err error) error {
	e := core.Errorf("storage_unavailable", "The backups at %s cannot be read: %v.", s.Schedule.Target.Place, err).Because(err)
	e.RetryAfter = time.Minute
	return e
}

// CreateBackup makes a backup now, as a job.
func (s *Service) CreateBackup(_ context.Context, who core.Actor) (*core.JobResponse, error) {
	if err := s.mayStart(); err != nil {
		return nil, err
	}
	return s.start(who, KindBackup)
}

// mayStart returns an error if the settings ask for no backups, or if one is being made.
func (s *Service) mayStart() error {
	if s.Schedule == nil {
		return core.Errorf("not_configured", "The settings ask for no backups. Set `to` in [backup] of mailstead.toml to a directory on another disk or to an s3:// address, and restart the server.")
	}
	if s.Schedule.Running() {
		return core.Errorf("backup_running", "The server is making a backup at this moment. Wait until it is done.")
	}
	return nil
}

// start adds a job of a kind, unless one is waiting or running.
func (s *Service) start(who core.Actor, kind string) (out *core.JobResponse, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		other, err := unendedJob(tx)
		if err != nil {
			return err
		}
		if other != nil {
			return core.Errorf("backup_running", "The job %s (%s) is not done yet. Wait until it ends.", other.ID, other.Kind).With(other.ID, "backup_running", "is not done yet")
		}
		j, err := s.Queue.Add(tx, jobs.New{
			AccountID: who.AccountID, Kind: kind, Lane: lane, CreatedBy: who.UserID,
			Resource: store.JobResource{Type: core.ResourceHost, ID: s.Hostname(), Name: s.Hostname()},
		})
		if err != nil {
			return err
		}
		response := core.JobOut(j)
		out = &response
		return core.Audit(tx, who, store.AuditTarget{Type: "job", ID: j.ID, Name: kind})
	})
	return out, err
}

// unendedJob returns a job of this room that is queued or running; nil if there is none. A parked
// job does not count: it may wait for days.
func unendedJob(tx *store.Tx) (*store.Job, error) {
	for _, prefix := range []string{store.RunningLane, store.LaneKey(lane)} {
		for _, id := range store.JobsByLane.Keys(tx, prefix+"\x00", "") {
			j, err := store.Jobs.Find(tx, id)
			if err != nil {
				return nil, err
			}
			if j != nil && j.Lane == lane {
				return j, nil
			}
		}
	}
	return nil, nil
}

// BackupResult is the result of a job that made a backup.
type BackupResult struct {
	ID         string    `json:"id" words:"ours"`
	Kind       string    `json:"kind" enum:"full|incremental"`
	At         core.Time `json:"at"`
	Number     int64     `json:"number"`
	Messages   int64     `json:"messages"`
	Bytes      int64     `json:"bytes"`       // Size of everything that it needs.
	BytesAdded int64     `json:"bytes_added"` // Size of what is new in it.
	Verified   bool      `json:"verified"`
}

// withProgress returns a context for work of store/backup whose progress is that of the job.
func withProgress(ctx context.Context) context.Context {
	return backup.WithProgress(ctx, func(what string, done, all int64) {
		jobs.Progress(ctx, int(done), int(all), strings.TrimPrefix(what, "bytes of "))
	})
}

// backUp does the job of making a backup.
func (s *Service) backUp(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	if s.Schedule == nil {
		return nil, core.Errorf("not_configured", "The settings ask for no backups any more.")
	}
	made, err := s.Schedule.Backup(withProgress(ctx), false, true)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), error(core.Errorf("backup_failed", "The backup could not be made: %v.", err).Because(err)))
	}
	return withResult(BackupResult{made.ID, made.Kind, core.Time{Time: made.At}, int64(made.Number), made.Messages, made.Bytes, made.BytesAdded, made.Verified}, nil)
}

// withResult returns the Writes that store the result of a job and call more, which may be nil.
func withResult(result any, more func(tx *store.Tx, j *store.Job) error) (jobs.Writes, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, j *store.Job) error {
		j.Result = text
		if more == nil {
			return nil
		}
		return more(tx, j)
	}, nil
}
