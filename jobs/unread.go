package jobs

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/store"
)

// An Unread is a job that this version cannot do, since it does not know the form of its row or of
// its arguments, or nobody handles its kind. It stays in the queue as it is, and holds up no other.
type Unread struct {
	ID     string // of the job
	Reason error  // store.ErrNewer, store.ErrDamagedRow or ErrArgs among others
}

// ErrArgs is returned by Args for arguments of a form that is not known. A job whose Work returns
// it is not given up; it is tried again from time to time, and when the server starts.
var ErrArgs = errors.New("arguments of an unknown form")

// unreadJobs are those that were met since the queue began.
type unreadJobs struct {
	mu sync.Mutex
	by map[string]error
}

// isUnread reports whether an error is over what a job's row holds.
func isUnread(err error) bool {
	return errors.Is(err, store.ErrNewer) || errors.Is(err, store.ErrDamagedRow) || errors.Is(err, store.ErrNotFound)
}

// noteUnread remembers that a job cannot be done, and says so once.
func (q *Queue) noteUnread(id string, why error) {
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

// isUnreadable reports whether the row of a job could not be read.
func (q *Queue) isUnreadable(id string) bool {
	q.unread.mu.Lock()
	defer q.unread.mu.Unlock()
	return isUnread(q.unread.by[id])
}

// forgetUnread is for a job that was done after all.
func (q *Queue) forgetUnread(id string) {
	q.unread.mu.Lock()
	defer q.unread.mu.Unlock()
	delete(q.unread.by, id)
}

// Unread lists the jobs that could not be done because their form, or their kind, is not known, by
// id. A job is listed once the queue has met it.
func (q *Queue) Unread() (list []Unread) {
	q.unread.mu.Lock()
	defer q.unread.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(q.unread.by)) {
		list = append(list, Unread{id, q.unread.by[id]})
	}
	return list
}

// waitingID is the id of the queued job with the key, whether or not its row can be read.
func waitingID(tx *store.Tx, kind, key string) string {
	for _, id := range store.JobByKey.Keys(tx, store.JobKey(kind, key), "") {
		return id
	}
	return cmp.Or(key, kind)
}
