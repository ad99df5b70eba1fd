package store

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Job is one piece of work that the queue does, now or later. It is added in the transaction that
// makes it necessary, so that neither is there without the other. A worker claims it once it is
// Due; the claim ends by itself, so that a job whose process has ended is claimed again. An attempt
// that fails is made again later, up to Max times. What an attempt has to write, it writes in the
// transaction that ends it.
type Job struct {
	ID        string          `json:",omitzero"` // job_…
	AccountID string          `json:",omitzero"` // "" for the installation's own
	Kind      string          `json:",omitzero"`
	Key       string          `json:",omitzero"` // folds waiting duplicates of one kind; "" folds nothing
	Lane      string          `json:",omitzero"` // jobs of one lane run a bounded number at a time; "" is unbounded
	Args      json.RawMessage `json:",omitempty"`
	State     string          `json:",omitzero"` // one of the Job… constants
	Due       time.Time       `json:",omitzero"` // when it may be claimed; while it runs, when its claim ends
	WakeAt    time.Time       `json:",omitzero"` // while it runs: the time that somebody asked it to be due at
	Cancel    bool            `json:",omitzero"` // while it runs: somebody asked for its end
	Attempt   int             `json:",omitzero"` // claims so far; tells a claim from the ones before it
	Max       int             `json:",omitzero"` // attempts before it is given up; 0 = no limit
	Jitter    uint16          `json:",omitzero"` // drawn once, so that its waits rise: 65536ths
	Err       string          `json:",omitzero"` // of the newest attempt
	ErrCode   string          `json:",omitzero"`
	Detail    string          `json:",omitzero"` // status_detail
	Result    json.RawMessage `json:",omitempty"`
	Steps     []JobStep       `json:",omitempty"`
	Completed int             `json:",omitzero"` // progress
	Total     int             `json:",omitzero"` // progress; 0 = none shown
	Visible   bool            `json:",omitzero"`
	Resource  JobResource     `json:",omitzero"`
	CreatedBy string          `json:",omitzero"` // a user id, or ""
	CreatedAt time.Time       `json:",omitzero"`
	StartedAt time.Time       `json:",omitzero"` // of the first attempt
	UpdatedAt time.Time       `json:",omitzero"`
	EndedAt   time.Time       `json:",omitzero"`
	Crashes   int             `json:",omitzero"` // how often in a row the process has ended while it ran
	ParkedAt  time.Time       `json:",omitzero"` // since when it is parked for that, until Due; zero: it is not
}

// States of a job.
const (
	JobQueued    = "queued"
	JobRunning   = "in_progress"
	JobCompleted = "completed"
	JobError     = "error"     // given up
	JobCancelled = "cancelled" // somebody asked for its end
)

// A JobStep is one named part of a job.
type JobStep struct {
	Name   string    `json:",omitzero"`
	Status string    `json:",omitzero"` // one of the Job… constants, or JobStepSkipped
	Error  string    `json:",omitzero"`
	At     time.Time `json:",omitzero"`
}

// JobStepSkipped is the status of a step that was not needed.
const JobStepSkipped = "skipped"

// A JobResource is the thing that a job is about.
type JobResource struct {
	Type string `json:",omitzero"`
	ID   string `json:",omitzero"`
	Name string `json:",omitzero"`
}

func (j *Job) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&j.ID)
	c.String(&j.AccountID)
	c.String(&j.Kind)
	c.String(&j.Key)
	c.String(&j.Lane)
	c.Bytes((*[]byte)(&j.Args))
	c.String(&j.State)
	c.Time(&j.Due)
	c.Time(&j.WakeAt)
	c.Bool(&j.Cancel)
	rowform.Int(c, &j.Attempt)
	rowform.Int(c, &j.Max)
	rowform.Int(c, &j.Jitter)
	c.String(&j.Err)
	c.String(&j.ErrCode)
	c.String(&j.Detail)
	c.Bytes((*[]byte)(&j.Result))
	rowform.List(c, &j.Steps, (*JobStep).fields)
	rowform.Int(c, &j.Completed)
	rowform.Int(c, &j.Total)
	c.Bool(&j.Visible)
	c.String(&j.Resource.Type)
	c.String(&j.Resource.ID)
	c.String(&j.Resource.Name)
	c.String(&j.CreatedBy)
	c.Time(&j.CreatedAt)
	c.Time(&j.StartedAt)
	c.Time(&j.UpdatedAt)
	c.Time(&j.EndedAt)
	rowform.Int(c, &j.Crashes)
	c.Time(&j.ParkedAt)
}

func (s *JobStep) fields(c *rowform.Coder) {
	c.String(&s.Name)
	c.String(&s.Status)
	c.String(&s.Error)
	c.Time(&s.At)
}

// Where jobs stand whatever their lanes are: those that run, and those that are parked.
const (
	RunningLane = "r"
	ParkedLane  = "p"
)

// Ended tells whether nothing will happen to the job any more.
func (j *Job) Ended() bool { return j.State != JobQueued && j.State != JobRunning }

// Parked tells whether the job waits aside, since the process has ended each time that it ran.
func (j *Job) Parked() bool { return j.State == JobQueued && !j.ParkedAt.IsZero() }

// laneKey is where a job waits: in its lane, with others of its kind if it has none, or among the
// running or the parked.
func (j *Job) laneKey() string {
	switch {
	case j.Ended():
		return ""
	case j.State == JobRunning:
		return RunningLane
	case j.Parked():
		return ParkedLane
	case j.Lane == "":
		return "k" + j.Kind
	}
	return LaneKey(j.Lane)
}

// LaneKey is how JobsByLane begins with what waits in a lane, before its "\x00".
func LaneKey(lane string) string { return "l" + lane }

// JobKey is the key of JobByKey.
func JobKey(kind, key string) string { return kind + "\x00" + key }

// jobChange tells of jobs that people started.
func jobChange(_ *engine.Tx, j *Job) Change {
	if !j.Visible {
		return Change{}
	}
	return Change{Account: j.AccountID, ID: j.ID}
}

// Jobs keeps waiting, running and ended jobs.
var (
	Jobs = engine.NewTable("job", func(j *Job) string { return j.ID }).
		Binary((*Job).fields).Watched(jobChange).Sealed((*Job).secrets)
	// JobsDue holds what waits and what runs by its due; each key names the lane as JobsByLane
	// does, see DueLane.
	JobsDue = Jobs.Index("due", func(j *Job) string {
		if j.Ended() {
			return ""
		}
		return TimeKey(j.Due) + j.laneKey() + "\x00"
	})
	// JobsByLane holds the same by lane, "\x00" and due, so that the first of a lane is found at
	// once.
	JobsByLane = Jobs.Index("lane", func(j *Job) string {
		if j.Ended() {
			return ""
		}
		return j.laneKey() + "\x00" + TimeKey(j.Due)
	})
	JobByKey = Jobs.Unique("key", func(j *Job) string {
		if j.Key == "" || j.State != JobQueued {
			return ""
		}
		return JobKey(j.Kind, j.Key)
	})
	JobsByAccount = Jobs.Index("account", func(j *Job) string {
		if !j.Visible {
			return ""
		}
		return j.AccountID
	})
	JobsEnded = Jobs.Index("ended", func(j *Job) string {
		if j.EndedAt.IsZero() {
			return ""
		}
		return TimeKey(j.EndedAt)
	})
)

// DueLane is the lane in a key of JobsDue that belongs to the job with the id.
func DueLane(key, id string) string { return key[8 : len(key)-len(id)-1] }
