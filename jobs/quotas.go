package jobs

import (
	"slices"

	"github.com/mailstead/mailstead/store"
)

// maxParked is the maximum number of lanes that are parked in memory at one quota, not counting
// those that parkLanesFirst adds. Further lanes are forgotten, and found again by a scan when the
// quota has room.
const maxParked = 4096

// A quota limits the workers that one kind, or one account's jobs of that kind, may use at a time,
// so that very slow peers leave workers for other jobs.
type quota struct {
	most       int       // how many attempts may run at a time
	busy       int       // running attempts that count towards it
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

// pushFirst adds a lane at the front: the next turn is that of its account, and the account uses it
// for this lane.
func (t *turnQueue) pushFirst(l *lane, account string) {
	t.push(l, account)
	of := t.lanes[account]
	copy(of[1:], of)
	of[0] = l
	at := slices.Index(t.accounts, account)
	copy(t.accounts[1:at+1], t.accounts)
	t.accounts[0] = account
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

// quotaUse returns the number of running attempts by quota.
func (s *scheduler) quotaUse() map[quotaKey]int {
	out := make(map[quotaKey]int, len(s.quotas))
	for key, q := range s.quotas {
		out[key] = q.busy
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
		l.listed = true
		q.parked.push(l, full.account)
		return
	}
	q.overflowed = true
	l.due = false // until a scan finds it again
	s.reschedule(l)
}

// parkLanesFirst parks lanes that had their turn but lost the free place to another lane. These
// lanes will be first again, in the same order.
func (s *scheduler) parkLanesFirst(lost []claimSlot) {
	for _, t := range slices.Backward(lost) {
		t.lane.listed = true
		s.quota(t.full.key, t.full.kind).parked.pushFirst(t.lane, t.full.account)
	}
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

func (s *scheduler) resumeQuota(key quotaKey, q *quota) {
	for range min(q.most-q.busy, q.parked.n) {
		l := q.parked.pop()
		l.listed, l.wokenBy = false, key
		s.reschedule(l)
	}
	if q.parked.n > 0 {
		return
	}
	q.parked = turnQueue{}
	if q.overflowed && q.busy < q.most {
		q.overflowed, s.earliest = false, lowestDueKey
	}
	if q.busy == 0 && !q.overflowed {
		delete(s.quotas, key)
	}
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
	kind    *Kind
	account string // of the lane's next job
}

// takeQuota takes a place in every quota of a job. If one has no free place, it takes none and
// returns that quota.
func (b *claimBatch) takeQuota(j *store.Job, k *Kind) (full *fullQuota) {
	keys := k.quotas(j)
	for _, key := range keys {
		if b.used[key] >= k.quotaLimit(key) {
			return &fullQuota{key, k, j.AccountID}
		}
	}
	for _, key := range keys {
		b.used[key]++
	}
	return nil
}
