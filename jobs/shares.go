package jobs

import "github.com/mailstead/mailstead/store"

// maxAside is how many lanes wait aside, in memory, for one share; more are looked for again when
// those have had it.
const maxAside = 4096

// A share is the part of the workers that one kind, or one account's jobs of it, may have at a
// time, so that peers who are slow without end leave workers for everything else.
type share struct {
	most   int
	busy   int     // works of it that have not returned
	aside  []*lane // those whose next job is of it, while it is used up; listed, but not in the round
	forgot bool    // there were more
}

// A shareKey names a share: of a kind, or of one account in it.
type shareKey struct{ kind, account string }

// shares are those that a job takes part in.
func (k *Kind) shares(j *store.Job) []shareKey {
	var keys []shareKey
	if k.Most > 0 {
		keys = append(keys, shareKey{kind: k.Name})
	}
	if k.MostEach > 0 {
		keys = append(keys, shareKey{k.Name, j.AccountID})
	}
	return keys
}

func (k *Kind) most(key shareKey) int {
	if key.account != "" {
		return k.MostEach
	}
	return k.Most
}

// used says how much of each share that anything uses is used.
func (r *round) used() map[shareKey]int {
	out := make(map[shareKey]int, len(r.shares))
	for key, s := range r.shares {
		out[key] = s.busy
	}
	return out
}

func (r *round) share(key shareKey, k *Kind) *share {
	s := r.shares[key]
	if s == nil {
		s = &share{most: k.most(key)}
		r.shares[key] = s
	}
	return s
}

// count notes that a work has begun, or with -1 that it has returned.
func (r *round) count(c *claim, n int) {
	for _, key := range c.kind.shares(c.job) {
		r.share(key, c.kind).busy += n
	}
}

// putAside lets a lane wait until its next job's share has room.
func (r *round) putAside(l *lane, full *fullShare) {
	s := r.share(full.key, full.kind)
	if len(s.aside) < maxAside {
		l.listed = true
		s.aside = append(s.aside, l)
		return
	}
	s.forgot = true
	l.due = false // until it is looked for again
	r.settle(l)
}

// resume brings back to the round as many lanes as their shares have room for.
func (r *round) resume() {
	for key, s := range r.shares {
		n := max(min(s.most-s.busy, len(s.aside)), 0)
		for _, l := range s.aside[:n] {
			l.listed = false
			r.settle(l)
		}
		s.aside = s.aside[n:]
		if len(s.aside) > 0 {
			continue
		}
		s.aside = nil
		if s.forgot && s.busy < s.most {
			s.forgot, r.low = false, lowest
		}
		if s.busy == 0 && !s.forgot {
			delete(r.shares, key)
		}
	}
}

// lowest is before every key of JobsDue.
const lowest = "\x00"

// waited tells whether a lane waits for a share that the claim's job takes part in.
func (r *round) waited(c *claim) bool {
	for _, key := range c.kind.shares(c.job) {
		if s := r.shares[key]; s != nil && (len(s.aside) > 0 || s.forgot) {
			return true
		}
	}
	return false
}

// A fullShare is what keeps a lane from its turn.
type fullShare struct {
	key  shareKey
	kind *Kind
}

// enter takes a place in every share of a job; full is the one that has none.
func (b *batch) enter(j *store.Job, k *Kind) (full *fullShare) {
	keys := k.shares(j)
	for _, key := range keys {
		if b.used[key] >= k.most(key) {
			return &fullShare{key, k}
		}
	}
	for _, key := range keys {
		b.used[key]++
	}
	return nil
}
