// Package cputime tells benchmarks and tests how much processor time they take, which other
// programs on the machine change less than the time on the clock. It does not know what is
// measured.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Start begins to measure a benchmark. The returned function adds the processor time of the process
// since then, in all threads, as the metric cpu-ns/op.
func Start(b *testing.B) (report func()) {
	b.Helper()
	before := Used(b)
	return func() {
		b.Helper()
		b.ReportMetric(float64(Used(b)-before)/float64(b.N), "cpu-ns/op")
	}
}

// Used gives the processor time of this process so far, in all threads.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
