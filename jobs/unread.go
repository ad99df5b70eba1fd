package jobs

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/store"
)

// An UnreadJob is a job that this version cannot run: its row or arguments have an unknown format,
// or its kind has no handler. It stays in the queue and blocks no other job.
type UnreadJob struct {
	ID     string // of the job
	Reason error  // store.ErrNewer, store.ErrDamagedRow or ErrArgs among others
}

// ErrArgs is returned by Args if the arguments of the job have an unknown format. If Work returns
// it, the job is not given up but retried every hour.
var ErrArgs = errors.New("the arguments of the job have an unknown form")

// unreadJobs holds, by job id, why a job could not be run since the process started.
type unreadJobs struct {
	mu sync.Mutex
	by map[string]error
}

// isUnread reports whether an error means that a job's row cannot be read.
func isUnread(err error) bool {
	return errors.Is(err, store.ErrNewer) || errors.Is(err, store.ErrDamagedRow) || errors.Is(err, store.ErrNotFound)
}

// recordUnread records that a job cannot be run, and logs it the first time.
func (q *Queue) recordUnread(id string, why error) {
	q.unread.mu.Lock()
	_, known := q.unread.by[id]
	if q.unread.by == nil {
		q.unread.by = map[string]error{}
	}
	q.unread.by[id] = why
	q.unread.mu.Unlock()
	if !known {
		q.Log.Error("a job is of a form that this version does not know; it stays, and the others go on", "job_id", id, "error", why)
	}
}

// isUnreadable reports whether the job is recorded as having an unreadable row.
func (q *Queue) isUnreadable(id string) bool {
	q.unread.mu.Lock()
	defer q.unread.mu.Unlock()
	return isUnread(q.unread.by[id])
}

// forgetUnread removes the record of a job that could be run after all.
func (q *Queue) forgetUnread(id string) {
	q.unread.mu.Lock()
	defer q.unread.mu.Unlock()
	delete(q.unread.by, id)
}

// Unread lists, by id, the jobs that could not be run because their format or kind is unknown. It
// lists a job only after the queue has tried to run or read it.
func (q *Queue) Unread() (list []UnreadJob) {
	q.unread.mu.Lock()
	defer q.unread.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(q.unread.by)) {
		list = append(list, UnreadJob{id, q.unread.by[id]})
	}
	return list
}

// queuedID returns the id of the queued job with the key, even if its row cannot be read.
func queuedID(tx *store.Tx, kind, key string) string {
	for _, id := range store.JobByKey.Keys(tx, store.JobKey(kind, key), "") {
		return id
	}
	return cmp.Or(key, kind)
}
