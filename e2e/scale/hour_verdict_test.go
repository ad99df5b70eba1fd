package scale

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// A sample is what the server has at one time.
type sample struct {
	at                         time.Time
	anonymous, resident, heap  float64 // MiB; resident has the pages of the database's file too
	goroutines, threads, files float64 // files that are open, without segments
	database, segments         float64 // MiB
	held, waiting              int64   // messages in the store, events that are not told yet
}

func (s sample) String() string {
	return fmt.Sprintf("%s: %.1f MiB of its own (%.1f resident), heap %.1f MiB, %.0f goroutines, %.0f threads, %.0f files, database %.1f MiB, segments %.1f MiB, %d messages, %d events wait",
		s.at.Format(time.TimeOnly), s.anonymous, s.resident, s.heap, s.goroutines, s.threads, s.files, s.database, s.segments, s.held, s.waiting)
}

func (l *load) sample() sample {
	l.t.Helper()
	s := sample{at: time.Now(), held: l.came.Load() - l.went.Load()}
	for _, fd := range rig.Glob(l.t, fmt.Sprintf("/proc/%d/fd/*", l.Cmd.Process.Pid)) {
		if to, err := os.Readlink(fd); err == nil && filepath.Base(filepath.Dir(to)) != store.SegmentDir {
			s.files++
		}
	}
	is := rig.ProcStatus(l.Cmd.Process.Pid)
	if len(is) == 0 {
		l.t.Skip("no /proc")
	}
	s.anonymous, s.resident, s.threads = is["RssAnon:"]/1024, is["VmRSS:"]/1024, is["Threads:"]
	s.goroutines = l.Profile("goroutine", 0)
	s.heap = l.Profile("heap", 3) / (1 << 20)
	for _, file := range rig.Glob(l.t, filepath.Join(l.Dir, store.SegmentDir, "*")) {
		if info, err := os.Stat(file); err == nil { // compaction may have removed it
			s.segments += float64(info.Size()) / (1 << 20)
		}
	}
	if info, err := os.Stat(filepath.Join(l.Dir, "mailstead.db")); err == nil {
		s.database = float64(info.Size()) / (1 << 20)
	}
	s.waiting = l.came.Load() - int64(l.eventsTold())
	return s
}

func (l *load) eventsTold() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, taken := range l.told {
		if taken {
			n++
		}
	}
	return n
}

// report prints what was done and how long it took, and fails for what did not succeed.
func (l *load) report(kinds ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.done)) {
		r := l.done[name]
		slices.Sort(r.took)
		at := func(share float64) time.Duration {
			return r.took[int(share*float64(len(r.took)-1))].Round(100 * time.Microsecond)
		}
		l.t.Logf("%-10s %7d times: half within %s, 99 of 100 within %s, at most %s", name, len(r.took), at(0.5), at(0.99), at(1))
		if r.failed > 0 {
			l.t.Errorf("%s: %d of %d failed, first: %v", name, r.failed, len(r.took), r.first)
		}
	}
	for _, name := range kinds {
		if l.done[name] == nil {
			l.t.Errorf("%s: it was not done at all", name)
		}
	}
}

// settle waits until the events are told and, if it may take minutes, the relay has everything.
// Then the mailboxes hold what is left, and what the clients used is free again.
func (l *load) settle(before sample, whole bool) {
	patience := time.Minute
	if whole { // a message that was put off comes again after minutes
		patience = 10 * time.Minute
	}
	waiting := func() string {
		events, messages := int(l.came.Load())-l.eventsTold(), l.relayed.Load()-l.passed.Load()
		if events == 0 && (messages == 0 || !whole) {
			return ""
		}
		return fmt.Sprintf("%d events are not told, %d messages are not relayed", events, messages)
	}
	for end := time.Now().Add(patience); waiting() != ""; time.Sleep(time.Second) {
		if time.Now().After(end) {
			l.t.Errorf("after %s %s", patience, waiting())
			break
		}
	}
	stored := 0
	for _, id := range l.boxes {
		stored += len(l.Inbox(id))
	}
	if held := l.came.Load() - l.went.Load(); stored != int(held) {
		l.t.Errorf("%d messages are in the mailboxes, want %d", stored, held)
	}
	l.client.CloseIdleConnections()
	l.HTTP.CloseIdleConnections()
	var s sample
	l.Until("connections are closed", func() bool {
		s = l.sample()
		return s.files <= before.files+20 && s.goroutines <= before.goroutines+60
	})
	l.t.Logf("before %s", before)
	l.t.Logf("after  %s", s)
	if !whole && s.anonymous > before.anonymous+200 {
		l.t.Errorf("the server's memory has grown from %.1f MiB to %.1f MiB", before.anonymous, s.anonymous)
	}
}

// judge fits a line to the last two thirds of the samples. What it rises in that time must be
// within three standard errors, which count for at most a tenth of the mean, and a floor.
func (l *load) judge() {
	late := l.samples[len(l.samples)/3:]
	for _, figure := range []struct {
		name  string
		floor float64
		of    func(sample) float64
	}{
		{"MiB of memory of its own", 8, func(s sample) float64 { return s.anonymous }},
		{"MiB of heap", 4, func(s sample) float64 { return s.heap }},
		{"goroutines", 8, func(s sample) float64 { return s.goroutines }},
		{"threads", 3, func(s sample) float64 { return s.threads }},
		{"files", 8, func(s sample) float64 { return s.files }},
		{"MiB resident", math.Inf(1), func(s sample) float64 { return s.resident }},
		{"MiB of database", math.Inf(1), func(s sample) float64 { return s.database }},
		{"MiB of segments", math.Inf(1), func(s sample) float64 { return s.segments }},
		{"messages", math.Inf(1), func(s sample) float64 { return float64(s.held) }},
		{"events that wait", math.Inf(1), func(s sample) float64 { return float64(s.waiting) }},
	} {
		values := make([]float64, len(late))
		for n, s := range late {
			values[n] = figure.of(s)
		}
		mean, rise, noise := trend(values)
		most := figure.floor + min(3*noise, mean/10)
		l.t.Logf("%-25s mean %.1f, rise %+.1f ± %.1f, at most %.1f", figure.name, mean, rise, noise, most)
		if rise > most {
			l.t.Errorf("%s rose by %.1f within %s, want %.1f at most", figure.name, rise, late[len(late)-1].at.Sub(late[0].at).Round(time.Second), most)
		}
	}
}

// trend fits a line to values at equal distances, and gives what it rises from the first to the
// last, with the standard error. Neighbours are put together first, since they are not independent.
func trend(values []float64) (mean, rise, noise float64) {
	blocks := min(24, len(values))
	var ys []float64
	for n := range blocks {
		part := values[n*len(values)/blocks : (n+1)*len(values)/blocks]
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		ys = append(ys, sum/float64(len(part)))
		mean += ys[n] / float64(blocks)
	}
	if blocks < 3 {
		return mean, 0, 0
	}
	middle := float64(blocks-1) / 2
	var xx, xy float64
	for n, y := range ys {
		xx += (float64(n) - middle) * (float64(n) - middle)
		xy += (float64(n) - middle) * (y - mean)
	}
	slope, left := xy/xx, 0.0
	for n, y := range ys {
		off := y - mean - slope*(float64(n)-middle)
		left += off * off
	}
	span := float64(blocks - 1)
	return mean, slope * span, math.Sqrt(left/float64(blocks-2)/xx) * span
}
