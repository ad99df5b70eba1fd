package builtin

import (
	"sync"
	"testing"
	"time"
)

// ownedZone returns a zone whose questions are counted.
func ownedZone(t testing.TB, origin, owner string, now time.Time) *Zone {
	t.Helper()
	o := testOptions()
	o.Owner, o.Now = owner, func() time.Time { return now }
	z, err := NewZone(origin, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// counts returns the counts of the hours.
func counts(q Questions) (out []uint64) {
	for _, h := range q.Hours {
		out = append(out, h.Count)
	}
	return out
}

func TestQuestionsAreCountedByHour(t *testing.T) {
	began := time.Date(2026, 11, 29, 22, 30, 0, 0, time.UTC)
	var zones Zones
	z := ownedZone(t, "own.test", "dom_1", began)
	zones.Put(z)
	if q := zones.Questions("own.test", "dom_1", began); q.Total != 0 || !q.Last.IsZero() || !q.Since.Equal(began) {
		t.Errorf("before the first question: %+v", q)
	}
	for _, after := range []time.Duration{0, 29 * time.Minute, 30 * time.Minute, 31 * time.Minute, 23 * time.Hour} {
		z.CountQuestion(began.Add(after))
	}
	last := began.Add(23 * time.Hour)
	q := zones.Questions("own.test", "dom_1", last)
	if q.Total != 5 || !q.Last.Equal(last) {
		t.Errorf("%d questions, the last at %s", q.Total, q.Last)
	}
	if first, now := q.Hours[0], q.Hours[CountedHours-1]; !first.Hour.Equal(began.Truncate(time.Hour)) || !now.Hour.Equal(last.Truncate(time.Hour)) ||
		first.Count != 2 || q.Hours[1].Count != 2 || now.Count != 1 {
		t.Errorf("%+v", q.Hours)
	}
	z.CountQuestion(last.Add(time.Hour)) // takes the place of the oldest hour
	q = zones.Questions("own.test", "dom_1", last.Add(time.Hour))
	if q.Total != 6 || q.Hours[0].Count != 2 || q.Hours[22].Count != 1 || q.Hours[23].Count != 1 {
		t.Errorf("a day later: %d, %v", q.Total, counts(q))
	}
	if q := zones.Questions("own.test", "dom_1", last.Add(100*24*time.Hour)); q.Total != 6 || !q.Last.Equal(last.Add(time.Hour)) || q.Hours[0].Count+q.Hours[23].Count != 0 {
		t.Errorf("after a long silence: %d, %v", q.Total, counts(q))
	}
	if q := zones.Questions("own.test", "dom_1", began.Add(-50*time.Hour)); q.Hours[23].Count != 0 || q.Total != 6 {
		t.Errorf("a clock that was set back: %v", counts(q))
	}
}

// The counts stay when the zone changes, but nobody sees those of another owner of the name.
func TestQuestionsBelongToAnOwner(t *testing.T) {
	now := time.Date(2026, 11, 29, 22, 30, 0, 0, time.UTC)
	var zones Zones
	zones.Put(ownedZone(t, "own.test", "dom_1", now))
	ask := func(name string) {
		t.Helper()
		z, ok := zones.Zone(name)
		if !ok {
			t.Fatalf("no zone for %s", name)
		}
		z.CountQuestion(now)
	}
	total := func(owner string) uint64 { return zones.Questions("own.test", owner, now).Total }
	ask("own.test")
	before, _ := zones.Zone("own.test")
	zones.Put(ownedZone(t, "own.test", "dom_1", now.Add(time.Hour)))
	before.CountQuestion(now) // is being answered while the zone is replaced
	ask("www.own.test")
	if q := zones.Questions("own.test", "dom_1", now); q.Total != 3 || !q.Since.Equal(now) {
		t.Errorf("after a change of the zone: %+v", q)
	}
	if total("dom_2") != 0 || total("") != 0 || zones.Questions("other.test", "dom_1", now).Total != 0 {
		t.Error("somebody else sees the counts")
	}
	zones.Put(ownedZone(t, "own.test", "dom_2", now))
	ask("own.test")
	if total("dom_2") != 1 || total("dom_1") != 0 {
		t.Errorf("a new owner has %d, the one before %d", total("dom_2"), total("dom_1"))
	}
	zones.Put(ownedZone(t, "own.test", "", now))
	ask("own.test")
	if total("") != 0 {
		t.Error("a zone without an owner counts")
	}
	zones.Remove("own.test")
	zones.Put(ownedZone(t, "own.test", "dom_2", now))
	if total("dom_2") != 0 {
		t.Error("a zone that was removed has kept its counts")
	}
}

func TestCountingCanPause(t *testing.T) {
	now := time.Now()
	var zones Zones
	above, below := ownedZone(t, "own.test", "dom_1", now), ownedZone(t, "a.own.test", "dom_2", now)
	other := ownedZone(t, "other.test", "dom_3", now)
	zones.Put(above)
	zones.Put(below)
	zones.Put(other)
	ask := func() {
		for _, z := range []*Zone{above, below, other} {
			z.CountQuestion(now)
		}
	}
	first, second := zones.PauseCounting("x.a.own.test"), zones.PauseCounting("own.test")
	ask()
	first()
	ask() // own.test pauses still
	second()
	ask()
	zones.PauseCounting("")()
	zones.PauseCounting("unknown.test")()
	for i, origin := range []string{"own.test", "a.own.test", "other.test"} {
		owner := []string{"dom_1", "dom_2", "dom_3"}[i]
		if q := zones.Questions(origin, owner, now); q.Total != uint64(i+1) {
			t.Errorf("%s: %d questions, want %d", origin, q.Total, i+1)
		}
	}
}

// Many workers count at the same time, also while an hour begins and while the zone is replaced.
func TestQuestionsAreCountedAtTheSameTime(t *testing.T) {
	const workers, each = 8, 2000
	at := time.Date(2026, 11, 29, 22, 59, 59, 0, time.UTC)
	var zones Zones
	zones.Put(ownedZone(t, "own.test", "dom_1", at))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				z, _ := zones.Zone("own.test")
				z.CountQuestion(at.Add(time.Duration(i) * time.Millisecond))
			}
		})
	}
	for range 20 {
		zones.Put(ownedZone(t, "own.test", "dom_1", at))
		zones.Questions("own.test", "dom_1", at)
	}
	wg.Wait()
	q := zones.Questions("own.test", "dom_1", at.Add(time.Second))
	if q.Total != workers*each || q.Hours[22].Count != workers*1000 || q.Hours[23].Count != workers*1000 {
		t.Errorf("%d, %v", q.Total, counts(q))
	}
}

func BenchmarkCountQuestion(b *testing.B) {
	z := ownedZone(b, "own.test", "dom_1", time.Now())
	at := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			z.CountQuestion(at)
		}
	})
}
