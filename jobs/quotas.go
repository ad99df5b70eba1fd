package jobs

import (
	"slices"

	"github.com/mailstead/mailstead/store"
)

// maxParked is the maximum number of lanes that are parked in memory at one quota. Further lanes
// are forgotten, and found again by a scan when the quota has room.
const maxParked = 4096

// A quota limits the workers that one kind, or one account's jobs of that kind, may use at a time,
// so that very slow peers leave workers for other jobs.
type quota struct {
	most       int       // how many attempts may run at a time
	busy       int       // running attempts that count towards it
	kept       int       // places that are kept for ready lanes
	parked     turnQueue // lanes whose next job waits for this quota; they are listed, but not ready
	overflowed bool      // more than maxParked lanes waited, so some were forgotten
}

// turnQueue is a queue of lanes in which accounts take turns, one lane each.
type turnQueue struct {
	accounts []string           // accounts that have lanes, in order of their turns
	lanes    map[string][]*lane // by the account of their next job
	n        int                // number of lanes
}

func (t *turnQueue) push(l *lane, account string) {
	if t.lanes == nil {
		t.lanes = map[string][]*lane{}
	}
	if len(t.lanes[account]) == 0 {
		t.accounts = append(t.accounts, account)
	}
	t.lanes[account] = append(t.lanes[account], l)
	t.n++
}

// pop removes and returns the first lane of the account with the next turn. There must be a lane.
func (t *turnQueue) pop() *lane {
	account := t.accounts[0]
	l := t.lanes[account][0]
	t.accounts, t.lanes[account] = t.accounts[1:], t.lanes[account][1:]
	if t.n--; len(t.lanes[account]) > 0 {
		t.accounts = append(t.accounts, account)
	} else {
		delete(t.lanes, account)
	}
	return l
}

// A quotaKey identifies a quota: that of a kind, or of one account within a kind.
type quotaKey struct{ kind, account string }

// quotas returns the quotas that a job needs, in the order in which it waits for them. The
// account's quota is first.
func (k *Kind) quotas(j *store.Job) []quotaKey {
	var keys []quotaKey
	if k.MostEach > 0 && j.AccountID != "" {
		keys = append(keys, quotaKey{k.Name, j.AccountID})
	}
	if k.Most > 0 {
		keys = append(keys, quotaKey{kind: k.Name})
	}
	if j.Crashes > 0 {
		keys = append(keys, suspectQuota)
	}
	return keys
}

func (k *Kind) quotaLimit(key quotaKey) int {
	switch {
	case key == suspectQuota:
		return 1
	case key.account != "":
		return k.MostEach
	}
	return k.Most
}

// quotaUse returns the number of taken and kept places by quota.
func (s *scheduler) quotaUse() map[quotaKey]int {
	out := make(map[quotaKey]int, len(s.quotas))
	for key, q := range s.quotas {
		out[key] = q.busy + q.kept
	}
	return out
}

func (s *scheduler) quota(key quotaKey, k *Kind) *quota {
	q := s.quotas[key]
	if q == nil {
		q = &quota{most: k.quotaLimit(key)}
		s.quotas[key] = q
	}
	return q
}

// countInQuotas adds change to the quotas of a claim: 1 when its attempt begins, -1 when it ends.
func (s *scheduler) countInQuotas(c *claim, change int) {
	for _, key := range c.kind.quotas(c.job) {
		if key != suspectQuota || !c.suspectFreed {
			s.quota(key, c.kind).busy += change
		}
	}
}

// parkLane parks a lane until the quota of its next job has room.
func (s *scheduler) parkLane(l *lane, full *fullQuota) {
	q := s.quota(full.key, full.kind)
	if q.parked.n < maxParked {
		l.listed, l.wants = true, full
		q.parked.push(l, full.account)
		return
	}
	q.overflowed = true
	l.due = false // until a scan finds it again
	s.reschedule(l)
}

// resumeLanes makes parked lanes ready, as many as their quotas have room for. Lanes that wait for
// a kind's quota come before lanes that wait for an account's. Otherwise the account that freed a
// place in the kind's quota could take it again.
func (s *scheduler) resumeLanes() {
	for _, ofAccounts := range []bool{false, true} {
		for key, q := range s.quotas {
			if (key.account != "") == ofAccounts {
				s.resumeQuota(key, q)
			}
		}
	}
}

// resumeQuota makes lanes ready that are parked at the quota, or parks them at the next full quota
// of their job. It keeps a place for each ready lane in all quotas of its job, until the lane's
// slot. Otherwise a lane that became ready before it could take the place, again and again.
func (s *scheduler) resumeQuota(key quotaKey, q *quota) {
	for room := q.most - q.busy - q.kept; room > 0 && q.parked.n > 0; {
		l := q.parked.pop()
		l.listed = false
		if full := slices.IndexFunc(l.wants.all, s.isFull); full >= 0 {
			l.wants.key = l.wants.all[full]
			s.parkLane(l, l.wants)
			if key.account != "" { // move one lane for each place, since an account may have very many
				room--
			}
			continue
		}
		for _, key := range l.wants.all {
			s.quota(key, l.wants.kind).kept++
		}
		l.kept, l.wants = l.wants.all, nil
		s.reschedule(l)
		room--
	}
	if q.parked.n > 0 {
		return
	}
	q.parked = turnQueue{}
	if q.overflowed && q.busy+q.kept < q.most {
		q.overflowed, s.earliest = false, lowestDueKey
	}
	if q.busy+q.kept == 0 && !q.overflowed {
		delete(s.quotas, key)
	}
}

// isFull reports whether all places of a quota are taken or kept.
func (s *scheduler) isFull(key quotaKey) bool {
	q := s.quotas[key]
	return q != nil && q.busy+q.kept >= q.most
}

// giveUpPlaces stops keeping places for a lane.
func (s *scheduler) giveUpPlaces(l *lane) {
	for _, key := range l.kept {
		s.quotas[key].kept--
	}
	l.kept = nil
}

// lowestDueKey sorts before every key of JobsDue.
const lowestDueKey = "\x00"

// isQuotaWanted reports whether a lane waits for a quota that the claim's job uses.
func (s *scheduler) isQuotaWanted(c *claim) bool {
	for _, key := range c.kind.quotas(c.job) {
		if q := s.quotas[key]; q != nil && (q.parked.n > 0 || q.overflowed) {
			return true
		}
	}
	return false
}

// A fullQuota is the full quota for which the next job of a lane must wait.
type fullQuota struct {
	key     quotaKey
	all     []quotaKey // all quotas that the job needs
	kind    *Kind      // of the job
	account string     // of the job
}

// takeQuota takes a place in every quota of a job of the slot's lane. If one has no free place, it
// takes none and returns that quota. The places that are kept for the lane are free for the first
// job that takes them.
func (b *claimBatch) takeQuota(t *claimSlot, j *store.Job, k *Kind) (full *fullQuota) {
	keys := k.quotas(j)
	for _, key := range keys {
		if b.used[key] >= k.quotaLimit(key) && !slices.Contains(t.kept, key) {
			return &fullQuota{key, keys, k, j.AccountID}
		}
	}
	for _, key := range keys {
		if !slices.Contains(t.kept, key) {
			b.used[key]++
		}
	}
	t.kept = nil
	return nil
}
