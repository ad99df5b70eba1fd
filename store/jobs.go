package store

import (
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Job is one piece of work in the queue, to be done now or later. It is added in the transaction
// that makes it necessary, so that both are committed or neither. A worker claims the job once it
// is Due. A claim expires, so that the job is claimed again if the process of its worker has ended.
// A failed attempt is repeated later, up to Max attempts. An attempt writes its results in the
// transaction that ends it.
type Job struct {
	ID        string          `json:",omitzero"` // job_…
	AccountID string          `json:",omitzero"` // "" for jobs of the installation itself
	Kind      string          `json:",omitzero"`
	Key       string          `json:",omitzero"` // unique among the queued jobs of its Kind; "": not unique
	Lane      string          `json:",omitzero"` // only a limited number of jobs of one lane run at a time; "": no limit
	Args      json.RawMessage `json:",omitempty"`
	State     string          `json:",omitzero"` // one of the Job… constants
	Due       time.Time       `json:",omitzero"` // when it may be claimed; while it runs, when its claim expires
	WakeAt    time.Time       `json:",omitzero"` // while it runs: due time that was requested for the next attempt
	Cancel    bool            `json:",omitzero"` // while it runs: its cancellation was requested
	Attempt   int             `json:",omitzero"` // number of claims so far, which identifies the current claim
	Max       int             `json:",omitzero"` // number of attempts after which it fails for good; 0: no limit
	Jitter    uint16          `json:",omitzero"` // random part of the delays between attempts, in 65536ths; drawn once, so that each delay is longer than the one before
	Err       string          `json:",omitzero"` // error text of the newest attempt
	ErrCode   string          `json:",omitzero"`
	Detail    string          `json:",omitzero"` // text on its progress; status_detail in the API
	Result    json.RawMessage `json:",omitempty"`
	Steps     []JobStep       `json:",omitempty"`
	Completed int             `json:",omitzero"` // how many of Total parts are done
	Total     int             `json:",omitzero"` // number of parts; 0: no progress is shown
	Visible   bool            `json:",omitzero"`
	Resource  JobResource     `json:",omitzero"`
	CreatedBy string          `json:",omitzero"` // a user id, or ""
	CreatedAt time.Time       `json:",omitzero"`
	StartedAt time.Time       `json:",omitzero"` // time of the first attempt
	UpdatedAt time.Time       `json:",omitzero"`
	EndedAt   time.Time       `json:",omitzero"`
	Crashes   int             `json:",omitzero"` // how often in a row the process crashed while the job ran
	ParkedAt  time.Time       `json:",omitzero"` // when it was parked because of Crashes, which lasts until Due; zero: it is not parked
}

// Values of Job.State.
const (
	JobQueued    = "queued"
	JobRunning   = "in_progress"
	JobCompleted = "completed"
	JobError     = "error"     // failed for good
	JobCancelled = "cancelled" // somebody cancelled it
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

// A JobResource is the object that a job is about.
type JobResource struct {
	Type string `json:",omitzero"`
	ID   string `json:",omitzero"`
	Name string `json:",omitzero"`
}

func (j *Job) codeFields(c *rowform.Coder) {
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
	rowform.List(c, &j.Steps, (*JobStep).codeFields)
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

func (s *JobStep) codeFields(c *rowform.Coder) {
	c.String(&s.Name)
	c.String(&s.Status)
	c.String(&s.Error)
	c.Time(&s.At)
}

// RunningLane and ParkedLane replace the lane of a running or parked job in the keys of JobsDue and
// JobsByLane.
const (
	RunningLane = "r"
	ParkedLane  = "p"
)

// Ended reports whether the job has reached a final state.
func (j *Job) Ended() bool { return j.State != JobQueued && j.State != JobRunning }

// Parked reports whether the job is set aside because the process crashed each time it ran.
func (j *Job) Parked() bool { return j.State == JobQueued && !j.ParkedAt.IsZero() }

// laneKey returns the lane of a job in the keys of the indexes: RunningLane, ParkedLane, its own
// lane, or the lane of its kind if it has none. It returns "" for an ended job.
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

// LaneKey returns the lane of a queued job in the form that it has in the keys of JobsByLane, where
// a "\x00" follows it.
func LaneKey(lane string) string { return "l" + lane }

// JobKey returns the key in JobByKey of the queued job with this kind and key.
func JobKey(kind, key string) string { return kind + "\x00" + key }

// visibleJobChange returns the Change that is published for a job. Only visible jobs, which people
// started, have one.
func visibleJobChange(_ *engine.Tx, j *Job) Change {
	if !j.Visible {
		return Change{}
	}
	return Change{Account: j.AccountID, ID: j.ID}
}

// Jobs keeps queued, running and ended jobs.
var (
	Jobs = engine.NewTable("job", func(j *Job) string { return j.ID }).
		Binary((*Job).codeFields).Watched(visibleJobChange).Sealed((*Job).visitSecrets)
	// JobsDue holds queued and running jobs by due time. Each key also contains the lane, as in
	// JobsByLane; DueLane returns it.
	JobsDue = Jobs.Index("due", func(j *Job) string {
		if j.Ended() {
			return ""
		}
		return TimeKey(j.Due) + j.laneKey() + "\x00"
	})
	// JobsByLane holds queued and running jobs by lane, "\x00" and due time, so that the first job
	// of a lane is found at once.
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

// DueLane returns the lane in a key of JobsDue; id is the id of the key's job.
func DueLane(key, id string) string { return key[8 : len(key)-len(id)-1] }
