// Package cputime measures the processor time that benchmarks and tests use. Other programs on the
// machine affect it less than the time on the clock.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Start begins to measure a benchmark. The returned function reports the processor time that the
// process has used since then, in all threads, as the metric cpu-ns/op.
func Start(b *testing.B) (report func()) {
	b.Helper()
	before := Used(b)
	return func() {
		b.Helper()
		b.ReportMetric(float64(Used(b)-before)/float64(b.N), "cpu-ns/op")
	}
}

// Used returns the processor time that this process has used so far, in all threads.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
