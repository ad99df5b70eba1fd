package jobs

import (
	"slices"

	"github.com/mailstead/mailstead/store"
)

// maxParked is how many lanes may be parked, in memory, at one quota, but for those that go back to
// it. Others are looked for again when those have had it.
const maxParked = 4096

// A quota is the part of the workers that one kind, or one account's jobs of it, may have at a
// time, so that peers who are slow without end leave workers for everything else.
type quota struct {
	most       int
	busy       int   // works of it that have not returned
	parked     turns // the lanes whose next job is of it, while it is used up; listed, but not ready
	overflowed bool  // there were more
}

// turns are lanes that wait, of which each account has one at its turn.
type turns struct {
	accounts []string           // those that have lanes; next turn first
	lanes    map[string][]*lane // by the account of their next job
	n        int                // lanes
}

func (t *turns) push(l *lane, account string) {
	if t.lanes == nil {
		t.lanes = map[string][]*lane{}
	}
	if len(t.lanes[account]) == 0 {
		t.accounts = append(t.accounts, account)
	}
	t.lanes[account] = append(t.lanes[account], l)
	t.n++
}

// pushFirst makes a lane the next one: its account's turn comes first, and its own in that.
func (t *turns) pushFirst(l *lane, account string) {
	t.push(l, account)
	of := t.lanes[account]
	copy(of[1:], of)
	of[0] = l
	at := slices.Index(t.accounts, account)
	copy(t.accounts[1:at+1], t.accounts)
	t.accounts[0] = account
}

// pop takes the first lane of the account whose turn it is; there must be one.
func (t *turns) pop() *lane {
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

// A quotaKey names a quota: of a kind, or of one account in it.
type quotaKey struct{ kind, account string }

// quotas are those that a job takes part in, in the order in which it waits for them: first for a
// place of its account.
func (k *Kind) quotas(j *store.Job) []quotaKey {
	var keys []quotaKey
	if k.MostEach > 0 && j.AccountID != "" {
		keys = append(keys, quotaKey{k.Name, j.AccountID})
	}
	if k.Most > 0 {
		keys = append(keys, quotaKey{kind: k.Name})
	}
	if j.Crashes > 0 {
		keys = append(keys, suspects)
	}
	return keys
}

func (k *Kind) most(key quotaKey) int {
	switch {
	case key == suspects:
		return 1
	case key.account != "":
		return k.MostEach
	}
	return k.Most
}

// used says how much of each quota that anything uses is used.
func (s *scheduler) used() map[quotaKey]int {
	out := make(map[quotaKey]int, len(s.quotas))
	for key, q := range s.quotas {
		out[key] = q.busy
	}
	return out
}

func (s *scheduler) quota(key quotaKey, k *Kind) *quota {
	q := s.quotas[key]
	if q == nil {
		q = &quota{most: k.most(key)}
		s.quotas[key] = q
	}
	return q
}

// count notes that a work has begun, or with -1 that it has returned.
func (s *scheduler) count(c *claim, n int) {
	for _, key := range c.kind.quotas(c.job) {
		if key != suspects || !c.acquitted {
			s.quota(key, c.kind).busy += n
		}
	}
}

// park lets a lane wait until its next job's quota has room.
func (s *scheduler) park(l *lane, full *fullQuota) {
	q := s.quota(full.key, full.kind)
	if q.parked.n < maxParked {
		l.listed = true
		q.parked.push(l, full.account)
		return
	}
	q.overflowed = true
	l.due = false // until it is looked for again
	s.reschedule(l)
}

// parkFirst lets lanes that had their turn, and lost the place to another, wait for the next one,
// in the same order as before.
func (s *scheduler) parkFirst(lost []slot) {
	for _, t := range slices.Backward(lost) {
		t.lane.listed = true
		s.quota(t.full.key, t.full.kind).parked.pushFirst(t.lane, t.full.account)
	}
}

// resume makes as many parked lanes ready as their quotas have room for: those first that wait for
// a place among all accounts, so that none of the account that gave it back takes it from them.
func (s *scheduler) resume() {
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
		l.listed, l.turn = false, key
		s.reschedule(l)
	}
	if q.parked.n > 0 {
		return
	}
	q.parked = turns{}
	if q.overflowed && q.busy < q.most {
		q.overflowed, s.earliest = false, beforeAll
	}
	if q.busy == 0 && !q.overflowed {
		delete(s.quotas, key)
	}
}

// beforeAll is before every key of JobsDue.
const beforeAll = "\x00"

// quotaWanted reports whether a lane waits for a quota that the claim's job takes part in.
func (s *scheduler) quotaWanted(c *claim) bool {
	for _, key := range c.kind.quotas(c.job) {
		if q := s.quotas[key]; q != nil && (q.parked.n > 0 || q.overflowed) {
			return true
		}
	}
	return false
}

// A fullQuota is what keeps a lane from getting a slot.
type fullQuota struct {
	key     quotaKey
	kind    *Kind
	account string // of the job
}

// takeQuota takes a place in every quota of a job; full is the one that has none.
func (b *batch) takeQuota(j *store.Job, k *Kind) (full *fullQuota) {
	keys := k.quotas(j)
	for _, key := range keys {
		if b.used[key] >= k.most(key) {
			return &fullQuota{key, k, j.AccountID}
		}
	}
	for _, key := range keys {
		b.used[key]++
	}
	return nil
}
