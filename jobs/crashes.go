package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store"
)

// What the process does not survive, it must not do for ever. What runs when it ends is counted, by
// the state that its row is left in, and the count begins again with every end of an attempt that
// the process survives, a stop included. Most of what ran is innocent: one job has used up the
// memory, or somebody has killed the process. So those that were cut are suspects, and run one at a
// time, beside all others, until each has ended or has gone on for suspectFor. The more often a
// suspect was cut, the later it comes. So a second end of the process finds one of them running,
// and a third one finds the same one only if all others have ended well: that one is parked. Until
// then it is tried again, also where its attempts are used up: nobody knows what they came to.
const (
	crashesMost = 3                // after so many ends of the process in a row a job is parked
	suspectFor  = 10 * time.Second // how long a suspect runs alone
	suspectWait = 10 * time.Second // how much later a suspect comes for each further end
	parkedFor   = 24 * time.Hour   // how long the first time; then twice as long, and so on
	parkedMost  = 6                // how many times that doubles
)

// A parkedError is why a job is parked.
type parkedError struct {
	times int
	until time.Time
}

// ErrorCode is of the error as people see it.
func (parkedError) ErrorCode() string { return "job_parked" }

func (e parkedError) Error() string {
	return fmt.Sprintf("The server ended %d times in a row while this job ran. It is parked, and is tried again at %s; the operator of this installation can let it go on before.",
		e.times, e.until.Format(time.RFC3339))
}

// park puts a job aside for a while.
func park(j *store.Job, now time.Time) {
	j.State, j.ParkedAt, j.Due = store.JobQueued, now, now.Add(parkedFor<<min(j.Crashes-crashesMost, parkedMost))
	recordError(j, parkedError{j.Crashes, j.Due.UTC()})
}

// Parked gives up to most of the parked jobs, and says how many there are. Rows that cannot be read
// are left out.
func Parked(tx *store.Tx, most int) (list []*store.Job, all int, err error) {
	for _, id := range store.JobsByLane.Keys(tx, store.ParkedLane+"\x00", "") {
		if all++; len(list) == most {
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
	return list, all, nil
}

// ErrNotParked is returned by Resume for a job that is not parked.
var ErrNotParked = errors.New("the job is not parked")

// Resume lets a parked job go on now. If the process ends while it runs, it is parked again. It
// returns store.ErrNotFound for what is not there.
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

// resumeDue lets parked jobs go on whose time has come.
func (d *dispatcher) resumeDue(ids []string) error {
	for _, id := range ids {
		err := d.Store.Update(func(tx *store.Tx) error {
			tx.MayUseReserve()
			_, err := d.Resume(tx, id)
			return err
		})
		if isUnread(err) {
			d.noteUnread(id, err)
		} else if err != nil && !errors.Is(err, ErrNotParked) {
			return fmt.Errorf("resume a parked job: %w", err)
		}
	}
	return nil
}

// suspects is the quota of those that ran when the process ended.
var suspects = quotaKey{kind: "\x00suspects"}

// acquit takes a suspect for innocent that has gone on for a while, so that the next one begins. If
// the process ends after all, it counts as another time.
func (d *dispatcher) acquit(c *claim) {
	d.scheduler.acquit(c)
	d.signal()
}

func (s *scheduler) acquit(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.acquitted || c.ended {
		return
	}
	s.quotas[suspects].busy--
	c.acquitted = true
	s.resume()
}
