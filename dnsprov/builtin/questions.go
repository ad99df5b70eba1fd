package builtin

import (
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	// CountedHours is for how many hours the questions of each hour are known.
	CountedHours = 24
	countBits    = 40 // bits of a slot of questions.hours that have the count
)

// questions counts the questions that a zone answers. It passes from a zone to the one that takes
// its place, if both have the same owner. It has no lock, since every answer changes it.
type questions struct {
	owner string
	since time.Time
	total atomic.Uint64
	last  atomic.Int64 // time of the last question in Unix milliseconds; 0: there was none
	// hours has a slot for each of the last hours: the hour since 1970 in the upper bits, and the
	// count of that hour below. The slot of an hour is at its number modulo CountedHours.
	hours [CountedHours]atomic.Uint64
	// paused is how many calls of Zones.PauseCounting have not been ended.
	paused atomic.Int32
}

// Questions is how many questions a zone has answered.
type Questions struct {
	Since time.Time // when the counting began
	Last  time.Time // of the last question, in milliseconds; zero: there was none
	Total uint64    // since Since
	Hours [CountedHours]HourOfQuestions
}

// HourOfQuestions is how many questions a zone has answered in one hour (UTC).
type HourOfQuestions struct {
	Hour  time.Time // when it began
	Count uint64
}

// CountQuestion counts a question that the zone has answered. A zone without Options.Owner counts
// none.
func (z *Zone) CountQuestion(at time.Time) {
	q := z.questions
	if q == nil || q.paused.Load() > 0 {
		return
	}
	ms := max(at.UnixMilli(), 0)
	if q.last.Load() != ms {
		q.last.Store(ms)
	}
	q.total.Add(1)
	hour := hourOf(ms)
	slot := &q.hours[hour%CountedHours]
	for {
		have := slot.Load()
		if have>>countBits == hour {
			slot.Add(1)
			return
		}
		if slot.CompareAndSwap(have, hour<<countBits|1) {
			return
		}
	}
}

// hourOf returns the number of the hour since 1970 of a time in Unix milliseconds.
func hourOf(ms int64) uint64 { return uint64(ms) / uint64(time.Hour/time.Millisecond) }

// Questions returns what the zone with this origin has counted, the oldest hour first; the last one
// is the hour of now. If there is no such zone of this owner, all counts and Since are zero.
func (z *Zones) Questions(origin, owner string, now time.Time) (out Questions) {
	z.mu.RLock()
	zone := z.byOrigin[origin]
	z.mu.RUnlock()
	q := new(questions)
	if zone != nil && zone.questions != nil && zone.questions.owner == owner {
		q = zone.questions
	}
	out.Since, out.Total = q.since, q.total.Load()
	if last := q.last.Load(); last > 0 {
		out.Last = time.UnixMilli(last).UTC()
	}
	first := hourOf(max(now.UnixMilli(), 0)) - (CountedHours - 1)
	for i := range out.Hours {
		hour := first + uint64(i)
		out.Hours[i].Hour = time.Unix(int64(hour)*int64(time.Hour/time.Second), 0).UTC()
		if slot := q.hours[hour%CountedHours].Load(); slot>>countBits == hour {
			out.Hours[i].Count = slot & (1<<countBits - 1)
		}
	}
	return out
}

// PauseCounting stops the counting of questions for the zone that contains name, and for the zones
// above it, until resume is called: a lookup of the name by this program asks them.
func (z *Zones) PauseCounting(name string) (resume func()) {
	var paused []*questions
	z.mu.RLock()
	for off, end := 0, false; !end; off, end = dns.NextLabel(name, off) {
		if zone := z.byOrigin[name[off:]]; zone != nil && zone.questions != nil {
			zone.questions.paused.Add(1)
			paused = append(paused, zone.questions)
		}
	}
	z.mu.RUnlock()
	return func() {
		for _, q := range paused {
			q.paused.Add(-1)
		}
	}
}
