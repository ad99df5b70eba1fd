// Package cputime measures the processor time that benchmarks and tests use. Other programs on the
// machine affect it less than they affect elapsed time.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Start starts to measure a benchmark. The returned function reports the metric cpu-ns/op: the
// processor time of all threads since Start, for one iteration.
func Start(b *testing.B) (report func()) {
	b.Helper()
	before := Used(b)
	return func() {
		b.Helper()
		b.ReportMetric(float64(Used(b)-before)/float64(b.N), "cpu-ns/op")
	}
}

// Used returns the user and system time that all threads of this process have used so far.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
