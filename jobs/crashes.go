package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store"
)

// A job that crashes the process must not do so again and again. After a crash, Crashes is
// incremented in every job that was running (its row is still in progress). Crashes is reset
// whenever an attempt ends without a crash, also if the queue stops. Usually one of these jobs is
// to blame, or none: somebody may have killed the process. So all of them are suspects. Suspects
// run one at a time, beside the other jobs, until each has ended or has run for suspectFor. The
// more crashes a suspect has, the later it runs. So only one suspect is running at a second crash,
// and the same one at a third crash only if all other suspects ended without a crash. That job is
// parked. Until then it is retried, even if it has no attempts left, since the result of an attempt
// that crashed is unknown.
const (
	maxCrashes       = 3                // crashes in a row after which a job is parked
	suspectFor       = 10 * time.Second // time after which a running suspect no longer blocks the next one
	suspectWait      = 10 * time.Second // delay of a suspect for each crash after the first
	parkedFor        = 24 * time.Hour   // first duration of parking, doubled with each further crash
	maxParkDoublings = 6                // maximum number of doublings
)

// A parkedError is the error of a parked job.
type parkedError struct {
	crashes int
	until   time.Time
}

// ErrorCode returns the error's code for the API.
func (parkedError) ErrorCode() string { return "job_parked" }

func (e parkedError) Error() string {
	return fmt.Sprintf("The server ended %d times in a row while this job ran. It is parked, and is tried again at %s; the operator of this installation can let it go on before.",
		e.crashes, e.until.Format(time.RFC3339))
}

// park parks a job after repeated crashes.
func park(j *store.Job, now time.Time) {
	j.State, j.ParkedAt, j.Due = store.JobQueued, now, now.Add(parkedFor<<min(j.Crashes-maxCrashes, maxParkDoublings))
	recordError(j, parkedError{j.Crashes, j.Due.UTC()})
}

// Parked returns up to `most` parked jobs, and the number of all parked jobs. The list omits
// unreadable rows.
func Parked(tx *store.Tx, most int) (list []*store.Job, total int, err error) {
	for _, id := range store.JobsByLane.Keys(tx, store.ParkedLane+"\x00", "") {
		if total++; len(list) == most {
			continue
		}
		j, err := store.Jobs.Get(tx, id)
		if isUnread(err) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		list = append(list, j)
	}
	return list, total, nil
}

// ErrNotParked is returned by Resume for a job that is not parked.
var ErrNotParked = errors.New("the job is not parked")

// Resume makes a parked job due now. If the process crashes while the job runs, it is parked again.
// Resume returns store.ErrNotFound if there is no such job.
func (q *Queue) Resume(tx *store.Tx, id string) (*store.Job, error) {
	j, err := store.Jobs.Get(tx, id)
	if err != nil {
		return nil, err
	}
	if !j.Parked() {
		return nil, ErrNotParked
	}
	j.ParkedAt, j.Due = time.Time{}, tx.Now()
	return j, q.put(tx, j)
}

// resumeParkedJobs resumes the given parked jobs, which are due.
func (d *dispatcher) resumeParkedJobs(ids []string) error {
	for _, id := range ids {
		err := d.Store.Update(func(tx *store.Tx) error {
			tx.MayUseReserve()
			_, err := d.Resume(tx, id)
			return err
		})
		if isUnread(err) {
			d.recordUnread(id, err)
		} else if err != nil && !errors.Is(err, ErrNotParked) {
			return fmt.Errorf("resume a parked job: %w", err)
		}
	}
	return nil
}

// suspectQuota is the key of the quota that all suspects share: one of them runs at a time.
var suspectQuota = quotaKey{kind: "\x00suspects"}

// freeSuspectQuota frees the suspects' quota after a suspect has run for suspectFor, so that the
// next suspect can begin. A crash after that still counts for the job.
func (d *dispatcher) freeSuspectQuota(c *claim) {
	d.scheduler.freeSuspectQuota(c)
	d.wakeDispatcher()
}

func (s *scheduler) freeSuspectQuota(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.suspectFreed || c.ended {
		return
	}
	s.quotas[suspectQuota].busy--
	c.suspectFreed = true
	s.resumeLanes()
}
